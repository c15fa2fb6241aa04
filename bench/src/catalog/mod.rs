//! Current version, next version and ready tasks in a catalog of a million tasks.

mod fill;

use std::time::Duration;

use serde_json::json;
use trackway_domain::Ref;
use trackway_store::Engine;
use trackway_views::{
    View,
    link::ListLinks,
    package::ResolvePackage,
    ready::Ready,
    task::{LatestTask, NextTask, history::TaskHistory},
};

use crate::{
    BenchResult,
    bench_env::BenchEnv,
    databases::Databases,
    measure::{Repetitions, Samples, format_count, format_duration, ratio, time_calls, time_once},
    table::{Table, verdict},
};
use fill::Catalog;

pub const HEADING: &str = "## catalog: current version, next version, ready tasks";
const REPETITIONS: Repetitions = Repetitions { warm_up: 100, count: 2_000 };
const CHAINS: [usize; 3] = [10, 100, 1_000];
const LATEST_MAX: Duration = Duration::from_millis(1);
const QUERY_MAX: Duration = Duration::from_millis(5);
/// Growth counts as linear if ten times the chain length multiplies the time by at most ten times this factor.
const LINEAR_MAX: f64 = 1.5;

/// Size of the catalog
#[derive(Debug, clap::Args)]
pub struct CatalogOptions {
    /// Number of tasks
    #[arg(long, value_name = "NUMBER", default_value_t = 1_000_000)]
    tasks: usize,
}

pub fn measure(databases: &Databases, options: &CatalogOptions) -> BenchResult<()> {
    println!(
        "\n{} calls of each query in one process, on a warm connection, with {} tasks: one in ten is a version in a \
         chain of ten, one in three is ready, one in twenty is pinned for one of 50 roles, one in ten is linked to \
         another task, and one in a hundred is blocked by the first version of a chain.",
        format_count(REPETITIONS.count),
        format_count(options.tasks)
    );
    for engine in databases.engines() {
        let env = BenchEnv::create(databases.create(engine, "catalog")?)?;
        let (elapsed, catalog) = time_once(|| Catalog::fill(&env, options.tasks as u64, &CHAINS))?;
        println!("\n### {} (filled in {})", engine.name(), format_duration(elapsed));
        measure_latest(&env)?;
        measure_queries(&env, &catalog)?;
    }
    Ok(())
}

/// Times many calls of one query, each in a separate read transaction.
fn time_query<V: View>(env: &BenchEnv, query: impl Fn(usize) -> V) -> BenchResult<Samples> {
    let queries: Vec<V> = (0..REPETITIONS.warm_up + REPETITIONS.count).map(query).collect();
    time_calls(REPETITIONS, |number| {
        queries[number].answer(&mut env.core.store().read(env.tenant())?, env.core.now())?;
        Ok(())
    })
}

fn measure_latest(env: &BenchEnv) -> BenchResult<()> {
    println!(
        "\n`task latest`, asked for the first version of a chain. Targets on SQLite: p99 less than 1 ms for 100 \
         versions, linear growth after that."
    );
    let mut table = Table::new(["versions", "median", "p99", "median per version", "met"]);
    let mut before: Option<Duration> = None;
    for versions in CHAINS {
        let first = fill::first_of_chain(versions);
        let samples = time_query(env, |_| LatestTask { variant: Some(Ref::new(&*first)), id: None })?;
        let is_linear = before.is_none_or(|before| ratio(samples.median(), before) <= 10.0 * LINEAR_MAX);
        let is_fast = versions > 100 || samples.p99() < LATEST_MAX;
        table.row([
            versions.to_string(),
            format_duration(samples.median()),
            format_duration(samples.p99()),
            format!("{:.2} us", samples.median().as_secs_f64() * 1e6 / versions as f64),
            if env.engine() == Engine::Sqlite { verdict(is_linear && is_fast) } else { String::new() },
        ]);
        before = Some(samples.median());
    }
    table.print();
    Ok(())
}

fn measure_queries(env: &BenchEnv, catalog: &Catalog) -> BenchResult<()> {
    println!(
        "Other queries. Target: p99 less than 5 ms. The specification requires this of `ready`, `next` and `resolve`; \
         the benchmark applies it to all."
    );
    let mut table = Table::new(["query", "median", "p99", "met"]);
    let mut add = |name: &str, samples: Samples| {
        let met = verdict(samples.p99() < QUERY_MAX);
        table.row([name.to_owned(), format_duration(samples.median()), format_duration(samples.p99()), met]);
    };
    add("ready (100 rows)", time_query(env, |_| Ready { limit: None, after: None })?);
    add("ready --limit 1", time_query(env, |_| Ready { limit: Some(1), after: None })?);
    let next = |level: &'static str| {
        move |draw| NextTask { id: Ref::new(catalog.random_replaced_id(draw)), level: level.to_owned() }
    };
    add("task next --level any", time_query(env, next("any"))?);
    add("task next --level minor", time_query(env, next("minor"))?);
    add(
        "package resolve, pinned",
        time_query(env, |draw| {
            let (role, variant) = catalog.random_pin(draw);
            ResolvePackage { role: Ref::new(role), variant: Ref::new(variant) }
        })?,
    );
    add(
        "package resolve, not pinned",
        time_query(env, |draw| {
            let (_, variant) = catalog.random_pin(draw);
            ResolvePackage { role: Ref::new("builder"), variant: Ref::new(variant) }
        })?,
    );
    add(
        "package resolve, never replaced",
        time_query(env, |draw| ResolvePackage {
            role: Ref::new("builder"),
            variant: Ref::new(catalog.random_unreplaced_variant(draw)),
        })?,
    );
    add(
        "task set --replaces, a write",
        time_calls(Repetitions { warm_up: 10, count: 200 }, |draw| {
            let (variant, replaced) = (format!("new/version-{draw}"), catalog.random_unreplaced_variant(draw));
            env.execute_json("set_task", json!({ "workflow": "unit", "variant": variant, "replaces": replaced }))?;
            Ok(())
        })?,
    );
    add("task history", time_query(env, |draw| TaskHistory { task: Ref::new(catalog.random_replaced_id(draw)) })?);
    add("link list", time_query(env, |draw| ListLinks { task: Ref::new(catalog.random_replaced_id(draw)) })?);
    table.print();
    Ok(())
}

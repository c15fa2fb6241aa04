//! Time of the linked-task document as the number of links grows.

use std::time::Duration;

use serde_json::json;
use trackway_domain::Ref;
use trackway_store::Engine;
use trackway_views::{View, wake::Wake};

use crate::{
    BenchResult,
    bench_env::{AGENT, BenchEnv},
    databases::Databases,
    measure::{Repetitions, format_count, format_duration, ratio, time_calls, time_once},
    table::{Table, verdict},
};

pub const HEADING: &str = "## wake: the linked-task document";
const REPETITIONS: Repetitions = Repetitions { warm_up: 10, count: 200 };
const LINKS: [usize; 4] = [1, 100, 1_000, 10_000];
/// The task whose links lead to replaced tasks.
const REPLACED_LINKS_TASK: &str = "hub/replaced";
/// Target for 1,000 links on SQLite.
const THOUSAND_LINKS_MAX: Duration = Duration::from_millis(10);
const QUERIES_MAX: u64 = 6;
/// Target for 1,000 links to replaced tasks.
const REPLACED_MAX: Duration = Duration::from_millis(15);
const REPLACED_QUERIES_MAX: u64 = 8;
const REPLACED: usize = 1_000;
/// Growth counts as linear if ten times the number of links multiplies the time by at most ten times this factor.
const LINEAR_MAX: f64 = 1.5;
const REPORT: &str = "Painted the hull and checked the mast. The rudder is still loose: see the note in the studio. \
                      Next: tighten it, then take her out for an hour and listen.";

pub fn measure(databases: &Databases) -> BenchResult<()> {
    println!(
        "\n`wake TASK --linked`, {} calls each in one process, on a warm connection. Every linked task has a label, a \
         run and a report of {} characters. Targets: at most 6 queries for any number of links, linear growth, less \
         than 10 ms for 1,000 links on SQLite; with links to replaced tasks at most 8 queries, and less than 15 ms for \
         1,000 links.",
        format_count(REPETITIONS.count),
        REPORT.len()
    );
    for engine in databases.engines() {
        let env = BenchEnv::create(databases.create(engine, "wake")?)?;
        let (elapsed, ()) = time_once(|| fill(&env))?;
        println!("\n### {} (filled in {})", engine.name(), format_duration(elapsed));
        measure_documents(&env)?;
    }
    Ok(())
}

fn hub_task(links: usize) -> String {
    format!("hub/{links}")
}

fn fill(env: &BenchEnv) -> BenchResult<()> {
    env.execute_json("set_label", json!({ "key": "ui", "name": "Interface" }))?;
    for links in LINKS {
        env.execute_json("set_task", json!({ "workflow": "unit", "variant": hub_task(links) }))?;
    }
    let most = LINKS.into_iter().max().unwrap_or_default();
    for number in 0..most {
        let variant = format!("spoke/{number}");
        env.execute_json("set_task", json!({ "workflow": "unit", "variant": variant, "labels": ["ui"] }))?;
        env.execute_json("start_run", json!({ "agent": AGENT, "task": variant }))?;
        let report = json!({ "agent": AGENT, "task": variant, "one_liner": "Painted", "tldr": "Painted it.", "content": REPORT });
        env.execute_json("set_report", report)?;
        for links in LINKS.into_iter().filter(|links| number < *links) {
            env.execute_json("add_link", json!({ "from": hub_task(links), "to": variant, "type": "relates_to" }))?;
        }
    }
    env.execute_json("set_task", json!({ "workflow": "unit", "variant": REPLACED_LINKS_TASK }))?;
    for number in 0..REPLACED {
        let (old, new) = (format!("old/{number}"), format!("new/{number}"));
        env.execute_json("set_task", json!({ "workflow": "unit", "variant": old, "labels": ["ui"] }))?;
        let report =
            json!({ "agent": AGENT, "task": old, "one_liner": "Painted", "tldr": "Painted it.", "content": REPORT });
        env.execute_json("set_report", report)?;
        env.execute_json("add_link", json!({ "from": REPLACED_LINKS_TASK, "to": old, "type": "blocks" }))?;
        env.execute_json("set_task", json!({ "workflow": "unit", "variant": new, "replaces": old }))?;
        env.execute_json("start_run", json!({ "agent": AGENT, "task": new }))?;
    }
    if env.engine() == Engine::Postgres {
        env.database.connection()?.batch("vacuum analyze")?;
    }
    Ok(())
}

fn measure_documents(env: &BenchEnv) -> BenchResult<()> {
    let mut table = Table::new(["links", "queries", "median", "p99", "median per link", "met"]);
    let mut before: Option<(usize, Duration)> = None;
    for links in LINKS {
        let wake = Wake { task: Ref::new(hub_task(links)), agent: None, explain: false, linked: true };
        let mut queries = 0;
        let repetitions = if links > 1_000 { Repetitions { warm_up: 2, count: 40 } } else { REPETITIONS };
        let samples = time_calls(repetitions, |_| {
            let mut read = env.core.store().read(env.tenant())?;
            wake.answer(&mut read, env.core.now())?;
            queries = read.queries();
            Ok(())
        })?;
        let is_linear = before
            .is_none_or(|(fewer, time)| ratio(samples.median(), time) <= (links as f64 / fewer as f64) * LINEAR_MAX);
        let is_fast = links != 1_000 || env.engine() != Engine::Sqlite || samples.median() < THOUSAND_LINKS_MAX;
        table.row([
            format_count(links),
            queries.to_string(),
            format_duration(samples.median()),
            format_duration(samples.p99()),
            format!("{:.2} us", samples.median().as_secs_f64() * 1e6 / links as f64),
            verdict(is_linear && is_fast && queries <= QUERIES_MAX),
        ]);
        before = Some((links, samples.median()));
    }
    let wake = Wake { task: Ref::new(REPLACED_LINKS_TASK), agent: None, explain: false, linked: true };
    let mut queries = 0;
    let samples = time_calls(REPETITIONS, |_| {
        let mut read = env.core.store().read(env.tenant())?;
        wake.answer(&mut read, env.core.now())?;
        queries = read.queries();
        Ok(())
    })?;
    table.row([
        format!("{}, replaced", format_count(REPLACED)),
        queries.to_string(),
        format_duration(samples.median()),
        format_duration(samples.p99()),
        format!("{:.2} us", samples.median().as_secs_f64() * 1e6 / REPLACED as f64),
        verdict(samples.median() < REPLACED_MAX && queries <= REPLACED_QUERIES_MAX),
    ]);
    table.print();
    Ok(())
}

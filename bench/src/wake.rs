//! The linked-task document, as the number of links grows.

use std::time::Duration;

use serde_json::json;
use trackway_domain::Ref;
use trackway_store::Engine;
use trackway_views::{View, wake::Wake};

use crate::{
    Outcome,
    bench_env::{AGENT, BenchEnv},
    measure::{Often, calls, grouped, once, ratio, shown},
    place::Places,
    table::{Table, verdict},
};

pub const HEADING: &str = "## wake: the linked-task document";
const OFTEN: Often = Often { warm_up: 10, count: 200 };
const LINKS: [usize; 4] = [1, 100, 1_000, 10_000];
/// A task with links to tasks that are replaced.
const REPLACED_HUB: &str = "hub/replaced";
/// What a thousand links may take on SQLite.
const THOUSAND_MAX: Duration = Duration::from_millis(10);
const QUERIES_MAX: u64 = 6;
/// Longest time for a thousand links to replaced tasks.
const REPLACED_MAX: Duration = Duration::from_millis(15);
const REPLACED_QUERIES_MAX: u64 = 8;
const REPLACED: usize = 1_000;
/// How much more than in proportion ten times as many links may take.
const LINEAR_MAX: f64 = 1.5;
/// The text of every report.
const REPORT: &str = "Painted the hull and checked the mast. The rudder is still loose: see the note in the studio. \
                      Next: tighten it, then take her out for an hour and listen.";

pub fn measure(places: &Places) -> Outcome<()> {
    println!(
        "\n`wake TASK --linked`, {} calls each in one process, on a warm connection. Every linked task has a label, a run and \
         a report of {} characters. Target: at most 6 queries for any number of links, time in proportion to the rows, 1,000 \
         links under 10 ms on SQLite; with links to replaced tasks at most 8 queries, 1,000 links under 15 ms.",
        grouped(OFTEN.count),
        REPORT.len()
    );
    for engine in places.engines() {
        let env = BenchEnv::found(places.database(engine, "wake")?)?;
        let (took, ()) = once(|| fill(&env))?;
        println!("\n### {} (filled in {})", engine.name(), shown(took));
        documents(&env)?;
    }
    Ok(())
}

fn hub(links: usize) -> String {
    format!("hub/{links}")
}

fn fill(env: &BenchEnv) -> Outcome<()> {
    env.act("set_label", json!({ "key": "ui", "name": "Interface" }))?;
    for links in LINKS {
        env.act("set_task", json!({ "workflow": "unit", "variant": hub(links) }))?;
    }
    let most = LINKS.into_iter().max().unwrap_or_default();
    for number in 0..most {
        let variant = format!("spoke/{number}");
        env.act("set_task", json!({ "workflow": "unit", "variant": variant, "labels": ["ui"] }))?;
        env.act("start_run", json!({ "agent": AGENT, "task": variant }))?;
        let report = json!({ "agent": AGENT, "task": variant, "one_liner": "Painted", "tldr": "Painted it.", "content": REPORT });
        env.act("set_report", report)?;
        for links in LINKS.into_iter().filter(|links| number < *links) {
            env.act("add_link", json!({ "from": hub(links), "to": variant, "type": "relates_to" }))?;
        }
    }
    env.act("set_task", json!({ "workflow": "unit", "variant": REPLACED_HUB }))?;
    for number in 0..REPLACED {
        let (old, new) = (format!("old/{number}"), format!("new/{number}"));
        env.act("set_task", json!({ "workflow": "unit", "variant": old, "labels": ["ui"] }))?;
        let report =
            json!({ "agent": AGENT, "task": old, "one_liner": "Painted", "tldr": "Painted it.", "content": REPORT });
        env.act("set_report", report)?;
        env.act("add_link", json!({ "from": REPLACED_HUB, "to": old, "type": "blocks" }))?;
        env.act("set_task", json!({ "workflow": "unit", "variant": new, "replaces": old }))?;
        env.act("start_run", json!({ "agent": AGENT, "task": new }))?;
    }
    if env.engine() == Engine::Postgres {
        env.database.connection()?.batch("vacuum analyze")?;
    }
    Ok(())
}

fn documents(env: &BenchEnv) -> Outcome<()> {
    let mut table = Table::new(["links", "queries", "median", "p99", "median per link", "met"]);
    let mut before: Option<(usize, Duration)> = None;
    for links in LINKS {
        let wake = Wake { task: Ref::new(hub(links)), agent: None, explain: false, linked: true };
        let mut queries = 0;
        let often = if links > 1_000 { Often { warm_up: 2, count: 40 } } else { OFTEN };
        let samples = calls(often, |_| {
            let mut read = env.core.store().read(env.tenant())?;
            wake.answer(&mut read, env.core.now())?;
            queries = read.queries();
            Ok(())
        })?;
        let linear = before
            .is_none_or(|(fewer, time)| ratio(samples.median(), time) <= (links as f64 / fewer as f64) * LINEAR_MAX);
        let quick = links != 1_000 || env.engine() != Engine::Sqlite || samples.median() < THOUSAND_MAX;
        table.row([
            grouped(links),
            queries.to_string(),
            shown(samples.median()),
            shown(samples.p99()),
            format!("{:.2} us", samples.median().as_secs_f64() * 1e6 / links as f64),
            verdict(linear && quick && queries <= QUERIES_MAX),
        ]);
        before = Some((links, samples.median()));
    }
    let wake = Wake { task: Ref::new(REPLACED_HUB), agent: None, explain: false, linked: true };
    let mut queries = 0;
    let samples = calls(OFTEN, |_| {
        let mut read = env.core.store().read(env.tenant())?;
        wake.answer(&mut read, env.core.now())?;
        queries = read.queries();
        Ok(())
    })?;
    table.row([
        format!("{}, replaced", grouped(REPLACED)),
        queries.to_string(),
        shown(samples.median()),
        shown(samples.p99()),
        format!("{:.2} us", samples.median().as_secs_f64() * 1e6 / REPLACED as f64),
        verdict(samples.median() < REPLACED_MAX && queries <= REPLACED_QUERIES_MAX),
    ]);
    table.print();
    Ok(())
}

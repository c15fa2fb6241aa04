//! Search in a million messages, and sending messages in batches.

mod bodies;
mod send;

use clap::Args;
use serde_json::json;
use trackway_actions::message::SendMessage;
use trackway_domain::Ref;
use trackway_store::{Engine, Url};
use trackway_views::{View, message::MessageFilter, page::Page, search::Search};

use crate::{
    BenchResult,
    bench_env::BenchEnv,
    databases::Databases,
    measure::{self, Repetitions, format_count, format_duration, time_once},
    table::{Table, verdict},
};
use bodies::{Random, body};

pub const HEADING: &str = "## search: searching a million messages, and sending them";
const P99_MAX_MS: f64 = 20.0;
/// Messages per transaction while the database is filled.
const BATCH: usize = 1_000;

#[derive(Debug, Args)]
pub struct SearchOptions {
    /// Number of messages
    #[arg(long, default_value_t = 1_000_000)]
    messages: usize,
    /// Number of different bodies
    #[arg(long, default_value_t = 200_000)]
    bodies: u64,
    /// Number of calls of each search
    #[arg(long, default_value_t = 500)]
    searches: usize,
}

/// A search to measure.
#[derive(Debug)]
struct SearchCase {
    name: &'static str,
    words: &'static str,
    is_in_role: bool,
    /// Whether the target applies: at most about 1 % of the bodies match.
    is_rare: bool,
}

const SEARCH_CASES: [SearchCase; 8] = [
    SearchCase { name: "a word in 0.005 % of bodies", words: "onein20000", is_in_role: false, is_rare: true },
    SearchCase { name: "a word in 0.1 %", words: "onein1000", is_in_role: false, is_rare: true },
    SearchCase { name: "a word in 1 %", words: "onein100", is_in_role: false, is_rare: true },
    SearchCase { name: "a word in 1 %, in a role", words: "onein100", is_in_role: true, is_rare: true },
    SearchCase { name: "a phrase in 1 %", words: "\"onein100 mark\"", is_in_role: false, is_rare: true },
    SearchCase { name: "a prefix of words in 1.1 %", words: "onein1* onein100", is_in_role: false, is_rare: true },
    SearchCase { name: "a word in 50 %", words: "onein2", is_in_role: false, is_rare: false },
    SearchCase { name: "a word in 50 % and one in 0.1 %", words: "onein2 onein1000", is_in_role: false, is_rare: true },
];

pub fn measure(databases: &Databases, options: &SearchOptions) -> BenchResult<()> {
    measure_searches(databases, options)?;
    send::measure(databases)
}

fn measure_searches(databases: &Databases, options: &SearchOptions) -> BenchResult<()> {
    let env = BenchEnv::create(databases.create(Engine::Sqlite, "search")?)?;
    let (elapsed, ()) = time_once(|| fill(&env, options))?;
    let Url::Sqlite(file) = env.database.url() else { return Err("expected a SQLite file".into()) };
    println!(
        "\n{} messages with {} different bodies of about 40 words on SQLite, sent through the write path, {BATCH} per \
         transaction: {}, {} per second; the file has {} MB. The searches run in this process and return 20 hits each. \
         Target: p99 less than 20 ms for words in at most 1 % of the bodies. For more frequent words, Trackway ranks \
         only the newest 10,000 bodies, and the result says so.",
        format_count(options.messages),
        format_count(usize::try_from(options.bodies)?),
        format_duration(elapsed),
        format_count(send::rate(options.messages, elapsed)),
        file.metadata()?.len() / 1_000_000,
    );
    let mut table = Table::new(["search", "hits", "newest bodies only", "median", "p99", "met"]);
    for case in &SEARCH_CASES {
        let which = MessageFilter { role: case.is_in_role.then(|| Ref::new("builder")), ..MessageFilter::default() };
        let search = Search { words: vec![case.words.to_owned()], which, page: Page::default() };
        let ask =
            || Ok::<_, crate::BenchError>(search.answer(&mut env.core.store().read(env.tenant())?, env.core.now())?);
        let answer = ask()?;
        let repetitions = Repetitions { warm_up: 5, count: options.searches };
        let samples = measure::time_calls(repetitions, |_| ask().map(drop))?;
        let p99 = samples.p99();
        let met = if case.is_rare { p99.as_secs_f64() * 1e3 < P99_MAX_MS } else { answer.newest_only };
        table.row([
            case.name.to_owned(),
            answer.hits.len().to_string(),
            if answer.newest_only { "yes" } else { "no" }.to_owned(),
            format_duration(samples.median()),
            format_duration(p99),
            verdict(met),
        ]);
    }
    table.print();
    Ok(())
}

/// Sends every body once, then random bodies. Half of the messages go to a role.
fn fill(env: &BenchEnv, options: &SearchOptions) -> BenchResult<()> {
    let mut random = Random(7);
    let mut sent = 0;
    while sent < options.messages {
        let batch: Vec<SendMessage> = (sent..options.messages.min(sent + BATCH))
            .map(|number| {
                let number = number as u64;
                let of = if number < options.bodies { number } else { random.next() % options.bodies };
                let role = number.is_multiple_of(2).then_some("builder");
                serde_json::from_value(json!({ "body": body(of), "role": role }))
            })
            .collect::<Result<_, _>>()?;
        sent += env.core.execute_all(&env.person, &batch)?.len();
    }
    Ok(())
}

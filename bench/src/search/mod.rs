//! Searching very many messages, and sending them by the hundred.

mod bodies;
mod sending;

use clap::Args;
use serde_json::json;
use trackway_actions::message::SendMessage;
use trackway_domain::Ref;
use trackway_store::{Engine, Url};
use trackway_views::{View, message::Which, page::Page, search::Search};

use crate::{
    Outcome,
    bench_env::BenchEnv,
    measure::{self, Often, grouped, once, shown},
    place::Places,
    table::{Table, verdict},
};
use bodies::{Random, body};

pub const HEADING: &str = "## search: a million messages, and sending them";
const P99_MAX_MS: f64 = 20.0;
/// Messages of one transaction when the database is filled.
const BATCH: usize = 1_000;

#[derive(Debug, Args)]
pub struct Size {
    /// Messages to search
    #[arg(long, default_value_t = 1_000_000)]
    messages: usize,
    /// Different bodies among them
    #[arg(long, default_value_t = 200_000)]
    bodies: u64,
    /// How often each question is asked
    #[arg(long, default_value_t = 500)]
    searches: usize,
}

/// What is asked for.
#[derive(Debug)]
struct Question {
    name: &'static str,
    words: &'static str,
    in_role: bool,
    /// Whether its words are in at most one of a hundred bodies.
    rare: bool,
}

const QUESTIONS: [Question; 8] = [
    Question { name: "a word in 0.005 % of bodies", words: "onein20000", in_role: false, rare: true },
    Question { name: "a word in 0.1 %", words: "onein1000", in_role: false, rare: true },
    Question { name: "a word in 1 %", words: "onein100", in_role: false, rare: true },
    Question { name: "a word in 1 %, in a role", words: "onein100", in_role: true, rare: true },
    Question { name: "a phrase in 1 %", words: "\"onein100 mark\"", in_role: false, rare: true },
    Question { name: "a prefix of words in 1.1 %", words: "onein1* onein100", in_role: false, rare: true },
    Question { name: "a word in 50 %", words: "onein2", in_role: false, rare: false },
    Question { name: "a word in 50 % and one in 0.1 %", words: "onein2 onein1000", in_role: false, rare: true },
];

pub fn measure(places: &Places, size: &Size) -> Outcome<()> {
    searching(places, size)?;
    sending::measure(places)
}

fn searching(places: &Places, size: &Size) -> Outcome<()> {
    let env = BenchEnv::found(places.database(Engine::Sqlite, "search")?)?;
    let (took, ()) = once(|| fill(&env, size))?;
    let Url::Sqlite(file) = env.database.url() else { return Err("this database is a file".into()) };
    println!(
        "\n{} messages over {} different bodies of some 40 words on SQLite, sent through the write path {BATCH} in a transaction: {}, {} per second; the file has {} MB. Searches inside the process, 20 hits each. Target: p99 under 20 ms for words in at most 1 % of bodies; of commoner words the newest 10,000 bodies are ranked, and the answer says so.",
        grouped(size.messages),
        grouped(usize::try_from(size.bodies)?),
        shown(took),
        grouped(sending::rate(size.messages, took)),
        file.metadata()?.len() / 1_000_000,
    );
    let mut table = Table::new(["search", "hits", "only the newest", "median", "p99", "met"]);
    for question in &QUESTIONS {
        let which = Which { role: question.in_role.then(|| Ref::new("builder")), ..Which::default() };
        let search = Search { words: vec![question.words.to_owned()], which, page: Page::default() };
        let ask = || Ok::<_, crate::Failure>(search.answer(&mut env.core.store().read(env.tenant())?, env.core.now())?);
        let answer = ask()?;
        let often = Often { warm_up: 5, count: size.searches };
        let samples = measure::calls(often, |_| ask().map(drop))?;
        let p99 = samples.p99();
        let met = if question.rare { p99.as_secs_f64() * 1e3 < P99_MAX_MS } else { answer.newest_only };
        table.row([
            question.name.to_owned(),
            answer.hits.len().to_string(),
            if answer.newest_only { "yes, it says" } else { "no" }.to_owned(),
            shown(samples.median()),
            shown(p99),
            verdict(met),
        ]);
    }
    table.print();
    Ok(())
}

/// Sends every body once, then bodies at random; half of all in a role.
fn fill(env: &BenchEnv, size: &Size) -> Outcome<()> {
    let mut random = Random(7);
    let mut sent = 0;
    while sent < size.messages {
        let batch: Vec<SendMessage> = (sent..size.messages.min(sent + BATCH))
            .map(|number| {
                let number = number as u64;
                let of = if number < size.bodies { number } else { random.next() % size.bodies };
                let role = number.is_multiple_of(2).then_some("builder");
                serde_json::from_value(json!({ "body": body(of), "role": role }))
            })
            .collect::<Result<_, _>>()?;
        sent += env.core.execute_all(&env.person, &batch)?.len();
    }
    Ok(())
}

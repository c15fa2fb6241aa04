//! The queue: items per second, how soon a waiting worker starts, and what history and waiting cost.

mod bare;
mod idle;
mod ours;
mod peers;
mod wait;

use std::thread;

use clap::Args;
use trackway_store::Engine;

use crate::{
    Failure, Outcome,
    measure::grouped,
    place::Places,
    table::{Table, verdict},
};
use bare::Protocol;
use ours::{Completing, Ours};
use peers::Peer;

pub use peers::Others;

pub const HEADING: &str = "## queue: add, take, complete";
const BATCH: usize = 100;
/// Finished items that a take must not notice.
const HISTORY: u64 = 1_000_000;
/// How much slower a take may be with them: what two runs of the same differ by.
const HISTORY_MIN: f64 = 0.8;

#[derive(Debug, Args)]
pub struct Size {
    /// Rounds of which the median is shown
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Which parts, of rates, waits, history, idle
    #[arg(long, value_delimiter = ',', default_value = "rates,waits,history,idle")]
    parts: Vec<String>,
    /// On which engines, where there is a server: sqlite, postgres
    #[arg(long, value_delimiter = ',', default_value = "sqlite,postgres")]
    engines: Vec<String>,
    /// How many workers at once, on PostgreSQL
    #[arg(long, value_delimiter = ',', default_value = "1,8,32")]
    workers: Vec<usize>,
}

/// How a round goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Load {
    workers: usize,
    /// Items per call.
    batch: usize,
    items: usize,
}

pub fn measure(places: &Places, size: &Size, others: &Others) -> Outcome<()> {
    for (part, run) in [
        ("rates", rates as fn(&Places, &Size, &Others) -> Outcome<()>),
        ("waits", |places, _, _| wait::measure(places)),
        ("history", |places, size, _| history(places, size)),
        ("idle", |places, _, _| idle::measure(places)),
    ] {
        if size.parts.iter().any(|wanted| wanted == part) {
            run(places, size, others)?;
        }
    }
    Ok(())
}

fn rates(places: &Places, size: &Size, others: &Others) -> Outcome<()> {
    println!(
        "\nItems per second, median of {} rounds in turn, each side in a database of its own on the same server: all are \
         added, then all are taken and completed, by so many at once, each call with one item or with {BATCH}. The last columns are ours \
         where what is done is completed by the call that takes the next (`queue take --done`), which none of the others does: the verdict is not of them. Ours is an \
         item, a run, two registry entries and three events; a take finds its agent and makes the run's token. Bare: one table, `for \
         update skip locked`, three statements (on SQLite with the same pragmas; on PostgreSQL under pgbench, as it sends them by itself, each as a text, and \
         prepared, as ours are), nothing else. Targets: one by one 0.6 of bare on PostgreSQL and 0.5 on SQLite, by the hundred 0.5; \
         ahead of every other.",
        size.rounds
    );
    let peers = others.peers();
    let is_wanted =
        |engine: &Engine| size.engines.iter().any(|wanted| engine.name().to_lowercase().starts_with(wanted));
    for engine in places.engines().filter(is_wanted) {
        println!("\n### {}", engine.name());
        let bare: &[(Protocol, [&str; 2])] = match engine {
            Engine::Sqlite => &[(Protocol::Prepared, ["bare", "trackway / bare"])],
            Engine::Postgres => &[
                (Protocol::Simple, ["bare", "trackway / bare"]),
                (Protocol::Prepared, ["bare, prepared", "trackway / that"]),
            ],
        };
        let mut headings = vec!["workers", "per call", "trackway"];
        headings.extend(bare.iter().flat_map(|(_, headings)| headings));
        let here: Vec<&Peer> = peers.iter().filter(|peer| peer.engine() == engine).collect();
        headings.extend(here.iter().map(|peer| peer.name()));
        headings.extend(["met", "with --done", "that / bare"]);
        let mut table = Table::with(&headings);
        for load in loads(engine, size) {
            let (mut ours, mut at_once) = (Vec::new(), Vec::new());
            let mut theirs = vec![Vec::new(); bare.len() + here.len()];
            for _ in 0..size.rounds {
                ours.push(Ours::found(places, engine)?.rate(load, Completing::Apart)?);
                at_once.push(Ours::found(places, engine)?.rate(load, Completing::WithTheNext)?);
                let (bares, peers) = theirs.split_at_mut(bare.len());
                for ((protocol, _), rates) in bare.iter().zip(bares) {
                    rates.push(bare::rate(places, engine, load, *protocol)?);
                }
                for (peer, rates) in here.iter().zip(peers) {
                    rates.push(peer.rate(places, load)?);
                }
            }
            let (ours, theirs) = (median(ours), theirs.into_iter().map(median).collect::<Vec<f64>>());
            let (bares, peers) = theirs.split_at(bare.len());
            let wanted = if load.batch == 1 && engine == Engine::Postgres { 0.6 } else { 0.5 };
            let is_ahead = peers.iter().all(|peer| ours > *peer);
            let mut row = vec![load.workers.to_string(), load.batch.to_string(), shown(ours)];
            row.extend(bares.iter().flat_map(|bare| [shown(*bare), format!("{:.2}", ours / bare)]));
            row.extend(peers.iter().map(|rate| shown(*rate)));
            row.push(verdict(ours / bares[0] >= wanted && is_ahead));
            let at_once = median(at_once);
            row.extend([shown(at_once), format!("{:.2}", at_once / bares[0])]);
            table.add(row);
        }
        table.print();
    }
    Ok(())
}

fn loads(engine: Engine, size: &Size) -> Vec<Load> {
    match engine {
        Engine::Sqlite => vec![
            Load { workers: 1, batch: 1, items: 10_000 },
            Load { workers: 8, batch: 1, items: 10_000 },
            Load { workers: 1, batch: BATCH, items: 40_000 },
        ],
        Engine::Postgres => [1, BATCH]
            .into_iter()
            .flat_map(|batch| {
                size.workers.iter().map(move |workers| Load {
                    workers: *workers,
                    batch,
                    items: match (batch, workers) {
                        (1, 1) => 2_000,
                        (1, _) => 4_000,
                        _ => 32_000,
                    },
                })
            })
            .collect(),
    }
}

/// A take with an empty table, and with very many finished items in it.
fn history(places: &Places, size: &Size) -> Outcome<()> {
    println!(
        "\nTake and complete, one by one and one worker, items per second: with nothing else in the table, and with {} \
         finished items. Target: the same, within a fifth.",
        grouped(usize::try_from(HISTORY)?)
    );
    let mut table = Table::new(["engine", "0", "1,000,000", "ratio", "met"]);
    for engine in places.engines() {
        let load = Load { workers: 1, batch: 1, items: if engine == Engine::Sqlite { 5_000 } else { 2_000 } };
        let (young, old) = (Ours::found(places, engine)?, Ours::found(places, engine)?);
        old.age(HISTORY)?;
        let (mut before, mut after) = (Vec::new(), Vec::new());
        // The first round warms up.
        for round in 0..=size.rounds {
            let (one, other) = (young.take_rate(load)?, old.take_rate(load)?);
            if round > 0 {
                before.push(one);
                after.push(other);
            }
        }
        let (before, after) = (median(before), median(after));
        let ratio = after / before;
        table.row([
            engine.name().to_owned(),
            shown(before),
            shown(after),
            format!("{ratio:.2}"),
            verdict(ratio >= HISTORY_MIN),
        ]);
    }
    table.print();
    Ok(())
}

fn median(mut rates: Vec<f64>) -> f64 {
    rates.sort_unstable_by(f64::total_cmp);
    rates.get(rates.len() / 2).copied().unwrap_or_default()
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a rate is positive and far below 2^53")]
fn shown(rate: f64) -> String {
    if rate > 0.0 { grouped(rate as usize) } else { "-".to_owned() }
}

/// Does the same on several threads.
fn together(count: usize, work: impl Fn(usize) -> Outcome<()> + Sync) -> Outcome<()> {
    thread::scope(|scope| {
        let work = &work;
        let working: Vec<_> = (0..count).map(|number| scope.spawn(move || work(number))).collect();
        working.into_iter().try_for_each(|working| working.join().map_err(|_| Failure::from("a worker panicked"))?)
    })
}

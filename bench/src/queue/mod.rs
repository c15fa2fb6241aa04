//! The queue: items per second, delay until a waiting worker takes an item, and the costs of history and of idle
//! workers.

mod bare_sql;
mod idle;
mod peer_queues;
mod pickup_latency;
mod trackway_queue;

use std::thread;

use clap::Args;
use trackway_store::Engine;

use crate::{
    BenchError, BenchResult,
    databases::Databases,
    measure::format_count,
    table::{Table, verdict},
};
use bare_sql::Protocol;
use peer_queues::Peer;
use trackway_queue::{CompletionMode, TrackwayQueue};

pub use peer_queues::QueuePeers;

pub const HEADING: &str = "## queue: add, take, complete";
const BATCH: usize = 100;
/// Number of finished items, which must not slow a take down.
const HISTORY: u64 = 1_000_000;
/// Target for the take rate with the finished items, divided by the rate without them. It is below 1 because even two
/// runs of the same measurement differ that much.
const HISTORY_MIN: f64 = 0.8;

#[derive(Debug, Args)]
pub struct QueueOptions {
    /// Number of rounds; the tables show the median
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Parts to run: rates, waits, history, idle
    #[arg(long, value_delimiter = ',', default_value = "rates,waits,history,idle")]
    parts: Vec<String>,
    /// Engines to measure: sqlite, postgres
    #[arg(long, value_delimiter = ',', default_value = "sqlite,postgres")]
    engines: Vec<String>,
    /// Numbers of concurrent workers, on PostgreSQL
    #[arg(long, value_delimiter = ',', default_value = "1,8,32")]
    workers: Vec<usize>,
}

/// The load of one round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueWorkload {
    workers: usize,
    batch: usize,
    items: usize,
}

pub fn measure(databases: &Databases, options: &QueueOptions, peer_paths: &QueuePeers) -> BenchResult<()> {
    for (part, run) in [
        ("rates", rates as fn(&Databases, &QueueOptions, &QueuePeers) -> BenchResult<()>),
        ("waits", |databases, _, _| pickup_latency::measure(databases)),
        ("history", |databases, options, _| measure_history(databases, options)),
        ("idle", |databases, _, _| idle::measure(databases)),
    ] {
        if options.parts.iter().any(|wanted| wanted == part) {
            run(databases, options, peer_paths)?;
        }
    }
    Ok(())
}

fn rates(databases: &Databases, options: &QueueOptions, peer_paths: &QueuePeers) -> BenchResult<()> {
    println!(
        "\nItems per second, median of {} alternating rounds, each side in a separate database on the same server. The \
         workers add all items, then take and complete all of them, with one or {BATCH} items per call. Each Trackway \
         item writes an item, a run, two registry entries and three events; a take also looks up the agent and creates \
         the run token. \"bare\": one table, `for update skip locked` and three statements, nothing else; on SQLite \
         with the same pragmas, on PostgreSQL run by pgbench, which sends each statement as text (\"bare\") or \
         prepared (\"bare, prepared\"), as Trackway does. Targets: with one item per call 0.6 of bare on PostgreSQL \
         and 0.5 on SQLite, with {BATCH} items per call 0.5; faster than every other queue. In the last columns, the \
         call that takes the next items also completes the previous ones (`queue take --done`); no other queue can do \
         this, so the targets do not apply to these columns.",
        options.rounds
    );
    let peers = peer_paths.peers();
    let is_wanted =
        |engine: &Engine| options.engines.iter().any(|wanted| engine.name().to_lowercase().starts_with(wanted));
    for engine in databases.engines().filter(is_wanted) {
        println!("\n### {}", engine.name());
        let bare: &[(Protocol, [&str; 2])] = match engine {
            Engine::Sqlite => &[(Protocol::Prepared, ["bare", "trackway / bare"])],
            Engine::Postgres => &[
                (Protocol::Simple, ["bare", "trackway / bare"]),
                (Protocol::Prepared, ["bare, prepared", "trackway / prepared"]),
            ],
        };
        let mut headings = vec!["workers", "per call", "trackway"];
        headings.extend(bare.iter().flat_map(|(_, headings)| headings));
        let engine_peers: Vec<&Peer> = peers.iter().filter(|peer| peer.engine() == engine).collect();
        headings.extend(engine_peers.iter().map(|peer| peer.name()));
        headings.extend(["met", "with --done", "--done / bare"]);
        let mut table = Table::with_headings(&headings);
        for workload in workloads(engine, options) {
            let (mut trackway, mut with_next_take) = (Vec::new(), Vec::new());
            let mut peer_rates = vec![Vec::new(); bare.len() + engine_peers.len()];
            for _ in 0..options.rounds {
                trackway.push(TrackwayQueue::create(databases, engine)?.rate(workload, CompletionMode::Separate)?);
                with_next_take
                    .push(TrackwayQueue::create(databases, engine)?.rate(workload, CompletionMode::WithNextTake)?);
                let (bare_rates, peers) = peer_rates.split_at_mut(bare.len());
                for ((protocol, _), rates) in bare.iter().zip(bare_rates) {
                    rates.push(bare_sql::rate(databases, engine, workload, *protocol)?);
                }
                for (peer, rates) in engine_peers.iter().zip(peers) {
                    rates.push(peer.rate(databases, workload)?);
                }
            }
            let (trackway, peer_rates) = (median(trackway), peer_rates.into_iter().map(median).collect::<Vec<f64>>());
            let (bare_rates, peers) = peer_rates.split_at(bare.len());
            let min_ratio = if workload.batch == 1 && engine == Engine::Postgres { 0.6 } else { 0.5 };
            let is_fastest = peers.iter().all(|peer| trackway > *peer);
            let mut row = vec![workload.workers.to_string(), workload.batch.to_string(), format_rate(trackway)];
            row.extend(bare_rates.iter().flat_map(|bare| [format_rate(*bare), format!("{:.2}", trackway / bare)]));
            row.extend(peers.iter().map(|rate| format_rate(*rate)));
            row.push(verdict(trackway / bare_rates[0] >= min_ratio && is_fastest));
            let with_next_take = median(with_next_take);
            row.extend([format_rate(with_next_take), format!("{:.2}", with_next_take / bare_rates[0])]);
            table.add_row(row);
        }
        table.print();
    }
    Ok(())
}

fn workloads(engine: Engine, options: &QueueOptions) -> Vec<QueueWorkload> {
    match engine {
        Engine::Sqlite => vec![
            QueueWorkload { workers: 1, batch: 1, items: 10_000 },
            QueueWorkload { workers: 8, batch: 1, items: 10_000 },
            QueueWorkload { workers: 1, batch: BATCH, items: 40_000 },
        ],
        Engine::Postgres => [1, BATCH]
            .into_iter()
            .flat_map(|batch| {
                options.workers.iter().map(move |workers| QueueWorkload {
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

/// Compares the take rate of an empty queue with that of a queue with many finished items.
fn measure_history(databases: &Databases, options: &QueueOptions) -> BenchResult<()> {
    println!(
        "\nTaking and completing with one worker, one item per call, in items per second: in an empty queue, and in a \
         queue with {} finished items. Target: a ratio of at least 0.8.",
        format_count(usize::try_from(HISTORY)?)
    );
    let mut table = Table::new(["engine", "0", "1,000,000", "ratio", "met"]);
    for engine in databases.engines() {
        let workload =
            QueueWorkload { workers: 1, batch: 1, items: if engine == Engine::Sqlite { 5_000 } else { 2_000 } };
        let (empty, with_history) =
            (TrackwayQueue::create(databases, engine)?, TrackwayQueue::create(databases, engine)?);
        with_history.add_finished_items(HISTORY)?;
        let (mut before, mut after) = (Vec::new(), Vec::new());
        // The first round is a warm-up.
        for round in 0..=options.rounds {
            let (one, other) = (empty.take_rate(workload)?, with_history.take_rate(workload)?);
            if round > 0 {
                before.push(one);
                after.push(other);
            }
        }
        let (before, after) = (median(before), median(after));
        let ratio = after / before;
        table.row([
            engine.name().to_owned(),
            format_rate(before),
            format_rate(after),
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
fn format_rate(rate: f64) -> String {
    if rate > 0.0 { format_count(rate as usize) } else { "-".to_owned() }
}

/// Runs a closure on several threads, with the number of the thread.
fn run_on_threads(count: usize, work: impl Fn(usize) -> BenchResult<()> + Sync) -> BenchResult<()> {
    thread::scope(|scope| {
        let work = &work;
        let working: Vec<_> = (0..count).map(|number| scope.spawn(move || work(number))).collect();
        working.into_iter().try_for_each(|working| working.join().map_err(|_| BenchError::from("a worker panicked"))?)
    })
}

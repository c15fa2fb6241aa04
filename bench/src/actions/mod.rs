//! Actions per second through the write path, compared with bare SQL that writes the same rows.

mod bare_rows;
mod bare_sql;
mod write_path;

use std::{thread, time::Duration};

use trackway_actions::Context;
use trackway_store::Engine;

use crate::{
    BenchError, BenchResult,
    bench_env::BenchEnv,
    databases::Databases,
    measure::{format_count, ratio, time_once},
    table::{Table, verdict},
};
use bare_rows::{Ballot, RowContext};
use bare_sql::BareWriter;

pub const HEADING: &str = "## actions: the write path against bare SQL";
const ROUNDS: usize = 5;
const BATCH: usize = 100;
const CONCURRENT: usize = 8;
const RATIO_MAX: f64 = 3.0;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ActionKind {
    Note,
    /// A first vote on an option, in decisions with this many options.
    Vote {
        options: usize,
    },
}

/// The writes of one round.
#[derive(Debug, Clone, Copy)]
struct ActionWorkload {
    kind: ActionKind,
    per_transaction: usize,
    writers: usize,
    /// Actions of each writer in one round.
    actions: usize,
}

pub fn measure(databases: &Databases) -> BenchResult<()> {
    println!(
        "\nActions per second, median of {ROUNDS} alternating rounds, each side in a separate database. Creating a \
         note writes a note, a note revision, a registry entry, a touch and an event; a vote writes a vote, a registry \
         entry, a touch and an event. \"bare\" writes the same rows with prepared statements, in the same transactions \
         and with the same settings, in one round trip per row on PostgreSQL; it authorises nothing and looks up no \
         names. Target: Trackway takes at most 3x as long."
    );
    let mut table = Table::new([
        "engine",
        "action",
        "per transaction",
        "writers",
        "bare per s",
        "trackway per s",
        "bare / trackway",
        "met",
    ]);
    for engine in databases.engines() {
        for workload in workloads(engine) {
            let (bare, trackway) = compare(databases, engine, workload)?;
            let times = ratio(trackway, bare);
            let per_second = |elapsed: Duration| format_count(rate(workload.actions * workload.writers, elapsed));
            table.row([
                engine.name().to_owned(),
                name(workload.kind),
                workload.per_transaction.to_string(),
                workload.writers.to_string(),
                per_second(bare),
                per_second(trackway),
                format!("{times:.2}"),
                verdict(times <= RATIO_MAX),
            ]);
        }
    }
    table.print();
    Ok(())
}

fn name(kind: ActionKind) -> String {
    match kind {
        ActionKind::Note => "create_note".to_owned(),
        ActionKind::Vote { options } => format!("vote, {options} options"),
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a rate is positive and far below 2^53")]
fn rate(actions: usize, elapsed: Duration) -> usize {
    (actions as f64 / elapsed.as_secs_f64()) as usize
}

fn workloads(engine: Engine) -> Vec<ActionWorkload> {
    let works = [ActionKind::Note, ActionKind::Vote { options: 4 }, ActionKind::Vote { options: 100 }];
    let (singles, batched, writers) = match engine {
        Engine::Sqlite => (2_000, 4_000, vec![1]),
        Engine::Postgres => (400, 2_000, vec![1, CONCURRENT]),
    };
    let mut workloads = Vec::new();
    for kind in works {
        for writers in writers.iter().copied() {
            workloads.push(ActionWorkload { kind, per_transaction: 1, writers, actions: singles });
            workloads.push(ActionWorkload { kind, per_transaction: BATCH, writers, actions: batched });
        }
    }
    workloads
}

/// The median times of a round: bare, then Trackway.
fn compare(databases: &Databases, engine: Engine, workload: ActionWorkload) -> BenchResult<(Duration, Duration)> {
    let bare_env = BenchEnv::create(databases.create(engine, "actions-bare")?)?;
    let env = BenchEnv::create(databases.create(engine, "actions")?)?;
    let contexts = (0..workload.writers).map(|_| env.run()).collect::<BenchResult<Vec<_>>>()?;
    let mut writers = (0..workload.writers)
        .map(|_| BareWriter::open(&bare_env.database, RowContext::new(&bare_env, &bare_env.run()?)?))
        .collect::<BenchResult<Vec<_>>>()?;
    let (mut bare_times, mut trackway_times) = (Vec::new(), Vec::new());
    // The first round is a warm-up.
    for round in 0..=ROUNDS {
        let ballots = |env: &BenchEnv| {
            (0..workload.writers).map(|_| write_path::ballots(env, workload)).collect::<BenchResult<Vec<Vec<Ballot>>>>()
        };
        let (bare_ballots, trackway_ballots) = (ballots(&bare_env)?, ballots(&env)?);
        let (bare, ()) = time_once(|| write_bare(&mut writers, &bare_ballots, workload))?;
        let (trackway, ()) = time_once(|| write_through_actions(&env, &contexts, &trackway_ballots, workload))?;
        if round > 0 {
            bare_times.push(bare);
            trackway_times.push(trackway);
        }
    }
    Ok((median(bare_times), median(trackway_times)))
}

fn median(mut durations: Vec<Duration>) -> Duration {
    durations.sort_unstable();
    durations.get(durations.len() / 2).copied().unwrap_or_default()
}

fn write_bare(writers: &mut [BareWriter], ballots: &[Vec<Ballot>], workload: ActionWorkload) -> BenchResult<()> {
    thread::scope(|scope| {
        let working: Vec<_> = writers
            .iter_mut()
            .zip(ballots)
            .map(|(writer, ballots)| scope.spawn(move || writer.write(workload, ballots)))
            .collect();
        working.into_iter().try_for_each(join_writer)
    })
}

fn write_through_actions(
    env: &BenchEnv,
    contexts: &[Context],
    ballots: &[Vec<Ballot>],
    workload: ActionWorkload,
) -> BenchResult<()> {
    thread::scope(|scope| {
        let working: Vec<_> = contexts
            .iter()
            .zip(ballots)
            .map(|(context, ballots)| scope.spawn(move || write_path::write(&env.core, context, workload, ballots)))
            .collect();
        working.into_iter().try_for_each(join_writer)
    })
}

fn join_writer(working: thread::ScopedJoinHandle<'_, BenchResult<()>>) -> BenchResult<()> {
    working.join().map_err(|_| BenchError::from("a writer panicked"))?
}

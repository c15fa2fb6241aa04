//! Actions per second through the write path, against the bare SQL that writes the same rows.

mod bare;
mod bare_rows;
mod through_core;

use std::{thread, time::Duration};

use trackway_actions::Context;
use trackway_store::Engine;

use crate::{
    Failure, Outcome,
    bench_env::BenchEnv,
    measure::{grouped, once, ratio},
    place::Places,
    table::{Table, verdict},
};
use bare::Bare;
use bare_rows::{Ballot, Place};

pub const HEADING: &str = "## actions: the write path against bare SQL";
const ROUNDS: usize = 5;
const BATCH: usize = 100;
const CONCURRENT: usize = 8;
const RATIO_MAX: f64 = 3.0;

/// What is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Work {
    Note,
    /// A first vote on an option of a decision that has this many.
    Vote {
        options: usize,
    },
}

/// How it is written.
#[derive(Debug, Clone, Copy)]
struct Shape {
    work: Work,
    per_transaction: usize,
    writers: usize,
    /// Actions of one writer in one round.
    actions: usize,
}

pub fn measure(places: &Places) -> Outcome<()> {
    println!(
        "\nActions per second, median of {ROUNDS} rounds in turn, each side in a database of its own. A note is a note, a \
         note revision, a registry entry, a touch and an event; a vote is a vote, a registry entry, a touch and an event. \
         Bare: the same rows by prepared statements in the same transactions with the same settings, one round trip each \
         on PostgreSQL, and no question asked: no authorisation, no name looked up. Target: within 3x of bare."
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
    for engine in places.engines() {
        for shape in shapes(engine) {
            let (bare, ours) = compare(places, engine, shape)?;
            let times = ratio(ours, bare);
            let per_second = |took: Duration| grouped(rate(shape.actions * shape.writers, took));
            table.row([
                engine.name().to_owned(),
                name(shape.work),
                shape.per_transaction.to_string(),
                shape.writers.to_string(),
                per_second(bare),
                per_second(ours),
                format!("{times:.2}"),
                verdict(times <= RATIO_MAX),
            ]);
        }
    }
    table.print();
    Ok(())
}

fn name(work: Work) -> String {
    match work {
        Work::Note => "create_note".to_owned(),
        Work::Vote { options } => format!("vote, {options} options"),
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a rate is positive and far below 2^53")]
fn rate(actions: usize, took: Duration) -> usize {
    (actions as f64 / took.as_secs_f64()) as usize
}

fn shapes(engine: Engine) -> Vec<Shape> {
    let works = [Work::Note, Work::Vote { options: 4 }, Work::Vote { options: 100 }];
    let (singles, batched, writers) = match engine {
        Engine::Sqlite => (2_000, 4_000, vec![1]),
        Engine::Postgres => (400, 2_000, vec![1, CONCURRENT]),
    };
    let mut shapes = Vec::new();
    for work in works {
        for writers in writers.iter().copied() {
            shapes.push(Shape { work, per_transaction: 1, writers, actions: singles });
            shapes.push(Shape { work, per_transaction: BATCH, writers, actions: batched });
        }
    }
    shapes
}

/// The median time of a round: bare, and through the write path.
fn compare(places: &Places, engine: Engine, shape: Shape) -> Outcome<(Duration, Duration)> {
    let bare_house = BenchEnv::found(places.database(engine, "actions-bare")?)?;
    let env = BenchEnv::found(places.database(engine, "actions")?)?;
    let contexts = (0..shape.writers).map(|_| env.run()).collect::<Outcome<Vec<_>>>()?;
    let mut writers = (0..shape.writers)
        .map(|_| Bare::open(&bare_house.database, Place::of(&bare_house, &bare_house.run()?)?))
        .collect::<Outcome<Vec<_>>>()?;
    let (mut bare_took, mut ours_took) = (Vec::new(), Vec::new());
    // The first round warms up.
    for round in 0..=ROUNDS {
        let ballots = |env: &BenchEnv| {
            (0..shape.writers).map(|_| through_core::ballots(env, shape)).collect::<Outcome<Vec<Vec<Ballot>>>>()
        };
        let (bare_ballots, our_ballots) = (ballots(&bare_house)?, ballots(&env)?);
        let (bare, ()) = once(|| write_bare(&mut writers, &bare_ballots, shape))?;
        let (ours, ()) = once(|| write_through_core(&env, &contexts, &our_ballots, shape))?;
        if round > 0 {
            bare_took.push(bare);
            ours_took.push(ours);
        }
    }
    Ok((median(bare_took), median(ours_took)))
}

fn median(mut durations: Vec<Duration>) -> Duration {
    durations.sort_unstable();
    durations.get(durations.len() / 2).copied().unwrap_or_default()
}

fn write_bare(writers: &mut [Bare], ballots: &[Vec<Ballot>], shape: Shape) -> Outcome<()> {
    thread::scope(|scope| {
        let working: Vec<_> = writers
            .iter_mut()
            .zip(ballots)
            .map(|(writer, ballots)| scope.spawn(move || writer.write(shape, ballots)))
            .collect();
        working.into_iter().try_for_each(joined)
    })
}

fn write_through_core(env: &BenchEnv, contexts: &[Context], ballots: &[Vec<Ballot>], shape: Shape) -> Outcome<()> {
    thread::scope(|scope| {
        let working: Vec<_> = contexts
            .iter()
            .zip(ballots)
            .map(|(context, ballots)| scope.spawn(move || through_core::write(&env.core, context, shape, ballots)))
            .collect();
        working.into_iter().try_for_each(joined)
    })
}

fn joined(working: thread::ScopedJoinHandle<'_, Outcome<()>>) -> Outcome<()> {
    working.join().map_err(|_| Failure::from("a writer panicked"))?
}

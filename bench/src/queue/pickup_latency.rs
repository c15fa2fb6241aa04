//! Delay from adding an item until a waiting worker takes it.

use std::{
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use trackway_actions::{Core, queue::TakeItems};
use trackway_store::{Engine, Store, queue_notify::Listener};

use super::trackway_queue::TrackwayQueue;
use crate::{
    BenchError, BenchResult,
    databases::Databases,
    measure::{Samples, format_duration},
    table::{Table, verdict},
};

const ITEMS: usize = 300;
const WARM_UP: usize = 20;
/// Pause between two items, so that the worker waits again.
const PAUSE: Duration = Duration::from_millis(10);
/// A lost notification shows in the results as a wait of this length.
const WAIT_MAX: Duration = Duration::from_secs(2);

pub fn measure(databases: &Databases) -> BenchResult<()> {
    println!(
        "\nDelay from the call of `add` until a worker that waits for a notification has taken the item. {ITEMS} \
         items, one after the other; the adder and the worker have separate connections. Target: median less than 5 ms \
         on PostgreSQL and less than 2 ms on SQLite."
    );
    let mut table = Table::new(["engine", "median", "p99", "met"]);
    for engine in databases.engines() {
        let samples = samples(&TrackwayQueue::create(databases, engine)?)?;
        let target = Duration::from_millis(if engine == Engine::Sqlite { 2 } else { 5 });
        table.row([
            engine.name().to_owned(),
            format_duration(samples.median()),
            format_duration(samples.p99()),
            verdict(samples.median() < target),
        ]);
    }
    table.print();
    Ok(())
}

fn samples(trackway: &TrackwayQueue) -> BenchResult<Samples> {
    let (sender, receiver) = mpsc::channel();
    let url = trackway.env.database.url();
    let mut listener = Listener::connect(&url)?;
    let worker_core = Core::new(Store::open(url)?);
    thread::scope(|scope| {
        let worker = scope.spawn(move || {
            let mut taken = 0;
            while taken < WARM_UP + ITEMS {
                let found = worker_core.execute(&trackway.env.person, &TakeItems::default())?;
                taken += found.len();
                for item in &found {
                    sender.send((item.id, Instant::now()))?;
                }
                if found.is_empty() {
                    listener.wait(WAIT_MAX)?;
                }
            }
            Ok::<_, BenchError>(())
        });
        let mut waits = Vec::new();
        for number in 0..WARM_UP + ITEMS {
            thread::sleep(PAUSE);
            let start = Instant::now();
            let added = trackway.add_one()?;
            let (item, at) = receiver.recv()?;
            if item != added {
                return Err("the worker took an item other than the one that was added".into());
            }
            if number >= WARM_UP {
                waits.push(at - start);
            }
        }
        worker.join().map_err(|_| BenchError::from("the worker panicked"))??;
        Ok(Samples::new(waits))
    })
}

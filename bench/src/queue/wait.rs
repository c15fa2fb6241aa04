//! How soon a worker that waits at the bell has what was added.

use std::{
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use trackway_actions::{Core, queue::TakeItems};
use trackway_store::{Engine, Store, queue_notify::Listener};

use super::ours::Ours;
use crate::{
    Failure, Outcome,
    measure::{Samples, shown},
    place::Places,
    table::{Table, verdict},
};

const ITEMS: usize = 300;
const WARM_UP: usize = 20;
/// Between two items, so that the worker waits again.
const PAUSE: Duration = Duration::from_millis(10);
/// A ring that gets lost shows in the results.
const PATIENCE: Duration = Duration::from_secs(2);

pub fn measure(places: &Places) -> Outcome<()> {
    println!(
        "\nFrom the call of `add` to the item in the hand of a worker that waited at the bell, {ITEMS} items one by one, \
         each on a connection of its own. Target: median under 5 ms on PostgreSQL, under 2 ms on SQLite."
    );
    let mut table = Table::new(["engine", "median", "p99", "met"]);
    for engine in places.engines() {
        let samples = samples(&Ours::found(places, engine)?)?;
        let wanted = Duration::from_millis(if engine == Engine::Sqlite { 2 } else { 5 });
        table.row([
            engine.name().to_owned(),
            shown(samples.median()),
            shown(samples.p99()),
            verdict(samples.median() < wanted),
        ]);
    }
    table.print();
    Ok(())
}

fn samples(ours: &Ours) -> Outcome<Samples> {
    let (tell, told) = mpsc::channel();
    let url = ours.env.database.url();
    let mut bell = Listener::at(&url)?;
    let taking = Core::new(Store::open(url)?);
    thread::scope(|scope| {
        let worker = scope.spawn(move || {
            let mut taken = 0;
            while taken < WARM_UP + ITEMS {
                let found = taking.execute(&ours.env.person, &TakeItems::default())?;
                taken += found.len();
                for item in &found {
                    tell.send((item.id, Instant::now()))?;
                }
                if found.is_empty() {
                    bell.wait(PATIENCE)?;
                }
            }
            Ok::<_, Failure>(())
        });
        let mut waits = Vec::new();
        for number in 0..WARM_UP + ITEMS {
            thread::sleep(PAUSE);
            let start = Instant::now();
            let added = ours.add_one()?;
            let (item, at) = told.recv()?;
            if item != added {
                return Err("another item was taken than was added".into());
            }
            if number >= WARM_UP {
                waits.push(at - start);
            }
        }
        worker.join().map_err(|_| Failure::from("the worker panicked"))??;
        Ok(Samples::new(waits))
    })
}

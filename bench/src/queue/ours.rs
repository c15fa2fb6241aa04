//! Our queue, in this process: a connection to PostgreSQL for each worker, and one store for all who work on a SQLite file, as in
//! `trackway work` and `trackway up`.

use std::sync::Arc;

use serde_json::json;
use trackway_actions::{
    Core,
    queue::{AddItem, CompleteItem, TakeItems},
};
use trackway_domain::{Ref, Time, kind, queue::Fenced};
use trackway_store::{
    Engine, Store,
    sql::{Param, ToParam},
};

use super::{Load, together};
use crate::{
    Outcome,
    bench_env::{BenchEnv, Bulk},
    identity::{Numbered, id, micros},
    measure::once,
    place::Places,
};

pub const TASK: &str = "unit-again";

/// A env with a task that is run again and again.
#[derive(Debug)]
pub struct Ours {
    pub env: BenchEnv,
}

/// When an item is completed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Completing {
    /// By a call of its own.
    Apart,
    /// By the call that takes the next (`queue take --done`).
    WithTheNext,
}

/// One who adds, takes and completes.
#[derive(Debug)]
struct Hand<'a> {
    core: Arc<Core>,
    env: &'a BenchEnv,
    batch: usize,
    completing: Completing,
}

impl Hand<'_> {
    fn add(&self, items: usize) -> Outcome<()> {
        let mut left = items;
        while left > 0 {
            let some = left.min(self.batch);
            let all: Vec<AddItem> = (0..some).map(|_| AddItem::of(Ref::new(TASK))).collect();
            match all.as_slice() {
                [one] => {
                    self.core.execute(&self.env.person, one)?;
                }
                all => drop(self.core.execute_all(&self.env.person, all)?),
            }
            left -= some;
        }
        Ok(())
    }

    /// Takes and completes until there is nothing left.
    fn work(&self) -> Outcome<()> {
        let batch = i64::try_from(self.batch)?;
        let mut take = TakeItems { batch: Some(batch), ..TakeItems::default() };
        loop {
            let taken = self.core.execute(&self.env.person, &take)?;
            if taken.is_empty() {
                return Ok(());
            }
            if self.completing == Completing::WithTheNext {
                take.done = taken.iter().map(|taken| Fenced { id: Ref::from(taken.id), fence: taken.fence }).collect();
                continue;
            }
            let done: Vec<CompleteItem> = taken
                .iter()
                .map(|taken| CompleteItem { id: Ref::from(taken.id), fence: taken.fence, result: None })
                .collect();
            match done.as_slice() {
                [one] => {
                    self.core.execute(&self.env.person, one)?;
                }
                all => drop(self.core.execute_all(&self.env.person, all)?),
            }
        }
    }
}

impl Ours {
    pub fn found(places: &Places, engine: Engine) -> Outcome<Self> {
        let env = BenchEnv::found(places.database(engine, "queue")?)?;
        env.act("set_task", json!({ "workflow": "unit", "variant": TASK, "recurring": true }))?;
        Ok(Self { env })
    }

    fn hands(&self, load: Load, completing: Completing) -> Outcome<Vec<Hand<'_>>> {
        let open = || -> Outcome<Arc<Core>> { Ok(Arc::new(Core::new(Store::open(self.env.database.url())?))) };
        let shared = open()?;
        let hand = |_| {
            let core = match self.env.engine() {
                Engine::Sqlite => Arc::clone(&shared),
                Engine::Postgres => open()?,
            };
            let hand = Hand { core, env: &self.env, batch: load.batch, completing };
            // A connection prepares what it is asked for the second time.
            for _ in 0..3 {
                hand.add(load.batch)?;
                hand.work()?;
            }
            Ok(hand)
        };
        (0..load.workers).map(hand).collect()
    }

    /// Items per second, from the first that is added to the last that is completed.
    pub fn rate(&self, load: Load, completing: Completing) -> Outcome<f64> {
        let hands = self.hands(load, completing)?;
        let (took, ()) = once(|| {
            together(load.workers, |number| hands[number].add(load.items / load.workers))?;
            together(load.workers, |number| hands[number].work())
        })?;
        self.nothing_is_left()?;
        Ok((load.items / load.workers * load.workers) as f64 / took.as_secs_f64())
    }

    /// Items per second that are taken and completed.
    pub fn take_rate(&self, load: Load) -> Outcome<f64> {
        let hands = self.hands(load, Completing::Apart)?;
        together(load.workers, |number| hands[number].add(load.items / load.workers))?;
        let (took, ()) = once(|| together(load.workers, |number| hands[number].work()))?;
        Ok((load.items / load.workers * load.workers) as f64 / took.as_secs_f64())
    }

    fn nothing_is_left(&self) -> Outcome<()> {
        let left = self
            .env
            .core
            .store()
            .read(self.env.tenant())?
            .count("select count(*) from queue_items where tenant_id = ?1 and status <> 'completed'", &[])?;
        if left == 0 { Ok(()) } else { Err(format!("{left} items were not completed").into()) }
    }

    /// Adds items that were finished long ago.
    pub fn age(&self, items: u64) -> Outcome<()> {
        let (task, person) = (self.env.named("tasks", "variant", TASK)?, self.env.person.actor.id());
        let mut bulk = Bulk::begin(&self.env.database)?;
        for number in 0..items {
            let (item, run) = (id(Numbered::Item, number), id(Numbered::Run, number));
            let at = Time::from_micros(micros(number));
            bulk.insert(
                "insert into queue_items (tenant_id, id, status, tags, task_id, task_revision, priority, in_queue_since, attempt, max_attempts,
                 lease_seconds, heartbeat_at, fence, run_id, initiated_by, chain_depth, created_at, finished_at)
                 values (?1, ?2, 'completed', ?3, ?4, 1, 0, ?5, 1, 5, 300, ?5, 1, ?6, ?7, 0, ?5, ?5)",
                &[
                    self.env.tenant().to_param(),
                    Param::Uuid(item),
                    Param::Json("[]".to_owned()),
                    Param::Uuid(task),
                    at.to_param(),
                    Param::Uuid(run),
                    Param::Uuid(person),
                ],
            )?;
        }
        bulk.end()
    }

    /// Adds one item, and says which.
    pub fn add_one(&self) -> Outcome<trackway_domain::Id<kind::QueueItem>> {
        Ok(self.env.core.execute(&self.env.person, &AddItem::of(Ref::new(TASK)))?.id)
    }
}

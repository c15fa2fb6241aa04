//! Trackway's queue, in this process. As in `trackway work` and `trackway up`, all workers on a SQLite file share one
//! store. On PostgreSQL each worker has its own connection.

use std::sync::Arc;

use serde_json::json;
use trackway_actions::{
    Core,
    queue::{AddItem, CompleteItem, TakeItems},
};
use trackway_domain::{Ref, Time, kind, queue::FencedItem};
use trackway_store::{
    Engine, Store,
    sql::{Param, ToParam},
};

use super::{QueueWorkload, run_on_threads};
use crate::{
    BenchResult,
    bench_env::{BenchEnv, BulkInsert},
    bulk_ids::{IdKind, bulk_id, created_micros},
    databases::Databases,
    measure::time_once,
};

pub const TASK: &str = "unit-again";

/// A benchmark environment with a recurring task.
#[derive(Debug)]
pub struct TrackwayQueue {
    pub env: BenchEnv,
}

/// The call that completes an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CompletionMode {
    /// A separate call.
    Separate,
    /// The call that takes the next item (`queue take --done`).
    WithNextTake,
}

/// A worker that adds, takes and completes items.
#[derive(Debug)]
struct QueueWorker<'a> {
    core: Arc<Core>,
    env: &'a BenchEnv,
    batch: usize,
    completion_mode: CompletionMode,
}

impl QueueWorker<'_> {
    fn add(&self, items: usize) -> BenchResult<()> {
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

    /// Takes and completes items until the queue is empty.
    fn work(&self) -> BenchResult<()> {
        let batch = i64::try_from(self.batch)?;
        let mut take = TakeItems { batch: Some(batch), ..TakeItems::default() };
        loop {
            let taken = self.core.execute(&self.env.person, &take)?;
            if taken.is_empty() {
                return Ok(());
            }
            if self.completion_mode == CompletionMode::WithNextTake {
                take.done =
                    taken.iter().map(|taken| FencedItem { id: Ref::from(taken.id), fence: taken.fence }).collect();
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

impl TrackwayQueue {
    pub fn create(databases: &Databases, engine: Engine) -> BenchResult<Self> {
        let env = BenchEnv::create(databases.create(engine, "queue")?)?;
        env.execute_json("set_task", json!({ "workflow": "unit", "variant": TASK, "recurring": true }))?;
        Ok(Self { env })
    }

    fn workers(&self, workload: QueueWorkload, completion_mode: CompletionMode) -> BenchResult<Vec<QueueWorker<'_>>> {
        let open = || -> BenchResult<Arc<Core>> { Ok(Arc::new(Core::new(Store::open(self.env.database.url())?))) };
        let shared = open()?;
        let worker = |_| {
            let core = match self.env.engine() {
                Engine::Sqlite => Arc::clone(&shared),
                Engine::Postgres => open()?,
            };
            let worker = QueueWorker { core, env: &self.env, batch: workload.batch, completion_mode };
            // A connection prepares a statement only when the statement runs for the second time.
            for _ in 0..3 {
                worker.add(workload.batch)?;
                worker.work()?;
            }
            Ok(worker)
        };
        (0..workload.workers).map(worker).collect()
    }

    /// Adds, takes and completes all items of the workload. Returns the items per second.
    pub fn rate(&self, workload: QueueWorkload, completion_mode: CompletionMode) -> BenchResult<f64> {
        let workers = self.workers(workload, completion_mode)?;
        let (elapsed, ()) = time_once(|| {
            run_on_threads(workload.workers, |number| workers[number].add(workload.items / workload.workers))?;
            run_on_threads(workload.workers, |number| workers[number].work())
        })?;
        self.check_all_completed()?;
        Ok((workload.items / workload.workers * workload.workers) as f64 / elapsed.as_secs_f64())
    }

    /// Takes and completes items that were added before. Returns the items per second.
    pub fn take_rate(&self, workload: QueueWorkload) -> BenchResult<f64> {
        let workers = self.workers(workload, CompletionMode::Separate)?;
        run_on_threads(workload.workers, |number| workers[number].add(workload.items / workload.workers))?;
        let (elapsed, ()) = time_once(|| run_on_threads(workload.workers, |number| workers[number].work()))?;
        Ok((workload.items / workload.workers * workload.workers) as f64 / elapsed.as_secs_f64())
    }

    fn check_all_completed(&self) -> BenchResult<()> {
        let left = self
            .env
            .core
            .store()
            .read(self.env.tenant())?
            .count("select count(*) from queue_items where tenant_id = ?1 and status <> 'completed'", &[])?;
        if left == 0 { Ok(()) } else { Err(format!("{left} items were not completed").into()) }
    }

    /// Inserts items that finished long ago.
    pub fn add_finished_items(&self, items: u64) -> BenchResult<()> {
        let (task, person) = (self.env.id_of("tasks", "variant", TASK)?, self.env.person.actor.id());
        let mut bulk = BulkInsert::begin(&self.env.database)?;
        for number in 0..items {
            let (item, run) = (bulk_id(IdKind::Item, number), bulk_id(IdKind::Run, number));
            let at = Time::from_micros(created_micros(number));
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

    /// Adds one item and returns its id.
    pub fn add_one(&self) -> BenchResult<trackway_domain::Id<kind::QueueItem>> {
        Ok(self.env.core.execute(&self.env.person, &AddItem::of(Ref::new(TASK)))?.id)
    }
}

//! Runs one round of apalis-sqlite: adds items, then takes and completes them. Prints the items per second.
//!
//!     queue-apalis FILE WORKERS BATCH ITEMS

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use apalis::prelude::*;
use apalis_sqlite::{Config, SqliteStorage};
use futures::stream;
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous};

#[tokio::main]
async fn main() -> Result<(), BoxDynError> {
    let mut arguments = std::env::args().skip(1);
    let file = arguments.next().ok_or("missing argument: FILE")?;
    let numbers = arguments.map(|number| number.parse()).collect::<Result<Vec<usize>, _>>()?;
    let [workers, batch, items] = numbers[..] else { return Err("usage: queue-apalis FILE WORKERS BATCH ITEMS".into()) };
    let options = SqliteConnectOptions::new()
        .filename(file)
        .create_if_missing(true)
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(SqliteSynchronous::Normal)
        .busy_timeout(Duration::from_secs(5));
    let pool = SqlitePoolOptions::new().max_connections(u32::try_from(workers)? + 1).connect_with(options).await?;
    SqliteStorage::setup(&pool).await?;
    let mut rate = 0.0;
    // The first items are a warm-up.
    for count in [batch * workers, items] {
        let name = format!("noop-{count}");
        let config = Config::default().queue(&name).batch_size(batch);
        let mut storage = SqliteStorage::new(&pool).with_config(config);
        let start = Instant::now();
        for _ in 0..count / batch {
            if batch == 1 {
                storage.push(1_u32).await?;
            } else {
                storage.push_stream(&mut stream::iter(vec![1_u32; batch])).await?;
            }
        }
        let done = Arc::new(AtomicUsize::new(0));
        let task = {
            let done = done.clone();
            move |_: u32, worker: WorkerContext| {
                let done = done.clone();
                async move {
                    if done.fetch_add(1, Ordering::SeqCst) + 1 == count {
                        worker.stop()?;
                    }
                    Ok::<(), BoxDynError>(())
                }
            }
        };
        WorkerBuilder::new(name.as_str()).backend(storage).concurrency(workers).build(task).run().await?;
        rate = count as f64 / start.elapsed().as_secs_f64();
    }
    println!("{rate:.0}");
    Ok(())
}

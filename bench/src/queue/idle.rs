//! Memory and wake-ups of a worker with an empty queue.

use std::{fs, thread, time::Duration};

use crate::{
    BenchResult,
    databases::{Database, Databases},
    process,
    queue::trackway_queue::TrackwayQueue,
    table::{Table, verdict},
};

const WATCH_TIME: Duration = Duration::from_secs(10);
const MEMORY_MAX_KB: u64 = 30 * 1_024;
/// A worker that polls every few seconds wakes up a few times; one that polls continuously wakes up thousands of times.
const WAKE_UPS_MAX: u64 = 50;

pub fn measure(databases: &Databases) -> BenchResult<()> {
    println!(
        "\n`trackway work` with an empty queue, observed for {} s: its memory, and how often its threads woke up. \
         Targets: less than 30 MB; without notifications it polls only every few seconds.",
        WATCH_TIME.as_secs()
    );
    let mut table = Table::new(["engine", "memory", "wake-ups", "met"]);
    for engine in databases.engines() {
        let trackway = TrackwayQueue::create(databases, engine)?;
        let url = match &trackway.env.database {
            Database::File(file) => format!("sqlite:{}", file.display()),
            Database::Server { url, .. } => url.clone(),
        };
        let mut worker = process::isolated_command(&process::trackway_binary()?, databases.directory())
            .arg("work")
            .env("TRACKWAY_DB", url)
            .spawn()?;
        thread::sleep(Duration::from_secs(2));
        let before = wake_ups(worker.id());
        thread::sleep(WATCH_TIME);
        let (after, memory) = (wake_ups(worker.id()), memory_kb(worker.id()));
        worker.kill()?;
        worker.wait()?;
        let (Some(before), Some(after), Some(memory)) = (before, after, memory) else {
            return Err("the worker exited".into());
        };
        table.row([
            engine.name().to_owned(),
            format!("{:.1} MB", memory as f64 / 1_024.0),
            (after - before).to_string(),
            verdict(memory < MEMORY_MAX_KB && after - before <= WAKE_UPS_MAX),
        ]);
    }
    table.print();
    Ok(())
}

/// Number of voluntary context switches of all threads of a process.
fn wake_ups(process: u32) -> Option<u64> {
    let threads = fs::read_dir(format!("/proc/{process}/task")).ok()?;
    threads
        .map(|thread| {
            status_number(&fs::read_to_string(thread.ok()?.path().join("status")).ok()?, "voluntary_ctxt_switches:")
        })
        .sum()
}

fn memory_kb(process: u32) -> Option<u64> {
    status_number(&fs::read_to_string(format!("/proc/{process}/status")).ok()?, "VmRSS:")
}

fn status_number(status: &str, field: &str) -> Option<u64> {
    status.lines().find_map(|line| line.strip_prefix(field)?.trim().split(' ').next()?.parse().ok())
}

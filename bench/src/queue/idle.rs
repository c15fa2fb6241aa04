//! A worker that has nothing to do.

use std::{fs, thread, time::Duration};

use crate::{
    Outcome,
    place::{Database, Places},
    process,
    queue::ours::Ours,
    table::{Table, verdict},
};

const WATCHED: Duration = Duration::from_secs(10);
const MEMORY_MAX_KB: u64 = 30 * 1_024;
/// A look at the queue now and then takes a handful; looking all the time takes thousands.
const WAKE_UPS_MAX: u64 = 50;

pub fn measure(places: &Places) -> Outcome<()> {
    println!(
        "\n`trackway work` with an empty queue, watched for {} s: what it holds in memory, and how often any of its threads \
         woke up. Target: under 30 MB, and no looking without a ring but every few seconds.",
        WATCHED.as_secs()
    );
    let mut table = Table::new(["engine", "memory", "wake-ups", "met"]);
    for engine in places.engines() {
        let ours = Ours::found(places, engine)?;
        let url = match &ours.env.database {
            Database::File(file) => format!("sqlite:{}", file.display()),
            Database::Server { url, .. } => url.clone(),
        };
        let mut worker =
            process::command(&process::trackway()?, places.directory()).arg("work").env("TRACKWAY_DB", url).spawn()?;
        thread::sleep(Duration::from_secs(2));
        let before = wake_ups(worker.id());
        thread::sleep(WATCHED);
        let (after, memory) = (wake_ups(worker.id()), memory_kb(worker.id()));
        worker.kill()?;
        worker.wait()?;
        let (Some(before), Some(after), Some(memory)) = (before, after, memory) else {
            return Err("the worker did not stay".into());
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

/// How often the threads of a process waited for something and went on.
fn wake_ups(process: u32) -> Option<u64> {
    let threads = fs::read_dir(format!("/proc/{process}/task")).ok()?;
    threads
        .map(|thread| number(&fs::read_to_string(thread.ok()?.path().join("status")).ok()?, "voluntary_ctxt_switches:"))
        .sum()
}

fn memory_kb(process: u32) -> Option<u64> {
    number(&fs::read_to_string(format!("/proc/{process}/status")).ok()?, "VmRSS:")
}

fn number(status: &str, field: &str) -> Option<u64> {
    status.lines().find_map(|line| line.strip_prefix(field)?.trim().split(' ').next()?.parse().ok())
}

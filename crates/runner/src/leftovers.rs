//! Processes that a script left behind, wherever they hid: by their group, and by the run that their environment names.

use rustix::process::{Pid, Signal, kill_process_group};

/// Names the run in the environment of everything it starts.
pub const RUN: &str = "TRACKWAY_RUN";

/// How often to look again for what was started while looking.
const ROUNDS: usize = 20;

/// Asks a group to end, or ends it.
pub fn signal_group(leader: u32, signal: Signal) {
    if let Some(group) = i32::try_from(leader).ok().and_then(Pid::from_raw) {
        // A group that is gone is what was wanted.
        let _ = kill_process_group(group, signal);
    }
}

/// Ends everything that has the run in its environment, but us.
pub fn end_all_of(run: &str) {
    for _ in 0..ROUNDS {
        if end_those_of(run) == 0 {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}

/// How many there were that could be told to end.
#[cfg(target_os = "linux")]
fn end_those_of(run: &str) -> usize {
    use rustix::process::kill_process;
    let Ok(processes) = std::fs::read_dir("/proc") else {
        return 0;
    };
    let mark = format!("{RUN}={run}").into_bytes();
    let own = std::process::id();
    let is_marked = |process: &u32| {
        std::fs::read(format!("/proc/{process}/environ"))
            .is_ok_and(|environment| environment.split(|byte| *byte == 0).any(|entry| entry == mark))
    };
    processes
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok())
        .filter(|process| *process != own)
        .filter(is_marked)
        .filter_map(|process| Pid::from_raw(i32::try_from(process).ok()?))
        .filter(|process| kill_process(*process, Signal::KILL).is_ok())
        .count()
}

/// Elsewhere only the group is known.
#[cfg(not(target_os = "linux"))]
fn end_those_of(_: &str) -> usize {
    0
}

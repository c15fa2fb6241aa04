//! Processes that a script left behind, wherever they hid: by their group, by the run that their environment names, and
//! by whose children they are. Whoever runs scripts adopts the orphans among what they start, so that none gets away.

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
    again_and_again(|| end_those_of(run));
}

/// Makes orphans among our descendants our children, instead of those of the first process.
pub fn adopt_orphans() {
    #[cfg(target_os = "linux")]
    {
        // Where it cannot be had, groups and environments have to do.
        let _ = rustix::process::set_child_subreaper(Some(rustix::process::getpid()));
    }
}

/// Ends all that descends from us: for a process that starts nothing but a script.
pub fn end_all_below_us() {
    again_and_again(|| tree::end(|_| true));
}

/// Ends the orphans that we adopted, with all that descends from them. What we start ourselves is of our own group; what
/// a script starts is not.
pub fn end_adopted() {
    let own = rustix::process::getpgrp().as_raw_nonzero().get();
    again_and_again(|| tree::end(|child| child.group != own));
}

fn again_and_again(end: impl Fn() -> usize) {
    for _ in 0..ROUNDS {
        if end() == 0 {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}

/// The processes below us, as `/proc` tells them.
#[cfg(target_os = "linux")]
mod tree {
    use std::collections::HashMap;

    use rustix::process::{Pid, Signal, WaitOptions, getpid, kill_process, waitpid};

    pub struct Process {
        id: i32,
        parent: i32,
        pub group: i32,
        is_dead: bool,
    }

    /// Ends those of our children that are wanted, and all below them. Says how many were alive.
    pub fn end(is_wanted: impl Fn(&Process) -> bool) -> usize {
        let mut below: HashMap<i32, Vec<Process>> = HashMap::new();
        for process in all() {
            below.entry(process.parent).or_default().push(process);
        }
        let own = getpid().as_raw_nonzero().get();
        let mut found: Vec<Process> = below.remove(&own).unwrap_or_default().into_iter().filter(is_wanted).collect();
        let mut alive = 0;
        while let Some(process) = found.pop() {
            found.extend(below.remove(&process.id).unwrap_or_default());
            let Some(id) = Pid::from_raw(process.id) else { continue };
            if process.is_dead {
                if process.parent == own {
                    // An orphan has nobody else who would hear of its end.
                    let _ = waitpid(Some(id), WaitOptions::NOHANG);
                }
            } else if kill_process(id, Signal::KILL).is_ok() {
                alive += 1;
            }
        }
        alive
    }

    fn all() -> impl Iterator<Item = Process> {
        let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
        processes.filter_map(|entry| {
            let id = entry.file_name().to_str()?.parse().ok()?;
            let stat = std::fs::read_to_string(entry.path().join("stat")).ok()?;
            // The name stands between brackets, and may hold any.
            let mut fields = stat.get(stat.rfind(')')? + 1..)?.split_whitespace();
            let (state, parent, group) = (fields.next()?, fields.next()?, fields.next()?);
            let is_dead = matches!(state, "Z" | "X");
            Some(Process { id, parent: parent.parse().ok()?, group: group.parse().ok()?, is_dead })
        })
    }
}

/// Elsewhere nobody is adopted.
#[cfg(not(target_os = "linux"))]
mod tree {
    pub struct Process {
        pub group: i32,
    }

    pub fn end(_: impl Fn(&Process) -> bool) -> usize {
        0
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

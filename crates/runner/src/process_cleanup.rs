//! Ends the processes that a script leaves behind. Finds them by their process group, by the run in their environment,
//! and by their ancestors. The worker and the supervisor adopt orphans among their descendants, so that they find even
//! processes that changed both their group and their environment.

use rustix::process::{Pid, Signal, kill_process_group};

/// The environment variable that holds the run, in every process that the run starts.
pub const RUN_VARIABLE: &str = "TRACKWAY_RUN";

/// Maximum number of searches. Each one looks for processes that started during the previous one.
const ROUNDS: usize = 20;

pub fn signal_group(leader: u32, signal: Signal) {
    if let Some(group) = i32::try_from(leader).ok().and_then(Pid::from_raw) {
        // Fails when the group has ended already.
        let _ = kill_process_group(group, signal);
    }
}

/// Kills all processes that have the run in their environment, except this one.
pub fn kill_processes_of_run(run: &str) {
    repeat_until_none(|| kill_marked_once(run));
}

/// Makes this process the parent of orphans among its descendants, instead of init.
pub fn adopt_orphans() {
    #[cfg(target_os = "linux")]
    {
        // If the kernel does not support this, processes are found only by group and environment.
        let _ = rustix::process::set_child_subreaper(Some(rustix::process::getpid()));
    }
}

/// Kills all descendants of this process. Only for a process that starts nothing but one script.
pub fn kill_descendants() {
    repeat_until_none(|| tree::kill(|_| true));
}

/// Kills adopted orphans with their descendants. An orphan is recognised by its process group: processes that a worker
/// starts itself are in the worker's group, processes that a script starts are not.
pub fn kill_adopted() {
    let own = rustix::process::getpgrp().as_raw_nonzero().get();
    repeat_until_none(|| tree::kill(|child| child.group != own));
}

fn repeat_until_none(kill: impl Fn() -> usize) {
    for _ in 0..ROUNDS {
        if kill() == 0 {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}

/// The descendants of this process, as `/proc` lists them.
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

    /// Kills the selected children of this process with their descendants. Returns how many were alive.
    pub fn kill(is_selected: impl Fn(&Process) -> bool) -> usize {
        let mut children_of: HashMap<i32, Vec<Process>> = HashMap::new();
        for process in all() {
            children_of.entry(process.parent).or_default().push(process);
        }
        let own = getpid().as_raw_nonzero().get();
        let children = children_of.remove(&own).unwrap_or_default();
        let mut selected: Vec<Process> = children.into_iter().filter(is_selected).collect();
        let mut alive = 0;
        while let Some(process) = selected.pop() {
            selected.extend(children_of.remove(&process.id).unwrap_or_default());
            let Some(id) = Pid::from_raw(process.id) else { continue };
            if process.is_dead {
                if process.parent == own {
                    // Nothing else waits for an adopted orphan: without this call it stays a zombie.
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
            // The program's name is in parentheses, and may contain parentheses itself.
            let mut fields = stat.get(stat.rfind(')')? + 1..)?.split_whitespace();
            let (state, parent, group) = (fields.next()?, fields.next()?, fields.next()?);
            let is_dead = matches!(state, "Z" | "X");
            Some(Process { id, parent: parent.parse().ok()?, group: group.parse().ok()?, is_dead })
        })
    }
}

/// Other systems have no way to adopt orphans.
#[cfg(not(target_os = "linux"))]
mod tree {
    pub struct Process {
        pub group: i32,
    }

    pub fn kill(_: impl Fn(&Process) -> bool) -> usize {
        0
    }
}

/// Returns how many processes were killed.
#[cfg(target_os = "linux")]
fn kill_marked_once(run: &str) -> usize {
    use rustix::process::kill_process;
    let Ok(processes) = std::fs::read_dir("/proc") else {
        return 0;
    };
    let mark = format!("{RUN_VARIABLE}={run}").into_bytes();
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

/// Other systems have no `/proc`: only the process group is known.
#[cfg(not(target_os = "linux"))]
fn kill_marked_once(_: &str) -> usize {
    0
}

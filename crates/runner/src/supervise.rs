//! The supervisor: a process between the worker and a script, and the parent of the script.
//!
//! A script that kills its parent kills the supervisor instead of the worker. When the worker is killed, the pipe on
//! the supervisor's standard input closes, and the supervisor ends the script. In both cases the surviving process
//! kills everything that the script started.

use std::{
    ffi::OsString,
    fs::{self, File},
    io::Read,
    os::unix::process::{CommandExt, ExitStatusExt},
    path::Path,
    process::{Command, ExitStatus, Stdio},
    sync::mpsc,
    thread,
    time::Duration,
};

use rustix::process::Signal;

use crate::{process_cleanup, signals};

/// The hidden command that runs the supervisor.
pub const COMMAND: &str = "supervise";

/// Prefix of the folder that contains a script and its input.
pub const FOLDER_PREFIX: &str = "trackway-run-";

/// Time for a script to end after SIGTERM.
pub const GRACE: Duration = Duration::from_secs(5);

/// The exit code of a shell that cannot start a command.
const NOT_STARTED: i32 = 127;

enum SupervisorEvent {
    ScriptExited(ExitStatus),
    /// The worker asks for the script to end, or was killed.
    Stop,
}

/// Runs a program, with a file as its standard input, until the program exits or our own standard input closes. Returns
/// the program's exit code; like a shell, 128 plus the signal if a signal killed the program.
pub fn supervise(arguments: &[OsString]) -> i32 {
    let [input_file, program, rest @ ..] = arguments else {
        return NOT_STARTED;
    };
    // The worker handles signals: it decides when the script must end.
    let _ = signals::catch_termination_signals();
    process_cleanup::adopt_orphans();
    let run = std::env::var(process_cleanup::RUN_VARIABLE).unwrap_or_default();
    let input = File::open(Path::new(input_file)).map_or_else(|_| Stdio::null(), Stdio::from);
    let mut child = match Command::new(program).args(rest).process_group(0).stdin(input).spawn() {
        Ok(child) => child,
        Err(error) => {
            use std::io::Write;
            let _ = writeln!(std::io::stderr(), "{}: {error}", program.to_string_lossy());
            return NOT_STARTED;
        }
    };
    let leader = child.id();
    let (sender, events) = mpsc::channel();
    let exit_sender = sender.clone();
    thread::spawn(move || {
        let status = child.wait().unwrap_or_else(|_| ExitStatus::from_raw(NOT_STARTED << 8));
        let _ = exit_sender.send(SupervisorEvent::ScriptExited(status));
    });
    thread::spawn(move || {
        let _ = std::io::stdin().read(&mut [0; 1]);
        let _ = sender.send(SupervisorEvent::Stop);
    });
    let status = match events.recv() {
        Ok(SupervisorEvent::ScriptExited(status)) => Some(status),
        Ok(SupervisorEvent::Stop) | Err(_) => {
            process_cleanup::signal_group(leader, Signal::TERM);
            match events.recv_timeout(GRACE) {
                Ok(SupervisorEvent::ScriptExited(status)) => Some(status),
                _ => None,
            }
        }
    };
    process_cleanup::signal_group(leader, Signal::KILL);
    process_cleanup::kill_descendants();
    process_cleanup::kill_processes_of_run(&run);
    remove_folder(Path::new(input_file));
    match status {
        Some(status) => status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or_default()),
        None => 128 + Signal::KILL.as_raw(),
    }
}

/// Removes the folder of the script. The worker removes it too, unless the worker was killed.
fn remove_folder(input: &Path) {
    let is_ours =
        |folder: &&Path| folder.file_name().is_some_and(|name| name.to_string_lossy().starts_with(FOLDER_PREFIX));
    if let Some(folder) = input.parent().filter(is_ours) {
        let _ = fs::remove_dir_all(folder);
    }
}

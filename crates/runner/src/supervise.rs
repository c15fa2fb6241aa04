//! Between the worker and a script: a process that is the script's parent, and outlives neither.
//!
//! A script that kills its parent kills this and not the worker; a worker that is killed closes the pipe that this
//! listens at. Either way whoever is left ends what the script started.

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

use crate::{leftovers, signals};

/// The hidden command that does this.
pub const COMMAND: &str = "supervise";

/// How the name of the folder begins that a script and its input are in.
pub const FOLDER: &str = "trackway-run-";

/// How long a script may take to end once it was asked to.
pub const GRACE: Duration = Duration::from_secs(5);

/// What a shell answers when it cannot start something.
const NOT_STARTED: i32 = 127;

enum Heard {
    Ended(ExitStatus),
    /// The worker wants it to end, or is gone.
    Stop,
}

/// Runs a program with a file as its input until it ends or standard input does. Answers with its exit code; a program
/// that was killed by a signal answers as shells do.
pub fn supervise(arguments: &[OsString]) -> i32 {
    let [input_file, program, rest @ ..] = arguments else {
        return NOT_STARTED;
    };
    // They are for the worker, which says when the script is to end.
    let _ = signals::outlive();
    leftovers::adopt_orphans();
    let run = std::env::var(leftovers::RUN).unwrap_or_default();
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
    let (tell, heard) = mpsc::channel();
    let tell_end = tell.clone();
    thread::spawn(move || {
        let ended = child.wait().unwrap_or_else(|_| ExitStatus::from_raw(NOT_STARTED << 8));
        let _ = tell_end.send(Heard::Ended(ended));
    });
    thread::spawn(move || {
        let _ = std::io::stdin().read(&mut [0; 1]);
        let _ = tell.send(Heard::Stop);
    });
    let ended = match heard.recv() {
        Ok(Heard::Ended(status)) => Some(status),
        Ok(Heard::Stop) | Err(_) => {
            leftovers::signal_group(leader, Signal::TERM);
            match heard.recv_timeout(GRACE) {
                Ok(Heard::Ended(status)) => Some(status),
                _ => None,
            }
        }
    };
    leftovers::signal_group(leader, Signal::KILL);
    leftovers::end_all_below_us();
    leftovers::end_all_of(&run);
    remove_folder(Path::new(input_file));
    match ended {
        Some(status) => status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or_default()),
        None => 128 + Signal::KILL.as_raw(),
    }
}

/// Removes what the script was made of: a worker that was killed does not.
fn remove_folder(input: &Path) {
    let is_ours = |folder: &&Path| folder.file_name().is_some_and(|name| name.to_string_lossy().starts_with(FOLDER));
    if let Some(folder) = input.parent().filter(is_ours) {
        let _ = fs::remove_dir_all(folder);
    }
}

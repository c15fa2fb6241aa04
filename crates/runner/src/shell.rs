//! The shell executor: the script of a task in its shell, in the directory of its workspace.

use std::{
    ffi::OsString,
    fs::{File, Permissions},
    io::{PipeReader, Read, Write},
    os::unix::fs::PermissionsExt,
    path::Path,
    process::{Child, ChildStdin, Command, Stdio},
    sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel},
    thread,
    time::{Duration, Instant},
};

use serde_json::json;
use tempfile::TempDir;
use trackway_views::assignment::Assignment;

use crate::{
    executor::{Ended, Reins, Wish},
    leftovers,
    output::Gathering,
    supervise::{self, GRACE},
};

/// What runs a script when the task does not say.
const SHELL: &str = "sh";
/// How often a job looks whether it should stop.
const GLANCE: Duration = Duration::from_millis(50);
/// Pieces of output that may still come when all is over: those in the channel, in the pipe and between them.
const PIECES_LEFT_MAX: usize = 64;
/// Characters of output that an error repeats.
const TAIL: usize = 500;

/// What a script is started with.
#[derive(Debug)]
pub struct Start<'a> {
    pub assignment: &'a Assignment,
    /// The program whose `supervise` stands between us and the script.
    pub program: &'a Path,
    pub run: String,
    /// What the script finds in its environment, beside ours.
    pub environment: Vec<(&'static str, OsString)>,
    /// How long it may take when the task does not say.
    pub timeout: Duration,
}

/// A script that runs.
struct Running {
    child: Child,
    /// Closed to make it stop.
    leash: Option<ChildStdin>,
    output: Receiver<Vec<u8>>,
    /// Holds the script and its input as long as it runs.
    _folder: TempDir,
}

/// Runs a script to its end, whatever that is. `write` gets its output in pieces; what it kept comes back.
pub fn run(start: &Start<'_>, reins: &Reins, write: &mut dyn FnMut(&str)) -> (Ended, String) {
    let Some(script) = start.assignment.script.as_deref().filter(|script| !script.trim().is_empty()) else {
        let error = format!("task {} has no script; trackway task set --script gives it one", start.assignment.variant);
        return (Ended::Impossible { error }, String::new());
    };
    match begin(start, script) {
        Ok(running) => follow(start, running, reins, write),
        Err(error) => (Ended::Failed { error }, String::new()),
    }
}

fn begin(start: &Start<'_>, script: &str) -> Result<Running, String> {
    let assignment = start.assignment;
    let workspace = || assignment.workspace.clone().unwrap_or_default();
    if let Some(directory) = &assignment.directory
        && !Path::new(directory).is_dir()
    {
        return Err(format!("the directory of workspace {} is not there: {directory}", workspace()));
    }
    let at = |what: &str| {
        let what = what.to_owned();
        move |error: std::io::Error| format!("{what}: {error}")
    };
    // What is asked, and how it is done, is between the worker and the script.
    let only_us = Permissions::from_mode(0o700);
    let folder = tempfile::Builder::new()
        .prefix(supervise::FOLDER)
        .permissions(only_us)
        .tempdir()
        .map_err(at("a folder for the script"))?;
    let (script_file, input_file) = (folder.path().join("script"), folder.path().join("input"));
    let save = |path: &Path, text: &str| File::create(path).and_then(|mut file| file.write_all(text.as_bytes()));
    save(&script_file, script).map_err(at("the script"))?;
    save(&input_file, assignment.message_body.as_deref().unwrap_or_default()).map_err(at("the input"))?;
    let (reader, writer) = std::io::pipe().map_err(at("a pipe"))?;
    let errors = writer.try_clone().map_err(at("a pipe"))?;
    let mut command = Command::new(start.program);
    command
        .arg(supervise::COMMAND)
        .arg(&input_file)
        .args(assignment.shell.as_deref().unwrap_or(SHELL).split_whitespace())
        .arg(&script_file)
        .envs(start.environment.iter().map(|(name, value)| (*name, value)))
        .env(leftovers::RUN, &start.run)
        .stdin(Stdio::piped())
        .stdout(writer)
        .stderr(errors);
    if let Some(directory) = &assignment.directory {
        command.current_dir(directory);
    }
    let mut child = command.spawn().map_err(at("starting the script"))?;
    // Holds our ends of the pipe: without them its end is seen.
    drop(command);
    let leash = child.stdin.take();
    let (send, output) = sync_channel(16);
    thread::spawn(move || forward(reader, &send));
    Ok(Running { child, leash, output, _folder: folder })
}

/// Hands output on until there is no more, or nobody listens.
fn forward(mut reader: PipeReader, send: &SyncSender<Vec<u8>>) {
    let mut buffer = vec![0; 64 << 10];
    while let Ok(length @ 1..) = reader.read(&mut buffer) {
        if send.send(buffer[..length].to_vec()).is_err() {
            return;
        }
    }
}

/// Why a script was told to stop.
enum Stopped {
    TimedOut,
    Wished(Wish),
}

fn follow(start: &Start<'_>, mut running: Running, reins: &Reins, write: &mut dyn FnMut(&str)) -> (Ended, String) {
    let timeout = start
        .assignment
        .timeout
        .map_or(start.timeout, |timeout| Duration::from_secs(u64::try_from(timeout.seconds()).unwrap_or_default()));
    let deadline = Instant::now() + timeout;
    let mut gathering = Gathering::default();
    let mut stopped = None;
    // Past this it is not waited for any more.
    let mut give_up = None;
    loop {
        let heard = running.output.recv_timeout(GLANCE);
        if let Ok(output) = &heard {
            gathering.push(output);
        }
        if let Some(piece) = gathering.piece(Instant::now()) {
            write(&piece);
        }
        // Writing may have taken long.
        let now = Instant::now();
        if stopped.is_none() {
            stopped = match reins.wished() {
                Wish::GoOn if now < deadline => None,
                Wish::GoOn => Some(Stopped::TimedOut),
                wish => Some(Stopped::Wished(wish)),
            };
            if stopped.is_some() {
                running.leash = None;
                give_up = Some(now + GRACE + GRACE);
            }
        }
        // Nobody holds the pipe any more: everything has ended.
        if heard == Err(RecvTimeoutError::Disconnected) || give_up.is_some_and(|time| now > time) {
            break;
        }
        // Its supervisor ended, or was killed: then what it should have ended is ended here. Something that hid well
        // enough to hold the pipe is not waited for.
        if heard.is_err() && matches!(running.child.try_wait(), Ok(Some(_))) {
            end_leftovers(start);
            give_up.get_or_insert(now + Duration::from_secs(1));
        }
    }
    // What was said while something else was written, or waited for.
    let until = Instant::now() + GRACE;
    for _ in 0..PIECES_LEFT_MAX {
        let Ok(output) = running.output.recv_timeout(GLANCE) else { break };
        if Instant::now() > until {
            break;
        }
        gathering.push(&output);
        if let Some(piece) = gathering.piece(Instant::now()) {
            write(&piece);
        }
    }
    let status = running.child.try_wait().ok().flatten().or_else(|| {
        end_leftovers(start);
        running.child.wait().ok()
    });
    end_leftovers(start);
    if let Some(rest) = gathering.rest() {
        write(&rest);
    }
    let kept = gathering.into_kept();
    let code = status.and_then(|status| status.code());
    let ended = match (stopped, code) {
        (Some(Stopped::TimedOut), _) => Ended::TimedOut { error: format!("timed out after {}s", timeout.as_secs()) },
        (Some(Stopped::Wished(Wish::Release)), _) => Ended::Released,
        (Some(Stopped::Wished(_)), _) => Ended::Lost,
        (None, Some(0)) => Ended::Completed { message: last_line(&kept), result: json!({ "exit_code": 0 }) },
        (None, Some(code)) => Ended::Failed { error: with_tail(&format!("exit code {code}"), &kept) },
        (None, None) => Ended::Failed { error: with_tail("the script killed its parent", &kept) },
    };
    (ended, kept)
}

/// Ends what the supervisor should have ended, should it have been killed.
fn end_leftovers(start: &Start<'_>) {
    leftovers::end_adopted();
    leftovers::end_all_of(&start.run);
}

fn last_line(output: &str) -> Option<String> {
    output.lines().rev().map(str::trim).find(|line| !line.is_empty()).map(|line| line.chars().take(1_000).collect())
}

/// An error with the end of what the script said, which mostly says why.
fn with_tail(error: &str, output: &str) -> String {
    let length = output.chars().count();
    let tail: String = output.chars().skip(length.saturating_sub(TAIL)).collect();
    match tail.trim() {
        "" => error.to_owned(),
        tail => format!("{error}\n{tail}"),
    }
}

//! Runs the script of a task in the task's shell, in the directory of the workspace.

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
    executor::{ExecutionEnd, JobControl, JobRequest},
    output::OutputBuffer,
    process_cleanup,
    supervise::{self, GRACE},
};

/// The shell of tasks without a shell of their own.
const DEFAULT_SHELL: &str = "sh";
/// The interval at which a job checks whether it must stop.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Maximum number of chunks of output that are read after the script has ended: those in the channel and in the pipe.
const LAST_CHUNKS_MAX: usize = 64;
/// Maximum number of characters of output at the end of an error.
const ERROR_TAIL_CHARS: usize = 500;

#[derive(Debug)]
pub struct ScriptStart<'a> {
    pub assignment: &'a Assignment,
    /// The `trackway` binary, which supervises the script.
    pub program: &'a Path,
    pub run_id: String,
    /// Additional environment variables.
    pub environment: Vec<(&'static str, OsString)>,
    /// The timeout of tasks without a timeout of their own.
    pub timeout: Duration,
}

struct RunningScript {
    child: Child,
    /// Closing this pipe asks the supervisor to end the script.
    supervisor_input: Option<ChildStdin>,
    output: Receiver<Vec<u8>>,
    /// Contains the script and its input. Dropping it removes the folder.
    _folder: TempDir,
}

/// Runs a script until it ends. Calls `write` with each chunk of its output. Returns the recorded output.
pub fn run(start: &ScriptStart<'_>, control: &JobControl, write: &mut dyn FnMut(&str)) -> (ExecutionEnd, String) {
    let Some(script) = start.assignment.script.as_deref().filter(|script| !script.trim().is_empty()) else {
        let error = format!("task {} has no script; to set one: trackway task set --script", start.assignment.variant);
        return (ExecutionEnd::Impossible { error }, String::new());
    };
    match start_script(start, script) {
        Ok(running) => wait_for_end(start, running, control, write),
        Err(error) => (ExecutionEnd::Failed { error }, String::new()),
    }
}

fn start_script(start: &ScriptStart<'_>, script: &str) -> Result<RunningScript, String> {
    let assignment = start.assignment;
    let workspace = || assignment.workspace.clone().unwrap_or_default();
    if let Some(directory) = &assignment.directory
        && !Path::new(directory).is_dir()
    {
        return Err(format!("the directory of workspace {} does not exist: {directory}", workspace()));
    }
    let at = |what: &str| {
        let what = what.to_owned();
        move |error: std::io::Error| format!("cannot {what}: {error}")
    };
    // The script and its input may be confidential: only this user may read them.
    let only_us = Permissions::from_mode(0o700);
    let folder = tempfile::Builder::new()
        .prefix(supervise::FOLDER_PREFIX)
        .permissions(only_us)
        .tempdir()
        .map_err(at("create a folder for the script"))?;
    let (script_file, input_file) = (folder.path().join("script"), folder.path().join("input"));
    let save = |path: &Path, text: &str| File::create(path).and_then(|mut file| file.write_all(text.as_bytes()));
    save(&script_file, script).map_err(at("write the script"))?;
    save(&input_file, assignment.message_body.as_deref().unwrap_or_default()).map_err(at("write the input"))?;
    let (reader, writer) = std::io::pipe().map_err(at("create a pipe"))?;
    let errors = writer.try_clone().map_err(at("create a pipe"))?;
    let mut command = Command::new(start.program);
    command
        .arg(supervise::COMMAND)
        .arg(&input_file)
        .args(assignment.shell.as_deref().unwrap_or(DEFAULT_SHELL).split_whitespace())
        .arg(&script_file)
        .envs(start.environment.iter().map(|(name, value)| (*name, value)))
        .env(process_cleanup::RUN_VARIABLE, &start.run_id)
        .stdin(Stdio::piped())
        .stdout(writer)
        .stderr(errors);
    if let Some(directory) = &assignment.directory {
        command.current_dir(directory);
    }
    let mut child = command.spawn().map_err(at("start the script"))?;
    // The command owns our write ends of the pipe. While they are open, the reader does not see the end of the output.
    drop(command);
    let supervisor_input = child.stdin.take();
    let (send, output) = sync_channel(16);
    thread::spawn(move || forward(reader, &send));
    Ok(RunningScript { child, supervisor_input, output, _folder: folder })
}

/// Sends output to a channel, until the output ends or the receiver is dropped.
fn forward(mut reader: PipeReader, send: &SyncSender<Vec<u8>>) {
    let mut buffer = vec![0; 64 << 10];
    while let Ok(length @ 1..) = reader.read(&mut buffer) {
        if send.send(buffer[..length].to_vec()).is_err() {
            return;
        }
    }
}

enum StopCause {
    TimedOut,
    Requested(JobRequest),
}

fn wait_for_end(
    start: &ScriptStart<'_>,
    mut running: RunningScript,
    control: &JobControl,
    write: &mut dyn FnMut(&str),
) -> (ExecutionEnd, String) {
    let timeout = start
        .assignment
        .timeout
        .map_or(start.timeout, |timeout| Duration::from_secs(u64::try_from(timeout.seconds()).unwrap_or_default()));
    let deadline = Instant::now() + timeout;
    let mut buffer = OutputBuffer::default();
    let mut stop_cause = None;
    // After this time, stop waiting for the supervisor.
    let mut give_up = None;
    loop {
        let received = running.output.recv_timeout(POLL_INTERVAL);
        if let Ok(output) = &received {
            buffer.push(output);
        }
        if let Some(chunk) = buffer.next_chunk(Instant::now()) {
            write(&chunk);
        }
        // Read the clock again, because writing may have taken long.
        let now = Instant::now();
        if stop_cause.is_none() {
            stop_cause = match control.requested() {
                JobRequest::Continue if now < deadline => None,
                JobRequest::Continue => Some(StopCause::TimedOut),
                request => Some(StopCause::Requested(request)),
            };
            if stop_cause.is_some() {
                running.supervisor_input = None;
                give_up = Some(now + GRACE + GRACE);
            }
        }
        // When the pipe is closed, all processes of the script have ended.
        if received == Err(RecvTimeoutError::Disconnected) || give_up.is_some_and(|time| now > time) {
            break;
        }
        // The supervisor has ended, or was killed before it cleaned up. Clean up here, and wait only briefly for
        // processes that were not found and still have the pipe open.
        if received.is_err() && matches!(running.child.try_wait(), Ok(Some(_))) {
            kill_leftovers(start);
            give_up.get_or_insert(now + Duration::from_secs(1));
        }
    }
    // Read the output that arrived during the last write or wait.
    let until = Instant::now() + GRACE;
    for _ in 0..LAST_CHUNKS_MAX {
        let Ok(output) = running.output.recv_timeout(POLL_INTERVAL) else { break };
        if Instant::now() > until {
            break;
        }
        buffer.push(&output);
        if let Some(chunk) = buffer.next_chunk(Instant::now()) {
            write(&chunk);
        }
    }
    let status = running.child.try_wait().ok().flatten().or_else(|| {
        kill_leftovers(start);
        running.child.wait().ok()
    });
    kill_leftovers(start);
    if let Some(rest) = buffer.take_rest() {
        write(&rest);
    }
    let output_text = buffer.into_text();
    let code = status.and_then(|status| status.code());
    let end = match (stop_cause, code) {
        (Some(StopCause::TimedOut), _) => {
            ExecutionEnd::TimedOut { error: format!("timed out after {}s", timeout.as_secs()) }
        }
        (Some(StopCause::Requested(JobRequest::Release)), _) => ExecutionEnd::Released,
        (Some(StopCause::Requested(_)), _) => ExecutionEnd::Lost,
        (None, Some(0)) => {
            ExecutionEnd::Completed { message: last_line(&output_text), result: json!({ "exit_code": 0 }) }
        }
        (None, Some(code)) => ExecutionEnd::Failed { error: with_tail(&format!("exit code {code}"), &output_text) },
        (None, None) => ExecutionEnd::Failed { error: with_tail("the script killed its parent", &output_text) },
    };
    (end, output_text)
}

/// Kills the remaining processes of the script, because its supervisor may have been killed before it killed them.
fn kill_leftovers(start: &ScriptStart<'_>) {
    process_cleanup::kill_adopted();
    process_cleanup::kill_processes_of_run(&start.run_id);
}

fn last_line(output: &str) -> Option<String> {
    output.lines().rev().map(str::trim).find(|line| !line.is_empty()).map(|line| line.chars().take(1_000).collect())
}

/// An error with the end of the script's output, which usually contains the reason.
fn with_tail(error: &str, output: &str) -> String {
    let length = output.chars().count();
    let tail: String = output.chars().skip(length.saturating_sub(ERROR_TAIL_CHARS)).collect();
    match tail.trim() {
        "" => error.to_owned(),
        tail => format!("{error}\n{tail}"),
    }
}

//! Starts other programs, and measures their time and memory.

use std::{
    fs::{self, File},
    io::{Write, pipe},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use crate::BenchResult;

/// Capacity of a pipe: a writer blocks when this many bytes are unread.
const PIPE_BYTES: usize = 65_536;
/// Interval at which the memory of a running program is sampled.
const MEMORY_POLL_INTERVAL: Duration = Duration::from_millis(5);

/// The `trackway` binary in the directory of this program. Builds it if it is missing.
pub fn trackway_binary() -> BenchResult<PathBuf> {
    let own = std::env::current_exe()?;
    let directory = own.parent().ok_or("this program has no parent directory")?;
    let trackway = directory.join("trackway");
    if !trackway.exists() {
        let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let built = Command::new("cargo").args(["build", "--release"]).current_dir(workspace).status()?;
        if !built.success() {
            return Err("cargo build --release failed".into());
        }
    }
    Ok(trackway)
}

/// A command with a clean environment, so that the user's settings do not affect it.
pub fn isolated_command(program: &Path, directory: &Path) -> Command {
    let mut command = Command::new(program);
    command
        .env_clear()
        .env("HOME", directory)
        .env("USER", "ada")
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .current_dir(directory)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command
}

/// Runs a command and returns its duration. Fails if the command fails.
pub fn time(command: &mut Command) -> BenchResult<Duration> {
    let start = Instant::now();
    let status = command.status()?;
    let elapsed = start.elapsed();
    if status.success() { Ok(elapsed) } else { Err(format!("{command:?} failed").into()) }
}

/// Runs a command and returns its duration and its peak memory in kilobytes.
pub fn time_and_memory(command: &mut Command) -> BenchResult<(Duration, u64)> {
    let start = Instant::now();
    let mut child = command.spawn()?;
    let process_id = child.id();
    let (stop, stopped) = std::sync::mpsc::channel::<()>();
    let watch = thread::spawn(move || {
        let mut peak = 0;
        while stopped
            .recv_timeout(MEMORY_POLL_INTERVAL)
            .is_err_and(|error| error == std::sync::mpsc::RecvTimeoutError::Timeout)
        {
            peak = peak.max(memory_kb(process_id).unwrap_or(0));
        }
        peak
    });
    let status = child.wait()?;
    let elapsed = start.elapsed();
    drop(stop);
    let peak = watch.join().map_err(|_| "the memory watcher panicked")?;
    if status.success() { Ok((elapsed, peak)) } else { Err(format!("{command:?} failed").into()) }
}

/// Runs a command and returns its peak memory in kilobytes. The command must print something: its standard output is a
/// full pipe, so the command blocks when it prints, and its memory is read at that moment. The kernel's value for an
/// ended child would include the memory of the parent from which it was forked.
pub fn peak_memory_kb(command: &mut Command) -> BenchResult<u64> {
    let (mut reader, mut writer) = pipe()?;
    writer.write_all(&vec![b' '; PIPE_BYTES])?;
    let mut child: Child = command.stdout(writer).spawn()?;
    // The command would otherwise hold the write end of the pipe open.
    command.stdout(Stdio::null());
    thread::sleep(Duration::from_millis(300));
    let peak = memory_kb(child.id());
    std::io::copy(&mut reader, &mut std::io::sink())?;
    child.wait()?;
    peak.ok_or_else(|| format!("{command:?} exited before its memory was read: it printed nothing").into())
}

fn memory_kb(process: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("VmHWM:")?.trim().split(' ').next()?.parse().ok())
}

/// Opens a file with this text, as the standard input of a command.
pub fn stdin_with(file: &Path, text: &str) -> BenchResult<Stdio> {
    fs::write(file, text)?;
    Ok(File::open(file)?.into())
}

//! Other programs, started and watched.

use std::{
    fs::{self, File},
    io::{Write, pipe},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use crate::Outcome;

/// What a pipe holds before its writer waits.
const PIPE_BYTES: usize = 65_536;
/// How often a program's memory is looked at while it runs.
const LOOK: Duration = Duration::from_millis(5);

/// The binary beside this one, built when it is missing.
pub fn trackway() -> Outcome<PathBuf> {
    let own = std::env::current_exe()?;
    let directory = own.parent().ok_or("this program is in no directory")?;
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

/// A command that sees nothing of this machine but a directory and where programs are.
pub fn command(program: &Path, directory: &Path) -> Command {
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

/// How long a command took from start to end. One that fails is an error.
pub fn time(command: &mut Command) -> Outcome<Duration> {
    let start = Instant::now();
    let status = command.status()?;
    let took = start.elapsed();
    if status.success() { Ok(took) } else { Err(format!("{command:?} failed").into()) }
}

/// How long a command took, and the most memory it held.
pub fn time_and_memory(command: &mut Command) -> Outcome<(Duration, u64)> {
    let start = Instant::now();
    let mut child = command.spawn()?;
    let watched = child.id();
    let (done, ended) = std::sync::mpsc::channel::<()>();
    let watch = thread::spawn(move || {
        let mut peak = 0;
        while ended.recv_timeout(LOOK).is_err_and(|error| error == std::sync::mpsc::RecvTimeoutError::Timeout) {
            peak = peak.max(memory_kb(watched).unwrap_or(0));
        }
        peak
    });
    let status = child.wait()?;
    let took = start.elapsed();
    drop(done);
    let peak = watch.join().map_err(|_| "the watch failed")?;
    if status.success() { Ok((took, peak)) } else { Err(format!("{command:?} failed").into()) }
}

/// The most memory a command held that writes an answer, read while it waits to write it into a pipe that is full. What
/// the kernel tells about a child that has ended counts the memory of the parent it was forked from, too.
pub fn peak_memory_kb(command: &mut Command) -> Outcome<u64> {
    let (mut reader, mut writer) = pipe()?;
    writer.write_all(&vec![b' '; PIPE_BYTES])?;
    let mut child: Child = command.stdout(writer).spawn()?;
    // The command's own end of the pipe would keep it open.
    command.stdout(Stdio::null());
    thread::sleep(Duration::from_millis(300));
    let peak = memory_kb(child.id());
    std::io::copy(&mut reader, &mut std::io::sink())?;
    child.wait()?;
    peak.ok_or_else(|| format!("{command:?} did not wait to write its answer").into())
}

fn memory_kb(process: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("VmHWM:")?.trim().split(' ').next()?.parse().ok())
}

/// A text as a command's standard input.
pub fn input(file: &Path, text: &str) -> Outcome<Stdio> {
    fs::write(file, text)?;
    Ok(File::open(file)?.into())
}

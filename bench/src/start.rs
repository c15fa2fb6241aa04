//! Cold start: a process that answers one question, against one that does nothing.

use std::{
    io::{Write, pipe},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::Duration,
};

use serde_json::json;
use trackway_store::{Engine, Url};

use crate::{
    Outcome,
    house::House,
    measure::{self, Samples, ratio, shown},
    place::Places,
    table::{Table, verdict},
};

pub const HEADING: &str = "## start: cold start of the command line";
const SPAWNS: usize = 200;
const WARM_UP: usize = 10;
const RATIO_MAX: f64 = 5.0;
const MEMORY_MAX_KB: u64 = 20 * 1_024;
/// What a pipe holds before its writer waits.
const PIPE_BYTES: usize = 65_536;

/// One command line.
#[derive(Debug)]
struct Candidate {
    name: &'static str,
    program: PathBuf,
    arguments: Vec<String>,
    /// Whether the targets are for it.
    ours: bool,
}

pub fn measure(places: &Places) -> Outcome<()> {
    let house = House::found(places.database(Engine::Sqlite, "start")?)?;
    let note = small_story(&house)?;
    let House { core, database, .. } = house;
    // Nobody else has it open, as on a user's machine: each process is the first to open it and the last to close it.
    drop(core);
    let trackway = release_binary()?;
    let Url::Sqlite(file) = database.url() else { return Err("this database is a file".into()) };
    let url = format!("sqlite:{}", file.display());
    let ours = |name, words: &[&str]| Candidate {
        name,
        program: trackway.clone(),
        arguments: words.iter().map(|word| (*word).to_owned()).chain(["--db".into(), url.clone()]).collect(),
        ours: true,
    };
    let candidates = [
        Candidate { name: "/bin/true", program: "/bin/true".into(), arguments: vec![], ours: false },
        Candidate {
            name: "one query, bare SQLite",
            program: std::env::current_exe()?,
            arguments: vec!["open".into(), file.display().to_string()],
            ours: false,
        },
        Candidate {
            name: "trackway --version (no database)",
            program: trackway.clone(),
            arguments: vec!["--version".into()],
            ours: false,
        },
        ours("trackway task list", &["task", "list"]),
        ours("trackway why ID", &["why", &note]),
        ours("trackway ready", &["ready"]),
    ];
    let timed = spawn_in_turn(&candidates, places.directory())?;
    print(&candidates, &timed, places.directory())
}

fn print(candidates: &[Candidate], timed: &[Samples], directory: &Path) -> Outcome<()> {
    println!(
        "\nMedian of {SPAWNS} spawns each, in turn; 20 tasks, one run, one note. Target: within 5x of `true`, under 20 MB."
    );
    let baseline = timed.first().map(Samples::median).unwrap_or_default();
    let mut table = Table::new(["command", "median", "p99", "times `true`", "peak memory", "met"]);
    for (candidate, samples) in candidates.iter().zip(timed) {
        let ratio = ratio(samples.median(), baseline);
        let memory_kb = candidate.ours.then(|| peak_memory_kb(candidate, directory)).transpose()?;
        table.row([
            candidate.name.to_owned(),
            shown(samples.median()),
            shown(samples.p99()),
            format!("{ratio:.1}"),
            memory_kb.map_or_else(String::new, |kilobytes| format!("{:.1} MB", kilobytes as f64 / 1_024.0)),
            memory_kb.map_or_else(String::new, |kilobytes| verdict(ratio <= RATIO_MAX && kilobytes < MEMORY_MAX_KB)),
        ]);
    }
    table.print();
    Ok(())
}

/// A few tasks, and a note written in a run: its id is what `why` is asked about.
fn small_story(house: &House) -> Outcome<String> {
    for number in 0..20 {
        house.act(
            "set_task",
            json!({ "workflow": "unit", "variant": format!("build/step-{number}"), "title": "Build" }),
        )?;
    }
    let run = house.run()?;
    let note =
        house.act_as(&run, "create_note", json!({ "studio": "main", "title": "Plan", "body": "First this." }))?;
    Ok(note["id"].as_str().ok_or("a note without an id")?.to_owned())
}

/// The binary beside this one, built when it is missing.
fn release_binary() -> Outcome<PathBuf> {
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

fn command(candidate: &Candidate, directory: &Path) -> Command {
    let mut command = Command::new(&candidate.program);
    command
        .args(&candidate.arguments)
        .env_clear()
        .env("HOME", directory)
        .env("USER", "ada")
        .current_dir(directory)
        .stdin(Stdio::null())
        .stderr(Stdio::null());
    command
}

/// Times each candidate once per round, so that whatever else the machine does meets all of them.
fn spawn_in_turn(candidates: &[Candidate], directory: &Path) -> Outcome<Vec<Samples>> {
    let mut durations = vec![Vec::with_capacity(SPAWNS); candidates.len()];
    for round in 0..WARM_UP + SPAWNS {
        for (candidate, durations) in candidates.iter().zip(&mut durations) {
            let mut command = command(candidate, directory);
            command.stdout(Stdio::null());
            let (took, status) = measure::once(|| Ok(command.status()?))?;
            if !status.success() {
                return Err(format!("{} failed", candidate.name).into());
            }
            if round >= WARM_UP {
                durations.push(took);
            }
        }
    }
    Ok(durations.into_iter().map(Samples::new).collect())
}

/// The most memory a command held, read while it waits to write its answer into a pipe that is full. What the kernel
/// tells about a child that has ended counts the memory of the parent it was forked from, too.
fn peak_memory_kb(candidate: &Candidate, directory: &Path) -> Outcome<u64> {
    let (mut reader, mut writer) = pipe()?;
    writer.write_all(&vec![b' '; PIPE_BYTES])?;
    let mut child = command(candidate, directory).stdout(writer).spawn()?;
    thread::sleep(Duration::from_millis(300));
    let status = std::fs::read_to_string(format!("/proc/{}/status", child.id()))?;
    std::io::copy(&mut reader, &mut std::io::sink())?;
    child.wait()?;
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")?.trim().split(' ').next()?.parse().ok());
    peak.ok_or_else(|| format!("{} did not wait to write its answer", candidate.name).into())
}

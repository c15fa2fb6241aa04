//! Cold start: a process that answers one question, against one that does nothing.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::json;
use trackway_store::{Engine, Url};

use crate::{
    Outcome,
    bench_env::BenchEnv,
    measure::{Samples, ratio, shown},
    place::Places,
    process,
    table::{Table, verdict},
};

pub const HEADING: &str = "## start: cold start of the command line";
const SPAWNS: usize = 200;
const WARM_UP: usize = 10;
const RATIO_MAX: f64 = 5.0;
const MEMORY_MAX_KB: u64 = 20 * 1_024;

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
    let env = BenchEnv::found(places.database(Engine::Sqlite, "start")?)?;
    let note = small_story(&env)?;
    let BenchEnv { core, database, .. } = env;
    // Nobody else has it open, as on a user's machine: each process is the first to open it and the last to close it.
    drop(core);
    let trackway = process::trackway()?;
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
        let memory_kb =
            candidate.ours.then(|| process::peak_memory_kb(&mut command(candidate, directory))).transpose()?;
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
fn small_story(env: &BenchEnv) -> Outcome<String> {
    for number in 0..20 {
        env.act(
            "set_task",
            json!({ "workflow": "unit", "variant": format!("build/step-{number}"), "title": "Build" }),
        )?;
    }
    let run = env.run()?;
    let note = env.act_as(&run, "create_note", json!({ "studio": "main", "title": "Plan", "body": "First this." }))?;
    Ok(note["id"].as_str().ok_or("a note without an id")?.to_owned())
}

fn command(candidate: &Candidate, directory: &Path) -> Command {
    let mut command = process::command(&candidate.program, directory);
    command.args(&candidate.arguments);
    command
}

/// Times each candidate once per round, so that whatever else the machine does meets all of them.
fn spawn_in_turn(candidates: &[Candidate], directory: &Path) -> Outcome<Vec<Samples>> {
    let mut durations = vec![Vec::with_capacity(SPAWNS); candidates.len()];
    for round in 0..WARM_UP + SPAWNS {
        for (candidate, durations) in candidates.iter().zip(&mut durations) {
            let took = process::time(&mut command(candidate, directory))?;
            if round >= WARM_UP {
                durations.push(took);
            }
        }
    }
    Ok(durations.into_iter().map(Samples::new).collect())
}

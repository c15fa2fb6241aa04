//! Cold start: a process that answers one query, compared with `/bin/true`.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::json;
use trackway_store::{Engine, Url};

use crate::{
    BenchResult,
    bench_env::BenchEnv,
    databases::Databases,
    measure::{Samples, format_duration, ratio},
    process,
    table::{Table, verdict},
};

pub const HEADING: &str = "## start: cold start of the command line";
const SPAWNS: usize = 200;
const WARM_UP: usize = 10;
const RATIO_MAX: f64 = 5.0;
const MEMORY_MAX_KB: u64 = 20 * 1_024;

/// A command to time.
#[derive(Debug)]
struct Candidate {
    name: &'static str,
    program: PathBuf,
    arguments: Vec<String>,
    /// Whether the command has to meet the targets.
    has_targets: bool,
}

pub fn measure(databases: &Databases) -> BenchResult<()> {
    let env = BenchEnv::create(databases.create(Engine::Sqlite, "start")?)?;
    let note = create_sample_data(&env)?;
    let BenchEnv { core, database, .. } = env;
    // Close the database, as on a user's machine: each process is the first to open the file and the last to close it.
    drop(core);
    let trackway = process::trackway_binary()?;
    let Url::Sqlite(file) = database.url() else { return Err("expected a SQLite file".into()) };
    let url = format!("sqlite:{}", file.display());
    let with_database = |name, words: &[&str]| Candidate {
        name,
        program: trackway.clone(),
        arguments: words.iter().map(|word| (*word).to_owned()).chain(["--db".into(), url.clone()]).collect(),
        has_targets: true,
    };
    let candidates = [
        Candidate { name: "/bin/true", program: "/bin/true".into(), arguments: vec![], has_targets: false },
        Candidate {
            name: "one query, bare SQLite",
            program: std::env::current_exe()?,
            arguments: vec!["open".into(), file.display().to_string()],
            has_targets: false,
        },
        Candidate {
            name: "trackway --version (no database)",
            program: trackway.clone(),
            arguments: vec!["--version".into()],
            has_targets: false,
        },
        with_database("trackway task list", &["task", "list"]),
        with_database("trackway why ID", &["why", &note]),
        with_database("trackway ready", &["ready"]),
    ];
    let timed = spawn_in_turn(&candidates, databases.directory())?;
    print(&candidates, &timed, databases.directory())
}

fn print(candidates: &[Candidate], timed: &[Samples], directory: &Path) -> BenchResult<()> {
    println!(
        "\nEach command runs {SPAWNS} times, alternating with the others. The database has 20 tasks, one run and one \
         note. Targets: median at most 5x that of `true`, less than 20 MB."
    );
    let baseline = timed.first().map(Samples::median).unwrap_or_default();
    let mut table = Table::new(["command", "median", "p99", "times `true`", "peak memory", "met"]);
    for (candidate, samples) in candidates.iter().zip(timed) {
        let ratio = ratio(samples.median(), baseline);
        let memory_kb =
            candidate.has_targets.then(|| process::peak_memory_kb(&mut command(candidate, directory))).transpose()?;
        table.row([
            candidate.name.to_owned(),
            format_duration(samples.median()),
            format_duration(samples.p99()),
            format!("{ratio:.1}"),
            memory_kb.map_or_else(String::new, |kilobytes| format!("{:.1} MB", kilobytes as f64 / 1_024.0)),
            memory_kb.map_or_else(String::new, |kilobytes| verdict(ratio <= RATIO_MAX && kilobytes < MEMORY_MAX_KB)),
        ]);
    }
    table.print();
    Ok(())
}

/// Creates 20 tasks and a note written in a run. Returns the id of the note.
fn create_sample_data(env: &BenchEnv) -> BenchResult<String> {
    for number in 0..20 {
        env.execute_json(
            "set_task",
            json!({ "workflow": "unit", "variant": format!("build/step-{number}"), "title": "Build" }),
        )?;
    }
    let run = env.run()?;
    let note =
        env.execute_json_as(&run, "create_note", json!({ "studio": "main", "title": "Plan", "body": "First this." }))?;
    Ok(note["id"].as_str().ok_or("a note without an id")?.to_owned())
}

fn command(candidate: &Candidate, directory: &Path) -> Command {
    let mut command = process::isolated_command(&candidate.program, directory);
    command.args(&candidate.arguments);
    command
}

/// Runs each candidate once per round, so that other load on the machine affects all of them equally.
fn spawn_in_turn(candidates: &[Candidate], directory: &Path) -> BenchResult<Vec<Samples>> {
    let mut durations = vec![Vec::with_capacity(SPAWNS); candidates.len()];
    for round in 0..WARM_UP + SPAWNS {
        for (candidate, durations) in candidates.iter().zip(&mut durations) {
            let elapsed = process::time(&mut command(candidate, directory))?;
            if round >= WARM_UP {
                durations.push(elapsed);
            }
        }
    }
    Ok(durations.into_iter().map(Samples::new).collect())
}

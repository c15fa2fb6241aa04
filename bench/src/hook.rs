//! A hook: from an event to its rows, as a process that the client waits for.

use std::{
    path::{Path, PathBuf},
    process::Command,
    sync::Barrier,
    thread,
    time::Duration,
};

use clap::Args;
use serde_json::json;
use trackway_store::{Engine, Url, connection::Connection};

use crate::{
    Outcome,
    bench_env::BenchEnv,
    measure::{Samples, ratio, shown},
    place::Places,
    process,
    table::{Table, verdict},
    transcripts::{Author, Session},
};

pub const HEADING: &str = "## hook: one event of Claude Code";
const TRANSCRIPT_BYTES: u64 = 20_000_000;
const ROUNDS: usize = 200;
const WARM_UP: usize = 10;
/// The other one takes long: it is started once in so many rounds.
const OTHER_EVERY: usize = 20;
const AT_ONCE: usize = 32;
const AT_ONCE_ROUNDS: usize = 20;
const TIMES_TRUE_MAX: f64 = 3.0;
const TIMES_OTHER_MIN: f64 = 100.0;
const MEMORY_MAX_KB: u64 = 15 * 1_024;
const AT_ONCE_MAX: Duration = Duration::from_millis(100);

#[derive(Debug, Args)]
pub struct Others {
    /// The `claude-nagger` to compare with; left out without it
    #[arg(long, value_name = "FILE")]
    claude_nagger: Option<PathBuf>,
}

/// Where events happen.
#[derive(Debug)]
struct Scene {
    directory: PathBuf,
    session: Session,
    database: String,
    trackway: PathBuf,
}

impl Scene {
    /// A subagent of this name starts.
    fn event(&self, agent: &str) -> String {
        json!({
            "session_id": self.session.id, "transcript_path": self.session.transcript, "cwd": self.directory,
            "prompt_id": "00000000-0000-4000-8000-000000000001", "agent_id": agent, "agent_type": "general-purpose",
            "hook_event_name": "SubagentStart",
        })
        .to_string()
    }

    fn command(&self, program: &Path, words: &[&str], agent: &str) -> Outcome<Command> {
        let mut command = process::command(program, &self.directory);
        let input = process::input(&self.directory.join(format!("event-{agent}.json")), &self.event(agent))?;
        command.args(words).env("TRACKWAY_DB", &self.database).stdin(input);
        Ok(command)
    }

    fn hook(&self, agent: &str) -> Outcome<Command> {
        self.command(&self.trackway, &["hook"], agent)
    }
}

pub fn measure(places: &Places, others: &Others) -> Outcome<()> {
    let directory = places.directory().join("hook");
    std::fs::create_dir_all(&directory)?;
    let env = BenchEnv::found(places.database(Engine::Sqlite, "hook")?)?;
    let BenchEnv { core, database, .. } = env;
    drop(core);
    let Url::Sqlite(file) = database.url() else { return Err("this database is a file".into()) };
    let folder = directory.join(".claude/projects/-work-unit");
    std::fs::create_dir_all(&folder)?;
    let scene = Scene {
        session: Author::new(1, &directory).session(&folder, TRANSCRIPT_BYTES)?,
        database: format!("sqlite:{}", file.display()),
        trackway: process::trackway()?,
        directory,
    };
    let mut ingest = process::command(&scene.trackway, &scene.directory);
    process::time(ingest.arg("ingest").arg(&folder).env("TRACKWAY_DB", &scene.database))?;
    println!(
        "\nSubagentStart; the parent's transcript has {} MB and is in the database. Targets: within 3x of `true`, 100x faster than claude-nagger, under 15 MB.",
        scene.session.transcript.metadata()?.len() / 1_000_000
    );
    alone(&scene, others)?;
    at_once(&scene, &database.url())
}

/// One after the other, in turn with the others.
fn alone(scene: &Scene, others: &Others) -> Outcome<()> {
    let (mut nothing, mut bare, mut ours, mut theirs) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let (own, file) = (std::env::current_exe()?, scene.database.trim_start_matches("sqlite:"));
    for round in 0..WARM_UP + ROUNDS {
        let took = process::time(&mut process::command(Path::new("/bin/true"), &scene.directory))?;
        let opened = process::time(process::command(&own, &scene.directory).arg("open").arg(file))?;
        let hooked = process::time(&mut scene.hook(&format!("a{round:016x}"))?)?;
        if round >= WARM_UP {
            nothing.push(took);
            bare.push(opened);
            ours.push(hooked);
        }
        if let Some(nagger) = others.claude_nagger.as_ref().filter(|_| round % OTHER_EVERY == 0) {
            let mut command = scene.command(nagger, &["hook", "subagent-event"], &format!("a{round:016x}"))?;
            theirs.push(process::time(&mut command)?);
        }
    }
    let memory_kb = process::peak_memory_kb(&mut scene.hook("a-for-memory")?)?;
    let (nothing, ours) = (Samples::new(nothing), Samples::new(ours));
    let times = ratio(ours.median(), nothing.median());
    let mut table = Table::new(["command", "median", "p99", "times `true`", "times trackway", "peak memory", "met"]);
    let mut row = |name: &str, samples: &Samples, memory: String, met: String| {
        table.row([
            name.to_owned(),
            shown(samples.median()),
            shown(samples.p99()),
            format!("{:.1}", ratio(samples.median(), nothing.median())),
            format!("{:.1}", ratio(samples.median(), ours.median())),
            memory,
            met,
        ]);
    };
    row("/bin/true", &nothing, String::new(), String::new());
    row("one query, bare SQLite", &Samples::new(bare), String::new(), String::new());
    let memory = format!("{:.1} MB", memory_kb as f64 / 1_024.0);
    row("trackway hook", &ours, memory, verdict(times <= TIMES_TRUE_MAX && memory_kb < MEMORY_MAX_KB));
    if !theirs.is_empty() {
        let theirs = Samples::new(theirs);
        let met = ratio(theirs.median(), ours.median()) >= TIMES_OTHER_MIN;
        row("claude-nagger hook subagent-event", &theirs, String::new(), verdict(met));
    }
    table.print();
    Ok(())
}

/// Many at once, and whether each of them is in the database afterwards.
fn at_once(scene: &Scene, database: &Url) -> Outcome<()> {
    let before = subagents(database)?;
    let mut took = Vec::new();
    let mut spooled = 0;
    for round in 0..AT_ONCE_ROUNDS {
        let hooks = (0..AT_ONCE)
            .map(|number| scene.hook(&format!("b{round:08x}{number:08x}")))
            .collect::<Outcome<Vec<Command>>>()?;
        let barrier = Barrier::new(AT_ONCE);
        let times: Vec<Outcome<Duration>> = thread::scope(|scope| {
            let started: Vec<_> = hooks
                .into_iter()
                .map(|mut hook| {
                    let barrier = &barrier;
                    scope.spawn(move || {
                        barrier.wait();
                        process::time(&mut hook)
                    })
                })
                .collect();
            started.into_iter().map(|hook| hook.join().unwrap_or_else(|_| Err("a thread failed".into()))).collect()
        });
        took.extend(times.into_iter().collect::<Outcome<Vec<Duration>>>()?);
        spooled += std::fs::read_dir(spool(database)).map_or(0, |files| {
            files.flatten().filter(|file| file.path().extension().is_some_and(|end| end == "json")).count()
        });
        // The next event brings in what had to wait.
        process::time(&mut scene.hook(&format!("c{round:016x}"))?)?;
    }
    let lost = before + (AT_ONCE + 1) * AT_ONCE_ROUNDS - subagents(database)?;
    let took = Samples::new(took);
    println!(
        "\n{AT_ONCE} hooks at once, {AT_ONCE_ROUNDS} times; each is timed from its start to its end. Target: none lost, p99 under 100 ms."
    );
    let mut table = Table::new(["hooks", "median", "p99", "left for the next event", "lost", "met"]);
    table.row([
        (AT_ONCE * AT_ONCE_ROUNDS).to_string(),
        shown(took.median()),
        shown(took.p99()),
        spooled.to_string(),
        lost.to_string(),
        verdict(lost == 0 && took.p99() < AT_ONCE_MAX),
    ]);
    table.print();
    Ok(())
}

fn spool(database: &Url) -> PathBuf {
    match database {
        Url::Sqlite(file) => file.with_file_name("spool"),
        Url::Postgres(_) => PathBuf::new(),
    }
}

fn subagents(database: &Url) -> Outcome<usize> {
    let Url::Sqlite(file) = database else { return Err("this database is a file".into()) };
    let rows = Connection::sqlite(file, false)?.query::<(i64,)>("select count(*) from subagents", &[])?;
    Ok(rows.first().map_or(0, |(count,)| usize::try_from(*count).unwrap_or_default()))
}

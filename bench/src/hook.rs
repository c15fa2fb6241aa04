//! One hook event: time from the start of the hook process to its exit.

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
    BenchResult,
    bench_env::BenchEnv,
    databases::Databases,
    measure::{Samples, format_duration, ratio},
    process,
    table::{Table, verdict},
    transcript_writer::{SessionFile, TranscriptWriter},
};

pub const HEADING: &str = "## hook: one event of Claude Code";
const TRANSCRIPT_BYTES: u64 = 20_000_000;
const ROUNDS: usize = 200;
const WARM_UP: usize = 10;
/// claude-nagger is slow, so it runs in one of this many rounds.
const NAGGER_EVERY: usize = 20;
const CONCURRENT_HOOKS: usize = 32;
const CONCURRENT_ROUNDS: usize = 20;
const TIMES_TRUE_MAX: f64 = 3.0;
const TIMES_NAGGER_MIN: f64 = 100.0;
const MEMORY_MAX_KB: u64 = 15 * 1_024;
const CONCURRENT_P99_MAX: Duration = Duration::from_millis(100);

#[derive(Debug, Args)]
pub struct HookPeers {
    /// Path of `claude-nagger` to compare with [default: not measured]
    #[arg(long, value_name = "FILE")]
    claude_nagger: Option<PathBuf>,
}

/// The database, the transcript and the binary that the hook events use.
#[derive(Debug)]
struct HookEnv {
    directory: PathBuf,
    session: SessionFile,
    database: String,
    trackway: PathBuf,
}

impl HookEnv {
    /// The event for the start of a subagent with this id.
    fn event(&self, agent: &str) -> String {
        json!({
            "session_id": self.session.id, "transcript_path": self.session.transcript, "cwd": self.directory,
            "prompt_id": "00000000-0000-4000-8000-000000000001", "agent_id": agent, "agent_type": "general-purpose",
            "hook_event_name": "SubagentStart",
        })
        .to_string()
    }

    fn command(&self, program: &Path, arguments: &[&str], agent: &str) -> BenchResult<Command> {
        let mut command = process::isolated_command(program, &self.directory);
        let input = process::stdin_with(&self.directory.join(format!("event-{agent}.json")), &self.event(agent))?;
        command.args(arguments).env("TRACKWAY_DB", &self.database).stdin(input);
        Ok(command)
    }

    fn hook(&self, agent: &str) -> BenchResult<Command> {
        self.command(&self.trackway, &["hook"], agent)
    }
}

pub fn measure(databases: &Databases, peers: &HookPeers) -> BenchResult<()> {
    let directory = databases.directory().join("hook");
    std::fs::create_dir_all(&directory)?;
    let env = BenchEnv::create(databases.create(Engine::Sqlite, "hook")?)?;
    let BenchEnv { core, database, .. } = env;
    drop(core);
    let Url::Sqlite(file) = database.url() else { return Err("expected a SQLite file".into()) };
    let folder = directory.join(".claude/projects/-work-unit");
    std::fs::create_dir_all(&folder)?;
    let env = HookEnv {
        session: TranscriptWriter::new(1, &directory).write_session(&folder, TRANSCRIPT_BYTES)?,
        database: format!("sqlite:{}", file.display()),
        trackway: process::trackway_binary()?,
        directory,
    };
    let mut ingest = process::isolated_command(&env.trackway, &env.directory);
    process::time(ingest.arg("ingest").arg(&folder).env("TRACKWAY_DB", &env.database))?;
    println!(
        "\nA SubagentStart event. The parent's transcript has {} MB and is already ingested. Targets: at most 3x the \
         time of `true`, 100x faster than claude-nagger, less than 15 MB.",
        env.session.transcript.metadata()?.len() / 1_000_000
    );
    measure_sequential(&env, peers)?;
    measure_concurrent(&env, &database.url())
}

/// Times hooks one at a time, alternating with the other programs.
fn measure_sequential(env: &HookEnv, peers: &HookPeers) -> BenchResult<()> {
    let (mut baseline, mut bare, mut trackway, mut nagger) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let (own, file) = (std::env::current_exe()?, env.database.trim_start_matches("sqlite:"));
    for round in 0..WARM_UP + ROUNDS {
        let elapsed = process::time(&mut process::isolated_command(Path::new("/bin/true"), &env.directory))?;
        let bare_elapsed = process::time(process::isolated_command(&own, &env.directory).arg("open").arg(file))?;
        let hook_elapsed = process::time(&mut env.hook(&format!("a{round:016x}"))?)?;
        if round >= WARM_UP {
            baseline.push(elapsed);
            bare.push(bare_elapsed);
            trackway.push(hook_elapsed);
        }
        if let Some(program) = peers.claude_nagger.as_ref().filter(|_| round % NAGGER_EVERY == 0) {
            let mut command = env.command(program, &["hook", "subagent-event"], &format!("a{round:016x}"))?;
            nagger.push(process::time(&mut command)?);
        }
    }
    let memory_kb = process::peak_memory_kb(&mut env.hook("a-memory")?)?;
    let (baseline, trackway) = (Samples::new(baseline), Samples::new(trackway));
    let times = ratio(trackway.median(), baseline.median());
    let mut table = Table::new(["command", "median", "p99", "times `true`", "times trackway", "peak memory", "met"]);
    let mut row = |name: &str, samples: &Samples, memory: String, met: String| {
        table.row([
            name.to_owned(),
            format_duration(samples.median()),
            format_duration(samples.p99()),
            format!("{:.1}", ratio(samples.median(), baseline.median())),
            format!("{:.1}", ratio(samples.median(), trackway.median())),
            memory,
            met,
        ]);
    };
    row("/bin/true", &baseline, String::new(), String::new());
    row("one query, bare SQLite", &Samples::new(bare), String::new(), String::new());
    let memory = format!("{:.1} MB", memory_kb as f64 / 1_024.0);
    row("trackway hook", &trackway, memory, verdict(times <= TIMES_TRUE_MAX && memory_kb < MEMORY_MAX_KB));
    if !nagger.is_empty() {
        let nagger = Samples::new(nagger);
        let met = ratio(nagger.median(), trackway.median()) >= TIMES_NAGGER_MIN;
        row("claude-nagger hook subagent-event", &nagger, String::new(), verdict(met));
    }
    table.print();
    Ok(())
}

/// Starts many hooks at the same time, and counts the events that did not reach the database.
fn measure_concurrent(env: &HookEnv, database: &Url) -> BenchResult<()> {
    let before = count_subagents(database)?;
    let mut elapsed = Vec::new();
    let mut spooled = 0;
    for round in 0..CONCURRENT_ROUNDS {
        let hooks = (0..CONCURRENT_HOOKS)
            .map(|number| env.hook(&format!("b{round:08x}{number:08x}")))
            .collect::<BenchResult<Vec<Command>>>()?;
        let barrier = Barrier::new(CONCURRENT_HOOKS);
        let times: Vec<BenchResult<Duration>> = thread::scope(|scope| {
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
        elapsed.extend(times.into_iter().collect::<BenchResult<Vec<Duration>>>()?);
        spooled += std::fs::read_dir(spool_folder(database)).map_or(0, |files| {
            files.flatten().filter(|file| file.path().extension().is_some_and(|end| end == "json")).count()
        });
        // The next hook process ingests the events that were spooled.
        process::time(&mut env.hook(&format!("c{round:016x}"))?)?;
    }
    let lost = before + (CONCURRENT_HOOKS + 1) * CONCURRENT_ROUNDS - count_subagents(database)?;
    let elapsed = Samples::new(elapsed);
    println!(
        "\n{CONCURRENT_HOOKS} hooks started at once, {CONCURRENT_ROUNDS} times. Each is timed from its start to its \
         exit. Targets: no event lost, p99 less than 100 ms."
    );
    let mut table = Table::new(["hooks", "median", "p99", "spooled", "lost", "met"]);
    table.row([
        (CONCURRENT_HOOKS * CONCURRENT_ROUNDS).to_string(),
        format_duration(elapsed.median()),
        format_duration(elapsed.p99()),
        spooled.to_string(),
        lost.to_string(),
        verdict(lost == 0 && elapsed.p99() < CONCURRENT_P99_MAX),
    ]);
    table.print();
    Ok(())
}

fn spool_folder(database: &Url) -> PathBuf {
    match database {
        Url::Sqlite(file) => file.with_file_name("spool"),
        Url::Postgres(_) => PathBuf::new(),
    }
}

fn count_subagents(database: &Url) -> BenchResult<usize> {
    let Url::Sqlite(file) = database else { return Err("expected a SQLite file".into()) };
    let rows = Connection::sqlite(file, false)?.query::<(i64,)>("select count(*) from subagents", &[])?;
    Ok(rows.first().map_or(0, |(count,)| usize::try_from(*count).unwrap_or_default()))
}

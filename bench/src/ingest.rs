//! Ingests transcripts, and compares with programs that read the same files but do less.

use std::{
    fs::File,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    time::Duration,
};

use clap::Args;
use serde::de::IgnoredAny;
use serde_json::Value;
use trackway_store::{Engine, Url};

use crate::{
    BenchResult,
    bench_env::BenchEnv,
    databases::Databases,
    measure::{self, Samples, format_count, format_duration, ratio},
    process,
    table::{Table, plot, verdict},
    transcript_writer::{TranscriptWriter, WriteStats},
};

pub const HEADING: &str = "## ingest: reading transcripts into the database";
const TIMES_CCUSAGE_MAX: f64 = 2.0;
const AGAIN_TIMES_CCUSAGE_MAX: f64 = 0.05;
const MEMORY_MAX_KB: u64 = 200 * 1_024;
/// Growth counts as linear if the time per byte at the largest size is at most this many times the time per byte at the
/// smallest size.
const GROWTH_MAX: f64 = 1.5;

#[derive(Debug, Args)]
pub struct IngestOptions {
    /// Megabytes of transcripts, one measurement each
    #[arg(long, value_name = "MB", value_delimiter = ',', default_value = "50,100,200,400")]
    megabytes: Vec<u64>,
    /// Number of times to ingest each size
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Path of `ccusage` to compare with [default: not measured]
    #[arg(long, value_name = "FILE")]
    ccusage: Option<PathBuf>,
    /// Path of `claude-code-log` to compare with, at the smallest size [default: not measured]
    #[arg(long, value_name = "FILE")]
    claude_code_log: Option<PathBuf>,
}

/// Results for one size.
#[derive(Debug)]
struct SizeResult {
    megabytes: u64,
    first: Samples,
    again: Samples,
    ccusage_samples: Option<Samples>,
    checked: Samples,
    parsed: Samples,
    claude_code_log: Option<Duration>,
    memory_kb: u64,
    database_mb: u64,
    written: WriteStats,
}

pub fn measure(databases: &Databases, options: &IngestOptions) -> BenchResult<()> {
    let mut all = Vec::new();
    for megabytes in &options.megabytes {
        let directory = databases.directory().join(format!("ingest-{megabytes}"));
        let projects = directory.join(".claude/projects");
        let written = TranscriptWriter::new(*megabytes, Path::new("/work/unit"))
            .write_sessions(&projects.join("-work-unit"), megabytes * 1_000_000)?;
        let first_size = all.is_empty();
        let claude_code_log = options.claude_code_log.as_deref().filter(|_| first_size);
        all.push(measure_size(databases, options, &directory, *megabytes, written, claude_code_log)?);
        std::fs::remove_dir_all(&directory)?;
    }
    print(&all);
    Ok(())
}

fn measure_size(
    databases: &Databases,
    options: &IngestOptions,
    directory: &Path,
    megabytes: u64,
    written: WriteStats,
    claude_code_log: Option<&Path>,
) -> BenchResult<SizeResult> {
    let trackway = process::trackway_binary()?;
    let projects = directory.join(".claude/projects");
    let files = transcript_files(&projects)?;
    let (mut first, mut again, mut ccusage_samples) = (Vec::new(), Vec::new(), Vec::new());
    let (mut checked, mut parsed) = (Vec::new(), Vec::new());
    let (mut memory_kb, mut database_mb) = (0, 0);
    for _ in 0..options.rounds {
        let BenchEnv { core, database, .. } = BenchEnv::create(databases.create(Engine::Sqlite, "ingest")?)?;
        drop(core);
        let Url::Sqlite(file) = database.url() else { return Err("this database is a file".into()) };
        let ingest = || {
            let mut command = process::isolated_command(&trackway, directory);
            command.arg("ingest").arg(&projects).env("TRACKWAY_DB", format!("sqlite:{}", file.display()));
            command
        };
        checked.push(measure::time_once(|| parse::<IgnoredAny>(&files))?.0);
        parsed.push(measure::time_once(|| parse::<Value>(&files))?.0);
        if let Some(ccusage) = &options.ccusage {
            let mut command = process::isolated_command(ccusage, directory);
            command.args(["daily", "--offline"]).env("CLAUDE_CONFIG_DIR", directory.join(".claude"));
            ccusage_samples.push(process::time(&mut command)?);
        }
        let (elapsed, peak) = process::time_and_memory(&mut ingest())?;
        first.push(elapsed);
        memory_kb = memory_kb.max(peak);
        for _ in 0..3 {
            again.push(process::time(&mut ingest())?);
        }
        database_mb = file.metadata()?.len() / 1_000_000;
    }
    let claude_code_log = claude_code_log
        .map(|claude_code_log| {
            let mut command = process::isolated_command(claude_code_log, directory);
            command.args(["--all-projects", "--no-individual-sessions"]).arg("--projects-dir").arg(&projects);
            process::time(&mut command)
        })
        .transpose()?;
    Ok(SizeResult {
        megabytes,
        first: Samples::new(first),
        again: Samples::new(again),
        ccusage_samples: options.ccusage.is_some().then(|| Samples::new(ccusage_samples)),
        checked: Samples::new(checked),
        parsed: Samples::new(parsed),
        claude_code_log,
        memory_kb,
        database_mb,
        written,
    })
}

fn print(all: &[SizeResult]) {
    println!(
        "\nMedians of alternating rounds. The files are in the page cache, the database is new. \"checked\" and \
         \"parsed\": one thread parses every line as JSON and discards the result; \"checked\" only validates, \
         \"parsed\" builds a tree of values. \"first\": the first ingest. \"again\": an ingest with nothing new. \
         Targets: the first ingest takes at most 2x the time of `ccusage daily --offline`, which counts tokens and \
         stores nothing; an ingest with nothing new takes less than 1/20 of that time; less than 200 MB of memory; \
         linear growth."
    );
    let mut inputs = Table::new(["transcripts", "sessions", "files", "lines", "database"]);
    let mut table = Table::new([
        "transcripts",
        "ccusage",
        "checked",
        "parsed",
        "first",
        "per s",
        "first / ccusage",
        "again",
        "again / ccusage",
        "peak memory",
        "met",
    ]);
    for result in all {
        let name = format!("{} MB", result.megabytes);
        inputs.row([
            name.clone(),
            format_count(result.written.sessions),
            format_count(result.written.files),
            format_count(result.written.lines),
            format!("{} MB", result.database_mb),
        ]);
        let (first, again) = (result.first.median(), result.again.median());
        let against = |elapsed: Duration| {
            result.ccusage_samples.as_ref().map(|ccusage_samples| ratio(elapsed, ccusage_samples.median()))
        };
        let cell = |ratio: Option<f64>| ratio.map_or_else(String::new, |ratio| format!("{ratio:.2}"));
        let met = against(first).is_none_or(|ratio| ratio <= TIMES_CCUSAGE_MAX)
            && against(again).is_none_or(|ratio| ratio <= AGAIN_TIMES_CCUSAGE_MAX)
            && result.memory_kb < MEMORY_MAX_KB;
        table.row([
            name,
            result
                .ccusage_samples
                .as_ref()
                .map_or_else(String::new, |ccusage_samples| format_duration(ccusage_samples.median())),
            format_duration(result.checked.median()),
            format_duration(result.parsed.median()),
            format_duration(first),
            format!("{:.0} MB", result.written.bytes as f64 / 1e6 / first.as_secs_f64()),
            cell(against(first)),
            format_duration(again),
            cell(against(again)),
            format!("{:.0} MB", result.memory_kb as f64 / 1_024.0),
            verdict(met),
        ]);
        if let Some(claude_code_log) = result.claude_code_log {
            println!(
                "\nclaude-code-log, which renders the transcripts as HTML pages, took {} for {} MB: {:.0} times as \
                 long as `trackway ingest`.",
                format_duration(claude_code_log),
                result.megabytes,
                ratio(claude_code_log, first)
            );
        }
    }
    inputs.print();
    table.print();
    let per_byte = |result: &SizeResult| result.first.median().as_secs_f64() / result.written.bytes as f64;
    if let [smallest, .., largest] = all {
        let growth = per_byte(largest) / per_byte(smallest);
        println!("\nTime per byte, largest to smallest: {growth:.2}; linear: {}.", verdict(growth <= GROWTH_MAX));
        let bars: Vec<_> =
            all.iter().map(|result| (format!("{} MB", result.megabytes), result.first.median())).collect();
        plot("first `trackway ingest`:", &bars);
    }
}

fn transcript_files(folder: &Path) -> BenchResult<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            found.extend(transcript_files(&path)?);
        } else if path.extension().is_some_and(|extension| extension == "jsonl") {
            found.push(path);
        }
    }
    Ok(found)
}

/// Parses every line of the files as JSON and discards the result.
fn parse<T: serde::de::DeserializeOwned>(files: &[PathBuf]) -> BenchResult<()> {
    let mut line = Vec::new();
    for file in files {
        let mut reader = BufReader::with_capacity(1 << 20, File::open(file)?);
        while reader.read_until(b'\n', &mut line)? > 0 {
            std::hint::black_box(serde_json::from_slice::<T>(&line)?);
            line.clear();
        }
    }
    Ok(())
}

//! Transcripts into the record, against programs that read the same bytes for less.

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
    Outcome,
    bench_env::BenchEnv,
    measure::{self, Samples, grouped, ratio, shown},
    place::Places,
    process,
    table::{Table, plot, verdict},
    transcripts::{Author, Written},
};

pub const HEADING: &str = "## ingest: transcripts into the record";
const TIMES_OTHER_MAX: f64 = 2.0;
const AGAIN_SHARE_MAX: f64 = 0.05;
const MEMORY_MAX_KB: u64 = 200 * 1_024;
/// What is linear grows by this much at most, per byte, from the smallest to the largest.
const GROWTH_MAX: f64 = 1.5;

#[derive(Debug, Args)]
pub struct Size {
    /// Megabytes of transcripts, one measurement each
    #[arg(long, value_name = "MB", value_delimiter = ',', default_value = "50,100,200,400")]
    megabytes: Vec<u64>,
    /// How often each size is read
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// The `ccusage` to compare with; left out without it
    #[arg(long, value_name = "FILE")]
    ccusage: Option<PathBuf>,
    /// The `claude-code-log` to compare with, at the smallest size; left out without it
    #[arg(long, value_name = "FILE")]
    claude_code_log: Option<PathBuf>,
}

/// What one size took.
#[derive(Debug)]
struct Measured {
    megabytes: u64,
    first: Samples,
    again: Samples,
    other: Option<Samples>,
    checked: Samples,
    parsed: Samples,
    log: Option<Duration>,
    memory_kb: u64,
    database_mb: u64,
    written: Written,
}

pub fn measure(places: &Places, size: &Size) -> Outcome<()> {
    let mut all = Vec::new();
    for megabytes in &size.megabytes {
        let directory = places.directory().join(format!("ingest-{megabytes}"));
        let projects = directory.join(".claude/projects");
        let written = Author::new(*megabytes, Path::new("/work/unit"))
            .sessions(&projects.join("-work-unit"), megabytes * 1_000_000)?;
        let first_size = all.is_empty();
        let log = size.claude_code_log.as_deref().filter(|_| first_size);
        all.push(one_size(places, size, &directory, *megabytes, written, log)?);
        std::fs::remove_dir_all(&directory)?;
    }
    print(&all);
    Ok(())
}

fn one_size(
    places: &Places,
    size: &Size,
    directory: &Path,
    megabytes: u64,
    written: Written,
    log: Option<&Path>,
) -> Outcome<Measured> {
    let trackway = process::trackway()?;
    let projects = directory.join(".claude/projects");
    let files = transcripts(&projects)?;
    let (mut first, mut again, mut other) = (Vec::new(), Vec::new(), Vec::new());
    let (mut checked, mut parsed) = (Vec::new(), Vec::new());
    let (mut memory_kb, mut database_mb) = (0, 0);
    for _ in 0..size.rounds {
        let BenchEnv { core, database, .. } = BenchEnv::found(places.database(Engine::Sqlite, "ingest")?)?;
        drop(core);
        let Url::Sqlite(file) = database.url() else { return Err("this database is a file".into()) };
        let ingest = || {
            let mut command = process::command(&trackway, directory);
            command.arg("ingest").arg(&projects).env("TRACKWAY_DB", format!("sqlite:{}", file.display()));
            command
        };
        checked.push(measure::once(|| parse::<IgnoredAny>(&files))?.0);
        parsed.push(measure::once(|| parse::<Value>(&files))?.0);
        if let Some(ccusage) = &size.ccusage {
            let mut command = process::command(ccusage, directory);
            command.args(["daily", "--offline"]).env("CLAUDE_CONFIG_DIR", directory.join(".claude"));
            other.push(process::time(&mut command)?);
        }
        let (took, peak) = process::time_and_memory(&mut ingest())?;
        first.push(took);
        memory_kb = memory_kb.max(peak);
        for _ in 0..3 {
            again.push(process::time(&mut ingest())?);
        }
        database_mb = file.metadata()?.len() / 1_000_000;
    }
    let log = log
        .map(|log| {
            let mut command = process::command(log, directory);
            command.args(["--all-projects", "--no-individual-sessions"]).arg("--projects-dir").arg(&projects);
            process::time(&mut command)
        })
        .transpose()?;
    Ok(Measured {
        megabytes,
        first: Samples::new(first),
        again: Samples::new(again),
        other: size.ccusage.is_some().then(|| Samples::new(other)),
        checked: Samples::new(checked),
        parsed: Samples::new(parsed),
        log,
        memory_kb,
        database_mb,
        written,
    })
}

fn print(all: &[Measured]) {
    println!(
        "\nMedians of rounds in turn; the files are in the page cache, the database is new. Bare parses: one thread, every line, checked only or into a tree of values. Targets: the first time within 2x of `ccusage daily --offline`, which counts tokens and stores nothing; again, with nothing new, under a twentieth of it; under 200 MB of memory; growth linear."
    );
    let mut made = Table::new(["transcripts", "sessions", "files", "lines", "database"]);
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
    for measured in all {
        let name = format!("{} MB", measured.megabytes);
        made.row([
            name.clone(),
            grouped(measured.written.sessions),
            grouped(measured.written.files),
            grouped(measured.written.lines),
            format!("{} MB", measured.database_mb),
        ]);
        let (first, again) = (measured.first.median(), measured.again.median());
        let against = |took: Duration| measured.other.as_ref().map(|other| ratio(took, other.median()));
        let cell = |ratio: Option<f64>| ratio.map_or_else(String::new, |ratio| format!("{ratio:.2}"));
        let met = against(first).is_none_or(|ratio| ratio <= TIMES_OTHER_MAX)
            && against(again).is_none_or(|ratio| ratio <= AGAIN_SHARE_MAX)
            && measured.memory_kb < MEMORY_MAX_KB;
        table.row([
            name,
            measured.other.as_ref().map_or_else(String::new, |other| shown(other.median())),
            shown(measured.checked.median()),
            shown(measured.parsed.median()),
            shown(first),
            format!("{:.0} MB", measured.written.bytes as f64 / 1e6 / first.as_secs_f64()),
            cell(against(first)),
            shown(again),
            cell(against(again)),
            format!("{:.0} MB", measured.memory_kb as f64 / 1_024.0),
            verdict(met),
        ]);
        if let Some(log) = measured.log {
            println!(
                "\nclaude-code-log, which makes pages of them, took {} for the {} MB: {:.0} times `trackway ingest`.",
                shown(log),
                measured.megabytes,
                ratio(log, first)
            );
        }
    }
    made.print();
    table.print();
    let per_byte = |measured: &Measured| measured.first.median().as_secs_f64() / measured.written.bytes as f64;
    if let [smallest, .., largest] = all {
        let growth = per_byte(largest) / per_byte(smallest);
        println!("\nTime per byte, largest to smallest: {growth:.2}; linear: {}.", verdict(growth <= GROWTH_MAX));
        let bars: Vec<_> =
            all.iter().map(|measured| (format!("{} MB", measured.megabytes), measured.first.median())).collect();
        plot("trackway ingest, the first time:", &bars);
    }
}

fn transcripts(folder: &Path) -> Outcome<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            found.extend(transcripts(&path)?);
        } else if path.extension().is_some_and(|extension| extension == "jsonl") {
            found.push(path);
        }
    }
    Ok(found)
}

/// Every line of the files as JSON, and nothing else.
fn parse<T: serde::de::DeserializeOwned>(files: &[PathBuf]) -> Outcome<()> {
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

//! Benchmarks: each sub-command prints Markdown tables of ratios measured in one run.

#![expect(clippy::print_stdout, reason = "the tables are what this program is for")]

mod actions;
mod bench_env;
mod catalog;
mod hook;
mod identity;
mod ingest;
mod machine;
mod measure;
mod pages;
mod place;
mod process;
mod queue;
mod search;
mod start;
mod table;
mod touches;
mod transcripts;
mod turn;
mod wake;

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::{Args, Parser, Subcommand};

use crate::place::Places;

/// Whatever can go wrong, from any crate that is measured.
type Failure = Box<dyn std::error::Error + Send + Sync>;
type Outcome<T> = Result<T, Failure>;

/// Measure Trackway's hot paths
#[derive(Debug, Parser)]
#[command(name = "bench")]
struct Arguments {
    #[command(subcommand)]
    benchmark: Benchmark,
}

#[derive(Debug, Subcommand)]
enum Benchmark {
    /// `made` and `why` as the table of touches grows
    Touches {
        #[command(flatten)]
        place: Place,
        #[command(flatten)]
        size: touches::Size,
    },
    /// Actions per second through the write path, against the bare SQL
    Actions {
        #[command(flatten)]
        place: Place,
    },
    /// `task latest`, `task next`, `ready` and `package resolve` in a large catalog
    Catalog {
        #[command(flatten)]
        place: Place,
        #[command(flatten)]
        size: catalog::Size,
    },
    /// Cold start of the command line
    Start {
        #[command(flatten)]
        place: Place,
    },
    /// One hook event, alone and 32 at once
    Hook {
        #[command(flatten)]
        place: Place,
        #[command(flatten)]
        others: hook::Others,
    },
    /// Transcripts into the record, the first time and again
    Ingest {
        #[command(flatten)]
        place: Place,
        #[command(flatten)]
        size: ingest::Size,
    },
    /// Searching a million messages, and sending them against the bare SQL
    Search {
        #[command(flatten)]
        place: Place,
        #[command(flatten)]
        size: search::Size,
    },
    /// Add, take and complete, against bare SQL and other queues
    Queue {
        #[command(flatten)]
        place: Place,
        #[command(flatten)]
        size: queue::Size,
        #[command(flatten)]
        others: queue::Others,
    },
    /// The linked-task document as links grow
    Wake {
        #[command(flatten)]
        place: Place,
    },
    /// What the loop of an agent adds to each turn of a model
    Turn {
        #[command(flatten)]
        place: Place,
    },
    /// Pages over HTTP, against a bare handler and over many runs
    Pages {
        #[command(flatten)]
        place: Place,
        #[command(flatten)]
        size: pages::Size,
    },
    /// Everything in one go
    All {
        #[command(flatten)]
        place: Place,
        #[command(flatten)]
        touches: touches::Size,
        #[command(flatten)]
        catalog: catalog::Size,
        #[command(flatten)]
        hook: hook::Others,
        #[command(flatten)]
        ingest: ingest::Size,
    },
    /// Write transcripts, made from a seed
    #[command(hide = true)]
    Transcripts { folder: PathBuf, megabytes: u64 },
    /// Open a SQLite file and ask it one question: what a cold start cannot do without
    #[command(hide = true)]
    Open { file: PathBuf },
}

#[derive(Debug, Args)]
struct Place {
    /// Where SQLite files are made (a temporary directory, when left out)
    #[arg(long, value_name = "DIR")]
    db_dir: Option<PathBuf>,
    /// A PostgreSQL server whose databases may be made and dropped; PostgreSQL is skipped without it
    #[arg(long, value_name = "URL")]
    postgres: Option<String>,
}

impl Place {
    /// Makes the places, and says under this heading what they and the machine are.
    fn open(self, heading: &str) -> Outcome<Places> {
        let places = Places::new(self.db_dir, self.postgres)?;
        println!("{heading}\n\n{}", machine::description(&places)?);
        Ok(places)
    }
}

fn main() -> ExitCode {
    match run(Arguments::parse().benchmark) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            println!("\nfailed: {failure}");
            ExitCode::FAILURE
        }
    }
}

fn run(benchmark: Benchmark) -> Outcome<()> {
    match benchmark {
        Benchmark::Start { place } => start::measure(&place.open(start::HEADING)?),
        Benchmark::Actions { place } => actions::measure(&place.open(actions::HEADING)?),
        Benchmark::Catalog { place, size } => catalog::measure(&place.open(catalog::HEADING)?, &size),
        Benchmark::Touches { place, size } => touches::measure(&place.open(touches::HEADING)?, &size),
        Benchmark::Hook { place, others } => hook::measure(&place.open(hook::HEADING)?, &others),
        Benchmark::Ingest { place, size } => ingest::measure(&place.open(ingest::HEADING)?, &size),
        Benchmark::Search { place, size } => search::measure(&place.open(search::HEADING)?, &size),
        Benchmark::Queue { place, size, others } => queue::measure(&place.open(queue::HEADING)?, &size, &others),
        Benchmark::Wake { place } => wake::measure(&place.open(wake::HEADING)?),
        Benchmark::Pages { place, size } => pages::measure(&place.open(pages::HEADING)?, &size),
        Benchmark::Turn { place } => turn::measure(&place.open(turn::HEADING)?),
        Benchmark::All { place, touches, catalog, hook, ingest } => {
            let places = place.open("# Benchmark results")?;
            println!("\n{}", start::HEADING);
            start::measure(&places)?;
            println!("\n{}", actions::HEADING);
            actions::measure(&places)?;
            println!("\n{}", catalog::HEADING);
            catalog::measure(&places, &catalog)?;
            println!("\n{}", touches::HEADING);
            touches::measure(&places, &touches)?;
            println!("\n{}", hook::HEADING);
            hook::measure(&places, &hook)?;
            println!("\n{}", ingest::HEADING);
            ingest::measure(&places, &ingest)?;
            println!("\n{}", wake::HEADING);
            wake::measure(&places)?;
            println!("\n{}", turn::HEADING);
            turn::measure(&places)
        }
        Benchmark::Transcripts { folder, megabytes } => {
            let author = transcripts::Author::new(megabytes, Path::new("/work/unit"));
            println!("{:?}", author.sessions(&folder, megabytes * 1_000_000)?);
            Ok(())
        }
        Benchmark::Open { file } => open(&file),
    }
}

fn open(file: &Path) -> Outcome<()> {
    let connection = rusqlite::Connection::open(file)?;
    // Else it would bring the log into the file as it closes, and whoever writes next would wait for the disk.
    connection.set_db_config(rusqlite::config::DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    let tasks: i64 = connection.query_row("select count(*) from tasks", [], |row| row.get(0))?;
    println!("{tasks}");
    Ok(())
}

//! Benchmarks. Each sub-command prints Markdown tables of ratios measured in one run.

#![expect(clippy::print_stdout, reason = "this program prints tables")]

mod actions;
mod bench_env;
mod bulk_ids;
mod catalog;
mod cold_start;
mod databases;
mod hook;
mod ingest;
mod machine;
mod measure;
mod pages;
mod process;
mod queue;
mod search;
mod table;
mod touches;
mod transcript_writer;
mod turn;
mod wake;

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::{Args, Parser, Subcommand};

use crate::databases::Databases;

/// An error of any of the measured crates.
type BenchError = Box<dyn std::error::Error + Send + Sync>;
type BenchResult<T> = Result<T, BenchError>;

/// Measure Trackway's hot paths
#[derive(Debug, Parser)]
#[command(name = "bench")]
struct Arguments {
    #[command(subcommand)]
    benchmark: Benchmark,
}

#[derive(Debug, Subcommand)]
enum Benchmark {
    /// `made` and `why` as the touches table grows
    Touches {
        #[command(flatten)]
        database: DatabaseArgs,
        #[command(flatten)]
        options: touches::TouchesOptions,
    },
    /// Actions per second, compared with bare SQL that writes the same rows
    Actions {
        #[command(flatten)]
        database: DatabaseArgs,
    },
    /// `task latest`, `task next`, `ready` and `package resolve` in a large catalog
    Catalog {
        #[command(flatten)]
        database: DatabaseArgs,
        #[command(flatten)]
        options: catalog::CatalogOptions,
    },
    /// Cold start of the command line
    Start {
        #[command(flatten)]
        database: DatabaseArgs,
    },
    /// Hook events, one at a time and 32 at once
    Hook {
        #[command(flatten)]
        database: DatabaseArgs,
        #[command(flatten)]
        peers: hook::HookPeers,
    },
    /// Ingest of transcripts: first ingest, and again with nothing new
    Ingest {
        #[command(flatten)]
        database: DatabaseArgs,
        #[command(flatten)]
        options: ingest::IngestOptions,
    },
    /// Search in a million messages, and sending messages compared with bare SQL
    Search {
        #[command(flatten)]
        database: DatabaseArgs,
        #[command(flatten)]
        options: search::SearchOptions,
    },
    /// Adding, taking and completing queue items, compared with bare SQL and other queues
    Queue {
        #[command(flatten)]
        database: DatabaseArgs,
        #[command(flatten)]
        options: queue::QueueOptions,
        #[command(flatten)]
        peers: queue::QueuePeers,
    },
    /// The linked-task document as the number of links grows
    Wake {
        #[command(flatten)]
        database: DatabaseArgs,
    },
    /// Time that the agent loop adds to each model turn
    Turn {
        #[command(flatten)]
        database: DatabaseArgs,
    },
    /// Pages over HTTP, compared with a bare handler, and in a database with many runs
    Pages {
        #[command(flatten)]
        database: DatabaseArgs,
        #[command(flatten)]
        options: pages::PagesOptions,
    },
    /// Most benchmarks, one after the other
    All {
        #[command(flatten)]
        database: DatabaseArgs,
        #[command(flatten)]
        touches: touches::TouchesOptions,
        #[command(flatten)]
        catalog: catalog::CatalogOptions,
        #[command(flatten)]
        hook: hook::HookPeers,
        #[command(flatten)]
        ingest: ingest::IngestOptions,
    },
    /// Write generated transcripts
    #[command(hide = true)]
    Transcripts { folder: PathBuf, megabytes: u64 },
    /// Open a SQLite file and run one query: the minimum that a cold start has to do
    #[command(hide = true)]
    Open { file: PathBuf },
}

#[derive(Debug, Args)]
struct DatabaseArgs {
    /// Directory for SQLite files [default: a temporary directory]
    #[arg(long, value_name = "DIR")]
    db_dir: Option<PathBuf>,
    /// PostgreSQL server on which the benchmark may create and drop databases [default: PostgreSQL is skipped]
    #[arg(long, value_name = "URL")]
    postgres: Option<String>,
}

impl DatabaseArgs {
    /// Prints the heading and a description of the machine, and returns the databases.
    fn open(self, heading: &str) -> BenchResult<Databases> {
        let databases = Databases::new(self.db_dir, self.postgres)?;
        println!("{heading}\n\n{}", machine::description(&databases)?);
        Ok(databases)
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

fn run(benchmark: Benchmark) -> BenchResult<()> {
    match benchmark {
        Benchmark::Start { database } => cold_start::measure(&database.open(cold_start::HEADING)?),
        Benchmark::Actions { database } => actions::measure(&database.open(actions::HEADING)?),
        Benchmark::Catalog { database, options } => catalog::measure(&database.open(catalog::HEADING)?, &options),
        Benchmark::Touches { database, options } => touches::measure(&database.open(touches::HEADING)?, &options),
        Benchmark::Hook { database, peers } => hook::measure(&database.open(hook::HEADING)?, &peers),
        Benchmark::Ingest { database, options } => ingest::measure(&database.open(ingest::HEADING)?, &options),
        Benchmark::Search { database, options } => search::measure(&database.open(search::HEADING)?, &options),
        Benchmark::Queue { database, options, peers } => {
            queue::measure(&database.open(queue::HEADING)?, &options, &peers)
        }
        Benchmark::Wake { database } => wake::measure(&database.open(wake::HEADING)?),
        Benchmark::Pages { database, options } => pages::measure(&database.open(pages::HEADING)?, &options),
        Benchmark::Turn { database } => turn::measure(&database.open(turn::HEADING)?),
        Benchmark::All { database, touches, catalog, hook, ingest } => {
            let databases = database.open("# Benchmark results")?;
            println!("\n{}", cold_start::HEADING);
            cold_start::measure(&databases)?;
            println!("\n{}", actions::HEADING);
            actions::measure(&databases)?;
            println!("\n{}", catalog::HEADING);
            catalog::measure(&databases, &catalog)?;
            println!("\n{}", touches::HEADING);
            touches::measure(&databases, &touches)?;
            println!("\n{}", hook::HEADING);
            hook::measure(&databases, &hook)?;
            println!("\n{}", ingest::HEADING);
            ingest::measure(&databases, &ingest)?;
            println!("\n{}", wake::HEADING);
            wake::measure(&databases)?;
            println!("\n{}", turn::HEADING);
            turn::measure(&databases)
        }
        Benchmark::Transcripts { folder, megabytes } => {
            let writer = transcript_writer::TranscriptWriter::new(megabytes, Path::new("/work/unit"));
            println!("{:?}", writer.write_sessions(&folder, megabytes * 1_000_000)?);
            Ok(())
        }
        Benchmark::Open { file } => open(&file),
    }
}

fn open(file: &Path) -> BenchResult<()> {
    let connection = rusqlite::Connection::open(file)?;
    // Closing the last connection would otherwise checkpoint the write-ahead log, and the next writer would wait for
    // the disk.
    connection.set_db_config(rusqlite::config::DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    let tasks: i64 = connection.query_row("select count(*) from tasks", [], |row| row.get(0))?;
    println!("{tasks}");
    Ok(())
}

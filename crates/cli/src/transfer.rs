//! `trackway backup`, `restore`, `export`, `import jsonl` and `move`: copy complete databases.

use std::{
    fs::{File, OpenOptions},
    io::{self, IsTerminal, Seek, SeekFrom, Write},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use clap::{Arg, ArgMatches, Command};
use serde_json::{Value, json};
use trackway_domain::Error as Rule;
use trackway_store::{
    Url,
    transfer::{self, CopiedTable},
};
use uuid::Uuid;

use crate::{
    dispatch::{self, App, CommandOutcome},
    failure::Failure,
    location::Location,
    render::Layout,
};

fn file_argument(help: &'static str) -> Arg {
    Arg::new("file").value_name("FILE").required(true).value_parser(clap::value_parser!(PathBuf)).help(help)
}

/// `backup`, `restore`, `export` and `move`.
pub fn commands() -> [Command; 4] {
    [
        Command::new("backup").about("Write a consistent backup to one file, while others may keep writing").arg(
            file_argument(
                "Backup file, or - for standard output. An existing backup is replaced after the new one is complete",
            ),
        ),
        Command::new("restore")
            .about("Restore a backup into a new or empty database")
            .arg(file_argument("Backup file of either engine")),
        Command::new("export")
            .about("Write all data as JSON lines. A backup has the same format")
            .arg(file_argument("Output file, or - for standard output")),
        Command::new("move")
            .about("Copy all data to another database of either engine, and verify the copy")
            .long_about(
                "Copy all data to another database of either engine, and verify the copy\n\n\
                 This database is not changed. If the command is interrupted, run it again to continue.",
            )
            .arg(Arg::new("to").long("to").value_name("URL").required(true).help(
                "URL of the other database, which must be new or empty: sqlite:PATH or postgres://USER@HOST/DATABASE",
            )),
    ]
}

/// `import jsonl`.
pub fn import_command() -> Command {
    Command::new("jsonl")
        .about("Import the output of export into a new or empty database")
        .arg(file_argument("Input file, or - for standard input"))
}

fn file_of(matches: &ArgMatches) -> PathBuf {
    matches.get_one::<PathBuf>("file").cloned().unwrap_or_default()
}

/// Runs `backup` or `export`, which are the same command.
pub fn backup(app: &App, matches: &ArgMatches) -> Result<CommandOutcome, Failure> {
    app.reject_token("back up the data of all tenants")?;
    let path = file_of(matches);
    let mut progress_line = ProgressLine::new();
    let mut progress = |table: &str, rows| progress_line.show(table, rows);
    if path == Path::new("-") {
        transfer::export(app.core.store(), &mut io::stdout().lock(), &mut progress)?;
        return Ok(CommandOutcome::new(Value::String(String::new()), Layout::Document));
    }
    Ok(copied_outcome(&transfer::backup(app.core.store(), &path, &mut progress)?))
}

pub fn restore(location: &Location, matches: &ArgMatches) -> Result<CommandOutcome, Failure> {
    dispatch::reject_any_token(dispatch::token_from_environment()?.as_ref(), "restore the data of all tenants")?;
    let path = file_of(matches);
    let mut file = if path == Path::new("-") { spool_standard_input()? } else { open_file(&path)? };
    let mut progress_line = ProgressLine::new();
    let copied = transfer::restore(&location.url, &mut file, &mut |table, rows| progress_line.show(table, rows))?;
    Ok(copied_outcome(&copied))
}

pub fn move_to(app: &App, matches: &ArgMatches) -> Result<CommandOutcome, Failure> {
    app.reject_token("move the data of all tenants")?;
    let url = Url::parse(matches.get_one::<String>("to").map(String::as_str).unwrap_or_default())?;
    let mut progress_line = ProgressLine::new();
    let copied = transfer::move_to(app.core.store(), &url, &mut |table, rows| progress_line.show(table, rows))?;
    let mut outcome = copied_outcome(&copied);
    outcome.remarks.push(format!("note: all data was copied to {url}. Commands here still use the old database; to use the new one, set --db, TRACKWAY_DB or `db` in config.toml"));
    Ok(outcome)
}

fn copied_outcome(copied: &[CopiedTable]) -> CommandOutcome {
    CommandOutcome::new(json!({ "tables": copied }), Layout::of(("", "backup")))
}

fn open_file(path: &Path) -> Result<File, Failure> {
    let file = File::open(path).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => Failure::from(Rule::not_found(format!("there is no file {}", path.display()))),
        _ => Rule::usage(format!("{} cannot be read: {error}", path.display())).into(),
    })?;
    if file.metadata()?.is_dir() {
        return Err(Rule::usage(format!("{} is a directory", path.display())).into());
    }
    Ok(file)
}

/// Copies standard input to a temporary file, because restore reads it twice: it verifies the data before writing.
fn spool_standard_input() -> Result<File, Failure> {
    let path = std::env::temp_dir().join(format!("trackway-import-{}", Uuid::now_v7()));
    let mut options = OpenOptions::new();
    options.read(true).write(true).create_new(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt;
        options.mode(0o600);
    }
    let mut file = options.open(&path)?;
    // The system removes the unlinked file when this process ends.
    std::fs::remove_file(&path)?;
    io::copy(&mut io::stdin().lock(), &mut file)?;
    file.seek(SeekFrom::Start(0))?;
    Ok(file)
}

/// The progress of a copy, on a terminal.
struct ProgressLine {
    last_shown_at: Option<Instant>,
    is_terminal: bool,
}

impl ProgressLine {
    fn new() -> Self {
        Self { last_shown_at: None, is_terminal: io::stderr().is_terminal() }
    }

    fn show(&mut self, table: &str, rows: i64) {
        let is_recent = self.last_shown_at.is_some_and(|at| at.elapsed() < Duration::from_millis(100));
        if !self.is_terminal || is_recent {
            return;
        }
        self.last_shown_at = Some(Instant::now());
        let _ = write!(io::stderr(), "\r\u{1b}[2K{table}: {rows} rows");
    }
}

impl Drop for ProgressLine {
    fn drop(&mut self) {
        if self.last_shown_at.is_some() {
            let _ = write!(io::stderr(), "\r\u{1b}[2K");
        }
    }
}

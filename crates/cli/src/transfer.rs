//! `trackway backup, restore, export, import jsonl, move`: everything a database holds, elsewhere and back.

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
    transfer::{self, TableCopied},
};
use uuid::Uuid;

use crate::{
    door::{self, House, Outcome},
    failure::Failure,
    location::Location,
    render::Shape,
};

fn file_argument(help: &'static str) -> Arg {
    Arg::new("file").value_name("FILE").required(true).value_parser(clap::value_parser!(PathBuf)).help(help)
}

/// `backup`, `restore`, `export` and `move`.
pub fn commands() -> [Command; 4] {
    [
        Command::new("backup").about("Write everything to one file, as one moment has it, while others write on").arg(
            file_argument(
                "The file; an older backup there is replaced once the new one is whole; - is standard output",
            ),
        ),
        Command::new("restore")
            .about("Make the database from a backup; it must be empty or not there yet")
            .arg(file_argument("A backup, of either engine")),
        Command::new("export")
            .about("Write everything as JSON lines: the same as a backup")
            .arg(file_argument("The file; - is standard output")),
        Command::new("move")
            .about("Copy everything to another database, of either engine, and check that it came there")
            .long_about(
                "Copy everything to another database, of either engine, and check that it came there\n\n\
                 This database stays as it is. Cut off, the same command goes on where it was.",
            )
            .arg(
                Arg::new("to")
                    .long("to")
                    .value_name("URL")
                    .required(true)
                    .help("The other database, empty or not there yet: sqlite:PATH or postgres://USER@HOST/DATABASE"),
            ),
    ]
}

/// `import jsonl`.
pub fn import_command() -> Command {
    Command::new("jsonl")
        .about("Make the database from what export wrote; it must be empty or not there yet")
        .arg(file_argument("The file; - is standard input"))
}

fn file_of(matches: &ArgMatches) -> PathBuf {
    matches.get_one::<PathBuf>("file").cloned().unwrap_or_default()
}

/// `backup` and `export`: one thing by two names.
pub fn backup(house: &House, matches: &ArgMatches) -> Result<Outcome, Failure> {
    house.refuse_token("back up what all tenants hold")?;
    let path = file_of(matches);
    let mut bar = Bar::new();
    let mut progress = |table: &str, rows| bar.at(table, rows);
    if path == Path::new("-") {
        transfer::export(house.core.store(), &mut io::stdout().lock(), &mut progress)?;
        return Ok(Outcome::new(Value::String(String::new()), Shape::Document));
    }
    Ok(answered(&transfer::backup(house.core.store(), &path, &mut progress)?))
}

pub fn restore(location: &Location, matches: &ArgMatches) -> Result<Outcome, Failure> {
    door::refuse(door::given_token()?.as_ref(), "restore what all tenants hold")?;
    let path = file_of(matches);
    let mut file = if path == Path::new("-") { spooled()? } else { opened(&path)? };
    let mut bar = Bar::new();
    let copied = transfer::restore(&location.url, &mut file, &mut |table, rows| bar.at(table, rows))?;
    Ok(answered(&copied))
}

pub fn move_to(house: &House, matches: &ArgMatches) -> Result<Outcome, Failure> {
    house.refuse_token("move what all tenants hold")?;
    let url = Url::parse(matches.get_one::<String>("to").map(String::as_str).unwrap_or_default())?;
    let mut bar = Bar::new();
    let copied = transfer::move_to(house.core.store(), &url, &mut |table, rows| bar.at(table, rows))?;
    let mut outcome = answered(&copied);
    outcome.remarks.push(format!("note: {url} holds everything now; this database stayed as it is, and is still the one that is used here: give the other with --db, TRACKWAY_DB or `db` in config.toml"));
    Ok(outcome)
}

fn answered(copied: &[TableCopied]) -> Outcome {
    Outcome::new(json!({ "tables": copied }), Shape::of(("", "backup")))
}

fn opened(path: &Path) -> Result<File, Failure> {
    let file = File::open(path).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => Failure::from(Rule::not_found(format!("there is no file {}", path.display()))),
        _ => Rule::usage(format!("{} cannot be read: {error}", path.display())).into(),
    })?;
    if file.metadata()?.is_dir() {
        return Err(Rule::usage(format!("{} is a directory", path.display())).into());
    }
    Ok(file)
}

/// Standard input, kept: it is looked at whole before anything is changed.
fn spooled() -> Result<File, Failure> {
    let path = std::env::temp_dir().join(format!("trackway-import-{}", Uuid::now_v7()));
    let mut options = OpenOptions::new();
    options.read(true).write(true).create_new(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt;
        options.mode(0o600);
    }
    let mut file = options.open(&path)?;
    // It goes with its last reader, however this ends.
    std::fs::remove_file(&path)?;
    io::copy(&mut io::stdin().lock(), &mut file)?;
    file.seek(SeekFrom::Start(0))?;
    Ok(file)
}

/// How far it is, on a terminal.
struct Bar {
    shown: Option<Instant>,
    is_terminal: bool,
}

impl Bar {
    fn new() -> Self {
        Self { shown: None, is_terminal: io::stderr().is_terminal() }
    }

    fn at(&mut self, table: &str, rows: i64) {
        let lately = self.shown.is_some_and(|shown| shown.elapsed() < Duration::from_millis(100));
        if !self.is_terminal || lately {
            return;
        }
        self.shown = Some(Instant::now());
        let _ = write!(io::stderr(), "\r\u{1b}[2K{table}: {rows} rows");
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        if self.shown.is_some() {
            let _ = write!(io::stderr(), "\r\u{1b}[2K");
        }
    }
}

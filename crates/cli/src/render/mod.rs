//! How people see an answer: tables and colour on a terminal, plain text in a pipe, JSON when asked.

mod board;
mod chain;
mod connection;
mod doctor;
mod fields;
mod rows;
mod run;
mod schema;
mod session;
mod status;
mod task;

use std::{
    collections::HashMap,
    io::{ErrorKind, IsTerminal, Write},
    process::ExitCode,
};

use clap::ArgMatches;
use serde_json::{Value, json};
use trackway_domain::{Time, text};

use crate::{door::Outcome, failure::Failure};

/// What an answer looks like to people.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// As it is.
    Text,
    /// As it is, for programs too: a document with a form of its own.
    Document,
    /// A document that is JSON for everyone.
    Json,
    /// One thing, field by field.
    Fields,
    /// A list, with the columns to show.
    Rows(&'static [&'static str]),
    /// The rows below one field of the answer.
    RowsOf(&'static str, &'static [&'static str]),
    /// One text field of the answer.
    Field(&'static str),
    Chain,
    Connection,
    Tree,
    Run,
    Session,
    Status,
    Doctor,
    Board,
    BoardDiff,
    Task,
    SchemaTable,
    SchemaMarkdown,
    SchemaMermaid,
}

const MADE: &[&str] = &["resource_type", "action_type", "times", "studio", "display_path", "resource_id", "deleted"];
const VERSIONS: &[&str] = &[
    "variant",
    "id",
    "revisions",
    "replaces",
    "runs",
    "succeeded",
    "success_share",
    "median_seconds",
    "tokens",
    "cost",
];
const TAKEN: &[&str] = &["id", "variant", "fence", "attempt", "lease_expires", "run_id", "token"];
const COPIED: &[&str] = &["name", "rows", "digest"];
const MOVED: &[&str] = &["role", "from", "to"];

impl Shape {
    /// The shape of a command's answer.
    pub fn of(command: (&str, &str)) -> Self {
        match command {
            ("", "why") => Self::Chain,
            ("", "made") => Self::RowsOf("touches", MADE),
            ("", "status") => Self::Status,
            ("run", "tree") => Self::Tree,
            ("run", "show") => Self::Run,
            ("board", "get") => Self::Board,
            ("task", "get") => Self::Task,
            ("session", "show") => Self::Session,
            ("task", "history") => Self::RowsOf("versions", VERSIONS),
            ("", "backup" | "restore" | "move") => Self::RowsOf("tables", COPIED),
            ("package", "upgrade") => Self::Rows(MOVED),
            ("queue", "take") | ("", "claim") => Self::Rows(TAKEN),
            ("scratchpad", "get") => Self::Field("content"),
            ("" | "run", "wake") => Self::Field("text"),
            ("scratchpad", "diff") => Self::Field("diff"),
            ("trace", "export") => Self::Json,
            _ => Self::Fields,
        }
    }

    /// A list when there are columns.
    #[must_use]
    pub fn with_columns(self, columns: &'static [&'static str]) -> Self {
        if columns.is_empty() { self } else { Self::Rows(columns) }
    }
}

/// Where the answer goes.
#[derive(Debug, Clone, Copy)]
pub struct Output {
    json: bool,
    /// The width of the terminal, when it is one.
    width: Option<u16>,
}

impl Output {
    pub fn of(matches: &ArgMatches) -> Self {
        let width =
            std::io::stdout().is_terminal().then(|| terminal_size::terminal_size().map_or(100, |(width, _)| width.0));
        Self { json: matches.get_flag("json"), width }
    }

    /// Data to stdout, everything else to stderr. A reader that went away is no failure.
    pub fn print(self, outcome: &Outcome) -> Result<ExitCode, Failure> {
        // A document has no envelope that could hold remarks.
        if !self.json || outcome.shape == Shape::Document {
            for remark in &outcome.remarks {
                writeln!(anstream::stderr(), "{remark}")?;
            }
        }
        if !self.json {
            if let Some(more) = &outcome.more {
                writeln!(anstream::stderr(), "there is more: {more}")?;
            }
            if outcome.dry_run {
                writeln!(anstream::stderr(), "dry run: nothing was changed")?;
            }
        }
        let text =
            if self.json && outcome.shape != Shape::Document { self.as_json(outcome) } else { self.rendered(outcome) };
        if text.is_empty() {
            return Ok(outcome.code());
        }
        let mut stdout = anstream::stdout().lock();
        let written = stdout
            .write_all(text.as_bytes())
            .and_then(|()| if text.ends_with('\n') { Ok(()) } else { stdout.write_all(b"\n") });
        match written.and_then(|()| stdout.flush()) {
            Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(error.into()),
            _ => Ok(outcome.code()),
        }
    }

    fn as_json(self, outcome: &Outcome) -> String {
        let mut envelope = json!({ "schema_version": 1, "data": outcome.data });
        if let Some(more) = &outcome.more {
            envelope["more"] = json!(more);
        }
        // A list has no room for them.
        if outcome.data.is_array() && !outcome.remarks.is_empty() {
            envelope["remarks"] = json!(outcome.remarks);
        }
        if outcome.dry_run {
            envelope["dry_run"] = json!(true);
        }
        match self.width {
            Some(_) => format!("{envelope:#}"),
            None => envelope.to_string(),
        }
    }

    /// The answer as text.
    pub fn rendered(self, outcome: &Outcome) -> String {
        let page = Page { width: self.width, short_ids: outcome.short_ids.iter().cloned().collect() };
        let data = &outcome.data;
        if let Some(text) = &outcome.text {
            return text.clone();
        }
        match outcome.shape {
            Shape::Text | Shape::Document => data.as_str().unwrap_or_default().to_owned(),
            Shape::Json => format!("{data:#}"),
            Shape::Fields => page.fields(data),
            Shape::Rows(columns) => page.rows(data, columns),
            Shape::RowsOf(field, columns) => page.rows(&data[field], columns),
            Shape::Field(field) => data[field].as_str().unwrap_or_default().to_owned(),
            Shape::Chain => page.chain(data),
            Shape::Connection => page.connection(data),
            Shape::Tree => page.tree(data),
            Shape::Run => page.run(data),
            Shape::Session => page.session(data),
            Shape::Doctor => page.doctor(data),
            Shape::Board => page.board(data),
            Shape::Task => page.task(data),
            Shape::BoardDiff => page.board_diff(data),
            Shape::Status => page.status(data),
            Shape::SchemaTable => page.schema_table(data),
            Shape::SchemaMarkdown => schema::markdown(data),
            Shape::SchemaMermaid => schema::mermaid(data),
        }
    }

    /// For a story that is told on a page of its own.
    pub fn plain() -> Self {
        Self { json: false, width: Some(110) }
    }
}

/// What the renderers need to know.
struct Page {
    width: Option<u16>,
    short_ids: HashMap<String, String>,
}

impl Page {
    /// The field of a row in one line: ids short, times to the second, nothing that could break a table.
    fn cell(&self, row: &Value, field: &str) -> String {
        self.shown(field, &row[field])
    }

    fn shown(&self, field: &str, value: &Value) -> String {
        match value {
            Value::Null => String::new(),
            Value::String(text) if is_id(field) => self.short_ids.get(text).unwrap_or(text).clone(),
            Value::String(text) if Time::is_in(field) => to_the_second(text),
            Value::String(text) => text::clean_line(text),
            Value::Bool(true) => "yes".to_owned(),
            Value::Bool(false) => "no".to_owned(),
            Value::Number(number) => {
                number.as_f64().filter(|_| !number.is_i64()).map_or_else(|| number.to_string(), rounded)
            }
            Value::Array(values) if values.iter().all(Value::is_string) => {
                values.iter().map(|value| self.shown(field, value)).collect::<Vec<_>>().join(", ")
            }
            // What a version replaces: the variant, and how big the step was.
            Value::Array(values) if values.iter().all(|value| value.get("level").is_some()) => {
                let edge = |value: &Value| format!("{} ({})", self.cell(value, "variant"), self.cell(value, "level"));
                values.iter().map(edge).collect::<Vec<_>>().join(", ")
            }
            Value::Array(values) => values.len().to_string(),
            Value::Object(_) => value.to_string(),
        }
    }
}

/// Three digits after the point, more for what would be nothing then.
fn rounded(number: f64) -> String {
    let text = if number != 0.0 && number.abs() < 0.001 { format!("{number:.9}") } else { format!("{number:.3}") };
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn is_id(field: &str) -> bool {
    field == "id" || field == "queue_items" || field.ends_with("_id")
}

/// Drops the fraction of a time.
fn to_the_second(text: &str) -> String {
    text.split_once('.').map_or_else(|| text.to_owned(), |(seconds, _)| format!("{seconds}Z"))
}

const BOLD: anstyle::Style = anstyle::Style::new().bold();
const DIM: anstyle::Style = anstyle::Style::new().dimmed();

/// A heading inside an answer.
fn heading(text: &str) -> String {
    format!("{BOLD}{text}{BOLD:#}")
}

fn dim(text: &str) -> String {
    format!("{DIM}{text}{DIM:#}")
}

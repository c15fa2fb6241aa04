//! Renders outcomes: tables and colours on a terminal, plain text in a pipe, JSON with `--json`.

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

use crate::{dispatch::CommandOutcome, failure::Failure};

/// The layout in which to display the data of an outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// A text.
    Text,
    /// A text that is printed unchanged, even with `--json`.
    Document,
    /// Indented JSON.
    Json,
    /// One object, field by field.
    Fields,
    /// A list with these columns.
    Rows(&'static [&'static str]),
    /// The list in one field, with these columns.
    RowsOf(&'static str, &'static [&'static str]),
    /// The text in one field.
    Field(&'static str),
    Chain,
    Connection,
    /// A list of outcomes of `connect` or `disconnect`.
    Connections,
    /// The clients of this machine, and the outcomes of connecting some of them.
    Clients,
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

const TOUCH_COLUMNS: &[&str] =
    &["resource_type", "action_type", "times", "studio", "display_path", "resource_id", "deleted"];
const VERSION_COLUMNS: &[&str] = &[
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
const TAKEN_COLUMNS: &[&str] = &["id", "variant", "fence", "attempt", "lease_expires", "run_id", "token"];
const COPY_COLUMNS: &[&str] = &["name", "rows", "digest"];
const UPGRADE_COLUMNS: &[&str] = &["role", "from", "to"];

impl Layout {
    /// The layout of a command's outcome.
    pub fn of(command: (&str, &str)) -> Self {
        match command {
            ("", "why") => Self::Chain,
            ("", "made") => Self::RowsOf("touches", TOUCH_COLUMNS),
            ("", "status") => Self::Status,
            ("run", "tree") => Self::Tree,
            ("run", "show") => Self::Run,
            ("board", "get") => Self::Board,
            ("task", "get") => Self::Task,
            ("session", "show") => Self::Session,
            ("task", "history") => Self::RowsOf("versions", VERSION_COLUMNS),
            ("", "backup" | "restore" | "move") => Self::RowsOf("tables", COPY_COLUMNS),
            ("package", "upgrade") => Self::Rows(UPGRADE_COLUMNS),
            ("queue", "take") | ("", "claim") => Self::Rows(TAKEN_COLUMNS),
            ("scratchpad", "get") => Self::Field("content"),
            ("" | "run", "wake") => Self::Field("text"),
            ("scratchpad", "diff") => Self::Field("diff"),
            ("trace", "export") => Self::Json,
            _ => Self::Fields,
        }
    }

    /// Replaces the layout by a list with these columns, if there are any.
    #[must_use]
    pub fn with_columns(self, columns: &'static [&'static str]) -> Self {
        if columns.is_empty() { self } else { Self::Rows(columns) }
    }
}

/// The format of the output.
#[derive(Debug, Clone, Copy)]
pub struct Output {
    json: bool,
    /// The width of the terminal; none for a pipe.
    width: Option<u16>,
}

impl Output {
    pub fn of(matches: &ArgMatches) -> Self {
        let width =
            std::io::stdout().is_terminal().then(|| terminal_size::terminal_size().map_or(100, |(width, _)| width.0));
        Self { json: matches.get_flag("json"), width }
    }

    /// Prints data to stdout, and everything else to stderr. A closed pipe is not an error.
    pub fn print(self, outcome: &CommandOutcome) -> Result<ExitCode, Failure> {
        // A document has no JSON envelope for the remarks.
        if !self.json || outcome.layout == Layout::Document {
            for remark in &outcome.remarks {
                writeln!(anstream::stderr(), "{remark}")?;
            }
        }
        if !self.json {
            if let Some(more) = &outcome.more {
                writeln!(anstream::stderr(), "next page: {more}")?;
            }
            if outcome.is_dry_run {
                writeln!(anstream::stderr(), "dry run: nothing was changed")?;
            }
        }
        let text =
            if self.json && outcome.layout != Layout::Document { self.as_json(outcome) } else { self.render(outcome) };
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

    fn as_json(self, outcome: &CommandOutcome) -> String {
        let mut envelope = json!({ "schema_version": 1, "data": outcome.data });
        if let Some(more) = &outcome.more {
            envelope["more"] = json!(more);
        }
        // An object already contains its remarks. A list cannot, so the envelope gets them.
        if outcome.data.is_array() && !outcome.remarks.is_empty() {
            envelope["remarks"] = json!(outcome.remarks);
        }
        if outcome.is_dry_run {
            envelope["dry_run"] = json!(true);
        }
        match self.width {
            Some(_) => format!("{envelope:#}"),
            None => envelope.to_string(),
        }
    }

    /// The outcome as text.
    pub fn render(self, outcome: &CommandOutcome) -> String {
        let renderer = Renderer { width: self.width, short_ids: outcome.short_ids.iter().cloned().collect() };
        let data = &outcome.data;
        if let Some(text) = &outcome.text {
            return text.clone();
        }
        match outcome.layout {
            Layout::Text | Layout::Document => data.as_str().unwrap_or_default().to_owned(),
            Layout::Json => format!("{data:#}"),
            Layout::Fields => renderer.fields(data),
            Layout::Rows(columns) => renderer.rows(data, columns),
            Layout::RowsOf(field, columns) => renderer.rows(&data[field], columns),
            Layout::Field(field) => data[field].as_str().unwrap_or_default().to_owned(),
            Layout::Chain => renderer.chain(data),
            Layout::Connection => renderer.connection(data),
            Layout::Connections => renderer.connections(data),
            Layout::Clients => renderer.clients(data),
            Layout::Tree => renderer.tree(data),
            Layout::Run => renderer.run(data),
            Layout::Session => renderer.session(data),
            Layout::Doctor => renderer.doctor(data),
            Layout::Board => renderer.board(data),
            Layout::Task => renderer.task(data),
            Layout::BoardDiff => renderer.board_diff(data),
            Layout::Status => renderer.status(data),
            Layout::SchemaTable => renderer.schema_table(data),
            Layout::SchemaMarkdown => schema::markdown(data),
            Layout::SchemaMermaid => schema::mermaid(data),
        }
    }

    /// The format of the demo, independent of the terminal.
    pub fn for_demo() -> Self {
        Self { json: false, width: Some(110) }
    }
}

struct Renderer {
    width: Option<u16>,
    short_ids: HashMap<String, String>,
}

impl Renderer {
    /// A field in one line: with short ids and times without fractions.
    fn cell(&self, row: &Value, field: &str) -> String {
        self.format_value(field, &row[field])
    }

    fn format_value(&self, field: &str, value: &Value) -> String {
        match value {
            Value::Null => String::new(),
            Value::String(text) if is_id(field) => self.short_ids.get(text).unwrap_or(text).clone(),
            Value::String(text) if Time::is_time_field(field) => without_fraction(text),
            Value::String(text) => text::clean_line(text),
            Value::Bool(true) => "yes".to_owned(),
            Value::Bool(false) => "no".to_owned(),
            Value::Number(number) => {
                number.as_f64().filter(|_| !number.is_i64()).map_or_else(|| number.to_string(), format_number)
            }
            Value::Array(values) if values.iter().all(Value::is_string) => {
                values.iter().map(|value| self.format_value(field, value)).collect::<Vec<_>>().join(", ")
            }
            // The replaced versions: the variant, and the level of the replacement.
            Value::Array(values) if values.iter().all(|value| value.get("level").is_some()) => {
                let edge = |value: &Value| format!("{} ({})", self.cell(value, "variant"), self.cell(value, "level"));
                values.iter().map(edge).collect::<Vec<_>>().join(", ")
            }
            Value::Array(values) => values.len().to_string(),
            Value::Object(_) => value.to_string(),
        }
    }
}

/// A number with at most three decimals, or nine for very small numbers.
fn format_number(number: f64) -> String {
    let text = if number != 0.0 && number.abs() < 0.001 { format!("{number:.9}") } else { format!("{number:.3}") };
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn is_id(field: &str) -> bool {
    field == "id" || field == "queue_items" || field.ends_with("_id")
}

fn without_fraction(text: &str) -> String {
    text.split_once('.').map_or_else(|| text.to_owned(), |(seconds, _)| format!("{seconds}Z"))
}

const BOLD: anstyle::Style = anstyle::Style::new().bold();
const DIM: anstyle::Style = anstyle::Style::new().dimmed();

fn heading(text: &str) -> String {
    format!("{BOLD}{text}{BOLD:#}")
}

fn dim(text: &str) -> String {
    format!("{DIM}{text}{DIM:#}")
}

//! Lays out JSON data for readers: as facts, tables and texts, with links from names and ids to their pages.

use serde_json::{Map, Value};
use trackway_domain::{Time, text};
use uuid::Uuid;

use crate::{
    address::encode,
    nouns::{self, Noun},
    page::{Block, Cell, Table, TextKind},
};

/// Maximum length of a text in a row or a fact. A longer one gets a section of its own.
const ROW_TEXT_MAX: usize = 160;
/// Fields that always get a section of their own, even with a short text.
const SECTION_FIELDS: &[&str] = &[
    "body",
    "code",
    "content",
    "description",
    "motivation",
    "note",
    "notes",
    "tldr",
    "text",
    "script",
    "identity",
    "diff",
    "error",
];
/// Maximum number of columns of a table whose columns are taken from its first row.
const COLUMNS_MAX: usize = 8;

/// Fields that contain the name of a thing, with the kind of the thing.
const NAME_FIELDS: &[(&str, &str)] = &[
    ("agent", "agent"),
    ("parent", "agent"),
    ("task", "task"),
    ("variant", "task"),
    ("latest_variant", "task"),
    ("replaces", "task"),
    ("role", "role"),
    ("workflow", "workflow"),
    ("workspace", "workspace"),
    ("studio", "studio"),
    ("board", "board"),
    ("session_id", "session"),
    ("continues", "session"),
    ("initiated_by", "person"),
    ("owner", "person"),
    ("taken_by", "agent"),
    ("tool_use_id", "spawn"),
];

/// Fields that contain the id of a thing, with its kind. A field such as `note_id` needs no entry.
const ID_FIELDS: &[(&str, &str)] = &[
    ("parent_run_id", "run"),
    ("from_run_id", "run"),
    ("created_by_run", "run"),
    ("created_by_run_id", "run"),
    ("inbound_message", "message"),
    ("reply_to", "message"),
    ("latest_id", "task"),
    ("from_task_id", "task"),
    ("to_task_id", "task"),
    ("queue_item_id", "queue"),
];

const STATUS_FIELDS: &[&str] = &["status", "outcome", "level"];

/// The path of the page of a thing, if its kind has pages.
pub fn page_path(kind: &str, reference: &str) -> Option<String> {
    nouns::by_name(kind)
        .filter(|noun| noun.show_verb.is_some())
        .map(|noun| format!("/{}/{}", noun.path, encode(reference)))
}

/// The path of the page of a thing, or of its provenance page if its kind has no pages.
pub fn page_or_why_path(kind: &str, id: &str) -> String {
    page_path(kind, id).unwrap_or_else(|| format!("/why?of={}", encode(id)))
}

/// The short form of an id: the last 8 hex digits.
pub fn short_id(id: &str) -> &str {
    if Uuid::try_parse(id).is_ok() && id.len() == 36 { &id[28..] } else { id }
}

/// Converts a field of JSON data to a cell.
pub fn cell(key: &str, value: &Value, noun: Option<&Noun>) -> Cell {
    match value {
        // A false flag is shown as an empty cell.
        Value::Null | Value::Bool(false) => Cell::Empty,
        Value::Bool(true) => Cell::Text("yes".to_owned()),
        Value::Number(number) => Cell::Number(number.to_string()),
        Value::Array(values) if values.is_empty() => Cell::Empty,
        Value::Array(values) => Cell::List(values.iter().map(|value| cell(key, value, noun)).collect()),
        Value::Object(_) => Cell::Code(value.to_string()),
        Value::String(text) if text.is_empty() => Cell::Empty,
        Value::String(text) => text_cell(key, text, noun),
    }
}

fn text_cell(key: &str, text: &str, noun: Option<&Noun>) -> Cell {
    let link = |kind: &str, label: &str| match page_path(kind, text) {
        Some(href) => Cell::link(href, label),
        None => Cell::Text(label.to_owned()),
    };
    if Time::is_time_field(key) {
        return Cell::Time(text.to_owned());
    }
    if STATUS_FIELDS.contains(&key) {
        return Cell::Status(text.to_owned());
    }
    if key == "id" {
        return match noun {
            Some(noun) => link(noun.noun, short_id(text)),
            None => Cell::Code(short_id(text).to_owned()),
        };
    }
    if let Some(noun) = noun.filter(|noun| noun.name_field == Some(key)) {
        return link(noun.noun, text);
    }
    if noun.is_some_and(|noun| noun.noun == "link") && matches!(key, "from" | "to") {
        return link("task", text);
    }
    if let Some((_, kind)) = NAME_FIELDS.iter().find(|(name, _)| *name == key) {
        return link(kind, short_id(text));
    }
    if Uuid::try_parse(text).is_ok() {
        let kind = ID_FIELDS.iter().find(|(name, _)| *name == key).map(|(_, kind)| *kind);
        return match kind.or_else(|| key.strip_suffix("_id")) {
            Some(kind) => link(kind, short_id(text)),
            None => Cell::Code(short_id(text).to_owned()),
        };
    }
    Cell::Text(text.to_owned())
}

/// A list of things as a table. If `columns` is empty, the fields of the first row become the columns.
pub fn table(rows: &[Value], columns: &[&str], noun: Option<&Noun>, empty_text: &str) -> Block {
    let column_names: Vec<String> = if columns.is_empty() {
        let first = rows.first().and_then(Value::as_object);
        first
            .into_iter()
            .flat_map(|row| row.keys().filter(|key| !is_redundant(row, key)))
            .take(COLUMNS_MAX)
            .cloned()
            .collect()
    } else {
        columns.iter().map(|&column| column.to_owned()).collect()
    };
    let cells = |row: &Value| {
        let is_shown = |column: &String| row.as_object().is_none_or(|fields| !repeats_status(fields, column));
        let value = |column: &String| row.get(column).filter(|_| is_shown(column)).unwrap_or(&Value::Null);
        let link = |column: &String| link_by_kind(row, column).or_else(|| link_by_id(row.as_object()?, column, noun));
        let table_cell = |column: &String| link(column).unwrap_or_else(|| cell(column, value(column), noun));
        column_names.iter().map(|column| shorten(table_cell(column))).collect()
    };
    Block::Table(Table {
        rows: rows.iter().map(cells).collect(),
        columns: column_names.iter().map(|name| label(name)).collect(),
        empty_text: empty_text.to_owned(),
    })
}

/// A link to the thing whose kind and id are in the fields `NAME_kind` and `NAME_id`, such as the subject of an event
/// or the cause of a run.
pub fn link_by_kind(row: &Value, name: &str) -> Option<Cell> {
    let field = |part: &str| row.get(format!("{name}_{part}"))?.as_str();
    let (kind, id) = (field("kind")?, field("id")?);
    let text = row
        .get(name)
        .and_then(Value::as_str)
        .map_or_else(|| format!("{} {}", label(kind), short_id(id)), str::to_owned);
    Some(Cell::link(page_or_why_path(kind, id), text))
}

/// A link to the thing whose name is in the field `name` and whose id is in the field `NAME_id`. None if the name alone
/// is enough for a link.
fn link_by_id(row: &Map<String, Value>, name: &str, noun: Option<&Noun>) -> Option<Cell> {
    let id = row.get(&format!("{name}_id"))?.as_str()?;
    let display_name = row.get(name)?;
    let is_link = noun.is_some_and(|noun| noun.noun == "link");
    if display_name.is_string() && (is_link || NAME_FIELDS.iter().any(|(known, _)| *known == name)) {
        return None;
    }
    let is_relation = row.contains_key("from_id") && row.contains_key("to_id");
    let kind = if is_relation && matches!(name, "from" | "to") { "stickie" } else { name };
    Some(Cell::link(page_path(kind, id)?, display_name.as_str().unwrap_or_else(|| short_id(id))))
}

fn shorten(cell: Cell) -> Cell {
    match cell {
        Cell::Text(text) => Cell::Text(cut_line(&text)),
        Cell::Link { href, text } => Cell::Link { href, text: cut_line(&text) },
        Cell::Code(text) => Cell::Code(text::cut(&text, ROW_TEXT_MAX)),
        cell => cell,
    }
}

fn cut_line(line: &str) -> String {
    text::cut(&text::clean_line(line), ROW_TEXT_MAX)
}

/// Lays out a thing field by field, except the `excluded` fields: short values become facts, long values texts, and
/// lists tables.
pub fn object_blocks(data: &Map<String, Value>, noun: Option<&Noun>, excluded: &[&str]) -> Vec<Block> {
    let mut facts = Vec::new();
    let mut sections = Vec::new();
    for (key, value) in data {
        if excluded.contains(&key.as_str()) || is_redundant(data, key) {
            continue;
        }
        match value {
            Value::String(text)
                if !text.is_empty()
                    && (SECTION_FIELDS.contains(&key.as_str())
                        || text.chars().count() > ROW_TEXT_MAX
                        || text.contains('\n')) =>
            {
                sections.push(Block::Text {
                    label: Some(label(key)),
                    text: text.clone(),
                    kind: match key.as_str() {
                        "code" | "script" | "error" => TextKind::Plain,
                        "diff" => TextKind::Diff,
                        key if SECTION_FIELDS.contains(&key) => TextKind::Markdown,
                        _ => TextKind::Plain,
                    },
                });
            }
            Value::Array(rows) if rows.iter().any(Value::is_object) => {
                sections.push(Block::Heading(label(key)));
                sections.push(table(rows, nested_columns(key), nouns::by_name(nested_noun(key)), ""));
            }
            Value::Object(inner) if !inner.is_empty() => {
                let text = serde_json::to_string_pretty(value).unwrap_or_default();
                sections.push(Block::Text { label: Some(label(key)), text, kind: TextKind::Json });
            }
            value => match link_by_id(data, key, noun).unwrap_or_else(|| cell(key, value, noun)) {
                Cell::Empty => {}
                cell => facts.push((label(key), cell)),
            },
        }
    }
    let mut blocks = Vec::new();
    if !facts.is_empty() {
        blocks.push(Block::Facts(facts));
    }
    blocks.extend(sections);
    blocks
}

/// The noun of the rows in a list field.
fn nested_noun(key: &str) -> &str {
    if key == "comments" { "note" } else { key.trim_end_matches('s') }
}

/// The columns of the table for a list field. Empty means the first columns of the data. Lists whose first columns
/// would leave out the author need an entry here.
pub fn nested_columns(key: &str) -> &'static [&'static str] {
    match key {
        "comments" => &["id", "title", "body", "author", "run_id", "updated_at"],
        "votes" => &["option", "author", "run_id", "accepted", "preferred", "updated_at"],
        _ => &[],
    }
}

/// True if readers do not need a field: another field of the row says the same, or only programs use it.
fn is_redundant(row: &Map<String, Value>, key: &str) -> bool {
    let has_name_field = key.strip_suffix("_id").is_some_and(|name| row.contains_key(name));
    has_name_field
        || repeats_status(row, key)
        || matches!(key, "tenant_id" | "lineage_id" | "digest" | "content_id" | "scope" | "actor_id")
}

/// True if the outcome equals the status.
fn repeats_status(row: &Map<String, Value>, key: &str) -> bool {
    key == "outcome" && row.get("outcome") == row.get("status")
}

/// The name of a field as a label: `run_id` becomes `run`.
pub fn label(name: &str) -> String {
    let name = name.strip_suffix("_at").or_else(|| name.strip_suffix("_id")).unwrap_or(name);
    name.replace('_', " ")
}

/// Formats a number with a comma between groups of three digits.
pub fn group_digits(number: i64) -> String {
    let digits = number.unsigned_abs().to_string();
    let mut out = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    if number < 0 { format!("-{out}") } else { out }
}

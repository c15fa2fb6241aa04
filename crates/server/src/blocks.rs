//! From the data of an answer to something to read: facts, tables and texts, with links where names are names of things.

use serde_json::{Map, Value};
use trackway_domain::{Time, text};
use uuid::Uuid;

use crate::{
    address::encoded,
    nouns::{self, Noun},
    page::{Block, Cell, Table, TextKind},
};

/// Characters of a text that stand in a row; a longer one stands below.
const SHORT: usize = 160;
/// Texts that stand below though they may be short.
const LONG: &[&str] = &[
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
/// Columns of a table whose answer does not say which.
const COLUMNS_MAX: usize = 8;

/// Fields that name a thing by its name, and what they name.
const NAMES: &[(&str, &str)] = &[
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

/// Fields that name a thing by its id, and what they name, where the field itself does not say.
const IDS: &[(&str, &str)] = &[
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

const STATES: &[&str] = &["status", "outcome", "level"];

/// Where a thing of a kind is.
pub fn path_of(kind: &str, reference: &str) -> Option<String> {
    nouns::of(kind).filter(|noun| noun.one.is_some()).map(|noun| format!("/{}/{}", noun.path, encoded(reference)))
}

/// Where to read of a thing of a kind: on its page; of what has none, where it comes from.
pub fn place_of(kind: &str, id: &str) -> String {
    path_of(kind, id).unwrap_or_else(|| format!("/why?of={}", encoded(id)))
}

/// An id as people see it.
pub fn short(id: &str) -> &str {
    if Uuid::try_parse(id).is_ok() && id.len() == 36 { &id[28..] } else { id }
}

/// A value in its place.
pub fn cell(key: &str, value: &Value, noun: Option<&Noun>) -> Cell {
    match value {
        // What is not so is not said.
        Value::Null | Value::Bool(false) => Cell::Nothing,
        Value::Bool(true) => Cell::Text("yes".to_owned()),
        Value::Number(number) => Cell::Number(number.to_string()),
        Value::Array(values) if values.is_empty() => Cell::Nothing,
        Value::Array(values) => Cell::Many(values.iter().map(|value| cell(key, value, noun)).collect()),
        Value::Object(_) => Cell::Code(value.to_string()),
        Value::String(text) if text.is_empty() => Cell::Nothing,
        Value::String(text) => text_cell(key, text, noun),
    }
}

fn text_cell(key: &str, text: &str, noun: Option<&Noun>) -> Cell {
    let linked = |kind: &str, shown: &str| match path_of(kind, text) {
        Some(to) => Cell::link(to, shown),
        None => Cell::Text(shown.to_owned()),
    };
    if Time::is_in(key) {
        return Cell::Time(text.to_owned());
    }
    if STATES.contains(&key) {
        return Cell::Status(text.to_owned());
    }
    if key == "id" {
        return match noun {
            Some(noun) => linked(noun.noun, short(text)),
            None => Cell::Code(short(text).to_owned()),
        };
    }
    if let Some(noun) = noun.filter(|noun| noun.named_by == Some(key)) {
        return linked(noun.noun, text);
    }
    if noun.is_some_and(|noun| noun.noun == "link") && matches!(key, "from" | "to") {
        return linked("task", text);
    }
    if let Some((_, kind)) = NAMES.iter().find(|(name, _)| *name == key) {
        return linked(kind, short(text));
    }
    if Uuid::try_parse(text).is_ok() {
        let kind = IDS.iter().find(|(name, _)| *name == key).map(|(_, kind)| *kind);
        return match kind.or_else(|| key.strip_suffix("_id")) {
            Some(kind) => linked(kind, short(text)),
            None => Cell::Code(short(text).to_owned()),
        };
    }
    Cell::Text(text.to_owned())
}

/// A list of things as a table.
pub fn table(rows: &[Value], columns: &[&str], noun: Option<&Noun>, empty: &str) -> Block {
    let chosen: Vec<String> = if columns.is_empty() {
        let first = rows.first().and_then(Value::as_object);
        first
            .into_iter()
            .flat_map(|row| row.keys().filter(|key| !is_hidden(row, key)))
            .take(COLUMNS_MAX)
            .cloned()
            .collect()
    } else {
        columns.iter().map(|&column| column.to_owned()).collect()
    };
    let cells = |row: &Value| {
        let said = |column: &String| row.as_object().is_none_or(|fields| !is_repeated(fields, column));
        let value = |column: &String| row.get(column).filter(|_| said(column)).unwrap_or(&Value::Null);
        let linked = |column: &String| thing(row, column).or_else(|| beside(row.as_object()?, column, noun));
        let made = |column: &String| linked(column).unwrap_or_else(|| cell(column, value(column), noun));
        chosen.iter().map(|column| shortened(made(column))).collect()
    };
    Block::Table(Table {
        rows: rows.iter().map(cells).collect(),
        columns: chosen.iter().map(|name| words(name)).collect(),
        empty: empty.to_owned(),
    })
}

/// What a row names by its kind and its id, as the subject of an event and the cause of a run.
pub fn thing(row: &Value, name: &str) -> Option<Cell> {
    let of = |part: &str| row.get(format!("{name}_{part}"))?.as_str();
    let (kind, id) = (of("kind")?, of("id")?);
    let text =
        row.get(name).and_then(Value::as_str).map_or_else(|| format!("{} {}", words(kind), short(id)), str::to_owned);
    Some(Cell::link(place_of(kind, id), text))
}

/// What is called something and leads to its page by the id beside it. Where the name itself leads there, it does.
fn beside(row: &Map<String, Value>, name: &str, noun: Option<&Noun>) -> Option<Cell> {
    let id = row.get(&format!("{name}_id"))?.as_str()?;
    let called = row.get(name)?;
    let is_link = noun.is_some_and(|noun| noun.noun == "link");
    if called.is_string() && (is_link || NAMES.iter().any(|(known, _)| *known == name)) {
        return None;
    }
    let is_relation = row.contains_key("from_id") && row.contains_key("to_id");
    let kind = if is_relation && matches!(name, "from" | "to") { "stickie" } else { name };
    Some(Cell::link(path_of(kind, id)?, called.as_str().unwrap_or_else(|| short(id))))
}

/// A text in a row stays short.
fn shortened(cell: Cell) -> Cell {
    match cell {
        Cell::Text(text) => Cell::Text(cut_line(&text)),
        Cell::Link { to, text } => Cell::Link { to, text: cut_line(&text) },
        Cell::Code(text) => Cell::Code(text::cut(&text, SHORT)),
        cell => cell,
    }
}

fn cut_line(line: &str) -> String {
    text::cut(&text::clean_line(line), SHORT)
}

/// A thing field by field: short ones as facts, long ones as texts, lists as tables below.
pub fn fields(data: &Map<String, Value>, noun: Option<&Noun>, without: &[&str]) -> Vec<Block> {
    let mut facts = Vec::new();
    let mut below = Vec::new();
    for (key, value) in data {
        if without.contains(&key.as_str()) || is_hidden(data, key) {
            continue;
        }
        match value {
            Value::String(text)
                if !text.is_empty()
                    && (LONG.contains(&key.as_str()) || text.chars().count() > SHORT || text.contains('\n')) =>
            {
                below.push(Block::Text {
                    label: Some(words(key)),
                    text: text.clone(),
                    kind: match key.as_str() {
                        "code" | "script" | "error" => TextKind::Plain,
                        "diff" => TextKind::Diff,
                        key if LONG.contains(&key) => TextKind::Markdown,
                        _ => TextKind::Plain,
                    },
                });
            }
            Value::Array(rows) if rows.iter().any(Value::is_object) => {
                below.push(Block::Heading(words(key)));
                below.push(table(rows, columns_below(key), nouns::of(noun_below(key)), ""));
            }
            Value::Object(inner) if !inner.is_empty() => {
                let text = serde_json::to_string_pretty(value).unwrap_or_default();
                below.push(Block::Text { label: Some(words(key)), text, kind: TextKind::Json });
            }
            value => match beside(data, key, noun).unwrap_or_else(|| cell(key, value, noun)) {
                Cell::Nothing => {}
                cell => facts.push((words(key), cell)),
            },
        }
    }
    let mut blocks = Vec::new();
    if !facts.is_empty() {
        blocks.push(Block::Facts(facts));
    }
    blocks.extend(below);
    blocks
}

/// The noun of the rows below a field.
fn noun_below(key: &str) -> &str {
    if key == "comments" { "note" } else { key.trim_end_matches('s') }
}

/// Columns of a table below a thing, where the first ones would leave out who wrote the rows.
pub fn columns_below(key: &str) -> &'static [&'static str] {
    match key {
        "comments" => &["id", "title", "body", "author", "run_id", "updated_at"],
        "votes" => &["option", "author", "run_id", "accepted", "preferred", "updated_at"],
        _ => &[],
    }
}

/// Whether a field says no more than another that stands beside it.
fn is_hidden(row: &Map<String, Value>, key: &str) -> bool {
    let name_stands_beside = key.strip_suffix("_id").is_some_and(|name| row.contains_key(name));
    name_stands_beside
        || is_repeated(row, key)
        || matches!(key, "tenant_id" | "lineage_id" | "digest" | "content_id" | "scope" | "actor_id")
}

/// Whether an outcome only says the status again.
fn is_repeated(row: &Map<String, Value>, key: &str) -> bool {
    key == "outcome" && row.get("outcome") == row.get("status")
}

/// A field's name as people say it.
pub fn words(name: &str) -> String {
    let name = name.strip_suffix("_at").or_else(|| name.strip_suffix("_id")).unwrap_or(name);
    name.replace('_', " ")
}

/// A number with its thousands apart.
pub fn grouped(number: i64) -> String {
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

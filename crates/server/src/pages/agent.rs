//! An agent: who it is, what it remembers and how that changed, what it did.

use axum::http::StatusCode;
use serde_json::{Map, Value, json};
use trackway_domain::{Ref, kind};
use trackway_store::Reader;
use trackway_views::scratchpad::require_readable;

use super::{ask, blocks_of, rows};
use crate::{
    address::encoded,
    blocks, input, nouns,
    page::{Block, Cell, Page, TextKind},
    problem::Problem,
};

/// The revisions of its scratchpad that are compared.
const REVISIONS: &[&str] = &["from", "to"];

/// Lays an agent out. `?from=` and `?to=` compare two revisions of its scratchpad.
pub fn page(read: &mut Reader<'_>, reference: &str, query: &str) -> Result<Page, Problem> {
    input::none_but(query, REVISIONS)?;
    let mut revisions = Map::new();
    for (name, value) in input::pairs(query).filter(|(_, value)| !value.is_empty()) {
        let number = input::whole(&name, &value)?;
        revisions.insert(name, json!(number));
    }
    let mut data = ask(read, ("agent", "get"), json!({ "name": reference }))?.data;
    let id = data["id"].as_str().unwrap_or(reference).to_owned();
    let handle = data["handle"].as_str().unwrap_or(reference).to_owned();
    let subject = read.resolve_even_deleted(&Ref::<kind::Agent>::new(&id))?;
    let readable = require_readable(read, subject).map_err(Problem::from);
    let is_readable = match readable {
        Ok(()) => true,
        // Another agent sees the rest of the page, but no revision that it asks for.
        Err(problem) if problem.status == StatusCode::FORBIDDEN && revisions.is_empty() => false,
        Err(problem) => return Err(problem),
    };
    let (mut pad, mut history) = (Value::Null, Value::Null);
    if is_readable {
        pad = ask(read, ("scratchpad", "get"), json!({ "agent": id }))?.data;
        history = ask(read, ("scratchpad", "history"), json!({ "agent": id }))?.data;
    }
    let runs = ask(read, ("run", "list"), json!({ "agent": id, "limit": 10 }))?.data;
    let reports = ask(read, ("report", "list"), json!({ "agent": id, "limit": 10 }))?.data;
    let mut out = blocks_of(&data, nouns::of("agent"), &["id", "handle"]);
    out.push(Block::Heading("Scratchpad".to_owned()));
    match pad["content"].as_str().filter(|content| !content.trim().is_empty()) {
        Some(content) => out.push(Block::Text { label: None, text: content.to_owned(), kind: TextKind::Markdown }),
        None if !is_readable => out.push(Block::Say(format!(
            "People and {handle} itself can read it. Other agents need the capability `read_scratchpads`."
        ))),
        None => out.push(Block::Say("Empty: it has left nothing for itself yet.".to_owned())),
    }
    if !rows(&history).is_empty() {
        let mut compared = json!({ "agent": id });
        compared.as_object_mut().into_iter().for_each(|asked| asked.extend(revisions.clone()));
        let diff = ask(read, ("scratchpad", "diff"), compared)?.data;
        let label = format!("From revision {} to {}", diff["from"], diff["to"]);
        let text = diff["diff"].as_str().unwrap_or_default().to_owned();
        out.push(Block::Text { label: Some(label), text, kind: TextKind::Diff });
        out.push(revisions_of(&rows(&history), &format!("/agents/{}", encoded(&handle))));
    }
    out.push(Block::Heading("Runs".to_owned()));
    out.push(blocks::table(
        &rows(&runs),
        &["id", "task", "status", "outcome", "started_at", "ended_at"],
        nouns::of("run"),
        "It has not worked yet.",
    ));
    out.push(Block::Heading("Reports".to_owned()));
    out.push(blocks::table(
        &rows(&reports),
        &["id", "task", "one_liner", "tldr", "current", "run_id", "created_at"],
        nouns::of("report"),
        "It has not reported yet.",
    ));
    data["scratchpad"] = pad;
    data["scratchpad_history"] = history;
    data["runs"] = runs;
    data["reports"] = reports;
    let mut page = Page::new(blocks::path_of("agent", &handle).unwrap_or_default(), handle, data);
    page.blocks = out;
    page.live = vec![id];
    Ok(page)
}

/// The revisions of a scratchpad, each leading to what it changed.
fn revisions_of(history: &[Value], path: &str) -> Block {
    let columns = ["revision", "by", "run_id", "characters", "created_at"];
    let mut block = blocks::table(history, &columns, None, "");
    if let Block::Table(table) = &mut block {
        for (row, revision) in table.rows.iter_mut().zip(history) {
            if let (Some(cell), Some(number)) =
                (row.first_mut(), revision["revision"].as_i64().filter(|&number| number > 1))
            {
                *cell = Cell::link(format!("{path}?from={}&to={number}", number - 1), number.to_string());
            }
        }
    }
    block
}

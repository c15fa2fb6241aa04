//! The page of an agent: its settings, its scratchpad with revisions, its runs and reports.

use axum::http::StatusCode;
use serde_json::{Map, Value, json};
use trackway_domain::{Ref, kind};
use trackway_store::Reader;
use trackway_views::scratchpad::require_readable;

use super::{blocks_of, query_view, rows};
use crate::{
    address::encode,
    blocks, input, nouns,
    page::{Block, Cell, Page, TextKind},
    problem::Problem,
};

/// Query parameters that select the two scratchpad revisions to compare.
const REVISION_PARAMETERS: &[&str] = &["from", "to"];

/// Builds the page. `?from=` and `?to=` compare two revisions of the scratchpad.
pub fn page(read: &mut Reader<'_>, reference: &str, query: &str) -> Result<Page, Problem> {
    input::reject_unknown(query, REVISION_PARAMETERS)?;
    let mut revisions = Map::new();
    for (name, value) in input::pairs(query).filter(|(_, value)| !value.is_empty()) {
        let number = input::parse_integer(&name, &value)?;
        revisions.insert(name, json!(number));
    }
    let mut data = query_view(read, ("agent", "get"), json!({ "name": reference }))?.data;
    let id = data["id"].as_str().unwrap_or(reference).to_owned();
    let handle = data["handle"].as_str().unwrap_or(reference).to_owned();
    let subject = read.resolve_including_deleted(&Ref::<kind::Agent>::new(&id))?;
    let readable = require_readable(read, subject).map_err(Problem::from);
    let is_readable = match readable {
        Ok(()) => true,
        // Another agent sees the page without the scratchpad. If it explicitly asks for revisions, it gets an error.
        Err(problem) if problem.status == StatusCode::FORBIDDEN && revisions.is_empty() => false,
        Err(problem) => return Err(problem),
    };
    let (mut scratchpad, mut history) = (Value::Null, Value::Null);
    if is_readable {
        scratchpad = query_view(read, ("scratchpad", "get"), json!({ "agent": id }))?.data;
        history = query_view(read, ("scratchpad", "history"), json!({ "agent": id }))?.data;
    }
    let runs = query_view(read, ("run", "list"), json!({ "agent": id, "limit": 10 }))?.data;
    let reports = query_view(read, ("report", "list"), json!({ "agent": id, "limit": 10 }))?.data;
    let mut out = blocks_of(&data, nouns::by_name("agent"), &["id", "handle"]);
    out.push(Block::Heading("Scratchpad".to_owned()));
    match scratchpad["content"].as_str().filter(|content| !content.trim().is_empty()) {
        Some(content) => out.push(Block::Text { label: None, text: content.to_owned(), kind: TextKind::Markdown }),
        None if !is_readable => out.push(Block::Paragraph(format!(
            "Only people and {handle} can read this scratchpad. Other agents need the capability `read_scratchpads`."
        ))),
        None => out.push(Block::Paragraph("The scratchpad is empty.".to_owned())),
    }
    if !rows(&history).is_empty() {
        let mut compared = json!({ "agent": id });
        compared.as_object_mut().into_iter().for_each(|input| input.extend(revisions.clone()));
        let diff = query_view(read, ("scratchpad", "diff"), compared)?.data;
        let label = format!("From revision {} to {}", diff["from"], diff["to"]);
        let text = diff["diff"].as_str().unwrap_or_default().to_owned();
        out.push(Block::Text { label: Some(label), text, kind: TextKind::Diff });
        out.push(revision_table(&rows(&history), &format!("/agents/{}", encode(&handle))));
    }
    out.push(Block::Heading("Runs".to_owned()));
    out.push(blocks::table(
        &rows(&runs),
        &["id", "task", "status", "outcome", "started_at", "ended_at"],
        nouns::by_name("run"),
        "No runs yet.",
    ));
    out.push(Block::Heading("Reports".to_owned()));
    out.push(blocks::table(
        &rows(&reports),
        &["id", "task", "one_liner", "tldr", "current", "run_id", "created_at"],
        nouns::by_name("report"),
        "No reports yet.",
    ));
    data["scratchpad"] = scratchpad;
    data["scratchpad_history"] = history;
    data["runs"] = runs;
    data["reports"] = reports;
    let mut page = Page::new(blocks::page_path("agent", &handle).unwrap_or_default(), handle, data);
    page.blocks = out;
    page.live = vec![id];
    Ok(page)
}

/// The revisions of a scratchpad, each with a link to its changes.
fn revision_table(history: &[Value], path: &str) -> Block {
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

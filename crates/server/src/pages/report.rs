//! A report: what an agent said about a task when it stopped, and what was said before and by others.

use serde_json::{Value, json};
use trackway_domain::{Ref, kind, kind::Kind};
use trackway_store::{Reader, display::ReportShown};

use super::{ask, rows};
use crate::{
    blocks, nouns,
    page::{Block, Cell, Page, TextKind},
    problem::Problem,
};

/// The report that a reference names: the one that speaks for a task, or the one of an id.
pub fn found(read: &mut Reader<'_>, reference: &str) -> Result<Value, Problem> {
    let is_task = read.resolve_even_deleted(&Ref::<kind::Task>::new(reference)).is_ok();
    match read.entry_ending(reference, Some(Kind::Report))? {
        Some(entry) if !is_task => {
            let report: ReportShown = read.shown_by_id("p", entry.id)?;
            Ok(serde_json::to_value(report).unwrap_or_default())
        }
        _ => Ok(ask(read, ("report", "get"), json!({ "task": reference }))?.data),
    }
}

/// Lays a report out.
pub fn page(read: &mut Reader<'_>, reference: &str) -> Result<Page, Problem> {
    let mut data = found(read, reference)?;
    let id = data["id"].clone();
    let task = data["task"].as_str().map(ToOwned::to_owned);
    let facts = ["agent", "task", "run_id", "created_at", "current"];
    let facts = facts.iter().filter_map(|&key| match blocks::cell(key, data.get(key)?, None) {
        Cell::Nothing => None,
        shown => Some((blocks::words(key), shown)),
    });
    let mut out = vec![Block::Facts(facts.collect())];
    for (field, label) in [("one_liner", "In one line"), ("tldr", "In short"), ("content", "In full")] {
        if let Some(text) = data[field].as_str().filter(|text| !text.trim().is_empty()) {
            let kind = TextKind::Markdown;
            out.push(Block::Text { label: Some(label.to_owned()), text: text.to_owned(), kind });
        }
    }
    // Where the task has no name of its own any more, only this report is there to be shown.
    let others = match data["task_id"].as_str() {
        Some(task) => rows(&ask(read, ("report", "list"), json!({ "task": task, "limit": 20 }))?.data),
        None => Vec::new(),
    };
    let others: Vec<Value> = others.into_iter().filter(|report| report["id"] != id).collect();
    out.push(Block::Heading("Other reports on it".to_owned()));
    out.push(blocks::table(
        &others,
        &["id", "agent", "one_liner", "current", "run_id", "created_at"],
        nouns::of("report"),
        "There is no other.",
    ));
    let title = match (&task, data["agent"].as_str()) {
        (Some(task), Some(agent)) => format!("Report on {task}, by {agent}"),
        (None, Some(agent)) => format!("Report by {agent}"),
        _ => "Report".to_owned(),
    };
    data["others"] = Value::Array(others);
    let mut page = Page::new(blocks::path_of("report", reference).unwrap_or_default(), title, data);
    page.blocks = out;
    Ok(page)
}

//! The page of a report, with the other reports on the same task.

use serde_json::{Value, json};
use trackway_domain::{Ref, kind, kind::Kind};
use trackway_store::{Reader, display::ReportRow};

use super::{query_view, rows};
use crate::{
    blocks, nouns,
    page::{Block, Cell, Page, TextKind},
    problem::Problem,
};

/// Loads the current report of a task, or the report with an id. If both exist, the task takes precedence.
pub fn load_report(read: &mut Reader<'_>, reference: &str) -> Result<Value, Problem> {
    let is_task = read.resolve_including_deleted(&Ref::<kind::Task>::new(reference)).is_ok();
    match read.entry_by_id_suffix(reference, Some(Kind::Report))? {
        Some(entry) if !is_task => {
            let report: ReportRow = read.display_row_by_id("p", entry.id)?;
            Ok(serde_json::to_value(report).unwrap_or_default())
        }
        _ => Ok(query_view(read, ("report", "get"), json!({ "task": reference }))?.data),
    }
}

pub fn page(read: &mut Reader<'_>, reference: &str) -> Result<Page, Problem> {
    let mut data = load_report(read, reference)?;
    let id = data["id"].clone();
    let task = data["task"].as_str().map(ToOwned::to_owned);
    let facts = ["agent", "task", "run_id", "created_at", "current"];
    let facts = facts.iter().filter_map(|&key| match blocks::cell(key, data.get(key)?, None) {
        Cell::Empty => None,
        value => Some((blocks::label(key), value)),
    });
    let mut out = vec![Block::Facts(facts.collect())];
    for (field, label) in [("one_liner", "One-liner"), ("tldr", "Summary"), ("content", "Full report")] {
        if let Some(text) = data[field].as_str().filter(|text| !text.trim().is_empty()) {
            let kind = TextKind::Markdown;
            out.push(Block::Text { label: Some(label.to_owned()), text: text.to_owned(), kind });
        }
    }
    // Without a task there are no other reports to list.
    let others = match data["task_id"].as_str() {
        Some(task) => rows(&query_view(read, ("report", "list"), json!({ "task": task, "limit": 20 }))?.data),
        None => Vec::new(),
    };
    let others: Vec<Value> = others.into_iter().filter(|report| report["id"] != id).collect();
    out.push(Block::Heading("Other reports on this task".to_owned()));
    out.push(blocks::table(
        &others,
        &["id", "agent", "one_liner", "current", "run_id", "created_at"],
        nouns::by_name("report"),
        "No other reports.",
    ));
    let title = match (&task, data["agent"].as_str()) {
        (Some(task), Some(agent)) => format!("Report on {task}, by {agent}"),
        (None, Some(agent)) => format!("Report by {agent}"),
        _ => "Report".to_owned(),
    };
    data["others"] = Value::Array(others);
    let mut page = Page::new(blocks::page_path("report", reference).unwrap_or_default(), title, data);
    page.blocks = out;
    Ok(page)
}

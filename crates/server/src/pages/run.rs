//! A run: what happened in order, what it made, what it started, what it was told, what it used.

use serde_json::{Value, json};
use trackway_store::Reader;

use super::{ask, rows};
use crate::{
    blocks::{self, cell, grouped},
    nouns,
    page::{Block, Branch, Cell, Moment, Page, TextKind},
    problem::Problem,
};

const FACTS: &[&str] = &[
    "status",
    "outcome",
    "agent",
    "role",
    "task",
    "initiated_by",
    "session_id",
    "workspace",
    "mode",
    "duration",
    "started_at",
    "ended_at",
    "parent_run_id",
    "cause_kind",
    "chain_depth",
    "queue_item_id",
    "max_steps",
];

/// Lays a run out.
pub fn page(read: &mut Reader<'_>, reference: &str) -> Result<Page, Problem> {
    let data = ask(read, ("run", "show"), json!({ "run": reference, "wake": true }))?.data;
    let id = data["id"].as_str().unwrap_or(reference).to_owned();
    let title = match data["task"].as_str() {
        Some(task) => format!("Run {}: {task}", blocks::short(&id)),
        None => format!("Run {}", blocks::short(&id)),
    };
    let mut out = Vec::new();
    let shown = |key: &str| match key {
        "cause_kind" if data["cause_id"].is_string() => blocks::thing(&data, "cause"),
        key => Some(cell(key, data.get(key)?, None)),
    };
    let facts = FACTS.iter().filter_map(|&key| match shown(key)? {
        Cell::Nothing => None,
        shown => Some((blocks::words(key.trim_end_matches("_kind")), shown)),
    });
    out.push(Block::Facts(facts.collect()));
    if data["no_effect"] == true {
        out.push(Block::Say("It was completed, and changed nothing by itself.".to_owned()));
    }
    let texts = [
        ("final_message", "What it said at the end", TextKind::Markdown),
        ("error", "What went wrong", TextKind::Plain),
    ];
    for (field, label, kind) in texts {
        if let Some(text) = data[field].as_str().filter(|text| !text.trim().is_empty()) {
            out.push(Block::Text { label: Some(label.to_owned()), text: text.to_owned(), kind });
        }
    }
    out.push(Block::Heading("What it made".to_owned()));
    out.push(Block::Table(crate::page::Table {
        columns: ["what", "did", "times", "studio", "last"].map(ToOwned::to_owned).to_vec(),
        rows: rows(&data["touches"]).iter().map(touch).collect(),
        empty: "Nothing.".to_owned(),
    }));
    let steps = rows(&data["steps"]);
    if !steps.is_empty() {
        out.push(Block::Heading("What happened".to_owned()));
        out.push(Block::Timeline(steps.iter().map(moment).collect()));
    }
    if !rows(&data["children"]).is_empty() {
        let tree = ask(read, ("run", "tree"), json!({ "run": id }))?.data;
        out.push(Block::Heading("What it started".to_owned()));
        out.push(Block::Tree(tree["children"].as_array().into_iter().flatten().map(branch).collect()));
    }
    let usage = rows(&data["usage"]);
    if !usage.is_empty() {
        out.push(Block::Heading("What it used".to_owned()));
        out.push(Block::Facts(used(&usage)));
        let columns = [
            "model",
            "input_tokens",
            "output_tokens",
            "cache_creation_tokens",
            "cache_read_tokens",
            "cost",
            "created_at",
        ];
        let shown = usage.len().min(50);
        out.push(blocks::table(&usage[usage.len() - shown..], &columns, None, ""));
    }
    for told in rows(&data["wake"]) {
        out.push(Block::Heading("What it was told when it woke".to_owned()));
        let at = told["created_at"].as_str().unwrap_or_default().to_owned();
        out.push(Block::Facts(vec![("told".to_owned(), Cell::Time(at))]));
        out.push(Block::Text {
            label: None,
            text: told["text"].as_str().unwrap_or_default().to_owned(),
            kind: TextKind::Plain,
        });
    }
    let mut page = Page::new(format!("/runs/{id}"), title, data);
    page.live = page.data["status"] == "running";
    page.blocks = out;
    Ok(page)
}

/// A touched thing in a row.
fn touch(touch: &Value) -> Vec<Cell> {
    let (kind, id) =
        (touch["resource_type"].as_str().unwrap_or_default(), touch["resource_id"].as_str().unwrap_or_default());
    let name = touch["display_path"].as_str().unwrap_or_default();
    vec![
        Cell::link(blocks::place_of(kind, id), format!("{kind} {name}")),
        cell("action", &touch["action_type"], None),
        cell("times", &touch["times"], None),
        cell("studio", &touch["studio"], None),
        cell("last_at", &touch["last_at"], None),
    ]
}

fn moment(step: &Value) -> Moment {
    let text = |field: &str| step[field].as_str().unwrap_or_default().to_owned();
    Moment {
        at: text("created_at"),
        label: blocks::words(&text("type")),
        text: step["detail"].as_str().map(ToOwned::to_owned),
    }
}

fn branch(run: &Value) -> Branch {
    let cells = [
        cell("id", &run["id"], nouns::of("run")),
        cell("agent", &run["agent"], None),
        cell("task", &run["task"], None),
        cell("status", &run["status"], None),
        Cell::Text(run["duration"].as_str().unwrap_or_default().to_owned()),
        Cell::Text(format!("{} touches", run["touches"])),
    ];
    Branch { cells: cells.to_vec(), children: run["children"].as_array().into_iter().flatten().map(branch).collect() }
}

/// The sums of what was used. What no call told is left out.
fn used(usage: &[Value]) -> Vec<(String, Cell)> {
    let mut facts = vec![("calls".to_owned(), Cell::Number(usage.len().to_string()))];
    for field in ["input_tokens", "output_tokens", "cache_creation_tokens", "cache_read_tokens"] {
        let told: Vec<i64> = usage.iter().filter_map(|call| call[field].as_i64()).collect();
        if !told.is_empty() {
            facts.push((blocks::words(field), Cell::Number(grouped(told.iter().sum()))));
        }
    }
    let costs: Vec<f64> = usage.iter().filter_map(|call| call["cost"].as_f64()).collect();
    if !costs.is_empty() {
        facts.push(("cost".to_owned(), Cell::Number(format!("${:.4}", costs.iter().sum::<f64>()))));
    }
    facts
}

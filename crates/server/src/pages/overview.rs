//! What runs now, what waits, what failed, what it costs.

use serde_json::{Value, json};
use trackway_domain::Time;
use trackway_store::Reader;

use super::{ask, rows};
use crate::{
    blocks::{self, grouped},
    nouns,
    page::{Block, Cell, Figure, Page},
    problem::Problem,
};

const RUN: &[&str] = &["id", "agent", "role", "task", "status", "outcome", "started_at", "ended_at"];

/// Every list, by what it is about.
const EVERYTHING: &[(&str, &[&str])] = &[
    ("to be done", &["tasks", "queue", "workflows", "packages", "roles", "labels", "workspaces", "routes"]),
    ("done", &["runs", "sessions", "subagents", "spawns", "reports", "events"]),
    ("said", &["conversations", "messages", "experiments", "testcases"]),
    ("thought", &["notes", "decisions", "commitments", "boards", "stickies"]),
    ("who", &["agents", "people", "studios", "tokens"]),
];

fn lists(paths: &[&str]) -> Cell {
    let found = paths.iter().filter_map(|path| nouns::at(path));
    let mut links: Vec<Cell> = found.map(|noun| Cell::link(format!("/{}", noun.path), noun.title)).collect();
    if paths.contains(&"tasks") {
        links.insert(1, Cell::link("/ready", "Ready tasks"));
    }
    Cell::Many(links)
}

/// Where things stand.
pub fn page(read: &mut Reader<'_>, now: Time) -> Result<Page, Problem> {
    let mut data = ask(read, ("", "status"), json!({}))?.data;
    let today = now.to_string().get(..10).map(|day| format!("{day}T00:00:00Z")).unwrap_or_default();
    let spent = ask(read, ("", "usage"), json!({ "by": "day", "since": today }))?.data;
    let latest = ask(read, ("run", "list"), json!({ "limit": 10 }))?.data;
    data["usage_today"] = spent.get(0).cloned().unwrap_or(Value::Null);
    data["latest_runs"] = latest;
    let mut page = Page::new("/", "Overview", data);
    let count = |field: &str| page.data["queue"].get(field).and_then(Value::as_i64).unwrap_or(0);
    let figure = |label: &str, value: String, to: &str, is_alarming: bool| Figure {
        label: label.to_owned(),
        value,
        to: to.to_owned(),
        is_alarming,
    };
    let failed = count("failed");
    let tokens: i64 = ["input_tokens", "output_tokens"]
        .iter()
        .filter_map(|field| page.data["usage_today"].get(field)?.as_i64())
        .sum();
    let mut figures = vec![
        figure("running", page.data["running_total"].as_i64().unwrap_or(0).to_string(), "/runs?status=running", false),
        figure("ready", count("ready").to_string(), "/queue?status=ready", false),
        figure("waiting", count("waiting").to_string(), "/queue?status=waiting", false),
        figure("blocked", count("blocked").to_string(), "/queue?status=blocked", count("blocked") > 0),
        figure("failed for good", failed.to_string(), "/queue?status=failed", failed > 0),
        figure("tokens today", grouped(tokens), "/usage", false),
    ];
    if let Some(cost) = page.data["usage_today"].get("cost").and_then(Value::as_f64) {
        figures.push(figure("spent today", format!("${cost:.2}"), "/usage", false));
    }
    let run = nouns::of("run");
    let mut out = vec![Block::Figures(figures)];
    out.push(Block::Heading("Running now".to_owned()));
    out.push(blocks::table(&rows(&page.data["running"]), RUN, run, "Nothing runs."));
    if !rows(&page.data["failed_today"]).is_empty() {
        out.push(Block::Heading("Failed in the last day".to_owned()));
        out.push(blocks::table(&rows(&page.data["failed_today"]), RUN, run, ""));
    }
    out.push(Block::Heading("Latest runs".to_owned()));
    out.push(blocks::table(&rows(&page.data["latest_runs"]), RUN, run, nouns::of("run").map_or("", |noun| noun.empty)));
    let ready: Vec<Value> = rows(&page.data["ready"]).into_iter().map(|variant| json!({ "task": variant })).collect();
    if !ready.is_empty() {
        out.push(Block::Heading("Ready to be worked".to_owned()));
        out.push(blocks::table(&ready, &["task"], None, ""));
        let links = vec![("all ready tasks".to_owned(), "/ready".to_owned())];
        out.push(Block::Along { said: "The most urgent first.".to_owned(), links });
    }
    out.push(Block::Heading("Everything there is".to_owned()));
    out.push(Block::Facts(EVERYTHING.iter().map(|(about, paths)| (about.to_string(), lists(paths))).collect()));
    page.blocks = out;
    page.live = ["run", "queue_item", "task"].map(ToOwned::to_owned).to_vec();
    Ok(page)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_overview_leads_to_every_list() {
        let mut here: Vec<&str> = EVERYTHING.iter().flat_map(|(_, paths)| paths.iter().copied()).collect();
        let mut there: Vec<&str> =
            nouns::NOUNS.iter().filter(|noun| noun.list.is_some()).map(|noun| noun.path).collect();
        here.sort_unstable();
        there.sort_unstable();
        assert_eq!(here, there);
    }
}

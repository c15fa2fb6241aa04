//! The overview: running, waiting and failed work, and its cost.

use serde_json::{Value, json};
use trackway_domain::Time;
use trackway_store::Reader;

use super::{query_view, rows};
use crate::{
    blocks::{self, group_digits},
    nouns,
    page::{Block, Cell, Figure, Page},
    problem::Problem,
};

const RUN_COLUMNS: &[&str] = &["id", "agent", "role", "task", "status", "outcome", "started_at", "ended_at"];

/// All lists, by topic.
const LISTS: &[(&str, &[&str])] = &[
    ("work", &["tasks", "queue", "workflows", "packages", "roles", "labels", "workspaces", "routes"]),
    ("history", &["runs", "sessions", "subagents", "spawns", "reports", "events"]),
    ("communication", &["conversations", "messages", "experiments", "testcases"]),
    ("knowledge", &["notes", "decisions", "commitments", "boards", "stickies"]),
    ("people and agents", &["agents", "people", "studios", "tokens"]),
];

fn list_links(paths: &[&str]) -> Cell {
    let nouns = paths.iter().filter_map(|path| nouns::by_path(path));
    let mut links: Vec<Cell> = nouns.map(|noun| Cell::link(format!("/{}", noun.path), noun.title)).collect();
    if paths.contains(&"tasks") {
        links.insert(1, Cell::link("/ready", "Ready tasks"));
    }
    Cell::List(links)
}

pub fn page(read: &mut Reader<'_>, now: Time) -> Result<Page, Problem> {
    let mut data = query_view(read, ("", "status"), json!({}))?.data;
    let today = now.to_string().get(..10).map(|day| format!("{day}T00:00:00Z")).unwrap_or_default();
    let spent = query_view(read, ("", "usage"), json!({ "by": "day", "since": today }))?.data;
    let latest = query_view(read, ("run", "list"), json!({ "limit": 10 }))?.data;
    data["usage_today"] = spent.get(0).cloned().unwrap_or(Value::Null);
    data["latest_runs"] = latest;
    let mut page = Page::new("/", "Overview", data);
    let count = |field: &str| page.data["queue"].get(field).and_then(Value::as_i64).unwrap_or(0);
    let figure = |label: &str, value: String, href: &str, is_alarming: bool| Figure {
        label: label.to_owned(),
        value,
        href: href.to_owned(),
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
        figure("failed, no retries left", failed.to_string(), "/queue?status=failed", failed > 0),
        figure("tokens today", group_digits(tokens), "/usage", false),
    ];
    if let Some(cost) = page.data["usage_today"].get("cost").and_then(Value::as_f64) {
        figures.push(figure("spent today", format!("${cost:.2}"), "/usage", false));
    }
    let run = nouns::by_name("run");
    let mut out = vec![Block::Figures(figures)];
    out.push(Block::Heading("Running now".to_owned()));
    out.push(blocks::table(&rows(&page.data["running"]), RUN_COLUMNS, run, "Nothing is running."));
    if !rows(&page.data["failed_today"]).is_empty() {
        out.push(Block::Heading("Failed in the last day".to_owned()));
        out.push(blocks::table(&rows(&page.data["failed_today"]), RUN_COLUMNS, run, ""));
    }
    out.push(Block::Heading("Latest runs".to_owned()));
    out.push(blocks::table(
        &rows(&page.data["latest_runs"]),
        RUN_COLUMNS,
        run,
        nouns::by_name("run").map_or("", |noun| noun.empty_text),
    ));
    let ready: Vec<Value> = rows(&page.data["ready"]).into_iter().map(|variant| json!({ "task": variant })).collect();
    if !ready.is_empty() {
        out.push(Block::Heading("Ready tasks".to_owned()));
        out.push(blocks::table(&ready, &["task"], None, ""));
        let links = vec![("all ready tasks".to_owned(), "/ready".to_owned())];
        out.push(Block::Pagination { text: "The most urgent task comes first.".to_owned(), links });
    }
    out.push(Block::Heading("All lists".to_owned()));
    out.push(Block::Facts(LISTS.iter().map(|(topic, paths)| (topic.to_string(), list_links(paths))).collect()));
    page.blocks = out;
    page.live = ["run", "queue_item", "task"].map(ToOwned::to_owned).to_vec();
    Ok(page)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overview_links_to_every_list() {
        let mut linked: Vec<&str> = LISTS.iter().flat_map(|(_, paths)| paths.iter().copied()).collect();
        let mut existing: Vec<&str> =
            nouns::NOUNS.iter().filter(|noun| noun.list_verb.is_some()).map(|noun| noun.path).collect();
        linked.sort_unstable();
        existing.sort_unstable();
        assert_eq!(linked, existing);
    }
}

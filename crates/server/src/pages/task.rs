//! A task: what is to be done, its versions and how each of them went, what it is linked to, what was reported.

use serde_json::{Value, json};
use trackway_store::Reader;

use super::{ask, blocks_of, rows};
use crate::{
    address::encoded,
    blocks, nouns,
    page::{Block, Cell, Page, Version},
    problem::Problem,
};

/// Lays a task out.
pub fn page(read: &mut Reader<'_>, reference: &str) -> Result<Page, Problem> {
    let mut data = ask(read, ("task", "get"), json!({ "task": reference }))?.data;
    let id = data["id"].as_str().unwrap_or(reference).to_owned();
    let variant = data["variant"].as_str().unwrap_or(reference).to_owned();
    let versions = ask(read, ("task", "history"), json!({ "task": id }))?.data["versions"].take();
    let links = ask(read, ("link", "list"), json!({ "task": id }))?.data;
    let reports = ask(read, ("report", "list"), json!({ "task": id, "limit": 10 }))?.data;
    let runs = ask(read, ("run", "list"), json!({ "task": id, "limit": 10 }))?.data;
    let mut out = blocks_of(&data, nouns::of("task"), &["id", "title", "variant"]);
    let wake = Cell::link(format!("/wake?task={}", encoded(&variant)), "What an agent would be told");
    out.push(Block::Facts(vec![("wake".to_owned(), wake)]));
    let all = rows(&versions);
    out.push(Block::Heading("Versions, and how they went".to_owned()));
    out.push(Block::Versions(all.iter().map(|version| self::version(version, &variant)).collect()));
    out.push(Block::Heading("Links".to_owned()));
    out.push(blocks::table(
        &rows(&links),
        &["from", "type", "to", "id"],
        nouns::of("link"),
        "It is linked to no other task.",
    ));
    out.push(Block::Heading("Reports".to_owned()));
    out.push(blocks::table(
        &rows(&reports),
        &["id", "agent", "one_liner", "tldr", "current", "run_id", "created_at"],
        nouns::of("report"),
        "Nobody has reported on it yet.",
    ));
    out.push(Block::Heading("Runs".to_owned()));
    out.push(blocks::table(
        &rows(&runs),
        &["id", "agent", "status", "outcome", "started_at", "ended_at"],
        nouns::of("run"),
        "It has not been run yet.",
    ));
    let title = data["title"]
        .as_str()
        .filter(|title| !title.is_empty())
        .map_or_else(|| variant.clone(), |title| format!("{title} ({variant})"));
    data["versions"] = versions;
    data["links"] = links;
    data["reports"] = reports;
    data["runs"] = runs;
    let path = blocks::path_of("task", &variant).unwrap_or_default();
    let mut page = Page::new(path, title, data);
    page.blocks = out;
    page.live = vec![id, "link".to_owned()];
    Ok(page)
}

fn version(version: &Value, here: &str) -> Version {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let name = text(&version["variant"]);
    let edges = version["replaces"].as_array().into_iter().flatten();
    Version {
        to: blocks::path_of("task", &name).unwrap_or_default(),
        is_here: name == here,
        replaces: edges.map(|edge| (text(&edge["variant"]), text(&edge["level"]))).collect(),
        good: version["succeeded"].as_i64().unwrap_or(0),
        running: version["running"].as_i64().unwrap_or(0),
        all: version["runs"].as_i64().unwrap_or(0),
        name,
    }
}

//! A task: what is to be done, its versions and how each of them went, what it is linked to, what was reported.

use serde_json::{Value, json};
use trackway_domain::Time;
use trackway_store::Reader;

use super::ask;
use crate::{
    blocks::{self, cell},
    nouns,
    page::{Bar, Block, Page},
    problem::Problem,
};

/// Lays a task out.
pub fn page(read: &mut Reader<'_>, reference: &str, _: Time) -> Result<Page, Problem> {
    let mut data = ask(read, ("task", "get"), json!({ "task": reference }))?.data;
    let id = data["id"].as_str().unwrap_or(reference).to_owned();
    let variant = data["variant"].as_str().unwrap_or(reference).to_owned();
    let versions = ask(read, ("task", "history"), json!({ "task": id }))?.data["versions"].take();
    let links = ask(read, ("link", "list"), json!({ "task": id }))?.data;
    let reports = ask(read, ("report", "list"), json!({ "task": id, "limit": 10 }))?.data;
    let runs = ask(read, ("run", "list"), json!({ "task": id, "limit": 10 }))?.data;
    let mut out = blocks::fields(
        data.as_object().unwrap_or(&serde_json::Map::new()),
        nouns::of("task"),
        &["id", "title", "variant"],
    );
    let listed = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let all = listed(&versions);
    out.push(Block::Heading("Versions, and how they went".to_owned()));
    out.push(Block::Bars(all.iter().map(bar).collect()));
    out.push(Block::Heading("Links".to_owned()));
    out.push(blocks::table(&listed(&links), &["from", "type", "to"], None, "It is linked to no other task."));
    out.push(Block::Heading("Reports".to_owned()));
    out.push(blocks::table(
        &listed(&reports),
        &["agent", "one_liner", "tldr", "current", "run_id", "created_at"],
        None,
        "Nobody has reported on it yet.",
    ));
    out.push(Block::Heading("Runs".to_owned()));
    out.push(blocks::table(
        &listed(&runs),
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
    Ok(page)
}

fn bar(version: &Value) -> Bar {
    let (good, all) = (version["succeeded"].as_i64().unwrap_or(0), version["runs"].as_i64().unwrap_or(0));
    let replaces: Vec<String> = version["replaces"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|edge| {
            format!(
                "{} of {}",
                edge["level"].as_str().unwrap_or("replaces"),
                edge["variant"].as_str().unwrap_or_default()
            )
        })
        .collect();
    Bar { label: cell("variant", &version["variant"], None), good, all, note: replaces.join(", ") }
}

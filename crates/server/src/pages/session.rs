//! A session: its prompts, the agents it started below each other, and the evidence for each match.

use serde_json::{Value, json};
use trackway_store::Reader;

use super::{ask, blocks_of, rows};
use crate::{
    address::encoded,
    blocks::{self, cell},
    nouns,
    page::{Block, Branch, Cell, Page},
    problem::Problem,
};

/// Lays a session out.
pub fn page(read: &mut Reader<'_>, reference: &str) -> Result<Page, Problem> {
    let data = ask(read, ("session", "show"), json!({ "session": reference }))?.data;
    let id = data["id"].as_str().unwrap_or(reference).to_owned();
    let without = ["prompt", "prompts", "tree", "spawns"];
    let mut out = blocks_of(&data, nouns::of("session"), &without);
    let messages = Cell::link(format!("/messages?session={}", encoded(&id)), "all messages");
    out.push(Block::Facts(vec![("what was said".to_owned(), messages)]));
    out.push(Block::Heading("Agents it started".to_owned()));
    let tree: Vec<Branch> = rows(&data["tree"]).iter().map(branch).collect();
    out.push(if tree.is_empty() { Block::Say("None.".to_owned()) } else { Block::Tree(tree) });
    out.push(Block::Heading("Prompts".to_owned()));
    out.push(blocks::table(
        &rows(&data["prompts"]),
        &["id", "prompt", "final_message", "status", "outcome", "started_at", "ended_at"],
        nouns::of("run"),
        "None.",
    ));
    out.push(Block::Heading("Spawns and their evidence".to_owned()));
    let columns = ["tool_use_id", "subagent_type", "role", "agent_id", "evidence", "tentative", "created_at"];
    out.push(blocks::table(&rows(&data["spawns"]), &columns, None, "None."));
    let own = data["id"].as_str().unwrap_or_default().to_owned();
    let title = data["prompt"].as_str().map_or_else(|| format!("Session {}", blocks::short(&id)), ToOwned::to_owned);
    let mut page = Page::new(blocks::path_of("session", &id).unwrap_or_default(), title, data);
    page.blocks = out;
    page.live = vec![own];
    Ok(page)
}

fn branch(started: &Value) -> Branch {
    let name = ["description", "role", "agent_type", "agent_id"]
        .iter()
        .find_map(|field| started[field].as_str())
        .unwrap_or_default();
    let evidence = match (started["evidence"].as_str(), started["tentative"] == true) {
        (Some(evidence), true) => format!("matched by {evidence}, tentative"),
        (Some(evidence), false) => format!("matched by {evidence}"),
        (None, _) => "not matched".to_owned(),
    };
    let cells = vec![
        Cell::Text(name.to_owned()),
        cell("role", &started["role"], None),
        cell("run_id", &started["run_id"], None),
        cell("status", &started["status"], None),
        Cell::Text(evidence),
    ];
    Branch { cells, children: started["children"].as_array().into_iter().flatten().map(branch).collect() }
}

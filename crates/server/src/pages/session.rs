//! The page of a session: its prompts, the tree of its subagents, and the evidence for each match.

use serde_json::{Value, json};
use trackway_store::Reader;

use super::{blocks_of, query_view, rows};
use crate::{
    address::encode,
    blocks::{self, cell},
    nouns,
    page::{Block, Cell, Page, TreeNode},
    problem::Problem,
};

pub fn page(read: &mut Reader<'_>, reference: &str) -> Result<Page, Problem> {
    let data = query_view(read, ("session", "show"), json!({ "session": reference }))?.data;
    let id = data["id"].as_str().unwrap_or(reference).to_owned();
    let hidden_fields = ["prompt", "prompts", "tree", "spawns"];
    let mut out = blocks_of(&data, nouns::by_name("session"), &hidden_fields);
    let messages = Cell::link(format!("/messages?session={}", encode(&id)), "all messages");
    out.push(Block::Facts(vec![("messages".to_owned(), messages)]));
    out.push(Block::Heading("Subagents".to_owned()));
    let tree: Vec<TreeNode> = rows(&data["tree"]).iter().map(tree_node).collect();
    out.push(if tree.is_empty() { Block::Paragraph("None.".to_owned()) } else { Block::Tree(tree) });
    out.push(Block::Heading("Prompts".to_owned()));
    out.push(blocks::table(
        &rows(&data["prompts"]),
        &["id", "prompt", "final_message", "status", "outcome", "started_at", "ended_at"],
        nouns::by_name("run"),
        "None.",
    ));
    out.push(Block::Heading("Spawns and their evidence".to_owned()));
    let columns = ["tool_use_id", "subagent_type", "role", "agent_id", "evidence", "tentative", "created_at"];
    out.push(blocks::table(&rows(&data["spawns"]), &columns, None, "None."));
    let session_id = data["id"].as_str().unwrap_or_default().to_owned();
    let title = data["prompt"].as_str().map_or_else(|| format!("Session {}", blocks::short_id(&id)), ToOwned::to_owned);
    let mut page = Page::new(blocks::page_path("session", &id).unwrap_or_default(), title, data);
    page.blocks = out;
    page.live = vec![session_id];
    Ok(page)
}

fn tree_node(subagent: &Value) -> TreeNode {
    let name = ["description", "role", "agent_type", "agent_id"]
        .iter()
        .find_map(|field| subagent[field].as_str())
        .unwrap_or_default();
    let evidence = match (subagent["evidence"].as_str(), subagent["tentative"] == true) {
        (Some(evidence), true) => format!("matched by {evidence}, tentative"),
        (Some(evidence), false) => format!("matched by {evidence}"),
        (None, _) => "not matched".to_owned(),
    };
    let cells = vec![
        Cell::Text(name.to_owned()),
        cell("role", &subagent["role"], None),
        cell("run_id", &subagent["run_id"], None),
        cell("status", &subagent["status"], None),
        Cell::Text(evidence),
    ];
    TreeNode { cells, children: subagent["children"].as_array().into_iter().flatten().map(tree_node).collect() }
}

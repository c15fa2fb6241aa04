//! A board: its stickies in columns by priority, and how they relate.

use serde_json::{Value, json};
use trackway_store::Reader;

use super::{ask, blocks_of, rows};
use crate::{
    blocks, nouns,
    page::{Block, Board, Page, Relation, Stickie},
    problem::Problem,
};

const COLUMNS: [(&str, Option<&str>); 5] = [
    ("Must", Some("must")),
    ("Should", Some("should")),
    ("Could", Some("could")),
    ("Won't", Some("wont")),
    ("Not said", None),
];

/// Lays a board out.
pub fn page(read: &mut Reader<'_>, reference: &str) -> Result<Page, Problem> {
    let data = ask(read, ("board", "get"), json!({ "board": reference }))?.data;
    let id = data["id"].as_str().unwrap_or(reference).to_owned();
    let title = data["name"].as_str().map_or_else(|| format!("Board {}", blocks::short(&id)), ToOwned::to_owned);
    let path = blocks::path_of("board", data["name"].as_str().unwrap_or(&id)).unwrap_or_default();
    let stickies = rows(&data["stickies"]);
    let columns = COLUMNS.map(|(title, priority)| {
        let here = stickies.iter().filter(|stickie| stickie["priority"].as_str() == priority);
        (title, priority, here.map(stickie).collect())
    });
    let relations = rows(&data["relations"]).iter().map(relation).collect();
    let without = ["id", "name", "stickies", "relations", "stickie_count", "edit_count", "changed_at"];
    let mut out = blocks_of(&data, nouns::of("board"), &without);
    out.push(Block::Board(Board { path: path.clone(), columns: columns.to_vec(), relations }));
    let mut page = Page::new(path, title, data);
    page.blocks = out;
    page.live = ["board", "stickie"].map(ToOwned::to_owned).to_vec();
    Ok(page)
}

fn stickie(stickie: &Value) -> Stickie {
    let text = |field: &str| stickie[field].as_str().filter(|text| !text.trim().is_empty()).map(ToOwned::to_owned);
    let id = text("id").unwrap_or_default();
    Stickie {
        title: text("name").unwrap_or_else(|| blocks::short(&id).to_owned()),
        note: text("note"),
        code: text("code"),
        labels: stickie["labels"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .map(ToOwned::to_owned)
            .collect(),
        score: stickie["score"].as_f64(),
        id,
    }
}

fn relation(relation: &Value) -> Relation {
    let text = |field: &str| relation[field].as_str().unwrap_or_default().to_owned();
    Relation { from: text("from_id"), to: text("to_id"), name: text("type") }
}

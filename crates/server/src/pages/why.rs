//! Why a thing is there: the chain from it to the person who answers for it, drawn.

use serde_json::{Value, json};
use trackway_domain::Time;
use trackway_store::Reader;

use super::ask;
use crate::{
    blocks, input,
    page::{Block, Hop, Page},
    problem::Problem,
};

/// Lays the chain out; without a thing, says how to ask.
pub fn page(read: &mut Reader<'_>, query: &str, _: Time) -> Result<Page, Problem> {
    let Some((_, of)) = input::pairs(query).find(|(name, value)| name == "of" && !value.is_empty()) else {
        let mut page = Page::new("/why", "Why is this here?", Value::Null);
        page.blocks.push(Block::Say("Ask about a file, a line, a commit, a note, a run, a task: `/why?of=src/main.rs`, `/why?of=src/main.rs:12`, `/why?of=ID`.".to_owned()));
        return Ok(page);
    };
    let data = ask(read, ("", "why"), json!({ "thing": of }))?.data;
    let mut hops: Vec<Hop> = data["chain"].as_array().into_iter().flatten().map(hop).collect();
    hops.extend(data["missing"].as_array().into_iter().flatten().filter_map(Value::as_str).map(|kind| Hop {
        kind: kind.to_owned(),
        label: String::new(),
        to: None,
        is_missing: true,
    }));
    let mut page = Page::new("/why", format!("Why {of}"), data);
    page.blocks.push(Block::Say("From the thing to the person who answers for it.".to_owned()));
    page.blocks.push(Block::Chain(hops));
    if page.data["deleted"] == true {
        page.blocks.push(Block::Say("It has been deleted since.".to_owned()));
    }
    if page.data["changed_since"] == true {
        page.blocks.push(Block::Say("The file has changed since its last recorded change.".to_owned()));
    }
    if let Some(line) = page.data.get("line").and_then(Value::as_object) {
        let fit = line.get("fit").and_then(Value::as_str).unwrap_or_default();
        page.blocks.push(Block::Say(format!("The line is {fit}.")));
    }
    let touched = page.data["touched_by"].as_array().cloned().unwrap_or_default();
    if !touched.is_empty() {
        page.blocks.push(Block::Heading("Every run that touched it".to_owned()));
        page.blocks.push(blocks::table(&touched, &["run_id", "action_type", "times", "first_at", "last_at"], None, ""));
    }
    Ok(page)
}

fn hop(hop: &Value) -> Hop {
    let text = |field: &str| hop[field].as_str().unwrap_or_default().to_owned();
    let (kind, id) = (text("kind"), text("id"));
    Hop { to: blocks::path_of(&kind, &id), label: text("label"), kind, is_missing: false }
}

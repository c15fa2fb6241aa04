//! A decision and how it stands.

use serde_json::{Value, json};
use trackway_store::Reader;

use super::{ask, blocks_of, rows};
use crate::{
    blocks, nouns,
    page::{Bar, Block, Cell, Page},
    problem::Problem,
};

/// Votes on the page.
const VOTES: usize = 100;

/// Lays a decision out.
pub fn page(read: &mut Reader<'_>, reference: &str) -> Result<Page, Problem> {
    let data = ask(read, ("decision", "show"), json!({ "decision": reference }))?.data;
    let id = data["id"].as_str().unwrap_or(reference).to_owned();
    let question = data["question"].as_str().unwrap_or_default().to_owned();
    let mut out = blocks_of(&data, nouns::of("decision"), &["id", "question", "results", "votes"]);
    out.push(Block::Heading("Results".to_owned()));
    let bars: Vec<Bar> = data["results"].as_array().into_iter().flatten().map(bar).collect();
    out.push(if bars.is_empty() {
        Block::Say("It has no options yet: `add_options` adds some.".to_owned())
    } else {
        Block::Bars(bars)
    });
    let votes = rows(&data["votes"]);
    if !votes.is_empty() {
        out.push(Block::Heading("Votes".to_owned()));
        out.push(blocks::table(&votes[..votes.len().min(VOTES)], blocks::columns_below("votes"), None, ""));
        if votes.len() > VOTES {
            out.push(Block::Say(format!("The first {VOTES} votes. The results count all of them.")));
        }
    }
    let mut page = Page::new(format!("/decisions/{id}"), question, data);
    page.blocks = out;
    page.live = vec![id, "option".to_owned(), "vote".to_owned()];
    Ok(page)
}

fn bar(result: &Value) -> Bar {
    let (accepted, preferred) = (result["accepted"].as_i64().unwrap_or(0), result["preferred"].as_i64().unwrap_or(0));
    Bar {
        label: Cell::Text(result["option"].as_str().unwrap_or_default().to_owned()),
        good: preferred,
        all: accepted,
        note: format!("accepted by {accepted}, preferred by {preferred}"),
    }
}

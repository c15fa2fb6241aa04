//! The page of a decision: its options, results and votes.

use serde_json::{Value, json};
use trackway_store::Reader;

use super::{blocks_of, query_view, rows};
use crate::{
    blocks, nouns,
    page::{Bar, Block, Cell, Page},
    problem::Problem,
};

/// Maximum number of votes on the page.
const VOTES_MAX: usize = 100;

pub fn page(read: &mut Reader<'_>, reference: &str) -> Result<Page, Problem> {
    let data = query_view(read, ("decision", "show"), json!({ "decision": reference }))?.data;
    let id = data["id"].as_str().unwrap_or(reference).to_owned();
    let question = data["question"].as_str().unwrap_or_default().to_owned();
    let mut out = blocks_of(&data, nouns::by_name("decision"), &["id", "question", "results", "votes"]);
    out.push(Block::Heading("Results".to_owned()));
    let bars: Vec<Bar> = data["results"].as_array().into_iter().flatten().map(bar).collect();
    out.push(if bars.is_empty() {
        Block::Paragraph("No options yet. Add some with `add_options`.".to_owned())
    } else {
        Block::Bars(bars)
    });
    let votes = rows(&data["votes"]);
    if !votes.is_empty() {
        out.push(Block::Heading("Votes".to_owned()));
        out.push(blocks::table(&votes[..votes.len().min(VOTES_MAX)], blocks::nested_columns("votes"), None, ""));
        if votes.len() > VOTES_MAX {
            out.push(Block::Paragraph(format!(
                "Only the first {VOTES_MAX} votes are shown. The results count all votes."
            )));
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
        highlighted: preferred,
        total: accepted,
        note: format!("accepted by {accepted}, preferred by {preferred}"),
    }
}

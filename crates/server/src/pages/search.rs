//! Searching what was said.

use serde_json::Value;
use trackway_domain::Time;
use trackway_store::Reader;

use super::{asked, next, question};
use crate::{
    blocks, input, nouns,
    page::{Block, Page},
    problem::Problem,
};

/// Lays the hits out, best first.
pub fn page(read: &mut Reader<'_>, query: &str, now: Time) -> Result<Page, Problem> {
    let words: Vec<String> = input::pairs(query)
        .filter(|(name, value)| name == "words" && !value.is_empty())
        .map(|(_, value)| value)
        .collect();
    if words.is_empty() {
        let mut page = Page::new("/search", "Search", Value::Array(Vec::new()));
        page.blocks.push(Block::Ask { to: "/search", field: "words", label: "Words, phrases and prefixes*" });
        page.blocks
            .push(Block::Say("`/search?words=WORDS` searches messages: words, \"phrases\" and prefixes*.".to_owned()));
        return Ok(page);
    }
    let answer = asked(read, question(("", "search"))?, query, now)?;
    let mut page = Page::new("/search", format!("Search: {}", words.join(" ")), answer.data);
    let rows = page.data.as_array().cloned().unwrap_or_default();
    page.blocks.push(blocks::table(
        &rows,
        &["message_id", "snippet", "from", "role", "created_at"],
        nouns::of("message"),
        "Nothing was found.",
    ));
    page.blocks.extend(answer.remarks.into_iter().map(Block::Say));
    page.next = next("/search", query, answer.more.as_deref());
    Ok(page)
}

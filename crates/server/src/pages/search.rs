//! Searching what was said.

use serde_json::Value;
use trackway_domain::Time;
use trackway_store::Reader;

use super::{Fitting, fitting, next, question};
use crate::{
    blocks,
    input::{self, Empty},
    nouns,
    page::{Block, Page},
    problem::Problem,
    schemas,
};

/// What a search can be kept to from a page.
const WITHIN: &[&str] = &["conversation", "session", "experiment", "task", "agent"];

/// What is said when there are no hits.
const EMPTY: &str = "No message says that. Messages are what is searched: prompts, answers, what was sent. `word*` finds what begins so; tasks and notes have lists of their own.";

/// Lays the hits out, best first.
pub fn page(read: &mut Reader<'_>, query: &str, now: Time, most: Option<i64>) -> Result<Page, Problem> {
    let words: Vec<String> = input::pairs(query)
        .filter(|(name, value)| name == "words" && !value.is_empty())
        .map(|(_, value)| value)
        .collect();
    let within = |(field, value): (String, String)| {
        let field = WITHIN.iter().find(|known| **known == field)?;
        Some((*field, value))
    };
    let ask = Block::Ask {
        to: "/search",
        field: "words",
        label: "Words, phrases and prefixes*",
        said: words.join(" "),
        within: input::pairs(query).find_map(within),
    };
    let entry = question(("", "search"))?;
    if words.is_empty() {
        input::from_pairs(schemas::of_question(entry), input::pairs(query), Empty::LeftOut)?;
        let mut page = Page::new("/search", "Search", Value::Array(Vec::new()));
        page.blocks = vec![
            ask,
            Block::Say("`/search?words=WORDS` searches messages: words, \"phrases\" and prefixes*.".to_owned()),
        ];
        return Ok(page);
    }
    let table = |rows: &[Value]| {
        blocks::table(
            rows,
            &["message_id", "snippet", "from", "run_id", "role", "created_at"],
            nouns::of("message"),
            EMPTY,
        )
    };
    let fitting = fitting(read, entry, query, now, most, &table).map_err(|problem| problem.asking(ask.clone()))?;
    let Fitting { answer, table, .. } = fitting;
    let mut page = Page::new("/search", format!("Search: {}", words.join(" ")), answer.data);
    page.blocks.push(ask);
    page.blocks.push(table);
    page.blocks.extend(answer.remarks.into_iter().map(Block::Say));
    page.next = next("/search", query, answer.more.as_deref());
    Ok(page)
}

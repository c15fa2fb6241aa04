//! The search page.

use serde_json::Value;
use trackway_domain::Time;
use trackway_store::Reader;

use super::{FittedList, next, query_fitting_list, view_entry};
use crate::{
    blocks,
    input::{self, EmptyText},
    nouns,
    page::{Block, Page},
    problem::Problem,
    schemas,
};

/// Parameters that narrow a search.
const SCOPES: &[&str] = &["conversation", "session", "experiment", "task", "agent"];

const EMPTY_TEXT: &str = "No matching messages. The search covers only messages: prompts, answers and sent messages. `word*` matches all words with that beginning. Tasks and notes have lists of their own.";

/// Builds the page, with the best matches first.
pub fn page(read: &mut Reader<'_>, query: &str, now: Time, max_rows: Option<i64>) -> Result<Page, Problem> {
    let words: Vec<String> = input::pairs(query)
        .filter(|(name, value)| name == "words" && !value.is_empty())
        .map(|(_, value)| value)
        .collect();
    let scope = |(field, value): (String, String)| {
        let field = SCOPES.iter().find(|known| **known == field)?;
        Some((*field, value))
    };
    let form = Block::SearchForm {
        path: "/search",
        field: "words",
        label: "Words, phrases and prefixes*",
        value: words.join(" "),
        scope: input::pairs(query).find_map(scope),
    };
    let entry = view_entry(("", "search"))?;
    if words.is_empty() {
        input::parse_pairs(schemas::of_view(entry), input::pairs(query), EmptyText::Omitted)?;
        let mut page = Page::new("/search", "Search", Value::Array(Vec::new()));
        page.blocks = vec![
            form,
            Block::Paragraph(
                "`/search?words=WORDS` searches messages for words, \"phrases\" and prefixes*.".to_owned(),
            ),
        ];
        return Ok(page);
    }
    let table = |rows: &[Value]| {
        blocks::table(
            rows,
            &["message_id", "snippet", "from", "run_id", "role", "created_at"],
            nouns::by_name("message"),
            EMPTY_TEXT,
        )
    };
    let fitted = query_fitting_list(read, entry, query, now, max_rows, &table)
        .map_err(|problem| problem.with_form(form.clone()))?;
    let FittedList { answer, table, .. } = fitted;
    let mut page = Page::new("/search", format!("Search: {}", words.join(" ")), answer.data);
    page.blocks.push(form);
    page.blocks.push(table);
    page.blocks.extend(answer.remarks.into_iter().map(Block::Paragraph));
    page.next = next("/search", query, answer.next_page.as_deref());
    Ok(page)
}

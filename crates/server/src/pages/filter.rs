//! What a list can be kept to, from the parameters of its question.

use trackway_views::registry::Entry;

use crate::{
    input,
    page::{Block, FilterField},
    schemas,
};

/// The parameters that are offered, in this order.
const OFFERED: &[&str] = &["status", "agent", "task", "role", "workflow", "studio"];

/// The filter of a list, when its question has parameters to filter by.
pub fn of(entry: &Entry, path: &str, query: &str) -> Option<Block> {
    among(entry, path, query, OFFERED)
}

/// The filter with the parameters that are named.
pub fn among(entry: &Entry, path: &str, query: &str, offered: &[&'static str]) -> Option<Block> {
    let schema = schemas::of_question(entry);
    let known = input::fields(schema)?;
    let choices = |field: &serde_json::Value| match field["type"].as_str() {
        Some("boolean") => vec!["true".to_owned()],
        _ => input::choices(field, schema).unwrap_or_default(),
    };
    let field = |name: &&'static str| {
        Some(FilterField {
            name,
            choices: choices(known.get(*name)?),
            value: input::pairs(query).find(|(given, _)| given == name).map(|(_, value)| value).unwrap_or_default(),
        })
    };
    let fields: Vec<FilterField> = offered.iter().filter_map(field).collect();
    (!fields.is_empty()).then(|| Block::Filter { path: path.to_owned(), fields })
}

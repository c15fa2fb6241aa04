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
    let schema = schemas::of_question(entry);
    let known = input::fields(schema)?;
    let field = |name: &&'static str| {
        Some(FilterField {
            name,
            choices: input::choices(known.get(*name)?, schema).unwrap_or_default(),
            value: input::pairs(query).find(|(given, _)| given == name).map(|(_, value)| value).unwrap_or_default(),
        })
    };
    let fields: Vec<FilterField> = OFFERED.iter().filter_map(field).collect();
    (!fields.is_empty()).then(|| Block::Filter { path: path.to_owned(), fields })
}

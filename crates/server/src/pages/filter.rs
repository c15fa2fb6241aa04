//! Filter forms for lists, made from the parameters of their views.

use trackway_views::registry::ViewEntry;

use crate::{
    input,
    page::{Block, FilterField},
    schemas,
};

/// The parameters that the filter of a list offers, in this order.
const FILTER_PARAMETERS: &[&str] = &["status", "agent", "task", "role", "workflow", "studio"];

/// The filter form of a list. None if its view has no such parameters.
pub fn list_filter(entry: &ViewEntry, path: &str, query: &str) -> Option<Block> {
    with_parameters(entry, path, query, FILTER_PARAMETERS)
}

/// A filter form with these parameters.
pub fn with_parameters(entry: &ViewEntry, path: &str, query: &str, parameters: &[&'static str]) -> Option<Block> {
    let schema = schemas::of_view(entry);
    let schema_fields = input::fields(schema)?;
    let choices = |field: &serde_json::Value| match field["type"].as_str() {
        Some("boolean") => vec!["true".to_owned()],
        _ => input::allowed_values(field, schema).unwrap_or_default(),
    };
    let field = |name: &&'static str| {
        Some(FilterField {
            name,
            choices: choices(schema_fields.get(*name)?),
            value: input::pairs(query).find(|(given, _)| given == name).map(|(_, value)| value).unwrap_or_default(),
        })
    };
    let fields: Vec<FilterField> = parameters.iter().filter_map(field).collect();
    (!fields.is_empty()).then(|| Block::Filter { path: path.to_owned(), fields })
}

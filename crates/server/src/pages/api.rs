//! The page of the API: all actions and views by name.

use serde_json::{Value, json};
use trackway_views::registry::VIEWS;

use crate::{
    input,
    offers::{self, Caller},
    page::{Block, Cell, Page, Table},
    schemas,
};

/// Builds the page. Each action links to its own page, whose form executes it.
pub fn page(caller: &Caller) -> Page {
    let mut page = Page::new("/api", "API", json!({ "openapi": "/api/openapi.json" }));
    page.blocks.push(Block::Paragraph(
        "Every page is available as JSON, Markdown and HTML. In addition, every view is `GET /api/v1/NOUN/VERB` and every action is `POST /api/v1/actions/NAME`, with `Authorization: Bearer TOKEN`."
            .to_owned(),
    ));
    page.blocks
        .push(Block::Facts(vec![("OpenAPI 3.1".to_owned(), Cell::link("/api/openapi.json", "/api/openapi.json"))]));
    page.blocks.push(Block::Heading("Actions".to_owned()));
    page.blocks.push(table(offers::http_actions().filter(|action| caller.may(action)).map(|action| {
        let schema = schemas::of_action(action);
        (Cell::link(format!("/whoami/actions/{}", action.name), action.name), schema)
    })));
    page.blocks.push(Block::Heading("Views".to_owned()));
    page.blocks.push(table(VIEWS.iter().map(|view| {
        let (noun, verb) = view.command;
        let path = if noun.is_empty() { verb.to_owned() } else { format!("{noun}/{verb}") };
        let schema = schemas::of_view(view);
        // A view with required parameters gets no link, because it would only answer with an error.
        let is_linkable = input::required(schema).is_empty();
        let name = if is_linkable { Cell::link(format!("/api/v1/{path}"), path) } else { Cell::Code(path) };
        (name, schema)
    })));
    page
}

fn table(rows: impl Iterator<Item = (Cell, &'static schemars::Schema)>) -> Block {
    let rows = rows
        .map(|(name, schema)| {
            let required = input::required(schema);
            let names = input::fields(schema)
                .into_iter()
                .flatten()
                .map(|(field, _)| if required.contains(&field.as_str()) { format!("{field}!") } else { field.clone() });
            let description = schema.get("description").and_then(Value::as_str).unwrap_or_default();
            let summary = description.lines().next().unwrap_or_default();
            vec![name, Cell::Text(summary.to_owned()), Cell::Text(names.collect::<Vec<_>>().join(", "))]
        })
        .collect();
    let columns = ["name", "description", "parameters (! = required)"].map(ToOwned::to_owned).to_vec();
    Block::Table(Table { columns, rows, empty_text: String::new() })
}

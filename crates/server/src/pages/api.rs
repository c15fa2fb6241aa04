//! Everything that can be asked and done by name, to read and to try.

use serde_json::{Value, json};
use trackway_views::registry::VIEWS;

use crate::{
    input,
    offers::{self, Caller},
    page::{Block, Cell, Page, Table},
    schemas,
};

/// Lays the interface out. An action is tried on its own page, which has a form.
pub fn page(caller: &Caller) -> Page {
    let mut page = Page::new("/api", "API", json!({ "openapi": "/api/openapi.json" }));
    page.blocks.push(Block::Say(
        "Every page is there as JSON, Markdown and HTML. Beside that, every question is `GET /api/v1/NOUN/VERB` and every action `POST /api/v1/actions/NAME` with `Authorization: Bearer TOKEN`."
            .to_owned(),
    ));
    page.blocks
        .push(Block::Facts(vec![("OpenAPI 3.1".to_owned(), Cell::link("/api/openapi.json", "/api/openapi.json"))]));
    page.blocks.push(Block::Heading("Actions".to_owned()));
    page.blocks.push(table(offers::all().filter(|action| caller.may(action)).map(|action| {
        let schema = schemas::of_action(action);
        (Cell::link(format!("/whoami/actions/{}", action.name), action.name), schema)
    })));
    page.blocks.push(Block::Heading("Questions".to_owned()));
    page.blocks.push(table(VIEWS.iter().map(|view| {
        let (noun, verb) = view.command;
        let path = if noun.is_empty() { verb.to_owned() } else { format!("{noun}/{verb}") };
        let schema = schemas::of_question(view);
        // What needs parameters answers nothing but that.
        let is_whole = input::required(schema).is_empty();
        let name = if is_whole { Cell::link(format!("/api/v1/{path}"), path) } else { Cell::Code(path) };
        (name, schema)
    })));
    page
}

fn table(rows: impl Iterator<Item = (Cell, &'static schemars::Schema)>) -> Block {
    let rows = rows
        .map(|(name, schema)| {
            let needed = input::required(schema);
            let names = input::fields(schema)
                .into_iter()
                .flatten()
                .map(|(field, _)| if needed.contains(&field.as_str()) { format!("{field}!") } else { field.clone() });
            let said = schema.get("description").and_then(Value::as_str).unwrap_or_default();
            let said = said.lines().next().unwrap_or_default();
            vec![name, Cell::Text(said.to_owned()), Cell::Text(names.collect::<Vec<_>>().join(", "))]
        })
        .collect();
    let columns = ["name", "what it does", "parameters (! is needed)"].map(ToOwned::to_owned).to_vec();
    Block::Table(Table { columns, rows, empty: String::new() })
}

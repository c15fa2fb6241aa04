//! The pages of the current and the next version of a task.

use serde_json::Value;
use trackway_domain::{Error as Rule, ErrorKind, Time};
use trackway_store::{Error, Reader};

use trackway_views::task::PATH_MAX;

use super::{ViewQuery, filter, query_view_from_url, rows, view_entry};
use crate::{
    address::encode,
    blocks, input,
    page::{Block, Cell, Page, Table},
    problem::Problem,
};

/// The page for `task latest`. Without a task, it is a form that asks for one.
pub fn latest(read: &mut Reader<'_>, query: &str, now: Time) -> Result<Page, Problem> {
    let entry = view_entry(("task", "latest"))?;
    let reference = parameter(query, &["variant", "id"]);
    let form = Block::SearchForm {
        path: "/latest",
        field: "variant",
        label: "Any version of a task",
        value: reference.clone().unwrap_or_default(),
        scope: None,
    };
    if reference.is_none() {
        input::reject_unknown(query, &["variant", "id"])?;
        let mut page = Page::new("/latest", "Current version", Value::Null);
        page.blocks.push(form);
        return Ok(page);
    }
    if ["variant", "id"].iter().all(|name| parameter(query, &[name]).is_some()) {
        return Err(Problem::from(Rule::usage("give variant or id, not both")).with_form(form));
    }
    let answer = query_view_from_url(read, entry, query, now, None).map_err(|problem| problem.with_form(form))?;
    let variant = answer.data["variant"].as_str().unwrap_or_default().to_owned();
    let mut page = Page::new("/latest", format!("Current version: {variant}"), answer.data);
    let path = rows(&page.data["path"]);
    page.blocks.push(Block::Facts(vec![("current version".to_owned(), task_link(&variant))]));
    let heading = if path.len() < PATH_MAX { "Path".to_owned() } else { format!("Path: the last {PATH_MAX} steps") };
    page.blocks.push(Block::Heading(heading));
    page.blocks.push(Block::Table(Table {
        columns: vec!["step".to_owned(), "version".to_owned()],
        rows: (1..)
            .zip(&path)
            .map(|(step, version): (usize, _)| {
                vec![Cell::Number(step.to_string()), task_link(version.as_str().unwrap_or_default())]
            })
            .collect(),
        empty_text: String::new(),
    }));
    page.live = vec!["task".to_owned()];
    Ok(page)
}

/// The page for `task next`. Without a task, it is a form that asks for one. The default level is `any`.
pub fn next(read: &mut Reader<'_>, query: &str, now: Time) -> Result<Page, Problem> {
    let entry = view_entry(("task", "next"))?;
    let reference = parameter(query, &["id"]);
    let form = Block::SearchForm {
        path: "/next",
        field: "id",
        label: "A version of a task",
        value: reference.clone().unwrap_or_default(),
        scope: None,
    };
    let Some(from) = reference else {
        input::reject_unknown(query, &["id", "level"])?;
        let mut page = Page::new("/next", "Next version", Value::Null);
        page.blocks.push(form);
        return Ok(page);
    };
    let with_level = match parameter(query, &["level"]) {
        Some(_) => query.to_owned(),
        None => form_urlencoded::Serializer::new(String::new())
            .extend_pairs(input::pairs(query).filter(|(name, _)| name != "level"))
            .append_pair("level", "any")
            .finish(),
    };
    let answer = query_view_from_url(read, entry, &with_level, now, None).map_err(|problem| problem.with_form(form))?;
    let variant = answer.data["variant"].as_str().unwrap_or_default().to_owned();
    let mut page = Page::new("/next", format!("Next version: {variant}"), answer.data);
    page.blocks.extend(filter::with_parameters(entry, &page.path, &with_level, &["id", "level"]));
    page.blocks.push(Block::Facts(vec![
        ("from".to_owned(), task_link(&from)),
        ("next version".to_owned(), task_link(&variant)),
        ("level".to_owned(), blocks::cell("level", &page.data["level"], None)),
    ]));
    page.live = vec!["task".to_owned()];
    Ok(page)
}

/// Makes a query answer null instead of "not found".
pub fn null_if_not_found(query: ViewQuery<'_>) -> ViewQuery<'_> {
    Box::new(move |read| match query(read) {
        Err(Error::Rule(rule)) if rule.kind == ErrorKind::NotFound => Ok(Value::Null),
        answer => answer,
    })
}

/// The facts of a task's page that link to its current and its next version, if there are any.
pub fn facts(variant: &str, latest: &Value, next: &Value) -> Vec<(String, Cell)> {
    let encoded = encode(variant);
    let current = latest["variant"].as_str().map(|current| {
        let text = if current == variant { "this one" } else { current };
        ("current version".to_owned(), Cell::link(format!("/latest?variant={encoded}"), text))
    });
    let next = next["variant"]
        .as_str()
        .map(|next| ("next version".to_owned(), Cell::link(format!("/next?id={encoded}&level=any"), next)));
    current.into_iter().chain(next).collect()
}

fn parameter(query: &str, names: &[&str]) -> Option<String> {
    input::pairs(query)
        .find(|(name, value)| names.contains(&name.as_str()) && !value.trim().is_empty())
        .map(|(_, value)| value)
}

fn task_link(variant: &str) -> Cell {
    match blocks::page_path("task", variant) {
        Some(href) => Cell::link(href, variant),
        None => Cell::Text(variant.to_owned()),
    }
}

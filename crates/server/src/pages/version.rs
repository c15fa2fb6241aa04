//! Which version of a task is the current one, and which comes next.

use serde_json::Value;
use trackway_domain::{Error as Rule, ErrorKind, Time};
use trackway_store::{Error, Reader};

use trackway_views::task::PATH_MAX;

use super::{Asked, asked, filter, question, rows};
use crate::{
    address::encoded,
    blocks, input,
    page::{Block, Cell, Page, Table},
    problem::Problem,
};

/// Lays out the answer of `task latest`; without a task, asks for one.
pub fn latest(read: &mut Reader<'_>, query: &str, now: Time) -> Result<Page, Problem> {
    let entry = question(("task", "latest"))?;
    let said = given(query, &["variant", "id"]);
    let ask = Block::Ask {
        to: "/latest",
        field: "variant",
        label: "Any version of a task",
        said: said.clone().unwrap_or_default(),
        within: None,
    };
    if said.is_none() {
        input::none_but(query, &["variant", "id"])?;
        let mut page = Page::new("/latest", "Current version", Value::Null);
        page.blocks.push(ask);
        return Ok(page);
    }
    if ["variant", "id"].iter().all(|name| given(query, &[name]).is_some()) {
        return Err(Problem::from(Rule::usage("give variant or id, not both")).asking(ask));
    }
    let answer = asked(read, entry, query, now, None).map_err(|problem| problem.asking(ask))?;
    let variant = answer.data["variant"].as_str().unwrap_or_default().to_owned();
    let mut page = Page::new("/latest", format!("Current version: {variant}"), answer.data);
    let path = rows(&page.data["path"]);
    page.blocks.push(Block::Facts(vec![("current version".to_owned(), task(&variant))]));
    let heading = if path.len() < PATH_MAX { "Path".to_owned() } else { format!("Path: the last {PATH_MAX} steps") };
    page.blocks.push(Block::Heading(heading));
    page.blocks.push(Block::Table(Table {
        columns: vec!["step".to_owned(), "version".to_owned()],
        rows: (1..)
            .zip(&path)
            .map(|(step, version): (usize, _)| {
                vec![Cell::Number(step.to_string()), task(version.as_str().unwrap_or_default())]
            })
            .collect(),
        empty: String::new(),
    }));
    page.live = vec!["task".to_owned()];
    Ok(page)
}

/// Lays out the answer of `task next`; without a task, asks for one. Without a level, it is `any`.
pub fn next(read: &mut Reader<'_>, query: &str, now: Time) -> Result<Page, Problem> {
    let entry = question(("task", "next"))?;
    let said = given(query, &["id"]);
    let ask = Block::Ask {
        to: "/next",
        field: "id",
        label: "A version of a task",
        said: said.clone().unwrap_or_default(),
        within: None,
    };
    let Some(from) = said else {
        input::none_but(query, &["id", "level"])?;
        let mut page = Page::new("/next", "Next version", Value::Null);
        page.blocks.push(ask);
        return Ok(page);
    };
    let with_level = match given(query, &["level"]) {
        Some(_) => query.to_owned(),
        None => form_urlencoded::Serializer::new(String::new())
            .extend_pairs(input::pairs(query).filter(|(name, _)| name != "level"))
            .append_pair("level", "any")
            .finish(),
    };
    let answer = asked(read, entry, &with_level, now, None).map_err(|problem| problem.asking(ask))?;
    let variant = answer.data["variant"].as_str().unwrap_or_default().to_owned();
    let mut page = Page::new("/next", format!("Next version: {variant}"), answer.data);
    page.blocks.extend(filter::among(entry, &page.path, &with_level, &["id", "level"]));
    page.blocks.push(Block::Facts(vec![
        ("from".to_owned(), task(&from)),
        ("next version".to_owned(), task(&variant)),
        ("level".to_owned(), blocks::cell("level", &page.data["level"], None)),
    ]));
    page.live = vec!["task".to_owned()];
    Ok(page)
}

/// A question of the registry whose answer may be that there is none.
pub fn if_found(asked: Asked<'_>) -> Asked<'_> {
    Box::new(move |read| match asked(read) {
        Err(Error::Rule(rule)) if rule.kind == ErrorKind::NotFound => Ok(Value::Null),
        answer => answer,
    })
}

/// The links of a task's page to its current and its next version, where there are any.
pub fn facts(variant: &str, latest: &Value, next: &Value) -> Vec<(String, Cell)> {
    let to = encoded(variant);
    let current = latest["variant"].as_str().map(|current| {
        let text = if current == variant { "this one" } else { current };
        ("current version".to_owned(), Cell::link(format!("/latest?variant={to}"), text))
    });
    let next = next["variant"]
        .as_str()
        .map(|next| ("next version".to_owned(), Cell::link(format!("/next?id={to}&level=any"), next)));
    current.into_iter().chain(next).collect()
}

fn given(query: &str, names: &[&str]) -> Option<String> {
    input::pairs(query)
        .find(|(name, value)| names.contains(&name.as_str()) && !value.trim().is_empty())
        .map(|(_, value)| value)
}

fn task(variant: &str) -> Cell {
    match blocks::path_of("task", variant) {
        Some(to) => Cell::link(to, variant),
        None => Cell::Text(variant.to_owned()),
    }
}

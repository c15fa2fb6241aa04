//! A board: its stickies in columns by priority, and how they relate. Of a large one the page shows what changed last, and
//! each column has a page of its own.

use std::collections::HashSet;

use serde_json::{Value, json};
use trackway_domain::{Error as Rule, text};
use trackway_store::Reader;

use super::{ask, blocks_of, rows};
use crate::{
    blocks::{self, cell, grouped},
    board::COLUMNS,
    input, nouns,
    page::{Block, Board, Column, Page, Relation, Stickie},
    problem::Problem,
};

/// Stickies on a page. Where there are more, each column shows a few.
const STICKIES: usize = 50;
const STICKIES_OF_COLUMN: usize = STICKIES / COLUMNS.len();
/// Relations on a page.
const RELATIONS: usize = 30;
/// Characters of what one says, and of its title, and labels that are shown.
const SAID: usize = 600;
const TITLE: usize = 80;
const LABELS: usize = 6;

/// What the page of a board can be asked for.
const ASKED: &[&str] = &["column", "from"];

/// Lays a board out. `?column=must` shows one column, `&from=51` from that stickie on.
pub fn page(read: &mut Reader<'_>, reference: &str, query: &str) -> Result<Page, Problem> {
    input::none_but(query, ASKED)?;
    let asked = |name: &str| input::pairs(query).find(|(given, value)| given == name && !value.is_empty());
    let from = asked("from").map(|(name, value)| input::whole(&name, &value)).transpose()?;
    let from = usize::try_from(from.unwrap_or(1)).unwrap_or(1).max(1) - 1;
    let wanted = asked("column").map(|(_, word)| named(&word)).transpose()?;
    let data = ask(read, ("board", "get"), json!({ "board": reference }))?.data;
    let id = data["id"].as_str().unwrap_or(reference).to_owned();
    let title = data["name"].as_str().map_or_else(|| format!("Board {}", blocks::short(&id)), ToOwned::to_owned);
    let path = blocks::path_of("board", data["name"].as_str().unwrap_or(&id)).unwrap_or_default();
    let stickies = rows(&data["stickies"]);
    let columns: Vec<Column> = COLUMNS
        .iter()
        .filter(|(_, priority)| wanted.is_none_or(|wanted| wanted == *priority))
        .map(|&(title, priority)| {
            let all: Vec<&Value> = stickies.iter().filter(|stickie| stickie["priority"].as_str() == priority).collect();
            let (shown, along) = match wanted {
                Some(_) => part(&all, from, &path, priority),
                None => newest(&all, stickies.len(), &path, priority),
            };
            let stickies = shown.into_iter().map(stickie).collect();
            Column { title, priority, stickies, all: all.len(), along }
        })
        .collect();
    let relations = rows(&data["relations"]);
    let drawn = relations_between(&columns, &relations);
    let mut page = Page::new(path.clone(), title, data);
    if wanted.is_none() {
        let without = ["id", "name", "stickies", "relations", "stickie_count", "edit_count", "changed_at"];
        page.blocks = blocks_of(&page.data, nouns::of("board"), &without);
    } else {
        let links = vec![("the whole board".to_owned(), path.clone())];
        page.blocks.push(Block::Along { said: "One column of it.".to_owned(), links });
    }
    let rest = relations.len() - drawn.len();
    page.blocks.push(Block::Board(Board { path: own_path(&path, &id), columns, relations: drawn }));
    if rest > 0 {
        let number = grouped(i64::try_from(rest).unwrap_or(i64::MAX));
        page.blocks.push(Block::Say(format!(
            "{number} of its relations are not drawn here; the page of a stickie has all of its own."
        )));
    }
    page.live = ["board", "stickie"].map(ToOwned::to_owned).to_vec();
    Ok(page)
}

/// Where a form leads back to: a long name is not written again on every stickie.
fn own_path(path: &str, id: &str) -> String {
    let by_id = format!("/boards/{id}");
    if path.len() > 2 * by_id.len() { by_id } else { path.to_owned() }
}

/// The priority of a column that is asked for.
fn named(word: &str) -> Result<Option<&'static str>, Problem> {
    let known = COLUMNS.iter().find(|(_, priority)| priority.unwrap_or(NONE) == word);
    let known = known.ok_or_else(|| {
        let words: Vec<&str> = COLUMNS.iter().map(|(_, priority)| priority.unwrap_or(NONE)).collect();
        Rule::usage(format!("there is no column {word:?}")).hint(format!("one of {}", words.join(", ")))
    })?;
    Ok(known.1)
}

/// How the column of those without a priority is asked for.
const NONE: &str = "none";

type Part<'a> = (Vec<&'a Value>, Option<(String, Vec<(String, String)>)>);

/// Of a board with many stickies those of a column that changed last, so that one that was just moved is there.
fn newest<'a>(all: &[&'a Value], on_board: usize, path: &str, priority: Option<&str>) -> Part<'a> {
    if on_board <= STICKIES || all.len() <= STICKIES_OF_COLUMN {
        return (all.to_vec(), None);
    }
    let mut places: Vec<usize> = (0..all.len()).collect();
    places.sort_by_key(|&place| std::cmp::Reverse((all[place]["updated_at"].as_str(), place)));
    places.truncate(STICKIES_OF_COLUMN);
    places.sort_unstable();
    let said = format!("The {STICKIES_OF_COLUMN} that changed last.");
    let column = format!("{path}?column={}", priority.unwrap_or(NONE));
    let all_of_them = format!("all {}", grouped(i64::try_from(all.len()).unwrap_or(i64::MAX)));
    (places.into_iter().map(|place| all[place]).collect(), Some((said, vec![(all_of_them, column)])))
}

/// A part of one column, oldest first.
fn part<'a>(all: &[&'a Value], from: usize, path: &str, priority: Option<&str>) -> Part<'a> {
    let from = from.min(all.len());
    let end = (from + STICKIES).min(all.len());
    let at = |place: usize| format!("{path}?column={}&from={}", priority.unwrap_or(NONE), place + 1);
    let mut links = Vec::new();
    if from > 0 {
        links.push(("earlier".to_owned(), at(from.saturating_sub(STICKIES))));
    }
    if end < all.len() {
        links.push(("later".to_owned(), at(end)));
    }
    let number = |number: usize| grouped(i64::try_from(number).unwrap_or(i64::MAX));
    let said = format!("{} to {} of {}, oldest first.", number(from + 1), number(end), number(all.len()));
    (all[from..end].to_vec(), (!links.is_empty()).then_some((said, links)))
}

fn stickie(stickie: &Value) -> Stickie {
    let said = |field: &str| stickie[field].as_str().filter(|said| !said.trim().is_empty());
    let id = said("id").unwrap_or_default();
    let labels = stickie["labels"].as_array().into_iter().flatten().filter_map(Value::as_str);
    Stickie {
        id: id.to_owned(),
        title: text::cut(said("name").unwrap_or_else(|| blocks::short(id)), TITLE),
        note: said("note").map(|note| text::cut(note, SAID)),
        code: said("code").map(|code| text::cut(code, SAID)),
        labels: labels.take(LABELS).map(|label| text::cut(label, TITLE)).collect(),
        score: stickie["score"].as_f64(),
        author: said("author").map(ToOwned::to_owned),
        run: said("created_by_run_id").map(|_| cell("created_by_run_id", &stickie["created_by_run_id"], None)),
    }
}

/// How those that are shown relate.
fn relations_between(columns: &[Column], relations: &[Value]) -> Vec<Relation> {
    let shown: HashSet<&str> =
        columns.iter().flat_map(|column| &column.stickies).map(|stickie| stickie.id.as_str()).collect();
    let relations = relations.iter().map(relation);
    let drawn =
        relations.filter(|relation| shown.contains(relation.from.as_str()) && shown.contains(relation.to.as_str()));
    drawn.take(RELATIONS).collect()
}

fn relation(relation: &Value) -> Relation {
    let text = |field: &str| relation[field].as_str().unwrap_or_default().to_owned();
    Relation { from: text("from_id"), to: text("to_id"), name: text("type") }
}

//! The page of a board: its stickies in columns by priority, and their relations. For a large board, the page shows the
//! stickies that changed last, and each column has a page of its own.

use std::collections::HashSet;

use serde_json::{Value, json};
use trackway_domain::{Error as Rule, text};
use trackway_store::Reader;

use super::{blocks_of, query_view, rows};
use crate::{
    blocks::{self, cell, group_digits},
    board::COLUMNS,
    input, nouns,
    page::{Block, Board, Column, Page, Relation, Stickie},
    problem::Problem,
};

/// Maximum number of stickies on a page. If a board has more, each column shows its share.
const STICKIES_MAX: usize = 50;
const COLUMN_STICKIES_MAX: usize = STICKIES_MAX / COLUMNS.len();
/// Maximum number of relations on a page.
const RELATIONS_MAX: usize = 30;
/// Maximum length of a note or of code, in characters.
const NOTE_MAX: usize = 600;
/// Maximum length of a title or a label, in characters.
const TITLE_MAX: usize = 80;
/// Maximum number of labels of a stickie.
const LABELS_MAX: usize = 6;

/// The query parameters of the page.
const PARAMETERS: &[&str] = &["column", "from"];

/// Builds the page. `?column=must` shows one column, `&from=51` starts at its 51st stickie.
pub fn page(read: &mut Reader<'_>, reference: &str, query: &str) -> Result<Page, Problem> {
    input::reject_unknown(query, PARAMETERS)?;
    let parameter = |name: &str| input::pairs(query).find(|(given, value)| given == name && !value.is_empty());
    let from = parameter("from").map(|(name, value)| input::parse_integer(&name, &value)).transpose()?;
    let from = usize::try_from(from.unwrap_or(1)).unwrap_or(1).max(1) - 1;
    let selected = parameter("column").map(|(_, word)| parse_priority(&word)).transpose()?;
    let data = query_view(read, ("board", "get"), json!({ "board": reference }))?.data;
    let id = data["id"].as_str().unwrap_or(reference).to_owned();
    let title = data["name"].as_str().map_or_else(|| format!("Board {}", blocks::short_id(&id)), ToOwned::to_owned);
    let path = blocks::page_path("board", data["name"].as_str().unwrap_or(&id)).unwrap_or_default();
    let stickies = rows(&data["stickies"]);
    let columns: Vec<Column> = COLUMNS
        .iter()
        .filter(|(_, priority)| selected.is_none_or(|selected| selected == *priority))
        .map(|&(title, priority)| {
            let all: Vec<&Value> = stickies.iter().filter(|stickie| stickie["priority"].as_str() == priority).collect();
            let (shown, pagination) = match selected {
                Some(_) => column_page(&all, from, &path, priority),
                None => recently_changed_stickies(&all, stickies.len(), &path, priority),
            };
            let stickies = shown.into_iter().map(stickie).collect();
            Column { title, priority, stickies, total: all.len(), pagination }
        })
        .collect();
    let relations = rows(&data["relations"]);
    let shown_relations = relations_between(&columns, &relations);
    let mut page = Page::new(path.clone(), title, data);
    if selected.is_none() {
        let hidden_fields = ["id", "name", "stickies", "relations", "stickie_count", "edit_count", "changed_at"];
        page.blocks = blocks_of(&page.data, nouns::by_name("board"), &hidden_fields);
    } else {
        let links = vec![("the whole board".to_owned(), path.clone())];
        page.blocks.push(Block::Pagination { text: "One column of the board.".to_owned(), links });
    }
    let hidden_relations = relations.len() - shown_relations.len();
    page.blocks.push(Block::Board(Board { path: form_path(&path, &id), columns, relations: shown_relations }));
    if hidden_relations > 0 {
        let number = group_digits(i64::try_from(hidden_relations).unwrap_or(i64::MAX));
        page.blocks.push(Block::Paragraph(format!(
            "{number} relations are not shown here. The page of a stickie lists all its relations."
        )));
    }
    page.live = ["board", "stickie"].map(ToOwned::to_owned).to_vec();
    Ok(page)
}

/// The path to which the form of each stickie redirects. A board with a long name is addressed by its id, to keep the
/// page small.
fn form_path(path: &str, id: &str) -> String {
    let by_id = format!("/boards/{id}");
    if path.len() > 2 * by_id.len() { by_id } else { path.to_owned() }
}

/// Parses the `column` parameter.
fn parse_priority(word: &str) -> Result<Option<&'static str>, Problem> {
    let known = COLUMNS.iter().find(|(_, priority)| priority.unwrap_or(NO_PRIORITY) == word);
    let known = known.ok_or_else(|| {
        let words: Vec<&str> = COLUMNS.iter().map(|(_, priority)| priority.unwrap_or(NO_PRIORITY)).collect();
        Rule::usage(format!("unknown column {word:?}")).hint(format!("valid columns: {}", words.join(", ")))
    })?;
    Ok(known.1)
}

/// The `column` parameter for stickies without a priority.
const NO_PRIORITY: &str = "none";

type ColumnPart<'a> = (Vec<&'a Value>, Option<(String, Vec<(String, String)>)>);

/// The stickies of a column on the page of the board. A large board shows those that changed last, so that a stickie
/// that was just moved is visible.
fn recently_changed_stickies<'a>(
    all: &[&'a Value],
    on_board: usize,
    path: &str,
    priority: Option<&str>,
) -> ColumnPart<'a> {
    if on_board <= STICKIES_MAX || all.len() <= COLUMN_STICKIES_MAX {
        return (all.to_vec(), None);
    }
    let mut positions: Vec<usize> = (0..all.len()).collect();
    positions.sort_by_key(|&position| std::cmp::Reverse((all[position]["updated_at"].as_str(), position)));
    positions.truncate(COLUMN_STICKIES_MAX);
    positions.sort_unstable();
    let text = format!("The {COLUMN_STICKIES_MAX} stickies that changed last.");
    let column = format!("{path}?column={}", priority.unwrap_or(NO_PRIORITY));
    let all_of_them = format!("all {}", group_digits(i64::try_from(all.len()).unwrap_or(i64::MAX)));
    (positions.into_iter().map(|position| all[position]).collect(), Some((text, vec![(all_of_them, column)])))
}

/// One page of a column, oldest first.
fn column_page<'a>(all: &[&'a Value], from: usize, path: &str, priority: Option<&str>) -> ColumnPart<'a> {
    let from = from.min(all.len());
    let end = (from + STICKIES_MAX).min(all.len());
    let at = |position: usize| format!("{path}?column={}&from={}", priority.unwrap_or(NO_PRIORITY), position + 1);
    let mut links = Vec::new();
    if from > 0 {
        links.push(("earlier".to_owned(), at(from.saturating_sub(STICKIES_MAX))));
    }
    if end < all.len() {
        links.push(("later".to_owned(), at(end)));
    }
    let number = |number: usize| group_digits(i64::try_from(number).unwrap_or(i64::MAX));
    let text = format!("{} to {} of {}, oldest first.", number(from + 1), number(end), number(all.len()));
    (all[from..end].to_vec(), (!links.is_empty()).then_some((text, links)))
}

fn stickie(stickie: &Value) -> Stickie {
    let text = |field: &str| stickie[field].as_str().filter(|text| !text.trim().is_empty());
    let id = text("id").unwrap_or_default();
    let labels = stickie["labels"].as_array().into_iter().flatten().filter_map(Value::as_str);
    Stickie {
        id: id.to_owned(),
        title: text::cut(text("name").unwrap_or_else(|| blocks::short_id(id)), TITLE_MAX),
        note: text("note").map(|note| text::cut(note, NOTE_MAX)),
        code: text("code").map(|code| text::cut(code, NOTE_MAX)),
        labels: labels.take(LABELS_MAX).map(|label| text::cut(label, TITLE_MAX)).collect(),
        score: stickie["score"].as_f64(),
        author: text("author").map(ToOwned::to_owned),
        run: text("created_by_run_id").map(|_| cell("created_by_run_id", &stickie["created_by_run_id"], None)),
    }
}

/// The relations between the shown stickies.
fn relations_between(columns: &[Column], relations: &[Value]) -> Vec<Relation> {
    let shown: HashSet<&str> =
        columns.iter().flat_map(|column| &column.stickies).map(|stickie| stickie.id.as_str()).collect();
    let relations = relations.iter().map(relation);
    let visible =
        relations.filter(|relation| shown.contains(relation.from.as_str()) && shown.contains(relation.to.as_str()));
    visible.take(RELATIONS_MAX).collect()
}

fn relation(relation: &Value) -> Relation {
    let text = |field: &str| relation[field].as_str().unwrap_or_default().to_owned();
    Relation { from: text("from_id"), to: text("to_id"), name: text("type") }
}

//! What a run made, by kind and action, with or without its child runs.

use serde_json::{Value, json};
use trackway_domain::Time;
use trackway_store::Reader;

use super::{asked, filter, next, question, rows, run};
use crate::{
    blocks::{self, grouped},
    input, nouns,
    page::{Block, Cell, Page, Table},
    problem::Problem,
};

/// Rows for readers: the text of one may be long.
const ROWS_READ: i64 = 60;
/// The parameters that the form offers.
const OFFERED: &[&str] = &["run", "kind", "action", "tree"];

/// Lists the touches of a run; without a run, asks for one.
pub fn page(read: &mut Reader<'_>, query: &str, now: Time, most: Option<i64>) -> Result<Page, Problem> {
    let entry = question(("", "made"))?;
    let given = |field: &str| input::pairs(query).find(|(name, value)| name == field && !value.is_empty());
    let said = given("run").map(|(_, run)| run).unwrap_or_default();
    let ask =
        Block::Ask { to: "/made", field: "run", label: "A run: its id, or `last`", said: said.clone(), within: None };
    if said.is_empty() {
        input::none_but(query, OFFERED)?;
        let mut page = Page::new("/made", "What a run made", Value::Null);
        page.blocks.push(ask);
        return Ok(page);
    }
    let answer =
        asked(read, entry, query, now, most.map(|most| most.min(ROWS_READ))).map_err(|problem| problem.asking(ask))?;
    let id = answer.data["run_id"].as_str().unwrap_or(&said).to_owned();
    let mut page = Page::new("/made", format!("What run {} made", blocks::short(&id)), answer.data);
    let touches = rows(&page.data["touches"]);
    page.blocks.push(Block::Facts(vec![("run".to_owned(), blocks::cell("id", &json!(id), nouns::of("run")))]));
    page.blocks.extend(filter::among(entry, &page.path, query, OFFERED));
    page.blocks.extend(part(&page.data, &touches, given("after").and_then(|(_, after)| after.parse().ok())));
    page.blocks.push(table(&touches, given("tree").is_some()));
    page.next = next(&page.path, query, answer.more.as_deref());
    Ok(page)
}

/// Which of them are here, when that is not all.
fn part(data: &Value, touches: &[Value], after: Option<usize>) -> Option<Block> {
    let (after, total) = (after.unwrap_or(0), data["total"].as_u64()?);
    let number = |number: usize| grouped(i64::try_from(number).unwrap_or(i64::MAX));
    let total = usize::try_from(total).unwrap_or(usize::MAX);
    (touches.len() < total && !touches.is_empty()).then(|| {
        let shown = format!("{} to {} of {} touches.", number(after + 1), number(after + touches.len()), number(total));
        Block::Along { said: shown, links: Vec::new() }
    })
}

/// The touches, with the run of each where there can be several.
fn table(touches: &[Value], of_tree: bool) -> Block {
    let mut columns = run::TOUCH_COLUMNS.map(ToOwned::to_owned).to_vec();
    if of_tree {
        columns.push("run".to_owned());
    }
    let row = |touch: &Value| {
        let mut cells: Vec<Cell> = run::touch(touch);
        if of_tree {
            cells.push(blocks::cell("id", &touch["run_id"], nouns::of("run")));
        }
        cells
    };
    Block::Table(Table {
        columns,
        rows: touches.iter().map(row).collect(),
        empty: "This run made nothing that matches.".to_owned(),
    })
}

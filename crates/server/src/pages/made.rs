//! The page of a run's touches, filtered by kind and action, with or without its child runs.

use serde_json::{Value, json};
use trackway_domain::Time;
use trackway_store::Reader;

use super::{filter, next, query_view_from_url, rows, run as run_page, view_entry};
use crate::{
    blocks::{self, group_digits},
    input, nouns,
    page::{Block, Cell, Page, Table},
    problem::Problem,
};

/// Maximum number of rows in HTML and Markdown. It is lower than for other lists, because a row can be long.
const ROWS_MAX: i64 = 60;
/// The parameters of the filter form.
const FILTER_PARAMETERS: &[&str] = &["run", "kind", "action", "tree"];

/// Builds the page. Without the parameter `run`, it is a form that asks for a run.
pub fn page(read: &mut Reader<'_>, query: &str, now: Time, max_rows: Option<i64>) -> Result<Page, Problem> {
    let entry = view_entry(("", "made"))?;
    let parameter = |field: &str| input::pairs(query).find(|(name, value)| name == field && !value.is_empty());
    let run = parameter("run").map(|(_, run)| run).unwrap_or_default();
    let form = Block::SearchForm {
        path: "/made",
        field: "run",
        label: "Id of a run, or `last` for the newest run",
        value: run.clone(),
        scope: None,
    };
    if run.is_empty() {
        input::reject_unknown(query, FILTER_PARAMETERS)?;
        let mut page = Page::new("/made", "What a run made", Value::Null);
        page.blocks.push(form);
        return Ok(page);
    }
    let answer = query_view_from_url(read, entry, query, now, max_rows.map(|max| max.min(ROWS_MAX)))
        .map_err(|problem| problem.with_form(form))?;
    let id = answer.data["run_id"].as_str().unwrap_or(&run).to_owned();
    let mut page = Page::new("/made", format!("What run {} made", blocks::short_id(&id)), answer.data);
    let touches = rows(&page.data["touches"]);
    page.blocks.push(Block::Facts(vec![("run".to_owned(), blocks::cell("id", &json!(id), nouns::by_name("run")))]));
    page.blocks.extend(filter::with_parameters(entry, &page.path, query, FILTER_PARAMETERS));
    page.blocks.extend(shown_range(&page.data, &touches, parameter("after").and_then(|(_, after)| after.parse().ok())));
    page.blocks.push(table(&touches, parameter("tree").is_some()));
    page.next = next(&page.path, query, answer.next_page.as_deref());
    Ok(page)
}

/// A line that names the range of shown touches, if the page does not show all.
fn shown_range(data: &Value, touches: &[Value], after: Option<usize>) -> Option<Block> {
    let (after, total) = (after.unwrap_or(0), data["total"].as_u64()?);
    let number = |number: usize| group_digits(i64::try_from(number).unwrap_or(i64::MAX));
    let total = usize::try_from(total).unwrap_or(usize::MAX);
    (touches.len() < total && !touches.is_empty()).then(|| {
        let shown = format!("{} to {} of {} touches.", number(after + 1), number(after + touches.len()), number(total));
        Block::Pagination { text: shown, links: Vec::new() }
    })
}

/// The table of touches. If child runs are included, it has a column for the run.
fn table(touches: &[Value], includes_child_runs: bool) -> Block {
    let mut columns = run_page::TOUCH_COLUMNS.map(ToOwned::to_owned).to_vec();
    if includes_child_runs {
        columns.push("run".to_owned());
    }
    let row = |touch: &Value| {
        let mut cells: Vec<Cell> = run_page::touch(touch);
        if includes_child_runs {
            cells.push(blocks::cell("id", &touch["run_id"], nouns::by_name("run")));
        }
        cells
    };
    Block::Table(Table {
        columns,
        rows: touches.iter().map(row).collect(),
        empty_text: "This run made nothing that matches.".to_owned(),
    })
}

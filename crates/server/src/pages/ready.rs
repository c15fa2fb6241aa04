//! The page of ready tasks, the most urgent first.

use trackway_domain::Time;
use trackway_store::Reader;

use super::{FittedList, next, query_fitting_list, view_entry};
use crate::{
    blocks, nouns,
    page::{Block, Page, Tab},
    problem::Problem,
};

const COLUMNS: &[&str] = &["variant", "title", "role", "status", "priority", "estimate", "created_at", "unblocked_by"];
const EMPTY_TEXT: &str = "No task is ready. A task is ready when it is open or groomed, nothing blocks it, nobody works on it, and it is neither queued, replaced, archived nor recurring. Create one with `trackway task set --workflow W --command C`.";

pub fn page(read: &mut Reader<'_>, query: &str, now: Time, max_rows: Option<i64>) -> Result<Page, Problem> {
    let entry = view_entry(("", "ready"))?;
    let table = |rows: &[serde_json::Value]| blocks::table(rows, COLUMNS, nouns::by_name("task"), EMPTY_TEXT);
    let FittedList { answer, table, .. } = query_fitting_list(read, entry, query, now, max_rows, &table)?;
    let mut page = Page::new("/ready", "Ready tasks", answer.data);
    page.blocks = vec![tabs(true), table];
    page.next = next(&page.path, query, answer.next_page.as_deref());
    page.live = ["task", "link", "queue_item", "run"].map(ToOwned::to_owned).to_vec();
    Ok(page)
}

/// Tabs for the list of all tasks and the list of ready tasks.
pub fn tabs(is_ready: bool) -> Block {
    let tab = |label: &str, href: &str, is_current| Tab { label: label.to_owned(), href: href.to_owned(), is_current };
    Block::Tabs {
        label: "Show",
        tabs: vec![tab("all tasks", "/tasks", !is_ready), tab("ready tasks", "/ready", is_ready)],
    }
}

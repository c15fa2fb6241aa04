//! What can be started now, the most urgent first.

use trackway_domain::Time;
use trackway_store::Reader;

use super::{Fitting, fitting, next, question};
use crate::{
    blocks, nouns,
    page::{Block, Page, Way},
    problem::Problem,
};

const COLUMNS: &[&str] = &["variant", "title", "role", "status", "priority", "estimate", "created_at", "unblocked_by"];
const EMPTY: &str = "No task is ready. A task is ready when it is open or groomed, nothing blocks it, nobody works on it, and it is neither queued, replaced, archived nor recurring. `trackway task set --workflow W --command C` makes one.";

/// Lists the ready tasks.
pub fn page(read: &mut Reader<'_>, query: &str, now: Time, most: Option<i64>) -> Result<Page, Problem> {
    let entry = question(("", "ready"))?;
    let table = |rows: &[serde_json::Value]| blocks::table(rows, COLUMNS, nouns::of("task"), EMPTY);
    let Fitting { answer, table, .. } = fitting(read, entry, query, now, most, &table)?;
    let mut page = Page::new("/ready", "Ready tasks", answer.data);
    page.blocks = vec![ways(true), table];
    page.next = next(&page.path, query, answer.more.as_deref());
    page.live = ["task", "link", "queue_item", "run"].map(ToOwned::to_owned).to_vec();
    Ok(page)
}

/// The two lists of tasks.
pub fn ways(is_ready: bool) -> Block {
    let way = |label: &str, to: &str, is_chosen| Way { label: label.to_owned(), to: to.to_owned(), is_chosen };
    Block::Ways {
        label: "Show",
        ways: vec![way("all tasks", "/tasks", !is_ready), way("ready tasks", "/ready", is_ready)],
    }
}

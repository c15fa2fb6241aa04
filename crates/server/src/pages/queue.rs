//! What the list of queue items begins with: how many there are of each sort.

use serde_json::json;

use trackway_store::Reader;

use super::ask;
use crate::{
    page::{Block, Figure},
    problem::Problem,
};

/// How many items wait, run and failed.
pub fn figures(read: &mut Reader<'_>) -> Result<Block, Problem> {
    let size = ask(read, ("queue", "size"), json!({}))?.data;
    let counts = size["by_status"].as_object().cloned().unwrap_or_default();
    let figures = counts.iter().map(|(status, count)| Figure {
        label: status.clone(),
        value: count.to_string(),
        to: format!("/queue?status={status}"),
        is_alarming: status == "failed" && count != 0,
    });
    Ok(Block::Figures(figures.collect()))
}

//! The figures above the list of queue items: the number of items by status.

use std::collections::BTreeMap;

use trackway_domain::Time;
use trackway_store::Reader;
use trackway_views::queue::{count_completed_and_cancelled, count_unfinished_and_failed};

use crate::{
    page::{Block, Figure},
    problem::Problem,
};

/// Maximum number of finished items that are counted. There may be millions, and the page is rendered again whenever an
/// item changes.
const COUNTED_MAX: i64 = 10_000;

pub fn figures(read: &mut Reader<'_>, now: Time) -> Result<Block, Problem> {
    let finished = count_completed_and_cancelled(read, COUNTED_MAX + 1)?.into_iter().map(|(status, count)| {
        let counted = if count > COUNTED_MAX { format!("{COUNTED_MAX}+") } else { count.to_string() };
        (status.to_string(), counted)
    });
    let unfinished = count_unfinished_and_failed(read, now)?
        .into_iter()
        .map(|(status, count)| (status.to_string(), count.to_string()));
    let counts: BTreeMap<String, String> = unfinished.chain(finished).collect();
    let figures = counts.into_iter().map(|(status, value)| Figure {
        value,
        href: format!("/queue?status={status}"),
        is_alarming: status == "failed",
        label: status,
    });
    Ok(Block::Figures(figures.collect()))
}

//! What the list of queue items begins with: how many there are of each sort.

use std::collections::BTreeMap;

use trackway_domain::Time;
use trackway_store::Reader;
use trackway_views::queue::{settled, unsettled};

use crate::{
    page::{Block, Figure},
    problem::Problem,
};

/// So many of those that are over are counted: there may be millions, and the page is made anew whenever an item changes.
const COUNTED_MAX: i64 = 10_000;

/// How many items wait, run, failed and are over.
pub fn figures(read: &mut Reader<'_>, now: Time) -> Result<Block, Problem> {
    let over = settled(read, COUNTED_MAX + 1)?.into_iter().map(|(status, count)| {
        let counted = if count > COUNTED_MAX { format!("{COUNTED_MAX}+") } else { count.to_string() };
        (status.to_string(), counted)
    });
    let open = unsettled(read, now)?.into_iter().map(|(status, count)| (status.to_string(), count.to_string()));
    let counts: BTreeMap<String, String> = open.chain(over).collect();
    let figures = counts.into_iter().map(|(status, value)| Figure {
        value,
        to: format!("/queue?status={status}"),
        is_alarming: status == "failed",
        label: status,
    });
    Ok(Block::Figures(figures.collect()))
}

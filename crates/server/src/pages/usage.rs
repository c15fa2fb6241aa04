//! What model calls used: a chart, and the numbers.

use serde_json::Value;
use trackway_domain::Time;
use trackway_store::Reader;

use super::{asked, question, rows};
use crate::{
    blocks::{self, grouped},
    input,
    page::{Bar, Block, Cell, Page, Way},
    problem::Problem,
};

/// Bars of the chart: the last days, else those that used most.
const BARS: usize = 14;

/// Lays usage out, summed by day unless it is said by what.
pub fn page(read: &mut Reader<'_>, query: &str, now: Time) -> Result<Page, Problem> {
    let by = input::pairs(query).find(|(name, _)| name == "by").map(|(_, by)| by);
    let query = if by.is_some() { query.to_owned() } else { format!("by=day&{query}") };
    let answer = asked(read, question(("", "usage"))?, query.trim_end_matches('&'), now, None)?;
    let by = by.unwrap_or_else(|| "day".to_owned());
    let mut page = Page::new("/usage", "Usage", answer.data);
    let rows = rows(&page.data);
    let ways = ["day", "task", "agent", "model"].map(|way| Way {
        label: way.to_owned(),
        to: format!("/usage?by={way}"),
        is_chosen: way == by,
    });
    page.blocks.push(Block::Say("Tokens and cost of model calls.".to_owned()));
    page.blocks.push(Block::Ways { label: "Summed by", ways: ways.to_vec() });
    let bars = bars(&rows, &by);
    if bars.len() > 1 {
        page.blocks.push(Block::Bars(bars));
    }
    page.blocks.push(blocks::table(&rows, &[], None, "No call of a model was recorded yet."));
    Ok(page)
}

/// Tokens in each sum: read on the left, written on the right.
fn bars(rows: &[Value], by: &str) -> Vec<Bar> {
    let tokens = |row: &Value, field: &str| row[field].as_i64().unwrap_or(0);
    let all = |row: &Value| tokens(row, "input_tokens") + tokens(row, "output_tokens");
    let mut shown: Vec<&Value> = rows.iter().collect();
    if by == "day" {
        shown.drain(..shown.len().saturating_sub(BARS));
    } else {
        shown.sort_by_key(|row| std::cmp::Reverse(all(row)));
        shown.truncate(BARS);
    }
    let bar = |row: &&Value| {
        let cost = row["cost"].as_f64().map_or_else(String::new, |cost| format!(", ${cost:.2}"));
        Bar {
            label: Cell::Text(row["key"].as_str().unwrap_or("none").to_owned()),
            good: tokens(row, "output_tokens"),
            all: all(row),
            note: format!("{} tokens{cost}", grouped(all(row))),
        }
    };
    shown.iter().map(bar).collect()
}

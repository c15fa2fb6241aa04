//! The page of model usage: a chart and a table.

use serde_json::Value;
use trackway_domain::Time;
use trackway_store::Reader;

use super::{query_view_from_url, rows, view_entry};
use crate::{
    blocks::{self, group_digits},
    input,
    page::{Bar, Block, Cell, Page, Tab},
    problem::Problem,
};

/// Maximum number of bars in the chart: the last days, or the keys with the most tokens.
const BARS_MAX: usize = 14;

/// Builds the page. Sums by day unless the query says otherwise.
pub fn page(read: &mut Reader<'_>, query: &str, now: Time) -> Result<Page, Problem> {
    let by = input::pairs(query).find(|(name, _)| name == "by").map(|(_, by)| by);
    let query = if by.is_some() { query.to_owned() } else { format!("by=day&{query}") };
    let answer = query_view_from_url(read, view_entry(("", "usage"))?, query.trim_end_matches('&'), now, None)?;
    let by = by.unwrap_or_else(|| "day".to_owned());
    let mut page = Page::new("/usage", "Usage", answer.data);
    let rows = rows(&page.data);
    let tabs = ["day", "task", "agent", "model"].map(|key| Tab {
        label: key.to_owned(),
        href: format!("/usage?by={key}"),
        is_current: key == by,
    });
    page.blocks.push(Block::Paragraph("Tokens and cost of model calls.".to_owned()));
    page.blocks.push(Block::Tabs { label: "Sum by", tabs: tabs.to_vec() });
    let bars = bars(&rows, &by);
    if bars.len() > 1 {
        page.blocks.push(Block::Bars(bars));
    }
    page.blocks.push(blocks::table(&rows, &[], None, "No model calls yet."));
    Ok(page)
}

/// One bar for each sum. Its highlighted part is the output tokens.
fn bars(rows: &[Value], by: &str) -> Vec<Bar> {
    let tokens = |row: &Value, field: &str| row[field].as_i64().unwrap_or(0);
    let total = |row: &Value| tokens(row, "input_tokens") + tokens(row, "output_tokens");
    let mut shown: Vec<&Value> = rows.iter().collect();
    if by == "day" {
        shown.drain(..shown.len().saturating_sub(BARS_MAX));
    } else {
        shown.sort_by_key(|row| std::cmp::Reverse(total(row)));
        shown.truncate(BARS_MAX);
    }
    let bar = |row: &&Value| {
        let cost = row["cost"].as_f64().map_or_else(String::new, |cost| format!(", ${cost:.2}"));
        Bar {
            label: Cell::Text(row["key"].as_str().unwrap_or("none").to_owned()),
            highlighted: tokens(row, "output_tokens"),
            total: total(row),
            note: format!("{} tokens{cost}", group_digits(total(row))),
        }
    };
    shown.iter().map(bar).collect()
}

//! Displays lists: as a table on a terminal, as tab-separated lines in a pipe.

use comfy_table::{ColumnConstraint, ContentArrangement, Table, presets::NOTHING};
use serde_json::Value;
use unicode_width::UnicodeWidthStr;

use super::Renderer;

impl Renderer {
    pub(super) fn rows(&self, data: &Value, columns: &[&str]) -> String {
        let rows: Vec<Vec<String>> = data
            .as_array()
            .into_iter()
            .flatten()
            .map(|row| columns.iter().map(|column| self.cell(row, column)).collect())
            .collect();
        match self.width {
            Some(width) => table(width, columns, &rows),
            None => tab_separated(columns, &rows),
        }
    }
}

fn tab_separated(columns: &[&str], rows: &[Vec<String>]) -> String {
    let mut lines = vec![columns.join("\t")];
    lines.extend(rows.iter().map(|row| row.join("\t")));
    lines.join("\n")
}

/// The minimum width of all columns that may wrap.
const WRAPPED_WIDTH_MIN: usize = 20;

/// Whether a column is never wrapped, because people copy or compare its values.
fn is_unbroken(column: &str) -> bool {
    !matches!(
        column,
        "title"
            | "description"
            | "display_path"
            | "path"
            | "subject"
            | "question"
            | "detail"
            | "body"
            | "note"
            | "snippet"
            | "columns"
            | "repository"
            | "directory"
    )
}

/// Renders a table without its empty columns.
fn table(width: u16, columns: &[&str], rows: &[Vec<String>]) -> String {
    if rows.is_empty() {
        return super::dim("no rows");
    }
    let shown: Vec<usize> = (0..columns.len()).filter(|index| rows.iter().any(|row| !row[*index].is_empty())).collect();
    let mut table = Table::new();
    table.load_style(NOTHING).set_content_arrangement(ContentArrangement::Dynamic).set_width(width);
    table.set_header(shown.iter().map(|index| columns[*index].replace('_', " ")));
    for row in rows {
        table.add_row(shown.iter().map(|index| row[*index].as_str()));
    }
    let widths: Vec<usize> =
        shown.iter().map(|index| rows.iter().map(|row| row[*index].width()).max().unwrap_or_default()).collect();
    let room = usize::from(width).saturating_sub(shown.len() * 2);
    let fixed: usize =
        shown.iter().zip(&widths).filter(|(index, _)| is_unbroken(columns[**index])).map(|(_, width)| width).sum();
    if room < fixed + WRAPPED_WIDTH_MIN {
        // Too narrow for a table: let the terminal wrap the lines, so that values to copy are not split.
        table.set_content_arrangement(ContentArrangement::Disabled);
    }
    for (column, index) in table.column_iter_mut().zip(&shown) {
        column.set_padding((0, 2));
        if is_unbroken(columns[*index]) {
            column.set_constraint(ColumnConstraint::ContentWidth);
        }
    }
    let mut lines: Vec<String> = table.lines().map(|line| line.trim_end().to_owned()).collect();
    if let Some(first) = lines.first_mut() {
        *first = super::heading(first);
    }
    lines.join("\n")
}

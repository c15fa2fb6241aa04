//! Renders tables as HTML. The name of a thing comes first and links to its page; its id comes last.

use crate::{
    html::{cell, escape, inline_code},
    page::{Cell, Table},
};

/// A cell whose text is longer than this many bytes gets a minimum width.
const LONG_CELL: usize = 24;
/// Columns that can contain the name of a thing, the likeliest first.
const NAME_COLUMNS: &[&str] =
    &["title", "question", "name", "handle", "variant", "key", "tag", "one liner", "snippet", "body", "description"];

pub fn html(table: &Table) -> String {
    if table.rows.is_empty() {
        let text = if table.empty_text.is_empty() { "None." } else { &table.empty_text };
        return format!("<p class=empty>{}</p>\n", inline_code(text));
    }
    let name_columns: Vec<Option<usize>> = table.rows.iter().map(|row| name_column(table, row)).collect();
    let columns = column_order(table, &name_columns);
    let is_number = |column: usize| table.rows.iter().any(|row| matches!(row.get(column), Some(Cell::Number(_))));
    let head: String = columns
        .iter()
        .map(|&column| {
            let class = if is_number(column) { " class=number" } else { "" };
            format!("<th scope=col{class}>{}</th>", escape(&table.columns[column]))
        })
        .collect();
    let rows: String = table
        .rows
        .iter()
        .zip(&name_columns)
        .map(|(row, name)| {
            let cells: String = columns.iter().map(|&column| td(table, row, column, *name)).collect();
            format!("<tr>{cells}</tr>\n")
        })
        .collect();
    format!("<div class=table tabindex=0><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>\n")
}

fn td(table: &Table, row: &[Cell], column: usize, name: Option<usize>) -> String {
    let Some(value) = row.get(column) else { return String::new() };
    let class = match value {
        Cell::Number(_) => " class=number",
        // A long text keeps a minimum width. Otherwise a wide table would break it after every word.
        Cell::Text(text) if text.len() > 4 * LONG_CELL => " class=\"words many\"",
        Cell::Text(text) | Cell::Link { text, .. } if text.len() > LONG_CELL => " class=words",
        _ => "",
    };
    let content = match (value, row.first()) {
        (Cell::Text(text), Some(Cell::Link { href, .. })) if name == Some(column) => {
            format!("<a href=\"{}\">{}</a>", escape(href), escape(text))
        }
        (value, _) => cell(value),
    };
    // On narrow screens the header row is hidden, and CSS shows this label in the cell.
    let label = match value {
        Cell::Empty | Cell::Status(_) => String::new(),
        _ => format!(" data-as=\"{}\"", escape(&table.columns[column])),
    };
    format!("<td{class}{label}>{content}</td>")
}

/// The columns to show, in order. Columns that are empty in every row are left out.
fn column_order(table: &Table, name_columns: &[Option<usize>]) -> Vec<usize> {
    let has_value = |row: &Vec<Cell>, column: usize| match row.get(column) {
        Some(Cell::Empty) | None => false,
        Some(_) => true,
    };
    let mut shown: Vec<usize> = (0..table.columns.len())
        .filter(|&column| column == 0 || table.rows.iter().any(|row| has_value(row, column)))
        .collect();
    if name_columns.iter().all(Option::is_none) {
        return shown;
    }
    shown.retain(|&column| column != 0);
    shown.push(0);
    if let Some(&Some(name)) = name_columns.first()
        && name_columns.iter().all(|other| *other == Some(name))
    {
        shown.retain(|&column| column != name);
        shown.insert(0, name);
    }
    shown
}

/// The column with the name of the thing that a row describes, if the row begins with the thing's id.
fn name_column(table: &Table, row: &[Cell]) -> Option<usize> {
    let Some(Cell::Link { href, text }) = row.first() else { return None };
    let section = href.split('/').nth(1);
    let is_name = |column: &usize| match row.get(*column) {
        Some(Cell::Text(text)) => !text.is_empty(),
        Some(Cell::Link { href, .. }) => href.split('/').nth(1) == section,
        _ => false,
    };
    let columns = NAME_COLUMNS.iter().filter_map(|name| table.columns.iter().position(|column| column == name));
    if is_short_id(text) { columns.filter(|column| *column > 0).find(is_name) } else { None }
}

/// True if a text has the form of a short id: 8 hex digits.
pub fn is_short_id(text: &str) -> bool {
    text.len() == 8 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(columns: &[&str], rows: Vec<Vec<Cell>>) -> String {
        let columns = columns.iter().map(|&column| column.to_owned()).collect();
        html(&Table { columns, rows, empty_text: String::new() })
    }

    #[test]
    fn title_links_to_its_thing_and_comes_first() {
        let row = vec![
            Cell::link("/notes/00000000-0000-7000-8000-00000abcdef1", "0abcdef1"),
            Cell::Text("main".to_owned()),
            Cell::Text("a < b".to_owned()),
        ];
        let html = table(&["id", "studio", "title"], vec![row]);
        assert!(html.contains("<th scope=col>title</th><th scope=col>studio</th><th scope=col>id</th>"), "{html}");
        assert!(html.contains("<a href=\"/notes/00000000-0000-7000-8000-00000abcdef1\">a &lt; b</a>"), "{html}");
    }

    #[test]
    fn link_to_another_thing_is_not_a_name() {
        let row = vec![Cell::link("/queue/x", "0abcdef1"), Cell::link("/tasks/go", "go")];
        let html = table(&["id", "variant"], vec![row]);
        assert!(html.contains("<th scope=col>id</th><th scope=col>variant</th>"), "{html}");
    }
}

//! A table as HTML: what a thing is called leads to it and comes first, its id comes last.

use crate::{
    html::{cell, escaped, sentences},
    page::{Cell, Table},
};

/// Bytes of a text from which on its cell is kept wide.
const LONG_CELL: usize = 24;
/// Columns that say what a thing is called, the likeliest first.
const NAMING: &[&str] =
    &["title", "question", "name", "handle", "variant", "key", "tag", "one liner", "snippet", "body", "description"];

/// Draws it.
pub fn html(table: &Table) -> String {
    if table.rows.is_empty() {
        let empty = if table.empty.is_empty() { "None." } else { &table.empty };
        return format!("<p class=empty>{}</p>\n", sentences(empty));
    }
    let names: Vec<Option<usize>> = table.rows.iter().map(|row| naming(table, row)).collect();
    let shown = order(table, &names);
    let is_number = |column: usize| table.rows.iter().any(|row| matches!(row.get(column), Some(Cell::Number(_))));
    let head: String = shown
        .iter()
        .map(|&column| {
            let class = if is_number(column) { " class=number" } else { "" };
            format!("<th scope=col{class}>{}</th>", escaped(&table.columns[column]))
        })
        .collect();
    let rows: String = table
        .rows
        .iter()
        .zip(&names)
        .map(|(row, name)| {
            let cells: String = shown.iter().map(|&column| td(table, row, column, *name)).collect();
            format!("<tr>{cells}</tr>\n")
        })
        .collect();
    format!("<div class=table tabindex=0><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>\n")
}

fn td(table: &Table, row: &[Cell], column: usize, name: Option<usize>) -> String {
    let Some(value) = row.get(column) else { return String::new() };
    let class = match value {
        Cell::Number(_) => " class=number",
        // Not squeezed to a word a line where the table is wider than the window anyway.
        Cell::Text(text) if text.len() > 4 * LONG_CELL => " class=\"words many\"",
        Cell::Text(text) | Cell::Link { text, .. } if text.len() > LONG_CELL => " class=words",
        _ => "",
    };
    let shown = match (value, row.first()) {
        (Cell::Text(text), Some(Cell::Link { to, .. })) if name == Some(column) => {
            format!("<a href=\"{}\">{}</a>", escaped(to), escaped(text))
        }
        (value, _) => cell(value),
    };
    // On a narrow screen the head of the table is not there to say it.
    let label = match value {
        Cell::Nothing | Cell::Status(_) => String::new(),
        _ => format!(" data-as=\"{}\"", escaped(&table.columns[column])),
    };
    format!("<td{class}{label}>{shown}</td>")
}

/// The columns in the order in which they are shown. One that says nothing in any row only takes the place of those that do.
fn order(table: &Table, names: &[Option<usize>]) -> Vec<usize> {
    let says = |row: &Vec<Cell>, column: usize| match row.get(column) {
        Some(Cell::Nothing) | None => false,
        Some(_) => true,
    };
    let mut shown: Vec<usize> = (0..table.columns.len())
        .filter(|&column| column == 0 || table.rows.iter().any(|row| says(row, column)))
        .collect();
    if names.iter().all(Option::is_none) {
        return shown;
    }
    shown.retain(|&column| column != 0);
    shown.push(0);
    if let Some(&Some(name)) = names.first()
        && names.iter().all(|other| *other == Some(name))
    {
        shown.retain(|&column| column != name);
        shown.insert(0, name);
    }
    shown
}

/// The column that says what the thing of a row is called, where the row begins with its id.
fn naming(table: &Table, row: &[Cell]) -> Option<usize> {
    let Some(Cell::Link { to, text }) = row.first() else { return None };
    let home = to.split('/').nth(1);
    let names_it = |column: &usize| match row.get(*column) {
        Some(Cell::Text(text)) => !text.is_empty(),
        Some(Cell::Link { to, .. }) => to.split('/').nth(1) == home,
        _ => false,
    };
    let columns = NAMING.iter().filter_map(|name| table.columns.iter().position(|column| column == name));
    if is_id(text) { columns.filter(|column| *column > 0).find(names_it) } else { None }
}

/// Whether a text is the end of an id.
pub fn is_id(text: &str) -> bool {
    text.len() == 8 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(columns: &[&str], rows: Vec<Vec<Cell>>) -> String {
        let columns = columns.iter().map(|&column| column.to_owned()).collect();
        html(&Table { columns, rows, empty: String::new() })
    }

    #[test]
    fn a_title_leads_to_its_thing_and_comes_first() {
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
    fn what_leads_elsewhere_is_no_name() {
        let row = vec![Cell::link("/queue/x", "0abcdef1"), Cell::link("/tasks/go", "go")];
        let html = table(&["id", "variant"], vec![row]);
        assert!(html.contains("<th scope=col>id</th><th scope=col>variant</th>"), "{html}");
    }
}

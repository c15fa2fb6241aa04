//! Displays the schema of the database as tables, Markdown or Mermaid.

use std::fmt::Write;

use serde_json::Value;

use super::{Renderer, heading};

fn list<'a>(data: &'a Value, field: &str) -> &'a [Value] {
    data[field].as_array().map(Vec::as_slice).unwrap_or_default()
}

fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value[field].as_str().unwrap_or_default()
}

impl Renderer {
    pub(super) fn schema_table(&self, data: &Value) -> String {
        let tables: Vec<Value> = list(data, "tables")
            .iter()
            .map(|table| {
                let columns: Vec<_> = list(table, "columns").iter().map(|column| text(column, "name")).collect();
                serde_json::json!({ "table": table["name"], "columns": columns })
            })
            .collect();
        let sections = [
            ("tables", self.rows(&Value::Array(tables), &["table", "columns"])),
            (
                "relations",
                self.rows(&data["relations"], &["from_table", "from_column", "to_table", "to_column", "kept_by"]),
            ),
            ("graph edges", self.rows(&data["edges"], &["table", "from_column", "to_column", "between"])),
        ];
        let shown: Vec<_> = sections.into_iter().map(|(title, rows)| format!("{}\n{rows}", heading(title))).collect();
        format!("{} schema {}\n\n{}", text(data, "engine"), data["version"], shown.join("\n\n"))
    }
}

pub(super) fn markdown(data: &Value) -> String {
    let mut out = format!("# Schema {} on {}\n", data["version"], text(data, "engine"));
    for table in list(data, "tables") {
        let _ = write!(out, "\n## {}\n\n| column | type | required |\n|---|---|---|\n", text(table, "name"));
        for column in list(table, "columns") {
            let required = if column["required"] == true { "yes" } else { "" };
            let _ = writeln!(out, "| {} | {} | {required} |", text(column, "name"), text(column, "type"));
        }
    }
    out.push_str("\n## Relations\n\n| from | to | enforced by |\n|---|---|---|\n");
    for relation in list(data, "relations") {
        let _ = writeln!(
            out,
            "| {}.{} | {}.{} | {} |",
            text(relation, "from_table"),
            text(relation, "from_column"),
            text(relation, "to_table"),
            text(relation, "to_column"),
            text(relation, "kept_by").replace('_', " ")
        );
    }
    out.push_str("\n## Graph edges\n\n| table | from | to | between |\n|---|---|---|---|\n");
    for edge in list(data, "edges") {
        let _ = writeln!(
            out,
            "| {} | {} | {} | {} |",
            text(edge, "table"),
            text(edge, "from_column"),
            text(edge, "to_column"),
            text(edge, "between")
        );
    }
    out
}

pub(super) fn mermaid(data: &Value) -> String {
    let mut out = "erDiagram\n".to_owned();
    for table in list(data, "tables") {
        let _ = writeln!(out, "  {} {{", text(table, "name"));
        for column in list(table, "columns") {
            // A type in Mermaid must be a single word.
            let _ = writeln!(out, "    {} {}", text(column, "type").replace(' ', "_"), text(column, "name"));
        }
        out.push_str("  }\n");
    }
    for relation in list(data, "relations") {
        // A dashed line marks a relation that the database does not enforce.
        let (line, mark) = if relation["kept_by"] == "write_path" { ("..", " (write path)") } else { ("--", "") };
        let _ = writeln!(
            out,
            "  {} }}o{line}|| {} : \"{}{mark}\"",
            text(relation, "from_table"),
            text(relation, "to_table"),
            text(relation, "from_column")
        );
    }
    out
}

//! Displays a board, and the differences between a board and its folder.

use serde_json::Value;

use super::{Renderer, dim, fields::excerpts, heading};

const STICKIE_COLUMNS: &[&str] =
    &["id", "name", "priority", "score", "labels", "note", "author", "created_by_run_id", "archived_at"];
const RELATION_COLUMNS: &[&str] = &["from", "type", "to", "labels"];
/// Displayed characters of a note.
const EXCERPT_CHARACTERS: usize = 200;

impl Renderer {
    /// The fields of the board, then its stickies and their relations.
    pub(super) fn board(&self, data: &Value) -> String {
        let mut board = data.clone();
        let mut list = |name: &str| match board[name].take() {
            Value::Array(rows) => rows,
            _ => Vec::new(),
        };
        let (stickies, mut relations) = (list("stickies"), list("relations"));
        for relation in &mut relations {
            for (name, id) in [("from", "from_id"), ("to", "to_id")] {
                if relation[name].is_null() {
                    relation[name] = self.cell(relation, id).into();
                }
            }
        }
        let mut parts = vec![self.fields(&board)];
        for (name, rows, columns) in [
            ("stickies", excerpts(&stickies, EXCERPT_CHARACTERS), STICKIE_COLUMNS),
            ("relations", Value::Array(relations), RELATION_COLUMNS),
        ] {
            if rows.as_array().is_some_and(|rows| !rows.is_empty()) {
                parts.push(format!("\n{}\n{}", heading(name), self.rows(&rows, columns)));
            }
        }
        parts.join("\n")
    }

    /// One line for each difference: its mark, the file, and the edited side.
    pub(super) fn board_diff(&self, data: &Value) -> String {
        let line = |line: &Value| {
            let edited = match line["edited"].as_str() {
                Some("both") => dim(" (edited on both sides)"),
                Some(side) => dim(&format!(" (edited: {side})")),
                None => String::new(),
            };
            format!("{} {}{edited}", self.cell(line, "mark"), self.cell(line, "what"))
        };
        let lines = data["lines"].as_array().map(Vec::as_slice).unwrap_or_default();
        lines.iter().map(line).collect::<Vec<_>>().join("\n")
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use unicode_width::UnicodeWidthStr;

    use super::super::{Layout, Output};
    use crate::dispatch::CommandOutcome;

    /// The output without colours on a terminal of this width, or in a pipe if there is no width.
    fn rendered(layout: Layout, data: serde_json::Value, width: Option<u16>) -> String {
        let text = Output { json: false, width }.render(&CommandOutcome::new(data, layout));
        anstream::adapter::strip_str(&text).to_string()
    }

    #[test]
    fn long_notes_fit_the_terminal() {
        let long = format!("{}end", "word ".repeat(50));
        let stickie = |name: &str, note: &str| json!({ "id": "0a0b0c0d", "name": name, "note": note, "board": "plan", "created_at": "2026-01-01T00:00:00.000Z" });
        let data = json!({
            "name": "plan",
            "stickies": [stickie("tea", "boil\nit"), stickie("cups", "six"), stickie("rest", &long)],
            "relations": [{ "type": "USES", "from": "tea", "from_id": "1", "to": null, "to_id": "0a0b0c0d", "labels": ["hot"] }],
        });
        let piped = "name: plan\n\nstickies\nid\tname\tpriority\tscore\tlabels\tnote\tauthor\tcreated_by_run_id\tarchived_at\n\
                     0a0b0c0d\ttea\t\t\t\tboil it\t\t\t\n0a0b0c0d\tcups\t\t\t\tsix\t\t\t\n";
        let cut = "word ".repeat(40);
        assert_eq!(
            rendered(Layout::Board, data.clone(), None),
            format!(
                "{piped}0a0b0c0d\trest\t\t\t\t{cut}…\t\t\t\n\nrelations\nfrom\ttype\tto\tlabels\ntea\tUSES\t0a0b0c0d\thot"
            )
        );
        let list = Layout::Rows(&["id", "board", "name", "note"]);
        for (layout, data) in [(Layout::Board, data.clone()), (list, data["stickies"].clone())] {
            let text = rendered(layout, data, Some(80));
            assert!(text.lines().all(|line| line.width() <= 80), "{text}");
            assert!(text.contains("boil it") && text.matches("word").count() >= 40, "{text}");
        }
        // The generic layout cuts the texts of nested lists.
        let text = rendered(Layout::Fields, json!({ "rows": [{ "id": "0a0b0c0d", "said": long }] }), None);
        assert_eq!(text, format!("\nrows\nid\tsaid\n0a0b0c0d\t{}…", "word ".repeat(12)));
    }
}

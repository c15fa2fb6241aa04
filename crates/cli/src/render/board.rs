//! A board, and a board beside its folder.

use serde_json::Value;

use super::{Page, dim, fields::excerpts, heading};

const STICKIES: &[&str] =
    &["id", "name", "priority", "score", "labels", "note", "author", "created_by_run_id", "archived_at"];
const RELATIONS: &[&str] = &["from", "type", "to", "labels"];
/// Characters of a note.
const EXCERPT: usize = 200;

impl Page {
    /// What is said of it, then its stickies and how they relate.
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
        for (name, rows, columns) in
            [("stickies", excerpts(&stickies, EXCERPT), STICKIES), ("relations", Value::Array(relations), RELATIONS)]
        {
            if rows.as_array().is_some_and(|rows| !rows.is_empty()) {
                parts.push(format!("\n{}\n{}", heading(name), self.rows(&rows, columns)));
            }
        }
        parts.join("\n")
    }

    /// A line for each thing: its mark, what it is, and which side was edited.
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

    use super::super::{Output, Shape};
    use crate::door::Outcome;

    /// As a terminal of this width shows it, without the colours; or a pipe.
    fn shown(shape: Shape, data: serde_json::Value, width: Option<u16>) -> String {
        let text = Output { json: false, width }.rendered(&Outcome::new(data, shape));
        anstream::adapter::strip_str(&text).to_string()
    }

    #[test]
    fn notes_are_shown_however_long_and_fit_the_terminal() {
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
            shown(Shape::Board, data.clone(), None),
            format!(
                "{piped}0a0b0c0d\trest\t\t\t\t{cut}…\t\t\t\n\nrelations\nfrom\ttype\tto\tlabels\ntea\tUSES\t0a0b0c0d\thot"
            )
        );
        let list = Shape::Rows(&["id", "board", "name", "note"]);
        for (shape, data) in [(Shape::Board, data.clone()), (list, data["stickies"].clone())] {
            let text = shown(shape, data, Some(80));
            assert!(text.lines().all(|line| line.width() <= 80), "{text}");
            assert!(text.contains("boil it") && text.matches("word").count() >= 40, "{text}");
        }
        // Where a thing has no shape of its own, a list below it has the beginning of each text.
        let text = shown(Shape::Fields, json!({ "rows": [{ "id": "0a0b0c0d", "said": long }] }), None);
        assert_eq!(text, format!("\nrows\nid\tsaid\n0a0b0c0d\t{}…", "word ".repeat(12)));
    }
}

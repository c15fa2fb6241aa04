//! A board beside its folder.

use serde_json::Value;

use super::{Page, dim};

impl Page {
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

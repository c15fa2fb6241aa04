//! Displays the chain from a thing to the person at whose request it was made.

use serde_json::Value;

use super::{Renderer, dim, heading};

impl Renderer {
    pub(super) fn chain(&self, data: &Value) -> String {
        let mut lines = Vec::new();
        let hops = data["chain"].as_array().map(Vec::as_slice).unwrap_or_default();
        for (index, hop) in hops.iter().enumerate() {
            let kind = hop["kind"].as_str().unwrap_or_default();
            let label = self.cell(hop, "label");
            let arrow = if index == 0 { "  " } else { "← " };
            let shown = if matches!(kind, "resource" | "person" | "run") { heading(&label) } else { label };
            let deleted = if index == 0 && data["deleted"] == true { dim("  (deleted)") } else { String::new() };
            lines.push(format!("{arrow}{kind:<10} {shown}{deleted}  {}", dim(&self.cell(hop, "id"))));
        }
        if let Some(line) = data["line"].as_object() {
            let fit = match line.get("fit").and_then(Value::as_str) {
                Some("exact") => "unchanged since the run wrote it",
                Some("moved") => "written by the run; the lines around it have changed since",
                _ => "no recorded run wrote this line; for the changes of the whole file, omit the line number",
            };
            let text = self.format_value("text", line.get("text").unwrap_or(&Value::Null));
            lines.insert(1.min(lines.len()), format!("  {:<10} {text}  {}", "line", dim(fit)));
        }
        if data["changed_since"] == true {
            lines.push(dim("the file has changed since its last recorded change"));
        }
        let missing: Vec<_> = data["missing"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        if !missing.is_empty() {
            lines.push(dim(&format!("not recorded: {}", missing.join(", ").replace('_', " "))));
        }
        let others = data["touched_by"].as_array().map(Vec::as_slice).unwrap_or_default();
        let is_in_chain = |run: &Value| hops.iter().any(|hop| hop["kind"] == "run" && hop["id"] == *run);
        if others.iter().any(|touch| !is_in_chain(&touch["run_id"])) || others.len() > 1 {
            lines.push(String::new());
            lines.push(heading("touched by"));
            lines.push(self.rows(&data["touched_by"], &["run_id", "action_type", "times", "first_at"]));
        }
        lines.join("\n")
    }
}

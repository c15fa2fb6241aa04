//! Displays a run, and the tree of runs below a run.

use serde_json::Value;

use super::{Renderer, dim, heading};

const SUMMARY_FIELDS: &[&str] = &[
    "id",
    "agent",
    "role",
    "task",
    "task_revision",
    "status",
    "outcome",
    "duration",
    "started_at",
    "ended_at",
    "initiated_by",
    "cause_kind",
    "cause_id",
    "chain_depth",
    "parent_run_id",
    "workspace",
    "mode",
    "cost",
    "final_message",
    "error",
];

impl Renderer {
    pub(super) fn run(&self, data: &Value) -> String {
        let summary: serde_json::Map<String, Value> =
            SUMMARY_FIELDS.iter().map(|field| ((*field).to_owned(), data[*field].clone())).collect();
        let mut parts = vec![self.fields(&Value::Object(summary))];
        if data["no_effect"] == true {
            parts.push("no effect: the run completed, but changed nothing".to_owned());
        }
        let sections: [(&str, &[&str]); 4] = [
            ("steps", &["position", "type", "detail", "created_at"]),
            (
                "usage",
                &["model", "input_tokens", "output_tokens", "cache_creation_tokens", "cache_read_tokens", "cost"],
            ),
            ("touches", super::TOUCH_COLUMNS),
            ("children", &["id", "agent", "role", "task", "status", "started_at"]),
        ];
        for (section, columns) in sections {
            if data[section].as_array().is_some_and(|rows| !rows.is_empty()) {
                parts.push(format!("{}\n{}", heading(section), self.rows(&data[section], columns)));
            }
        }
        if let Some(wakes) = data["wake"].as_array() {
            let wake_text = |wake: &Value| {
                let (at, digest) = (self.cell(wake, "created_at"), wake["digest"].as_str().unwrap_or_default());
                let text = wake["text"].as_str().unwrap_or_default().trim_end();
                format!("{} {}\n{text}", heading("wake prompt"), dim(&format!("{at}, sha256 {digest}")))
            };
            parts.extend(wakes.iter().map(wake_text));
            if wakes.is_empty() {
                parts.push("the wake prompt was not recorded".to_owned());
            }
        }
        parts.join("\n\n")
    }

    pub(super) fn tree(&self, data: &Value) -> String {
        let mut lines = Vec::new();
        self.add_run(data, "", "", &mut lines);
        lines.join("\n")
    }

    fn add_run(&self, run: &Value, lead: &str, below: &str, lines: &mut Vec<String>) {
        let mut facts = vec![self.cell(run, "status"), self.cell(run, "duration")];
        facts.extend(run["role"].as_str().map(|role| format!("as {role}")));
        facts.extend(run["task"].as_str().map(|task| format!("on {task}")));
        facts.extend(run["tokens"].as_i64().map(|tokens| format!("{tokens} tokens")));
        facts.push(format!("{} touched", run["touches"]));
        if run["no_effect"] == true {
            facts.push("no effect".to_owned());
        }
        lines.push(format!(
            "{lead}{} {}  {}",
            heading(&self.cell(run, "agent")),
            dim(&self.cell(run, "id")),
            facts.join(", ")
        ));
        let children = run["children"].as_array().map(Vec::as_slice).unwrap_or_default();
        for (index, child) in children.iter().enumerate() {
            let (fork, onward) = if index + 1 == children.len() { ("└─ ", "   ") } else { ("├─ ", "│  ") };
            self.add_run(child, &format!("{below}{fork}"), &format!("{below}{onward}"), lines);
        }
    }
}

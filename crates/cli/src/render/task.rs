//! Displays a task, and the rows that refer to it.

use serde_json::Value;

use super::{Renderer, dim, heading};

/// The lists of rows that refer to a task: the field, which is also the heading, and the columns.
const RELATED: [(&str, &[&str]); 5] = [
    ("pins", &["role", "variant", "updated_at"]),
    (
        "queue_items",
        &["id", "status", "role", "agent", "taken_by", "attempt", "in_queue_since", "finished_at", "error"],
    ),
    ("boards", &["id", "name", "task", "project", "lifecycle", "stickie_count", "changed_at"]),
    ("routes", &["id", "tag", "role", "task", "would_run", "workspace"]),
    ("messages", &["id", "created_at", "from", "from_run_id", "to", "title", "status", "body"]),
];

impl Renderer {
    pub(super) fn task(&self, data: &Value) -> String {
        let Value::Object(mut fields) = data.clone() else {
            return self.fields(data);
        };
        let last_finished = fields.shift_remove("last_finished_item").filter(Value::is_object);
        let more = fields.shift_remove("more").unwrap_or_default();
        let mut lists = Vec::new();
        for (field, columns) in RELATED {
            let mut rows = match fields.shift_remove(field) {
                Some(Value::Array(rows)) => rows,
                _ => Vec::new(),
            };
            if field == "queue_items" {
                rows.extend(last_finished.clone());
            }
            if !rows.is_empty() {
                lists.push((field, columns, Value::Array(rows)));
            }
        }
        let mut parts = vec![self.fields(&Value::Object(fields))];
        for (field, columns, rows) in lists {
            let mut part = format!("{}\n{}", heading(&field.replace('_', " ")), self.rows(&rows, columns));
            let rest = more.as_array().into_iter().flatten().find(|rest| rest["of"] == field);
            if let Some(command) = rest.and_then(|rest| rest["command"].as_str()) {
                part += &format!("\n{}", dim(&format!("more: {command}")));
            }
            parts.push(part);
        }
        parts.join("\n\n")
    }
}

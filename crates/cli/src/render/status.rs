//! Where things stand, and what to do next.

use serde_json::Value;

use super::{Page, dim, heading};

impl Page {
    pub(super) fn status(&self, data: &Value) -> String {
        let mut parts = vec![format!("{} {}", heading("Trackway"), dim(data["database"].as_str().unwrap_or_default()))];
        let runs: &[&str] = &["id", "agent", "role", "task", "started_at"];
        for (field, title) in [("running", "running"), ("failed_today", "failed in the last day")] {
            if data[field].as_array().is_some_and(|rows| !rows.is_empty()) {
                parts.push(format!("{}\n{}", heading(title), self.rows(&data[field], runs)));
            } else {
                parts.push(dim(&format!("nothing {title}")));
            }
        }
        let queue = data["queue"].as_object().cloned().unwrap_or_default();
        if queue.is_empty() {
            parts.push(dim("nothing in the queue"));
        } else {
            let counts: Vec<_> = queue.iter().map(|(status, count)| format!("{count} {status}")).collect();
            parts.push(format!("{} {}", heading("queue"), counts.join(", ")));
        }
        let ready: Vec<_> = data["ready"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let next = if queue.contains_key("ready") {
            "trackway work takes what is in the queue".to_owned()
        } else if queue.contains_key("failed") {
            "trackway queue list --status failed shows what failed for good; trackway queue requeue revives it"
                .to_owned()
        } else if let Some(first) = ready.first() {
            parts.push(format!("{} {}", heading("ready"), ready.join(", ")));
            format!("trackway task run {first}, or trackway ready --claim")
        } else {
            parts.push(dim("nothing is ready"));
            "trackway demo tells a small story; trackway --help lists everything".to_owned()
        };
        parts.push(format!("{} {next}", heading("next:")));
        parts.join("\n")
    }
}

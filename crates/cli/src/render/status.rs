//! Displays the status of runs, queue and hooks, and the next step.

use serde_json::{Value, json};
use trackway_clients::CLIENTS;
use trackway_views::assignment::SkippedItems;

use super::{Renderer, dim, heading};

/// The displayed fields of the last run.
const LAST_RUN_COLUMNS: &[&str] = &["id", "agent", "role", "task", "status", "ended_at"];

impl Renderer {
    pub(super) fn status(&self, data: &Value) -> String {
        let mut parts = vec![format!("{} {}", heading("Trackway"), dim(data["database"].as_str().unwrap_or_default()))];
        let runs: &[&str] = &["id", "agent", "role", "task", "started_at"];
        for (field, title, empty) in [
            ("running", "running", "nothing is running"),
            ("failed_today", "failed in the last day", "nothing failed in the last day"),
        ] {
            if data[field].as_array().is_some_and(|rows| !rows.is_empty()) {
                parts.push(format!("{}\n{}", heading(title), self.rows(&data[field], runs)));
            } else {
                parts.push(dim(empty));
            }
        }
        let (last, has_run) = (&data["last_run"], data["last_run"].is_object());
        if has_run && data["running_total"] == 0 {
            parts.push(format!("{}\n{}", heading("last run"), self.rows(&json!([last]), LAST_RUN_COLUMNS)));
        }
        let queue = data["queue"].as_object().cloned().unwrap_or_default();
        if queue.is_empty() {
            parts.push(dim("the queue is empty"));
        } else {
            let counts: Vec<_> = queue.iter().map(|(status, count)| format!("{count} {status}")).collect();
            parts.push(format!("{} {}", heading("queue"), counts.join(", ")));
        }
        let ready: Vec<_> = data["ready"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let left: Vec<SkippedItems> = serde_json::from_value(data["left_alone"].clone()).unwrap_or_default();
        let next = if let Some(in_queue) = queue.get("ready").and_then(Value::as_i64) {
            let mut next: Vec<String> = left.iter().map(SkippedItems::advice).collect();
            if in_queue > left.iter().map(|left| left.items).sum() {
                next.insert(0, "to run the items in the queue: trackway work".to_owned());
            }
            next.join("; ")
        } else if queue.contains_key("failed") {
            "to see failed items: trackway queue list --status failed; to retry one: trackway queue requeue".to_owned()
        } else if let Some(first) = ready.first() {
            parts.push(format!("{} {}", heading("ready"), ready.join(", ")));
            match data["ready_to_run"].as_str() {
                Some(first) => {
                    format!("to run the first task: trackway task run {first}; or to claim it: trackway ready --claim")
                }
                None => format!("to claim {first}: trackway ready --claim"),
            }
        } else {
            parts.push(dim("no task is ready"));
            if queue.contains_key("blocked") {
                "to see the reasons: trackway queue list --status blocked; to unblock an item: trackway queue requeue"
                    .to_owned()
            } else if queue.is_empty() && has_run {
                "to see the changes of the last run: trackway made last; to see where a file comes from: trackway why FILE"
                    .to_owned()
            } else if queue.is_empty() {
                "for a guided demo: trackway demo; for all commands: trackway --help".to_owned()
            } else {
                "to see running and waiting items: trackway queue list".to_owned()
            }
        };
        parts.push(match (&data["hooked_at"], &data["hooks"]) {
            (Value::Null, Value::Bool(true)) => dim("hooks are installed; no event received yet"),
            (Value::Null, _) => {
                let (connect, clients) = (CLIENTS.connect_command(), CLIENTS.display_names());
                dim(&format!("no hooks installed: {connect} to record {clients} sessions"))
            }
            (at, hooks) => {
                let here = if *hooks == true { "" } else { "; no hooks in the settings of this directory" };
                format!("{} last event at {}{here}", heading("hooks"), self.format_value("hooked_at", at))
            }
        });
        parts.push(format!("{} {next}", heading("next:")));
        parts.join("\n")
    }
}

//! Where things stand, and what to do next.

use serde_json::{Value, json};
use trackway_clients::CLIENTS;
use trackway_views::assignment::LeftAlone;

use super::{Page, dim, heading};

/// What is shown of the run that began last.
const LAST: &[&str] = &["id", "agent", "role", "task", "status", "ended_at"];

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
        let (last, has_run) = (&data["last_run"], data["last_run"].is_object());
        if has_run && data["running_total"] == 0 {
            parts.push(format!("{}\n{}", heading("last run"), self.rows(&json!([last]), LAST)));
        }
        let queue = data["queue"].as_object().cloned().unwrap_or_default();
        if queue.is_empty() {
            parts.push(dim("nothing in the queue"));
        } else {
            let counts: Vec<_> = queue.iter().map(|(status, count)| format!("{count} {status}")).collect();
            parts.push(format!("{} {}", heading("queue"), counts.join(", ")));
        }
        let ready: Vec<_> = data["ready"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let left: Vec<LeftAlone> = serde_json::from_value(data["left_alone"].clone()).unwrap_or_default();
        let next = if let Some(in_queue) = queue.get("ready").and_then(Value::as_i64) {
            let mut next: Vec<String> = left.iter().map(LeftAlone::advice).collect();
            if in_queue > left.iter().map(|left| left.items).sum() {
                next.insert(0, "trackway work takes what is in the queue".to_owned());
            }
            next.join("; ")
        } else if queue.contains_key("failed") {
            "trackway queue list --status failed shows what failed for good; trackway queue requeue revives it"
                .to_owned()
        } else if let Some(first) = ready.first() {
            parts.push(format!("{} {}", heading("ready"), ready.join(", ")));
            match data["ready_to_run"].as_str() {
                Some(first) => format!("trackway task run {first}, or trackway ready --claim"),
                None => format!("trackway ready --claim takes {first}"),
            }
        } else {
            parts.push(dim("nothing is ready"));
            if queue.contains_key("blocked") {
                "trackway queue list --status blocked says why; trackway queue requeue lets one go on".to_owned()
            } else if queue.is_empty() && has_run {
                "trackway made last lists what the last run made; trackway why FILE says where a file comes from"
                    .to_owned()
            } else if queue.is_empty() {
                "trackway demo tells a small story; trackway --help lists everything".to_owned()
            } else {
                "trackway queue list shows what runs and what waits".to_owned()
            }
        };
        parts.push(match (&data["hooked_at"], &data["hooks"]) {
            (Value::Null, Value::Bool(true)) => dim("hooks are installed, and none has fired yet"),
            (Value::Null, _) => {
                let (connect, clients) = (CLIENTS.connect_command(), CLIENTS.display_names());
                dim(&format!("no hooks: {connect} records what {clients} does"))
            }
            (at, hooks) => {
                let here = if *hooks == true { "" } else { "; there are none in the settings here" };
                format!("{} fired last at {}{here}", heading("hooks"), self.shown("hooked_at", at))
            }
        });
        parts.push(format!("{} {next}", heading("next:")));
        parts.join("\n")
    }
}

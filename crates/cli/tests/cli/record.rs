//! What a database tells of Claude Code sessions, in a form in which two databases can be compared.

use serde_json::{Map, Value, json};

use crate::terminal::{Terminal, column, text};

/// What hooks and transcripts know differently, and why. Everything else is the same whichever spoke.
const INHERENT: &[(&str, &str)] = &[
    ("evidence", "which rung spoke first: a hook's rungs do not exist in a transcript"),
    ("source", "only SessionStart says how a session began"),
    ("hooked_at", "when a hook last spoke"),
    ("ended_at", "only SessionEnd and Stop say when; a transcript has the time of the last line"),
    ("started_at", "a hook is called shortly before or after the line is written"),
    ("stopped_at", "the same"),
    ("created_at", "the same"),
    ("updated_at", "the same"),
    ("first_at", "the same"),
    ("last_at", "the same"),
    ("duration", "the same"),
    ("digest", "some versions write no original into the transcript of a subagent"),
    ("asked_at", "only who asked knows when"),
    ("answered_at", "a hook and a transcript see the answer at different times"),
];

/// Ids that each database makes for itself.
const OWN_IDS: &[&str] = &["id", "run_id", "workspace_id", "resource_id", "cause_id", "parent_run_id", "role_id"];

/// All that is told of all sessions: the sessions, their agents and spawns, and every run in full.
pub fn comparable_record(terminal: &Terminal) -> String {
    let sessions = terminal.json(&["session", "list"]);
    let shown: Vec<Value> = column(&sessions, "id").iter().map(|id| terminal.json(&["session", "show", id])).collect();
    let runs = terminal.json(&["run", "list", "--limit", "1000"]);
    let in_full: Vec<Value> = column(&runs, "id").iter().map(|id| terminal.json(&["run", "show", id])).collect();
    let is_root = |run: &&Value| run["parent_run_id"].is_null();
    let trees: Vec<Value> = runs
        .as_array()
        .unwrap()
        .iter()
        .filter(is_root)
        .map(|run| terminal.json(&["run", "tree", &text(&run["id"])]))
        .collect();
    let all = json!({
        "sessions": shown,
        "subagents": terminal.json(&["subagent", "list", "--limit", "1000"]),
        "spawns": terminal.json(&["spawn", "list", "--limit", "1000"]),
        "runs": in_full,
        "trees": trees,
        "usage": terminal.json(&["usage", "--by", "agent"]),
    });
    format!("{:#}\n", without_inherent_differences(all))
}

/// Without what is inherently different, in an order that does not depend on times.
fn without_inherent_differences(value: Value) -> Value {
    match value {
        Value::Object(fields) => {
            // A session's id and a client's agent are the client's own; a run's are ours.
            let of_client = |name: &str, value: &Value| match name {
                "id" => fields.contains_key("transcript_path") && !value.is_null(),
                "agent_id" => !is_uuid_v7(value),
                _ => false,
            };
            let kept: Map<String, Value> = fields
                .iter()
                // A number of touches counts commits, too.
                .filter(|(name, value)| !(*name == "touches" && value.is_number()))
                .filter(|(name, value)| {
                    !INHERENT.iter().any(|(inherent, _)| inherent == name)
                        && (of_client(name, value)
                            || !(OWN_IDS.contains(&name.as_str()) || *name == "agent_id" && is_uuid_v7(value)))
                })
                .map(|(name, value)| (name.clone(), without_inherent_differences(value.clone())))
                .collect();
            Value::Object(kept)
        }
        Value::Array(values) => {
            // A commit made with `--quiet` stands in the repository only: a hook sees it appear, a transcript never
            // names it.
            let told = |value: &Value| value["resource_type"] != "commit" && !is_warmup(value);
            let mut values: Vec<Value> = values.into_iter().filter(told).map(without_inherent_differences).collect();
            values.sort_by_key(Value::to_string);
            Value::Array(values)
        }
        // A transcript is read after the fact: nothing in it is matched only later.
        Value::String(source) if source == "retry_match" => json!("task_match"),
        // A report is named by its id.
        Value::String(path) if path.starts_with("reports/") => json!("reports/ID"),
        other => other,
    }
}

/// Agents that version 2.0 starts for itself: only a hook is told their type, and they begin before the first prompt or
/// after it, whichever is faster.
fn is_warmup(value: &Value) -> bool {
    let handle = value["agent"].as_str().or(value["key"].as_str()).unwrap_or_default();
    let is_agent = value.get("task_match_index").or(value.get("children").and(value.get("tool_use_id"))).is_some();
    ["Explore@project", "Plan@project", "subagent@project"].contains(&handle)
        || is_agent && (value["role"].is_null() || value["role"] == "Explore" || value["role"] == "Plan")
}

/// Whether it is an id that we made: the client's are random.
fn is_uuid_v7(value: &Value) -> bool {
    value.as_str().is_some_and(|text| text.len() == 36 && text.as_bytes()[14] == b'7')
}

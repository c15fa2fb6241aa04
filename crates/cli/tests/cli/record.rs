//! The record of Claude Code sessions in a form that is equal for two databases with the same facts.

use serde_json::{Map, Value, json};

use crate::terminal::{Terminal, column, text};

/// Fields that differ between hooks and transcripts, with the reason. All other fields must be equal.
const INHERENT_DIFFERENCES: &[(&str, &str)] = &[
    ("evidence", "hooks and transcripts provide different kinds of evidence"),
    ("evidence_kind", "hooks and transcripts provide different kinds of evidence"),
    ("source", "only the SessionStart hook reports how a session began"),
    ("hooked_at", "the time of the last hook, which a transcript does not know"),
    ("ended_at", "hooks report the end; a transcript has only the time of its last line"),
    ("started_at", "a hook is called shortly before or after the line is written"),
    ("stopped_at", "see started_at"),
    ("created_at", "see started_at"),
    ("updated_at", "see started_at"),
    ("first_at", "see started_at"),
    ("last_at", "see started_at"),
    ("duration", "see started_at"),
    ("digest", "some versions leave the original file out of the transcript of a subagent"),
    ("asked_at", "only the hook that asked knows the time"),
    ("answered_at", "hooks and transcripts record the answer at different times"),
];

/// Ids that each database generates.
const OWN_IDS: &[&str] = &["id", "run_id", "workspace_id", "resource_id", "cause_id", "parent_run_id", "role_id"];

/// All sessions with their agents and spawns, all runs in full, and the usage, without inherent differences.
pub fn comparable_record(terminal: &Terminal) -> String {
    let sessions = terminal.json(&["session", "list"]);
    let session_details: Vec<Value> =
        column(&sessions, "id").iter().map(|id| terminal.json(&["session", "show", id])).collect();
    let runs = terminal.json(&["run", "list", "--limit", "1000"]);
    let run_details: Vec<Value> = column(&runs, "id").iter().map(|id| terminal.json(&["run", "show", id])).collect();
    let is_root = |run: &&Value| run["parent_run_id"].is_null();
    let trees: Vec<Value> = runs
        .as_array()
        .unwrap()
        .iter()
        .filter(is_root)
        .map(|run| terminal.json(&["run", "tree", &text(&run["id"])]))
        .collect();
    let all = json!({
        "sessions": session_details,
        "subagents": terminal.json(&["subagent", "list", "--limit", "1000"]),
        "spawns": terminal.json(&["spawn", "list", "--limit", "1000"]),
        "runs": run_details,
        "trees": trees,
        "usage": terminal.json(&["usage", "--by", "agent"]),
    });
    format!("{:#}\n", without_inherent_differences(all))
}

/// Removes fields that inherently differ, and sorts arrays independently of times.
fn without_inherent_differences(value: Value) -> Value {
    match value {
        Value::Object(fields) => {
            // The client chooses session ids and agent ids. Trackway generates the ids of runs.
            let is_client_id = |name: &str, value: &Value| match name {
                "id" => fields.contains_key("transcript_path") && !value.is_null(),
                "agent_id" => !is_uuid_v7(value),
                _ => false,
            };
            let remaining: Map<String, Value> = fields
                .iter()
                // The number of touches includes commits, which this record leaves out.
                .filter(|(name, value)| !(*name == "touches" && value.is_number()))
                .filter(|(name, value)| {
                    !INHERENT_DIFFERENCES.iter().any(|(inherent, _)| inherent == name)
                        && (is_client_id(name, value)
                            || !(OWN_IDS.contains(&name.as_str()) || *name == "agent_id" && is_uuid_v7(value)))
                })
                .map(|(name, value)| (name.clone(), without_inherent_differences(value.clone())))
                .collect();
            Value::Object(remaining)
        }
        Value::Array(values) => {
            // A transcript does not mention a commit made with `--quiet`. A hook detects it in the repository.
            let is_comparable = |value: &Value| value["resource_type"] != "commit" && !is_warmup(value);
            let mut values: Vec<Value> =
                values.into_iter().filter(is_comparable).map(without_inherent_differences).collect();
            values.sort_by_key(Value::to_string);
            Value::Array(values)
        }
        // Ingest reads a complete transcript, so it never needs to retry a match.
        Value::String(source) if source == "retry_match" => json!("task_match"),
        // The path of a report contains a generated id.
        Value::String(path) if path.starts_with("reports/") => json!("reports/ID"),
        other => other,
    }
}

/// Whether the value is a warm-up agent of Claude Code 2.0. Only hooks report the type of a warm-up agent, and the
/// agent may start before or after the first prompt.
fn is_warmup(value: &Value) -> bool {
    let handle = value["agent"].as_str().or(value["key"].as_str()).unwrap_or_default();
    let is_agent = value.get("task_match_index").or(value.get("children").and(value.get("tool_use_id"))).is_some();
    ["Explore@project", "Plan@project", "subagent@project"].contains(&handle)
        || is_agent && (value["role"].is_null() || value["role"] == "Explore" || value["role"] == "Plan")
}

/// Whether the value is an id of Trackway. The client's own ids are random UUIDs.
fn is_uuid_v7(value: &Value) -> bool {
    value.as_str().is_some_and(|text| text.len() == 36 && text.as_bytes()[14] == b'7')
}

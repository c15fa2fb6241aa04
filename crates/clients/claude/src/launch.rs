//! Starts the client for a task: `claude -p` with Trackway's hooks.
//!
//! The session has the run's token, so that its hooks record into the run and extend the lease. Before the agent stops,
//! the hooks ask it for its report and its notes.

use std::{env, path::Path};

use serde_json::{Value, json};
use trackway_capture::{
    connection::{Connection, HookSettings},
    launch::{ClientReport, LaunchScript, Launcher},
    program,
};
use trackway_domain::enums::Memory;

use crate::{ClaudeCode, settings::HookEntries};

/// Environment variable with the command that starts the client, including arguments; `claude` by default.
pub const CLIENT_VARIABLE: &str = "TRACKWAY_CLAUDE";
/// Environment variable with the settings for the client.
pub const SETTINGS_VARIABLE: &str = "TRACKWAY_CLAUDE_SETTINGS";
/// Environment variable with the agent's model, if it has one.
pub const MODEL_VARIABLE: &str = "TRACKWAY_CLAUDE_MODEL";
/// Environment variable with the maximum number of turns, if the queue item, the task or the agent sets one.
pub const MAX_TURNS_VARIABLE: &str = "TRACKWAY_CLAUDE_MAX_TURNS";

const SCRIPT: &str = r#"exec ${TRACKWAY_CLAUDE:-claude} -p --output-format json --permission-mode acceptEdits --settings "$TRACKWAY_CLAUDE_SETTINGS" ${TRACKWAY_CLAUDE_MODEL:+--model "$TRACKWAY_CLAUDE_MODEL"} ${TRACKWAY_CLAUDE_MAX_TURNS:+--max-turns "$TRACKWAY_CLAUDE_MAX_TURNS"}"#;

impl Launcher for ClaudeCode {
    fn unavailable_reason(&self) -> Option<String> {
        let command = env::var(CLIENT_VARIABLE).ok().filter(|command| !command.trim().is_empty());
        let command = command.as_deref().unwrap_or("claude");
        let program = command.split_whitespace().next().unwrap_or_default();
        let is_found = if program.contains('/') {
            Path::new(program).is_file()
        } else {
            program::find_on_path(program).next().is_some()
        };
        (!is_found)
            .then(|| format!("cannot find the program {program:?}; set {CLIENT_VARIABLE} to the path of Claude Code"))
    }

    fn launch_script(&self, instructions: &str, model: Option<&str>, max_turns: Option<i64>) -> LaunchScript {
        // The client gets Trackway's hooks even if it is not connected.
        let program = program::stable_path().unwrap_or_else(|_| "trackway".to_owned());
        let wanted = HookSettings { program, memory: Memory::default(), client: self.version() };
        let settings = json!({ "hooks": wanted.hooks() }).to_string();
        let mut environment = vec![(SETTINGS_VARIABLE, settings.into())];
        environment.extend(model.map(|model| (MODEL_VARIABLE, model.into())));
        environment.extend(max_turns.map(|turns| (MAX_TURNS_VARIABLE, turns.to_string().into())));
        let input = format!(
            "{instructions}\n\nWork on your task now. Your last message is the answer that the requester reads.\n"
        );
        LaunchScript { script: SCRIPT, shell: "sh", input, environment }
    }

    fn parse_report(&self, output: &str) -> Option<ClientReport> {
        let mut lines = output.lines().rev();
        let last_object = lines.find_map(|line| serde_json::from_str::<Value>(line).ok().filter(Value::is_object));
        let result = last_object.filter(|result| result["type"] == "result")?;
        let message = result["result"].as_str().map(str::to_owned);
        let model_usage = result["modelUsage"].as_object().into_iter().flatten();
        let costs: Vec<_> = model_usage
            .filter_map(|(model, used)| {
                Some((Some(model.clone()), used["costUSD"].as_f64().filter(|cost| is_valid_cost(*cost))?))
            })
            .collect();
        let total = || {
            result["total_cost_usd"]
                .as_f64()
                .filter(|cost| is_valid_cost(*cost))
                .map(|cost| (None, cost))
                .into_iter()
                .collect()
        };
        Some(ClientReport {
            session: result["session_id"].as_str().map(str::to_owned),
            failed: result["is_error"] == true,
            reached_max_turns: result["subtype"] == "error_max_turns",
            failure_reason: message.clone().or_else(|| result["subtype"].as_str().map(str::to_owned)),
            message,
            costs: if costs.is_empty() { total() } else { costs },
            result: json!({
                "session_id": result["session_id"], "turns": result["num_turns"], "cost": result["total_cost_usd"],
            }),
        })
    }
}

/// Whether a number is a plausible cost of a session.
fn is_valid_cost(cost: f64) -> bool {
    (0.0..=1e9).contains(&cost)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_last_json_object_of_the_output() {
        let completed = "noise\n{\"type\":\"result\",\"result\":\"Done.\",\"session_id\":\"s\",\"num_turns\":2,\"total_cost_usd\":0.5}\n";
        let report = ClaudeCode.parse_report(completed).unwrap();
        assert_eq!(
            (report.message.as_deref(), report.session.as_deref(), report.failed),
            (Some("Done."), Some("s"), false)
        );
        assert_eq!(report.result, json!({ "session_id": "s", "turns": 2, "cost": 0.5 }));
        let failed =
            ClaudeCode.parse_report("{\"type\":\"result\",\"is_error\":true,\"result\":\"No credit.\"}").unwrap();
        assert_eq!((failed.failed, failed.failure_reason.as_deref()), (true, Some("No credit.")));
        assert_eq!(ClaudeCode.parse_report("hm"), None);
        assert_eq!(ClaudeCode.parse_report("command not found"), None);
    }

    #[test]
    fn reports_costs_per_model_or_else_in_total() {
        let costs = |mut result: Value| {
            result["type"] = json!("result");
            ClaudeCode.parse_report(&result.to_string()).unwrap().costs
        };
        let models = json!({ "opus": { "costUSD": 0.5 }, "haiku": { "costUSD": 0.25 } });
        assert_eq!(
            costs(json!({ "total_cost_usd": 0.75, "modelUsage": models })),
            [(Some("opus".into()), 0.5), (Some("haiku".into()), 0.25)]
        );
        assert_eq!(costs(json!({ "total_cost_usd": 0.75 })), [(None, 0.75)]);
        assert_eq!(costs(json!({ "total_cost_usd": "much" })), []);
    }
}

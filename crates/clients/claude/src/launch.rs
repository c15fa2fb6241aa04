//! Starting the client for a task: `claude -p` with our hooks on.
//!
//! The session has the run's token, so it happens in the run, and its hooks extend the lease. The hooks ask what the agent
//! learned before it stops.

use std::{env, path::Path};

use serde_json::{Value, json};
use trackway_capture::{
    connection::{Connection, Wanted},
    launch::{Launcher, Report, Start},
    program,
};
use trackway_domain::words::Memory;

use crate::{ClaudeCode, settings::Hooks};

/// The client, with arguments that it should always have; `claude` by default.
pub const CLIENT: &str = "TRACKWAY_CLAUDE";
/// The settings it is started with.
pub const SETTINGS: &str = "TRACKWAY_CLAUDE_SETTINGS";
/// The model it is to use, when its agent names one.
pub const MODEL: &str = "TRACKWAY_CLAUDE_MODEL";

const SCRIPT: &str = r#"exec ${TRACKWAY_CLAUDE:-claude} -p --output-format json --permission-mode acceptEdits --settings "$TRACKWAY_CLAUDE_SETTINGS" ${TRACKWAY_CLAUDE_MODEL:+--model "$TRACKWAY_CLAUDE_MODEL"}"#;

impl Launcher for ClaudeCode {
    fn missing(&self) -> Option<String> {
        let given = env::var(CLIENT).ok().filter(|given| !given.trim().is_empty());
        let given = given.as_deref().unwrap_or("claude");
        let program = given.split_whitespace().next().unwrap_or_default();
        let is_found = if program.contains('/') {
            Path::new(program).is_file()
        } else {
            program::on_path(program).next().is_some()
        };
        (!is_found).then(|| format!("there is no program {program:?}; {CLIENT} says where Claude Code is"))
    }

    fn start(&self, told: &str, model: Option<&str>) -> Start {
        // Our hooks, whether or not the client is connected otherwise.
        let program = program::lasting().unwrap_or_else(|_| "trackway".to_owned());
        let wanted = Wanted { program, memory: Memory::default(), client: self.version() };
        let settings = json!({ "hooks": wanted.hooks() }).to_string();
        let mut environment = vec![(SETTINGS, settings.into())];
        environment.extend(model.map(|model| (MODEL, model.into())));
        let input = format!("{told}\n\nWork on your task now. Your last message is what whoever asked will read.\n");
        Start { script: SCRIPT, shell: "sh", input, environment }
    }

    fn report(&self, output: &str) -> Option<Report> {
        let mut lines = output.lines().rev();
        let last = lines.find_map(|line| serde_json::from_str::<Value>(line).ok().filter(Value::is_object));
        let result = last.filter(|result| result["type"] == "result")?;
        let message = result["result"].as_str().map(str::to_owned);
        let of_models = result["modelUsage"].as_object().into_iter().flatten();
        let costs: Vec<_> = of_models
            .filter_map(|(model, used)| {
                Some((Some(model.clone()), used["costUSD"].as_f64().filter(|cost| is_sane(*cost))?))
            })
            .collect();
        let total = || {
            result["total_cost_usd"]
                .as_f64()
                .filter(|cost| is_sane(*cost))
                .map(|cost| (None, cost))
                .into_iter()
                .collect()
        };
        Some(Report {
            session: result["session_id"].as_str().map(str::to_owned),
            failed: result["is_error"] == true,
            why: message.clone().or_else(|| result["subtype"].as_str().map(str::to_owned)),
            message,
            costs: if costs.is_empty() { total() } else { costs },
            result: json!({
                "session_id": result["session_id"], "turns": result["num_turns"], "cost": result["total_cost_usd"],
            }),
        })
    }
}

/// Whether a number can be what a session cost.
fn is_sane(cost: f64) -> bool {
    (0.0..=1e9).contains(&cost)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_object_printed_is_the_report() {
        let good = "noise\n{\"type\":\"result\",\"result\":\"Done.\",\"session_id\":\"s\",\"num_turns\":2,\"total_cost_usd\":0.5}\n";
        let report = ClaudeCode.report(good).unwrap();
        assert_eq!(
            (report.message.as_deref(), report.session.as_deref(), report.failed),
            (Some("Done."), Some("s"), false)
        );
        assert_eq!(report.result, json!({ "session_id": "s", "turns": 2, "cost": 0.5 }));
        let bad = ClaudeCode.report("{\"type\":\"result\",\"is_error\":true,\"result\":\"No credit.\"}").unwrap();
        assert_eq!((bad.failed, bad.why.as_deref()), (true, Some("No credit.")));
        assert_eq!(ClaudeCode.report("hm"), None);
        assert_eq!(ClaudeCode.report("command not found"), None);
    }

    #[test]
    fn a_session_costs_what_each_of_its_models_cost() {
        let costs = |mut result: Value| {
            result["type"] = json!("result");
            ClaudeCode.report(&result.to_string()).unwrap().costs
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

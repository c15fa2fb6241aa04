//! The Claude Code executor: the installed client in the directory of the workspace, with our hooks on.
//!
//! It is started as a script is, so that it ends as one does. The client has the run's token: its session is the run, and
//! its hooks keep the lease alive. What it learned it is asked by the hooks before it stops, in its own session.

use serde_json::{Value, json};
use trackway_views::assignment::Assignment;

use crate::executor::Ended;

/// The client, with arguments that it should always have; `claude` by default.
pub const CLIENT: &str = "TRACKWAY_CLAUDE";
/// The settings it is started with.
pub const SETTINGS: &str = "TRACKWAY_CLAUDE_SETTINGS";
/// The model it is to use, when its agent names one.
pub const MODEL: &str = "TRACKWAY_CLAUDE_MODEL";

const SCRIPT: &str = r#"exec ${TRACKWAY_CLAUDE:-claude} -p --output-format json --permission-mode acceptEdits --settings "$TRACKWAY_CLAUDE_SETTINGS" ${TRACKWAY_CLAUDE_MODEL:+--model "$TRACKWAY_CLAUDE_MODEL"}"#;

/// The same assignment as a script that starts the client, with what the agent is told as its input.
pub fn as_script(assignment: &Assignment, told: &str) -> Assignment {
    Assignment {
        script: Some(SCRIPT.to_owned()),
        shell: Some("sh".to_owned()),
        message_body: Some(format!(
            "{told}\n\nWork on your task now. Your last message is what whoever asked will read.\n"
        )),
        ..assignment.clone()
    }
}

/// How the client says it ended: its result is the last object it prints.
pub fn ended(ended: Ended, output: &str) -> Ended {
    let result =
        output.lines().rev().find_map(|line| serde_json::from_str::<Value>(line).ok().filter(Value::is_object));
    let Some(result) = result.filter(|result| result["type"] == "result") else {
        return match ended {
            Ended::Completed { .. } => Ended::Failed { error: "Claude Code gave no result".to_owned() },
            other => other,
        };
    };
    let said = result["result"].as_str().map(str::to_owned);
    let failed = result["is_error"] == true || matches!(ended, Ended::Failed { .. });
    match ended {
        Ended::Completed { .. } | Ended::Failed { .. } if failed => {
            let what = said.or_else(|| result["subtype"].as_str().map(str::to_owned));
            Ended::Failed { error: what.unwrap_or_else(|| "Claude Code failed".to_owned()) }
        }
        Ended::Completed { .. } => Ended::Completed {
            message: said,
            result: json!({ "session_id": result["session_id"], "turns": result["num_turns"], "cost": result["total_cost_usd"] }),
        },
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn completed() -> Ended {
        Ended::Completed { message: Some("{".into()), result: json!({ "exit_code": 0 }) }
    }

    #[test]
    fn the_result_says_how_it_ended() {
        let good = "noise\n{\"type\":\"result\",\"result\":\"Done.\",\"session_id\":\"s\",\"num_turns\":2,\"total_cost_usd\":0.5}\n";
        let result = json!({ "session_id": "s", "turns": 2, "cost": 0.5 });
        assert_eq!(ended(completed(), good), Ended::Completed { message: Some("Done.".into()), result });
        let bad = "{\"type\":\"result\",\"is_error\":true,\"result\":\"No credit.\"}";
        assert_eq!(ended(completed(), bad), Ended::Failed { error: "No credit.".into() });
        assert_eq!(ended(completed(), "hm"), Ended::Failed { error: "Claude Code gave no result".into() });
        assert_eq!(ended(Ended::Lost, good), Ended::Lost);
        let failed = Ended::Failed { error: "exit code 1".into() };
        assert_eq!(ended(failed.clone(), "command not found"), failed);
    }
}

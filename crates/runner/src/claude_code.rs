//! The Claude Code executor: the installed client in the directory of the workspace, with our hooks on.
//!
//! It is started as a script is, so that it ends as one does. The client has the run's token: its session is the run, and
//! its hooks keep the lease alive. What it learned it is asked by the hooks before it stops, in its own session.

use serde_json::{Value, json};
use trackway_actions::run::RecordUsage;
use trackway_domain::{Id, kind, text};
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

/// What the client says of its session: the last object it prints.
pub fn result(output: &str) -> Option<Value> {
    let last = output.lines().rev().find_map(|line| serde_json::from_str::<Value>(line).ok().filter(Value::is_object));
    last.filter(|result| result["type"] == "result")
}

/// What a session cost, for each model it used. Its tokens are counted call by call, from its transcript.
pub fn costs(run: Id<kind::Run>, result: Option<&Value>, model: Option<&str>) -> Vec<RecordUsage> {
    let Some(result) = result else {
        return Vec::new();
    };
    let session = result["session_id"].as_str().unwrap_or_default();
    let row = |model: Option<&str>, cost: f64| RecordUsage {
        run: run.into(),
        model: model.map(|model| text::cut(&text::clean_line(model), text::LINE_MAX - 1)),
        message_id: Some(text::cut(
            &text::clean_line(&format!("cost {} {session} {}", run.uuid().simple(), model.unwrap_or_default())),
            text::LINE_MAX - 1,
        )),
        input_tokens: None,
        output_tokens: None,
        cache_creation_tokens: None,
        cache_read_tokens: None,
        cost: Some(cost),
    };
    let is_sane = |cost: &f64| (0.0..=1e9).contains(cost);
    let of_models = result["modelUsage"].as_object().into_iter().flatten();
    let rows: Vec<RecordUsage> = of_models
        .filter_map(|(model, used)| Some(row(Some(model), used["costUSD"].as_f64().filter(is_sane)?)))
        .collect();
    if rows.is_empty() {
        return result["total_cost_usd"].as_f64().filter(is_sane).map(|cost| row(model, cost)).into_iter().collect();
    }
    rows
}

/// How the client says it ended.
pub fn ended(ended: Ended, result: Option<&Value>) -> Ended {
    let Some(result) = result else {
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
    use trackway_domain::Time;

    use super::*;

    fn completed() -> Ended {
        Ended::Completed { message: Some("{".into()), result: json!({ "exit_code": 0 }) }
    }

    #[test]
    fn the_result_says_how_it_ended() {
        let ended = |before: Ended, output: &str| ended(before, result(output).as_ref());
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

    #[test]
    fn a_session_costs_what_each_of_its_models_cost() {
        let cost = |result: Value| -> Vec<(Option<String>, Option<f64>)> {
            costs(Id::new(Time::from_micros(0)), Some(&result), Some("m-1"))
                .into_iter()
                .map(|usage| (usage.model, usage.cost))
                .collect()
        };
        let models = json!({ "opus": { "costUSD": 0.5 }, "haiku": { "costUSD": 0.25 } });
        assert_eq!(
            cost(json!({ "total_cost_usd": 0.75, "modelUsage": models })),
            [(Some("opus".into()), Some(0.5)), (Some("haiku".into()), Some(0.25))]
        );
        assert_eq!(cost(json!({ "total_cost_usd": 0.75 })), [(Some("m-1".into()), Some(0.75))]);
        assert_eq!(cost(json!({ "total_cost_usd": "much" })), []);
    }
}

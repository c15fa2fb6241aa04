//! Prompts: what an agent is told when it wakes, and what it does before it stops.

use rmcp::model::{GetPromptResult, JsonObject, Prompt, PromptArgument, PromptMessage, Role};
use serde_json::{Value, json};
use trackway_actions::context::{Actor, Context};
use trackway_domain::{Error as Rule, scratchpad::SCRATCHPAD_MAX, wake_context::fenced};
use trackway_views::scratchpad;

use crate::{pages, problem::Problem, site::Site};

/// Every prompt.
pub fn all() -> Vec<Prompt> {
    let argument =
        |name: &str, said: &str, needed: bool| PromptArgument::new(name).with_description(said).with_required(needed);
    vec![
        Prompt::new(
            "wake",
            Some("What an agent is told when it wakes on a task"),
            Some(vec![argument("task", "The task", true), argument("agent", "The agent", false)]),
        ),
        Prompt::new(
            "hand_off",
            Some("What to write down before you stop, so that others and your next run can go on"),
            Some(vec![argument("task", "The task it is about, when it is not your run's", false)]),
        ),
    ]
}

/// The prompt of a name.
pub fn get(site: &Site, context: &Context, name: &str, arguments: &JsonObject) -> Result<GetPromptResult, Problem> {
    let said = match name {
        "wake" => wake(site, context, arguments)?,
        "hand_off" => hand_off(site, context, arguments.get("task").and_then(Value::as_str))?,
        _ => {
            return Err(Rule::usage(format!("there is no prompt {name:?}")).hint("there are wake and hand_off").into());
        }
    };
    Ok(GetPromptResult::new(vec![PromptMessage::new_text(Role::User, said)]))
}

fn wake(site: &Site, context: &Context, arguments: &JsonObject) -> Result<String, Problem> {
    if arguments.get("task").and_then(Value::as_str).is_none_or(str::is_empty) {
        return Err(Rule::usage("wake needs `task`, the variant or the id of a task")
            .hint("`ready` lists some")
            .into());
    }
    let mut read = site.core.reader(context)?;
    let input = json!({ "task": arguments.get("task"), "agent": arguments.get("agent") });
    let told = pages::ask(&mut read, ("", "wake"), input)?.data;
    Ok(told["text"].as_str().unwrap_or_default().to_owned())
}

fn hand_off(site: &Site, context: &Context, task: Option<&str>) -> Result<String, Problem> {
    const GOOD: &str = "key learnings, important context, work in progress and follow-ups, preferences seen";
    let task = task.map_or_else(String::new, |task| format!(" on the task `{}`", task.replace('`', "'")));
    let Actor::Agent(agent) = context.actor else {
        return Ok(format!(
            "Before you stop, write down how it stands{task}. `act` with `set_report` says it for an agent, `set_scratchpad` keeps what that agent should know next time, `create_note` tells everybody. Keep {GOOD}."
        ));
    };
    let mut read = site.core.reader(context)?;
    let pad = scratchpad::current(&mut read, agent)?;
    let present = match pad.filter(|pad| !pad.content.trim().is_empty()) {
        Some(pad) => format!("It now holds (revision {}):\n\n{}", pad.revision, fenced("text", &pad.content)),
        None => "It is empty.".to_owned(),
    };
    Ok(format!(
        "Before you stop:\n\n1. `update_report`{task}: what you did and found, in one line, in short, and whole.\n2. `update_scratchpad`: what your next run should know, at most {SCRATCHPAD_MAX} characters; it replaces all of it. Keep {GOOD}.\n\n{present}"
    ))
}

//! MCP prompts: the wake prompt, and what an agent should write down before it stops.

use rmcp::model::{GetPromptResult, JsonObject, Prompt, PromptArgument, PromptMessage, Role};
use serde_json::{Value, json};
use trackway_actions::context::{Actor, Context};
use trackway_domain::{Error as Rule, scratchpad::SCRATCHPAD_MAX, wake_context::fenced};
use trackway_views::scratchpad;

use crate::{pages, problem::Problem, site::Site};

/// All prompts.
pub fn all() -> Vec<Prompt> {
    let argument = |name: &str, description: &str, is_required: bool| {
        PromptArgument::new(name).with_description(description).with_required(is_required)
    };
    vec![
        Prompt::new(
            "wake",
            Some("The prompt with which an agent wakes on a task"),
            Some(vec![
                argument("task", "The task's variant or id", true),
                argument("agent", "The agent's handle or id", false),
            ]),
        ),
        Prompt::new(
            "hand_off",
            Some("What to write down before you stop, for others and for your next run"),
            Some(vec![argument("task", "The task, if it is not the task of your run", false)]),
        ),
    ]
}

/// Renders the prompt with this name.
pub fn get(site: &Site, context: &Context, name: &str, arguments: &JsonObject) -> Result<GetPromptResult, Problem> {
    let text = match name {
        "wake" => wake(site, context, arguments)?,
        "hand_off" => hand_off(site, context, arguments.get("task").and_then(Value::as_str))?,
        _ => {
            return Err(Rule::usage(format!("unknown prompt {name:?}")).hint("valid prompts: wake, hand_off").into());
        }
    };
    Ok(GetPromptResult::new(vec![PromptMessage::new_text(Role::User, text)]))
}

fn wake(site: &Site, context: &Context, arguments: &JsonObject) -> Result<String, Problem> {
    if arguments.get("task").and_then(Value::as_str).is_none_or(str::is_empty) {
        return Err(Rule::usage("wake needs `task`: the variant or id of a task").hint("`ready` lists tasks").into());
    }
    let mut read = site.core.reader(context)?;
    let input = json!({ "task": arguments.get("task"), "agent": arguments.get("agent") });
    let wake = pages::query_view(&mut read, ("", "wake"), input)?.data;
    Ok(wake["text"].as_str().unwrap_or_default().to_owned())
}

fn hand_off(site: &Site, context: &Context, task: Option<&str>) -> Result<String, Problem> {
    const TOPICS: &str = "key learnings, important context, work in progress and follow-ups, observed preferences";
    let task = task.map_or_else(String::new, |task| format!(" on the task `{}`", task.replace('`', "'")));
    let Actor::Agent(agent) = context.actor else {
        return Ok(format!(
            "Before you stop, write down the state of the work{task}. `act` with `set_report` writes the report of an agent, `set_scratchpad` saves what that agent should know next time, and `create_note` saves a note for everybody. Keep {TOPICS}."
        ));
    };
    let mut read = site.core.reader(context)?;
    let scratchpad = scratchpad::find_scratchpad(&mut read, agent)?;
    let content = match scratchpad.filter(|scratchpad| !scratchpad.content.trim().is_empty()) {
        Some(scratchpad) => format!(
            "Your scratchpad now contains (revision {}):\n\n{}",
            scratchpad.revision,
            fenced("text", &scratchpad.content)
        ),
        None => "Your scratchpad is empty.".to_owned(),
    };
    Ok(format!(
        "Before you stop:\n\n1. `update_report`{task}: what you did and found: one line, a summary, and the full report.\n2. `update_scratchpad`: what your next run should know, at most {SCRATCHPAD_MAX} characters. It replaces the whole scratchpad. Keep {TOPICS}.\n\n{content}"
    ))
}

//! The reference pages, made from the code.

use std::fmt::Write;

use clap::Command;
use serde_json::Value;
use trackway_actions::registry::ACTIONS;
use trackway_domain::capability::{self, Allowance};
use trackway_server::mcp::{prompts, resources, tools};

use crate::{arguments, environment};

/// Every page: its file below `docs/reference`, and its text.
pub fn pages() -> Vec<(&'static str, String)> {
    vec![("cli.md", commands()), ("actions.md", actions()), ("environment.md", variables()), ("mcp.md", mcp())]
}

fn commands() -> String {
    let mut out =
        "# Commands\n\nMade from the code. Every command takes `--db URL`, `--tenant NAME` and `--json`.\n".to_owned();
    let mut root = arguments::command().term_width(100);
    root.build();
    describe(&mut out, &root, "");
    out
}

fn describe(out: &mut String, command: &Command, path: &str) {
    let name = format!("{path} {}", command.get_name()).trim().to_owned();
    if command.get_subcommands().next().is_none() {
        let help = command.clone().bin_name(&name).term_width(100).render_help().to_string();
        let own = help.split("\nEverywhere:").next().unwrap_or_default();
        let kept: Vec<_> = own.lines().map(str::trim_end).filter(|line| !line.contains("-h, --help")).collect();
        let kept = kept.join("\n");
        let kept = kept.trim_end().trim_end_matches("Options:").trim_end();
        let _ = write!(out, "\n## `{name}`\n\n```text\n{kept}\n```\n");
    }
    for below in command.get_subcommands().filter(|below| below.get_name() != "help") {
        describe(out, below, &name);
    }
}

fn actions() -> String {
    let mut out = "# Actions\n\nMade from the code. Every change is one of these.\n\n".to_owned();
    out.push_str("| action | command | resource | action type | who may |\n|---|---|---|---|---|\n");
    for action in ACTIONS {
        let touches = (action.touches)();
        let resources: Vec<_> = touches.iter().map(|(resource, _)| resource.word()).collect();
        let types: Vec<_> = touches.iter().map(|(_, did)| did.word()).collect();
        let may = match capability::allowance(action.capability) {
            Some(Allowance::Default) => "people; agents by default",
            Some(Allowance::Granted) => "people; agents with a grant",
            Some(Allowance::OwnRun) => "people; a run, about itself",
            Some(Allowance::People) => "people",
            None => "nobody",
        };
        let (noun, verb) = action.command;
        let capability =
            if action.capability == action.name { String::new() } else { format!(" (`{}`)", action.capability) };
        let _ = writeln!(
            out,
            "| `{}` | `{noun} {verb}` | {} | {} | {may}{capability} |",
            action.name,
            resources.join(", "),
            types.join(", ")
        );
    }
    out
}

fn variables() -> String {
    let mut out = "# Environment\n\nMade from the code.\n\n| variable | what it does |\n|---|---|\n".to_owned();
    for (name, what) in environment::VARIABLES {
        let _ = writeln!(out, "| `{name}` | {what} |");
    }
    out
}

fn mcp() -> String {
    let mut out = "# MCP\n\nMade from the code. `trackway mcp` serves this on standard input and output, `trackway up` at `POST /mcp`.\n\n## Tools\n".to_owned();
    for tool in tools::all() {
        let said = tool.description.unwrap_or_default();
        let _ = write!(out, "\n### `{}`\n\n{said}\n", tool.name);
        let needed = tool.input_schema.get("required").and_then(Value::as_array).cloned().unwrap_or_default();
        let fields = tool.input_schema.get("properties").and_then(Value::as_object).into_iter().flatten();
        for (index, (name, field)) in fields.enumerate() {
            let said = field.get("description").and_then(Value::as_str).unwrap_or_default();
            let needed = if needed.iter().any(|needed| needed == name) { " (needed)" } else { "" };
            let before = if index == 0 { "\n" } else { "" };
            let _ = writeln!(out, "{before}- `{name}`{needed}: {said}");
        }
    }
    out.push_str("\n## Resources\n\n| address | what it is |\n|---|---|\n");
    for template in resources::templates() {
        let _ = writeln!(out, "| `{}` | {} |", template.uri_template, template.description.unwrap_or_default());
    }
    out.push_str("\n## Prompts\n\n| prompt | what it says | arguments |\n|---|---|---|\n");
    for prompt in prompts::all() {
        let arguments: Vec<_> =
            prompt.arguments.into_iter().flatten().map(|argument| format!("`{}`", argument.name)).collect();
        let _ = writeln!(
            out,
            "| `{}` | {} | {} |",
            prompt.name,
            prompt.description.unwrap_or_default(),
            arguments.join(", ")
        );
    }
    out
}

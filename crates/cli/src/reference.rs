//! The reference pages, made from the code.

use std::fmt::Write;

use clap::Command;
use serde_json::Value;
use trackway_actions::registry::ACTIONS;
use trackway_clients::CLIENTS;
use trackway_domain::capability::{self, Allowance};
use trackway_runner::model::Price;
use trackway_server::{
    api, input,
    mcp::{prompts, resources, tools},
    nouns::NOUNS,
};

use crate::{
    arguments,
    config::{Config, ModelConfig},
    environment,
};

/// Every page: its file below `docs/reference`, and its text.
pub fn pages() -> Vec<(&'static str, String)> {
    vec![
        ("cli.md", commands()),
        ("actions.md", actions()),
        ("environment.md", variables()),
        ("configuration.md", configuration()),
        ("http.md", http()),
        ("mcp.md", mcp()),
    ]
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
    let of_clients = CLIENTS.0.iter().flat_map(|client| client.variables());
    for (name, what) in environment::VARIABLES.iter().chain(of_clients) {
        let _ = writeln!(out, "| `{name}` | {what} |");
    }
    out
}

fn configuration() -> String {
    let mut out = "# Configuration\n\nMade from the code. `config.toml` beside the project's database (`.trackway/config.toml`), and the user's (`~/.config/trackway/config.toml`). Flags win over the environment, that over the project's file, that over the user's.\n".to_owned();
    for (heading, schema) in [
        ("At the top", schemars::schema_for!(Config)),
        ("`[model]`", schemars::schema_for!(ModelConfig)),
        ("`[model.prices.\"NAME\"]`, in dollars for a million tokens", schemars::schema_for!(Price)),
    ] {
        let _ = write!(out, "\n## {heading}\n\n| key | what it says |\n|---|---|\n");
        for (key, field) in input::fields(&schema).into_iter().flatten() {
            let said = field.get("description").and_then(Value::as_str).unwrap_or_default();
            let _ = writeln!(out, "| `{key}` | {} |", said.replace('\n', " "));
        }
    }
    out
}

fn http() -> String {
    let mut out = "# HTTP\n\nMade from the code. Every page is JSON, Markdown or HTML, by `Accept` or by its ending (`.json`, `.md`). `/api/openapi.json` describes the questions and actions in full; [the guide](../guides/pages.md) says who gets in.\n\n## Pages\n\n| page | what it shows |\n|---|---|\n".to_owned();
    for (path, said) in [
        ("/", "where things stand"),
        ("/whoami", "who you are, your run, your task, your scratchpad, how to go on"),
        ("/why?of=THING", "the chain from a thing to the person who answers for it"),
        ("/search?words=WORDS", "messages with these words"),
        ("/usage?by=day", "tokens and cost, by day, task, agent or model"),
        ("/wake?task=TASK&agent=AGENT", "what an agent would be told if it woke"),
        ("/api", "every question and action, to read and to try"),
        (
            "/live",
            "what happens, as server-sent events; who comes back with `Last-Event-ID` is told first what it missed",
        ),
        ("/mcp", "the Model Context Protocol"),
        ("/login?code=CODE, POST /logout", "a browser's login"),
        ("/healthz, /readyz, /metrics", "for whoever watches the process"),
    ] {
        let _ = writeln!(out, "| `{path}` | {said} |");
    }
    for noun in NOUNS.iter().filter(|noun| noun.list.is_some()) {
        let one = if noun.one.is_some() { format!(", `/{}/{{reference}}`", noun.path) } else { String::new() };
        let _ = writeln!(out, "| `/{}`{one} | {} |", noun.path, noun.title.to_lowercase());
    }
    out.push_str("\nWhat can be done at a page is listed at `<page>/actions`, described at `<page>/actions/<name>`, and done with a `POST` there.\n\n## Questions\n\n| `GET` | what it answers |\n|---|---|\n");
    let document = api::openapi();
    let paths = document["paths"].as_object().into_iter().flatten();
    let (asked, done): (Vec<_>, Vec<_>) = paths.partition(|(_, operations)| operations.get("get").is_some());
    out.push_str(&operations(asked, "get"));
    out.push_str("\n## Actions\n\n| `POST` | what it does |\n|---|---|\n");
    out.push_str(&operations(done, "post"));
    out
}

fn operations(all: Vec<(&String, &Value)>, method: &str) -> String {
    let line = |(path, operations): (&String, &Value)| {
        let said = operations[method]["summary"].as_str().unwrap_or_default().lines().next().unwrap_or_default();
        format!("| `{path}` | {said} |\n")
    };
    all.into_iter().map(line).collect()
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

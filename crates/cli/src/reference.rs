//! Generates the reference pages in `docs/reference`.

use std::fmt::Write;

use clap::Command;
use serde_json::Value;
use trackway_actions::registry::ACTIONS;
use trackway_clients::CLIENTS;
use trackway_domain::capability::{self, CapabilityClass};
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

/// The file name and the text of each page.
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
        "# Commands\n\nThis page is generated. Every command accepts `--db URL`, `--tenant NAME` and `--json`.\n"
            .to_owned();
    let mut root = arguments::command().term_width(100);
    root.build();
    describe(&mut out, &root, "");
    out
}

fn describe(out: &mut String, command: &Command, path: &str) {
    let name = format!("{path} {}", command.get_name()).trim().to_owned();
    if command.get_subcommands().next().is_none() {
        let help = command.clone().bin_name(&name).term_width(100).render_help().to_string();
        let own = help.split("\nGlobal options:").next().unwrap_or_default();
        // In a long list of options, the description of `--help` is on a line of its own.
        let is_help_flag = |line: &&str| line.contains("-h, --help") || line.trim() == "Print help";
        let help_text: Vec<_> = own.lines().map(str::trim_end).filter(|line| !is_help_flag(line)).collect();
        let help_text = help_text.join("\n");
        let help_text = help_text.trim_end().trim_end_matches("Options:").trim_end();
        let _ = write!(out, "\n## `{name}`\n\n```text\n{help_text}\n```\n");
    }
    for below in command.get_subcommands().filter(|below| below.get_name() != "help") {
        describe(out, below, &name);
    }
}

fn actions() -> String {
    let mut out = "# Actions\n\nThis page is generated. Every change is one of these actions.\n\n".to_owned();
    out.push_str("| action | command | resource | action type | allowed for |\n|---|---|---|---|---|\n");
    for action in ACTIONS {
        let touches = (action.touches)();
        let resources: Vec<_> = touches.iter().map(|(resource, _)| resource.as_str()).collect();
        let types: Vec<_> = touches.iter().map(|(_, action_type)| action_type.as_str()).collect();
        let may = match capability::class_of(action.capability) {
            Some(CapabilityClass::Default) => "people; agents by default",
            Some(CapabilityClass::Granted) => "people; agents with a grant",
            Some(CapabilityClass::OwnRun) => "people; a run, about itself",
            Some(CapabilityClass::People) => "people",
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
    let mut out = "# Environment\n\nThis page is generated.\n\n| variable | description |\n|---|---|\n".to_owned();
    let of_clients = CLIENTS.0.iter().flat_map(|client| client.variables());
    for (name, what) in environment::VARIABLES.iter().chain(of_clients) {
        let _ = writeln!(out, "| `{name}` | {what} |");
    }
    out
}

fn configuration() -> String {
    let mut out = "# Configuration\n\nThis page is generated. Trackway reads `.trackway/config.toml` next to the project's database, and `~/.config/trackway/config.toml` of the user. Precedence: flags, environment variables, the project's file, the user's file.\n".to_owned();
    for (heading, schema) in [
        ("Top level", schemars::schema_for!(Config)),
        ("`[model]`", schemars::schema_for!(ModelConfig)),
        ("`[model.prices.\"NAME\"]`, in dollars per million tokens", schemars::schema_for!(Price)),
    ] {
        let _ = write!(out, "\n## {heading}\n\n| key | description |\n|---|---|\n");
        for (key, field) in input::fields(&schema).into_iter().flatten() {
            let description = field.get("description").and_then(Value::as_str).unwrap_or_default();
            let _ = writeln!(out, "| `{key}` | {} |", description.replace('\n', " "));
        }
    }
    out
}

fn http() -> String {
    let mut out = "# HTTP\n\nThis page is generated. Every page is available as JSON, Markdown and HTML, selected by the `Accept` header or a suffix (`.json`, `.md`). `/api/openapi.json` describes all views and actions; [the guide](../guides/pages.md) describes authentication.\n\n## Pages\n\n| page | content |\n|---|---|\n".to_owned();
    for (path, description) in [
        ("/", "status of runs, queue and hooks"),
        ("/whoami", "your identity, your run, your task, your scratchpad and next steps"),
        ("/why?of=THING", "the chain from a thing to the person at whose request it was made"),
        ("/search?words=WORDS", "messages with these words"),
        ("/usage?by=day", "tokens and cost, by day, task, agent or model"),
        ("/wake?task=TASK&agent=AGENT", "the wake prompt that an agent would receive"),
        ("/api", "documentation of all views and actions, with forms to try them"),
        (
            "/live",
            "changes as server-sent events; a client that reconnects with `Last-Event-ID` receives the events it missed",
        ),
        ("/mcp", "the Model Context Protocol"),
        ("/login?code=CODE, POST /logout", "login and logout of a browser"),
        ("/healthz, /readyz, /metrics", "monitoring of the process"),
    ] {
        let _ = writeln!(out, "| `{path}` | {description} |");
    }
    for noun in NOUNS.iter().filter(|noun| noun.list_verb.is_some()) {
        let one = if noun.show_verb.is_some() { format!(", `/{}/{{reference}}`", noun.path) } else { String::new() };
        let _ = writeln!(out, "| `/{}`{one} | {} |", noun.path, noun.title.to_lowercase());
    }
    out.push_str("\n`<page>/actions` lists the actions of a page, `<page>/actions/<name>` describes one, and a `POST` there executes it.\n\n## Views\n\n| `GET` | content |\n|---|---|\n");
    let document = api::openapi();
    let paths = document["paths"].as_object().into_iter().flatten();
    let (asked, done): (Vec<_>, Vec<_>) = paths.partition(|(_, operations)| operations.get("get").is_some());
    out.push_str(&operations(asked, "get"));
    out.push_str("\n## Actions\n\n| `POST` | description |\n|---|---|\n");
    out.push_str(&operations(done, "post"));
    out
}

fn operations(all: Vec<(&String, &Value)>, method: &str) -> String {
    let line = |(path, operations): (&String, &Value)| {
        let description = operations[method]["summary"].as_str().unwrap_or_default().lines().next().unwrap_or_default();
        format!("| `{path}` | {description} |\n")
    };
    all.into_iter().map(line).collect()
}

fn mcp() -> String {
    let mut out = "# MCP\n\nThis page is generated. `trackway mcp` serves MCP on standard input and output, `trackway up` at `POST /mcp`.\n\n## Tools\n".to_owned();
    for tool in tools::all() {
        let description = tool.description.unwrap_or_default();
        let _ = write!(out, "\n### `{}`\n\n{description}\n", tool.name);
        let needed = tool.input_schema.get("required").and_then(Value::as_array).cloned().unwrap_or_default();
        let fields = tool.input_schema.get("properties").and_then(Value::as_object).into_iter().flatten();
        for (index, (name, field)) in fields.enumerate() {
            let description = field.get("description").and_then(Value::as_str).unwrap_or_default();
            let needed = if needed.iter().any(|needed| needed == name) { " (required)" } else { "" };
            let before = if index == 0 { "\n" } else { "" };
            let _ = writeln!(out, "{before}- `{name}`{needed}: {description}");
        }
    }
    out.push_str("\n## Resources\n\n| URI | description |\n|---|---|\n");
    for template in resources::templates() {
        let _ = writeln!(out, "| `{}` | {} |", template.uri_template, template.description.unwrap_or_default());
    }
    out.push_str("\n## Prompts\n\n| prompt | description | arguments |\n|---|---|---|\n");
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

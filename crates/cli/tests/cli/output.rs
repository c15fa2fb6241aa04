//! Command output: plain text in a pipe, one JSON envelope, pagination, help, completions and manual pages.

use std::fs;

use serde_json::json;
use snapbox::str;

use crate::terminal::{Terminal, both_engines, run_command, text};

/// Replaces times, tokens, ids, durations and URLs by placeholders, so that output can be compared.
pub fn redact(text: &str) -> String {
    let mut redactions = snapbox::Redactions::new();
    let patterns = [
        ("[TIME]", r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(\.\d+)?Z"),
        ("[TOKEN]", r"trw_[0-9a-f]{48}"),
        ("[ID]", r"\b[0-9a-f]{8}\b"),
        ("[TOOK]", r"\b\d+s\b"),
        ("[URL]", r"(sqlite|postgres):\S+"),
    ];
    for (placeholder, pattern) in patterns {
        redactions.insert(placeholder, regex::Regex::new(pattern).unwrap()).unwrap();
    }
    redactions.redact(text)
}

both_engines! {
    fn commands_print_plain_text_to_a_pipe(terminal: Terminal) {
        terminal.json(&["role", "set", "--name", "coder"]);
        terminal.json(&["workflow", "set", "--name", "q"]);
        terminal.json(&["task", "set", "--workflow", "q", "--variant", "unit/go", "--title", "Go", "--role", "coder"]);
        let (run, token) = terminal.start_run(&["--agent", "worker", "--task", "unit/go"]);
        let note = text(&terminal.json_with_token(Some(&token), &["note", "create", "--studio", "main", "--title", "Found"])["id"]);
        terminal.json_with_token(Some(&token), &["run", "end", &run, "--status", "completed", "--message", "done"]);
        let shown = |arguments: &[&str]| redact(&terminal.run(arguments).stdout);

        snapbox::assert_data_eq!(shown(&["task", "list"]), str![[r#"
id	variant	title	workflow	role	status	priority	revision
[ID]	unit/go	Go	q	coder	done	P2	1

"#]]);
        snapbox::assert_data_eq!(shown(&["made", "last"]), str![[r#"
resource_type	action_type	times	studio	display_path	resource_id	deleted
note	create	1	main	main/notes/Found	[ID]	no

"#]]);
        snapbox::assert_data_eq!(shown(&["why", &note]), str![[r#"
  resource   note main/notes/Found  [ID]
← run        completed after [TOOK]  [ID]
← agent      worker  [ID]
← role       coder  [ID]
← task       unit/go @ 1  [ID]
← person     ada  [ID]

"#]]);
        snapbox::assert_data_eq!(shown(&["run", "show", "last"]), str![[r#"
id: [ID]
agent: worker
role: coder
task: unit/go
task revision: 1
status: completed
outcome: completed
duration: [TOOK]
started at: [TIME]
ended at: [TIME]
initiated by: ada
chain depth: 0
mode: shell
final message: done

touches
resource_type	action_type	times	studio	display_path	resource_id	deleted
note	create	1	main	main/notes/Found	[ID]	no

"#]]);
        snapbox::assert_data_eq!(shown(&["run", "tree", "last"]), str![[r#"
worker [ID]  completed, [TOOK], as coder, on unit/go, 1 touched

"#]]);
        snapbox::assert_data_eq!(shown(&[]), str![[r#"
Trackway [URL]
nothing is running
nothing failed in the last day
last run
id	agent	role	task	status	ended_at
[ID]	worker	coder	unit/go	completed	[TIME]
the queue is empty
no task is ready
no hooks installed: trackway connect claude-code to record Claude Code sessions
next: to see the changes of the last run: trackway made last; to see where a file comes from: trackway why FILE

"#]]);
        snapbox::assert_data_eq!(shown(&["task", "history", "unit/go"]), str![[r#"
variant	id	revisions	replaces	runs	succeeded	success_share	median_seconds	tokens	cost
unit/go	[ID]	1		1	1	1	[..]

"#]]);
    }

    fn json_output_and_errors_have_one_envelope(terminal: Terminal) {
        let output = terminal.run(&["--json", "role", "list"]);
        assert_eq!(output.stdout, "{\"schema_version\":1,\"data\":[]}\n");
        let output = terminal.run(&["role", "get", "x", "--json"]);
        assert_eq!(
            output.stderr,
            "{\"schema_version\":1,\"error\":{\"code\":\"not_found\",\"message\":\"there is no role \\\"x\\\"\",\"hint\":\"create one with: trackway role set --name x\"}}\n"
        );
    }

    fn list_is_paginated(terminal: Terminal) {
        for name in ["a", "b", "c"] {
            terminal.json(&["role", "set", "--name", name]);
        }
        let output = terminal.run(&["role", "list", "--limit", "2"]);
        let after = output.stderr.trim().strip_prefix("next page: --after ").unwrap().to_owned();
        let paged = terminal.run(&["role", "list", "--limit", "2", "--json"]).stdout;
        assert!(paged.ends_with(&format!(",\"more\":\"--after {after}\"}}\n")), "{paged}");
        let rest = terminal.json(&["role", "list", "--limit", "2", "--after", &after]);
        assert_eq!(crate::terminal::column(&rest, "name"), ["c"]);
        assert_eq!(terminal.expect_error(&["role", "list", "--after", "ffffff"]).0, 3);
    }

    fn schema_command_describes_the_database_in_all_formats(terminal: Terminal) {
        let schema = terminal.json(&["schema"]);
        let tables = crate::terminal::column(&schema["tables"], "name");
        assert!(tables.contains(&"run_resources".to_owned()) && tables.is_sorted(), "{tables:?}");
        let replaces = json!({"from_table": "task_replaces", "from_column": "new_task_id", "to_table": "tasks", "to_column": "id", "kept_by": "constraint"});
        assert!(schema["relations"].as_array().unwrap().contains(&replaces));
        assert_eq!(crate::terminal::column(&schema["edges"], "table"), ["stickie_relations", "task_links", "task_replaces"]);
        assert_eq!(terminal.json(&["db", "show"]), schema);
        for (format, part) in [("markdown", "## run_resources\n\n| column | type | required |"), ("mermaid", "  task_replaces }o--|| tasks : \"new_task_id\""), ("table", "graph edges"), ("json", "\"tables\": [")] {
            assert!(terminal.run(&["schema", "--format", format]).stdout.contains(part), "{format}");
        }
    }
}

#[test]
fn closed_output_pipe_is_not_an_error() {
    let terminal = Terminal::new(trackway_testkit::Engine::Sqlite);
    let mut command = terminal.command(&["completions", "bash"]);
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    command.stdout(writer);
    let mut child = command.spawn().unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn completions_are_printed_without_a_database() {
    let terminal = Terminal::uninitialized(trackway_testkit::Engine::Sqlite);
    for shell in ["bash", "zsh", "fish"] {
        let output = terminal.run(&["completions", shell]);
        assert_eq!(output.code, 0);
        assert!(output.stdout.contains("trackway") && output.stdout.contains("scratchpad"), "{shell}");
    }
    assert_eq!(terminal.expect_error(&["completions", "tea"]).0, 2);
}

#[test]
fn man_writes_a_manual_page_for_every_command() {
    let terminal = Terminal::uninitialized(trackway_testkit::Engine::Sqlite);
    let folder = terminal.home.path().join("share/man1");
    let written = terminal.json(&["man", "--dir", folder.to_str().unwrap()]);
    let pages = fs::read_dir(&folder).unwrap().count();
    assert!(pages > 150 && written["pages"] == pages, "{written}");
    for (page, expected) in [
        ("trackway.1", "trackway\\-task(1)"),
        ("trackway-task-set.1", "Create or update a task"),
        ("trackway-man.1", "DIR"),
    ] {
        assert!(fs::read_to_string(folder.join(page)).unwrap().contains(expected), "{page}");
    }
    fs::write(terminal.home.path().join("file"), "").unwrap();
    assert_eq!(terminal.expect_error(&["man", "--dir", "file"]).0, 2);
}

#[test]
fn help_and_version_exit_with_zero() {
    let terminal = Terminal::uninitialized(trackway_testkit::Engine::Sqlite);
    assert_eq!(terminal.run(&["--version"]).stdout, format!("trackway {}\n", env!("TRACKWAY_VERSION")));
    assert!(env!("TRACKWAY_VERSION").starts_with(env!("CARGO_PKG_VERSION")));
    assert!(run_command(terminal.command(&["task", "set", "--help"])).stdout.contains("--replaces <TASK>"));
    assert_eq!(terminal.run(&["task"]).code, 2);
}

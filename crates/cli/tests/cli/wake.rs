//! The report and wake commands and the JSON fields that scripts rely on.

use serde_json::{Value, json};

use crate::terminal::{Terminal, both_engines, column, run_command, run_command_with_input, text};

fn create_tasks_and_agent(terminal: &Terminal) {
    terminal.json(&["workflow", "set", "--name", "ops"]);
    for variant in ["main", "other"] {
        terminal.json(&["task", "set", "--workflow", "ops", "--variant", variant, "--title", variant]);
    }
    terminal.json(&["agent", "set", "--handle", "bo"]);
}

fn keys(value: &Value) -> Vec<&str> {
    value.as_object().unwrap().keys().map(String::as_str).collect()
}

fn set_report(terminal: &Terminal, task: &str, content: &str) -> Value {
    terminal.json(&[
        "report",
        "set",
        "--agent",
        "bo",
        "--task",
        task,
        "--one-liner",
        "-a line",
        "--tldr",
        "- short",
        "--content",
        content,
    ])
}

both_engines! {
    fn report_commands_return_their_documented_fields(terminal: Terminal) {
        create_tasks_and_agent(&terminal);
        let set = set_report(&terminal, "main", "---\nfirst\n---");
        assert_eq!(keys(&set), ["id", "agent_id", "task_id", "run_id", "created_at", "current"]);
        let get = terminal.json(&["report", "get", "--task", "main"]);
        for field in ["id", "agent_id", "task_id", "created_at"] {
            assert_eq!(get[field], set[field], "{field}");
        }
        assert_eq!((&get["content"], &get["one_liner"], &get["tldr"]), (&json!("---\nfirst\n---"), &json!("-a line"), &json!("- short")));
        let (run, token) = terminal.start_run(&["--agent", "bo", "--task", "main"]);
        let mut update = terminal.command(&["report", "update", "--one-liner", "b", "--tldr", "c", "--content", "-", "--json"]);
        update.env("TRACKWAY_TOKEN", &token);
        assert_eq!(run_command_with_input(update, "sécond\n".as_bytes()).code, 0);
        assert_eq!(terminal.json(&["report", "get", "--task", "main", "--agent", "bo"])["content"], "sécond\n");
        assert_eq!(column(&terminal.json(&["report", "list", "--task", "main"]), "one_liner"), ["b", "-a line"]);
        assert_eq!(terminal.json(&["report", "list", "--run", &run]).as_array().unwrap().len(), 1);
        assert_eq!(column(&terminal.json(&["report", "history", "--task", "main", "--agent", "bo"]), "current"), ["true", "false"]);
        let made = terminal.json(&["made", &run]);
        assert_eq!((&made["touches"][0]["resource_type"], &made["touches"][0]["action_type"]), (&json!("report"), &json!("report")));
        assert_eq!(terminal.expect_error(&["report", "get", "--task", "other"]).0, 3);
        assert_eq!(terminal.expect_error(&["report", "get", "--task", "nothing"]).0, 3);
        assert_eq!(terminal.expect_error(&["report", "set", "--agent", "bo", "--task", "main", "--one-liner", " ", "--tldr", "t", "--content", "c"]), (2, "one-liner is blank".to_owned()));
        assert_eq!(terminal.expect_error(&["report", "update", "--one-liner", "a", "--tldr", "t", "--content", "c"]).0, 6);
    }

    fn wake_linked_prints_only_the_json_document(terminal: Terminal) {
        create_tasks_and_agent(&terminal);
        for json in [&[][..], &["--json"][..]] {
            assert_eq!(terminal.run(&[&["wake", "main", "--linked"], json].concat()).stdout, "{}\n");
        }
        terminal.json(&["link", "add", "--from", "main", "--to", "other", "--type", "blocks"]);
        set_report(&terminal, "other", "done \"so\"");
        let plain = terminal.run(&["wake", "main", "--linked"]);
        let as_json = terminal.run(&["wake", "main", "--linked", "--json"]);
        assert_eq!((plain.code, &plain.stdout, &plain.stderr), (0, &as_json.stdout, &as_json.stderr));
        assert_eq!(plain.stderr, "");
        let read: Value = serde_json::from_str(&plain.stdout).unwrap();
        assert_eq!(keys(&read), ["linked_from", "linked_to"]);
        assert_eq!(read["linked_to"][0]["latestTaskAgentReport"], "done \"so\"");
        assert!(plain.stdout.starts_with("{\n    \"linked_from\": [],\n    \"linked_to\": [\n        {\n"), "{}", plain.stdout);
        assert_eq!(terminal.expect_error(&["wake", "nothing", "--linked"]).0, 3);
        assert_eq!(terminal.run(&["wake", "main", "--linked", "--explain"]).code, 2);
    }

    fn wake_prints_the_context_and_run_show_prints_the_recorded_copy(terminal: Terminal) {
        create_tasks_and_agent(&terminal);
        terminal.json(&["link", "add", "--from", "other", "--to", "main", "--type", "fixes"]);
        let shown = terminal.json(&["wake", "main", "--agent", "bo"]);
        assert_eq!(keys(&shown), ["task_id", "agent_id", "digest", "characters", "sections", "cut", "unavailable", "text"]);
        assert_eq!(column(&shown["sections"], "name"), ["identity", "scratchpad", "task", "board", "linked_tasks", "own_report", "inbound_message", "changes", "budget"]);
        let plain = terminal.run(&["wake", "main", "--agent", "bo"]);
        assert_eq!(plain.stdout, text(&shown["text"]));
        assert!(plain.stdout.contains("\"is_fixed_by\""), "{}", plain.stdout);
        let explained = terminal.run(&["wake", "main", "--agent", "bo", "--explain"]).stdout;
        assert!(explained.starts_with("identity: present, ") && explained.contains("\n    from task:"), "{explained}");
        assert!(terminal.run(&["wake", "main"]).stdout.contains("None: no agent was named."));
        let (run, token) = terminal.start_run(&["--agent", "bo", "--task", "main"]);
        assert!(terminal.run(&["run", "show", &run, "--wake"]).stdout.contains("not recorded"));
        assert_eq!(terminal.json(&["run", "show", &run, "--wake"])["wake"], json!([]));
        assert!(terminal.json(&["run", "show", &run]).get("wake").is_none());
        let woken = terminal.json_with_token(Some(&token), &["run", "wake", &run]);
        let recorded = terminal.json(&["run", "show", &run, "--wake"]);
        assert_eq!(recorded["wake"][0]["text"], woken["text"]);
        assert!(terminal.run(&["run", "show", &run, "--wake"]).stdout.contains("## Who you are"));
        let (_, other) = terminal.start_run(&["--agent", "bo"]);
        assert_eq!(terminal.expect_error_with_token(Some(&other), &["run", "wake", &run]).0, 6);
        let mut dry = terminal.command(&["run", "wake", &run, "--dry-run", "--json"]);
        dry.env("TRACKWAY_TOKEN", &token);
        assert_eq!(run_command(dry).code, 0);
        assert_eq!(terminal.json(&["run", "show", &run, "--wake"])["wake"].as_array().unwrap().len(), 1);
    }
}

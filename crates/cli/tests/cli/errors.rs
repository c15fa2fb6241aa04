//! Invalid input: a clear message, the right exit code, and no change to the database.

use crate::terminal::{Terminal, both_engines, column, text};

both_engines! {
    fn unknown_name_is_not_found_with_a_suggestion(terminal: Terminal) {
        terminal.json(&["role", "set", "--name", "coder"]);
        terminal.json(&["workflow", "set", "--name", "quality"]);
        terminal.json(&["task", "set", "--workflow", "quality", "--variant", "unit/go"]);
        let output = terminal.run(&["workflow", "set", "--name", "x", "--role", "codr"]);
        assert_eq!((output.code, output.stderr.as_str()), (3, "error: there is no role \"codr\"\nhint: did you mean coder?\n"));
        let output = terminal.run(&["task", "set", "--workflow", "qualty", "--variant", "a"]);
        assert_eq!((output.code, output.stderr.as_str()), (3, "error: there is no workflow \"qualty\"\nhint: did you mean quality?\n"));
        let output = terminal.run(&["task", "get", "unit/g"]);
        assert_eq!((output.code, output.stderr.as_str()), (3, "error: there is no task \"unit/g\"\nhint: did you mean unit/go?\n"));
        let output = terminal.run(&["note", "create", "--studio", "mian", "--title", "x"]);
        assert_eq!((output.code, output.stderr.as_str()), (3, "error: there is no studio \"mian\"\nhint: did you mean main?\n"));
        let output = terminal.run(&["run", "start", "--agent", "zzz"]);
        assert_eq!((output.code, output.stderr.as_str()), (3, "error: there is no agent \"zzz\"\nhint: trackway agent list\n"));
        assert_eq!(terminal.expect_error(&["made", "last"]), (3, "there is no run yet".into()));
        assert_eq!(terminal.expect_error(&["why", "src/main.rs"]), (3, "nothing is recorded about \"src/main.rs\"".into()));
        assert_eq!(terminal.expect_error(&["run", "show", "ffffffff"]).0, 3);
        assert_eq!(column(&terminal.json(&["workflow", "list"]), "name"), ["quality"]);
    }

    fn invalid_values_are_usage_errors(terminal: Terminal) {
        terminal.json(&["workflow", "set", "--name", "q"]);
        let set = ["task", "set", "--workflow", "q"];
        let long = "x".repeat(201);
        for (more, part) in [
            (vec![], "a command or a variant is required"),
            (vec!["--variant", ""], "a command or a variant is required"),
            (vec!["--variant", "a//b"], "a segment is empty"),
            (vec!["--variant", "a b"], "' ' is not allowed"),
            (vec!["--variant", "a/actions/b"], "reserved"),
            (vec!["--variant", &long], "201 characters, the limit is 200"),
            (vec!["--command", "unit", "--variant", "lint/go"], "does not start with the command"),
            (vec!["--variant", "a", "--title", &long], "title has 201 characters, the limit is 200"),
            (vec!["--variant", "a", "--status", "finished"], "invalid value 'finished'"),
            (vec!["--variant", "a", "--priority", "P9"], "invalid value 'P9'"),
            (vec!["--variant", "a", "--timeout", "soon"], "\"soon\" is not a duration such as 90m"),
            (vec!["--variant", "a", "--heading", "h7"], "\"h7\" is not a heading"),
            (vec!["--variant", "a", "--level", "minor"], "--replaces"),
        ] {
            let (code, message) = terminal.expect_error(&[&set[..], &more].concat());
            assert_eq!(code, 2, "{more:?}");
            assert!(message.contains(part), "{more:?}: {message}");
        }
        assert_eq!(terminal.expect_error(&["role", "set", "--name", ""]), (2, "role name is empty".into()));
        assert_eq!(terminal.expect_error(&["role", "set", "--name", "a/b"]), (2, "role name \"a/b\" contains '/'".into()));
        assert_eq!(terminal.expect_error(&["task", "list", "--limit", "0"]).0, 2);
        assert_eq!(terminal.expect_error(&["fly"]).0, 2);
        assert!(terminal.run(&["tsk"]).stderr.contains("hint: a similar subcommand exists: 'task'"));
        assert_eq!(terminal.expect_error(&["task", "fly"]).0, 2);
        assert_eq!(terminal.expect_error(&["task", "get"]).0, 2);
        assert_eq!(terminal.json(&["task", "list"]), serde_json::json!([]));
    }

    fn hostile_text_is_cleaned_and_not_interpreted(terminal: Terminal) {
        let title = "a\tb\nc\u{1b}[31m<script>---\u{7}";
        let note = text(&terminal.json(&["note", "create", "--studio", "main", "--title", title, "--body", "x\u{1b}]0;y\u{7}\n\ttab"])["id"]);
        let shown = terminal.json(&["note", "show", &note]);
        assert_eq!((text(&shown["title"]), text(&shown["body"])), ("a b c[31m<script>---".into(), "x]0;y\n\ttab".into()));
        let listed = terminal.run(&["note", "list"]);
        assert_eq!(listed.stdout.lines().count(), 2);
        assert_eq!(terminal.expect_error(&["role", "get", "x'; drop table roles; --"]).0, 3);
        assert_eq!(terminal.expect_error(&["made", "%"]).0, 3);
    }

    fn delete_requires_confirmation(terminal: Terminal) {
        terminal.json(&["role", "set", "--name", "coder"]);
        assert_eq!(terminal.expect_error(&["role", "delete", "coder"]), (2, "role delete \"coder\" requires --yes without a terminal".into()));
        let output = terminal.run(&["role", "delete", "coder", "--dry-run"]);
        assert_eq!((output.code, output.stderr.as_str()), (0, "dry run: nothing was changed\n"));
        assert_eq!(column(&terminal.json(&["role", "list"]), "name"), ["coder"]);
        assert_eq!(terminal.expect_error(&["role", "delete", "coderr"]).0, 3);
        terminal.json(&["role", "delete", "coder", "--yes"]);
        assert_eq!(terminal.json(&["role", "list"]), serde_json::json!([]));
        assert_eq!(terminal.json(&["role", "set", "--name", "coder"])["new"], true);
        terminal.json(&["role", "set", "--name", "writer", "--dry-run"]);
        assert_eq!(column(&terminal.json(&["role", "list"]), "name"), ["coder"]);
    }

    fn tenants_cannot_see_each_other(terminal: Terminal) {
        let note = text(&terminal.json(&["note", "create", "--studio", "main", "--title", "ours"])["id"]);
        let (run, token) = terminal.start_run(&["--agent", "worker"]);
        assert_eq!(terminal.json(&["tenant", "create", "--name", "other"])["new"], true);
        let other = |arguments: &[&'static str]| [arguments, &["--tenant", "other"]].concat();
        assert_eq!(terminal.json(&other(&["note", "list"])), serde_json::json!([]));
        assert_eq!(terminal.json(&other(&["run", "list"])), serde_json::json!([]));
        for arguments in [["note", "show", &note], ["run", "show", &run], ["run", "tree", &run], ["run", "cancel", &run]] {
            assert_eq!(terminal.expect_error(&[&arguments[..], &["--tenant", "other"]].concat()).0, 3, "{arguments:?}");
        }
        assert_eq!(terminal.expect_error(&["why", &note, "--tenant", "other"]).0, 3);
        assert_eq!(terminal.expect_error(&["note", "list", "--tenant", "nobody"]), (3, "there is no tenant \"nobody\"".into()));
        // The tenant of the token takes precedence over `--tenant`.
        let made = terminal.json_with_token(Some(&token), &["note", "create", "--studio", "main", "--title", "still ours", "--tenant", "other"]);
        assert_eq!(terminal.json(&["note", "show", &text(&made["id"])])["title"], "still ours");
    }

    fn option_values_may_begin_with_a_hyphen(terminal: Terminal) {
        let body = "- first\n- second";
        let note = text(&terminal.json(&["note", "create", "--studio", "main", "--title", "-x", "--body", body])["id"]);
        let shown = terminal.json(&["note", "show", &note]);
        assert_eq!((text(&shown["title"]), text(&shown["body"])), ("-x".into(), body.into()));
    }

    fn dry_run_leaves_no_trace(terminal: Terminal) {
        let mut command = terminal.command(&["role", "set", "--name", "x", "--dry-run", "--json"]);
        command.env("USER", "zed");
        let output = crate::terminal::run_command(command);
        assert!(output.stdout.ends_with(",\"dry_run\":true}\n"), "{}", output.stdout);
        assert_eq!(column(&terminal.json(&["person", "list"]), "handle"), ["ada"]);
        assert_eq!(terminal.json(&["run", "start", "--agent", "worker", "--dry-run"])["token"], serde_json::Value::Null);
        assert_eq!(terminal.json(&["run", "list"]), serde_json::json!([]));
    }

    fn init_creates_tenant_studio_agent_and_person(terminal: Terminal) {
        let again = terminal.json(&["init"]);
        assert_eq!(again["new"], false);
        assert_eq!(column(&terminal.json(&["studio", "list"]), "name"), ["main"]);
        assert_eq!(column(&terminal.json(&["agent", "list"]), "handle"), ["worker"]);
        assert_eq!(column(&terminal.json(&["person", "list"]), "handle"), ["ada"]);
        assert_eq!(column(&terminal.json(&["tenant", "list"]), "name"), ["local"]);
    }

    fn run_token_cannot_change_other_runs_or_administer(terminal: Terminal) {
        let (other, _) = terminal.start_run(&["--agent", "worker"]);
        let (_, token) = terminal.start_run(&["--agent", "worker"]);
        for arguments in [
            vec!["run", "end", &other, "--status", "completed"],
            vec!["run", "step", &other, "--type", "think"],
            vec!["run", "usage", &other, "--model", "m"],
            vec!["run", "cancel", &other],
            vec!["agent", "set", "--handle", "worker", "--capability", "delete"],
            vec!["token", "create"],
            vec!["task", "set", "--workflow", "q", "--variant", "a"],
            vec!["tenant", "create", "--name", "x"],
            vec!["tenant", "list"],
        ] {
            assert_eq!(terminal.expect_error_with_token(Some(&token), &arguments).0, 6, "{arguments:?}");
        }
        assert_eq!(terminal.json(&["run", "show", &other])["status"], "running");
    }

    fn init_recreates_deleted_defaults(terminal: Terminal) {
        terminal.json(&["studio", "delete", "main", "--yes"]);
        terminal.json(&["agent", "delete", "worker", "--yes"]);
        let refused = terminal.run(&["queue", "take"]);
        assert_eq!((refused.code, refused.stderr.as_str()), (3, "error: there is no agent \"worker\"\nhint: trackway init creates it\n"));
        let mut command = terminal.command(&["init", "--json"]);
        command.env("USER", "bob");
        assert_eq!(crate::terminal::run_command(command).code, 0);
        assert_eq!(column(&terminal.json(&["studio", "list"]), "name"), ["main"]);
        assert_eq!(column(&terminal.json(&["agent", "list"]), "handle"), ["worker"]);
        assert_eq!(column(&terminal.json(&["person", "list"]), "handle"), ["ada", "bob"]);
    }

    fn error_hints_name_the_next_step(terminal: Terminal) {
        for (arguments, hint) in [
            (vec!["agent", "set", "--handle", "a", "--role", "reporter"], "create one with: trackway role set --name reporter"),
            (vec!["queue", "get", "b6eee"], "an id needs at least its last 6 digits"),
            (vec!["why", "77b2"], "an id needs at least its last 6 digits"),
            (vec!["role", "list", "--db", "./foo.db"], "for a SQLite file: sqlite:./foo.db"),
        ] {
            let output = terminal.run(&arguments);
            assert!(output.code != 0 && output.stderr.ends_with(&format!("\nhint: {hint}\n")), "{arguments:?}: {}", output.stderr);
        }
    }

    fn name_takes_precedence_over_an_id(terminal: Terminal) {
        let note = text(&terminal.json(&["note", "create", "--studio", "main", "--title", "x"])["id"]);
        let twin = &note[note.len() - 8..];
        terminal.json(&["workflow", "set", "--name", "q"]);
        let task = text(&terminal.json(&["task", "set", "--workflow", "q", "--variant", twin])["id"]);
        assert_eq!(text(&terminal.json(&["why", twin])["chain"][0]["id"]), task);
        let comment = terminal.json(&["note", "create", "--studio", "main", "--title", "y", "--about", twin]);
        assert_eq!(terminal.json(&["note", "show", &text(&comment["id"])])["about_id"], serde_json::json!(task));
    }

    fn deletion_removes_packages_and_keeps_history(terminal: Terminal) {
        terminal.json(&["workflow", "set", "--name", "q"]);
        terminal.json(&["task", "set", "--workflow", "q", "--variant", "v1"]);
        terminal.json(&["task", "set", "--workflow", "q", "--variant", "v2", "--replaces", "v1"]);
        for role in ["a", "b"] {
            terminal.json(&["role", "set", "--name", role]);
            terminal.json(&["package", "set", "--role", role, "--task", "v1"]);
        }
        terminal.json(&["role", "delete", "a", "--yes"]);
        assert_eq!(column(&terminal.json(&["package", "outdated"]), "role"), ["b"]);
        let task = text(&terminal.json(&["task", "delete", "v1", "--yes"])["id"]);
        assert_eq!(terminal.json(&["package", "outdated"]), serde_json::json!([]));
        assert_eq!(column(&terminal.json(&["task", "history", &task])["versions"], "variant"), ["v2", "v1"]);
        let note = text(&terminal.json(&["note", "create", "--studio", "main", "--title", "x", "--body", "kept"])["id"]);
        assert_eq!(terminal.expect_error(&["studio", "delete", "main", "--yes"]).0, 4);
        terminal.json(&["note", "delete", &note, "--yes"]);
        assert_eq!(column(&terminal.json(&["note", "history", &note]), "body"), ["kept"]);
        let deleted = terminal.json(&["event", "list", "--limit", "1"]);
        assert_eq!((column(&deleted, "action"), column(&deleted, "subject")), (vec!["delete_note".into()], vec!["main/notes/x".into()]));
    }

    fn event_log_records_changed_values(terminal: Terminal) {
        terminal.json(&["agent", "set", "--handle", "bot"]);
        terminal.json(&["agent", "set", "--handle", "bot", "--capability", "vote"]);
        let event = terminal.json(&["event", "list", "--limit", "1"])[0].clone();
        assert_eq!(event["detail"], serde_json::json!({"capabilities": {"from": null, "to": ["vote"]}}));
    }
}

//! References to a task, reasons for missing linked tasks, messages by status, blanks around references, relations of
//! the schema, and permission to read scratchpads.

use serde_json::{Value, json};
use trackway_testkit::Engine;

use crate::terminal::{Terminal, both_engines, column, text};

fn create_task(terminal: &Terminal, variant: &str) {
    terminal.json(&["workflow", "set", "--name", "q"]);
    terminal.json(&["task", "set", "--workflow", "q", "--variant", variant]);
}

both_engines! {
    fn task_get_shows_resources_that_refer_to_the_task(terminal: Terminal) {
        create_task(&terminal, "seams");
        let bare = terminal.run(&["task", "get", "seams"]).stdout;
        assert!(!bare.contains("queue items") && !bare.contains("boards"), "{bare}");
        terminal.json(&["role", "set", "--name", "coder"]);
        terminal.json(&["package", "set", "--role", "coder", "--task", "seams"]);
        terminal.json(&["board", "set", "--name", "wall", "--task", "seams"]);
        terminal.json(&["route", "set", "--tag", "leak", "--task", "seams"]);
        let message = terminal.json(&["message", "send", "--body", "it leaks", "--to-task", "seams"]);
        let item = text(&message["queue_item_id"]);
        let data = terminal.json(&["task", "get", "seams"]);
        assert_eq!(column(&data["queue_items"], "id"), std::slice::from_ref(&item));
        assert_eq!((column(&data["pins"], "role"), column(&data["boards"], "name")), (vec!["coder".to_owned()], vec!["wall".to_owned()]));
        assert_eq!((column(&data["routes"], "tag"), column(&data["messages"], "body")), (vec!["leak".to_owned()], vec!["it leaks".to_owned()]));
        assert_eq!((&data["variant"], &data["more"], &data["last_finished_item"]), (&json!("seams"), &json!([]), &Value::Null));
        let shown = terminal.run(&["task", "get", "seams"]).stdout;
        for expected in ["pins\nrole\tvariant", "coder\tseams", "queue items\nid\tstatus", "boards\nid\tname", "\twall\t", "routes\nid\ttag", "messages\nid\tcreated_at", "it leaks"] {
            assert!(shown.contains(expected), "{expected}: {shown}");
        }
        // A newer version also shows the references to the older version.
        terminal.json(&["task", "set", "--variant", "seams/new", "--replaces", "seams"]);
        let newer = terminal.json(&["task", "get", "seams/new"]);
        assert_eq!((column(&newer["boards"], "name"), column(&newer["boards"], "task")), (vec!["wall".to_owned()], vec!["seams".to_owned()]));
        assert_eq!((column(&newer["messages"], "body"), column(&newer["routes"], "would_run")), (vec!["it leaks".to_owned()], vec!["seams/new".to_owned()]));
        assert_eq!(column(&terminal.json(&["board", "list", "--task", "seams/new"]), "name"), ["wall"]);
        for number in 0..11 {
            terminal.json(&["board", "set", "--name", &format!("wall-{number}"), "--task", "seams"]);
        }
        let shown = terminal.run(&["task", "get", "seams"]).stdout;
        assert!(shown.contains("more: trackway board list --task seams"), "{shown}");
        terminal.json(&["queue", "cancel", "--id", &item]);
        assert_eq!(terminal.json(&["task", "get", "seams"])["queue_items"], json!([]));
    }

    fn wake_reports_why_it_has_no_linked_tasks(terminal: Terminal) {
        for variant in ["main", "gone", "kept"] {
            create_task(&terminal, variant);
        }
        let assert_explanation = |expected: &str| {
            for json in [&[][..], &["--json"][..]] {
                let output = terminal.run(&[&["wake", "main", "--linked"], json].concat());
                assert_eq!((output.code, output.stdout.as_str(), output.stderr.trim_end()), (0, "{}\n", expected));
            }
        };
        assert_explanation("linked tasks: none: no task is linked to this one");
        terminal.json(&["link", "add", "--from", "main", "--to", "gone", "--type", "blocks"]);
        terminal.json(&["link", "add", "--from", "kept", "--to", "main", "--type", "fixes"]);
        assert_eq!(terminal.run(&["wake", "main", "--linked"]).stderr, "");
        terminal.json(&["task", "set", "--workflow", "q", "--variant", "kept", "--archived"]);
        terminal.json(&["task", "delete", "gone", "--yes"]);
        assert_explanation("linked tasks: none: 2 links, 1 to a deleted task, 1 to an archived task");
    }

    fn messages_are_listed_by_status(terminal: Terminal) {
        create_task(&terminal, "seams");
        terminal.json(&["message", "send", "--body", "one"]);
        terminal.json(&["message", "send", "--body", "two"]);
        assert_eq!(column(&terminal.json(&["message", "list", "--status", "ingested"]), "body"), ["two", "one"]);
        for status in ["succeeded", "failed", "timeout"] {
            assert_eq!(terminal.json(&["message", "list", "--status", status]), json!([]), "{status}");
        }
        assert_eq!(terminal.expect_error(&["message", "list", "--status", "lost"]).0, 2);
        terminal.json(&["task", "set", "--workflow", "q", "--variant", "seams", "--script", "echo out; exit 3", "--recurring"]);
        terminal.run(&["task", "run", "--variant", "seams"]);
        let failed = terminal.json(&["message", "list", "--status", "failed"]);
        assert_eq!((column(&failed, "title"), column(&failed, "status")), (vec!["seams".to_owned()], vec!["failed".to_owned()]));
    }

    fn blanks_around_a_command_or_a_variant_are_trimmed(terminal: Terminal) {
        terminal.json(&["workflow", "set", "--name", "q"]);
        let set = terminal.json(&["task", "set", "--workflow", " q ", "--command", " unit ", "--variant", "\tgo "]);
        assert_eq!((&set["variant"], &set["new"]), (&json!("unit/go"), &json!(true)));
        let again = terminal.json(&["task", "set", "--workflow", "q", "--variant", " unit/go ", "--title", "Go"]);
        assert_eq!((&again["id"], &again["new"], &again["revision"]), (&set["id"], &json!(false), &json!(2)));
        assert_eq!(terminal.json(&["task", "set", "--workflow", "q", "--command", "unit", "--variant", "  "])["variant"], "unit");
        for reference in [" unit/go", "unit/go ", "\tunit/go\n"] {
            assert_eq!(terminal.json(&["task", "get", reference])["id"], set["id"], "{reference:?}");
            assert_eq!(terminal.json(&["task", "latest", "--variant", reference])["variant"], "unit/go", "{reference:?}");
            assert_eq!(terminal.json(&["why", reference])["chain"][0]["id"], set["id"], "{reference:?}");
        }
        let next = terminal.json(&["task", "set", "--workflow", "q", "--variant", "unit/go2", "--replaces", " unit/go "]);
        assert_eq!(terminal.json(&["task", "next", "--id", " unit/go ", "--level", "any"])["id"], next["id"]);
        terminal.json(&["queue", "add", "--task", " unit/go "]);
        assert_eq!(terminal.expect_error(&["task", "set", "--workflow", "q", "--variant", "unit/ go"]).0, 2);
    }

    fn schema_marks_relations_enforced_by_the_write_path(terminal: Terminal) {
        let schema = terminal.json(&["db", "show"]);
        let enforced_by = |from: &str, column: &str, to: &str| {
            let relations = schema["relations"].as_array().unwrap();
            let relation = relations.iter().find(|relation| (&relation["from_table"], &relation["from_column"], &relation["to_table"]) == (&json!(from), &json!(column), &json!(to)));
            relation.unwrap_or_else(|| panic!("{from}.{column} -> {to} is not shown"))["kept_by"].clone()
        };
        let constraint_on_sqlite_only = if text(&schema["engine"]).eq_ignore_ascii_case("sqlite") { "constraint" } else { "write_path" };
        assert_eq!(enforced_by("task_variants", "variant", "tasks"), "write_path");
        assert_eq!(enforced_by("task_revisions", "run_id", "runs"), "write_path");
        assert_eq!(enforced_by("tasks", "current_id", "tasks"), "write_path");
        assert_eq!(enforced_by("queue_items", "run_task_id", "tasks"), "write_path");
        assert_eq!(enforced_by("task_spawns", "matched_agent_id", "subagents"), "write_path");
        assert_eq!(enforced_by("task_links", "from_task_id", "tasks"), "constraint");
        assert_eq!(enforced_by("runs", "agent_id", "agents"), constraint_on_sqlite_only);
        let shown = |format: &str| terminal.run(&["db", "show", "--format", format]).stdout;
        assert!(shown("markdown").contains("| task_variants.variant | tasks.variant | write path |"));
        assert!(shown("markdown").contains("| task_links.from_task_id | tasks.id | constraint |"));
        assert!(shown("mermaid").contains("  task_variants }o..|| tasks : \"variant (write path)\"\n"));
        assert!(shown("table").contains("task_variants\tvariant\ttasks\tvariant\twrite_path\n"));
    }

    fn agent_reads_other_scratchpads_only_with_the_capability(terminal: Terminal) {
        terminal.json(&["agent", "set", "--handle", "bob"]);
        terminal.json(&["agent", "set", "--handle", "zoe"]);
        create_task(&terminal, "seams");
        let (run, bob) = terminal.start_run(&["--agent", "bob", "--task", "seams"]);
        let (_, zoe) = terminal.start_run(&["--agent", "zoe"]);
        terminal.json_with_token(Some(&bob), &["scratchpad", "update", "--content", "in the shed"]);
        let reads: [&[&str]; 5] = [
            &["scratchpad", "get", "--agent", "bob"], &["scratchpad", "history", "--agent", "bob"], &["scratchpad", "diff", "--agent", "bob"],
            &["wake", "seams", "--agent", "bob"], &["run", "show", &run, "--wake"],
        ];
        for arguments in reads {
            assert_eq!(terminal.expect_error_with_token(Some(&zoe), arguments), (6, "agent zoe may not read_scratchpads".to_owned()), "{arguments:?}");
            terminal.json(arguments);
            terminal.json_with_token(Some(&bob), arguments);
        }
        assert_eq!(terminal.json_with_token(Some(&zoe), &["scratchpad", "get", "--agent", "zoe"])["content"], "");
        terminal.json_with_token(Some(&zoe), &["run", "show", &run]);
        terminal.json(&["agent", "set", "--handle", "zoe", "--capability", "read_scratchpads"]);
        for arguments in reads {
            terminal.json_with_token(Some(&zoe), arguments);
        }
        assert_eq!(terminal.json_with_token(Some(&zoe), &["scratchpad", "get", "--agent", "bob"])["content"], "in the shed");
    }

    fn touches_of_a_run_are_paginated(terminal: Terminal) {
        terminal.json(&["agent", "set", "--handle", "bob"]);
        let (run, token) = terminal.start_run(&["--agent", "bob"]);
        for title in ["a", "b", "c"] {
            terminal.json_with_token(Some(&token), &["note", "create", "--studio", "main", "--title", title]);
        }
        let paths = |arguments: &[&str]| column(&terminal.json(&[&["made", &run], arguments].concat())["touches"], "display_path");
        assert_eq!(paths(&[]), ["main/notes/a", "main/notes/b", "main/notes/c"]);
        assert_eq!(paths(&["--limit", "2"]), ["main/notes/a", "main/notes/b"]);
        assert_eq!(paths(&["--after", "2"]), ["main/notes/c"]);
        assert!(terminal.run(&["made", &run, "--limit", "2"]).stderr.contains("next page: --after 2"));
        assert_eq!(terminal.json(&["made", &run, "--limit", "1"])["total"], 3);
    }
}

/// PostgreSQL has constraints for fewer relations than SQLite. The write path enforces the others.
#[test]
fn both_engines_show_the_same_relations() {
    let [sqlite, postgres] =
        [Engine::Sqlite, Engine::Postgres].map(|engine| Terminal::new(engine).json(&["db", "show"]));
    let without_marks = |schema: &Value| {
        let mut relations = schema["relations"].clone();
        for relation in relations.as_array_mut().unwrap() {
            relation.as_object_mut().unwrap().remove("kept_by");
        }
        relations
    };
    assert_eq!(without_marks(&sqlite), without_marks(&postgres));
    assert_eq!(sqlite["edges"], postgres["edges"]);
    assert_eq!(column(&sqlite["tables"], "name"), column(&postgres["tables"], "name"));
    let enforced_by_write_path = |schema: &Value| -> Vec<String> {
        let relations = schema["relations"].as_array().unwrap();
        let enforced = relations.iter().filter(|relation| relation["kept_by"] == "write_path");
        enforced
            .map(|relation| format!("{}.{}", text(&relation["from_table"]), text(&relation["from_column"])))
            .collect()
    };
    let (on_sqlite, on_postgres) = (enforced_by_write_path(&sqlite), enforced_by_write_path(&postgres));
    let only_on_postgres: Vec<&str> =
        on_postgres.iter().filter(|relation| !on_sqlite.contains(relation)).map(String::as_str).collect();
    assert_eq!(
        only_on_postgres,
        [
            "events.tenant_id",
            "queue_items.agent_id",
            "queue_items.initiated_by",
            "queue_items.taken_by",
            "queue_items.task_id",
            "queue_items.tenant_id",
            "registry.tenant_id",
            "runs.agent_id",
            "runs.initiated_by",
            "runs.queue_item_id",
            "runs.task_id",
            "runs.tenant_id",
        ]
    );
    assert_eq!(
        on_sqlite,
        [
            "board_revisions.run_id",
            "events.run_id",
            "note_revisions.run_id",
            "queue_items.run_id",
            "queue_items.run_task_id",
            "registry.studio_id",
            "run_wakes.digest",
            "scratchpad_revisions.run_id",
            "spawn_matches.agent_id",
            "subagents.parent_agent_id",
            "task_revisions.run_id",
            "task_spawns.matched_agent_id",
            "task_spawns.parent_agent_id",
            "task_variants.variant",
            "tasks.current_id",
        ]
    );
}

//! Roles, workflows, tasks, versions, pins, links and ready tasks.

use serde_json::{Value, json};
use trackway_testkit::{CommandLine, column, engines, text};

/// Creates a workflow with tasks. Each task replaces the one before it at the given level.
fn create_versions(terminal: &CommandLine, levels: &[(&str, &str)]) {
    terminal.json(&["workflow", "set", "--name", "q"]);
    let mut before: Option<&str> = None;
    for (variant, level) in levels {
        match before {
            None => terminal.json(&["task", "set", "--workflow", "q", "--variant", variant]),
            Some(old) => terminal.json(&[
                "task",
                "set",
                "--workflow",
                "q",
                "--variant",
                variant,
                "--replaces",
                old,
                "--level",
                level,
            ]),
        };
        before = Some(variant);
    }
}

engines! {
    fn package_upgrade_follows_replacements_up_to_the_level(terminal: CommandLine) {
        terminal.json(&["role", "set", "--name", "coder"]);
        terminal.json(&["workflow", "set", "--name", "q"]);
        for variant in ["p/1", "p/2", "p/3", "p/4"] {
            terminal.json(&["task", "set", "--workflow", "q", "--variant", variant]);
        }
        for (new, old, level) in [("p/2", "p/1", "patch"), ("p/3", "p/1", "major"), ("p/4", "p/2", "minor")] {
            terminal.json(&["task", "replace", new, old, "--level", level]);
        }
        let upgraded = |level: &str| {
            terminal.json(&["package", "set", "--role", "coder", "--task", "p/1"]);
            column(&terminal.json(&["package", "upgrade", "--level", level]), "to")
        };
        assert_eq!((upgraded("patch"), upgraded("minor"), upgraded("major")), (vec!["p/2".into()], vec!["p/4".into()], vec!["p/3".into()]));
    }

    fn set_keeps_omitted_fields_and_clears_empty_ones(terminal: CommandLine) {
        let role = terminal.json(&["role", "set", "--name", "coder", "--title", "Coder", "--tag", "a", "--tag", "b"]);
        assert_eq!((&role["new"], &role["title"], &role["tags"]), (&json!(true), &json!("Coder"), &json!(["a", "b"])));
        let role = terminal.json(&["role", "set", "--name", "coder", "--description", "Writes code"]);
        assert_eq!((&role["new"], &role["title"]), (&json!(false), &json!("Coder")));
        let role = terminal.json(&["role", "set", "--name", "coder", "--title", "", "--tag", ""]);
        assert_eq!(role["title"], Value::Null);
        assert_eq!(role["tags"], json!([]));
        assert_eq!(role["description"], "Writes code");
        assert_eq!(terminal.json(&["role", "get", "coder"])["description"], "Writes code");
    }

    fn every_change_of_a_task_creates_a_revision(terminal: CommandLine) {
        terminal.json(&["workflow", "set", "--name", "q"]);
        let task = terminal.json(&["task", "set", "--workflow", "q", "--command", "unit", "--variant", "go", "--estimate", "40h", "--timeout", "90m"]);
        assert_eq!((&task["variant"], &task["revision"], &task["new"]), (&json!("unit/go"), &json!(1), &json!(true)));
        let same = terminal.json(&["task", "set", "--workflow", "q", "--variant", "unit/go", "--estimate", "40h"]);
        assert_eq!((&same["revision"], &same["new"]), (&json!(1), &json!(false)));
        let changed = terminal.json(&["task", "set", "--workflow", "q", "--variant", "unit/go", "--title", "Go"]);
        assert_eq!(changed["revision"], 2);
        let shown = terminal.json(&["task", "get", "unit/go"]);
        assert_eq!((&shown["estimate"], &shown["timeout"], &shown["command"]), (&json!("40h"), &json!("1h30m"), &json!("unit")));
        assert_eq!((&shown["status"], &shown["priority"], &shown["workflow"]), (&json!("open"), &json!("P2"), &json!("q")));
        let (code, message) = terminal.fails(&["task", "set", "--workflow", "q", "--variant", "unit/go", "--title", "x", "--if-revision", "1"]);
        assert_eq!((code, message.as_str()), (4, "the task is at revision 2, not 1"));
        let history = terminal.json(&["task", "history", "unit/go"]);
        assert_eq!(history["versions"][0]["revisions"], 2);
        assert_eq!(history["versions"][0]["changes"][0]["by"], "ada");
    }

    fn latest_follows_replacements_to_the_live_successor(terminal: CommandLine) {
        create_versions(&terminal, &[("v1", ""), ("v2", "patch"), ("v3", "minor")]);
        let latest = terminal.json(&["task", "latest", "--variant", "v1"]);
        assert_eq!((&latest["variant"], &latest["path"]), (&json!("v3"), &json!(["v1", "v2", "v3"])));
        assert_eq!(terminal.json(&["task", "latest", "--id", &text(&latest["id"])])["path"], json!(["v3"]));

        // If two versions replace the same version, the newest replacement wins.
        terminal.json(&["task", "set", "--workflow", "q", "--variant", "v2-fork", "--replaces", "v1", "--level", "major"]);
        assert_eq!(terminal.json(&["task", "latest", "--variant", "v1"])["variant"], "v2-fork");
        // An archived version is never the current one, so the older replacement leads to it.
        terminal.json(&["task", "set", "--workflow", "q", "--variant", "v2-fork", "--archived"]);
        assert_eq!(terminal.json(&["task", "latest", "--variant", "v1"])["variant"], "v3");
        terminal.json(&["task", "set", "--workflow", "q", "--variant", "v2", "--archived"]);
        assert_eq!(terminal.json(&["task", "latest", "--variant", "v1"])["path"], json!(["v1", "v2", "v3"]));
        // A deleted version is never the current one either, so an older version becomes current again.
        terminal.json(&["task", "delete", "v3", "--yes"]);
        assert_eq!(terminal.json(&["task", "latest", "--variant", "v1"])["variant"], "v1");
        assert_eq!(terminal.fails(&["task", "latest", "--variant", "v2"]).0, 3);
        assert_eq!(terminal.fails(&["task", "latest", "--variant", "v3"]).0, 3);
        terminal.json(&["task", "set", "--workflow", "q", "--variant", "v2-fork", "--archived", "false"]);
        assert_eq!(terminal.json(&["task", "latest", "--variant", "v1"])["variant"], "v2-fork");
    }

    fn next_finds_direct_successor_at_the_given_level(terminal: CommandLine) {
        create_versions(&terminal, &[("v1", ""), ("v2", "patch"), ("v3", "minor")]);
        terminal.json(&["task", "replace", "v3", "v1", "--level", "major", "--comment", "all new"]);
        let next = |level| terminal.json(&["task", "next", "--id", "v1", "--level", level]);
        assert_eq!((&next("patch")["variant"], &next("patch")["level"]), (&json!("v2"), &json!("patch")));
        assert_eq!(next("major")["variant"], "v3");
        assert_eq!((&next("any")["variant"], &next("any")["level"]), (&json!("v3"), &json!("major")));
        assert_eq!(terminal.fails(&["task", "next", "--id", "v1", "--level", "minor"]).0, 3);
        assert_eq!(terminal.fails(&["task", "next", "--id", "v1", "--level", "huge"]).0, 2);
        // Repeating a replacement updates its level.
        let edge = terminal.json(&["task", "replace", "v3", "v1", "--level", "patch"]);
        assert_eq!((&edge["new"], &edge["old"], &edge["level"], &edge["comment"]), (&json!("v3"), &json!("v1"), &json!("patch"), &json!("all new")));
    }

    fn rejects_replacement_cycle_and_prints_it(terminal: CommandLine) {
        create_versions(&terminal, &[("v1", ""), ("v2", "patch"), ("v3", "minor")]);
        assert_eq!(terminal.fails(&["task", "replace", "v1", "v1"]), (4, "v1 cannot replace itself".into()));
        let circle = "that would make a cycle: v1 replaces v3 replaces v2 replaces v1";
        assert_eq!(terminal.fails(&["task", "replace", "v1", "v3"]), (4, circle.into()));
        // The rejected `task set` changes no other field either.
        assert_eq!(terminal.fails(&["task", "set", "--workflow", "q", "--variant", "v1", "--title", "x", "--replaces", "v3"]).0, 4);
        assert_eq!(terminal.json(&["task", "get", "v1"])["title"], Value::Null);
        assert_eq!(terminal.fails(&["task", "replace", "v3", "v1", "--level", "huge"]).0, 2);
    }

    fn variant_belongs_to_one_workflow_until_its_task_is_deleted(terminal: CommandLine) {
        create_versions(&terminal, &[("unit/go", "")]);
        terminal.json(&["workflow", "set", "--name", "other"]);
        let claim = ["task", "set", "--workflow", "other", "--variant", "unit/go", "--title", "mine"];
        assert_eq!(terminal.fails(&claim), (4, "variant unit/go belongs to workflow q".into()));
        assert_eq!(terminal.json(&["task", "get", "unit/go"])["title"], Value::Null);
        assert_eq!(terminal.fails(&["workflow", "delete", "q", "--yes"]), (4, "the workflow still owns unit/go".into()));
        let before = text(&terminal.json(&["task", "delete", "unit/go", "--yes"])["id"]);
        let after = terminal.json(&claim);
        assert_eq!((&after["workflow"], &after["new"]), (&json!("other"), &json!(true)));
        assert_ne!(text(&after["id"]), before);
        terminal.json(&["workflow", "delete", "q", "--yes"]);
        assert_eq!(column(&terminal.json(&["workflow", "list"]), "name"), ["other"]);
    }

    fn role_uses_its_pin_until_upgrade(terminal: CommandLine) {
        create_versions(&terminal, &[("v1", ""), ("v2", "patch"), ("v3", "minor"), ("v4", "major")]);
        terminal.json(&["role", "set", "--name", "coder"]);
        let resolve = || text(&terminal.json(&["package", "resolve", "--role", "coder", "--variant", "v2"])["variant"]);
        assert_eq!(resolve(), "v4");
        let pin = terminal.json(&["package", "set", "--role", "coder", "--task", "v1"]);
        assert_eq!((&pin["role"], &pin["variant"]), (&json!("coder"), &json!("v1")));
        assert_eq!(resolve(), "v1");
        assert_eq!(terminal.json(&["package", "get", "--role", "coder", "--task", "v4"])["variant"], "v1");
        let outdated = terminal.json(&["package", "outdated", "--role", "coder"]);
        assert_eq!(
            (&outdated[0]["variant"], &outdated[0]["latest_variant"], &outdated[0]["level"]),
            (&json!("v1"), &json!("v4"), &json!("major"))
        );
        assert_eq!(terminal.json(&["package", "upgrade", "--level", "minor"]), json!([{"role": "coder", "from": "v1", "to": "v3"}]));
        assert_eq!(terminal.json(&["package", "upgrade", "--level", "minor"]), json!([]));
        assert_eq!(resolve(), "v3");
        terminal.json(&["package", "set", "--role", "coder", "--task", "v4"]);
        assert_eq!(column(&terminal.json(&["package", "list"]), "variant"), ["v4"]);
        assert_eq!(terminal.json(&["package", "outdated"]), json!([]));
        terminal.json(&["package", "delete", "--role", "coder", "--task", "v2", "--yes"]);
        assert_eq!(terminal.json(&["package", "list"]), json!([]));
        assert_eq!(terminal.fails(&["package", "get", "--role", "coder", "--task", "v4"]).0, 3);
        assert_eq!(terminal.fails(&["package", "set", "--role", "nobody", "--task", "v4"]).0, 3);
        assert_eq!(terminal.fails(&["package", "set", "--role", "coder", "--task", "v9"]).0, 3);
    }

    fn joining_two_lineages_keeps_the_newer_pin_and_reports_it(terminal: CommandLine) {
        create_versions(&terminal, &[("a1", ""), ("a2", "minor")]);
        terminal.json(&["task", "set", "--workflow", "q", "--variant", "b1"]);
        terminal.json(&["role", "set", "--name", "coder"]);
        terminal.json(&["package", "set", "--role", "coder", "--task", "a1"]);
        terminal.json(&["package", "set", "--role", "coder", "--task", "b1"]);
        let joined = terminal.json(&["task", "replace", "b1", "a2"]);
        assert_eq!(joined["notices"], json!(["role coder had a pin in both lineages: a1 is no longer pinned"]));
        assert_eq!(column(&terminal.json(&["package", "list"]), "variant"), ["b1"]);
        assert_eq!(terminal.json(&["package", "resolve", "--role", "coder", "--variant", "a1"])["variant"], "b1");
        assert_eq!(column(&terminal.json(&["task", "history", "a1"])["versions"], "variant"), ["b1", "a2", "a1"]);
    }

    fn ready_lists_unblocked_current_tasks_in_order(terminal: CommandLine) {
        terminal.json(&["workflow", "set", "--name", "q"]);
        let set = |variant: &str, more: &[&str]| {
            terminal.json(&[&["task", "set", "--workflow", "q", "--variant", variant], more].concat())
        };
        let ready = || column(&terminal.json(&["ready"]), "variant");
        set("late", &[]);
        set("urgent", &["--priority", "P0"]);
        set("groomed", &["--status", "groomed"]);
        set("again", &["--recurring"]);
        set("gone", &["--archived"]);
        set("busy", &["--status", "in_progress"]);
        set("old", &[]);
        set("new", &["--replaces", "old"]);
        assert_eq!(ready(), ["urgent", "late", "groomed", "new"]);

        let link = terminal.json(&["link", "add", "--from", "urgent", "--to", "late", "--type", "blocks"]);
        assert_eq!((&link["from"], &link["to"], &link["type"]), (&json!("urgent"), &json!("late"), &json!("blocks")));
        assert_eq!(terminal.json(&["link", "add", "--from", "urgent", "--to", "late", "--type", "blocks"])["id"], link["id"]);
        terminal.json(&["link", "add", "--from", "busy", "--to", "late", "--type", "blocks"]);
        terminal.json(&["link", "add", "--from", "groomed", "--to", "late", "--type", "relates_to"]);
        assert_eq!(ready(), ["urgent", "groomed", "new"]);
        set("urgent", &["--status", "done"]);
        assert_eq!(ready(), ["groomed", "new"]);
        set("busy", &["--status", "rejected"]);
        assert_eq!(ready(), ["late", "groomed", "new"]);
        set("busy", &["--status", "open"]);
        assert_eq!(ready(), ["groomed", "busy", "new"]);
        terminal.json(&["task", "delete", "busy", "--yes"]);
        assert_eq!(ready(), ["late", "groomed", "new"]);
        terminal.json(&["task", "delete", "new", "--yes"]);
        assert_eq!(ready(), ["late", "groomed", "old"]);

        assert_eq!(column(&terminal.json(&["link", "list", "late"]), "relation"), ["is_blocked_by", "relates_to"]);
        set("urgent", &["--status", "open"]);
        terminal.json(&["link", "delete", &text(&link["id"]), "--yes"]);
        assert_eq!(ready(), ["urgent", "late", "groomed", "old"]);
    }

    fn rejects_cycle_of_blocking_links(terminal: CommandLine) {
        terminal.json(&["workflow", "set", "--name", "q"]);
        for variant in ["a", "b", "c"] {
            terminal.json(&["task", "set", "--workflow", "q", "--variant", variant]);
        }
        let link = |from, to| ["link", "add", "--from", from, "--to", to, "--type", "blocks"];
        terminal.json(&link("a", "b"));
        terminal.json(&link("b", "c"));
        assert_eq!(terminal.fails(&link("c", "a")), (4, "that would make a cycle: c blocks a blocks b blocks c".into()));
        assert_eq!(terminal.fails(&link("a", "a")).0, 4);
        assert_eq!(terminal.fails(&["link", "add", "--from", "a", "--to", "c", "--type", "hates"]).0, 2);
        terminal.json(&["link", "add", "--from", "c", "--to", "a", "--type", "fixes"]);
    }

    fn history_counts_outcomes_per_version(terminal: CommandLine) {
        create_versions(&terminal, &[("v1", ""), ("v2", "minor")]);
        for (task, status) in [("v1", "completed"), ("v1", "completed"), ("v1", "failed"), ("v2", "failed")] {
            let (run, token) = terminal.start_run(&["--agent", "worker", "--task", task]);
            // Repeated usage of one message counts once, with its highest figures.
            for output in ["1", "5", "3"] {
                terminal.json_in_run(Some(&token), &["run", "usage", &run, "--model", "m", "--input-tokens", "10", "--output-tokens", output, "--message-id", &run]);
            }
            terminal.json_in_run(Some(&token), &["run", "end", &run, "--status", status]);
        }
        let versions = terminal.json(&["task", "history", "v2"])["versions"].clone();
        assert_eq!(column(&versions, "variant"), ["v2", "v1"]);
        assert_eq!(column(&versions, "runs"), ["1", "3"]);
        assert_eq!(column(&versions, "succeeded"), ["0", "2"]);
        assert_eq!(column(&versions, "tokens"), ["15", "45"]);
        assert_eq!(column(&versions, "cost"), ["null", "null"]);
        assert_eq!((&versions[1]["success_share"], &versions[0]["success_share"]), (&json!(2.0 / 3.0), &json!(0.0)));
        let by_task = terminal.json(&["usage", "--by", "task"]);
        assert_eq!((column(&by_task, "key"), column(&by_task, "calls")), (vec!["v1".into(), "v2".into()], vec!["3".into(), "1".into()]));
        let by_day = terminal.json(&["usage"]);
        assert_eq!((column(&by_day, "input_tokens"), column(&by_day, "cache_read_tokens")), (vec!["40".into()], vec!["null".into()]));
        assert_eq!(column(&terminal.json(&["usage", "--by", "agent"]), "key"), ["worker"]);
        assert_eq!(column(&terminal.json(&["usage", "--by", "model"]), "key"), ["m"]);
    }
}

//! Versions in commands: pins, archived tasks, errors that agents report, and lists that include all versions of a task.

use serde_json::{Value, json};
use trackway_testkit::{CommandLine, column, engines, text};

fn define(terminal: &CommandLine, variants: &[&str]) {
    terminal.json(&["role", "set", "--name", "coder"]);
    terminal.json(&["workflow", "set", "--name", "ops"]);
    for variant in variants {
        terminal.json(&["task", "set", "--workflow", "ops", "--variant", variant]);
    }
}

fn status(terminal: &CommandLine, variant: &str) -> String {
    text(&terminal.json(&["task", "get", variant])["status"])
}

fn ready(terminal: &CommandLine) -> Vec<String> {
    column(&terminal.json(&["ready"]), "variant")
}

/// Takes the next item and returns its row, and its id and fence.
fn take(terminal: &CommandLine) -> (Value, [String; 2]) {
    let item = terminal.json(&["queue", "take"])[0].clone();
    let flags = [text(&item["id"]), item["fence"].to_string()];
    (item, flags)
}

engines! {
    fn completing_pinned_version_completes_current_version(terminal: CommandLine) {
        define(&terminal, &["fix/v1", "ship"]);
        terminal.json(&["task", "set", "--variant", "fix/v2", "--replaces", "fix/v1"]);
        terminal.json(&["package", "set", "--role", "coder", "--task", "fix/v1"]);
        terminal.json(&["link", "add", "--from", "fix/v1", "--to", "ship", "--type", "blocks"]);
        terminal.json(&["queue", "add", "--task", "fix/v2", "--role", "coder"]);
        let (item, [id, fence]) = take(&terminal);
        assert_eq!(item["variant"], "fix/v1");
        terminal.json(&["queue", "complete", "--id", &id, "--fence", &fence]);
        assert_eq!((status(&terminal, "fix/v1"), status(&terminal, "fix/v2")), ("done".into(), "done".into()));
        assert_eq!(ready(&terminal), ["ship"]);
    }

    fn completing_exact_version_leaves_current_version_open(terminal: CommandLine) {
        define(&terminal, &["fix/v1"]);
        terminal.json(&["task", "set", "--variant", "fix/v2", "--replaces", "fix/v1"]);
        terminal.json(&["queue", "add", "--task", "fix/v1", "--exact"]);
        let (item, [id, fence]) = take(&terminal);
        assert_eq!(item["variant"], "fix/v1");
        terminal.json(&["queue", "take", "--done", &format!("{id}:{fence}")]);
        assert_eq!((status(&terminal, "fix/v1"), status(&terminal, "fix/v2")), ("done".into(), "open".into()));
        assert_eq!(ready(&terminal), ["fix/v2"]);
    }

    fn completing_pinned_version_that_was_already_done_completes_current_version(terminal: CommandLine) {
        define(&terminal, &["fix/v1"]);
        terminal.json(&["task", "set", "--variant", "fix/v1", "--status", "done"]);
        terminal.json(&["task", "set", "--variant", "fix/v2", "--replaces", "fix/v1"]);
        terminal.json(&["package", "set", "--role", "coder", "--task", "fix/v1"]);
        terminal.json(&["queue", "add", "--task", "fix/v2", "--role", "coder"]);
        let (_, [id, fence]) = take(&terminal);
        assert_eq!(terminal.json(&["queue", "take", "--done", &format!("{id}:{fence}")]), json!([]));
        assert_eq!(status(&terminal, "fix/v2"), "done");
    }

    fn completing_replaced_version_leaves_newer_version_open(terminal: CommandLine) {
        define(&terminal, &["fix/v1"]);
        terminal.json(&["queue", "add", "--task", "fix/v1"]);
        let (item, [id, fence]) = take(&terminal);
        assert_eq!(item["variant"], "fix/v1");
        terminal.json(&["task", "set", "--variant", "fix/v2", "--replaces", "fix/v1"]);
        terminal.json(&["queue", "complete", "--id", &id, "--fence", &fence]);
        assert_eq!((status(&terminal, "fix/v1"), status(&terminal, "fix/v2")), ("done".into(), "open".into()));
        assert_eq!(ready(&terminal), ["fix/v2"]);
    }

    fn agent_failing_a_pinned_version_blocks_current_version_until_requeue(terminal: CommandLine) {
        define(&terminal, &["fix/v1"]);
        terminal.json(&["task", "set", "--variant", "fix/v2", "--replaces", "fix/v1"]);
        terminal.json(&["package", "set", "--role", "coder", "--task", "fix/v1"]);
        terminal.json(&["queue", "add", "--task", "fix/v2", "--role", "coder"]);
        let (item, [id, fence]) = take(&terminal);
        let fail = ["queue", "fail", "--id", &id, "--fence", &fence, "--error", "no such table"];
        terminal.json_in_run(Some(&text(&item["token"])), &fail);
        assert_eq!((status(&terminal, "fix/v1"), status(&terminal, "fix/v2")), ("blocked".into(), "blocked".into()));
        assert_eq!(ready(&terminal), Vec::<String>::new());
        terminal.json(&["queue", "requeue", "--id", &id]);
        assert_eq!((status(&terminal, "fix/v1"), status(&terminal, "fix/v2")), ("open".into(), "open".into()));
    }

    fn run_end_rejects_completed_with_outcome_error(terminal: CommandLine) {
        define(&terminal, &["once"]);
        terminal.json(&["agent", "set", "--handle", "ada"]);
        let (run, _) = terminal.start_run(&["--agent", "ada", "--task", "once"]);
        let end = ["run", "end", &run, "--status", "completed", "--outcome", "error"];
        assert_eq!(terminal.fails(&end), (2, "a completed run cannot have the outcome \"error\"".to_owned()));
        assert_eq!(status(&terminal, "once"), "in_progress");
    }

    fn agent_failing_its_own_item_blocks_task(terminal: CommandLine) {
        define(&terminal, &["once", "stubborn"]);
        terminal.json(&["task", "set", "--variant", "stubborn", "--retry-on-error", "true"]);
        let claim_and_fail = |variant: &str| {
            let item = terminal.json(&["claim", "--task", variant])[0].clone();
            let (id, fence, token) = (text(&item["id"]), item["fence"].to_string(), text(&item["token"]));
            let fail = ["queue", "fail", "--id", &id, "--fence", &fence, "--error", "no such table"];
            terminal.json_in_run(Some(&token), &fail)["status"].clone()
        };
        assert_eq!(claim_and_fail("once"), "failed");
        let task = terminal.json(&["task", "get", "once"]);
        assert_eq!((&task["status"], &task["status_reason"]), (&json!("blocked"), &json!("no such table")));
        assert_eq!(ready(&terminal), ["stubborn"]);
        assert_eq!(claim_and_fail("stubborn"), "failed", "a claim has one attempt");
        assert_eq!(status(&terminal, "stubborn"), "open");
    }

    fn run_ending_with_error_blocks_its_task(terminal: CommandLine) {
        define(&terminal, &["once"]);
        terminal.json(&["agent", "set", "--handle", "ada"]);
        let (run, token) = terminal.start_run(&["--agent", "ada", "--task", "once"]);
        let end = ["run", "end", &run, "--status", "failed", "--outcome", "error", "--error", "no such table"];
        terminal.json_in_run(Some(&token), &end);
        let task = terminal.json(&["task", "get", "once"]);
        assert_eq!((&task["status"], &task["status_reason"]), (&json!("blocked"), &json!("no such table")));
        assert_eq!(ready(&terminal), Vec::<String>::new());
    }

    fn run_start_rejects_archived_task(terminal: CommandLine) {
        define(&terminal, &["old"]);
        terminal.json(&["agent", "set", "--handle", "ada"]);
        terminal.json(&["task", "set", "--variant", "old", "--archived", "true"]);
        let start = ["run", "start", "--agent", "ada", "--task", "old"];
        assert_eq!(terminal.fails(&start), (4, "task old is archived".to_owned()));
    }

    fn lists_include_messages_and_routes_of_all_versions(terminal: CommandLine) {
        define(&terminal, &["fix/v1"]);
        terminal.json(&["task", "set", "--variant", "fix/v2", "--replaces", "fix/v1"]);
        terminal.json(&["agent", "set", "--handle", "ada"]);
        terminal.json(&["route", "set", "--tag", "bug", "--task", "fix/v1"]);
        terminal.json(&["message", "send", "--body", "to the old version", "--to-task", "fix/v1"]);
        let (_, token) = terminal.start_run(&["--agent", "ada", "--task", "fix/v1"]);
        terminal.json_in_run(Some(&token), &["message", "send", "--body", "from a run on it"]);
        for variant in ["fix/v1", "fix/v2"] {
            let messages = terminal.json(&["message", "list", "--task", variant]);
            let mut bodies = column(&messages, "body");
            bodies.sort_unstable();
            assert_eq!(bodies, ["from a run on it", "to the old version"], "{variant}");
            assert_eq!(column(&terminal.json(&["route", "list", "--task", variant]), "tag"), ["bug"], "{variant}");
        }
        define(&terminal, &["other"]);
        assert_eq!(terminal.json(&["message", "list", "--task", "other"]), json!([]));
        assert_eq!(terminal.json(&["route", "list", "--task", "other"]), json!([]));
    }
}

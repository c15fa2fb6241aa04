//! Runs, tokens, touches, `made`, `why`, trees and traces.

use std::time::Duration;

use serde_json::{Value, json};
use trackway_testkit::{CommandLine, column, engines, text};

fn chain_kinds(why: &Value) -> Vec<String> {
    column(&why["chain"], "kind")
}

engines! {
    fn made_and_why_are_inverse(terminal: CommandLine) {
        terminal.json(&["role", "set", "--name", "coder"]);
        terminal.json(&["workflow", "set", "--name", "q"]);
        terminal.json(&["task", "set", "--workflow", "q", "--variant", "unit/go", "--role", "coder"]);
        terminal.json(&["agent", "set", "--handle", "bot"]);
        let (run, token) = terminal.start_run(&["--agent", "bot", "--task", "unit/go"]);
        let note = text(&terminal.json_in_run(Some(&token), &["note", "create", "--studio", "main", "--title", "Found", "--body", "it"])["id"]);
        terminal.json_in_run(Some(&token), &["note", "update", &note, "--body", "it all"]);
        terminal.json_in_run(Some(&token), &["note", "update", &note, "--body", "everything"]);
        terminal.json_in_run(Some(&token), &["run", "end", "last", "--status", "completed", "--message", "done"]);

        let made = terminal.json(&["made", &run])["touches"].clone();
        assert_eq!(column(&made, "action_type"), ["create", "update"]);
        assert_eq!(column(&made, "times"), ["1", "2"]);
        assert_eq!(column(&made, "studio"), ["main", "main"]);
        assert_eq!(column(&made, "display_path"), ["main/notes/Found", "main/notes/Found"]);
        assert_eq!(column(&made, "resource_id"), [note.clone(), note.clone()]);
        assert_eq!(column(&terminal.json(&["made", &run, "--action", "create"])["touches"], "action_type"), ["create"]);
        assert_eq!(terminal.json(&["made", &run, "--kind", "vote"])["touches"], json!([]));

        let why = terminal.json(&["why", &note[note.len() - 8..]]);
        assert_eq!(chain_kinds(&why), ["resource", "run", "agent", "role", "task", "person"]);
        assert_eq!(column(&why["chain"], "label")[2..], ["bot", "coder", "unit/go @ 1", "ada"]);
        assert_eq!(why["chain"][1]["id"], json!(run));
        assert_eq!(why["missing"], json!([]));
        // A change of the task does not change the revision that the run executed.
        terminal.json(&["task", "set", "--workflow", "q", "--variant", "unit/go", "--title", "Go"]);
        assert_eq!(terminal.json(&["why", &note])["chain"][4]["label"], "unit/go @ 1");
        assert_eq!(chain_kinds(&terminal.json(&["why", &run])), ["run", "agent", "role", "task", "person"]);
        assert_eq!(terminal.json(&["why", &format!("http://127.0.0.1:1/notes/{note}")])["chain"][0]["id"], json!(note));
    }

    fn resource_created_outside_a_run_has_no_touch(terminal: CommandLine) {
        let note = text(&terminal.json(&["note", "create", "--studio", "main", "--title", "Mine"])["id"]);
        let why = terminal.json(&["why", &note]);
        assert_eq!(chain_kinds(&why), ["resource", "person"]);
        assert_eq!(why["missing"], json!(["run"]));
        let (_, token) = terminal.start_run(&["--agent", "worker"]);
        terminal.json_in_run(Some(&token), &["note", "update", &note, "--body", "x"]);
        // A run changed the note, but its creator is still ada.
        let why = terminal.json(&["why", &note]);
        assert_eq!((chain_kinds(&why), column(&why["touched_by"], "action_type")), (vec!["resource".into(), "person".into()], vec!["update".into()]));
    }

    fn touch_stores_the_studio_of_its_resource(terminal: CommandLine) {
        terminal.json(&["studio", "set", "--name", "lab"]);
        let (run, token) = terminal.start_run(&["--agent", "worker"]);
        let run_as = |arguments: &[&str]| terminal.json_in_run(Some(&token), arguments);
        run_as(&["note", "create", "--studio", "main", "--title", "one"]);
        let decision = text(&run_as(&["decision", "create", "--studio", "lab", "--question", "lunch?", "--option", "soup", "--option", "salad"])["id"]);
        run_as(&["decision", "vote", &decision, "--option", "soup", "--accept"]);
        run_as(&["decision", "vote", &decision, "--option", "soup", "--accept", "--prefer"]);
        let made = terminal.json(&["made", &run])["touches"].clone();
        assert_eq!(column(&made, "resource_type"), ["note", "decision", "option", "option", "vote"]);
        assert_eq!(column(&made, "action_type"), ["create", "create", "add_option", "add_option", "vote"]);
        assert_eq!(column(&made, "studio"), ["main", "lab", "lab", "lab", "lab"]);
        assert_eq!(column(&made, "times"), ["1", "1", "1", "1", "2"]);
        assert_eq!(column(&made, "display_path")[4], "lab/decisions/lunch?/soup");
    }

    fn deleted_resource_keeps_its_history(terminal: CommandLine) {
        let (run, token) = terminal.start_run(&["--agent", "worker"]);
        let note = text(&terminal.json_in_run(Some(&token), &["note", "create", "--studio", "main", "--title", "First"])["id"]);
        terminal.json(&["note", "update", &note, "--title", "Second"]);
        terminal.json(&["note", "delete", &note, "--yes"]);
        let made = terminal.json(&["made", &run])["touches"].clone();
        assert_eq!((column(&made, "display_path"), column(&made, "deleted")), (vec!["main/notes/Second".into()], vec!["true".into()]));
        let why = terminal.json(&["why", &note]);
        assert_eq!((&why["deleted"], chain_kinds(&why)[1].as_str()), (&json!(true), "run"));
        assert_eq!(terminal.fails(&["note", "show", &note]), (3, "note \"main/notes/Second\" was deleted".into()));
        assert_eq!(terminal.json(&["note", "list"]), json!([]));
    }

    fn run_token_is_invalid_after_the_run_ends(terminal: CommandLine) {
        let note = ["note", "create", "--studio", "main", "--title", "late"];
        let (run, token) = terminal.start_run(&["--agent", "worker"]);
        terminal.json(&["run", "end", &run, "--status", "failed", "--error", "broke"]);
        assert_eq!(terminal.fails_in_run(Some(&token), &note), (6, "the run has ended (failed), so its token is no longer valid".into()));
        let (run, token) = terminal.start_run(&["--agent", "worker"]);
        assert_eq!(terminal.json(&["run", "cancel", &run])["status"], "cancelled");
        assert_eq!(terminal.fails_in_run(Some(&token), &note).0, 6);
        assert_eq!(terminal.fails_in_run(Some("trw_nonsense"), &note), (6, "unknown token".into()));
        assert_eq!(terminal.fails(&["run", "end", &run, "--status", "completed"]).0, 4);
        assert_eq!(terminal.fails(&["run", "step", &run, "--type", "think"]).0, 4);
        assert_eq!(terminal.fails(&["run", "start", "--agent", "worker", "--parent", &run]).0, 6);
        assert_eq!(terminal.json(&["note", "list"]), json!([]));
        assert_eq!(column(&terminal.json(&["run", "list"]), "status"), ["cancelled", "failed"]);
    }

    fn capability_allows_an_action_outside_the_defaults(terminal: CommandLine) {
        terminal.json(&["agent", "set", "--handle", "bot"]);
        let (_, token) = terminal.start_run(&["--agent", "bot"]);
        let role = ["role", "set", "--name", "coder"];
        assert_eq!(terminal.fails_in_run(Some(&token), &role), (6, "agent bot may not set_role".into()));
        terminal.json(&["agent", "set", "--handle", "bot", "--capability", "set_role"]);
        terminal.json_in_run(Some(&token), &role);
        let note = ["note", "create", "--studio", "main", "--title", "x"];
        assert_eq!(terminal.fails_in_run(Some(&token), &note).0, 6);
        terminal.json(&["agent", "set", "--handle", "bot", "--capability", ""]);
        terminal.json_in_run(Some(&token), &note);
        terminal.json(&["agent", "set", "--handle", "bot", "--capability", "none"]);
        assert_eq!(terminal.fails_in_run(Some(&token), &note).0, 6);
        assert_eq!(terminal.fails(&["agent", "set", "--handle", "bot", "--capability", "set_agent"]).0, 2);
        assert_eq!(terminal.fails(&["agent", "set", "--handle", "bot", "--capability", "fly"]).0, 2);
    }

    fn run_tree_contains_child_runs(terminal: CommandLine) {
        terminal.json(&["agent", "set", "--handle", "lead", "--capability", "start_run", "--capability", "create_note"]);
        terminal.json(&["agent", "set", "--handle", "helper", "--parent", "lead"]);
        let (root, token) = terminal.start_run(&["--agent", "lead"]);
        let child = terminal.json_in_run(Some(&token), &["run", "start", "--agent", "helper"]);
        let (child, child_token) = (text(&child["run_id"]), text(&child["token"]));
        let note = text(&terminal.json_in_run(Some(&child_token), &["note", "create", "--studio", "main", "--title", "deep"])["id"]);
        terminal.json_in_run(Some(&child_token), &["run", "end", &child, "--status", "completed"]);
        terminal.json_in_run(Some(&token), &["run", "end", &root, "--status", "completed"]);

        let tree = terminal.json(&["run", "tree", &root]);
        assert_eq!((&tree["agent"], &tree["touches"], &tree["no_effect"]), (&json!("lead"), &json!(0), &json!(true)));
        assert_eq!((column(&tree["children"], "agent"), column(&tree["children"], "touches")), (vec!["helper".into()], vec!["1".into()]));
        assert_eq!(terminal.json(&["made", &root])["touches"], json!([]));
        assert_eq!(column(&terminal.json(&["made", &root, "--tree"])["touches"], "resource_id"), std::slice::from_ref(&note));
        let why = terminal.json(&["why", &note]);
        assert_eq!(chain_kinds(&why), ["resource", "run", "agent", "run", "agent", "person"]);
        assert_eq!(column(&why["chain"], "id")[3], root);
        assert_eq!(why["chain"][5]["label"], "ada");
        // The child has no spawn, queue item or message, so none of them is reported as missing.
        assert_eq!(why["missing"], json!(["role", "task"]));
        let shown = terminal.json(&["run", "show", &root]);
        assert_eq!((&shown["no_effect"], column(&shown["children"], "id")), (&json!(true), vec![child]));
    }

    fn steps_are_listed_in_order(terminal: CommandLine) {
        let (run, token) = terminal.start_run(&["--agent", "worker", "--max-steps", "200"]);
        terminal.json_in_run(Some(&token), &["run", "step", &run, "--type", "wake"]);
        terminal.json_in_run(Some(&token), &["run", "step", "last", "--type", "shell", "--detail", "ls\n-l"]);
        let shown = terminal.json(&["run", "show", "last"]);
        assert_eq!(column(&shown["steps"], "position"), ["1", "2"]);
        assert_eq!(column(&shown["steps"], "type"), ["wake", "shell"]);
        assert_eq!(column(&shown["steps"], "detail"), ["null", "ls\n-l"]);
        assert_eq!((&shown["usage"], &shown["touches"], &shown["max_steps"]), (&json!([]), &json!([]), &json!(200)));
        assert_eq!(terminal.fails(&["run", "start", "--agent", "worker", "--max-steps", "201"]).0, 2);
        assert_eq!(terminal.fails(&["run", "end", &run, "--status", "running"]).0, 2);
    }

    fn trace_export_is_prov_json(terminal: CommandLine) {
        terminal.json(&["workflow", "set", "--name", "q"]);
        terminal.json(&["task", "set", "--workflow", "q", "--variant", "unit/go"]);
        let (run, token) = terminal.start_run(&["--agent", "worker", "--task", "unit/go"]);
        let note = text(&terminal.json_in_run(Some(&token), &["note", "create", "--studio", "main", "--title", "x"])["id"]);
        let trace = terminal.json(&["trace", "export", &run]);
        let activity = format!("trackway:run/{run}");
        let entity = format!("trackway:note/{note}");
        assert_eq!(trace["prefix"]["trackway"], "urn:trackway:");
        assert_eq!(trace["activity"][&activity]["trackway:status"], "running");
        assert_eq!(trace["entity"][&entity]["prov:label"], "main/notes/x");
        let only = |relation: &str| trace[relation].as_object().unwrap().values().next().unwrap().clone();
        assert_eq!((&only("wasGeneratedBy")["prov:entity"], &only("wasGeneratedBy")["prov:activity"]), (&json!(entity), &json!(activity)));
        assert_eq!(only("wasAssociatedWith")["prov:activity"], json!(activity));
        assert!(text(&only("wasAssociatedWith")["prov:plan"]).ends_with("@1"));
        assert_eq!(only("actedOnBehalfOf")["prov:activity"], json!(activity));
        assert_eq!(only("wasAttributedTo")["prov:entity"], json!(entity));
    }

    fn event_log_contains_every_change(terminal: CommandLine) {
        terminal.json(&["role", "set", "--name", "coder"]);
        terminal.json(&["role", "set", "--name", "coder"]);
        let (run, token) = terminal.start_run(&["--agent", "worker"]);
        terminal.json_in_run(Some(&token), &["note", "create", "--studio", "main", "--title", "x"]);
        let events = terminal.json(&["event", "list"]);
        assert_eq!(column(&events, "action"), ["create_note", "start_run", "set_role", "found_tenant", "found_part", "found_part", "found_part"]);
        assert_eq!(column(&events, "actor"), ["worker", "ada", "ada", "ada", "ada", "ada", "ada"]);
        assert_eq!(column(&terminal.json(&["event", "list", "--run", &run]), "action"), ["create_note"]);
    }

    fn personal_token_acts_for_the_person_until_revoked(terminal: CommandLine) {
        terminal.json(&["person", "set", "--handle", "grace"]);
        let token = terminal.json(&["token", "create", "--person", "grace", "--name", "laptop"]);
        let secret = text(&token["token"]);
        let note = text(&terminal.json_in_run(Some(&secret), &["note", "create", "--studio", "main", "--title", "x"])["id"]);
        assert_eq!(terminal.json(&["why", &note])["chain"][1]["label"], "grace");
        let listed = terminal.json(&["token", "list"]);
        assert_eq!(column(&listed, "actor"), ["grace"]);
        assert!(!listed.to_string().contains(&secret));
        terminal.json(&["token", "revoke", &text(&token["id"]), "--yes"]);
        assert_eq!(terminal.fails_in_run(Some(&secret), &["note", "delete", &note, "--yes"]), (6, "the token was revoked".into()));
        let late = terminal.json(&["token", "create", "--expires", "2020-01-01T00:00:00Z"]);
        assert_eq!(terminal.fails_in_run(Some(&text(&late["token"])), &["role", "set", "--name", "x"]).0, 6);
    }

    fn token_expires_at_its_time(terminal: CommandLine) {
        let expires = terminal.env.now().plus_seconds(3_600).to_string();
        let token = text(&terminal.json(&["token", "create", "--expires", &expires])["token"]);
        terminal.env.advance(Duration::from_secs(3_590));
        terminal.json_in_run(Some(&token), &["role", "set", "--name", "in-time"]);
        terminal.env.advance(Duration::from_secs(10));
        assert_eq!(terminal.fails_in_run(Some(&token), &["role", "set", "--name", "late"]).0, 6);
    }
}

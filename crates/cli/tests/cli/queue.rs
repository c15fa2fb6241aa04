//! The queue as scripts use it: the commands and fields they rely on.

use serde_json::{Value, json};

use crate::terminal::{Terminal, both_engines, column, text};

fn furnished(terminal: &Terminal) {
    terminal.json(&["role", "set", "--name", "coder"]);
    terminal.json(&["workflow", "set", "--name", "ops"]);
    terminal.json(&["task", "set", "--workflow", "ops", "--variant", "again", "--recurring", "true"]);
    terminal.json(&["task", "set", "--workflow", "ops", "--variant", "once", "--priority", "P1"]);
}

fn keys(value: &Value) -> Vec<&str> {
    value.as_object().unwrap().keys().map(String::as_str).collect()
}

both_engines! {
    fn the_fields_that_scripts_rely_on(terminal: Terminal) {
        furnished(&terminal);
        let added = terminal.json(&["queue", "add", "--task", "again", "--description", "now", "--why", "because", "--tag", "x", "--role", "coder", "--priority", "-3", "--dedup-key", "k", "--concurrency-key", "c", "--max-attempts", "2"]);
        assert_eq!(keys(&added), ["id", "status", "duplicate"]);
        let peeked = terminal.json(&["queue", "peek", "--limit", "5", "--status", "ready"]);
        assert_eq!((&peeked[0]["id"], &peeked[0]["variant"], &peeked[0]["role"], &peeked[0]["tags"], &peeked[0]["why"]), (&added["id"], &json!("again"), &json!("coder"), &json!(["x"]), &json!("because")));
        let taken = terminal.json(&["queue", "take", "--lease", "60", "--batch", "3"]);
        assert_eq!(keys(&taken[0]), ["id", "task_id", "variant", "revision", "fence", "attempt", "lease_expires", "run_id", "token"]);
        let (id, fence) = (text(&taken[0]["id"]), taken[0]["fence"].to_string());
        assert_eq!(terminal.json(&["queue", "held"])[0]["agent"], "worker");
        assert_eq!(terminal.json(&["queue", "heartbeat", "--id", &id, "--fence", &fence])["status"], "running");
        let failed = terminal.json(&["queue", "fail", "--id", &id, "--fence", &fence, "--error", "no"]);
        assert_eq!(failed, json!({ "id": id, "status": "waiting" }));
        assert_eq!(terminal.json(&["queue", "requeue", "--id", &id])["status"], "ready");
        let taken = terminal.json(&["queue", "take", "--id", &id[id.len() - 8..]]);
        let fence = taken[0]["fence"].to_string();
        assert_eq!(fence, "2");
        assert_eq!(terminal.json(&["queue", "release", "--id", &id, "--fence", &fence])["status"], "ready");
        let taken = terminal.json(&["queue", "take"]);
        let fence = taken[0]["fence"].to_string();
        let done = terminal.json(&["queue", "complete", "--id", &id, "--fence", &fence, "--result", "{\"n\": 1}"]);
        assert_eq!(done, json!({ "id": id, "status": "completed" }));
        assert_eq!(terminal.json(&["queue", "get", &id])["result"], json!({ "n": 1 }));
        let size = terminal.json(&["queue", "size"]);
        assert_eq!((&size["total"], &size["by_status"]), (&json!(1), &json!({ "completed": 1 })));
        assert_eq!(terminal.json(&["queue", "size", "--status", "ready"])["total"], 0);
        assert_eq!(terminal.json(&["queue", "take"]), json!([]));
        let cancelled = text(&terminal.json(&["queue", "add", "--task", "again"])["id"]);
        assert_eq!(terminal.json(&["queue", "cancel", "--id", &cancelled])["status"], "cancelled");
    }

    fn a_ready_task_is_claimed(terminal: Terminal) {
        furnished(&terminal);
        assert_eq!(column(&terminal.json(&["ready"]), "variant"), ["once"]);
        let claimed = terminal.json(&["ready", "--claim"]);
        assert_eq!((claimed.as_array().unwrap().len(), &claimed[0]["variant"]), (1, &json!("once")));
        assert_eq!(terminal.json(&["task", "get", "once"])["status"], "in_progress");
        assert_eq!((terminal.json(&["ready", "--claim"]), terminal.json(&["ready"])), (json!([]), json!([])));
        let token = text(&claimed[0]["token"]);
        terminal.json_with(Some(&token), &["note", "create", "--studio", "main", "--title", "in the run"]);
        let (id, fence) = (text(&claimed[0]["id"]), claimed[0]["fence"].to_string());
        terminal.json_with(Some(&token), &["queue", "complete", "--id", &id, "--fence", &fence]);
        assert_eq!(terminal.json(&["task", "get", "once"])["status"], "done");
        let (code, _) = terminal.fails_with(Some(&token), &["note", "create", "--studio", "main", "--title", "late"]);
        assert_eq!(code, 6);
    }

    fn what_waits_for_a_day_says_so(terminal: Terminal) {
        furnished(&terminal);
        let added = terminal.json(&["queue", "add", "--task", "again", "--not-before", "2999-01-31"]);
        assert_eq!(added["status"], "waiting");
        let list = terminal.runs(&["queue", "list"]).stdout;
        assert!(list.contains("\tnot_before\t") && list.contains("\t2999-01-31T00:00:00Z\t"), "{list}");
    }

    fn what_cannot_be_is_refused(terminal: Terminal) {
        furnished(&terminal);
        let id = text(&terminal.json(&["queue", "add", "--task", "again"])["id"]);
        let before = terminal.json(&["event", "list"]);
        for (code, arguments) in [
            (3, vec!["queue", "add", "--task", "nothing"]),
            (2, vec!["queue", "add"]),
            (2, vec!["queue", "add", "--task", "again", "--priority", "1000001"]),
            (2, vec!["queue", "add", "--task", "again", "--max-attempts", "0"]),
            (2, vec!["queue", "add", "--task", "again", "--not-before", "tomorrow"]),
            (2, vec!["queue", "add", "--task", "again", "--dedup-key", " "]),
            (3, vec!["queue", "add", "--task", "again", "--agent", "nobody"]),
            (3, vec!["queue", "add", "--task", "again", "--message", "ffffffff"]),
            (2, vec!["queue", "take", "--lease", "0"]),
            (2, vec!["queue", "take", "--batch", "1001"]),
            (3, vec!["queue", "take", "--agent", "nobody"]),
            (3, vec!["queue", "take", "--id", "ffffffff"]),
            (4, vec!["queue", "complete", "--id", &id, "--fence", "0"]),
            (4, vec!["queue", "heartbeat", "--id", &id, "--fence", "1"]),
            (3, vec!["queue", "complete", "--id", "01a1e284-09fb-796c-8ab8-a21318fcfd71", "--fence", "1"]),
            (2, vec!["queue", "complete", "--id", &id, "--fence", "1", "--result", "{"]),
            (2, vec!["queue", "list", "--status", "done"]),
            (2, vec!["work", "--concurrency", "0"]),
        ] {
            assert_eq!(terminal.fails(&arguments).0, code, "{arguments:?}");
        }
        assert_eq!(terminal.json(&["event", "list"]), before);
        assert_eq!(terminal.json(&["queue", "size"])["by_status"], json!({ "ready": 1 }));
        terminal.json(&["task", "delete", "again", "--yes"]);
        assert_eq!(terminal.json(&["queue", "get", &id])["why"], "the task was deleted");
    }

    fn where_things_stand_names_the_queue(terminal: Terminal) {
        furnished(&terminal);
        terminal.json(&["queue", "add", "--task", "again"]);
        let shown = terminal.runs(&[]).stdout;
        let for_an_agent = "next: 1 ready item has a task without a script, for an agent: trackway work --agent AGENT";
        assert!(shown.contains("queue 1 ready") && shown.contains(for_an_agent), "{shown}");
        terminal.json(&["task", "set", "--workflow", "ops", "--variant", "again", "--script", "true"]);
        let shown = terminal.runs(&[]).stdout;
        assert!(shown.contains("queue 1 ready") && shown.contains("next: trackway work"), "{shown}");
    }
}

//! The queue: adding, taking, failing and requeueing items.

use std::time::Duration;

use serde_json::{Value, json};
use trackway_testkit::{CommandLine, engines, text};

fn create_tasks(terminal: &CommandLine) {
    terminal.json(&["role", "set", "--name", "coder"]);
    terminal.json(&["workflow", "set", "--name", "ops"]);
    terminal.json(&["task", "set", "--workflow", "ops", "--variant", "again", "--recurring", "true"]);
    terminal.json(&["task", "set", "--workflow", "ops", "--variant", "once", "--priority", "P1"]);
}

fn keys(value: &Value) -> Vec<&str> {
    value.as_object().unwrap().keys().map(String::as_str).collect()
}

engines! {
    fn queue_commands_return_documented_fields(terminal: CommandLine) {
        create_tasks(&terminal);
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

    fn item_keeps_its_reason_after_failure_and_requeue(terminal: CommandLine) {
        create_tasks(&terminal);
        let id = text(&terminal.json(&["queue", "add", "--task", "again", "--why", "release day", "--max-attempts", "1"])["id"]);
        let item_fields = |id: &str| {
            let item = terminal.json(&["queue", "get", id]);
            (item["why"].clone(), item["error"].clone(), item["taken_by"].clone())
        };
        terminal.json(&["queue", "take"]);
        terminal.json(&["queue", "release", "--id", &id, "--fence", "1"]);
        assert_eq!(item_fields(&id), (json!("release day"), Value::Null, Value::Null), "nobody has it");
        terminal.json(&["queue", "take"]);
        terminal.json(&["queue", "fail", "--id", &id, "--fence", "2", "--error", " "]);
        assert_eq!(item_fields(&id).1, "no error message was given");
        terminal.json(&["queue", "requeue", "--id", &id]);
        terminal.json(&["queue", "cancel", "--id", &id, "--why", "no need"]);
        assert_eq!(item_fields(&id), (json!("release day"), json!("no need"), Value::Null));
        terminal.json(&["queue", "requeue", "--id", &id]);
        assert_eq!(item_fields(&id).0, "release day");
    }

    fn expired_lease_frees_dedup_key_and_rejects_late_end_of_run(terminal: CommandLine) {
        create_tasks(&terminal);
        let add = ["queue", "add", "--task", "again", "--dedup-key", "k", "--max-attempts", "1"];
        let first = text(&terminal.json(&add)["id"]);
        let taken = terminal.json(&["queue", "take", "--lease", "1"])[0].clone();
        terminal.env.advance(Duration::from_secs(1));
        let late = terminal.fails(&["run", "end", &text(&taken["run_id"]), "--status", "completed"]);
        assert_eq!(late, (4, format!("the lease of queue item {} has expired", &first[first.len() - 8..])));
        let second = terminal.json(&add);
        assert_eq!((&second["status"], &second["duplicate"]), (&json!("ready"), &json!(false)), "the last attempt of the first is over");
        assert_eq!(terminal.json(&["run", "show", &text(&taken["run_id"])])["status"], "timed_out");
        assert_eq!(terminal.json(&["queue", "get", &first])["status"], "failed");
    }

    fn rejects_items_that_nobody_can_take(terminal: CommandLine) {
        create_tasks(&terminal);
        terminal.json(&["agent", "set", "--handle", "eve", "--archived", "true"]);
        assert_eq!(terminal.fails(&["queue", "add", "--task", "again", "--agent", "eve"]), (4, "agent eve is archived, so it cannot take queue items".into()));
        let id = text(&terminal.json(&["queue", "add", "--task", "again", "--role", "coder", "--concurrency-key", "q"])["id"]);
        terminal.json(&["agent", "set", "--handle", "bob"]);
        let refused = terminal.fails(&["queue", "take", "--id", &id, "--agent", "bob"]);
        assert_eq!(refused, (4, format!("queue item {} is for another role than the one of agent bob", &id[id.len() - 8..])));
        assert_eq!(terminal.fails(&["role", "delete", "coder", "--yes"]), (4, "0 task(s) and 1 unfinished queue item(s) have this role".into()));
    }
}

//! The queue as scripts use it: the commands and fields they rely on.

use serde_json::{Value, json};
use trackway_store::{Clock, params};
use uuid::Uuid;

use crate::hook::connection;
use crate::terminal::{Terminal, both_engines, column, text};

fn furnished(terminal: &Terminal) {
    terminal.json(&["role", "set", "--name", "coder"]);
    terminal.json(&["workflow", "set", "--name", "ops"]);
    terminal.json(&["task", "set", "--workflow", "ops", "--variant", "again", "--recurring", "true"]);
    terminal.json(&["task", "set", "--workflow", "ops", "--variant", "once", "--priority", "P1"]);
}

/// Lets the time in this column of an item pass.
fn let_pass(terminal: &Terminal, column: &str, item: &str) {
    let past = Clock::system().now().plus_seconds(-1);
    let sql = format!("update queue_items set {column} = ?1 where id = ?2");
    assert_eq!(connection(terminal).execute(&sql, params![past, item.parse::<Uuid>().unwrap()]).unwrap(), 1);
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
        let item = terminal.json(&["queue", "get", &id]);
        assert_eq!((&item["status"], &item["why"]), (&json!("blocked"), &json!("no live version of again: every version is archived or deleted")));
    }

    fn a_claimed_task_has_one_holder_and_is_open_when_given_back(terminal: Terminal) {
        furnished(&terminal);
        for agent in ["ada", "bob"] {
            terminal.json(&["agent", "set", "--handle", agent]);
        }
        let ada = ["ready", "--claim", "--agent", "ada"];
        let claimed = terminal.json(&ada)[0].clone();
        let (id, fence) = (text(&claimed["id"]), claimed["fence"].to_string());
        assert_eq!(terminal.json(&ada), json!([]), "it holds as many as it may");
        let named = ["claim", "--task", "once", "--agent", "bob"];
        assert_eq!(terminal.fails(&named), (4, "task once is claimed by ada already".into()));
        assert_eq!(terminal.json(&["queue", "release", "--id", &id, "--fence", &fence])["status"], "cancelled");
        assert_eq!(terminal.json(&["task", "get", "once"])["status"], "open");
        assert_eq!(column(&terminal.json(&["ready"]), "variant"), ["once"]);
        let claimed = terminal.json(&named)[0].clone();
        assert_eq!(terminal.json(&["queue", "held"])[0]["agent"], "bob");
        // One who was asked besides, and fails, takes nothing from who is at it.
        terminal.json(&["queue", "add", "--task", "once", "--max-attempts", "1"]);
        let other = terminal.json(&["queue", "take"])[0].clone();
        terminal.json(&["queue", "fail", "--id", &text(&other["id"]), "--fence", "1", "--error", "no"]);
        assert_eq!(terminal.json(&["task", "get", "once"])["status"], "in_progress");
        // Whoever completes it has done it, even if somebody opened it meanwhile.
        terminal.json(&["task", "set", "--workflow", "ops", "--variant", "once", "--status", "open"]);
        terminal.json(&["queue", "complete", "--id", &text(&claimed["id"]), "--fence", "1"]);
        assert_eq!(terminal.json(&["task", "get", "once"])["status"], "done");
    }

    fn what_was_asked_for_is_kept(terminal: Terminal) {
        furnished(&terminal);
        let id = text(&terminal.json(&["queue", "add", "--task", "again", "--why", "release day", "--max-attempts", "1"])["id"]);
        let told = |id: &str| {
            let item = terminal.json(&["queue", "get", id]);
            (item["why"].clone(), item["error"].clone(), item["taken_by"].clone())
        };
        terminal.json(&["queue", "take"]);
        terminal.json(&["queue", "release", "--id", &id, "--fence", "1"]);
        assert_eq!(told(&id), (json!("release day"), Value::Null, Value::Null), "nobody has it");
        terminal.json(&["queue", "take"]);
        terminal.json(&["queue", "fail", "--id", &id, "--fence", "2", "--error", " "]);
        assert_eq!(told(&id).1, "no reason was given");
        terminal.json(&["queue", "requeue", "--id", &id]);
        terminal.json(&["queue", "cancel", "--id", &id, "--why", "no need"]);
        assert_eq!(told(&id), (json!("release day"), json!("no need"), Value::Null));
        terminal.json(&["queue", "requeue", "--id", &id]);
        assert_eq!(told(&id).0, "release day");
    }

    fn a_lease_that_is_over_binds_nobody(terminal: Terminal) {
        furnished(&terminal);
        let add = ["queue", "add", "--task", "again", "--dedup-key", "k", "--max-attempts", "1"];
        let first = text(&terminal.json(&add)["id"]);
        let taken = terminal.json(&["queue", "take"])[0].clone();
        let_pass(&terminal, "lease_expires", &first);
        let late = terminal.fails(&["run", "end", &text(&taken["run_id"]), "--status", "completed"]);
        assert_eq!(late, (4, format!("the lease of queue item {} is over", &first[first.len() - 8..])));
        let second = terminal.json(&add);
        assert_eq!((&second["status"], &second["duplicate"]), (&json!("ready"), &json!(false)), "the last attempt of the first is over");
        assert_eq!(terminal.json(&["run", "show", &text(&taken["run_id"])])["status"], "timed_out");
        assert_eq!(terminal.json(&["queue", "get", &first])["status"], "failed");
    }

    fn what_is_due_is_ready(terminal: Terminal) {
        furnished(&terminal);
        let soon = Clock::system().now().plus_seconds(3_600).to_string();
        let item = text(&terminal.json(&["queue", "add", "--task", "again", "--not-before", &soon])["id"]);
        let listed = |status: &str| column(&terminal.json(&["queue", "list", "--status", status]), "status");
        assert_eq!(terminal.json(&["queue", "size"])["by_status"], json!({ "waiting": 1 }));
        assert_eq!((listed("waiting"), listed("ready")), (vec!["waiting".to_owned()], vec![]));
        let_pass(&terminal, "not_before", &item);
        let size = terminal.json(&["queue", "size"]);
        assert!(size["by_status"] == json!({ "ready": 1 }) && size["oldest_ready_since"].is_string(), "{size}");
        assert_eq!(terminal.json(&["queue", "size", "--status", "waiting"])["total"], 0);
        assert_eq!(terminal.json(&["queue", "size", "--status", "ready"])["by_status"], json!({ "ready": 1 }));
        assert_eq!((listed("waiting"), listed("ready")), (vec![], vec!["ready".to_owned()]));
        assert_eq!(column(&terminal.json(&["queue", "list"]), "status"), ["ready"]);
        assert_eq!(terminal.json(&["queue", "get", &item])["status"], "ready");
        for peek in [vec!["queue", "peek"], vec!["queue", "peek", "--status", "ready"]] {
            assert_eq!(column(&terminal.json(&peek), "status"), ["ready"], "{peek:?}");
        }
        assert!(terminal.runs(&[]).stdout.contains("queue 1 ready"));
        // What waits for another with its key is not next.
        for _ in 0..2 {
            terminal.json(&["queue", "add", "--task", "again", "--concurrency-key", "c"]);
        }
        assert_eq!(terminal.json(&["queue", "peek"]).as_array().unwrap().len(), 3);
        assert_eq!(terminal.json(&["queue", "take", "--batch", "9"]).as_array().unwrap().len(), 2);
        assert_eq!(terminal.json(&["queue", "peek"]), json!([]));
    }

    fn what_nobody_could_take_is_refused(terminal: Terminal) {
        furnished(&terminal);
        terminal.json(&["agent", "set", "--handle", "eve", "--archived", "true"]);
        assert_eq!(terminal.fails(&["queue", "add", "--task", "again", "--agent", "eve"]), (4, "agent eve is archived, and takes nothing".into()));
        let id = text(&terminal.json(&["queue", "add", "--task", "again", "--role", "coder", "--concurrency-key", "q"])["id"]);
        terminal.json(&["agent", "set", "--handle", "bob"]);
        let refused = terminal.fails(&["queue", "take", "--id", &id, "--agent", "bob"]);
        assert_eq!(refused, (4, format!("queue item {} is for another role than that of agent bob", &id[id.len() - 8..])));
        assert_eq!(terminal.fails(&["role", "delete", "coder", "--yes"]), (4, "0 task(s) and 1 queue item(s) are for this role".into()));
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

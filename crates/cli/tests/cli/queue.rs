//! The queue commands and the JSON fields that scripts rely on.

use serde_json::json;
use trackway_store::{Clock, params};
use uuid::Uuid;

use crate::hook::connection;
use crate::terminal::{Terminal, both_engines, column, text};

fn create_role_and_tasks(terminal: &Terminal) {
    terminal.json(&["role", "set", "--name", "coder"]);
    terminal.json(&["workflow", "set", "--name", "ops"]);
    terminal.json(&["task", "set", "--workflow", "ops", "--variant", "again", "--recurring", "true"]);
    terminal.json(&["task", "set", "--workflow", "ops", "--variant", "once", "--priority", "P1"]);
}

/// Moves the `not_before` of a waiting item into the past.
fn make_due(terminal: &Terminal, item: &str) {
    let past = Clock::system().now().plus_seconds(-1);
    let sql = "update queue_items set not_before = ?1 where id = ?2";
    assert_eq!(connection(terminal).execute(sql, params![past, item.parse::<Uuid>().unwrap()]).unwrap(), 1);
}

both_engines! {
    fn claimed_task_runs_with_its_token_until_completed(terminal: Terminal) {
        create_role_and_tasks(&terminal);
        assert_eq!(column(&terminal.json(&["ready"]), "variant"), ["once"]);
        let claimed = terminal.json(&["ready", "--claim"]);
        assert_eq!((claimed.as_array().unwrap().len(), &claimed[0]["variant"]), (1, &json!("once")));
        assert_eq!(terminal.json(&["task", "get", "once"])["status"], "in_progress");
        assert_eq!((terminal.json(&["ready", "--claim"]), terminal.json(&["ready"])), (json!([]), json!([])));
        let token = text(&claimed[0]["token"]);
        terminal.json_with_token(Some(&token), &["note", "create", "--studio", "main", "--title", "in the run"]);
        let (id, fence) = (text(&claimed[0]["id"]), claimed[0]["fence"].to_string());
        terminal.json_with_token(Some(&token), &["queue", "complete", "--id", &id, "--fence", &fence]);
        assert_eq!(terminal.json(&["task", "get", "once"])["status"], "done");
        let (code, _) = terminal.expect_error_with_token(Some(&token), &["note", "create", "--studio", "main", "--title", "late"]);
        assert_eq!(code, 6);
    }

    fn queue_list_shows_not_before_of_a_waiting_item(terminal: Terminal) {
        create_role_and_tasks(&terminal);
        let added = terminal.json(&["queue", "add", "--task", "again", "--not-before", "2999-01-31"]);
        assert_eq!(added["status"], "waiting");
        let list = terminal.run(&["queue", "list"]).stdout;
        assert!(list.contains("\tnot_before\t") && list.contains("\t2999-01-31T00:00:00Z\t"), "{list}");
    }

    fn invalid_queue_commands_fail_and_change_nothing(terminal: Terminal) {
        create_role_and_tasks(&terminal);
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
            assert_eq!(terminal.expect_error(&arguments).0, code, "{arguments:?}");
        }
        assert_eq!(terminal.json(&["event", "list"]), before);
        assert_eq!(terminal.json(&["queue", "size"])["by_status"], json!({ "ready": 1 }));
        terminal.json(&["task", "delete", "again", "--yes"]);
        let item = terminal.json(&["queue", "get", &id]);
        assert_eq!((&item["status"], &item["why"]), (&json!("blocked"), &json!("no live version of again: it is archived or deleted, and no live version replaces it")));
    }

    fn claimed_task_has_one_holder_and_reopens_when_released(terminal: Terminal) {
        create_role_and_tasks(&terminal);
        for agent in ["ada", "bob"] {
            terminal.json(&["agent", "set", "--handle", agent]);
        }
        let ada = ["ready", "--claim", "--agent", "ada"];
        let claimed = terminal.json(&ada)[0].clone();
        let (id, fence) = (text(&claimed["id"]), claimed["fence"].to_string());
        assert_eq!(terminal.json(&ada), json!([]), "ada already holds the maximum number of items");
        let named = ["claim", "--task", "once", "--agent", "bob"];
        assert_eq!(terminal.expect_error(&named), (4, "task once is already claimed by ada".into()));
        assert_eq!(terminal.json(&["queue", "release", "--id", &id, "--fence", &fence])["status"], "cancelled");
        assert_eq!(terminal.json(&["task", "get", "once"])["status"], "open");
        assert_eq!(column(&terminal.json(&["ready"]), "variant"), ["once"]);
        let claimed = terminal.json(&named)[0].clone();
        assert_eq!(terminal.json(&["queue", "held"])[0]["agent"], "bob");
        // A failed second item of the task does not affect the holder of the claim.
        terminal.json(&["queue", "add", "--task", "once", "--max-attempts", "1"]);
        let other = terminal.json(&["queue", "take"])[0].clone();
        terminal.json(&["queue", "fail", "--id", &text(&other["id"]), "--fence", "1", "--error", "no"]);
        assert_eq!(terminal.json(&["task", "get", "once"])["status"], "in_progress");
        // Completing the claim marks the task done, even if somebody reopened the task in the meantime.
        terminal.json(&["task", "set", "--workflow", "ops", "--variant", "once", "--status", "open"]);
        terminal.json(&["queue", "complete", "--id", &text(&claimed["id"]), "--fence", "1"]);
        assert_eq!(terminal.json(&["task", "get", "once"])["status"], "done");
    }

    fn waiting_item_becomes_ready_when_due(terminal: Terminal) {
        create_role_and_tasks(&terminal);
        let soon = Clock::system().now().plus_seconds(3_600).to_string();
        let item = text(&terminal.json(&["queue", "add", "--task", "again", "--not-before", &soon])["id"]);
        let listed = |status: &str| column(&terminal.json(&["queue", "list", "--status", status]), "status");
        assert_eq!(terminal.json(&["queue", "size"])["by_status"], json!({ "waiting": 1 }));
        assert_eq!((listed("waiting"), listed("ready")), (vec!["waiting".to_owned()], vec![]));
        make_due(&terminal, &item);
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
        assert!(terminal.run(&[]).stdout.contains("queue 1 ready"));
        // An item that waits for another item with the same concurrency key is not listed as next.
        for _ in 0..2 {
            terminal.json(&["queue", "add", "--task", "again", "--concurrency-key", "c"]);
        }
        assert_eq!(terminal.json(&["queue", "peek"]).as_array().unwrap().len(), 3);
        assert_eq!(terminal.json(&["queue", "take", "--batch", "9"]).as_array().unwrap().len(), 2);
        assert_eq!(terminal.json(&["queue", "peek"]), json!([]));
    }

    fn overview_shows_queue_size_and_next_command(terminal: Terminal) {
        create_role_and_tasks(&terminal);
        terminal.json(&["queue", "add", "--task", "again"]);
        let shown = terminal.run(&[]).stdout;
        let agent_hint = "next: 1 ready item has a task without a script and needs an agent: trackway work --agent AGENT";
        assert!(shown.contains("queue 1 ready") && shown.contains(agent_hint), "{shown}");
        terminal.json(&["task", "set", "--workflow", "ops", "--variant", "again", "--script", "true"]);
        let shown = terminal.run(&[]).stdout;
        assert!(shown.contains("queue 1 ready") && shown.contains("next: to run the items in the queue: trackway work"), "{shown}");
    }
}

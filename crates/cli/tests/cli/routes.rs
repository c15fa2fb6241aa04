//! Routes: sending a message queues work in the same transaction.

use std::process::Stdio;

use serde_json::{Value, json};
use snapbox::str;

use crate::{
    output::redact,
    terminal::{Terminal, both_engines, column, text},
};

impl Terminal {
    /// Creates roles, workspaces and tasks for routes.
    fn create_route_targets(&self) {
        for role in ["coder", "critic"] {
            self.json(&["role", "set", "--name", role]);
        }
        self.json(&["workflow", "set", "--name", "q"]);
        self.json(&["workspace", "set", "--name", "shed"]);
        self.json(&["workspace", "set", "--name", "barn"]);
        self.json(&["task", "set", "--workflow", "q", "--variant", "fix", "--role", "coder", "--workspace", "shed"]);
        self.json(&["task", "set", "--workflow", "q", "--variant", "judge"]);
    }

    fn queue_items(&self) -> Value {
        let mut items = self.json(&["queue", "peek"]);
        items.as_array_mut().unwrap().sort_by_key(|item| text(&item["id"]));
        items
    }
}

both_engines! {
    fn message_with_a_routed_tag_queues_the_task(terminal: Terminal) {
        terminal.create_route_targets();
        let route = terminal.json(&["route", "set", "--tag", "bug", "--task", "fix", "--workspace", "barn"]);
        assert_eq!((&route["tag"], &route["task"], &route["workspace"], &route["new"]), (&json!("bug"), &json!("fix"), &json!("barn"), &json!(true)));
        let sent = terminal.json(&["message", "send", "--body", "it leaks", "--tag", "bug", "urgent", "--title", "Leak"]);
        let items = terminal.queue_items();
        assert_eq!(items.as_array().unwrap().len(), 1);
        let item = &items[0];
        assert_eq!((&item["id"], &sent["queue_items"]), (&sent["queue_item_id"], &json!([item["id"]])));
        assert_eq!((&item["inbound_message"], &item["route_id"], &item["chain_depth"], &item["status"]), (&sent["id"], &route["id"], &json!(0), &json!("ready")));
        assert_eq!((&item["role"], &item["workspace"], &item["description"], &item["tags"]), (&json!("coder"), &json!("barn"), &json!("Leak"), &json!(["bug", "urgent"])));
        for tags in [vec![], vec!["--tag", "Bug"], vec!["--tag", "bugs", "bu"], vec!["--tag", ""]] {
            let sent = terminal.json(&[&["message", "send", "--body", "x"], &tags[..]].concat());
            assert_eq!((&sent["queue_item_id"], &sent["queue_items"]), (&Value::Null, &json!([])), "{tags:?}");
        }
        assert_eq!(terminal.queue_items().as_array().unwrap().len(), 1);
    }

    fn route_with_a_role_applies_to_messages_of_that_role(terminal: Terminal) {
        terminal.create_route_targets();
        let any = text(&terminal.json(&["route", "set", "--tag", "bug", "--task", "fix"])["id"]);
        let critics = text(&terminal.json(&["route", "set", "--tag", "bug", "--role", "critic", "--task", "judge"])["id"]);
        let send = |more: &[&str]| terminal.json(&[&["message", "send", "--body", "x", "--tag", "bug"], more].concat())["queue_items"].as_array().unwrap().len();
        assert_eq!((send(&[]), send(&["--role", "coder"]), send(&["--role", "critic"])), (1, 1, 2));
        let mut routes = column(&terminal.queue_items(), "route_id");
        routes.sort();
        assert_eq!(routes, [any.clone(), any.clone(), any, critics]);
        // Without --role, the role of the run decides.
        terminal.json(&["agent", "set", "--handle", "judge", "--role", "critic"]);
        let (_, token) = terminal.start_run(&["--agent", "judge"]);
        let sent = terminal.json_with_token(Some(&token), &["message", "send", "--body", "y", "--tag", "bug"]);
        assert_eq!(sent["queue_items"].as_array().unwrap().len(), 2);
        let item = terminal.queue_items().as_array().unwrap().iter().find(|item| item["id"] == sent["queue_item_id"]).cloned().unwrap();
        assert_eq!(item["chain_depth"], 1);
    }

    fn message_to_a_task_queues_it_without_a_route(terminal: Terminal) {
        terminal.create_route_targets();
        terminal.json(&["route", "set", "--tag", "bug", "--task", "judge"]);
        let sent = terminal.json(&["message", "send", "--body", "please", "--to-task", "fix", "--tag", "bug"]);
        assert_eq!(sent["queue_items"].as_array().unwrap().len(), 2);
        let item = terminal.queue_items().as_array().unwrap().iter().find(|item| item["id"] == sent["queue_item_id"]).cloned().unwrap();
        assert_eq!((&item["variant"], &item["route_id"], &item["inbound_message"], &item["workspace"]), (&json!("fix"), &Value::Null, &sent["id"], &json!("shed")));
        let shown = terminal.json(&["message", "get", &text(&sent["id"])]);
        assert_eq!((&shown["to"], &shown["to_kind"]), (&json!("fix"), &json!("task")));
        assert_eq!((column(&shown["handled"], "status"), column(&shown["handled"], "task")), (vec!["ready".into(); 2], vec!["fix".into(), "judge".into()]));
        assert_eq!(column(&terminal.json(&["message", "list", "--to", "task:fix"]), "id"), [text(&sent["id"])]);

        terminal.json(&["task", "set", "--workflow", "q", "--variant", "old", "--archived"]);
        assert_eq!(terminal.expect_error(&["message", "send", "--body", "x", "--to-task", "old"]).0, 4);
        assert_eq!(terminal.expect_error(&["message", "send", "--body", "x", "--to-task", "nothing"]).0, 3);
        assert_eq!(terminal.expect_error(&["message", "send", "--body", "x", "--to-task", "fix", "--to", "ada"]).0, 2);
        assert_eq!(terminal.queue_items().as_array().unwrap().len(), 2);
        // The refused messages were not stored.
        assert_eq!(column(&terminal.json(&["message", "list"]), "body"), ["please"]);
        terminal.json(&["message", "send", "--body", "x", "--to-task", "fix", "--dry-run"]);
        assert_eq!(terminal.queue_items().as_array().unwrap().len(), 2);
    }

    fn message_shows_the_status_of_the_run_that_handled_it(terminal: Terminal) {
        terminal.create_route_targets();
        let sent = terminal.json(&["message", "send", "--body", "please", "--to-task", "judge"]);
        let taken = terminal.json(&["queue", "take"])[0].clone();
        let handled = |field: &str| terminal.json(&["message", "get", &text(&sent["id"])])["handled"][0][field].clone();
        assert_eq!((handled("queue_item"), handled("status"), handled("run"), handled("run_status")),
            (sent["queue_item_id"].clone(), json!("running"), taken["run_id"].clone(), json!("running")));
        let id = text(&taken["id"]);
        let answer = terminal.json_with_token(Some(&text(&taken["token"])), &["message", "send", "--body", "fine", "--status", "succeeded", "--reply-to", &text(&sent["id"])]);
        terminal.json(&["queue", "complete", "--id", &id, "--fence", &taken["fence"].to_string()]);
        assert_eq!((handled("status"), handled("run_status")), (json!("completed"), json!("completed")));
        assert_eq!(terminal.json(&["message", "get", &text(&answer["id"])])["task"], "judge");
        snapbox::assert_data_eq!(redact(&terminal.run(&["message", "list", "--reply-to", &text(&sent["id"])]).stdout), str![[r#"
id	created_at	from	from_run_id	to	role	title	tags	status	body	conversation	session_id
[ID]	[TIME]	worker	[ID]					succeeded	fine		

"#]]);
    }

    fn why_leads_through_the_route_to_the_first_message(terminal: Terminal) {
        terminal.create_route_targets();
        terminal.json(&["route", "set", "--tag", "bug", "--task", "judge"]);
        let sent = terminal.json(&["message", "send", "--body", "it leaks", "--tag", "bug"]);
        let token = text(&terminal.json(&["queue", "take"])[0]["token"]);
        // A routed message of the run queues an item that is one level deeper in the chain.
        let answer = terminal.json_with_token(Some(&token), &["message", "send", "--body", "look again", "--tag", "bug"]);
        let chain = terminal.json(&["why", &text(&answer["id"])])["chain"].clone();
        assert_eq!(column(&chain, "kind"), ["message", "run", "agent", "task", "queue_item", "route", "message", "person"]);
        assert_eq!((&chain[6]["id"], &chain[6]["label"], &chain[7]["label"]), (&sent["id"], &json!("it leaks"), &json!("ada")));
        let item = terminal.queue_items().as_array().unwrap().iter().find(|item| item["id"] == answer["queue_item_id"]).cloned().unwrap();
        assert_eq!(item["chain_depth"], 1);
    }

    fn route_is_created_updated_and_deleted(terminal: Terminal) {
        terminal.create_route_targets();
        let first = terminal.json(&["route", "set", "--tag", " bug\n", "--task", "fix"]);
        let again = terminal.json(&["route", "set", "--tag", "bug", "--task", "fix", "--workspace", "barn"]);
        assert_eq!((&again["id"], &again["new"], &again["workspace"]), (&first["id"], &json!(false), &json!("barn")));
        let unchanged = terminal.json(&["route", "set", "--tag", "bug", "--task", "fix"]);
        assert_eq!((&unchanged["workspace"], &unchanged["updated_at"]), (&json!("barn"), &again["updated_at"]));
        assert_eq!(terminal.json(&["route", "set", "--tag", "bug", "--task", "fix", "--workspace", ""])["workspace"], Value::Null);
        let other = terminal.json(&["route", "set", "--tag", "bug", "--role", "critic", "--task", "fix"]);
        assert_ne!(other["id"], first["id"]);
        snapbox::assert_data_eq!(redact(&terminal.run(&["route", "list"]).stdout), str![[r#"
id	tag	role	task	would_run	workspace
[ID]	bug		fix	fix	
[ID]	bug	critic	fix	fix	

"#]]);
        terminal.json(&["route", "delete", &text(&other["id"]), "--yes"]);
        assert_eq!(column(&terminal.json(&["route", "list", "--tag", "bug", "--task", "fix"]), "id"), [text(&first["id"])]);
        assert_eq!(terminal.json(&["route", "set", "--tag", "bug", "--role", "critic", "--task", "fix"])["new"], true);
        for (arguments, code) in [
            (vec!["--tag", " ", "--task", "fix"], 2),
            (vec!["--tag", "x", "--task", "nothing"], 3),
            (vec!["--tag", "x", "--task", "fix", "--role", "nobody"], 3),
            (vec!["--tag", "x"], 2),
        ] {
            assert_eq!(terminal.expect_error(&[&["route", "set"], &arguments[..]].concat()).0, code, "{arguments:?}");
        }
        // The items for a task without a live version are blocked, and the sender learns why.
        terminal.json(&["task", "delete", "fix", "--yes"]);
        let sent = terminal.json(&["message", "send", "--body", "x", "--tag", "bug"]);
        assert_eq!((sent["queue_items"].as_array().unwrap().len(), &sent["notices"][0]), (1, &json!("no live version of fix: it is archived or deleted, and no live version replaces it: the item is blocked")));
        assert_eq!(column(&terminal.json(&["route", "list"]), "task_deleted"), ["true", "true"]);
        terminal.json(&["route", "set", "--tag", "old", "--task", "judge"]);
        terminal.json(&["task", "set", "--workflow", "q", "--variant", "judge", "--archived"]);
        let sent = terminal.json(&["message", "send", "--body", "x", "--tag", "old"]);
        assert_eq!(column(&terminal.json(&["queue", "list"]), "status"), ["blocked", "blocked"]);
        assert_eq!(terminal.json(&["route", "list", "--tag", "old"])[0]["would_run"], Value::Null);
        terminal.json(&["task", "set", "--workflow", "q", "--variant", "judge", "--archived", "false"]);
        assert_eq!(terminal.json(&["queue", "get", &text(&sent["queue_item_id"])])["status"], "ready");
    }

    fn agents_may_not_change_routes(terminal: Terminal) {
        terminal.create_route_targets();
        let route = text(&terminal.json(&["route", "set", "--tag", "bug", "--task", "fix"])["id"]);
        let (_, token) = terminal.start_run(&["--agent", "worker"]);
        for arguments in [vec!["route", "set", "--tag", "x", "--task", "fix"], vec!["route", "delete", &route, "--yes"]] {
            assert_eq!(terminal.expect_error_with_token(Some(&token), &arguments).0, 6, "{arguments:?}");
        }
        assert_eq!(terminal.expect_error(&["agent", "set", "--handle", "x", "--capability", "set_route"]), (2, "\"set_route\" is only for people and cannot be granted".into()));
        assert_eq!(column(&terminal.json(&["route", "list"]), "id"), [route]);
    }

    fn concurrent_processes_route_each_message_once(terminal: Terminal) {
        terminal.create_route_targets();
        terminal.json(&["route", "set", "--tag", "bug", "--task", "fix"]);
        // In each round, eight processes send the same new body.
        for round in 0..5 {
            let children: Vec<_> = (0..8)
                .map(|_| {
                    let body = format!("round {round}");
                    let mut command = terminal.command(&["message", "send", "--body", &body, "--tag", "bug", "--json"]);
                    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
                })
                .collect();
            let answers: Vec<Value> = children
                .into_iter()
                .map(|child| {
                    let output = child.wait_with_output().unwrap();
                    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
                    serde_json::from_slice::<Value>(&output.stdout).unwrap()["data"].clone()
                })
                .collect();
            assert_eq!(answers.iter().filter(|sent| sent["content_new"] == true).count(), 1);
            assert!(answers.iter().all(|sent| sent["content_id"] == answers[0]["content_id"] && sent["queue_items"].as_array().unwrap().len() == 1));
        }
        let mut messages = column(&terminal.json(&["queue", "peek", "--limit", "100"]), "inbound_message");
        messages.sort();
        messages.dedup();
        assert_eq!(messages.len(), 40);
    }
}

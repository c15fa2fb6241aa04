//! JSON, Markdown and HTML show the current version of a task on links, routes, queue items and ready tasks.

use serde_json::{Value, json};
use trackway_testkit::{TestEnv, engines};

use crate::visitor::Visitor;

fn set_task(env: &TestEnv, variant: &str, more: Value) {
    let mut input = json!({ "workflow": "ops", "variant": variant });
    input.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    env.execute_json("set_task", input).unwrap();
}

/// Asserts that the page contains the texts in Markdown and in HTML.
fn assert_shows(visitor: &Visitor, path: &str, texts: &[&str]) {
    for page in [visitor.markdown(path).body, visitor.html(path).body] {
        for text in texts {
            assert!(page.contains(text), "{path}: {text:?} is not in {page}");
        }
    }
}

engines! {
    fn every_format_shows_the_current_version(env: TestEnv) {
        env.workflow("ops");
        env.role("coder");
        set_task(&env, "build/one", json!({}));
        set_task(&env, "ship", json!({}));
        env.execute_json("add_link", json!({ "from": "build/one", "to": "ship", "type": "blocks" })).unwrap();
        env.execute_json("set_route", json!({ "tag": "push", "task": "build/one" })).unwrap();
        let item = env.execute_json("queue_add", json!({ "task": "build/one", "role": "coder" })).unwrap();
        set_task(&env, "build/two", json!({ "replaces": "build/one" }));
        let visitor = Visitor::person(&env);

        let link = visitor.json("/tasks/ship").data()["links"][0].clone();
        assert_eq!((&link["from"], &link["from_current"], &link["to_current"]), (&json!("build/one"), &json!("build/two"), &json!("ship")));
        assert_eq!(link["blocks_now"], true);
        assert_shows(&visitor, "/tasks/ship", &["build/one", "build/two"]);

        assert_eq!(visitor.json("/routes").data()[0]["would_run"], "build/two");
        assert_shows(&visitor, "/routes", &["build/one", "build/two"]);

        let path = format!("/queue/{}", item["id"].as_str().unwrap());
        let before = visitor.json(&path).data();
        assert_eq!((&before["variant"], &before["run_variant"], &before["would_run"]), (&json!("build/one"), &Value::Null, &json!("build/two")));
        env.execute_json("set_package", json!({ "role": "coder", "task": "build/one" })).unwrap();
        assert_eq!(visitor.json(&path).data()["would_run"], "build/one");
        env.execute_json("delete_package", json!({ "role": "coder", "task": "build/one" })).unwrap();
        let taken = env.execute_json("queue_take", json!({})).unwrap()[0].clone();
        let during = visitor.json(&path).data();
        assert_eq!((&during["variant"], &during["run_variant"]), (&json!("build/one"), &json!("build/two")));
        assert_shows(&visitor, &path, &["build/one", "build/two"]);
        assert_shows(&visitor, "/queue", &["build/one", "build/two"]);

        env.execute_json("queue_complete", json!({ "id": taken["id"], "fence": taken["fence"] })).unwrap();
        let ready = visitor.json("/ready").data()[0].clone();
        assert_eq!(ready["variant"], "ship");
        assert_eq!(ready["unblocked_by"], json!(["build/two (done), current version of build/one"]));
        assert_shows(&visitor, "/ready", &["ship", "build/two"]);
        assert_eq!(visitor.json("/tasks/ship").data()["links"][0]["blocks_now"], false);
    }

    fn task_page_lists_messages_and_routes_of_all_versions(env: TestEnv) {
        env.workflow("ops");
        set_task(&env, "fix/one", json!({}));
        set_task(&env, "fix/two", json!({ "replaces": "fix/one" }));
        env.execute_json("set_route", json!({ "tag": "bug", "task": "fix/one" })).unwrap();
        env.execute_json("send_message", json!({ "body": "It leaks", "to_task": "fix/one" })).unwrap();
        let visitor = Visitor::person(&env);
        let task = visitor.json("/tasks/fix/two").data();
        assert_eq!((&task["messages"][0]["body"], &task["routes"][0]["tag"]), (&json!("It leaks"), &json!("bug")));
        assert_eq!(visitor.json("/messages?task=fix/two").data()[0]["body"], "It leaks");
        assert_eq!(visitor.json("/routes?task=fix/two").data()[0]["tag"], "bug");
        assert_shows(&visitor, "/messages?task=fix/two", &["It leaks"]);
    }
}

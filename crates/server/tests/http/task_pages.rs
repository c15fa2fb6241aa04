//! Pages about tasks: current and next version, ready tasks, everything that refers to a task, and the touches of a
//! run.

use serde_json::{Value, json};
use trackway_testkit::{TestEnv, engines};

use crate::visitor::Visitor;

fn set_task(env: &TestEnv, variant: &str, more: Value) {
    let mut input = json!({ "workflow": "unit", "variant": variant });
    input.as_object_mut().unwrap().extend(more.as_object().cloned().unwrap_or_default());
    env.execute_json("set_task", input).unwrap();
}

/// The values of one field in all rows.
fn column(rows: &Value, field: &str) -> Vec<String> {
    let text = |row: &Value| row[field].as_str().map_or_else(|| row[field].to_string(), str::to_owned);
    rows.as_array().unwrap().iter().map(text).collect()
}

engines! {
    fn shows_current_and_next_version(env: TestEnv) {
        env.workflow("unit");
        set_task(&env, "unit/1", json!({}));
        set_task(&env, "unit/2", json!({ "replaces": "unit/1", "level": "patch" }));
        set_task(&env, "unit/3", json!({ "replaces": "unit/2", "level": "major" }));
        let visitor = Visitor::person(&env);
        let id = visitor.json("/tasks/unit/1").data()["id"].as_str().unwrap().to_owned();
        for path in ["/latest?variant=unit/1", "/latest?variant=%20unit/1%20", &format!("/latest?id={id}")] {
            let latest = visitor.json(path).data();
            assert_eq!((&latest["variant"], &latest["path"]), (&json!("unit/3"), &json!(["unit/1", "unit/2", "unit/3"])), "{path}");
            let page = visitor.markdown(path).body;
            assert!(page.contains("# Current version: unit/3\n"), "{page}");
            assert!(page.contains("| 2 | [unit/2](/tasks/unit/2) |") && page.contains("| 3 | [unit/3](/tasks/unit/3) |"), "{page}");
            assert!(visitor.html(path).body.contains("<dt>current version</dt><dd><a href=\"/tasks/unit/3\">unit/3</a>"), "{path}");
        }
        for (path, level) in [("/next?id=unit/1", "patch"), ("/next?id=unit/1&level=patch", "patch"), ("/next?id=unit/2", "major")] {
            let next = visitor.json(path).data();
            let to = if level == "patch" { "unit/2" } else { "unit/3" };
            assert_eq!((&next["variant"], &next["level"]), (&json!(to), &json!(level)), "{path}");
            assert!(visitor.html(path).body.contains(&format!("<dt>next version</dt><dd><a href=\"/tasks/{to}\">{to}</a>")), "{path}");
        }
        for (path, status) in [
            ("/next?id=unit/1&level=major", 404), ("/next?id=unit/3", 404), ("/next?id=unit/1&level=huge", 422), ("/next?id=unit/9", 404),
            ("/latest?variant=unit/9", 404), ("/latest?variant=unit/1&id=unit/1", 422), ("/latest?of=unit/1", 422), ("/latest", 200), ("/next", 200),
        ] {
            assert_eq!((visitor.html(path).status, visitor.json(path).status), (status, status), "{path}");
        }
        let task = visitor.json("/tasks/unit/2").data();
        assert_eq!((&task["latest"]["variant"], &task["next"]["variant"]), (&json!("unit/3"), &json!("unit/3")));
        let page = visitor.html("/tasks/unit/2").body;
        assert!(page.contains("<dt>current version</dt><dd><a href=\"/latest?variant=unit/2\">unit/3</a>"), "{page}");
        assert!(page.contains("<dt>next version</dt><dd><a href=\"/next?id=unit/2&amp;level=any\">unit/3</a>"), "{page}");
        let newest = visitor.html("/tasks/unit/3").body;
        assert!(newest.contains("<a href=\"/latest?variant=unit/3\">this one</a>") && !newest.contains("/next?id="), "{newest}");
        assert_eq!(visitor.json("/tasks/unit/3").data()["next"], Value::Null);
        env.execute_json("set_task", json!({ "workflow": "unit", "variant": "unit/3", "archived": true })).unwrap();
        assert_eq!(visitor.html("/tasks/unit/3").status, 200);
        assert_eq!(visitor.json("/tasks/unit/3").data()["latest"], Value::Null);
        assert_eq!(visitor.json("/latest?variant=unit/3").status, 404);
    }

    fn lists_ready_tasks_by_urgency(env: TestEnv) {
        let visitor = Visitor::person(&env);
        assert_eq!(visitor.json("/ready").data(), json!([]));
        for empty in [visitor.html("/ready").body, visitor.markdown("/ready").body] {
            assert!(empty.contains("No task is ready."), "{empty}");
        }
        env.workflow("unit");
        for (variant, priority) in [("low", "P3"), ("first", "P1"), ("second", "P1"), ("urgent", "P0"), ("last", "P3")] {
            set_task(&env, variant, json!({ "priority": priority, "title": format!("the {variant} one") }));
        }
        let in_order = ["urgent", "first", "second", "low", "last"];
        assert_eq!(column(&visitor.json("/ready").data(), "variant"), in_order);
        let (mut path, mut walked) = ("/ready?limit=2".to_owned(), Vec::new());
        loop {
            let page = visitor.json(&path);
            walked.extend(column(&page.data(), "variant"));
            assert!(visitor.html(&path).body.contains("<table"), "{path}");
            match page.json()["next"].as_str() {
                Some(next) => path = next.to_owned(),
                None => break,
            }
            // Claiming a task between two pages does not shift the next page.
            env.execute_json("claim", json!({ "task": "urgent" })).ok();
        }
        assert_eq!(walked, in_order);
        assert_eq!(column(&visitor.json("/ready").data(), "variant"), in_order[1..]);
        let page = visitor.html("/ready").body;
        assert!(page.contains("<a href=\"/tasks/first\">first</a>") && page.contains("action=\"/ready/actions/claim\""), "{page}");
        assert!(visitor.html("/").body.contains("<a href=\"/ready\">"), "the overview links to it");
        assert!(visitor.html("/tasks").body.contains("<a href=\"/ready\">"), "so does the list of tasks");
        assert_eq!(visitor.json("/ready?after=zzz").status, 404);
        assert_eq!(visitor.json("/ready?limit=0").status, 422);
        assert_eq!(visitor.act("/ready/actions/claim", &json!({})).data()[0]["variant"], "first");
    }

    fn lists_touches_of_a_run(env: TestEnv) {
        env.workflow("unit");
        env.task("unit", "unit/go");
        let run = env.agent("bob").start_run_on("unit/go");
        let empty = env.agent("zoe").start_run();
        for number in 0..3 {
            run.execute_json("create_note", json!({ "studio": "main", "title": format!("n{number}") })).unwrap();
        }
        run.execute_json("create_decision", json!({ "studio": "main", "question": "q?", "options": ["a"] })).unwrap();
        let visitor = Visitor::person(&env);
        let path = format!("/made?run={}", run.id);
        let whole = visitor.json(&path).data();
        let total = whole["touches"].as_array().unwrap().len();
        assert_eq!((&whole["total"], &whole["run_id"]), (&json!(total), &json!(run.id)));
        let notes = visitor.json(&format!("{path}&kind=note&action=create")).data();
        assert_eq!((&notes["total"], column(&notes["touches"], "resource_type")), (&json!(3), vec!["note".to_owned(); 3]));
        let first = visitor.json(&format!("{path}&kind=note&limit=2"));
        assert_eq!(column(&first.data()["touches"], "display_path"), ["main/notes/n0", "main/notes/n1"]);
        let next = first.json()["next"].as_str().unwrap().to_owned();
        assert_eq!(next, format!("{path}&kind=note&limit=2&after=2"));
        let rest = visitor.json(&next);
        assert_eq!((column(&rest.data()["touches"], "display_path"), rest.json().get("next")), (vec!["main/notes/n2".to_owned()], None));
        assert!(visitor.markdown(&next).body.contains("3 to 3 of 3 touches."), "{}", visitor.markdown(&next).body);
        let page = visitor.html(&path).body;
        assert!(page.contains("main/notes/n0") && page.contains("<select name=\"kind\">") && page.contains(&format!("<a class=id href=\"/runs/{}\">", run.id)), "{page}");
        assert!(visitor.html(&format!("{path}&tree=true")).body.contains("<th scope=col>run"), "the run of each touch");
        assert!(visitor.html(&format!("/runs/{}", run.id)).body.contains(&format!("<a href=\"{path}\">")), "the run leads there");
        let none = format!("/made?run={}", empty.id);
        assert_eq!(visitor.json(&none).data()["touches"], json!([]));
        assert!(visitor.html(&none).body.contains("This run made nothing that matches."));
        let asked = visitor.html("/made?run=no-such-run");
        assert!(asked.status == 404 && asked.body.contains("<input name=\"run\" value=\"no-such-run\" required>"), "{}", asked.body);
        assert_eq!((visitor.html("/made").status, visitor.html("/made?of=x").status), (200, 422));
    }

    fn task_shows_everything_that_refers_to_it(env: TestEnv) {
        env.workflow("unit");
        env.role("coder");
        set_task(&env, "unit/1", json!({ "recurring": true }));
        let visitor = Visitor::person(&env);
        let bare = visitor.json("/tasks/unit/1").data();
        for field in ["boards", "queue_items", "pins", "routes", "messages", "more"] {
            assert_eq!(bare[field], json!([]), "{field}");
        }
        assert_eq!(bare["last_finished_item"], Value::Null);
        assert!(visitor.markdown("/tasks/unit/1").body.contains("## Queue\n\nThis task is not in the queue."));
        env.execute_json("set_package", json!({ "role": "coder", "task": "unit/1" })).unwrap();
        env.execute_json("set_route", json!({ "tag": "build", "task": "unit/1" })).unwrap();
        set_task(&env, "unit/2", json!({ "replaces": "unit/1", "recurring": true }));
        env.execute_json("set_board", json!({ "name": "wall", "task": "unit/2" })).unwrap();
        env.execute_json("set_board", json!({ "name": "other", "task": "unit/1" })).unwrap();
        env.agent("bob");
        let done = env.execute_json("queue_add", json!({ "task": "unit/2" })).unwrap();
        let taken = env.execute_json("queue_take", json!({ "agent": "bob" })).unwrap()[0].clone();
        env.execute_json("queue_complete", json!({ "id": taken["id"], "fence": taken["fence"] })).unwrap();
        let waiting: Vec<Value> = (0..12).map(|_| env.execute_json("queue_add", json!({ "task": "unit/2" })).unwrap()).collect();
        let asked = env.execute_json("send_message", json!({ "body": "look at it", "to_task": "unit/2" })).unwrap();
        let data = visitor.json("/tasks/unit/2").data();
        assert_eq!(column(&data["boards"], "name"), ["other", "wall"]);
        assert_eq!((column(&data["pins"], "role"), column(&data["pins"], "variant")), (vec!["coder".to_owned()], vec!["unit/1".to_owned()]));
        assert_eq!((column(&data["routes"], "tag"), column(&data["routes"], "task")), (vec!["build".to_owned()], vec!["unit/1".to_owned()]));
        assert_eq!(column(&data["messages"], "body"), ["look at it"]);
        let own = waiting.iter().rev().take(9).map(|item| item["id"].as_str().unwrap().to_owned());
        let newest: Vec<String> = std::iter::once(asked["queue_item_id"].as_str().unwrap().to_owned()).chain(own).collect();
        assert_eq!(column(&data["queue_items"], "id"), newest);
        assert_eq!((&data["last_finished_item"]["id"], &data["last_finished_item"]["status"]), (&done["id"], &json!("completed")));
        assert_eq!(data["more"], json!([{ "of": "queue_items", "command": "trackway queue list --task unit/2", "path": "/queue?task=unit/2" }]));
        let page = visitor.html("/tasks/unit/2").body;
        for expected in ["<h2>Pinned versions</h2>", "<h2>Queue</h2>", "<h2>Boards</h2>", "<h2>Routes</h2>", "<h2>Messages</h2>", "<a href=\"/queue?task=unit/2\">all of them</a>", "<a href=\"/boards/wall\">wall</a>", "look at it"] {
            assert!(page.contains(expected), "{expected}: {page}");
        }
        assert!(visitor.markdown("/tasks/unit/2").body.contains("[wall](/boards/wall)"));
        for path in ["/queue?task=unit/2", "/boards?task=unit/2", "/packages?task=unit/2", "/messages?task=unit/2"] {
            assert_eq!(visitor.html(path).status, 200, "{path}");
        }
        assert_eq!(column(&visitor.json("/packages?task=unit/2").data(), "variant"), ["unit/1"]);
        assert_eq!(column(&visitor.json("/messages?status=ingested").data(), "body"), ["look at it"]);
        assert_eq!(visitor.json("/messages?status=failed").data(), json!([]));
    }
}

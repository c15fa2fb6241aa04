//! Links between pages: from lists to things, and from things to their provenance.

use serde_json::json;
use trackway_domain::enums::RunStatus;
use trackway_testkit::{TestEnv, engines};

use crate::visitor::Visitor;

engines! {
    fn lists_link_to_their_things(env: TestEnv) {
        for (action, input) in [
            ("set_agent", json!({ "handle": "bob" })),
            ("set_workflow", json!({ "name": "unit" })),
            ("set_workspace", json!({ "name": "shop" })),
            ("set_role", json!({ "name": "coder" })),
            ("set_label", json!({ "key": "k", "name": "K" })),
            ("set_board", json!({ "name": "wall" })),
        ] {
            env.execute_json(action, input).unwrap();
        }
        let visitor = Visitor::person(&env);
        for (list, one) in [
            ("/agents", "/agents/bob"), ("/workflows", "/workflows/unit"), ("/workspaces", "/workspaces/shop"), ("/roles", "/roles/coder"),
            ("/labels", "/labels/k"), ("/studios", "/studios/main"), ("/people", "/people/ada"), ("/boards", "/boards/wall"),
        ] {
            assert!(visitor.html(list).body.contains(&format!("<a href=\"{one}\">")), "{list}");
            assert!(visitor.markdown(list).body.contains(&format!("]({one})")), "{list}");
            assert_eq!(visitor.json(one).status, 200, "{one}");
        }
    }

    fn event_links_to_its_subject(env: TestEnv) {
        let note = env.execute_json("create_note", json!({ "studio": "main", "title": "seen" })).unwrap()["id"].as_str().unwrap().to_owned();
        let visitor = Visitor::person(&env);
        assert!(visitor.html("/events").body.contains(&format!("<a href=\"/notes/{note}\">main/notes/seen</a>")));
        assert!(visitor.markdown("/events").body.contains(&format!("[main/notes/seen](/notes/{note})")));
    }

    fn pages_link_to_the_provenance_of_their_thing(env: TestEnv) {
        env.workflow("unit");
        env.task("unit", "unit/go");
        let run = env.agent("bob").start_run_on("unit/go");
        let note = run.execute_json("create_note", json!({ "studio": "main", "title": "n" })).unwrap()["id"].as_str().unwrap().to_owned();
        let visitor = Visitor::person(&env);
        for path in [format!("/notes/{note}"), format!("/runs/{}", run.id), "/tasks/unit/go".into(), "/agents/bob".into(), "/workflows/unit".into(), "/studios/main".into(), "/people/ada".into()] {
            let id = visitor.json(&path).data()["id"].as_str().unwrap().to_owned();
            let page = visitor.html(&path).body;
            assert!(page.contains(&format!("<footer><a href=\"/why?of={id}\">Why is this here?</a>")), "{path}: {page}");
            assert_eq!(visitor.html(&format!("/why?of={id}")).status, 200, "{path}");
            assert!(visitor.markdown(&path).body.contains(&format!("`/why?of={id}`")), "{path}");
        }
        assert!(visitor.html("/notes").body.contains("<footer><a href=\"/why\">"));
    }

    fn run_links_to_its_cause(env: TestEnv) {
        env.workflow("unit");
        env.task("unit", "unit/go");
        env.agent("bob");
        env.execute_json("queue_add", json!({ "task": "unit/go" })).unwrap();
        let run = env.execute_json("queue_take", json!({ "agent": "bob" })).unwrap()[0]["run_id"].as_str().unwrap().to_owned();
        let visitor = Visitor::person(&env);
        let data = visitor.json(&format!("/runs/{run}")).data();
        let (kind, id) = (data["cause_kind"].as_str().unwrap(), data["cause_id"].as_str().unwrap());
        assert_eq!(kind, "queue_item");
        let page = visitor.html(&format!("/runs/{run}")).body;
        assert!(page.contains(&format!("<dt>cause</dt><dd><a href=\"/queue/{id}\">queue item {}</a>", &id[28..])), "{page}");
        for page in [page, visitor.markdown(&format!("/runs/{run}")).body] {
            assert_eq!(page.matches(&format!("/queue/{id}")).count(), 1, "it is named once: {page}");
        }
    }

    fn error_of_a_run_is_shown_verbatim(env: TestEnv) {
        let run = env.agent("bob").start_run();
        env.execute_json("end_run", json!({ "run": run.id, "status": "failed", "error": "expected *a* at\n# line 2" })).unwrap();
        let page = Visitor::person(&env).html(&format!("/runs/{}", run.id)).body;
        assert!(page.contains("<pre tabindex=0>expected *a* at\n# line 2</pre>"), "{page}");
    }

    fn overview_counts_running_runs_and_queue_items(env: TestEnv) {
        env.workflow("unit");
        env.execute_json("set_task", json!({ "workflow": "unit", "variant": "unit/go", "recurring": true })).unwrap();
        let runs: Vec<_> = (0..7).map(|number| env.agent(&format!("a{number}")).start_run()).collect();
        runs[0].end(RunStatus::Completed);
        env.execute_json("queue_add", json!({ "task": "unit/go" })).unwrap();
        env.execute_json("queue_add", json!({ "task": "unit/go", "not_before": "2999-01-01T00:00:00Z" })).unwrap();
        let visitor = Visitor::person(&env);
        assert_eq!(visitor.json("/").data()["running_total"], 6);
        let page = visitor.html("/").body;
        for (to, value, label) in [("/runs?status=running", 6, "running"), ("/queue?status=ready", 1, "ready"), ("/queue?status=waiting", 1, "waiting")] {
            assert!(page.contains(&format!("<a href=\"{to}\"><b>{value}</b><span>{label}</span></a>")), "{label}: {page}");
            assert_eq!(visitor.json(to).data().as_array().unwrap().len(), value, "{to}");
        }
    }

    fn task_links_to_its_wake_prompt(env: TestEnv) {
        env.workflow("unit");
        env.task("unit", "unit/go");
        let visitor = Visitor::person(&env);
        assert!(visitor.html("/tasks/unit/go").body.contains("<a href=\"/wake?task=unit/go\">Wake prompt</a>"));
        let asked = visitor.html("/wake");
        assert_eq!(asked.status, 200);
        assert!(asked.body.contains("<form class=search-form action=\"/wake\">") && asked.body.contains("<input name=\"task\""), "{}", asked.body);
    }

    fn failed_query_shows_its_form_again(env: TestEnv) {
        let visitor = Visitor::person(&env);
        for (path, status, field, value) in [
            ("/why?of=no-such-thing", 404, "of", "no-such-thing"),
            ("/search?words=%22open", 422, "words", "&quot;open"),
            ("/wake?task=unit/no", 404, "task", "unit/no"),
        ] {
            let response = visitor.html(path);
            assert_eq!(response.status, status, "{path}");
            assert!(response.body.contains(&format!("<input name=\"{field}\" value=\"{value}\" required>")), "{path}: {}", response.body);
        }
    }

    fn empty_list_of_runs_explains_how_to_record_some(env: TestEnv) {
        let page = Visitor::person(&env).markdown("/runs").body;
        assert!(page.contains("`trackway connect`") && page.contains("`trackway ingest`") && !page.contains("demo"), "{page}");
    }

    fn http_errors_and_hints_name_parameters_and_paths(env: TestEnv) {
        env.workflow("unit");
        env.task("unit", "unit/go");
        let visitor = Visitor::person(&env);
        let limit = visitor.json("/tasks?limit=0").json()["error"]["message"].clone();
        assert_eq!(limit, "limit must be from 1 to 10000, not 0");
        let missing = visitor.json("/tasks/zzzzzzzz").json()["error"].clone();
        assert_eq!(missing["hint"], "/tasks");
        let note = env.execute_json("create_note", json!({ "studio": "main", "title": "n" })).unwrap()["id"].as_str().unwrap().to_owned();
        assert!(!visitor.html(&format!("/notes/{note}")).body.contains("standard input"));
        assert!(!visitor.json("/api/openapi.json").body.contains("standard input"));
        let api = visitor.html("/api").body;
        assert!(api.contains("<code>run/show</code>") && !api.contains("href=\"/api/v1/run/show\"") && api.contains("href=\"/api/v1/run/list\""));
    }

    fn sums_are_the_same_on_both_engines(env: TestEnv) {
        env.workflow("unit");
        env.task("unit", "unit/go");
        let ada = env.agent("bob");
        for run in [ada.start_run_on("unit/go"), ada.start_run()] {
            for cost in [0.1, 0.2, 0.3, 0.7, 0.000_000_15] {
                run.execute_json("record_usage", json!({ "run": run.id, "model": "m", "cost": cost })).unwrap();
            }
        }
        let visitor = Visitor::person(&env);
        let by_task = visitor.json("/usage?by=task").data();
        let rows: Vec<_> = by_task.as_array().unwrap().iter().map(|row| (row["key"].clone(), row["cost"].to_string())).collect();
        assert_eq!(rows, [(json!("unit/go"), "1.30000015".to_owned()), (json!(null), "1.30000015".to_owned())]);
        assert_eq!(visitor.json("/runs/last").data()["cost"].to_string(), "1.30000015");
    }

    fn related_things_link_to_each_other(env: TestEnv) {
        let id = |made: &serde_json::Value| made["id"].as_str().unwrap().to_owned();
        env.execute_json("set_board", json!({ "name": "wall" })).unwrap();
        let [one, two] = ["one", "two"].map(|name| id(&env.execute_json("set_stickie", json!({ "board": "wall", "name": name })).unwrap()));
        env.execute_json("relate_stickies", json!({ "from": one, "to": two, "type": "CAUSES" })).unwrap();
        let conversation = id(&env.execute_json("set_conversation", json!({ "title": "talk" })).unwrap());
        let experiment = id(&env.execute_json("set_experiment", json!({ "title": "try", "conversation": conversation })).unwrap());
        env.execute_json("set_role", json!({ "name": "coder", "title": "Writes code" })).unwrap();
        env.agent("bob");
        for content in ["a", "b"] {
            env.execute_json("set_scratchpad", json!({ "agent": "bob", "content": content })).unwrap();
        }
        let visitor = Visitor::person(&env);
        let assert_links = |from: &str, to: &str| {
            let page = visitor.html(from).body;
            assert!(page.contains(to), "{from} does not hold {to}: {page}");
        };
        assert_links(&format!("/stickies/{one}"), &format!("<a href=\"/stickies/{two}\">two</a>"));
        assert_links(&format!("/experiments/{experiment}"), &format!("<a href=\"/conversations/{conversation}\">talk</a>"));
        assert_links("/agents/bob", "<a href=\"/agents/bob?from=1&amp;to=2\">2</a>");
        assert_links("/roles/coder", "<h1>Writes code (coder)</h1>");
        assert_links("/notes/nothing", "<a href=\"/notes\"><code>/notes</code></a> lists the existing ones");
    }
}

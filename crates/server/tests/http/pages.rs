//! Every page in every format.

use axum::http::{Method, header};
use serde_json::{Value, json};
use trackway_server::nouns::NOUNS;
use trackway_testkit::{TestEnv, engines};

use crate::visitor::Visitor;

/// Creates one thing of every kind that has pages. Returns the paths of all pages.
fn create_one_of_each(env: &TestEnv) -> Vec<String> {
    let act = |action: &str, input: Value| env.execute_json(action, input).unwrap();
    let id = |value: &Value| value["id"].as_str().unwrap().to_owned();
    act("set_role", json!({ "name": "coder" }));
    act("set_workflow", json!({ "name": "unit" }));
    act("set_workspace", json!({ "name": "shop" }));
    act("set_label", json!({ "key": "k", "name": "K" }));
    act("set_agent", json!({ "handle": "bob" }));
    act("set_task", json!({ "workflow": "unit", "variant": "unit/go", "script": "true" }));
    act("set_task", json!({ "workflow": "unit", "variant": "unit/go.md", "replaces": "unit/go", "level": "minor" }));
    let conversation = id(&act("set_conversation", json!({ "title": "talk" })));
    let experiment = id(&act("set_experiment", json!({ "title": "try", "conversation": conversation })));
    let message = id(&act("send_message", json!({ "body": "the build is broken" })));
    let route = id(&act("set_route", json!({ "tag": "build", "task": "unit/go" })));
    let testcase = id(&act("set_testcase", json!({ "title": "it works", "status": "OK" })));
    let note = id(&act("create_note", json!({ "studio": "main", "title": "n", "body": "b" })));
    let decision = id(&act("create_decision", json!({ "studio": "main", "question": "q?", "options": ["a"] })));
    let commitment = id(&act("create_commitment", json!({ "studio": "main", "title": "c", "critical_mass": 1 })));
    let item = id(&act("queue_add", json!({ "task": "unit/go" })));
    let run = act("start_run", json!({ "agent": "bob", "task": "unit/go" }))["run_id"].as_str().unwrap().to_owned();
    let report_input =
        json!({ "agent": "bob", "task": "unit/go", "one_liner": "went", "tldr": "It went.", "content": "All of it." });
    let report = id(&act("set_report", report_input));
    act("set_board", json!({ "name": "wall" }));
    let stickie = id(&act("set_stickie", json!({ "board": "wall", "name": "one", "priority": "must", "note": "n" })));
    let mut paths: Vec<String> =
        NOUNS.iter().filter(|noun| noun.list_verb.is_some()).map(|noun| format!("/{}", noun.path)).collect();
    paths.extend(
        [
            "/",
            "/whoami",
            "/why",
            "/search",
            "/search?words=build",
            "/usage",
            "/usage?by=model",
            "/wake?task=unit/go",
            "/ready",
            "/made",
            "/latest",
            "/next",
            "/latest?variant=unit/go",
            "/next?id=unit/go&level=minor",
        ]
        .map(ToOwned::to_owned),
    );
    paths.extend([
        "/roles/coder".to_owned(),
        "/workflows/unit".to_owned(),
        "/workspaces/shop".to_owned(),
        "/labels/k".to_owned(),
        "/agents/bob".to_owned(),
        "/people/ada".to_owned(),
        "/studios/main".to_owned(),
        "/tasks/unit/go".to_owned(),
        "/tasks/unit/go.md".to_owned(),
        "/runs/last".to_owned(),
        format!("/runs/{run}"),
        format!("/conversations/{conversation}"),
        format!("/experiments/{experiment}"),
        format!("/messages/{message}"),
        format!("/routes/{route}"),
        format!("/testcases/{testcase}"),
        format!("/notes/{note}"),
        format!("/decisions/{decision}"),
        format!("/commitments/{commitment}"),
        format!("/queue/{item}"),
        "/reports/unit/go".to_owned(),
        format!("/reports/{report}"),
        "/boards/wall".to_owned(),
        format!("/stickies/{stickie}"),
        format!("/why?of={note}"),
        format!("/made?run={run}"),
    ]);
    paths
}

engines! {
    fn task_link_shows_both_tasks(env: TestEnv) {
        create_one_of_each(&env);
        env.execute_json("add_link", json!({ "from": "unit/go", "to": "unit/go.md", "type": "blocks" })).unwrap();
        let visitor = Visitor::person(&env);
        let page = visitor.markdown("/tasks/unit/go").body;
        assert!(page.contains("| [unit/go](/tasks/unit/go) | blocks | [unit/go.md](/tasks/unit/go.md) |"), "{page}");
        let action = visitor.markdown("/tasks/unit/go/actions/add_link").body;
        assert!(action.contains("`GET /tasks/unit/go/actions` describes them all"), "{action}");
        assert!(action.contains("(one of blocks, "), "{action}");
    }

    fn action_input_may_repeat_the_name_in_the_path(env: TestEnv) {
        let visitor = Visitor::person(&env);
        let note = |studio: &str| visitor.act("/studios/main/actions/create_note", &json!({ "studio": studio, "title": studio })).status;
        assert_eq!((note("main"), note("other")), (200, 422));
    }

    fn page_of_the_last_run_addresses_actions_by_id(env: TestEnv) {
        let first = env.agent("bob").start_run().id.to_string();
        let page = Visitor::person(&env).html("/runs/last").body;
        assert!(page.contains(&format!("action=\"/runs/{first}/actions/cancel_run\"")), "{page}");
        assert!(!page.contains("/runs/last/actions"), "{page}");
    }

    fn every_page_exists_in_every_format(env: TestEnv) {
        let paths = create_one_of_each(&env);
        let visitor = Visitor::person(&env);
        for path in &paths {
            let json = visitor.json(path);
            assert_eq!((json.status, json.header("content-type")), (200, "application/json"), "{path}: {}", json.body);
            assert_eq!(json.json()["schema_version"], 1, "{path}");
            let markdown = visitor.markdown(path);
            assert_eq!((markdown.status, markdown.header("content-type")), (200, "text/markdown; charset=utf-8"), "{path}");
            assert!(markdown.body.starts_with("---\npath: /"), "{path}: {}", markdown.body);
            let html = visitor.html(path);
            assert_eq!((html.status, html.header("content-type")), (200, "text/html; charset=utf-8"), "{path}");
            assert!(html.body.starts_with("<!doctype html>") && html.body.len() < 100_000, "{path}: {}", html.body.len());
            // Agents and curl send no `Accept` header, or `*/*`.
            assert_eq!(visitor.request(Method::GET, path, &[], b"").header("content-type"), "text/markdown; charset=utf-8", "{path}");
        }
    }

    fn all_links_of_all_pages_resolve(env: TestEnv) {
        let mut paths = create_one_of_each(&env);
        let run = env.agent("zoe").start_run();
        run.create_note("main", "made in a run", "b");
        paths.push(format!("/runs/{}", run.id));
        env.execute_json("set_package", json!({ "role": "coder", "task": "unit/go" })).unwrap();
        env.execute_json("set_board", json!({ "name": "pinned", "task": "unit/go" })).unwrap();
        let visitor = Visitor::person(&env);
        let mut links = std::collections::BTreeMap::new();
        for path in &paths {
            let page = visitor.html(path).body;
            for link in page.split(" href=\"").skip(1).filter_map(|rest| rest.split('"').next()) {
                links.entry(link.replace("&amp;", "&")).or_insert_with(|| path.clone());
            }
        }
        links.retain(|link, _| link.starts_with('/') && !link.starts_with("/assets/"));
        assert!(["/ready", "/latest?variant=unit/go", "/boards/pinned"].iter().all(|link| links.contains_key(*link)), "{links:?}");
        assert!(links.keys().any(|link| link.starts_with("/made?run=")) && links.keys().any(|link| link.starts_with("/next?id=")), "{links:?}");
        let broken: Vec<_> = links.iter().filter(|(link, _)| visitor.html(link).status != 200).collect();
        assert_eq!(broken, Vec::<(&String, &String)>::new());
    }

    fn offered_actions_have_pages(env: TestEnv) {
        let paths = create_one_of_each(&env);
        let visitor = Visitor::person(&env);
        for path in paths.iter().filter(|path| !path.contains('?') && path.as_str() != "/") {
            for offer in visitor.json(&format!("{path}/actions")).data().as_array().unwrap() {
                let described = visitor.json(offer["path"].as_str().unwrap());
                assert_eq!(described.status, 200, "{offer}: {}", described.body);
            }
        }
    }

    fn finds_reports_by_task_and_by_id(env: TestEnv) {
        create_one_of_each(&env);
        let set_report = |one_liner: &str| {
            let input = json!({ "agent": "bob", "task": "unit/go", "one_liner": one_liner, "tldr": "t", "content": "c" });
            env.execute_json("set_report", input).unwrap()["id"].as_str().unwrap().to_owned()
        };
        let (first, second) = (set_report("first"), set_report("second"));
        let visitor = Visitor::person(&env);
        let current = visitor.json("/reports/unit/go").data();
        assert_eq!((&current["id"], &current["others"][0]["id"]), (&json!(second), &json!(first)));
        assert_eq!(visitor.json(&format!("/reports/{}", &first[26..])).data()["one_liner"], "first");
        assert_eq!(visitor.json("/reports/unit/go.md").status, 200);
        assert!(visitor.html("/tasks/unit/go").body.contains(&format!("href=\"/reports/{second}\"")));
        assert!(visitor.html(&format!("/why?of={first}")).body.contains(&format!("href=\"/reports/{first}\"")));
        let none = visitor.json("/reports/unit/nothing");
        assert_eq!(none.status, 404, "{}", none.body);
    }

    fn extension_selects_the_format_unless_it_is_part_of_the_name(env: TestEnv) {
        create_one_of_each(&env);
        let visitor = Visitor::person(&env);
        assert_eq!(visitor.html("/queue.json").header("content-type"), "application/json");
        assert_eq!(visitor.html("/tasks/unit/go.json").data()["variant"], "unit/go");
        // Here the extension is part of the variant.
        assert_eq!(visitor.json("/tasks/unit/go.md").data()["variant"], "unit/go.md");
        assert_eq!(visitor.json("/tasks/unit/go.md.md").header("content-type"), "text/markdown; charset=utf-8");
        assert_eq!(visitor.html("/index.json").data()["queue"], json!({ "ready": 1 }));
        let missing = visitor.json("/tasks/nothing.json");
        assert_eq!((missing.status, missing.json()["error"]["code"].clone()), (404, json!("not_found")));
    }

    fn next_links_walk_through_the_whole_list(env: TestEnv) {
        for number in 1..=5 {
            env.execute_json("create_note", json!({ "studio": "main", "title": format!("n{number}") })).unwrap();
        }
        let visitor = Visitor::person(&env);
        let mut titles = Vec::new();
        let mut next = Some("/notes?limit=2".to_owned());
        while let Some(path) = next {
            let response = visitor.json(&path);
            titles.extend(response.data().as_array().unwrap().iter().map(|note| note["title"].as_str().unwrap().to_owned()));
            next = response.json()["next"].as_str().map(ToOwned::to_owned);
            assert_eq!(next.is_some(), response.header("link").ends_with("rel=\"next\""));
        }
        assert_eq!(titles, ["n5", "n4", "n3", "n2", "n1"]);
    }

    fn next_page_of_sessions_starts_before_a_time(env: TestEnv) {
        // Sessions are paginated by time, not by id.
        let next = trackway_server::pages::next("/sessions", "limit=2&before=x", Some("--before 2026-03-01T09:00:00.000Z"));
        assert_eq!(next.as_deref(), Some("/sessions?limit=2&before=2026-03-01T09%3A00%3A00.000Z"));
        let visitor = Visitor::person(&env);
        assert_eq!(visitor.json(&next.unwrap()).data(), json!([]));
    }

    fn other_tenants_see_nothing(env: TestEnv) {
        let paths = create_one_of_each(&env);
        let other = env.another_tenant("other");
        let token = env.execute_json_as(&other, "create_token", json!({})).unwrap()["token"].as_str().unwrap().to_owned();
        let visitor = Visitor { token: Some(token), ..Visitor::anonymous(&env) };
        for path in paths.iter().filter(|path| path.matches('/').count() > 1 || path.starts_with("/why?of") || path.starts_with("/made?run")) {
            if matches!(path.as_str(), "/people/ada" | "/studios/main") {
                continue; // The other tenant has its own person and studio of that name.
            }
            let response = visitor.json(path);
            assert_eq!(response.status, 404, "{path}: {}", response.body);
        }
        for noun in NOUNS.iter().filter(|noun| noun.list_verb.is_some()) {
            let body = visitor.json(&format!("/{}", noun.path)).body;
            assert!(!body.contains("unit/go") && !body.contains("bob"), "{}: {body}", noun.path);
        }
        assert_eq!(visitor.json("/ready").data(), json!([]));
    }

    fn rejects_invalid_parameters(env: TestEnv) {
        create_one_of_each(&env);
        let visitor = Visitor::person(&env);
        for (path, status) in [
            ("/runs?limit=0", 422),
            ("/runs?limit=abc", 422),
            ("/runs?limit=99999999999999999999", 422),
            ("/runs?stauts=failed", 422),
            ("/runs?status=odd", 422),
            ("/runs?agent=nobody", 404),
            ("/notes?archived=maybe", 422),
            ("/search?words=%22open", 422),
            ("/usage?by=moon", 422),
            ("/why?of=nothing-like-it", 404),
            ("/?zzz=1", 422),
            ("/whoami?zzz=1", 422),
            ("/api?zzz=1", 422),
            ("/runs/last?zzz=1", 422),
            ("/tasks/unit/go?zzz=1", 422),
            ("/roles/coder?zzz=1", 422),
            ("/why?zzz=1", 422),
            ("/why?of=unit/go&zzz=1", 422),
            ("/search?zzz=1", 422),
            ("/wake?zzz=1", 422),
            ("/ready?zzz=1", 422),
            ("/made?zzz=1", 422),
            ("/made?run=last&zzz=1", 422),
            ("/made?run=last&kind=odd", 422),
            ("/latest?variant=unit/go&zzz=1", 422),
            ("/next?id=unit/go&zzz=1", 422),
            ("/cleanup?zzz=1", 422),
            ("/agents/bob?zzz=1", 422),
            ("/agents/bob?from=abc", 422),
            ("/notes/actions?zzz=1", 422),
            ("/notes/actions/create_note?zzz=1", 422),
            ("/api/openapi.json?zzz=1", 422),
            ("/nothing", 404),
            ("/tasks/%FF", 404),
            ("/tasks/..%2F..%2Fetc%2Fpasswd", 404),
            ("/runs/%00", 404),
            ("/spawns/a%00b", 404),
            ("/routes?tag=a%00b", 422),
            ("/why?of=%00", 422),
            ("/scratchpads", 404),
        ] {
            let response = visitor.json(path);
            assert_eq!(response.status, status, "{path}: {}", response.body);
            assert!(response.json()["error"]["message"].as_str().is_some_and(|message| !message.is_empty()), "{path}");
        }
        let long = visitor.json(&format!("/tasks/{}", "x".repeat(100_000)));
        assert_eq!(long.status, 404);
        let typo = visitor.json("/runs?stauts=failed").json();
        assert_eq!(typo["error"]["hint"], "did you mean \"status\"?");
    }

    fn every_path_of_the_api_answers(env: TestEnv) {
        create_one_of_each(&env);
        let visitor = Visitor::person(&env);
        let document = trackway_server::api::openapi();
        assert_eq!(document["openapi"], "3.1.0");
        for (path, operations) in document["paths"].as_object().unwrap() {
            if operations.get("get").is_some() {
                let response = visitor.json(path);
                assert!(matches!(response.status, 200 | 422), "{path}: {} {}", response.status, response.body);
            } else {
                let response = visitor.act(path, &json!({ "not_a_field": 1 }));
                assert!(matches!(response.status, 200 | 422), "{path}: {} {}", response.status, response.body);
            }
        }
        assert_eq!(visitor.json("/api/v1/task/get?task=unit/go").data()["variant"], "unit/go");
        assert_eq!(visitor.json("/api/v1/nothing").status, 404);
        assert_eq!(visitor.request(Method::DELETE, "/api/v1/task/get", &[(header::ACCEPT, "application/json")], b"").status, 405);
    }
}

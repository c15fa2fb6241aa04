//! Executing actions over HTTP.

use axum::http::{Method, header};
use serde_json::{Value, json};
use trackway_testkit::{TestEnv, engines};

use crate::visitor::Visitor;

engines! {
    fn action_of_a_page_is_attributed_to_the_run(env: TestEnv) {
        let run = env.agent("ada").start_run();
        let visitor = Visitor::run(&env, &run);
        let made = visitor.act("/notes/actions/create_note", &json!({ "studio": "main", "title": "found", "body": "b" })).data();
        let path = format!("/notes/{}", made["id"].as_str().unwrap());
        let changed = visitor.act(&format!("{path}/actions/update_note"), &json!({ "body": "better" })).data();
        assert_eq!((changed["title"].clone(), changed["revision"].clone()), (json!("found"), json!(2)));
        assert_eq!(run.made(), ["create note main/notes/found in main x1", "update note main/notes/found in main x1"]);

        // The path determines the note, so the input cannot name another one.
        let other = visitor.act(&format!("{path}/actions/update_note"), &json!({ "note": "another", "body": "x" }));
        assert_eq!(other.status, 422);
        assert!(other.json()["error"]["message"].as_str().unwrap().starts_with("note must be "), "{}", other.body);
    }

    fn invalid_actions_get_the_right_status(env: TestEnv) {
        let run = env.agent("ada").start_run();
        let visitor = Visitor::run(&env, &run);
        let json_body = [(header::ACCEPT, "application/json"), (header::CONTENT_TYPE, "application/json")];
        let create = "/notes/actions/create_note";
        let cases: &[(&str, &[u8], u16)] = &[
            (create, b"{", 400),
            (create, b"[1]", 400),
            (create, b"\"text\"", 400),
            (create, b"\xff\xfe", 400),
            (create, b"", 422),
            (create, br#"{"studio":"main"}"#, 422),
            (create, br#"{"studio":"main","title":5}"#, 422),
            (create, br#"{"studio":"main","title":"t","colour":"red"}"#, 422),
            (create, br#"{"studio":"nowhere","title":"t"}"#, 404),
            ("/notes/actions/launch", b"{}", 404),
            ("/agents/actions/set_agent", br#"{"handle":"x"}"#, 403),
            ("/agents/ada/actions/delete_agent", b"{}", 403),
            ("/tokens/actions/create_token", b"{}", 403),
            ("/whoami/actions/set_route", br#"{"tag":"x","task":"y"}"#, 403),
            ("/notes/ffffffff/actions/update_note", b"{}", 404),
            ("/api/v1/actions/launch", b"{}", 404),
            ("/api/v1/actions/import_nagger", br#"{"path":"/etc/passwd"}"#, 404),
        ];
        let before = env.snapshot();
        for (path, body, status) in cases {
            let response = visitor.request(Method::POST, path, &json_body, body);
            assert_eq!(response.status, *status, "{path} {:?}: {}", String::from_utf8_lossy(body), response.body);
        }
        before.assert_unchanged(&env.core);
        let unknown = visitor.act("/notes/actions/launch", &json!({}));
        assert_eq!(unknown.json()["error"]["hint"], "valid actions: create_note");
        let kind = visitor.request(Method::POST, create, &[(header::CONTENT_TYPE, "text/xml"), (header::ACCEPT, "application/json")], b"<x/>");
        assert_eq!(kind.status, 415);
        assert_eq!(visitor.request(Method::PUT, "/notes", &json_body, b"{}").status, 405);
        assert_eq!(visitor.request(Method::GET, "/notes/actions/create_note", &[], b"").status, 200);
    }

    fn form_works_like_json(env: TestEnv) {
        let visitor = Visitor::person(&env);
        let headers = [(header::ACCEPT, "text/html"), (header::CONTENT_TYPE, "application/x-www-form-urlencoded")];
        let response = visitor.request(Method::POST, "/decisions/actions/create_decision", &headers, b"studio=main&question=Soup%3F&options=yes&options=no&options=&deadline=");
        assert_eq!(response.status, 303, "{}", response.body);
        let decision = visitor.json(response.header("location")).data();
        assert_eq!(decision["question"], "Soup?");
        let options: Vec<&Value> = decision["results"].as_array().unwrap().iter().map(|result| &result["option"]).collect();
        assert_eq!(options, ["yes", "no"]);
        let vote = format!("{}/actions/vote", response.header("location"));
        assert_eq!(visitor.request(Method::POST, &vote, &headers, b"option=no&accept=true&prefer=true").status, 303);
        let first = visitor.json(response.header("location")).data()["results"][0].clone();
        assert_eq!((&first["option"], &first["accepted"], &first["preferred"]), (&json!("no"), &json!(1), &json!(1)));
        assert_eq!(visitor.request(Method::POST, &vote, &headers, b"option=no&accept=perhaps").status, 422);
    }

    fn stickie_form_shows_and_clears_the_priority(env: TestEnv) {
        let visitor = Visitor::person(&env);
        visitor.act("/boards/actions/set_board", &json!({ "name": "wall" }));
        let set = |input: Value| visitor.act("/boards/wall/actions/set_stickie", &input).data();
        let one = set(json!({ "name": "one", "priority": "could", "note": "n" }));
        let selected = |word: &str, title: &str| format!("<option value=\"{word}\" selected>{title}</option>");
        let page = visitor.html("/boards/wall").body;
        assert!(page.contains(&selected("could", "Could")) && page.contains("data-priority=\"\""), "{page}");
        let path = format!("/stickies/{}/actions/update_stickie?then=/boards/wall", one["id"].as_str().unwrap());
        assert!(page.contains(&path), "{page}");
        let headers = [(header::ACCEPT, "text/html"), (header::CONTENT_TYPE, "application/x-www-form-urlencoded")];
        let response = visitor.request(Method::POST, &path, &headers, b"priority=");
        assert_eq!((response.status, response.header("location")), (303, "/boards/wall"), "{}", response.body);
        assert!(visitor.html("/boards/wall").body.contains(&selected("", "No priority")));
        let now = visitor.json(&format!("/stickies/{}", one["id"].as_str().unwrap())).data();
        assert_eq!((&now["priority"], &now["note"]), (&Value::Null, &json!("n")));
    }

    fn owner_edits_scratchpad_on_the_agents_page(env: TestEnv) {
        env.agent("bob");
        let visitor = Visitor::person(&env);
        let set = "/agents/bob/actions/set_scratchpad";
        assert_eq!(visitor.act(set, &json!({ "content": "one" })).data()["revision"], 1);
        assert_eq!(visitor.act(set, &json!({ "content": "two", "if_revision": 1 })).data()["revision"], 2);
        assert_eq!(visitor.act(set, &json!({ "content": "three", "if_revision": 1 })).status, 409);
        assert_eq!(visitor.act("/agents/bob/actions/restore_scratchpad", &json!({ "revision": 1 })).data()["content"], "one");
        let page = visitor.html("/agents/bob?from=1&to=2").body;
        assert!(page.contains("<span class=removed>-one</span>") && page.contains("<span class=added>+two</span>"), "{page}");
        // The form is prefilled with the current content and its revision.
        assert!(page.contains("name=\"if_revision\" value=\"3\""), "{page}");
        assert!(page.contains(">\none</textarea>"), "{page}");
    }

    fn ended_run_offers_no_actions(env: TestEnv) {
        let run = env.agent("bob").start_run();
        let visitor = Visitor::person(&env);
        let path = format!("/runs/{}", run.id);
        assert!(visitor.html(&path).body.contains("/actions/cancel_run"));
        env.execute_json("end_run", json!({ "run": run.id, "status": "completed" })).unwrap();
        let page = visitor.html(&path).body;
        assert!(!page.contains("/actions/cancel_run") && !page.contains("/actions/end_run"), "{page}");
        assert_eq!(visitor.act("/api/v1/actions/cancel_run", &json!({ "run": run.id })).status, 409);
    }

    fn dry_run_changes_nothing(env: TestEnv) {
        let visitor = Visitor::person(&env);
        let before = env.snapshot();
        let shown = visitor.act("/api/v1/actions/create_token?dry_run=true", &json!({ "name": "x" })).data();
        assert_eq!(shown["token"], json!(null));
        before.assert_unchanged(&env.core);
    }
}

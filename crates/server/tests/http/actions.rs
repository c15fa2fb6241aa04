//! Doing things over HTTP.

use axum::http::{Method, header};
use serde_json::{Value, json};
use trackway_testkit::{TestEnv, engines};

use crate::visitor::Visitor;

engines! {
    fn an_action_below_its_page_is_done_in_the_run(env: TestEnv) {
        let run = env.agent("ada").start_run();
        let visitor = Visitor::run(&env, &run);
        let made = visitor.act("/notes/actions/create_note", &json!({ "studio": "main", "title": "found", "body": "b" })).data();
        let path = format!("/notes/{}", made["id"].as_str().unwrap());
        let changed = visitor.act(&format!("{path}/actions/update_note"), &json!({ "body": "better" })).data();
        assert_eq!((changed["title"].clone(), changed["revision"].clone()), (json!("found"), json!(2)));
        assert_eq!(run.made(), ["create note main/notes/found in main x1", "update note main/notes/found in main x1"]);

        // The page says which note it is about.
        let other = visitor.act(&format!("{path}/actions/update_note"), &json!({ "note": "another", "body": "x" }));
        assert_eq!(other.status, 422);
        assert!(other.json()["error"]["message"].as_str().unwrap().starts_with("note is "), "{}", other.body);
    }

    fn what_cannot_be_done_is_refused_with_the_right_status(env: TestEnv) {
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
            let heard = visitor.ask(Method::POST, path, &json_body, body);
            assert_eq!(heard.status, *status, "{path} {:?}: {}", String::from_utf8_lossy(body), heard.body);
        }
        before.assert_unchanged(&env.core);
        let unknown = visitor.act("/notes/actions/launch", &json!({}));
        assert_eq!(unknown.json()["error"]["hint"], "valid actions: create_note");
        let kind = visitor.ask(Method::POST, create, &[(header::CONTENT_TYPE, "text/xml"), (header::ACCEPT, "application/json")], b"<x/>");
        assert_eq!(kind.status, 415);
        assert_eq!(visitor.ask(Method::PUT, "/notes", &json_body, b"{}").status, 405);
        assert_eq!(visitor.ask(Method::GET, "/notes/actions/create_note", &[], b"").status, 200);
    }

    fn a_form_does_what_json_does(env: TestEnv) {
        let visitor = Visitor::person(&env);
        let headers = [(header::ACCEPT, "text/html"), (header::CONTENT_TYPE, "application/x-www-form-urlencoded")];
        let heard = visitor.ask(Method::POST, "/decisions/actions/create_decision", &headers, b"studio=main&question=Soup%3F&options=yes&options=no&options=&deadline=");
        assert_eq!(heard.status, 303, "{}", heard.body);
        let decision = visitor.json(heard.header("location")).data();
        assert_eq!(decision["question"], "Soup?");
        let options: Vec<&Value> = decision["results"].as_array().unwrap().iter().map(|result| &result["option"]).collect();
        assert_eq!(options, ["yes", "no"]);
        let vote = format!("{}/actions/vote", heard.header("location"));
        assert_eq!(visitor.ask(Method::POST, &vote, &headers, b"option=no&accept=true&prefer=true").status, 303);
        let first = visitor.json(heard.header("location")).data()["results"][0].clone();
        assert_eq!((&first["option"], &first["accepted"], &first["preferred"]), (&json!("no"), &json!(1), &json!(1)));
        assert_eq!(visitor.ask(Method::POST, &vote, &headers, b"option=no&accept=perhaps").status, 422);
    }

    fn a_card_shows_its_priority_and_its_form_takes_it_back(env: TestEnv) {
        let visitor = Visitor::person(&env);
        visitor.act("/boards/actions/set_board", &json!({ "name": "wall" }));
        let set = |said: Value| visitor.act("/boards/wall/actions/set_stickie", &said).data();
        let one = set(json!({ "name": "one", "priority": "could", "note": "n" }));
        let chosen = |word: &str, title: &str| format!("<option value=\"{word}\" selected>{title}</option>");
        let page = visitor.html("/boards/wall").body;
        assert!(page.contains(&chosen("could", "Could")) && page.contains("data-priority=\"\""), "{page}");
        let path = format!("/stickies/{}/actions/update_stickie?then=/boards/wall", one["id"].as_str().unwrap());
        assert!(page.contains(&path), "{page}");
        let headers = [(header::ACCEPT, "text/html"), (header::CONTENT_TYPE, "application/x-www-form-urlencoded")];
        let heard = visitor.ask(Method::POST, &path, &headers, b"priority=");
        assert_eq!((heard.status, heard.header("location")), (303, "/boards/wall"), "{}", heard.body);
        assert!(visitor.html("/boards/wall").body.contains(&chosen("", "Not said")));
        let now = visitor.json(&format!("/stickies/{}", one["id"].as_str().unwrap())).data();
        assert_eq!((&now["priority"], &now["note"]), (&Value::Null, &json!("n")));
    }

    fn the_owner_corrects_a_scratchpad_on_the_agents_page(env: TestEnv) {
        env.agent("bob");
        let visitor = Visitor::person(&env);
        let set = "/agents/bob/actions/set_scratchpad";
        assert_eq!(visitor.act(set, &json!({ "content": "one" })).data()["revision"], 1);
        assert_eq!(visitor.act(set, &json!({ "content": "two", "if_revision": 1 })).data()["revision"], 2);
        assert_eq!(visitor.act(set, &json!({ "content": "three", "if_revision": 1 })).status, 409);
        assert_eq!(visitor.act("/agents/bob/actions/restore_scratchpad", &json!({ "revision": 1 })).data()["content"], "one");
        let page = visitor.html("/agents/bob?from=1&to=2").body;
        assert!(page.contains("<span class=removed>-one</span>") && page.contains("<span class=added>+two</span>"), "{page}");
        // The form begins with what stands there, and is for that revision.
        assert!(page.contains("name=\"if_revision\" value=\"3\""), "{page}");
        assert!(page.contains(">\none</textarea>"), "{page}");
    }

    fn nothing_is_offered_for_a_run_that_is_over(env: TestEnv) {
        let run = env.agent("bob").start_run();
        let visitor = Visitor::person(&env);
        let path = format!("/runs/{}", run.id);
        assert!(visitor.html(&path).body.contains("/actions/cancel_run"));
        env.act("end_run", json!({ "run": run.id, "status": "completed" })).unwrap();
        let page = visitor.html(&path).body;
        assert!(!page.contains("/actions/cancel_run") && !page.contains("/actions/end_run"), "{page}");
        assert_eq!(visitor.act("/api/v1/actions/cancel_run", &json!({ "run": run.id })).status, 409);
    }

    fn a_rehearsal_changes_nothing(env: TestEnv) {
        let visitor = Visitor::person(&env);
        let before = env.snapshot();
        let shown = visitor.act("/api/v1/actions/create_token?dry_run=true", &json!({ "name": "x" })).data();
        assert_eq!(shown["token"], json!(null));
        before.assert_unchanged(&env.core);
    }
}

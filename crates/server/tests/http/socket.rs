//! What only a real socket shows.

use std::io::{BufRead, BufReader};

use serde_json::{Value, json};
use trackway_server::Settings;
use trackway_testkit::{TestEnv, engines};

use crate::{served::Served, visitor::Visitor};

/// A server that also answers to the name `trackway.example`.
fn serve_example(env: &TestEnv) -> Served {
    Served::with(env, Settings { hosts: vec!["trackway.example".into()], ..Settings::default() })
}

engines! {
    fn only_names_of_this_server_are_answered(env: TestEnv) {
        let served = serve_example(&env);
        let token = Visitor::person(&env).token.unwrap();
        for (host, status) in [
            ("127.0.0.1", 200), ("localhost:1", 200), ("LOCALHOST", 200), ("localhost.", 200), ("Trackway.Example.:80", 200), ("[::1]:7878", 200), ("trackway.example", 200),
            ("evil.example", 421), ("127.0.0.1.evil.example", 421), ("", 421),
        ] {
            let answer = served.ask(&format!("GET /whoami HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {token}\r\nConnection: close\r\n\r\n"));
            assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{host}: {answer}");
        }
        for path in ["/assets/style.css", "/api/openapi.json"] {
            let answer = served.ask(&format!("GET {path} HTTP/1.1\r\nHost: evil.example\r\nAuthorization: Bearer {token}\r\nConnection: close\r\n\r\n"));
            assert!(answer.starts_with("HTTP/1.1 421 "), "{path}: {answer}");
        }
        for named in ["GET /whoami HTTP/1.1\r\nHost: localhost\r\nHost: evil.example", "GET http://evil.example/whoami HTTP/1.1\r\nHost: localhost", "GET /whoami HTTP/1.1"] {
            let answer = served.ask(&format!("{named}\r\nAuthorization: Bearer {token}\r\nConnection: close\r\n\r\n"));
            assert!(answer.starts_with("HTTP/1.1 421 "), "{named}: {answer}");
        }
        let health = served.ask("GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        assert!(health.starts_with("HTTP/1.1 200 "), "{health}");
        let ready = served.ask("GET /readyz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        assert!(ready.starts_with("HTTP/1.1 200 "), "{ready}");
    }

    fn a_page_brings_what_keeps_it_safe(env: TestEnv) {
        let served = serve_example(&env);
        let answer = served.ask("GET / HTTP/1.1\r\nHost: localhost\r\nAccept: text/html\r\nConnection: close\r\n\r\n");
        assert!(answer.starts_with("HTTP/1.1 401 "), "{answer}");
        for header in ["content-security-policy: default-src 'none'; style-src 'self'; script-src 'self';", "x-content-type-options: nosniff", "cache-control: no-store", "referrer-policy: same-origin"] {
            assert!(answer.contains(header), "{header}: {answer}");
        }
        for path in ["/healthz", "/readyz", "/assets/style.css", "/api/openapi.json"] {
            let answer = served.ask(&format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"));
            assert!(answer.contains("x-content-type-options: nosniff") && answer.contains("content-security-policy: "), "{path}: {answer}");
        }
        let style = served.ask("GET /assets/style.css HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        assert!(style.contains("content-type: text/css") && style.contains(":root") && style.contains("cache-control: public, max-age=300"), "{style}");
        assert!(served.ask("GET /assets/..%2Fsecret HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").starts_with("HTTP/1.1 404 "));
    }

    fn the_end_of_a_run_is_told_of_its_item(env: TestEnv) {
        env.workflow("ops");
        env.act("set_task", json!({ "workflow": "ops", "variant": "t", "recurring": true })).unwrap();
        env.act("queue_add", json!({ "task": "t" })).unwrap();
        let taken = env.act("queue_take", json!({})).unwrap()[0].clone();
        let mut served = serve_example(&env);
        let token = Visitor::person(&env).token.unwrap();
        let stream = served.send(&format!("GET /live HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n\r\n"));
        let mut lines = BufReader::new(stream).lines().map_while(Result::ok);
        lines.find(|line| line == "event: change").unwrap();
        env.act("end_run", json!({ "run": taken["run_id"], "status": "completed" })).unwrap();
        let told = lines.find(|line| line.starts_with("data: ") && line.contains("end_run")).unwrap();
        assert!(told.contains(taken["id"].as_str().unwrap()), "{told}");
        served.ends();
    }

    fn numbers_are_for_who_may_enter(env: TestEnv) {
        env.workflow("ops");
        env.act("set_task", json!({ "workflow": "ops", "variant": "t", "recurring": true })).unwrap();
        for _ in 0..3 {
            env.act("queue_add", json!({ "task": "t" })).unwrap();
        }
        let taken = env.act("queue_take", json!({ "batch": 2 })).unwrap();
        env.act("queue_complete", json!({ "id": taken[0]["id"], "fence": taken[0]["fence"] })).unwrap();

        let served = serve_example(&env);
        let asked = "GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n";
        assert!(served.ask(&format!("{asked}\r\n")).starts_with("HTTP/1.1 401 "));
        let token = Visitor::person(&env).token.unwrap();
        let told = served.ask(&format!("{asked}Authorization: Bearer {token}\r\n\r\n"));
        let items: Vec<_> = told.lines().filter_map(|line| line.strip_prefix("trackway_queue_items")).collect();
        assert_eq!(items, ["{status=\"waiting\"} 0", "{status=\"blocked\"} 0", "{status=\"ready\"} 1", "{status=\"running\"} 1", "{status=\"failed\"} 0"]);
        assert!(told.contains("trackway_http_requests_total{status=\"401\"} 1\n"), "{told}");
    }

    fn a_body_that_is_too_large_is_refused(env: TestEnv) {
        let served = serve_example(&env);
        let token = Visitor::person(&env).token.unwrap();
        let head = format!("POST /notes/actions/create_note HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\nContent-Type: application/json\r\nAccept: application/json\r\nConnection: close\r\nContent-Length: 7000000\r\n\r\n");
        let answer = served.ask(&head);
        assert!(answer.starts_with("HTTP/1.1 413 ") && answer.contains("too_large"), "{answer}");
    }

    fn what_happens_is_told_while_it_happens(env: TestEnv) {
        let mut served = serve_example(&env);
        let token = Visitor::person(&env).token.unwrap();
        let stream = served.send(&format!("GET /live HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n\r\n"));
        let mut lines = BufReader::new(stream).lines().map_while(Result::ok);
        assert_eq!(lines.next().unwrap(), "HTTP/1.1 200 OK");
        lines.find(|line| line == "event: change").unwrap();
        env.act("create_note", json!({ "studio": "main", "title": "seen" })).unwrap();
        let told = lines.find(|line| line.starts_with("data: ") && line.contains("create_note")).unwrap();
        assert!(told.contains("\"kind\":\"note\""), "{told}");
        // An open stream does not keep the server from stopping.
        served.ends();
    }

    fn who_comes_back_is_told_what_it_missed(env: TestEnv) {
        let served = serve_example(&env);
        let token = Visitor::person(&env).token.unwrap();
        let first = |last: &str| -> Value {
            let stream = served.send(&format!("GET /live HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n{last}\r\n"));
            let mut lines = BufReader::new(stream).lines().map_while(Result::ok);
            assert_eq!(lines.next().unwrap(), "HTTP/1.1 200 OK");
            let told = lines.find(|line| line.starts_with("data: ")).unwrap();
            serde_json::from_str(told.strip_prefix("data: ").unwrap()).unwrap()
        };
        let back = |last: &Value| first(&format!("Last-Event-ID: {last}\r\n"));
        let titles = |told: &Value| told["events"].as_array().unwrap().iter().map(|event| event["id"].clone()).collect::<Vec<_>>();
        let note = |title: &str| env.act("create_note", json!({ "studio": "main", "title": title })).unwrap()["id"].clone();
        let before = first("")["position"].clone();
        let made = vec![note("one"), note("two")];
        // Whoever is there may not have looked since: it is told then.
        let missed = loop {
            let told = back(&before);
            if told["position"].as_i64() >= before.as_i64().map(|before| before + 2) {
                break told;
            }
        };
        assert_eq!((titles(&missed), &missed["cut"]), (made, &Value::Null));
        let now = missed["position"].clone();
        assert_eq!(back(&now), json!({ "position": now, "events": [] }));
        for number in 0..60 {
            note(&number.to_string());
        }
        let many = loop {
            let told = back(&now);
            if told["position"].as_i64() >= now.as_i64().map(|now| now + 60) {
                break told;
            }
        };
        assert_eq!((titles(&many).len(), &many["cut"]), (50, &json!(true)));
        // What this log never said.
        let newest = many["position"].clone();
        for last in ["-1", "999999999999", "999999999999999999999999", "none", "1 or 2", ""] {
            let told = first(&format!("Last-Event-ID: {last}\r\n"));
            assert_eq!(told, json!({ "position": newest, "events": [], "cut": true }), "{last:?}");
        }
    }

    fn a_stream_ends_with_its_token(env: TestEnv) {
        let served = serve_example(&env);
        let made = env.act("create_token", json!({ "name": "watcher" })).unwrap();
        let token = made["token"].as_str().unwrap();
        let stream = served.send(&format!("GET /live HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n\r\n"));
        let mut lines = BufReader::new(stream).lines().map_while(Result::ok);
        lines.find(|line| line == "event: change").unwrap();
        env.act("revoke_token", json!({ "token": made["id"] })).unwrap();
        env.act("create_note", json!({ "studio": "main", "title": "secret" })).unwrap();
        // The connection stays, what is told there does not go on.
        let rest: Vec<String> = lines.take_while(|line| line != "0").filter(|line| line.contains("create_note") || line.contains("revoke_token")).collect();
        assert_eq!(rest, Vec::<String>::new());
    }

    fn what_is_no_message_is_refused_in_the_words_of_the_protocol(env: TestEnv) {
        let served = serve_example(&env);
        let token = Visitor::person(&env).token.unwrap();
        for (body, code) in [("{", -32_700), ("", -32_700), ("[1]", -32_600), ("{\"jsonrpc\":\"2.0\"}", -32_600)] {
            let answer = served.ask(&format!(
                "POST /mcp HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
                body.len()
            ));
            assert!(answer.starts_with("HTTP/1.1 400 ") && answer.contains("content-type: application/json"), "{body}: {answer}");
            assert!(answer.contains(&format!("\"code\":{code},")) && answer.contains("\"jsonrpc\":\"2.0\""), "{body}: {answer}");
        }
        for (asked, said, unsaid) in [
            (r#"{"jsonrpc":"2.0","id":1,"method":"prompts/get","params":{"name":"wake"}}"#, "wake needs `task`", "invalid type"),
            (r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"whoami","arguments":{"run_token":"trw_no"}}}"#, "hint: `run_token` is the token that `claim` gave", "Bearer"),
            (r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"show","arguments":{"page":"/tasks?limit=0"}}}"#, "error: limit is from 1 to 10000", "--limit"),
        ] {
            let answer = served.ask(&format!(
                "POST /mcp HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{asked}",
                asked.len()
            ));
            assert!(answer.contains(said) && !answer.contains(unsaid), "{answer}");
        }
    }
}

#[test]
fn a_file_that_was_taken_away_is_not_written_to() {
    let env = TestEnv::new(trackway_testkit::Engine::Sqlite);
    let served = serve_example(&env);
    let token = Visitor::person(&env).token.unwrap();
    let file = std::path::PathBuf::from(env.database.url_text().strip_prefix("sqlite:").unwrap());
    let aside = file.with_extension("aside");
    std::fs::rename(&file, &aside).unwrap();
    let note = r#"{"studio":"main","title":"lost"}"#;
    let post = format!(
        "POST /notes/actions/create_note HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\nContent-Type: application/json\r\nAccept: application/json\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{note}",
        note.len()
    );
    let refused = served.ask(&post);
    assert!(refused.starts_with("HTTP/1.1 503 ") && refused.contains("was removed or replaced"), "{refused}");
    let ready = "GET /readyz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    assert!(served.ask(ready).starts_with("HTTP/1.1 503 "));
    std::fs::rename(&aside, &file).unwrap();
    assert!(served.ask(ready).starts_with("HTTP/1.1 200 "));
    let made = served.ask(&post);
    assert!(made.starts_with("HTTP/1.1 200 "), "{made}");
}

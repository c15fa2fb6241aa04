//! Tests that need a real socket.

use std::io::{BufRead, BufReader};

use serde_json::{Value, json};
use trackway_server::Settings;
use trackway_testkit::{TestEnv, engines};

use crate::{test_server::TestServer, visitor::Visitor};

/// A server that also allows the host `trackway.example`.
fn serve_example(env: &TestEnv) -> TestServer {
    TestServer::with(env, Settings { hosts: vec!["trackway.example".into()], ..Settings::default() })
}

engines! {
    fn rejects_unknown_hosts(env: TestEnv) {
        let server = serve_example(&env);
        let token = Visitor::person(&env).token.unwrap();
        for (host, status) in [
            ("127.0.0.1", 200), ("localhost:1", 200), ("LOCALHOST", 200), ("localhost.", 200), ("Trackway.Example.:80", 200), ("[::1]:7878", 200), ("trackway.example", 200),
            ("evil.example", 421), ("127.0.0.1.evil.example", 421), ("", 421),
        ] {
            let answer = server.request(&format!("GET /whoami HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {token}\r\nConnection: close\r\n\r\n"));
            assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{host}: {answer}");
        }
        for path in ["/assets/style.css", "/api/openapi.json"] {
            let answer = server.request(&format!("GET {path} HTTP/1.1\r\nHost: evil.example\r\nAuthorization: Bearer {token}\r\nConnection: close\r\n\r\n"));
            assert!(answer.starts_with("HTTP/1.1 421 "), "{path}: {answer}");
        }
        for named in ["GET /whoami HTTP/1.1\r\nHost: localhost\r\nHost: evil.example", "GET http://evil.example/whoami HTTP/1.1\r\nHost: localhost", "GET /whoami HTTP/1.1"] {
            let answer = server.request(&format!("{named}\r\nAuthorization: Bearer {token}\r\nConnection: close\r\n\r\n"));
            assert!(answer.starts_with("HTTP/1.1 421 "), "{named}: {answer}");
        }
        let health = server.request("GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        assert!(health.starts_with("HTTP/1.1 200 "), "{health}");
        let ready = server.request("GET /readyz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        assert!(ready.starts_with("HTTP/1.1 200 "), "{ready}");
    }

    fn responses_have_security_headers(env: TestEnv) {
        let server = serve_example(&env);
        let answer = server.request("GET / HTTP/1.1\r\nHost: localhost\r\nAccept: text/html\r\nConnection: close\r\n\r\n");
        assert!(answer.starts_with("HTTP/1.1 401 "), "{answer}");
        for header in ["content-security-policy: default-src 'none'; style-src 'self'; script-src 'self';", "x-content-type-options: nosniff", "cache-control: no-store", "referrer-policy: same-origin"] {
            assert!(answer.contains(header), "{header}: {answer}");
        }
        for path in ["/healthz", "/readyz", "/assets/style.css", "/api/openapi.json"] {
            let answer = server.request(&format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"));
            assert!(answer.contains("x-content-type-options: nosniff") && answer.contains("content-security-policy: "), "{path}: {answer}");
        }
        let style = server.request("GET /assets/style.css HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        assert!(style.contains("content-type: text/css") && style.contains(":root") && style.contains("cache-control: public, max-age=300"), "{style}");
        assert!(server.request("GET /assets/..%2Fsecret HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").starts_with("HTTP/1.1 404 "));
    }

    fn event_for_the_end_of_a_run_names_the_queue_item(env: TestEnv) {
        env.workflow("ops");
        env.execute_json("set_task", json!({ "workflow": "ops", "variant": "t", "recurring": true })).unwrap();
        env.execute_json("queue_add", json!({ "task": "t" })).unwrap();
        let taken = env.execute_json("queue_take", json!({})).unwrap()[0].clone();
        let mut server = serve_example(&env);
        let token = Visitor::person(&env).token.unwrap();
        let stream = server.open(&format!("GET /live HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n\r\n"));
        let mut lines = BufReader::new(stream).lines().map_while(Result::ok);
        lines.find(|line| line == "event: change").unwrap();
        env.execute_json("end_run", json!({ "run": taken["run_id"], "status": "completed" })).unwrap();
        let update = lines.find(|line| line.starts_with("data: ") && line.contains("end_run")).unwrap();
        assert!(update.contains(taken["id"].as_str().unwrap()), "{update}");
        server.stop();
    }

    fn metrics_require_credentials(env: TestEnv) {
        env.workflow("ops");
        env.execute_json("set_task", json!({ "workflow": "ops", "variant": "t", "recurring": true })).unwrap();
        for _ in 0..3 {
            env.execute_json("queue_add", json!({ "task": "t" })).unwrap();
        }
        let taken = env.execute_json("queue_take", json!({ "batch": 2 })).unwrap();
        env.execute_json("queue_complete", json!({ "id": taken[0]["id"], "fence": taken[0]["fence"] })).unwrap();

        let server = serve_example(&env);
        let metrics = "GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n";
        assert!(server.request(&format!("{metrics}\r\n")).starts_with("HTTP/1.1 401 "));
        let token = Visitor::person(&env).token.unwrap();
        let response = server.request(&format!("{metrics}Authorization: Bearer {token}\r\n\r\n"));
        let items: Vec<_> = response.lines().filter_map(|line| line.strip_prefix("trackway_queue_items")).collect();
        assert_eq!(items, ["{status=\"waiting\"} 0", "{status=\"blocked\"} 0", "{status=\"ready\"} 1", "{status=\"running\"} 1", "{status=\"failed\"} 0"]);
        assert!(response.contains("trackway_http_requests_total{status=\"401\"} 1\n"), "{response}");
    }

    fn rejects_oversized_bodies(env: TestEnv) {
        let server = serve_example(&env);
        let token = Visitor::person(&env).token.unwrap();
        let head = format!("POST /notes/actions/create_note HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\nContent-Type: application/json\r\nAccept: application/json\r\nConnection: close\r\nContent-Length: 7000000\r\n\r\n");
        let answer = server.request(&head);
        assert!(answer.starts_with("HTTP/1.1 413 ") && answer.contains("too_large"), "{answer}");
    }

    fn live_stream_sends_events(env: TestEnv) {
        let mut server = serve_example(&env);
        let token = Visitor::person(&env).token.unwrap();
        let stream = server.open(&format!("GET /live HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n\r\n"));
        let mut lines = BufReader::new(stream).lines().map_while(Result::ok);
        assert_eq!(lines.next().unwrap(), "HTTP/1.1 200 OK");
        lines.find(|line| line == "event: change").unwrap();
        env.execute_json("create_note", json!({ "studio": "main", "title": "seen" })).unwrap();
        let update = lines.find(|line| line.starts_with("data: ") && line.contains("create_note")).unwrap();
        assert!(update.contains("\"kind\":\"note\""), "{update}");
        // An open stream does not prevent the server from stopping.
        server.stop();
    }

    fn reconnecting_client_receives_missed_events(env: TestEnv) {
        let server = serve_example(&env);
        let token = Visitor::person(&env).token.unwrap();
        let first = |last: &str| -> Value {
            let stream = server.open(&format!("GET /live HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n{last}\r\n"));
            let mut lines = BufReader::new(stream).lines().map_while(Result::ok);
            assert_eq!(lines.next().unwrap(), "HTTP/1.1 200 OK");
            let update = lines.find(|line| line.starts_with("data: ")).unwrap();
            serde_json::from_str(update.strip_prefix("data: ").unwrap()).unwrap()
        };
        let reconnect = |last: &Value| first(&format!("Last-Event-ID: {last}\r\n"));
        let event_ids = |update: &Value| update["events"].as_array().unwrap().iter().map(|event| event["id"].clone()).collect::<Vec<_>>();
        let note = |title: &str| env.execute_json("create_note", json!({ "studio": "main", "title": title })).unwrap()["id"].clone();
        let before = first("")["position"].clone();
        let made = vec![note("one"), note("two")];
        // The server may not have polled since the notes were created. The loop reconnects until it has.
        let missed = loop {
            let update = reconnect(&before);
            if update["position"].as_i64() >= before.as_i64().map(|before| before + 2) {
                break update;
            }
        };
        assert_eq!((event_ids(&missed), &missed["cut"]), (made, &Value::Null));
        let now = missed["position"].clone();
        assert_eq!(reconnect(&now), json!({ "position": now, "events": [] }));
        for number in 0..60 {
            note(&number.to_string());
        }
        let many = loop {
            let update = reconnect(&now);
            if update["position"].as_i64() >= now.as_i64().map(|now| now + 60) {
                break update;
            }
        };
        assert_eq!((event_ids(&many).len(), &many["cut"]), (50, &json!(true)));
        // Ids that this log never sent.
        let newest = many["position"].clone();
        for last in ["-1", "999999999999", "999999999999999999999999", "none", "1 or 2", ""] {
            let update = first(&format!("Last-Event-ID: {last}\r\n"));
            assert_eq!(update, json!({ "position": newest, "events": [], "cut": true }), "{last:?}");
        }
    }

    fn live_stream_ends_when_its_token_is_revoked(env: TestEnv) {
        let server = serve_example(&env);
        let made = env.execute_json("create_token", json!({ "name": "watcher" })).unwrap();
        let token = made["token"].as_str().unwrap();
        let stream = server.open(&format!("GET /live HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n\r\n"));
        let mut lines = BufReader::new(stream).lines().map_while(Result::ok);
        lines.find(|line| line == "event: change").unwrap();
        env.execute_json("revoke_token", json!({ "token": made["id"] })).unwrap();
        env.execute_json("create_note", json!({ "studio": "main", "title": "secret" })).unwrap();
        // The connection stays open, but the stream sends nothing more.
        let rest: Vec<String> = lines.take_while(|line| line != "0").filter(|line| line.contains("create_note") || line.contains("revoke_token")).collect();
        assert_eq!(rest, Vec::<String>::new());
    }

    fn invalid_mcp_messages_get_json_rpc_errors(env: TestEnv) {
        let server = serve_example(&env);
        let token = Visitor::person(&env).token.unwrap();
        for (body, code) in [("{", -32_700), ("", -32_700), ("[1]", -32_600), ("{\"jsonrpc\":\"2.0\"}", -32_600)] {
            let answer = server.request(&format!(
                "POST /mcp HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
                body.len()
            ));
            assert!(answer.starts_with("HTTP/1.1 400 ") && answer.contains("content-type: application/json"), "{body}: {answer}");
            assert!(answer.contains(&format!("\"code\":{code},")) && answer.contains("\"jsonrpc\":\"2.0\""), "{body}: {answer}");
        }
        for (message, expected, unexpected) in [
            (r#"{"jsonrpc":"2.0","id":1,"method":"prompts/get","params":{"name":"wake"}}"#, "wake needs `task`", "invalid type"),
            (r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"whoami","arguments":{"run_token":"trw_no"}}}"#, "hint: `run_token` is the token that `claim` returned", "Bearer"),
            (r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"show","arguments":{"page":"/tasks?limit=0"}}}"#, "error: limit must be from 1 to 10000", "--limit"),
        ] {
            let answer = server.request(&format!(
                "POST /mcp HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{message}",
                message.len()
            ));
            assert!(answer.contains(expected) && !answer.contains(unexpected), "{answer}");
        }
    }
}

#[test]
fn refuses_to_write_to_a_removed_database_file() {
    let env = TestEnv::new(trackway_testkit::Engine::Sqlite);
    let server = serve_example(&env);
    let token = Visitor::person(&env).token.unwrap();
    let file = std::path::PathBuf::from(env.database.url_text().strip_prefix("sqlite:").unwrap());
    let aside = file.with_extension("aside");
    std::fs::rename(&file, &aside).unwrap();
    let note = r#"{"studio":"main","title":"lost"}"#;
    let post = format!(
        "POST /notes/actions/create_note HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\nContent-Type: application/json\r\nAccept: application/json\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{note}",
        note.len()
    );
    let refused = server.request(&post);
    assert!(refused.starts_with("HTTP/1.1 503 ") && refused.contains("was removed or replaced"), "{refused}");
    let ready = "GET /readyz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    assert!(server.request(ready).starts_with("HTTP/1.1 503 "));
    std::fs::rename(&aside, &file).unwrap();
    assert!(server.request(ready).starts_with("HTTP/1.1 200 "));
    let made = server.request(&post);
    assert!(made.starts_with("HTTP/1.1 200 "), "{made}");
}

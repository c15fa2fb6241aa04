//! Agents over the Model Context Protocol: a complete workflow with a real client library over stdio and HTTP, in both
//! protocol versions and on both engines; invalid input; and the real Claude Code.

use std::{
    fs,
    io::{BufRead, BufReader, Write},
    path::Path,
    process::Stdio,
    time::Duration,
};

use rmcp::model::{GetPromptRequestParams, ProtocolVersion, ReadResourceRequestParams, SubscriptionFilter};
use serde_json::{Value, json};
use trackway_testkit::{CrashingServer, Engine, scripted_model::Scenario};

use crate::{
    mcp_client::{Client, Server},
    real_claude_code::{ConnectedClient, NEWEST},
    terminal::{CommandOutput, Terminal, both_engines, run_command_with_input, text},
};

/// The current protocol version and the version before it.
pub const VERSIONS: [ProtocolVersion; 2] = [ProtocolVersion::V_2026_07_28, ProtocolVersion::V_2025_11_25];

fn block_on<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap().block_on(work)
}

fn create_task(terminal: &Terminal, variant: &str) {
    terminal.json(&["workflow", "set", "--name", "ops"]);
    terminal.json(&["task", "set", "--workflow", "ops", "--variant", variant, "--title", "Caulk the seams"]);
}

/// The JSON block in the text that an action returned.
fn data(reply: &str) -> Value {
    let (_, json) = reply.split_once("```json\n").unwrap_or_else(|| panic!("{reply}"));
    serde_json::from_str(json.rsplit_once("\n```").unwrap().0).unwrap()
}

/// Claims a task, writes notes and a report in its run, and reads the result with every tool, resource and prompt.
async fn complete_workflow(terminal: &Terminal, client: &Client, variant: &str) {
    let tools = client.service.list_all_tools().await.unwrap();
    let names: Vec<_> = tools.iter().map(|tool| tool.name.as_ref()).collect();
    assert_eq!(
        names,
        ["whoami", "ready", "claim", "show", "search", "why", "act", "update_scratchpad", "update_report", "help"]
    );
    assert!(client.call_ok("whoami", json!({})).await.starts_with("# You are ada\n"));
    assert!(client.call_ok("ready", json!({})).await.contains(&format!("[{variant}](/tasks/{variant})")));

    let claimed = data(&client.call_ok("claim", json!({ "task": variant })).await)[0].clone();
    let (run, token) = (text(&claimed["run_id"]), text(&claimed["token"]));
    let me = client.call_ok("whoami", json!({ "run_token": token })).await;
    assert!(me.starts_with("# You are worker\n") && me.contains("## Your task"), "{me}");
    assert!(me.contains("`show` of `/tasks/"), "{me}");

    let scratchpad = json!({ "content": format!("oakum is in the shed, {variant}"), "run_token": token });
    let written = data(&client.call_ok("update_scratchpad", scratchpad.clone()).await);
    assert_eq!(written["content"], scratchpad["content"]);
    assert_eq!(terminal.json(&["scratchpad", "get", "--agent", "worker"])["content"], scratchpad["content"]);
    let note = json!({ "studio": "main", "title": "Seams", "body": "three are left" });
    let act = json!({ "action": "create_note", "input": note, "run_token": token });
    let note = text(&data(&client.call_ok("act", act).await)["id"]);
    let report = json!({ "one_liner": "dry", "tldr": "dry now", "content": "all seams", "run_token": token });
    client.call_ok("update_report", report).await;
    let made = terminal.json(&["made", &run]);
    let made: Vec<_> = made["touches"].as_array().unwrap().iter().map(|touch| text(&touch["resource_type"])).collect();
    assert_eq!(made, ["note", "report"]);

    let page = client.call_ok("show", json!({ "page": format!("/runs/{run}") })).await;
    assert!(page.contains("Seams") && page.chars().count() < 9_000, "{page}");
    assert!(client.call_ok("show", json!({ "page": variant })).await.contains("Caulk the seams"));
    assert!(client.call_ok("show", json!({ "page": &note[28..] })).await.contains("three are left"));
    let why = client.call_ok("why", json!({ "thing": note })).await;
    assert!(why.contains("- run: ") && why.contains("- person: [ada](/people/"), "{why}");
    let word = format!("barnacles{}", variant.replace('/', ""));
    terminal.json(&["message", "send", "--body", &format!("mind the {word}")]);
    assert!(client.call_ok("search", json!({ "words": [word] })).await.contains(&format!("mind the «{word}»")));

    let resources = client.service.list_all_resources().await.unwrap();
    let uris: Vec<_> = resources.iter().map(|resource| resource.uri.as_str()).collect();
    let reports = format!("trackway:///reports/{variant}");
    assert!(uris.contains(&format!("trackway:///runs/{run}").as_str()) && uris.contains(&reports.as_str()), "{uris:?}");
    for uri in uris {
        let read = client.service.read_resource(ReadResourceRequestParams::new(uri)).await.unwrap();
        assert!(!serde_json::to_value(&read.contents).unwrap()[0]["text"].as_str().unwrap().is_empty(), "{uri}");
    }
    assert_eq!(client.service.list_all_resource_templates().await.unwrap().len(), 3);
    let not_found =
        client.service.read_resource(ReadResourceRequestParams::new("trackway:///runs/none")).await.unwrap_err();
    assert!(not_found.to_string().contains("there is no run \"none\""), "{not_found}");

    let mut wake = GetPromptRequestParams::new("wake");
    wake.arguments = json!({ "task": variant, "agent": "worker" }).as_object().cloned();
    let wake_prompt = serde_json::to_string(&client.service.get_prompt(wake).await.unwrap().messages).unwrap();
    assert!(wake_prompt.contains("oakum is in the shed") && wake_prompt.contains("Caulk the seams"), "{wake_prompt}");
    assert_eq!(client.service.list_all_prompts().await.unwrap().len(), 2);
    let hand_off = client.service.get_prompt(GetPromptRequestParams::new("hand_off")).await.unwrap();
    assert!(serde_json::to_string(&hand_off.messages).unwrap().contains("set_report"));

    let refused = client.call("update_scratchpad", json!({ "content": "mine" })).await;
    assert_eq!(
        refused,
        (
            true,
            "error: only agents have a scratchpad\nhint: to replace the scratchpad of an agent that you own: set_scratchpad with agent A, content C"
                .into()
        )
    );
    let (failed, reply) =
        client.call("act", json!({ "action": "delete_task", "input": { "task": variant }, "run_token": token })).await;
    assert!(failed && reply.contains("error: "), "{reply}");
    assert!(client.call("whoami", json!({ "run_token": "no" })).await.0);
    let dry_run =
        json!({ "action": "create_note", "dry_run": true, "input": { "studio": "main", "title": "T", "body": "b" } });
    assert!(client.call_ok("act", dry_run).await.starts_with("# Would be done: create_note"));
    assert!(client.call_ok("help", json!({})).await.contains("- `create_note` "));
    assert!(client.call_ok("help", json!({ "action": "create_note" })).await.contains("\"title\": {"));
}

both_engines! {
    fn complete_workflow_over_stdio(terminal: Terminal) {
        block_on(async {
            for version in VERSIONS {
                let variant = format!("day/{version}");
                create_task(&terminal, &variant);
                let client = Client::over_stdio(&terminal, None, &version).await;
                complete_workflow(&terminal, &client, &variant).await;
            }
        });
    }

    fn complete_workflow_over_http(terminal: Terminal) {
        let token = text(&terminal.json(&["token", "create", "--name", "mcp"])["token"]);
        let server = Server::start(&terminal);
        block_on(async {
            for version in VERSIONS {
                let variant = format!("day/{version}");
                create_task(&terminal, &variant);
                let client = Client::over_http(server.address, &token, &version).await;
                complete_workflow(&terminal, &client, &variant).await;
            }
        });
    }

    fn mcp_process_answers_and_exits_at_end_of_input(terminal: Terminal) {
        let ready = r#"{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"ready","arguments":{}}}"#;
        let input = [&INITIALIZE.replace("VERSION", "2025-06-18"), r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#, ready, ""].join("\n");
        let (output, answers) = answers(&terminal, input.as_bytes());
        assert_eq!((output.code, output.stderr.as_str()), (0, ""));
        assert_eq!(answer_to(&answers, 2)["result"]["isError"], false);
    }

    fn show_tool_reads_pages_and_checks_scratchpad_permission(terminal: Terminal) {
        create_task(&terminal, "seams");
        terminal.json(&["task", "set", "--workflow", "ops", "--variant", "seams/2", "--replaces", "seams", "--level", "minor"]);
        terminal.json(&["agent", "set", "--handle", "bob"]);
        let (run, bob) = terminal.start_run(&["--agent", "bob", "--task", "seams/2"]);
        terminal.json_with_token(Some(&bob), &["scratchpad", "update", "--content", "in the shed"]);
        let (_, worker) = terminal.start_run(&["--agent", "worker"]);
        block_on(async {
            let client = Client::over_stdio(&terminal, Some(&worker), &VERSIONS[0]).await;
            let show = |page: &str| client.call_ok("show", json!({ "page": page }));
            assert!(show("/latest?variant=seams").await.starts_with("# Current version: seams/2\n"));
            assert!(show("/next?id=seams&level=minor").await.starts_with("# Next version: seams/2\n"));
            assert!(show("/made?run=last").await.contains("This run made nothing that matches."));
            assert!(show("/ready").await.contains("# Ready tasks"));
            assert!(show("/tasks/seams").await.contains("[seams/2](/latest?variant=seams)"));
            let (failed, reply) = client.call("show", json!({ "page": "/agents/bob?from=0&to=1" })).await;
            assert!(failed && reply.contains("agent worker may not read_scratchpads"), "{reply}");
            let (failed, reply) = client.call("show", json!({ "page": "/wake?task=seams/2&agent=bob" })).await;
            assert!(failed && reply.contains("agent worker may not read_scratchpads"), "{reply}");
            let read = client.service.read_resource(ReadResourceRequestParams::new("trackway:///agents/bob")).await.unwrap();
            let read = serde_json::to_string(&read.contents).unwrap();
            assert!(read.contains("read_scratchpads") && !read.contains("in the shed"), "{read}");
            let mut wake = GetPromptRequestParams::new("wake");
            wake.arguments = json!({ "task": "seams/2", "agent": "bob" }).as_object().cloned();
            assert!(client.service.get_prompt(wake).await.is_err());
            assert!(!show(&format!("/runs/{run}")).await.contains("in the shed"));
            terminal.json(&["agent", "set", "--handle", "worker", "--capability", "read_scratchpads"]);
            assert!(show("/agents/bob").await.contains("in the shed"));
        });
    }

    fn token_in_the_environment_identifies_the_run(terminal: Terminal) {
        create_task(&terminal, "seams");
        let (run, token) = terminal.start_run(&["--agent", "worker", "--task", "seams"]);
        block_on(async {
            let client = Client::over_stdio(&terminal, Some(&token), &VERSIONS[1]).await;
            assert!(client.call_ok("whoami", json!({})).await.starts_with("# You are worker\n"));
            client.call_ok("update_scratchpad", json!({ "content": "x" })).await;
            terminal.json(&["run", "end", &run, "--status", "completed"]);
            let (failed, reply) = client.call("update_scratchpad", json!({ "content": "y" })).await;
            assert!(failed && reply.contains("hint: "), "{reply}");
        });
    }
}

#[test]
fn show_tool_splits_a_long_page() {
    let terminal = Terminal::new(Engine::Sqlite);
    terminal.json(&["note", "create", "--studio", "main", "--title", "Long", "--body", &"ä line\n".repeat(3_000)]);
    let id = text(&terminal.json(&["note", "list"])[0]["id"]);
    block_on(async {
        let client = Client::over_stdio(&terminal, None, &VERSIONS[0]).await;
        let mut page = format!("/notes/{id}");
        let mut lines = 0;
        loop {
            let reply = client.call_ok("show", json!({ "page": page })).await;
            assert!(reply.chars().count() < 8_300, "{}", reply.chars().count());
            lines += reply.matches("ä line\n").count();
            let Some((_, rest)) = reply.split_once("`show` the page `") else { break };
            rest.split_once('`').unwrap().0.clone_into(&mut page);
        }
        assert_eq!(lines, 3_000);
    });
}

/// Sends these lines to one `trackway mcp` process. Returns its answers, all of which must be JSON.
fn answers(terminal: &Terminal, lines: &[u8]) -> (CommandOutput, Vec<Value>) {
    answers_to(terminal.command(&["mcp"]), lines)
}

fn answers_to(command: std::process::Command, lines: &[u8]) -> (CommandOutput, Vec<Value>) {
    let output = run_command_with_input(command, lines);
    let answers = output.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    (output, answers)
}

#[track_caller]
fn answer_to(answers: &[Value], id: i64) -> &Value {
    answers.iter().find(|answer| answer["id"] == id).unwrap_or_else(|| panic!("{id}: {answers:#?}"))
}

const INITIALIZE: &str = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"VERSION","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}"#;

#[test]
fn invalid_messages_get_errors_and_the_process_keeps_answering() {
    let terminal = Terminal::new(Engine::Sqlite);
    let initialize = INITIALIZE.replace("VERSION", "2025-11-25");
    let call = |id: u32, tool: &str, arguments: &str| {
        format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"{tool}","arguments":{arguments}}}}}"#
        )
    };
    let huge = call(9, "show", &json!({ "page": "x".repeat(7_000_000) }).to_string());
    let long = call(
        10,
        "act",
        &json!({ "action": "create_note", "input": { "studio": "main", "title": "x".repeat(100_000), "body": "" } })
            .to_string(),
    );
    let lines = [
        "{\"half\": ",
        "\u{0}\u{1}\u{7f} no",
        r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":77}}"#,
        r#"{"jsonrpc":"2.0","id":5,"result":{}}"#,
        &initialize,
        r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
        &call(2, "no_such_tool", "{}"),
        &call(3, "show", "\"text\""),
        &call(4, "show", "{\"page\": 5}"),
        &call(6, "show", "{\"page\": \"/tasks/none\", \"more\": 1}"),
        &call(7, "search", "{\"words\": \"not a list\"}"),
        r#"{"jsonrpc":"2.0","id":8,"method":"no/such/method"}"#,
        &huge,
        &long,
        &call(11, "show", "{\"page\": \"/notes?limit=many\"}"),
        &call(12, "show", "{\"page\": \"<script>alert(1)</script>\"}"),
        &call(13, "whoami", "{}"),
        r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":13,"reason":"enough"}}"#,
        "[1, 2]",
        &call(14, "whoami", "{}"),
    ];
    let (output, all) = answers(&terminal, lines.join("\n").as_bytes());
    assert_eq!((output.code, output.stderr.as_str()), (0, ""));
    assert_eq!(answers_to(terminal.command(&["mcp", "--json"]), b"").1, Vec::<Value>::new());
    let without_id: Vec<_> =
        all.iter().filter(|answer| answer["id"].is_null()).map(|answer| &answer["error"]["code"]).collect();
    assert_eq!(without_id.iter().filter(|code| ***code == json!(-32700)).count(), 2, "{without_id:?}");
    assert_eq!(without_id.iter().filter(|code| ***code == json!(-32600)).count(), 2, "too long, and not a message");
    assert_eq!(answer_to(&all, 1)["result"]["protocolVersion"], "2025-11-25");
    assert_eq!(answer_to(&all, 2)["error"]["code"], -32602);
    assert!(
        answer_to(&all, 2)["error"]["message"]
            .as_str()
            .unwrap()
            .starts_with("unknown tool \"no_such_tool\"; valid tools: whoami")
    );
    assert_eq!(answer_to(&all, 3)["error"], json!({ "code": -32602, "message": "invalid parameters of tools/call" }));
    assert_eq!(answer_to(&all, 8)["error"]["message"], "unknown method \"no/such/method\"");
    for (id, error) in [
        (4, "error: invalid type: integer `5`, expected a string"),
        (6, "error: unknown field `more`, expected `page`"),
        (7, "error: words must be a list of words to search for"),
        (10, "error: title "),
        (11, "error: limit must be an integer, not \"many\""),
        (12, "error: no page or thing \"<script>alert(1)</script>\" found"),
    ] {
        let answer = &answer_to(&all, id)["result"];
        assert_eq!(answer["isError"], true, "{answer}");
        assert!(answer["content"][0]["text"].as_str().unwrap().starts_with(error), "{answer}");
    }
    assert!(answer_to(&all, 14)["result"]["content"][0]["text"].as_str().unwrap().starts_with("# You are ada\n"));
    assert_eq!(terminal.json(&["note", "list"]), json!([]));
    for nothing in ["", "\n\n", "{\"half"] {
        assert_eq!(answers(&terminal, nothing.as_bytes()).0.code, 0);
    }
}

#[test]
fn unknown_protocol_version_is_answered_with_a_supported_one() {
    let terminal = Terminal::new(Engine::Sqlite);
    for (requested, answered) in
        [("2024-11-05", "2024-11-05"), ("2025-06-18", "2025-06-18"), ("1999-01-01", "2025-11-25")]
    {
        let (_, all) = answers(&terminal, format!("{}\n", INITIALIZE.replace("VERSION", requested)).as_bytes());
        assert_eq!(answer_to(&all, 1)["result"]["protocolVersion"], answered);
    }
}

#[test]
fn missing_database_is_reported_and_used_once_it_exists() {
    let terminal = Terminal::uninitialized(Engine::Sqlite);
    block_on(async {
        let client = Client::over_stdio(&terminal, None, &VERSIONS[1]).await;
        let (failed, reply) = client.call("whoami", json!({})).await;
        assert!(failed && reply.contains("there is no database") && reply.contains("hint: "), "{reply}");
        terminal.json(&["init"]);
        assert!(client.call_ok("whoami", json!({})).await.starts_with("# You are ada\n"));
    });
}

#[test]
fn mcp_process_reconnects_after_a_crash_of_postgres() {
    let crashing = CrashingServer::start();
    let terminal = Terminal::uninitialized(Engine::Sqlite);
    let mut init = terminal.command(&["init", "--db", &crashing.url]);
    assert!(init.output().unwrap().status.success());
    let mut command = terminal.command(&["mcp"]);
    command.env("TRACKWAY_DB", &crashing.url);
    block_on(async {
        let client = Client::over_stdio_of(command, &VERSIONS[1]).await;
        assert!(client.call_ok("whoami", json!({})).await.starts_with("# You are ada\n"));
        crashing.crash();
        // The first call may still use the broken connection.
        let _ = client.call("whoami", json!({})).await;
        assert!(client.call_ok("whoami", json!({})).await.starts_with("# You are ada\n"));
    });
}

/// Changes another task first, then the subscribed one.
fn change_other_and_subscribed_task(terminal: &Terminal, variant: &str) {
    terminal.json(&["task", "set", "--workflow", "ops", "--variant", "other", "--title", "Something else"]);
    terminal.json(&["task", "set", "--workflow", "ops", "--variant", variant, "--title", "Tar the seams"]);
}

#[test]
fn listening_client_is_notified_of_a_changed_resource() {
    let terminal = Terminal::new(Engine::Sqlite);
    create_task(&terminal, "other");
    create_task(&terminal, "subscribed");
    let uri = "trackway:///tasks/subscribed";
    block_on(async {
        let client = Client::over_stdio(&terminal, None, &VERSIONS[0]).await;
        let filter = SubscriptionFilter::builder().resource_subscription(uri).build();
        let mut notifications = client.service.listen(filter).await.unwrap();
        // The server acknowledges the subscription before it starts to listen.
        tokio::time::sleep(Duration::from_millis(500)).await;
        change_other_and_subscribed_task(&terminal, "subscribed");
        let notification =
            tokio::time::timeout(Duration::from_secs(20), notifications.next()).await.unwrap().unwrap().unwrap();
        let notification = serde_json::to_value(notification).unwrap();
        assert_eq!(
            (&notification["method"], &notification["params"]["uri"]),
            (&json!("notifications/resources/updated"), &json!(uri))
        );
    });
}

#[test]
fn older_protocol_subscribes_and_unsubscribes_by_uri() {
    let terminal = Terminal::new(Engine::Sqlite);
    create_task(&terminal, "other");
    create_task(&terminal, "subscribed");
    let mut process = terminal.command(&["mcp"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
    let mut input = process.stdin.take().unwrap();
    let mut send = |message: &str| writeln!(input, "{message}").unwrap();
    let mut next = || -> Value { serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap() };
    let request = |id: u32, method: &str, uri: &str| {
        json!({ "jsonrpc": "2.0", "id": id, "method": format!("resources/{method}"), "params": { "uri": uri } })
            .to_string()
    };
    send(&INITIALIZE.replace("VERSION", "2025-11-25"));
    assert_eq!(next()["result"]["capabilities"]["resources"]["subscribe"], true);
    send(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#);
    send(&request(2, "subscribe", "trackway:///tasks/nothing"));
    assert_eq!(next()["error"]["code"], -32002);
    send(&request(3, "subscribe", "trackway:///tasks/subscribed"));
    assert_eq!(next()["result"], json!({}));
    change_other_and_subscribed_task(&terminal, "subscribed");
    let notification = next();
    assert_eq!(
        (&notification["method"], &notification["params"]["uri"]),
        (&json!("notifications/resources/updated"), &json!("trackway:///tasks/subscribed"))
    );
    send(&request(4, "unsubscribe", "trackway:///tasks/subscribed"));
    assert_eq!(next()["result"], json!({}));
    drop(input);
    assert!(process.wait().unwrap().success());
}

#[test]
fn mcp_over_http_checks_token_host_origin_and_method() {
    let terminal = Terminal::new(Engine::Sqlite);
    let token = text(&terminal.json(&["token", "create", "--name", "mcp"])["token"]);
    let server = Server::start(&terminal);
    let initialize = INITIALIZE.replace("VERSION", "2025-11-25");
    let head = |method: &str, host: &str, more: &str| {
        format!(
            "{method} /mcp HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream{more}"
        )
    };
    let host = server.address.to_string();
    let bearer = format!("\r\nAuthorization: Bearer {token}");
    let status = |method: &str, host: &str, more: &str, body: &str| server.send(&head(method, host, more), body).0;

    let (code, answer) = server.send(&head("POST", &host, &bearer), &initialize);
    assert_eq!(code, 200);
    assert!(
        answer.contains("\"protocolVersion\":\"2025-11-25\"") && answer.to_lowercase().contains("nosniff"),
        "{answer}"
    );
    assert_eq!(status("POST", &host, "", &initialize), 401);
    assert_eq!(status("POST", &host, "\r\nAuthorization: Bearer no", &initialize), 401);
    assert_eq!(status("POST", "evil.example", &bearer, &initialize), 421);
    assert_eq!(status("POST", &host, &format!("{bearer}\r\nOrigin: http://evil.example"), &initialize), 403);
    assert_eq!(status("POST", &host, &format!("{bearer}\r\nOrigin: http://{host}"), &initialize), 200);
    let cookie = format!("\r\nCookie: trackway_{}={token}", server.address.port());
    assert_eq!(status("POST", &host, &cookie, &initialize), 403);
    assert_eq!(status("GET", &host, &bearer, ""), 405);
    assert_eq!(status("DELETE", &host, &bearer, ""), 405);
    for broken in ["{", "[]", "5", ""] {
        assert!((400..500).contains(&status("POST", &host, &bearer, broken)), "{broken}");
    }
    assert_eq!(status("POST", &host, &bearer, &initialize), 200);
}

#[test]
fn connect_adds_the_mcp_server_and_disconnect_keeps_other_servers() {
    let terminal = Terminal::uninitialized(Engine::Sqlite);
    let project = terminal.home.path().join("project");
    fs::create_dir_all(project.join(".git")).unwrap();
    let run = |line: &str| {
        let mut command = terminal.command(&line.split(' ').collect::<Vec<_>>());
        command.current_dir(&project);
        crate::terminal::run_command(command)
    };
    let servers = project.join(".mcp.json");
    let others =
        "{\n\t\"mcpServers\": {\n\t\t\"other\": {\"command\": \"x\", \"env\": {\"KEY\": \"secret\"}}\n\t}\n}\n";
    fs::write(&servers, others).unwrap();

    assert_eq!(run("connect claude-code --no-mcp").code, 0);
    assert_eq!(fs::read_to_string(&servers).unwrap(), others);
    let dry = run("connect claude-code --dry-run").stdout;
    assert!(dry.contains("+\t\t\"trackway\": {") && fs::read_to_string(&servers).unwrap() == others, "{dry}");
    let reply = run("connect claude-code").stdout;
    assert!(reply.contains(&format!("mcp: {} starts trackway mcp", servers.display())), "{reply}");
    let read = |path: &Path| -> Value { serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap() };
    let entry = json!({ "type": "stdio", "command": env!("CARGO_BIN_EXE_trackway"), "args": ["mcp"] });
    assert_eq!(read(&servers)["mcpServers"]["trackway"], entry);
    assert_eq!(read(&servers)["mcpServers"]["other"]["env"]["KEY"], "secret");
    assert_eq!(run("disconnect claude-code").code, 0);
    assert_eq!(fs::read_to_string(&servers).unwrap(), others);
    assert!(!project.join(".mcp.json.trackway-backup").exists() && !project.join(".claude/settings.json").exists());

    // The client also writes other state to the user's file; connect must not change that state.
    let state = terminal.home.path().join(".claude.json");
    fs::write(&state, "{\"numStartups\": 3}").unwrap();
    assert_eq!(run("connect claude-code --user").code, 0);
    assert_eq!((&read(&state)["numStartups"], &read(&state)["mcpServers"]["trackway"]), (&json!(3), &entry));
    assert_eq!(run("disconnect claude-code --user").code, 0);
    assert_eq!(fs::read_to_string(&state).unwrap(), "{\"numStartups\": 3}");

    // Connect follows symbolic links.
    let elsewhere = terminal.home.path().join("shared.json");
    fs::rename(&servers, &elsewhere).unwrap();
    std::os::unix::fs::symlink(&elsewhere, &servers).unwrap();
    assert_eq!(run("connect claude-code").code, 0);
    assert!(servers.is_symlink());
    assert_eq!(read(&elsewhere)["mcpServers"]["trackway"], entry);
    assert_eq!(run("disconnect claude-code").code, 0);
    assert_eq!(fs::read_to_string(&elsewhere).unwrap(), others);

    // With an invalid .mcp.json, connect changes no file.
    fs::remove_file(&servers).unwrap();
    for broken in ["{ // mine\n}", "{\"mcpServers\": 5}", "{\"mcpServers\": {\"trackway\": {\"command\": \"docker\"}}}"]
    {
        fs::write(&servers, broken).unwrap();
        let output = run("connect claude-code");
        assert_eq!(output.code, 1);
        assert!(
            output.stderr.contains(".mcp.json, line 1") && output.stderr.contains("left as it is"),
            "{}",
            output.stderr
        );
        assert_eq!(fs::read_to_string(&servers).unwrap(), broken);
        assert!(!project.join(".claude/settings.json").exists());
    }
}

#[test]
fn connect_and_disconnect_change_both_files_or_none() {
    let terminal = Terminal::uninitialized(Engine::Sqlite);
    let project = terminal.home.path().join("project");
    fs::create_dir_all(project.join(".git")).unwrap();
    let run = |line: &str| {
        let mut command = terminal.command(&line.split(' ').collect::<Vec<_>>());
        command.current_dir(&project);
        crate::terminal::run_command(command)
    };
    let file_contents = || {
        let mut contents: Vec<_> = [project.clone(), project.join(".claude")]
            .iter()
            .flat_map(|folder| fs::read_dir(folder).into_iter().flatten())
            .map(|entry| entry.unwrap().path())
            .map(|path| (fs::read_to_string(&path).unwrap_or_default(), path))
            .collect();
        contents.sort();
        contents
    };
    let servers = project.join(".mcp.json");
    let set_read_only = |read_only: bool| {
        let mut permissions = fs::metadata(&servers).unwrap().permissions();
        permissions.set_readonly(read_only);
        fs::set_permissions(&servers, permissions).unwrap();
    };
    fs::write(&servers, "{}\n").unwrap();
    let settings = project.join(".claude/settings.json");
    for before in [None, Some("{\"model\": \"opus\"}\n")] {
        if let Some(text) = before {
            fs::create_dir(project.join(".claude")).unwrap();
            fs::write(&settings, text).unwrap();
        }
        set_read_only(true);
        let untouched = file_contents();
        let output = run("connect claude-code");
        assert_eq!(output.code, 1);
        assert!(
            output.stderr.contains(".mcp.json is read-only") && output.stderr.contains("nothing was changed"),
            "{}",
            output.stderr
        );
        assert_eq!(file_contents(), untouched);
    }
    set_read_only(false);
    assert_eq!(run("connect claude-code").code, 0);
    set_read_only(true);
    let connected = file_contents();
    assert_eq!(run("disconnect claude-code").code, 1);
    assert_eq!(file_contents(), connected);
    set_read_only(false);
    assert_eq!(run("disconnect claude-code").code, 0);
    assert_eq!(fs::read_to_string(&settings).unwrap(), "{\"model\": \"opus\"}\n");
}

#[test]
fn real_client_calls_tools_as_the_run_of_its_session() {
    let client = ConnectedClient::new(Engine::Sqlite, NEWEST, &[]);
    // The client writes this setting when the user allows the MCP server of the project.
    let allowed = json!({ "enabledMcpjsonServers": ["trackway"] });
    fs::write(client.project().join(".claude/settings.local.json"), allowed.to_string()).unwrap();
    let note = json!({ "action": "create_note", "input": { "studio": "main", "title": "seen over MCP" } });
    let turns = json!([
        [{ "tool": "mcp__trackway__whoami", "input": {} }],
        [{ "tool": "mcp__trackway__act", "input": note }],
        [{ "text": "I know who I am." }],
    ]);
    let scenario = json!({ "prompt": "TALK", "actors": [{ "match": "TALK", "turns": turns }] });
    let call = client.call(&Scenario::parse(&scenario.to_string()));
    let result = call.args(["--allowedTools", "mcp__trackway__whoami,mcp__trackway__act"]).run();
    assert!(result.status.success(), "{result:#?}");
    assert_eq!(result.result()["result"], "I know who I am.");
    let last = result.requests.last().unwrap().body["messages"].to_string();
    let run = client.terminal.json(&["run", "show", "last"]);
    assert!(last.contains(&format!("# You are {}", text(&run["agent"]))), "{last}");
    assert!(last.contains(&format!("Identified by session {}", text(&run["session_id"]))), "{last}");
    assert_eq!(run["touches"][0]["display_path"], "main/notes/seen over MCP", "{run}");
}

#[test]
fn acting_run_is_identified_only_if_unambiguous() {
    let terminal = Terminal::new(Engine::Sqlite);
    let hook = |event: Value| {
        let output = run_command_with_input(terminal.command(&["hook"]), event.to_string().as_bytes());
        assert_eq!((output.code, output.stderr.as_str()), (0, ""));
    };
    let event = |name: &str, more: Value| {
        let mut event = json!({ "hook_event_name": name, "session_id": "s-1", "cwd": terminal.home.path() });
        event.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        hook(event);
    };
    block_on(async {
        let mut command = terminal.command(&["mcp"]);
        command.env("CLAUDECODE", "1").env("CLAUDE_CODE_SESSION_ID", "s-1");
        let client = Client::over_stdio_of(command, &VERSIONS[1]).await;
        let me = client.call_ok("whoami", json!({})).await;
        assert!(me.starts_with("# You are ada\n") && me.contains("session s-1 is not recorded"), "{me}");
        event("SessionStart", json!({ "source": "startup" }));
        event("UserPromptSubmit", json!({ "prompt": "go" }));
        let me = client.call_ok("whoami", json!({})).await;
        assert!(me.contains("## Your run") && me.contains("Identified by session s-1"), "{me}");
        let reply = client.call_ok("update_scratchpad", json!({ "content": "kept" })).await;
        assert!(reply.contains("Identified by session s-1"), "{reply}");
        event("SubagentStart", json!({ "agent_id": "a1", "agent_type": "Explore" }));
        let me = client.call_ok("whoami", json!({})).await;
        assert!(me.starts_with("# You are ada\n") && me.contains("2 runs are open in session s-1"), "{me}");
        event("SubagentStop", json!({ "agent_id": "a1", "stop_hook_active": true }));
        assert!(client.call_ok("whoami", json!({})).await.contains("Identified by session s-1"));
        event("Stop", json!({ "stop_hook_active": true }));
        let me = client.call_ok("whoami", json!({})).await;
        assert!(me.starts_with("# You are ada\n") && me.contains("no run is open in session s-1"), "{me}");

        let mut command = terminal.command(&["mcp"]);
        command.env("CLAUDECODE", "1");
        let me = Client::over_stdio_of(command, &VERSIONS[1]).await.call_ok("whoami", json!({})).await;
        assert!(me.contains("does not pass its session to MCP servers"), "{me}");
        let me = Client::over_stdio(&terminal, None, &VERSIONS[1]).await.call_ok("whoami", json!({})).await;
        assert!(!me.contains("You act as this person"), "{me}");
    });
}

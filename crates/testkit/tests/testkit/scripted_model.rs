//! Tests of the scripted model through a socket.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpStream},
    path::Path,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use trackway_testkit::{
    claude_client::isolated_command,
    scripted_model::{ModelRequest, Options, Scenario, ScriptedModel},
};

const MESSAGES: &str = "/v1/messages";
const CHAT: &str = "/v1/chat/completions";

/// A response as received from the socket.
#[derive(Debug)]
struct Answer {
    status: u16,
    head: String,
    body: String,
    /// Whether the body is complete.
    is_complete: bool,
}

impl Answer {
    fn json(&self) -> Value {
        assert!(self.is_complete, "{self:?}");
        serde_json::from_str(&self.body).unwrap()
    }

    /// The data of a stream's events, as a string if it is not JSON.
    fn events(&self) -> Vec<Value> {
        let data = self.body.lines().filter_map(|line| line.strip_prefix("data: "));
        data.map(|data| serde_json::from_str(data).unwrap_or_else(|_| json!(data))).collect()
    }

    fn header(&self, name: &str) -> Option<&str> {
        let lines = self.head.lines().filter_map(|line| line.split_once(": "));
        lines.into_iter().find(|(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }
}

fn ask(address: SocketAddr, method: &str, path: &str, body: &str) -> Answer {
    let mut stream = TcpStream::connect(address).unwrap();
    let length = body.len();
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\nhost: test\r\nx-api-key: secret\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}"
    )
    .unwrap();
    let mut bytes = Vec::new();
    // The server may reset a dropped connection. The bytes received before that still count.
    let _ = stream.read_to_end(&mut bytes);
    let text = String::from_utf8(bytes).unwrap();
    let (head, rest) = text.split_once("\r\n\r\n").unwrap();
    let mut answer = Answer {
        status: head.split(' ').nth(1).unwrap().parse().unwrap(),
        head: head.to_owned(),
        body: rest.to_owned(),
        is_complete: true,
    };
    if answer.header("transfer-encoding") == Some("chunked") {
        (answer.body, answer.is_complete) = decode_chunked(rest);
    } else if method != "HEAD" {
        answer.is_complete = answer.header("content-length").unwrap().parse() == Ok(rest.len());
    }
    answer
}

/// The text in the chunks, and whether the last chunk arrived.
fn decode_chunked(mut rest: &str) -> (String, bool) {
    let mut text = String::new();
    while let Some((length, after)) = rest.split_once("\r\n") {
        let length = usize::from_str_radix(length, 16).unwrap();
        if length == 0 {
            return (text, true);
        }
        text += &after[..length];
        rest = &after[length + 2..];
    }
    (text, false)
}

fn post(model: &ScriptedModel, path: &str, request: Value) -> Answer {
    ask(model.address, "POST", path, &request.to_string())
}

fn model(turns: Value) -> ScriptedModel {
    ScriptedModel::start(scenario(turns))
}

fn scenario(turns: Value) -> Scenario {
    Scenario::parse(&json!({ "actors": [{ "match": "DO", "turns": turns }] }).to_string())
}

fn request(stream: bool) -> Value {
    json!({ "model": "m-1", "stream": stream, "messages": [{ "role": "user", "content": "DO it" }] })
}

/// One turn with a text and a tool call.
fn text_and_tool_call() -> Value {
    json!([[{ "text": "Let me see." }, { "tool": "look", "input": { "at": "ü" } }, { "usage": {
        "input_tokens": 7, "output_tokens": 5, "cache_read_input_tokens": 3 } }]])
}

/// The strings at a JSON pointer in the events, joined.
fn join_strings(events: &[Value], pointer: &str) -> String {
    events.iter().filter_map(|event| event.pointer(pointer)?.as_str()).collect()
}

fn event_types(events: &[Value]) -> Vec<&str> {
    events.iter().filter_map(|event| event["type"].as_str()).collect()
}

#[test]
fn anthropic_message_is_sent_complete() {
    let model = model(text_and_tool_call());
    let answer = post(&model, MESSAGES, request(false));

    assert_eq!(answer.header("content-type"), Some("application/json"));
    assert_eq!(answer.header("request-id"), Some("req_s0_a0_t0_n0"));
    let wanted = json!({
        "id": "msg_s0_a0_t0_n0", "type": "message", "role": "assistant", "model": "m-1",
        "content": [
            { "type": "text", "text": "Let me see." },
            { "type": "tool_use", "id": "toolu_s0_a0_t0_n0_1", "name": "look", "input": { "at": "ü" } },
        ],
        "stop_reason": "tool_use", "stop_sequence": null,
        "usage": {
            "input_tokens": 7, "output_tokens": 5, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 3,
        },
    });
    assert_eq!(answer.json(), wanted);
}

#[test]
fn anthropic_message_is_streamed() {
    let model = model(text_and_tool_call());
    let answer = post(&model, MESSAGES, request(true));

    assert!(answer.is_complete);
    assert_eq!(answer.header("content-type"), Some("text/event-stream"));
    let events = answer.events();
    let wanted = [
        "message_start",
        "ping",
        "content_block_start",
        "content_block_delta",
        "content_block_delta",
        "content_block_stop",
        "content_block_start",
        "content_block_delta",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
    ];
    assert_eq!(event_types(&events), wanted);
    let names: Vec<_> = answer.body.lines().filter_map(|line| line.strip_prefix("event: ")).collect();
    assert_eq!(names, wanted);
    assert_eq!(events[0]["message"]["usage"]["input_tokens"], 7);
    assert_eq!(join_strings(&events, "/delta/text"), "Let me see.");
    assert_eq!(join_strings(&events, "/delta/partial_json"), r#"{"at":"ü"}"#);
    let call = json!({ "type": "tool_use", "id": "toolu_s0_a0_t0_n0_1", "name": "look", "input": {} });
    assert_eq!((&events[6]["content_block"], &events[6]["index"]), (&call, &json!(1)));
    assert_eq!(events[10]["delta"]["stop_reason"], "tool_use");
    assert_eq!(events[10]["usage"], json!({ "output_tokens": 5 }));
}

#[test]
fn chat_completion_is_sent_complete() {
    let model = model(text_and_tool_call());
    let answer = post(&model, CHAT, request(false)).json();

    assert_eq!((&answer["id"], &answer["object"]), (&json!("chatcmpl-s0_a0_t0_n0"), &json!("chat.completion")));
    let wanted = json!([{ "index": 0, "message": {
        "role": "assistant", "content": "Let me see.", "refusal": null,
        "tool_calls": [{ "id": "call_s0_a0_t0_n0_1", "type": "function",
                         "function": { "name": "look", "arguments": "{\"at\":\"ü\"}" } }],
    }, "logprobs": null, "finish_reason": "tool_calls" }]);
    assert_eq!(answer["choices"], wanted);
    let usage = json!({ "prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15,
                        "prompt_tokens_details": { "cached_tokens": 3 } });
    assert_eq!(answer["usage"], usage);
}

#[test]
fn chat_completion_is_streamed() {
    let model = model(text_and_tool_call());
    let mut asked = request(true);
    let events = post(&model, CHAT, asked.clone()).events();
    assert_eq!(join_strings(&events, "/choices/0/delta/content"), "Let me see.");
    assert_eq!(join_strings(&events, "/choices/0/delta/tool_calls/0/function/arguments"), r#"{"at":"ü"}"#);
    assert_eq!(join_strings(&events, "/choices/0/delta/tool_calls/0/id"), "call_s0_a0_t0_n0_1");
    assert_eq!(join_strings(&events, "/choices/0/finish_reason"), "tool_calls");
    assert_eq!(events.last(), Some(&json!("[DONE]")));
    assert!(events.iter().all(|event| event.get("usage").is_none()), "{events:?}");

    asked["stream_options"] = json!({ "include_usage": true });
    let events = post(&model, CHAT, asked).events();
    let [first, .., last, _] = &events[..] else { panic!("{events:?}") };
    assert_eq!((&first["usage"], &last["choices"]), (&Value::Null, &json!([])));
    assert_eq!(last["usage"]["total_tokens"], 15);
}

#[test]
fn first_user_message_selects_actor_and_reply_count_selects_turn() {
    let scenario = json!({ "actors": [
        { "match": "MAIN", "turns": [[{ "text": "one" }], [{ "text": "two" }]] },
        { "match": "SUB", "turns": [[{ "text": "sub" }]] },
    ] });
    let model = ScriptedModel::start(Scenario::parse(&scenario.to_string()));
    let reply_to = |words: Value, replies: usize| {
        let mut messages = vec![json!({ "role": "user", "content": words })];
        for _ in 0..replies {
            messages.push(json!({ "role": "assistant", "content": "..." }));
            messages.push(json!({ "role": "user", "content": "SUB? MAIN?" }));
        }
        let answer = post(&model, MESSAGES, json!({ "messages": messages })).json();
        (answer["content"][0]["text"].clone(), answer["id"].clone())
    };

    assert_eq!(reply_to(json!("MAIN SUB"), 0), (json!("one"), json!("msg_s0_a0_t0_n0")));
    assert_eq!(reply_to(json!("MAIN"), 1), (json!("two"), json!("msg_s0_a0_t1_n0")));
    assert_eq!(reply_to(json!("MAIN"), 5), (json!("two"), json!("msg_s0_a0_t5_n0")));
    assert_eq!(reply_to(json!([{ "type": "text", "text": "a SUB" }]), 0), (json!("sub"), json!("msg_s0_a1_t0_n0")));
    assert_eq!(reply_to(json!("a SUB"), 0), (json!("sub"), json!("msg_s0_a1_t0_n1")));
    assert_eq!(reply_to(json!("nobody"), 0), (json!("ok"), json!("msg_s0_a2_t0_n0")));
    // Chat completions may begin with a system message, which must not select the actor.
    let messages = json!([{ "role": "system", "content": "MAIN" }, { "role": "user", "content": "SUB" }]);
    let answer = post(&model, CHAT, json!({ "messages": messages })).json();
    assert_eq!(answer["choices"][0]["message"]["content"], "sub");
}

#[test]
fn replaces_spawn_tool_and_working_directory() {
    let input = json!({ "prompt": "in $CWD", "deep": [{ "path": "$CWD/a" }] });
    let scenario = scenario(json!([[{ "tool": "SPAWN", "input": input }]])).in_directory(Path::new("/tmp/here"));
    let model = ScriptedModel::start(scenario);
    for offered in ["Agent", "Task"] {
        let mut asked = request(false);
        asked["tools"] = json!([{ "name": "Bash" }, { "name": offered }]);
        let answer = post(&model, MESSAGES, asked).json();
        assert_eq!(answer["content"][0]["name"], offered);
        let input = json!({ "prompt": "in /tmp/here", "deep": [{ "path": "/tmp/here/a" }] });
        assert_eq!(answer["content"][0]["input"], input);
    }
}

#[test]
fn errors_follow_the_api_format() {
    let model = model(json!([[{ "error": 429, "retry_after_s": 3 }]]));
    let answer = post(&model, MESSAGES, request(true));
    assert_eq!((answer.status, answer.header("retry-after")), (429, Some("3")));
    let wanted = json!({ "type": "error", "error": { "type": "rate_limit_error", "message": "scripted" } });
    assert_eq!(answer.json(), wanted);

    let answer = post(&model, CHAT, request(false));
    assert_eq!(answer.status, 429);
    assert_eq!(answer.json()["error"]["type"], "rate_limit_exceeded");
}

#[test]
fn faults_stop_after_the_configured_number_of_requests() {
    let model = model(
        json!([[{ "error": 529, "times": 1 }, { "raw": "<html>", "status": 502, "times": 2 }, { "text": "now" }]]),
    );
    let answers: Vec<_> = (0..3).map(|_| post(&model, MESSAGES, request(false))).collect();
    assert_eq!(answers.iter().map(|answer| answer.status).collect::<Vec<_>>(), [529, 502, 200]);
    assert_eq!(answers[1].body, "<html>");
    assert_eq!(answers[2].json()["content"], json!([{ "type": "text", "text": "now" }]));
}

#[test]
fn cut_drops_connection_at_its_position() {
    let model = model(json!([[{ "text": "said" }, { "cut": true }, { "text": "unsaid" }]]));
    let streamed = post(&model, MESSAGES, request(true));
    assert!(!streamed.is_complete);
    let complete = streamed.body.rfind("\n\n").unwrap();
    let (events, torn) = streamed.body.split_at(complete + 2);
    assert!(events.contains("content_block_stop") && torn.starts_with("event: content_block_start"), "{streamed:?}");
    assert_eq!(join_strings(&streamed.events(), "/delta/text"), "said");

    let complete_response = post(&model, CHAT, request(false));
    assert!(!complete_response.is_complete);
    let promised: usize = complete_response.header("content-length").unwrap().parse().unwrap();
    assert_eq!((complete_response.status, complete_response.body.len()), (200, promised / 2));
}

#[test]
fn raw_body_is_sent_unchanged() {
    let model = model(json!([[{ "raw": "data: {\"half\":\n\n" }]]));
    for path in [MESSAGES, CHAT] {
        let answer = post(&model, path, request(true));
        assert_eq!((answer.status, answer.header("content-type")), (200, Some("text/event-stream")));
        assert_eq!((answer.body.as_str(), answer.is_complete), ("data: {\"half\":\n\n", true));
    }
}

#[test]
fn hang_drops_connection_and_delay_resumes() {
    let model = model(json!([[{ "text": "a" }, { "delay_ms": 300 }, { "text": "b" }, { "hang": 1, "times": 1 }]]));
    let start = Instant::now();
    let answer = post(&model, MESSAGES, request(true));
    assert!(!answer.is_complete && start.elapsed() >= Duration::from_millis(1300), "{:?} {answer:?}", start.elapsed());
    assert_eq!(join_strings(&answer.events(), "/delta/text"), "ab");
    assert_eq!(event_types(&answer.events()).last(), Some(&"content_block_stop"));

    let start = Instant::now();
    let answer = post(&model, MESSAGES, request(false));
    assert_eq!(answer.json()["content"][1]["text"], "b");
    assert!(start.elapsed() >= Duration::from_millis(300));
}

#[test]
fn hang_in_first_position_sends_no_bytes() {
    let model = model(json!([[{ "hang": 600 }]]));
    let mut stream = TcpStream::connect(model.address).unwrap();
    let body = request(true).to_string();
    write!(stream, "POST {MESSAGES} HTTP/1.1\r\nhost: test\r\ncontent-length: {}\r\n\r\n{body}", body.len()).unwrap();
    stream.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    let nothing = stream.read(&mut [0; 1]).unwrap_err();
    assert_eq!(nothing.kind(), std::io::ErrorKind::WouldBlock);

    // Stopping the model does not wait for the hang.
    let address = model.address;
    drop(model);
    assert_eq!(stream.read(&mut [0; 1]).ok().unwrap_or(0), 0);
    assert!(TcpStream::connect(address).is_err());
}

#[test]
fn answers_other_endpoints_and_logs_all_requests() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("requests.jsonl");
    let options = Options { series: 4, requests_file: Some(file.clone()) };
    let model = ScriptedModel::start_with(scenario(json!([[{ "text": "done" }]])), options);

    assert_eq!(ask(model.address, "GET", "/v1/models", "").json(), json!({}));
    assert_eq!(ask(model.address, "HEAD", "/", "").status, 200);
    let count = post(&model, "/v1/messages/count_tokens?beta=true", request(false));
    assert_eq!(count.json(), json!({ "input_tokens": 100 }));
    assert_eq!(post(&model, "/v1/messages?beta=true", request(false)).json()["id"], "msg_s4_a0_t0_n0");
    assert_eq!(ask(model.address, "POST", MESSAGES, "{").status, 400);

    let requests = model.requests();
    let seen: Vec<_> = requests.iter().map(|request| (request.method.as_str(), request.path.as_str())).collect();
    let wanted = [
        ("GET", "/v1/models"),
        ("HEAD", "/"),
        ("POST", "/v1/messages/count_tokens?beta=true"),
        ("POST", "/v1/messages?beta=true"),
        ("POST", "/v1/messages"),
    ];
    assert_eq!(seen, wanted);
    assert_eq!((&requests[0].body, &requests[3].body, &requests[4].body), (&Value::Null, &request(false), &json!("{")));
    assert_eq!(requests[3].headers["x-api-key"], "secret");
    assert_eq!(ModelRequest::read_all(&file), requests);
}

#[test]
#[should_panic(expected = "a block is text, tool, usage, delay_ms, error, raw, hang or cut")]
fn rejects_unknown_block() {
    scenario(json!([[{ "txt": "a" }]]));
}

mod program {
    use super::*;

    #[test]
    fn serve_prints_its_address() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("scenario.json");
        std::fs::write(&file, json!(scenario(json!([[{ "text": "in $CWD" }]]))).to_string()).unwrap();
        let mut server = Command::new(env!("CARGO_BIN_EXE_scripted-model"))
            .args(["serve", "--scenario"])
            .arg(&file)
            .current_dir("/")
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut url = String::new();
        BufReader::new(server.stdout.take().unwrap()).read_line(&mut url).unwrap();
        let address = url.trim().strip_prefix("http://").unwrap().parse().unwrap();
        let answer = ask(address, "POST", MESSAGES, &request(false).to_string());
        server.kill().unwrap();
        server.wait().unwrap();
        assert_eq!(answer.json()["content"][0]["text"], "in /");
    }

    #[test]
    fn run_isolates_the_command_and_returns_its_exit_code() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("scenario.json");
        std::fs::write(&file, json!(scenario(json!([]))).to_string()).unwrap();
        let ran = isolated_command()
            .args(["run", "--scenario"])
            .arg(&file)
            .arg("--requests")
            .arg(directory.path().join("requests.jsonl"))
            .args(["--", "bash", "-c"])
            .arg(
                "ip -oneline link | wc -l
                 exec 3<> /dev/tcp/127.0.0.1/${ANTHROPIC_BASE_URL##*:}
                 printf 'GET /hello HTTP/1.1\\r\\nhost: test\\r\\nconnection: close\\r\\n\\r\\n' >&3
                 head -n 1 <&3
                 exit 3",
            )
            .output()
            .unwrap();
        assert_eq!(String::from_utf8_lossy(&ran.stdout), "1\nHTTP/1.1 200 OK\r\n", "{ran:?}");
        assert_eq!(ran.status.code(), Some(3));
        let requests = ModelRequest::read_all(&directory.path().join("requests.jsonl"));
        assert_eq!(requests.iter().map(|request| request.path.as_str()).collect::<Vec<_>>(), ["/hello"]);
    }
}

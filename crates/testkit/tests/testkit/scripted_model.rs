//! The scripted model, as a client on the other end of a socket sees it.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpStream},
    path::Path,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use trackway_testkit::{
    claude_client::alone,
    scripted_model::{ModelRequest, Options, Scenario, ScriptedModel},
};

const MESSAGES: &str = "/v1/messages";
const CHAT: &str = "/v1/chat/completions";

/// An answer as it came from the wire.
#[derive(Debug)]
struct Answer {
    status: u16,
    head: String,
    body: String,
    /// Whether the body came to its end.
    whole: bool,
}

impl Answer {
    fn json(&self) -> Value {
        assert!(self.whole, "{self:?}");
        serde_json::from_str(&self.body).unwrap()
    }

    /// The data of a stream's events; what is not JSON is a text.
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
    // A connection that is broken off may be reset: what came before still counts.
    let _ = stream.read_to_end(&mut bytes);
    let text = String::from_utf8(bytes).unwrap();
    let (head, rest) = text.split_once("\r\n\r\n").unwrap();
    let mut answer = Answer {
        status: head.split(' ').nth(1).unwrap().parse().unwrap(),
        head: head.to_owned(),
        body: rest.to_owned(),
        whole: true,
    };
    if answer.header("transfer-encoding") == Some("chunked") {
        (answer.body, answer.whole) = unchunked(rest);
    } else if method != "HEAD" {
        answer.whole = answer.header("content-length").unwrap().parse() == Ok(rest.len());
    }
    answer
}

/// The text in the chunks, and whether the last one came.
fn unchunked(mut rest: &str) -> (String, bool) {
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

/// A model with one actor, DO.
fn model(turns: Value) -> ScriptedModel {
    ScriptedModel::start(scenario(turns))
}

fn scenario(turns: Value) -> Scenario {
    Scenario::parse(&json!({ "actors": [{ "match": "DO", "turns": turns }] }).to_string())
}

fn request(stream: bool) -> Value {
    json!({ "model": "m-1", "stream": stream, "messages": [{ "role": "user", "content": "DO it" }] })
}

/// Text, and a call of a tool.
fn look_and_say() -> Value {
    json!([[{ "text": "Let me see." }, { "tool": "look", "input": { "at": "ü" } }, { "usage": {
        "input_tokens": 7, "output_tokens": 5, "cache_read_input_tokens": 3 } }]])
}

/// The pieces at a place in events, put together.
fn joined(events: &[Value], pointer: &str) -> String {
    events.iter().filter_map(|event| event.pointer(pointer)?.as_str()).collect()
}

fn types(events: &[Value]) -> Vec<&str> {
    events.iter().filter_map(|event| event["type"].as_str()).collect()
}

#[test]
fn messages_whole() {
    let model = model(look_and_say());
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
fn messages_streamed() {
    let model = model(look_and_say());
    let answer = post(&model, MESSAGES, request(true));

    assert!(answer.whole);
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
    assert_eq!(types(&events), wanted);
    let names: Vec<_> = answer.body.lines().filter_map(|line| line.strip_prefix("event: ")).collect();
    assert_eq!(names, wanted);
    assert_eq!(events[0]["message"]["usage"]["input_tokens"], 7);
    assert_eq!(joined(&events, "/delta/text"), "Let me see.");
    assert_eq!(joined(&events, "/delta/partial_json"), r#"{"at":"ü"}"#);
    let call = json!({ "type": "tool_use", "id": "toolu_s0_a0_t0_n0_1", "name": "look", "input": {} });
    assert_eq!((&events[6]["content_block"], &events[6]["index"]), (&call, &json!(1)));
    assert_eq!(events[10]["delta"]["stop_reason"], "tool_use");
    assert_eq!(events[10]["usage"], json!({ "output_tokens": 5 }));
}

#[test]
fn chat_completions_whole() {
    let model = model(look_and_say());
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
fn chat_completions_streamed() {
    let model = model(look_and_say());
    let mut asked = request(true);
    let events = post(&model, CHAT, asked.clone()).events();
    assert_eq!(joined(&events, "/choices/0/delta/content"), "Let me see.");
    assert_eq!(joined(&events, "/choices/0/delta/tool_calls/0/function/arguments"), r#"{"at":"ü"}"#);
    assert_eq!(joined(&events, "/choices/0/delta/tool_calls/0/id"), "call_s0_a0_t0_n0_1");
    assert_eq!(joined(&events, "/choices/0/finish_reason"), "tool_calls");
    assert_eq!(events.last(), Some(&json!("[DONE]")));
    assert!(events.iter().all(|event| event.get("usage").is_none()), "{events:?}");

    asked["stream_options"] = json!({ "include_usage": true });
    let events = post(&model, CHAT, asked).events();
    let [first, .., last, _] = &events[..] else { panic!("{events:?}") };
    assert_eq!((&first["usage"], &last["choices"]), (&Value::Null, &json!([])));
    assert_eq!(last["usage"]["total_tokens"], 15);
}

#[test]
fn the_actor_is_found_by_the_first_words_and_the_turn_by_the_replies() {
    let scenario = json!({ "actors": [
        { "match": "MAIN", "turns": [[{ "text": "one" }], [{ "text": "two" }]] },
        { "match": "SUB", "turns": [[{ "text": "sub" }]] },
    ] });
    let model = ScriptedModel::start(Scenario::parse(&scenario.to_string()));
    let said = |words: Value, replies: usize| {
        let mut messages = vec![json!({ "role": "user", "content": words })];
        for _ in 0..replies {
            messages.push(json!({ "role": "assistant", "content": "..." }));
            messages.push(json!({ "role": "user", "content": "SUB? MAIN?" }));
        }
        let answer = post(&model, MESSAGES, json!({ "messages": messages })).json();
        (answer["content"][0]["text"].clone(), answer["id"].clone())
    };

    assert_eq!(said(json!("MAIN SUB"), 0), (json!("one"), json!("msg_s0_a0_t0_n0")));
    assert_eq!(said(json!("MAIN"), 1), (json!("two"), json!("msg_s0_a0_t1_n0")));
    assert_eq!(said(json!("MAIN"), 5), (json!("two"), json!("msg_s0_a0_t5_n0")));
    assert_eq!(said(json!([{ "type": "text", "text": "a SUB" }]), 0), (json!("sub"), json!("msg_s0_a1_t0_n0")));
    assert_eq!(said(json!("a SUB"), 0), (json!("sub"), json!("msg_s0_a1_t0_n1")));
    assert_eq!(said(json!("nobody"), 0), (json!("ok"), json!("msg_s0_a2_t0_n0")));
    // Chat completions begin with the system's words, which are not the user's.
    let messages = json!([{ "role": "system", "content": "MAIN" }, { "role": "user", "content": "SUB" }]);
    let answer = post(&model, CHAT, json!({ "messages": messages })).json();
    assert_eq!(answer["choices"][0]["message"]["content"], "sub");
}

#[test]
fn spawn_is_the_tool_that_is_offered_and_cwd_a_directory() {
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
fn an_error_has_the_shape_of_its_api() {
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
fn trouble_passes_after_so_many_times() {
    let model = model(
        json!([[{ "error": 529, "times": 1 }, { "raw": "<html>", "status": 502, "times": 2 }, { "text": "now" }]]),
    );
    let answers: Vec<_> = (0..3).map(|_| post(&model, MESSAGES, request(false))).collect();
    assert_eq!(answers.iter().map(|answer| answer.status).collect::<Vec<_>>(), [529, 502, 200]);
    assert_eq!(answers[1].body, "<html>");
    assert_eq!(answers[2].json()["content"], json!([{ "type": "text", "text": "now" }]));
}

#[test]
fn a_cut_breaks_off_where_it_stands() {
    let model = model(json!([[{ "text": "said" }, { "cut": true }, { "text": "unsaid" }]]));
    let streamed = post(&model, MESSAGES, request(true));
    assert!(!streamed.whole);
    let complete = streamed.body.rfind("\n\n").unwrap();
    let (events, torn) = streamed.body.split_at(complete + 2);
    assert!(events.contains("content_block_stop") && torn.starts_with("event: content_block_start"), "{streamed:?}");
    assert_eq!(joined(&streamed.events(), "/delta/text"), "said");

    let whole = post(&model, CHAT, request(false));
    assert!(!whole.whole);
    let promised: usize = whole.header("content-length").unwrap().parse().unwrap();
    assert_eq!((whole.status, whole.body.len()), (200, promised / 2));
}

#[test]
fn a_raw_body_goes_out_as_it_is() {
    let model = model(json!([[{ "raw": "data: {\"half\":\n\n" }]]));
    for path in [MESSAGES, CHAT] {
        let answer = post(&model, path, request(true));
        assert_eq!((answer.status, answer.header("content-type")), (200, Some("text/event-stream")));
        assert_eq!((answer.body.as_str(), answer.whole), ("data: {\"half\":\n\n", true));
    }
}

#[test]
fn silence_ends_with_the_connection_and_a_pause_with_the_rest() {
    let model = model(json!([[{ "text": "a" }, { "delay_ms": 300 }, { "text": "b" }, { "hang": 1, "times": 1 }]]));
    let start = Instant::now();
    let answer = post(&model, MESSAGES, request(true));
    assert!(!answer.whole && start.elapsed() >= Duration::from_millis(1300), "{:?} {answer:?}", start.elapsed());
    assert_eq!(joined(&answer.events(), "/delta/text"), "ab");
    assert_eq!(types(&answer.events()).last(), Some(&"content_block_stop"));

    let start = Instant::now();
    let answer = post(&model, MESSAGES, request(false));
    assert_eq!(answer.json()["content"][1]["text"], "b");
    assert!(start.elapsed() >= Duration::from_millis(300));
}

#[test]
fn nothing_comes_before_a_silence_that_stands_first() {
    let model = model(json!([[{ "hang": 600 }]]));
    let mut stream = TcpStream::connect(model.address).unwrap();
    let body = request(true).to_string();
    write!(stream, "POST {MESSAGES} HTTP/1.1\r\nhost: test\r\ncontent-length: {}\r\n\r\n{body}", body.len()).unwrap();
    stream.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    let nothing = stream.read(&mut [0; 1]).unwrap_err();
    assert_eq!(nothing.kind(), std::io::ErrorKind::WouldBlock);

    // Stopping does not wait for it.
    let address = model.address;
    drop(model);
    assert_eq!(stream.read(&mut [0; 1]).ok().unwrap_or(0), 0);
    assert!(TcpStream::connect(address).is_err());
}

#[test]
fn what_clients_ask_besides_is_answered_and_everything_is_logged() {
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
fn a_block_that_means_nothing_is_refused() {
    scenario(json!([[{ "txt": "a" }]]));
}

mod program {
    use super::*;

    #[test]
    fn serve_prints_where_it_is() {
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
    fn run_is_alone_with_the_model_and_ends_as_the_command_does() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("scenario.json");
        std::fs::write(&file, json!(scenario(json!([]))).to_string()).unwrap();
        let ran = alone()
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

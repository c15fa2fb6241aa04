//! Facts that are extracted from transcripts of all generations of the client.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::{fs, path::Path};

use serde_json::{Value, json};
use tempfile::TempDir;
use trackway_capture::{
    digest::digest,
    transcript::{Flow, ReadCursor, ReadStats, Transcript, has_news},
};
use trackway_client_claude::transcript;
use trackway_domain::observed::{Fact, Observation, ObservedFact};

const SESSION: &str = "11111111-1111-4111-8111-111111111111";

/// Reads a file from a cursor on. Returns the facts, the new cursor and the statistics.
fn read(path: &Path, agent: Option<&str>, cursor: Option<&ReadCursor>) -> (Vec<ObservedFact>, ReadCursor, ReadStats) {
    let transcript =
        Transcript { path: path.to_path_buf(), session: SESSION.to_owned(), agent: agent.map(str::to_owned) };
    let mut facts = Vec::new();
    let mut last = cursor.cloned().unwrap_or_default();
    let stats =
        transcript::read(&transcript, cursor, &mut |Observation { facts: observed, progress, session, .. }| {
            assert_eq!(session, SESSION);
            facts.extend(observed);
            let progress = progress.unwrap();
            let changed = progress.state["changed"].as_str().map(str::to_owned);
            let offset = progress.to.cast_unsigned();
            last = ReadCursor { identity: progress.identity, offset, changed, state: progress.state };
            Flow::Continue
        });
    (facts, last, stats.unwrap())
}

/// Describes a fact in a few words: agent and content.
fn describe(observed: &ObservedFact) -> Option<String> {
    let whose = observed.agent.as_deref().unwrap_or("main");
    let what = match &observed.fact {
        Fact::Session(_) | Fact::Subagent(_) => return None,
        Fact::Prompt { text, .. } => format!("prompt {text}"),
        Fact::Notified { tool_use_id, .. } => {
            format!("is notified of {}", tool_use_id.as_deref().unwrap_or("an unknown agent"))
        }
        Fact::SubagentStart { .. } => "starts".to_owned(),
        Fact::Spawn(spawn_input) => format!("spawns {} {}", spawn_input.tool_use_id, spawn_input.prompt),
        Fact::SpawnResult { tool_use_id, status, error } => match error {
            Some(error) => format!("{tool_use_id} {status}: {error}"),
            None => format!("{tool_use_id} {status}"),
        },
        Fact::Match { tool_use_id, agent_id, evidence } => format!("{tool_use_id} = {agent_id} by {evidence}"),
        Fact::ResultText { tool_use_id, text } => format!("{tool_use_id} returned {text}"),
        Fact::Reply { text, .. } => format!("replies {text}"),
        Fact::Usage(usage) => format!("used {} for {}", usage.output_tokens.unwrap_or_default(), usage.message_id),
        Fact::File(file) => format!("{} {}", file.change, file.path),
        Fact::Commit(commit) => format!("commit {}", commit.hash),
        Fact::RunEnd { status, message, error } => {
            let text = message.as_deref().or(error.as_deref()).unwrap_or_default();
            format!("turn {status} {text}").trim_end().to_owned()
        }
        Fact::EndOfRunReply { answer } => format!("answers end of run {answer}"),
        Fact::Shell | Fact::EndOfRunPrompt | Fact::SessionEnd => format!("{:?}", observed.fact),
    };
    Some(format!("{whose}: {what}"))
}

/// The descriptions of the facts in these lines, read as the file of a session or of an agent.
fn facts_of(agent: Option<&str>, lines: &[Value]) -> Vec<String> {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("transcript.jsonl");
    let lines: Vec<String> = lines.iter().map(Value::to_string).collect();
    fs::write(&path, lines.join("\n") + "\n").unwrap();
    let (facts, cursor, stats) = read(&path, agent, None);
    assert_eq!((cursor.offset, stats.bad_lines), (path.metadata().unwrap().len(), 0));
    facts.iter().filter_map(describe).collect()
}

fn line(uuid: &str, parent: Option<&str>, sidechain: bool, kind: &str, message: Value) -> Value {
    json!({
        "type": kind, "uuid": uuid, "parentUuid": parent, "isSidechain": sidechain, "sessionId": SESSION,
        "cwd": "/ship", "version": "1.0.128", "timestamp": "2026-02-27T09:00:00.000Z", "message": message,
    })
}

fn prompt(uuid: &str, parent: Option<&str>, sidechain: bool, text: &str) -> Value {
    line(uuid, parent, sidechain, "user", json!({ "role": "user", "content": text }))
}

fn replies(uuid: &str, parent: &str, sidechain: bool, text: &str) -> Value {
    let message = json!({ "id": format!("m-{uuid}"), "model": "m", "usage": { "output_tokens": 5 }, "content": [{ "type": "text", "text": text }] });
    line(uuid, Some(parent), sidechain, "assistant", message)
}

fn calls_tools(uuid: &str, parent: &str, sidechain: bool, calls_tools: &[(&str, &str, Value)]) -> Value {
    let blocks: Vec<Value> = calls_tools
        .iter()
        .map(|(id, tool, input)| json!({ "type": "tool_use", "id": id, "name": tool, "input": input }))
        .collect();
    line(uuid, Some(parent), sidechain, "assistant", json!({ "content": blocks }))
}

fn tool_returns(uuid: &str, parent: &str, sidechain: bool, id: &str, text: &str, result: Value) -> Value {
    let content = json!([{ "type": "tool_result", "tool_use_id": id, "content": [{ "type": "text", "text": text }] }]);
    let mut line = line(uuid, Some(parent), sidechain, "user", json!({ "role": "user", "content": content }));
    line["toolUseResult"] = result;
    line
}

fn spawn_input(prompt: &str) -> Value {
    json!({ "prompt": prompt, "description": "a job", "subagent_type": "general-purpose" })
}

fn write_input(path: &str) -> Value {
    json!({ "file_path": path, "content": "x\n" })
}

#[test]
fn assigns_lines_to_inline_agents_by_parent_chain() {
    let facts = facts_of(
        None,
        &[
            prompt("u1", None, false, "go"),
            calls_tools("u2", "u1", false, &[("t1", "Task", spawn_input("one")), ("t2", "Task", spawn_input("two"))]),
            // The lines of two inline agents alternate.
            prompt("aaaa1", None, true, "one"),
            prompt("bbbb1", None, true, "two"),
            calls_tools("aaaa2", "aaaa1", true, &[("t3", "Write", write_input("/ship/one"))]),
            calls_tools("bbbb2", "bbbb1", true, &[("t4", "Write", write_input("/ship/two"))]),
            tool_returns("bbbb3", "bbbb2", true, "t4", "File created", json!({ "type": "create" })),
            tool_returns("aaaa3", "aaaa2", true, "t3", "updated", json!({ "type": "update" })),
            replies("bbbb4", "bbbb3", true, "second done"),
            replies("aaaa4", "aaaa3", true, "first done"),
            tool_returns("u3", "u2", false, "t1", "first done", json!({ "totalTokens": 5 })),
            tool_returns("u4", "u3", false, "t2", "second done", json!({ "totalTokens": 5 })),
            replies("u5", "u4", false, "both done"),
        ],
    );
    assert_eq!(
        facts,
        [
            "main: prompt go",
            "main: spawns t1 one",
            "main: spawns t2 two",
            "inline-aaaa1: prompt one",
            "inline-bbbb1: prompt two",
            "inline-bbbb1: create /ship/two",
            "inline-aaaa1: update /ship/one",
            "inline-bbbb1: used 5 for m-bbbb4",
            "inline-bbbb1: replies second done",
            "inline-aaaa1: used 5 for m-aaaa4",
            "inline-aaaa1: replies first done",
            "main: t1 completed",
            "inline-aaaa1: turn completed first done",
            "inline-bbbb1: turn completed second done",
            "main: t1 returned first done",
            "main: t2 completed",
            "main: t2 returned second done",
            "main: used 5 for m-u5",
            "main: replies both done",
            "main: turn completed both done",
        ]
    );
}

#[test]
fn agent_file_may_start_without_prompt() {
    // Version 2.0.60 stores the agent's file beside that of the session, without the prompt.
    let without = facts_of(
        Some("c0ffee00"),
        &[
            calls_tools("s1", "none", true, &[("t2", "Write", write_input("/ship/a"))]),
            tool_returns("s2", "s1", true, "t2", "File created", json!({ "type": "create" })),
            replies("s3", "s2", true, "done"),
        ],
    );
    assert_eq!(
        without,
        [
            "c0ffee00: starts",
            "c0ffee00: create /ship/a",
            "c0ffee00: used 5 for m-s3",
            "c0ffee00: replies done",
            "c0ffee00: turn completed done",
        ]
    );
    let with =
        facts_of(Some("c0ffee00"), &[prompt("s1", None, true, "[ROLE:mate] go"), replies("s2", "s1", true, "done")]);
    assert_eq!(with[0], "c0ffee00: prompt [ROLE:mate] go");
    // The session's own file names the agent.
    let main = facts_of(
        None,
        &[
            prompt("u1", None, false, "go"),
            calls_tools("u2", "u1", false, &[("t1", "Task", spawn_input("[ROLE:mate] go"))]),
            tool_returns("u3", "u2", false, "t1", "done", json!({ "status": "completed", "agentId": "c0ffee00" })),
        ],
    );
    assert_eq!(main[2..], ["main: t1 completed", "main: t1 = c0ffee00 by tool_result"]);
}

#[test]
fn warmup_agent_without_reply_ends_as_incomplete() {
    // In version 2.1.2 the reply is missing if the client switches to another session first.
    let warmup_prompt = prompt("s1", None, true, "Warmup");
    assert_eq!(
        facts_of(Some("a1"), std::slice::from_ref(&warmup_prompt)),
        ["a1: prompt Warmup", "a1: turn incomplete"]
    );
    let answered = facts_of(Some("a1"), &[warmup_prompt, replies("s2", "s1", true, "warm")]);
    assert_eq!(answered.last().map(String::as_str), Some("a1: turn completed warm"));
    assert_eq!(facts_of(Some("a1"), &[prompt("s1", None, true, "go")]), ["a1: prompt go"]);
}

#[test]
fn prompt_after_its_reply_belongs_to_the_same_run() {
    // Version 2.1.40 writes the reply before the prompt.
    let lines = [replies("s2", "s1", true, "done"), prompt("s1", None, true, "[ROLE:mate] go")];
    let facts = facts_of(Some("a1"), &lines);
    assert_eq!(facts, ["a1: starts", "a1: used 5 for m-s2", "a1: replies done", "a1: turn completed done"]);
    // A resumed agent starts another turn.
    let again = [&lines[..], &[prompt("s3", Some("s2"), true, "go on"), replies("s4", "s3", true, "again")]].concat();
    let facts = facts_of(Some("a1"), &again);
    assert_eq!(
        facts[4..],
        ["a1: prompt go on", "a1: used 5 for m-s4", "a1: replies again", "a1: turn completed again"]
    );
}

#[test]
fn meta_file_matches_agent_to_its_spawn() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("agent-a1.jsonl");
    fs::write(&path, format!("{}\n", prompt("s1", None, true, "[ROLE:mate] go"))).unwrap();
    let meta = json!({ "agentType": "general-purpose", "toolUseId": "t1", "spawnDepth": 2 });
    fs::write(folder.path().join("agent-a1.meta.json"), meta.to_string()).unwrap();
    let (facts, ..) = read(&path, Some("a1"), None);
    let Fact::Subagent(subagent) = &facts[0].fact else { panic!("{facts:?}") };
    assert_eq!((subagent.agent_type.as_deref(), subagent.depth), (Some("general-purpose"), Some(2)));
    let descriptions: Vec<_> = facts.iter().filter_map(describe).collect();
    assert_eq!(descriptions, ["a1: t1 = a1 by meta_json", "a1: prompt [ROLE:mate] go"]);
    let Some(Fact::Subagent(subagent)) =
        facts.iter().map(|observed| &observed.fact).rfind(|fact| matches!(fact, Fact::Subagent(_)))
    else {
        panic!("{facts:?}")
    };
    assert_eq!(subagent.tagged_role.as_deref(), Some("mate"));
}

#[test]
fn progress_line_matches_agent_once_and_adds_no_usage() {
    let progress = |kind: &str| {
        let copy =
            json!({ "type": "assistant", "message": { "id": "m9", "usage": { "output_tokens": 50 }, "content": [] } });
        json!({
            "type": "progress", "uuid": "p1", "parentToolUseID": "t1", "toolUseID": "x", "timestamp": "2026-02-27T09:00:00Z",
            "data": { "type": kind, "agentId": "ac44e63", "message": copy },
        })
    };
    let facts = facts_of(
        None,
        &[
            prompt("u1", None, false, "go"),
            calls_tools("u2", "u1", false, &[("t1", "Task", spawn_input("one"))]),
            progress("agent_progress"),
            progress("agent_progress"),
            progress("hook_progress"),
        ],
    );
    assert_eq!(facts, ["main: prompt go", "main: spawns t1 one", "main: t1 = ac44e63 by agent_progress"]);
}

#[test]
fn notification_ends_background_agent() {
    let launched = json!({ "isAsync": true, "status": "async_launched", "agentId": "a1" });
    let begin = || {
        vec![
            prompt("u1", None, false, "go"),
            calls_tools("u2", "u1", false, &[("t1", "Agent", spawn_input("one"))]),
            tool_returns("u3", "u2", false, "t1", "Async agent launched", launched.clone()),
        ]
    };
    let begun = ["main: prompt go", "main: spawns t1 one", "main: t1 async_launched", "main: t1 = a1 by tool_result"];
    // Since version 2.1.69 the notification is a prompt that names the call.
    let text = "<task-notification>\n<task-id>a1</task-id>\n<tool-use-id>t1</tool-use-id>\n<status>completed</status>\n</task-notification>";
    let mut newer = begin();
    newer.push(prompt("u4", Some("u3"), false, text));
    let ended = ["main: is notified of t1", "main: t1 = a1 by task_notification", "main: t1 completed"];
    assert_eq!(facts_of(None, &newer), [&begun[..], &ended].concat());
    for (status_tags, result) in [
        (
            "<status>failed</status>\n<summary>Agent \"one\" failed: no model</summary>",
            "t1 failed: Agent \"one\" failed: no model",
        ),
        ("<status>killed</status>", "t1 killed"),
    ] {
        let text = format!(
            "<task-notification>\n<task-id>a1</task-id>\n<tool-use-id>t1</tool-use-id>\n{status_tags}\n</task-notification>"
        );
        let mut line = prompt("u4", Some("u3"), false, &text);
        line["origin"] = json!({ "kind": "task-notification" });
        let ended = facts_of(None, &[begin(), vec![line]].concat());
        assert_eq!(ended.last().unwrap(), &format!("main: {result}"));
        assert!(!ended.iter().any(|fact| fact.contains("prompt <")), "{ended:?}");
    }
    // In versions 2.1.40 and 2.0.60 the notification is only in the queue and does not name the call.
    for text in [
        "<task-notification>\n<task-id>a1</task-id>\n<status>completed</status>\n</task-notification>",
        "<agent-notification>\n<agent-id>a1</agent-id>\n<status>completed</status>\n</agent-notification>",
    ] {
        let mut older = begin();
        older.push(json!({ "type": "queue-operation", "operation": "enqueue", "timestamp": "2026-02-27T09:00:01Z", "content": text }));
        assert_eq!(facts_of(None, &older), [&begun[..], &["main: t1 completed"]].concat());
    }
}

#[test]
fn reads_background_launch_from_result_text() {
    let launch_text = "Async agent launched successfully. (This is internal.)\nagentId: a1 (internal ID)\nIt is working in the background.";
    let lines = [
        prompt("u1", None, false, "go"),
        calls_tools("u2", "u1", false, &[("t1", "Agent", spawn_input("one"))]),
        tool_returns("u3", "u2", false, "t1", launch_text, Value::Null),
    ];
    let facts = facts_of(Some("a0"), &lines);
    assert_eq!(facts[facts.len() - 2..], ["a0: t1 async_launched", "a0: t1 = a1 by tool_result"]);
}

#[test]
fn client_messages_start_no_run() {
    let mut lines = vec![prompt("u1", None, false, "go"), replies("u2", "u1", false, "done")];
    for (number, text) in [
        "<command-name>/cost</command-name>",
        "<local-command-stdout>5</local-command-stdout>",
        "<bash-input>ls</bash-input>",
        "<session-start-hook>Trackway records this work.</session-start-hook>",
        "Caveat: The messages below were generated by the user",
        "Unknown slash command: x",
        "  ",
    ]
    .iter()
    .enumerate()
    {
        lines.push(prompt(&format!("n{number}"), Some("u2"), false, text));
    }
    let mut meta = prompt("n9", Some("u2"), false, "Continue from where you left off.");
    meta["isMeta"] = json!(true);
    let mut summary = prompt("n10", Some("u2"), false, "This session is being continued");
    summary["isCompactSummary"] = json!(true);
    lines.extend([
        meta,
        summary,
        json!({ "type": "summary", "summary": "x", "leafUuid": "u2" }),
        json!({ "type": "mode" }),
    ]);
    let begun = ["main: prompt go", "main: used 5 for m-u2", "main: replies done", "main: turn completed done"];
    assert_eq!(facts_of(None, &lines), begun);
    // A user-defined command is a prompt, in the form in which it was typed.
    lines.push(prompt(
        "u9",
        Some("u2"),
        false,
        "<command-message>mine</command-message>\n<command-name>/mine</command-name>\n<command-args>a b</command-args>",
    ));
    assert_eq!(facts_of(None, &lines), [&begun[..], &["main: prompt /mine a b"]].concat());
}

#[test]
fn end_of_run_prompt_and_its_answer_are_not_part_of_the_turn() {
    for feedback in [
        "Stop hook feedback:\n[Trackway: end of run] Before you stop",
        // Version 1.0 writes the feedback as a list.
        "Stop hook feedback:\n- [Trackway: end of run] Before you stop",
    ] {
        let facts = facts_of(
            Some("a1"),
            &[
                prompt("s1", None, true, "go"),
                replies("s2", "s1", true, "the answer"),
                prompt("s3", Some("s2"), true, feedback),
                replies("s4", "s3", true, "{}"),
            ],
        );
        assert_eq!(
            facts,
            [
                "a1: prompt go",
                "a1: used 5 for m-s2",
                "a1: replies the answer",
                "a1: turn completed the answer",
                "a1: used 5 for m-s4",
                "a1: answers end of run {}",
            ]
        );
    }
    // A hook of another tool makes the agent continue: its last text is the final reply.
    let facts = facts_of(
        Some("a1"),
        &[
            prompt("s1", None, true, "go"),
            replies("s2", "s1", true, "early"),
            prompt("s3", Some("s2"), true, "Stop hook feedback:\nrun the tests"),
            replies("s4", "s3", true, "late"),
        ],
    );
    assert_eq!(
        facts[1..].iter().filter(|fact| fact.contains(": turn ")).collect::<Vec<_>>(),
        ["a1: turn completed late"]
    );
}

#[test]
fn errors_and_interrupts_end_the_turn() {
    let mut failed = replies("u2", "u1", false, "API Error: 400");
    failed["isApiErrorMessage"] = json!(true);
    failed["message"]["model"] = json!("<synthetic>");
    let interrupted = line(
        "u4",
        Some("u3"),
        false,
        "user",
        json!({ "content": [{ "type": "text", "text": "[Request interrupted by user for tool use]" }] }),
    );
    let facts = facts_of(
        None,
        &[prompt("u1", None, false, "go"), failed, prompt("u3", Some("u2"), false, "again"), interrupted],
    );
    assert_eq!(
        facts,
        ["main: prompt go", "main: turn failed API Error: 400", "main: prompt again", "main: turn cancelled"]
    );
    let mut refused =
        tool_returns("u3", "u2", false, "t1", "Agent type 'x' not found", json!("Error: Agent type 'x' not found"));
    refused["message"]["content"][0]["is_error"] = json!(true);
    let facts = facts_of(
        None,
        &[
            prompt("u1", None, false, "go"),
            calls_tools("u2", "u1", false, &[("t1", "Task", spawn_input("one"))]),
            refused,
        ],
    );
    assert_eq!(facts[2..], ["main: t1 failed: Agent type 'x' not found"]);
}

#[test]
fn usage_is_reported_once_per_message_with_highest_output_count() {
    let part = |uuid: &str, output: u32, block: Value| {
        let message = json!({ "id": "m1", "model": "m", "usage": { "input_tokens": 3, "output_tokens": output }, "content": [block] });
        line(uuid, Some("u1"), false, "assistant", message)
    };
    let facts = facts_of(
        None,
        &[
            prompt("u1", None, false, "go"),
            part("u2", 1, json!({ "type": "thinking", "thinking": "hm" })),
            part("u3", 1, json!({ "type": "text", "text": "done" })),
            part("u4", 23, json!({ "type": "tool_use", "id": "t1", "name": "Read", "input": {} })),
        ],
    );
    assert_eq!(facts, ["main: prompt go", "main: used 23 for m1", "main: replies done"]);
}

#[test]
fn usage_is_reported_per_request_or_else_per_line() {
    let part = |uuid: &str, id: Value, request: Value, output: Value| {
        let message =
            json!({ "id": id, "model": "m", "usage": { "input_tokens": 3.0, "output_tokens": output }, "content": [] });
        let mut line = line(uuid, Some("u1"), false, "assistant", message);
        line["requestId"] = request;
        line
    };
    let facts = facts_of(
        None,
        &[
            prompt("u1", None, false, "go"),
            part("u2", json!("m1"), json!("r1"), json!(5)),
            part("u3", json!("m1"), json!("r2"), json!(7.0)),
            part("u4", json!("m1"), json!("r2"), json!(8)),
            part("u5", Value::Null, Value::Null, json!(9)),
            part("u6", Value::Null, Value::Null, json!(10)),
        ],
    );
    let used = ["main: used 5 for m1", "main: used 8 for m1", "main: used 9 for u5", "main: used 10 for u6"];
    assert_eq!(facts, [&["main: prompt go"][..], &used].concat());
}

#[test]
fn lines_with_lone_surrogates_are_kept() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("transcript.jsonl");
    let content = json!({ "file_path": "/ship/a", "content": "cut HALF" });
    let lines = [
        prompt("u1", None, false, "cut HALF here"),
        calls_tools("u2", "u1", false, &[("t1", "Write", content)]),
        tool_returns("u3", "u2", false, "t1", "File created HALF", json!({ "type": "create", "content": "cut HALF" })),
        replies("u4", "u3", false, "bye HALF"),
    ];
    let text: String = lines.iter().map(|line| format!("{line}\n").replace("HALF", "\\ud83d")).collect();
    // The result finds its call, which was read earlier.
    let end = text.match_indices('\n').nth(1).unwrap().0 + 1;
    fs::write(&path, &text[..end]).unwrap();
    let (first, cursor, _) = read(&path, None, None);
    fs::write(&path, &text).unwrap();
    let (second, _, stats) = read(&path, None, Some(&cursor));
    let facts: Vec<_> = first.iter().chain(&second).filter_map(describe).collect();
    assert_eq!(
        facts,
        [
            "main: prompt cut \u{fffd} here",
            "main: create /ship/a",
            "main: used 5 for m-u4",
            "main: replies bye \u{fffd}",
            "main: turn completed bye \u{fffd}",
        ]
    );
    assert_eq!(stats.bad_lines, 0);
    // The digest is that of the content that the client writes to the file.
    let wanted = digest("cut \u{fffd}".as_bytes());
    let of_file = second.iter().find_map(|observed| match &observed.fact {
        Fact::File(file) => file.digest.clone(),
        _ => None,
    });
    assert_eq!(of_file, Some(wanted));
}

#[test]
fn rewritten_file_is_read_from_the_start() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("transcript.jsonl");
    let transcript_text = |texts: &[&str]| -> String {
        // All files have the same first hundred bytes, like those of real sessions.
        let line = |(number, text): (usize, &&str)| {
            format!(
                "{{\"parentUuid\":null,\"isSidechain\":false,\"userType\":\"external\",\"entrypoint\":\"cli\",\"version\":\"2.1.197\",\"type\":\"user\",\"uuid\":\"{text}-{number}\",\"message\":{{\"content\":\"{text}\"}}}}\n"
            )
        };
        texts.iter().enumerate().map(line).collect()
    };
    let descriptions = |facts: &[ObservedFact]| facts.iter().filter_map(describe).collect::<Vec<_>>();
    fs::write(&path, transcript_text(&["first", "second"])).unwrap();
    let (_, cursor, _) = read(&path, None, None);
    fs::write(&path, transcript_text(&["first", "second", "third"])).unwrap();
    let (facts, cursor, _) = read(&path, None, Some(&cursor));
    assert_eq!(descriptions(&facts), ["main: prompt third"]);
    fs::write(&path, transcript_text(&["other", "things", "were", "said"])).unwrap();
    let (facts, newer_cursor, _) = read(&path, None, Some(&cursor));
    assert_eq!(
        descriptions(&facts),
        ["main: prompt other", "main: prompt things", "main: prompt were", "main: prompt said"]
    );
    // The file starts the same and ends differently.
    fs::write(&path, transcript_text(&["other", "things", "went", "said", "more"])).unwrap();
    assert_eq!(descriptions(&read(&path, None, Some(&newer_cursor)).0).len(), 5);

    // Older versions of Trackway stored no seal in the cursor. Only the start of the file can be compared, so reading
    // continues.
    let mut older_cursor = cursor;
    older_cursor.state.as_object_mut().unwrap().remove("seal");
    fs::write(&path, transcript_text(&["first", "second", "third", "fourth"])).unwrap();
    assert_eq!(descriptions(&read(&path, None, Some(&older_cursor)).0), ["main: prompt fourth"]);
}

#[test]
fn partial_line_is_read_later_and_result_finds_its_earlier_call() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("transcript.jsonl");
    let first = format!(
        "{}\n{}\n",
        prompt("u1", None, false, "go"),
        calls_tools("u2", "u1", false, &[("t1", "Write", write_input("/ship/a"))])
    );
    let second = format!("{}\n", tool_returns("u3", "u2", false, "t1", "File created", json!({ "type": "create" })));
    let (half, rest) = second.split_at(50);
    fs::write(&path, format!("{first}{half}")).unwrap();
    let (facts, cursor, stats) = read(&path, None, None);
    assert_eq!(facts.iter().filter_map(describe).collect::<Vec<_>>(), ["main: prompt go"]);
    assert_eq!((cursor.offset, stats.lines, stats.bad_lines), (first.len() as u64, 2, 0));
    fs::write(&path, format!("{first}{half}{rest}")).unwrap();
    let (facts, cursor, _) = read(&path, None, Some(&cursor));
    assert_eq!(facts.iter().filter_map(describe).collect::<Vec<_>>(), ["main: create /ship/a"]);
    assert!(!has_news(&path, Some(&cursor)));
}

#[test]
fn text_before_a_tool_call_is_not_the_final_reply() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("transcript.jsonl");
    let first = format!("{}\n{}\n", prompt("u1", None, false, "go"), replies("u2", "u1", false, "I look."));
    fs::write(&path, &first).unwrap();
    let (facts, cursor, _) = read(&path, None, None);
    assert_eq!(facts.iter().filter_map(describe).next_back().unwrap(), "main: turn completed I look.");
    fs::write(
        &path,
        format!("{first}{}\n", calls_tools("u3", "u2", false, &[("t1", "Write", write_input("/ship/a"))])),
    )
    .unwrap();
    let (facts, ..) = read(&path, None, Some(&cursor));
    assert_eq!(facts.iter().filter_map(describe).collect::<Vec<_>>(), ["main: turn running"]);
}

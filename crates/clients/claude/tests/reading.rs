//! What is read from lines as each generation of the client writes them.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::{fs, path::Path};

use serde_json::{Value, json};
use tempfile::TempDir;
use trackway_capture::{
    digest::digest,
    transcript::{Flow, Mark, Tally, Transcript, has_news},
};
use trackway_client_claude::transcript;
use trackway_domain::observed::{Fact, Observation, Seen};

const SESSION: &str = "11111111-1111-4111-8111-111111111111";

/// Reads a file from a mark on, and gives what it says with where it stopped.
fn read(path: &Path, agent: Option<&str>, mark: Option<&Mark>) -> (Vec<Seen>, Mark, Tally) {
    let transcript =
        Transcript { path: path.to_path_buf(), session: SESSION.to_owned(), agent: agent.map(str::to_owned) };
    let mut facts = Vec::new();
    let mut last = mark.cloned().unwrap_or_default();
    let tally = transcript::read(&transcript, mark, &mut |Observation { facts: seen, progress, session, .. }| {
        assert_eq!(session, SESSION);
        facts.extend(seen);
        let progress = progress.unwrap();
        let changed = progress.state["changed"].as_str().map(str::to_owned);
        let offset = progress.to.cast_unsigned();
        last = Mark { identity: progress.identity, offset, changed, state: progress.state };
        Flow::Continue
    });
    (facts, last, tally.unwrap())
}

/// A fact in few words: whose, and what.
fn shown(seen: &Seen) -> Option<String> {
    let whose = seen.agent.as_deref().unwrap_or("main");
    let what = match &seen.fact {
        Fact::Session(_) | Fact::Subagent(_) => return None,
        Fact::Prompt { text, .. } => format!("prompt {text}"),
        Fact::Notified { tool_use_id, .. } => format!("is told of {}", tool_use_id.as_deref().unwrap_or("somebody")),
        Fact::SubagentStart { .. } => "starts".to_owned(),
        Fact::Spawn(spawn) => format!("spawns {} {}", spawn.tool_use_id, spawn.prompt),
        Fact::SpawnResult { tool_use_id, status, error } => match error {
            Some(error) => format!("{tool_use_id} {status}: {error}"),
            None => format!("{tool_use_id} {status}"),
        },
        Fact::Match { tool_use_id, agent_id, evidence } => format!("{tool_use_id} = {agent_id} by {evidence}"),
        Fact::ResultText { tool_use_id, text } => format!("{tool_use_id} returned {text}"),
        Fact::Reply { text, .. } => format!("says {text}"),
        Fact::Usage(usage) => format!("used {} for {}", usage.output_tokens.unwrap_or_default(), usage.message_id),
        Fact::File(file) => format!("{} {}", file.change, file.path),
        Fact::Commit(commit) => format!("commit {}", commit.hash),
        Fact::Rest { status, message, error } => {
            let said = message.as_deref().or(error.as_deref()).unwrap_or_default();
            format!("rests {status} {said}").trim_end().to_owned()
        }
        Fact::Closing { answer } => format!("closes {answer}"),
        Fact::Shell | Fact::Asked | Fact::SessionEnd => format!("{:?}", seen.fact),
    };
    Some(format!("{whose}: {what}"))
}

/// What these lines say, as a session's own file or an agent's.
fn told(agent: Option<&str>, lines: &[Value]) -> Vec<String> {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("transcript.jsonl");
    let lines: Vec<String> = lines.iter().map(Value::to_string).collect();
    fs::write(&path, lines.join("\n") + "\n").unwrap();
    let (facts, mark, tally) = read(&path, agent, None);
    assert_eq!((mark.offset, tally.bad_lines), (path.metadata().unwrap().len(), 0));
    facts.iter().filter_map(shown).collect()
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

fn says(uuid: &str, parent: &str, sidechain: bool, text: &str) -> Value {
    let message = json!({ "id": format!("m-{uuid}"), "model": "m", "usage": { "output_tokens": 5 }, "content": [{ "type": "text", "text": text }] });
    line(uuid, Some(parent), sidechain, "assistant", message)
}

fn calls(uuid: &str, parent: &str, sidechain: bool, calls: &[(&str, &str, Value)]) -> Value {
    let blocks: Vec<Value> = calls
        .iter()
        .map(|(id, tool, input)| json!({ "type": "tool_use", "id": id, "name": tool, "input": input }))
        .collect();
    line(uuid, Some(parent), sidechain, "assistant", json!({ "content": blocks }))
}

fn returns(uuid: &str, parent: &str, sidechain: bool, id: &str, said: &str, result: Value) -> Value {
    let content = json!([{ "type": "tool_result", "tool_use_id": id, "content": [{ "type": "text", "text": said }] }]);
    let mut line = line(uuid, Some(parent), sidechain, "user", json!({ "role": "user", "content": content }));
    line["toolUseResult"] = result;
    line
}

fn spawn(prompt: &str) -> Value {
    json!({ "prompt": prompt, "description": "a job", "subagent_type": "general-purpose" })
}

fn write(path: &str) -> Value {
    json!({ "file_path": path, "content": "x\n" })
}

#[test]
fn inline_agents_are_told_apart_by_their_chains() {
    let told = told(
        None,
        &[
            prompt("u1", None, false, "go"),
            calls("u2", "u1", false, &[("t1", "Task", spawn("one")), ("t2", "Task", spawn("two"))]),
            // Two chains, line by line.
            prompt("aaaa1", None, true, "one"),
            prompt("bbbb1", None, true, "two"),
            calls("aaaa2", "aaaa1", true, &[("t3", "Write", write("/ship/one"))]),
            calls("bbbb2", "bbbb1", true, &[("t4", "Write", write("/ship/two"))]),
            returns("bbbb3", "bbbb2", true, "t4", "File created", json!({ "type": "create" })),
            returns("aaaa3", "aaaa2", true, "t3", "updated", json!({ "type": "update" })),
            says("bbbb4", "bbbb3", true, "second done"),
            says("aaaa4", "aaaa3", true, "first done"),
            returns("u3", "u2", false, "t1", "first done", json!({ "totalTokens": 5 })),
            returns("u4", "u3", false, "t2", "second done", json!({ "totalTokens": 5 })),
            says("u5", "u4", false, "both done"),
        ],
    );
    assert_eq!(
        told,
        [
            "main: prompt go",
            "main: spawns t1 one",
            "main: spawns t2 two",
            "inline-aaaa1: prompt one",
            "inline-bbbb1: prompt two",
            "inline-bbbb1: create /ship/two",
            "inline-aaaa1: update /ship/one",
            "inline-bbbb1: used 5 for m-bbbb4",
            "inline-bbbb1: says second done",
            "inline-aaaa1: used 5 for m-aaaa4",
            "inline-aaaa1: says first done",
            "main: t1 completed",
            "inline-aaaa1: rests completed first done",
            "inline-bbbb1: rests completed second done",
            "main: t1 returned first done",
            "main: t2 completed",
            "main: t2 returned second done",
            "main: used 5 for m-u5",
            "main: says both done",
            "main: rests completed both done",
        ]
    );
}

#[test]
fn an_agents_own_file_may_begin_without_its_prompt() {
    // 2.0.60: beside the session's file, and the prompt is not in it.
    let without = told(
        Some("c0ffee00"),
        &[
            calls("s1", "none", true, &[("t2", "Write", write("/ship/a"))]),
            returns("s2", "s1", true, "t2", "File created", json!({ "type": "create" })),
            says("s3", "s2", true, "done"),
        ],
    );
    assert_eq!(
        without,
        [
            "c0ffee00: starts",
            "c0ffee00: create /ship/a",
            "c0ffee00: used 5 for m-s3",
            "c0ffee00: says done",
            "c0ffee00: rests completed done",
        ]
    );
    let with = told(Some("c0ffee00"), &[prompt("s1", None, true, "[ROLE:mate] go"), says("s2", "s1", true, "done")]);
    assert_eq!(with[0], "c0ffee00: prompt [ROLE:mate] go");
    // The session's own names the agent.
    let main = told(
        None,
        &[
            prompt("u1", None, false, "go"),
            calls("u2", "u1", false, &[("t1", "Task", spawn("[ROLE:mate] go"))]),
            returns("u3", "u2", false, "t1", "done", json!({ "status": "completed", "agentId": "c0ffee00" })),
        ],
    );
    assert_eq!(main[2..], ["main: t1 completed", "main: t1 = c0ffee00 by tool_result"]);
}

#[test]
fn nobody_waits_for_an_agent_that_is_warmed_up() {
    // 2.1.2, when it comes to another session before the answer does.
    let asked = prompt("s1", None, true, "Warmup");
    assert_eq!(told(Some("a1"), std::slice::from_ref(&asked)), ["a1: prompt Warmup", "a1: rests incomplete"]);
    let answered = told(Some("a1"), &[asked, says("s2", "s1", true, "warm")]);
    assert_eq!(answered.last().map(String::as_str), Some("a1: rests completed warm"));
    assert_eq!(told(Some("a1"), &[prompt("s1", None, true, "go")]), ["a1: prompt go"]);
}

#[test]
fn a_prompt_that_is_written_late_is_of_the_run_that_began() {
    // 2.1.40: the answer stands before the prompt.
    let lines = [says("s2", "s1", true, "done"), prompt("s1", None, true, "[ROLE:mate] go")];
    let said = told(Some("a1"), &lines);
    assert_eq!(said, ["a1: starts", "a1: used 5 for m-s2", "a1: says done", "a1: rests completed done"]);
    // One that was resumed begins again.
    let again = [&lines[..], &[prompt("s3", Some("s2"), true, "go on"), says("s4", "s3", true, "again")]].concat();
    let said = told(Some("a1"), &again);
    assert_eq!(said[4..], ["a1: prompt go on", "a1: used 5 for m-s4", "a1: says again", "a1: rests completed again"]);
}

#[test]
fn a_meta_file_says_which_call_it_was() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("agent-a1.jsonl");
    fs::write(&path, format!("{}\n", prompt("s1", None, true, "[ROLE:mate] go"))).unwrap();
    let meta = json!({ "agentType": "general-purpose", "toolUseId": "t1", "spawnDepth": 2 });
    fs::write(folder.path().join("agent-a1.meta.json"), meta.to_string()).unwrap();
    let (facts, ..) = read(&path, Some("a1"), None);
    let Fact::Subagent(about) = &facts[0].fact else { panic!("{facts:?}") };
    assert_eq!((about.agent_type.as_deref(), about.depth), (Some("general-purpose"), Some(2)));
    let said: Vec<_> = facts.iter().filter_map(shown).collect();
    assert_eq!(said, ["a1: t1 = a1 by meta_json", "a1: prompt [ROLE:mate] go"]);
    let Some(Fact::Subagent(about)) =
        facts.iter().map(|seen| &seen.fact).rfind(|fact| matches!(fact, Fact::Subagent(_)))
    else {
        panic!("{facts:?}")
    };
    assert_eq!(about.tagged_role.as_deref(), Some("mate"));
}

#[test]
fn progress_names_both_and_counts_nothing() {
    let progress = |kind: &str| {
        let copy =
            json!({ "type": "assistant", "message": { "id": "m9", "usage": { "output_tokens": 50 }, "content": [] } });
        json!({
            "type": "progress", "uuid": "p1", "parentToolUseID": "t1", "toolUseID": "x", "timestamp": "2026-02-27T09:00:00Z",
            "data": { "type": kind, "agentId": "ac44e63", "message": copy },
        })
    };
    let told = told(
        None,
        &[
            prompt("u1", None, false, "go"),
            calls("u2", "u1", false, &[("t1", "Task", spawn("one"))]),
            progress("agent_progress"),
            progress("agent_progress"),
            progress("hook_progress"),
        ],
    );
    assert_eq!(told, ["main: prompt go", "main: spawns t1 one", "main: t1 = ac44e63 by agent_progress"]);
}

#[test]
fn an_agent_in_the_background_ends_with_its_notification() {
    let launched = json!({ "isAsync": true, "status": "async_launched", "agentId": "a1" });
    let begin = || {
        vec![
            prompt("u1", None, false, "go"),
            calls("u2", "u1", false, &[("t1", "Agent", spawn("one"))]),
            returns("u3", "u2", false, "t1", "Async agent launched", launched.clone()),
        ]
    };
    let begun = ["main: prompt go", "main: spawns t1 one", "main: t1 async_launched", "main: t1 = a1 by tool_result"];
    // 2.1.69 and later: a prompt, which names the call.
    let text = "<task-notification>\n<task-id>a1</task-id>\n<tool-use-id>t1</tool-use-id>\n<status>completed</status>\n</task-notification>";
    let mut newer = begin();
    newer.push(prompt("u4", Some("u3"), false, text));
    let ended = ["main: is told of t1", "main: t1 = a1 by task_notification", "main: t1 completed"];
    assert_eq!(told(None, &newer), [&begun[..], &ended].concat());
    for (said, result) in [
        (
            "<status>failed</status>\n<summary>Agent \"one\" failed: no model</summary>",
            "t1 failed: Agent \"one\" failed: no model",
        ),
        ("<status>killed</status>", "t1 killed"),
    ] {
        let text = format!(
            "<task-notification>\n<task-id>a1</task-id>\n<tool-use-id>t1</tool-use-id>\n{said}\n</task-notification>"
        );
        let mut line = prompt("u4", Some("u3"), false, &text);
        line["origin"] = json!({ "kind": "task-notification" });
        let ended = told(None, &[begin(), vec![line]].concat());
        assert_eq!(ended.last().unwrap(), &format!("main: {result}"));
        assert!(!ended.iter().any(|said| said.contains("prompt <")), "{ended:?}");
    }
    // 2.1.40 and 2.0.60: in the queue only, without the call.
    for text in [
        "<task-notification>\n<task-id>a1</task-id>\n<status>completed</status>\n</task-notification>",
        "<agent-notification>\n<agent-id>a1</agent-id>\n<status>completed</status>\n</agent-notification>",
    ] {
        let mut older = begin();
        older.push(json!({ "type": "queue-operation", "operation": "enqueue", "timestamp": "2026-02-27T09:00:01Z", "content": text }));
        assert_eq!(told(None, &older), [&begun[..], &["main: t1 completed"]].concat());
    }
}

#[test]
fn an_agent_launches_others_in_words() {
    let said = "Async agent launched successfully. (This is internal.)\nagentId: a1 (internal ID)\nIt is working in the background.";
    let lines = [
        prompt("u1", None, false, "go"),
        calls("u2", "u1", false, &[("t1", "Agent", spawn("one"))]),
        returns("u3", "u2", false, "t1", said, Value::Null),
    ];
    let told = told(Some("a0"), &lines);
    assert_eq!(told[told.len() - 2..], ["a0: t1 async_launched", "a0: t1 = a1 by tool_result"]);
}

#[test]
fn what_is_no_prompt_begins_nothing() {
    let mut lines = vec![prompt("u1", None, false, "go"), says("u2", "u1", false, "done")];
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
    let begun = ["main: prompt go", "main: used 5 for m-u2", "main: says done", "main: rests completed done"];
    assert_eq!(told(None, &lines), begun);
    // A command of one's own is one, as it was typed.
    lines.push(prompt(
        "u9",
        Some("u2"),
        false,
        "<command-message>mine</command-message>\n<command-name>/mine</command-name>\n<command-args>a b</command-args>",
    ));
    assert_eq!(told(None, &lines), [&begun[..], &["main: prompt /mine a b"]].concat());
}

#[test]
fn the_end_of_run_prompt_is_no_prompt_and_its_answer_no_answer() {
    for feedback in [
        "Stop hook feedback:\n[Trackway: end of run] Before you stop",
        // 1.0 makes a list.
        "Stop hook feedback:\n- [Trackway: end of run] Before you stop",
    ] {
        let said = told(
            Some("a1"),
            &[
                prompt("s1", None, true, "go"),
                says("s2", "s1", true, "the answer"),
                prompt("s3", Some("s2"), true, feedback),
                says("s4", "s3", true, "{}"),
            ],
        );
        assert_eq!(
            said,
            [
                "a1: prompt go",
                "a1: used 5 for m-s2",
                "a1: says the answer",
                "a1: rests completed the answer",
                "a1: used 5 for m-s4",
                "a1: closes {}",
            ]
        );
    }
    // Another's hook makes the agent go on: its later words are the last.
    let said = told(
        Some("a1"),
        &[
            prompt("s1", None, true, "go"),
            says("s2", "s1", true, "early"),
            prompt("s3", Some("s2"), true, "Stop hook feedback:\nrun the tests"),
            says("s4", "s3", true, "late"),
        ],
    );
    assert_eq!(
        said[1..].iter().filter(|said| said.contains("rests")).collect::<Vec<_>>(),
        ["a1: rests completed late"]
    );
}

#[test]
fn errors_and_interrupts_end_a_turn() {
    let mut failed = says("u2", "u1", false, "API Error: 400");
    failed["isApiErrorMessage"] = json!(true);
    failed["message"]["model"] = json!("<synthetic>");
    let interrupted = line(
        "u4",
        Some("u3"),
        false,
        "user",
        json!({ "content": [{ "type": "text", "text": "[Request interrupted by user for tool use]" }] }),
    );
    let said =
        told(None, &[prompt("u1", None, false, "go"), failed, prompt("u3", Some("u2"), false, "again"), interrupted]);
    assert_eq!(
        said,
        ["main: prompt go", "main: rests failed API Error: 400", "main: prompt again", "main: rests cancelled"]
    );
    let mut refused =
        returns("u3", "u2", false, "t1", "Agent type 'x' not found", json!("Error: Agent type 'x' not found"));
    refused["message"]["content"][0]["is_error"] = json!(true);
    let said = told(
        None,
        &[prompt("u1", None, false, "go"), calls("u2", "u1", false, &[("t1", "Task", spawn("one"))]), refused],
    );
    assert_eq!(said[2..], ["main: t1 failed: Agent type 'x' not found"]);
}

#[test]
fn usage_is_told_once_per_message_with_the_most_output() {
    let part = |uuid: &str, output: u32, block: Value| {
        let message = json!({ "id": "m1", "model": "m", "usage": { "input_tokens": 3, "output_tokens": output }, "content": [block] });
        line(uuid, Some("u1"), false, "assistant", message)
    };
    let said = told(
        None,
        &[
            prompt("u1", None, false, "go"),
            part("u2", 1, json!({ "type": "thinking", "thinking": "hm" })),
            part("u3", 1, json!({ "type": "text", "text": "done" })),
            part("u4", 23, json!({ "type": "tool_use", "id": "t1", "name": "Read", "input": {} })),
        ],
    );
    assert_eq!(said, ["main: prompt go", "main: used 23 for m1", "main: says done"]);
}

#[test]
fn usage_is_told_per_request_and_without_an_id_per_line() {
    let part = |uuid: &str, id: Value, request: Value, output: Value| {
        let message =
            json!({ "id": id, "model": "m", "usage": { "input_tokens": 3.0, "output_tokens": output }, "content": [] });
        let mut line = line(uuid, Some("u1"), false, "assistant", message);
        line["requestId"] = request;
        line
    };
    let said = told(
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
    assert_eq!(said, [&["main: prompt go"][..], &used].concat());
}

#[test]
fn half_a_character_loses_no_line() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("transcript.jsonl");
    let content = json!({ "file_path": "/ship/a", "content": "cut HALF" });
    let lines = [
        prompt("u1", None, false, "cut HALF here"),
        calls("u2", "u1", false, &[("t1", "Write", content)]),
        returns("u3", "u2", false, "t1", "File created HALF", json!({ "type": "create", "content": "cut HALF" })),
        says("u4", "u3", false, "bye HALF"),
    ];
    let text: String = lines.iter().map(|line| format!("{line}\n").replace("HALF", "\\ud83d")).collect();
    // The answer to a call that was read before finds it again.
    let end = text.match_indices('\n').nth(1).unwrap().0 + 1;
    fs::write(&path, &text[..end]).unwrap();
    let (first, mark, _) = read(&path, None, None);
    fs::write(&path, &text).unwrap();
    let (second, _, tally) = read(&path, None, Some(&mark));
    let said: Vec<_> = first.iter().chain(&second).filter_map(shown).collect();
    assert_eq!(
        said,
        [
            "main: prompt cut \u{fffd} here",
            "main: create /ship/a",
            "main: used 5 for m-u4",
            "main: says bye \u{fffd}",
            "main: rests completed bye \u{fffd}",
        ]
    );
    assert_eq!(tally.bad_lines, 0);
    // As the client writes it to the file.
    let wanted = digest("cut \u{fffd}".as_bytes());
    let of_file = second.iter().find_map(|seen| match &seen.fact {
        Fact::File(file) => file.digest.clone(),
        _ => None,
    });
    assert_eq!(of_file, Some(wanted));
}

#[test]
fn a_file_that_was_replaced_in_place_is_read_anew() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("transcript.jsonl");
    let tell = |texts: &[&str]| -> String {
        // The first hundred bytes are those of every session.
        let line = |(number, text): (usize, &&str)| {
            format!(
                "{{\"parentUuid\":null,\"isSidechain\":false,\"userType\":\"external\",\"entrypoint\":\"cli\",\"version\":\"2.1.197\",\"type\":\"user\",\"uuid\":\"{text}-{number}\",\"message\":{{\"content\":\"{text}\"}}}}\n"
            )
        };
        texts.iter().enumerate().map(line).collect()
    };
    let said = |facts: &[Seen]| facts.iter().filter_map(shown).collect::<Vec<_>>();
    fs::write(&path, tell(&["first", "second"])).unwrap();
    let (_, mark, _) = read(&path, None, None);
    fs::write(&path, tell(&["first", "second", "third"])).unwrap();
    let (facts, mark, _) = read(&path, None, Some(&mark));
    assert_eq!(said(&facts), ["main: prompt third"]);
    fs::write(&path, tell(&["other", "things", "were", "said"])).unwrap();
    let (facts, newer, _) = read(&path, None, Some(&mark));
    assert_eq!(said(&facts), ["main: prompt other", "main: prompt things", "main: prompt were", "main: prompt said"]);
    // The same beginning, and another end.
    fs::write(&path, tell(&["other", "things", "went", "said", "more"])).unwrap();
    assert_eq!(said(&read(&path, None, Some(&newer)).0).len(), 5);

    // Where an older version stopped, nothing is known but the beginning: it goes on.
    let mut older = mark;
    older.state.as_object_mut().unwrap().remove("seal");
    fs::write(&path, tell(&["first", "second", "third", "fourth"])).unwrap();
    assert_eq!(said(&read(&path, None, Some(&older)).0), ["main: prompt fourth"]);
}

#[test]
fn half_a_line_waits_and_an_answer_finds_its_call_in_what_was_read_before() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("transcript.jsonl");
    let first = format!(
        "{}\n{}\n",
        prompt("u1", None, false, "go"),
        calls("u2", "u1", false, &[("t1", "Write", write("/ship/a"))])
    );
    let second = format!("{}\n", returns("u3", "u2", false, "t1", "File created", json!({ "type": "create" })));
    let (half, rest) = second.split_at(50);
    fs::write(&path, format!("{first}{half}")).unwrap();
    let (facts, mark, tally) = read(&path, None, None);
    assert_eq!(facts.iter().filter_map(shown).collect::<Vec<_>>(), ["main: prompt go"]);
    assert_eq!((mark.offset, tally.lines, tally.bad_lines), (first.len() as u64, 2, 0));
    fs::write(&path, format!("{first}{half}{rest}")).unwrap();
    let (facts, mark, _) = read(&path, None, Some(&mark));
    assert_eq!(facts.iter().filter_map(shown).collect::<Vec<_>>(), ["main: create /ship/a"]);
    assert!(!has_news(&path, Some(&mark)));
}

#[test]
fn words_before_more_to_come_were_not_the_last() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("transcript.jsonl");
    let first = format!("{}\n{}\n", prompt("u1", None, false, "go"), says("u2", "u1", false, "I look."));
    fs::write(&path, &first).unwrap();
    let (facts, mark, _) = read(&path, None, None);
    assert_eq!(facts.iter().filter_map(shown).next_back().unwrap(), "main: rests completed I look.");
    fs::write(&path, format!("{first}{}\n", calls("u3", "u2", false, &[("t1", "Write", write("/ship/a"))]))).unwrap();
    let (facts, ..) = read(&path, None, Some(&mark));
    assert_eq!(facts.iter().filter_map(shown).collect::<Vec<_>>(), ["main: rests running"]);
}

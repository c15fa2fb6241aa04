//! `trackway ingest`: growing, replaced and damaged transcripts, excluded directories and clean-ups.

use std::{
    fs::{self, File},
    io::Write,
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, SystemTime},
};

use serde_json::{Value, json};
use trackway_store::{Url, connection::Connection};
use trackway_testkit::Engine;

use crate::{
    record::comparable_record,
    terminal::{Terminal, both_engines, column, run_command, text},
};

pub const SESSION: &str = "11111111-1111-4111-8111-111111111111";
pub const OTHER: &str = "22222222-2222-4222-8222-222222222222";
pub const AGENT: &str = "a0123456789abcdef";

/// Writes transcript lines of one session. Each line is one second later than the line before and has a new id.
pub struct TranscriptWriter {
    session: &'static str,
    cwd: String,
    agent: Option<&'static str>,
    seconds: u32,
    prompt: String,
}

impl TranscriptWriter {
    pub fn new(session: &'static str, cwd: &str) -> Self {
        Self { session, cwd: cwd.to_owned(), agent: None, seconds: 0, prompt: String::new() }
    }

    pub fn for_agent(self, agent: &'static str) -> Self {
        Self { agent: Some(agent), seconds: 100, prompt: "p1".to_owned(), ..self }
    }

    pub fn line(&mut self, kind: &str, more: &Value) -> String {
        self.seconds += 1;
        let writer = self.agent.unwrap_or(self.session);
        let mut line = json!({
            "type": kind, "sessionId": self.session, "uuid": format!("line-{writer}-{}", self.seconds), "cwd": self.cwd,
            "version": "2.1.197", "gitBranch": "main", "isSidechain": self.agent.is_some(),
            "timestamp": format!("2026-02-27T09:{:02}:{:02}.000Z", self.seconds / 60, self.seconds % 60),
        });
        if let Some(agent) = self.agent {
            line["agentId"] = json!(agent);
        }
        for (field, value) in more.as_object().unwrap() {
            line[field] = value.clone();
        }
        format!("{line}\n")
    }

    pub fn prompt(&mut self, text: &str) -> String {
        if self.agent.is_none() {
            self.prompt = format!("prompt-{}-{}", self.session, self.seconds);
        }
        let prompt = self.prompt.clone();
        self.line("user", &json!({ "promptId": prompt, "message": { "role": "user", "content": text } }))
    }

    pub fn assistant(&mut self, message: &str, stop: Option<&str>, output: u32, block: &Value) -> String {
        let usage = json!({ "input_tokens": 10, "output_tokens": output });
        let message = json!({ "id": message, "model": "m", "role": "assistant", "stop_reason": stop, "usage": usage, "content": [block] });
        let request = format!("req-{}", message["id"].as_str().unwrap());
        self.line("assistant", &json!({ "requestId": request, "message": message }))
    }

    pub fn reply(&mut self, message: &str, stop: Option<&str>, output: u32, reply: &str) -> String {
        self.assistant(message, stop, output, &json!({ "type": "text", "text": reply }))
    }

    pub fn tool_call(&mut self, message: &str, tool: &str, id: &str, input: &Value) -> String {
        self.assistant(message, None, 20, &json!({ "type": "tool_use", "id": id, "name": tool, "input": input }))
    }

    /// The result line of a failed tool call.
    pub fn failed_result(&mut self, id: &str) -> String {
        let content = json!([{ "type": "tool_result", "tool_use_id": id, "content": "denied", "is_error": true }]);
        let prompt = self.prompt.clone();
        self.line("user", &json!({ "promptId": prompt, "message": { "role": "user", "content": content }, "toolUseResult": "Error: denied" }))
    }

    pub fn tool_result(&mut self, id: &str, output: &str, result: &Value) -> String {
        let content = json!([{ "type": "tool_result", "tool_use_id": id, "content": output }]);
        let prompt = self.prompt.clone();
        self.line(
            "user",
            &json!({ "promptId": prompt, "message": { "role": "user", "content": content }, "toolUseResult": result }),
        )
    }
}

/// The lines of a session's transcript (`None`) and of its subagent's transcript, in the order of writing.
pub fn sample_transcript_lines() -> Vec<(Option<&'static str>, String)> {
    let mut main = TranscriptWriter::new(SESSION, "/ship");
    let mut sub = TranscriptWriter::new(SESSION, "/ship").for_agent(AGENT);
    let spawn =
        json!({ "prompt": "[ROLE:mate] MEND: the sail", "description": "mend", "subagent_type": "general-purpose" });
    let content = |path: &str| json!({ "file_path": path, "content": "one\ntwo\n" });
    let created = json!({ "type": "create", "structuredPatch": [] });
    let mut lines = vec![
        (None, main.prompt("set sail")),
        (None, main.reply("m1", None, 1, "First the sail.")),
        (None, main.tool_call("m1", "Agent", "t1", &spawn)),
        (Some(AGENT), sub.prompt("[ROLE:mate] MEND: the sail")),
        (Some(AGENT), sub.reply("m2", None, 1, "I look at it.")),
        (Some(AGENT), sub.tool_call("m2", "Write", "t2", &content("/ship/sail.txt"))),
        (Some(AGENT), sub.tool_result("t2", "File created successfully at: /ship/sail.txt", &Value::Null)),
        (Some(AGENT), sub.reply("m3", Some("end_turn"), 30, "It holds.")),
        (None, main.tool_result("t1", "It holds.", &json!({ "status": "completed", "agentId": AGENT }))),
        (None, main.line("a-type-of-tomorrow", &json!({ "payload": [1, 2] }))),
        (None, main.tool_call("m4", "Write", "t3", &content("/ship/log.txt"))),
        (None, main.tool_result("t3", "File created", &created)),
        // Old client versions write neither a stop reason nor token counts.
        (None, main.reply("m5", None, 1, "Under way.")),
        (None, main.prompt("and the anchor?")),
        (None, main.reply("m6", None, 1, "I look.")),
        (
            None,
            main.line(
                "user",
                &json!({ "message": { "content": [{ "type": "text", "text": "[Request interrupted by user]" }] } }),
            ),
        ),
        (None, main.prompt("go on")),
        (None, main.reply("m7", None, 1, "It is up")),
        (None, main.reply("m7", Some("end_turn"), 40, "and stowed.")),
    ];
    lines.push((None, main.tool_call("m8", "Write", "t4", &content("/ship/late.txt"))));
    lines
}

/// The folder in the terminal's home where Claude Code writes the transcripts of one project.
pub struct TranscriptFolder(PathBuf);

impl TranscriptFolder {
    pub fn new(terminal: &Terminal) -> Self {
        let folder = terminal.home.path().join(".claude/projects/-ship");
        fs::create_dir_all(&folder).unwrap();
        Self(folder)
    }

    pub fn file(&self, agent: Option<&str>) -> PathBuf {
        match agent {
            None => self.0.join(format!("{SESSION}.jsonl")),
            Some(agent) => self.0.join(SESSION).join("subagents").join(format!("agent-{agent}.jsonl")),
        }
    }

    pub fn append(&self, agent: Option<&str>, text: &str) {
        let path = self.file(agent);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        File::options().create(true).append(true).open(path).unwrap().write_all(text.as_bytes()).unwrap();
    }

    pub fn write(&self, name: &str, content: &[u8]) -> PathBuf {
        let path = self.0.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, content).unwrap();
        path
    }
}

pub fn ingest(terminal: &Terminal) -> Value {
    terminal.json(&["ingest", projects_folder(terminal).to_str().unwrap()])
}

/// Ingests transcripts with problems. Returns the result and the standard error output.
fn ingest_with_stderr(terminal: &Terminal) -> (Value, String) {
    let output = run_command(terminal.command(&["ingest", projects_folder(terminal).to_str().unwrap(), "--json"]));
    assert_eq!(output.code, 0, "{}", output.stderr);
    (serde_json::from_str::<Value>(&output.stdout).unwrap()["data"].clone(), output.stderr)
}

pub fn projects_folder(terminal: &Terminal) -> PathBuf {
    terminal.home.path().join(".claude/projects")
}

/// The comparable record with the home directory replaced by `HOME`.
pub fn record_without_home(terminal: &Terminal) -> String {
    comparable_record(terminal).replace(terminal.home.path().to_str().unwrap(), "HOME")
}

pub fn engine(terminal: &Terminal) -> Engine {
    match terminal.database.url() {
        Url::Sqlite(_) => Engine::Sqlite,
        Url::Postgres(_) => Engine::Postgres,
    }
}

/// The record of a new database after one ingest of all these lines.
pub fn record_after_one_ingest(engine: Engine, lines: &[(Option<&str>, String)]) -> String {
    let terminal = Terminal::new(engine);
    let folder = TranscriptFolder::new(&terminal);
    for (agent, line) in lines {
        folder.append(*agent, line);
    }
    ingest(&terminal);
    record_without_home(&terminal)
}

fn row_count(terminal: &Terminal, table: &str) -> i64 {
    let mut connection = match terminal.database.url() {
        Url::Sqlite(path) => Connection::sqlite(&path, false).unwrap(),
        Url::Postgres(_) => Connection::postgres(&terminal.database.url_text()).unwrap(),
    };
    connection.query::<(i64,)>(&format!("select count(*) from {table}"), &[]).unwrap()[0].0
}

#[test]
fn ingest_after_each_half_line_equals_one_ingest_of_all_lines() {
    let terminal = Terminal::new(Engine::Sqlite);
    let folder = TranscriptFolder::new(&terminal);
    let lines = sample_transcript_lines();
    for (number, (agent, line)) in lines.iter().enumerate() {
        // Ingest must wait for the second half of a line.
        let (start, rest) = line.split_at(line.len() / 2);
        folder.append(*agent, start);
        ingest(&terminal);
        folder.append(*agent, rest);
        ingest(&terminal);
        let expected = format!("{number}\n{}", record_after_one_ingest(Engine::Sqlite, &lines[..=number]));
        snapbox::assert_data_eq!(
            format!("{number}\n{}", record_without_home(&terminal)),
            snapbox::IntoData::raw(expected)
        );
    }
}

both_engines! {
    fn ingest_at_any_byte_offset_equals_one_ingest_of_all_lines(terminal: Terminal) {
        let lines = sample_transcript_lines();
        let expected = record_after_one_ingest(engine(&terminal), &lines);
        let folder = TranscriptFolder::new(&terminal);
        let session = terminal.json(&["session", "list"]);
        assert_eq!(session, json!([]));
        // The cuts are at varying byte offsets within the lines.
        for (number, (agent, line)) in lines.iter().enumerate() {
            let cut = (number * 37 + 11) % line.len();
            folder.append(*agent, &line[..cut]);
            if number % 3 == 1 {
                ingest(&terminal);
            }
            folder.append(*agent, &line[cut..]);
        }
        ingest(&terminal);
        snapbox::assert_data_eq!(record_without_home(&terminal), snapbox::IntoData::raw(expected));
        let prompts = terminal.json(&["session", "show", SESSION])["prompts"].clone();
        assert_eq!(column(&prompts, "status"), ["completed", "cancelled", "running"]);
        assert_eq!(column(&prompts, "final_message"), ["Under way.", "null", "null"]);
        assert_eq!(column(&prompts, "ended_at"), ["2026-02-27T09:00:08.000Z", "2026-02-27T09:00:11.000Z", "null"]);
        let runs = terminal.json(&["run", "list"]);
        let usage = column(&runs, "id").iter().flat_map(|id| column(&terminal.json(&["run", "show", id])["usage"], "output_tokens")).collect::<Vec<_>>();
        assert_eq!(usage, ["20", "30", "40", "20", "1", "20", "20", "1"].map(str::to_owned));
    }

    fn truncated_or_replaced_transcript_is_read_from_the_start(terminal: Terminal) {
        let folder = TranscriptFolder::new(&terminal);
        let lines = sample_transcript_lines();
        for (agent, line) in &lines {
            folder.append(*agent, line);
        }
        ingest(&terminal);
        let before = record_without_home(&terminal);
        // The file is truncated in the middle of a line and then restored.
        let original = fs::read(folder.file(None)).unwrap();
        File::options().write(true).open(folder.file(None)).unwrap().set_len(original.len() as u64 / 2).unwrap();
        ingest(&terminal);
        snapbox::assert_data_eq!(record_without_home(&terminal), snapbox::IntoData::raw(before.clone()));
        fs::write(folder.file(None), &original).unwrap();
        ingest(&terminal);
        snapbox::assert_data_eq!(record_without_home(&terminal), snapbox::IntoData::raw(before));
        // Another file replaces the transcript: ingest adds the facts of the new file.
        let mut other = TranscriptWriter::new(SESSION, "/ship");
        other.seconds = 1_000;
        let new = other.prompt("a new voyage") + &other.reply("m9", Some("end_turn"), 7, "Aye.");
        folder.write("new", new.as_bytes());
        fs::rename(folder.0.join("new"), folder.file(None)).unwrap();
        ingest(&terminal);
        let prompts = terminal.json(&["session", "show", SESSION])["prompts"].clone();
        assert_eq!(column(&prompts, "final_message"), ["Under way.", "null", "null", "Aye."]);
        assert_eq!(ingest(&terminal)["bytes"], 0);
        // The content changes in place; length and modification time stay the same.
        let modified = fs::metadata(folder.file(None)).unwrap().modified().unwrap();
        let newer = new.replace("a new voyage", "another trip").replace("T09:16:", "T09:26:").replace("Aye.", "Nay.").replace("m9", "m8");
        assert_eq!(newer.len(), new.len());
        let mut file = File::options().write(true).open(folder.file(None)).unwrap();
        file.write_all(newer.replace("line-", "next-").as_bytes()).unwrap();
        file.set_modified(modified).unwrap();
        ingest(&terminal);
        let prompts = terminal.json(&["session", "show", SESSION])["prompts"].clone();
        assert_eq!(column(&prompts, "final_message"), ["Under way.", "null", "null", "Aye.", "Nay."]);
        assert_eq!(ingest(&terminal)["bytes"], 0);
    }

    fn ingest_reports_bad_files_and_lines_and_reads_the_others(terminal: Terminal) {
        let folder = TranscriptFolder::new(&terminal);
        let mut main = TranscriptWriter::new(SESSION, "/ship");
        let long = "x".repeat(2 << 20);
        let mut bytes = main.prompt("set sail").into_bytes();
        let bad_at = bytes.len();
        bytes.extend_from_slice(b"not json at all\n");
        bytes.extend_from_slice(b"[1, 2]\n\"text\"\n\n7\n");
        // Invalid UTF-8 in a text does not make the line bad.
        let mut invalid_utf8 = main.reply("m1", None, 5, "caf?").into_bytes();
        let mark = invalid_utf8.iter().position(|byte| *byte == b'?').unwrap();
        invalid_utf8[mark] = 0xe9;
        bytes.extend_from_slice(&invalid_utf8);
        bytes.extend_from_slice(main.reply("m2", Some("end_turn"), 6, &long).as_bytes());
        bytes.extend_from_slice(b"{\"type\":\"user\",\"message\":{\"content\":{\"odd\":1}},\"timestamp\":5}\n");
        bytes.extend_from_slice(b"{\"type\":7}\n");
        folder.write(&format!("{SESSION}.jsonl"), &bytes);
        folder.write("binary.jsonl", &(0..=255).cycle().take(10_000).collect::<Vec<u8>>());
        folder.write(&format!("{OTHER}.jsonl"), b"");
        folder.write("empty.jsonl", b"");
        fs::create_dir(folder.0.join("33333333-3333-4333-8333-333333333333.jsonl")).unwrap();
        assert!(Command::new("mkfifo").arg(folder.0.join("pipe.jsonl")).status().unwrap().success());
        std::os::unix::fs::symlink(&folder.0, folder.0.join("cycle")).unwrap();
        folder.write("notes.txt", b"not ours");

        let (ingested, stderr) = ingest_with_stderr(&terminal);
        assert_eq!((&ingested["sessions"], &ingested["lines"], &ingested["bad_lines"]), (&json!(1), &json!(9), &json!(1)), "{stderr}");
        let problems: Vec<String> = ingested["problems"].as_array().unwrap().iter().map(|problem| text(problem).replace(folder.0.to_str().unwrap(), "F")).collect();
        let mut expected = vec![
            "F/binary.jsonl: no line names a session".to_owned(),
            "F/empty.jsonl: no line names a session".to_owned(),
            format!("F/{SESSION}.jsonl: a bad line at byte {bad_at}"),
        ];
        expected.sort();
        let mut actual = problems.clone();
        actual.sort();
        assert_eq!(actual, expected);
        let prompts = terminal.json(&["session", "show", SESSION])["prompts"].clone();
        assert_eq!(column(&prompts, "status"), ["completed"]);
        assert!(text(&prompts[0]["final_message"]).starts_with("xxxx"));
        assert_eq!(column(&terminal.json(&["session", "list"]), "id"), [SESSION]);
        assert_eq!(ingest_with_stderr(&terminal).0["bytes"], 0);
        assert_eq!(terminal.expect_error(&["ingest", "/no/such/place"]).0, 3);
    }

    fn invalid_ids_do_not_block_other_facts(terminal: Terminal) {
        let folder = TranscriptFolder::new(&terminal);
        let mut main = TranscriptWriter::new(SESSION, "/ship");
        let mut lines = main.prompt("set sail");
        lines += &main.tool_call("m1", "Agent", "t1", &json!({ "prompt": "row", "subagent_type": "general-purpose" }));
        lines += &main.tool_result("t1", "rowed", &json!({ "status": "completed", "agentId": "" }));
        lines += &main.tool_call("m2", "Write", "t2", &json!({ "file_path": format!("/ship/{}", "deep/".repeat(780)), "content": "x" }));
        lines += &main.tool_result("t2", "File created successfully", &json!({ "type": "create" }));
        lines += &main.tool_call("m3", "Write", "t\u{0}3", &json!({ "file_path": "/ship/nul.txt", "content": "x" }));
        lines += &main.tool_result("t\u{0}3", "File created successfully", &json!({ "type": "create" }));
        lines += &main.tool_call("m4", "Agent", "t\u{0}\u{7}4", &json!({ "prompt": "odd", "subagent_type": "general-purpose" }));
        lines += &main.tool_result("t\u{0}\u{7}4", "rowed", &json!({ "status": "completed", "agentId": "x\u{7}" }));
        lines += &main.line("progress", &json!({ "parentToolUseID": "t\u{7}", "data": { "type": "agent_progress", "agentId": "b1" } }));
        lines += &main.line("user", &json!({ "uuid": "u\u{7}1", "message": { "content": "odd" } }));
        lines += &main.line("user", &json!({ "isMeta": null, "uuid": "u2", "message": { "content": "a second prompt" } }));
        folder.write(&format!("{SESSION}.jsonl"), lines.as_bytes());
        let long = "a".repeat(220);
        let mut agent = TranscriptWriter::new(SESSION, "/ship").for_agent("b1");
        let row = agent.prompt("row");
        folder.write(&format!("{SESSION}/subagents/agent-{long}.jsonl"), row.as_bytes());
        folder.write(&format!("{SESSION}/subagents/agent-b1.jsonl"), row.as_bytes());
        let meta = json!({ "toolUseId": "t1", "spawnDepth": i64::MAX });
        folder.write(&format!("{SESSION}/subagents/agent-b1.meta.json"), meta.to_string().as_bytes());

        let (ingested, stderr) = ingest_with_stderr(&terminal);
        assert_eq!((&ingested["spawns"], &ingested["matched"], &ingested["touches"]), (&json!(1), &json!(1), &json!(2)), "{stderr}");
        assert_eq!((stderr.as_str(), ingested.get("problems")), ("", None));
        assert_eq!(column(&terminal.json(&["spawn", "list"]), "agent_id"), ["b1"]);
        assert_eq!(terminal.json(&["session", "show", SESSION])["prompts"].as_array().unwrap().len(), 2);
    }

    fn prompt_idle_for_two_hours_is_ingested_as_incomplete(terminal: Terminal) {
        let folder = TranscriptFolder::new(&terminal);
        let mut main = TranscriptWriter::new(SESSION, "/ship");
        let lines = main.prompt("set sail") + &main.tool_call("m1", "Bash", "t1", &json!({ "command": "sleep 1" }));
        let path = folder.write(&format!("{SESSION}.jsonl"), lines.as_bytes());
        File::options().append(true).open(path).unwrap().set_modified(SystemTime::now() - Duration::from_hours(2)).unwrap();
        ingest(&terminal);
        let prompts = terminal.json(&["session", "show", SESSION])["prompts"].clone();
        assert_eq!(column(&prompts, "status"), ["incomplete"]);
        assert_eq!(text(&prompts[0]["ended_at"]), "2026-02-27T09:00:02.000Z");
    }

    fn running_prompt_becomes_incomplete_after_two_idle_hours(terminal: Terminal) {
        let folder = TranscriptFolder::new(&terminal);
        let mut main = TranscriptWriter::new(SESSION, "/ship");
        let lines = main.prompt("set sail") + &main.tool_call("m1", "Bash", "t1", &json!({ "command": "sleep 1" }));
        let path = folder.write(&format!("{SESSION}.jsonl"), lines.as_bytes());
        ingest(&terminal);
        let status = || column(&terminal.json(&["session", "show", SESSION])["prompts"], "status");
        assert_eq!(status(), ["running"]);
        assert_eq!(ingest(&terminal)["bytes"], 0);
        assert_eq!(status(), ["running"]);
        File::options().append(true).open(&path).unwrap().set_modified(SystemTime::now() - Duration::from_hours(2)).unwrap();
        assert_eq!(ingest(&terminal)["bytes"], 0);
        assert_eq!(status(), ["incomplete"]);
        // The session continues after all.
        folder.append(None, &main.reply("m2", Some("end_turn"), 5, "Under way."));
        ingest(&terminal);
        assert_eq!(status(), ["completed"]);
    }

    fn transcript_reached_by_different_paths_is_read_once(terminal: Terminal) {
        let folder = TranscriptFolder::new(&terminal);
        for (agent, line) in sample_transcript_lines() {
            folder.append(agent, &line);
        }
        assert_ne!(ingest(&terminal)["bytes"], 0);
        let home = terminal.home.path();
        std::os::unix::fs::symlink(home.join(".claude"), home.join("elsewhere")).unwrap();
        let linked = home.join("elsewhere/projects");
        for path in [".claude/projects", linked.to_str().unwrap(), ".claude/../.claude/projects/-ship"] {
            let again = terminal.json(&["ingest", path]);
            assert_eq!((&again["bytes"], &again["files"]), (&json!(0), &json!(2)), "{path}");
        }
        let linked = linked.join(format!("-ship/{SESSION}.jsonl"));
        let event = json!({ "hook_event_name": "PreCompact", "session_id": SESSION, "transcript_path": linked, "cwd": "/ship" });
        crate::hook::run_hook(&terminal, event.to_string().as_bytes());
        assert_eq!(row_count(&terminal, "transcripts"), 2);
        let (code, message) = terminal.expect_error(&["ingest", "--since", "yesterday"]);
        assert_eq!((code, message.contains("yesterday")), (2, true), "{message}");
        assert_eq!(terminal.json(&["ingest", ".claude/projects", "--since", "2100-01-01"])["files"], 0);
    }

    fn progress_line_of_nested_agent_waits_for_its_spawn(terminal: Terminal) {
        let folder = TranscriptFolder::new(&terminal);
        let mut main = TranscriptWriter::new(SESSION, "/ship");
        let mut sub = TranscriptWriter::new(SESSION, "/ship").for_agent(AGENT);
        let spawn = |prompt: &str| json!({ "prompt": prompt, "subagent_type": "general-purpose" });
        let mut lines = main.prompt("set sail") + &main.tool_call("m1", "Task", "t1", &spawn("same"));
        lines += &main.line("progress", &json!({ "parentToolUseID": "t1", "data": { "type": "agent_progress", "agentId": AGENT } }));
        lines += &main.line("progress", &json!({ "parentToolUseID": "t2", "data": { "type": "agent_progress", "agentId": "b1" } }));
        folder.append(None, &lines);
        // Two calls have the same prompt, so only the progress lines tell the agents apart.
        folder.append(Some(AGENT), &(sub.prompt("same") + &sub.tool_call("m2", "Task", "t2", &spawn("same"))));
        folder.append(Some("b1"), &TranscriptWriter::new(SESSION, "/ship").for_agent("b1").prompt("same"));
        ingest(&terminal);
        let spawns = terminal.json(&["spawn", "list"]);
        assert_eq!(column(&spawns, "agent_id"), [AGENT, "b1"]);
        assert_eq!(column(&spawns, "evidence"), ["agent_progress"; 2]);
        let subagents = terminal.json(&["subagent", "list"]);
        assert_eq!(column(&subagents, "parent_agent_id"), ["null", AGENT]);
    }

    fn inline_agent_gets_the_type_named_by_its_call(terminal: Terminal) {
        let folder = TranscriptFolder::new(&terminal);
        let mut main = TranscriptWriter::new(SESSION, "/ship");
        let inline = |mut line: String, more: Value| {
            let mut read: Value = serde_json::from_str(&line).unwrap();
            for (field, value) in more.as_object().unwrap() {
                read[field] = value.clone();
            }
            read["version"] = json!("1.0.60");
            line.replace_range(.., &format!("{read}\n"));
            line
        };
        let mut lines = inline(main.prompt("go"), json!({}));
        lines += &inline(main.tool_call("m1", "Task", "t1", &json!({ "prompt": "row", "subagent_type": "coder" })), json!({}));
        lines += &inline(main.prompt("row"), json!({ "isSidechain": true, "uuid": "aaaa1", "parentUuid": null }));
        lines += &inline(main.reply("m2", Some("end_turn"), 3, "rowed"), json!({ "isSidechain": true, "parentUuid": "aaaa1" }));
        lines += &inline(main.tool_result("t1", "rowed", &json!({ "content": [] })), json!({}));
        folder.append(None, &lines);
        ingest(&terminal);
        let subagent = terminal.json(&["subagent", "list"])[0].clone();
        let fields = ["agent_type", "role", "role_source"].map(|field| text(&subagent[field]));
        assert_eq!(fields, ["coder", "coder", "subagent_type"]);
        assert!(column(&terminal.json(&["run", "list"]), "agent").contains(&"coder@ship".to_owned()));
    }

    fn forget_removes_all_rows_of_a_session(terminal: Terminal) {
        let folder = TranscriptFolder::new(&terminal);
        for (agent, line) in sample_transcript_lines() {
            folder.append(agent, &line);
        }
        let mut other = TranscriptWriter::new(OTHER, "/ship");
        let other_lines = other.prompt("watch") + &other.reply("m20", Some("end_turn"), 3, "All quiet.");
        let path = folder.write(&format!("{OTHER}.jsonl"), other_lines.as_bytes());
        terminal.json(&["ingest", path.to_str().unwrap()]);
        let before = record_without_home(&terminal);
        let row_counts: Vec<i64> = TABLES.iter().map(|table| row_count(&terminal, table)).collect();
        ingest(&terminal);
        let with_both_sessions = record_without_home(&terminal);
        assert_eq!(column(&terminal.json(&["session", "list"]), "id").len(), 2);

        let forgotten = run_command(terminal.command(&["forget", SESSION, "--yes", "--json"]));
        assert_eq!(forgotten.code, 0, "{}", forgotten.stderr);
        let forgotten = serde_json::from_str::<Value>(&forgotten.stdout).unwrap()["data"].clone();
        assert_eq!((&forgotten["runs"], &forgotten["spawns"], &forgotten["touches"]), (&json!(4), &json!(1), &json!(2)));
        snapbox::assert_data_eq!(record_without_home(&terminal), snapbox::IntoData::raw(before));
        assert_eq!(TABLES.iter().map(|table| row_count(&terminal, table)).collect::<Vec<_>>(), row_counts, "{TABLES:?}");
        // The transcript file still exists, so the next ingest reads it again.
        ingest(&terminal);
        snapbox::assert_data_eq!(record_without_home(&terminal), snapbox::IntoData::raw(with_both_sessions));
    }

    fn cleanup_reports_the_number_of_removed_rows(terminal: Terminal) {
        let folder = TranscriptFolder::new(&terminal);
        let mut main = TranscriptWriter::new(SESSION, "/ship");
        let mut lines = main.prompt("go");
        for number in 0..5 {
            let prompt = if number == 1 { "no role".to_owned() } else { format!("[ROLE:r{number}] go") };
            let spawn = json!({ "prompt": prompt, "description": "a job", "subagent_type": "general-purpose" });
            lines += &main.tool_call(&format!("m{number}"), "Agent", &format!("t{number}"), &spawn);
        }
        lines += &main.tool_result("t0", "done", &json!({ "status": "completed", "agentId": AGENT }));
        folder.append(None, &lines);
        ingest(&terminal);
        let spawns = || column(&terminal.json(&["spawn", "list"]), "tool_use_id");
        assert_eq!(spawns(), ["t0", "t1", "t2", "t3", "t4"]);
        assert_eq!(terminal.json(&["cleanup", "old-spawns", "--session", SESSION])["removed"], 0);
        // Cleanup removes t1: the newest three and the matched spawn t0 stay.
        assert_eq!(terminal.json(&["cleanup", "old-spawns", "--session", SESSION, "--keep", "3"])["removed"], 1);
        assert_eq!(spawns(), ["t0", "t2", "t3", "t4"]);
        assert_eq!(terminal.json(&["cleanup", "null-role", "--yes"])["removed"], 0);
        assert_eq!(terminal.json(&["subagent", "list"]).as_array().unwrap().len(), 1);
        assert_eq!(terminal.json(&["cleanup", "session", SESSION])["removed"], 1);
        assert_eq!(terminal.json(&["subagent", "list"]), json!([]));
        assert_eq!(spawns(), ["t0", "t2", "t3", "t4"]);
        assert_eq!(terminal.json(&["cleanup", "session", SESSION])["removed"], 0);
        let spawn = json!({ "prompt": "without", "description": "a job", "subagent_type": "general-purpose" });
        folder.append(None, &main.tool_call("m9", "Agent", "t9", &spawn));
        ingest(&terminal);
        assert_eq!(terminal.json(&["cleanup", "null-role", "--session", SESSION, "--yes"])["removed"], 1);
        assert_eq!(spawns(), ["t0", "t2", "t3", "t4"]);
    }

    fn since_option_skips_transcripts_modified_earlier(terminal: Terminal) {
        let folder = TranscriptFolder::new(&terminal);
        let mut old = TranscriptWriter::new(SESSION, "/ship");
        let mut new = TranscriptWriter::new(OTHER, "/ship");
        let path = folder.write(&format!("{SESSION}.jsonl"), old.prompt("long ago").as_bytes());
        let day = Duration::from_hours(24);
        File::options().write(true).open(path).unwrap().set_modified(SystemTime::now() - 3 * day).unwrap();
        folder.write(&format!("{OTHER}.jsonl"), new.prompt("today").as_bytes());
        let since = iso_time(SystemTime::now() - day);
        let projects = projects_folder(&terminal);
        terminal.json(&["ingest", projects.to_str().unwrap(), "--since", &since]);
        assert_eq!(column(&terminal.json(&["session", "list"]), "id"), [OTHER]);
        ingest(&terminal);
        assert_eq!(terminal.json(&["session", "list"]).as_array().unwrap().len(), 2);
    }
}

/// Tables with rows of sessions.
const TABLES: &[&str] = &[
    "sessions",
    "subagents",
    "task_spawns",
    "spawn_matches",
    "transcripts",
    "messages",
    "contents",
    "runs",
    "run_usage",
    "run_resources",
    "run_steps",
    "file_changes",
    "files",
    "reports",
];

/// Formats a time as an argument of `--since`.
fn iso_time(at: SystemTime) -> String {
    let seconds = at.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
    let printed =
        Command::new("date").args(["-u", "-d", &format!("@{seconds}"), "+%Y-%m-%dT%H:%M:%SZ"]).output().unwrap();
    String::from_utf8(printed.stdout).unwrap().trim().to_owned()
}

#[test]
fn line_of_100_megabytes_without_end_is_skipped() {
    let terminal = Terminal::new(Engine::Sqlite);
    let folder = TranscriptFolder::new(&terminal);
    let mut main = TranscriptWriter::new(SESSION, "/ship");
    let first = main.prompt("set sail");
    folder.append(None, &first);
    let file = File::options().append(true).open(folder.file(None)).unwrap();
    file.set_len(first.len() as u64 + (100 << 20)).unwrap();
    let (ingested, stderr) = ingest_with_stderr(&terminal);
    assert_eq!((&ingested["lines"], &ingested["bad_lines"]), (&json!(2), &json!(1)), "{stderr}");
    let problem = format!("{}: a bad line at byte {}", folder.file(None).display(), first.len());
    assert_eq!(ingested["problems"], json!([problem]));
    // Later ingests do not read the long line again, and skip everything that is appended to the line.
    assert_eq!(ingest_with_stderr(&terminal).0["bytes"], 0);
    folder.append(None, "more of it");
    let (ingested, stderr) = ingest_with_stderr(&terminal);
    assert_eq!(
        (&ingested["bytes"], &ingested["lines"], &ingested["bad_lines"]),
        (&json!(10), &json!(0), &json!(0)),
        "{stderr}"
    );
    folder.append(None, " and its end\n");
    folder.append(None, &main.reply("m1", Some("end_turn"), 5, "Under way."));
    let (ingested, stderr) = ingest_with_stderr(&terminal);
    assert_eq!((&ingested["lines"], &ingested["bad_lines"]), (&json!(1), &json!(0)), "{stderr}");
    assert_eq!(column(&terminal.json(&["run", "list"]), "final_message"), ["Under way."]);
    // Without --json, the problem is a warning on standard error.
    terminal.json(&["forget", SESSION, "--yes"]);
    let output = run_command(terminal.command(&["ingest", projects_folder(&terminal).to_str().unwrap()]));
    assert_eq!(output.stderr, format!("warning: {problem}\n"));
}

/// A home directory with four project directories and one session in each of them.
struct HomeWithProjects {
    terminal: Terminal,
}

impl HomeWithProjects {
    fn new() -> Self {
        let projects = Self { terminal: Terminal::uninitialized(Engine::Sqlite) };
        for (number, name) in ["ship", "ship/hold", "ship-yard", "shore"].iter().enumerate() {
            let cwd = projects.directory(name);
            fs::create_dir_all(&cwd).unwrap();
            let folder_name: String =
                cwd.to_str().unwrap().chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
            let folder = projects.terminal.home.path().join(".claude/projects").join(folder_name);
            fs::create_dir_all(&folder).unwrap();
            let line = json!({ "type": "user", "uuid": format!("line{number}"), "sessionId": session_id(number), "cwd": cwd, "timestamp": "2026-02-27T09:00:00Z", "message": { "content": "go" } });
            fs::write(folder.join(format!("{}.jsonl", session_id(number))), format!("{line}\n")).unwrap();
        }
        projects
    }

    fn directory(&self, directory: &str) -> PathBuf {
        self.terminal.home.path().join(directory)
    }

    /// Runs a command in a directory, without naming a database.
    fn json(&self, directory: &str, arguments: &[&str]) -> Value {
        let mut command = self.terminal.command(arguments);
        command.arg("--json").env_remove("TRACKWAY_DB").current_dir(self.directory(directory));
        let output = run_command(command);
        assert_eq!(output.code, 0, "{arguments:?}: {}", output.stderr);
        serde_json::from_str::<Value>(&output.stdout).unwrap()["data"].clone()
    }

    fn sessions(&self, directory: &str) -> Vec<String> {
        let mut ids = column(&self.json(directory, &["session", "list"]), "id");
        ids.sort();
        ids
    }
}

fn session_id(number: usize) -> String {
    format!("{number}0000000-0000-4000-8000-000000000000")
}

#[test]
fn ingest_into_a_project_database_reads_only_its_sessions() {
    let projects = HomeWithProjects::new();
    projects.json("ship", &["init"]);
    projects.json("ship", &["ingest"]);
    assert_eq!(projects.sessions("ship"), [session_id(0), session_id(1)]);
    // Outside a project with a database, ingest reads all sessions into the user's database.
    projects.json("shore", &["ingest"]);
    assert_eq!(projects.sessions("shore"), [session_id(0), session_id(1), session_id(2), session_id(3)]);
}

#[test]
fn ingest_and_hooks_ignore_excluded_directories() {
    let projects = HomeWithProjects::new();
    let config = projects.terminal.home.path().join(".config/trackway/config.toml");
    fs::create_dir_all(config.parent().unwrap()).unwrap();
    fs::write(&config, format!("exclude = [{:?}]\n", projects.directory("ship"))).unwrap();
    projects.json("shore", &["ingest"]);
    assert_eq!(projects.sessions("shore"), [session_id(2), session_id(3)]);
    let send_hook = |directory: &str, session: &str| {
        let event = json!({ "hook_event_name": "UserPromptSubmit", "session_id": session, "prompt": "go", "cwd": projects.directory(directory) });
        let mut command = projects.terminal.command(&["hook"]);
        command.env_remove("TRACKWAY_DB").current_dir(projects.directory(directory));
        let output = crate::terminal::run_command_with_input(command, event.to_string().as_bytes());
        assert_eq!((output.code, output.stdout.as_str()), (0, ""));
    };
    send_hook("ship/hold", "s-hidden");
    send_hook("ship-yard", "s-shown");
    assert_eq!(projects.sessions("shore"), [session_id(2), session_id(3), "s-shown".to_owned()]);
    assert!(!Path::new(&projects.directory("ship").join(".trackway")).exists());
    // An exclusion may be a symbolic link, start with `~` or contain `..`.
    std::os::unix::fs::symlink(projects.directory("ship"), projects.directory("link")).unwrap();
    for (number, excluded) in ["~/ship", "~/link", "~/shore/../ship/"].iter().enumerate() {
        fs::write(&config, format!("exclude = [{excluded:?}]\n")).unwrap();
        send_hook("ship/hold", &format!("s-hidden-{number}"));
        send_hook("link/hold", &format!("s-hidden-by-link-{number}"));
        projects.json("shore", &["ingest"]);
        assert_eq!(projects.sessions("shore"), [session_id(2), session_id(3), "s-shown".to_owned()], "{excluded}");
    }
    fs::write(&config, "exclude = [\"ship\"]\n").unwrap();
    let (code, message) = projects.terminal.expect_error(&["session", "list"]);
    assert_eq!(code, 2);
    assert!(message.ends_with("config.toml: exclude contains ship, which is not an absolute path"), "{message}");
}

//! `trackway ingest`: whatever lies where transcripts should be, however a transcript grows, and what is left out.

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
    record::record,
    terminal::{Terminal, both_engines, column, ran, text},
};

pub const SESSION: &str = "11111111-1111-4111-8111-111111111111";
pub const OTHER: &str = "22222222-2222-4222-8222-222222222222";
pub const AGENT: &str = "a0123456789abcdef";

/// A session that is being written: the next line has the next second and the next id.
pub struct Writing {
    session: &'static str,
    cwd: String,
    agent: Option<&'static str>,
    seconds: u32,
    prompt: String,
}

impl Writing {
    pub fn new(session: &'static str, cwd: &str) -> Self {
        Self { session, cwd: cwd.to_owned(), agent: None, seconds: 0, prompt: String::new() }
    }

    pub fn of_agent(self, agent: &'static str) -> Self {
        Self { agent: Some(agent), seconds: 100, prompt: "p1".to_owned(), ..self }
    }

    pub fn line(&mut self, kind: &str, more: &Value) -> String {
        self.seconds += 1;
        let whose = self.agent.unwrap_or(self.session);
        let mut line = json!({
            "type": kind, "sessionId": self.session, "uuid": format!("line-{whose}-{}", self.seconds), "cwd": self.cwd,
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

    pub fn says(&mut self, message: &str, stop: Option<&str>, output: u32, words: &str) -> String {
        self.assistant(message, stop, output, &json!({ "type": "text", "text": words }))
    }

    pub fn calls(&mut self, message: &str, tool: &str, id: &str, input: &Value) -> String {
        self.assistant(message, None, 20, &json!({ "type": "tool_use", "id": id, "name": tool, "input": input }))
    }

    /// The result of a call that failed.
    pub fn refused(&mut self, id: &str) -> String {
        let content = json!([{ "type": "tool_result", "tool_use_id": id, "content": "denied", "is_error": true }]);
        let prompt = self.prompt.clone();
        self.line("user", &json!({ "promptId": prompt, "message": { "role": "user", "content": content }, "toolUseResult": "Error: denied" }))
    }

    pub fn result(&mut self, id: &str, said: &str, result: &Value) -> String {
        let content = json!([{ "type": "tool_result", "tool_use_id": id, "content": said }]);
        let prompt = self.prompt.clone();
        self.line(
            "user",
            &json!({ "promptId": prompt, "message": { "role": "user", "content": content }, "toolUseResult": result }),
        )
    }
}

/// A session's file and its agent's, line by line in the order in which they were written.
pub fn voyage() -> Vec<(Option<&'static str>, String)> {
    let mut main = Writing::new(SESSION, "/ship");
    let mut sub = Writing::new(SESSION, "/ship").of_agent(AGENT);
    let spawn =
        json!({ "prompt": "[ROLE:mate] MEND: the sail", "description": "mend", "subagent_type": "general-purpose" });
    let content = |path: &str| json!({ "file_path": path, "content": "one\ntwo\n" });
    let created = json!({ "type": "create", "structuredPatch": [] });
    let mut lines = vec![
        (None, main.prompt("set sail")),
        (None, main.says("m1", None, 1, "First the sail.")),
        (None, main.calls("m1", "Agent", "t1", &spawn)),
        (Some(AGENT), sub.prompt("[ROLE:mate] MEND: the sail")),
        (Some(AGENT), sub.says("m2", None, 1, "I look at it.")),
        (Some(AGENT), sub.calls("m2", "Write", "t2", &content("/ship/sail.txt"))),
        (Some(AGENT), sub.result("t2", "File created successfully at: /ship/sail.txt", &Value::Null)),
        (Some(AGENT), sub.says("m3", Some("end_turn"), 30, "It holds.")),
        (None, main.result("t1", "It holds.", &json!({ "status": "completed", "agentId": AGENT }))),
        (None, main.line("a-type-of-tomorrow", &json!({ "payload": [1, 2] }))),
        (None, main.calls("m4", "Write", "t3", &content("/ship/log.txt"))),
        (None, main.result("t3", "File created", &created)),
        // As old versions leave it: no reason, no numbers.
        (None, main.says("m5", None, 1, "Under way.")),
        (None, main.prompt("and the anchor?")),
        (None, main.says("m6", None, 1, "I look.")),
        (
            None,
            main.line(
                "user",
                &json!({ "message": { "content": [{ "type": "text", "text": "[Request interrupted by user]" }] } }),
            ),
        ),
        (None, main.prompt("go on")),
        (None, main.says("m7", None, 1, "It is up")),
        (None, main.says("m7", Some("end_turn"), 40, "and stowed.")),
    ];
    lines.push((None, main.calls("m8", "Write", "t4", &content("/ship/late.txt"))));
    lines
}

/// Where Claude Code keeps transcripts, in some home.
pub struct Folder(PathBuf);

impl Folder {
    pub fn of(terminal: &Terminal) -> Self {
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
    terminal.json(&["ingest", projects(terminal).to_str().unwrap()])
}

/// The same where something is wrong: with what is said about it.
fn ingest_loudly(terminal: &Terminal) -> (Value, String) {
    let ran = ran(terminal.command(&["ingest", projects(terminal).to_str().unwrap(), "--json"]));
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    (serde_json::from_str::<Value>(&ran.stdout).unwrap()["data"].clone(), ran.stderr)
}

pub fn projects(terminal: &Terminal) -> PathBuf {
    terminal.home.path().join(".claude/projects")
}

/// The record without where the files are.
pub fn told(terminal: &Terminal) -> String {
    record(terminal).replace(terminal.home.path().to_str().unwrap(), "HOME")
}

pub fn engine(terminal: &Terminal) -> Engine {
    match terminal.database.url() {
        Url::Sqlite(_) => Engine::Sqlite,
        Url::Postgres(_) => Engine::Postgres,
    }
}

/// What is told of the first lines of the story, read at once.
pub fn read_at_once(engine: Engine, lines: &[(Option<&str>, String)]) -> String {
    let terminal = Terminal::at(engine);
    let folder = Folder::of(&terminal);
    for (agent, line) in lines {
        folder.append(*agent, line);
    }
    ingest(&terminal);
    told(&terminal)
}

fn rows(terminal: &Terminal, table: &str) -> i64 {
    let mut connection = match terminal.database.url() {
        Url::Sqlite(path) => Connection::sqlite(&path, false).unwrap(),
        Url::Postgres(_) => Connection::postgres(&terminal.database.url_text()).unwrap(),
    };
    connection.query::<(i64,)>(&format!("select count(*) from {table}"), &[]).unwrap()[0].0
}

#[test]
fn after_every_line_the_record_is_what_reading_at_once_gives() {
    let terminal = Terminal::at(Engine::Sqlite);
    let folder = Folder::of(&terminal);
    let voyage = voyage();
    for (number, (agent, line)) in voyage.iter().enumerate() {
        // Half a line is not there yet.
        let (start, rest) = line.split_at(line.len() / 2);
        folder.append(*agent, start);
        ingest(&terminal);
        folder.append(*agent, rest);
        ingest(&terminal);
        let wanted = format!("{number}\n{}", read_at_once(Engine::Sqlite, &voyage[..=number]));
        snapbox::assert_data_eq!(format!("{number}\n{}", told(&terminal)), snapbox::IntoData::raw(wanted));
    }
}

both_engines! {
    fn wherever_reading_stops_the_record_is_the_same(terminal: Terminal) {
        let voyage = voyage();
        let wanted = read_at_once(engine(&terminal), &voyage);
        let folder = Folder::of(&terminal);
        let session = terminal.json(&["session", "list"]);
        assert_eq!(session, json!([]));
        // Cuts by bytes, at distances that have nothing to do with lines.
        for (place, (agent, line)) in voyage.iter().enumerate() {
            let cut = (place * 37 + 11) % line.len();
            folder.append(*agent, &line[..cut]);
            if place % 3 == 1 {
                ingest(&terminal);
            }
            folder.append(*agent, &line[cut..]);
        }
        ingest(&terminal);
        snapbox::assert_data_eq!(told(&terminal), snapbox::IntoData::raw(wanted));
        let prompts = terminal.json(&["session", "show", SESSION])["prompts"].clone();
        assert_eq!(column(&prompts, "status"), ["completed", "cancelled", "running"]);
        assert_eq!(column(&prompts, "final_message"), ["Under way.", "null", "null"]);
        assert_eq!(column(&prompts, "ended_at"), ["2026-02-27T09:00:08.000Z", "2026-02-27T09:00:11.000Z", "null"]);
        let runs = terminal.json(&["run", "list"]);
        let usage = column(&runs, "id").iter().flat_map(|id| column(&terminal.json(&["run", "show", id])["usage"], "output_tokens")).collect::<Vec<_>>();
        assert_eq!(usage, ["20", "30", "40", "20", "1", "20", "20", "1"].map(str::to_owned));
    }

    fn a_file_that_shrank_or_was_replaced_is_read_anew(terminal: Terminal) {
        let folder = Folder::of(&terminal);
        let voyage = voyage();
        for (agent, line) in &voyage {
            folder.append(*agent, line);
        }
        ingest(&terminal);
        let before = told(&terminal);
        // Cut off in the middle of a line, then as it was.
        let whole = fs::read(folder.file(None)).unwrap();
        File::options().write(true).open(folder.file(None)).unwrap().set_len(whole.len() as u64 / 2).unwrap();
        ingest(&terminal);
        snapbox::assert_data_eq!(told(&terminal), snapbox::IntoData::raw(before.clone()));
        fs::write(folder.file(None), &whole).unwrap();
        ingest(&terminal);
        snapbox::assert_data_eq!(told(&terminal), snapbox::IntoData::raw(before));
        // Another file takes its place: what it says is added.
        let mut other = Writing::new(SESSION, "/ship");
        other.seconds = 1_000;
        let new = other.prompt("a new voyage") + &other.says("m9", Some("end_turn"), 7, "Aye.");
        folder.write("new", new.as_bytes());
        fs::rename(folder.0.join("new"), folder.file(None)).unwrap();
        ingest(&terminal);
        let prompts = terminal.json(&["session", "show", SESSION])["prompts"].clone();
        assert_eq!(column(&prompts, "final_message"), ["Under way.", "null", "null", "Aye."]);
        assert_eq!(ingest(&terminal)["bytes"], 0);
        // In the same place, as long as the other and dated as it was.
        let dated = fs::metadata(folder.file(None)).unwrap().modified().unwrap();
        let newer = new.replace("a new voyage", "another trip").replace("T09:16:", "T09:26:").replace("Aye.", "Nay.").replace("m9", "m8");
        assert_eq!(newer.len(), new.len());
        let mut file = File::options().write(true).open(folder.file(None)).unwrap();
        file.write_all(newer.replace("line-", "next-").as_bytes()).unwrap();
        file.set_modified(dated).unwrap();
        ingest(&terminal);
        let prompts = terminal.json(&["session", "show", SESSION])["prompts"].clone();
        assert_eq!(column(&prompts, "final_message"), ["Under way.", "null", "null", "Aye.", "Nay."]);
        assert_eq!(ingest(&terminal)["bytes"], 0);
    }

    fn bad_files_are_named_and_the_rest_is_read(terminal: Terminal) {
        let folder = Folder::of(&terminal);
        let mut main = Writing::new(SESSION, "/ship");
        let long = "x".repeat(2 << 20);
        let mut bytes = main.prompt("set sail").into_bytes();
        let bad_at = bytes.len();
        bytes.extend_from_slice(b"not json at all\n");
        bytes.extend_from_slice(b"[1, 2]\n\"text\"\n\n7\n");
        // A text that is not UTF-8 is read as far as it is.
        let mut odd = main.says("m1", None, 5, "caf?").into_bytes();
        let mark = odd.iter().position(|byte| *byte == b'?').unwrap();
        odd[mark] = 0xe9;
        bytes.extend_from_slice(&odd);
        bytes.extend_from_slice(main.says("m2", Some("end_turn"), 6, &long).as_bytes());
        bytes.extend_from_slice(b"{\"type\":\"user\",\"message\":{\"content\":{\"odd\":1}},\"timestamp\":5}\n");
        bytes.extend_from_slice(b"{\"type\":7}\n");
        folder.write(&format!("{SESSION}.jsonl"), &bytes);
        folder.write("binary.jsonl", &(0..=255).cycle().take(10_000).collect::<Vec<u8>>());
        folder.write(&format!("{OTHER}.jsonl"), b"");
        folder.write("empty.jsonl", b"");
        fs::create_dir(folder.0.join("33333333-3333-4333-8333-333333333333.jsonl")).unwrap();
        assert!(Command::new("mkfifo").arg(folder.0.join("pipe.jsonl")).status().unwrap().success());
        std::os::unix::fs::symlink(&folder.0, folder.0.join("circle")).unwrap();
        folder.write("notes.txt", b"not ours");

        let (ingested, said) = ingest_loudly(&terminal);
        assert_eq!((&ingested["sessions"], &ingested["lines"], &ingested["bad_lines"]), (&json!(1), &json!(9), &json!(1)), "{said}");
        let problems: Vec<String> = ingested["problems"].as_array().unwrap().iter().map(|problem| text(problem).replace(folder.0.to_str().unwrap(), "F")).collect();
        let mut wanted = vec![
            "F/binary.jsonl: no line names a session".to_owned(),
            "F/empty.jsonl: no line names a session".to_owned(),
            format!("F/{SESSION}.jsonl: a bad line at byte {bad_at}"),
        ];
        wanted.sort();
        let mut found = problems.clone();
        found.sort();
        assert_eq!(found, wanted);
        let prompts = terminal.json(&["session", "show", SESSION])["prompts"].clone();
        assert_eq!(column(&prompts, "status"), ["completed"]);
        assert!(text(&prompts[0]["final_message"]).starts_with("xxxx"));
        assert_eq!(column(&terminal.json(&["session", "list"]), "id"), [SESSION]);
        assert_eq!(ingest_loudly(&terminal).0["bytes"], 0);
        assert_eq!(terminal.fails(&["ingest", "/no/such/place"]).0, 3);
    }

    fn odd_ids_keep_nothing_else_out(terminal: Terminal) {
        let folder = Folder::of(&terminal);
        let mut main = Writing::new(SESSION, "/ship");
        let mut lines = main.prompt("set sail");
        lines += &main.calls("m1", "Agent", "t1", &json!({ "prompt": "row", "subagent_type": "general-purpose" }));
        lines += &main.result("t1", "rowed", &json!({ "status": "completed", "agentId": "" }));
        lines += &main.calls("m2", "Write", "t2", &json!({ "file_path": format!("/ship/{}", "deep/".repeat(780)), "content": "x" }));
        lines += &main.result("t2", "File created successfully", &json!({ "type": "create" }));
        lines += &main.calls("m3", "Write", "t\u{0}3", &json!({ "file_path": "/ship/nul.txt", "content": "x" }));
        lines += &main.result("t\u{0}3", "File created successfully", &json!({ "type": "create" }));
        lines += &main.calls("m4", "Agent", "t\u{0}\u{7}4", &json!({ "prompt": "odd", "subagent_type": "general-purpose" }));
        lines += &main.result("t\u{0}\u{7}4", "rowed", &json!({ "status": "completed", "agentId": "x\u{7}" }));
        lines += &main.line("progress", &json!({ "parentToolUseID": "t\u{7}", "data": { "type": "agent_progress", "agentId": "b1" } }));
        lines += &main.line("user", &json!({ "uuid": "u\u{7}1", "message": { "content": "odd" } }));
        lines += &main.line("user", &json!({ "isMeta": null, "uuid": "u2", "message": { "content": "a second prompt" } }));
        folder.write(&format!("{SESSION}.jsonl"), lines.as_bytes());
        let long = "a".repeat(220);
        let mut agent = Writing::new(SESSION, "/ship").of_agent("b1");
        let row = agent.prompt("row");
        folder.write(&format!("{SESSION}/subagents/agent-{long}.jsonl"), row.as_bytes());
        folder.write(&format!("{SESSION}/subagents/agent-b1.jsonl"), row.as_bytes());
        let meta = json!({ "toolUseId": "t1", "spawnDepth": i64::MAX });
        folder.write(&format!("{SESSION}/subagents/agent-b1.meta.json"), meta.to_string().as_bytes());

        let (ingested, said) = ingest_loudly(&terminal);
        assert_eq!((&ingested["spawns"], &ingested["matched"], &ingested["touches"]), (&json!(1), &json!(1), &json!(2)), "{said}");
        assert_eq!((said.as_str(), ingested.get("problems")), ("", None));
        assert_eq!(column(&terminal.json(&["spawn", "list"]), "agent_id"), ["b1"]);
        assert_eq!(terminal.json(&["session", "show", SESSION])["prompts"].as_array().unwrap().len(), 2);
    }

    fn what_was_given_up_long_ago_does_not_run(terminal: Terminal) {
        let folder = Folder::of(&terminal);
        let mut main = Writing::new(SESSION, "/ship");
        let lines = main.prompt("set sail") + &main.calls("m1", "Bash", "t1", &json!({ "command": "sleep 1" }));
        let path = folder.write(&format!("{SESSION}.jsonl"), lines.as_bytes());
        File::options().append(true).open(path).unwrap().set_modified(SystemTime::now() - Duration::from_hours(2)).unwrap();
        ingest(&terminal);
        let prompts = terminal.json(&["session", "show", SESSION])["prompts"].clone();
        assert_eq!(column(&prompts, "status"), ["incomplete"]);
        assert_eq!(text(&prompts[0]["ended_at"]), "2026-02-27T09:00:02.000Z");
    }

    fn what_ran_when_it_was_read_is_given_up_later(terminal: Terminal) {
        let folder = Folder::of(&terminal);
        let mut main = Writing::new(SESSION, "/ship");
        let lines = main.prompt("set sail") + &main.calls("m1", "Bash", "t1", &json!({ "command": "sleep 1" }));
        let path = folder.write(&format!("{SESSION}.jsonl"), lines.as_bytes());
        ingest(&terminal);
        let status = || column(&terminal.json(&["session", "show", SESSION])["prompts"], "status");
        assert_eq!(status(), ["running"]);
        assert_eq!(ingest(&terminal)["bytes"], 0);
        assert_eq!(status(), ["running"]);
        File::options().append(true).open(&path).unwrap().set_modified(SystemTime::now() - Duration::from_hours(2)).unwrap();
        assert_eq!(ingest(&terminal)["bytes"], 0);
        assert_eq!(status(), ["incomplete"]);
        // It went on after all.
        folder.append(None, &main.says("m2", Some("end_turn"), 5, "Under way."));
        ingest(&terminal);
        assert_eq!(status(), ["completed"]);
    }

    fn a_transcript_is_one_whichever_way_leads_to_it(terminal: Terminal) {
        let folder = Folder::of(&terminal);
        for (agent, line) in voyage() {
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
        crate::hook::hook(&terminal, event.to_string().as_bytes());
        assert_eq!(rows(&terminal, "transcripts"), 2);
        let (code, said) = terminal.fails(&["ingest", "--since", "yesterday"]);
        assert_eq!((code, said.contains("yesterday")), (2, true), "{said}");
        assert_eq!(terminal.json(&["ingest", ".claude/projects", "--since", "2100-01-01"])["files"], 0);
    }

    fn progress_of_an_agents_agent_waits_for_its_spawn(terminal: Terminal) {
        let folder = Folder::of(&terminal);
        let mut main = Writing::new(SESSION, "/ship");
        let mut sub = Writing::new(SESSION, "/ship").of_agent(AGENT);
        let spawn = |prompt: &str| json!({ "prompt": prompt, "subagent_type": "general-purpose" });
        let mut lines = main.prompt("set sail") + &main.calls("m1", "Task", "t1", &spawn("same"));
        lines += &main.line("progress", &json!({ "parentToolUseID": "t1", "data": { "type": "agent_progress", "agentId": AGENT } }));
        lines += &main.line("progress", &json!({ "parentToolUseID": "t2", "data": { "type": "agent_progress", "agentId": "b1" } }));
        folder.append(None, &lines);
        // The prompt tells nothing: two calls have it.
        folder.append(Some(AGENT), &(sub.prompt("same") + &sub.calls("m2", "Task", "t2", &spawn("same"))));
        folder.append(Some("b1"), &Writing::new(SESSION, "/ship").of_agent("b1").prompt("same"));
        ingest(&terminal);
        let spawns = terminal.json(&["spawn", "list"]);
        assert_eq!(column(&spawns, "agent_id"), [AGENT, "b1"]);
        assert_eq!(column(&spawns, "evidence"), ["agent_progress"; 2]);
        let subagents = terminal.json(&["subagent", "list"]);
        assert_eq!(column(&subagents, "parent_agent_id"), ["null", AGENT]);
    }

    fn an_inline_agent_is_of_the_type_that_its_call_names(terminal: Terminal) {
        let folder = Folder::of(&terminal);
        let mut main = Writing::new(SESSION, "/ship");
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
        lines += &inline(main.calls("m1", "Task", "t1", &json!({ "prompt": "row", "subagent_type": "coder" })), json!({}));
        lines += &inline(main.prompt("row"), json!({ "isSidechain": true, "uuid": "aaaa1", "parentUuid": null }));
        lines += &inline(main.says("m2", Some("end_turn"), 3, "rowed"), json!({ "isSidechain": true, "parentUuid": "aaaa1" }));
        lines += &inline(main.result("t1", "rowed", &json!({ "content": [] })), json!({}));
        folder.append(None, &lines);
        ingest(&terminal);
        let subagent = terminal.json(&["subagent", "list"])[0].clone();
        let told = ["agent_type", "role", "role_source"].map(|field| text(&subagent[field]));
        assert_eq!(told, ["coder", "coder", "subagent_type"]);
        assert!(column(&terminal.json(&["run", "list"]), "agent").contains(&"coder@ship".to_owned()));
    }

    fn forgetting_a_session_leaves_nothing_of_it(terminal: Terminal) {
        let folder = Folder::of(&terminal);
        for (agent, line) in voyage() {
            folder.append(agent, &line);
        }
        let mut other = Writing::new(OTHER, "/ship");
        let kept = other.prompt("watch") + &other.says("m20", Some("end_turn"), 3, "All quiet.");
        let path = folder.write(&format!("{OTHER}.jsonl"), kept.as_bytes());
        terminal.json(&["ingest", path.to_str().unwrap()]);
        let before = told(&terminal);
        let counted: Vec<i64> = TABLES.iter().map(|table| rows(&terminal, table)).collect();
        ingest(&terminal);
        let whole = told(&terminal);
        assert_eq!(column(&terminal.json(&["session", "list"]), "id").len(), 2);

        let forgotten = ran(terminal.command(&["forget", SESSION, "--yes", "--json"]));
        assert_eq!(forgotten.code, 0, "{}", forgotten.stderr);
        let forgotten = serde_json::from_str::<Value>(&forgotten.stdout).unwrap()["data"].clone();
        assert_eq!((&forgotten["runs"], &forgotten["spawns"], &forgotten["touches"]), (&json!(4), &json!(1), &json!(2)));
        snapbox::assert_data_eq!(told(&terminal), snapbox::IntoData::raw(before));
        assert_eq!(TABLES.iter().map(|table| rows(&terminal, table)).collect::<Vec<_>>(), counted, "{TABLES:?}");
        // Its transcript is still there: the next ingest reads it again.
        ingest(&terminal);
        snapbox::assert_data_eq!(told(&terminal), snapbox::IntoData::raw(whole));
    }

    fn cleaning_up_says_how_much_it_removed(terminal: Terminal) {
        let folder = Folder::of(&terminal);
        let mut main = Writing::new(SESSION, "/ship");
        let mut lines = main.prompt("go");
        for number in 0..5 {
            let prompt = if number == 1 { "no role".to_owned() } else { format!("[ROLE:r{number}] go") };
            let spawn = json!({ "prompt": prompt, "description": "a job", "subagent_type": "general-purpose" });
            lines += &main.calls(&format!("m{number}"), "Agent", &format!("t{number}"), &spawn);
        }
        lines += &main.result("t0", "done", &json!({ "status": "completed", "agentId": AGENT }));
        folder.append(None, &lines);
        ingest(&terminal);
        let spawns = || column(&terminal.json(&["spawn", "list"]), "tool_use_id");
        assert_eq!(spawns(), ["t0", "t1", "t2", "t3", "t4"]);
        assert_eq!(terminal.json(&["cleanup", "old-spawns", "--session", SESSION])["removed"], 0);
        // The two newest stay, and the one that has an agent.
        assert_eq!(terminal.json(&["cleanup", "old-spawns", "--session", SESSION, "--keep", "3"])["removed"], 1);
        assert_eq!(spawns(), ["t0", "t2", "t3", "t4"]);
        assert_eq!(terminal.json(&["cleanup", "null-role", "--yes"])["removed"], 0);
        assert_eq!(terminal.json(&["subagent", "list"]).as_array().unwrap().len(), 1);
        assert_eq!(terminal.json(&["cleanup", "session", SESSION])["removed"], 1);
        assert_eq!(terminal.json(&["subagent", "list"]), json!([]));
        assert_eq!(spawns(), ["t0", "t2", "t3", "t4"]);
        assert_eq!(terminal.json(&["cleanup", "session", SESSION])["removed"], 0);
        let spawn = json!({ "prompt": "without", "description": "a job", "subagent_type": "general-purpose" });
        folder.append(None, &main.calls("m9", "Agent", "t9", &spawn));
        ingest(&terminal);
        assert_eq!(terminal.json(&["cleanup", "null-role", "--session", SESSION, "--yes"])["removed"], 1);
        assert_eq!(spawns(), ["t0", "t2", "t3", "t4"]);
    }

    fn only_what_was_written_since_is_read(terminal: Terminal) {
        let folder = Folder::of(&terminal);
        let mut old = Writing::new(SESSION, "/ship");
        let mut new = Writing::new(OTHER, "/ship");
        let path = folder.write(&format!("{SESSION}.jsonl"), old.prompt("long ago").as_bytes());
        let day = Duration::from_hours(24);
        File::options().write(true).open(path).unwrap().set_modified(SystemTime::now() - 3 * day).unwrap();
        folder.write(&format!("{OTHER}.jsonl"), new.prompt("today").as_bytes());
        let since = chronicle(SystemTime::now() - day);
        let projects = projects(&terminal);
        terminal.json(&["ingest", projects.to_str().unwrap(), "--since", &since]);
        assert_eq!(column(&terminal.json(&["session", "list"]), "id"), [OTHER]);
        ingest(&terminal);
        assert_eq!(terminal.json(&["session", "list"]).as_array().unwrap().len(), 2);
    }
}

/// Tables that hold something of a session.
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

/// A time as the command line takes it.
fn chronicle(at: SystemTime) -> String {
    let seconds = at.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
    let printed =
        Command::new("date").args(["-u", "-d", &format!("@{seconds}"), "+%Y-%m-%dT%H:%M:%SZ"]).output().unwrap();
    String::from_utf8(printed.stdout).unwrap().trim().to_owned()
}

#[test]
fn a_hundred_megabytes_without_an_end_are_passed_by() {
    let terminal = Terminal::at(Engine::Sqlite);
    let folder = Folder::of(&terminal);
    let mut main = Writing::new(SESSION, "/ship");
    let first = main.prompt("set sail");
    folder.append(None, &first);
    let file = File::options().append(true).open(folder.file(None)).unwrap();
    file.set_len(first.len() as u64 + (100 << 20)).unwrap();
    let (ingested, said) = ingest_loudly(&terminal);
    assert_eq!((&ingested["lines"], &ingested["bad_lines"]), (&json!(2), &json!(1)), "{said}");
    let problem = format!("{}: a bad line at byte {}", folder.file(None).display(), first.len());
    assert_eq!(ingested["problems"], json!([problem]));
    // Nobody reads it again, and what is still written to it is passed over.
    assert_eq!(ingest_loudly(&terminal).0["bytes"], 0);
    folder.append(None, "more of it");
    let (ingested, said) = ingest_loudly(&terminal);
    assert_eq!(
        (&ingested["bytes"], &ingested["lines"], &ingested["bad_lines"]),
        (&json!(10), &json!(0), &json!(0)),
        "{said}"
    );
    folder.append(None, " and its end\n");
    folder.append(None, &main.says("m1", Some("end_turn"), 5, "Under way."));
    let (ingested, said) = ingest_loudly(&terminal);
    assert_eq!((&ingested["lines"], &ingested["bad_lines"]), (&json!(1), &json!(0)), "{said}");
    assert_eq!(column(&terminal.json(&["run", "list"]), "final_message"), ["Under way."]);
    // People read it beside the numbers.
    terminal.json(&["forget", SESSION, "--yes"]);
    let ran = ran(terminal.command(&["ingest", projects(&terminal).to_str().unwrap()]));
    assert_eq!(ran.stderr, format!("warning: {problem}\n"));
}

/// A home with a project that has a database of its own, and sessions here and there.
struct Projects {
    terminal: Terminal,
}

impl Projects {
    fn new() -> Self {
        let projects = Self { terminal: Terminal::before_init(Engine::Sqlite) };
        for (number, place) in ["ship", "ship/hold", "ship-yard", "shore"].iter().enumerate() {
            let cwd = projects.directory(place);
            fs::create_dir_all(&cwd).unwrap();
            let name: String =
                cwd.to_str().unwrap().chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
            let folder = projects.terminal.home.path().join(".claude/projects").join(name);
            fs::create_dir_all(&folder).unwrap();
            let line = json!({ "type": "user", "uuid": format!("line{number}"), "sessionId": id(number), "cwd": cwd, "timestamp": "2026-02-27T09:00:00Z", "message": { "content": "go" } });
            fs::write(folder.join(format!("{}.jsonl", id(number))), format!("{line}\n")).unwrap();
        }
        projects
    }

    fn directory(&self, place: &str) -> PathBuf {
        self.terminal.home.path().join(place)
    }

    /// A command from a directory, with whatever database is found there.
    fn json(&self, place: &str, arguments: &[&str]) -> Value {
        let mut command = self.terminal.command(arguments);
        command.arg("--json").env_remove("TRACKWAY_DB").current_dir(self.directory(place));
        let ran = ran(command);
        assert_eq!(ran.code, 0, "{arguments:?}: {}", ran.stderr);
        serde_json::from_str::<Value>(&ran.stdout).unwrap()["data"].clone()
    }

    fn sessions(&self, place: &str) -> Vec<String> {
        let mut ids = column(&self.json(place, &["session", "list"]), "id");
        ids.sort();
        ids
    }
}

fn id(number: usize) -> String {
    format!("{number}0000000-0000-4000-8000-000000000000")
}

#[test]
fn a_projects_database_reads_the_projects_sessions() {
    let projects = Projects::new();
    projects.json("ship", &["init"]);
    projects.json("ship", &["ingest"]);
    assert_eq!(projects.sessions("ship"), [id(0), id(1)]);
    // Elsewhere it is the user's database, and all of them.
    projects.json("shore", &["ingest"]);
    assert_eq!(projects.sessions("shore"), [id(0), id(1), id(2), id(3)]);
}

#[test]
fn what_is_excluded_is_neither_read_nor_heard() {
    let projects = Projects::new();
    let config = projects.terminal.home.path().join(".config/trackway/config.toml");
    fs::create_dir_all(config.parent().unwrap()).unwrap();
    fs::write(&config, format!("exclude = [{:?}]\n", projects.directory("ship"))).unwrap();
    projects.json("shore", &["ingest"]);
    assert_eq!(projects.sessions("shore"), [id(2), id(3)]);
    let hear = |place: &str, session: &str| {
        let event = json!({ "hook_event_name": "UserPromptSubmit", "session_id": session, "prompt": "go", "cwd": projects.directory(place) });
        let mut command = projects.terminal.command(&["hook"]);
        command.env_remove("TRACKWAY_DB").current_dir(projects.directory(place));
        let ran = crate::terminal::ran_with_input(command, event.to_string().as_bytes());
        assert_eq!((ran.code, ran.stdout.as_str()), (0, ""));
    };
    hear("ship/hold", "s-hidden");
    hear("ship-yard", "s-shown");
    assert_eq!(projects.sessions("shore"), [id(2), id(3), "s-shown".to_owned()]);
    assert!(!Path::new(&projects.directory("ship").join(".trackway")).exists());
    // By the way that leads there, or from the user's home on.
    std::os::unix::fs::symlink(projects.directory("ship"), projects.directory("way")).unwrap();
    for (number, written) in ["~/ship", "~/way", "~/shore/../ship/"].iter().enumerate() {
        fs::write(&config, format!("exclude = [{written:?}]\n")).unwrap();
        hear("ship/hold", &format!("s-hidden-{number}"));
        hear("way/hold", &format!("s-hidden-too-{number}"));
        projects.json("shore", &["ingest"]);
        assert_eq!(projects.sessions("shore"), [id(2), id(3), "s-shown".to_owned()], "{written}");
    }
    fs::write(&config, "exclude = [\"ship\"]\n").unwrap();
    let (code, said) = projects.terminal.fails(&["session", "list"]);
    assert_eq!(code, 2);
    assert!(said.ends_with("config.toml: exclude holds ship, which is not a whole path"), "{said}");
}

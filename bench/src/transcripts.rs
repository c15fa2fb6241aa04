//! Transcripts like those Claude Code 2.1 leaves, made from a seed: sessions with prompts, thinking, calls of tools
//! with long answers, edits, and subagents in files of their own.

use std::{
    fs::{self, File},
    io::{BufWriter, Write},
    path::{Path, PathBuf},
};

use serde_json::{Value, json};
use trackway_domain::Time;
use uuid::Uuid;

use crate::Outcome;

/// What the texts are cut from.
const POOL_BYTES: usize = 1 << 20;
/// The smallest and the largest session among many.
const SESSION_BYTES: (u64, u64) = (1 << 20, 8 << 20);
/// When the first session began: 2026-01-05T08:00:00Z.
const BEGINNING: i64 = 1_767_600_000_000_000;
const VERSION: &str = "2.1.197";
const MODEL: &str = "claude-sonnet-4-5";
const WORDS: &[&str] = &[
    "the", "run", "let", "match", "session", "value", "return", "index", "path", "self", "error", "build", "queue",
    "writer", "task", "under", "each", "line", "reads", "Some(id)", "None", "=>", "{", "}", "\"name\"", "fn", "impl",
    "// kept", "&mut", "text:", "0x1f", "café", "\tif", "else", "a\\b", "::new()", "await", "const",
];

/// What was written.
#[derive(Debug, Clone, Copy, Default)]
pub struct Written {
    pub sessions: usize,
    pub files: usize,
    pub lines: usize,
    pub bytes: u64,
}

/// Numbers that are the same for the same seed.
#[derive(Debug)]
pub struct Seeded(u64);

impl Seeded {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    fn uuid(&mut self) -> Uuid {
        Uuid::from_u64_pair(self.next(), self.next())
    }

    fn name(&mut self, prefix: &str) -> String {
        format!("{prefix}{:016x}", self.next())
    }

    /// From 1 kB to 100 kB; half of them below 4 kB.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is between these two")]
    fn answer_bytes(&mut self) -> usize {
        let place = self.below(1_000) as f64 / 1_000.0;
        (1_000.0 * 100_f64.powf(place * place)) as usize
    }
}

/// One project's transcripts in the making.
#[derive(Debug)]
pub struct Author {
    random: Seeded,
    pool: String,
    /// Microseconds; it moves on with every line.
    clock: i64,
    cwd: String,
    written: Written,
}

/// A session that was written.
#[derive(Debug)]
pub struct Session {
    pub id: String,
    pub transcript: PathBuf,
}

impl Author {
    pub fn new(seed: u64, cwd: &Path) -> Self {
        let mut random = Seeded::new(seed);
        let mut pool = String::with_capacity(POOL_BYTES + 100);
        while pool.len() < POOL_BYTES {
            for _ in 0..3 + random.below(12) {
                pool.push_str(WORDS[usize::try_from(random.below(WORDS.len() as u64)).unwrap_or_default()]);
                pool.push(' ');
            }
            pool.push('\n');
        }
        Self { random, pool, clock: BEGINNING, cwd: cwd.display().to_string(), written: Written::default() }
    }

    /// Writes sessions until there are this many bytes.
    pub fn sessions(mut self, folder: &Path, bytes: u64) -> Outcome<Written> {
        fs::create_dir_all(folder)?;
        while self.written.bytes < bytes {
            let size = SESSION_BYTES.0 + self.random.below(SESSION_BYTES.1 - SESSION_BYTES.0);
            self.session(folder, size.min((bytes - self.written.bytes) / 2 + 1_000))?;
        }
        Ok(self.written)
    }

    /// Writes a session whose own file holds about this many bytes; those of its subagents hold about as many together.
    pub fn session(&mut self, folder: &Path, bytes: u64) -> Outcome<Session> {
        let id = self.random.uuid().to_string();
        let transcript = folder.join(format!("{id}.jsonl"));
        let mut file = Page::create(&transcript, &id, None)?;
        self.line(&mut file, json!({ "type": "mode", "mode": "normal", "sessionId": id }))?;
        let mut below = 0;
        while file.bytes < bytes {
            self.prompt(&mut file)?;
            for _ in 0..4 + self.random.below(20) {
                self.step(&mut file)?;
                if file.bytes > bytes {
                    break;
                }
            }
            if self.random.below(2) == 0 {
                self.spawn(&mut file, folder, bytes / 16)?;
                below += 1;
            }
            self.say(&mut file, "end_turn")?;
        }
        file.out.flush()?;
        self.written.sessions += 1;
        self.written.files += 1 + below;
        Ok(Session { id, transcript })
    }

    fn prompt(&mut self, file: &mut Page) -> Outcome<()> {
        file.prompt = self.random.uuid().to_string();
        let text = self.text(200);
        let line = json!({ "promptId": file.prompt, "type": "user", "message": { "role": "user", "content": text } });
        self.chained(file, line)?;
        if file.agent.is_none() {
            let content = self.text(3_000);
            self.chained(
                file,
                json!({ "attachment": { "type": "skill_listing", "content": content }, "type": "attachment" }),
            )?;
        }
        Ok(())
    }

    /// A message of thinking, perhaps a text, and a call; then its answer.
    fn step(&mut self, file: &mut Page) -> Outcome<()> {
        self.begin_message(file);
        let (thought, signature) = (self.text(600), self.random.name("sig").repeat(20));
        self.block(file, json!({ "type": "thinking", "thinking": thought, "signature": signature }), "tool_use")?;
        if self.random.below(3) == 0 {
            let text = self.text(300);
            self.block(file, json!({ "type": "text", "text": text }), "tool_use")?;
        }
        let path = format!("{}/src/part{}/file{}.rs", self.cwd, self.random.below(12), self.random.below(20));
        let size = self.random.answer_bytes();
        match self.random.below(20) {
            0..8 => {
                let content = self.text(size);
                let numbered: Vec<String> =
                    content.lines().enumerate().map(|(place, line)| format!("{:>6}\t{line}\n", place + 1)).collect();
                let numbered = numbered.concat();
                let lines = content.lines().count();
                let answer = json!({ "type": "text", "file": { "filePath": path, "content": content, "numLines": lines, "startLine": 1, "totalLines": lines } });
                self.call(file, "Read", json!({ "file_path": path }), json!(numbered), answer)
            }
            8..15 => {
                let stdout = self.text(size);
                let command = format!("cargo test -p part{} 2>&1 | tail -50", self.random.below(12));
                let answer = json!({ "stdout": stdout, "stderr": "", "interrupted": false, "isImage": false, "noOutputExpected": false });
                self.call(
                    file,
                    "Bash",
                    json!({ "command": command, "description": "Run the tests" }),
                    json!(stdout),
                    answer,
                )
            }
            15..19 => self.edit(file, &path, size),
            _ => {
                let content = self.text(size / 2);
                let said = format!("File created successfully at: {path}");
                let answer = json!({ "type": "create", "filePath": path, "content": content, "structuredPatch": [], "originalFile": null, "userModified": false });
                self.call(file, "Write", json!({ "file_path": path, "content": content }), json!(said), answer)
            }
        }
    }

    fn edit(&mut self, file: &mut Page, path: &str, size: usize) -> Outcome<()> {
        let original = self.text(size);
        let lines: Vec<&str> = original.lines().collect();
        let place = usize::try_from(self.random.below(lines.len() as u64)).unwrap_or_default();
        let old = lines[place];
        let new = format!("{old}// {}\n{}", self.random.name("v"), self.text(200));
        let mut patch: Vec<String> =
            lines[place.saturating_sub(3)..place].iter().map(|line| format!(" {line}")).collect();
        let start = place + 1 - patch.len();
        patch.push(format!("-{old}"));
        patch.extend(new.lines().map(|line| format!("+{line}")));
        let said = format!("The file {path} has been updated successfully.");
        let hunk =
            json!({ "oldStart": start, "oldLines": 4, "newStart": start, "newLines": patch.len() - 1, "lines": patch });
        let answer = json!({
            "filePath": path, "oldString": old, "newString": new, "originalFile": original, "structuredPatch": [hunk],
            "userModified": false, "replaceAll": false,
        });
        let input = json!({ "file_path": path, "old_string": old, "new_string": new, "replace_all": false });
        self.call(file, "Edit", input, json!(said), answer)
    }

    /// A subagent: the call in its parent's file, its own file and what stands beside it, and the answer.
    fn spawn(&mut self, file: &mut Page, folder: &Path, bytes: u64) -> Outcome<()> {
        let agent = self.random.name("a");
        let below = folder.join(&file.session).join("subagents");
        fs::create_dir_all(&below)?;
        let prompt = self.text(900);
        self.begin_message(file);
        let call = self.random.name("toolu_");
        let input = json!({ "description": "Look into it", "prompt": prompt, "subagent_type": "general-purpose" });
        self.block(file, json!({ "type": "tool_use", "id": call, "name": "Agent", "input": input }), "tool_use")?;
        let meta = json!({ "agentType": "general-purpose", "description": "Look into it", "toolUseId": call, "spawnDepth": 1 });
        fs::write(below.join(format!("agent-{agent}.meta.json")), meta.to_string())?;
        let path = below.join(format!("agent-{agent}.jsonl"));
        let mut own = Page::create(&path, &file.session, Some(agent.clone()))?;
        own.prompt.clone_from(&file.prompt);
        let line = json!({ "promptId": own.prompt, "type": "user", "message": { "role": "user", "content": prompt } });
        self.chained(&mut own, line)?;
        let before = self.written.bytes;
        while self.written.bytes - before < bytes {
            self.step(&mut own)?;
        }
        let said = self.say(&mut own, "end_turn")?;
        own.out.flush()?;
        let answer = json!({
            "status": "completed", "prompt": prompt, "agentId": agent, "agentType": "general-purpose",
            "content": [{ "type": "text", "text": said }], "totalDurationMs": 60_000, "totalTokens": 43_000, "totalToolUseCount": 9,
        });
        let told = json!([{ "type": "text", "text": said }, { "type": "text", "text": format!("agentId: {agent} (use SendMessage to continue this agent)") }]);
        self.answer(file, &call, told, answer)
    }

    fn call(&mut self, file: &mut Page, tool: &str, input: Value, said: Value, answer: Value) -> Outcome<()> {
        let call = self.random.name("toolu_");
        self.block(file, json!({ "type": "tool_use", "id": call, "name": tool, "input": input }), "tool_use")?;
        self.answer(file, &call, said, answer)
    }

    fn answer(&mut self, file: &mut Page, call: &str, said: Value, answer: Value) -> Outcome<()> {
        let result = json!([{ "tool_use_id": call, "type": "tool_result", "content": said }]);
        let line = json!({ "promptId": file.prompt, "type": "user", "message": { "role": "user", "content": result }, "toolUseResult": answer });
        self.chained(file, line)
    }

    fn say(&mut self, file: &mut Page, stop: &str) -> Outcome<String> {
        self.begin_message(file);
        let text = self.text(800);
        self.block(file, json!({ "type": "text", "text": text }), stop)?;
        Ok(text)
    }

    fn begin_message(&mut self, file: &mut Page) {
        (file.message, file.request) = (self.random.name("msg_"), self.random.name("req_"));
        file.output = 20 + self.random.below(2_000);
    }

    /// One block of a message: each is a line with the usage of the whole message.
    fn block(&mut self, file: &mut Page, block: Value, stop: &str) -> Outcome<()> {
        let usage = json!({
            "input_tokens": 12, "cache_creation_input_tokens": 1_204, "cache_read_input_tokens": 48_213, "output_tokens": file.output,
            "server_tool_use": { "web_search_requests": 0, "web_fetch_requests": 0 }, "service_tier": "standard",
            "cache_creation": { "ephemeral_1h_input_tokens": 0, "ephemeral_5m_input_tokens": 1_204 }, "inference_geo": "", "iterations": [], "speed": "standard",
        });
        let message = json!({
            "id": file.message, "type": "message", "role": "assistant", "model": MODEL, "content": [block], "stop_reason": stop,
            "stop_sequence": null, "usage": usage, "stop_details": null,
        });
        let line = json!({ "message": message, "requestId": file.request, "type": "assistant" });
        self.chained(file, line)
    }

    /// A line after the last, with what every line has.
    fn chained(&mut self, file: &mut Page, line: Value) -> Outcome<()> {
        self.clock += 250_000 + i64::try_from(self.random.below(3_000_000)).unwrap_or_default();
        let uuid = self.random.uuid().to_string();
        let mut whole = json!({ "parentUuid": file.last, "isSidechain": file.agent.is_some() });
        let rest = json!({
            "uuid": uuid, "timestamp": Time::from_micros(self.clock), "userType": "external", "entrypoint": "cli", "cwd": self.cwd,
            "sessionId": file.session, "version": VERSION, "gitBranch": "main",
        });
        for (key, value) in [line, rest]
            .into_iter()
            .filter_map(|part| match part {
                Value::Object(fields) => Some(fields),
                _ => None,
            })
            .flatten()
        {
            whole[key] = value;
        }
        if let Some(agent) = &file.agent {
            whole["agentId"] = json!(agent);
        }
        file.last = Some(uuid);
        self.line(file, whole)
    }

    fn line(&mut self, file: &mut Page, line: Value) -> Outcome<()> {
        let mut text = line.to_string();
        text.push('\n');
        file.out.write_all(text.as_bytes())?;
        self.written.lines += 1;
        self.written.bytes += text.len() as u64;
        file.bytes += text.len() as u64;
        Ok(())
    }

    /// A piece of the pool.
    fn text(&mut self, bytes: usize) -> String {
        let start = usize::try_from(self.random.below((self.pool.len() - bytes - 8) as u64)).unwrap_or_default();
        let start = self.pool.ceil_char_boundary(start);
        let end = self.pool.ceil_char_boundary(start + bytes);
        // Texts are hardly ever the same.
        format!("{} {}", self.random.name(""), &self.pool[start..end])
    }
}

/// A file in the making, and where its conversation is.
#[derive(Debug)]
struct Page {
    out: BufWriter<File>,
    session: String,
    agent: Option<String>,
    last: Option<String>,
    prompt: String,
    message: String,
    request: String,
    output: u64,
    bytes: u64,
}

impl Page {
    fn create(path: &Path, session: &str, agent: Option<String>) -> Outcome<Self> {
        Ok(Self {
            out: BufWriter::with_capacity(1 << 20, File::create(path)?),
            session: session.to_owned(),
            agent,
            last: None,
            prompt: String::new(),
            message: String::new(),
            request: String::new(),
            output: 0,
            bytes: 0,
        })
    }
}

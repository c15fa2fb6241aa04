//! Writes generated transcripts like those of Claude Code 2.1: sessions with prompts, thinking, tool calls with long
//! results, edits, and subagents in separate files. The same seed gives the same transcripts.

use std::{
    fs::{self, File},
    io::{BufWriter, Write},
    path::{Path, PathBuf},
};

use serde_json::{Value, json};
use trackway_domain::Time;
use uuid::Uuid;

use crate::BenchResult;

/// Size of the text from which all texts are cut.
const POOL_BYTES: usize = 1 << 20;
/// Smallest and largest size of a session, when many are written.
const SESSION_BYTES: (u64, u64) = (1 << 20, 8 << 20);
/// Start time of the first session: 2026-01-05T08:00:00Z.
const FIRST_SESSION_AT: i64 = 1_767_600_000_000_000;
const VERSION: &str = "2.1.197";
const MODEL: &str = "claude-sonnet-4-5";
const WORDS: &[&str] = &[
    "the", "run", "let", "match", "session", "value", "return", "index", "path", "self", "error", "build", "queue",
    "writer", "task", "under", "each", "line", "reads", "Some(id)", "None", "=>", "{", "}", "\"name\"", "fn", "impl",
    "// kept", "&mut", "text:", "0x1f", "café", "\tif", "else", "a\\b", "::new()", "await", "const",
];

/// Counts of what was written.
#[derive(Debug, Clone, Copy, Default)]
pub struct WriteStats {
    pub sessions: usize,
    pub files: usize,
    pub lines: usize,
    pub bytes: u64,
}

/// A pseudo-random number generator (splitmix64).
#[derive(Debug)]
pub struct SeededRandom(u64);

impl SeededRandom {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let splitmix64 = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let splitmix64 = (splitmix64 ^ (splitmix64 >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        splitmix64 ^ (splitmix64 >> 31)
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

    /// The size of a tool result: 1 kB to 100 kB, half of them below 3.2 kB.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the value is between 1 kB and 100 kB")]
    fn result_bytes(&mut self) -> usize {
        let exponent = self.below(1_000) as f64 / 1_000.0;
        (1_000.0 * 100_f64.powf(exponent * exponent)) as usize
    }
}

/// Writes the transcripts of one project.
#[derive(Debug)]
pub struct TranscriptWriter {
    random: SeededRandom,
    pool: String,
    /// The time of the last line, in microseconds. Every line advances it.
    clock: i64,
    cwd: String,
    stats: WriteStats,
}

/// A session's id and its transcript.
#[derive(Debug)]
pub struct SessionFile {
    pub id: String,
    pub transcript: PathBuf,
}

impl TranscriptWriter {
    pub fn new(seed: u64, cwd: &Path) -> Self {
        let mut random = SeededRandom::new(seed);
        let mut pool = String::with_capacity(POOL_BYTES + 100);
        while pool.len() < POOL_BYTES {
            for _ in 0..3 + random.below(12) {
                pool.push_str(WORDS[usize::try_from(random.below(WORDS.len() as u64)).unwrap_or_default()]);
                pool.push(' ');
            }
            pool.push('\n');
        }
        Self { random, pool, clock: FIRST_SESSION_AT, cwd: cwd.display().to_string(), stats: WriteStats::default() }
    }

    /// Writes sessions until they have this many bytes together.
    pub fn write_sessions(mut self, folder: &Path, bytes: u64) -> BenchResult<WriteStats> {
        fs::create_dir_all(folder)?;
        while self.stats.bytes < bytes {
            let size = SESSION_BYTES.0 + self.random.below(SESSION_BYTES.1 - SESSION_BYTES.0);
            self.write_session(folder, size.min((bytes - self.stats.bytes) / 2 + 1_000))?;
        }
        Ok(self.stats)
    }

    /// Writes a session whose main file has about this many bytes. The files of its subagents together have about as
    /// many bytes.
    pub fn write_session(&mut self, folder: &Path, bytes: u64) -> BenchResult<SessionFile> {
        let id = self.random.uuid().to_string();
        let transcript = folder.join(format!("{id}.jsonl"));
        let mut file = TranscriptFile::create(&transcript, &id, None)?;
        self.write_line(&mut file, json!({ "type": "mode", "mode": "normal", "sessionId": id }))?;
        let mut subagents = 0;
        while file.bytes < bytes {
            self.write_prompt(&mut file)?;
            for _ in 0..4 + self.random.below(20) {
                self.write_tool_turn(&mut file)?;
                if file.bytes > bytes {
                    break;
                }
            }
            if self.random.below(2) == 0 {
                self.write_subagent(&mut file, folder, bytes / 16)?;
                subagents += 1;
            }
            self.write_reply(&mut file, "end_turn")?;
        }
        file.out.flush()?;
        self.stats.sessions += 1;
        self.stats.files += 1 + subagents;
        Ok(SessionFile { id, transcript })
    }

    fn write_prompt(&mut self, file: &mut TranscriptFile) -> BenchResult<()> {
        file.prompt = self.random.uuid().to_string();
        let text = self.random_text(200);
        let line = json!({ "promptId": file.prompt, "type": "user", "message": { "role": "user", "content": text } });
        self.write_chained_line(file, line)?;
        if file.agent.is_none() {
            let content = self.random_text(3_000);
            self.write_chained_line(
                file,
                json!({ "attachment": { "type": "skill_listing", "content": content }, "type": "attachment" }),
            )?;
        }
        Ok(())
    }

    /// Writes a message with thinking, sometimes text, and a tool call; then the result of the call.
    fn write_tool_turn(&mut self, file: &mut TranscriptFile) -> BenchResult<()> {
        self.begin_message(file);
        let (thought, signature) = (self.random_text(600), self.random.name("sig").repeat(20));
        self.write_block(file, json!({ "type": "thinking", "thinking": thought, "signature": signature }), "tool_use")?;
        if self.random.below(3) == 0 {
            let text = self.random_text(300);
            self.write_block(file, json!({ "type": "text", "text": text }), "tool_use")?;
        }
        let path = format!("{}/src/part{}/file{}.rs", self.cwd, self.random.below(12), self.random.below(20));
        let size = self.random.result_bytes();
        match self.random.below(20) {
            0..8 => {
                let content = self.random_text(size);
                let numbered: Vec<String> =
                    content.lines().enumerate().map(|(index, line)| format!("{:>6}\t{line}\n", index + 1)).collect();
                let numbered = numbered.concat();
                let lines = content.lines().count();
                let answer = json!({ "type": "text", "file": { "filePath": path, "content": content, "numLines": lines, "startLine": 1, "totalLines": lines } });
                self.write_tool_call(file, "Read", json!({ "file_path": path }), json!(numbered), answer)
            }
            8..15 => {
                let stdout = self.random_text(size);
                let command = format!("cargo test -p part{} 2>&1 | tail -50", self.random.below(12));
                let answer = json!({ "stdout": stdout, "stderr": "", "interrupted": false, "isImage": false, "noOutputExpected": false });
                self.write_tool_call(
                    file,
                    "Bash",
                    json!({ "command": command, "description": "Run the tests" }),
                    json!(stdout),
                    answer,
                )
            }
            15..19 => self.write_edit(file, &path, size),
            _ => {
                let content = self.random_text(size / 2);
                let text = format!("File created successfully at: {path}");
                let answer = json!({ "type": "create", "filePath": path, "content": content, "structuredPatch": [], "originalFile": null, "userModified": false });
                self.write_tool_call(
                    file,
                    "Write",
                    json!({ "file_path": path, "content": content }),
                    json!(text),
                    answer,
                )
            }
        }
    }

    fn write_edit(&mut self, file: &mut TranscriptFile, path: &str, size: usize) -> BenchResult<()> {
        let original = self.random_text(size);
        let lines: Vec<&str> = original.lines().collect();
        let edited = usize::try_from(self.random.below(lines.len() as u64)).unwrap_or_default();
        let old = lines[edited];
        let new = format!("{old}// {}\n{}", self.random.name("v"), self.random_text(200));
        let mut patch: Vec<String> =
            lines[edited.saturating_sub(3)..edited].iter().map(|line| format!(" {line}")).collect();
        let start = edited + 1 - patch.len();
        patch.push(format!("-{old}"));
        patch.extend(new.lines().map(|line| format!("+{line}")));
        let text = format!("The file {path} has been updated successfully.");
        let hunk =
            json!({ "oldStart": start, "oldLines": 4, "newStart": start, "newLines": patch.len() - 1, "lines": patch });
        let answer = json!({
            "filePath": path, "oldString": old, "newString": new, "originalFile": original, "structuredPatch": [hunk],
            "userModified": false, "replaceAll": false,
        });
        let input = json!({ "file_path": path, "old_string": old, "new_string": new, "replace_all": false });
        self.write_tool_call(file, "Edit", input, json!(text), answer)
    }

    /// Writes a subagent: the call in the parent's file, the subagent's transcript and meta file, and the result of the
    /// call.
    fn write_subagent(&mut self, file: &mut TranscriptFile, folder: &Path, bytes: u64) -> BenchResult<()> {
        let agent = self.random.name("a");
        let subagents_folder = folder.join(&file.session).join("subagents");
        fs::create_dir_all(&subagents_folder)?;
        let prompt = self.random_text(900);
        self.begin_message(file);
        let call = self.random.name("toolu_");
        let input = json!({ "description": "Look into it", "prompt": prompt, "subagent_type": "general-purpose" });
        self.write_block(file, json!({ "type": "tool_use", "id": call, "name": "Agent", "input": input }), "tool_use")?;
        let meta = json!({ "agentType": "general-purpose", "description": "Look into it", "toolUseId": call, "spawnDepth": 1 });
        fs::write(subagents_folder.join(format!("agent-{agent}.meta.json")), meta.to_string())?;
        let path = subagents_folder.join(format!("agent-{agent}.jsonl"));
        let mut own = TranscriptFile::create(&path, &file.session, Some(agent.clone()))?;
        own.prompt.clone_from(&file.prompt);
        let line = json!({ "promptId": own.prompt, "type": "user", "message": { "role": "user", "content": prompt } });
        self.write_chained_line(&mut own, line)?;
        let before = self.stats.bytes;
        while self.stats.bytes - before < bytes {
            self.write_tool_turn(&mut own)?;
        }
        let text = self.write_reply(&mut own, "end_turn")?;
        own.out.flush()?;
        let answer = json!({
            "status": "completed", "prompt": prompt, "agentId": agent, "agentType": "general-purpose",
            "content": [{ "type": "text", "text": text }], "totalDurationMs": 60_000, "totalTokens": 43_000, "totalToolUseCount": 9,
        });
        let content = json!([{ "type": "text", "text": text }, { "type": "text", "text": format!("agentId: {agent} (use SendMessage to continue this agent)") }]);
        self.write_tool_result(file, &call, content, answer)
    }

    fn write_tool_call(
        &mut self,
        file: &mut TranscriptFile,
        tool: &str,
        input: Value,
        text: Value,
        answer: Value,
    ) -> BenchResult<()> {
        let call = self.random.name("toolu_");
        self.write_block(file, json!({ "type": "tool_use", "id": call, "name": tool, "input": input }), "tool_use")?;
        self.write_tool_result(file, &call, text, answer)
    }

    fn write_tool_result(
        &mut self,
        file: &mut TranscriptFile,
        call: &str,
        text: Value,
        answer: Value,
    ) -> BenchResult<()> {
        let result = json!([{ "tool_use_id": call, "type": "tool_result", "content": text }]);
        let line = json!({ "promptId": file.prompt, "type": "user", "message": { "role": "user", "content": result }, "toolUseResult": answer });
        self.write_chained_line(file, line)
    }

    fn write_reply(&mut self, file: &mut TranscriptFile, stop_reason: &str) -> BenchResult<String> {
        self.begin_message(file);
        let text = self.random_text(800);
        self.write_block(file, json!({ "type": "text", "text": text }), stop_reason)?;
        Ok(text)
    }

    fn begin_message(&mut self, file: &mut TranscriptFile) {
        (file.message, file.request) = (self.random.name("msg_"), self.random.name("req_"));
        file.output = 20 + self.random.below(2_000);
    }

    /// Writes one block of a message. Each block is a line that repeats the usage of the whole message.
    fn write_block(&mut self, file: &mut TranscriptFile, block: Value, stop_reason: &str) -> BenchResult<()> {
        let usage = json!({
            "input_tokens": 12, "cache_creation_input_tokens": 1_204, "cache_read_input_tokens": 48_213, "output_tokens": file.output,
            "server_tool_use": { "web_search_requests": 0, "web_fetch_requests": 0 }, "service_tier": "standard",
            "cache_creation": { "ephemeral_1h_input_tokens": 0, "ephemeral_5m_input_tokens": 1_204 }, "inference_geo": "", "iterations": [], "speed": "standard",
        });
        let message = json!({
            "id": file.message, "type": "message", "role": "assistant", "model": MODEL, "content": [block], "stop_reason": stop_reason,
            "stop_sequence": null, "usage": usage, "stop_details": null,
        });
        let line = json!({ "message": message, "requestId": file.request, "type": "assistant" });
        self.write_chained_line(file, line)
    }

    /// Writes a line that follows the last one, with the fields that every line has.
    fn write_chained_line(&mut self, file: &mut TranscriptFile, line: Value) -> BenchResult<()> {
        self.clock += 250_000 + i64::try_from(self.random.below(3_000_000)).unwrap_or_default();
        let uuid = self.random.uuid().to_string();
        let mut whole = json!({ "parentUuid": file.last_uuid, "isSidechain": file.agent.is_some() });
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
        file.last_uuid = Some(uuid);
        self.write_line(file, whole)
    }

    fn write_line(&mut self, file: &mut TranscriptFile, line: Value) -> BenchResult<()> {
        let mut text = line.to_string();
        text.push('\n');
        file.out.write_all(text.as_bytes())?;
        self.stats.lines += 1;
        self.stats.bytes += text.len() as u64;
        file.bytes += text.len() as u64;
        Ok(())
    }

    /// A random piece of the pool.
    fn random_text(&mut self, bytes: usize) -> String {
        let start = usize::try_from(self.random.below((self.pool.len() - bytes - 8) as u64)).unwrap_or_default();
        let start = self.pool.ceil_char_boundary(start);
        let end = self.pool.ceil_char_boundary(start + bytes);
        // The random prefix makes almost all texts different.
        format!("{} {}", self.random.name(""), &self.pool[start..end])
    }
}

/// A transcript file that is being written, and the state of its conversation.
#[derive(Debug)]
struct TranscriptFile {
    out: BufWriter<File>,
    session: String,
    agent: Option<String>,
    last_uuid: Option<String>,
    prompt: String,
    message: String,
    request: String,
    output: u64,
    bytes: u64,
}

impl TranscriptFile {
    fn create(path: &Path, session: &str, agent: Option<String>) -> BenchResult<Self> {
        Ok(Self {
            out: BufWriter::with_capacity(1 << 20, File::create(path)?),
            session: session.to_owned(),
            agent,
            last_uuid: None,
            prompt: String::new(),
            message: String::new(),
            request: String::new(),
            output: 0,
            bytes: 0,
        })
    }
}

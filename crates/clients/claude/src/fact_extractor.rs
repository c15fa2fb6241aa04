//! Extracts facts from the lines of a transcript, and keeps the state that later lines need.

use std::collections::{BTreeMap, HashSet, VecDeque};

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use trackway_capture::{
    commands::{CompletedCommand, HeadLog, find_removed, may_contain_commits},
    lenient::lenient,
    redact::redacted,
    work_tree,
};
use trackway_domain::{
    Time, closing,
    enums::{Evidence, RunStatus},
    observed::{Fact, ObservedFact, PromptKey, SessionFacts, SubagentFacts, UsageFacts},
    spawn::{prompt_hash, tagged_role},
};

use crate::{
    AGENT_TREES,
    line::{self, Block, Content, Line, Message, Origin, Progress},
    notification::{Notification, is_notification, tag_text},
    tool::{self, Input, Response, Tool},
};

/// Maximum number of stored lines of inline subagents. A later line names its parent line, and the parent line
/// identifies the agent.
const CHAIN_LINES_MAX: usize = 512;
/// Maximum number of stored calls without a result.
const PENDING_MAX: usize = 256;
/// The largest input of a call that is kept in memory until its result comes, in bytes.
const CALL_BYTES_MAX: usize = 64 << 10;
/// Prefixes of user lines that are not prompts.
const NON_PROMPT_PREFIXES: &[&str] = &[
    "<command-name>",
    "<local-command-",
    "<bash-",
    // Output of hooks, in version 1.0.
    "<session-start-hook>",
    "<user-prompt-submit-hook>",
    "Caveat: The messages below were generated",
    "Unknown slash command:",
];
const INTERRUPTED_PREFIX: &str = "[Request interrupted by user";
const FEEDBACK_PREFIX: &str = "Stop hook feedback:";

/// The state between lines, stored with the read cursor.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct State {
    /// The number of lines read.
    lines: i64,
    /// The time of the last line that had one.
    last_at: Option<i64>,
    /// The session's last known working directory.
    cwd: Option<String>,
    version: Option<String>,
    branch: Option<String>,
    /// The turns of the agents in this file, by name. The name of the file's own agent is empty here; inline agents
    /// have names.
    agents: BTreeMap<String, TurnState>,
    /// Recent lines of inline agents: line id and agent.
    chain: VecDeque<(String, String)>,
    /// Calls without a result, and the offsets of their lines in the file.
    pending: BTreeMap<String, u64>,
    /// Background agents, and the calls that started them.
    launched: BTreeMap<String, String>,
    /// Whether the agent of this file is a warm-up agent, which a client starts with the prompt `Warmup`.
    warms_up: bool,
}

impl State {
    /// In version 1.0, a resumed session repeats lines with new ids, and lines have no request ids.
    fn copies_get_new_ids(&self) -> bool {
        self.version.as_deref().is_some_and(|version| version.starts_with("1.0."))
    }
}

/// The state of an agent's turn.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
struct TurnState {
    prompt_id: Option<String>,
    prompt_line: Option<String>,
    /// Whether the prompt was read. A file may start without it.
    prompted: bool,
    /// The last text of the agent. It is the final reply of the turn unless the agent continues.
    words: Option<String>,
    /// The time of the last text.
    words_at: Option<i64>,
    /// Whether the end-of-run prompt was sent.
    closing: bool,
    /// Whether the end of the turn was reported.
    rested: bool,
}

/// A tool call whose result was not read yet.
#[derive(Debug)]
struct Call {
    name: String,
    input: Input,
    at: Time,
}

/// Extracts facts from one transcript file.
#[derive(Debug)]
pub struct FactExtractor {
    /// The agent of this file; none for a session's own file.
    agent: Option<String>,
    path: String,
    pub state: State,
    /// Pending calls whose input is small enough to keep in memory.
    calls: BTreeMap<String, Call>,
    /// The agents and calls that progress lines have matched so far.
    progress_matches: HashSet<(String, String)>,
    head_log: HeadLog,
    pub facts: Vec<ObservedFact>,
}

impl FactExtractor {
    pub fn new(path: &str, agent: Option<&str>, state: State) -> Self {
        Self {
            agent: agent.map(Into::into),
            path: path.to_owned(),
            state,
            calls: BTreeMap::new(),
            progress_matches: HashSet::new(),
            head_log: HeadLog::new(Some(AGENT_TREES)),
            facts: Vec::new(),
        }
    }

    /// Processes one line, which starts at `offset`. `reread` reads the line of an earlier call at its offset.
    pub fn process_line(&mut self, mut line: Line<'_>, offset: u64, reread: &mut dyn FnMut(u64) -> Option<Vec<u8>>) {
        self.state.lines += 1;
        let at = line.timestamp.or(self.state.last_at.map(Time::from_micros)).unwrap_or(Time::from_micros(0));
        self.state.last_at = Some(at.micros());
        self.push_session_facts(&line, at);
        let message = line.message.take().unwrap_or_default();
        match line.kind.as_deref() {
            Some("user") => self.process_user_line(&line, message, at, reread),
            Some("assistant") => self.process_assistant_line(&line, message, at, offset),
            Some("progress") => self.process_progress_line(&line, at),
            Some("queue-operation") => self.process_queue_line(&line, at),
            _ => {}
        }
    }

    /// Counts a line without reading it, so that the line numbers match the file.
    pub fn skip_line(&mut self) {
        self.state.lines += 1;
    }

    /// Handles the end of the file, which may still grow: ends the turns of agents whose last line was a text. A
    /// warm-up agent is abandoned at once: when version 2.1.2 of the client resumes a session, it may write the agent's
    /// reply to a file of another session.
    pub fn end_of_file(&mut self) {
        for name in self.state.agents.keys().cloned().collect::<Vec<_>>() {
            self.end_turn(&name);
        }
        if self.state.warms_up {
            self.abandon();
        }
    }

    /// Reports turns without an end as incomplete, because the file will not grow.
    pub fn abandon(&mut self) {
        let at = Time::from_micros(self.state.last_at.unwrap_or_default());
        for name in self.state.agents.keys().cloned().collect::<Vec<_>>() {
            let turn = self.turn(&name);
            if turn.prompt_line.is_some() && !std::mem::replace(&mut turn.rested, true) {
                self.push(at, &name, Fact::RunEnd { status: RunStatus::Incomplete, message: None, error: None });
            }
        }
    }

    fn push_session_facts(&mut self, line: &Line<'_>, at: Time) {
        let State { cwd, version, branch, .. } = &mut self.state;
        let update_if_changed = |known: &mut Option<String>, current: &Option<String>| {
            let new = current.is_some() && known != current;
            if new {
                known.clone_from(current);
            }
            new
        };
        let is_first = cwd.is_none();
        let moved = update_if_changed(cwd, &line.cwd);
        let changed = update_if_changed(version, &line.version) | update_if_changed(branch, &line.git_branch);
        if !(changed || moved && is_first) {
            return;
        }
        let location = line.cwd.as_deref().map(|cwd| work_tree::locate(cwd, Some(AGENT_TREES))).unwrap_or_default();
        let facts = SessionFacts {
            cwd: line.cwd.clone(),
            root: location.root,
            workspace: location.workspace,
            version: line.version.clone(),
            git_branch: line.git_branch.clone(),
            ..SessionFacts::default()
        };
        let agent = self.agent.as_deref();
        self.facts.push(ObservedFact::new(at, agent, &PromptKey::default(), Fact::Session(Box::new(facts))));
    }

    /// The agent of a line: that of the file, or an inline agent found through the parent line.
    fn agent_of(&mut self, line: &Line<'_>) -> String {
        if self.agent.is_some() || !line.is_sidechain {
            return String::new();
        }
        let uuid = line.uuid.clone().unwrap_or_default();
        let known = line.parent_uuid.as_ref().and_then(|parent| {
            self.state.chain.iter().rev().find(|(line, _)| line == parent).map(|(_, agent)| agent.clone())
        });
        let agent = match (known, &line.parent_uuid) {
            (Some(agent), _) => agent,
            // The parent line is no longer stored. Assume the agent of the latest inline line.
            (None, Some(_)) if !self.state.chain.is_empty() => {
                self.state.chain.back().map(|(_, agent)| agent.clone()).unwrap_or_default()
            }
            _ => format!("inline-{}", uuid.chars().filter(char::is_ascii_hexdigit).take(12).collect::<String>()),
        };
        self.state.chain.push_back((uuid, agent.clone()));
        if self.state.chain.len() > CHAIN_LINES_MAX {
            self.state.chain.pop_front();
        }
        agent
    }

    fn turn(&mut self, name: &str) -> &mut TurnState {
        self.state.agents.entry(name.to_owned()).or_default()
    }

    fn push(&mut self, at: Time, name: &str, fact: Fact) {
        let turn = self.turn(name);
        let prompt = PromptKey { id: turn.prompt_id.clone(), line: turn.prompt_line.clone() };
        let agent = if name.is_empty() { self.agent.as_deref() } else { Some(name) };
        let location = work_tree::locate_fact(self.state.cwd.as_deref(), Some(AGENT_TREES), &fact);
        self.facts.push(ObservedFact::new(at, agent, &prompt, fact).at_location(location));
    }

    /// Starts the run at the first line of an agent, which need not be the prompt: some versions do not write it.
    fn start_run_on_first_line(&mut self, line: &Line<'_>, at: Time, name: &str) {
        if (self.agent.is_some() || !name.is_empty()) && self.turn(name).prompt_line.is_none() {
            self.turn(name).prompt_line.clone_from(&line.uuid);
            self.push(at, name, Fact::SubagentStart { agent_type: None });
        }
    }

    fn process_user_line(
        &mut self,
        line: &Line<'_>,
        message: Message<'_>,
        at: Time,
        reread: &mut dyn FnMut(u64) -> Option<Vec<u8>>,
    ) {
        let name = self.agent_of(line);
        let content = message.content;
        if let Content::Blocks(blocks) = &content
            && blocks.iter().any(|block| block.kind.as_deref() == Some("tool_result"))
        {
            self.start_run_on_first_line(line, at, &name);
            self.reopen_turn(&name);
            for block in blocks {
                self.process_tool_result(line, block, at, &name, reread);
            }
            return;
        }
        let text = content.text();
        let origin: Origin = lenient(line.origin);
        if line.is_compact_summary {
            return;
        }
        if let Some(feedback) = text.strip_prefix(FEEDBACK_PREFIX) {
            // Version 1.0 writes the feedback as a list.
            let feedback = feedback.trim_start().trim_start_matches("- ");
            let closing = feedback.starts_with(closing::PROMPT_MARKER);
            if closing {
                // The text before the end-of-run prompt is the agent's final reply.
                self.end_turn(&name);
                self.turn(&name).words = None;
            }
            self.reopen_turn(&name);
            self.turn(&name).closing = closing;
            return;
        }
        if text.starts_with(INTERRUPTED_PREFIX) {
            self.reopen_turn(&name);
            self.turn(&name).rested = true;
            self.push(at, &name, Fact::RunEnd { status: RunStatus::Cancelled, message: None, error: None });
            return;
        }
        let is_client_message = line.is_meta && !(self.agent.is_some() && origin.kind.is_some());
        if is_client_message
            || text.trim().is_empty()
            || NON_PROMPT_PREFIXES.iter().any(|start| text.starts_with(start))
        {
            return;
        }
        let is_notification = is_notification(&text) || origin.kind.as_deref() == Some("task-notification");
        self.process_prompt(line, at, &name, &text, is_notification);
    }

    fn process_prompt(&mut self, line: &Line<'_>, at: Time, name: &str, text: &str, is_notification: bool) {
        let of_agent = self.agent.is_some() || !name.is_empty();
        let is_first = of_agent && !self.turn(name).prompted;
        // Version 2.1.40 may write the prompt after the reply to it. The run has started already.
        let is_late = is_first && line.parent_uuid.is_none() && self.turn(name).prompt_line.is_some();
        let command = slash_command_text(text);
        let text = command.as_deref().unwrap_or(text);
        if is_late {
            self.turn(name).prompted = true;
        } else {
            self.end_turn(name);
            *self.turn(name) = TurnState {
                prompt_id: line.prompt_id.clone(),
                prompt_line: line.uuid.clone(),
                prompted: true,
                ..TurnState::default()
            };
        }
        if is_first {
            let is_warmup = text == "Warmup";
            self.state.warms_up = is_warmup && self.agent.is_some();
            let facts = SubagentFacts {
                prompt_hash: Some(prompt_hash(text)),
                tagged_role: tagged_role(&redacted(text)),
                is_not_spawned: is_warmup,
                ..SubagentFacts::default()
            };
            self.push(at, name, Fact::Subagent(facts));
        }
        if is_late {
            return;
        }
        let hash = prompt_hash(text);
        if is_notification && !of_agent {
            let tool_use_id = self.parse_notification(text).and_then(|(_, call)| call);
            self.push(at, name, Fact::Notified { hash, tool_use_id });
        } else {
            let copies_get_new_ids = self.state.copies_get_new_ids();
            self.push(at, name, Fact::Prompt { text: redacted(text).into_owned(), hash, copies_get_new_ids });
        }
        self.push_background_outcome(text, at);
    }

    /// Every notification has a `queue-operation` line, but only some also appear as a prompt.
    fn process_queue_line(&mut self, line: &Line<'_>, at: Time) {
        self.push_background_outcome(&Content::text_of(line.content), at);
    }

    /// Reports the outcome of a background agent, if the text is a notification.
    fn push_background_outcome(&mut self, text: &str, at: Time) {
        let Some((notification, call)) = self.parse_notification(text) else { return };
        let result = call.and_then(|call| notification.spawn_result(call));
        for fact in notification.match_fact().into_iter().chain(result) {
            self.push(at, "", fact);
        }
    }

    /// Parses a notification, and looks up the call that started the agent if the notification does not name it.
    fn parse_notification<'a>(&self, text: &'a str) -> Option<(Notification<'a>, Option<String>)> {
        let notification = Notification::parse(text)?;
        let call = notification
            .tool_use_id
            .map(str::to_owned)
            .or_else(|| self.state.launched.get(notification.agent).cloned());
        Some((notification, call))
    }

    fn process_assistant_line(&mut self, line: &Line<'_>, message: Message<'_>, at: Time, offset: u64) {
        let name = self.agent_of(line);
        self.start_run_on_first_line(line, at, &name);
        let is_synthetic = message.model.as_deref() == Some("<synthetic>");
        // A message without an id is identified by its line.
        let id = message.id.as_ref().or(line.uuid.as_ref());
        if let (Some(id), Some(usage), false) = (id, &message.usage, is_synthetic) {
            let facts = UsageFacts {
                message_id: id.clone(),
                request_id: line.request_id.clone(),
                model: message.model.clone(),
                input_tokens: usage.input_tokens,
                output_tokens: usage.output_tokens,
                cache_creation_tokens: usage.cache_creation_input_tokens,
                cache_read_tokens: usage.cache_read_input_tokens,
                copies_get_new_ids: self.state.copies_get_new_ids(),
            };
            self.push_usage(at, &name, facts);
        }
        let blocks = match message.content {
            Content::Text(text) => vec![Block { kind: Some("text".into()), text: Some(text), ..Block::default() }],
            Content::Blocks(blocks) => blocks,
        };
        let mut reply = None;
        let mut has_calls = false;
        for (block, number) in blocks.into_iter().zip(0..) {
            match block.kind.as_deref() {
                Some("text") => reply = block.text.filter(|text| !text.trim().is_empty()).or(reply),
                Some("tool_use") => {
                    has_calls = true;
                    self.process_tool_call(block, at, &name, offset, number);
                }
                _ => {}
            }
        }
        if line.is_api_error_message {
            let error = reply.map(|error| redacted(&error).into_owned());
            self.reopen_turn(&name);
            self.turn(&name).rested = true;
            self.push(at, &name, Fact::RunEnd { status: RunStatus::Failed, message: None, error });
            return;
        }
        if has_calls {
            self.reopen_turn(&name);
        } else if let Some(reply) = reply.filter(|_| !is_synthetic) {
            self.process_reply(line, at, &name, &reply);
        }
        let ends_turn =
            matches!(message.stop_reason.as_deref(), Some("end_turn" | "stop_sequence" | "max_tokens" | "refusal"));
        if ends_turn && !is_synthetic && !has_calls {
            self.end_turn(&name);
        }
    }

    fn push_usage(&mut self, at: Time, name: &str, facts: UsageFacts) {
        // The lines of one message repeat its usage. The line with the most output tokens counts.
        let agent = if name.is_empty() { self.agent.as_deref() } else { Some(name) };
        let is_same =
            |known: &UsageFacts| (&known.message_id, &known.request_id) == (&facts.message_id, &facts.request_id);
        let same = self.facts.iter_mut().rev().take(8).find_map(|observed| match &mut observed.fact {
            Fact::Usage(known) if is_same(known) && observed.agent.as_deref() == agent => Some(known),
            _ => None,
        });
        match same {
            Some(known) if facts.output_tokens > known.output_tokens => *known = facts,
            Some(_) => {}
            None => self.push(at, name, Fact::Usage(facts)),
        }
    }

    fn process_reply(&mut self, line: &Line<'_>, at: Time, name: &str, text: &str) {
        let reply = redacted(text).into_owned();
        if self.turn(name).closing {
            self.turn(name).closing = false;
            self.turn(name).rested = true;
            self.push(at, name, Fact::EndOfRunReply { answer: reply });
            return;
        }
        self.push(at, name, Fact::Reply { text: reply.clone(), line: line.uuid.clone() });
        self.reopen_turn(name);
        let turn = self.turn(name);
        (turn.words, turn.words_at) = (Some(reply), Some(at.micros()));
    }

    /// Reports the end of a turn at the time of the agent's last text, unless it was reported before.
    fn end_turn(&mut self, name: &str) {
        let turn = self.turn(name);
        let (Some(words), Some(at), false) = (turn.words.clone(), turn.words_at, turn.rested) else {
            return;
        };
        turn.rested = true;
        let at = Time::from_micros(at);
        self.push(at, name, Fact::RunEnd { status: RunStatus::Completed, message: Some(words), error: None });
    }

    /// Reopens a turn whose end was reported too early: more lines follow.
    fn reopen_turn(&mut self, name: &str) {
        let turn = self.turn(name);
        let was_completed = std::mem::take(&mut turn.rested) && turn.words.take().is_some();
        turn.words = None;
        if let (true, Some(at)) = (was_completed, turn.words_at) {
            let fact = Fact::RunEnd { status: RunStatus::Running, message: None, error: None };
            self.push(Time::from_micros(at), name, fact);
        }
    }

    fn process_tool_call(&mut self, block: Block<'_>, at: Time, name: &str, offset: u64, number: i64) {
        let (Some(id), Some(tool)) = (block.id, block.name) else { return };
        let Some(kind) = Tool::from_name(&tool) else { return };
        let input: Input = lenient(block.input);
        if kind == Tool::Spawn {
            let position = Some((self.path.clone(), self.state.lines, number));
            if let Some(spawn) = tool::spawn_facts(&id, &input, position) {
                self.push(at, name, Fact::Spawn(spawn));
            }
        }
        self.state.pending.insert(id.clone(), offset);
        // The line of a large input is read again when the result comes, because many calls may be waiting.
        if block.input.is_none_or(|input| input.get().len() <= CALL_BYTES_MAX) {
            self.calls.insert(id, Call { name: tool, input, at });
        }
        if self.state.pending.len() > PENDING_MAX {
            let oldest = self.state.pending.iter().min_by_key(|(_, offset)| **offset).map(|(id, _)| id.clone());
            if let Some(oldest) = oldest {
                self.state.pending.remove(&oldest);
                self.calls.remove(&oldest);
            }
        }
    }

    fn process_tool_result(
        &mut self,
        line: &Line<'_>,
        block: &Block<'_>,
        at: Time,
        name: &str,
        reread: &mut dyn FnMut(u64) -> Option<Vec<u8>>,
    ) {
        let Some(id) = block.tool_use_id.as_deref() else { return };
        let Some(offset) = self.state.pending.remove(id) else { return };
        let call = self.calls.remove(id).or_else(|| reread(offset).and_then(|line| find_call(&line, id)));
        let Some(call) = call else { return };
        let failed = block.is_error == Some(true);
        match Tool::from_name(&call.name) {
            Some(Tool::Spawn) => {
                self.process_spawn_result(id, block.content, &lenient(line.tool_use_result), failed, at, name);
            }
            Some(Tool::File) if !failed => {
                let response: Response = lenient(line.tool_use_result);
                let text = Content::text_of(block.content);
                if let Some(file) = tool::file_facts(&call.name, Some(id), &call.input, &response, Some(&text)) {
                    self.push(at, name, Fact::File(file));
                }
            }
            Some(Tool::Shell) => {
                self.push_commits(&call, &shell_output(line, block), at, name);
                if !failed {
                    self.push_removals(id, &call, at, name);
                }
            }
            _ => {}
        }
    }

    fn push_removals(&mut self, id: &str, call: &Call, at: Time, name: &str) {
        let command = call.input.command.as_deref().unwrap_or_default();
        for file in find_removed(tool::SHELL, id, command, self.state.cwd.as_deref()) {
            self.push(at, name, Fact::File(file));
        }
    }

    fn push_commits(&mut self, call: &Call, shell_output: &str, at: Time, name: &str) {
        let cwd = self.state.cwd.as_deref();
        let command = call.input.command.as_deref().unwrap_or_default();
        let command = CompletedCommand { cwd, command, output: shell_output, since: call.at, until: at };
        for commit in self.head_log.commits_of(&command) {
            self.push(at, name, Fact::Commit(commit));
        }
    }

    fn process_spawn_result(
        &mut self,
        id: &str,
        content: Option<&RawValue>,
        response: &Response,
        failed: bool,
        at: Time,
        name: &str,
    ) {
        let tool_use_id = id.to_owned();
        let text = Content::text_of(content);
        if failed {
            let error = Some(redacted(&text).into_owned());
            self.push(at, name, Fact::SpawnResult { tool_use_id, status: "failed".into(), error });
            return;
        }
        let is_background = response.is_async == Some(true) || tool::is_background_launch(&text);
        let default_status = if is_background { "async_launched" } else { "completed" };
        let status = response.status.clone().unwrap_or_else(|| default_status.to_owned());
        self.push(at, name, Fact::SpawnResult { tool_use_id: tool_use_id.clone(), status, error: None });
        match response.agent_id.as_deref().or_else(|| tool::agent_id_in_text(&text)) {
            Some(agent) => {
                let agent_id = agent.to_owned();
                if is_background && self.state.launched.len() < PENDING_MAX {
                    self.state.launched.insert(agent_id.clone(), tool_use_id.clone());
                }
                self.push(at, name, Fact::Match { tool_use_id, agent_id, evidence: Evidence::ToolResult });
            }
            // Inline agents have no ids: the result text identifies the agent. End the turns of the inline agents
            // first, so that their last texts are known.
            None => {
                for inline in self.state.agents.keys().filter(|name| !name.is_empty()).cloned().collect::<Vec<_>>() {
                    self.end_turn(&inline);
                }
                self.push(at, name, Fact::ResultText { tool_use_id, text: redacted(&text).into_owned() });
            }
        }
    }

    fn process_progress_line(&mut self, line: &Line<'_>, at: Time) {
        let progress: Progress = lenient(line.data);
        if progress.kind.as_deref() != Some("agent_progress") {
            return;
        }
        if let (Some(agent_id), Some(tool_use_id)) = (progress.agent_id, line.parent_tool_use_id.clone())
            && self.progress_matches.insert((agent_id.clone(), tool_use_id.clone()))
        {
            self.push(at, "", Fact::Match { tool_use_id, agent_id, evidence: Evidence::AgentProgress });
        }
    }
}

/// The output of a shell command if it may contain a commit, or else an empty string. Scanning the raw JSON is cheaper
/// than unescaping outputs, most of which are long and contain no commit.
fn shell_output(line: &Line<'_>, block: &Block<'_>) -> String {
    let mentions_commit = |raw: &RawValue| may_contain_commits(raw.get());
    if !line.tool_use_result.is_some_and(mentions_commit) && !block.content.is_some_and(mentions_commit) {
        return String::new();
    }
    lenient::<Response>(line.tool_use_result).stdout.unwrap_or_else(|| Content::text_of(block.content))
}

/// Finds the call with this id in a line.
fn find_call(line: &[u8], id: &str) -> Option<Call> {
    line::read(&String::from_utf8_lossy(line), |line| {
        let at = line.timestamp.unwrap_or(Time::from_micros(0));
        let Content::Blocks(blocks) = line.message?.content else { return None };
        let block = blocks.into_iter().find(|block| block.id.as_deref() == Some(id))?;
        Some(Call { name: block.name?, input: lenient(block.input), at })
    })
    .ok()?
}

/// The text of a slash command as typed: `/name arguments`.
fn slash_command_text(text: &str) -> Option<String> {
    if !text.starts_with("<command-message>") {
        return None;
    }
    let name = tag_text(text, "command-name")?;
    let arguments = tag_text(text, "command-args").unwrap_or_default();
    Some(format!("{name} {arguments}").trim_end().to_owned())
}

//! Reading a transcript line by line: what each line says, and what has to be remembered to understand the next.

use std::collections::{BTreeMap, HashSet, VecDeque};

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use trackway_capture::{
    commands::{HeadLog, Ran, may_tell_commits, removed},
    lenient::lenient,
    redact::redacted,
    work_tree,
};
use trackway_domain::{
    Time, closing,
    observed::{Fact, PromptKey, Seen, SessionFacts, SubagentFacts, UsageFacts},
    spawn::{prompt_hash, tagged_role},
    words::{Evidence, RunStatus},
};

use crate::{
    AGENT_TREES,
    line::{self, Block, Content, Line, Message, Origin, Progress},
    notification::{Notification, between, is_notification},
    tool::{self, Input, Response, Tool},
};

/// Lines of inline subagents whose place in their chain is remembered.
const CHAIN_LINES_MAX: usize = 512;
/// Calls without an answer that are remembered.
const PENDING_MAX: usize = 256;
/// Bytes of a call that are kept until its answer comes.
const CALL_KEPT_MAX: usize = 64 << 10;
/// What a user line that is no prompt begins with.
const NOT_PROMPTS: &[&str] = &[
    "<command-name>",
    "<local-command-",
    "<bash-",
    // What hooks say, in 1.0.
    "<session-start-hook>",
    "<user-prompt-submit-hook>",
    "Caveat: The messages below were generated",
    "Unknown slash command:",
];
const INTERRUPTED: &str = "[Request interrupted by user";
const FEEDBACK: &str = "Stop hook feedback:";

/// What is remembered between lines, and kept with the offset.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct State {
    /// Lines read so far.
    lines: i64,
    /// The last time a line had.
    last_at: Option<i64>,
    /// What was last said of the session.
    cwd: Option<String>,
    version: Option<String>,
    branch: Option<String>,
    /// Where each agent in this file is: the file's own under an empty name, inline ones under theirs.
    agents: BTreeMap<String, Place>,
    /// The lines of inline agents: which agent each belongs to.
    chain: VecDeque<(String, String)>,
    /// Calls that wait for their answer, and where they stand in the file.
    pending: BTreeMap<String, u64>,
    /// Agents in the background, and the calls that launched them.
    launched: BTreeMap<String, String>,
    /// Whether the client only warms up the agent whose file this is.
    warms_up: bool,
}

/// Where one agent is in its turn.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
struct Place {
    prompt_id: Option<String>,
    prompt_line: Option<String>,
    /// Whether its prompt was read: a file may begin without.
    prompted: bool,
    /// Its last words, which end the turn unless something follows.
    words: Option<String>,
    /// When it said them.
    words_at: Option<i64>,
    /// Whether the end-of-run prompt was asked.
    closing: bool,
    /// Whether the last thing was said to have come to rest.
    rested: bool,
}

/// A call in the lines at hand.
#[derive(Debug)]
struct Call {
    name: String,
    input: Input,
    at: Time,
}

/// One file being read.
#[derive(Debug)]
pub struct Reading {
    /// The agent whose file this is; none for a session's own.
    agent: Option<String>,
    path: String,
    pub state: State,
    calls: BTreeMap<String, Call>,
    progress: HashSet<(String, String)>,
    head_log: HeadLog,
    pub facts: Vec<Seen>,
}

impl Reading {
    pub fn new(path: &str, agent: Option<&str>, state: State) -> Self {
        Self {
            agent: agent.map(Into::into),
            path: path.to_owned(),
            state,
            calls: BTreeMap::new(),
            progress: HashSet::new(),
            head_log: HeadLog::new(Some(AGENT_TREES)),
            facts: Vec::new(),
        }
    }

    /// Takes one line in. `offset` is where it begins; `again` reads the line of an earlier call.
    pub fn take(&mut self, mut line: Line<'_>, offset: u64, again: &mut dyn FnMut(u64) -> Option<Vec<u8>>) {
        self.state.lines += 1;
        let at = line.timestamp.or(self.state.last_at.map(Time::from_micros)).unwrap_or(Time::from_micros(0));
        self.state.last_at = Some(at.micros());
        self.session(&line, at);
        let message = line.message.take().unwrap_or_default();
        match line.kind.as_deref() {
            Some("user") => self.user(&line, message, at, again),
            Some("assistant") => self.assistant(&line, message, at, offset),
            Some("progress") => self.progress(&line, at),
            Some("queue-operation") => self.queued(&line, at),
            _ => {}
        }
    }

    /// Passes over a line that is nothing to us: lines are counted as every tool counts them.
    pub fn pass(&mut self) {
        self.state.lines += 1;
    }

    /// The end of what there is: an agent that said its last words has come to rest. Nobody waits for one that is warmed
    /// up, and when 2.1.2 resumes a session, its words stand in a file of that one.
    pub fn pause(&mut self) {
        for name in self.state.agents.keys().cloned().collect::<Vec<_>>() {
            self.rest_unless_rested(&name);
        }
        if self.state.warms_up {
            self.give_up();
        }
    }

    /// Nothing more will come: what did not come to rest was given up.
    pub fn give_up(&mut self) {
        let at = Time::from_micros(self.state.last_at.unwrap_or_default());
        for name in self.state.agents.keys().cloned().collect::<Vec<_>>() {
            let place = self.place(&name);
            if place.prompt_line.is_some() && !std::mem::replace(&mut place.rested, true) {
                self.push(at, &name, Fact::Rest { status: RunStatus::Incomplete, message: None, error: None });
            }
        }
    }

    fn session(&mut self, line: &Line<'_>, at: Time) {
        let State { cwd, version, branch, .. } = &mut self.state;
        let news = |known: &mut Option<String>, said: &Option<String>| {
            let new = said.is_some() && known != said;
            if new {
                known.clone_from(said);
            }
            new
        };
        let first = cwd.is_none();
        let moved = news(cwd, &line.cwd);
        let changed = news(version, &line.version) | news(branch, &line.git_branch);
        if !(changed || moved && first) {
            return;
        }
        let place = line.cwd.as_deref().map(|cwd| work_tree::find(cwd, Some(AGENT_TREES))).unwrap_or_default();
        let facts = SessionFacts {
            cwd: line.cwd.clone(),
            root: place.root,
            workspace: place.workspace,
            version: line.version.clone(),
            git_branch: line.git_branch.clone(),
            ..SessionFacts::default()
        };
        let agent = self.agent.as_deref();
        self.facts.push(Seen::new(at, agent, &PromptKey::default(), Fact::Session(Box::new(facts))));
    }

    /// Which agent a line is of: the file's, or an inline one by the chain of lines.
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
            // Its line was long ago: the latest chain goes on.
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

    fn place(&mut self, name: &str) -> &mut Place {
        self.state.agents.entry(name.to_owned()).or_default()
    }

    fn push(&mut self, at: Time, name: &str, fact: Fact) {
        let place = self.place(name);
        let prompt = PromptKey { id: place.prompt_id.clone(), line: place.prompt_line.clone() };
        let agent = if name.is_empty() { self.agent.as_deref() } else { Some(name) };
        let place = work_tree::place_of(self.state.cwd.as_deref(), Some(AGENT_TREES), &fact);
        self.facts.push(Seen::new(at, agent, &prompt, fact).seen_in(place));
    }

    /// The first line of an agent's file begins its run, prompt or not: some versions leave the prompt out.
    fn begin_if_first(&mut self, line: &Line<'_>, at: Time, name: &str) {
        if (self.agent.is_some() || !name.is_empty()) && self.place(name).prompt_line.is_none() {
            self.place(name).prompt_line.clone_from(&line.uuid);
            self.push(at, name, Fact::SubagentStart { agent_type: None });
        }
    }

    fn user(&mut self, line: &Line<'_>, message: Message<'_>, at: Time, again: &mut dyn FnMut(u64) -> Option<Vec<u8>>) {
        let name = self.agent_of(line);
        let content = message.content;
        if let Content::Blocks(blocks) = &content
            && blocks.iter().any(|block| block.kind.as_deref() == Some("tool_result"))
        {
            self.begin_if_first(line, at, &name);
            self.go_on(&name);
            for block in blocks {
                self.result(line, block, at, &name, again);
            }
            return;
        }
        let text = content.text();
        let origin: Origin = lenient(line.origin);
        if line.is_compact_summary {
            return;
        }
        if let Some(feedback) = text.strip_prefix(FEEDBACK) {
            // Version 1.0 makes a list of it.
            let feedback = feedback.trim_start().trim_start_matches("- ");
            let closing = feedback.starts_with(closing::MARK);
            if closing {
                // What it said before it was asked is its final word.
                self.rest_unless_rested(&name);
                self.place(&name).words = None;
            }
            self.go_on(&name);
            self.place(&name).closing = closing;
            return;
        }
        if text.starts_with(INTERRUPTED) {
            self.go_on(&name);
            self.place(&name).rested = true;
            self.push(at, &name, Fact::Rest { status: RunStatus::Cancelled, message: None, error: None });
            return;
        }
        let told = line.is_meta && !(self.agent.is_some() && origin.kind.is_some());
        if told || text.trim().is_empty() || NOT_PROMPTS.iter().any(|start| text.starts_with(start)) {
            return;
        }
        let notified = is_notification(&text) || origin.kind.as_deref() == Some("task-notification");
        self.prompt(line, at, &name, &text, notified);
    }

    fn prompt(&mut self, line: &Line<'_>, at: Time, name: &str, text: &str, notified: bool) {
        let of_agent = self.agent.is_some() || !name.is_empty();
        let first = of_agent && !self.place(name).prompted;
        // 2.1.40 may write the prompt after the answer to it: the run has begun without.
        let late = first && line.parent_uuid.is_none() && self.place(name).prompt_line.is_some();
        let typed = slash_command(text);
        let text = typed.as_deref().unwrap_or(text);
        if late {
            self.place(name).prompted = true;
        } else {
            self.rest_unless_rested(name);
            *self.place(name) = Place {
                prompt_id: line.prompt_id.clone(),
                prompt_line: line.uuid.clone(),
                prompted: true,
                ..Place::default()
            };
        }
        if first {
            let warms_up = text == "Warmup";
            self.state.warms_up = warms_up && self.agent.is_some();
            let facts = SubagentFacts {
                prompt_hash: Some(prompt_hash(text)),
                tagged_role: tagged_role(&redacted(text)),
                not_spawned: warms_up,
                ..SubagentFacts::default()
            };
            self.push(at, name, Fact::Subagent(facts));
        }
        if late {
            return;
        }
        let hash = prompt_hash(text);
        if notified && !of_agent {
            let tool_use_id = self.notified(text).and_then(|(_, call)| call);
            self.push(at, name, Fact::Notified { hash, tool_use_id });
        } else {
            self.push(at, name, Fact::Prompt { text: redacted(text).into_owned(), hash });
        }
        self.notification(text, at);
    }

    /// A notification is always in the queue, and only sometimes a prompt.
    fn queued(&mut self, line: &Line<'_>, at: Time) {
        self.notification(&Content::text_of(line.content), at);
    }

    /// What became of an agent in the background.
    fn notification(&mut self, text: &str, at: Time) {
        let Some((told, call)) = self.notified(text) else { return };
        let result = call.and_then(|call| told.result(call));
        for fact in told.matched().into_iter().chain(result) {
            self.push(at, "", fact);
        }
    }

    /// What a notification says, and the call that launched the agent, as far as that was read.
    fn notified<'a>(&self, text: &'a str) -> Option<(Notification<'a>, Option<String>)> {
        let told = Notification::read(text)?;
        let call = told.tool_use_id.map(str::to_owned).or_else(|| self.state.launched.get(told.agent).cloned());
        Some((told, call))
    }

    fn assistant(&mut self, line: &Line<'_>, message: Message<'_>, at: Time, offset: u64) {
        let name = self.agent_of(line);
        self.begin_if_first(line, at, &name);
        let synthetic = message.model.as_deref() == Some("<synthetic>");
        // A message without an id is its line.
        let id = message.id.as_ref().or(line.uuid.as_ref());
        if let (Some(id), Some(usage), false) = (id, &message.usage, synthetic) {
            let facts = UsageFacts {
                message_id: id.clone(),
                request_id: line.request_id.clone(),
                model: message.model.clone(),
                input_tokens: usage.input_tokens,
                output_tokens: usage.output_tokens,
                cache_creation_tokens: usage.cache_creation_input_tokens,
                cache_read_tokens: usage.cache_read_input_tokens,
            };
            self.usage(at, &name, facts);
        }
        let blocks = match message.content {
            Content::Text(text) => vec![Block { kind: Some("text".into()), text: Some(text), ..Block::default() }],
            Content::Blocks(blocks) => blocks,
        };
        let mut words = None;
        let mut calls = false;
        for (block, number) in blocks.into_iter().zip(0..) {
            match block.kind.as_deref() {
                Some("text") => words = block.text.filter(|text| !text.trim().is_empty()).or(words),
                Some("tool_use") => {
                    calls = true;
                    self.call(block, at, &name, offset, number);
                }
                _ => {}
            }
        }
        if line.is_api_error_message {
            let error = words.map(|words| redacted(&words).into_owned());
            self.go_on(&name);
            self.place(&name).rested = true;
            self.push(at, &name, Fact::Rest { status: RunStatus::Failed, message: None, error });
            return;
        }
        if calls {
            self.go_on(&name);
        } else if let Some(words) = words.filter(|_| !synthetic) {
            self.say(line, at, &name, &words);
        }
        let ended =
            matches!(message.stop_reason.as_deref(), Some("end_turn" | "stop_sequence" | "max_tokens" | "refusal"));
        if ended && !synthetic && !calls {
            self.rest_unless_rested(&name);
        }
    }

    fn usage(&mut self, at: Time, name: &str, facts: UsageFacts) {
        // The lines of one message follow each other: the last of them is the one that counts.
        let agent = if name.is_empty() { self.agent.as_deref() } else { Some(name) };
        let is_same =
            |known: &UsageFacts| (&known.message_id, &known.request_id) == (&facts.message_id, &facts.request_id);
        let same = self.facts.iter_mut().rev().take(8).find_map(|seen| match &mut seen.fact {
            Fact::Usage(known) if is_same(known) && seen.agent.as_deref() == agent => Some(known),
            _ => None,
        });
        match same {
            Some(known) if facts.output_tokens > known.output_tokens => *known = facts,
            Some(_) => {}
            None => self.push(at, name, Fact::Usage(facts)),
        }
    }

    fn say(&mut self, line: &Line<'_>, at: Time, name: &str, words: &str) {
        let said = redacted(words).into_owned();
        if self.place(name).closing {
            self.place(name).closing = false;
            self.place(name).rested = true;
            self.push(at, name, Fact::Closing { answer: said });
            return;
        }
        self.push(at, name, Fact::Reply { text: said.clone(), line: line.uuid.clone() });
        self.go_on(name);
        let place = self.place(name);
        (place.words, place.words_at) = (Some(said), Some(at.micros()));
    }

    /// An agent that said its last words came to rest when it said them.
    fn rest_unless_rested(&mut self, name: &str) {
        let place = self.place(name);
        let (Some(words), Some(at), false) = (place.words.clone(), place.words_at, place.rested) else {
            return;
        };
        place.rested = true;
        let at = Time::from_micros(at);
        self.push(at, name, Fact::Rest { status: RunStatus::Completed, message: Some(words), error: None });
    }

    /// What was taken for the end of a turn was not: more follows.
    fn go_on(&mut self, name: &str) {
        let place = self.place(name);
        let rested_with_words = std::mem::take(&mut place.rested) && place.words.take().is_some();
        place.words = None;
        if let (true, Some(at)) = (rested_with_words, place.words_at) {
            let fact = Fact::Rest { status: RunStatus::Running, message: None, error: None };
            self.push(Time::from_micros(at), name, fact);
        }
    }

    fn call(&mut self, block: Block<'_>, at: Time, name: &str, offset: u64, number: i64) {
        let (Some(id), Some(tool)) = (block.id, block.name) else { return };
        let Some(kind) = Tool::named(&tool) else { return };
        let input: Input = lenient(block.input);
        if kind == Tool::Spawn {
            let place = Some((self.path.clone(), self.state.lines, number));
            if let Some(spawn) = tool::spawn(&id, &input, place) {
                self.push(at, name, Fact::Spawn(spawn));
            }
        }
        self.state.pending.insert(id.clone(), offset);
        // A large one is read again when its answer comes: many may wait.
        if block.input.is_none_or(|input| input.get().len() <= CALL_KEPT_MAX) {
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

    fn result(
        &mut self,
        line: &Line<'_>,
        block: &Block<'_>,
        at: Time,
        name: &str,
        again: &mut dyn FnMut(u64) -> Option<Vec<u8>>,
    ) {
        let Some(id) = block.tool_use_id.as_deref() else { return };
        let Some(offset) = self.state.pending.remove(id) else { return };
        let call = self.calls.remove(id).or_else(|| again(offset).and_then(|line| call_in(&line, id)));
        let Some(call) = call else { return };
        let failed = block.is_error == Some(true);
        match Tool::named(&call.name) {
            Some(Tool::Spawn) => {
                self.spawn_result(id, block.content, &lenient(line.tool_use_result), failed, at, name);
            }
            Some(Tool::File) if !failed => {
                let response: Response = lenient(line.tool_use_result);
                let said = Content::text_of(block.content);
                if let Some(file) = tool::file(&call.name, Some(id), &call.input, &response, Some(&said)) {
                    self.push(at, name, Fact::File(file));
                }
            }
            Some(Tool::Shell) => {
                self.commits(&call, &printed(line, block), at, name);
                if !failed {
                    self.removals(id, &call, at, name);
                }
            }
            _ => {}
        }
    }

    fn removals(&mut self, id: &str, call: &Call, at: Time, name: &str) {
        let command = call.input.command.as_deref().unwrap_or_default();
        for file in removed(tool::SHELL, id, command, self.state.cwd.as_deref()) {
            self.push(at, name, Fact::File(file));
        }
    }

    fn commits(&mut self, call: &Call, printed: &str, at: Time, name: &str) {
        let cwd = self.state.cwd.as_deref();
        let command = call.input.command.as_deref().unwrap_or_default();
        let ran = Ran { cwd, command, printed, since: call.at, until: at };
        for commit in self.head_log.commits_of(&ran) {
            self.push(at, name, Fact::Commit(commit));
        }
    }

    fn spawn_result(
        &mut self,
        id: &str,
        content: Option<&RawValue>,
        response: &Response,
        failed: bool,
        at: Time,
        name: &str,
    ) {
        let tool_use_id = id.to_owned();
        let said = Content::text_of(content);
        if failed {
            let error = Some(redacted(&said).into_owned());
            self.push(at, name, Fact::SpawnResult { tool_use_id, status: "failed".into(), error });
            return;
        }
        let is_launched = response.is_async == Some(true) || tool::is_launched_in_words(&said);
        let unsaid = if is_launched { "async_launched" } else { "completed" };
        let status = response.status.clone().unwrap_or_else(|| unsaid.to_owned());
        self.push(at, name, Fact::SpawnResult { tool_use_id: tool_use_id.clone(), status, error: None });
        match response.agent_id.as_deref().or_else(|| tool::agent_in_words(&said)) {
            Some(agent) => {
                let agent_id = agent.to_owned();
                if is_launched && self.state.launched.len() < PENDING_MAX {
                    self.state.launched.insert(agent_id.clone(), tool_use_id.clone());
                }
                self.push(at, name, Fact::Match { tool_use_id, agent_id, evidence: Evidence::ToolResult });
            }
            // Inline agents have no id anywhere: the one that said this. Its words are in by now.
            None => {
                for inline in self.state.agents.keys().filter(|name| !name.is_empty()).cloned().collect::<Vec<_>>() {
                    self.rest_unless_rested(&inline);
                }
                self.push(at, name, Fact::ResultText { tool_use_id, text: redacted(&said).into_owned() });
            }
        }
    }

    fn progress(&mut self, line: &Line<'_>, at: Time) {
        let progress: Progress = lenient(line.data);
        if progress.kind.as_deref() != Some("agent_progress") {
            return;
        }
        if let (Some(agent_id), Some(tool_use_id)) = (progress.agent_id, line.parent_tool_use_id.clone())
            && self.progress.insert((agent_id.clone(), tool_use_id.clone()))
        {
            self.push(at, "", Fact::Match { tool_use_id, agent_id, evidence: Evidence::AgentProgress });
        }
    }
}

/// What a command printed, as far as it may tell of a commit. Most of it is long and does not: to see that costs less
/// than to take it out of its quotes.
fn printed(line: &Line<'_>, block: &Block<'_>) -> String {
    let tells = |raw: &RawValue| may_tell_commits(raw.get());
    if !line.tool_use_result.is_some_and(tells) && !block.content.is_some_and(tells) {
        return String::new();
    }
    lenient::<Response>(line.tool_use_result).stdout.unwrap_or_else(|| Content::text_of(block.content))
}

/// The call of an id in a line that is read again.
fn call_in(line: &[u8], id: &str) -> Option<Call> {
    line::read(&String::from_utf8_lossy(line), |line| {
        let at = line.timestamp.unwrap_or(Time::from_micros(0));
        let Content::Blocks(blocks) = line.message?.content else { return None };
        let block = blocks.into_iter().find(|block| block.id.as_deref() == Some(id))?;
        Some(Call { name: block.name?, input: lenient(block.input), at })
    })
    .ok()?
}

/// What was typed, of a command that became a prompt: `/name arguments`.
fn slash_command(text: &str) -> Option<String> {
    if !text.starts_with("<command-message>") {
        return None;
    }
    let name = between(text, "command-name")?;
    let arguments = between(text, "command-args").unwrap_or_default();
    Some(format!("{name} {arguments}").trim_end().to_owned())
}

//! Hook events, independent of the client. The adapter of a client parses the client's events into these.

use trackway_domain::{
    Time,
    enums::{Evidence, RunStatus},
    observed::{Fact, FileFacts, Observation, ObservedFact, PromptKey, SessionFacts, Source, SpawnFacts},
    spawn::prompt_hash,
};

use crate::{commands::find_removed, redact::redacted, transcript::Transcript, work_tree};

/// The fields of an event that a hook process needs to find the database of the event.
#[derive(Debug, Clone)]
pub struct EventHeader {
    /// The client's name for the event, for the log.
    pub name: String,
    /// The directory of the session.
    pub cwd: Option<String>,
}

/// A hook event.
#[derive(Debug, Clone)]
pub struct HookEvent {
    /// The client's name for the event.
    pub name: String,
    pub session: String,
    /// The subagent that the event is about; none for the main agent.
    pub agent: Option<String>,
    pub prompt_id: Option<String>,
    pub cwd: Option<String>,
    pub transcript_path: Option<String>,
    pub kind: EventKind,
    /// Facts about the agent, from files that the client writes next to its transcripts.
    pub sidecar_facts: Vec<Fact>,
    /// Transcripts whose new lines should be read now.
    pub transcripts_to_read: Vec<Transcript>,
}

/// The kinds of hook events.
#[derive(Debug, Clone)]
pub enum EventKind {
    SessionStarted {
        source: Option<String>,
    },
    Prompted {
        text: String,
    },
    /// The client begins a run of the main agent, to report the result of a background agent.
    Notified {
        hash: String,
        tool_use_id: Option<String>,
        outcome: Vec<Fact>,
    },
    ToolStarted(ToolCall),
    ToolEnded(ToolCall, ToolResult),
    SubagentStarted {
        agent_type: Option<String>,
        /// False while the client may still replace this session by another one.
        in_session: bool,
    },
    SubagentStopped(Stop),
    Stopped(Stop),
    /// The agent stopped because of an error.
    Failed {
        error: Option<String>,
    },
    Compacting,
    SessionEnded,
    /// The event itself states no facts, but transcripts may have new lines.
    Other,
}

/// A tool call that Trackway records.
#[derive(Debug, Clone)]
pub enum ToolCall {
    /// Starts a subagent.
    Spawn(SpawnFacts),
    /// Changes a file.
    File(Box<FileFacts>),
    /// Runs a command.
    Command {
        tool: &'static str,
        /// The id of the call, and the command line.
        call: Option<(String, String)>,
    },
}

/// The result of a tool call.
#[derive(Debug, Clone, Default)]
pub struct ToolResult {
    /// The reason for the failure of the call.
    pub error: Option<String>,
    /// The status of a spawn, if the client states it.
    pub status: Option<String>,
    /// The subagent that a spawn started.
    pub agent: Option<String>,
}

/// The end of a turn.
#[derive(Debug, Clone, Default)]
pub struct Stop {
    /// The agent's last message.
    pub message: Option<String>,
    /// Whether a hook prevented an earlier stop of the agent. In that case the message answers that hook.
    pub after_hook: bool,
}

/// The answer of a hook to the client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// Gives context to a starting agent.
    Context(String),
    /// Makes a stopping agent continue, with this prompt.
    Continue(String),
}

impl HookEvent {
    /// The stop, if the event ends a turn without an error.
    pub fn stop(&self) -> Option<&Stop> {
        match &self.kind {
            EventKind::Stopped(stop) | EventKind::SubagentStopped(stop) => Some(stop),
            _ => None,
        }
    }

    /// Whether an agent starts and may receive context.
    pub fn is_start(&self) -> bool {
        matches!(self.kind, EventKind::SessionStarted { .. } | EventKind::SubagentStarted { .. })
    }

    /// Whether the event ends a command, which may have made commits. Every command counts, because a script can
    /// commit.
    pub fn may_have_committed(&self) -> bool {
        matches!(self.kind, EventKind::ToolEnded(ToolCall::Command { .. }, _))
    }

    /// Whether the client may write more to its transcripts without sending another event. Some clients write the last
    /// message after the stop event, and a killed client sends no event for the end of the session.
    pub fn may_be_last(&self) -> bool {
        self.stop().is_some() || matches!(self.kind, EventKind::Failed { .. } | EventKind::SessionEnded)
    }

    /// The prompt that the event belongs to.
    pub fn prompt(&self) -> PromptKey {
        PromptKey { id: self.prompt_id.clone(), line: None }
    }

    /// Wraps facts of this event in an observation.
    pub fn observation(&self, client: &'static str, facts: Vec<ObservedFact>) -> Observation {
        Observation { client, session: self.session.clone(), source: Source::Hook, facts, progress: None }
    }

    /// The facts that the event states. `agent_trees` is the folder in which the client creates work trees for its
    /// agents.
    pub fn facts(&self, agent_trees: Option<&str>, at: Time) -> Vec<ObservedFact> {
        let session = || self.session_fact(agent_trees, at);
        let seen = |fact| {
            let place = work_tree::locate_fact(self.cwd.as_deref(), agent_trees, &fact);
            ObservedFact::new(at, self.agent.as_deref(), &self.prompt(), fact).at_location(place)
        };
        match &self.kind {
            EventKind::SessionStarted { .. } => vec![session()],
            EventKind::Prompted { text } => {
                let (text, hash) = (redacted(text).into_owned(), prompt_hash(text));
                // A resumed session repeats lines of its transcript, but no events, so this prompt is not a copy.
                vec![session(), seen(Fact::Prompt { text, hash, copies_get_new_ids: false })]
            }
            EventKind::Notified { hash, tool_use_id, outcome } => {
                let notified = Fact::Notified { hash: hash.clone(), tool_use_id: tool_use_id.clone() };
                let mut facts = vec![session(), seen(notified)];
                facts.extend(outcome.iter().cloned().map(seen));
                facts
            }
            EventKind::ToolStarted(call) => self.call(call, None, session, seen),
            EventKind::ToolEnded(call, result) => self.call(call, Some(result), session, seen),
            // The client did not name the subagent. The subagent's transcript names it later.
            EventKind::SubagentStarted { .. } | EventKind::SubagentStopped(_) if self.agent.is_none() => Vec::new(),
            EventKind::SubagentStarted { agent_type, in_session } => {
                let start = seen(Fact::SubagentStart { agent_type: agent_type.clone() });
                in_session.then(session).into_iter().chain([start]).collect()
            }
            EventKind::SubagentStopped(stop) | EventKind::Stopped(stop) => {
                // An answer to a hook is not the final message of the run.
                let message = stop.message.clone().filter(|_| !stop.after_hook);
                self.run_end(seen(Fact::RunEnd { status: RunStatus::Completed, message, error: None }), at)
            }
            EventKind::Failed { error } => {
                let fact = Fact::RunEnd { status: RunStatus::Failed, message: None, error: error.clone() };
                self.run_end(seen(fact), at)
            }
            EventKind::SessionEnded => vec![seen(Fact::SessionEnd)],
            EventKind::Compacting | EventKind::Other => Vec::new(),
        }
    }

    fn call(
        &self,
        call: &ToolCall,
        result: Option<&ToolResult>,
        session: impl Fn() -> ObservedFact,
        seen: impl Fn(Fact) -> ObservedFact,
    ) -> Vec<ObservedFact> {
        let mut facts = vec![session()];
        match (call, result) {
            (ToolCall::Spawn(spawn), _) => {
                facts.push(seen(Fact::Spawn(spawn.clone())));
                let Some(result) = result else { return facts };
                let tool_use_id = spawn.tool_use_id.clone();
                let (status, error) = match &result.error {
                    Some(error) => ("failed", Some(error.clone())),
                    None => (result.status.as_deref().unwrap_or("completed"), None),
                };
                let status = status.to_owned();
                facts.push(seen(Fact::SpawnResult { tool_use_id: tool_use_id.clone(), status, error }));
                facts.extend(
                    result
                        .agent
                        .clone()
                        .map(|agent_id| seen(Fact::Match { tool_use_id, agent_id, evidence: Evidence::PostToolUse })),
                );
            }
            (ToolCall::File(file), Some(ToolResult { error: None, .. })) => {
                facts.push(seen(Fact::File(FileFacts::clone(file))));
                facts.extend(self.sidecar_facts(facts[0].at));
            }
            (ToolCall::Command { tool, call }, Some(result)) => {
                facts.push(seen(Fact::Shell));
                if let (Some((id, command)), None) = (call, &result.error) {
                    let removed = find_removed(tool, id, command, self.cwd.as_deref());
                    facts.extend(removed.into_iter().map(|file| seen(Fact::File(file))));
                }
            }
            (ToolCall::File(_) | ToolCall::Command { .. }, _) => return Vec::new(),
        }
        facts
    }

    fn run_end(&self, end: ObservedFact, at: Time) -> Vec<ObservedFact> {
        [end].into_iter().chain(self.sidecar_facts(at)).collect()
    }

    fn sidecar_facts(&self, at: Time) -> impl Iterator<Item = ObservedFact> {
        let none = PromptKey::default();
        self.sidecar_facts.iter().cloned().map(move |fact| ObservedFact::new(at, self.agent.as_deref(), &none, fact))
    }

    fn session_fact(&self, agent_trees: Option<&str>, at: Time) -> ObservedFact {
        let place = self.cwd.as_deref().map(|cwd| work_tree::locate(cwd, agent_trees)).unwrap_or_default();
        let (starts, source) = match &self.kind {
            EventKind::SessionStarted { source } => (true, source.clone()),
            _ => (false, None),
        };
        let facts = SessionFacts {
            cwd: self.cwd.clone(),
            head: place.root.as_deref().filter(|_| starts).and_then(work_tree::head),
            root: place.root,
            workspace: place.workspace,
            transcript_path: self.transcript_path.clone(),
            source,
            ..SessionFacts::default()
        };
        ObservedFact::new(at, None, &PromptKey::default(), Fact::Session(Box::new(facts)))
    }
}

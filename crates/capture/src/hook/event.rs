//! Hook events in neutral terms. An adapter parses its client's events into these.

use trackway_domain::{
    Time,
    observed::{Fact, FileFacts, Observation, PromptKey, Seen, SessionFacts, Source, SpawnFacts},
    spawn::prompt_hash,
    words::{Evidence, RunStatus},
};

use crate::{commands::removed, redact::redacted, transcript::Transcript, work_tree};

/// What a hook process reads from an event to find the database that the event goes to.
#[derive(Debug, Clone)]
pub struct Header {
    /// What the client calls the event, for the log.
    pub name: String,
    /// The directory that the session works in.
    pub cwd: Option<String>,
}

/// A hook event.
#[derive(Debug, Clone)]
pub struct HookEvent {
    /// What the client calls it.
    pub name: String,
    pub session: String,
    /// The subagent that it is about; none for the main agent.
    pub agent: Option<String>,
    pub prompt_id: Option<String>,
    pub cwd: Option<String>,
    pub transcript_path: Option<String>,
    pub happened: Happened,
    /// What files that the client writes beside its transcripts state about the agent.
    pub beside: Vec<Fact>,
    /// Transcripts to read on now.
    pub read: Vec<Transcript>,
}

/// What happened.
#[derive(Debug, Clone)]
pub enum Happened {
    SessionStarted {
        source: Option<String>,
    },
    Prompted {
        text: String,
    },
    /// The client begins a run of the main agent, to report what became of a background agent.
    Notified {
        hash: String,
        tool_use_id: Option<String>,
        outcome: Vec<Fact>,
    },
    ToolStarted(ToolCall),
    ToolEnded(ToolCall, ToolResult),
    SubagentStarted {
        agent_type: Option<String>,
        /// False while the client may still leave this session for another one.
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
    /// Nothing to record; transcripts may have to be read.
    Other,
}

/// A tool call that is recorded.
#[derive(Debug, Clone)]
pub enum ToolCall {
    /// Starts a subagent.
    Spawn(SpawnFacts),
    /// Changes a file.
    File(Box<FileFacts>),
    /// Runs a command.
    Command {
        tool: &'static str,
        /// The id of the call and the command.
        call: Option<(String, String)>,
    },
}

/// What a tool call came to.
#[derive(Debug, Clone, Default)]
pub struct ToolResult {
    /// Why the call failed.
    pub error: Option<String>,
    /// How a spawn ended, where the client states it.
    pub status: Option<String>,
    /// The subagent that a spawn started.
    pub agent: Option<String>,
}

/// The end of a turn.
#[derive(Debug, Clone, Default)]
pub struct Stop {
    /// The last words.
    pub message: Option<String>,
    /// Whether a hook kept the agent from stopping before: what it says now answers the hook.
    pub after_hook: bool,
}

/// What a hook tells the client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// Context for an agent that starts.
    Context(String),
    /// The agent must not stop yet, for this reason.
    Continue(String),
}

impl HookEvent {
    /// The end of a turn, unless an error ended it.
    pub fn stop(&self) -> Option<&Stop> {
        match &self.happened {
            Happened::Stopped(stop) | Happened::SubagentStopped(stop) => Some(stop),
            _ => None,
        }
    }

    /// Whether an agent starts, which may be given context.
    pub fn is_start(&self) -> bool {
        matches!(self.happened, Happened::SessionStarted { .. } | Happened::SubagentStarted { .. })
    }

    /// Whether a command may have made commits. Any command may: scripts commit, too.
    pub fn may_have_committed(&self) -> bool {
        matches!(self.happened, Happened::ToolEnded(ToolCall::Command { .. }, _))
    }

    /// Whether the client may write on in its transcripts without another event: some write the last words after the stop
    /// event, and a client that is killed sends no end of the session.
    pub fn may_be_last(&self) -> bool {
        self.stop().is_some() || matches!(self.happened, Happened::Failed { .. } | Happened::SessionEnded)
    }

    /// The prompt that the event belongs to.
    pub fn prompt(&self) -> PromptKey {
        PromptKey { id: self.prompt_id.clone(), line: None }
    }

    /// Facts of this event as one observation.
    pub fn observation(&self, facts: Vec<Seen>) -> Observation {
        Observation { session: self.session.clone(), source: Source::Hook, facts, progress: None }
    }

    /// The facts that the event states. `agent_trees` is the folder in which the client creates work trees for its agents.
    pub fn facts(&self, agent_trees: Option<&str>, at: Time) -> Vec<Seen> {
        let session = || self.session_fact(agent_trees, at);
        let seen = |fact| {
            let place = work_tree::place_of(self.cwd.as_deref(), agent_trees, &fact);
            Seen::new(at, self.agent.as_deref(), &self.prompt(), fact).seen_in(place)
        };
        match &self.happened {
            Happened::SessionStarted { .. } => vec![session()],
            Happened::Prompted { text } => {
                vec![session(), seen(Fact::Prompt { text: redacted(text).into_owned(), hash: prompt_hash(text) })]
            }
            Happened::Notified { hash, tool_use_id, outcome } => {
                let notified = Fact::Notified { hash: hash.clone(), tool_use_id: tool_use_id.clone() };
                let mut facts = vec![session(), seen(notified)];
                facts.extend(outcome.iter().cloned().map(seen));
                facts
            }
            Happened::ToolStarted(call) => self.call(call, None, session, seen),
            Happened::ToolEnded(call, result) => self.call(call, Some(result), session, seen),
            // A client may not tell which subagent starts or stops: its transcript does.
            Happened::SubagentStarted { .. } | Happened::SubagentStopped(_) if self.agent.is_none() => Vec::new(),
            Happened::SubagentStarted { agent_type, in_session } => {
                let start = seen(Fact::SubagentStart { agent_type: agent_type.clone() });
                in_session.then(session).into_iter().chain([start]).collect()
            }
            Happened::SubagentStopped(stop) | Happened::Stopped(stop) => {
                // The answer to a hook is not the final word.
                let message = stop.message.clone().filter(|_| !stop.after_hook);
                self.rest(seen(Fact::Rest { status: RunStatus::Completed, message, error: None }), at)
            }
            Happened::Failed { error } => {
                let fact = Fact::Rest { status: RunStatus::Failed, message: None, error: error.clone() };
                self.rest(seen(fact), at)
            }
            Happened::SessionEnded => vec![seen(Fact::SessionEnd)],
            Happened::Compacting | Happened::Other => Vec::new(),
        }
    }

    fn call(
        &self,
        call: &ToolCall,
        result: Option<&ToolResult>,
        session: impl Fn() -> Seen,
        seen: impl Fn(Fact) -> Seen,
    ) -> Vec<Seen> {
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
                facts.extend(self.beside(facts[0].at));
            }
            (ToolCall::Command { tool, call }, Some(result)) => {
                facts.push(seen(Fact::Shell));
                if let (Some((id, command)), None) = (call, &result.error) {
                    let removed = removed(tool, id, command, self.cwd.as_deref());
                    facts.extend(removed.into_iter().map(|file| seen(Fact::File(file))));
                }
            }
            (ToolCall::File(_) | ToolCall::Command { .. }, _) => return Vec::new(),
        }
        facts
    }

    fn rest(&self, rest: Seen, at: Time) -> Vec<Seen> {
        [rest].into_iter().chain(self.beside(at)).collect()
    }

    fn beside(&self, at: Time) -> impl Iterator<Item = Seen> {
        let none = PromptKey::default();
        self.beside.iter().cloned().map(move |fact| Seen::new(at, self.agent.as_deref(), &none, fact))
    }

    fn session_fact(&self, agent_trees: Option<&str>, at: Time) -> Seen {
        let place = self.cwd.as_deref().map(|cwd| work_tree::find(cwd, agent_trees)).unwrap_or_default();
        let (starts, source) = match &self.happened {
            Happened::SessionStarted { source } => (true, source.clone()),
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
        Seen::new(at, None, &PromptKey::default(), Fact::Session(Box::new(facts)))
    }
}

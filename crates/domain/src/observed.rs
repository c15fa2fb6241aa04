//! What was seen of a client's session, by a hook or in a transcript: facts, each with its own time.
//!
//! Both sources say the same things in the same words, so that one record comes out whichever spoke, and in any order.

use crate::{
    Time,
    line_trace::Written,
    words::{ChangeEvidence, CommitEvidence, Evidence, FileChange, RunStatus},
};

/// Facts about one session.
#[derive(Debug, Clone)]
pub struct Observation {
    /// The name of the client.
    pub client: &'static str,
    /// As the client calls it.
    pub session: String,
    pub source: Source,
    pub facts: Vec<Seen>,
    /// How far a transcript was read to get here.
    pub progress: Option<Progress>,
}

/// Where facts come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    Hook,
    Transcript,
    /// Another tool's record.
    Import,
}

/// One fact.
#[derive(Debug, Clone)]
pub struct Seen {
    pub at: Time,
    /// The subagent it is about; none for the session's main agent.
    pub agent: Option<String>,
    /// The prompt it belongs to, where that is known.
    pub prompt: PromptKey,
    /// Where it was seen; none where the session is.
    pub place: Option<Place>,
    pub fact: Fact,
}

/// Where on disk something was seen. A session moves, and its agents work elsewhere.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Place {
    pub cwd: Option<String>,
    /// The top of the work tree; outside one, the directory itself. Files are named from here.
    pub root: Option<String>,
    /// The top of the repository's main work tree: worktrees of one repository are one workspace. None outside one.
    pub workspace: Option<String>,
}

/// What names a prompt: the client's id for it, and the line of the transcript that holds it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct PromptKey {
    pub id: Option<String>,
    pub line: Option<String>,
}

/// What was seen.
#[derive(Debug, Clone)]
pub enum Fact {
    /// The session is there, and what is known of it.
    Session(Box<SessionFacts>),
    /// A prompt begins a run. `copies_get_new_ids` says that the client gives the lines that a resumed session repeats new
    /// ids: only their content shows that they are copies.
    Prompt { text: String, hash: String, copies_get_new_ids: bool },
    /// The client begins a run of the main agent, to tell it what became of an agent in the background.
    Notified { hash: String, tool_use_id: Option<String> },
    /// A subagent begins a run.
    SubagentStart { agent_type: Option<String> },
    /// Something is known of a subagent.
    Subagent(SubagentFacts),
    /// A call that starts a subagent.
    Spawn(SpawnFacts),
    /// What a call that starts a subagent came to.
    SpawnResult { tool_use_id: String, status: String, error: Option<String> },
    /// A call and the agent it started, named together.
    Match { tool_use_id: String, agent_id: String, evidence: Evidence },
    /// What a call answered with, where the client does not say which agent it was: the one that said this.
    ResultText { tool_use_id: String, text: String },
    /// The agent said something.
    Reply { text: String, line: Option<String> },
    /// A model call and what it used.
    Usage(UsageFacts),
    /// A file was changed.
    File(FileFacts),
    /// A commit was made.
    Commit(CommitFacts),
    /// The run came to rest; `running` takes back that it did at that time.
    Rest { status: RunStatus, message: Option<String>, error: Option<String> },
    /// The agent ran a command.
    Shell,
    /// The agent was asked the end-of-run prompt.
    Asked,
    /// The answer to the end-of-run prompt.
    Closing { answer: String },
    /// The session is over.
    SessionEnd,
}

#[derive(Debug, Clone, Default)]
pub struct SessionFacts {
    pub cwd: Option<String>,
    /// The top of the work tree that cwd is in.
    pub root: Option<String>,
    /// The top of the repository's main work tree: what the workspace is made for. None outside one.
    pub workspace: Option<String>,
    pub transcript_path: Option<String>,
    pub version: Option<String>,
    pub git_branch: Option<String>,
    /// The commit its work tree is at, to see the next one appear.
    pub head: Option<String>,
    pub source: Option<String>,
}

#[derive(Debug, Clone, Default)]
pub struct SubagentFacts {
    pub agent_type: Option<String>,
    pub depth: Option<i64>,
    pub parent_agent: Option<String>,
    /// Its first prompt, as a hash, and the role tag in it.
    pub prompt_hash: Option<String>,
    pub tagged_role: Option<String>,
    /// No spawn can have made it.
    pub not_spawned: bool,
}

#[derive(Debug, Clone)]
pub struct SpawnFacts {
    pub tool_use_id: String,
    pub subagent_type: Option<String>,
    pub name: Option<String>,
    /// What it asks for, and the hash of that before anything was left out of it.
    pub prompt: String,
    pub prompt_hash: String,
    pub description: Option<String>,
    pub background: bool,
    /// The transcript, the line in it from 1, and the block in that from 0.
    pub place: Option<(String, i64, i64)>,
}

#[derive(Debug, Clone)]
pub struct UsageFacts {
    pub message_id: String,
    pub request_id: Option<String>,
    pub model: Option<String>,
    pub input_tokens: Option<i64>,
    pub output_tokens: Option<i64>,
    pub cache_creation_tokens: Option<i64>,
    pub cache_read_tokens: Option<i64>,
    pub copies_get_new_ids: bool,
}

#[derive(Debug, Clone)]
pub struct FileFacts {
    pub path: String,
    pub change: FileChange,
    pub evidence: ChangeEvidence,
    pub tool: Option<String>,
    pub tool_use_id: Option<String>,
    /// SHA-256 of the content after the change, in hex digits.
    pub digest: Option<String>,
    pub written: Option<Written>,
}

#[derive(Debug, Clone)]
pub struct CommitFacts {
    pub hash: String,
    pub evidence: CommitEvidence,
    pub author: Option<String>,
    pub subject: Option<String>,
    pub committed_at: Option<Time>,
    /// Paths from the top of the work tree, with the old path of a renamed one.
    pub files: Vec<(String, Option<String>)>,
}

/// How far a transcript was read, to be kept with what was read.
#[derive(Debug, Clone)]
pub struct Progress {
    pub path: String,
    pub identity: String,
    pub agent: Option<String>,
    /// Where reading began; another reader may have been first.
    pub from: i64,
    pub to: i64,
    /// Whether reading began anew: the file shrank, or another took its place.
    pub anew: bool,
    pub lines: i64,
    pub bad_lines: i64,
    pub state: serde_json::Value,
}

impl Seen {
    pub fn new(at: Time, agent: Option<&str>, prompt: &PromptKey, fact: Fact) -> Self {
        Self { at, agent: agent.map(Into::into), prompt: prompt.clone(), place: None, fact }
    }

    #[must_use]
    pub fn seen_in(self, place: Option<Place>) -> Self {
        Self { place, ..self }
    }
}

//! Facts about a client's session that Trackway observed in a hook or in a transcript, each with its own time.
//!
//! Hooks and transcripts produce the same types of facts. So the record is the same whichever source reports a fact
//! first.

use crate::{
    Time,
    enums::{ChangeEvidence, CommitEvidence, Evidence, FileChange, RunStatus},
    line_trace::LineHashes,
};

/// Facts about one session, from one source.
#[derive(Debug, Clone)]
pub struct Observation {
    /// The name of the client.
    pub client: &'static str,
    /// The client's id of the session.
    pub session: String,
    pub source: Source,
    pub facts: Vec<ObservedFact>,
    /// The part of the transcript that the facts were read from.
    pub progress: Option<TranscriptProgress>,
}

/// The source of facts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    Hook,
    Transcript,
    /// The database of another tool.
    Import,
}

/// A fact, with its time and its context.
#[derive(Debug, Clone)]
pub struct ObservedFact {
    pub at: Time,
    /// The subagent that the fact is about; none for the main agent of the session.
    pub agent: Option<String>,
    /// The prompt that the fact belongs to, if it is known.
    pub prompt: PromptKey,
    /// The location of the fact on disk; none if it is the location of the session.
    pub location: Option<Location>,
    pub fact: Fact,
}

/// A location on disk. Each fact can have its own, because a session can change its directory, and its agents can work
/// in other directories.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Location {
    pub cwd: Option<String>,
    /// The root of the work tree, or the directory itself if it is outside of any work tree. File paths are relative to
    /// it.
    pub root: Option<String>,
    /// The root of the repository's main work tree; none outside a repository. All work trees of a repository are one
    /// workspace.
    pub workspace: Option<String>,
}

/// Identifies a prompt: the client's id for it, and the id of its line in the transcript.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct PromptKey {
    pub id: Option<String>,
    pub line: Option<String>,
}

/// The kinds of facts.
#[derive(Debug, Clone)]
pub enum Fact {
    /// Properties of the session.
    Session(Box<SessionFacts>),
    /// A prompt begins a run. If `copies_get_new_ids` is true, the client gives new ids to the lines that a resumed
    /// session repeats, so that only their content shows that they are copies.
    Prompt { text: String, hash: String, copies_get_new_ids: bool },
    /// The client begins a run of the main agent, to report the result of a background agent.
    Notified { hash: String, tool_use_id: Option<String> },
    /// A subagent begins a run.
    SubagentStart { agent_type: Option<String> },
    /// Properties of a subagent.
    Subagent(SubagentFacts),
    /// A tool call that starts a subagent.
    Spawn(SpawnFacts),
    /// The result of a tool call that starts a subagent.
    SpawnResult { tool_use_id: String, status: String, error: Option<String> },
    /// One source names a tool call together with the agent that it started.
    Match { tool_use_id: String, agent_id: String, evidence: Evidence },
    /// The text that a tool call returned, if the client does not name the agent. The call started the agent whose last
    /// reply is this text.
    ResultText { tool_use_id: String, text: String },
    /// The agent wrote a text.
    Reply { text: String, line: Option<String> },
    /// A model call with its token usage.
    Usage(UsageFacts),
    /// The agent changed a file.
    File(FileFacts),
    /// The agent made a commit.
    Commit(CommitFacts),
    /// The run ended. The status `running` revokes an end that was recorded with the same time.
    RunEnd { status: RunStatus, message: Option<String>, error: Option<String> },
    /// The agent ran a command.
    Shell,
    /// A hook gave the agent the end-of-run prompt.
    EndOfRunPrompt,
    /// The agent answered the end-of-run prompt.
    EndOfRunReply { answer: String },
    /// The session ended.
    SessionEnd,
}

#[derive(Debug, Clone, Default)]
pub struct SessionFacts {
    pub cwd: Option<String>,
    /// The root of the work tree that contains `cwd`.
    pub root: Option<String>,
    /// The root of the repository's main work tree, which is the workspace; none outside a repository.
    pub workspace: Option<String>,
    pub transcript_path: Option<String>,
    pub version: Option<String>,
    pub git_branch: Option<String>,
    /// The commit at HEAD of the work tree. Later observations compare HEAD with it to find new commits.
    pub head: Option<String>,
    /// How the session started, in the words of the client, such as `resume`.
    pub source: Option<String>,
}

#[derive(Debug, Clone, Default)]
pub struct SubagentFacts {
    pub agent_type: Option<String>,
    pub depth: Option<i64>,
    pub parent_agent: Option<String>,
    /// The hash of the first prompt.
    pub prompt_hash: Option<String>,
    /// The role tag in the first prompt.
    pub tagged_role: Option<String>,
    /// True if no spawn can have started the subagent.
    pub is_not_spawned: bool,
}

#[derive(Debug, Clone)]
pub struct SpawnFacts {
    pub tool_use_id: String,
    pub subagent_type: Option<String>,
    pub name: Option<String>,
    /// The prompt for the subagent, with secrets redacted.
    pub prompt: String,
    /// The hash of the prompt before redaction.
    pub prompt_hash: String,
    pub description: Option<String>,
    pub background: bool,
    /// The path of the transcript, the line in it (from 1), and the block in the line (from 0).
    pub transcript_position: Option<(String, i64, i64)>,
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
    pub line_hashes: Option<LineHashes>,
}

#[derive(Debug, Clone)]
pub struct CommitFacts {
    pub hash: String,
    pub evidence: CommitEvidence,
    pub author: Option<String>,
    pub subject: Option<String>,
    pub committed_at: Option<Time>,
    /// Paths relative to the root of the work tree, each with the old path if the commit renamed the file.
    pub files: Vec<(String, Option<String>)>,
}

/// The part of a transcript that an observation was read from. It is stored together with the facts.
#[derive(Debug, Clone)]
pub struct TranscriptProgress {
    pub path: String,
    /// Identifies the file, so that a new file at the same path is recognised.
    pub identity: String,
    pub agent: Option<String>,
    /// The byte offset at which this part begins. It must equal the stored read position, unless another reader has
    /// stored the part already.
    pub from: i64,
    pub to: i64,
    /// Whether the reader started from the beginning again, because the file shrank or was replaced.
    pub is_restarted: bool,
    pub lines: i64,
    pub bad_lines: i64,
    pub state: serde_json::Value,
}

impl ObservedFact {
    pub fn new(at: Time, agent: Option<&str>, prompt: &PromptKey, fact: Fact) -> Self {
        Self { at, agent: agent.map(Into::into), prompt: prompt.clone(), location: None, fact }
    }

    #[must_use]
    pub fn at_location(self, location: Option<Location>) -> Self {
        Self { location, ..self }
    }
}

//! The tables, a struct each. Adding a column: a migration, and a field here.

mod agents;
mod boards;
mod catalog;
mod conversations;
mod people;
mod queue;
mod record;
mod runs;
mod sessions;
mod studios;

pub use agents::{Agent, AgentLink, Report, ReportHead, RunWake, Scratchpad, ScratchpadRevision, ToldContext};
pub use boards::{Board, BoardRevision, Stickie, StickieRelation};
pub use catalog::{Label, Package, Role, Task, TaskLink, TaskReplace, TaskRevision, TaskVariant, Workflow, Workspace};
pub use conversations::{Content, Conversation, Experiment, Message, Route, Testcase};
pub use people::{Person, Tenant, Token};
pub use queue::QueueItem;
pub use record::{Logged, Registered};
pub use runs::{Run, Step, Touch, Usage};
pub use sessions::{Commit, File, FileChanged, Session, Spawn, SpawnMatch, Subagent, Transcript};
pub use studios::{
    Commitment, CommitmentMember, Confirmation, Decision, DecisionOption, Note, NoteRevision, Studio, Vote,
};

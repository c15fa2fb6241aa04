//! Row types of all tables. To add a column, write a migration and add a field here.

mod agents;
mod boards;
mod catalog;
mod conversations;
mod events;
mod people;
mod queue;
mod runs;
mod sessions;
mod studios;

pub use agents::{Agent, AgentLink, Report, ReportHead, RunWake, Scratchpad, ScratchpadRevision, StoredWakeContext};
pub use boards::{Board, BoardRevision, Stickie, StickieRelation};
pub use catalog::{Label, Package, Role, Task, TaskLink, TaskReplace, TaskRevision, TaskVariant, Workflow, Workspace};
pub use conversations::{Content, Conversation, Experiment, Message, Route, Testcase};
pub use events::{NewEvent, NewRegistryEntry};
pub use people::{Person, Tenant, Token};
pub use queue::QueueItem;
pub use runs::{Run, Step, Touch, Usage};
pub use sessions::{Commit, File, FileChangeRow, Session, Spawn, SpawnMatch, Subagent, Transcript};
pub use studios::{
    Commitment, CommitmentMember, Confirmation, Decision, DecisionOption, Note, NoteRevision, Studio, Vote,
};

//! All writes, with one type per action. This is the only crate that opens write transactions.
//!
//! The action of a command `trackway NOUN VERB` is in `NOUN/VERB.rs` or `NOUN.rs`. The delete and archive actions that
//! several nouns share are in `delete.rs` and `archive.rs`.

pub mod action;
pub mod agent;
mod agent_link;
pub mod archive;
pub mod board;
pub mod claim;
pub mod cleanup;
pub mod commitment;
pub mod context;
pub mod conversation;
pub mod core;
pub mod decision;
pub mod definition;
pub mod delete;
pub mod error;
pub mod experiment;
pub mod forget;
pub mod import;
pub mod label;
mod limits;
pub mod link;
mod lost_commit;
pub mod message;
pub mod note;
pub mod package;
pub mod person;
pub mod queue;
pub mod registry;
pub mod report;
pub mod role;
pub mod route;
pub mod run;
pub mod scratchpad;
pub mod session;
pub mod stickie;
pub mod studio;
pub mod task;
pub mod tenant;
pub mod testcase;
pub mod token;
pub mod touched;
pub mod workflow;
pub mod workspace;

pub use action::{Action, ActionOutcome, LongText, Resource};
pub use context::{Actor, Context, Credential};
pub use core::Core;
pub use error::{Error, Result};

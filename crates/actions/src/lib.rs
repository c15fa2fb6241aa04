//! Every write, one type per action. The only crate that opens a write transaction.
//!
//! The file of a command's action is `<noun>/<verb>.rs` or `<noun>.rs`; `delete.rs` and `archive.rs` hold the deletes and
//! archivings that are the same for several nouns.

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
pub mod founding;
pub mod import;
pub mod label;
mod limits;
pub mod link;
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
mod settling;
pub mod stickie;
pub mod studio;
pub mod task;
pub mod testcase;
pub mod token;
pub mod touched;
pub mod workflow;
pub mod workspace;

pub use action::{Action, Done, LongText, Resource};
pub use context::{Actor, Context, Credential};
pub use core::Core;
pub use error::{Error, Result};

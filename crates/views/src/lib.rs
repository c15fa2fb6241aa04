//! The read side of Trackway: one [`View`] type for each read-only command, and queries for other crates. Nothing here
//! writes.
//!
//! The view of a command is in `<noun>/<verb>.rs` or `<noun>.rs`. `definitions.rs` holds `get` and `list` for roles,
//! workflows, workspaces, labels, studios, people and agents.

pub mod assignment;
pub mod board;
pub mod commitment;
pub mod conversation;
pub mod decision;
pub mod definitions;
pub mod doctor;
pub mod event;
pub mod experiment;
pub mod file;
pub mod link;
pub mod made;
pub mod message;
pub mod note;
pub mod package;
pub mod page;
pub mod queue;
pub mod ready;
pub mod registry;
pub mod report;
pub mod rights;
pub mod route;
pub mod run;
pub mod scratchpad;
pub mod search;
pub mod session;
pub mod spawn;
pub mod status;
pub mod stickie;
mod studio_list;
pub mod subagent;
pub mod task;
pub mod testcase;
pub mod token;
pub mod trace;
pub mod transcript;
pub mod usage;
pub mod view;
pub mod wake;
pub mod whoami;
pub mod why;

pub use trackway_store::{Error, Result};
pub use view::View;

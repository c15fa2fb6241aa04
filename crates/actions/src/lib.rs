//! Every write, one type per action. The only room that opens a write transaction.

pub mod action;
mod agent_link;
pub mod board;
pub mod catalog;
pub mod context;
pub mod conversation;
pub mod core;
pub mod delete;
pub mod error;
pub mod founding;
mod limits;
pub mod people;
pub mod queue;
pub mod registry;
pub mod report;
pub mod retention;
pub mod run;
pub mod scratchpad;
pub mod session;
mod settling;
pub mod studio;
pub mod token;
pub mod touched;

pub use action::{Action, Done, LongText, Resource};
pub use context::{Actor, Context, Credential};
pub use core::Core;
pub use error::{Error, Result};

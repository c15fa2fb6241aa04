//! Every question, one type each. Reads only.

pub mod assignment;
pub mod board;
pub mod catalog;
pub mod conversation;
pub mod event;
pub mod file;
pub mod history;
pub mod made;
pub mod message;
pub mod package;
pub mod page;
pub mod queue;
pub mod registry;
pub mod related;
pub mod report;
pub mod run;
pub mod scratchpad;
pub mod search;
pub mod session;
pub mod status;
pub mod studio;
pub mod task;
pub mod trace;
pub mod transcript;
pub mod usage;
pub mod view;
pub mod wake;
pub mod whoami;
pub mod why;

pub use trackway_store::{Error, Result};
pub use view::View;

//! Claude Code: hook events and transcripts in, domain facts out. No SQL.

pub mod discover;
pub mod event;
pub mod lenient;
pub mod line;
mod made_by_command;
pub mod notification;
pub mod plugin;
pub mod reading;
pub mod redact;
mod removal;
pub mod settings;
pub mod tool;
pub mod transcript;
pub mod work_tree;

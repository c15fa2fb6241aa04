//! Claude Code: hook events and transcripts in, domain facts out. No SQL.

pub mod discover;
pub mod event;
pub mod lenient;
pub mod line;
pub mod notification;
pub mod plugin;
pub mod reading;
pub mod redact;
pub mod settings;
pub mod tool;
pub mod transcript;
pub mod work_tree;

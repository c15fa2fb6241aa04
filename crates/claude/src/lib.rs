//! Claude Code: hook events and transcripts in, domain facts out. No SQL.

pub mod plugin;
pub mod settings;

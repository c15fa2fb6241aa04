//! In-process tests of actions on both engines.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod commands;
mod complete_on_take;
mod concurrent_writes;
mod match_ladder;
mod queue;
mod routes;
mod tenant_isolation;
mod versions;
mod versions_model;
mod write_path;

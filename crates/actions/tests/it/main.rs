//! Tests of actions, in this process and on both engines.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod another_tenant;
mod at_once;
mod commands;
mod match_ladder;
mod queue;
mod queue_done;
mod routes;
mod versions;
mod versions_model;
mod write_path;

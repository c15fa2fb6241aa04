//! The tests of what has no crate of its own: actions and views on both engines, the test kit itself, the dependencies.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod another_tenant;
mod at_once;
mod attribution;
mod claude_client;
mod dependencies;
mod fuzz;
mod match_ladder;
mod queue;
mod queue_done;
mod queue_race;
mod reads;
mod routes;
mod scale;
mod scripted_model;
mod search;
mod version_walk;
mod versions;
mod versions_model;
mod wake;
mod write_path;

//! Tests of the test kit itself, of the dependencies, and of what several crates or processes do together.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod claude_client;
mod clients;
mod dependencies;
mod docs;
mod fuzz;
mod queue_race;
mod scripted_model;
mod structure;

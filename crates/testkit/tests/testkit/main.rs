//! Tests of the test kit, of the dependencies and the structure, and of several crates or processes together.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod claude_client;
mod clients;
mod dependencies;
mod docs;
mod fuzz;
mod glossary;
mod queue_race;
mod scripted_model;
mod structure;
mod two_clients;

//! Tests of model-driven agents, with a scripted model over HTTP, on both engines.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a panic is how a test fails")]

mod agent_test;
mod behaviour;
mod exits;
mod memory;
mod outcomes;

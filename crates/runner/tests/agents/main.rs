//! Agents that models drive, over real HTTP, on both engines.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a panic is how a test fails")]

mod behaviour;
mod exits;
mod lab;
mod memory;
mod outcomes;

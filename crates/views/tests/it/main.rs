//! Tests of views, in this process and on both engines.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod attribution;
mod reads;
mod scale;
mod search;
mod version_walk;
mod wake;

//! In-process tests of views on both engines.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod attribution;
mod latest_version_model;
mod reads;
mod scale;
mod search;
mod wake;

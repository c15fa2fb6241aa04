//! Capture: what all agent clients share. Hook events are taken in, transcripts read from offsets, secrets redacted, work trees
//! observed, and the effects of commands found. An adapter for each client implements [`client::Client`].

pub mod client;
pub mod commands;
pub mod digest;
pub mod discovery;
mod error;
pub mod hook;
pub mod ingest;
pub mod lenient;
pub mod paths;
pub mod redact;
pub mod transcript;
pub mod work_tree;

pub use error::{Error, Result};

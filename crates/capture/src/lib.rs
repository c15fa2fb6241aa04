//! Capture: the parts that all agent clients share. This crate receives hook events, reads transcripts incrementally,
//! redacts secrets, observes work trees, and finds the effects of shell commands. The adapter of each client implements
//! [`client::Client`].

pub mod client;
pub mod commands;
pub mod connection;
pub mod digest;
pub mod discovery;
mod error;
pub mod hook;
pub mod ingest;
pub mod launch;
pub mod lenient;
pub mod paths;
pub mod program;
pub mod redact;
pub mod transcript;
pub mod work_tree;

pub use error::{Error, Result};

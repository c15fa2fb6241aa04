//! Starting a client for a task.

use std::{ffi::OsString, fmt::Debug};

use serde_json::Value;

/// How a client is started: a script with its input and environment.
#[derive(Debug)]
pub struct Start {
    pub script: &'static str,
    pub shell: &'static str,
    pub input: String,
    pub environment: Vec<(&'static str, OsString)>,
}

/// What a client reports when it ends.
#[derive(Debug, Default, PartialEq)]
pub struct Report {
    pub session: Option<String>,
    /// Its last words.
    pub message: Option<String>,
    /// Whether it failed, and why.
    pub failed: bool,
    pub why: Option<String>,
    /// What the session cost, for each model that is named.
    pub costs: Vec<(Option<String>, f64)>,
    /// What is kept as the result of the item.
    pub result: Value,
}

/// Starts a client without a person, with our hooks on.
pub trait Launcher: Debug + Send + Sync {
    /// Why the client cannot be started here.
    fn missing(&self) -> Option<String>;

    /// How to start it with what the agent is told.
    fn start(&self, told: &str, model: Option<&str>) -> Start;

    /// What it reports, from what it printed.
    fn report(&self, output: &str) -> Option<Report>;
}

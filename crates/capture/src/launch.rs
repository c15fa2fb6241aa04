//! Launching a client for a task.

use std::{ffi::OsString, fmt::Debug};

use serde_json::Value;

/// The script that starts a client, with its input and environment.
#[derive(Debug)]
pub struct LaunchScript {
    pub script: &'static str,
    pub shell: &'static str,
    pub input: String,
    pub environment: Vec<(&'static str, OsString)>,
}

/// The result that a client reports when it ends.
#[derive(Debug, Default, PartialEq)]
pub struct ClientReport {
    pub session: Option<String>,
    /// The last message of the agent.
    pub message: Option<String>,
    pub failed: bool,
    /// The reason for the failure of the client.
    pub failure_reason: Option<String>,
    /// Whether the client stopped because it reached its maximum number of turns.
    pub reached_max_turns: bool,
    /// The costs of the session, per model.
    pub costs: Vec<(Option<String>, f64)>,
    /// The result for the queue item.
    pub result: Value,
}

/// Starts a client without a person, with the hooks of Trackway.
pub trait Launcher: Debug + Send + Sync {
    /// The reason why the client cannot be started on this machine. None if it can.
    fn unavailable_reason(&self) -> Option<String>;

    /// The script that starts the client with a prompt. If `model` and `max_turns` are given, the script passes them to
    /// the client.
    fn launch_script(&self, prompt: &str, model: Option<&str>, max_turns: Option<i64>) -> LaunchScript;

    /// Parses the client's report from its output.
    fn parse_report(&self, output: &str) -> Option<ClientReport>;
}

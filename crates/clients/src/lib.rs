//! The table of agent clients. To add a client, add a crate beside `claude` and an entry here.

use trackway_capture::client::Clients;
use trackway_client_claude::ClaudeCode;

/// All supported clients. The first one is the default.
pub const CLIENTS: Clients = Clients(&[&ClaudeCode]);

//! The table of agent clients. A new client is a crate beside `claude` and a line here.

use trackway_capture::client::Clients;
use trackway_client_claude::ClaudeCode;

/// Every client that Trackway records. The first one is meant where no client is named.
pub const CLIENTS: Clients = Clients(&[&ClaudeCode]);

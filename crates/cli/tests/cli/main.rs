//! Runs the `trackway` binary as a user or a script does, mostly on both engines.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]
#![expect(clippy::needless_raw_string_hashes, reason = "SNAPSHOTS=overwrite writes snapshots with hashes")]

mod agents;
mod attribution;
mod background;
mod board_sync;
mod boards;
mod claude_worker;
mod client_names;
mod connect;
mod connect_clients;
mod conversations;
mod databases;
mod demo;
mod doctor;
mod errors;
mod failover;
mod faults;
mod files;
mod hook;
mod hook_context;
mod hook_daemon;
mod hook_transactions;
mod ids;
mod import;
mod import_beads;
mod ingest;
mod ingest_watch;
mod log;
mod mcp;
mod mcp_client;
mod memory;
mod network;
mod output;
mod pages;
mod queue;
mod real_claude_code;
mod record;
mod reference;
mod related;
mod resumed_sessions;
mod retention;
mod routes;
mod run_limits;
mod search;
mod spawn_matching;
mod standard_input;
mod terminal;
mod testcases;
mod transfer;
mod up;
mod wake;
mod work;

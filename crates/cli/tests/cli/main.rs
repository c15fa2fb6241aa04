//! The binary, as a user or a script runs it, on both engines.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]
#![expect(clippy::needless_raw_string_hashes, reason = "SNAPSHOTS=overwrite writes them so")]

mod agents;
mod attribution;
mod background;
mod board_sync;
mod boards;
mod claude_worker;
mod connect;
mod conversations;
mod databases;
mod demo;
mod doctor;
mod errors;
mod failover;
mod faults;
mod files;
mod hook;
mod ids;
mod import;
mod import_beads;
mod ingest;
mod keeper;
mod ladder;
mod left_sessions;
mod live;
mod log;
mod machines;
mod mcp;
mod mcp_client;
mod memory;
mod outcomes;
mod output;
mod pages;
mod queue;
mod record;
mod reference;
mod related;
mod retention;
mod routes;
mod search;
mod studio;
mod telling;
mod terminal;
mod testcases;
mod transfer;
mod up;
mod wake;
mod watch;
mod work;

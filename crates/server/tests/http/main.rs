//! Tests of the HTTP interface, on both database engines.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod actions;
mod attribution;
mod credentials;
mod forms;
mod hostile;
mod limits;
mod links;
mod page_cache;
mod page_sizes;
mod pages;
mod scratchpads;
mod socket;
mod task_pages;
mod test_server;
mod versions;
mod visitor;
mod whoami;

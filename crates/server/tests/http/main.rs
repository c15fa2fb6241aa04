//! The doors over HTTP, on both engines.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod actions;
mod attribution;
mod credentials;
mod forms;
mod hostile;
mod kept;
mod leading;
mod limits;
mod pages;
mod scratchpads;
mod served;
mod sizes;
mod socket;
mod task_pages;
mod visitor;
mod whoami;

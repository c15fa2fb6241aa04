//! The worker: takes from the queue, executes, and ends what it took. Writes through actions only.

pub mod agent;
pub mod client;
pub mod execution;
pub mod executor;
mod insist;
pub mod leftovers;
pub mod model;
pub mod output;
pub mod pages;
pub mod service;
pub mod shell;
pub mod signals;
pub mod supervise;
pub mod worker;

pub use service::Serves;
pub use worker::{Event, Note, Settings, Stopping, Tally, work};

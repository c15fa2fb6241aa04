//! The worker: takes queue items, executes them and records how they ended. It writes through actions only.

pub mod agent;
pub mod agent_selection;
pub mod client;
pub mod execution;
pub mod executor;
pub mod model;
pub mod output;
pub mod pages;
pub mod process_cleanup;
mod retry;
pub mod shell;
pub mod signals;
pub mod supervise;
pub mod worker;

pub use agent_selection::AgentSelection;
pub use worker::{OnStop, Settings, Tally, WorkerEvent, WorkerMessage, work};

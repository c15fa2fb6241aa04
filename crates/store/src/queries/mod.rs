//! Row types of all tables, and queries that several actions or views share.

pub mod boards;
mod contents;
pub mod current_reports;
pub mod display;
pub mod integrity;
pub mod linked_tasks;
pub mod newest_per_row;
pub mod queue;
pub mod registry;
pub mod replacements;
mod run_guard;
pub mod search;
pub mod tables;
mod touches;
mod vote_results;
pub mod wake;

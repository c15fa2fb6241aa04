//! Tables as row types, and the statements that several actions or views share.

pub mod boards;
pub mod current_reports;
pub mod display;
pub mod integrity;
pub mod linked_tasks;
pub mod queue;
pub mod registry;
pub mod replacements;
pub mod search;
pub mod tables;
mod touches;
mod vote_results;
pub mod wake;

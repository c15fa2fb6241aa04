//! The catalog: roles, workflows, workspaces, labels, studios, tasks and what ties them.

pub mod definition;
pub mod import;
pub mod label;
pub(crate) mod lineage;
pub mod link;
pub mod package;
pub mod replacement;
pub mod role;
pub mod studio;
pub mod task;
pub mod workflow;
pub mod workspace;

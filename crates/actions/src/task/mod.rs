//! Tasks: definitions, versions and lineages.

pub(crate) mod lineage;
pub(crate) mod replace;
pub mod set;

pub use replace::ReplaceTask;
pub use set::SetTask;

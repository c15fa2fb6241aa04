//! Tasks: definitions, versions and lineages.

mod delete;
pub(crate) mod lineage;
pub(crate) mod replace;
pub mod set;

pub use delete::DeleteTask;
pub use replace::ReplaceTask;
pub use set::SetTask;

//! Stickies on boards.

mod archive;
mod delete;
pub(crate) mod relate;
mod set;
mod unrelate;
mod update;

pub use archive::ArchiveStickie;
pub use delete::DeleteStickie;
pub(crate) use delete::remove_stickie;
pub use relate::RelateStickies;
pub use set::SetStickie;
pub use unrelate::UnrelateStickies;
pub use update::UpdateStickie;

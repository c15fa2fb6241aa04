//! Stickies on boards.

mod archive;
pub(crate) mod relate;
mod set;

pub(crate) use archive::remove_stickie;
pub use archive::{ArchiveStickie, DeleteStickie};
pub use relate::{RelateStickies, UnrelateStickies};
pub use set::{SetStickie, UpdateStickie};

//! Actions and views as people use them: by commands.

mod catalog;
mod queue;
mod runs;
mod studio;
mod versions;

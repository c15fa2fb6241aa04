//! Actions and views through the command line, in process.

mod catalog;
mod queue;
mod runs;
mod studio;
mod versions;

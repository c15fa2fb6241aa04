//! The binary, as a user or a script runs it, on both engines.

mod catalog;
mod databases;
mod demo;
mod errors;
mod ids;
mod output;
mod reference;
mod runs;
mod studio;
mod terminal;

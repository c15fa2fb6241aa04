//! The log of what stays: one line for each failure, on standard error.

use std::io::IsTerminal;

use tracing_subscriber::filter::LevelFilter;
use trackway_domain::Error as Rule;

use crate::{environment, failure::Failure};

/// Starts it, at the level that was asked for.
pub fn start() -> Result<(), Failure> {
    let said = std::env::var(environment::LOG).ok().filter(|level| !level.is_empty());
    let level = match said {
        None => LevelFilter::WARN,
        Some(said) => said.parse().map_err(|_| {
            Rule::usage(format!("{} is not a level of the log: {said:?}", environment::LOG))
                .hint("it is one of: off, error, warn, info, debug, trace")
        })?,
    };
    let is_terminal = std::io::stderr().is_terminal();
    let log = tracing_subscriber::fmt().with_max_level(level).with_writer(std::io::stderr).with_ansi(is_terminal);
    // One that is there already is as good.
    let _ = log.with_target(false).try_init();
    Ok(())
}

//! The log of long-running commands, on standard error.

use tracing_subscriber::{
    filter::{LevelFilter, Targets},
    layer::SubscriberExt,
    util::SubscriberInitExt,
};
use trackway_domain::Error as Rule;

use crate::{environment, failure::Failure};

/// The prefix of our own crates. Events of libraries are not logged.
const LOG_TARGET: &str = "trackway";

/// Starts the log with the level in `TRACKWAY_LOG`.
pub fn start() -> Result<(), Failure> {
    let configured = std::env::var(environment::LOG).ok().filter(|level| !level.is_empty());
    let level = match configured {
        None => LevelFilter::WARN,
        Some(level) => level.parse().map_err(|_| {
            Rule::usage(format!("invalid log level in {}: {level:?}", environment::LOG))
                .hint("valid levels: off, error, warn, info, debug, trace")
        })?,
    };
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(std::io::stderr)
        // The colour feature of the library is not compiled in, and enabling colours would be an error.
        .with_ansi(false)
        .with_target(false);
    // Fails if a log was started before.
    let _ = tracing_subscriber::registry().with(lines).with(Targets::new().with_target(LOG_TARGET, level)).try_init();
    Ok(())
}

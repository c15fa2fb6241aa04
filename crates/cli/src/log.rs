//! The log of what stays: one line for each failure, on standard error.

use tracing_subscriber::{
    filter::{LevelFilter, Targets},
    layer::SubscriberExt,
    util::SubscriberInitExt,
};
use trackway_domain::Error as Rule;

use crate::{environment, failure::Failure};

/// What is ours: libraries have their own view of what is worth telling.
const OURS: &str = "trackway";

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
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(std::io::stderr)
        // Colour is a feature that is not built in, and asking for it is an error.
        .with_ansi(false)
        .with_target(false);
    // One that is there already is as good.
    let _ = tracing_subscriber::registry().with(lines).with(Targets::new().with_target(OURS, level)).try_init();
    Ok(())
}

//! A database that does not answer, or has no room, is asked again, as long as a lease lasts.

use std::{
    thread,
    time::{Duration, Instant},
};

use trackway_actions::Result;

/// The first and the longest wait for a database that does not answer.
pub(crate) const TROUBLE_WAIT: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

/// Does something, again and again while the database cannot take it, for so many seconds.
pub(crate) fn insist<T>(seconds: i64, mut deed: impl FnMut() -> Result<T>) -> Result<T> {
    let until = Instant::now() + Duration::from_secs(u64::try_from(seconds).unwrap_or(1));
    let mut wait = TROUBLE_WAIT.0;
    loop {
        match deed() {
            Err(error) if error.is_passing() && Instant::now() < until => {
                thread::sleep(wait);
                wait = (wait * 2).min(TROUBLE_WAIT.1);
            }
            outcome => return outcome,
        }
    }
}

//! A database that does not answer, or has no room, is asked again, as long as a lease lasts.

use std::{
    thread,
    time::{Duration, Instant},
};

use trackway_actions::Result;

use crate::executor::{Reins, Wish};

/// The first and the longest wait for a database that does not answer.
pub(crate) const TROUBLE_WAIT: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

/// How long it is asked again by somebody who should be gone.
const LAST_TRIES: Duration = Duration::from_secs(5);

/// Does something, again and again while the database cannot take it, for so many seconds; not for long once it is to stop.
pub(crate) fn insist<T>(seconds: i64, reins: &Reins, mut deed: impl FnMut() -> Result<T>) -> Result<T> {
    let begun = Instant::now();
    let lease = Duration::from_secs(u64::try_from(seconds).unwrap_or(1));
    let mut wait = TROUBLE_WAIT.0;
    loop {
        let patience = match reins.wished() {
            Wish::GoOn | Wish::Cancel => lease,
            Wish::Release | Wish::Stop => lease.min(LAST_TRIES),
        };
        match deed() {
            // Whoever took something was let in before.
            Err(error) if (error.is_passing() || error.is_refusal()) && begun.elapsed() < patience => {
                thread::sleep(wait);
                wait = (wait * 2).min(TROUBLE_WAIT.1);
            }
            outcome => return outcome,
        }
    }
}

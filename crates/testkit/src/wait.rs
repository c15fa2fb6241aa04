//! Waiting for what another process or thread brings about. What only needs time to pass is tested by
//! [`crate::TestEnv::advance`] instead.

use std::{
    thread,
    time::{Duration, Instant},
};

/// The pause between two looks, which doubles from the first to the last.
const PAUSES: (Duration, Duration) = (Duration::from_micros(200), Duration::from_millis(20));

/// Looks until there is an answer, and panics when there is none within this time.
#[track_caller]
pub fn wait_until<T>(what: &str, at_most: Duration, look: impl FnMut() -> Option<T>) -> T {
    poll(at_most, look).unwrap_or_else(|| panic!("waited in vain until {what}"))
}

/// Looks until there is an answer, at least once and no longer than this.
pub fn poll<T>(at_most: Duration, mut look: impl FnMut() -> Option<T>) -> Option<T> {
    let (deadline, mut pause) = (Instant::now() + at_most, PAUSES.0);
    loop {
        let answer = look();
        let left = deadline.saturating_duration_since(Instant::now());
        if answer.is_some() || left.is_zero() {
            return answer;
        }
        thread::sleep(pause.min(left));
        pause = (pause * 2).min(PAUSES.1);
    }
}

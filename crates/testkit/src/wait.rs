//! Waits for other processes and threads. Tests that only need time to pass use [`crate::TestEnv::advance`] instead.

use std::{
    thread,
    time::{Duration, Instant},
};

/// The first and the longest pause between two polls. Each pause is twice the previous one.
const PAUSES: (Duration, Duration) = (Duration::from_micros(200), Duration::from_millis(20));

/// Polls until there is a value, and panics if there is none before the timeout.
#[track_caller]
pub fn wait_until<T>(what: &str, timeout: Duration, condition: impl FnMut() -> Option<T>) -> T {
    poll(timeout, condition).unwrap_or_else(|| panic!("timed out waiting until {what}"))
}

/// Polls at least once, until there is a value or the timeout expires.
pub fn poll<T>(timeout: Duration, mut condition: impl FnMut() -> Option<T>) -> Option<T> {
    let (deadline, mut pause) = (Instant::now() + timeout, PAUSES.0);
    loop {
        let value = condition();
        let left = deadline.saturating_duration_since(Instant::now());
        if value.is_some() || left.is_zero() {
            return value;
        }
        thread::sleep(pause.min(left));
        pause = (pause * 2).min(PAUSES.1);
    }
}

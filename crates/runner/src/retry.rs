//! Retries database calls after transient failures: no answer, a full disk, a rejected login.

use std::{
    thread,
    time::{Duration, Instant},
};

use trackway_actions::Result;

use crate::executor::{JobControl, JobRequest};

/// The first and the longest delay between two tries.
pub(crate) const RETRY_DELAY: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

/// The time for which a job that must stop continues to retry.
const RETRY_TIME_WHEN_STOPPING: Duration = Duration::from_secs(5);

/// Repeats a call until it succeeds or fails permanently. Gives up after `lease_seconds`, or after five seconds once
/// the job must stop.
pub(crate) fn retry<T>(lease_seconds: i64, control: &JobControl, mut call: impl FnMut() -> Result<T>) -> Result<T> {
    let start = Instant::now();
    let lease = Duration::from_secs(u64::try_from(lease_seconds).unwrap_or(1));
    let mut delay = RETRY_DELAY.0;
    loop {
        let limit = match control.requested() {
            JobRequest::Continue | JobRequest::Cancel => lease,
            JobRequest::Release | JobRequest::Abort => lease.min(RETRY_TIME_WHEN_STOPPING),
        };
        match call() {
            // A rejected login is transient here, because the worker was connected when it took the item.
            Err(error) if (error.is_transient() || error.is_login_rejected()) && start.elapsed() < limit => {
                thread::sleep(delay);
                delay = (delay * 2).min(RETRY_DELAY.1);
            }
            outcome => return outcome,
        }
    }
}

//! The clock that dates rows and decides whether leases, delays and expiry times have passed.

use std::{
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::{Duration, SystemTime},
};

use trackway_domain::Time;

/// The system clock plus an offset, with which tests move time forward. Clones share the offset.
#[derive(Debug, Clone, Default)]
pub struct Clock {
    /// Offset in microseconds.
    ahead: Arc<AtomicI64>,
}

impl Clock {
    pub fn system() -> Self {
        Self::default()
    }

    pub fn now(&self) -> Time {
        let now = Time::from(SystemTime::now());
        Time::from_micros(now.micros().saturating_add(self.ahead.load(Ordering::Relaxed)))
    }

    /// Moves the clock forward, so that tests do not have to wait.
    pub fn advance(&self, by: Duration) {
        self.ahead.fetch_add(i64::try_from(by.as_micros()).unwrap_or(i64::MAX), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advancing_one_clone_advances_all() {
        let (clock, start) = (Clock::system(), Clock::system().now());
        assert!(clock.now().seconds_since(start) < 3_600);
        clock.clone().advance(Duration::from_hours(1));
        assert!(clock.now().seconds_since(start) >= 3_600);
        assert!(Clock::system().now().seconds_since(start) < 3_600);
    }
}

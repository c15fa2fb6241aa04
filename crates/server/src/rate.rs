//! How often one token may ask: a bucket each that fills again.

use std::{
    collections::HashMap,
    hash::{DefaultHasher, Hash, Hasher},
    sync::{Mutex, PoisonError},
    time::Instant,
};

/// Tokens remembered; past this, those that are full again are forgotten.
const REMEMBERED: usize = 10_000;

/// Who may ask how often.
#[derive(Debug)]
pub struct Rate {
    /// Requests a second, and at once.
    per_second: u32,
    buckets: Mutex<HashMap<u64, (f64, Instant)>>,
}

impl Rate {
    pub fn new(per_second: u32) -> Self {
        Self { per_second, buckets: Mutex::default() }
    }

    /// Whether a caller may ask now.
    pub fn allows(&self, caller: &str, now: Instant) -> bool {
        if self.per_second == 0 {
            return true;
        }
        let most = f64::from(self.per_second);
        let mut hasher = DefaultHasher::new();
        caller.hash(&mut hasher);
        let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        if buckets.len() > REMEMBERED {
            buckets.retain(|_, (left, since)| *left + now.duration_since(*since).as_secs_f64() * most < most);
        }
        let (left, since) = buckets.entry(hasher.finish()).or_insert((most, now));
        *left = (*left + now.duration_since(*since).as_secs_f64() * most).min(most);
        *since = now;
        let allowed = *left >= 1.0;
        if allowed {
            *left -= 1.0;
        }
        allowed
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_caller_that_asks_too_often_waits() {
        let rate = Rate::new(3);
        let now = Instant::now();
        let asked: Vec<bool> = (0..5).map(|_| rate.allows("a", now)).collect();
        assert_eq!(asked, [true, true, true, false, false]);
        assert!(rate.allows("b", now), "others are not held up");
        assert!(rate.allows("a", now + Duration::from_millis(400)));
        assert!(!rate.allows("a", now + Duration::from_millis(400)));
        assert!(Rate::new(0).allows("a", now), "no limit");
    }
}

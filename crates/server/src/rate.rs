//! The rate limit: each access token has a bucket of requests, which refills continuously.

use std::{
    collections::HashMap,
    hash::{DefaultHasher, Hash, Hasher},
    sync::{Mutex, PoisonError},
    time::Instant,
};

/// Above this number of buckets, the full ones are dropped.
const BUCKETS_MAX: usize = 10_000;

#[derive(Debug)]
pub struct RateLimiter {
    /// The number of requests per second, which is also the maximum burst.
    per_second: u32,
    buckets: Mutex<HashMap<u64, (f64, Instant)>>,
}

impl RateLimiter {
    pub fn new(per_second: u32) -> Self {
        Self { per_second, buckets: Mutex::default() }
    }

    /// Takes a request out of the caller's bucket. False if the bucket is empty.
    pub fn allows(&self, caller: &str, now: Instant) -> bool {
        if self.per_second == 0 {
            return true;
        }
        let capacity = f64::from(self.per_second);
        let mut hasher = DefaultHasher::new();
        caller.hash(&mut hasher);
        let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        if buckets.len() > BUCKETS_MAX {
            buckets.retain(|_, (left, since)| *left + now.duration_since(*since).as_secs_f64() * capacity < capacity);
        }
        let (left, since) = buckets.entry(hasher.finish()).or_insert((capacity, now));
        *left = (*left + now.duration_since(*since).as_secs_f64() * capacity).min(capacity);
        *since = now;
        let is_allowed = *left >= 1.0;
        if is_allowed {
            *left -= 1.0;
        }
        is_allowed
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn rejects_requests_above_the_rate() {
        let limiter = RateLimiter::new(3);
        let now = Instant::now();
        let allowed: Vec<bool> = (0..5).map(|_| limiter.allows("a", now)).collect();
        assert_eq!(allowed, [true, true, true, false, false]);
        assert!(limiter.allows("b", now), "other callers are not limited");
        assert!(limiter.allows("a", now + Duration::from_millis(400)));
        assert!(!limiter.allows("a", now + Duration::from_millis(400)));
        assert!(RateLimiter::new(0).allows("a", now), "no limit");
    }
}

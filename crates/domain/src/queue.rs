//! Rules of the queue: limits, leases, and the backoff after a failed attempt.

use std::str::FromStr;

use crate::{Error, Ref, Result, Time, field, kind, sentence, sentence::Field};

/// Default duration of a lease, in seconds.
pub const DEFAULT_LEASE_SECONDS: i64 = 300;
/// Longest lease, in seconds.
pub const LEASE_SECONDS_MAX: i64 = 7 * 86_400;
/// Default number of attempts at an item.
pub const DEFAULT_MAX_ATTEMPTS: i64 = 5;
/// Highest number of attempts that a caller may set.
pub const MAX_ATTEMPTS_LIMIT: i64 = 1_000;
/// Maximum number of turns of a model in a run, unless the queue item, the task or the agent sets another limit.
pub const DEFAULT_MAX_STEPS: i64 = 30;
/// Highest limit of turns that a caller may set.
pub const MAX_STEPS_LIMIT: i64 = 200;
/// Priorities range from the negative of this value to this value.
pub const PRIORITY_MAX: i64 = 1_000_000;
/// Maximum number of items that one action takes or completes.
pub const BATCH_MAX: i64 = 1_000;
/// Maximum length of a chain of runs in which each run queues the item of the next one. A person has to release an item
/// beyond this limit, so that the chain cannot become an endless loop.
pub const CHAIN_MAX: i64 = 16;

/// Tolerated clock skew between two machines, in seconds. For a longer lease, the tolerance is the duration of the
/// lease.
const SKEW_SECONDS: i64 = 60;

const SECOND_MICROS: i64 = 1_000_000;
const BACKOFF_MAX_MICROS: i64 = 300 * SECOND_MICROS;

/// The delay after a failed attempt, in microseconds. It is one second after the first attempt, doubles with each
/// further attempt, and is at most five minutes. `jitter`, from 0 to 1, shortens or lengthens it by up to a fifth.
pub fn backoff_micros(attempt: i64, jitter: f64) -> i64 {
    let doublings = u32::try_from((attempt - 1).clamp(0, 20)).unwrap_or_default();
    let base = (SECOND_MICROS << doublings).min(BACKOFF_MAX_MICROS);
    let fifth = base / 5;
    #[expect(clippy::cast_possible_truncation, reason = "a share of five minutes")]
    let moved = (jitter.clamp(0.0, 1.0) * 2.0 * fifth as f64) as i64;
    (base - fifth + moved).min(BACKOFF_MAX_MICROS)
}

/// A queue item with the fence that its holder received with it. Text form: `ID:FENCE`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FencedItem {
    pub id: Ref<kind::QueueItem>,
    pub fence: i64,
}

impl FromStr for FencedItem {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let parts = text.rsplit_once(':').filter(|(id, _)| !id.trim().is_empty());
        match parts.map(|(id, fence)| (id, fence.trim().parse())) {
            Some((id, Ok(fence))) => Ok(Self { id: Ref::new(id.trim()), fence }),
            _ => Err(Error::usage(format!("{text:?} is not a queue item with its fence, such as 1f2e3d4c:1"))
                .hint("the result of taking an item contains its id and its fence")),
        }
    }
}

impl<'de> serde::Deserialize<'de> for FencedItem {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

impl schemars::JsonSchema for FencedItem {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Fenced".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": "string", "description": "A queue item and its fence, as ID:FENCE", "pattern": r"^[0-9A-Fa-f-]{6,36}:[0-9]{1,18}$" })
    }
}

/// The time at which a lease that begins now expires.
pub fn lease_end(now: Time, lease_seconds: i64) -> Time {
    Time::from_micros(now.micros() + lease_seconds * SECOND_MICROS)
}

/// Whether a lease should be extended because its holder was active. To save writes, a lease is extended only after a
/// tenth of it has passed, or if more than the whole lease is left. The latter means that the clock was set back.
pub fn should_extend_lease(now: Time, lease_expires: Time, lease_seconds: i64) -> bool {
    let (left, whole) = (lease_expires.micros() - now.micros(), lease_seconds * SECOND_MICROS);
    left < whole / 10 * 9 || left > whole
}

/// Whether the last heartbeat of a lease is further in the future than clock skew explains. Then the clock was set back
/// after the heartbeat, and the lease would last longer than intended by that difference.
pub fn is_heartbeat_in_future(now: Time, heartbeat_at: Time, lease_seconds: i64) -> bool {
    heartbeat_at.seconds_since(now) > lease_seconds.max(SKEW_SECONDS)
}

/// Checks a requested lease duration in seconds. `None` stands for the default.
pub fn check_lease(requested: Option<i64>) -> Result<i64> {
    check_range(field!(lease), requested.unwrap_or(DEFAULT_LEASE_SECONDS), 1, LEASE_SECONDS_MAX)
}

/// Checks that a number is in a range.
pub fn check_range(field: Field, number: i64, least: i64, most: i64) -> Result<i64> {
    if (least..=most).contains(&number) {
        Ok(number)
    } else {
        Err(Error::usage(sentence![field, format!(" must be from {least} to {most}, not {number}")]))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn parses_an_item_with_its_fence() {
        let fenced: FencedItem = " 1f2e3d4c : 12 ".parse().unwrap();
        assert_eq!(fenced, FencedItem { id: Ref::new("1f2e3d4c"), fence: 12 });
        for wrong in ["", ":", "1f2e3d4c", "1f2e3d4c:", ":1", " :1", "a:b", "a:1.5", "a:99999999999999999999"] {
            let error = wrong.parse::<FencedItem>().unwrap_err();
            assert_eq!(error.to_string(), format!("{wrong:?} is not a queue item with its fence, such as 1f2e3d4c:1"));
        }
    }

    #[test]
    fn backoff_doubles_up_to_five_minutes() {
        let seconds: Vec<i64> = (1..=11).map(|attempt| backoff_micros(attempt, 0.5) / SECOND_MICROS).collect();
        assert_eq!(seconds, [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300]);
    }

    #[test]
    fn clock_that_was_set_back_is_detected() {
        let now = Time::from_micros(1_767_225_600_000_000);
        for (ahead, lease_seconds, expected) in
            [(-5, 60, false), (59, 1, false), (61, 1, true), (61, 300, false), (3_600, 300, true)]
        {
            assert_eq!(
                is_heartbeat_in_future(now, now.plus_seconds(ahead), lease_seconds),
                expected,
                "{ahead} {lease_seconds}"
            );
        }
        for (left, expected) in [(-1, true), (53, true), (55, false), (60, false), (61, true)] {
            assert_eq!(should_extend_lease(now, now.plus_seconds(left), 60), expected, "{left}");
        }
    }

    proptest! {
        #[test]
        fn jitter_changes_backoff_by_at_most_a_fifth(attempt in 1..100i64, jitter in 0.0..=1.0f64) {
            let middle = backoff_micros(attempt, 0.5);
            let moved = backoff_micros(attempt, jitter);
            prop_assert!((middle - moved).abs() <= middle / 5 + 1);
            prop_assert!((SECOND_MICROS * 4 / 5..=BACKOFF_MAX_MICROS).contains(&moved));
        }
    }
}

//! The queue's rules: limits, leases, and how long to wait after a failure.

use std::str::FromStr;

use crate::{Error, Ref, Result, Time, field, kind, sentence, sentence::Field};

/// How long a taker holds an item without a sign of life, in seconds.
pub const LEASE_SECONDS: i64 = 300;
/// The longest lease, in seconds.
pub const LEASE_SECONDS_MAX: i64 = 7 * 86_400;
/// How often an item is tried.
pub const ATTEMPTS: i64 = 5;
/// The largest number of attempts.
pub const ATTEMPTS_MAX: i64 = 1_000;
/// Turns a model may take in a run, unless the queue item, the task or the agent sets a limit.
pub const MAX_STEPS: i64 = 30;
/// The largest such limit.
pub const MAX_STEPS_MAX: i64 = 200;
/// How far from the middle a priority may be.
pub const PRIORITY_MAX: i64 = 1_000_000;
/// Items taken at once.
pub const BATCH_MAX: i64 = 1_000;
/// How long a chain of work that queues work may get before someone has to look at it.
pub const CHAIN_MAX: i64 = 16;

/// How far the clocks of two machines may differ, in seconds, or a lease where that is longer.
const SKEW_SECONDS: i64 = 60;

const SECOND_MICROS: i64 = 1_000_000;
const BACK_OFF_MAX_MICROS: i64 = 300 * SECOND_MICROS;

/// How long an item waits after its attempt of this number failed, in microseconds: a second, doubled with each, at most
/// five minutes; `jitter` is a share from 0 to 1 that moves it by up to a fifth either way.
pub fn back_off_micros(attempt: i64, jitter: f64) -> i64 {
    let doublings = u32::try_from((attempt - 1).clamp(0, 20)).unwrap_or_default();
    let base = (SECOND_MICROS << doublings).min(BACK_OFF_MAX_MICROS);
    let fifth = base / 5;
    #[expect(clippy::cast_possible_truncation, reason = "a share of five minutes")]
    let moved = (jitter.clamp(0.0, 1.0) * 2.0 * fifth as f64) as i64;
    (base - fifth + moved).min(BACK_OFF_MAX_MICROS)
}

/// An item that somebody holds, and the fence that they were given with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fenced {
    pub id: Ref<kind::QueueItem>,
    pub fence: i64,
}

impl FromStr for Fenced {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let parts = text.rsplit_once(':').filter(|(id, _)| !id.trim().is_empty());
        match parts.map(|(id, fence)| (id, fence.trim().parse())) {
            Some((id, Ok(fence))) => Ok(Self { id: Ref::new(id.trim()), fence }),
            _ => Err(Error::usage(format!("{text:?} is not an item and its fence, as 1f2e3d4c:1"))
                .hint("both are told when the item is taken")),
        }
    }
}

impl<'de> serde::Deserialize<'de> for Fenced {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

impl schemars::JsonSchema for Fenced {
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

/// When a lease that begins now is over.
pub fn lease_end(now: Time, lease_seconds: i64) -> Time {
    Time::from_micros(now.micros() + lease_seconds * SECOND_MICROS)
}

/// Whether a sign of life is worth writing down: a tenth of the lease has passed, or more than all of it is left, since the
/// clock was set back.
pub fn is_worth_extending(now: Time, lease_expires: Time, lease_seconds: i64) -> bool {
    let (left, whole) = (lease_expires.micros() - now.micros(), lease_seconds * SECOND_MICROS);
    left < whole / 10 * 9 || left > whole
}

/// Whether a lease is from before the clock was set back: the last sign of life lies further ahead than clocks of two
/// machines may differ while leases mean anything. It would last as much longer as the clock was set back by.
pub fn is_from_a_clock_set_back(now: Time, heartbeat_at: Time, lease_seconds: i64) -> bool {
    heartbeat_at.seconds_since(now) > lease_seconds.max(SKEW_SECONDS)
}

/// The lease that was asked for.
pub fn lease(asked: Option<i64>) -> Result<i64> {
    within(field!(lease), asked.unwrap_or(LEASE_SECONDS), 1, LEASE_SECONDS_MAX)
}

/// A number that has to lie in a range.
pub fn within(field: Field, number: i64, least: i64, most: i64) -> Result<i64> {
    if (least..=most).contains(&number) {
        Ok(number)
    } else {
        Err(Error::usage(sentence![field, format!(" is from {least} to {most}, not {number}")]))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn an_item_and_its_fence_are_read() {
        let fenced: Fenced = " 1f2e3d4c : 12 ".parse().unwrap();
        assert_eq!(fenced, Fenced { id: Ref::new("1f2e3d4c"), fence: 12 });
        for wrong in ["", ":", "1f2e3d4c", "1f2e3d4c:", ":1", " :1", "a:b", "a:1.5", "a:99999999999999999999"] {
            let error = wrong.parse::<Fenced>().unwrap_err();
            assert_eq!(error.to_string(), format!("{wrong:?} is not an item and its fence, as 1f2e3d4c:1"));
        }
    }

    #[test]
    fn back_off_doubles_up_to_five_minutes() {
        let seconds: Vec<i64> = (1..=11).map(|attempt| back_off_micros(attempt, 0.5) / SECOND_MICROS).collect();
        assert_eq!(seconds, [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300]);
    }

    #[test]
    fn a_lease_from_before_the_clock_was_set_back_is_known() {
        let now = Time::from_micros(1_767_225_600_000_000);
        for (ahead, lease_seconds, is_so) in
            [(-5, 60, false), (59, 1, false), (61, 1, true), (61, 300, false), (3_600, 300, true)]
        {
            assert_eq!(
                is_from_a_clock_set_back(now, now.plus_seconds(ahead), lease_seconds),
                is_so,
                "{ahead} {lease_seconds}"
            );
        }
        for (left, is_so) in [(-1, true), (53, true), (55, false), (60, false), (61, true)] {
            assert_eq!(is_worth_extending(now, now.plus_seconds(left), 60), is_so, "{left}");
        }
    }

    proptest! {
        #[test]
        fn jitter_moves_back_off_by_a_fifth_at_most(attempt in 1..100i64, jitter in 0.0..=1.0f64) {
            let middle = back_off_micros(attempt, 0.5);
            let moved = back_off_micros(attempt, jitter);
            prop_assert!((middle - moved).abs() <= middle / 5 + 1);
            prop_assert!((SECOND_MICROS * 4 / 5..=BACK_OFF_MAX_MICROS).contains(&moved));
        }
    }
}

//! Points in time: UTC, with the microsecond precision of PostgreSQL.

use std::{
    fmt,
    str::FromStr,
    time::{Duration, SystemTime},
};

use crate::{Error, Result};

/// A point in time in microseconds since 1970, UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(i64);

impl Time {
    pub const fn from_micros(micros: i64) -> Self {
        Self(micros)
    }

    pub const fn micros(self) -> i64 {
        self.0
    }

    #[must_use]
    pub fn plus_seconds(self, seconds: i64) -> Self {
        Self(self.0.saturating_add(seconds.saturating_mul(1_000_000)))
    }

    pub fn seconds_since(self, earlier: Self) -> i64 {
        (self.0 - earlier.0) / 1_000_000
    }

    /// Whether a JSON field of this name holds a time.
    pub fn is_time_field(field: &str) -> bool {
        field.ends_with("_at") || field.ends_with("_since") || TIME_FIELDS.contains(&field)
    }
}

/// Fields that hold a time, but do not have one of the usual suffixes.
const TIME_FIELDS: &[&str] = &["deadline", "expires", "lease_expires", "not_before"];

impl From<SystemTime> for Time {
    fn from(time: SystemTime) -> Self {
        let micros = |duration: Duration| i64::try_from(duration.as_micros()).unwrap_or(i64::MAX);
        match time.duration_since(SystemTime::UNIX_EPOCH) {
            Ok(since) => Self(micros(since)),
            Err(before) => Self(-micros(before.duration())),
        }
    }
}

impl fmt::Display for Time {
    /// Prints milliseconds if the time is a whole number of them, and microseconds otherwise, so that nothing is lost.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Ok(timestamp) = jiff::Timestamp::from_microsecond(self.0) else {
            return write!(formatter, "{}us", self.0);
        };
        if self.0 % 1_000 == 0 { write!(formatter, "{timestamp:.3}") } else { write!(formatter, "{timestamp:.6}") }
    }
}

/// The earliest and the latest time that can be shown in every UTC offset.
const FIRST: &str = "-009999-01-02T01:59:59Z";
const LAST: &str = "9999-12-30T22:00:00Z";

impl FromStr for Time {
    type Err = Error;

    /// Parses a time, or a day, which stands for its first instant in UTC.
    fn from_str(text: &str) -> Result<Self> {
        let day = || format!("{text}T00:00:00Z").parse::<jiff::Timestamp>();
        let parsed = text.parse().or_else(|error: jiff::Error| match day() {
            Err(day_error) if !day_error.is_range() => Err(error),
            day => day,
        });
        parsed.map(|timestamp| Self(timestamp.as_microsecond())).map_err(|error| {
            // jiff reports month 13 as "out of range" too. Only these prefixes can lead to a time that is out of range.
            if error.is_range() && ["9999-", "-", "+"].iter().any(|far| text.starts_with(far)) {
                return Error::usage(format!("{text:?} is out of range: times are from {FIRST} to {LAST}"));
            }
            Error::usage(format!("{text:?} is not a time such as 2026-02-27 or 2026-02-27T09:30:00Z"))
                .hint("give a day, which stands for midnight in UTC, or a date, a time and an offset")
        })
    }
}

impl serde::Serialize for Time {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> serde::Deserialize<'de> for Time {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

impl schemars::JsonSchema for Time {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Time".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": "string", "format": "date-time" })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn prints_the_precision_it_needs() {
        let whole: Time = "2026-02-27T09:30:00Z".parse().unwrap();
        assert_eq!(whole.to_string(), "2026-02-27T09:30:00.000Z");
        assert_eq!(Time::from_micros(whole.micros() + 7).to_string(), "2026-02-27T09:30:00.000007Z");
    }

    #[test]
    fn system_time_is_converted_on_both_sides_of_1970() {
        let at = |seconds: i64| Time::from_micros(seconds * 1_000_000);
        assert_eq!(Time::from(SystemTime::UNIX_EPOCH + Duration::from_secs(7)), at(7));
        assert_eq!(Time::from(SystemTime::UNIX_EPOCH - Duration::from_secs(7)), at(-7));
    }

    #[test]
    fn error_distinguishes_invalid_times_from_times_out_of_range() {
        assert_eq!(
            "soon".parse::<Time>().unwrap_err().to_string(),
            "\"soon\" is not a time such as 2026-02-27 or 2026-02-27T09:30:00Z"
        );
        let late = "9999-12-31T23:59:59Z";
        let error = late.parse::<Time>().unwrap_err().to_string();
        assert_eq!(error, format!("{late:?} is out of range: times are from {FIRST} to {LAST}"));
        assert!(FIRST.parse::<Time>().is_ok() && LAST.parse::<Time>().is_ok());
    }

    #[test]
    fn a_day_is_read_as_midnight_utc() {
        let time = |text: &str| text.parse::<Time>();
        assert_eq!(time("2026-02-27").unwrap(), time("2026-02-27T00:00:00Z").unwrap());
        for odd in ["2026-02-30", "2026-02", "2026-02-27T09:30", "2026-02-27 ", ""] {
            assert!(time(odd).unwrap_err().to_string().contains("is not a time such as"), "{odd:?}");
        }
        assert!(time("9999-12-31").unwrap_err().to_string().contains("is out of range"));
    }

    proptest! {
        #[test]
        fn printed_time_parses_to_the_same_time(micros in -62_000_000_000_000_000i64..250_000_000_000_000_000) {
            let time = Time::from_micros(micros);
            prop_assert_eq!(time.to_string().parse::<Time>().unwrap(), time);
        }
    }
}

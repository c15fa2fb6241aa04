//! Lengths of time as people write them: `90m`, `1h30m`, `40h`.

use std::{fmt, str::FromStr};

use crate::{Error, Result};

/// A length of time in whole seconds, at most ten years.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Duration(i64);

const UNITS: [(char, i64); 4] = [('d', 86_400), ('h', 3_600), ('m', 60), ('s', 1)];
/// The format of a duration as a regular expression, for the JSON schema.
const PATTERN: &str = r"^\s*(?=[0-9])([0-9]+d)?([0-9]+h)?([0-9]+m)?([0-9]+s)?\s*$";
const SECONDS_MAX: i64 = 10 * 366 * 86_400;

impl Duration {
    pub const fn from_seconds(seconds: i64) -> Self {
        Self(seconds)
    }

    pub const fn seconds(self) -> i64 {
        self.0
    }
}

impl fmt::Display for Duration {
    /// Prints hours, minutes and seconds, but no days, because people state estimates in hours.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (hours, minutes, seconds) = (self.0 / 3_600, self.0 / 60 % 60, self.0 % 60);
        if self.0 == 0 {
            return formatter.write_str("0s");
        }
        for (amount, unit) in [(hours, 'h'), (minutes, 'm'), (seconds, 's')] {
            if amount > 0 {
                write!(formatter, "{amount}{unit}")?;
            }
        }
        Ok(())
    }
}

impl FromStr for Duration {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        parse(text).map(Self).ok_or_else(|| {
            Error::usage(format!("{text:?} is not a duration such as 90m, 1h30m or 40h"))
                .hint("a duration is at most ten years")
        })
    }
}

/// Parses amounts with units, from the largest unit to the smallest, each at most once.
fn parse(text: &str) -> Option<i64> {
    let mut total: i64 = 0;
    let mut allowed = &UNITS[..];
    let mut rest = text.trim();
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let digits = rest.find(|character: char| !character.is_ascii_digit())?;
        let amount: i64 = rest[..digits].parse().ok()?;
        let unit = rest[digits..].chars().next()?;
        let position = allowed.iter().position(|(name, _)| *name == unit)?;
        total = total.checked_add(amount.checked_mul(allowed[position].1)?)?;
        allowed = &allowed[position + 1..];
        rest = &rest[digits + unit.len_utf8()..];
    }
    (total <= SECONDS_MAX).then_some(total)
}

impl serde::Serialize for Duration {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> serde::Deserialize<'de> for Duration {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

impl schemars::JsonSchema for Duration {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Duration".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": "string", "description": "A duration such as 90m, 1h30m or 40h", "pattern": PATTERN })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn parses_amounts_with_units() {
        for (text, seconds) in
            [("90m", 5_400), ("1h30m", 5_400), ("40h", 144_000), ("2d", 172_800), ("45s", 45), ("0s", 0)]
        {
            assert_eq!(text.parse::<Duration>().unwrap().seconds(), seconds, "{text}");
        }
    }

    #[test]
    fn prints_hours_minutes_and_seconds() {
        for (seconds, text) in [(5_400, "1h30m"), (144_000, "40h"), (300, "5m"), (61, "1m1s"), (0, "0s")] {
            assert_eq!(Duration::from_seconds(seconds).to_string(), text);
        }
    }

    #[test]
    fn rejects_invalid_durations() {
        for text in ["", "90", "m", "1m1h", "1h1h", "-5m", "1.5h", "99999999999999999999h", "é"] {
            assert!(text.parse::<Duration>().is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn printed_duration_parses_to_the_same_duration(seconds in 0..SECONDS_MAX) {
            let duration = Duration::from_seconds(seconds);
            prop_assert_eq!(duration.to_string().parse::<Duration>().unwrap(), duration);
        }
    }
}

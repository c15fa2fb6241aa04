//! SQL fragments that differ between the engines.

use crate::connection::Engine;

impl Engine {
    /// Seconds between two times, as a floating-point number.
    pub fn seconds_between(self, from: &str, to: &str) -> String {
        match self {
            Self::Sqlite => format!("({to} - {from}) / 1000000.0"),
            Self::Postgres => format!("cast(extract(epoch from {to} - {from}) as double precision)"),
        }
    }

    /// The day of a time in UTC, as `2026-02-27`.
    pub fn day_of(self, time: &str) -> String {
        match self {
            Self::Sqlite => format!("date({time} / 1000000, 'unixepoch')"),
            Self::Postgres => format!("to_char({time} at time zone 'UTC', 'YYYY-MM-DD')"),
        }
    }

    /// Condition that a column holds one of the few ids that `query` selects. PostgreSQL then runs the query first and
    /// looks up each id. With `in`, PostgreSQL might instead join with all rows of the index.
    pub fn is_one_of(self, column: &str, query: &str) -> String {
        match self {
            Self::Sqlite => format!("{column} in ({query})"),
            Self::Postgres => format!("{column} = any(array({query}))"),
        }
    }

    /// Condition that a JSON list of texts contains `text`.
    pub fn list_contains(self, list: &str, text: &str) -> String {
        match self {
            Self::Sqlite => format!("exists (select 1 from json_each({list}) j where j.value = {text})"),
            Self::Postgres => format!("exists (select 1 from jsonb_array_elements_text({list}) j where j = {text})"),
        }
    }
}

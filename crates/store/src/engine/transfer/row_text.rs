//! One text for one row, the same whichever engine keeps it: what digests are made of. And the text that backups hold, in
//! which JSON stands as it was written.

use std::borrow::Cow;

use serde_json::{Map, Value};
use sha2::{Digest, Sha256};
use trackway_domain::Time;
use uuid::Uuid;

use super::layout::{Holds, TableLayout};
use crate::{
    error::{Error, Result},
    sql::{Column, FromColumn, FromRow, Param, Row, hex},
};

/// A value as the engine has it.
#[derive(Debug, Clone)]
enum Raw {
    Null,
    Bool(bool),
    Int(i64),
    Real(f64),
    Text(String),
    Bytes(Vec<u8>),
    Uuid(Uuid),
    Time(Time),
}

impl FromColumn for Raw {
    fn from_column(column: Column<'_>) -> Result<Self> {
        Ok(match column {
            Column::Null => Self::Null,
            Column::Bool(value) => Self::Bool(value),
            Column::Int(value) => Self::Int(value),
            Column::Real(value) => Self::Real(value),
            Column::Text(value) => Self::Text(value.to_owned()),
            Column::Bytes(value) => Self::Bytes(value.to_vec()),
            Column::Uuid(value) => Self::Uuid(value),
            Column::Time(value) => Self::Time(value),
        })
    }
}

/// A row as the engine has it.
#[derive(Debug, Clone)]
pub struct RawRow(Vec<Raw>);

impl FromRow for RawRow {
    fn from_row(row: &Row<'_>) -> Result<Self> {
        (0..row.width()).map(|index| row.get(index)).collect::<Result<_>>().map(Self)
    }
}

/// A row with its values, on its way to another database.
#[derive(Debug, Clone, PartialEq)]
pub struct TextRow {
    /// A JSON object: the columns in their order, those without a value left out, JSON in its one form.
    pub canonical: String,
    pub values: Vec<Param<'static>>,
    /// The same object as a file has it, where that holds what no database keeps.
    pub said: Option<String>,
}

impl TextRow {
    /// A row that was read from a database.
    pub fn read(table: &TableLayout, raw: RawRow) -> Result<Self> {
        let values = table.columns.iter().zip(raw.0).map(|(column, raw)| value(column.holds, raw));
        let values =
            values.collect::<Result<Vec<_>>>().map_err(|error| Error::Value(format!("{}: {error}", table.name)))?;
        Ok(Self { canonical: text(table, &values, canonical_json)?, values, said: None })
    }

    /// A row that was read from a file.
    pub fn parse(table: &TableLayout, row: &Map<String, Value>) -> Result<Self> {
        if let Some(name) = row.keys().find(|name| !table.columns.iter().any(|column| column.name == **name)) {
            return Err(Error::Damaged(format!("{} has no column {name:?}", table.name)));
        }
        let values = table.columns.iter().map(|column| match row.get(&column.name) {
            None => Ok(Param::Null),
            Some(said) => parsed(column.holds, said)
                .ok_or_else(|| Error::Damaged(format!("{}.{}: {said} is no value for it", table.name, column.name))),
        });
        let mut values = values.collect::<Result<Vec<_>>>()?;
        let said = text(table, &values, canonical_json)?;
        let mut is_cleaned = false;
        for value in &mut values {
            if let Param::Json(json) = value
                && let Some(cleaned) = without_nul(json)?
            {
                *json = cleaned;
                is_cleaned = true;
            }
        }
        Ok(if is_cleaned {
            Self { canonical: text(table, &values, canonical_json)?, values, said: Some(said) }
        } else {
            Self { canonical: said, values, said: None }
        })
    }

    /// The same object with JSON as it was written, for a file.
    pub fn written(&self, table: &TableLayout) -> Result<String> {
        text(table, &self.values, |json| Ok(json.to_owned()))
    }

    /// The values of the key.
    pub fn key(&self, table: &TableLayout) -> Vec<Param<'static>> {
        table.key.iter().map(|place| self.values[*place].clone()).collect()
    }
}

fn value(holds: Holds, raw: Raw) -> Result<Param<'static>> {
    Ok(match (holds, raw) {
        (_, Raw::Null) => Param::Null,
        (Holds::Uuid, Raw::Uuid(value)) => Param::Uuid(value),
        (Holds::Uuid, Raw::Bytes(bytes)) => {
            Param::Uuid(Uuid::from_slice(&bytes).map_err(|error| Error::Value(error.to_string()))?)
        }
        (Holds::Time, Raw::Time(value)) => Param::Time(value),
        (Holds::Time, Raw::Int(micros)) => Param::Time(Time::from_micros(micros)),
        (Holds::Json, Raw::Text(text)) => {
            let value: Value = serde_json::from_str(&text).map_err(|error| Error::Value(error.to_string()))?;
            let json = value.to_string();
            Param::Json(without_nul(&json)?.unwrap_or(json))
        }
        (Holds::Flag, Raw::Bool(value)) => Param::Bool(value),
        (Holds::Flag, Raw::Int(value)) => Param::Bool(value != 0),
        (Holds::Number | Holds::Counter, Raw::Int(value)) => Param::Int(value),
        (Holds::Real, Raw::Real(value)) if value.is_finite() => Param::Real(value),
        (Holds::Real, Raw::Int(value)) => Param::Real(value as f64),
        (Holds::Bytes, Raw::Bytes(bytes)) => Param::Bytes(Cow::Owned(bytes)),
        (Holds::Text, Raw::Text(text)) => Param::Text(Cow::Owned(text)),
        (holds, raw) => return Err(Error::Value(format!("{raw:?} where {holds:?} was expected"))),
    })
}

/// JSON without NUL, if it holds any: SQLite kept it once, and PostgreSQL never does.
fn without_nul(json: &str) -> Result<Option<String>> {
    fn cleaned(value: Value) -> Value {
        match value {
            Value::String(text) => Value::String(text.replace('\0', "")),
            Value::Array(values) => values.into_iter().map(cleaned).collect(),
            Value::Object(fields) => {
                fields.into_iter().map(|(name, value)| (name.replace('\0', ""), cleaned(value))).collect()
            }
            other => other,
        }
    }
    if !json.contains("\\u0000") {
        return Ok(None);
    }
    let value: Value = serde_json::from_str(json).map_err(|error| Error::Value(error.to_string()))?;
    Ok(Some(cleaned(value).to_string()))
}

fn parsed(holds: Holds, said: &Value) -> Option<Param<'static>> {
    Some(match holds {
        Holds::Uuid => Param::Uuid(said.as_str()?.parse().ok()?),
        Holds::Time => Param::Time(said.as_str()?.parse().ok()?),
        Holds::Json => Param::Json(said.to_string()),
        Holds::Flag => Param::Bool(said.as_bool()?),
        Holds::Number | Holds::Counter => Param::Int(said.as_i64()?),
        Holds::Real => Param::Real(said.as_f64()?),
        Holds::Bytes => Param::Bytes(Cow::Owned(unhex(said.as_str()?)?)),
        Holds::Text => Param::Text(Cow::Owned(said.as_str()?.to_owned())),
    })
}

fn unhex(digits: &str) -> Option<Vec<u8>> {
    let pairs = digits.as_bytes().chunks(2);
    pairs
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok().filter(|pair| pair.len() == 2)?, 16).ok())
        .collect()
}

fn canonical_json(json: &str) -> Result<String> {
    serde_json::from_str(json).map(|value| canonical(&value)).map_err(|error| Error::Value(error.to_string()))
}

fn text(table: &TableLayout, values: &[Param<'_>], json: impl Fn(&str) -> Result<String>) -> Result<String> {
    let mut out = String::from("{");
    for (column, value) in table.columns.iter().zip(values) {
        let value = match value {
            Param::Null => continue,
            Param::Bool(value) => value.to_string(),
            Param::Int(value) => value.to_string(),
            Param::Real(value) => format!("{value:?}"),
            Param::Text(value) => Value::from(value.as_ref()).to_string(),
            Param::Bytes(value) => format!("\"{}\"", hex(value)),
            Param::Uuid(value) => format!("\"{value}\""),
            Param::Time(value) => format!("\"{value}\""),
            Param::Json(value) => json(value)?,
            Param::List(_) => return Err(Error::Value("a column holds no lists".into())),
        };
        if out.len() > 1 {
            out.push(',');
        }
        out.push_str(&format!("\"{}\":{value}", column.name));
    }
    out.push('}');
    Ok(out)
}

/// A JSON value as one text: objects have no order, and a number is what it amounts to, as PostgreSQL has it.
fn canonical(value: &Value) -> String {
    match value {
        Value::Number(number) => match number.as_f64() {
            Some(real) if number.is_f64() => canonical_real(real),
            _ => number.to_string(),
        },
        Value::Array(values) => format!("[{}]", values.iter().map(canonical).collect::<Vec<_>>().join(",")),
        Value::Object(fields) => {
            let mut names: Vec<&String> = fields.keys().collect();
            names.sort();
            let field = |name: &String| format!("{}:{}", Value::from(name.as_str()), canonical(&fields[name]));
            format!("{{{}}}", names.into_iter().map(field).collect::<Vec<_>>().join(","))
        }
        other => other.to_string(),
    }
}

/// The whole numbers that JSON readers read as such.
const WHOLE_MAX: f64 = 18_446_744_073_709_551_616.0;

fn canonical_real(real: f64) -> String {
    if real.fract() == 0.0 && real.abs() < WHOLE_MAX {
        // Minus zero too: PostgreSQL knows none inside JSON.
        format!("{:.0}", real + 0.0)
    } else {
        format!("{real:?}")
    }
}

/// The digest of a table, row by row in the order of its key.
#[derive(Debug, Clone, Default)]
pub struct TableDigest {
    hash: Sha256,
    pub rows: i64,
}

impl TableDigest {
    pub fn add(&mut self, text: &str) {
        self.hash.update(text.as_bytes());
        self.hash.update(b"\n");
        self.rows += 1;
    }

    pub fn finish(self) -> String {
        hex(&self.hash.finalize())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::transfer::layout::Column as Place;

    fn json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<u64>().prop_map(Value::from),
            prop::num::f64::NORMAL.prop_map(Value::from),
            "[^\\x00]*".prop_map(Value::from),
        ];
        leaf.prop_recursive(3, 24, 6, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
                prop::collection::hash_map("[^\\x00]*", inner, 0..6)
                    .prop_map(|map| map.into_iter().collect::<Map<_, _>>().into()),
            ]
        })
    }

    fn table() -> TableLayout {
        let holds =
            [Holds::Uuid, Holds::Time, Holds::Json, Holds::Flag, Holds::Number, Holds::Real, Holds::Bytes, Holds::Text];
        let columns = holds.iter().enumerate().map(|(index, holds)| Place { name: format!("c{index}"), holds: *holds });
        TableLayout { name: "t".into(), columns: columns.collect(), key: vec![0] }
    }

    proptest! {
        #[test]
        fn a_value_has_one_text_and_the_text_one_value(value in json()) {
            let once = canonical(&value);
            let read: Value = serde_json::from_str(&once).unwrap();
            prop_assert_eq!(canonical(&read), once);
        }

        #[test]
        fn a_row_comes_back_from_its_text(id: u128, micros in 0..4_000_000_000_000_000i64, value in json(), flag: bool, number: i64, real in prop::num::f64::NORMAL, bytes: Vec<u8>, text in ".*", left_out in 0..8usize) {
            let mut values = vec![
                Param::Uuid(Uuid::from_u128(id)),
                Param::Time(Time::from_micros(micros)),
                Param::Json(value.to_string()),
                Param::Bool(flag),
                Param::Int(number),
                Param::Real(real),
                Param::Bytes(Cow::Owned(bytes)),
                Param::Text(Cow::Owned(text)),
            ];
            values[left_out] = Param::Null;
            let table = table();
            let canonical = super::text(&table, &values, canonical_json).unwrap();
            let written = super::text(&table, &values, |json| Ok(json.to_owned())).unwrap();
            let read: Value = serde_json::from_str(&written).unwrap();
            let row = TextRow::parse(&table, read.as_object().unwrap()).unwrap();
            prop_assert_eq!(&row.values, &values);
            prop_assert_eq!((row.written(&table).unwrap(), row.canonical), (written, canonical));
        }
    }

    #[test]
    fn what_postgresql_makes_of_json_is_the_same_text() {
        for (ours, theirs) in [
            ("1e18", "1000000000000000000"),
            ("100.0", "100.0"),
            ("1e2", "100"),
            ("-0.0", "0.0"),
            ("1.5e-7", "0.00000015"),
            ("1e23", "100000000000000000000000"),
            (r#"{"b":1,"aa":2}"#, r#"{"aa":2, "b": 1}"#),
        ] {
            let read = |text: &str| canonical(&serde_json::from_str::<Value>(text).unwrap());
            assert_eq!(read(ours), read(theirs));
        }
        assert_eq!(canonical(&json!(0.1)), "0.1");
    }

    #[test]
    fn what_no_database_keeps_is_left_out_and_was_said() {
        let row = serde_json::from_str::<Value>(r#"{"c2":{"a\u0000":["b\u0000",1]}}"#).unwrap();
        let row = TextRow::parse(&table(), row.as_object().unwrap()).unwrap();
        assert_eq!(row.values[2], Param::Json(r#"{"a":["b",1]}"#.into()));
        assert_eq!(row.canonical, r#"{"c2":{"a":["b",1]}}"#);
        assert_eq!(row.said.as_deref(), Some(r#"{"c2":{"a\u0000":["b\u0000",1]}}"#));
        let kept = value(Holds::Json, Raw::Text(r#""a\u0000b\\u0000""#.into())).unwrap();
        assert_eq!(kept, Param::Json(r#""ab\\u0000""#.into()), "what only looks like it stays");
    }

    #[test]
    fn null_inside_json_is_not_no_value() {
        let table = table();
        let read = |text: &str| {
            TextRow::parse(&table, serde_json::from_str::<Value>(text).unwrap().as_object().unwrap()).unwrap()
        };
        assert_eq!(read(r#"{"c2":null}"#).values[2], Param::Json("null".into()));
        assert_eq!(read("{}").values[2], Param::Null);
    }
}

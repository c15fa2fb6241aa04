//! Rows as text. The canonical text of a row is the same on both engines, so that digests of it can be compared.
//! Backups contain another text, in which JSON values keep their original form.

use std::borrow::Cow;

use serde_json::{Map, Value};
use sha2::{Digest, Sha256};
use trackway_domain::Time;
use uuid::Uuid;

use super::layout::{ColumnType, TableLayout};
use crate::{
    error::{Error, Result},
    sql::{Column, FromColumn, FromRow, Param, Row, hex},
};

/// A value as the database engine returns it, before conversion.
#[derive(Debug, Clone)]
enum RawValue {
    Null,
    Bool(bool),
    Int(i64),
    Real(f64),
    Text(String),
    Bytes(Vec<u8>),
    Uuid(Uuid),
    Time(Time),
}

impl FromColumn for RawValue {
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

/// A row as the database engine returns it.
#[derive(Debug, Clone)]
pub struct RawRow(Vec<RawValue>);

impl FromRow for RawRow {
    fn from_row(row: &Row<'_>) -> Result<Self> {
        (0..row.column_count()).map(|index| row.get(index)).collect::<Result<_>>().map(Self)
    }
}

/// A row that is being copied to another database.
#[derive(Debug, Clone, PartialEq)]
pub struct TextRow {
    /// A JSON object with the columns in their order, without null columns, and with JSON values in canonical form.
    pub canonical: String,
    pub values: Vec<Param<'static>>,
    /// The canonical text before NUL characters were removed from its JSON values, if there were any.
    pub with_nul: Option<String>,
}

impl TextRow {
    /// Converts a row that was read from a database.
    pub fn read(table: &TableLayout, raw: RawRow) -> Result<Self> {
        let values = table.columns.iter().zip(raw.0).map(|(column, raw)| convert(column.column_type, raw));
        let values =
            values.collect::<Result<Vec<_>>>().map_err(|error| Error::Value(format!("{}: {error}", table.name)))?;
        Ok(Self { canonical: text(table, &values, canonical_json)?, values, with_nul: None })
    }

    /// Converts a row that was read from a backup.
    pub fn parse(table: &TableLayout, row: &Map<String, Value>) -> Result<Self> {
        if let Some(name) = row.keys().find(|name| !table.columns.iter().any(|column| column.name == **name)) {
            return Err(Error::Damaged(format!("{} has no column {name:?}", table.name)));
        }
        let values = table.columns.iter().map(|column| match row.get(&column.name) {
            None => Ok(Param::Null),
            Some(json) => parse_value(column.column_type, json)
                .ok_or_else(|| Error::Damaged(format!("{}.{}: invalid value {json}", table.name, column.name))),
        });
        let mut values = values.collect::<Result<Vec<_>>>()?;
        let original = text(table, &values, canonical_json)?;
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
            Self { canonical: text(table, &values, canonical_json)?, values, with_nul: Some(original) }
        } else {
            Self { canonical: original, values, with_nul: None }
        })
    }

    /// The row as JSON for a backup: JSON values keep their original form.
    pub fn to_json(&self, table: &TableLayout) -> Result<String> {
        text(table, &self.values, |json| Ok(json.to_owned()))
    }

    pub fn key(&self, table: &TableLayout) -> Vec<Param<'static>> {
        table.key.iter().map(|index| self.values[*index].clone()).collect()
    }
}

fn convert(column_type: ColumnType, raw: RawValue) -> Result<Param<'static>> {
    Ok(match (column_type, raw) {
        (_, RawValue::Null) => Param::Null,
        (ColumnType::Uuid, RawValue::Uuid(value)) => Param::Uuid(value),
        (ColumnType::Uuid, RawValue::Bytes(bytes)) => {
            Param::Uuid(Uuid::from_slice(&bytes).map_err(|error| Error::Value(error.to_string()))?)
        }
        (ColumnType::Time, RawValue::Time(value)) => Param::Time(value),
        (ColumnType::Time, RawValue::Int(micros)) => Param::Time(Time::from_micros(micros)),
        (ColumnType::Json, RawValue::Text(text)) => {
            let value: Value = serde_json::from_str(&text).map_err(|error| Error::Value(error.to_string()))?;
            let json = value.to_string();
            Param::Json(without_nul(&json)?.unwrap_or(json))
        }
        (ColumnType::Flag, RawValue::Bool(value)) => Param::Bool(value),
        (ColumnType::Flag, RawValue::Int(value)) => Param::Bool(value != 0),
        (ColumnType::Number | ColumnType::Counter, RawValue::Int(value)) => Param::Int(value),
        (ColumnType::Real, RawValue::Real(value)) if value.is_finite() => Param::Real(value),
        (ColumnType::Real, RawValue::Int(value)) => Param::Real(value as f64),
        (ColumnType::Bytes, RawValue::Bytes(bytes)) => Param::Bytes(Cow::Owned(bytes)),
        (ColumnType::Text, RawValue::Text(text)) => Param::Text(Cow::Owned(text)),
        (column_type, raw) => return Err(Error::Value(format!("expected {column_type:?}, found {raw:?}"))),
    })
}

/// Removes NUL characters from JSON, if there are any. Earlier versions stored them in SQLite; PostgreSQL never accepts
/// them.
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

fn parse_value(column_type: ColumnType, json: &Value) -> Option<Param<'static>> {
    Some(match column_type {
        ColumnType::Uuid => Param::Uuid(json.as_str()?.parse().ok()?),
        ColumnType::Time => Param::Time(json.as_str()?.parse().ok()?),
        ColumnType::Json => Param::Json(json.to_string()),
        ColumnType::Flag => Param::Bool(json.as_bool()?),
        ColumnType::Number | ColumnType::Counter => Param::Int(json.as_i64()?),
        ColumnType::Real => Param::Real(json.as_f64()?),
        ColumnType::Bytes => Param::Bytes(Cow::Owned(parse_hex(json.as_str()?)?)),
        ColumnType::Text => Param::Text(Cow::Owned(json.as_str()?.to_owned())),
    })
}

fn parse_hex(digits: &str) -> Option<Vec<u8>> {
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
            Param::List(_) => return Err(Error::Value("a column cannot hold an array".into())),
        };
        if out.len() > 1 {
            out.push(',');
        }
        out.push_str(&format!("\"{}\":{value}", column.name));
    }
    out.push('}');
    Ok(out)
}

/// The canonical form of JSON: sorted fields, and equal numbers written alike, as PostgreSQL does.
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

/// JSON parsers read smaller whole numbers as integers.
const INTEGER_LIMIT: f64 = 18_446_744_073_709_551_616.0;

fn canonical_real(real: f64) -> String {
    if real.fract() == 0.0 && real.abs() < INTEGER_LIMIT {
        // Adding zero turns minus zero into zero. PostgreSQL has no minus zero in JSON.
        format!("{:.0}", real + 0.0)
    } else {
        format!("{real:?}")
    }
}

/// Digest of the rows of a table in the order of their keys.
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
    use crate::transfer::layout::Column as LayoutColumn;

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
        let column_type = [
            ColumnType::Uuid,
            ColumnType::Time,
            ColumnType::Json,
            ColumnType::Flag,
            ColumnType::Number,
            ColumnType::Real,
            ColumnType::Bytes,
            ColumnType::Text,
        ];
        let columns = column_type
            .iter()
            .enumerate()
            .map(|(index, column_type)| LayoutColumn { name: format!("c{index}"), column_type: *column_type });
        TableLayout { name: "t".into(), columns: columns.collect(), key: vec![0] }
    }

    proptest! {
        #[test]
        fn canonical_json_is_stable_after_parsing(value in json()) {
            let once = canonical(&value);
            let read: Value = serde_json::from_str(&once).unwrap();
            prop_assert_eq!(canonical(&read), once);
        }

        #[test]
        fn row_round_trips_through_its_text(id: u128, micros in 0..4_000_000_000_000_000i64, value in json(), flag: bool, number: i64, real in prop::num::f64::NORMAL, bytes: Vec<u8>, text in ".*", null_column in 0..8usize) {
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
            values[null_column] = Param::Null;
            let table = table();
            let canonical = super::text(&table, &values, canonical_json).unwrap();
            let written = super::text(&table, &values, |json| Ok(json.to_owned())).unwrap();
            let read: Value = serde_json::from_str(&written).unwrap();
            let row = TextRow::parse(&table, read.as_object().unwrap()).unwrap();
            prop_assert_eq!(&row.values, &values);
            prop_assert_eq!((row.to_json(&table).unwrap(), row.canonical), (written, canonical));
        }
    }

    #[test]
    fn json_reformatted_by_postgres_has_same_canonical_text() {
        for (sqlite, postgres) in [
            ("1e18", "1000000000000000000"),
            ("100.0", "100.0"),
            ("1e2", "100"),
            ("-0.0", "0.0"),
            ("1.5e-7", "0.00000015"),
            ("1e23", "100000000000000000000000"),
            (r#"{"b":1,"aa":2}"#, r#"{"aa":2, "b": 1}"#),
        ] {
            let read = |text: &str| canonical(&serde_json::from_str::<Value>(text).unwrap());
            assert_eq!(read(sqlite), read(postgres));
        }
        assert_eq!(canonical(&json!(0.1)), "0.1");
    }

    #[test]
    fn nul_is_removed_and_original_text_is_kept() {
        let row = serde_json::from_str::<Value>(r#"{"c2":{"a\u0000":["b\u0000",1]}}"#).unwrap();
        let row = TextRow::parse(&table(), row.as_object().unwrap()).unwrap();
        assert_eq!(row.values[2], Param::Json(r#"{"a":["b",1]}"#.into()));
        assert_eq!(row.canonical, r#"{"c2":{"a":["b",1]}}"#);
        assert_eq!(row.with_nul.as_deref(), Some(r#"{"c2":{"a\u0000":["b\u0000",1]}}"#));
        let converted = convert(ColumnType::Json, RawValue::Text(r#""a\u0000b\\u0000""#.into())).unwrap();
        assert_eq!(converted, Param::Json(r#""ab\\u0000""#.into()), "an escaped backslash is not a NUL");
    }

    #[test]
    fn json_null_differs_from_missing_value() {
        let table = table();
        let read = |text: &str| {
            TextRow::parse(&table, serde_json::from_str::<Value>(text).unwrap().as_object().unwrap()).unwrap()
        };
        assert_eq!(read(r#"{"c2":null}"#).values[2], Param::Json("null".into()));
        assert_eq!(read("{}").values[2], Param::Null);
    }
}

//! What the tables hold, read from the migrations themselves: SQLite's own types do not tell a time from a number.

use crate::migrate;

/// What a column holds, whichever engine keeps it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Holds {
    Uuid,
    Time,
    Json,
    Flag,
    Number,
    Counter,
    Real,
    Bytes,
    Text,
}

impl Holds {
    fn of(word: &str) -> Option<Self> {
        Some(match word {
            "uuid" => Self::Uuid,
            "time" => Self::Time,
            "json" => Self::Json,
            "flag" => Self::Flag,
            "bigint" => Self::Number,
            "counter" => Self::Counter,
            "real" => Self::Real,
            "bytes" => Self::Bytes,
            "text" => Self::Text,
            _ => return None,
        })
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Column {
    pub name: String,
    pub holds: Holds,
}

/// A table: its columns, and which of them are the key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableLayout {
    pub name: String,
    pub columns: Vec<Column>,
    /// Places of the key's columns, in its order.
    pub key: Vec<usize>,
}

impl TableLayout {
    pub fn names(&self) -> String {
        self.columns.iter().map(|column| column.name.as_str()).collect::<Vec<_>>().join(", ")
    }

    pub fn key_names(&self) -> Vec<&str> {
        self.key.iter().map(|place| self.columns[*place].name.as_str()).collect()
    }

    /// The column whose numbers the database gives out, if there is one.
    pub fn counter(&self) -> Option<&str> {
        self.columns.iter().find(|column| column.holds == Holds::Counter).map(|column| column.name.as_str())
    }
}

/// Tables that are made again from others.
const DERIVED: &[&str] = &["content_words"];

/// The tables of a schema of this version, what they refer to first.
pub fn tables(version: i64) -> Vec<TableLayout> {
    let mut tables: Vec<TableLayout> = Vec::new();
    for text in migrate::texts(version) {
        let lines: Vec<&str> = text.lines().filter(|line| !line.trim_start().starts_with("--")).collect();
        for statement in lines.join("\n").split(';') {
            let statement = statement.trim();
            if let Some(table) = statement.strip_prefix("create table ") {
                tables.extend(created(table));
            } else if let Some((table, column)) =
                statement.strip_prefix("alter table ").and_then(|rest| rest.split_once(" add column "))
                && let Some(table) = tables.iter_mut().find(|known| known.name == table)
            {
                table.columns.extend(column_of(column));
            }
        }
    }
    tables.retain(|table| !DERIVED.contains(&table.name.as_str()));
    tables
}

fn created(statement: &str) -> Option<TableLayout> {
    let (name, body) = statement.split_once(" (\n")?;
    let mut table = TableLayout { name: name.to_owned(), columns: Vec::new(), key: Vec::new() };
    for line in body.lines().map(|line| line.trim().trim_end_matches(',')) {
        if let Some(key) = line.strip_prefix("primary key (").and_then(|rest| rest.strip_suffix(')')) {
            let place = |name: &str| table.columns.iter().position(|column| column.name == name);
            table.key = key.split(", ").filter_map(place).collect();
        } else if let Some(column) = column_of(line) {
            if line.contains("primary key") || column.holds == Holds::Counter {
                table.key.push(table.columns.len());
            }
            table.columns.push(column);
        }
    }
    Some(table)
}

fn column_of(line: &str) -> Option<Column> {
    let mut words = line.split_whitespace();
    let (name, holds) = (words.next()?, Holds::of(words.next()?)?);
    Some(Column { name: name.to_owned(), holds })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::{Store, Url};

    #[test]
    fn the_migrations_say_what_the_database_says() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::create(Url::sqlite(folder.path().join("a.db"))).unwrap();
        let live = store.read(uuid::Uuid::nil().into()).unwrap().schema().unwrap();
        let derived = |name: &str| name.starts_with("content_") || name == "trackway_migrations";
        let live: BTreeMap<String, Vec<String>> = live
            .tables
            .into_iter()
            .filter(|table| !derived(&table.name))
            .map(|table| (table.name, table.columns.into_iter().map(|column| column.name).collect()))
            .collect();
        let said: BTreeMap<String, Vec<String>> = tables(migrate::known_version())
            .into_iter()
            .map(|table| (table.name, table.columns.into_iter().map(|column| column.name).collect()))
            .collect();
        assert_eq!(said, live);
        for table in tables(migrate::known_version()) {
            assert!(!table.key.is_empty(), "{}", table.name);
        }
    }

    #[test]
    fn an_older_schema_has_fewer_tables_and_columns() {
        let runs = |version| {
            let tables = tables(version);
            tables.iter().find(|table| table.name == "runs").unwrap().columns.len()
        };
        assert!(runs(1) < runs(2) && runs(2) < runs(3));
        assert!(!tables(5).iter().any(|table| table.name == "boards"));
        let events = tables(1).into_iter().find(|table| table.name == "events").unwrap();
        assert_eq!((events.counter(), events.key.as_slice()), (Some("position"), &[0][..]));
    }
}

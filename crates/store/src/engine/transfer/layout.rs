//! Tables and column types, as the migrations declare them. The live schema does not suffice: SQLite has no distinct
//! types for times or JSON.

use crate::migrate;

/// The type of a column, independent of the engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ColumnType {
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

impl ColumnType {
    fn parse(name: &str) -> Option<Self> {
        Some(match name {
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
    pub column_type: ColumnType,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableLayout {
    pub name: String,
    pub columns: Vec<Column>,
    /// Positions of the key columns in `columns`, in the order of the key.
    pub key: Vec<usize>,
}

impl TableLayout {
    pub fn column_list(&self) -> String {
        self.columns.iter().map(|column| column.name.as_str()).collect::<Vec<_>>().join(", ")
    }

    pub fn key_names(&self) -> Vec<&str> {
        self.key.iter().map(|index| self.columns[*index].name.as_str()).collect()
    }

    /// The column whose values the database generates, if any.
    pub fn identity_column(&self) -> Option<&str> {
        self.columns.iter().find(|column| column.column_type == ColumnType::Counter).map(|column| column.name.as_str())
    }
}

/// Tables whose rows are derived from other tables.
const DERIVED: &[&str] = &["content_words"];

/// The tables of a schema version. A table comes after the tables that it references.
pub fn tables(version: i64) -> Vec<TableLayout> {
    let mut tables: Vec<TableLayout> = Vec::new();
    for text in migrate::migration_texts(version) {
        let lines: Vec<&str> = text.lines().filter(|line| !line.trim_start().starts_with("--")).collect();
        for statement in lines.join("\n").split(';') {
            let statement = statement.trim();
            if let Some(table) = statement.strip_prefix("create table ") {
                tables.extend(parse_table(table));
            } else if let Some((table, column)) =
                statement.strip_prefix("alter table ").and_then(|rest| rest.split_once(" add column "))
                && let Some(table) = tables.iter_mut().find(|known| known.name == table)
            {
                table.columns.extend(parse_column(column));
            }
        }
    }
    tables.retain(|table| !DERIVED.contains(&table.name.as_str()));
    tables
}

fn parse_table(statement: &str) -> Option<TableLayout> {
    let (name, body) = statement.split_once(" (\n")?;
    let mut table = TableLayout { name: name.to_owned(), columns: Vec::new(), key: Vec::new() };
    for line in body.lines().map(|line| line.trim().trim_end_matches(',')) {
        if let Some(key) = line.strip_prefix("primary key (").and_then(|rest| rest.strip_suffix(')')) {
            let index = |name: &str| table.columns.iter().position(|column| column.name == name);
            table.key = key.split(", ").filter_map(index).collect();
        } else if let Some(column) = parse_column(line) {
            if line.contains("primary key") || column.column_type == ColumnType::Counter {
                table.key.push(table.columns.len());
            }
            table.columns.push(column);
        }
    }
    Some(table)
}

fn parse_column(line: &str) -> Option<Column> {
    let mut words = line.split_whitespace();
    let (name, column_type) = (words.next()?, ColumnType::parse(words.next()?)?);
    Some(Column { name: name.to_owned(), column_type })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::{Store, Url};

    #[test]
    fn layout_matches_live_schema() {
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
        let parsed: BTreeMap<String, Vec<String>> = tables(migrate::known_version())
            .into_iter()
            .map(|table| (table.name, table.columns.into_iter().map(|column| column.name).collect()))
            .collect();
        assert_eq!(parsed, live);
        for table in tables(migrate::known_version()) {
            assert!(!table.key.is_empty(), "{}", table.name);
        }
    }

    #[test]
    fn layout_of_older_schema_has_fewer_tables_and_columns() {
        let runs = |version| {
            let tables = tables(version);
            tables.iter().find(|table| table.name == "runs").unwrap().columns.len()
        };
        assert!(runs(1) < runs(2) && runs(2) < runs(3));
        assert!(!tables(5).iter().any(|table| table.name == "boards"));
        let events = tables(1).into_iter().find(|table| table.name == "events").unwrap();
        assert_eq!((events.identity_column(), events.key.as_slice()), (Some("position"), &[0][..]));
    }
}

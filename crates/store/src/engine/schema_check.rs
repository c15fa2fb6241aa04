//! Whether the tables, columns and indexes that the migrations made are still there. What the number of the schema says is
//! what was done once; somebody may have undone a part of it since.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    connection::Engine,
    error::Result,
    migrate,
    store::{Reader, Store},
    transfer::layout,
};

/// A part of the schema that is not there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Missing {
    /// What it is, in words: `the index queue_items_ready`.
    pub what: String,
    /// The statement that makes it again, where that brings everything back.
    pub made_by: Option<String>,
}

impl Store {
    /// The version of the schema that the database is at.
    pub fn schema_version(&self) -> Result<i64> {
        migrate::applied(&mut self.connect()?, self.url())
    }

    /// What the migrations made and is not there.
    pub fn missing(&self) -> Result<Vec<Missing>> {
        let mut read = self.read(uuid::Uuid::nil().into())?;
        let live = read.schema()?;
        let mut missing = Vec::new();
        for table in layout::tables(migrate::known_version()) {
            let Some(found) = live.tables.iter().find(|live| live.name == table.name) else {
                missing.push(Missing { what: format!("the table {}", table.name), made_by: None });
                continue;
            };
            let is_there = |name: &str| found.columns.iter().any(|column| column.name == name);
            let gone = table.columns.iter().filter(|column| !is_there(&column.name));
            missing.extend(gone.map(|column| Missing {
                what: format!("the column {} of the table {}", column.name, table.name),
                made_by: None,
            }));
        }
        let there = names(&mut read)?;
        for (name, Made { sort, statement }) in made(self.engine()) {
            if !there.contains(&name) {
                let made_by = (sort == "index").then_some(statement);
                missing.push(Missing { what: format!("the {sort} {name}"), made_by });
            }
        }
        Ok(missing)
    }

    /// Makes again what can be made again. Says what could not, and why.
    pub fn make_again(&self, missing: &[Missing]) -> Result<Vec<String>> {
        let mut connection = self.connect()?;
        let mut failed = Vec::new();
        for part in missing {
            if let Some(Err(error)) = part.made_by.as_deref().map(|statement| connection.batch(statement)) {
                failed.push(format!("{} cannot be made again: {error}", part.what));
            }
        }
        Ok(failed)
    }
}

/// The names of indexes, and of what SQLite needs for its search.
fn names(read: &mut Reader<'_>) -> Result<BTreeSet<String>> {
    let sql = match read.engine() {
        Engine::Sqlite => "select name from sqlite_master",
        Engine::Postgres => {
            "select cast(c.relname as text) from pg_class c where c.relnamespace = current_schema()::regnamespace"
        }
    };
    Ok(read.query_unscoped::<(String,)>(sql, &[])?.into_iter().map(|(name,)| name).collect())
}

/// Something beside the tables that a migration makes.
#[derive(Debug)]
struct Made {
    sort: &'static str,
    statement: String,
}

/// What each statement makes, by how it begins.
const SORTS: [(&str, &str); 5] = [
    ("create index ", "index"),
    ("create unique index ", "index"),
    ("create virtual table ", "table"),
    ("create trigger ", "trigger"),
    ("create table content_words", "table"),
];

/// What the migrations make beside tables, and leave there.
fn made(engine: Engine) -> BTreeMap<String, Made> {
    let mut made = BTreeMap::new();
    for statement in migrate::statements(engine) {
        if let Some(name) = statement.strip_prefix("drop index ") {
            made.remove(name);
        }
        for (beginning, sort) in SORTS {
            if let Some(rest) = statement.strip_prefix(beginning) {
                let name = if beginning.ends_with(' ') {
                    rest.split(|end: char| end.is_whitespace()).next().unwrap_or_default()
                } else {
                    "content_words"
                };
                made.insert(name.to_owned(), Made { sort, statement: statement.clone() });
            }
        }
    }
    made
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Url, connection::Connection};

    #[test]
    fn what_is_parsed_is_what_is_made() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.db");
        let store = Store::create(Url::sqlite(&path)).unwrap();
        assert_eq!(store.missing().unwrap(), []);
        assert_eq!(store.schema_version().unwrap(), migrate::known_version());
        let live = Connection::sqlite(&path, false)
            .unwrap()
            .query::<(String,)>(
                "select name from sqlite_master where type in ('index', 'trigger') and name not like 'sqlite_%' order by name",
                &[],
            )
            .unwrap();
        let parsed = made(Engine::Sqlite);
        let parsed: Vec<(String,)> =
            parsed.into_iter().filter(|(_, made)| made.sort != "table").map(|(name, _)| (name,)).collect();
        assert_eq!(parsed, live);
    }

    #[test]
    fn what_was_taken_out_is_named_and_an_index_made_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.db");
        let store = Store::create(Url::sqlite(&path)).unwrap();
        let mut connection = Connection::sqlite(&path, false).unwrap();
        connection
            .batch(
                "pragma foreign_keys = off; drop index queue_items_ready; drop trigger content_words_removed;
                 drop table testcases; alter table runs drop column outcome",
            )
            .unwrap();
        let what: Vec<String> = store.missing().unwrap().into_iter().map(|missing| missing.what).collect();
        assert!(what.contains(&"the index queue_items_ready".to_owned()), "{what:?}");
        assert!(what.contains(&"the trigger content_words_removed".to_owned()), "{what:?}");
        assert!(what.contains(&"the table testcases".to_owned()), "{what:?}");
        assert!(what.contains(&"the column outcome of the table runs".to_owned()), "{what:?}");
        store.make_again(&store.missing().unwrap()).unwrap();
        assert!(!store.missing().unwrap().iter().any(|missing| missing.what == "the index queue_items_ready"));
    }
}

//! Checks that all tables, columns and indexes of the migrations still exist. The schema version says only which
//! migrations ran; a part may have been dropped since.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    connection::Engine,
    error::Result,
    migrate,
    store::{Reader, Store},
    transfer::layout,
};

/// A missing part of the schema.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MissingPart {
    /// The kind and name of the part, as in `the index queue_items_ready`.
    pub description: String,
    /// The statement that recreates the part. Present only if the statement restores the part completely.
    pub create_statement: Option<String>,
}

impl Store {
    pub fn schema_version(&self) -> Result<i64> {
        migrate::applied_version(&mut self.connect()?, self.url())
    }

    /// Finds the parts of the schema that do not exist in the database.
    pub fn missing_schema_parts(&self) -> Result<Vec<MissingPart>> {
        let mut read = self.read(uuid::Uuid::nil().into())?;
        let live = read.schema()?;
        let mut missing = Vec::new();
        for table in layout::tables(migrate::known_version()) {
            let Some(found) = live.tables.iter().find(|live| live.name == table.name) else {
                missing.push(MissingPart { description: format!("the table {}", table.name), create_statement: None });
                continue;
            };
            let has_column = |name: &str| found.columns.iter().any(|column| column.name == name);
            let missing_columns = table.columns.iter().filter(|column| !has_column(&column.name));
            missing.extend(missing_columns.map(|column| MissingPart {
                description: format!("the column {} of the table {}", column.name, table.name),
                create_statement: None,
            }));
        }
        let existing = object_names(&mut read)?;
        for (name, SchemaObject { kind, statement }) in schema_objects(self.engine()) {
            if !existing.contains(&name) {
                let create_statement = (kind == "index").then_some(statement);
                missing.push(MissingPart { description: format!("the {kind} {name}"), create_statement });
            }
        }
        Ok(missing)
    }

    /// Recreates the missing indexes. Returns an error text for each one that cannot be created.
    pub fn recreate_missing_parts(&self, missing: &[MissingPart]) -> Result<Vec<String>> {
        let mut connection = self.connect()?;
        let mut failed = Vec::new();
        for part in missing {
            if let Some(Err(error)) = part.create_statement.as_deref().map(|statement| connection.batch(statement)) {
                failed.push(format!("{} cannot be recreated: {error}", part.description));
            }
        }
        Ok(failed)
    }
}

/// Names of all tables and indexes, and on SQLite of all triggers.
fn object_names(read: &mut Reader<'_>) -> Result<BTreeSet<String>> {
    let sql = match read.engine() {
        Engine::Sqlite => "select name from sqlite_master",
        Engine::Postgres => {
            "select cast(c.relname as text) from pg_class c where c.relnamespace = current_schema()::regnamespace"
        }
    };
    Ok(read.query_unscoped::<(String,)>(sql, &[])?.into_iter().map(|(name,)| name).collect())
}

#[derive(Debug)]
struct SchemaObject {
    kind: &'static str,
    statement: String,
}

/// The beginnings of statements that create objects, with the kind of the object. Ordinary tables are not in this list,
/// because they are checked with their columns.
const CREATE_STATEMENTS: [(&str, &str); 5] = [
    ("create index ", "index"),
    ("create unique index ", "index"),
    ("create virtual table ", "table"),
    ("create trigger ", "trigger"),
    ("create table content_words", "table"),
];

/// The objects besides ordinary tables that the migrations create and do not drop later, by name.
fn schema_objects(engine: Engine) -> BTreeMap<String, SchemaObject> {
    let mut objects = BTreeMap::new();
    for statement in migrate::statements(engine) {
        if let Some(name) = statement.strip_prefix("drop index ") {
            objects.remove(name);
        }
        for (prefix, kind) in CREATE_STATEMENTS {
            if let Some(rest) = statement.strip_prefix(prefix) {
                let name = if prefix.ends_with(' ') {
                    rest.split(|end: char| end.is_whitespace()).next().unwrap_or_default()
                } else {
                    "content_words"
                };
                objects.insert(name.to_owned(), SchemaObject { kind, statement: statement.clone() });
            }
        }
    }
    objects
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Url, connection::Connection};

    #[test]
    fn parsed_migrations_match_the_live_schema() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.db");
        let store = Store::create(Url::sqlite(&path)).unwrap();
        assert_eq!(store.missing_schema_parts().unwrap(), []);
        assert_eq!(store.schema_version().unwrap(), migrate::known_version());
        let live = Connection::sqlite(&path, false)
            .unwrap()
            .query::<(String,)>(
                "select name from sqlite_master where type in ('index', 'trigger') and name not like 'sqlite_%' order by name",
                &[],
            )
            .unwrap();
        let parsed = schema_objects(Engine::Sqlite);
        let parsed: Vec<(String,)> =
            parsed.into_iter().filter(|(_, object)| object.kind != "table").map(|(name, _)| (name,)).collect();
        assert_eq!(parsed, live);
    }

    #[test]
    fn missing_parts_are_reported_and_indexes_recreated() {
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
        let descriptions: Vec<String> =
            store.missing_schema_parts().unwrap().into_iter().map(|missing| missing.description).collect();
        assert!(descriptions.contains(&"the index queue_items_ready".to_owned()), "{descriptions:?}");
        assert!(descriptions.contains(&"the trigger content_words_removed".to_owned()), "{descriptions:?}");
        assert!(descriptions.contains(&"the table testcases".to_owned()), "{descriptions:?}");
        assert!(descriptions.contains(&"the column outcome of the table runs".to_owned()), "{descriptions:?}");
        store.recreate_missing_parts(&store.missing_schema_parts().unwrap()).unwrap();
        assert!(
            !store
                .missing_schema_parts()
                .unwrap()
                .iter()
                .any(|missing| missing.description == "the index queue_items_ready")
        );
    }
}

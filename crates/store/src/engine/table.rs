//! Tables and joins as Rust structs: each field is a column.

use std::borrow::Cow;

use crate::{
    connection::Engine,
    error::{Error, Result},
    sql::{FromRow, Param, ToParam, placeholders},
    store::{Reader, Writer},
};

/// A struct with one field per column of a table.
pub trait Table: FromRow {
    const NAME: &'static str;
    const COLUMNS: &'static [&'static str];
    /// `select COLUMNS from TABLE`, to which the caller appends `where`.
    fn select() -> &'static str;
    fn insert_sql() -> &'static str;
    /// An insert that does nothing if the row violates a unique index.
    fn insert_new_sql() -> &'static str;
    /// An update of all columns. The first column is the key, the second one the tenant.
    fn update_sql() -> &'static str;
    fn params(&self) -> Vec<Param<'_>>;
}

/// Declares a struct for the rows of a table. The first field is the key, the second one the tenant.
#[macro_export]
macro_rules! table {
    ($(#[$meta:meta])* pub struct $name:ident in $table:literal { $(#[$first_meta:meta])* $first:ident: $first_type:ty, $($(#[$field_meta:meta])* $field:ident: $type:ty),* $(,)? }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, PartialEq, serde::Serialize)]
        pub struct $name { $(#[$first_meta])* pub $first: $first_type, $($(#[$field_meta])* pub $field: $type),* }

        impl $crate::sql::FromRow for $name {
            fn from_row(row: &$crate::sql::Row<'_>) -> $crate::error::Result<Self> {
                let mut index = 0..;
                let mut next = || index.next().unwrap_or_default();
                Ok(Self { $first: row.get(next())?, $($field: row.get(next())?),* })
            }
        }

        impl $crate::table::Table for $name {
            const NAME: &'static str = $table;
            const COLUMNS: &'static [&'static str] = &[stringify!($first), $(stringify!($field)),*];

            fn select() -> &'static str {
                concat!("select ", stringify!($first), $(", ", stringify!($field),)* " from ", $table)
            }

            fn insert_sql() -> &'static str {
                static SQL: std::sync::LazyLock<String> = std::sync::LazyLock::new(|| {
                    let columns = <$name as $crate::table::Table>::COLUMNS;
                    let placeholders: Vec<_> = (1..=columns.len()).map(|number| format!("?{number}")).collect();
                    format!("insert into {} ({}) values ({})", $table, columns.join(", "), placeholders.join(", "))
                });
                &SQL
            }

            fn insert_new_sql() -> &'static str {
                static SQL: std::sync::LazyLock<String> = std::sync::LazyLock::new(|| {
                    format!("{} on conflict do nothing", <$name as $crate::table::Table>::insert_sql())
                });
                &SQL
            }

            fn update_sql() -> &'static str {
                static SQL: std::sync::LazyLock<String> = std::sync::LazyLock::new(|| {
                    let sets: Vec<_> = <$name as $crate::table::Table>::COLUMNS[1..].iter().enumerate().map(|(index, column)| format!("{column} = ?{}", index + 2)).collect();
                    format!("update {} set {} where tenant_id = ?2 and {} = ?1", $table, sets.join(", "), stringify!($first))
                });
                &SQL
            }

            fn params(&self) -> Vec<$crate::sql::Param<'_>> {
                vec![$crate::sql::ToParam::to_param(&self.$first), $($crate::sql::ToParam::to_param(&self.$field)),*]
            }
        }
    };
}

/// Declares a struct for the rows of a query. The query must return the columns in the order of the fields.
#[macro_export]
macro_rules! row {
    ($(#[$meta:meta])* pub struct $name:ident { $($(#[$field_meta:meta])* $field:ident: $type:ty),* $(,)? }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, PartialEq, serde::Serialize)]
        pub struct $name { $($(#[$field_meta])* pub $field: $type),* }

        impl $crate::sql::FromRow for $name {
            fn from_row(row: &$crate::sql::Row<'_>) -> $crate::error::Result<Self> {
                let mut index = 0..;
                let mut next = || index.next().unwrap_or_default();
                Ok(Self { $($field: row.get(next())?),* })
            }
        }
    };
}

/// A row of a table, with ids resolved to names by joins.
pub trait DisplayRow: FromRow {
    /// `select ... from ... join ...`, to which the caller appends `where`.
    fn select() -> &'static str;
}

/// Declares a display row: all columns of a table, and further columns from joined tables.
#[macro_export]
macro_rules! display_row {
    ($(#[$meta:meta])* pub struct $name:ident of $row:ident: $table:ty as $alias:literal { $($(#[$field_meta:meta])* $field:ident: $type:ty = $expression:expr),* $(,)? } from $from:literal) => {
        $(#[$meta])*
        #[derive(Debug, Clone, PartialEq, serde::Serialize)]
        pub struct $name { #[serde(flatten)] pub $row: $table, $($(#[$field_meta])* pub $field: $type),* }

        impl $crate::sql::FromRow for $name {
            fn from_row(row: &$crate::sql::Row<'_>) -> $crate::error::Result<Self> {
                let mut index = <$table as $crate::table::Table>::COLUMNS.len()..;
                let mut next = || index.next().unwrap_or_default();
                Ok(Self { $row: <$table>::from_row(row)?, $($field: row.get(next())?),* })
            }
        }

        impl $crate::table::DisplayRow for $name {
            fn select() -> &'static str {
                static SQL: std::sync::LazyLock<String> = std::sync::LazyLock::new(|| {
                    let own = <$table as $crate::table::Table>::COLUMNS.iter().map(|column| format!("{}.{column}", $alias));
                    let columns: Vec<String> = own.chain([$(String::from($expression)),*]).collect();
                    format!("select {} from {}", columns.join(", "), $from)
                });
                &SQL
            }
        }
    };
}

impl Reader<'_> {
    /// Returns the display rows that `clause` (`where ...`) selects. `?1` is the tenant.
    pub fn display_rows<T: DisplayRow>(&mut self, clause: &str, params: &[Param<'_>]) -> Result<Vec<T>> {
        self.query(&format!("{} {clause}", T::select()), params)
    }

    /// Returns the display row with this id, which must exist.
    pub fn display_row_by_id<T: DisplayRow>(&mut self, alias: &str, id: impl ToParam) -> Result<T> {
        let found =
            self.display_rows(&format!("where {alias}.tenant_id = ?1 and {alias}.id = ?2"), &[id.to_param()])?;
        found.into_iter().next().ok_or_else(|| Error::Value("a row was deleted while it was read".into()))
    }

    /// Returns the rows of a table that `clause` (`where ...`) selects. `?1` is the tenant.
    pub fn rows<T: Table>(&mut self, clause: &str, params: &[Param<'_>]) -> Result<Vec<T>> {
        self.query(&format!("{} {clause}", T::select()), params)
    }

    /// Returns the first row of a table that `clause` selects, if any. `?1` is the tenant.
    pub fn row<T: Table>(&mut self, clause: &str, params: &[Param<'_>]) -> Result<Option<T>> {
        Ok(self.rows(clause, params)?.into_iter().next())
    }
}

/// One insert for many rows on PostgreSQL, with an array per column. It omits columns that are null in every row.
pub(crate) fn insert_unnested<T: Table>(rows: &[T]) -> (String, Vec<Param<'_>>) {
    let mut lists: Vec<Vec<Param<'_>>> = T::COLUMNS.iter().map(|_| Vec::with_capacity(rows.len())).collect();
    for row in rows {
        lists.iter_mut().zip(row.params()).for_each(|(list, param)| list.push(param));
    }
    let present = T::COLUMNS.iter().zip(lists).filter(|(_, list)| list.iter().any(|param| *param != Param::Null));
    let (columns, lists): (Vec<&str>, Vec<_>) = present.map(|(column, list)| (*column, Param::List(list))).unzip();
    let placeholders =
        lists.iter().zip(1..).map(|(list, number)| format!("cast(?{number} as {})", list.postgres_type()));
    let (columns, placeholders) = (columns.join(", "), placeholders.collect::<Vec<_>>().join(", "));
    (format!("insert into {} ({columns}) select * from unnest({placeholders})", T::NAME), lists)
}

impl Writer<'_> {
    pub fn insert<T: Table>(&mut self, row: &T) -> Result<()> {
        self.post_new_row(T::insert_sql(), &row.params())
    }

    /// Inserts several rows; on PostgreSQL with one statement.
    pub fn insert_all<T: Table>(&mut self, rows: &[T]) -> Result<()> {
        if self.engine() == Engine::Sqlite || rows.len() < 2 {
            return rows.iter().try_for_each(|row| self.insert(row));
        }
        let (sql, lists) = insert_unnested(rows);
        self.post_new_row(sql, &lists)
    }

    /// Inserts a row unless it violates a unique index. Returns whether it inserted the row.
    pub fn insert_new<T: Table>(&mut self, row: &T) -> Result<bool> {
        Ok(self.execute_row(T::insert_new_sql(), &row.params())? > 0)
    }

    /// Selects and locks the row that [`Writer::insert_or_fail`] would duplicate. In optimistic mode it returns `None`
    /// without a query, because the insert itself detects the duplicate.
    pub fn duplicate_of<T: Table>(&mut self, clause: &str, params: &[Param<'_>]) -> Result<Option<T>> {
        if self.mode.optimistic { Ok(None) } else { self.row_locked(clause, params) }
    }

    /// Inserts a row for which [`Writer::duplicate_of`] found no duplicate. In optimistic mode, a duplicate fails the
    /// transaction.
    pub fn insert_or_fail<T: Table>(&mut self, row: &T) -> Result<()> {
        if self.mode.optimistic { self.insert_expecting_new(std::slice::from_ref(row)) } else { self.insert(row) }
    }

    /// In optimistic mode, inserts rows that the caller can build without a query; a duplicate fails the transaction.
    /// In checked mode it returns `None`, and the caller has to query first.
    pub fn insert_unchecked<T: Table, E: From<Error>>(
        &mut self,
        rows: impl FnOnce(&mut Self) -> std::result::Result<Vec<T>, E>,
    ) -> std::result::Result<Option<Vec<T>>, E> {
        if !self.mode.optimistic {
            return Ok(None);
        }
        let rows = rows(self)?;
        self.insert_expecting_new(&rows)?;
        Ok(Some(rows))
    }

    /// Inserts rows. A duplicate fails the transaction.
    fn insert_expecting_new<T: Table>(&mut self, rows: &[T]) -> Result<()> {
        let sql = match rows {
            [] => return Ok(()),
            [_] => Cow::Borrowed(T::insert_new_sql()),
            _ => {
                let width = T::COLUMNS.len();
                let row = |number| format!("({})", placeholders(number * width + 1, width));
                let values: Vec<_> = (0..rows.len()).map(row).collect();
                let (columns, values) = (T::COLUMNS.join(", "), values.join(", "));
                Cow::Owned(format!("insert into {} ({columns}) values {values} on conflict do nothing", T::NAME))
            }
        };
        let params: Vec<_> = rows.iter().flat_map(Table::params).collect();
        self.post_new_rows(sql, &params, rows.len())
    }

    pub fn update<T: Table>(&mut self, row: &T) -> Result<()> {
        self.post_row(T::update_sql(), &row.params())
    }

    /// Updates the columns that differ between `before`, the current row, and `row`. Setting a column to its current
    /// value would cost as much as a change: the engine updates its indexes and checks its references.
    pub fn update_changed<T: Table>(&mut self, before: &T, row: &T) -> Result<()> {
        let (before, after) = (before.params(), row.params());
        let mut set = Vec::new();
        // The key and the tenant identify the row.
        let mut values: Vec<Param<'_>> = after.iter().take(2).cloned().collect();
        for ((column, old), new) in T::COLUMNS.iter().zip(before).zip(after).skip(2) {
            if old != new {
                values.push(new);
                set.push(format!("{column} = ?{}", values.len()));
            }
        }
        if set.is_empty() {
            return Ok(());
        }
        let [key, tenant] = [0, 1].map(|index| T::COLUMNS.get(index).copied().unwrap_or_default());
        let sql = format!("update {} set {} where {key} = ?1 and {tenant} = ?2", T::NAME, set.join(", "));
        self.post_row(&sql, &values)
    }

    /// Selects a row and locks it against other writers until the transaction ends.
    pub fn row_locked<T: Table>(&mut self, clause: &str, params: &[Param<'_>]) -> Result<Option<T>> {
        // Keys never change, so other transactions may still insert references to this row.
        self.row_with_lock(clause, params, " for no key update")
    }

    /// Selects a row and prevents changes to it until the transaction ends. Other transactions may take the same lock.
    pub fn row_locked_shared<T: Table>(&mut self, clause: &str, params: &[Param<'_>]) -> Result<Option<T>> {
        self.row_with_lock(clause, params, " for share")
    }

    /// SQLite has one writer at a time and needs no row lock.
    fn row_with_lock<T: Table>(&mut self, clause: &str, params: &[Param<'_>], lock: &str) -> Result<Option<T>> {
        match self.engine() {
            Engine::Sqlite => self.row(clause, params),
            Engine::Postgres => {
                let row = self.row(&format!("{clause}{lock}"), params);
                self.refresh_now();
                row
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use trackway_domain::{Id, Time};

    use crate::{
        Store, Url,
        connection::Connection,
        params,
        tables::{Person, Tenant},
    };

    #[test]
    #[expect(clippy::disallowed_methods, reason = "tests the writer itself")]
    fn update_changed_sets_only_changed_columns_and_insert_new_skips_duplicates() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("people.db");
        let store = Store::create(Url::sqlite(&path)).unwrap();
        let mut other = Connection::sqlite(&path, false).unwrap();
        other
            .batch("create trigger unchanged before update of handle, created_at on people begin select raise(abort, 'set'); end")
            .unwrap();
        let at = Time::from_micros(1);
        let tenant = Tenant { id: Id::new(at), name: "local".to_owned(), created_at: at };
        let ada = Person {
            id: Id::new(at),
            tenant_id: tenant.id,
            handle: "ada".to_owned(),
            name: Some("Ada".to_owned()),
            created_at: at,
            updated_at: at,
            deleted_at: None,
        };
        let renamed = Person { name: None, updated_at: Time::from_micros(2), ..ada.clone() };

        let mut write = store.write(tenant.id).unwrap();
        write.insert(&tenant).unwrap();
        assert!(write.insert_new(&ada).unwrap());
        assert!(!write.insert_new(&ada).unwrap());
        write.update_changed(&ada, &renamed).unwrap();
        write.update_changed(&renamed, &renamed).unwrap();
        assert!(write.update(&ada).is_err());
        let stored = write.row::<Person>("where tenant_id = ?1 and id = ?2", params![ada.id]).unwrap();
        assert_eq!(stored, Some(renamed));
    }
}

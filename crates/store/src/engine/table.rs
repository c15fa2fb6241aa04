//! Tables and views as Rust structs: a field is a column.

use std::borrow::Cow;

use crate::{
    connection::Engine,
    error::{Error, Result},
    sql::{FromRow, Param, ToParam, places},
    store::{Reader, Writer},
};

/// A struct whose fields are the columns of one table.
pub trait Table: FromRow {
    const NAME: &'static str;
    const COLUMNS: &'static [&'static str];
    /// `select COLUMNS from TABLE`, to be followed by `where`.
    fn select() -> &'static str;
    fn insert_sql() -> &'static str;
    /// The same, unless there is one like it.
    fn insert_new_sql() -> &'static str;
    /// Sets every column of the row with this row's key, within its tenant (the second column).
    fn update_sql() -> &'static str;
    fn params(&self) -> Vec<Param<'_>>;
}

/// Declares a struct and the table it is a row of. The first field is the key.
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
                    let places: Vec<_> = (1..=columns.len()).map(|place| format!("?{place}")).collect();
                    format!("insert into {} ({}) values ({})", $table, columns.join(", "), places.join(", "))
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

/// Declares a struct that rows of a query are read as, columns in the order of the fields.
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

/// A row of a table together with names that its ids stand for, read by one join.
pub trait Shown: FromRow {
    /// `select ... from ... join ...`, to be followed by `where`.
    fn select() -> &'static str;
}

/// Declares what is shown of a table's rows: all of the row, and names from joined tables.
#[macro_export]
macro_rules! shown {
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

        impl $crate::table::Shown for $name {
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
    /// What is shown of the rows that the rest of the text (`where ...`) selects. `?1` is the tenant.
    pub fn shown<T: Shown>(&mut self, rest: &str, params: &[Param<'_>]) -> Result<Vec<T>> {
        self.query(&format!("{} {rest}", T::select()), params)
    }

    /// What is shown of the row with this id, which must be there.
    pub fn shown_by_id<T: Shown>(&mut self, alias: &str, id: impl ToParam) -> Result<T> {
        let found = self.shown(&format!("where {alias}.tenant_id = ?1 and {alias}.id = ?2"), &[id.to_param()])?;
        found.into_iter().next().ok_or_else(|| Error::Value("a row that was just there is gone".into()))
    }

    /// The rows of a table that the rest of the text (`where ...`) selects.
    pub fn rows<T: Table>(&mut self, rest: &str, params: &[Param<'_>]) -> Result<Vec<T>> {
        self.query(&format!("{} {rest}", T::select()), params)
    }

    /// The one row of a table that the rest of the text selects, if there is one.
    pub fn row<T: Table>(&mut self, rest: &str, params: &[Param<'_>]) -> Result<Option<T>> {
        Ok(self.rows(rest, params)?.into_iter().next())
    }
}

/// PostgreSQL's insert of many rows by one statement: a list for each column. Columns that are null in every row are left out.
pub(crate) fn insert_unnested<T: Table>(rows: &[T]) -> (String, Vec<Param<'_>>) {
    let mut lists: Vec<Vec<Param<'_>>> = T::COLUMNS.iter().map(|_| Vec::with_capacity(rows.len())).collect();
    for row in rows {
        lists.iter_mut().zip(row.params()).for_each(|(list, param)| list.push(param));
    }
    let said = T::COLUMNS.iter().zip(lists).filter(|(_, list)| list.iter().any(|param| *param != Param::Null));
    let (columns, lists): (Vec<&str>, Vec<_>) = said.map(|(column, list)| (*column, Param::List(list))).unzip();
    let places = lists.iter().zip(1..).map(|(list, place)| format!("cast(?{place} as {})", list.postgres_type()));
    let (columns, places) = (columns.join(", "), places.collect::<Vec<_>>().join(", "));
    (format!("insert into {} ({columns}) select * from unnest({places})", T::NAME), lists)
}

impl Writer<'_> {
    pub fn insert<T: Table>(&mut self, row: &T) -> Result<()> {
        self.post_new_row(T::insert_sql(), &row.params())
    }

    /// Inserts many rows of a table: on PostgreSQL by one statement.
    pub fn insert_all<T: Table>(&mut self, rows: &[T]) -> Result<()> {
        if self.engine() == Engine::Sqlite || rows.len() < 2 {
            return rows.iter().try_for_each(|row| self.insert(row));
        }
        let (sql, lists) = insert_unnested(rows);
        self.post_new_row(sql, &lists)
    }

    /// Inserts a row unless there is one like it, and says whether it was inserted.
    pub fn insert_new<T: Table>(&mut self, row: &T) -> Result<bool> {
        Ok(self.execute_row(T::insert_new_sql(), &row.params())? > 0)
    }

    /// Finds and locks the row that [`Writer::insert_or_fail`] would duplicate. In optimistic mode returns `None` without a
    /// query, because the insert detects the duplicate.
    pub fn duplicate_of<T: Table>(&mut self, rest: &str, params: &[Param<'_>]) -> Result<Option<T>> {
        if self.mode.optimistic { Ok(None) } else { self.row_locked(rest, params) }
    }

    /// Inserts a row for which [`Writer::duplicate_of`] found no duplicate. In optimistic mode a duplicate fails the
    /// transaction.
    pub fn insert_or_fail<T: Table>(&mut self, row: &T) -> Result<()> {
        if self.mode.optimistic { self.insert_expecting_new(std::slice::from_ref(row)) } else { self.insert(row) }
    }

    /// In optimistic mode, inserts rows made from what the caller knows without a query; a duplicate fails the transaction.
    /// Otherwise returns `None`: the caller has to query first.
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

    /// Inserts rows without a query for duplicates: a duplicate fails the transaction.
    fn insert_expecting_new<T: Table>(&mut self, rows: &[T]) -> Result<()> {
        let sql = match rows {
            [] => return Ok(()),
            [_] => Cow::Borrowed(T::insert_new_sql()),
            _ => {
                let width = T::COLUMNS.len();
                let row = |number| format!("({})", places(number * width + 1, width));
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

    /// Writes what is different in a row that is known as it was. Setting a column to what it holds already costs as much
    /// as changing it: its indexes are written and its references looked at.
    pub fn update_changed<T: Table>(&mut self, before: &T, row: &T) -> Result<()> {
        let (before, after) = (before.params(), row.params());
        let mut set = Vec::new();
        // The key and the tenant, which say which row it is.
        let mut values: Vec<Param<'_>> = after.iter().take(2).cloned().collect();
        for ((column, was), is) in T::COLUMNS.iter().zip(before).zip(after).skip(2) {
            if was != is {
                values.push(is);
                set.push(format!("{column} = ?{}", values.len()));
            }
        }
        if set.is_empty() {
            return Ok(());
        }
        let [key, tenant] = [0, 1].map(|place| T::COLUMNS.get(place).copied().unwrap_or_default());
        let sql = format!("update {} set {} where {key} = ?1 and {tenant} = ?2", T::NAME, set.join(", "));
        self.post_row(&sql, &values)
    }

    /// The one row that the rest of the text selects, held against other writers until the transaction ends.
    pub fn row_locked<T: Table>(&mut self, rest: &str, params: &[Param<'_>]) -> Result<Option<T>> {
        // Keys never change, so rows that refer to this one can still be written meanwhile.
        self.row_held(rest, params, " for no key update")
    }

    /// The same, held so that it stays as it is while others may look at it too.
    pub fn row_shared<T: Table>(&mut self, rest: &str, params: &[Param<'_>]) -> Result<Option<T>> {
        self.row_held(rest, params, " for share")
    }

    /// SQLite has one writer at a time and needs no lock.
    fn row_held<T: Table>(&mut self, rest: &str, params: &[Param<'_>], lock: &str) -> Result<Option<T>> {
        match self.engine() {
            Engine::Sqlite => self.row(rest, params),
            Engine::Postgres => {
                let row = self.row(&format!("{rest}{lock}"), params);
                self.after_waiting();
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
    #[expect(clippy::disallowed_methods, reason = "what a writer does is tested here")]
    fn an_update_sets_what_changed_and_a_row_is_inserted_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("people.db");
        let store = Store::create(Url::sqlite(&path)).unwrap();
        let mut other = Connection::sqlite(&path, false).unwrap();
        other
            .batch("create trigger kept before update of handle, created_at on people begin select raise(abort, 'set'); end")
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
        let kept = write.row::<Person>("where tenant_id = ?1 and id = ?2", params![ada.id]).unwrap();
        assert_eq!(kept, Some(renamed));
    }
}

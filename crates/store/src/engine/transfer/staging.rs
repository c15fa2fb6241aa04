//! A database that is being filled, where nobody looks for it: a file beside the one it will be, or a schema of its own in
//! PostgreSQL. It becomes the database in one step, whole and checked; until then the target is as it was.

use std::{
    fs::{self, File},
    io::ErrorKind,
    path::{Path, PathBuf},
};

use rusqlite::backup::Backup;
use trackway_domain::Error as Rule;
use uuid::Uuid;

use super::{
    Progress, TableCopied,
    dump::{file_error, sync_folder_of},
    layout::{self, TableLayout},
    row_text::{TableDigest, TextRow},
    rows::Rows,
};
use crate::{
    connection::{Connection, Engine},
    error::{Error, Result},
    health::incoming_of,
    migrate,
    search::index_again,
    sql::Param,
    store::identity_at,
    url::Url,
};

/// The schema in PostgreSQL, until it is whole.
pub(crate) const SCHEMA: &str = "trackway_incoming";
/// What keeps two from filling one database of PostgreSQL.
pub(crate) const FILLING: i64 = 1_414_682_458;
/// The lock of migrations.
const MIGRATING: i64 = 1_414_682_457;
/// Rows that are committed together.
const TOGETHER: usize = 2_000;
/// Bytes that are sent together.
const BYTES_TOGETHER: usize = 8 << 20;

/// A database that is being filled.
pub struct Staging {
    connection: Connection,
    place: Place,
    url: Url,
}

enum Place {
    File {
        target: PathBuf,
        staging: PathBuf,
    },
    /// The schema that it will be in.
    Schema {
        target: String,
    },
}

impl Staging {
    /// Begins one, or goes on with one that was left, after looking that the target holds nothing.
    pub fn open(url: &Url, version: i64) -> Result<Self> {
        let mut staging = match url {
            Url::Sqlite(path) => Self::file(url, path, version)?,
            Url::Postgres(address) => Self::schema(url, address, version)?,
        };
        let prepared = migrate::bring_up_to(&mut staging.connection, url, version);
        match prepared.and_then(|()| staging.without_references()) {
            Ok(()) => Ok(staging),
            Err(error) => Err(staging.given_up(error)),
        }
    }

    /// Says why it was given up. What was cut off is gone on with; but on a full disk it would be in everyone's way.
    pub fn given_up(mut self, error: Error) -> Error {
        if matches!(error, Error::Full(_)) {
            match &self.place {
                Place::File { staging, .. } => remove_database(staging),
                Place::Schema { .. } => {
                    self.connection.rollback();
                    let _ = self.connection.batch(&format!("drop schema {SCHEMA} cascade"));
                }
            }
        }
        error
    }

    fn file(url: &Url, target: &Path, version: i64) -> Result<Self> {
        if target.metadata().is_ok_and(|file| !file.is_file() || file.len() > 0) {
            refuse_rows(&mut Connection::sqlite(target, false)?, url)?;
        }
        if let Some(folder) = target.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            crate::store::make_private(folder)
                .map_err(|error| Error::ReadOnly(format!("{}: {error}", folder.display())))?;
        }
        let staging = incoming_of(target);
        let mut connection = exclusively(&staging).inspect_err(|error| {
            if matches!(error, Error::Full(_)) {
                remove_database(&staging);
            }
        })?;
        let left = migrate::applied(&mut connection, url).unwrap_or(i64::MAX);
        if left != 0 && left != version {
            // Of another backup. It is ours as long as this connection is open.
            remove_database(&staging);
            drop(connection);
            connection = exclusively(&staging)?;
        }
        Ok(Self { connection, place: Place::File { target: target.to_owned(), staging }, url: url.clone() })
    }

    fn schema(url: &Url, address: &str, version: i64) -> Result<Self> {
        let mut connection = Connection::postgres_made(address)?;
        refuse_rows(&mut connection, url)?;
        // Waited for: the server may not have noticed yet that who held it was killed.
        connection.query::<(bool,)>(&format!("select pg_advisory_lock({FILLING}) is null"), &[])?;
        let target = connection.query::<(String,)>("select cast(current_schema() as text)", &[])?;
        let Some((target,)) = target.into_iter().next() else {
            return Err(Error::Database("there is no schema to make tables in".into()));
        };
        connection.batch(&format!("create schema if not exists {SCHEMA}; set search_path to {SCHEMA}"))?;
        let left = migrate::applied(&mut connection, url).unwrap_or(i64::MAX);
        if left != 0 && left != version {
            connection.batch(&format!("drop schema {SCHEMA} cascade; create schema {SCHEMA}"))?;
        }
        Ok(Self { connection, place: Place::Schema { target }, url: url.clone() })
    }

    /// Rows come table by table, and some tables refer to each other: references are checked once all are there.
    fn without_references(&mut self) -> Result<()> {
        match self.connection.engine() {
            Engine::Sqlite => self.connection.batch("pragma foreign_keys = off"),
            Engine::Postgres => self.connection.batch(&format!(
                "do $$ declare one record; begin
                     if to_regclass('{SCHEMA}.incoming_references') is null then
                         create table incoming_references as
                             select cast(cast(conrelid as regclass) as text) as place, cast(conname as text) as name, pg_get_constraintdef(oid) as definition
                             from pg_constraint where contype = 'f' and connamespace = '{SCHEMA}'::regnamespace;
                         for one in select * from incoming_references loop
                             execute format('alter table %s drop constraint %I', one.place, one.name);
                         end loop;
                     end if;
                 end $$"
            )),
        }
    }

    /// Takes the rows of a table. What is there already and the same stays; from the first difference on it is written
    /// anew.
    pub fn take(
        &mut self,
        table: &TableLayout,
        rows: impl Iterator<Item = Result<TextRow>>,
        progress: Progress<'_>,
    ) -> Result<TableCopied> {
        let mut digest = TableDigest::default();
        let mut rows = rows.peekable();
        let mut from = None;
        {
            let connection = &mut self.connection;
            for present in Rows::new(table, |sql, params| connection.query(sql, params)) {
                let present = present?;
                match rows.next_if(|row| row.as_ref().is_ok_and(|row| row.canonical == present.canonical)) {
                    Some(row) => digest.add(&row?.canonical),
                    None => {
                        from = Some(present.key(table));
                        break;
                    }
                }
                progress(&table.name, digest.rows);
            }
        }
        self.connection.batch("begin")?;
        if let Some(from) = from {
            // The source was written to since.
            let places: Vec<String> = (1..=from.len()).map(|place| format!("?{place}")).collect();
            let key = table.key_names().join(", ");
            let sql = format!("delete from {} where ({key}) >= ({})", table.name, places.join(", "));
            self.connection.execute(&sql, &from)?;
        }
        self.insert(table, rows, &mut digest, progress)?;
        self.connection.commit()?;
        Ok(TableCopied { name: table.name.clone(), rows: digest.rows, digest: digest.finish() })
    }

    fn insert(
        &mut self,
        table: &TableLayout,
        rows: impl Iterator<Item = Result<TextRow>>,
        digest: &mut TableDigest,
        progress: Progress<'_>,
    ) -> Result<()> {
        let places: Vec<String> = (1..=table.columns.len()).map(|place| format!("?{place}")).collect();
        let ours = match (self.connection.engine(), table.counter()) {
            (Engine::Postgres, Some(_)) => " overriding system value",
            _ => "",
        };
        let sql = format!("insert into {} ({}){ours} values ({})", table.name, table.names(), places.join(", "));
        let (mut waiting, mut bytes) = (0, 0);
        for row in rows {
            let row = row?;
            digest.add(&row.canonical);
            bytes += row.canonical.len();
            waiting += 1;
            self.connection.post(&sql, &row.values)?;
            if bytes > BYTES_TOGETHER || waiting % 200 == 0 {
                self.connection.flush()?;
                bytes = 0;
            }
            if waiting >= TOGETHER {
                self.connection.commit()?;
                self.connection.batch("begin")?;
                waiting = 0;
            }
            progress(&table.name, digest.rows);
        }
        self.connection.flush()
    }

    /// Checks that everything came here, makes what is made from it, and puts it in its place.
    pub fn publish(mut self, tables: &[TableLayout], copied: &[TableCopied]) -> Result<Vec<TableCopied>> {
        if let Err(error) = self.check(tables, copied).and_then(|()| self.make_derived(tables)) {
            return Err(self.given_up(error));
        }
        match &self.place {
            Place::File { .. } => self.publish_file(),
            Place::Schema { .. } => self.publish_schema(tables),
        }?;
        Ok(copied.to_vec())
    }

    fn check(&mut self, tables: &[TableLayout], copied: &[TableCopied]) -> Result<()> {
        for (table, said) in tables.iter().zip(copied) {
            if self.digest_of(table)? != *said {
                return Err(Error::Database(format!("{} did not come through as it was", table.name)));
            }
        }
        Ok(())
    }

    fn digest_of(&mut self, table: &TableLayout) -> Result<TableCopied> {
        let connection = &mut self.connection;
        let mut digest = TableDigest::default();
        for row in Rows::new(table, |sql, params| connection.query(sql, params)) {
            digest.add(&row?.canonical);
        }
        Ok(TableCopied { name: table.name.clone(), rows: digest.rows, digest: digest.finish() })
    }

    /// The words of bodies, and the numbers that the database gives out next.
    fn make_derived(&mut self, tables: &[TableLayout]) -> Result<()> {
        if tables.iter().any(|table| table.name == "contents") {
            self.connection.batch("begin; delete from content_words")?;
            let mut after = Uuid::nil();
            loop {
                let bodies = self.connection.query::<(Uuid, Uuid, String)>(
                    "select id, tenant_id, body from contents where id > ?1 order by id limit 200",
                    &[Param::Uuid(after)],
                )?;
                let Some((last, ..)) = bodies.last() else { break };
                after = *last;
                for (id, tenant, body) in &bodies {
                    index_again(&mut self.connection, *tenant, *id, body)?;
                }
                self.connection.flush()?;
            }
            self.connection.commit()?;
        }
        for table in tables {
            if let (Engine::Postgres, Some(counter)) = (self.connection.engine(), table.counter()) {
                let name = &table.name;
                self.connection.batch(&format!(
                    "select setval(pg_get_serial_sequence('{name}', '{counter}'), greatest(max({counter}), 1), max({counter}) is not null) from {name}"
                ))?;
            }
        }
        migrate::bring_up_to_date(&mut self.connection, &self.url)
    }

    fn publish_file(mut self) -> Result<()> {
        let broken =
            self.connection.query::<(String,)>("select \"table\" from pragma_foreign_key_check limit 1", &[])?;
        if let Some((table,)) = broken.first() {
            return Err(Error::Damaged(format!("{table} refers to what is not there")));
        }
        // All of it into the one file, which is then on the disk.
        if let Err(error) = self.connection.query::<(i64,)>("pragma wal_checkpoint(truncate)", &[]) {
            return Err(self.given_up(error));
        }
        let Self { connection, place: Place::File { target, staging }, url } = self else {
            return Ok(());
        };
        // A log that was left alone would be taken for the new file's.
        if target.exists() || with_ending(&target, "-wal").exists() {
            return pour(connection, &staging, &target, &url);
        }
        let failed = |error: std::io::Error| match error.kind() {
            ErrorKind::AlreadyExists => holds_data(&url),
            _ => file_error(&target.display().to_string(), &error),
        };
        put_in_place(connection, &staging, &target).map_err(failed)?;
        sync_folder_of(&target);
        Ok(())
    }

    fn publish_schema(mut self, tables: &[TableLayout]) -> Result<()> {
        let Place::Schema { target } = &self.place else {
            return Ok(());
        };
        let target = target.replace('"', "\"\"");
        let mut names: Vec<&str> = tables.iter().map(|table| table.name.as_str()).collect();
        let newest = layout::tables(migrate::known_version());
        names.extend(
            newest
                .iter()
                .map(|table| table.name.as_str())
                .filter(|name| !tables.iter().any(|table| table.name == *name)),
        );
        names.extend(["content_words", "trackway_migrations"]);
        let drops: Vec<String> =
            names.iter().map(|name| format!("drop table if exists \"{target}\".{name} cascade")).collect();
        let moves: Vec<String> =
            names.iter().map(|name| format!("alter table {SCHEMA}.{name} set schema \"{target}\"")).collect();
        self.connection
            .batch(&format!("begin; select pg_advisory_xact_lock({MIGRATING}); set local lock_timeout = '30s'"))?;
        let outcome = self.publish_schema_locked(&target, &newest, &drops.join("; "), &moves.join("; "));
        match outcome {
            Ok(()) => self.connection.commit(),
            Err(error) => {
                self.connection.rollback();
                Err(error)
            }
        }
    }

    fn publish_schema_locked(&mut self, target: &str, newest: &[TableLayout], drops: &str, moves: &str) -> Result<()> {
        for table in newest {
            let there = self.connection.query::<(bool,)>(
                &format!("select to_regclass('\"{}\".{}') is not null", target.replace('\'', "''"), table.name),
                &[],
            )?;
            if there == [(true,)] {
                let name = format!("\"{target}\".{}", table.name);
                self.connection.batch(&format!("lock table {name} in access exclusive mode"))?;
                refuse_row(&mut self.connection, &name, &self.url)?;
            }
        }
        self.connection.batch(
            "do $$ declare one record; begin
                 for one in select * from incoming_references loop
                     execute format('alter table %s add constraint %I %s', one.place, one.name, one.definition);
                 end loop;
                 drop table incoming_references;
             end $$",
        )?;
        self.connection.batch(&format!("{drops}; {moves}; drop schema {SCHEMA} cascade"))
    }
}

/// Removes what was left behind, unless somebody is filling it.
pub(super) fn remove_left_behind(url: &Url) -> Result<()> {
    match url {
        Url::Sqlite(path) => {
            let left = incoming_of(path);
            if !left.exists() {
                return Ok(());
            }
            match exclusively(&left) {
                Err(Error::Busy(_)) => {}
                // One that is no database is nobody's either.
                held => {
                    remove_database(&left);
                    drop(held);
                }
            }
            Ok(())
        }
        Url::Postgres(address) => {
            let mut connection = Connection::postgres(address)?;
            let held = connection.query::<(bool,)>(&format!("select pg_try_advisory_lock({FILLING})"), &[])?;
            if held == [(true,)] {
                connection.batch(&format!("drop schema if exists {SCHEMA} cascade"))?;
            }
            Ok(())
        }
    }
}

/// Opens a file that no other process can use meanwhile.
fn exclusively(path: &Path) -> Result<Connection> {
    let at = Url::sqlite(path);
    let failed = |error: std::io::Error| file_error(&path.display().to_string(), &error);
    // Made before it is looked at, and closed again: closing it later would give up SQLite's own locks.
    File::options().create(true).append(true).open(path).map_err(failed)?;
    let looked_at = identity_at(&at);
    let locked = Connection::sqlite(path, true).and_then(|mut connection| {
        crate::store::keep_private(path);
        connection.batch("pragma locking_mode = exclusive; pragma synchronous = full; begin immediate; commit")?;
        Ok(connection)
    });
    if identity_at(&at) != looked_at {
        // Who held it put it in its place meanwhile: what was opened here is somebody's database now.
        return Err(Error::Busy(format!("{} was just put in its place", path.display())));
    }
    locked
}

/// Fills a database that stands there and is empty, in one transaction of its own: whoever waits for it finds it filled, and
/// what somebody wrote there meanwhile stays.
fn pour(from: Connection, staging: &Path, target: &Path, url: &Url) -> Result<()> {
    let mut to = exclusively(target)?;
    if let Err(error) = refuse_rows(&mut to, url) {
        remove_database(staging);
        return Err(error);
    }
    if let (Connection::Sqlite(from), Connection::Sqlite(to)) = (&from, &mut to) {
        // All pages in one step, which is one transaction.
        Backup::new(from, to)?.step(-1)?;
    }
    drop(to);
    remove_database(staging);
    drop(from);
    Ok(())
}

/// Gives it the name of the target, unless somebody made one meanwhile. It stays locked until it is there: else another
/// would go on filling what is no longer theirs.
fn put_in_place(connection: Connection, staging: &Path, target: &Path) -> std::io::Result<()> {
    // On Windows an open file has to keep its name.
    let held = (!cfg!(windows)).then_some(connection);
    // Empty, and nobody would look for it under the new name.
    let _ = fs::remove_file(with_ending(staging, "-wal"));
    let outcome = rename_to_new(staging, target);
    if outcome.as_ref().is_err_and(|error| error.kind() == ErrorKind::AlreadyExists) {
        remove_database(staging);
    }
    drop(held);
    outcome
}

#[cfg(any(target_os = "linux", target_os = "macos"))]
fn rename_to_new(from: &Path, to: &Path) -> std::io::Result<()> {
    use rustix::{
        fs::{CWD, RenameFlags, renameat_with},
        io::Errno,
    };
    match renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        // The file system cannot.
        Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => link_to_new(from, to),
        outcome => Ok(outcome?),
    }
}

#[cfg(not(any(target_os = "linux", target_os = "macos")))]
fn rename_to_new(from: &Path, to: &Path) -> std::io::Result<()> {
    link_to_new(from, to)
}

/// The same in two steps, where there is no rename that leaves what is there.
fn link_to_new(from: &Path, to: &Path) -> std::io::Result<()> {
    fs::hard_link(from, to)?;
    fs::remove_file(from)
}

fn with_ending(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ending);
    name.into()
}

/// Removes a database file with its log.
fn remove_database(path: &Path) {
    for ending in ["-wal", "-shm", ""] {
        let _ = fs::remove_file(with_ending(path, ending));
    }
}

/// A target that holds anything is left as it is.
fn refuse_rows(connection: &mut Connection, url: &Url) -> Result<()> {
    for table in layout::tables(migrate::applied(connection, url)?) {
        refuse_row(connection, &table.name, url)?;
    }
    Ok(())
}

fn refuse_row(connection: &mut Connection, table: &str, url: &Url) -> Result<()> {
    let holds = connection.query::<(bool,)>(&format!("select exists (select 1 from {table})"), &[])?;
    if holds == [(true,)] { Err(holds_data(url)) } else { Ok(()) }
}

fn holds_data(url: &Url) -> Error {
    Rule::conflict(format!("the database at {url} holds data"))
        .hint("give one that is empty or not there yet; nothing was changed")
        .into()
}

//! A database that a restore or move fills before anybody can open it: a file beside the target, or a schema of its own
//! in PostgreSQL. Publishing verifies it and puts it in place in one step. Until then the target does not change.

use std::{
    fs::{self, File},
    io::ErrorKind,
    path::{Path, PathBuf},
};

use rusqlite::backup::Backup;
use trackway_domain::Error as DomainError;
use uuid::Uuid;

use super::{
    CopiedTable, Progress,
    dump::{file_error, sync_parent_directory},
    layout::{self, TableLayout},
    row_text::{TableDigest, TextRow},
    rows::Rows,
};
use crate::{
    connection::{Connection, Engine},
    error::{Error, Result},
    health::staging_file,
    migrate,
    search::index_content_with,
    sql::Param,
    store::identity_at,
    url::Url,
};

/// Name of the PostgreSQL schema that is being filled.
pub(crate) const STAGING_SCHEMA: &str = "trackway_incoming";
/// Advisory lock that lets only one process at a time fill a staging schema.
pub(crate) const FILLING_LOCK: i64 = 1_414_682_458;
/// Advisory lock of migrations.
const MIGRATION_LOCK: i64 = 1_414_682_457;
/// Number of rows per transaction.
const ROWS_PER_COMMIT: usize = 2_000;
/// Number of bytes sent to PostgreSQL at once.
const BYTES_PER_FLUSH: usize = 8 << 20;

/// A database that is being filled.
pub struct Staging {
    connection: Connection,
    location: Location,
    url: Url,
}

enum Location {
    File {
        target: PathBuf,
        staging: PathBuf,
    },
    /// `target` is the schema that the tables will move to.
    Schema {
        target: String,
    },
}

impl Staging {
    /// Starts a staging database or resumes an interrupted one. Fails if the target contains rows.
    pub fn open(url: &Url, version: i64) -> Result<Self> {
        let mut staging = match url {
            Url::Sqlite(path) => Self::file(url, path, version)?,
            Url::Postgres(address) => Self::schema(url, address, version)?,
        };
        let prepared = migrate::migrate_to(&mut staging.connection, url, version);
        match prepared.and_then(|()| staging.disable_foreign_keys()) {
            Ok(()) => Ok(staging),
            Err(error) => Err(staging.abort(error)),
        }
    }

    /// Ends a failed copy. The staging database remains, so that the next attempt resumes it, unless the disk is full.
    /// Returns the error.
    pub fn abort(mut self, error: Error) -> Error {
        if matches!(error, Error::Full(_)) {
            match &self.location {
                Location::File { staging, .. } => remove_database(staging),
                Location::Schema { .. } => {
                    self.connection.rollback();
                    let _ = self.connection.batch(&format!("drop schema {STAGING_SCHEMA} cascade"));
                }
            }
        }
        error
    }

    fn file(url: &Url, target: &Path, version: i64) -> Result<Self> {
        if target.metadata().is_ok_and(|file| !file.is_file() || file.len() > 0) {
            require_no_rows(&mut Connection::sqlite(target, false)?, url)?;
        }
        if let Some(folder) = target.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            crate::store::create_private_directory(folder)
                .map_err(|error| Error::ReadOnly(format!("{}: {error}", folder.display())))?;
        }
        let staging = staging_file(target);
        let mut connection = open_exclusively(&staging).inspect_err(|error| {
            if matches!(error, Error::Full(_)) {
                remove_database(&staging);
            }
        })?;
        let found = migrate::applied_version(&mut connection, url).unwrap_or(i64::MAX);
        if found != 0 && found != version {
            // The file belongs to another backup. No other process uses the file while this connection has it locked.
            remove_database(&staging);
            drop(connection);
            connection = open_exclusively(&staging)?;
        }
        Ok(Self { connection, location: Location::File { target: target.to_owned(), staging }, url: url.clone() })
    }

    fn schema(url: &Url, address: &str, version: i64) -> Result<Self> {
        let mut connection = Connection::postgres_or_create(address)?;
        require_no_rows(&mut connection, url)?;
        // Wait for the lock: the server may not have noticed yet that its former holder was killed.
        connection.query::<(bool,)>(&format!("select pg_advisory_lock({FILLING_LOCK}) is null"), &[])?;
        let target = connection.query::<(String,)>("select cast(current_schema() as text)", &[])?;
        let Some((target,)) = target.into_iter().next() else {
            return Err(Error::Database("the search_path contains no existing schema".into()));
        };
        connection
            .batch(&format!("create schema if not exists {STAGING_SCHEMA}; set search_path to {STAGING_SCHEMA}"))?;
        let found = migrate::applied_version(&mut connection, url).unwrap_or(i64::MAX);
        if found != 0 && found != version {
            connection.batch(&format!("drop schema {STAGING_SCHEMA} cascade; create schema {STAGING_SCHEMA}"))?;
        }
        Ok(Self { connection, location: Location::Schema { target }, url: url.clone() })
    }

    /// Disables foreign keys while rows arrive table by table. Publishing checks them.
    fn disable_foreign_keys(&mut self) -> Result<()> {
        match self.connection.engine() {
            Engine::Sqlite => self.connection.batch("pragma foreign_keys = off"),
            Engine::Postgres => self.connection.batch(&format!(
                "do $$ declare one record; begin
                     if to_regclass('{STAGING_SCHEMA}.incoming_references') is null then
                         create table incoming_references as
                             select cast(cast(conrelid as regclass) as text) as place, cast(conname as text) as name, pg_get_constraintdef(oid) as definition
                             from pg_constraint where contype = 'f' and connamespace = '{STAGING_SCHEMA}'::regnamespace;
                         for one in select * from incoming_references loop
                             execute format('alter table %s drop constraint %I', one.place, one.name);
                         end loop;
                     end if;
                 end $$"
            )),
        }
    }

    /// Copies the rows of a table. Keeps the rows that a previous attempt copied, up to the first difference, and
    /// replaces all rows after it.
    pub fn copy_table(
        &mut self,
        table: &TableLayout,
        rows: impl Iterator<Item = Result<TextRow>>,
        progress: Progress<'_>,
    ) -> Result<CopiedTable> {
        let mut digest = TableDigest::default();
        let mut rows = rows.peekable();
        let mut first_changed = None;
        {
            let connection = &mut self.connection;
            for present in Rows::new(table, |sql, params| connection.query(sql, params)) {
                let present = present?;
                match rows.next_if(|row| row.as_ref().is_ok_and(|row| row.canonical == present.canonical)) {
                    Some(row) => digest.add(&row?.canonical),
                    None => {
                        first_changed = Some(present.key(table));
                        break;
                    }
                }
                progress(&table.name, digest.rows);
            }
        }
        self.connection.batch("begin")?;
        if let Some(from) = first_changed {
            // The source changed since the previous attempt.
            let placeholders: Vec<String> = (1..=from.len()).map(|number| format!("?{number}")).collect();
            let key = table.key_names().join(", ");
            let sql = format!("delete from {} where ({key}) >= ({})", table.name, placeholders.join(", "));
            self.connection.execute(&sql, &from)?;
        }
        self.insert(table, rows, &mut digest, progress)?;
        self.connection.commit()?;
        Ok(CopiedTable { name: table.name.clone(), rows: digest.rows, digest: digest.finish() })
    }

    fn insert(
        &mut self,
        table: &TableLayout,
        rows: impl Iterator<Item = Result<TextRow>>,
        digest: &mut TableDigest,
        progress: Progress<'_>,
    ) -> Result<()> {
        let placeholders: Vec<String> = (1..=table.columns.len()).map(|number| format!("?{number}")).collect();
        let override_identity = match (self.connection.engine(), table.identity_column()) {
            (Engine::Postgres, Some(_)) => " overriding system value",
            _ => "",
        };
        let sql = format!(
            "insert into {} ({}){override_identity} values ({})",
            table.name,
            table.column_list(),
            placeholders.join(", ")
        );
        let (mut uncommitted, mut bytes) = (0, 0);
        for row in rows {
            let row = row?;
            digest.add(&row.canonical);
            bytes += row.canonical.len();
            uncommitted += 1;
            self.connection.post(&sql, &row.values)?;
            if bytes > BYTES_PER_FLUSH || uncommitted % 200 == 0 {
                self.connection.flush()?;
                bytes = 0;
            }
            if uncommitted >= ROWS_PER_COMMIT {
                self.connection.commit()?;
                self.connection.batch("begin")?;
                uncommitted = 0;
            }
            progress(&table.name, digest.rows);
        }
        self.connection.flush()
    }

    /// Verifies the copy, rebuilds the derived tables, and puts the database in place.
    pub fn publish(mut self, tables: &[TableLayout], copied: &[CopiedTable]) -> Result<Vec<CopiedTable>> {
        if let Err(error) = self.check(tables, copied).and_then(|()| self.rebuild_derived(tables)) {
            return Err(self.abort(error));
        }
        match &self.location {
            Location::File { .. } => self.publish_file(),
            Location::Schema { .. } => self.publish_schema(tables),
        }?;
        Ok(copied.to_vec())
    }

    fn check(&mut self, tables: &[TableLayout], copied: &[CopiedTable]) -> Result<()> {
        for (table, expected) in tables.iter().zip(copied) {
            if self.digest_of(table)? != *expected {
                return Err(Error::Database(format!("the copied rows of {} differ from the source", table.name)));
            }
        }
        Ok(())
    }

    fn digest_of(&mut self, table: &TableLayout) -> Result<CopiedTable> {
        let connection = &mut self.connection;
        let mut digest = TableDigest::default();
        for row in Rows::new(table, |sql, params| connection.query(sql, params)) {
            digest.add(&row?.canonical);
        }
        Ok(CopiedTable { name: table.name.clone(), rows: digest.rows, digest: digest.finish() })
    }

    /// Rebuilds the search index and sets the next values of identity columns. Then migrates to the newest schema.
    fn rebuild_derived(&mut self, tables: &[TableLayout]) -> Result<()> {
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
                    index_content_with(&mut self.connection, *tenant, *id, body)?;
                }
                self.connection.flush()?;
            }
            self.connection.commit()?;
        }
        for table in tables {
            if let (Engine::Postgres, Some(counter)) = (self.connection.engine(), table.identity_column()) {
                let name = &table.name;
                self.connection.batch(&format!(
                    "select setval(pg_get_serial_sequence('{name}', '{counter}'), greatest(max({counter}), 1), max({counter}) is not null) from {name}"
                ))?;
            }
        }
        migrate::migrate_to_latest(&mut self.connection, &self.url)
    }

    fn publish_file(mut self) -> Result<()> {
        let violations =
            self.connection.query::<(String,)>("select \"table\" from pragma_foreign_key_check limit 1", &[])?;
        if let Some((table,)) = violations.first() {
            return Err(Error::Damaged(format!("a row of {table} refers to a missing row")));
        }
        // Move the log into the file and sync it.
        if let Err(error) = self.connection.query::<(i64,)>("pragma wal_checkpoint(truncate)", &[]) {
            return Err(self.abort(error));
        }
        let Self { connection, location: Location::File { target, staging }, url } = self else {
            return Ok(());
        };
        // SQLite would apply a leftover log to the new file.
        if target.exists() || with_ending(&target, "-wal").exists() {
            return fill_empty_database(connection, &staging, &target, &url);
        }
        let failed = |error: std::io::Error| match error.kind() {
            ErrorKind::AlreadyExists => target_not_empty(&url),
            _ => file_error(&target.display().to_string(), &error),
        };
        rename_to_target(connection, &staging, &target).map_err(failed)?;
        sync_parent_directory(&target);
        Ok(())
    }

    fn publish_schema(mut self, tables: &[TableLayout]) -> Result<()> {
        let Location::Schema { target } = &self.location else {
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
            names.iter().map(|name| format!("alter table {STAGING_SCHEMA}.{name} set schema \"{target}\"")).collect();
        self.connection
            .batch(&format!("begin; select pg_advisory_xact_lock({MIGRATION_LOCK}); set local lock_timeout = '30s'"))?;
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
            let exists = self.connection.query::<(bool,)>(
                &format!("select to_regclass('\"{}\".{}') is not null", target.replace('\'', "''"), table.name),
                &[],
            )?;
            if exists == [(true,)] {
                let name = format!("\"{target}\".{}", table.name);
                self.connection.batch(&format!("lock table {name} in access exclusive mode"))?;
                require_empty_table(&mut self.connection, &name, &self.url)?;
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
        self.connection.batch(&format!("{drops}; {moves}; drop schema {STAGING_SCHEMA} cascade"))
    }
}

/// Removes an abandoned staging database. Does nothing while another process fills it.
pub(super) fn remove_abandoned_staging(url: &Url) -> Result<()> {
    match url {
        Url::Sqlite(path) => {
            let staging = staging_file(path);
            if !staging.exists() {
                return Ok(());
            }
            match open_exclusively(&staging) {
                Err(Error::Busy(_)) => {}
                // A file that is not a database is removed, too.
                lock => {
                    remove_database(&staging);
                    drop(lock);
                }
            }
            Ok(())
        }
        Url::Postgres(address) => {
            let mut connection = Connection::postgres(address)?;
            let locked = connection.query::<(bool,)>(&format!("select pg_try_advisory_lock({FILLING_LOCK})"), &[])?;
            if locked == [(true,)] {
                connection.batch(&format!("drop schema if exists {STAGING_SCHEMA} cascade"))?;
            }
            Ok(())
        }
    }
}

/// Opens and locks a file, so that no other process can use it.
fn open_exclusively(path: &Path) -> Result<Connection> {
    let url = Url::sqlite(path);
    let failed = |error: std::io::Error| file_error(&path.display().to_string(), &error);
    // Create and close the file before SQLite opens it: closing any descriptor of a file releases the locks that this
    // process holds on it.
    File::options().create(true).append(true).open(path).map_err(failed)?;
    let created = identity_at(&url);
    let result = Connection::sqlite(path, true).and_then(|mut connection| {
        crate::store::restrict_to_owner(path);
        connection.batch("pragma locking_mode = exclusive; pragma synchronous = full; begin immediate; commit")?;
        Ok(connection)
    });
    if identity_at(&url) != created {
        // The process that filled this file has published it meanwhile, so this connection now has a live database
        // open.
        return Err(Error::Busy(format!("another process has just published {}", path.display())));
    }
    result
}

/// Fills an existing empty database in one transaction. Waiting readers then see it complete. Fails if somebody has
/// inserted rows meanwhile.
fn fill_empty_database(from: Connection, staging: &Path, target: &Path, url: &Url) -> Result<()> {
    let mut to = open_exclusively(target)?;
    if let Err(error) = require_no_rows(&mut to, url) {
        remove_database(staging);
        return Err(error);
    }
    if let (Connection::Sqlite(from), Connection::Sqlite(to)) = (&from, &mut to) {
        // Copying all pages in one step is one transaction.
        Backup::new(from, to)?.step(-1)?;
    }
    drop(to);
    remove_database(staging);
    drop(from);
    Ok(())
}

/// Renames the staging file to the target, unless the target exists by now. The file stays locked until then, so that
/// no other process continues to fill it.
fn rename_to_target(connection: Connection, staging: &Path, target: &Path) -> std::io::Result<()> {
    // Windows cannot rename an open file.
    let open_connection = (!cfg!(windows)).then_some(connection);
    // The log is empty, and SQLite would not find it under the new name.
    let _ = fs::remove_file(with_ending(staging, "-wal"));
    let outcome = rename_to_new(staging, target);
    if outcome.as_ref().is_err_and(|error| error.kind() == ErrorKind::AlreadyExists) {
        remove_database(staging);
    }
    drop(open_connection);
    outcome
}

#[cfg(any(target_os = "linux", target_os = "macos"))]
fn rename_to_new(from: &Path, to: &Path) -> std::io::Result<()> {
    use rustix::{
        fs::{CWD, RenameFlags, renameat_with},
        io::Errno,
    };
    match renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        // The file system does not support this flag.
        Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => link_to_new(from, to),
        outcome => Ok(outcome?),
    }
}

#[cfg(not(any(target_os = "linux", target_os = "macos")))]
fn rename_to_new(from: &Path, to: &Path) -> std::io::Result<()> {
    link_to_new(from, to)
}

/// Renames in two steps where the system has no rename that fails if the target exists.
fn link_to_new(from: &Path, to: &Path) -> std::io::Result<()> {
    fs::hard_link(from, to)?;
    fs::remove_file(from)
}

fn with_ending(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ending);
    name.into()
}

fn remove_database(path: &Path) {
    for ending in ["-wal", "-shm", ""] {
        let _ = fs::remove_file(with_ending(path, ending));
    }
}

/// Fails if any table contains rows.
fn require_no_rows(connection: &mut Connection, url: &Url) -> Result<()> {
    for table in layout::tables(migrate::applied_version(connection, url)?) {
        require_empty_table(connection, &table.name, url)?;
    }
    Ok(())
}

fn require_empty_table(connection: &mut Connection, table: &str, url: &Url) -> Result<()> {
    let has_rows = connection.query::<(bool,)>(&format!("select exists (select 1 from {table})"), &[])?;
    if has_rows == [(true,)] { Err(target_not_empty(url)) } else { Ok(()) }
}

fn target_not_empty(url: &Url) -> Error {
    DomainError::conflict(format!("the database at {url} is not empty"))
        .hint("choose an empty or new database; nothing was changed")
        .into()
}

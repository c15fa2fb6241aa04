//! Database connections, which run SQL on either engine.

mod pending;
mod postgres;

use std::{borrow::Cow, path::Path, time::Duration};

use rusqlite::config::DbConfig;

use self::{
    pending::PendingKind,
    postgres::{Postgres, dyn_params, to_postgres_sql, typed_params},
};
use crate::{
    error::{Error, Result},
    sql::{FromRow, Param, Row},
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Engine {
    Sqlite,
    Postgres,
}

impl Engine {
    pub fn name(self) -> &'static str {
        match self {
            Self::Sqlite => "SQLite",
            Self::Postgres => "PostgreSQL",
        }
    }
}

const BEGIN: &str = "begin";
const BEGIN_READ: &str = "begin isolation level repeatable read read only";
/// Lets PostgreSQL plan reads for their parameters: a filter by a rare value needs another plan than one by a frequent
/// value.
const CUSTOM_PLANS: &str = "set local plan_cache_mode = auto";
pub(crate) const COMMIT: &str = "commit";
/// Timeout for connecting to PostgreSQL and for each answer, for callers that must not block for long.
pub(crate) const SHORT_TIMEOUT_SECONDS: u32 = 1;
/// Number of prepared statements in the cache of a connection. All frequent statements fit.
const STATEMENT_CACHE_SIZE: usize = 512;
/// Size limit of the page cache of a SQLite connection, in kilobytes.
const CACHE_MAX_KB: u32 = 32 << 10;
/// Pages in SQLite's write-ahead log before a writer checkpoints it. A checkpoint writes each changed page once, so a
/// high limit saves writes of pages that change often.
const WAL_PAGES_MAX: u32 = 4_000;
/// The limit on pages in the write-ahead log during a bulk write. It is higher because each checkpoint waits for the
/// disk.
const LONG_WAL_PAGES_MAX: u32 = 40_000;
/// Bytes of write-ahead log that may remain after the last connection closes. The log is limited because the next
/// process that opens the file reads the whole log.
const REMAINING_WAL_BYTES_MAX: u64 = 1 << 20;
/// Marks a SQLite file as a Trackway database ("TRWY" in its header).
pub const APPLICATION_ID: i64 = 0x5452_5759;

#[derive(Debug)]
pub enum Connection {
    Sqlite(rusqlite::Connection),
    Postgres(Box<Postgres>),
}

impl Connection {
    /// Opens a SQLite file. `create` allows creating it.
    pub fn sqlite(path: &Path, create: bool) -> Result<Self> {
        use rusqlite::OpenFlags;
        let mut flags = OpenFlags::SQLITE_OPEN_READ_WRITE;
        if create {
            flags |= OpenFlags::SQLITE_OPEN_CREATE;
        }
        match Self::sqlite_with(path, path.as_os_str(), flags) {
            // In WAL mode even readers create a file beside the database, which is impossible on a read-only disk.
            // Nobody can write there, so it is safe to open the database as `immutable`.
            Err(Error::ReadOnly(_)) if is_on_read_only_disk(path) && wal_bytes(path) == 0 => {
                let mut address = std::ffi::OsString::from("file:");
                address.push(percent_encoded(path));
                address.push("?immutable=1");
                Self::sqlite_with(path, &address, OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI)
            }
            outcome => outcome,
        }
    }

    fn sqlite_with(path: &Path, address: &std::ffi::OsStr, flags: rusqlite::OpenFlags) -> Result<Self> {
        let flags = flags | rusqlite::OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let with_path = |error: rusqlite::Error| match Error::from(error) {
            Error::NotTrackway(_) => Error::NotTrackway(path.display().to_string()),
            Error::ReadOnly(why) => Error::ReadOnly(format!("{}: {why}", path.display())),
            other => other,
        };
        let mut connection = rusqlite::Connection::open_with_flags(address, flags).map_err(with_path)?;
        connection.busy_handler(Some(wait_for_lock))?;
        connection.set_prepared_statement_cache_capacity(STATEMENT_CACHE_SIZE);
        // Without QPSG (the query planner stability guarantee), SQLite plans a statement again on every bind if the
        // table has a partial index.
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
        // WAL mode is a property of the file. Reading the mode first avoids a write on every start.
        let mode: String = connection.query_row("pragma journal_mode", [], |row| row.get(0)).map_err(with_path)?;
        // A connection that cannot write does not need WAL mode.
        if mode != "wal" && flags.contains(rusqlite::OpenFlags::SQLITE_OPEN_READ_WRITE) {
            let application_id: i64 =
                connection.query_row("pragma application_id", [], |row| row.get(0)).map_err(with_path)?;
            let tables: i64 =
                connection.query_row("select count(*) from sqlite_master", [], |row| row.get(0)).map_err(with_path)?;
            if application_id != APPLICATION_ID && tables > 0 {
                return Err(Error::NotTrackway(path.display().to_string()));
            }
            connection.execute_batch("pragma journal_mode = wal").map_err(with_path)?;
        }
        connection
            .execute_batch(&format!(
                "pragma synchronous = normal; pragma foreign_keys = on; pragma temp_store = memory;
                 pragma cache_size = -{CACHE_MAX_KB}; pragma wal_autocheckpoint = {WAL_PAGES_MAX}"
            ))
            .map_err(with_path)?;
        Ok(Self::Sqlite(connection))
    }

    pub fn postgres(url: &str) -> Result<Self> {
        Ok(Self::Postgres(Box::new(Postgres::connect(url)?)))
    }

    /// Connects to PostgreSQL, and creates the database if the server does not have it.
    pub fn postgres_or_create(url: &str) -> Result<Self> {
        let missing = match Self::postgres(url) {
            Err(missing @ Error::Missing(_)) => missing,
            opened => return opened,
        };
        let (base, options) = url.split_once('?').map_or((url, None), |(base, options)| (base, Some(options)));
        let named =
            base.split_once("://").and_then(|(_, rest)| rest.split_once('/')).filter(|(_, name)| !name.is_empty());
        let Some((_, name)) = named else { return Err(missing) };
        let server = &base[..base.len() - name.len() - 1];
        let options = options.map_or_else(String::new, |options| format!("?{options}"));
        let name = percent_encoding::percent_decode_str(name).decode_utf8_lossy().replace('"', "\"\"");
        let created = Self::postgres(&format!("{server}/postgres{options}"))
            .and_then(|mut server| server.batch(&format!("create database \"{name}\"")));
        // Another process may have created the database meanwhile. If it is still missing, report why it could not be
        // created.
        Self::postgres(url).map_err(|error| match (created, error) {
            (Err(why), Error::Missing(_)) => why,
            (_, error) => error,
        })
    }

    pub fn engine(&self) -> Engine {
        match self {
            Self::Sqlite(_) => Engine::Sqlite,
            Self::Postgres(_) => Engine::Postgres,
        }
    }

    /// Closes the connection at the end of a process. Leaves a SQLite connection open if closing it would not
    /// checkpoint: the operating system frees the memory faster.
    pub fn close(self) {
        if let Self::Sqlite(connection) = &self
            && connection.db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE).unwrap_or(false)
        {
            std::mem::forget(self);
        }
    }

    /// Limits the time to wait for other writers, for callers that must not block for long.
    pub fn set_lock_timeout(&mut self, wait_ms: u32) -> Result<()> {
        match self {
            Self::Sqlite(connection) => {
                Ok(connection.busy_handler(Some(move |attempts| wait_for_lock_at_most(attempts, wait_ms)))?)
            }
            Self::Postgres(postgres) => {
                postgres.answer_timeout = Some(Duration::from_secs(SHORT_TIMEOUT_SECONDS.into()));
                self.batch(&format!("set lock_timeout = {wait_ms}"))
            }
        }
    }

    /// Raises or resets the length at which SQLite checkpoints its write-ahead log.
    pub(crate) fn set_long_wal(&mut self, long: bool) -> Result<()> {
        match self {
            Self::Sqlite(connection) => {
                let pages = if long { LONG_WAL_PAGES_MAX } else { WAL_PAGES_MAX };
                Ok(connection.pragma_update(None, "wal_autocheckpoint", pages)?)
            }
            Self::Postgres(_) => Ok(()),
        }
    }

    pub fn is_open(&self) -> bool {
        match self {
            Self::Sqlite(_) => true,
            Self::Postgres(postgres) => postgres.is_open(),
        }
    }

    /// Runs a query and returns all rows. On both engines, placeholders are written `?1`, `?2`, ...
    pub fn query<T: FromRow>(&mut self, sql: &str, params: &[Param<'_>]) -> Result<Vec<T>> {
        let mut all = Vec::new();
        self.each_row(sql, params, &mut |row| {
            all.push(T::from_row(row)?);
            Ok(())
        })?;
        Ok(all)
    }

    /// Calls `read` for every row. This code is not in `query`, because the compiler instantiates `query` for every row
    /// type.
    fn each_row(
        &mut self,
        sql: &str,
        params: &[Param<'_>],
        read: &mut dyn FnMut(&Row<'_>) -> Result<()>,
    ) -> Result<()> {
        match self {
            Self::Sqlite(connection) => {
                let mut statement = connection.prepare_cached(sql)?;
                let mut rows = statement.query(rusqlite::params_from_iter(params))?;
                while let Some(row) = rows.next()? {
                    read(&Row::Sqlite(row))?;
                }
                Ok(())
            }
            Self::Postgres(postgres) => {
                let mut read_all =
                    |rows: &[tokio_postgres::Row]| rows.iter().try_for_each(|row| read(&Row::Postgres(row)));
                if let Some(rows) = postgres.cached(sql, params) {
                    return read_all(rows);
                }
                if let Some(has_deferred) = &mut postgres.deferring {
                    *has_deferred = true;
                    postgres.prefetch(sql, params);
                    return Err(Error::Deferred);
                }
                let rows = postgres.query_with_prefetched(Some((sql, params)))?;
                match postgres.cached(sql, params) {
                    Some(rows) => read_all(rows),
                    None => read_all(&rows),
                }
            }
        }
    }

    /// Prefetches a query and caches its result: on PostgreSQL it is sent together with the next query. Only for read
    /// transactions: a cached result does not contain later writes.
    pub(crate) fn prefetch(&mut self, sql: &str, params: &[Param<'_>]) {
        if let Self::Postgres(postgres) = self {
            postgres.prefetch(sql, params);
        }
    }

    /// Switches deferring on or off. While it is on, a query whose result is not cached is queued and fails with
    /// [`Error::Deferred`]. SQLite never defers, because its queries take no round trip.
    pub(crate) fn set_deferring(&mut self, is_on: bool) {
        if let Self::Postgres(postgres) = self {
            postgres.deferring = is_on.then_some(false);
        }
    }

    /// Returns whether a query was deferred since deferring was switched on.
    pub(crate) fn has_deferred(&self) -> bool {
        matches!(self, Self::Postgres(postgres) if postgres.deferring == Some(true))
    }

    /// Sends the prefetched and deferred queries in one round trip.
    pub(crate) fn run_prefetched(&mut self) -> Result<()> {
        match self {
            Self::Sqlite(_) => Ok(()),
            Self::Postgres(postgres) => postgres.query_with_prefetched(None).map(drop),
        }
    }

    /// Runs a write and returns the number of changed rows.
    pub fn execute(&mut self, sql: &str, params: &[Param<'_>]) -> Result<u64> {
        match self {
            Self::Sqlite(connection) => {
                let changed = connection.prepare_cached(sql)?.execute(rusqlite::params_from_iter(params))?;
                Ok(changed as u64)
            }
            Self::Postgres(postgres) => {
                let statement = postgres.statement(sql)?;
                postgres.after_pending(async |client| match statement {
                    Some(statement) => client.execute(&statement, &dyn_params(params)).await,
                    None => client.execute_typed(&to_postgres_sql(sql), &typed_params(params)).await,
                })
            }
        }
    }

    /// Runs a write without waiting for its result. A PostgreSQL connection sends the write together with other
    /// statements. An error appears at the next query or at the commit, which then fails.
    pub fn post(&mut self, sql: &str, params: &[Param<'_>]) -> Result<()> {
        match self {
            Self::Sqlite(_) => self.execute(sql, params).map(drop),
            Self::Postgres(postgres) => {
                postgres.enqueue(Cow::Owned(sql.to_owned()), params, PendingKind::Ordered);
                Ok(())
            }
        }
    }

    /// Like [`Self::post`], for a plain insert or update of rows that the neighbouring writes neither change nor read.
    /// A PostgreSQL connection merges neighbouring writes of this kind into one statement.
    pub(crate) fn post_independent(&mut self, sql: Cow<'static, str>, params: &[Param<'_>]) -> Result<()> {
        match self {
            Self::Sqlite(_) => self.execute(&sql, params).map(drop),
            Self::Postgres(postgres) => {
                postgres.enqueue(sql, params, PendingKind::Independent);
                Ok(())
            }
        }
    }

    /// Like [`Self::post_independent`], but the transaction fails unless the write changes at least `rows` rows.
    pub(crate) fn post_requiring_change(
        &mut self,
        sql: Cow<'static, str>,
        params: &[Param<'_>],
        rows: usize,
    ) -> Result<()> {
        match self {
            Self::Sqlite(_) => match usize::try_from(self.execute(&sql, params)?) {
                Ok(changed) if changed < rows => {
                    Err(Error::PreconditionFailed("the write changed too few rows".into()))
                }
                _ => Ok(()),
            },
            Self::Postgres(postgres) => {
                postgres.enqueue(sql, params, PendingKind::RequiringChange(rows));
                Ok(())
            }
        }
    }

    /// Like [`Self::post`], but for a query, for example one that locks rows. The transaction fails if the query finds
    /// no row.
    pub(crate) fn post_requiring_row(&mut self, sql: &'static str, params: &[Param<'_>]) -> Result<()> {
        match self {
            Self::Sqlite(_) => match self.query::<(i64,)>(sql, params)?.as_slice() {
                [] => Err(Error::PreconditionFailed("the query found no row".into())),
                _ => Ok(()),
            },
            Self::Postgres(postgres) => {
                postgres.enqueue(Cow::Borrowed(sql), params, PendingKind::RequiringRow);
                Ok(())
            }
        }
    }

    /// The rowid of the last insert; only on SQLite.
    pub fn last_rowid(&self) -> Option<i64> {
        match self {
            Self::Sqlite(connection) => Some(connection.last_insert_rowid()),
            Self::Postgres(_) => None,
        }
    }

    /// Runs several statements without parameters.
    pub fn batch(&mut self, sql: &str) -> Result<()> {
        match self {
            Self::Sqlite(connection) => Ok(connection.execute_batch(sql)?),
            Self::Postgres(postgres) => postgres.after_pending(async |client| client.batch_execute(sql).await),
        }
    }

    /// Begins a write transaction. SQLite acquires its write lock here. PostgreSQL receives the `begin` together with
    /// the first statement.
    pub fn begin_write(&mut self) -> Result<()> {
        match self {
            Self::Sqlite(connection) => {
                skip_checkpoint_of_short_wal(connection)?;
                self.post("begin immediate", &[])
            }
            Self::Postgres(_) => self.post(BEGIN, &[]),
        }
    }

    /// Returns whether a SQLite transaction is open. On some errors SQLite ends a transaction by itself.
    pub(crate) fn is_in_transaction(&self) -> bool {
        matches!(self, Self::Sqlite(connection) if !connection.is_autocommit())
    }

    /// Drops the `begin` of a write transaction if it is the only pending statement. Returns whether it did.
    pub(crate) fn cancel_begin(&mut self) -> bool {
        match self {
            Self::Postgres(postgres) if matches!(postgres.pending.as_slice(), [begin] if begin.sql == BEGIN) => {
                postgres.pending.clear();
                true
            }
            _ => false,
        }
    }

    /// Begins a read transaction, whose queries all see the same snapshot.
    pub fn begin_read(&mut self) -> Result<()> {
        match self {
            Self::Sqlite(_) => self.post("begin", &[]),
            Self::Postgres(_) => {
                self.post(BEGIN_READ, &[])?;
                self.post(CUSTOM_PLANS, &[])
            }
        }
    }

    pub fn commit(&mut self) -> Result<()> {
        self.post(COMMIT, &[])?;
        self.flush()
    }

    /// Rolls back the transaction, whatever its state.
    pub fn rollback(&mut self) {
        if let Self::Postgres(postgres) = self {
            postgres.pending.clear();
        }
        if !self.is_open() {
            return;
        }
        // An error means that there is no transaction any more.
        let _ = self.batch("rollback");
    }

    /// Ends a read transaction. Does not wait for the server's answer, which carries no information.
    pub(crate) fn end_read(&mut self) {
        match self {
            Self::Sqlite(_) => self.rollback(),
            Self::Postgres(postgres) => postgres.end_read(),
        }
    }

    /// Sends the pending statements.
    pub fn flush(&mut self) -> Result<()> {
        match self {
            Self::Sqlite(_) => Ok(()),
            Self::Postgres(postgres) if postgres.pending.is_empty() => Ok(()),
            Self::Postgres(postgres) => postgres.after_pending(async |_| Ok(())),
        }
    }
}

/// Disables the checkpoint of a short log when the last connection closes, because a checkpoint takes longer than a
/// short-lived process runs. A long log is still checkpointed. Otherwise the log would grow without limit if only
/// short-lived processes write.
fn skip_checkpoint_of_short_wal(connection: &rusqlite::Connection) -> Result<()> {
    let log = connection.path().map_or(0, |file| wal_bytes(Path::new(file)));
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, log < REMAINING_WAL_BYTES_MAX)?;
    Ok(())
}

/// Length of the write-ahead log of a SQLite file, in bytes.
pub(crate) fn wal_bytes(file: &Path) -> u64 {
    let mut log = file.as_os_str().to_owned();
    log.push("-wal");
    std::fs::metadata(log).map_or(0, |log| log.len())
}

#[cfg(unix)]
fn is_on_read_only_disk(path: &Path) -> bool {
    rustix::fs::statvfs(path).is_ok_and(|disk| disk.f_flag.contains(rustix::fs::StatVfsMountFlags::RDONLY))
}

#[cfg(not(unix))]
fn is_on_read_only_disk(_: &Path) -> bool {
    false
}

/// Encodes a path for use in a `file:` URI.
fn percent_encoded(path: &Path) -> String {
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"/-._~".contains(byte);
    let encoded = |byte: u8| if is_plain(&byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") };
    path.as_os_str().as_encoded_bytes().iter().copied().map(encoded).collect()
}

/// Delay between two attempts to get a lock, for callers with a time limit.
const SHORT_RETRY_DELAY_MS: u32 = 2;

/// Busy handler for callers with a time limit. SQLite's own handler waits longer after each attempt. Among many
/// writers, some would then sleep while the lock is free, and give up after a few attempts.
fn wait_for_lock_at_most(attempts: i32, wait_max_ms: u32) -> bool {
    let waited_ms = u32::try_from(attempts).unwrap_or(u32::MAX).saturating_mul(SHORT_RETRY_DELAY_MS);
    let wait = waited_ms < wait_max_ms;
    if wait {
        std::thread::sleep(Duration::from_millis(SHORT_RETRY_DELAY_MS.into()));
    }
    wait
}

/// Delays between attempts to get a lock, in milliseconds, each with the attempt from which it applies. The first
/// delays are short. Later delays are longer, so that many waiting writers do not use up the CPU.
const RETRY_DELAYS_MS: [(i32, u64); 3] = [(100, 7), (20, 3), (0, 1)];
/// Number of attempts that take 5 seconds in total.
const ATTEMPTS_MAX: i32 = 780;

/// Busy handler for callers without a time limit. Gives up after 5 seconds. SQLite's own handler tries only fifty times
/// in that time, so that among many writers some would never get the lock.
fn wait_for_lock(attempts: i32) -> bool {
    let step = RETRY_DELAYS_MS.iter().find(|(from, _)| attempts >= *from).map_or(1, |(_, step)| *step);
    if attempts < ATTEMPTS_MAX {
        std::thread::sleep(Duration::from_millis(step));
    }
    attempts < ATTEMPTS_MAX
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[test]
    fn each_connection_has_its_own_wait_limit() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("locked.db");
        let mut holder = Connection::sqlite(&path, true).unwrap();
        let [mut limited, mut immediate] = [100, 0].map(|wait_ms| {
            let mut connection = Connection::sqlite(&path, false).unwrap();
            connection.set_lock_timeout(wait_ms).unwrap();
            connection
        });
        holder.begin_write().unwrap();

        let begun = Instant::now();
        assert!(matches!(limited.begin_write(), Err(Error::Busy(_))));
        assert!(begun.elapsed() >= Duration::from_millis(100));
        assert!(matches!(immediate.begin_write(), Err(Error::Busy(_))));
    }
}

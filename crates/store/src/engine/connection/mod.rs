//! The one place where a query meets an engine.

mod pending;
mod postgres;

use std::{borrow::Cow, path::Path, time::Duration};

use rusqlite::config::DbConfig;

use self::{
    pending::PendingKind,
    postgres::{Postgres, dynamic, for_postgres, typed},
};
use crate::{
    error::{Error, Result},
    sql::{FromRow, Param, Row},
};

/// Which engine is behind a connection.
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
/// Lists are asked for in as many ways as there are people: what is good for one name is not for the next.
const PLAN_AS_ASKED: &str = "set local plan_cache_mode = auto";
pub(crate) const COMMIT: &str = "commit";
/// How long a visitor who must not be in the way waits for PostgreSQL: to be let in, and for each answer.
pub(crate) const VISITOR_SECONDS: u32 = 1;
/// Prepared statements kept per connection: all that are used every day fit.
const STATEMENTS_KEPT: usize = 512;
/// Kilobytes of a SQLite file that a connection keeps in memory, when it comes to look at so much.
const CACHE_MAX_KB: u32 = 32 << 10;
/// Pages in SQLite's log before a writer brings them into the file: what is written often is brought in once.
const LOG_PAGES_MAX: u32 = 4_000;
/// The same while very much is written by one who does nothing else: bringing pages in waits for the disk each time.
const LONG_LOG_PAGES_MAX: u32 = 40_000;
/// Bytes of the log that a writer who leaves may leave behind. Whoever opens the file next and alone reads all of it.
const LOG_LEFT_MAX: u64 = 1 << 20;
/// Says in the file's header that it is ours ("TRWY").
pub const APPLICATION_ID: i64 = 0x5452_5759;

/// An open connection to either engine.
#[derive(Debug)]
pub enum Connection {
    Sqlite(rusqlite::Connection),
    Postgres(Box<Postgres>),
}

impl Connection {
    /// Opens a SQLite file. `create` makes it when it is missing.
    pub fn sqlite(path: &Path, create: bool) -> Result<Self> {
        use rusqlite::OpenFlags;
        let mut flags = OpenFlags::SQLITE_OPEN_READ_WRITE;
        if create {
            flags |= OpenFlags::SQLITE_OPEN_CREATE;
        }
        match Self::sqlite_with(path, path.as_os_str(), flags) {
            // SQLite makes a file beside it for whoever reads, but where nobody can write nobody has to be told.
            Err(Error::ReadOnly(_)) if is_on_a_read_only_disk(path) && log_bytes(path) == 0 => {
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
        let at = |error: rusqlite::Error| match Error::from(error) {
            Error::NotOurs(_) => Error::NotOurs(path.display().to_string()),
            Error::ReadOnly(why) => Error::ReadOnly(format!("{}: {why}", path.display())),
            other => other,
        };
        let mut connection = rusqlite::Connection::open_with_flags(address, flags).map_err(at)?;
        connection.busy_handler(Some(wait_patiently))?;
        connection.set_prepared_statement_cache_capacity(STATEMENTS_KEPT);
        // Else a partial index on a table makes SQLite plan a statement anew each time a value is bound to it.
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
        // WAL is a property of the file: asking first keeps a start-up from writing.
        let mode: String = connection.query_row("pragma journal_mode", [], |row| row.get(0)).map_err(at)?;
        // What cannot change has no log to write ahead.
        if mode != "wal" && flags.contains(rusqlite::OpenFlags::SQLITE_OPEN_READ_WRITE) {
            let ours: i64 = connection.query_row("pragma application_id", [], |row| row.get(0)).map_err(at)?;
            let tables: i64 =
                connection.query_row("select count(*) from sqlite_master", [], |row| row.get(0)).map_err(at)?;
            if ours != APPLICATION_ID && tables > 0 {
                return Err(Error::NotOurs(path.display().to_string()));
            }
            connection.execute_batch("pragma journal_mode = wal").map_err(at)?;
        }
        connection
            .execute_batch(&format!(
                "pragma synchronous = normal; pragma foreign_keys = on; pragma temp_store = memory;
                 pragma cache_size = -{CACHE_MAX_KB}; pragma wal_autocheckpoint = {LOG_PAGES_MAX}"
            ))
            .map_err(at)?;
        Ok(Self::Sqlite(connection))
    }

    /// Connects to PostgreSQL.
    pub fn postgres(url: &str) -> Result<Self> {
        Ok(Self::Postgres(Box::new(Postgres::connect(url)?)))
    }

    /// The same, and makes the database first where its server has none of that name.
    pub fn postgres_made(url: &str) -> Result<Self> {
        let missing = match Self::postgres(url) {
            Err(missing @ Error::Missing(_)) => missing,
            opened => return opened,
        };
        let (place, options) = url.split_once('?').map_or((url, None), |(place, options)| (place, Some(options)));
        let named =
            place.split_once("://").and_then(|(_, rest)| rest.split_once('/')).filter(|(_, name)| !name.is_empty());
        let Some((_, name)) = named else { return Err(missing) };
        let server = &place[..place.len() - name.len() - 1];
        let options = options.map_or_else(String::new, |options| format!("?{options}"));
        let name = percent_encoding::percent_decode_str(name).decode_utf8_lossy().replace('"', "\"\"");
        let made = Self::postgres(&format!("{server}/postgres{options}"))
            .and_then(|mut server| server.batch(&format!("create database \"{name}\"")));
        // Somebody else may have made it meanwhile. If nobody did, that is what there is to say.
        Self::postgres(url).map_err(|error| match (made, error) {
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

    /// Closes at the end of a process. What only frees memory is left out; the system does that faster.
    pub fn leave(self) {
        if let Self::Sqlite(connection) = &self
            && connection.db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE).unwrap_or(false)
        {
            std::mem::forget(self);
        }
    }

    /// Waits no longer than this for other writers: for a visitor who must not be in the way.
    pub fn wait_at_most(&mut self, wait_ms: u32) -> Result<()> {
        match self {
            Self::Sqlite(connection) => Ok(connection.busy_handler(Some(move |looks| wait_a_little(looks, wait_ms)))?),
            Self::Postgres(postgres) => {
                postgres.answer_max = Some(Duration::from_secs(VISITOR_SECONDS.into()));
                self.batch(&format!("set lock_timeout = {wait_ms}"))
            }
        }
    }

    /// Lets the log of a SQLite file grow long, or no longer.
    pub(crate) fn keep_long_log(&mut self, long: bool) -> Result<()> {
        match self {
            Self::Sqlite(connection) => {
                let pages = if long { LONG_LOG_PAGES_MAX } else { LOG_PAGES_MAX };
                Ok(connection.pragma_update(None, "wal_autocheckpoint", pages)?)
            }
            Self::Postgres(_) => Ok(()),
        }
    }

    /// Whether the connection can still be used.
    pub fn is_open(&self) -> bool {
        match self {
            Self::Sqlite(_) => true,
            Self::Postgres(postgres) => postgres.is_open(),
        }
    }

    /// Runs a query and reads every row. Placeholders are `?1`, `?2`, ... in the text of both engines.
    pub fn query<T: FromRow>(&mut self, sql: &str, params: &[Param<'_>]) -> Result<Vec<T>> {
        let mut all = Vec::new();
        self.each_row(sql, params, &mut |row| {
            all.push(T::from_row(row)?);
            Ok(())
        })?;
        Ok(all)
    }

    /// Hands over every row of a query. Apart from `query`, because `query` is compiled for every type of row.
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
                if let Some(rows) = postgres.known(sql, params) {
                    return read_all(rows);
                }
                if let Some(has_deferred) = &mut postgres.deferring {
                    *has_deferred = true;
                    postgres.expect(sql, params);
                    return Err(Error::Deferred);
                }
                let rows = postgres.query_beside_expected(Some((sql, params)))?;
                match postgres.known(sql, params) {
                    Some(rows) => read_all(rows),
                    None => read_all(&rows),
                }
            }
        }
    }

    /// Says that a question will be asked. Where that is a round trip it travels with the next one, and the answer is kept.
    /// For those who read at one moment: what is written meanwhile is not in it.
    pub(crate) fn expect(&mut self, sql: &str, params: &[Param<'_>]) {
        if let Self::Postgres(postgres) = self {
            postgres.expect(sql, params);
        }
    }

    /// Switches deferring on or off. While it is on, a query without a known answer fails as [`Error::Deferred`] and is
    /// queued. SQLite, where a query is no round trip, defers nothing.
    pub(crate) fn set_deferring(&mut self, is_on: bool) {
        if let Self::Postgres(postgres) = self {
            postgres.deferring = is_on.then_some(false);
        }
    }

    /// Whether a query was deferred since deferring was switched on.
    pub(crate) fn has_deferred(&self) -> bool {
        matches!(self, Self::Postgres(postgres) if postgres.deferring == Some(true))
    }

    /// Asks what is expected, in one round trip.
    pub(crate) fn ask_expected(&mut self) -> Result<()> {
        match self {
            Self::Sqlite(_) => Ok(()),
            Self::Postgres(postgres) => postgres.query_beside_expected(None).map(drop),
        }
    }

    /// Runs a write and says how many rows it changed.
    pub fn execute(&mut self, sql: &str, params: &[Param<'_>]) -> Result<u64> {
        match self {
            Self::Sqlite(connection) => {
                let changed = connection.prepare_cached(sql)?.execute(rusqlite::params_from_iter(params))?;
                Ok(changed as u64)
            }
            Self::Postgres(postgres) => {
                let statement = postgres.statement(sql)?;
                postgres.after_pending(async |client| match statement {
                    Some(statement) => client.execute(&statement, &dynamic(params)).await,
                    None => client.execute_typed(&for_postgres(sql), &typed(params)).await,
                })
            }
        }
    }

    /// Runs a write whose answer nobody needs. On PostgreSQL it travels with its neighbours; its failure, if any,
    /// shows at the next question or at the commit, and fails the transaction there.
    pub fn post(&mut self, sql: &str, params: &[Param<'_>]) -> Result<()> {
        match self {
            Self::Sqlite(_) => self.execute(sql, params).map(drop),
            Self::Postgres(postgres) => {
                postgres.keep(Cow::Owned(sql.to_owned()), params, PendingKind::Alone);
                Ok(())
            }
        }
    }

    /// The same for a plain insert or update of rows that its neighbours do not touch or look at: on PostgreSQL they
    /// become one statement.
    pub(crate) fn post_beside(&mut self, sql: Cow<'static, str>, params: &[Param<'_>]) -> Result<()> {
        match self {
            Self::Sqlite(_) => self.execute(&sql, params).map(drop),
            Self::Postgres(postgres) => {
                postgres.keep(sql, params, PendingKind::Beside);
                Ok(())
            }
        }
    }

    /// The same, but the transaction fails unless this write changes at least `rows` rows.
    pub(crate) fn post_changing(&mut self, sql: Cow<'static, str>, params: &[Param<'_>], rows: usize) -> Result<()> {
        match self {
            Self::Sqlite(_) => match usize::try_from(self.execute(&sql, params)?) {
                Ok(changed) if changed < rows => Err(Error::PreconditionFailed("nothing to change".into())),
                _ => Ok(()),
            },
            Self::Postgres(postgres) => {
                postgres.keep(sql, params, PendingKind::BesideAndChanging(rows));
                Ok(())
            }
        }
    }

    /// The same for a look that must find a row, and may hold it.
    pub(crate) fn post_finding(&mut self, sql: &'static str, params: &[Param<'_>]) -> Result<()> {
        match self {
            Self::Sqlite(_) => match self.query::<(i64,)>(sql, params)?.as_slice() {
                [] => Err(Error::PreconditionFailed("nothing was found".into())),
                _ => Ok(()),
            },
            Self::Postgres(postgres) => {
                postgres.keep(Cow::Borrowed(sql), params, PendingKind::BesideAndFinding);
                Ok(())
            }
        }
    }

    /// The number of the row that SQLite inserted last.
    pub fn last_number(&self) -> Option<i64> {
        match self {
            Self::Sqlite(connection) => Some(connection.last_insert_rowid()),
            Self::Postgres(_) => None,
        }
    }

    /// Runs several statements without parameters, as migrations do.
    pub fn batch(&mut self, sql: &str) -> Result<()> {
        match self {
            Self::Sqlite(connection) => Ok(connection.execute_batch(sql)?),
            Self::Postgres(postgres) => postgres.after_pending(async |client| client.batch_execute(sql).await),
        }
    }

    /// Opens a write transaction. SQLite takes its one write lock here; PostgreSQL's `begin` travels with the
    /// first question.
    pub fn begin_write(&mut self) -> Result<()> {
        match self {
            Self::Sqlite(connection) => {
                leave_a_short_log(connection)?;
                self.post("begin immediate", &[])
            }
            Self::Postgres(_) => self.post(BEGIN, &[]),
        }
    }

    /// Whether SQLite is in a transaction. When it cannot go on it leaves one by itself.
    pub(crate) fn is_in_transaction(&self) -> bool {
        matches!(self, Self::Sqlite(connection) if !connection.is_autocommit())
    }

    /// Takes back the `begin` of a write transaction that has not been sent yet, if nothing came after it.
    pub(crate) fn take_back_begin(&mut self) -> bool {
        match self {
            Self::Postgres(postgres) if matches!(postgres.pending.as_slice(), [begin] if begin.sql == BEGIN) => {
                postgres.pending.clear();
                true
            }
            _ => false,
        }
    }

    /// Opens a read transaction, so that an answer made of several queries is of one moment.
    pub fn begin_read(&mut self) -> Result<()> {
        match self {
            Self::Sqlite(_) => self.post("begin", &[]),
            Self::Postgres(_) => {
                self.post(BEGIN_READ, &[])?;
                self.post(PLAN_AS_ASKED, &[])
            }
        }
    }

    pub fn commit(&mut self) -> Result<()> {
        self.post(COMMIT, &[])?;
        self.flush()
    }

    /// Leaves the transaction, whatever state it is in.
    pub fn rollback(&mut self) {
        if let Self::Postgres(postgres) = self {
            postgres.pending.clear();
        }
        if !self.is_open() {
            return;
        }
        // A failure here means that the transaction is gone already, which is what was wanted.
        let _ = self.batch("rollback");
    }

    /// Leaves a read transaction. Nobody waits for the answer, which says nothing.
    pub(crate) fn end_read(&mut self) {
        match self {
            Self::Sqlite(_) => self.rollback(),
            Self::Postgres(postgres) => postgres.end_read(),
        }
    }

    /// Sends what is pending.
    pub fn flush(&mut self) -> Result<()> {
        match self {
            Self::Sqlite(_) => Ok(()),
            Self::Postgres(postgres) if postgres.pending.is_empty() => Ok(()),
            Self::Postgres(postgres) => postgres.after_pending(async |_| Ok(())),
        }
    }
}

/// The last connection to close would bring the whole log into the file, which takes longer than a short-lived writer
/// lives. One in many does it: the log of processes that come one by one is never begun anew otherwise.
fn leave_a_short_log(connection: &rusqlite::Connection) -> Result<()> {
    let log = connection.path().map_or(0, |file| log_bytes(Path::new(file)));
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, log < LOG_LEFT_MAX)?;
    Ok(())
}

/// Bytes in the log of a SQLite file.
pub(crate) fn log_bytes(file: &Path) -> u64 {
    let mut log = file.as_os_str().to_owned();
    log.push("-wal");
    std::fs::metadata(log).map_or(0, |log| log.len())
}

#[cfg(unix)]
fn is_on_a_read_only_disk(path: &Path) -> bool {
    rustix::fs::statvfs(path).is_ok_and(|disk| disk.f_flag.contains(rustix::fs::StatVfsMountFlags::RDONLY))
}

#[cfg(not(unix))]
fn is_on_a_read_only_disk(_: &Path) -> bool {
    false
}

/// A path as it stands in the address of a file.
fn percent_encoded(path: &Path) -> String {
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"/-._~".contains(byte);
    let shown = |byte: u8| if plain(&byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") };
    path.as_os_str().as_encoded_bytes().iter().copied().map(shown).collect()
}

/// Milliseconds between two looks at a lock.
const WAIT_STEP_MS: u32 = 2;

/// Looks again soon. SQLite's own waiting doubles its steps: of many who come at once, the late ones would sleep on while
/// nobody holds the lock, and give up after a few looks.
fn wait_a_little(looks: i32, wait_max_ms: u32) -> bool {
    let waited_ms = u32::try_from(looks).unwrap_or(u32::MAX).saturating_mul(WAIT_STEP_MS);
    let wait = waited_ms < wait_max_ms;
    if wait {
        std::thread::sleep(Duration::from_millis(WAIT_STEP_MS.into()));
    }
    wait
}

/// Milliseconds between two looks of somebody who has time, and from which look on: soon at first, then so that many who
/// wait do not keep the machine busy.
const PATIENT_STEPS_MS: [(i32, u64); 3] = [(100, 7), (20, 3), (0, 1)];
/// Looks that take 5 seconds so.
const PATIENT_LOOKS: i32 = 780;

/// The same for everyone else. SQLite's own waiting looks fifty times in five seconds, and among many who write without
/// a pause some never find the lock free.
fn wait_patiently(looks: i32) -> bool {
    let step = PATIENT_STEPS_MS.iter().find(|(from, _)| looks >= *from).map_or(1, |(_, step)| *step);
    if looks < PATIENT_LOOKS {
        std::thread::sleep(Duration::from_millis(step));
    }
    looks < PATIENT_LOOKS
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
        let [mut waiting, mut hurried] = [100, 0].map(|wait_ms| {
            let mut connection = Connection::sqlite(&path, false).unwrap();
            connection.wait_at_most(wait_ms).unwrap();
            connection
        });
        holder.begin_write().unwrap();

        let begun = Instant::now();
        assert!(matches!(waiting.begin_write(), Err(Error::Busy(_))));
        assert!(begun.elapsed() >= Duration::from_millis(100));
        assert!(matches!(hurried.begin_write(), Err(Error::Busy(_))));
    }
}

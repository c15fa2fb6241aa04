//! The opened database: a connection pool that hands out read and write transactions.

use std::{
    borrow::Cow,
    cell::Cell,
    collections::HashMap,
    ops::{Deref, DerefMut},
    path::Path,
    sync::{
        Mutex, PoisonError,
        mpsc::{self, Receiver, RecvTimeoutError},
    },
    thread,
    time::{Duration, Instant},
};

use trackway_domain::{Id, Time, kind};
use uuid::Uuid;

use crate::{
    connection::{COMMIT, Connection, Engine, SHORT_TIMEOUT_SECONDS, wal_bytes},
    engine::{
        clock::Clock,
        data_version::LatestDataVersion,
        queue_notify,
        shared_commit::{AcquiredLock, CommitGroup, WriteLock},
        tenant_guard::require_tenant,
    },
    error::{Error, Result},
    migrate, params,
    sql::{FromRow, Param},
    url::Url,
};

/// Time that a writer waits for other writers unless the caller sets a limit.
const DEFAULT_WAIT: Duration = Duration::from_secs(5);
/// Interval at which a bulk write checks the size of the write-ahead log.
const WAL_POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Growth of the write-ahead log after which a bulk write checkpoints it.
const WAL_CHECKPOINT_BYTES: u64 = 16 << 20;

pub type TenantId = Id<kind::Tenant>;

/// A database whose schema was checked, and migrated if necessary, when it was opened.
#[derive(Debug)]
pub struct Store {
    url: Url,
    idle: IdleConnections,
    /// Serialises the writers of a SQLite file, which takes one writer at a time.
    pub(crate) write_lock: WriteLock,
    /// Time to wait for other writers, if it differs from the default.
    wait_ms: Option<u32>,
    /// Identity of the SQLite file that was opened, to detect that another file has replaced it.
    file: Option<FileIdentity>,
    latest_data_version: LatestDataVersion,
    clock: Clock,
}

/// Connections that are not in use. The pool lends the most recently used one first.
#[derive(Debug)]
pub(crate) struct IdleConnections(Mutex<Vec<Connection>>);

impl IdleConnections {
    fn pop(&self) -> Option<Connection> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).pop()
    }

    pub fn push(&self, connection: Connection) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(connection);
    }
}

/// Device and inode number. They differ if another file was put at the same path.
pub(crate) type FileIdentity = (u64, u64);

impl Store {
    /// Opens an existing database and migrates it to the current schema if it is older.
    pub fn open(url: Url) -> Result<Self> {
        Self::open_with(url, None)
    }

    /// Opens an existing database for a caller that must not block for long: waits at most `wait_ms` for other writers,
    /// and gives a PostgreSQL server one second to accept the connection and one second for each answer.
    pub fn open_with_timeout(url: Url, wait_ms: u32) -> Result<Self> {
        Self::open_with(url, Some(wait_ms))
    }

    fn open_with(url: Url, wait_ms: Option<u32>) -> Result<Self> {
        if let Url::Sqlite(path) = &url
            && path.metadata().map_or(true, |file| file.is_file() && file.len() == 0)
        {
            return Err(Error::Missing(url.to_string()));
        }
        let mut connection = connect(&url, false, wait_ms)?;
        match migrate::applied_version(&mut connection, &url)? {
            0 => return Err(Error::Missing(url.to_string())),
            version if version < migrate::known_version() => migrate::migrate_to_latest(&mut connection, &url)?,
            _ => {}
        }
        if let Some(wait_ms) = wait_ms {
            connection.set_lock_timeout(wait_ms)?;
        }
        Ok(Self::from_connection(url, connection, wait_ms))
    }

    /// Opens a database and creates it if it does not exist.
    pub fn create(url: Url) -> Result<Self> {
        if let Url::Sqlite(path) = &url
            && let Some(directory) = path.parent().filter(|directory| !directory.as_os_str().is_empty())
        {
            create_private_directory(directory)
                .map_err(|error| Error::ReadOnly(format!("{}: {error}", directory.display())))?;
        }
        let new = matches!(&url, Url::Sqlite(path) if !path.exists());
        let mut connection = connect(&url, true, None)?;
        if let Url::Sqlite(path) = &url
            && new
        {
            restrict_to_owner(path);
        }
        migrate::migrate_to_latest(&mut connection, &url)?;
        Ok(Self::from_connection(url, connection, None))
    }

    /// Returns whether the file is still in place and the schema is still at the version this program knows.
    /// Long-running processes check this before they reuse the store.
    pub fn is_still_valid(&self) -> Result<bool> {
        if !self.is_file_in_place() {
            return Ok(false);
        }
        let at = migrate::applied_version(&mut *self.checkout()?, &self.url)?;
        Ok(at == migrate::known_version())
    }

    /// Returns whether the path still leads to the file that was opened.
    pub fn is_file_in_place(&self) -> bool {
        identity_at(&self.url) == self.file
    }

    /// Closes all idle connections at the end of a process (see [`Connection::close`]).
    pub fn close(self) {
        let idle = self.idle.0.into_inner().unwrap_or_else(PoisonError::into_inner);
        idle.into_iter().for_each(Connection::close);
    }

    fn from_connection(url: Url, connection: Connection, wait_ms: Option<u32>) -> Self {
        let file = identity_at(&url);
        let idle = IdleConnections(Mutex::new(vec![connection]));
        let (latest_data_version, clock) = (LatestDataVersion::default(), Clock::system());
        Self { url, idle, write_lock: WriteLock::default(), wait_ms, file, latest_data_version, clock }
    }

    /// Replaces the clock that dates the rows.
    #[must_use]
    pub fn with_clock(self, clock: Clock) -> Self {
        Self { clock, ..self }
    }

    pub fn now(&self) -> Time {
        self.clock.now()
    }

    pub fn url(&self) -> &Url {
        &self.url
    }

    pub fn engine(&self) -> Engine {
        match self.url {
            Url::Sqlite(_) => Engine::Sqlite,
            Url::Postgres(_) => Engine::Postgres,
        }
    }

    /// Opens a read transaction: all its queries see one snapshot.
    pub fn read(&self, tenant: TenantId) -> Result<Reader<'_>> {
        let mut connection = self.checkout()?;
        connection.transaction = Some(OpenTransaction::Read);
        connection.begin_read()?;
        Ok(Reader { connection, tenant, agent: None, queries: 0, resolved: Some(HashMap::new()) })
    }

    /// Runs a single query about the database itself or about tenants, outside any transaction.
    pub fn query_unscoped<T: FromRow>(&self, sql: &str, params: &[Param<'_>]) -> Result<Vec<T>> {
        self.checkout()?.query(sql, params)
    }

    pub fn ping(&self) -> Result<()> {
        self.query_unscoped::<(i64,)>("select 1", &[]).map(drop)
    }

    /// Opens a write transaction. Dropping it without `commit` rolls it back.
    pub fn write(&self, tenant: TenantId) -> Result<Writer<'_>> {
        let connection = match self.engine() {
            Engine::Sqlite => self.begin_sqlite_write()?,
            Engine::Postgres => {
                let mut connection = self.checkout()?;
                connection.transaction = Some(OpenTransaction::Write);
                connection.begin_write()?;
                connection
            }
        };
        // Read the clock after acquiring the lock, so that a later transaction also has a later time.
        let now = self.now();
        let (ids_created, unindexed) = (Cell::new(0), Vec::new());
        Ok(Writer {
            reader: Reader { connection, tenant, agent: None, queries: 0, resolved: None },
            now,
            mode: WriteMode::CHECKED,
            ids_created,
            notifies_workers: false,
            is_committed: false,
            unindexed,
        })
    }

    /// Runs a transaction in the mode that needs the fewest round trips. The transaction must end with a commit. On
    /// PostgreSQL the transaction first runs in optimistic mode. If a precondition fails there, nothing was committed,
    /// and the transaction runs again in checked mode. SQLite has no round trips to save and always uses checked mode.
    pub fn try_optimistic_first<T, E>(
        &self,
        mut transaction: impl FnMut(WriteMode) -> std::result::Result<T, E>,
        is_precondition_failed: impl Fn(&E) -> bool,
    ) -> std::result::Result<T, E> {
        if self.engine() == Engine::Sqlite {
            return transaction(WriteMode::CHECKED);
        }
        match transaction(WriteMode::OPTIMISTIC) {
            Err(error) if is_precondition_failed(&error) => transaction(WriteMode::CHECKED),
            outcome => outcome,
        }
    }

    /// Groups independent writes into transactions. SQLite has one writer at a time, and one commit for all writes is
    /// faster than several. On PostgreSQL each write gets its own transaction, because transactions that lock several
    /// rows would block each other, or deadlock.
    pub fn group_into_transactions<'a, T>(&self, writes: &'a [T]) -> impl Iterator<Item = &'a [T]> {
        writes.chunks(match self.engine() {
            Engine::Sqlite => writes.len().max(1),
            Engine::Postgres => 1,
        })
    }

    /// Acquires the write lock of a SQLite file. Begins a new transaction, or joins the open transaction of writers in
    /// this process that have not committed yet.
    fn begin_sqlite_write(&self) -> Result<PooledConnection<'_>> {
        let started = Instant::now();
        let timeout = self.wait_ms.map_or(DEFAULT_WAIT, |wait_ms| Duration::from_millis(wait_ms.into()));
        match self.write_lock.acquire(timeout)? {
            AcquiredLock::NewGroup(group) => {
                let mut connection = self.checkout_and_begin(started).inspect_err(|_| self.write_lock.release())?;
                connection.transaction = Some(OpenTransaction::Shared(group));
                Ok(connection)
            }
            AcquiredLock::OpenGroup(mut connection, group) => match group.begin_member(&mut connection) {
                Ok(()) => Ok(PooledConnection {
                    connection: Some(connection),
                    transaction: Some(OpenTransaction::Shared(group)),
                    store: self,
                }),
                Err(error) => {
                    self.write_lock.rollback(&self.idle, connection, group);
                    Err(error)
                }
            },
        }
    }

    /// Takes a connection and begins a SQLite write transaction. `started` is the time at which the caller began to
    /// wait. The time since then counts towards the caller's limit.
    fn checkout_and_begin(&self, started: Instant) -> Result<PooledConnection<'_>> {
        let mut connection = self.checkout()?;
        if let Some(wait_ms) = self.wait_ms {
            let waited_ms = u32::try_from(started.elapsed().as_millis()).unwrap_or(u32::MAX);
            connection.set_lock_timeout(wait_ms.saturating_sub(waited_ms))?;
        }
        connection.begin_write()?;
        Ok(connection)
    }

    /// Runs `work`, which writes a lot, on this thread with a long write-ahead log. Another thread checkpoints the log
    /// meanwhile, so that the caller does not have to wait for the disk at the end.
    pub fn run_bulk_write<T>(&self, work: impl FnOnce() -> T) -> Result<T> {
        self.checkout()?.set_long_wal(true)?;
        let (finished, is_finished) = mpsc::channel::<()>();
        let outcome = thread::scope(|scope| {
            scope.spawn(|| self.checkpoint_wal_until(is_finished));
            let outcome = work();
            drop(finished);
            outcome
        });
        self.checkout()?.set_long_wal(false)?;
        Ok(outcome)
    }

    /// Checkpoints the write-ahead log as it grows. Errors are ignored: the last connection to close checkpoints the
    /// log as well.
    fn checkpoint_wal_until(&self, is_finished: Receiver<()>) {
        let Url::Sqlite(path) = &self.url else { return };
        let mut checkpointed = 0;
        while is_finished.recv_timeout(WAL_POLL_INTERVAL) == Err(RecvTimeoutError::Timeout) {
            let length = wal_bytes(path);
            if length >= checkpointed + WAL_CHECKPOINT_BYTES {
                checkpointed = length;
                let _ = self.connect().and_then(|mut connection| connection.batch("pragma wal_checkpoint(passive)"));
            }
        }
    }

    fn checkout(&self) -> Result<PooledConnection<'_>> {
        let connection = loop {
            match self.idle.pop() {
                Some(connection) if connection.is_open() => break connection,
                // A server that went away closes all idle connections, so discard the closed one and try the next.
                Some(_) => {}
                None => break self.connect()?,
            }
        };
        Ok(PooledConnection { connection: Some(connection), transaction: None, store: self })
    }

    /// Opens a new connection with the wait limit of this store.
    pub(crate) fn connect(&self) -> Result<Connection> {
        let mut connection = connect(&self.url, false, self.wait_ms)?;
        self.wait_ms.map_or(Ok(()), |wait_ms| connection.set_lock_timeout(wait_ms))?;
        Ok(connection)
    }

    pub(crate) fn latest_data_version(&self) -> &LatestDataVersion {
        &self.latest_data_version
    }
}

#[cfg(unix)]
pub(crate) fn identity_at(url: &Url) -> Option<FileIdentity> {
    use std::os::unix::fs::MetadataExt;
    match url {
        Url::Sqlite(path) => path.metadata().ok().map(|file| (file.dev(), file.ino())),
        Url::Postgres(_) => None,
    }
}

#[cfg(not(unix))]
pub(crate) fn identity_at(_: &Url) -> Option<FileIdentity> {
    None
}

/// Anyone who can open the file has full access, so a new file and its directory are readable by their owner only.
#[cfg(unix)]
pub(crate) fn create_private_directory(directory: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)
}

#[cfg(not(unix))]
pub(crate) fn create_private_directory(directory: &Path) -> std::io::Result<()> {
    std::fs::create_dir_all(directory)
}

#[cfg(unix)]
pub(crate) fn restrict_to_owner(file: &Path) {
    use std::os::unix::fs::PermissionsExt;
    // Ignore errors: some file systems have no permissions.
    let _ = std::fs::set_permissions(file, std::fs::Permissions::from_mode(0o600));
}

#[cfg(not(unix))]
pub(crate) fn restrict_to_owner(_: &Path) {}

fn connect(url: &Url, create: bool, wait_ms: Option<u32>) -> Result<Connection> {
    let with_timeout = wait_ms.map(|_| url.with_connect_timeout(SHORT_TIMEOUT_SECONDS));
    match with_timeout.as_ref().unwrap_or(url) {
        Url::Sqlite(path) => Connection::sqlite(path, create),
        Url::Postgres(url) if create => Connection::postgres_or_create(url),
        Url::Postgres(url) => Connection::postgres(url),
    }
}

/// The way in which a transaction checks its preconditions. Only functions of this crate read the mode, to choose
/// between statements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WriteMode {
    /// Each write checks its own precondition and fails with [`Error::PreconditionFailed`], which saves the round trips
    /// of separate checks.
    pub(crate) optimistic: bool,
}

impl WriteMode {
    /// Queries check the preconditions before the first write.
    pub const CHECKED: Self = Self { optimistic: false };
    const OPTIMISTIC: Self = Self { optimistic: true };
}

/// A connection from the pool. Dropping it ends its transaction and returns it to the pool.
#[derive(Debug)]
struct PooledConnection<'a> {
    connection: Option<Connection>,
    /// The transaction that is open on the connection.
    transaction: Option<OpenTransaction>,
    store: &'a Store,
}

#[derive(Debug)]
enum OpenTransaction {
    Read,
    Write,
    /// A SQLite transaction that may contain the work of other writers.
    Shared(CommitGroup),
}

impl PooledConnection<'_> {
    /// Takes the connection and its commit group, if the transaction is a shared one.
    fn take_commit_group(&mut self) -> Option<(Connection, CommitGroup)> {
        match self.transaction.take() {
            Some(OpenTransaction::Shared(group)) => Some((self.connection.take()?, group)),
            other => {
                self.transaction = other;
                None
            }
        }
    }
}

impl Drop for PooledConnection<'_> {
    fn drop(&mut self) {
        if let Some(mut connection) = self.connection.take() {
            match self.transaction.take() {
                Some(OpenTransaction::Read) => connection.end_read(),
                Some(OpenTransaction::Write) => connection.rollback(),
                Some(OpenTransaction::Shared(group)) => {
                    return self.store.write_lock.rollback(&self.store.idle, connection, group);
                }
                None => {}
            }
            self.store.idle.push(connection);
        }
    }
}

impl Deref for PooledConnection<'_> {
    type Target = Connection;
    #[expect(clippy::expect_used, reason = "only `drop` and `take_commit_group` take it")]
    fn deref(&self) -> &Connection {
        self.connection.as_ref().expect("a pooled connection is present until it is dropped")
    }
}

impl DerefMut for PooledConnection<'_> {
    #[expect(clippy::expect_used, reason = "only `drop` and `take_commit_group` take it")]
    fn deref_mut(&mut self) -> &mut Connection {
        self.connection.as_mut().expect("a pooled connection is present until it is dropped")
    }
}

/// Maximum number of rounds in [`Reader::run_batched`]. Reads that are unfinished after that run one by one.
const BATCH_ROUNDS_MAX: usize = 5;

/// A read transaction, scoped to one tenant.
#[derive(Debug)]
pub struct Reader<'a> {
    connection: PooledConnection<'a>,
    pub tenant: TenantId,
    /// The calling agent, if any. Views restrict what an agent reads, but not what people or Trackway itself read.
    agent: Option<Id<kind::Agent>>,
    /// Number of queries so far.
    queries: u64,
    /// Cache of resolved references. Absent in write transactions, where a name may change between two lookups.
    pub(crate) resolved: Option<HashMap<(kind::Kind, String), Uuid>>,
}

impl Reader<'_> {
    pub fn engine(&self) -> Engine {
        self.connection.engine()
    }

    /// The current time. A view calls this once, so that all its rows refer to the same time.
    pub fn now(&self) -> Time {
        self.connection.store.now()
    }

    /// Sets the calling agent. Some views restrict what an agent may read.
    #[must_use]
    pub fn on_behalf_of(self, agent: Option<Id<kind::Agent>>) -> Self {
        Self { agent, ..self }
    }

    pub fn calling_agent(&self) -> Option<Id<kind::Agent>> {
        self.agent
    }

    /// Runs a query. `?1` is the tenant; a query that does not use it is rejected.
    pub fn query<T: FromRow>(&mut self, sql: &str, params: &[Param<'_>]) -> Result<Vec<T>> {
        self.queries += 1;
        self.connection.query(sql, &scoped(self.tenant, sql, params)?)
    }

    /// Prefetches a query: on PostgreSQL it is sent together with the next query, which saves a round trip. Does
    /// nothing in a write transaction, where a query must see the writes before it.
    pub fn prefetch(&mut self, sql: &str, params: &[Param<'_>]) -> Result<()> {
        if self.resolved.is_some() {
            self.connection.prefetch(sql, &scoped(self.tenant, sql, params)?);
        }
        Ok(())
    }

    /// Runs reads that do not depend on each other in as few round trips as possible. On PostgreSQL each read runs
    /// until it needs a row that is not known yet; then all missing queries are sent in one round trip, and the
    /// unfinished reads start again with the results.
    pub fn run_batched<T>(&mut self, reads: &[impl Fn(&mut Self) -> Result<T>]) -> Result<Vec<T>> {
        let mut answers: Vec<Option<T>> = reads.iter().map(|_| None).collect();
        let saves_round_trips = self.resolved.is_some() && self.engine() == Engine::Postgres;
        for _ in 0..if saves_round_trips { BATCH_ROUNDS_MAX } else { 0 } {
            for (read, answer) in reads.iter().zip(&mut answers).filter(|(_, answer)| answer.is_none()) {
                self.connection.set_deferring(true);
                let outcome = read(self);
                // A deferred query makes the outcome meaningless, even if the outcome is not an error.
                let is_unfinished = self.connection.has_deferred();
                self.connection.set_deferring(false);
                if !is_unfinished {
                    *answer = Some(outcome?);
                }
            }
            if answers.iter().all(Option::is_some) {
                break;
            }
            self.connection.run_prefetched()?;
        }
        let rest = reads.iter().zip(answers);
        rest.map(|(read, answer)| answer.map_or_else(|| read(self), Ok)).collect()
    }

    /// Returns the first row, if any. `?1` is the tenant.
    pub fn one<T: FromRow>(&mut self, sql: &str, params: &[Param<'_>]) -> Result<Option<T>> {
        Ok(self.query(sql, params)?.into_iter().next())
    }

    /// Returns a number that the query always yields, such as a count. `?1` is the tenant.
    pub fn count(&mut self, sql: &str, params: &[Param<'_>]) -> Result<i64> {
        Ok(self.one::<(i64,)>(sql, params)?.map_or(0, |(count,)| count))
    }

    /// Number of queries in this transaction. Tests check that it does not grow with the number of rows.
    pub fn queries(&self) -> u64 {
        self.queries
    }

    /// Runs `read` inside a savepoint. Without the savepoint, PostgreSQL would reject all later queries of the
    /// transaction if `read` fails.
    pub fn with_savepoint<T>(&mut self, read: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        self.begin_savepoint()?;
        let outcome = read(self);
        self.end_savepoint(outcome)
    }

    /// Begins a savepoint. The caller must end it with [`Reader::end_savepoint`], whatever the outcome.
    pub(crate) fn begin_savepoint(&mut self) -> Result<()> {
        match self.engine() {
            Engine::Sqlite => Ok(()),
            // Sent together with the next query.
            Engine::Postgres => self.connection.post("savepoint attempt", &[]),
        }
    }

    pub(crate) fn end_savepoint<T>(&mut self, outcome: Result<T>) -> Result<T> {
        if self.engine() == Engine::Postgres {
            match &outcome {
                Ok(_) => self.connection.post("release savepoint attempt", &[])?,
                Err(_) => self.connection.batch("rollback to savepoint attempt; release savepoint attempt")?,
            }
        }
        outcome
    }

    /// Runs one of the few queries that are not scoped to a tenant: about the database itself or about tenants.
    pub fn query_unscoped<T: FromRow>(&mut self, sql: &str, params: &[Param<'_>]) -> Result<Vec<T>> {
        self.connection.query(sql, params)
    }
}

fn scoped<'a>(tenant: TenantId, sql: &str, params: &'a [Param<'a>]) -> Result<Vec<Param<'a>>> {
    require_tenant(sql)?;
    Ok(std::iter::once(Param::Uuid(tenant.uuid())).chain(params.iter().cloned()).collect())
}

/// A write transaction. It can read, too. All its rows carry the same time.
#[derive(Debug)]
pub struct Writer<'a> {
    reader: Reader<'a>,
    pub now: Time,
    pub mode: WriteMode,
    /// Number of ids created so far.
    ids_created: Cell<i64>,
    /// Whether the commit notifies waiting workers.
    notifies_workers: bool,
    /// Whether a single autocommitted statement has already committed the transaction.
    is_committed: bool,
    /// Row numbers and words of bodies that are not in SQLite's full-text index yet.
    pub(crate) unindexed: Vec<(i64, String)>,
}

impl<'a> Deref for Writer<'a> {
    type Target = Reader<'a>;
    fn deref(&self) -> &Reader<'a> {
        &self.reader
    }
}

impl DerefMut for Writer<'_> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.reader
    }
}

impl Writer<'_> {
    /// Runs a write and returns the number of changed rows. `?1` is the tenant.
    pub fn execute(&mut self, sql: &str, params: &[Param<'_>]) -> Result<u64> {
        let scoped = scoped(self.tenant, sql, params)?;
        self.reader.connection.execute(sql, &scoped)
    }

    /// Sends a write without waiting for its result (see [`Connection::post`]). `?1` is the tenant.
    pub fn post(&mut self, sql: &str, params: &[Param<'_>]) -> Result<()> {
        let scoped = scoped(self.tenant, sql, params)?;
        self.reader.connection.post(sql, &scoped)
    }

    /// Runs a statement that writes rows and returns them. If it is the first statement of a transaction on PostgreSQL,
    /// it runs without an explicit transaction. If it then returns rows, these are already committed, and no other
    /// statement may follow. `?1` is the tenant.
    pub(crate) fn query_autocommit<T: FromRow>(&mut self, sql: &str, params: &[Param<'_>]) -> Result<Vec<T>> {
        let scoped = scoped(self.tenant, sql, params)?;
        let connection = &mut self.reader.connection;
        let is_alone = connection.cancel_begin();
        let rows = connection.query(sql, &scoped).map_err(|error| match error {
            // The statement was sent, but the server did not report whether it committed.
            Error::Unreachable(why) if is_alone => Error::CommitUnknown(why),
            error => error,
        })?;
        self.is_committed = is_alone && !rows.is_empty();
        if is_alone && rows.is_empty() {
            connection.begin_write()?;
        }
        Ok(rows)
    }

    /// Inserts a row in SQLite and returns its rowid. `?1` is the tenant.
    pub(crate) fn insert_returning_rowid(&mut self, sql: &str, params: &[Param<'_>]) -> Result<i64> {
        self.execute(sql, params)?;
        self.reader.connection.last_rowid().ok_or_else(|| Error::Database("PostgreSQL has no rowids".into()))
    }

    /// Sends a write of a whole row, whose tenant is among the parameters.
    pub(crate) fn post_row(&mut self, sql: &str, params: &[Param<'_>]) -> Result<()> {
        self.reader.connection.post(sql, params)
    }

    /// Writes a whole row and returns the number of changed rows. The tenant is among the parameters.
    pub(crate) fn execute_row(&mut self, sql: &str, params: &[Param<'_>]) -> Result<u64> {
        self.reader.connection.execute(sql, params)
    }

    /// Sends an insert of a whole row (see [`Connection::post_independent`]). The tenant is among the parameters.
    pub(crate) fn post_new_row(&mut self, sql: impl Into<Cow<'static, str>>, params: &[Param<'_>]) -> Result<()> {
        self.reader.connection.post_independent(sql.into(), params)
    }

    /// Sends a plain insert or update of rows that the neighbouring writes neither change nor read. `?1` is the tenant.
    pub fn post_independent(&mut self, sql: &'static str, params: &[Param<'_>]) -> Result<()> {
        let scoped = scoped(self.tenant, sql, params)?;
        self.reader.connection.post_independent(Cow::Borrowed(sql), &scoped)
    }

    /// Sends an independent write. If it changes no row, the transaction fails with [`Error::PreconditionFailed`]. `?1`
    /// is the tenant.
    pub fn post_requiring_change(&mut self, sql: &'static str, params: &[Param<'_>]) -> Result<()> {
        let scoped = scoped(self.tenant, sql, params)?;
        self.reader.connection.post_requiring_change(Cow::Borrowed(sql), &scoped, 1)
    }

    /// Sends a query, which may lock rows. If it finds no row, the transaction fails with
    /// [`Error::PreconditionFailed`]. `?1` is the tenant.
    pub fn post_requiring_row(&mut self, sql: &'static str, params: &[Param<'_>]) -> Result<()> {
        let scoped = scoped(self.tenant, sql, params)?;
        self.reader.connection.post_requiring_row(sql, &scoped)
    }

    /// Sends an insert of `rows` whole rows, all of which must be new. Their tenants are among the parameters.
    pub(crate) fn post_new_rows(&mut self, sql: Cow<'static, str>, params: &[Param<'_>], rows: usize) -> Result<()> {
        self.reader.connection.post_requiring_change(sql, params, rows)
    }

    pub fn commit(mut self) -> Result<()> {
        self.flush_search_index()?;
        let pooled = &mut self.reader.connection;
        if let Some((connection, group)) = pooled.take_commit_group() {
            pooled.store.write_lock.commit(&pooled.store.idle, connection, group)?;
            if self.notifies_workers
                && let Url::Sqlite(path) = pooled.store.url()
            {
                queue_notify::notify_file_watchers(path);
            }
            return Ok(());
        }
        if !self.is_committed {
            pooled.post(COMMIT, &[])?;
        }
        if self.notifies_workers {
            // Notify after the commit, in the same round trip. PostgreSQL serialises commits of transactions that
            // notify.
            pooled.post(&queue_notify::NOTIFY, &[])?;
        }
        pooled.flush()?;
        pooled.transaction = None;
        Ok(())
    }

    /// Notifies workers that wait for the queue, once this transaction is committed.
    pub fn notify_workers_on_commit(&mut self) {
        self.notifies_workers = true;
    }

    /// Creates an id. Ids of one transaction sort in the order of creation.
    pub fn new_id<K>(&self) -> Id<K> {
        let created = self.ids_created.replace(self.ids_created.get() + 1);
        Id::new(Time::from_micros(self.now.micros() + created))
    }

    /// Reads the clock again after waiting for a lock, so that this transaction is dated later than the one that held
    /// the lock.
    pub fn refresh_now(&mut self) {
        self.now = self.now.max(self.reader.now());
    }

    /// The given locking clause on PostgreSQL; empty on SQLite, which has one writer at a time and no row locks.
    pub fn row_lock<'c>(&self, clause: &'c str) -> &'c str {
        match self.engine() {
            Engine::Sqlite => "",
            Engine::Postgres => clause,
        }
    }

    /// Locking clause that waits for rows that another transaction has locked.
    pub fn for_update(&self) -> &'static str {
        self.row_lock(" for update")
    }

    /// Locking clause that skips rows that another transaction has locked.
    pub fn skip_locked(&self) -> &'static str {
        self.row_lock(" for update skip locked")
    }

    /// Locks the rows whose ids `query` selects, and waits for other transactions that have locked them. Does nothing
    /// on SQLite, which has one writer at a time.
    pub fn lock_rows(&mut self, query: &str, params: &[Param<'_>]) -> Result<()> {
        if self.engine() == Engine::Postgres {
            self.query::<(Uuid,)>(&format!("{query} for update"), params)?;
        }
        Ok(())
    }

    /// Serialises the transactions that record observations of a session. Matching reads many rows, and two subagents
    /// must never get the same spawn. Does nothing on SQLite, which has one writer at a time.
    pub fn lock_session(&mut self, session: &str) -> Result<()> {
        if self.engine() == Engine::Postgres {
            self.query::<(bool,)>(
                "select pg_advisory_xact_lock(hashtextextended(cast(cast(?1 as uuid) as text) || ?2, 2)) is null",
                params![session],
            )?;
            self.refresh_now();
        }
        Ok(())
    }

    /// Serialises the transactions that change replacements, links or pins, because the rules for them read many rows.
    /// Does nothing on SQLite, which has one writer at a time.
    pub fn lock_catalog(&mut self) -> Result<()> {
        if self.engine() == Engine::Postgres {
            self.query::<(bool,)>(
                "select pg_advisory_xact_lock(hashtextextended(cast(cast(?1 as uuid) as text), 1)) is null",
                &[],
            )?;
            self.refresh_now();
        }
        Ok(())
    }

    /// Waits for all transactions that rely on the set of live versions, and blocks new ones until this transaction
    /// ends. Call this before selecting the queue items that a change of versions or pins blocks or frees. Does nothing
    /// on SQLite, which has one writer at a time.
    pub fn lock_live_versions(&mut self) -> Result<()> {
        if self.engine() == Engine::Postgres {
            self.query::<(bool,)>(&format!("select pg_advisory_xact_lock({LIVE_VERSIONS}) is null"), &[])?;
            self.refresh_now();
        }
        Ok(())
    }

    /// Prevents other transactions from changing the set of live versions until this transaction ends. A later
    /// transaction that archives a version then sees the queue items that this transaction adds. Call this before the
    /// query that selects the version. Does nothing on SQLite, which has one writer at a time.
    pub fn lock_live_versions_shared(&mut self) -> Result<()> {
        if self.engine() == Engine::Postgres {
            self.post(&format!("select pg_advisory_xact_lock_shared({LIVE_VERSIONS})"), &[])?;
        }
        Ok(())
    }
}

/// Key of a tenant's advisory lock for live versions.
const LIVE_VERSIONS: &str = "hashtextextended(cast(cast(?1 as uuid) as text), 3)";

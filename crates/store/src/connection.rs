//! The one place where a query meets an engine.

use std::{
    borrow::Cow,
    collections::HashMap,
    path::Path,
    sync::atomic::{AtomicU32, Ordering},
    task::Poll,
    time::Duration,
};

use futures_util::future::{join, try_join_all};
use rusqlite::config::DbConfig;
use tokio::runtime::Runtime;
use tokio_postgres::{Client, Statement, types::Type};

use crate::{
    error::{Error, Result},
    reach,
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
pub(crate) const COMMIT: &str = "commit";
/// How long a visitor who must not be in the way waits for PostgreSQL: to be let in, and for each answer.
pub(crate) const VISITOR_SECONDS: u32 = 1;
/// Prepared statements kept per SQLite connection: all of ours fit.
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

/// A PostgreSQL connection and the small runtime that drives it, on the caller's own thread.
pub struct Postgres {
    client: Client,
    runtime: Runtime,
    /// Texts that were used: `None` once, prepared from the second time on. Preparing costs a round trip, which a
    /// process that asks once never gets back.
    statements: HashMap<String, Option<Statement>>,
    /// Writes whose answer nobody waits for. They go out together, before the next question or commit:
    /// one round trip instead of one each.
    pending: Vec<Pending>,
    /// Questions that are about to be asked: they travel with the next one.
    expected: Vec<Question>,
    /// Answers to questions that were expected.
    known: Vec<(Question, Vec<tokio_postgres::Row>)>,
    /// Whether questions without an answer are put off, and whether one was (see [`Connection::put_off`]).
    put_off: Option<bool>,
    /// How long an answer is waited for, where that is not left to the server.
    answer_max: Option<Duration>,
    /// Whether an answer was not waited for any longer: what comes next on this connection would be that answer.
    is_given_up: bool,
    /// Whether a write found out that this server takes none: another one may, at the same address.
    is_standby: bool,
}

/// A question that somebody will ask.
#[derive(Debug)]
struct Question {
    sql: String,
    params: Vec<Param<'static>>,
}

impl Question {
    fn is(&self, sql: &str, params: &[Param<'_>]) -> bool {
        self.sql == sql && self.params == params
    }
}

/// A write on its way.
#[derive(Debug)]
struct Pending {
    sql: Cow<'static, str>,
    params: Vec<Param<'static>>,
    kind: PendingKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PendingKind {
    /// Sees what those before it did.
    Alone,
    /// Sees nothing of its neighbours, so they can be one statement.
    Beside,
    /// The same, and all of it fails unless it changes so many rows.
    BesideAndChanging(usize),
    /// A look, and all of it fails unless it finds a row.
    BesideAndFinding,
}

impl std::fmt::Debug for Postgres {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Postgres").field("pending", &self.pending.len()).finish_non_exhaustive()
    }
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
        let runtime = reach::small_runtime()?;
        let client = runtime.block_on(async {
            let (client, carrier) = reach::connect(url).await?;
            // Ends with the connection; what it ends with reaches us through the client.
            tokio::spawn(carrier);
            Ok::<_, Error>(client)
        });
        match client {
            Ok(client) => Ok(Self::Postgres(Box::new(Postgres {
                client,
                runtime,
                statements: HashMap::new(),
                pending: Vec::new(),
                expected: Vec::new(),
                known: Vec::new(),
                put_off: None,
                answer_max: None,
                is_given_up: false,
                is_standby: false,
            }))),
            Err(error) => {
                // A name that is still looked up is not waited for.
                runtime.shutdown_background();
                Err(error)
            }
        }
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
            Self::Sqlite(connection) => {
                WAIT_MAX_MS.store(wait_ms, Ordering::Relaxed);
                Ok(connection.busy_handler(Some(wait_a_little))?)
            }
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
        match self {
            Self::Sqlite(connection) => {
                let mut statement = connection.prepare_cached(sql)?;
                let mut rows = statement.query(rusqlite::params_from_iter(params))?;
                let mut all = Vec::new();
                while let Some(row) = rows.next()? {
                    all.push(T::from_row(&Row::Sqlite(row))?);
                }
                Ok(all)
            }
            Self::Postgres(postgres) => {
                let read =
                    |rows: &[tokio_postgres::Row]| rows.iter().map(|row| T::from_row(&Row::Postgres(row))).collect();
                if let Some(rows) = postgres.known(sql, params) {
                    return read(rows);
                }
                if let Some(any) = &mut postgres.put_off {
                    *any = true;
                    postgres.expect(sql, params);
                    return Err(Error::PutOff);
                }
                let rows = postgres.query_beside_expected(Some((sql, params)))?;
                postgres.known(sql, params).map_or_else(|| read(&rows), read)
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

    /// From now on a question whose answer is not known fails, and is expected; or no longer. Where asking takes no round
    /// trip nothing is put off.
    pub(crate) fn put_off(&mut self, is_so: bool) {
        if let Self::Postgres(postgres) = self {
            postgres.put_off = is_so.then_some(false);
        }
    }

    /// Whether a question was put off since that began.
    pub(crate) fn has_put_off(&self) -> bool {
        matches!(self, Self::Postgres(postgres) if postgres.put_off == Some(true))
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
    pub(crate) fn post_beside(&mut self, sql: &'static str, params: &[Param<'_>]) -> Result<()> {
        match self {
            Self::Sqlite(_) => self.execute(sql, params).map(drop),
            Self::Postgres(postgres) => {
                postgres.keep(Cow::Borrowed(sql), params, PendingKind::Beside);
                Ok(())
            }
        }
    }

    /// The same, which must change so many rows: else all of the transaction is refuted.
    pub(crate) fn post_changing(&mut self, sql: Cow<'static, str>, params: &[Param<'_>], rows: usize) -> Result<()> {
        match self {
            Self::Sqlite(_) => match usize::try_from(self.execute(&sql, params)?) {
                Ok(changed) if changed < rows => Err(Error::Refuted("nothing to change".into())),
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
                [] => Err(Error::Refuted("nothing was found".into())),
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
            Self::Postgres(_) => self.post(BEGIN_READ, &[]),
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
            Self::Postgres(postgres) => {
                let is_unasked = postgres.pending.first().is_some_and(|first| first.sql == BEGIN_READ);
                postgres.pending.clear();
                postgres.expected.clear();
                postgres.known.clear();
                postgres.put_off = None;
                if !is_unasked && !postgres.client.is_closed() {
                    postgres.send("rollback");
                }
            }
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

/// What [`Connection::wait_at_most`] was last told.
static WAIT_MAX_MS: AtomicU32 = AtomicU32::new(0);
/// Milliseconds between two looks at a lock.
const WAIT_STEP_MS: u32 = 2;

/// Looks again soon. SQLite's own waiting doubles its steps: of many who come at once, the late ones would sleep on while
/// nobody holds the lock, and give up after a few looks.
fn wait_a_little(looks: i32) -> bool {
    let waited_ms = u32::try_from(looks).unwrap_or(u32::MAX).saturating_mul(WAIT_STEP_MS);
    let wait = waited_ms < WAIT_MAX_MS.load(Ordering::Relaxed);
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

/// Turns of a connection until it has seen that the other side hung up: one to hear of it, one to read it.
const TURNS_TO_NOTICE: usize = 3;

impl Postgres {
    /// A connection that rests is driven by nobody. It gets a turn here, so that a server which went away meanwhile is
    /// noticed before anything is sent to it.
    fn is_open(&self) -> bool {
        self.runtime.block_on(async {
            for _ in 0..TURNS_TO_NOTICE {
                tokio::task::yield_now().await;
            }
        });
        !self.is_standby && !self.is_given_up && !self.client.is_closed()
    }

    /// Sends something whose answer is dropped when it comes, with that of what is sent next.
    fn send(&self, sql: &str) {
        self.runtime.block_on(async {
            let mut sending = std::pin::pin!(self.client.batch_execute(sql));
            std::future::poll_fn(|waker| {
                // Polled once it is on its way.
                let _ = sending.as_mut().poll(waker);
                Poll::Ready(())
            })
            .await;
            // Who carries it gets a turn to send it.
            tokio::task::yield_now().await;
        });
    }

    /// The prepared statement of a text, when it was used before.
    fn statement(&mut self, sql: &str) -> Result<Option<Statement>> {
        match self.statements.get(sql) {
            Some(Some(statement)) => Ok(Some(statement.clone())),
            Some(None) => {
                let preparing =
                    self.runtime.block_on(in_time(self.answer_max, self.client.prepare(&for_postgres(sql))));
                let statement = self.waited(preparing)??;
                self.statements.insert(sql.to_owned(), Some(statement.clone()));
                Ok(Some(statement))
            }
            None => {
                self.statements.insert(sql.to_owned(), None);
                Ok(None)
            }
        }
    }

    /// An answer that came in time.
    fn waited<T>(&mut self, answer: Option<T>) -> Result<T> {
        self.is_given_up |= answer.is_none();
        answer.ok_or_else(|| Error::Unreachable("it does not answer".into()))
    }

    fn keep(&mut self, sql: Cow<'static, str>, params: &[Param<'_>], kind: PendingKind) {
        let params = params.iter().cloned().map(Param::into_owned).collect();
        self.pending.push(Pending { sql, params, kind });
    }

    fn expect(&mut self, sql: &str, params: &[Param<'_>]) {
        if self.known(sql, params).is_none() && !self.expected.iter().any(|question| question.is(sql, params)) {
            let params = params.iter().cloned().map(Param::into_owned).collect();
            self.expected.push(Question { sql: sql.to_owned(), params });
        }
    }

    /// The answer to a question that was expected and has been asked.
    fn known(&self, sql: &str, params: &[Param<'_>]) -> Option<&[tokio_postgres::Row]> {
        self.known.iter().find(|(question, _)| question.is(sql, params)).map(|(_, rows)| rows.as_slice())
    }

    /// Asks what is expected, and a question that may be one of them; else it says the answer.
    fn query_beside_expected(&mut self, own: Option<(&str, &[Param<'_>])>) -> Result<Vec<tokio_postgres::Row>> {
        let expected = std::mem::take(&mut self.expected);
        let own = own.filter(|(sql, params)| !expected.iter().any(|question| question.is(sql, params)));
        let asked = expected.iter().map(|question| (question.sql.as_str(), question.params.as_slice())).chain(own);
        let mut answers = self.query_all(&asked.collect::<Vec<_>>())?;
        let rows = own.and_then(|_| answers.pop()).unwrap_or_default();
        self.known.extend(expected.into_iter().zip(answers));
        Ok(rows)
    }

    /// Asks several questions in one round trip.
    fn query_all(&mut self, questions: &[(&str, &[Param<'_>])]) -> Result<Vec<Vec<tokio_postgres::Row>>> {
        let statements = questions.iter().map(|(sql, _)| self.statement(sql)).collect::<Result<Vec<_>>>()?;
        self.after_pending(async |client| {
            let asked = questions.iter().zip(&statements).map(|((sql, params), statement)| async move {
                match statement {
                    Some(statement) => client.query(statement, &dynamic(params)).await,
                    None => client.query_typed(&for_postgres(sql), &typed(params)).await,
                }
            });
            try_join_all(asked).await
        })
    }

    /// Sends what is pending and asks a question, all in one round trip.
    fn after_pending<T>(
        &mut self,
        ask: impl AsyncFnOnce(&Client) -> std::result::Result<T, tokio_postgres::Error>,
    ) -> Result<T> {
        let pending = std::mem::take(&mut self.pending);
        let commits = pending.iter().any(|pending| pending.sql == COMMIT);
        let pending = without_needless_transaction(joined(pending));
        let statements = pending.iter().map(|pending| self.statement(&pending.sql)).collect::<Result<Vec<_>>>()?;
        // Polled in order, the client sends them in order and back to back.
        let client = &self.client;
        let sent = statements.iter().zip(&pending).map(|(statement, Pending { sql, params, .. })| async move {
            match statement {
                Some(statement) => client.execute(statement, &dynamic(params)).await,
                None => client.execute_typed(&for_postgres(sql), &typed(params)).await,
            }
        });
        let outcome = self.runtime.block_on(in_time(self.answer_max, join(try_join_all(sent), ask(client))));
        let (sent, answer) = self.waited(outcome).map_err(|error| match error {
            Error::Unreachable(why) if commits => Error::Unsettled(why),
            error => error,
        })?;
        // What failed first is why the rest failed.
        sent.map(drop).and(answer).map_err(|error| match Error::from(error) {
            // It was sent, and nobody says what became of it.
            Error::Unreachable(why) if commits => Error::Unsettled(why),
            error => {
                self.is_standby |= matches!(error, Error::Standby(_));
                error
            }
        })
    }
}

/// What comes out, unless that takes longer than it may.
async fn in_time<T>(at_most: Option<Duration>, answer: impl Future<Output = T>) -> Option<T> {
    match at_most {
        Some(at_most) => tokio::time::timeout(at_most, answer).await.ok(),
        None => Some(answer.await),
    }
}

/// Makes one statement of neighbours that see nothing of each other: each statement costs the server as much as the row
/// it writes.
fn joined(pending: Vec<Pending>) -> Vec<Pending> {
    let mut out: Vec<Pending> = Vec::with_capacity(pending.len());
    let mut group: Vec<Pending> = Vec::new();
    for one in pending {
        // One table, one part: two would have no order.
        let goes_on = one.kind != PendingKind::Alone && group.iter().all(|other| other.sql != one.sql);
        if !goes_on {
            out.extend(as_one(std::mem::take(&mut group)));
        }
        if one.kind == PendingKind::Alone { out.push(one) } else { group.push(one) }
    }
    out.extend(as_one(group));
    out
}

fn as_one(mut group: Vec<Pending>) -> Option<Pending> {
    let is_plain = group.iter().all(|part| part.kind == PendingKind::Beside);
    if group.len() < 2 && is_plain {
        return group.pop();
    }
    let mut sql = String::with_capacity(64 + group.iter().map(|part| part.sql.len() + 32).sum::<usize>());
    let mut params = Vec::new();
    let mut checks = Vec::new();
    for (part, number) in group.into_iter().zip(1..) {
        sql.push_str(if number == 1 { "with p" } else { "), p" });
        sql.push_str(&number.to_string());
        sql.push_str(" as (");
        push_shifted(&mut sql, &part.sql, params.len());
        match part.kind {
            PendingKind::BesideAndChanging(rows) => {
                sql.push_str(" returning 1");
                checks.push((number, rows));
            }
            PendingKind::BesideAndFinding => checks.push((number, 1)),
            PendingKind::Beside | PendingKind::Alone => {}
        }
        params.extend(part.params);
    }
    sql.push_str(") select 1");
    for (number, rows) in checks {
        // Fewer are none.
        sql.push_str(&format!(" / (select count(*) / {rows} from p{number})"));
    }
    Some(Pending { sql: Cow::Owned(sql), params, kind: PendingKind::Alone })
}

/// Appends a text whose placeholders come after so many others.
fn push_shifted(out: &mut String, sql: &str, by: usize) {
    let mut parts = sql.split('?');
    out.push_str(parts.next().unwrap_or_default());
    for part in parts {
        let digits = part.bytes().take_while(u8::is_ascii_digit).count();
        let number: usize = part[..digits].parse().unwrap_or_default();
        out.push('?');
        out.push_str(&(number + by).to_string());
        out.push_str(&part[digits..]);
    }
}

/// A statement is a transaction: one alone needs no other around it.
fn without_needless_transaction(mut pending: Vec<Pending>) -> Vec<Pending> {
    if let [begin, _, commit, ..] = pending.as_slice()
        && begin.sql == BEGIN
        && commit.sql == COMMIT
    {
        pending.remove(2);
        pending.remove(0);
    }
    pending
}

/// The placeholders of both engines become PostgreSQL's.
fn for_postgres(sql: &str) -> String {
    sql.replace('?', "$")
}

fn dynamic<'a>(params: &'a [Param<'a>]) -> Vec<&'a (dyn postgres_types::ToSql + Sync)> {
    params.iter().map(|param| param as _).collect()
}

fn typed<'a>(params: &'a [Param<'a>]) -> Vec<(&'a (dyn postgres_types::ToSql + Sync), Type)> {
    params.iter().map(|param| (param as _, param.postgres_type())).collect()
}

//! An opened database: connections handed out for reading, and for the one write path.

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
    connection::{COMMIT, Connection, Engine, VISITOR_SECONDS, log_bytes},
    engine::{
        clock::Clock,
        data_version::LatestMoment,
        queue_notify,
        shared_commit::{Company, Turn, Turns},
        tenant_guard::require_tenant,
    },
    error::{Error, Result},
    migrate, params,
    sql::{FromRow, Param},
    url::Url,
};

/// How long others are waited for, as usual.
const PATIENCE: Duration = Duration::from_secs(5);
/// How often a log that may grow long is looked at.
const LOG_LOOK: Duration = Duration::from_millis(20);
/// Bytes by which it grew before they are brought into the file.
const LOG_PIECE: u64 = 16 << 20;

pub type TenantId = Id<kind::Tenant>;

/// A database that was checked to be ours and up to date.
#[derive(Debug)]
pub struct Store {
    url: Url,
    idle: Idle,
    /// Of those who write to a SQLite file, which has one writer at a time.
    pub(crate) turns: Turns,
    /// How long others are waited for, when it is not as long as usual.
    wait_ms: Option<u32>,
    /// The file that was opened.
    file: Option<FileIdentity>,
    latest_moment: LatestMoment,
    clock: Clock,
}

/// Connections that nobody uses. The one that was used last is lent first.
#[derive(Debug)]
pub(crate) struct Idle(Mutex<Vec<Connection>>);

impl Idle {
    fn pop(&self) -> Option<Connection> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).pop()
    }

    pub fn push(&self, connection: Connection) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(connection);
    }
}

/// What tells a file from another one that is put in its place.
pub(crate) type FileIdentity = (u64, u64);

impl Store {
    /// Opens a database that exists; brings an older one up to date.
    pub fn open(url: Url) -> Result<Self> {
        Self::opened(url, None)
    }

    /// The same for a visitor who must not be in the way: waits no longer than this for other writers, and for a server
    /// that does not answer not much longer.
    pub fn open_patient(url: Url, wait_ms: u32) -> Result<Self> {
        Self::opened(url, Some(wait_ms))
    }

    fn opened(url: Url, wait_ms: Option<u32>) -> Result<Self> {
        if let Url::Sqlite(path) = &url
            && path.metadata().map_or(true, |file| file.is_file() && file.len() == 0)
        {
            return Err(Error::Missing(url.to_string()));
        }
        let mut connection = connect(&url, false, wait_ms)?;
        match migrate::applied(&mut connection, &url)? {
            0 => return Err(Error::Missing(url.to_string())),
            version if version < migrate::known_version() => migrate::bring_up_to_date(&mut connection, &url)?,
            _ => {}
        }
        if let Some(wait_ms) = wait_ms {
            connection.wait_at_most(wait_ms)?;
        }
        Ok(Self::over(url, connection, wait_ms))
    }

    /// Opens a database, making it when there is none.
    pub fn create(url: Url) -> Result<Self> {
        if let Url::Sqlite(path) = &url
            && let Some(directory) = path.parent().filter(|directory| !directory.as_os_str().is_empty())
        {
            make_private(directory).map_err(|error| Error::ReadOnly(format!("{}: {error}", directory.display())))?;
        }
        let new = matches!(&url, Url::Sqlite(path) if !path.exists());
        let mut connection = connect(&url, true, None)?;
        if let Url::Sqlite(path) = &url
            && new
        {
            keep_private(path);
        }
        migrate::bring_up_to_date(&mut connection, &url)?;
        Ok(Self::over(url, connection, None))
    }

    /// Whether what was opened is still what stands there, and still what this program knows: for one who stays long.
    pub fn is_as_opened(&self) -> Result<bool> {
        if !self.is_in_place() {
            return Ok(false);
        }
        let at = migrate::applied(&mut *self.lend()?, &self.url)?;
        Ok(at == migrate::known_version())
    }

    /// Whether the file that was opened is still the one that stands there.
    pub fn is_in_place(&self) -> bool {
        identity_at(&self.url) == self.file
    }

    /// Closes at the end of a process (see [`Connection::leave`]).
    pub fn leave(self) {
        let idle = self.idle.0.into_inner().unwrap_or_else(PoisonError::into_inner);
        idle.into_iter().for_each(Connection::leave);
    }

    fn over(url: Url, connection: Connection, wait_ms: Option<u32>) -> Self {
        let file = identity_at(&url);
        let idle = Idle(Mutex::new(vec![connection]));
        let (latest_moment, clock) = (LatestMoment::default(), Clock::system());
        Self { url, idle, turns: Turns::default(), wait_ms, file, latest_moment, clock }
    }

    /// The same database, with its rows dated by this clock.
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

    /// A consistent view of one moment.
    pub fn read(&self, tenant: TenantId) -> Result<Reader<'_>> {
        let mut lent = self.lend()?;
        lent.open = Some(Opened::Read);
        lent.begin_read()?;
        Ok(Reader { lent, tenant, agent: None, queries: 0, resolved: Some(HashMap::new()) })
    }

    /// Asks one question about the database itself, or about which tenants there are. One alone is of one moment by itself.
    pub fn ask_unscoped<T: FromRow>(&self, sql: &str, params: &[Param<'_>]) -> Result<Vec<T>> {
        self.lend()?.query(sql, params)
    }

    /// Fails unless the database answers a query.
    pub fn ping(&self) -> Result<()> {
        self.ask_unscoped::<(i64,)>("select 1", &[]).map(drop)
    }

    /// A write transaction. Dropped without `commit`, it leaves no trace.
    pub fn write(&self, tenant: TenantId) -> Result<Writer<'_>> {
        let lent = match self.engine() {
            Engine::Sqlite => self.join()?,
            Engine::Postgres => {
                let mut lent = self.lend()?;
                lent.open = Some(Opened::Write);
                lent.begin_write()?;
                lent
            }
        };
        // Read after the lock was had: what is written later is also dated later.
        let now = self.now();
        let (ids, unindexed) = (Cell::new(0), Vec::new());
        Ok(Writer {
            reader: Reader { lent, tenant, agent: None, queries: 0, resolved: None },
            now,
            mode: WriteMode::CHECKED,
            ids,
            rings: false,
            is_done: false,
            unindexed,
        })
    }

    /// Runs a transaction that ends with a commit in the mode that takes the fewest round trips. On PostgreSQL that is the
    /// optimistic one; if a precondition failed there, nothing was committed, and the transaction runs again with queries
    /// that check first. SQLite has no round trips to save.
    pub fn optimistically_first<T, E>(
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

    /// Whether several independent writes are better made in one transaction. SQLite has one writer at a time, and commits
    /// once. On PostgreSQL a transaction that locks several rows could deadlock with another one.
    pub fn prefers_one_transaction(&self) -> bool {
        self.engine() == Engine::Sqlite
    }

    /// Waits for the turn to write to a SQLite file, and begins: in a transaction of its own, or behind those whose work is not
    /// committed yet.
    fn join(&self) -> Result<Lent<'_>> {
        let came = Instant::now();
        let patience = self.wait_ms.map_or(PATIENCE, |wait_ms| Duration::from_millis(wait_ms.into()));
        match self.turns.begin(patience)? {
            Turn::First(company) => {
                let mut lent = self.lend_begun(came).inspect_err(|_| self.turns.end())?;
                lent.open = Some(Opened::Shared(company));
                Ok(lent)
            }
            Turn::Next(mut connection, company) => match company.begin(&mut connection) {
                Ok(()) => Ok(Lent { connection: Some(connection), open: Some(Opened::Shared(company)), store: self }),
                Err(error) => {
                    self.turns.take_back(&self.idle, connection, company);
                    Err(error)
                }
            },
        }
    }

    /// A connection to a SQLite file with a transaction. Whoever must not be in the way has waited since they came.
    fn lend_begun(&self, came: Instant) -> Result<Lent<'_>> {
        let mut lent = self.lend()?;
        if let Some(wait_ms) = self.wait_ms {
            let waited_ms = u32::try_from(came.elapsed().as_millis()).unwrap_or(u32::MAX);
            lent.wait_at_most(wait_ms.saturating_sub(waited_ms))?;
        }
        lent.begin_write()?;
        Ok(lent)
    }

    /// Does work that writes very much, on this thread, and lets SQLite's log grow meanwhile. What is in the log is
    /// brought into the file beside that work: at its end the disk would be waited for with nothing else to do.
    pub fn while_much_is_written<T>(&self, work: impl FnOnce() -> T) -> Result<T> {
        self.lend()?.keep_long_log(true)?;
        let (done, is_done) = mpsc::channel::<()>();
        let outcome = thread::scope(|scope| {
            scope.spawn(|| self.shorten_log_until(is_done));
            let outcome = work();
            drop(done);
            outcome
        });
        self.lend()?.keep_long_log(false)?;
        Ok(outcome)
    }

    /// Brings the log into the file as it grows. That it fails is nobody's loss: whoever closes last does it too.
    fn shorten_log_until(&self, is_done: Receiver<()>) {
        let Url::Sqlite(path) = &self.url else { return };
        let mut brought = 0;
        while is_done.recv_timeout(LOG_LOOK) == Err(RecvTimeoutError::Timeout) {
            let length = log_bytes(path);
            if length >= brought + LOG_PIECE {
                brought = length;
                let _ = self.connect().and_then(|mut connection| connection.batch("pragma wal_checkpoint(passive)"));
            }
        }
    }

    fn lend(&self) -> Result<Lent<'_>> {
        let connection = loop {
            match self.idle.pop() {
                Some(connection) if connection.is_open() => break connection,
                // When a server goes away, all that rest are of no use.
                Some(_) => {}
                None => break self.connect()?,
            }
        };
        Ok(Lent { connection: Some(connection), open: None, store: self })
    }

    /// One more connection, as patient as the others.
    pub(crate) fn connect(&self) -> Result<Connection> {
        let mut connection = connect(&self.url, false, self.wait_ms)?;
        self.wait_ms.map_or(Ok(()), |wait_ms| connection.wait_at_most(wait_ms))?;
        Ok(connection)
    }

    pub(crate) fn latest_moment(&self) -> &LatestMoment {
        &self.latest_moment
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

/// Who can open the file is trusted, so a new one is for its owner only; so is a folder made for it.
#[cfg(unix)]
pub(crate) fn make_private(directory: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)
}

#[cfg(not(unix))]
pub(crate) fn make_private(directory: &Path) -> std::io::Result<()> {
    std::fs::create_dir_all(directory)
}

#[cfg(unix)]
pub(crate) fn keep_private(file: &Path) {
    use std::os::unix::fs::PermissionsExt;
    // A file system without permissions keeps what it has.
    let _ = std::fs::set_permissions(file, std::fs::Permissions::from_mode(0o600));
}

#[cfg(not(unix))]
pub(crate) fn keep_private(_: &Path) {}

fn connect(url: &Url, create: bool, wait_ms: Option<u32>) -> Result<Connection> {
    let hurried = wait_ms.map(|_| url.answering_within(VISITOR_SECONDS));
    match hurried.as_ref().unwrap_or(url) {
        Url::Sqlite(path) => Connection::sqlite(path, create),
        Url::Postgres(url) if create => Connection::postgres_made(url),
        Url::Postgres(url) => Connection::postgres(url),
    }
}

/// How a transaction checks its preconditions. Only the store looks into it: its functions choose the statements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WriteMode {
    /// The writes check their own preconditions and fail as [`Error::PreconditionFailed`], which saves the round trips of
    /// the queries that would check them first.
    pub(crate) optimistic: bool,
}

impl WriteMode {
    /// Queries check the preconditions before anything is written.
    pub const CHECKED: Self = Self { optimistic: false };
    const OPTIMISTIC: Self = Self { optimistic: true };
}

/// A connection that goes back to its store, out of any transaction.
#[derive(Debug)]
struct Lent<'a> {
    connection: Option<Connection>,
    /// The transaction that was begun and not yet committed.
    open: Option<Opened>,
    store: &'a Store,
}

#[derive(Debug)]
enum Opened {
    Read,
    Write,
    /// Of a SQLite file, with the work of those who came before.
    Shared(Company),
}

impl Lent<'_> {
    /// The connection and the company of one whose work is done, where there is company.
    fn leave_shared(&mut self) -> Option<(Connection, Company)> {
        match self.open.take() {
            Some(Opened::Shared(company)) => Some((self.connection.take()?, company)),
            open => {
                self.open = open;
                None
            }
        }
    }
}

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        if let Some(mut connection) = self.connection.take() {
            match self.open.take() {
                Some(Opened::Read) => connection.end_read(),
                Some(Opened::Write) => connection.rollback(),
                Some(Opened::Shared(company)) => {
                    return self.store.turns.take_back(&self.store.idle, connection, company);
                }
                None => {}
            }
            self.store.idle.push(connection);
        }
    }
}

impl Deref for Lent<'_> {
    type Target = Connection;
    #[expect(clippy::expect_used, reason = "taken only by drop")]
    fn deref(&self) -> &Connection {
        self.connection.as_ref().expect("a lent connection is there until it is dropped")
    }
}

impl DerefMut for Lent<'_> {
    #[expect(clippy::expect_used, reason = "taken only by drop")]
    fn deref_mut(&mut self) -> &mut Connection {
        self.connection.as_mut().expect("a lent connection is there until it is dropped")
    }
}

/// How often questions that are answered side by side begin anew. Whoever asks something else each time is answered the plain way.
const ROUNDS_MAX: usize = 5;

/// Reads, scoped to one tenant.
#[derive(Debug)]
pub struct Reader<'a> {
    lent: Lent<'a>,
    pub tenant: TenantId,
    /// The agent that asks; people and the program itself are not restricted.
    agent: Option<Id<kind::Agent>>,
    /// Questions asked so far.
    queries: u64,
    /// What references were found to name: at one moment it stays so. Whoever writes looks each time.
    pub(crate) resolved: Option<HashMap<(kind::Kind, String), Uuid>>,
}

impl Reader<'_> {
    pub fn engine(&self) -> Engine {
        self.lent.engine()
    }

    /// The time now. A question that is to be of one time reads it once.
    pub fn now(&self) -> Time {
        self.lent.store.now()
    }

    /// Answers views on behalf of an agent: some views restrict what an agent may read.
    #[must_use]
    pub fn on_behalf_of(self, agent: Option<Id<kind::Agent>>) -> Self {
        Self { agent, ..self }
    }

    /// The agent that asks, if it is an agent.
    pub fn asking_agent(&self) -> Option<Id<kind::Agent>> {
        self.agent
    }

    /// Runs a query. `?1` is the tenant, always: a text that does not use it is refused.
    pub fn query<T: FromRow>(&mut self, sql: &str, params: &[Param<'_>]) -> Result<Vec<T>> {
        self.queries += 1;
        self.lent.query(sql, &scoped(self.tenant, sql, params)?)
    }

    /// Says that a question will be asked. Where that is a round trip it travels with the next one. Who writes does not: what is
    /// asked after a write is to see it.
    pub fn expect(&mut self, sql: &str, params: &[Param<'_>]) -> Result<()> {
        if self.resolved.is_some() {
            self.lent.expect(sql, &scoped(self.tenant, sql, params)?);
        }
        Ok(())
    }

    /// Answers questions that do not wait for each other. Where a question is a round trip, each goes on as far as it can, then what
    /// all of them miss is asked at once, and they begin anew, knowing more.
    pub fn side_by_side<T>(&mut self, questions: &[impl Fn(&mut Self) -> Result<T>]) -> Result<Vec<T>> {
        let mut answers: Vec<Option<T>> = questions.iter().map(|_| None).collect();
        let is_worth_it = self.resolved.is_some() && self.engine() == Engine::Postgres;
        for _ in 0..if is_worth_it { ROUNDS_MAX } else { 0 } {
            for (question, answer) in questions.iter().zip(&mut answers).filter(|(_, answer)| answer.is_none()) {
                self.lent.set_deferring(true);
                let outcome = question(self);
                // Whatever it says: it went by something that it does not know.
                let is_unfinished = self.lent.has_deferred();
                self.lent.set_deferring(false);
                if !is_unfinished {
                    *answer = Some(outcome?);
                }
            }
            if answers.iter().all(Option::is_some) {
                break;
            }
            self.lent.ask_expected()?;
        }
        let rest = questions.iter().zip(answers);
        rest.map(|(question, answer)| answer.map_or_else(|| question(self), Ok)).collect()
    }

    /// The first row, if there is one. `?1` is the tenant.
    pub fn one<T: FromRow>(&mut self, sql: &str, params: &[Param<'_>]) -> Result<Option<T>> {
        Ok(self.query(sql, params)?.into_iter().next())
    }

    /// One number that is always there, such as a count. `?1` is the tenant.
    pub fn count(&mut self, sql: &str, params: &[Param<'_>]) -> Result<i64> {
        Ok(self.one::<(i64,)>(sql, params)?.map_or(0, |(count,)| count))
    }

    /// How many questions were asked in this transaction: what a question costs should not grow with what it finds.
    pub fn queries(&self) -> u64 {
        self.queries
    }

    /// Asks something that may fail without taking the rest of the transaction with it, as PostgreSQL otherwise has it.
    pub fn attempt<T>(&mut self, question: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        self.begin_attempt()?;
        let outcome = question(self);
        self.end_attempt(outcome)
    }

    /// Begins an attempt. What ends it is [`Reader::end_attempt`], whatever came out.
    pub(crate) fn begin_attempt(&mut self) -> Result<()> {
        match self.engine() {
            Engine::Sqlite => Ok(()),
            // Travels with what is asked next.
            Engine::Postgres => self.lent.post("savepoint attempt", &[]),
        }
    }

    pub(crate) fn end_attempt<T>(&mut self, outcome: Result<T>) -> Result<T> {
        if self.engine() == Engine::Postgres {
            match &outcome {
                Ok(_) => self.lent.post("release savepoint attempt", &[])?,
                Err(_) => self.lent.batch("rollback to savepoint attempt; release savepoint attempt")?,
            }
        }
        outcome
    }

    /// Runs a query about the database itself, or about which tenants there are: the few without a tenant.
    pub fn query_unscoped<T: FromRow>(&mut self, sql: &str, params: &[Param<'_>]) -> Result<Vec<T>> {
        self.lent.query(sql, params)
    }
}

fn scoped<'a>(tenant: TenantId, sql: &str, params: &'a [Param<'a>]) -> Result<Vec<Param<'a>>> {
    require_tenant(sql)?;
    Ok(std::iter::once(Param::Uuid(tenant.uuid())).chain(params.iter().cloned()).collect())
}

/// Reads and writes in one transaction, at one time.
#[derive(Debug)]
pub struct Writer<'a> {
    reader: Reader<'a>,
    pub now: Time,
    pub mode: WriteMode,
    /// Ids made so far.
    ids: Cell<i64>,
    /// Whether workers are to hear of it.
    rings: bool,
    /// Whether all of it happened already, by one statement.
    is_done: bool,
    /// Bodies whose words are not in SQLite's index yet: their numbers, and the words.
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
    /// Runs a write and says how many rows it changed. `?1` is the tenant.
    pub fn execute(&mut self, sql: &str, params: &[Param<'_>]) -> Result<u64> {
        let scoped = scoped(self.tenant, sql, params)?;
        self.reader.lent.execute(sql, &scoped)
    }

    /// A write whose answer nobody needs (see [`Connection::post`]). `?1` is the tenant.
    pub fn post(&mut self, sql: &str, params: &[Param<'_>]) -> Result<()> {
        let scoped = scoped(self.tenant, sql, params)?;
        self.reader.lent.post(sql, &scoped)
    }

    /// Asks something that changes what it answers, and needs nothing else in its transaction: where nothing came before it,
    /// PostgreSQL is spared the transaction around it. When it answers something, nothing may come after it. `?1` is the tenant.
    pub(crate) fn query_at_once<T: FromRow>(&mut self, sql: &str, params: &[Param<'_>]) -> Result<Vec<T>> {
        let scoped = scoped(self.tenant, sql, params)?;
        let lent = &mut self.reader.lent;
        let is_alone = lent.take_back_begin();
        let rows = lent.query(sql, &scoped).map_err(|error| match error {
            // It was sent, and nobody says what became of it.
            Error::Unreachable(why) if is_alone => Error::Unsettled(why),
            error => error,
        })?;
        self.is_done = is_alone && !rows.is_empty();
        if is_alone && rows.is_empty() {
            lent.begin_write()?;
        }
        Ok(rows)
    }

    /// Inserts a row of SQLite and says its number. `?1` is the tenant.
    pub(crate) fn insert_numbered(&mut self, sql: &str, params: &[Param<'_>]) -> Result<i64> {
        self.execute(sql, params)?;
        self.reader.lent.last_number().ok_or_else(|| Error::Database("rows have no numbers here".into()))
    }

    /// A write of a whole row, which holds its tenant itself.
    pub(crate) fn post_row(&mut self, sql: &str, params: &[Param<'_>]) -> Result<()> {
        self.reader.lent.post(sql, params)
    }

    /// The same, saying how many rows it changed.
    pub(crate) fn execute_row(&mut self, sql: &str, params: &[Param<'_>]) -> Result<u64> {
        self.reader.lent.execute(sql, params)
    }

    /// The same for a new row (see [`Connection::post_beside`]).
    pub(crate) fn post_new_row(&mut self, sql: impl Into<Cow<'static, str>>, params: &[Param<'_>]) -> Result<()> {
        self.reader.lent.post_beside(sql.into(), params)
    }

    /// A plain insert or update of rows that its neighbours neither touch nor look at. `?1` is the tenant.
    pub fn post_beside(&mut self, sql: &'static str, params: &[Param<'_>]) -> Result<()> {
        let scoped = scoped(self.tenant, sql, params)?;
        self.reader.lent.post_beside(Cow::Borrowed(sql), &scoped)
    }

    /// The same, without which nothing else of the transaction happens either: it fails as
    /// [`Error::PreconditionFailed`] unless a row is changed. `?1` is the tenant.
    pub fn post_changing(&mut self, sql: &'static str, params: &[Param<'_>]) -> Result<()> {
        let scoped = scoped(self.tenant, sql, params)?;
        self.reader.lent.post_changing(Cow::Borrowed(sql), &scoped, 1)
    }

    /// A look without which nothing of the transaction happens: it fails as [`Error::PreconditionFailed`] unless
    /// it finds a row, which it may lock. `?1` is the tenant.
    pub fn post_finding(&mut self, sql: &'static str, params: &[Param<'_>]) -> Result<()> {
        let scoped = scoped(self.tenant, sql, params)?;
        self.reader.lent.post_finding(sql, &scoped)
    }

    /// The same for whole rows, which hold their tenant themselves, each of which must be new.
    pub(crate) fn post_new_rows(&mut self, sql: Cow<'static, str>, params: &[Param<'_>], rows: usize) -> Result<()> {
        self.reader.lent.post_changing(sql, params, rows)
    }

    pub fn commit(mut self) -> Result<()> {
        self.index_the_rest()?;
        let lent = &mut self.reader.lent;
        if let Some((connection, company)) = lent.leave_shared() {
            lent.store.turns.keep(&lent.store.idle, connection, company)?;
            if self.rings
                && let Url::Sqlite(path) = lent.store.url()
            {
                queue_notify::ring_beside(path);
            }
            return Ok(());
        }
        if !self.is_done {
            lent.post(COMMIT, &[])?;
        }
        if self.rings {
            // After the commit and in the same round trip. Inside the transaction it would make every commit wait
            // for the one before.
            lent.post(&queue_notify::RING, &[])?;
        }
        lent.flush()?;
        lent.open = None;
        Ok(())
    }

    /// Lets waiting workers look at the queue once this is committed.
    pub fn ring(&mut self) {
        self.rings = true;
    }

    /// A new id. Ids of one transaction sort in the order they were made.
    pub fn new_id<K>(&self) -> Id<K> {
        let made = self.ids.replace(self.ids.get() + 1);
        Id::new(Time::from_micros(self.now.micros() + made))
    }

    /// Reads the clock again, once a lock was had that others may have held.
    pub fn after_waiting(&mut self) {
        self.now = self.now.max(self.reader.now());
    }

    /// The locking clause on PostgreSQL; nothing on SQLite, which has one writer at a time and knows no row locks.
    pub fn row_lock<'c>(&self, clause: &'c str) -> &'c str {
        match self.engine() {
            Engine::Sqlite => "",
            Engine::Postgres => clause,
        }
    }

    /// SQL suffix that locks the selected rows and waits for those that another transaction holds.
    pub fn for_update(&self) -> &'static str {
        self.row_lock(" for update")
    }

    /// SQL suffix that locks the selected rows and skips those that another transaction holds.
    pub fn skip_locked(&self) -> &'static str {
        self.row_lock(" for update skip locked")
    }

    /// Locks rows against other writers and waits for those that another transaction holds. `query` selects their ids.
    /// SQLite has one writer anyway.
    pub fn lock_rows(&mut self, query: &str, params: &[Param<'_>]) -> Result<()> {
        if self.engine() == Engine::Postgres {
            self.query::<(Uuid,)>(&format!("{query} for update"), params)?;
        }
        Ok(())
    }

    /// Lets one transaction at a time record what was observed of a session: matching looks at many rows, and two agents
    /// must never get one spawn. SQLite has one writer anyway.
    pub fn lock_session(&mut self, session: &str) -> Result<()> {
        if self.engine() == Engine::Postgres {
            self.query::<(bool,)>(
                "select pg_advisory_xact_lock(hashtextextended(cast(cast(?1 as uuid) as text) || ?2, 2)) is null",
                params![session],
            )?;
            self.after_waiting();
        }
        Ok(())
    }

    /// Lets one transaction at a time change the catalog's graphs (replacements, links, pins), whose rules look
    /// at many rows. SQLite has one writer anyway.
    pub fn lock_catalog(&mut self) -> Result<()> {
        if self.engine() == Engine::Postgres {
            self.query::<(bool,)>(
                "select pg_advisory_xact_lock(hashtextextended(cast(cast(?1 as uuid) as text), 1)) is null",
                &[],
            )?;
            self.after_waiting();
        }
        Ok(())
    }

    /// Waits until no transaction relies on which versions are live, and lets none begin to until this one ends. To be called
    /// before looking for the queue items that a change to versions or pins blocks or frees. SQLite has one writer anyway.
    pub fn lock_live_versions(&mut self) -> Result<()> {
        if self.engine() == Engine::Postgres {
            self.query::<(bool,)>(&format!("select pg_advisory_xact_lock({LIVE_VERSIONS}) is null"), &[])?;
            self.after_waiting();
        }
        Ok(())
    }

    /// Lets no transaction change which versions are live until this one ends, so that whoever archives a version sees the item
    /// that this transaction queues because of it. To be called before the query that looks for the version.
    pub fn share_live_versions(&mut self) -> Result<()> {
        if self.engine() == Engine::Postgres {
            self.post(&format!("select pg_advisory_xact_lock_shared({LIVE_VERSIONS})"), &[])?;
        }
        Ok(())
    }
}

/// The advisory lock of a tenant's live versions.
const LIVE_VERSIONS: &str = "hashtextextended(cast(cast(?1 as uuid) as text), 3)";

//! Group commit: concurrent writers of one process share a commit of a SQLite file.
//!
//! On commit, SQLite writes every page that the transaction changed. Concurrent writers mostly change the same pages:
//! the ends of the event log, of the registry and of their indexes. So a writer that finishes while others wait leaves
//! its transaction open for the next one, and the last writer commits for the whole group. Each writer works in its own
//! savepoint and can roll back only its own changes. No writer returns before the commit of everything it wrote and
//! read. If that commit fails, each writer retries on its own (decision 32).

use std::{
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use crate::{
    connection::Connection,
    error::{Error, Result},
    store::IdleConnections,
};

/// Maximum age of an open group. It limits how long the first writer waits for its commit, and how long this process
/// keeps other processes from writing.
const GROUP_OPEN_MAX: Duration = Duration::from_millis(10);
/// Separates the changes of one writer from those of the other writers in its group.
const SAVEPOINT: &str = "savepoint member";
const RELEASE_SAVEPOINT: &str = "release savepoint member";
const ROLLBACK_SAVEPOINT: &str = "rollback to savepoint member; release savepoint member";

/// Lets one writer of this process at a time use the SQLite file.
#[derive(Debug)]
pub(crate) struct WriteLock {
    state: Mutex<State>,
    released: Condvar,
    group_open_max: Duration,
}

impl Default for WriteLock {
    fn default() -> Self {
        Self { state: Mutex::default(), released: Condvar::new(), group_open_max: GROUP_OPEN_MAX }
    }
}

#[derive(Debug, Default)]
struct State {
    is_held: bool,
    waiting: usize,
    /// A transaction that the last writer left open. It is present only while another writer waits.
    open_group: Option<(Connection, CommitGroup)>,
}

/// The result of [`WriteLock::acquire`]. The holder releases the lock with [`WriteLock::commit`],
/// [`WriteLock::rollback`] or [`WriteLock::release`].
#[derive(Debug)]
pub(crate) enum AcquiredLock {
    /// The caller has to begin a transaction.
    NewGroup(CommitGroup),
    /// The caller joins an open transaction.
    OpenGroup(Connection, CommitGroup),
}

/// The writers whose changes are in the same uncommitted transaction.
#[derive(Debug)]
pub(crate) struct CommitGroup {
    opened_at: Instant,
    members: usize,
    outcome: Arc<GroupOutcome>,
}

/// The result of a commit. The error is the reason why it failed.
type CommitResult = std::result::Result<(), String>;

/// The result of the group's commit. Members wait for it.
#[derive(Debug, Default)]
struct GroupOutcome {
    result: Mutex<Option<CommitResult>>,
    has_result: Condvar,
}

impl WriteLock {
    /// Acquires the lock, or fails as busy when the timeout expires.
    pub fn acquire(&self, timeout: Duration) -> Result<AcquiredLock> {
        let started = Instant::now();
        let mut state = lock(&self.state);
        state.waiting += 1;
        // Test the lock before the timeout: an open group may have been handed over to this very writer.
        while state.is_held {
            let Some(remaining) = timeout.checked_sub(started.elapsed()) else {
                state.waiting -= 1;
                return Err(Error::Busy("other writers in this process hold the database".into()));
            };
            state = self.released.wait_timeout(state, remaining).unwrap_or_else(PoisonError::into_inner).0;
        }
        state.waiting -= 1;
        state.is_held = true;
        Ok(match state.open_group.take() {
            Some((connection, group)) => AcquiredLock::OpenGroup(connection, group),
            None => {
                AcquiredLock::NewGroup(CommitGroup { opened_at: Instant::now(), members: 0, outcome: Arc::default() })
            }
        })
    }

    /// Commits the changes of one writer. Either commits the whole group, or hands the group over to a waiting writer
    /// and waits until the group is committed.
    pub fn commit(&self, idle: &IdleConnections, mut connection: Connection, mut group: CommitGroup) -> Result<()> {
        if let Err(error) = group.release_member(&mut connection) {
            self.rollback(idle, connection, group);
            return Err(error);
        }
        group.members += 1;
        let outcome = Arc::clone(&group.outcome);
        match self.hand_over(connection, group) {
            Some((connection, group)) => self.commit_group(idle, connection, group),
            None => outcome.wait(),
        }
    }

    /// Rolls back the changes of one writer and commits the earlier changes of its group, because the error that this
    /// writer reports may refer to rows of the group.
    pub fn rollback(&self, idle: &IdleConnections, mut connection: Connection, group: CommitGroup) {
        // On some errors, such as a full disk, SQLite rolls back the whole transaction. Then all members retry.
        if group.members == 0 || connection.batch(ROLLBACK_SAVEPOINT).is_err() {
            connection.rollback();
            self.return_connection(idle, connection);
            group.set_result(Err("another writer caused the shared transaction to roll back".into()));
        } else {
            // The members receive this result through `set_result`.
            let _ = self.commit_group(idle, connection, group);
        }
    }

    pub fn release(&self) {
        lock(&self.state).is_held = false;
        self.released.notify_one();
    }

    /// Hands the open transaction over to a waiting writer. Returns it if no writer waits or the group is too old.
    fn hand_over(&self, connection: Connection, group: CommitGroup) -> Option<(Connection, CommitGroup)> {
        let mut state = lock(&self.state);
        if state.waiting == 0 || group.opened_at.elapsed() >= self.group_open_max {
            return Some((connection, group));
        }
        state.open_group = Some((connection, group));
        state.is_held = false;
        self.released.notify_one();
        None
    }

    fn commit_group(&self, idle: &IdleConnections, mut connection: Connection, group: CommitGroup) -> Result<()> {
        let outcome = connection.commit();
        if outcome.is_err() {
            connection.rollback();
        }
        self.return_connection(idle, connection);
        group.set_result(outcome.as_ref().copied().map_err(ToString::to_string));
        outcome
    }

    fn return_connection(&self, idle: &IdleConnections, connection: Connection) {
        // Return the connection first, so that the next holder of the lock gets this connection.
        idle.push(connection);
        self.release();
    }
}

impl CommitGroup {
    /// Begins a savepoint, unless this is the only writer of the transaction.
    pub fn begin_member(&self, connection: &mut Connection) -> Result<()> {
        if self.members == 0 { Ok(()) } else { connection.post(SAVEPOINT, &[]) }
    }

    /// Keeps the changes of this writer, unless SQLite has rolled back the transaction.
    fn release_member(&self, connection: &mut Connection) -> Result<()> {
        if !connection.is_in_transaction() {
            return Err(Error::Database("SQLite rolled back the transaction".into()));
        }
        if self.members == 0 { Ok(()) } else { connection.post(RELEASE_SAVEPOINT, &[]) }
    }

    fn set_result(self, result: CommitResult) {
        *lock(&self.outcome.result) = Some(result);
    }
}

impl Drop for CommitGroup {
    fn drop(&mut self) {
        let GroupOutcome { result, has_result } = &*self.outcome;
        // If there is no result, the writer that had to commit has panicked.
        lock(result)
            .get_or_insert_with(|| Err("the writer that should have committed the shared transaction failed".into()));
        has_result.notify_all();
    }
}

impl GroupOutcome {
    fn wait(&self) -> Result<()> {
        let known = self.has_result.wait_while(lock(&self.result), |result| result.is_none());
        match &*known.unwrap_or_else(PoisonError::into_inner) {
            Some(Ok(())) => Ok(()),
            Some(Err(why)) => Err(Error::WriteConflict(why.clone())),
            None => Err(Error::WriteConflict("the outcome of the shared transaction is unknown".into())),
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::{
        sync::mpsc::{Receiver, Sender, channel},
        thread::{self, ScopedJoinHandle},
    };

    use trackway_domain::Id;
    use uuid::Uuid;

    use super::*;
    use crate::{
        params,
        store::{Store, Writer},
        url::Url,
    };

    /// A database whose writers the test controls step by step.
    struct TestDatabase {
        store: Store,
        _folder: tempfile::TempDir,
    }

    impl TestDatabase {
        fn new(wait_ms: Option<u32>) -> Self {
            let folder = tempfile::tempdir().unwrap();
            let url = Url::sqlite(folder.path().join("shared.db"));
            let store = Store::create(url.clone()).unwrap();
            let mut store = wait_ms.map_or(store, |wait_ms| Store::open_with_timeout(url, wait_ms).unwrap());
            // Do not depend on the speed of the machine.
            store.write_lock.group_open_max = Duration::MAX;
            Self { store, _folder: folder }
        }

        #[expect(clippy::disallowed_methods, reason = "tests the transaction layer itself")]
        fn write(&self) -> Result<Writer<'_>> {
            self.store.write(Id::from(Uuid::nil()))
        }

        /// Starts a writer that inserts a tenant, waits for [`WriterThread::proceed`], and then runs `then`.
        fn spawn_writer<'scope, 'env>(
            &'env self,
            scope: &'scope thread::Scope<'scope, 'env>,
            name: &'static str,
            then: impl FnOnce(Writer<'_>) -> Result<()> + Send + 'scope,
        ) -> WriterThread<'scope> {
            let ((began, has_begun), (go, may_go)) = (channel(), channel());
            let thread = scope.spawn(move || {
                let mut write = self.write()?;
                write.execute_row(
                    "insert into tenants (id, name, created_at) values (?1, ?2, 0)",
                    params![Uuid::now_v7(), name],
                )?;
                began.send(()).unwrap();
                may_go.recv().unwrap();
                then(write)
            });
            WriterThread { thread, has_begun, go }
        }

        fn wait_for_waiters(&self, count: usize) {
            while lock(&self.store.write_lock.state).waiting < count {
                thread::yield_now();
            }
        }

        fn names(&self) -> Vec<String> {
            let names = self.store.query_unscoped::<(String,)>("select name from tenants order by id", &[]).unwrap();
            names.into_iter().map(|(name,)| name).collect()
        }
    }

    fn commit(write: Writer<'_>) -> Result<()> {
        write.commit()
    }

    struct WriterThread<'scope> {
        thread: ScopedJoinHandle<'scope, Result<()>>,
        has_begun: Receiver<()>,
        go: Sender<()>,
    }

    impl WriterThread<'_> {
        fn wait_until_begun(&self) {
            self.has_begun.recv().unwrap();
        }

        fn proceed(&self) {
            self.go.send(()).unwrap();
        }

        fn join(self) -> thread::Result<Result<()>> {
            self.thread.join()
        }
    }

    /// Lets the first writer finish while the second one waits for the lock. The second one then joins the transaction
    /// of the first and runs `second`. Returns the results of both.
    fn run_two_writers(
        database: &TestDatabase,
        second: impl FnOnce(Writer<'_>) -> Result<()> + Send,
    ) -> [thread::Result<Result<()>>; 2] {
        thread::scope(|scope| {
            let first = database.spawn_writer(scope, "first", commit);
            first.wait_until_begun();
            let second = database.spawn_writer(scope, "second", second);
            database.wait_for_waiters(1);
            first.proceed();
            second.wait_until_begun();
            assert!(!first.thread.is_finished(), "no writer returns before the commit");
            assert_eq!(database.names(), [""; 0], "uncommitted rows are invisible");
            second.proceed();
            [first.join(), second.join()]
        })
    }

    #[test]
    fn concurrent_writers_share_one_commit() {
        let database = TestDatabase::new(None);
        let [first, second] = run_two_writers(&database, commit);
        assert!(matches!((first, second), (Ok(Ok(())), Ok(Ok(())))));
        assert_eq!(database.names(), ["first", "second"]);
    }

    #[test]
    fn rollback_of_one_writer_keeps_the_writes_of_others() {
        let database = TestDatabase::new(None);
        let [first, second] = run_two_writers(&database, |write| {
            drop(write);
            Err(Error::PreconditionFailed("injected by the test".into()))
        });
        assert!(matches!((first, second), (Ok(Ok(())), Ok(Err(Error::PreconditionFailed(_))))));
        assert_eq!(database.names(), ["first"]);
    }

    #[test]
    fn panic_of_one_writer_keeps_the_writes_of_others() {
        let database = TestDatabase::new(None);
        let [first, second] = run_two_writers(&database, |_| panic!("injected by the test"));
        assert!(matches!((first, second), (Ok(Ok(())), Err(_))));
        assert_eq!(database.names(), ["first"]);
        database.write().unwrap().commit().unwrap();
    }

    #[test]
    fn full_rollback_by_sqlite_fails_all_writers_of_the_group() {
        let database = TestDatabase::new(None);
        // SQLite does this by itself when the disk is full.
        let [first, second] = run_two_writers(&database, |mut write| {
            write.execute_row("rollback", &[])?;
            Err(Error::Full("injected by the test".into()))
        });
        assert!(matches!((first, second), (Ok(Err(Error::WriteConflict(_))), Ok(Err(Error::Full(_))))));
        assert_eq!(database.names(), [""; 0]);
        database.write().unwrap().commit().unwrap();
    }

    #[test]
    fn failed_commit_fails_all_writers_of_the_group() {
        let database = TestDatabase::new(None);
        let [first, second] = run_two_writers(&database, |mut write| {
            // A foreign key that is checked, and fails, at commit.
            write.execute_row("pragma defer_foreign_keys = on", &[])?;
            write.execute_row(
                "insert into people (id, tenant_id, handle, created_at, updated_at) values (?1, ?1, 'nobody', 0, 0)",
                params![Uuid::now_v7()],
            )?;
            write.commit()
        });
        assert!(matches!((first, second), (Ok(Err(Error::WriteConflict(_))), Ok(Err(Error::Database(_))))));
        assert_eq!(database.names(), [""; 0]);
        database.write().unwrap().commit().unwrap();
    }

    #[test]
    fn writer_with_short_timeout_gives_up_without_blocking_others() {
        let database = TestDatabase::new(Some(30));
        thread::scope(|scope| {
            let first = database.spawn_writer(scope, "first", commit);
            first.wait_until_begun();
            assert!(matches!(database.write(), Err(Error::Busy(_))));
            first.proceed();
            assert!(matches!(first.join(), Ok(Ok(()))));
        });
        assert_eq!(database.names(), ["first"]);
    }

    #[test]
    fn rejected_writer_sees_the_conflicting_row_committed() {
        let database = TestDatabase::new(None);
        let [seen] = thread::scope(|scope| {
            let first = database.spawn_writer(scope, "first", commit);
            first.wait_until_begun();
            let refused = database.spawn_writer(scope, "second", |_| Err(Error::Duplicate("first".into())));
            database.wait_for_waiters(1);
            first.proceed();
            refused.wait_until_begun();
            // A waiting writer that could join the transaction.
            let third = database.spawn_writer(scope, "third", commit);
            database.wait_for_waiters(1);
            refused.proceed();
            assert!(matches!(refused.join(), Ok(Err(Error::Duplicate(_)))));
            let seen = database.names();
            third.proceed();
            assert!(matches!((first.join(), third.join()), (Ok(Ok(())), Ok(Ok(())))));
            [seen]
        });
        assert_eq!(seen, ["first"]);
        assert_eq!(database.names(), ["first", "third"]);
    }

    #[test]
    fn rolled_back_transaction_is_not_handed_over() {
        let database = TestDatabase::new(None);
        thread::scope(|scope| {
            let first = database.spawn_writer(scope, "first", |mut write| {
                // SQLite does this by itself on some read errors. The writer ignores it.
                write.execute_row("rollback", &[])?;
                write.commit()
            });
            first.wait_until_begun();
            let second = database.spawn_writer(scope, "second", commit);
            database.wait_for_waiters(1);
            first.proceed();
            second.proceed();
            assert!(matches!((first.join(), second.join()), (Ok(Err(Error::Database(_))), Ok(Ok(())))));
        });
        assert_eq!(database.names(), ["second"]);
    }

    #[test]
    fn group_stays_open_for_limited_time() {
        let write_lock = WriteLock::default();
        lock(&write_lock.state).waiting = 1;
        let is_handed_over = |opened_at: Instant| {
            let connection = Connection::sqlite(std::path::Path::new(":memory:"), true).unwrap();
            write_lock.hand_over(connection, CommitGroup { opened_at, members: 1, outcome: Arc::default() }).is_none()
        };
        assert!(is_handed_over(Instant::now() + GROUP_OPEN_MAX));
        assert!(!is_handed_over(Instant::now().checked_sub(GROUP_OPEN_MAX).unwrap()));
    }
}

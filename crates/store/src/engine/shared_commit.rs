//! Writers of one process who come to a SQLite file at once share a commit.
//!
//! SQLite writes every page that a transaction changed, and those who come at once mostly change the same ones: the ends of the
//! log, of the registry, of their indexes. So whoever is done while others wait leaves the transaction open to the next, and
//! the last one commits for all. Each has a savepoint, and takes back nothing but its own work. Nobody is answered before what
//! they did, or saw of others, is committed; when it is not, each tries again for itself (decision 32).

use std::{
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use crate::{
    connection::Connection,
    error::{Error, Result},
    store::Idle,
};

/// How long a transaction is left to the next: those whose work is in it wait, and other processes are to have their turn, too.
const LEFT_FOR: Duration = Duration::from_millis(10);
/// The work of one writer in a transaction that holds that of others.
const SAVEPOINT: &str = "savepoint member";
const KEEP: &str = "release savepoint member";
const TAKE_BACK: &str = "rollback to savepoint member; release savepoint member";

/// Whose turn it is to write.
#[derive(Debug)]
pub(crate) struct Turns {
    state: Mutex<State>,
    is_free: Condvar,
    left_for: Duration,
}

impl Default for Turns {
    fn default() -> Self {
        Self { state: Mutex::default(), is_free: Condvar::new(), left_for: LEFT_FOR }
    }
}

#[derive(Debug, Default)]
struct State {
    is_taken: bool,
    waiting: usize,
    /// The transaction that was left to whoever comes next. Somebody waits then.
    left: Option<(Connection, Company)>,
}

/// How a turn begins. It ends with [`Turns::keep`], [`Turns::take_back`] or [`Turns::end`].
#[derive(Debug)]
pub(crate) enum Turn {
    /// With a transaction that is to be begun.
    First(Company),
    /// In one with the work of others.
    Next(Connection, Company),
}

/// Those whose work is in a transaction that is not committed yet.
#[derive(Debug)]
pub(crate) struct Company {
    since: Instant,
    members: usize,
    commit: Arc<Commit>,
}

/// What became of a transaction: it happened, or why it did not.
type Outcome = std::result::Result<(), String>;

/// The same, once it is known.
#[derive(Debug, Default)]
struct Commit {
    outcome: Mutex<Option<Outcome>>,
    is_known: Condvar,
}

impl Turns {
    /// Waits for a turn, no longer than this.
    pub fn begin(&self, patience: Duration) -> Result<Turn> {
        let came = Instant::now();
        let mut state = locked(&self.state);
        state.waiting += 1;
        // Whoever finds the turn free takes it, however long they waited: what was left may have been left to them.
        while state.is_taken {
            let Some(rest) = patience.checked_sub(came.elapsed()) else {
                state.waiting -= 1;
                return Err(Error::Busy("others in this process are writing".into()));
            };
            state = self.is_free.wait_timeout(state, rest).unwrap_or_else(PoisonError::into_inner).0;
        }
        state.waiting -= 1;
        state.is_taken = true;
        Ok(match state.left.take() {
            Some((connection, company)) => Turn::Next(connection, company),
            None => Turn::First(Company { since: Instant::now(), members: 0, commit: Arc::default() }),
        })
    }

    /// Keeps what a writer did: commits it, or waits until somebody else has.
    pub fn keep(&self, idle: &Idle, mut connection: Connection, mut company: Company) -> Result<()> {
        if let Err(error) = company.keep(&mut connection) {
            self.take_back(idle, connection, company);
            return Err(error);
        }
        company.members += 1;
        let commit = Arc::clone(&company.commit);
        match self.leave(connection, company) {
            Some((connection, company)) => self.commit(idle, connection, company),
            None => commit.wait(),
        }
    }

    /// Takes back what a writer did. The work of others is committed: what the writer is told may come of having seen it.
    pub fn take_back(&self, idle: &Idle, mut connection: Connection, company: Company) {
        // For want of room SQLite takes back everything by itself: then the others try again, each for themselves.
        if company.members == 0 || connection.batch(TAKE_BACK).is_err() {
            connection.rollback();
            self.end_with(idle, connection);
            company.tell(Err("the transaction failed under another writer".into()));
        } else {
            // Told to those whose work it is.
            let _ = self.commit(idle, connection, company);
        }
    }

    /// Lets the next one begin.
    pub fn end(&self) {
        locked(&self.state).is_taken = false;
        self.is_free.notify_one();
    }

    /// Leaves the transaction to whoever waits. If nobody does, or it was left long enough, it comes back.
    fn leave(&self, connection: Connection, company: Company) -> Option<(Connection, Company)> {
        let mut state = locked(&self.state);
        if state.waiting == 0 || company.since.elapsed() >= self.left_for {
            return Some((connection, company));
        }
        state.left = Some((connection, company));
        state.is_taken = false;
        self.is_free.notify_one();
        None
    }

    fn commit(&self, idle: &Idle, mut connection: Connection, company: Company) -> Result<()> {
        let outcome = connection.commit();
        if outcome.is_err() {
            connection.rollback();
        }
        self.end_with(idle, connection);
        company.tell(outcome.as_ref().copied().map_err(ToString::to_string));
        outcome
    }

    fn end_with(&self, idle: &Idle, connection: Connection) {
        // In this order, so that the next one is lent it.
        idle.push(connection);
        self.end();
    }
}

impl Company {
    /// Marks where the work of a writer begins. Who is alone in a transaction needs no mark in it.
    pub fn begin(&self, connection: &mut Connection) -> Result<()> {
        if self.members == 0 { Ok(()) } else { connection.post(SAVEPOINT, &[]) }
    }

    /// Keeps the work since then, if it is still there.
    fn keep(&self, connection: &mut Connection) -> Result<()> {
        if !connection.is_in_transaction() {
            return Err(Error::Database("SQLite took back the transaction".into()));
        }
        if self.members == 0 { Ok(()) } else { connection.post(KEEP, &[]) }
    }

    fn tell(self, outcome: Outcome) {
        *locked(&self.commit.outcome) = Some(outcome);
    }
}

impl Drop for Company {
    fn drop(&mut self) {
        let Commit { outcome, is_known } = &*self.commit;
        // Whoever was to tell panicked, and the transaction went with them.
        locked(outcome).get_or_insert_with(|| Err("whoever was to commit failed".into()));
        is_known.notify_all();
    }
}

impl Commit {
    fn wait(&self) -> Result<()> {
        let known = self.is_known.wait_while(locked(&self.outcome), |outcome| outcome.is_none());
        match &*known.unwrap_or_else(PoisonError::into_inner) {
            Some(Ok(())) => Ok(()),
            Some(Err(why)) => Err(Error::Again(why.clone())),
            None => Err(Error::Again("nobody said what became of it".into())),
        }
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
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

    /// A database, and one who listens to what those who write in it are at.
    struct Scene {
        store: Store,
        _folder: tempfile::TempDir,
    }

    impl Scene {
        fn new(wait_ms: Option<u32>) -> Self {
            let folder = tempfile::tempdir().unwrap();
            let url = Url::sqlite(folder.path().join("shared.db"));
            let store = Store::create(url.clone()).unwrap();
            let mut store = wait_ms.map_or(store, |wait_ms| Store::open_patient(url, wait_ms).unwrap());
            // However long this machine takes to go on.
            store.turns.left_for = Duration::MAX;
            Self { store, _folder: folder }
        }

        #[expect(clippy::disallowed_methods, reason = "what is below the write path")]
        fn begin(&self) -> Result<Writer<'_>> {
            self.store.write(Id::from(Uuid::nil()))
        }

        /// One who writes a name when told to, and does with it what is said.
        fn writes<'scope, 'env>(
            &'env self,
            scope: &'scope thread::Scope<'scope, 'env>,
            name: &'static str,
            then: impl FnOnce(Writer<'_>) -> Result<()> + Send + 'scope,
        ) -> Hand<'scope> {
            let ((began, has_begun), (go, may_go)) = (channel(), channel());
            let thread = scope.spawn(move || {
                let mut write = self.begin()?;
                write.execute_row(
                    "insert into tenants (id, name, created_at) values (?1, ?2, 0)",
                    params![Uuid::now_v7(), name],
                )?;
                began.send(()).unwrap();
                may_go.recv().unwrap();
                then(write)
            });
            Hand { thread, has_begun, go }
        }

        fn until_waiting(&self, count: usize) {
            while locked(&self.store.turns.state).waiting < count {
                thread::yield_now();
            }
        }

        fn names(&self) -> Vec<String> {
            let names = self.store.ask_unscoped::<(String,)>("select name from tenants order by id", &[]).unwrap();
            names.into_iter().map(|(name,)| name).collect()
        }
    }

    fn commits(write: Writer<'_>) -> Result<()> {
        write.commit()
    }

    struct Hand<'scope> {
        thread: ScopedJoinHandle<'scope, Result<()>>,
        has_begun: Receiver<()>,
        go: Sender<()>,
    }

    impl Hand<'_> {
        fn has_begun(&self) {
            self.has_begun.recv().unwrap();
        }

        fn goes_on(&self) {
            self.go.send(()).unwrap();
        }

        fn ended(self) -> thread::Result<Result<()>> {
            self.thread.join()
        }
    }

    /// The first is done while the second waits, which then does what is said. Answers how each of them ended.
    fn first_and_second(
        scene: &Scene,
        second: impl FnOnce(Writer<'_>) -> Result<()> + Send,
    ) -> [thread::Result<Result<()>>; 2] {
        thread::scope(|scope| {
            let first = scene.writes(scope, "first", commits);
            first.has_begun();
            let second = scene.writes(scope, "second", second);
            scene.until_waiting(1);
            first.goes_on();
            second.has_begun();
            assert!(!first.thread.is_finished(), "nobody is told that it happened before it did");
            assert_eq!(scene.names(), [""; 0], "and nobody else sees it");
            second.goes_on();
            [first.ended(), second.ended()]
        })
    }

    #[test]
    fn who_comes_at_once_is_committed_at_once() {
        let scene = Scene::new(None);
        let [first, second] = first_and_second(&scene, commits);
        assert!(matches!((first, second), (Ok(Ok(())), Ok(Ok(())))));
        assert_eq!(scene.names(), ["first", "second"]);
    }

    #[test]
    fn who_takes_something_back_takes_back_nothing_of_others() {
        let scene = Scene::new(None);
        let [first, second] = first_and_second(&scene, |write| {
            drop(write);
            Err(Error::PreconditionFailed("on second thoughts".into()))
        });
        assert!(matches!((first, second), (Ok(Ok(())), Ok(Err(Error::PreconditionFailed(_))))));
        assert_eq!(scene.names(), ["first"]);
    }

    #[test]
    fn who_panics_takes_nothing_of_others_along() {
        let scene = Scene::new(None);
        let [first, second] = first_and_second(&scene, |_| panic!("as this test wants it"));
        assert!(matches!((first, second), (Ok(Ok(())), Err(_))));
        assert_eq!(scene.names(), ["first"]);
        scene.begin().unwrap().commit().unwrap();
    }

    #[test]
    fn when_everything_was_taken_back_nobody_is_told_that_it_happened() {
        let scene = Scene::new(None);
        // What SQLite does by itself when the disk is full.
        let [first, second] = first_and_second(&scene, |mut write| {
            write.execute_row("rollback", &[])?;
            Err(Error::Full("as this test wants it".into()))
        });
        assert!(matches!((first, second), (Ok(Err(Error::Again(_))), Ok(Err(Error::Full(_))))));
        assert_eq!(scene.names(), [""; 0]);
        scene.begin().unwrap().commit().unwrap();
    }

    #[test]
    fn when_a_commit_fails_nobody_is_told_that_it_happened() {
        let scene = Scene::new(None);
        let [first, second] = first_and_second(&scene, |mut write| {
            // A reference that is looked at when everything is there, and then is not.
            write.execute_row("pragma defer_foreign_keys = on", &[])?;
            write.execute_row(
                "insert into people (id, tenant_id, handle, created_at, updated_at) values (?1, ?1, 'nobody', 0, 0)",
                params![Uuid::now_v7()],
            )?;
            write.commit()
        });
        assert!(matches!((first, second), (Ok(Err(Error::Again(_))), Ok(Err(Error::Database(_))))));
        assert_eq!(scene.names(), [""; 0]);
        scene.begin().unwrap().commit().unwrap();
    }

    #[test]
    fn who_has_little_patience_gives_up_and_is_in_nobodys_way() {
        let scene = Scene::new(Some(30));
        thread::scope(|scope| {
            let first = scene.writes(scope, "first", commits);
            first.has_begun();
            assert!(matches!(scene.begin(), Err(Error::Busy(_))));
            first.goes_on();
            assert!(matches!(first.ended(), Ok(Ok(()))));
        });
        assert_eq!(scene.names(), ["first"]);
    }

    #[test]
    fn who_was_refused_for_what_another_did_finds_it_there() {
        let scene = Scene::new(None);
        let [seen] = thread::scope(|scope| {
            let first = scene.writes(scope, "first", commits);
            first.has_begun();
            let refused = scene.writes(scope, "second", |_| Err(Error::Taken("first".into())));
            scene.until_waiting(1);
            first.goes_on();
            refused.has_begun();
            // Somebody who could go on with the transaction.
            let third = scene.writes(scope, "third", commits);
            scene.until_waiting(1);
            refused.goes_on();
            assert!(matches!(refused.ended(), Ok(Err(Error::Taken(_)))));
            let seen = scene.names();
            third.goes_on();
            assert!(matches!((first.ended(), third.ended()), (Ok(Ok(())), Ok(Ok(())))));
            [seen]
        });
        assert_eq!(seen, ["first"]);
        assert_eq!(scene.names(), ["first", "third"]);
    }

    #[test]
    fn a_transaction_that_is_gone_is_left_to_nobody() {
        let scene = Scene::new(None);
        thread::scope(|scope| {
            let first = scene.writes(scope, "first", |mut write| {
                // What SQLite does by itself when it cannot read, of which the writer made nothing.
                write.execute_row("rollback", &[])?;
                write.commit()
            });
            first.has_begun();
            let second = scene.writes(scope, "second", commits);
            scene.until_waiting(1);
            first.goes_on();
            second.goes_on();
            assert!(matches!((first.ended(), second.ended()), (Ok(Err(Error::Database(_))), Ok(Ok(())))));
        });
        assert_eq!(scene.names(), ["second"]);
    }

    #[test]
    fn a_transaction_is_left_so_long_and_no_longer() {
        let turns = Turns::default();
        locked(&turns.state).waiting = 1;
        let is_left = |since: Instant| {
            let connection = Connection::sqlite(std::path::Path::new(":memory:"), true).unwrap();
            turns.leave(connection, Company { since, members: 1, commit: Arc::default() }).is_none()
        };
        assert!(is_left(Instant::now() + LEFT_FOR));
        assert!(!is_left(Instant::now().checked_sub(LEFT_FOR).unwrap()));
    }
}

//! Notifies waiting workers of changes of the queue, after the commit.
//!
//! PostgreSQL has `listen` and `notify`. On SQLite, the writing process writes to a small file beside the database,
//! which the workers watch. Only waiting workers create this file, so a queue without workers costs one failed `open`.
//! A notification is lost if the process dies between its commit and the notification. So workers also poll at
//! intervals.

use std::{
    io::Write,
    path::{Path, PathBuf},
    sync::LazyLock,
    time::Duration,
};

use futures_util::future::poll_fn;
use tokio::runtime::Runtime;
use tokio_postgres::{AsyncMessage, Client};

use crate::{
    engine::failover,
    error::{Error, Result},
    url::Url,
};

/// The channel of `listen` and `notify`.
const CHANNEL: &str = "trackway_queue";
/// Key of an advisory lock. All listeners of a database hold it in shared mode.
const LISTENER_LOCK: i64 = 0x5452_5759_0001;

/// Notifies the listeners of a PostgreSQL database. PostgreSQL serialises commits with notifications across the server.
/// So this statement skips the notification if there is no listener, that is, if the advisory lock is free. Its commit
/// does not wait for the disk.
pub(crate) static NOTIFY: LazyLock<String> = LazyLock::new(|| {
    format!(
        "select set_config('synchronous_commit', 'off', true), pg_notify('{CHANNEL}', '') where not pg_try_advisory_xact_lock({LISTENER_LOCK})"
    )
});

/// The file that workers of a SQLite database watch.
fn notify_file(database: &Path) -> PathBuf {
    let mut name = database.as_os_str().to_owned();
    name.push("-bell");
    name.into()
}

/// Notifies the workers that watch the file of a SQLite database.
pub(crate) fn notify_file_watchers(database: &Path) {
    if let Ok(mut file) = std::fs::OpenOptions::new().write(true).open(notify_file(database)) {
        // Ignore errors: workers also poll.
        let _ = file.write_all(b"!");
    }
}

/// Waits for changes of the queue. It receives all notifications since its creation.
#[derive(Debug)]
pub struct Listener(Source);

#[derive(Debug)]
enum Source {
    File(file::FileWatch),
    Postgres(Box<Postgres>),
}

impl Listener {
    /// Starts to listen for changes of the queue.
    pub fn connect(url: &Url) -> Result<Self> {
        Ok(Self(match url {
            Url::Sqlite(path) => Source::File(file::FileWatch::new(&notify_file(path))?),
            Url::Postgres(url) => Source::Postgres(Box::new(Postgres::connect(url)?)),
        }))
    }

    /// Waits for a notification. Returns false if the timeout expires, and an error if the connection is lost.
    pub fn wait(&mut self, timeout: Duration) -> Result<bool> {
        match &mut self.0 {
            Source::File(watch) => watch.wait(timeout),
            Source::Postgres(postgres) => postgres.wait(timeout),
        }
    }
}

struct Postgres {
    runtime: Runtime,
    notifications: tokio::sync::mpsc::Receiver<()>,
    /// Dropping the client closes the connection.
    _client: Client,
}

impl std::fmt::Debug for Postgres {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Postgres").finish_non_exhaustive()
    }
}

impl Postgres {
    fn connect(url: &str) -> Result<Self> {
        let runtime = failover::single_thread_runtime()?;
        // A capacity of one suffices: several unread notifications mean the same as one.
        let (sender, notifications) = tokio::sync::mpsc::channel(1);
        let client = runtime.block_on(async {
            let (client, mut connection) = failover::connect(url).await?;
            tokio::spawn(async move {
                while let Some(Ok(message)) = poll_fn(|context| connection.poll_message(context)).await {
                    if matches!(message, AsyncMessage::Notification(_)) {
                        let _ = sender.try_send(());
                    }
                }
            });
            client.batch_execute(&format!("listen {CHANNEL}; select pg_advisory_lock_shared({LISTENER_LOCK})")).await?;
            Ok::<_, Error>(client)
        })?;
        Ok(Self { runtime, notifications, _client: client })
    }

    fn wait(&mut self, timeout: Duration) -> Result<bool> {
        let notifications = &mut self.notifications;
        self.runtime.block_on(async {
            match tokio::time::timeout(timeout, notifications.recv()).await {
                Ok(Some(())) => Ok(true),
                Ok(None) => Err(Error::Unreachable("the server closed the connection".into())),
                Err(_) => Ok(false),
            }
        })
    }
}

#[cfg(any(target_os = "linux", target_os = "android"))]
mod file {
    use std::{mem::MaybeUninit, os::fd::OwnedFd, path::Path, time::Duration};

    use rustix::{
        event::{PollFd, PollFlags, Timespec, poll},
        fs::inotify,
        io::Errno,
    };

    use crate::error::{Error, Result};

    /// Waits for a write to the file, by inotify.
    #[derive(Debug)]
    pub struct FileWatch(OwnedFd);

    impl FileWatch {
        pub fn new(path: &Path) -> Result<Self> {
            let failed = |error: std::io::Error| Error::ReadOnly(format!("{}: {error}", path.display()));
            std::fs::OpenOptions::new().append(true).create(true).open(path).map_err(failed)?;
            let events = inotify::init(inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK)
                .map_err(|error| failed(error.into()))?;
            inotify::add_watch(&events, path, inotify::WatchFlags::MODIFY).map_err(|error| failed(error.into()))?;
            Ok(Self(events))
        }

        pub fn wait(&mut self, timeout: Duration) -> Result<bool> {
            let timeout = Timespec::try_from(timeout).ok();
            let was_written = match poll(&mut [PollFd::new(&self.0, PollFlags::IN)], timeout.as_ref()) {
                Ok(ready) => ready > 0,
                Err(Errno::INTR) => true,
                Err(error) => return Err(Error::Database(format!("cannot wait for changes of the queue: {error}"))),
            };
            let mut space = [MaybeUninit::uninit(); 1024];
            let mut events = inotify::Reader::new(&self.0, &mut space);
            while events.next().is_ok() {}
            Ok(was_written)
        }
    }
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
mod file {
    use std::{
        path::{Path, PathBuf},
        thread,
        time::{Duration, Instant, SystemTime},
    };

    use crate::error::{Error, Result};

    const POLL_INTERVAL: Duration = Duration::from_millis(20);

    /// Polls the modification time of the file.
    #[derive(Debug)]
    pub struct FileWatch {
        path: PathBuf,
        last_modified: Option<SystemTime>,
    }

    impl FileWatch {
        pub fn new(path: &Path) -> Result<Self> {
            let failed = |error: std::io::Error| Error::ReadOnly(format!("{}: {error}", path.display()));
            std::fs::OpenOptions::new().append(true).create(true).open(path).map_err(failed)?;
            Ok(Self { path: path.to_owned(), last_modified: None })
        }

        pub fn wait(&mut self, timeout: Duration) -> Result<bool> {
            let deadline = Instant::now() + timeout;
            loop {
                let modified = std::fs::metadata(&self.path).and_then(|file| file.modified()).ok();
                if modified != self.last_modified {
                    self.last_modified = modified;
                    return Ok(true);
                }
                if Instant::now() >= deadline {
                    return Ok(false);
                }
                thread::sleep(POLL_INTERVAL.min(timeout));
            }
        }
    }
}

//! The bell that workers wait at: whoever changes the queue rings it after the commit.
//!
//! PostgreSQL has `listen` and `notify`. Beside a SQLite file lies a small file which is written to: nobody but waiting
//! workers makes it, so that a queue without them costs one failed look-up. A ring may get lost with the process that
//! should have rung: who waits looks again from time to time.

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

/// What PostgreSQL calls the bell.
const CHANNEL: &str = "trackway_queue";
/// Whoever waits at the bell of a server holds this number.
const WAITING: i64 = 0x5452_5759_0001;

/// Rings the bell of a server if anybody waits there, which is so when the number cannot be had alone. A ring is a commit,
/// one at a time on the whole server: it is not made for nobody, and nobody waits until a disk has it.
pub(crate) static RING: LazyLock<String> = LazyLock::new(|| {
    format!(
        "select set_config('synchronous_commit', 'off', true), pg_notify('{CHANNEL}', '') where not pg_try_advisory_xact_lock({WAITING})"
    )
});

/// Where workers of a SQLite file wait.
fn beside(database: &Path) -> PathBuf {
    let mut name = database.as_os_str().to_owned();
    name.push("-bell");
    name.into()
}

/// Rings the bell of a SQLite file, if anybody ever waited there.
pub(crate) fn ring_beside(database: &Path) {
    if let Ok(mut bell) = std::fs::OpenOptions::new().write(true).open(beside(database)) {
        // A ring that fails is one that gets lost.
        let _ = bell.write_all(b"!");
    }
}

/// Somebody who waits at the bell. Rings since it was made are not missed.
#[derive(Debug)]
pub struct Listener(At);

#[derive(Debug)]
enum At {
    File(file::Watch),
    Postgres(Box<Postgres>),
}

impl Listener {
    /// Begins to listen for changes of the queue of a database.
    pub fn at(url: &Url) -> Result<Self> {
        Ok(Self(match url {
            Url::Sqlite(path) => At::File(file::Watch::new(&beside(path))?),
            Url::Postgres(url) => At::Postgres(Box::new(Postgres::listening(url)?)),
        }))
    }

    /// Waits for a ring, no longer than this. Says whether it rang; an error means that the connection is gone.
    pub fn wait(&mut self, at_most: Duration) -> Result<bool> {
        match &mut self.0 {
            At::File(watch) => watch.wait(at_most),
            At::Postgres(postgres) => postgres.wait(at_most),
        }
    }
}

struct Postgres {
    runtime: Runtime,
    rings: tokio::sync::mpsc::Receiver<()>,
    /// The connection ends when this is dropped.
    _client: Client,
}

impl std::fmt::Debug for Postgres {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Postgres").finish_non_exhaustive()
    }
}

impl Postgres {
    fn listening(url: &str) -> Result<Self> {
        let runtime = failover::small_runtime()?;
        // One place: a ring while another is not heard yet says nothing new.
        let (ring, rings) = tokio::sync::mpsc::channel(1);
        let client = runtime.block_on(async {
            let (client, mut connection) = failover::connect(url).await?;
            tokio::spawn(async move {
                while let Some(Ok(message)) = poll_fn(|context| connection.poll_message(context)).await {
                    if matches!(message, AsyncMessage::Notification(_)) {
                        let _ = ring.try_send(());
                    }
                }
            });
            client.batch_execute(&format!("listen {CHANNEL}; select pg_advisory_lock_shared({WAITING})")).await?;
            Ok::<_, Error>(client)
        })?;
        Ok(Self { runtime, rings, _client: client })
    }

    fn wait(&mut self, at_most: Duration) -> Result<bool> {
        let rings = &mut self.rings;
        self.runtime.block_on(async {
            match tokio::time::timeout(at_most, rings.recv()).await {
                Ok(Some(())) => Ok(true),
                Ok(None) => Err(Error::Unreachable("the connection was closed".into())),
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

    /// Told by the kernel when the file is written to.
    #[derive(Debug)]
    pub struct Watch(OwnedFd);

    impl Watch {
        pub fn new(bell: &Path) -> Result<Self> {
            let at = |error: std::io::Error| Error::ReadOnly(format!("{}: {error}", bell.display()));
            std::fs::OpenOptions::new().append(true).create(true).open(bell).map_err(at)?;
            let events = inotify::init(inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK)
                .map_err(|error| at(error.into()))?;
            inotify::add_watch(&events, bell, inotify::WatchFlags::MODIFY).map_err(|error| at(error.into()))?;
            Ok(Self(events))
        }

        pub fn wait(&mut self, at_most: Duration) -> Result<bool> {
            let timeout = Timespec::try_from(at_most).ok();
            let rang = match poll(&mut [PollFd::new(&self.0, PollFlags::IN)], timeout.as_ref()) {
                Ok(ready) => ready > 0,
                Err(Errno::INTR) => true,
                Err(error) => return Err(Error::Database(format!("waiting for the queue: {error}"))),
            };
            let mut space = [MaybeUninit::uninit(); 1024];
            let mut events = inotify::Reader::new(&self.0, &mut space);
            while events.next().is_ok() {}
            Ok(rang)
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

    /// How often the file is looked at.
    const GLANCE: Duration = Duration::from_millis(20);

    /// Looks at when the file was last written.
    #[derive(Debug)]
    pub struct Watch {
        bell: PathBuf,
        seen: Option<SystemTime>,
    }

    impl Watch {
        pub fn new(bell: &Path) -> Result<Self> {
            let at = |error: std::io::Error| Error::ReadOnly(format!("{}: {error}", bell.display()));
            std::fs::OpenOptions::new().append(true).create(true).open(bell).map_err(at)?;
            Ok(Self { bell: bell.to_owned(), seen: None })
        }

        pub fn wait(&mut self, at_most: Duration) -> Result<bool> {
            let until = Instant::now() + at_most;
            loop {
                let written = std::fs::metadata(&self.bell).and_then(|file| file.modified()).ok();
                if written != self.seen {
                    self.seen = written;
                    return Ok(true);
                }
                if Instant::now() >= until {
                    return Ok(false);
                }
                thread::sleep(GLANCE.min(at_most));
            }
        }
    }
}

//! The hook daemon: a process that keeps a database open for hooks.
//!
//! Opening a database costs a hook several times what the event does. So the first hook, once it has written its own event,
//! starts a daemon, and later hooks hand their events over on a socket. The daemon is never needed: a hook that gets no
//! answer writes its event alone. The daemon also reads what a client wrote into its transcripts after the last event. It
//! exits after a while without events, and when the program or the database is no longer the one that it started with.

use std::{
    collections::HashMap,
    fs::{self, File},
    io::{Read, Write},
    net::Shutdown,
    os::unix::{
        fs::MetadataExt,
        net::{UnixListener, UnixStream},
    },
    path::{Path, PathBuf},
    process::{Command, ExitCode, Stdio},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};
use trackway_actions::Core;
use trackway_domain::words::Memory;

use super::{Arrival, Destination, EVENT_MAX, HookLog, PATIENCE_MS, Place, spool};
use crate::{client::Clients, digest::digest};

/// The hidden command that runs a daemon.
pub const COMMAND: &str = "keep-open-for-hooks";

/// The variable that turns daemons off.
pub const SWITCH: &str = "TRACKWAY_HOOK_KEEPER";

/// How long a hook waits for an answer before it takes its event alone.
const ANSWER_WITHIN: Duration = Duration::from_secs(1);
/// How long a keeper stays without an event.
const STAYS: Duration = Duration::from_mins(10);
/// How often it looks whether it should go, and how long a session is quiet before its transcripts are read on.
const LOOKS_EVERY: Duration = Duration::from_secs(5);
/// Events that are taken at the same time.
const AT_ONCE: usize = 4;
/// Says that an event was taken; what is said to the agent comes after.
const TAKEN: u8 = b'+';

/// What stands in the log for the name of an event.
const LOGGED_AS: &str = "keeper";

/// How to reach the daemon of a database.
#[derive(Debug)]
pub struct Daemon {
    socket: PathBuf,
}

/// What came of asking a daemon.
#[derive(Debug)]
pub enum Asked {
    /// It wrote the event, and this is what to print.
    Answered(Option<String>),
    /// There is none.
    Absent,
    /// There is one, but it did not write the event.
    Failed,
}

/// What goes over the socket before the event.
#[derive(Debug, Serialize, Deserialize)]
struct Envelope<A> {
    program: String,
    arrival: A,
}

impl Daemon {
    /// The daemon for what this user does in a database; none where daemons are turned off.
    pub fn of(destination: &impl Destination, user_folder: &Path) -> Option<Self> {
        if std::env::var(SWITCH).is_ok_and(|switch| switch == "off") {
            return None;
        }
        let whose = format!("{}\n{}\n{}", destination.url().whole(), destination.tenant(), destination.user());
        let name = format!("{}.socket", &digest(whose.as_bytes())[..16]);
        Some(Self { socket: user_folder.join("keepers").join(name) })
    }

    /// Hands an event over.
    pub(super) fn ask(&self, arrival: &Arrival) -> Asked {
        match UnixStream::connect(&self.socket) {
            Err(_) => Asked::Absent,
            Ok(stream) => handed_over(stream, arrival).map_or(Asked::Failed, Asked::Answered),
        }
    }

    /// Starts a daemon for later hooks. Of many hooks that try at the same time one succeeds: the one that gets the lock hands
    /// it on to the daemon.
    pub fn start(&self, destination: &impl Destination) {
        let Some(folder) = self.socket.parent() else { return };
        if spool::make_private(folder).is_err() {
            return;
        }
        let Ok(lock) = File::create(self.socket.with_extension("lock")) else { return };
        let Ok(program) = std::env::current_exe() else { return };
        if lock.try_lock().is_err() {
            return;
        }
        let mut command = Command::new(program);
        command.arg(COMMAND).arg(&self.socket).current_dir("/");
        destination.hand_on(&mut command);
        let started = command.stdin(Stdio::from(lock)).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        // A failure costs the next hook a few milliseconds, and nothing else.
        drop(started);
    }
}

fn handed_over(mut stream: UnixStream, arrival: &Arrival) -> std::io::Result<Option<String>> {
    stream.set_read_timeout(Some(ANSWER_WITHIN))?;
    stream.set_write_timeout(Some(ANSWER_WITHIN))?;
    let mut sent = serde_json::to_vec(&Envelope { program: program(), arrival })?;
    sent.push(b'\n');
    sent.extend_from_slice(&arrival.bytes);
    stream.write_all(&sent)?;
    stream.shutdown(Shutdown::Write)?;
    let mut answer = Vec::with_capacity(16 << 10);
    stream.read_to_end(&mut answer)?;
    match answer.split_first() {
        Some((&TAKEN, said)) => Ok(Some(String::from_utf8_lossy(said).into_owned()).filter(|said| !said.is_empty())),
        _ => Err(std::io::ErrorKind::UnexpectedEof.into()),
    }
}

/// Tells this program from one that was put in its place.
fn program() -> String {
    std::env::current_exe()
        .and_then(fs::metadata)
        .map(|file| format!("{} {} {} {}", file.dev(), file.ino(), file.mtime_nsec(), file.size()))
        .unwrap_or_default()
}

/// Runs a daemon until no events come any more.
pub fn run<D: Destination>(
    socket: PathBuf,
    user_folder: PathBuf,
    clients: Clients,
    find: impl FnOnce() -> Result<D, String>,
) -> ExitCode {
    // What ends the session it was started in does not end this one.
    let _ = rustix::process::setsid();
    let opened = find().and_then(|destination| {
        let core = destination.open_patient(PATIENCE_MS).map_err(|error| error.to_string())?;
        Ok((core, Place::of(&destination, user_folder.clone(), clients)))
    });
    let (core, place) = match opened {
        Ok(opened) => opened,
        Err(why) => {
            HookLog::of_user(user_folder).write(LOGGED_AS, &why);
            return ExitCode::FAILURE;
        }
    };
    // The lock is ours: what stands there was left behind.
    let _ = fs::remove_file(&socket);
    let Ok(listener) = UnixListener::bind(&socket) else { return ExitCode::FAILURE };
    let came = AtomicUsize::new(0);
    let busy = AtomicUsize::new(0);
    let resting = Mutex::default();
    let running = Arc::new(Running { core, place, program: program(), socket, came, busy, resting });
    for _ in 0..AT_ONCE {
        let (running, listener) = (Arc::clone(&running), listener.try_clone());
        thread::spawn(move || {
            for stream in listener.iter().flat_map(UnixListener::incoming).flatten() {
                running.came.fetch_add(1, Ordering::SeqCst);
                running.busy.fetch_add(1, Ordering::SeqCst);
                running.catch_panic(|| running.serve(stream));
                running.busy.fetch_sub(1, Ordering::SeqCst);
            }
        });
    }
    running.wait();
    running.go()
}

/// A session that may send no more events.
#[derive(Debug)]
struct Resting {
    since: Instant,
    client: String,
    /// The event upon which its transcripts are read on.
    event: String,
}

/// A daemon that has its database open.
struct Running {
    core: Core,
    place: Place,
    program: String,
    socket: PathBuf,
    came: AtomicUsize,
    busy: AtomicUsize,
    /// Sessions that may send no more events: since when, their client, and the event upon which they are read on.
    resting: Mutex<HashMap<String, Resting>>,
}

impl Running {
    /// Logs a panic instead of ending.
    fn catch_panic(&self, work: impl FnOnce()) {
        if std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)).is_err() {
            self.place.log.write(LOGGED_AS, "the keeper failed in a way that should not be");
        }
    }

    /// Takes one event. Who sent it and gets no answer takes it alone.
    fn serve(&self, mut stream: UnixStream) {
        let mut bytes = Vec::new();
        let read = stream
            .set_read_timeout(Some(ANSWER_WITHIN))
            .and_then(|()| (&mut stream).take(EVENT_MAX + (64 << 10)).read_to_end(&mut bytes));
        let Some(end) = read.ok().and_then(|_| bytes.iter().position(|byte| *byte == b'\n')) else { return };
        let envelope = serde_json::from_slice::<Envelope<Arrival>>(&bytes[..end]);
        let Some(Envelope { mut arrival, program }) = envelope.ok().filter(|sent| !sent.program.is_empty()) else {
            return;
        };
        if program != self.program || !self.core.store().is_as_opened().unwrap_or(false) {
            drop(stream);
            self.go();
        }
        arrival.bytes = bytes.split_off(end + 1);
        let Some(client) = self.place.clients.named(Some(&arrival.client)) else { return };
        let Ok(event) = client.hook_event(&arrival.bytes) else { return };
        let outcome = self.place.apply(&self.core, client, &event, &arrival);
        let said = self.place.settle(client, &event, &arrival, outcome).unwrap_or_default();
        let mut answer = vec![TAKEN];
        answer.extend_from_slice(said.as_bytes());
        // Who is gone took it alone: what an event says is written once, however often it comes.
        let _ = stream.write_all(&answer);
        if event.may_be_last() {
            let resting =
                Resting { since: Instant::now(), client: arrival.client, event: client.read_on_event(&event) };
            self.resting().insert(event.session, resting);
        }
    }

    fn resting(&self) -> MutexGuard<'_, HashMap<String, Resting>> {
        self.resting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads what was written into the transcripts of sessions after their last event.
    fn read_on(&self) {
        let is_quiet = |_: &String, resting: &mut Resting| resting.since.elapsed() >= LOOKS_EVERY;
        let quiet: Vec<Resting> = self.resting().extract_if(is_quiet).map(|(_, resting)| resting).collect();
        if quiet.is_empty() || !self.core.store().is_as_opened().unwrap_or(false) {
            return;
        }
        for Resting { client: name, event, .. } in quiet {
            let Some(client) = self.place.clients.named(Some(&name)) else { continue };
            let bytes = event.into_bytes();
            let Ok(event) = client.hook_event(&bytes) else { continue };
            let arrival = Arrival { at: self.core.now(), memory: Memory::Off, client: name, token: None, bytes };
            let outcome = self.place.apply(&self.core, client, &event, &arrival);
            self.place.settle(client, &event, &arrival, outcome);
        }
    }

    /// Until there is nothing to stay for.
    fn wait(&self) {
        let (mut last, mut seen) = (Instant::now(), 0);
        loop {
            thread::sleep(LOOKS_EVERY);
            let came = self.came.load(Ordering::SeqCst);
            if came != seen || self.busy.load(Ordering::SeqCst) > 0 {
                (last, seen) = (Instant::now(), came);
            }
            if last.elapsed() > STAYS || !self.socket.exists() || !self.core.store().is_in_place() {
                return;
            }
            self.catch_panic(|| self.read_on());
        }
    }

    /// Leaves. Events that are being taken at this moment are taken alone by those who sent them.
    fn go(&self) -> ! {
        let _ = fs::remove_file(&self.socket);
        std::process::exit(0)
    }
}

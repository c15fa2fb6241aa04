//! The hook daemon: a process that keeps a database open for hooks.
//!
//! Opening a database takes a hook several times as long as writing an event. So the first hook writes its own event
//! and then starts a daemon, and later hooks send their events to the daemon over a socket. Hooks also work without a
//! daemon: a hook that gets no answer writes its event itself. The daemon also reads the lines that a client writes to
//! its transcripts after the last event. It exits after a period without events, and when the program or the database
//! file was replaced.

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
use trackway_domain::enums::Memory;

use super::{BUSY_TIMEOUT_MS, Destination, EVENT_MAX, EventWriter, HookLog, ReceivedEvent, spool};
use crate::{client::Clients, digest::digest};

/// The hidden command that runs a daemon.
pub const COMMAND: &str = "keep-open-for-hooks";

/// The environment variable that turns off daemons.
pub const SWITCH: &str = "TRACKWAY_HOOK_DAEMON";
/// The earlier name of [`SWITCH`], which still works.
const FORMER_SWITCH: &str = "TRACKWAY_HOOK_KEEPER";

/// The time that a hook waits for the daemon's answer. After this time, the hook writes its event itself.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(1);
/// The time without events after which a daemon exits.
const IDLE_LIMIT: Duration = Duration::from_mins(10);
/// The interval at which the daemon checks whether to exit. Also the time that a session must be quiet before the
/// daemon reads the rest of its transcripts.
const CHECK_INTERVAL: Duration = Duration::from_secs(5);
/// Threads that write events.
const WORKER_THREADS: usize = 4;
/// The first byte of an answer if the daemon wrote the event. The text for the client follows.
const EVENT_WRITTEN: u8 = b'+';

/// The daemon's name in the hook log, in place of the name of an event.
const LOG_NAME: &str = "hook-daemon";

/// The daemon of a database, which may or may not be running.
#[derive(Debug)]
pub struct Daemon {
    socket: PathBuf,
}

/// The outcome of sending an event to a daemon.
#[derive(Debug)]
pub enum DaemonReply {
    /// The daemon wrote the event. The hook should print this text.
    Answered(Option<String>),
    NotRunning,
    /// The daemon is running, but did not write the event.
    Failed,
}

/// The header that a hook sends before the event.
#[derive(Debug, Serialize, Deserialize)]
struct Envelope<A> {
    program: String,
    arrival: A,
}

impl Daemon {
    /// The daemon for one user and one tenant of a database. None if daemons are turned off.
    pub fn of(destination: &impl Destination, user_folder: &Path) -> Option<Self> {
        if [SWITCH, FORMER_SWITCH].iter().any(|name| std::env::var(name).is_ok_and(|switch| switch == "off")) {
            return None;
        }
        let identity =
            format!("{}\n{}\n{}", destination.url().with_password(), destination.tenant(), destination.user());
        let name = format!("{}.socket", &digest(identity.as_bytes())[..16]);
        Some(Self { socket: user_folder.join("keepers").join(name) })
    }

    /// Sends an event to the daemon.
    pub(super) fn send(&self, received: &ReceivedEvent) -> DaemonReply {
        match UnixStream::connect(&self.socket) {
            Err(_) => DaemonReply::NotRunning,
            Ok(stream) => send_event(stream, received).map_or(DaemonReply::Failed, DaemonReply::Answered),
        }
    }

    /// Starts a daemon for later hooks. If several hooks try at the same time, only the one with the lock succeeds. It
    /// passes the lock to the daemon as its standard input.
    pub fn start(&self, destination: &impl Destination) {
        let Some(folder) = self.socket.parent() else { return };
        if spool::create_private_folder(folder).is_err() {
            return;
        }
        let Ok(lock) = File::create(self.socket.with_extension("lock")) else { return };
        let Ok(program) = std::env::current_exe() else { return };
        if lock.try_lock().is_err() {
            return;
        }
        let mut command = Command::new(program);
        command.arg(COMMAND).arg(&self.socket).current_dir("/");
        destination.pass_to_child(&mut command);
        let started = command.stdin(Stdio::from(lock)).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        // Ignore a failure: it only makes the next hook slower.
        drop(started);
    }
}

fn send_event(mut stream: UnixStream, received: &ReceivedEvent) -> std::io::Result<Option<String>> {
    stream.set_read_timeout(Some(ANSWER_TIMEOUT))?;
    stream.set_write_timeout(Some(ANSWER_TIMEOUT))?;
    let mut sent = serde_json::to_vec(&Envelope { program: program_identity(), arrival: received })?;
    sent.push(b'\n');
    sent.extend_from_slice(&received.bytes);
    stream.write_all(&sent)?;
    stream.shutdown(Shutdown::Write)?;
    let mut answer = Vec::with_capacity(16 << 10);
    stream.read_to_end(&mut answer)?;
    match answer.split_first() {
        Some((&EVENT_WRITTEN, text)) => {
            Ok(Some(String::from_utf8_lossy(text).into_owned()).filter(|text| !text.is_empty()))
        }
        _ => Err(std::io::ErrorKind::UnexpectedEof.into()),
    }
}

/// Identifies the file of this program, so that the daemon notices when an update replaced it.
fn program_identity() -> String {
    std::env::current_exe()
        .and_then(fs::metadata)
        .map(|file| format!("{} {} {} {}", file.dev(), file.ino(), file.mtime_nsec(), file.size()))
        .unwrap_or_default()
}

/// Runs a daemon until it exits.
pub fn run<D: Destination>(
    socket: PathBuf,
    user_folder: PathBuf,
    clients: Clients,
    find: impl FnOnce() -> Result<D, String>,
) -> ExitCode {
    // Leave the session of the terminal, so that closing the terminal does not end the daemon.
    let _ = rustix::process::setsid();
    let opened = find().and_then(|destination| {
        let core = destination.open_with_busy_timeout(BUSY_TIMEOUT_MS).map_err(|error| error.to_string())?;
        Ok((core, EventWriter::new(&destination, user_folder.clone(), clients)))
    });
    let (core, writer) = match opened {
        Ok(opened) => opened,
        Err(reason) => {
            HookLog::of_user(user_folder).write(LOG_NAME, &reason);
            return ExitCode::FAILURE;
        }
    };
    // This process has the lock, so an existing socket belongs to a daemon that crashed.
    let _ = fs::remove_file(&socket);
    let Ok(listener) = UnixListener::bind(&socket) else { return ExitCode::FAILURE };
    let event_count = AtomicUsize::new(0);
    let busy = AtomicUsize::new(0);
    let quiet_sessions = Mutex::default();
    let running = Arc::new(RunningDaemon {
        core,
        writer,
        program: program_identity(),
        socket,
        event_count,
        busy,
        quiet_sessions,
    });
    for _ in 0..WORKER_THREADS {
        let (running, listener) = (Arc::clone(&running), listener.try_clone());
        thread::spawn(move || {
            for stream in listener.iter().flat_map(UnixListener::incoming).flatten() {
                running.event_count.fetch_add(1, Ordering::SeqCst);
                running.busy.fetch_add(1, Ordering::SeqCst);
                running.catch_panic(|| running.serve(stream));
                running.busy.fetch_sub(1, Ordering::SeqCst);
            }
        });
    }
    running.wait_until_idle();
    running.exit()
}

/// Quiet sessions. The key is the name of the client and the id that the client assigned to the session.
type QuietSessions = HashMap<(String, String), QuietSession>;

/// A session that may have sent its last event.
#[derive(Debug)]
struct QuietSession {
    since: Instant,
    /// An artificial event that makes Trackway read the rest of the transcripts.
    event: String,
}

/// A running daemon with its open database.
struct RunningDaemon {
    core: Core,
    writer: EventWriter,
    program: String,
    socket: PathBuf,
    /// The number of received events.
    event_count: AtomicUsize,
    /// The number of threads that are writing an event.
    busy: AtomicUsize,
    /// Sessions that may have sent their last event, by client and session id.
    quiet_sessions: Mutex<QuietSessions>,
}

impl RunningDaemon {
    /// Runs `work`. Logs a panic instead of crashing the daemon.
    fn catch_panic(&self, work: impl FnOnce()) {
        if std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)).is_err() {
            self.writer.log.write(LOG_NAME, "internal error: the hook daemon panicked");
        }
    }

    /// Writes the event from one connection, and answers the hook. A hook without an answer writes its event itself.
    fn serve(&self, mut stream: UnixStream) {
        let mut bytes = Vec::new();
        let read = stream
            .set_read_timeout(Some(ANSWER_TIMEOUT))
            .and_then(|()| (&mut stream).take(EVENT_MAX + (64 << 10)).read_to_end(&mut bytes));
        let Some(end) = read.ok().and_then(|_| bytes.iter().position(|byte| *byte == b'\n')) else { return };
        let envelope = serde_json::from_slice::<Envelope<ReceivedEvent>>(&bytes[..end]);
        let Some(Envelope { arrival: mut received, program }) = envelope.ok().filter(|sent| !sent.program.is_empty())
        else {
            return;
        };
        if program != self.program || !self.core.store().is_still_valid().unwrap_or(false) {
            drop(stream);
            self.exit();
        }
        received.bytes = bytes.split_off(end + 1);
        let Some(client) = self.writer.clients.named(Some(&received.client)) else { return };
        let Ok(event) = client.hook_event(&received.bytes) else { return };
        let outcome = self.writer.apply(&self.core, client, &event, &received);
        let text = self.writer.finish(client, &event, &received, outcome).unwrap_or_default();
        let mut answer = vec![EVENT_WRITTEN];
        answer.extend_from_slice(text.as_bytes());
        // Ignore a failure: a hook that timed out writes the event itself, and recording an event twice changes
        // nothing.
        let _ = stream.write_all(&answer);
        if event.may_be_last() {
            let session = QuietSession { since: Instant::now(), event: client.catch_up_event(&event) };
            self.quiet_sessions().insert((received.client, event.session), session);
        }
    }

    fn quiet_sessions(&self) -> MutexGuard<'_, QuietSessions> {
        self.quiet_sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads the lines that clients wrote to the transcripts of quiet sessions after the last event.
    fn catch_up(&self) {
        let is_due = |_: &_, session: &mut QuietSession| session.since.elapsed() >= CHECK_INTERVAL;
        let quiet: Vec<_> = self.quiet_sessions().extract_if(is_due).collect();
        if quiet.is_empty() || !self.core.store().is_still_valid().unwrap_or(false) {
            return;
        }
        for ((name, _), QuietSession { event, .. }) in quiet {
            let Some(client) = self.writer.clients.named(Some(&name)) else { continue };
            let bytes = event.into_bytes();
            let Ok(event) = client.hook_event(&bytes) else { continue };
            let received = ReceivedEvent { at: self.core.now(), memory: Memory::Off, client: name, token: None, bytes };
            let outcome = self.writer.apply(&self.core, client, &event, &received);
            self.writer.finish(client, &event, &received, outcome);
        }
    }

    /// Returns when the daemon should exit.
    fn wait_until_idle(&self) {
        let (mut last, mut seen) = (Instant::now(), 0);
        loop {
            thread::sleep(CHECK_INTERVAL);
            let event_count = self.event_count.load(Ordering::SeqCst);
            if event_count != seen || self.busy.load(Ordering::SeqCst) > 0 {
                (last, seen) = (Instant::now(), event_count);
            }
            if last.elapsed() > IDLE_LIMIT || !self.socket.exists() || !self.core.store().is_file_in_place() {
                return;
            }
            self.catch_panic(|| self.catch_up());
        }
    }

    /// Ends the process. Hooks whose events are not answered yet write them themselves.
    fn exit(&self) -> ! {
        let _ = fs::remove_file(&self.socket);
        std::process::exit(0)
    }
}

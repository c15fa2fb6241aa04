//! A process that keeps a database open for hooks.
//!
//! Opening a database costs a hook several times what the event does. So the first hook, once its own event is taken,
//! leaves a keeper behind, and those after it hand theirs over a socket. A keeper is never needed: whoever gets no answer
//! from it takes the event alone. What is written into a transcript after the last event, it reads. It goes when no event
//! came for a while, and when the program or the database is not what it was when it started.

use std::{
    collections::HashMap,
    ffi::OsString,
    fs::{self, File},
    io::{Read, Write},
    net::Shutdown,
    os::unix::{
        fs::MetadataExt,
        net::{UnixListener, UnixStream},
    },
    path::PathBuf,
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
use trackway_claude::{event::Event, tool};
use trackway_domain::words::Memory;

use super::{Arrival, EVENT_MAX, PATIENCE_MS, Place, log, spool, taking::reading_on, user_folder};
use crate::{environment, location::Location, user};

/// The hidden command that keeps.
pub const COMMAND: &str = "keep-open-for-hooks";

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

/// Where the keeper of a database is to be found.
#[derive(Debug)]
pub struct Keeper {
    socket: PathBuf,
}

/// What came of asking a keeper.
#[derive(Debug)]
pub enum Asked {
    /// It took the event, and this is what to say.
    Answered(Option<String>),
    /// There is none.
    Absent,
    /// There is one, but it did not take the event.
    Failed,
}

/// What goes over the socket before the event.
#[derive(Debug, Serialize, Deserialize)]
struct Envelope<A> {
    program: String,
    arrival: A,
}

impl Keeper {
    /// The keeper for what this user does in a database, unless none is wanted.
    pub fn of(location: &Location) -> Option<Self> {
        if std::env::var(environment::HOOK_KEEPER).is_ok_and(|said| said == "off") {
            return None;
        }
        let whose = format!("{}\n{}\n{}", location.url.whole(), location.tenant, user::handle());
        let name = format!("{}.socket", &tool::digest(whose.as_bytes())[..16]);
        Some(Self { socket: user_folder().join("keepers").join(name) })
    }

    /// Hands an event over.
    pub(super) fn ask(&self, arrival: &Arrival) -> Asked {
        match UnixStream::connect(&self.socket) {
            Err(_) => Asked::Absent,
            Ok(stream) => handed_over(stream, arrival).map_or(Asked::Failed, Asked::Answered),
        }
    }

    /// Leaves a keeper behind for those who come next. Of many who want to at the same time one does: who has the lock
    /// hands it on to the keeper.
    pub fn start(&self, location: &Location) {
        let Some(folder) = self.socket.parent() else { return };
        if spool::make_private(folder).is_err() {
            return;
        }
        let Ok(lock) = File::create(self.socket.with_extension("lock")) else { return };
        let Ok(program) = std::env::current_exe() else { return };
        if lock.try_lock().is_err() {
            return;
        }
        let started = Command::new(program)
            .arg(COMMAND)
            .arg(&self.socket)
            .env(environment::DATABASE, location.url.whole())
            .env(environment::TENANT, &location.tenant)
            .current_dir("/")
            .stdin(Stdio::from(lock))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        // Not being able to costs the next hook a few milliseconds, and nothing else.
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

/// Keeps a database open, until nobody comes any more.
pub fn keep(arguments: &[OsString]) -> ExitCode {
    let [socket] = arguments else { return ExitCode::FAILURE };
    let socket = PathBuf::from(socket);
    // What ends the session it was started in does not end this one.
    let _ = rustix::process::setsid();
    let said = |name: &str| std::env::var(name).ok();
    let opened = Location::find_from(None, said(environment::DATABASE), said(environment::TENANT))
        .and_then(|location| Ok((location.open_patient(PATIENCE_MS)?, Place::of(&location))));
    let (core, place) = match opened {
        Ok(opened) => opened,
        Err(failure) => {
            log(&user_folder(), "keeper", &failure.message.to_string());
            return ExitCode::FAILURE;
        }
    };
    // The lock is ours: what stands there was left behind.
    let _ = fs::remove_file(&socket);
    let Ok(listener) = UnixListener::bind(&socket) else { return ExitCode::FAILURE };
    let came = AtomicUsize::new(0);
    let busy = AtomicUsize::new(0);
    let resting = Mutex::default();
    let post = Arc::new(Post { core, place, program: program(), socket, came, busy, resting });
    for _ in 0..AT_ONCE {
        let (post, listener) = (Arc::clone(&post), listener.try_clone());
        thread::spawn(move || {
            for stream in listener.iter().flat_map(UnixListener::incoming).flatten() {
                post.came.fetch_add(1, Ordering::SeqCst);
                post.busy.fetch_add(1, Ordering::SeqCst);
                post.unharmed(|| post.serve(stream));
                post.busy.fetch_sub(1, Ordering::SeqCst);
            }
        });
    }
    post.wait();
    post.go()
}

/// What a keeper has open.
struct Post {
    core: Core,
    place: Place,
    program: String,
    socket: PathBuf,
    came: AtomicUsize,
    busy: AtomicUsize,
    /// Sessions that may tell of nothing more: since when, and how they are read on.
    resting: Mutex<HashMap<String, (Instant, Vec<u8>)>>,
}

impl Post {
    /// Does something that may fail in ways that should not be.
    fn unharmed(&self, work: impl FnOnce()) {
        if std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)).is_err() {
            log(&self.place.folder, "keeper", "the keeper failed in a way that should not be");
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
        let Ok(event) = Event::parse(&arrival.bytes) else { return };
        let outcome = self.place.apply(&self.core, &event, &arrival);
        let said = self.place.settle(&event, &arrival, outcome).unwrap_or_default();
        let mut answer = vec![TAKEN];
        answer.extend_from_slice(said.as_bytes());
        // Who is gone took it alone: what an event says is written once, however often it comes.
        let _ = stream.write_all(&answer);
        if event.may_be_last() {
            let later = reading_on(&event).to_string().into_bytes();
            self.resting().insert(event.session_id, (Instant::now(), later));
        }
    }

    fn resting(&self) -> MutexGuard<'_, HashMap<String, (Instant, Vec<u8>)>> {
        self.resting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads what was written into the transcripts of sessions after their last event.
    fn read_on(&self) {
        let is_quiet = |_: &String, (since, _): &mut (Instant, Vec<u8>)| since.elapsed() >= LOOKS_EVERY;
        let quiet: Vec<Vec<u8>> = self.resting().extract_if(is_quiet).map(|(_, (_, later))| later).collect();
        if quiet.is_empty() || !self.core.store().is_as_opened().unwrap_or(false) {
            return;
        }
        for bytes in quiet {
            let Ok(event) = Event::parse(&bytes) else { continue };
            let arrival = Arrival { at: self.core.now(), memory: Memory::Off, token: None, bytes };
            let outcome = self.place.apply(&self.core, &event, &arrival);
            self.place.settle(&event, &arrival, outcome);
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
            self.unharmed(|| self.read_on());
        }
    }

    /// Leaves. Events that are being taken at this moment are taken alone by those who sent them.
    fn go(&self) -> ! {
        let _ = fs::remove_file(&self.socket);
        std::process::exit(0)
    }
}

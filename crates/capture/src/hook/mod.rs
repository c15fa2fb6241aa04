//! Hooks: a hook process receives one event of a client, records it, and may print an answer for the agent. A failing
//! hook never disturbs the client.

pub mod daemon;
mod event;
mod intake;
mod log;
mod spool;

use std::{
    fmt::Debug,
    io::Read,
    path::{Path, PathBuf},
    process::Command,
};

use serde::{Deserialize, Serialize};
use trackway_actions::{Core, Credential, context::Secret, session::AttachSession};
use trackway_domain::{Time, enums::Memory};
use trackway_store::{Clock, Url};

use self::{
    daemon::{Daemon, DaemonReply},
    intake::Intake,
    spool::Spooled,
};
pub use self::{
    event::{Answer, EventHeader, EventKind, HookEvent, Stop, ToolCall, ToolResult},
    intake::apply_spooled,
    log::HookLog,
};
use crate::{
    client::{Client, Clients},
    digest::digest,
    error::Result,
    redact::without_secrets,
};

/// Maximum number of bytes of an event.
pub const EVENT_MAX: u64 = 64 << 20;
/// The time that a hook waits for a database that is locked by other writers.
pub const BUSY_TIMEOUT_MS: u32 = 50;

/// The database for the events, from the configuration of the program.
pub trait Destination: Debug + Send + Sync {
    fn url(&self) -> &Url;

    fn tenant(&self) -> &str;

    /// The name of the operating-system user for whom the hook records events.
    fn user(&self) -> String;

    /// Opens the database with a timeout for waiting on other writers.
    fn open_with_busy_timeout(&self, timeout_ms: u32) -> Result<Core>;

    /// Sets the environment of a child process so that it uses the same database.
    fn pass_to_child(&self, command: &mut Command);
}

/// One invocation of the hook command.
#[derive(Debug)]
pub struct HookCall {
    pub client: &'static dyn Client,
    pub clients: Clients,
    /// The agents that receive the end-of-run prompt.
    pub memory: Memory,
    /// The run token in the environment of the session.
    pub token: Option<String>,
    pub user_folder: PathBuf,
}

/// An unparsed event, with the details that only the hook process knows.
#[derive(Debug, Serialize, Deserialize)]
struct ReceivedEvent {
    at: Time,
    /// The agents that receive the end-of-run prompt.
    memory: Memory,
    client: String,
    /// The run token in the environment of the session.
    token: Option<String>,
    #[serde(skip)]
    bytes: Vec<u8>,
}

impl HookCall {
    /// Records an event, and returns the text to print. Logs failures instead of returning them, so that they do not
    /// disturb the client. `find_destination` finds the database from the header of the event. Returns none if the
    /// session is excluded.
    pub fn handle<D: Destination>(
        self,
        input: impl Read,
        find_destination: impl FnOnce(&EventHeader) -> std::result::Result<Option<D>, String>,
    ) -> Option<String> {
        let mut bytes = Vec::new();
        let read = input.take(EVENT_MAX).read_to_end(&mut bytes);
        let at = Clock::system().now();
        let log = HookLog::of_user(self.user_folder.clone());
        let header = read.map_err(|error| error.to_string()).and_then(|_| self.client.hook_header(&bytes));
        let header = header.map_err(|reason| log.write("?", &reason)).ok()?;
        let destination = find_destination(&header).map_err(|reason| log.write(&header.name, &reason)).ok()??;
        let client = self.client.name().to_owned();
        let received = ReceivedEvent { at, memory: self.memory, client, token: self.token, bytes };
        let daemon = Daemon::of(&destination, &self.user_folder);
        match daemon.as_ref().map_or(DaemonReply::Failed, |daemon| daemon.send(&received)) {
            DaemonReply::Answered(answer) => answer,
            reply => {
                let writer = EventWriter::new(&destination, self.user_folder, self.clients);
                let event = self.client.hook_event(&received.bytes).map_err(|reason| log.write("?", &reason)).ok()?;
                let answer = writer.write_without_daemon(&destination, self.client, &event, &received);
                if let (DaemonReply::NotRunning, Some(daemon), None) = (reply, daemon, &received.token) {
                    daemon.start(&destination);
                }
                answer
            }
        }
    }
}

/// Writes the events of one user, and spools or logs those that it cannot write.
#[derive(Debug)]
struct EventWriter {
    log: HookLog,
    user: Credential,
    clients: Clients,
}

impl EventWriter {
    fn new(destination: &impl Destination, user_folder: PathBuf, clients: Clients) -> Self {
        let user = Credential::User { tenant: destination.tenant().to_owned(), handle: destination.user() };
        let folder = spool_and_log_folder(destination, &user_folder);
        Self { log: HookLog { folder, user_folder }, user, clients }
    }

    /// Opens the database for a single event.
    fn write_without_daemon(
        &self,
        destination: &impl Destination,
        client: &'static dyn Client,
        event: &HookEvent,
        received: &ReceivedEvent,
    ) -> Option<String> {
        let outcome = destination.open_with_busy_timeout(BUSY_TIMEOUT_MS).and_then(|core| {
            let answer = self.apply(&core, client, event, received)?;
            core.close();
            Ok(answer)
        });
        self.finish(client, event, received, outcome)
    }

    fn apply(
        &self,
        core: &Core,
        client: &'static dyn Client,
        event: &HookEvent,
        received: &ReceivedEvent,
    ) -> Result<Option<Answer>> {
        let context = core.authenticate(&self.user)?;
        attach(core, received.token.as_ref(), client.name(), &event.session)?;
        apply_spooled(core, &context, &self.log, self.clients)?;
        let intake = Intake { core, context: &context, log: &self.log, client };
        intake.record(event, received.memory, received.at)
    }

    /// Returns the text to print. If the event could not be written, spools the event after a transient error, and logs
    /// a permanent error.
    fn finish(
        &self,
        client: &'static dyn Client,
        event: &HookEvent,
        received: &ReceivedEvent,
        outcome: Result<Option<Answer>>,
    ) -> Option<String> {
        let error = match outcome {
            Ok(answer) => return answer.map(|answer| client.hook_answer(event, &answer)),
            Err(error) => error,
        };
        if !error.is_transient() {
            self.log.write(&event.name, &error.to_string());
            return None;
        }
        let text = without_secrets(&String::from_utf8_lossy(&received.bytes)).into_owned();
        let spooled =
            Spooled { at: received.at, memory: received.memory, client: Some(received.client.clone()), event: text };
        if let Err(unwritten) = spool::spool(&self.log.folder, &spooled) {
            self.log.write(&event.name, &format!("neither written ({error}) nor spooled ({unwritten})"));
        }
        None
    }
}

/// Attaches a session to the run of its token. Each event counts as a sign of life of the run. Ignores a token that is
/// invalid or is not a run token.
fn attach(core: &Core, token: Option<&String>, client: &str, session: &str) -> Result<()> {
    let Some(token) = token else { return Ok(()) };
    let attached = core.authenticate(&Credential::Token(Secret(token.clone()))).and_then(|run| match run.run {
        Some(_) => core.execute(&run, &AttachSession { client: client.to_owned(), session: session.to_owned() }),
        None => Ok(false),
    });
    match attached {
        Err(error) if error.is_transient() => Err(error.into()),
        _ => Ok(()),
    }
}

/// The folder of a database's spool and log: next to an SQLite file, or in the user's folder for a PostgreSQL database.
pub fn spool_and_log_folder(destination: &impl Destination, user_folder: &Path) -> PathBuf {
    match destination.url() {
        Url::Sqlite(path) => path.parent().map(Path::to_path_buf).unwrap_or_default(),
        Url::Postgres(url) => user_folder.join(&digest(format!("{url} {}", destination.tenant()).as_bytes())[..16]),
    }
}

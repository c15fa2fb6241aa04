//! Hooks: one event of a client in, an answer to the agent or nothing out. A hook never gets in the client's way.

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
use trackway_domain::{Time, words::Memory};
use trackway_store::{Clock, Url};

use self::{
    daemon::{Asked, Daemon},
    intake::Intake,
    spool::Spooled,
};
pub use self::{
    event::{Answer, Happened, Header, HookEvent, Stop, ToolCall, ToolResult},
    intake::apply_spooled,
    log::HookLog,
};
use crate::{
    client::{Client, Clients},
    digest::digest,
    error::Result,
    redact::without_secrets,
};

/// Bytes of an event that are read.
const EVENT_MAX: u64 = 64 << 20;
/// How long a busy database is waited for.
pub const PATIENCE_MS: u32 = 50;

/// The database that events are written to, as the program's configuration names it.
pub trait Destination: Debug + Send + Sync {
    fn url(&self) -> &Url;

    fn tenant(&self) -> &str;

    /// The user of the operating system, who observes.
    fn user(&self) -> String;

    /// Opens the database, and waits no longer for other writers than this.
    fn open_patient(&self, wait_ms: u32) -> Result<Core>;

    /// Lets a child process find the same database.
    fn hand_on(&self, command: &mut Command);
}

/// One call of the hook command.
#[derive(Debug)]
pub struct Call {
    pub client: &'static dyn Client,
    pub clients: Clients,
    pub memory: Memory,
    /// The token that the session was given.
    pub token: Option<String>,
    pub user_folder: PathBuf,
}

/// An event as it came, with what only the process it came to knows.
#[derive(Debug, Serialize, Deserialize)]
struct Arrival {
    at: Time,
    memory: Memory,
    client: String,
    /// The token that the session was given.
    token: Option<String>,
    #[serde(skip)]
    bytes: Vec<u8>,
}

impl Call {
    /// Takes an event in, and returns what to print. Whatever happens, the client goes on as if nothing had. `find` finds the
    /// database by the event's header; none where the session is excluded.
    pub fn take<D: Destination>(
        self,
        input: impl Read,
        find: impl FnOnce(&Header) -> std::result::Result<Option<D>, String>,
    ) -> Option<String> {
        let mut bytes = Vec::new();
        let read = input.take(EVENT_MAX).read_to_end(&mut bytes);
        let at = Clock::system().now();
        let log = HookLog::of_user(self.user_folder.clone());
        let header = read.map_err(|error| error.to_string()).and_then(|_| self.client.hook_header(&bytes));
        let header = header.map_err(|why| log.write("?", &why)).ok()?;
        let destination = find(&header).map_err(|why| log.write(&header.name, &why)).ok()??;
        let client = self.client.name().to_owned();
        let arrival = Arrival { at, memory: self.memory, client, token: self.token, bytes };
        let daemon = Daemon::of(&destination, &self.user_folder);
        match daemon.as_ref().map_or(Asked::Failed, |daemon| daemon.ask(&arrival)) {
            Asked::Answered(answer) => answer,
            asked => {
                let place = Place::of(&destination, self.user_folder, self.clients);
                let event = self.client.hook_event(&arrival.bytes).map_err(|why| log.write("?", &why)).ok()?;
                let answer = place.take_alone(&destination, self.client, &event, &arrival);
                if let (Asked::Absent, Some(daemon), None) = (asked, daemon, &arrival.token) {
                    daemon.start(&destination);
                }
                answer
            }
        }
    }
}

/// Whose events come, and where their spool and log are.
#[derive(Debug)]
struct Place {
    log: HookLog,
    user: Credential,
    clients: Clients,
}

impl Place {
    fn of(destination: &impl Destination, user_folder: PathBuf, clients: Clients) -> Self {
        let user = Credential::User { tenant: destination.tenant().to_owned(), handle: destination.user() };
        let folder = folder_of(destination, &user_folder);
        Self { log: HookLog { folder, user_folder }, user, clients }
    }

    /// Opens the database for this one event.
    fn take_alone(
        &self,
        destination: &impl Destination,
        client: &'static dyn Client,
        event: &HookEvent,
        arrival: &Arrival,
    ) -> Option<String> {
        let outcome = destination.open_patient(PATIENCE_MS).and_then(|core| {
            let answer = self.apply(&core, client, event, arrival)?;
            core.leave();
            Ok(answer)
        });
        self.settle(client, event, arrival, outcome)
    }

    fn apply(
        &self,
        core: &Core,
        client: &'static dyn Client,
        event: &HookEvent,
        arrival: &Arrival,
    ) -> Result<Option<Answer>> {
        let context = core.enter(&self.user)?;
        attach(core, arrival.token.as_ref(), client.name(), &event.session)?;
        apply_spooled(core, &context, &self.log, self.clients)?;
        let intake = Intake { core, context: &context, log: &self.log, client };
        intake.take(event, arrival.memory, arrival.at)
    }

    /// What to print. An event that could not be written waits in the spool where that may pass, or is logged.
    fn settle(
        &self,
        client: &'static dyn Client,
        event: &HookEvent,
        arrival: &Arrival,
        outcome: Result<Option<Answer>>,
    ) -> Option<String> {
        let error = match outcome {
            Ok(answer) => return answer.map(|answer| client.hook_answer(event, &answer)),
            Err(error) => error,
        };
        if !error.is_passing() {
            self.log.write(&event.name, &error.to_string());
            return None;
        }
        let text = without_secrets(&String::from_utf8_lossy(&arrival.bytes)).into_owned();
        let spooled =
            Spooled { at: arrival.at, memory: arrival.memory, client: Some(arrival.client.clone()), event: text };
        if let Err(unwritten) = spool::spool(&self.log.folder, &spooled) {
            self.log.write(&event.name, &format!("neither written ({error}) nor spooled ({unwritten})"));
        }
        None
    }
}

/// A session that was given a run's token happens in that run, and each event shows that the run is alive. A session whose
/// token is dead, or is not a run's, is a session like any other.
fn attach(core: &Core, token: Option<&String>, client: &str, session: &str) -> Result<()> {
    let Some(token) = token else { return Ok(()) };
    let attached = core.enter(&Credential::Token(Secret(token.clone()))).and_then(|run| match run.run {
        Some(_) => core.execute(&run, &AttachSession { client: client.to_owned(), session: session.to_owned() }),
        None => Ok(false),
    });
    match attached {
        Err(error) if error.is_passing() => Err(error.into()),
        _ => Ok(()),
    }
}

/// The folder of a database's spool and log: beside the file; for a server's database, one of the user's.
pub fn folder_of(destination: &impl Destination, user_folder: &Path) -> PathBuf {
    match destination.url() {
        Url::Sqlite(path) => path.parent().map(Path::to_path_buf).unwrap_or_default(),
        Url::Postgres(url) => user_folder.join(&digest(format!("{url} {}", destination.tenant()).as_bytes())[..16]),
    }
}

//! `trackway hook`: one event of Claude Code in, a word to the agent or nothing out. Never in the way.

pub mod keeper;
mod spool;
mod taking;

use std::{
    fs,
    io::{Read, Write},
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::{Arg, ArgMatches, Command};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use trackway_actions::{Core, Credential, context::Secret, session::AttachSession};
use trackway_claude::{
    event::Event,
    redact::{redacted, without_secrets},
    tool,
};
use trackway_domain::{Time, text, words::Memory};
use trackway_store::{Clock, Url};

pub use self::taking::apply_waiting;
use self::{
    keeper::{Asked, Keeper},
    spool::Spooled,
    taking::Hook,
};
use crate::{
    door::Outcome,
    environment,
    failure::Failure,
    location::{Location, is_below, user_file},
    render::Shape,
    user,
};

/// Bytes of an event that are read.
const EVENT_MAX: u64 = 64 << 20;
/// How long a busy database is waited for.
const PATIENCE_MS: u32 = 50;
/// Bytes in the log before it starts anew.
const LOG_MAX: u64 = 1 << 20;

pub fn command() -> Command {
    Command::new("hook")
        .about("Take one Claude Code hook event from standard input")
        .long_about(
            "Take one Claude Code hook event from standard input\n\n\
             Installed by `trackway connect claude-code`. Always exits with 0; what goes wrong stands in hook.log beside the database, and in `trackway doctor`.",
        )
        .arg(
            Arg::new("memory")
                .long("memory")
                .value_name("WHO")
                .value_parser(clap::value_parser!(Memory))
                .default_value("subagents")
                .help("Who is asked for its scratchpad when it stops"),
        )
}

/// The whole command line of a hook: no grammar is built for it, and no word in it can make it fail. The client takes a
/// failure for a veto, and the words may be those of another version.
pub fn run_fast(arguments: &[std::ffi::OsString]) -> Option<ExitCode> {
    let words: Vec<&str> = arguments.iter().skip(1).map(|word| word.to_str().unwrap_or("?")).collect();
    if words.first() != Some(&"hook") || words.iter().any(|word| matches!(*word, "-h" | "--help")) {
        return None;
    }
    let after = |name: &str| words.iter().position(|word| *word == name).and_then(|place| words.get(place + 1));
    let said =
        |name: &str, variable: &str| after(name).map(ToString::to_string).or_else(|| std::env::var(variable).ok());
    let memory = after("--memory").and_then(|who| who.parse().ok()).unwrap_or_default();
    let (db, tenant) = (said("--db", environment::DATABASE), said("--tenant", environment::TENANT));
    let taken = std::panic::catch_unwind(|| take(memory, db, tenant));
    match taken {
        Ok(Some(said)) => {
            let _ = writeln!(std::io::stdout(), "{said}");
        }
        Ok(None) => {}
        Err(_) => log(&user_folder(), "?", "the hook failed in a way that should not be"),
    }
    Some(ExitCode::SUCCESS)
}

pub fn hook(whole: &ArgMatches, matches: &ArgMatches) -> Outcome {
    let memory = matches.get_one::<Memory>("memory").copied().unwrap_or(Memory::Subagents);
    let said = |name: &str| whole.get_one::<String>(name).cloned();
    let said = take(memory, said("db"), said("tenant"));
    Outcome::new(Value::String(said.unwrap_or_default()), Shape::Text)
}

/// An event as it came, with what only the process it came to knows.
#[derive(Debug, Serialize, Deserialize)]
struct Arrival {
    at: Time,
    memory: Memory,
    /// The token that the session was given.
    token: Option<String>,
    #[serde(skip)]
    bytes: Vec<u8>,
}

/// Takes the event in. Whatever happens, the client goes on as if nothing had.
fn take(memory: Memory, db: Option<String>, tenant: Option<String>) -> Option<String> {
    let mut bytes = Vec::new();
    let read = std::io::stdin().lock().take(EVENT_MAX).read_to_end(&mut bytes);
    let token = std::env::var(environment::TOKEN).ok().filter(|token| !token.is_empty());
    let arrival = Arrival { at: Clock::system().now(), memory, token, bytes };
    let event = match read.map_err(|error| error.to_string()).and_then(|_| Event::parse(&arrival.bytes)) {
        Ok(event) => event,
        Err(why) => {
            log(&user_folder(), "?", &why);
            return None;
        }
    };
    let cwd = event.cwd.as_deref().map(Path::new);
    let location =
        match Location::find_from(cwd, db.filter(|db| !db.is_empty()), tenant.filter(|tenant| !tenant.is_empty())) {
            Ok(location) => location,
            Err(failure) => {
                log(&user_folder(), &event.hook_event_name, &failure.message.to_string());
                return None;
            }
        };
    if cwd.is_some_and(|cwd| is_below(cwd, &location.exclude)) {
        return None;
    }
    let location = if location.is_sent_away {
        let why = "the project says that its database is on a server; to allow that, add its directory to `trust` in your config.toml";
        log(&user_folder(), &event.hook_event_name, why);
        Location::find_from(None, None, None).ok()?
    } else {
        location
    };
    let keeper = Keeper::of(&location);
    match keeper.as_ref().map_or(Asked::Failed, |keeper| keeper.ask(&arrival)) {
        Asked::Answered(said) => said,
        asked => {
            let said = take_alone(&location, &event, &arrival);
            if let (Asked::Absent, Some(keeper), None) = (asked, keeper, &arrival.token) {
                keeper.start(&location);
            }
            said
        }
    }
}

/// Opens the database for this one event.
fn take_alone(location: &Location, event: &Event, arrival: &Arrival) -> Option<String> {
    let place = Place::of(location);
    let outcome = location.open_patient(PATIENCE_MS).and_then(|core| {
        let said = place.apply(&core, event, arrival)?;
        core.leave();
        Ok(said)
    });
    place.settle(event, arrival, outcome)
}

/// Whose events come, and where their spool and log are.
#[derive(Debug)]
struct Place {
    folder: PathBuf,
    user: Credential,
}

impl Place {
    fn of(location: &Location) -> Self {
        let user = Credential::User { tenant: location.tenant.clone(), handle: user::handle() };
        Self { folder: folder_of(location), user }
    }

    fn apply(&self, core: &Core, event: &Event, arrival: &Arrival) -> Result<Option<Value>, Failure> {
        let context = core.enter(&self.user)?;
        attach(core, arrival.token.as_ref(), &event.session_id)?;
        let hook = Hook { core, context: &context, folder: &self.folder };
        hook.drain()?;
        hook.take(event, arrival.memory, arrival.at)
    }

    /// What is said of it; an event that could not be applied waits, or is told of in the log.
    fn settle(&self, event: &Event, arrival: &Arrival, outcome: Result<Option<Value>, Failure>) -> Option<String> {
        let failure = match outcome {
            Ok(said) => return said.map(|said| said.to_string()),
            Err(failure) => failure,
        };
        if failure.is_passing {
            let text = without_secrets(&String::from_utf8_lossy(&arrival.bytes)).into_owned();
            let spooled = Spooled { at: arrival.at, memory: arrival.memory, event: text };
            if let Err(error) = spool::spool(&self.folder, &spooled) {
                let why = format!("neither written ({}) nor spooled ({error})", failure.message);
                log(&self.folder, &event.hook_event_name, &why);
            }
        } else {
            log(&self.folder, &event.hook_event_name, &failure.message.to_string());
        }
        None
    }
}

/// A session that was given a run's token happens in that run, and each event says that it is alive. One whose token is
/// dead, or is not a run's, is a session like any other.
fn attach(core: &Core, token: Option<&String>, session: &str) -> Result<(), Failure> {
    let Some(token) = token else { return Ok(()) };
    let attached = core.enter(&Credential::Token(Secret(token.clone()))).and_then(|run| match run.run {
        Some(_) => core.execute(&run, &AttachSession { session: session.to_owned() }),
        None => Ok(false),
    });
    match attached {
        Err(error) if error.is_passing() => Err(error.into()),
        _ => Ok(()),
    }
}

/// The folder beside a database; for a server's, one of the user's for each.
pub fn folder_of(location: &Location) -> PathBuf {
    match &location.url {
        Url::Sqlite(path) => path.parent().map(Path::to_path_buf).unwrap_or_default(),
        Url::Postgres(url) => user_folder().join(&tool::digest(format!("{url} {}", location.tenant).as_bytes())[..16]),
    }
}

pub fn user_folder() -> PathBuf {
    user_file().ok().and_then(|file| file.parent().map(Path::to_path_buf)).unwrap_or_else(std::env::temp_dir)
}

/// One line for each failure, beside the database; where nothing can be written there, beside the user's.
fn log(folder: &Path, event: &str, why: &str) {
    let line = format!(
        "{} {} {}\n",
        Clock::system().now(),
        text::cut(&text::clean_line(event), 40),
        text::cut(&text::clean_line(&redacted(why)), 500)
    );
    if append(folder, &line).is_err() {
        let _ = append(&user_folder(), &line);
    }
}

fn append(folder: &Path, line: &str) -> std::io::Result<()> {
    let path = folder.join("hook.log");
    fs::create_dir_all(folder)?;
    if path.metadata().is_ok_and(|log| log.len() > LOG_MAX) {
        let _ = fs::rename(&path, folder.join("hook.log.old"));
    }
    fs::OpenOptions::new().create(true).append(true).open(path)?.write_all(line.as_bytes())
}

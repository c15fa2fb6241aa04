//! `trackway hook`: one event of Claude Code in, a word to the agent or nothing out. Never in the way.

use std::{
    fs,
    io::{Read, Write},
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::{Arg, ArgMatches, Command};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use trackway_actions::{
    Context, Core, Credential,
    context::Secret,
    session::{AttachSession, Observed},
};
use trackway_claude::{
    event::Event,
    redact::redacted,
    tool,
    transcript::{self, Flow, Mark, Transcript},
    work_tree,
};
use trackway_domain::{
    ErrorKind, Time, closing,
    observed::{Fact, FileFacts, PromptKey, Seen, SessionFacts},
    text,
    words::{ChangeEvidence, FileChange, Memory},
};
use trackway_store::{Url, params};
use trackway_views::session::{Standing, last_digest, standing};

use crate::{
    door::Outcome,
    environment,
    failure::Failure,
    location::{Location, user_file},
    render::Shape,
    user,
};

/// Bytes of an event that are read.
const EVENT_MAX: u64 = 64 << 20;
/// How long a busy database is waited for.
const PATIENCE_MS: u32 = 50;
/// Characters that the client takes as context before it moves them to a file.
const CONTEXT_MAX: usize = 9_500;
/// Unread bytes of transcripts above which reading is left to the next call.
const READ_AT_END_MAX: u64 = 8 << 20;
/// Bytes in the log before it starts anew.
const LOG_MAX: u64 = 1 << 20;
/// Files that a shell is said to have changed in one run.
const OBSERVED_MAX: usize = 200;

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
    Outcome::new(Value::String(said.map(|said| said.to_string()).unwrap_or_default()), Shape::Text)
}

/// An event that could not be applied at once.
#[derive(Debug, Serialize, Deserialize)]
struct Spooled {
    at: Time,
    memory: Memory,
    event: String,
}

/// Takes the event in. Whatever happens, the client goes on as if nothing had.
fn take(memory: Memory, db: Option<String>, tenant: Option<String>) -> Option<Value> {
    let mut bytes = Vec::new();
    let read = std::io::stdin().lock().take(EVENT_MAX).read_to_end(&mut bytes);
    let at = Time::now();
    let event = match read.map_err(|error| error.to_string()).and_then(|_| Event::parse(&bytes)) {
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
                log(&user_folder(), &event.hook_event_name, &failure.message);
                return None;
            }
        };
    if cwd.is_some_and(|cwd| location.exclude.iter().any(|excluded| cwd.starts_with(excluded))) {
        return None;
    }
    let location = if location.is_sent_away {
        let why = "the project says that its database is on a server; to allow that, add its directory to `trust` in your config.toml";
        log(&user_folder(), &event.hook_event_name, why);
        Location::find_from(None, None, None).ok()?
    } else {
        location
    };
    let folder = folder_of(&location);
    match apply(&location, &folder, memory, &event, at) {
        Ok(said) => said,
        Err(failure) if failure.is_passing => {
            let spooled = Spooled { at, memory, event: redacted(&String::from_utf8_lossy(&bytes)).into_owned() };
            if let Err(error) = spool(&folder, &spooled) {
                log(&folder, &event.hook_event_name, &format!("neither written nor spooled: {error}"));
            }
            None
        }
        Err(failure) => {
            log(&folder, &event.hook_event_name, &failure.message);
            None
        }
    }
}

fn apply(
    location: &Location,
    folder: &Path,
    memory: Memory,
    event: &Event,
    at: Time,
) -> Result<Option<Value>, Failure> {
    let core = location.open_patient(PATIENCE_MS)?;
    let credential = Credential::User { tenant: location.tenant.clone(), handle: user::handle() };
    let context = core.enter(&credential)?;
    attach(&core, &event.session_id)?;
    let hook = Hook { core: &core, context: &context, folder };
    hook.drain()?;
    let said = hook.take(event, memory, at)?;
    core.leave();
    Ok(said)
}

/// A session that was given a run's token happens in that run, and each event says that it is alive. One whose token is
/// dead, or is not a run's, is a session like any other.
fn attach(core: &Core, session: &str) -> Result<(), Failure> {
    let token = std::env::var(environment::TOKEN).ok().filter(|token| !token.is_empty());
    let Some(token) = token else { return Ok(()) };
    let attached = core.enter(&Credential::Token(Secret(token))).and_then(|run| match run.run {
        Some(_) => core.execute(&run, &AttachSession { session: session.to_owned() }),
        None => Ok(false),
    });
    match attached {
        Err(error) if error.is_passing() => Err(error.into()),
        _ => Ok(()),
    }
}

/// Applies the events that wait.
pub fn apply_waiting(core: &Core, context: &Context, folder: &Path) -> Result<(), Failure> {
    Hook { core, context, folder }.drain()
}

/// A database with someone at the door who will not wait.
struct Hook<'a> {
    core: &'a Core,
    context: &'a Context,
    folder: &'a Path,
}

impl Hook<'_> {
    /// Applies what earlier calls had to leave behind, in order. One call at a time does this.
    fn drain(&self) -> Result<(), Failure> {
        let spool = self.folder.join("spool");
        let Ok(entries) = fs::read_dir(&spool) else { return Ok(()) };
        let mut waiting: Vec<PathBuf> = entries
            .flatten()
            .map(|entry| entry.path())
            .filter(|path| path.extension().is_some_and(|extension| extension == "json"))
            .collect();
        if waiting.is_empty() {
            return Ok(());
        }
        let Ok(lock) = fs::File::create(spool.join("lock")) else { return Ok(()) };
        if lock.try_lock().is_err() {
            // Another call is at it: this event comes after those.
            return Err(Failure::new(ErrorKind::Busy, "events are being applied", None));
        }
        waiting.sort();
        for path in waiting {
            let Ok(text) = fs::read(&path) else { continue };
            let outcome = serde_json::from_slice::<Spooled>(&text)
                .map_err(|error| error.to_string())
                .and_then(|spooled| Event::parse(spooled.event.as_bytes()).map(|event| (spooled, event)));
            match outcome {
                Ok((spooled, event)) => match self.take(&event, Memory::Off, spooled.at) {
                    Err(failure) if failure.is_passing => return Err(failure),
                    Err(failure) => log(self.folder, &event.hook_event_name, &failure.message),
                    Ok(_) => {}
                },
                Err(why) => log(self.folder, "spool", &why),
            }
            let _ = fs::remove_file(&path);
        }
        Ok(())
    }

    /// Writes an event down, reads what it points at, and finds what to say to the agent.
    fn take(&self, event: &Event, memory: Memory, at: Time) -> Result<Option<Value>, Failure> {
        let mut heard = event.hear(at);
        let prompt = PromptKey { id: event.prompt_id.clone(), line: None };
        if event.is_stop()
            && event.stop_hook_active
            && let Some(answer) = &event.last_assistant_message
            && self.standing(event)?.is_some_and(|now| now.asked_at.is_some())
        {
            let answer = redacted(answer).into_owned();
            heard.facts.push(Seen::new(at, event.agent(), &prompt, Fact::Closing { answer }));
        }
        if !heard.facts.is_empty() {
            self.core.observe(self.context, &event.observation(heard.facts))?;
        }
        if heard.look_for_commits || event.is_stop() {
            self.look_around(event, heard.look_for_commits, at)?;
        }
        let waiting: u64 =
            heard.read.iter().map(|transcript| transcript.path.metadata().map_or(0, |file| file.len())).sum();
        if event.hook_event_name == "SessionEnd" && waiting > READ_AT_END_MAX {
            self.read_later(event, at);
        } else {
            for transcript in &heard.read {
                self.read(transcript)?;
            }
        }
        self.answer(event, memory, at)
    }

    fn standing(&self, event: &Event) -> Result<Option<Standing>, Failure> {
        Ok(standing(&mut self.core.store().read(self.context.tenant)?, &event.session_id, event.agent())?)
    }

    /// Reads on in a transcript.
    fn read(&self, transcript: &Transcript) -> Result<(), Failure> {
        let path = transcript.path.to_string_lossy().into_owned();
        let mark = self
            .core
            .store()
            .read(self.context.tenant)?
            .one::<(String, i64, Value)>(
                "select identity, read_to, state from transcripts where tenant_id = ?1 and path = ?2",
                params![path],
            )?
            .map(|(identity, read_to, state)| Mark {
                identity,
                offset: u64::try_from(read_to).unwrap_or_default(),
                state,
            });
        if !transcript::has_news(&transcript.path, mark.as_ref()) {
            return Ok(());
        }
        transcript::read::<Failure>(transcript, mark.as_ref(), |observation| {
            Ok(match self.core.observe(self.context, &observation)? {
                Observed::Recorded => Flow::Continue,
                Observed::ReadAlready => Flow::Stop,
            })
        })?;
        Ok(())
    }

    /// A session that ends has little time: the next call reads the rest of it.
    fn read_later(&self, event: &Event, at: Time) {
        let later = json!({
            "hook_event_name": "PreCompact", "session_id": event.session_id, "transcript_path": event.transcript_path, "cwd": event.cwd,
        });
        let spooled = Spooled { at, memory: Memory::Off, event: later.to_string() };
        if let Err(error) = spool(self.folder, &spooled) {
            log(self.folder, &event.hook_event_name, &format!("the rest of the transcript is for ingest: {error}"));
        }
    }

    /// Looks for commits that appeared, and at the end of a run for files that a command changed.
    fn look_around(&self, event: &Event, commits: bool, at: Time) -> Result<(), Failure> {
        let Some(now) = self.standing(event)? else { return Ok(()) };
        let Some(root) = now.root.as_deref().filter(|root| Path::new(root).join(".git").exists()) else {
            return Ok(());
        };
        let prompt = PromptKey { id: event.prompt_id.clone(), line: None };
        let mut facts = Vec::new();
        let head = if commits { work_tree::head(root) } else { None };
        if let Some(head) = head.filter(|head| now.head.as_ref() != Some(head)) {
            if now.shell_at.is_some_and(|shell| shell >= now.started_at) {
                let since = match &now.head {
                    Some(before) => vec![format!("{before}..{head}")],
                    // The first commits of a repository.
                    None => vec![head.clone()],
                };
                let range: Vec<&str> = since.iter().map(String::as_str).collect();
                let new = work_tree::commits(root, &range);
                // What was pulled in was made by others, and before.
                let own = new.into_iter().filter(|commit| {
                    commit.committed_at.is_some_and(|committed| committed.plus_seconds(1) > now.started_at)
                });
                facts.extend(own.map(|commit| Seen::new(at, event.agent(), &prompt, Fact::Commit(commit))));
            }
            let seen = SessionFacts { head: Some(head), ..SessionFacts::default() };
            facts.push(Seen::new(at, None, &PromptKey::default(), Fact::Session(Box::new(seen))));
        }
        if event.is_stop() && !event.stop_hook_active {
            facts.extend(self.changed_by_commands(event, &now, root, at)?);
        }
        if !facts.is_empty() {
            self.core.observe(self.context, &event.observation(facts))?;
        }
        Ok(())
    }

    /// Files that changed while the run ran commands, and that no tool told of.
    fn changed_by_commands(&self, event: &Event, now: &Standing, root: &str, at: Time) -> Result<Vec<Seen>, Failure> {
        let Some(until) = now.shell_at.filter(|shell| *shell >= now.started_at) else { return Ok(Vec::new()) };
        let prompt = PromptKey { id: event.prompt_id.clone(), line: None };
        let mut facts = Vec::new();
        let mut read = self.core.store().read(self.context.tenant)?;
        for (path, change) in work_tree::changed_between(root, now.started_at, until).into_iter().take(OBSERVED_MAX) {
            let file = Path::new(root).join(&path);
            let last = last_digest(&mut read, &event.session_id, &path)?;
            let digest = tool::digest_of_file(&file);
            let known = if change == FileChange::Delete { last.is_none() } else { digest.is_none() || last == digest };
            if Path::new(&path).starts_with(".trackway") || known {
                continue;
            }
            let facts_of_file = FileFacts {
                path: file.to_string_lossy().into_owned(),
                change,
                evidence: ChangeEvidence::Observed,
                tool: None,
                tool_use_id: None,
                digest,
                written: None,
            };
            facts.push(Seen::new(at, event.agent(), &prompt, Fact::File(facts_of_file)));
        }
        Ok(facts)
    }

    /// What the agent is told: who it is when it starts, the end-of-run prompt when it stops.
    fn answer(&self, event: &Event, memory: Memory, at: Time) -> Result<Option<Value>, Failure> {
        let starts = matches!(event.hook_event_name.as_str(), "SessionStart" | "SubagentStart");
        if !starts && (!event.is_stop() || event.stop_hook_active || memory == Memory::Off) {
            return Ok(None);
        }
        let Some(now) = self.standing(event)? else { return Ok(None) };
        if starts {
            let about = context_of(&now);
            return Ok(Some(json!({
                "hookSpecificOutput": { "hookEventName": event.hook_event_name, "additionalContext": about },
            })));
        }
        let is_subagent = event.agent().is_some();
        let wanted = now.end_of_run || (memory == Memory::All && !is_subagent);
        if !wanted || !now.spawned || now.asked_at.is_some() {
            return Ok(None);
        }
        let prompt = PromptKey { id: event.prompt_id.clone(), line: None };
        let asked = Seen::new(at, event.agent(), &prompt, Fact::Asked);
        self.core.observe(self.context, &event.observation(vec![asked]))?;
        let reason = closing::prompt(&now.handle, now.scratchpad.as_deref(), is_subagent);
        Ok(Some(json!({ "decision": "block", "reason": reason })))
    }
}

/// Who an agent is and what it noted for itself. Facts, not orders.
fn context_of(now: &Standing) -> String {
    let role = now.role.as_deref().map(|role| format!(" in the role {role}")).unwrap_or_default();
    let who = format!(
        "Trackway records this work. Agent: {}{role}, of {}. Run: {}.",
        now.handle,
        now.owner,
        now.run_id.short()
    );
    let read = format!("trackway scratchpad get --agent {}", now.handle);
    match now.scratchpad.as_deref().filter(|content| !content.trim().is_empty()) {
        None => format!("{who}\nThe scratchpad of {} is empty.", now.handle),
        Some(content) => {
            let room = CONTEXT_MAX - who.chars().count() - read.chars().count() - 300;
            let shown = text::cut(content, room);
            let rest = if shown.len() < content.len() { " It is cut here." } else { "" };
            format!(
                "{who}\nThe scratchpad of {} (revision {}), notes from its earlier runs, between the lines:\n-----\n{shown}\n-----\n{rest}Read it with: {read}",
                now.handle,
                now.revision.unwrap_or_default(),
            )
        }
    }
}

/// The folder beside a database; for a server's, one of the user's for each.
pub fn folder_of(location: &Location) -> PathBuf {
    match &location.url {
        Url::Sqlite(path) => path.parent().map(Path::to_path_buf).unwrap_or_default(),
        Url::Postgres(url) => user_folder().join(&tool::digest(format!("{url} {}", location.tenant).as_bytes())[..16]),
    }
}

fn user_folder() -> PathBuf {
    user_file().ok().and_then(|file| file.parent().map(Path::to_path_buf)).unwrap_or_else(std::env::temp_dir)
}

fn spool(folder: &Path, spooled: &Spooled) -> std::io::Result<()> {
    let spool = folder.join("spool");
    make_private(&spool)?;
    let name = format!("{:020}-{}", spooled.at.micros(), std::process::id());
    let half = spool.join(format!("{name}.half"));
    fs::write(&half, serde_json::to_vec(spooled)?)?;
    fs::rename(half, spool.join(format!("{name}.json")))
}

/// Events hold what people and agents said: they wait where only their owner looks.
#[cfg(unix)]
fn make_private(folder: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)
}

#[cfg(not(unix))]
fn make_private(folder: &Path) -> std::io::Result<()> {
    fs::create_dir_all(folder)
}

/// One line for each failure, beside the database.
fn log(folder: &Path, event: &str, why: &str) {
    let path = folder.join("hook.log");
    let _ = fs::create_dir_all(folder);
    if path.metadata().is_ok_and(|log| log.len() > LOG_MAX) {
        let _ = fs::rename(&path, folder.join("hook.log.old"));
    }
    let line = format!(
        "{} {} {}\n",
        Time::now(),
        text::cut(&text::clean_line(event), 40),
        text::cut(&text::clean_line(&redacted(why)), 500)
    );
    let file = fs::OpenOptions::new().create(true).append(true).open(path);
    let _ = file.and_then(|mut file| file.write_all(line.as_bytes()));
}

//! Records one event in an open database, with the new lines of its transcripts, and finds the answer for the agent.

use std::{cell::Cell, fs, path::Path};

use trackway_actions::{Context, Core};
use trackway_domain::{
    Id, Time, closing,
    enums::{ChangeEvidence, FileChange, Memory},
    kind,
    observed::{CommitFacts, Fact, FileFacts, Location, Observation, ObservedFact, PromptKey, SessionFacts},
    text,
    wake_context::fenced_within,
    work_tree::recorded_head,
};
use trackway_store::Reader;
use trackway_views::{
    session::{SessionAgent, SessionAgentState, last_change, main_agent, recorded_heads, session_agent_state},
    transcript,
};

use super::{
    Answer, EventKind, HookEvent, HookLog,
    spool::{Spooled, spool, spooled_files},
};
use crate::{
    client::{Client, Clients},
    digest::digest_of_file,
    error::{Error, Result},
    paths::modified_at,
    redact::redacted,
    transcript::{Flow, ReadCursor, Transcript, has_news},
    work_tree,
};

/// Maximum number of UTF-16 code units of the context for a starting agent. The client accepts a little more.
const CONTEXT_MAX: usize = closing::HOOK_OUTPUT_MAX - 500;
/// Maximum number of UTF-16 code units of the owner's description of the agent in that context.
const IDENTITY_MAX: usize = 3_000;
/// If the transcripts have more new bytes than this, the hook for the end of a session leaves reading them to the next
/// hook.
const READ_AT_END_MAX: u64 = 8 << 20;
/// Maximum number of files whose change is attributed to the commands of one run.
const OBSERVED_MAX: usize = 200;
/// If an event reads more bytes of transcripts than this, it takes several transactions, so that other writers need not
/// wait too long.
const TRANSACTION_BYTES_MAX: i64 = 8 << 20;

/// Reads the database after the facts of an event were written, in the same transaction. May return a further
/// observation.
type AfterWrite<'a> = dyn Fn(&mut Reader<'_>) -> trackway_actions::Result<Option<Observation>> + 'a;

/// Applies the spooled events of all clients.
pub fn apply_spooled(core: &Core, context: &Context, log: &HookLog, clients: Clients) -> Result<()> {
    let spool = log.folder.join("spool");
    let waiting = spooled_files(&spool);
    if waiting.is_empty() {
        return Ok(());
    }
    let Ok(lock) = fs::File::create(spool.join("lock")) else { return Ok(()) };
    if lock.try_lock().is_err() {
        return Err(Error::ApplyingSpool);
    }
    for path in waiting {
        let Ok(text) = fs::read(&path) else { continue };
        match parse_spooled(&text, clients) {
            Ok((spooled, client, event)) => {
                let intake = Intake { core, context, log, client };
                match intake.record(&event, Memory::Off, spooled.at) {
                    Err(error) if error.is_transient() => return Err(error),
                    Err(error) => log.write(&event.name, &error.to_string()),
                    Ok(_) => {}
                }
            }
            Err(reason) => log.write("spool", &reason),
        }
        let _ = fs::remove_file(&path);
    }
    Ok(())
}

fn parse_spooled(
    text: &[u8],
    clients: Clients,
) -> std::result::Result<(Spooled, &'static dyn Client, HookEvent), String> {
    let spooled = serde_json::from_slice::<Spooled>(text).map_err(|error| error.to_string())?;
    let client = clients.named(spooled.client.as_deref()).ok_or("the event is from an unknown client")?;
    let event = client.hook_event(spooled.event.as_bytes())?;
    Ok((spooled, client, event))
}

/// Records events of one client in an open database.
pub struct Intake<'a> {
    pub core: &'a Core,
    pub context: &'a Context,
    pub log: &'a HookLog,
    pub client: &'static dyn Client,
}

impl Intake<'_> {
    /// Records an event and the new lines of its transcripts, and returns the answer for the agent.
    pub fn record(&self, event: &HookEvent, memory: Memory, at: Time) -> Result<Option<Answer>> {
        let mut facts = event.facts(self.client.agent_trees(), at);
        if let Some(stop) = event.stop().filter(|stop| stop.after_hook)
            && let Some(answer) = &stop.message
            && self.agent_state(event)?.is_some_and(|now| now.asked_at.is_some())
        {
            let fact = Fact::EndOfRunReply { answer: answer.clone() };
            facts.push(ObservedFact::new(at, event.agent.as_deref(), &event.prompt(), fact));
        }
        if event.may_have_committed() || event.stop().is_some() {
            facts.extend(self.find_effects(event, at)?);
        }
        let mut batch = Batch { intake: self, event, observations: Vec::new(), bytes: 0 };
        if !facts.is_empty() {
            batch.observations.push(event.observation(self.client.name(), facts));
        }
        let transcript_bytes: u64 = event
            .transcripts_to_read
            .iter()
            .map(|transcript| transcript.path.metadata().map_or(0, |file| file.len()))
            .sum();
        let is_too_long = matches!(event.kind, EventKind::SessionEnded) && transcript_bytes > READ_AT_END_MAX;
        let read = if is_too_long {
            self.spool_reading(event, at);
            Ok(())
        } else {
            event.transcripts_to_read.iter().try_for_each(|transcript| batch.read(transcript))
        };
        // An unreadable transcript must not prevent recording the event. But then this call returns an error instead of
        // an answer, so the agent receives no end-of-run prompt, and the database must not record that it did.
        let memory = if read.is_ok() { memory } else { Memory::Off };
        let answer = batch.finish(memory, at)?;
        read.map(|()| answer)
    }

    fn agent_state(&self, event: &HookEvent) -> Result<Option<SessionAgentState>> {
        let mut read = self.core.store().read(self.context.tenant)?;
        Ok(session_agent_state(&mut read, self.client.name(), &event.session, event.agent.as_deref())?)
    }

    /// Leaves reading the transcripts to the next hook, because a client gives the hook for the end of a session little
    /// time.
    fn spool_reading(&self, event: &HookEvent, at: Time) {
        let spooled = Spooled {
            at,
            memory: Memory::Off,
            client: Some(self.client.name().to_owned()),
            event: self.client.catch_up_event(event),
        };
        if let Err(error) = spool(&self.log.folder, &spooled) {
            let reason =
                format!("cannot spool the event; run trackway ingest to read the rest of the transcript: {error}");
            self.log.write(&event.name, &reason);
        }
    }

    /// Finds the commits that the agent's commands made, and at the end of a run also the files that they changed.
    ///
    /// Git may take seconds, so this runs before the transaction. It reads the database as it was before the event.
    fn find_effects(&self, event: &HookEvent, at: Time) -> Result<Vec<ObservedFact>> {
        let heads =
            recorded_heads(&mut self.core.store().read(self.context.tenant)?, self.client.name(), &event.session)?;
        let find = |cwd: &str| work_tree::locate(cwd, self.client.agent_trees());
        let mut locations: Vec<Location> = event.cwd.as_deref().map(find).into_iter().collect();
        // Most commands commit nothing. Comparing HEAD detects this by reading two small files.
        if event.stop().is_none() && !locations.iter().any(|location| moved_head(location, heads.as_deref()).is_some())
        {
            return Ok(Vec::new());
        }
        let now = self.agent_state(event)?;
        // The time of the command that this event reports. If there is no run yet, the command begins a run.
        let command = event.may_have_committed().then_some(at);
        let Some(started_at) = now.as_ref().map(|now| now.started_at).or(command) else { return Ok(Vec::new()) };
        let shell = now.as_ref().and_then(|now| now.shell_at).max(command);
        let Some(shell) = shell.filter(|shell| *shell >= started_at) else { return Ok(Vec::new()) };
        // The main agent may have left the work tree in which its run began.
        let root = now.as_ref().and_then(|now| now.root.as_deref());
        let run_location = root.filter(|_| event.agent.is_none()).map(find);
        locations.extend(
            run_location.filter(|run_location| locations.iter().all(|location| location.root != run_location.root)),
        );
        let prompt = event.prompt();
        let mut facts = Vec::new();
        for location in &locations {
            let seen =
                |fact| ObservedFact::new(at, event.agent.as_deref(), &prompt, fact).at_location(Some(location.clone()));
            if let Some((root, head)) = moved_head(location, heads.as_deref()) {
                let new = new_commits(root, heads.as_deref(), &head, started_at);
                facts.extend(new.into_iter().map(|commit| seen(Fact::Commit(commit))));
                let at_head = SessionFacts { root: location.root.clone(), head: Some(head), ..SessionFacts::default() };
                facts.push(ObservedFact::new(at, None, &PromptKey::default(), Fact::Session(Box::new(at_head))));
            }
            if event.stop().is_some_and(|stop| !stop.after_hook) {
                let changed = self.changed_by_commands(location, started_at, shell)?;
                facts.extend(changed.into_iter().map(|file| seen(Fact::File(file))));
            }
        }
        Ok(facts)
    }

    /// The answer for an agent that starts or stops, and the facts that the answer adds.
    fn answer(
        &self,
        read: &mut Reader<'_>,
        event: &HookEvent,
        memory: Memory,
        at: Time,
    ) -> trackway_actions::Result<(Option<Answer>, Option<Observation>)> {
        let (client, agent) = (self.client.name(), event.agent.as_deref());
        let now = session_agent_state(read, client, &event.session, agent)?;
        if event.is_start() {
            let run = now.as_ref().filter(|now| now.is_open).map(|now| now.run_id);
            let starting_agent = match now {
                Some(now) => Some(now.agent),
                // A session that has just begun has no run yet.
                None if agent.is_none() => main_agent(read, client, &event.session, self.context.actor.id())?,
                None => None,
            };
            return Ok((starting_agent.map(|agent| Answer::Context(context_of(&agent, run))), None));
        }
        let Some(now) = now else { return Ok((None, None)) };
        let is_wanted = now.agent.end_of_run || (memory == Memory::All && agent.is_none());
        if !is_wanted || !now.has_spawn || now.asked_at.is_some() {
            return Ok((None, None));
        }
        let prompt_fact = ObservedFact::new(at, agent, &event.prompt(), Fact::EndOfRunPrompt);
        let prompt = closing::prompt(&now.agent.handle, now.agent.scratchpad.as_deref(), agent.is_some());
        Ok((Some(Answer::Continue(prompt)), Some(event.observation(client, vec![prompt_fact]))))
    }

    /// Files that changed while the run executed commands, and whose change no tool reported.
    fn changed_by_commands(&self, location: &Location, since: Time, until: Time) -> Result<Vec<FileFacts>> {
        let (Some(root), Some(workspace)) = (&location.root, &location.workspace) else { return Ok(Vec::new()) };
        let mut facts = Vec::new();
        let mut read = self.core.store().read(self.context.tenant)?;
        for (path, change) in work_tree::changed_between(root, since, until).into_iter().take(OBSERVED_MAX) {
            let file = Path::new(root).join(&path);
            let last = last_change(&mut read, workspace, &redacted(&path))?;
            let digest = digest_of_file(&file);
            let is_news = match change {
                // The time of a deletion is unknown. The deletion counts for this run only if the file existed during
                // the run.
                FileChange::Delete => {
                    last.as_ref().is_some_and(|last| last.change != FileChange::Delete && last.created_at >= since)
                }
                // Some clients do not report the content after a change. For these, a file that was not written since
                // the change is unchanged.
                _ if last.as_ref().is_some_and(|last| last.digest.is_none() && !is_newer(&file, last.created_at)) => {
                    false
                }
                _ => digest.is_some() && last.as_ref().and_then(|last| last.digest.as_ref()) != digest.as_ref(),
            };
            if Path::new(&path).starts_with(".trackway") || !is_news {
                continue;
            }
            // A file that is new to git may be known to the database.
            let is_known = last.is_some_and(|last| last.change != FileChange::Delete);
            facts.push(FileFacts {
                path: redacted(&file.to_string_lossy()).into_owned(),
                change: if is_known && change == FileChange::Create { FileChange::Update } else { change },
                evidence: ChangeEvidence::Observed,
                tool: None,
                tool_use_id: None,
                digest,
                line_hashes: None,
            });
        }
        Ok(facts)
    }
}

/// The observations of one event, for one transaction.
struct Batch<'a> {
    intake: &'a Intake<'a>,
    event: &'a HookEvent,
    observations: Vec<Observation>,
    /// The number of transcript bytes from which the observations were read.
    bytes: i64,
}

impl Batch<'_> {
    /// Reads the new lines of a transcript.
    fn read(&mut self, transcript: &Transcript) -> Result<()> {
        let Intake { core, context, client, .. } = self.intake;
        let path = transcript.path.to_string_lossy();
        let cursor = transcript::cursor(&mut core.store().read(context.tenant)?, &path)?.map(ReadCursor::from);
        if !has_news(&transcript.path, cursor.as_ref()) {
            return Ok(());
        }
        let mut outcome = Ok(());
        client.read_transcript(transcript, cursor.as_ref(), &mut |observation| {
            self.bytes += observation.progress.as_ref().map_or(0, |progress| progress.to - progress.from);
            self.observations.push(observation);
            if self.bytes >= TRANSACTION_BYTES_MAX {
                outcome = self.write(&|_| Ok(None));
            }
            if outcome.is_ok() { Flow::Continue } else { Flow::Stop }
        })?;
        outcome
    }

    /// Writes the collected observations: those of the event's session in one transaction, then those of other
    /// sessions.
    fn write(&mut self, after_write: &AfterWrite<'_>) -> Result<()> {
        let Intake { core, context, .. } = self.intake;
        self.bytes = 0;
        let (own, others): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.observations).into_iter().partition(|one| one.session == self.event.session);
        let written = match core.observe_event(context, &own, after_write) {
            // Write each observation separately, so that a faulty one does not block the others.
            Err(error) if !error.is_transient() && own.len() > 1 => {
                let each = own.iter().map(|one| core.observe(context, one).map(drop));
                let outcomes: Vec<_> = each.chain([core.observe_event(context, &[], after_write)]).collect();
                outcomes.into_iter().collect()
            }
            outcome => outcome,
        };
        let others: Vec<_> = others.iter().map(|one| core.observe(context, one).map(drop)).collect();
        Ok([written].into_iter().chain(others).collect::<trackway_actions::Result<()>>()?)
    }

    /// Writes the remaining observations, and finds the answer: context for a starting agent, or the end-of-run prompt
    /// for a stopping one.
    fn finish(&mut self, memory: Memory, at: Time) -> Result<Option<Answer>> {
        let event = self.event;
        let stops = event.stop().is_some_and(|stop| !stop.after_hook) && memory != Memory::Off;
        let needs_answer = event.is_start() || stops;
        if self.observations.is_empty() && !needs_answer {
            return Ok(None);
        }
        let (intake, answer) = (self.intake, Cell::new(None));
        self.write(&|read| {
            if !needs_answer {
                return Ok(None);
            }
            let (found, observation) = intake.answer(read, event, memory, at)?;
            answer.set(found);
            Ok(observation)
        })?;
        Ok(answer.take())
    }
}

/// Whether a file was written after this time, or has no known time.
fn is_newer(file: &Path, at: Time) -> bool {
    modified_at(file).is_none_or(|modified| modified > at)
}

/// The work tree of a location and the commit at its HEAD, if HEAD differs from the recorded HEAD.
fn moved_head<'a>(location: &'a Location, heads: Option<&str>) -> Option<(&'a str, String)> {
    let root = location.root.as_deref().filter(|_| location.workspace.is_some())?;
    let head = work_tree::head(root)?;
    let known = heads.and_then(|heads| recorded_head(heads, root));
    (known != Some(head.as_str())).then_some((root, head))
}

/// The commits that a run made since the recorded HEAD of a work tree. Older commits were only pulled or checked out.
fn new_commits(root: &str, heads: Option<&str>, head: &str, started_at: Time) -> Vec<CommitFacts> {
    let range = match heads.and_then(|heads| recorded_head(heads, root)) {
        Some(before) => format!("{before}..{head}"),
        // The work tree has no recorded HEAD, so even the first commit of the repository may be new.
        None => head.to_owned(),
    };
    // Times of commits are whole seconds.
    let is_own = |commit: &CommitFacts| commit.committed_at.is_some_and(|at| at.plus_seconds(1) > started_at);
    work_tree::commits(root, &[&range]).into_iter().filter(is_own).collect()
}

/// The context for a starting agent: its identity and its scratchpad, as facts without instructions.
fn context_of(agent: &SessionAgent, run: Option<Id<kind::Run>>) -> String {
    let role = agent.role.as_deref().map(|role| format!(" in the role {role}")).unwrap_or_default();
    let run = run.map(|run| format!(" Run: {}.", run.short())).unwrap_or_default();
    let mut about = format!("Trackway records this work. Agent: {}{role}, of {}.{run}", agent.handle, agent.owner);
    let has_text = |text: &&String| !text.trim().is_empty();
    if let Some(identity) = agent.identity.as_ref().filter(has_text) {
        about += &format!("\nDescription by its owner:\n{}", fenced_within("text", identity, IDENTITY_MAX).0);
    }
    let Some(content) = agent.scratchpad.as_ref().filter(has_text) else {
        return format!("{about}\nThe scratchpad of {} is empty.", agent.handle);
    };
    about += &format!(
        "\nThe scratchpad of {} (revision {}), notes from its earlier runs:\n",
        agent.handle,
        agent.revision.unwrap_or_default()
    );
    let read = closing::scratchpad_read_command(&agent.handle);
    let budget = CONTEXT_MAX.saturating_sub(text::utf16_length(&about) + text::utf16_length(&read) + 50);
    let (shown, is_cut) = fenced_within("text", content, budget);
    let rest = if is_cut { "The text is cut here. Read all of it with" } else { "Read it with" };
    format!("{about}{shown}\n{rest}: {read}")
}

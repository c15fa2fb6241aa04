//! One event in an open database: its facts written down, what it points at read, and a word found for the agent.

use std::{cell::Cell, fs, path::Path};

use trackway_actions::{Context, Core};
use trackway_domain::{
    Id, Time, closing, kind,
    observed::{CommitFacts, Fact, FileFacts, Observation, Place, PromptKey, Seen, SessionFacts},
    text,
    wake_context::fenced_within,
    words::{ChangeEvidence, FileChange, Memory},
    work_tree::head_of,
};
use trackway_store::Reader;
use trackway_views::{
    session::{Standing, StandingAgent, heads, last_change, main_agent, standing},
    transcript,
};

use super::{
    Answer, Happened, HookEvent, HookLog,
    spool::{Spooled, spool, waiting_in},
};
use crate::{
    client::{Client, Clients},
    digest::digest_of_file,
    error::{Error, Result},
    paths::modified,
    redact::redacted,
    transcript::{Flow, Mark, Transcript, has_news},
    work_tree,
};

/// Units of UTF-16 that are told to an agent: less than the client takes.
const CONTEXT_MAX: usize = closing::HOOK_MAX - 500;
/// Units of that for what its owner says it is.
const IDENTITY_MAX: usize = 3_000;
/// Unread bytes of transcripts above which reading is left to the next call.
const READ_AT_END_MAX: u64 = 8 << 20;
/// Files that a shell is said to have changed in one run.
const OBSERVED_MAX: usize = 200;
/// Bytes of transcripts above which an event is written in several transactions: others write meanwhile.
const TOGETHER_MAX: i64 = 8 << 20;

/// Looks at the record with all of an event in it, and may add an observation.
type Then<'a> = dyn Fn(&mut Reader<'_>) -> trackway_actions::Result<Option<Observation>> + 'a;

/// Applies the spooled events, for every client.
pub fn apply_spooled(core: &Core, context: &Context, log: &HookLog, clients: Clients) -> Result<()> {
    let spool = log.folder.join("spool");
    let waiting = waiting_in(&spool);
    if waiting.is_empty() {
        return Ok(());
    }
    let Ok(lock) = fs::File::create(spool.join("lock")) else { return Ok(()) };
    if lock.try_lock().is_err() {
        return Err(Error::Applying);
    }
    for path in waiting {
        let Ok(text) = fs::read(&path) else { continue };
        match parsed(&text, clients) {
            Ok((spooled, client, event)) => {
                let intake = Intake { core, context, log, client };
                match intake.take(&event, Memory::Off, spooled.at) {
                    Err(error) if error.is_passing() => return Err(error),
                    Err(error) => log.write(&event.name, &error.to_string()),
                    Ok(_) => {}
                }
            }
            Err(why) => log.write("spool", &why),
        }
        let _ = fs::remove_file(&path);
    }
    Ok(())
}

fn parsed(text: &[u8], clients: Clients) -> std::result::Result<(Spooled, &'static dyn Client, HookEvent), String> {
    let spooled = serde_json::from_slice::<Spooled>(text).map_err(|error| error.to_string())?;
    let client = clients.named(spooled.client.as_deref()).ok_or("an event of an unknown client")?;
    let event = client.hook_event(spooled.event.as_bytes())?;
    Ok((spooled, client, event))
}

/// An open database that events of one client are written to.
pub struct Intake<'a> {
    pub core: &'a Core,
    pub context: &'a Context,
    pub log: &'a HookLog,
    pub client: &'static dyn Client,
}

impl Intake<'_> {
    /// Writes an event and what is new in the transcripts that it points at, and finds what to answer the agent.
    pub fn take(&self, event: &HookEvent, memory: Memory, at: Time) -> Result<Option<Answer>> {
        let mut facts = event.facts(self.client.agent_trees(), at);
        if let Some(stop) = event.stop().filter(|stop| stop.after_hook)
            && let Some(answer) = &stop.message
            && self.standing(event)?.is_some_and(|now| now.asked_at.is_some())
        {
            let fact = Fact::Closing { answer: answer.clone() };
            facts.push(Seen::new(at, event.agent.as_deref(), &event.prompt(), fact));
        }
        if event.may_have_committed() || event.stop().is_some() {
            facts.extend(self.look_around(event, at)?);
        }
        let mut batch = Batch { intake: self, event, observations: Vec::new(), bytes: 0 };
        if !facts.is_empty() {
            batch.observations.push(event.observation(self.client.name(), facts));
        }
        let waiting: u64 =
            event.read.iter().map(|transcript| transcript.path.metadata().map_or(0, |file| file.len())).sum();
        let is_for_later = matches!(event.happened, Happened::SessionEnded) && waiting > READ_AT_END_MAX;
        let read = if is_for_later {
            self.read_later(event, at);
            Ok(())
        } else {
            event.read.iter().try_for_each(|transcript| batch.read(transcript))
        };
        // A transcript that cannot be read keeps nothing else out. But an agent whose event failed gets no answer, so it is not
        // recorded as asked.
        let memory = if read.is_ok() { memory } else { Memory::Off };
        let answer = batch.finish(memory, at)?;
        read.map(|()| answer)
    }

    fn standing(&self, event: &HookEvent) -> Result<Option<Standing>> {
        let mut read = self.core.store().read(self.context.tenant)?;
        Ok(standing(&mut read, self.client.name(), &event.session, event.agent.as_deref())?)
    }

    /// A session that ends has little time: the next event reads the rest of it.
    fn read_later(&self, event: &HookEvent, at: Time) {
        let spooled = Spooled {
            at,
            memory: Memory::Off,
            client: Some(self.client.name().to_owned()),
            event: self.client.read_on_event(event),
        };
        if let Err(error) = spool(&self.log.folder, &spooled) {
            self.log.write(&event.name, &format!("the rest of the transcript is for ingest: {error}"));
        }
    }

    /// Finds commits that appeared where the agent is, and at the end of a run files that a command changed.
    ///
    /// Git may take seconds, so this comes before the transaction: the record is read as it was before the event.
    fn look_around(&self, event: &HookEvent, at: Time) -> Result<Vec<Seen>> {
        let heads = heads(&mut self.core.store().read(self.context.tenant)?, self.client.name(), &event.session)?;
        let find = |cwd: &str| work_tree::find(cwd, self.client.agent_trees());
        let mut places: Vec<Place> = event.cwd.as_deref().map(find).into_iter().collect();
        // Most commands commit nothing, and that much is seen in two small files.
        if event.stop().is_none() && !places.iter().any(|place| moved(place, heads.as_deref()).is_some()) {
            return Ok(Vec::new());
        }
        let now = self.standing(event)?;
        // The command that this event tells of is the last one, and begins a run where there is none.
        let command = event.may_have_committed().then_some(at);
        let Some(started_at) = now.as_ref().map(|now| now.started_at).or(command) else { return Ok(Vec::new()) };
        let shell = now.as_ref().and_then(|now| now.shell_at).max(command);
        let Some(shell) = shell.filter(|shell| *shell >= started_at) else { return Ok(Vec::new()) };
        // The main agent may have gone elsewhere in the end.
        let root = now.as_ref().and_then(|now| now.root.as_deref());
        let home = root.filter(|_| event.agent.is_none()).map(find);
        places.extend(home.filter(|home| places.iter().all(|place| place.root != home.root)));
        let prompt = event.prompt();
        let mut facts = Vec::new();
        for place in &places {
            let seen = |fact| Seen::new(at, event.agent.as_deref(), &prompt, fact).seen_in(Some(place.clone()));
            if let Some((root, head)) = moved(place, heads.as_deref()) {
                let new = new_commits(root, heads.as_deref(), &head, started_at);
                facts.extend(new.into_iter().map(|commit| seen(Fact::Commit(commit))));
                let at_head = SessionFacts { root: place.root.clone(), head: Some(head), ..SessionFacts::default() };
                facts.push(Seen::new(at, None, &PromptKey::default(), Fact::Session(Box::new(at_head))));
            }
            if event.stop().is_some_and(|stop| !stop.after_hook) {
                let changed = self.changed_by_commands(place, started_at, shell)?;
                facts.extend(changed.into_iter().map(|file| seen(Fact::File(file))));
            }
        }
        Ok(facts)
    }

    /// What to answer an agent that starts or stops, and what that adds to the record.
    fn answer(
        &self,
        read: &mut Reader<'_>,
        event: &HookEvent,
        memory: Memory,
        at: Time,
    ) -> trackway_actions::Result<(Option<Answer>, Option<Observation>)> {
        let (client, agent) = (self.client.name(), event.agent.as_deref());
        let now = standing(read, client, &event.session, agent)?;
        if event.is_start() {
            let run = now.as_ref().filter(|now| now.is_open).map(|now| now.run_id);
            let who = match now {
                Some(now) => Some(now.who),
                // A session that has only begun has no run yet.
                None if agent.is_none() => main_agent(read, client, &event.session, self.context.actor.id())?,
                None => None,
            };
            return Ok((who.map(|who| Answer::Context(context_of(&who, run))), None));
        }
        let Some(now) = now else { return Ok((None, None)) };
        let wanted = now.who.end_of_run || (memory == Memory::All && agent.is_none());
        if !wanted || !now.spawned || now.asked_at.is_some() {
            return Ok((None, None));
        }
        let asked = Seen::new(at, agent, &event.prompt(), Fact::Asked);
        let prompt = closing::prompt(&now.who.handle, now.who.scratchpad.as_deref(), agent.is_some());
        Ok((Some(Answer::Continue(prompt)), Some(event.observation(client, vec![asked]))))
    }

    /// Files that changed while the run ran commands, and that no tool told of.
    fn changed_by_commands(&self, place: &Place, since: Time, until: Time) -> Result<Vec<FileFacts>> {
        let (Some(root), Some(workspace)) = (&place.root, &place.workspace) else { return Ok(Vec::new()) };
        let mut facts = Vec::new();
        let mut read = self.core.store().read(self.context.tenant)?;
        for (path, change) in work_tree::changed_between(root, since, until).into_iter().take(OBSERVED_MAX) {
            let file = Path::new(root).join(&path);
            let last = last_change(&mut read, workspace, &redacted(&path))?;
            let digest = digest_of_file(&file);
            let news = match change {
                // When a file went away nobody can tell; that it went in this run only of one that was there in it.
                FileChange::Delete => {
                    last.as_ref().is_some_and(|last| last.change != FileChange::Delete && last.created_at >= since)
                }
                // Some clients do not say what a tool left: it is what was there when they told of it.
                _ if last.as_ref().is_some_and(|last| last.digest.is_none() && !is_newer(&file, last.created_at)) => {
                    false
                }
                _ => digest.is_some() && last.as_ref().and_then(|last| last.digest.as_ref()) != digest.as_ref(),
            };
            if Path::new(&path).starts_with(".trackway") || !news {
                continue;
            }
            // What git does not know yet, the record may.
            let is_known = last.is_some_and(|last| last.change != FileChange::Delete);
            facts.push(FileFacts {
                path: redacted(&file.to_string_lossy()).into_owned(),
                change: if is_known && change == FileChange::Create { FileChange::Update } else { change },
                evidence: ChangeEvidence::Observed,
                tool: None,
                tool_use_id: None,
                digest,
                written: None,
            });
        }
        Ok(facts)
    }
}

/// What belongs to one event, on its way to one transaction.
struct Batch<'a> {
    intake: &'a Intake<'a>,
    event: &'a HookEvent,
    observations: Vec<Observation>,
    /// Bytes of transcripts that the observations were read from.
    bytes: i64,
}

impl Batch<'_> {
    /// Reads on in a transcript.
    fn read(&mut self, transcript: &Transcript) -> Result<()> {
        let Intake { core, context, client, .. } = self.intake;
        let path = transcript.path.to_string_lossy();
        let mark = transcript::read_to(&mut core.store().read(context.tenant)?, &path)?.map(Mark::from);
        if !has_news(&transcript.path, mark.as_ref()) {
            return Ok(());
        }
        let mut outcome = Ok(());
        client.read_transcript(transcript, mark.as_ref(), &mut |observation| {
            self.bytes += observation.progress.as_ref().map_or(0, |progress| progress.to - progress.from);
            self.observations.push(observation);
            if self.bytes >= TOGETHER_MAX {
                outcome = self.write(&|_| Ok(None));
            }
            if outcome.is_ok() { Flow::Continue } else { Flow::Stop }
        })?;
        outcome
    }

    /// Writes what was collected, in one transaction: the session of the event first, then those of other transcripts.
    fn write(&mut self, then: &Then<'_>) -> Result<()> {
        let Intake { core, context, .. } = self.intake;
        self.bytes = 0;
        let (own, others): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.observations).into_iter().partition(|one| one.session == self.event.session);
        let written = match core.observe_event(context, &own, then) {
            // One that cannot be written keeps no other out.
            Err(error) if !error.is_passing() && own.len() > 1 => {
                let each = own.iter().map(|one| core.observe(context, one).map(drop));
                let outcomes: Vec<_> = each.chain([core.observe_event(context, &[], then)]).collect();
                outcomes.into_iter().collect()
            }
            outcome => outcome,
        };
        let others: Vec<_> = others.iter().map(|one| core.observe(context, one).map(drop)).collect();
        Ok([written].into_iter().chain(others).collect::<trackway_actions::Result<()>>()?)
    }

    /// Writes the rest, and finds what the agent is told: who it is when it starts, the end-of-run prompt when it stops.
    fn finish(&mut self, memory: Memory, at: Time) -> Result<Option<Answer>> {
        let event = self.event;
        let stops = event.stop().is_some_and(|stop| !stop.after_hook) && memory != Memory::Off;
        let is_asking = event.is_start() || stops;
        if self.observations.is_empty() && !is_asking {
            return Ok(None);
        }
        let (intake, answer) = (self.intake, Cell::new(None));
        self.write(&|read| {
            if !is_asking {
                return Ok(None);
            }
            let (found, asked) = intake.answer(read, event, memory, at)?;
            answer.set(found);
            Ok(asked)
        })?;
        Ok(answer.take())
    }
}

/// Whether a file was written to after this time.
fn is_newer(file: &Path, at: Time) -> bool {
    modified(file).is_none_or(|modified| modified > at)
}

/// The work tree of a place and the commit it is at, when it is not where it was last seen.
fn moved<'a>(place: &'a Place, heads: Option<&str>) -> Option<(&'a str, String)> {
    let root = place.root.as_deref().filter(|_| place.workspace.is_some())?;
    let head = work_tree::head(root)?;
    let known = heads.and_then(|heads| head_of(heads, root));
    (known != Some(head.as_str())).then_some((root, head))
}

/// The commits that a run made since a work tree was last seen. What was pulled in was made by others, and before.
fn new_commits(root: &str, heads: Option<&str>, head: &str, started_at: Time) -> Vec<CommitFacts> {
    let range = match heads.and_then(|heads| head_of(heads, root)) {
        Some(before) => format!("{before}..{head}"),
        // Never seen before: the first commits of a repository are new, too.
        None => head.to_owned(),
    };
    let own = |commit: &CommitFacts| commit.committed_at.is_some_and(|at| at.plus_seconds(1) > started_at);
    work_tree::commits(root, &[&range]).into_iter().filter(own).collect()
}

/// Who an agent is and what it noted for itself. Facts, not orders.
fn context_of(who: &StandingAgent, run: Option<Id<kind::Run>>) -> String {
    let role = who.role.as_deref().map(|role| format!(" in the role {role}")).unwrap_or_default();
    let run = run.map(|run| format!(" Run: {}.", run.short())).unwrap_or_default();
    let mut about = format!("Trackway records this work. Agent: {}{role}, of {}.{run}", who.handle, who.owner);
    let says = |text: &&String| !text.trim().is_empty();
    if let Some(identity) = who.identity.as_ref().filter(says) {
        about += &format!("\nWhat its owner says it is:\n{}", fenced_within("text", identity, IDENTITY_MAX).0);
    }
    let Some(content) = who.scratchpad.as_ref().filter(says) else {
        return format!("{about}\nThe scratchpad of {} is empty.", who.handle);
    };
    about += &format!(
        "\nThe scratchpad of {} (revision {}), notes from its earlier runs:\n",
        who.handle,
        who.revision.unwrap_or_default()
    );
    let read = closing::to_read(&who.handle);
    let room = CONTEXT_MAX.saturating_sub(text::utf16_length(&about) + text::utf16_length(&read) + 50);
    let (shown, is_cut) = fenced_within("text", content, room);
    let rest = if is_cut { "It is cut here. Read all of it with" } else { "Read it with" };
    format!("{about}{shown}\n{rest}: {read}")
}

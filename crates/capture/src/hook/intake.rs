//! One event in an open database: its facts written down, what it points at read, and a word found for the agent.

use std::{fs, path::Path};

use trackway_actions::{Context, Core, session::Observed};
use trackway_domain::{
    Id, Time, closing, kind,
    observed::{CommitFacts, Fact, FileFacts, Place, PromptKey, Seen, SessionFacts},
    text,
    wake_context::fenced_within,
    words::{ChangeEvidence, FileChange, Memory},
    work_tree::head_of,
};
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
    /// Writes an event, reads the transcripts that it points at, and finds what to answer the agent.
    pub fn take(&self, event: &HookEvent, memory: Memory, at: Time) -> Result<Option<Answer>> {
        let mut facts = event.facts(self.client.agent_trees(), at);
        if let Some(stop) = event.stop().filter(|stop| stop.after_hook)
            && let Some(answer) = &stop.message
            && self.standing(event)?.is_some_and(|now| now.asked_at.is_some())
        {
            let fact = Fact::Closing { answer: answer.clone() };
            facts.push(Seen::new(at, event.agent.as_deref(), &event.prompt(), fact));
        }
        if !facts.is_empty() {
            self.core.observe(self.context, &event.observation(facts))?;
        }
        if event.may_have_committed() || event.stop().is_some() {
            self.look_around(event, at)?;
        }
        let waiting: u64 =
            event.read.iter().map(|transcript| transcript.path.metadata().map_or(0, |file| file.len())).sum();
        if matches!(event.happened, Happened::SessionEnded) && waiting > READ_AT_END_MAX {
            self.read_later(event, at);
        } else {
            for transcript in &event.read {
                self.read(transcript)?;
            }
        }
        self.answer(event, memory, at)
    }

    fn standing(&self, event: &HookEvent) -> Result<Option<Standing>> {
        Ok(standing(&mut self.core.store().read(self.context.tenant)?, &event.session, event.agent.as_deref())?)
    }

    /// Who a session is of that has only begun.
    fn main_agent(&self, event: &HookEvent) -> Result<Option<StandingAgent>> {
        if event.agent.is_some() {
            return Ok(None);
        }
        let mut read = self.core.store().read(self.context.tenant)?;
        Ok(main_agent(&mut read, &event.session, self.context.actor.id())?)
    }

    /// Reads on in a transcript.
    fn read(&self, transcript: &Transcript) -> Result<()> {
        let path = transcript.path.to_string_lossy();
        let mark = transcript::read_to(&mut self.core.store().read(self.context.tenant)?, &path)?.map(Mark::from);
        if !has_news(&transcript.path, mark.as_ref()) {
            return Ok(());
        }
        let mut outcome = Ok(Observed::Recorded);
        self.client.read_transcript(transcript, mark.as_ref(), &mut |observation| {
            outcome = self.core.observe(self.context, &observation);
            if matches!(outcome, Ok(Observed::Recorded)) { Flow::Continue } else { Flow::Stop }
        })?;
        outcome?;
        Ok(())
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

    /// Looks for commits that appeared where the agent is, and at the end of a run for files that a command changed.
    fn look_around(&self, event: &HookEvent, at: Time) -> Result<()> {
        let heads = heads(&mut self.core.store().read(self.context.tenant)?, &event.session)?;
        let find = |cwd: &str| work_tree::find(cwd, self.client.agent_trees());
        let mut places: Vec<Place> = event.cwd.as_deref().map(find).into_iter().collect();
        // Most commands commit nothing, and that much is seen in two small files.
        if event.stop().is_none() && !places.iter().any(|place| moved(place, heads.as_deref()).is_some()) {
            return Ok(());
        }
        let Some(now) = self.standing(event)? else { return Ok(()) };
        let Some(shell) = now.shell_at.filter(|shell| *shell >= now.started_at) else { return Ok(()) };
        // The main agent may have gone elsewhere in the end.
        let home = now.root.as_deref().filter(|_| event.agent.is_none()).map(find);
        places.extend(home.filter(|home| places.iter().all(|place| place.root != home.root)));
        let prompt = event.prompt();
        let mut facts = Vec::new();
        for place in &places {
            let seen = |fact| Seen::new(at, event.agent.as_deref(), &prompt, fact).seen_in(Some(place.clone()));
            if let Some((root, head)) = moved(place, heads.as_deref()) {
                let new = new_commits(root, heads.as_deref(), &head, now.started_at);
                facts.extend(new.into_iter().map(|commit| seen(Fact::Commit(commit))));
                let at_head = SessionFacts { root: place.root.clone(), head: Some(head), ..SessionFacts::default() };
                facts.push(Seen::new(at, None, &PromptKey::default(), Fact::Session(Box::new(at_head))));
            }
            if event.stop().is_some_and(|stop| !stop.after_hook) {
                let changed = self.changed_by_commands(place, now.started_at, shell)?;
                facts.extend(changed.into_iter().map(|file| seen(Fact::File(file))));
            }
        }
        if !facts.is_empty() {
            self.core.observe(self.context, &event.observation(facts))?;
        }
        Ok(())
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

    /// What the agent is told: who it is when it starts, the end-of-run prompt when it stops.
    fn answer(&self, event: &HookEvent, memory: Memory, at: Time) -> Result<Option<Answer>> {
        let stops = event.stop().is_some_and(|stop| !stop.after_hook) && memory != Memory::Off;
        if !event.is_start() && !stops {
            return Ok(None);
        }
        let now = self.standing(event)?;
        if event.is_start() {
            let run = now.as_ref().filter(|now| now.is_open).map(|now| now.run_id);
            let known = now.map(|now| now.who);
            let who = known.map_or_else(|| self.main_agent(event), |known| Ok(Some(known)))?;
            return Ok(who.map(|who| Answer::Context(context_of(&who, run))));
        }
        let Some(now) = now else { return Ok(None) };
        let is_subagent = event.agent.is_some();
        let wanted = now.who.end_of_run || (memory == Memory::All && !is_subagent);
        if !wanted || !now.spawned || now.asked_at.is_some() {
            return Ok(None);
        }
        let asked = Seen::new(at, event.agent.as_deref(), &event.prompt(), Fact::Asked);
        self.core.observe(self.context, &event.observation(vec![asked]))?;
        Ok(Some(Answer::Continue(closing::prompt(&now.who.handle, now.who.scratchpad.as_deref(), is_subagent))))
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

//! One event in an open database: its facts written down, what it points at read, and a word found for the agent.

use std::{fs, path::Path};

use serde_json::{Value, json};
use trackway_actions::{Context, Core, session::Observed};
use trackway_claude::{
    event::Event,
    redact::redacted,
    tool,
    transcript::{self, Flow, Mark, Transcript},
    work_tree,
};
use trackway_domain::{
    ErrorKind, Id, Time, closing, kind,
    observed::{Fact, FileFacts, PromptKey, Seen, SessionFacts},
    text,
    wake_context::fenced_within,
    words::{ChangeEvidence, FileChange, Memory},
};
use trackway_store::params;
use trackway_views::session::{Standing, StandingAgent, last_digest, main_agent, standing};

use super::{
    log,
    spool::{Spooled, spool, waiting_in},
};
use crate::failure::Failure;

/// Units of UTF-16 that are told to an agent: less than the client takes.
const CONTEXT_MAX: usize = closing::HOOK_MAX - 500;
/// Units of that for what its owner says it is.
const IDENTITY_MAX: usize = 3_000;
/// Unread bytes of transcripts above which reading is left to the next call.
const READ_AT_END_MAX: u64 = 8 << 20;
/// Files that a shell is said to have changed in one run.
const OBSERVED_MAX: usize = 200;

/// Applies the events that wait.
pub fn apply_waiting(core: &Core, context: &Context, folder: &Path) -> Result<(), Failure> {
    Hook { core, context, folder }.drain()
}

/// A database with someone at the door who will not wait.
pub struct Hook<'a> {
    pub core: &'a Core,
    pub context: &'a Context,
    pub folder: &'a Path,
}

impl Hook<'_> {
    /// Applies what earlier calls had to leave behind, in order. One call at a time does this.
    pub fn drain(&self) -> Result<(), Failure> {
        let spool = self.folder.join("spool");
        let waiting = waiting_in(&spool);
        if waiting.is_empty() {
            return Ok(());
        }
        let Ok(lock) = fs::File::create(spool.join("lock")) else { return Ok(()) };
        if lock.try_lock().is_err() {
            // Another call is at it: this event comes after those.
            return Err(Failure::new(ErrorKind::Busy, "events are being applied", None));
        }
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
    pub fn take(&self, event: &Event, memory: Memory, at: Time) -> Result<Option<Value>, Failure> {
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

    /// Who a session is of that has only begun.
    fn main_agent(&self, event: &Event) -> Result<Option<StandingAgent>, Failure> {
        if event.agent().is_some() {
            return Ok(None);
        }
        let mut read = self.core.store().read(self.context.tenant)?;
        Ok(main_agent(&mut read, &event.session_id, self.context.actor.id())?)
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
        let now = self.standing(event)?;
        if starts {
            let run = now.as_ref().map(|now| now.run_id);
            let known = now.map(|now| now.who);
            let Some(who) = known.map_or_else(|| self.main_agent(event), |known| Ok(Some(known)))? else {
                return Ok(None);
            };
            let about = context_of(&who, run);
            return Ok(Some(json!({
                "hookSpecificOutput": { "hookEventName": event.hook_event_name, "additionalContext": about },
            })));
        }
        let Some(now) = now else { return Ok(None) };
        let is_subagent = event.agent().is_some();
        let wanted = now.who.end_of_run || (memory == Memory::All && !is_subagent);
        if !wanted || !now.spawned || now.asked_at.is_some() {
            return Ok(None);
        }
        let prompt = PromptKey { id: event.prompt_id.clone(), line: None };
        let asked = Seen::new(at, event.agent(), &prompt, Fact::Asked);
        self.core.observe(self.context, &event.observation(vec![asked]))?;
        let reason = closing::prompt(&now.who.handle, now.who.scratchpad.as_deref(), is_subagent);
        Ok(Some(json!({ "decision": "block", "reason": reason })))
    }
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

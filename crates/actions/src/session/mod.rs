//! What was seen of sessions of clients, written down: by hooks as it happens, from transcripts afterwards.
//!
//! The observer context: facts about runs, recorded with their own time, into ended runs too. Every fact is an upsert,
//! so that hooks and transcripts of one session make one record, in whatever order they speak.

mod agent;
mod attach;
mod closing;
mod commit;
mod entrance;
mod file;
mod import;
mod matching;
mod message;
mod place;
mod removal;
mod run;
mod usage;

pub use attach::AttachSession;
pub use entrance::InSession;
pub use import::{ImportNagger, Imported};

use std::collections::{BTreeSet, HashMap, HashSet};

use serde_json::json;
use trackway_domain::{
    Id,
    kind::{self, Kind},
    observed::{Fact, Observation, Progress, Seen, Source},
};
use trackway_store::{
    Reader, Writer, params,
    tables::{File, Session, Subagent, Transcript},
};
use uuid::Uuid;

use self::removal::Removal;
use crate::{
    action::About,
    context::Context,
    core::{Core, again_while_others_are_first, append_event, settled},
    error::Result,
};

/// What came of an observation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Observed {
    /// It is written down.
    Recorded,
    /// Another reader had read that part of the transcript already: nothing was written.
    ReadAlready,
}

impl Core {
    /// Writes down what was seen of a session, all or nothing.
    pub fn observe(&self, context: &Context, observation: &Observation) -> Result<Observed> {
        again_while_others_are_first(|| {
            let mut write = self.begin(context)?;
            let context = &settled(context, &mut write)?;
            let observed = write_down(context, &mut write, observation)?;
            if observed == Observed::Recorded {
                write.commit()?;
            }
            Ok(observed)
        })
    }

    /// Writes what belongs to one event of a session, all or nothing. `then` looks at the record with all of it, and may add
    /// an observation.
    pub fn observe_event(
        &self,
        context: &Context,
        observations: &[Observation],
        then: impl Fn(&mut Reader<'_>) -> Result<Option<Observation>>,
    ) -> Result<()> {
        again_while_others_are_first(|| {
            let mut write = self.begin(context)?;
            let context = &settled(context, &mut write)?;
            let mut recorded = false;
            for observation in observations {
                recorded |= write_down(context, &mut write, observation)? == Observed::Recorded;
            }
            if let Some(more) = then(&mut write)? {
                recorded |= write_down(context, &mut write, &more)? == Observed::Recorded;
            }
            if recorded {
                write.commit()?;
            }
            Ok(())
        })
    }

    /// Writes down what was seen of several sessions. SQLite has one writer anyway, and does it faster in one go, all or
    /// nothing; on PostgreSQL those who hold several sessions at once would come to wait for each other.
    pub fn observe_all(&self, context: &Context, observations: &[Observation]) -> Result<()> {
        if !self.store().prefers_one_transaction() {
            return observations.iter().try_for_each(|observation| self.observe(context, observation).map(drop));
        }
        again_while_others_are_first(|| {
            let mut write = self.begin(context)?;
            let context = &settled(context, &mut write)?;
            for observation in observations {
                write_down(context, &mut write, observation)?;
            }
            Ok(write.commit()?)
        })
    }
}

fn write_down(context: &Context, write: &mut Writer<'_>, observation: &Observation) -> Result<Observed> {
    write.lock_session(&observation.session)?;
    let known = match &observation.progress {
        Some(progress) => write.row::<Transcript>("where tenant_id = ?1 and path = ?2", params![progress.path])?,
        None => None,
    };
    if observation.progress.as_ref().is_some_and(|progress| !is_next(known.as_ref(), progress)) {
        return Ok(Observed::ReadAlready);
    }
    let Some(mut observing) = Observing::open(context, write, observation)? else {
        return Ok(Observed::Recorded);
    };
    for seen in &observation.facts {
        observing.record(seen)?;
    }
    observing.settle_matches()?;
    observing.end_what_returned(observation)?;
    if let Some(progress) = &observation.progress {
        observing.keep_progress(known, progress)?;
    }
    observing.close()?;
    Ok(Observed::Recorded)
}

/// The session of a client, held so that it cannot change until the commit.
fn session_locked(write: &mut Writer<'_>, client: &str, session: &str) -> Result<Option<Session>> {
    Ok(write.row_locked("where tenant_id = ?1 and session_id = ?2 and client = ?3", params![session, client])?)
}

/// Whether this part of a transcript comes right after what was read of it.
fn is_next(known: Option<&Transcript>, progress: &Progress) -> bool {
    match known {
        Some(known) if known.identity == progress.identity && !progress.anew => known.read_to == progress.from,
        // Another file took its place, or none was read yet: from the beginning.
        _ => progress.from == 0,
    }
}

/// One transaction that writes down facts about one session.
#[derive(Debug)]
struct Observing<'a, 'w> {
    context: &'a Context,
    write: &'a mut Writer<'w>,
    source: Source,
    session: Session,
    /// The session's row as it is kept.
    kept: Session,
    /// Whether the session's row has to be written.
    session_changed: bool,
    subagents: HashMap<String, Subagent>,
    /// Those of them that were entered just now and have no run yet.
    newcomers: HashSet<String>,
    /// Those of them that were entered just now.
    entered: HashSet<String>,
    runs: HashMap<RunKey, Id<kind::Run>>,
    agents: HashMap<String, Id<kind::Agent>>,
    /// Their parents, as far as they were asked for.
    parents: HashMap<Id<kind::Agent>, Option<Id<kind::Agent>>>,
    /// Whose run each is, as far as it was asked.
    agents_of_runs: HashMap<Id<kind::Run>, Option<Uuid>>,
    roles: HashMap<String, Id<kind::Role>>,
    /// Workspaces by their directories.
    workspaces: HashMap<String, Id<kind::Workspace>>,
    /// Files by their workspaces and paths.
    files: HashMap<(Id<kind::Workspace>, String), File>,
    /// What commands in the transcripts of the session took away.
    removals: Vec<Removal>,
    /// Prompts of another session that this one repeats, with what followed them.
    repeated: HashSet<String>,
    /// The first message that answers each prompt, of a client whose repeated lines are known by that only.
    answers: HashMap<String, String>,
    /// Agents whose spawn is to be looked for again.
    seeking: BTreeSet<String>,
    /// What is new, for the log.
    counts: HashMap<&'static str, i64>,
}

/// What finds a run again within one transaction.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum RunKey {
    Line(String),
    Newest(Option<String>, Option<String>),
}

impl<'a, 'w> Observing<'a, 'w> {
    /// Finds or makes the session. None when the only fact is that something unknown has begun in it or ended.
    fn open(context: &'a Context, write: &'a mut Writer<'w>, observation: &Observation) -> Result<Option<Self>> {
        let known = session_locked(write, observation.client, &observation.session)?;
        let first = observation.facts.first().map_or(write.now, |seen| seen.at);
        let begins = observation.progress.is_some()
            || observation.facts.iter().any(|seen| match &seen.fact {
                Fact::SessionEnd | Fact::Rest { .. } | Fact::Closing { .. } | Fact::SubagentStart { .. } => false,
                Fact::Session(facts) => facts.source.as_deref() != Some("resume"),
                _ => true,
            });
        let new = known.is_none();
        let session = match known {
            Some(session) => session,
            None if !begins => return Ok(None),
            None => place::new_session(context, write, observation.client, &observation.session, first)?,
        };
        let mut observing = Self {
            context,
            write,
            source: observation.source,
            kept: session.clone(),
            removals: session.removals.as_deref().map(Removal::read).unwrap_or_default(),
            session,
            session_changed: false,
            subagents: HashMap::new(),
            newcomers: HashSet::new(),
            entered: HashSet::new(),
            runs: HashMap::new(),
            agents: HashMap::new(),
            parents: HashMap::new(),
            agents_of_runs: HashMap::new(),
            roles: HashMap::new(),
            workspaces: HashMap::new(),
            files: HashMap::new(),
            repeated: HashSet::new(),
            answers: run::answers(observation),
            seeking: BTreeSet::new(),
            counts: HashMap::new(),
        };
        if new {
            observing.count("session");
        }
        if observation.source == Source::Hook {
            observing.session.hooked_at = Some(observing.write.now);
            observing.session_changed = true;
        }
        Ok(Some(observing))
    }

    fn count(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
    }

    fn record(&mut self, seen: &Seen) -> Result<()> {
        // An odd id is no one's; what hangs on it is passed over, and nothing else.
        let ids = [&seen.agent, &seen.prompt.id, &seen.prompt.line];
        if !ids.into_iter().flatten().all(|id| matching::is_client_id(id)) || self.is_repeated(seen)? {
            return Ok(());
        }
        match &seen.fact {
            Fact::Session(facts) => self.session_facts(seen, facts),
            Fact::Prompt { text, hash, copies_get_new_ids } => self.prompt(seen, text, hash, *copies_get_new_ids),
            Fact::Notified { hash, tool_use_id } => self.notified(seen, hash, tool_use_id.as_deref()),
            Fact::SubagentStart { agent_type } => self.subagent_start(seen, agent_type.as_deref()),
            Fact::Subagent(facts) => self.subagent_facts(seen, facts),
            Fact::Spawn(facts) => self.spawn(seen, facts),
            Fact::SpawnResult { tool_use_id, status, error } => {
                self.spawn_result(tool_use_id, status, error.as_deref())
            }
            Fact::Match { tool_use_id, agent_id, evidence } => self.matched(seen.at, tool_use_id, agent_id, *evidence),
            Fact::ResultText { tool_use_id, text } => self.result_text(seen.at, tool_use_id, text),
            Fact::Reply { text, line } => self.reply(seen, text, line.as_deref()),
            Fact::Usage(facts) => self.usage(seen, facts),
            Fact::File(facts) => self.file(seen, facts),
            Fact::Commit(facts) => self.commit(seen, facts),
            Fact::Rest { status, message, error } => self.rest(seen, *status, message.as_deref(), error.as_deref()),
            Fact::Shell => self.shell(seen),
            Fact::Asked => self.asked(seen),
            Fact::Closing { answer } => self.closing(seen, answer),
            Fact::SessionEnd => self.session_end(seen.at),
        }
    }

    fn keep_progress(&mut self, known: Option<Transcript>, progress: &Progress) -> Result<()> {
        let (lines, bad) =
            known.as_ref().filter(|_| progress.from > 0).map_or((0, 0), |known| (known.line_count, known.bad_lines));
        let transcript = Transcript {
            id: known.as_ref().map_or_else(|| self.write.new_id::<kind::Session>().uuid(), |known| known.id),
            tenant_id: self.context.tenant,
            session_id: self.session.id,
            agent_id: progress.agent.clone(),
            path: progress.path.clone(),
            identity: progress.identity.clone(),
            read_to: progress.to,
            line_count: lines + progress.lines,
            bad_lines: bad + progress.bad_lines,
            state: progress.state.clone(),
            read_at: self.write.now,
        };
        match known {
            None => self.write.insert(&transcript)?,
            Some(known) => self.write.update_changed(&known, &transcript)?,
        }
        Ok(())
    }

    /// Writes what was kept back, and one event for all of it.
    fn close(&mut self) -> Result<()> {
        if self.session_changed {
            self.write.update_changed(&self.kept, &self.session)?;
        }
        let seen = match self.source {
            Source::Hook => "hook",
            Source::Transcript => "transcript",
            Source::Import => "import",
        };
        if self.counts.is_empty() {
            return Ok(());
        }
        let about = About { kind: Kind::Session, id: self.session.id.uuid(), path: self.session.session_id.clone() };
        let detail = json!({ "seen": seen, "new": self.counts });
        append_event(self.context, self.write, "observe_session", &about, Some(&detail))
    }

    fn created_by(&self) -> Uuid {
        self.context.actor.id()
    }
}

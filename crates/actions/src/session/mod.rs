//! Records facts about the sessions of agent clients. Hooks report each fact as it happens; transcripts report it
//! afterwards.
//!
//! Every fact carries its own time, so it can also be recorded in a run that has ended. Recording a fact is an upsert,
//! so hooks and transcripts of the same session produce the same record, whichever arrives first.

mod acting_run;
mod agent;
mod attach;
mod commit;
mod end_of_run;
mod file;
pub(crate) mod import;
mod location;
mod matching;
mod message;
mod removal;
mod run;
mod usage;

pub use acting_run::ActingRun;
pub use attach::AttachSession;
pub use import::SessionImportResult;

use std::collections::{BTreeSet, HashMap, HashSet};

use serde_json::json;
use trackway_domain::{
    Id,
    kind::{self, Kind},
    observed::{Fact, Observation, ObservedFact, Source, TranscriptProgress},
};
use trackway_store::{
    Reader, Writer, params,
    tables::{File, Session, Subagent, Transcript},
};
use uuid::Uuid;

use self::removal::Removal;
use crate::{
    action::Subject,
    context::Context,
    core::{Core, append_event, ensure_person, retry_on_conflict},
    error::Result,
};

/// Outcome of recording an observation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ObserveOutcome {
    Recorded,
    /// Another reader has already read this part of the transcript. Nothing was written.
    AlreadyRead,
}

impl Core {
    /// Records an observation of a session in one transaction.
    pub fn observe(&self, context: &Context, observation: &Observation) -> Result<ObserveOutcome> {
        retry_on_conflict(|| {
            let mut write = self.begin(context)?;
            let context = &ensure_person(context, &mut write)?;
            let observed = record_observation(context, &mut write, observation)?;
            if observed == ObserveOutcome::Recorded {
                write.commit()?;
            }
            Ok(observed)
        })
    }

    /// Records the observations of one session event in one transaction. `then` reads the resulting record, and may
    /// return one more observation to record.
    pub fn observe_event(
        &self,
        context: &Context,
        observations: &[Observation],
        then: impl Fn(&mut Reader<'_>) -> Result<Option<Observation>>,
    ) -> Result<()> {
        retry_on_conflict(|| {
            let mut write = self.begin(context)?;
            let context = &ensure_person(context, &mut write)?;
            let mut recorded = false;
            for observation in observations {
                recorded |= record_observation(context, &mut write, observation)? == ObserveOutcome::Recorded;
            }
            if let Some(more) = then(&mut write)? {
                recorded |= record_observation(context, &mut write, &more)? == ObserveOutcome::Recorded;
            }
            if recorded {
                write.commit()?;
            }
            Ok(())
        })
    }

    /// Records observations of several sessions, in as many transactions as the engine needs.
    pub fn observe_all(&self, context: &Context, observations: &[Observation]) -> Result<()> {
        let mut transactions = self.store().group_into_transactions(observations);
        transactions.try_for_each(|group| self.observe_event(context, group, |_| Ok(None)))
    }
}

fn record_observation(context: &Context, write: &mut Writer<'_>, observation: &Observation) -> Result<ObserveOutcome> {
    write.lock_session(&observation.session)?;
    let known = match &observation.progress {
        Some(progress) => write.row::<Transcript>("where tenant_id = ?1 and path = ?2", params![progress.path])?,
        None => None,
    };
    if observation.progress.as_ref().is_some_and(|progress| !continues_transcript(known.as_ref(), progress)) {
        return Ok(ObserveOutcome::AlreadyRead);
    }
    let Some(mut recorder) = SessionRecorder::open(context, write, observation)? else {
        return Ok(ObserveOutcome::Recorded);
    };
    for observed in &observation.facts {
        recorder.record(observed)?;
    }
    recorder.resolve_matches()?;
    recorder.end_returned_runs(observation)?;
    if let Some(progress) = &observation.progress {
        recorder.save_progress(known, progress)?;
    }
    recorder.finish()?;
    Ok(ObserveOutcome::Recorded)
}

/// Reads a session's row and locks it until the commit.
fn lock_session_row(write: &mut Writer<'_>, client: &str, session: &str) -> Result<Option<Session>> {
    Ok(write.row_locked("where tenant_id = ?1 and session_id = ?2 and client = ?3", params![session, client])?)
}

/// True if this part of a transcript starts where the previous read ended.
fn continues_transcript(known: Option<&Transcript>, progress: &TranscriptProgress) -> bool {
    match known {
        Some(known) if known.identity == progress.identity && !progress.is_restarted => known.read_to == progress.from,
        // The transcript is new, or another file replaced it: reading starts at the beginning.
        _ => progress.from == 0,
    }
}

/// Records facts about one session within one transaction.
#[derive(Debug)]
struct SessionRecorder<'a, 'w> {
    context: &'a Context,
    write: &'a mut Writer<'w>,
    source: Source,
    session: Session,
    /// The session's row as the database has it.
    stored_session: Session,
    /// True if `session` must be written back.
    session_changed: bool,
    /// Cache of subagents by the client's agent id.
    subagents: HashMap<String, Subagent>,
    /// Subagents that this transaction created and that have no run yet.
    subagents_without_run: HashSet<String>,
    /// Subagents that this transaction created.
    created_subagents: HashSet<String>,
    /// Cache of runs.
    runs: HashMap<RunKey, Id<kind::Run>>,
    /// Cache of agents by the role part of their handle.
    agents: HashMap<String, Id<kind::Agent>>,
    /// Cache of the agents' parents.
    parents: HashMap<Id<kind::Agent>, Option<Id<kind::Agent>>>,
    /// Cache of the runs' agents.
    agents_of_runs: HashMap<Id<kind::Run>, Option<Uuid>>,
    /// Cache of roles by name.
    roles: HashMap<String, Id<kind::Role>>,
    /// Cache of workspaces by directory.
    workspaces: HashMap<String, Id<kind::Workspace>>,
    /// Cache of files by workspace and path.
    files: HashMap<(Id<kind::Workspace>, String), File>,
    /// Paths that shell commands removed, according to the session's transcripts.
    removals: Vec<Removal>,
    /// Transcript lines of prompts that this session repeats from another session. Facts that belong to these prompts
    /// are not recorded again.
    repeated_prompts: HashSet<String>,
    /// For each prompt line, the id of the first message that answers the prompt. Some clients give repeated lines new
    /// ids. Then only this message id shows that a prompt is a copy.
    first_answers: HashMap<String, String>,
    /// Agents that must be matched to their spawn before the transaction ends.
    unmatched_agents: BTreeSet<String>,
    /// Number of changes of each kind, for the event log.
    counts: HashMap<&'static str, i64>,
}

/// Cache key of a run within one transaction.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum RunKey {
    /// The transcript line of the prompt that started the run.
    Line(String),
    /// An agent's newest run with a prompt id. No agent means the main agent; no prompt id means any prompt.
    Newest(Option<String>, Option<String>),
}

impl<'a, 'w> SessionRecorder<'a, 'w> {
    /// Finds or creates the session. Returns `None` if the session is unknown and no fact may create it. The end of a
    /// session or run, the start of a subagent and a resumed session create none.
    fn open(context: &'a Context, write: &'a mut Writer<'w>, observation: &Observation) -> Result<Option<Self>> {
        let known = lock_session_row(write, observation.client, &observation.session)?;
        let first_time = observation.facts.first().map_or(write.now, |observed| observed.at);
        let may_create_session = observation.progress.is_some()
            || observation.facts.iter().any(|observed| match &observed.fact {
                Fact::SessionEnd | Fact::RunEnd { .. } | Fact::EndOfRunReply { .. } | Fact::SubagentStart { .. } => {
                    false
                }
                Fact::Session(facts) => facts.source.as_deref() != Some("resume"),
                _ => true,
            });
        let new = known.is_none();
        let session = match known {
            Some(session) => session,
            None if !may_create_session => return Ok(None),
            None => location::new_session(context, write, observation.client, &observation.session, first_time)?,
        };
        let mut recorder = Self {
            context,
            write,
            source: observation.source,
            stored_session: session.clone(),
            removals: session.removals.as_deref().map(Removal::parse_all).unwrap_or_default(),
            session,
            session_changed: false,
            subagents: HashMap::new(),
            subagents_without_run: HashSet::new(),
            created_subagents: HashSet::new(),
            runs: HashMap::new(),
            agents: HashMap::new(),
            parents: HashMap::new(),
            agents_of_runs: HashMap::new(),
            roles: HashMap::new(),
            workspaces: HashMap::new(),
            files: HashMap::new(),
            repeated_prompts: HashSet::new(),
            first_answers: run::first_answers(observation),
            unmatched_agents: BTreeSet::new(),
            counts: HashMap::new(),
        };
        if new {
            recorder.count("session");
        }
        if observation.source == Source::Hook {
            recorder.session.hooked_at = Some(recorder.write.now);
            recorder.session_changed = true;
        }
        Ok(Some(recorder))
    }

    fn count(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
    }

    fn record(&mut self, observed: &ObservedFact) -> Result<()> {
        // Clients do not generate ids that are empty, too long or contain control characters. Skip facts with such ids.
        let ids = [&observed.agent, &observed.prompt.id, &observed.prompt.line];
        if !ids.into_iter().flatten().all(|id| matching::is_client_id(id)) || self.repeats_earlier_session(observed)? {
            return Ok(());
        }
        match &observed.fact {
            Fact::Session(facts) => self.record_session(observed, facts),
            Fact::Prompt { text, hash, copies_get_new_ids } => {
                self.record_prompt(observed, text, hash, *copies_get_new_ids)
            }
            Fact::Notified { hash, tool_use_id } => self.record_notification(observed, hash, tool_use_id.as_deref()),
            Fact::SubagentStart { agent_type } => self.record_subagent_start(observed, agent_type.as_deref()),
            Fact::Subagent(facts) => self.record_subagent(observed, facts),
            Fact::Spawn(facts) => self.record_spawn(observed, facts),
            Fact::SpawnResult { tool_use_id, status, error } => {
                self.record_spawn_result(tool_use_id, status, error.as_deref())
            }
            Fact::Match { tool_use_id, agent_id, evidence } => {
                self.record_match(observed.at, tool_use_id, agent_id, *evidence)
            }
            Fact::ResultText { tool_use_id, text } => self.match_by_result_text(observed.at, tool_use_id, text),
            Fact::Reply { text, line } => self.record_reply(observed, text, line.as_deref()),
            Fact::Usage(facts) => self.record_usage(observed, facts),
            Fact::File(facts) => self.record_file_change(observed, facts),
            Fact::Commit(facts) => self.record_commit(observed, facts),
            Fact::RunEnd { status, message, error } => {
                self.record_run_end(observed, *status, message.as_deref(), error.as_deref())
            }
            Fact::Shell => self.record_shell_command(observed),
            Fact::EndOfRunPrompt => self.record_end_of_run_prompt(observed),
            Fact::EndOfRunReply { answer } => self.record_end_of_run_reply(observed, answer),
            Fact::SessionEnd => self.end_session(observed.at),
        }
    }

    fn save_progress(&mut self, known: Option<Transcript>, progress: &TranscriptProgress) -> Result<()> {
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

    /// Writes the session's row if it changed, and appends one event for all changes.
    fn finish(&mut self) -> Result<()> {
        if self.session_changed {
            self.write.update_changed(&self.stored_session, &self.session)?;
        }
        let source = match self.source {
            Source::Hook => "hook",
            Source::Transcript => "transcript",
            Source::Import => "import",
        };
        if self.counts.is_empty() {
            return Ok(());
        }
        let about = Subject { kind: Kind::Session, id: self.session.id.uuid(), path: self.session.session_id.clone() };
        let detail = json!({ "seen": source, "new": self.counts });
        append_event(self.context, self.write, "observe_session", &about, Some(&detail))
    }

    fn created_by(&self) -> Uuid {
        self.context.actor.id()
    }
}

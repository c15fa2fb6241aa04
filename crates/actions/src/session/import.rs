//! Imports sessions that other tools recorded. Each tool has one file in `import`, which interprets its record, and one
//! in the store's `foreign` module, which reads it.
//!
//! An import adds only facts that are not recorded yet. It withdraws nothing and creates no runs. Only hooks and
//! transcripts know the runs of a session. Their facts may be recorded before or after the import.

use std::collections::HashSet;

use serde::Serialize;
use trackway_domain::{
    Id, Time,
    enums::{Evidence, RoleSource, SpawnRoleSource},
    match_ladder::Match,
    observed::{Fact, Observation, ObservedFact, PromptKey, SessionFacts, Source},
    spawn::placeholder_call_id,
};
use trackway_store::{
    Writer, params,
    tables::{Spawn, Subagent},
};

use super::SessionRecorder;
use crate::{context::Context, error::Result};

/// Result of an import: the numbers of new rows, and notices.
#[derive(Debug, Default, Serialize)]
pub struct SessionImportResult {
    pub sessions: i64,
    pub subagents: i64,
    pub spawns: i64,
    /// Spawns that were matched to an agent.
    pub matched: i64,
    /// Rows that were not imported. The notices give the reasons.
    pub left_out: i64,
    pub notices: Vec<String>,
    /// True if the import wrote anything.
    #[serde(skip)]
    pub(crate) changed: bool,
}

/// A session as the other tool recorded it.
#[derive(Debug)]
pub(crate) struct ImportedSession {
    pub client: &'static str,
    pub session_id: String,
    pub started_at: Time,
    pub transcript_path: Option<String>,
    pub subagents: Vec<ImportedSubagent>,
    pub spawns: Vec<ImportedSpawn>,
}

#[derive(Debug)]
pub(crate) struct ImportedSubagent {
    pub agent_id: String,
    pub agent_type: Option<String>,
    pub role: Option<String>,
    pub role_source: Option<RoleSource>,
    /// Line of the subagent's spawn in the transcript, from 1.
    pub task_match_index: Option<i64>,
    pub started_at: Time,
    pub stopped_at: Option<Time>,
}

#[derive(Debug)]
pub(crate) struct ImportedSpawn {
    pub tool_use_id: Option<String>,
    /// True if no other spawn without a call id has this prompt.
    pub has_unique_prompt: bool,
    /// Line in the session's transcript, from 1.
    pub index: i64,
    pub subagent_type: Option<String>,
    pub role: Option<(String, SpawnRoleSource)>,
    pub prompt_hash: Option<String>,
    pub created_at: Time,
    pub matched: Option<ImportedMatch>,
}

#[derive(Debug)]
pub(crate) struct ImportedMatch {
    pub agent_id: String,
    pub evidence: Evidence,
    pub at: Time,
}

/// Whether, and in which session, a spawn is already recorded.
enum KnownSpawn {
    InThisSession(Box<Spawn>),
    InAnotherSession,
    Unknown,
}

/// Imports one session and adds the new rows to the result. Returns the number of spawns that were skipped because the
/// session repeats the calls of another session.
pub(crate) fn import_session(
    context: &Context,
    write: &mut Writer<'_>,
    session: &ImportedSession,
    result: &mut SessionImportResult,
) -> Result<i64> {
    write.lock_session(&session.session_id)?;
    let facts = SessionFacts { transcript_path: session.transcript_path.clone(), ..SessionFacts::default() };
    let observed = ObservedFact::new(session.started_at, None, &PromptKey::default(), Fact::Session(Box::new(facts)));
    let observation = Observation {
        client: session.client,
        session: session.session_id.clone(),
        source: Source::Import,
        facts: vec![observed],
        progress: None,
    };
    let Some(mut recorder) = SessionRecorder::open(context, write, &observation)? else {
        return Ok(0);
    };
    for observed in &observation.facts {
        recorder.record(observed)?;
    }
    if recorder.session_changed {
        recorder.count("completed");
    }
    let mut new = HashSet::new();
    for subagent in &session.subagents {
        if recorder.import_subagent(subagent)? {
            new.insert(subagent.agent_id.as_str());
        }
    }
    let mut repeated = 0;
    for spawn in &session.spawns {
        let row = match recorder.find_known_spawn(spawn)? {
            KnownSpawn::InThisSession(row) => *row,
            KnownSpawn::InAnotherSession => {
                repeated += 1;
                continue;
            }
            KnownSpawn::Unknown => recorder.import_spawn(spawn)?,
        };
        if let Some(matched) = &spawn.matched {
            recorder.import_match(&row, matched)?;
        }
    }
    for subagent in session.subagents.iter().filter(|subagent| new.contains(subagent.agent_id.as_str())) {
        recorder.import_role(subagent)?;
    }
    recorder.resolve_matches()?;
    let new_rows = |what| recorder.counts.get(what).copied().unwrap_or_default();
    result.sessions += new_rows("session");
    result.subagents += new_rows("subagent");
    result.spawns += new_rows("spawn");
    result.matched += new_rows("match");
    result.changed |= !recorder.counts.is_empty();
    recorder.finish()?;
    Ok(repeated)
}

impl SessionRecorder<'_, '_> {
    /// Adds a subagent, or completes a recorded one. Returns true if the subagent is new.
    fn import_subagent(&mut self, imported: &ImportedSubagent) -> Result<bool> {
        // `import_role` imports the other fields after the spawns.
        let ImportedSubagent {
            agent_id,
            agent_type,
            role: _,
            role_source,
            task_match_index: _,
            started_at,
            stopped_at,
        } = imported;
        let (before, new) = self.find_or_create_subagent(agent_id, *started_at)?;
        let subagent = Subagent {
            id: before.id,
            tenant_id: before.tenant_id,
            session_id: before.session_id,
            agent_id: before.agent_id.clone(),
            agent_type: before.agent_type.clone().or_else(|| agent_type.clone()),
            role: before.role.clone(),
            // Only the other tool knows whether it matched the subagent at its start or later.
            role_source: if new { *role_source } else { before.role_source },
            task_match_index: before.task_match_index,
            depth: before.depth,
            parent_agent_id: before.parent_agent_id.clone(),
            spawnable: before.spawnable,
            prompt_hash: before.prompt_hash.clone(),
            started_by: before.started_by.clone(),
            tagged_role: before.tagged_role.clone(),
            started_at: before.started_at.min(*started_at),
            stopped_at: before.stopped_at.max(*stopped_at),
            cleared_at: before.cleared_at,
            shell_at: before.shell_at,
        };
        if subagent != before {
            self.save_subagent(subagent)?;
            if !new {
                self.count("completed");
            }
        }
        Ok(new)
    }

    /// Finds or creates a subagent. Returns true if it is new. A new subagent is not queued for matching, because the
    /// other tool has already matched it.
    fn find_or_create_subagent(&mut self, agent_id: &str, at: Time) -> Result<(Subagent, bool)> {
        let was_queued = self.unmatched_agents.contains(agent_id);
        let subagent = self.subagent(agent_id, at)?;
        let new = !was_queued && self.unmatched_agents.remove(agent_id);
        Ok((subagent, new))
    }

    /// Gives a new subagent the role that the other tool recorded, unless its matched spawn determines the role.
    fn import_role(&mut self, imported: &ImportedSubagent) -> Result<()> {
        self.update_role(&imported.agent_id)?;
        let mut subagent = self.subagent(&imported.agent_id, imported.started_at)?;
        subagent.task_match_index = subagent.task_match_index.or(imported.task_match_index);
        if imported.role.is_some() && matches!(subagent.role_source, None | Some(RoleSource::SubagentType)) {
            subagent.role.clone_from(&imported.role);
            subagent.role_source = imported.role_source;
        }
        self.save_subagent(subagent)
    }

    /// Looks up a spawn by its call id, else by its transcript line, else as the only spawn with its prompt.
    fn find_known_spawn(&mut self, imported: &ImportedSpawn) -> Result<KnownSpawn> {
        let session = self.session.id;
        if let Some(tool_use_id) = &imported.tool_use_id {
            let rows = self.write.rows::<Spawn>("where tenant_id = ?1 and tool_use_id = ?2", params![tool_use_id])?;
            let is_known = !rows.is_empty();
            return Ok(match rows.into_iter().find(|row| row.session_id == session) {
                Some(row) => KnownSpawn::InThisSession(row.into()),
                None if is_known => KnownSpawn::InAnotherSession,
                None => KnownSpawn::Unknown,
            });
        }
        if let Some(row) = self.spawn_row(&placeholder_call_id(&self.session.session_id, imported.index))? {
            return Ok(KnownSpawn::InThisSession(row.into()));
        }
        let agrees = |row: &Spawn| match (&row.prompt_hash, &imported.prompt_hash) {
            (Some(ours), Some(theirs)) => ours == theirs,
            _ => row.subagent_type == imported.subagent_type,
        };
        let mut candidates = self.write.rows::<Spawn>(
            "where tenant_id = ?1 and session_id = ?2 and run_id is not null and parent_agent_id is null order by id",
            params![session],
        )?;
        candidates.retain(agrees);
        if let Some(row) = candidates.iter().find(|row| row.transcript_index == Some(imported.index)) {
            return Ok(KnownSpawn::InThisSession(row.clone().into()));
        }
        // A spawn with a known line is another call. So is a spawn that was made after the other tool had read the
        // imported one.
        candidates.retain(|row| row.transcript_index.is_none() && row.created_at <= imported.created_at);
        Ok(match candidates.pop() {
            Some(row) if candidates.is_empty() && imported.has_unique_prompt => KnownSpawn::InThisSession(row.into()),
            _ => KnownSpawn::Unknown,
        })
    }

    fn import_spawn(&mut self, imported: &ImportedSpawn) -> Result<Spawn> {
        let placeholder_id = || placeholder_call_id(&self.session.session_id, imported.index);
        let spawn = Spawn {
            // Spawns that the other tool read together have the same time. Their lines keep them in order.
            id: Id::new(Time::from_micros(imported.created_at.micros() + imported.index.clamp(0, 999_999))),
            tenant_id: self.context.tenant,
            session_id: self.session.id,
            transcript: None,
            transcript_index: Some(imported.index),
            block: None,
            tool_use_id: imported.tool_use_id.clone().unwrap_or_else(placeholder_id),
            parent_agent_id: None,
            run_id: None,
            subagent_type: imported.subagent_type.clone(),
            role: imported.role.as_ref().map(|(role, _)| role.clone()),
            role_source: imported.role.as_ref().map(|(_, source)| *source),
            prompt_hash: imported.prompt_hash.clone(),
            description: None,
            background: false,
            matched_agent_id: None,
            evidence: None,
            tentative: false,
            status: None,
            error: None,
            created_at: imported.created_at,
        };
        self.insert_spawn(&spawn)?;
        Ok(spawn)
    }

    /// Stores a match. A tentative match that contradicts exact evidence is stored as withdrawn.
    fn import_match(&mut self, spawn: &Spawn, imported: &ImportedMatch) -> Result<()> {
        let ImportedMatch { agent_id, evidence, at } = imported;
        let known = self.write.count(
            "select count(*) from spawn_matches where tenant_id = ?1 and spawn_id = ?2 and agent_id = ?3 and evidence = ?4",
            params![spawn.id, agent_id, evidence],
        )?;
        if known > 0 {
            return Ok(());
        }
        self.find_or_create_subagent(agent_id, *at)?;
        let is_exact = |other: &Spawn| other.evidence.is_some() && !other.tentative;
        let is_contradicted = spawn.matched_agent_id.as_ref().is_some_and(|known| known != agent_id)
            || self.spawns_of(agent_id)?.iter().any(|other| other.id != spawn.id && is_exact(other));
        let new_match = Match::by(*evidence);
        if new_match.is_tentative && is_contradicted {
            let now = self.write.now;
            self.write.post(
                "insert into spawn_matches (tenant_id, spawn_id, agent_id, evidence, tentative, created_at, withdrawn_at) values (?1, ?2, ?3, ?4, true, ?5, ?6)",
                params![spawn.id, agent_id, evidence, at, now],
            )?;
            self.count("withdrawn");
            return Ok(());
        }
        self.count("match");
        self.store_match(*at, spawn, agent_id, new_match)
    }
}

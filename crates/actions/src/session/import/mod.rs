//! What other tools recorded of sessions, carried over. A tool is one file here, which says what its record means, and
//! one in the store's `foreign`, which reads it.
//!
//! Carrying over adds what nobody knew. It takes back nothing, and it makes no runs: whoever sees a session itself,
//! by hooks or in its transcript, knows them, and finds one record whether it comes before the import or after it.

mod nagger;

pub use nagger::ImportNagger;

use std::collections::HashSet;

use serde::Serialize;
use trackway_domain::{
    Id, Time,
    match_ladder::Match,
    observed::{Fact, Observation, PromptKey, Seen, SessionFacts, Source},
    spawn::call_at_line,
    words::{Evidence, RoleSource, SpawnRoleSource},
};
use trackway_store::{
    Writer, params,
    tables::{Spawn, Subagent},
};

use super::Observing;
use crate::{context::Context, error::Result};

/// What is new in the record.
#[derive(Debug, Default, Serialize)]
pub struct Imported {
    pub sessions: i64,
    pub subagents: i64,
    pub spawns: i64,
    /// Spawns that an agent was found for.
    pub matched: i64,
    /// What could not be carried over; the notices say why.
    pub left_out: i64,
    pub notices: Vec<String>,
    /// Whether anything was written.
    #[serde(skip)]
    changed: bool,
}

/// What a tool knew of one session.
#[derive(Debug)]
struct CarriedSession {
    /// The name of the client.
    client: &'static str,
    session_id: String,
    started_at: Time,
    transcript_path: Option<String>,
    subagents: Vec<CarriedSubagent>,
    spawns: Vec<CarriedSpawn>,
}

#[derive(Debug)]
struct CarriedSubagent {
    agent_id: String,
    agent_type: Option<String>,
    role: Option<String>,
    role_source: Option<RoleSource>,
    /// The line of its spawn, from 1.
    task_match_index: Option<i64>,
    started_at: Time,
    stopped_at: Option<Time>,
}

#[derive(Debug)]
struct CarriedSpawn {
    tool_use_id: Option<String>,
    /// Whether no other spawn without an id has this prompt.
    alone: bool,
    /// The line in the session's transcript, from 1.
    index: i64,
    subagent_type: Option<String>,
    role: Option<(String, SpawnRoleSource)>,
    prompt_hash: Option<String>,
    created_at: Time,
    matched: Option<CarriedMatch>,
}

#[derive(Debug)]
struct CarriedMatch {
    agent_id: String,
    evidence: Evidence,
    at: Time,
}

/// Where a call was seen already.
enum Seat {
    Here(Box<Spawn>),
    AnotherSession,
    Nowhere,
}

/// Writes down what a tool knew of one session, and adds up what of it is new.
fn carry(context: &Context, write: &mut Writer<'_>, carried: &CarriedSession, imported: &mut Imported) -> Result<i64> {
    write.lock_session(&carried.session_id)?;
    let facts = SessionFacts { transcript_path: carried.transcript_path.clone(), ..SessionFacts::default() };
    let session = Seen::new(carried.started_at, None, &PromptKey::default(), Fact::Session(Box::new(facts)));
    let observation = Observation {
        client: carried.client,
        session: carried.session_id.clone(),
        source: Source::Import,
        facts: vec![session],
        progress: None,
    };
    let Some(mut observing) = Observing::open(context, write, &observation)? else {
        return Ok(0);
    };
    for seen in &observation.facts {
        observing.record(seen)?;
    }
    if observing.session_changed {
        observing.count("completed");
    }
    let mut new = HashSet::new();
    for subagent in &carried.subagents {
        if observing.carry_subagent(subagent)? {
            new.insert(subagent.agent_id.as_str());
        }
    }
    let mut repeated = 0;
    for spawn in &carried.spawns {
        let row = match observing.seat(spawn)? {
            Seat::Here(row) => *row,
            Seat::AnotherSession => {
                repeated += 1;
                continue;
            }
            Seat::Nowhere => observing.carry_spawn(spawn)?,
        };
        if let Some(matched) = &spawn.matched {
            observing.carry_match(&row, matched)?;
        }
    }
    for subagent in carried.subagents.iter().filter(|subagent| new.contains(subagent.agent_id.as_str())) {
        observing.carry_role(subagent)?;
    }
    observing.settle_matches()?;
    let made = |what| observing.counts.get(what).copied().unwrap_or_default();
    imported.sessions += made("session");
    imported.subagents += made("subagent");
    imported.spawns += made("spawn");
    imported.matched += made("match");
    imported.changed |= !observing.counts.is_empty();
    observing.close()?;
    Ok(repeated)
}

impl Observing<'_, '_> {
    /// Adds a subagent, or what was not known of it. Says whether it is new.
    fn carry_subagent(&mut self, carried: &CarriedSubagent) -> Result<bool> {
        let (before, new) = self.carried_agent(&carried.agent_id, carried.started_at)?;
        let subagent = Subagent {
            agent_type: before.agent_type.clone().or_else(|| carried.agent_type.clone()),
            started_at: before.started_at.min(carried.started_at),
            stopped_at: before.stopped_at.max(carried.stopped_at),
            // Whether it was matched at its start or later is known there, not here.
            role_source: if new { carried.role_source } else { before.role_source },
            ..before.clone()
        };
        if subagent != before {
            self.save_subagent(subagent)?;
            if !new {
                self.count("completed");
            }
        }
        Ok(new)
    }

    /// The subagent of an id. One that is new here does not look for a spawn: the tool said what it knew of that.
    fn carried_agent(&mut self, agent_id: &str, at: Time) -> Result<(Subagent, bool)> {
        let sought = self.seeking.contains(agent_id);
        let subagent = self.subagent(agent_id, at)?;
        let new = !sought && self.seeking.remove(agent_id);
        Ok((subagent, new))
    }

    /// Gives a new subagent the role it had there and where that came from, unless its spawn is here and says so.
    fn carry_role(&mut self, carried: &CarriedSubagent) -> Result<()> {
        self.name_role(&carried.agent_id)?;
        let mut subagent = self.subagent(&carried.agent_id, carried.started_at)?;
        subagent.task_match_index = subagent.task_match_index.or(carried.task_match_index);
        if carried.role.is_some() && matches!(subagent.role_source, None | Some(RoleSource::SubagentType)) {
            subagent.role.clone_from(&carried.role);
            subagent.role_source = carried.role_source;
        }
        self.save_subagent(subagent)
    }

    /// Where a call was seen already: by its id, else by its line, else as the only one with its prompt.
    fn seat(&mut self, carried: &CarriedSpawn) -> Result<Seat> {
        let session = self.session.id;
        if let Some(tool_use_id) = &carried.tool_use_id {
            let rows = self.write.rows::<Spawn>("where tenant_id = ?1 and tool_use_id = ?2", params![tool_use_id])?;
            let elsewhere = !rows.is_empty();
            return Ok(match rows.into_iter().find(|row| row.session_id == session) {
                Some(row) => Seat::Here(row.into()),
                None if elsewhere => Seat::AnotherSession,
                None => Seat::Nowhere,
            });
        }
        if let Some(row) = self.spawn_row(&call_at_line(&self.session.session_id, carried.index))? {
            return Ok(Seat::Here(row.into()));
        }
        let agrees = |row: &Spawn| match (&row.prompt_hash, &carried.prompt_hash) {
            (Some(ours), Some(theirs)) => ours == theirs,
            _ => row.subagent_type == carried.subagent_type,
        };
        let mut seen = self.write.rows::<Spawn>(
            "where tenant_id = ?1 and session_id = ?2 and run_id is not null and parent_agent_id is null order by id",
            params![session],
        )?;
        seen.retain(agrees);
        if let Some(row) = seen.iter().find(|row| row.transcript_index == Some(carried.index)) {
            return Ok(Seat::Here(row.clone().into()));
        }
        // A call whose line is known is on another one. The tool read of a call after it was made.
        seen.retain(|row| row.transcript_index.is_none() && row.created_at <= carried.created_at);
        Ok(match seen.pop() {
            Some(row) if seen.is_empty() && carried.alone => Seat::Here(row.into()),
            _ => Seat::Nowhere,
        })
    }

    fn carry_spawn(&mut self, carried: &CarriedSpawn) -> Result<Spawn> {
        let at_line = || call_at_line(&self.session.session_id, carried.index);
        let spawn = Spawn {
            // Calls that were read together have one time: their lines keep them in order.
            id: Id::new(Time::from_micros(carried.created_at.micros() + carried.index.clamp(0, 999_999))),
            tenant_id: self.context.tenant,
            session_id: self.session.id,
            transcript: None,
            transcript_index: Some(carried.index),
            block: None,
            tool_use_id: carried.tool_use_id.clone().unwrap_or_else(at_line),
            parent_agent_id: None,
            run_id: None,
            subagent_type: carried.subagent_type.clone(),
            role: carried.role.as_ref().map(|(role, _)| role.clone()),
            role_source: carried.role.as_ref().map(|(_, source)| *source),
            prompt_hash: carried.prompt_hash.clone(),
            description: None,
            background: false,
            matched_agent_id: None,
            evidence: None,
            tentative: false,
            status: None,
            error: None,
            created_at: carried.created_at,
        };
        self.enter_spawn(&spawn)?;
        Ok(spawn)
    }

    /// Keeps a match. A guess that is contradicted by what is known is kept as withdrawn.
    fn carry_match(&mut self, spawn: &Spawn, carried: &CarriedMatch) -> Result<()> {
        let CarriedMatch { agent_id, evidence, at } = carried;
        let known = self.write.count(
            "select count(*) from spawn_matches where tenant_id = ?1 and spawn_id = ?2 and agent_id = ?3 and evidence = ?4",
            params![spawn.id, agent_id, evidence],
        )?;
        if known > 0 {
            return Ok(());
        }
        self.carried_agent(agent_id, *at)?;
        let is_exact = |other: &Spawn| other.evidence.is_some() && !other.tentative;
        let contradicted = spawn.matched_agent_id.as_ref().is_some_and(|known| known != agent_id)
            || self.spawns_of(agent_id)?.iter().any(|other| other.id != spawn.id && is_exact(other));
        let by = Match::by(*evidence);
        if by.tentative && contradicted {
            let now = self.write.now;
            self.write.post(
                "insert into spawn_matches (tenant_id, spawn_id, agent_id, evidence, tentative, created_at, withdrawn_at) values (?1, ?2, ?3, ?4, true, ?5, ?6)",
                params![spawn.id, agent_id, evidence, at, now],
            )?;
            self.count("withdrawn");
            return Ok(());
        }
        self.count("match");
        self.keep_match(*at, spawn, agent_id, by)
    }
}

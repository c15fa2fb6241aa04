//! Matches spawn calls to the agents that they started. If a fact names both the call and the agent, the match is
//! stored at once. All other matches follow the match ladder in the domain crate. All evidence is stored, and the best
//! evidence determines the current match.

use std::collections::HashMap;

use trackway_domain::{
    Id, Time,
    enums::{Evidence, RoleSource},
    kind,
    match_ladder::{Candidate, Holder, Match, UnmatchedAgent, find_spawn, is_contradicted},
    observed::{ObservedFact, Source, SpawnFacts, SubagentFacts},
    spawn, text,
};
use trackway_store::{
    params, row,
    sql::{Param, ToParam},
    tables::{Spawn, Subagent},
};

use super::SessionRecorder;
use crate::{action::Resource, error::Result};

/// Maximum number of times that one agent is matched in one transaction. A displaced agent is matched again. Every
/// displacement needs a better match, so this limit is not reached; it only guards against an endless loop.
const MATCH_ATTEMPTS_MAX: u32 = 20;
/// Maximum number of agents that are matched again after a spawn became free.
const REMATCHED_AGENTS_MAX: i64 = 10;
/// Maximum characters of an id that a client generated.
const CLIENT_ID_MAX: usize = 200;

/// Maximum depth of nested subagents. It stops the recursion if a faulty record contains a cycle.
const DEPTH_MAX: i64 = 100;

/// Status of a call that started an agent in the background.
const LAUNCHED: &str = "async_launched";

/// True if the text can be an id that a client generated.
pub(super) fn is_client_id(text: &str) -> bool {
    (1..=CLIENT_ID_MAX).contains(&text.chars().count()) && !text.contains(char::is_control)
}

row! {
    /// A spawn that may have started a certain agent.
    pub struct CandidateRow {
        id: Id<kind::Spawn>,
        subagent_type: Option<String>,
        role: Option<String>,
        prompt_hash: Option<String>,
        matched_agent_id: Option<String>,
        evidence: Option<Evidence>,
        tentative: bool,
        failed: bool,
    }
}

impl CandidateRow {
    fn into_candidate(self, agent_id: &str) -> Candidate<Id<kind::Spawn>> {
        let holder = match (self.matched_agent_id, self.evidence) {
            (Some(holder), _) if holder == agent_id && self.tentative => Holder::Itself,
            (Some(_), Some(evidence)) => Holder::Other(Match { is_tentative: self.tentative, evidence }),
            _ => Holder::None,
        };
        Candidate {
            id: self.id,
            subagent_type: self.subagent_type,
            role: self.role,
            prompt_hash: self.prompt_hash,
            holder,
            // The query has already excluded calls that were made after the agent started.
            allows_fallback: !self.failed,
        }
    }
}

/// Evidence that is stored with the agent if its spawn is unknown, because the transcript with the spawn may be read
/// later.
const DEFERRED_EVIDENCE: [Evidence; 2] = [Evidence::MetaJson, Evidence::AgentProgress];

/// The value of `subagents.started_by`, for an agent whose spawn is not recorded yet.
fn encode_started_by(evidence: Evidence, tool_use_id: &str) -> String {
    match evidence {
        Evidence::MetaJson => tool_use_id.to_owned(),
        other => format!("{other} {tool_use_id}"),
    }
}

impl SessionRecorder<'_, '_> {
    /// Finds or creates a subagent.
    pub(super) fn subagent(&mut self, agent_id: &str, at: Time) -> Result<Subagent> {
        if let Some(subagent) = self.subagents.get(agent_id) {
            return Ok(subagent.clone());
        }
        let known = self.write.row::<Subagent>(
            "where tenant_id = ?1 and session_id = ?2 and agent_id = ?3",
            params![self.session.id, agent_id],
        )?;
        let subagent = match known {
            Some(subagent) => subagent,
            None => {
                let subagent = Subagent {
                    id: Id::new(at),
                    tenant_id: self.context.tenant,
                    session_id: self.session.id,
                    agent_id: agent_id.to_owned(),
                    agent_type: None,
                    role: None,
                    role_source: None,
                    task_match_index: None,
                    depth: None,
                    parent_agent_id: None,
                    spawnable: true,
                    prompt_hash: None,
                    started_by: None,
                    tagged_role: None,
                    started_at: at,
                    stopped_at: None,
                    cleared_at: None,
                    shell_at: None,
                };
                self.write.insert(&subagent)?;
                self.register(&Resource::new(subagent.id, format!("agent-{agent_id}")))?;
                self.count("subagent");
                self.unmatched_agents.insert(agent_id.to_owned());
                self.subagents_without_run.insert(agent_id.to_owned());
                self.created_subagents.insert(agent_id.to_owned());
                subagent
            }
        };
        self.subagents.insert(agent_id.to_owned(), subagent.clone());
        Ok(subagent)
    }

    pub(super) fn save_subagent(&mut self, subagent: Subagent) -> Result<()> {
        match self.subagents.get(&subagent.agent_id) {
            Some(stored) => self.write.update_changed(stored, &subagent)?,
            None => self.write.update(&subagent)?,
        }
        self.subagents.insert(subagent.agent_id.clone(), subagent);
        Ok(())
    }

    /// Records facts about a subagent.
    pub(super) fn record_subagent(&mut self, observed: &ObservedFact, facts: &SubagentFacts) -> Result<()> {
        let Some(agent_id) = observed.agent.as_deref() else {
            return Ok(());
        };
        let before = self.subagent(agent_id, observed.at)?;
        let mut subagent = before.clone();
        let line =
            |text: &String| Some(text::cut(&text::clean_line(text), text::LINE_MAX)).filter(|line| !line.is_empty());
        subagent.agent_type = facts.agent_type.as_ref().and_then(line).or(subagent.agent_type);
        subagent.depth = facts.depth.or(subagent.depth);
        subagent.parent_agent_id = facts.parent_agent.clone().or(subagent.parent_agent_id);
        subagent.prompt_hash = subagent.prompt_hash.or_else(|| facts.prompt_hash.clone());
        subagent.tagged_role = subagent.tagged_role.or_else(|| facts.tagged_role.clone());
        subagent.spawnable &= !facts.is_not_spawned;
        subagent.started_at = subagent.started_at.min(observed.at);
        let changed = subagent != before;
        self.save_subagent(subagent)?;
        if changed {
            self.unmatched_agents.insert(agent_id.to_owned());
            self.update_role(agent_id)?;
        }
        Ok(())
    }

    /// Records a call that starts a subagent. Recording it again only adds details that were unknown.
    pub(super) fn record_spawn(&mut self, observed: &ObservedFact, facts: &SpawnFacts) -> Result<()> {
        if !is_client_id(&facts.tool_use_id) {
            return Ok(());
        }
        let known = self.find_spawn_row(observed, facts)?;
        let run = self.run_of(observed)?;
        let (transcript, index, block) = match &facts.transcript_position {
            Some((transcript, index, block)) => (Some(transcript.clone()), Some(*index), Some(*block)),
            None => (None, None, None),
        };
        if let Some(known) = known.as_ref().filter(|known| known.run_id.is_some()) {
            let mut spawn = known.clone();
            if spawn.transcript.is_none() && transcript.is_some() {
                (spawn.transcript, spawn.transcript_index, spawn.block) = (transcript, index, block);
            }
            if self.source == Source::Transcript {
                // The transcript that contains the call determines which agent made it.
                spawn.run_id = Some(run);
                spawn.parent_agent_id.clone_from(&observed.agent);
                spawn.created_at = observed.at;
            }
            if spawn != *known {
                let agent = spawn.matched_agent_id.clone();
                self.write.update_changed(known, &spawn)?;
                if let Some(agent) = agent {
                    self.apply_match(&agent)?;
                }
            }
            return Ok(());
        }
        let role = spawn::spawn_role(&facts.prompt, facts.name.as_deref());
        let line = |text: &String| text::cut(&text::clean_line(text), text::LINE_MAX);
        let spawn = Spawn {
            id: Id::new(observed.at),
            tenant_id: self.context.tenant,
            session_id: self.session.id,
            transcript,
            transcript_index: index,
            block,
            tool_use_id: facts.tool_use_id.clone(),
            parent_agent_id: observed.agent.clone(),
            run_id: Some(run),
            subagent_type: facts.subagent_type.as_ref().map(line),
            role: role.as_ref().map(|(role, _)| role.clone()),
            role_source: role.map(|(_, source)| source),
            prompt_hash: Some(facts.prompt_hash.clone()),
            description: facts.description.as_ref().map(line),
            background: facts.background,
            matched_agent_id: None,
            evidence: None,
            tentative: false,
            status: None,
            error: None,
            created_at: observed.at,
        };
        match known {
            Some(imported) => self.replace_imported_spawn(&imported, spawn.clone())?,
            None => self.insert_spawn(&spawn)?,
        }
        self.record_message(observed.at, &facts.prompt, Some(run), Some(&format!("spawn {}", facts.tool_use_id)))?;
        for evidence in DEFERRED_EVIDENCE {
            let agents = self.write.query::<(String,)>(
                "select agent_id from subagents where tenant_id = ?1 and session_id = ?2 and started_by = ?3",
                params![self.session.id, encode_started_by(evidence, &facts.tool_use_id)],
            )?;
            for (agent,) in agents {
                self.record_match(observed.at, &facts.tool_use_id, &agent, evidence)?;
            }
        }
        self.queue_agents_for_new_spawn(&spawn)
    }

    pub(super) fn insert_spawn(&mut self, spawn: &Spawn) -> Result<()> {
        self.write.insert(spawn)?;
        self.register(&Resource::new(spawn.id, spawn.tool_use_id.clone()))?;
        self.count("spawn");
        Ok(())
    }

    /// Finds the row of a call in this session, or else an imported row of the same call. The imported database may
    /// contain only the line of the call; then the imported row has a placeholder id. It may also contain only a copy
    /// of the call in a later session; then the imported row belongs to that session. An imported row has no run until
    /// the call itself is recorded.
    fn find_spawn_row(&mut self, observed: &ObservedFact, facts: &SpawnFacts) -> Result<Option<Spawn>> {
        let placeholder_id = match (&facts.transcript_position, &observed.agent) {
            (Some((_, index, _)), None) => spawn::placeholder_call_id(&self.session.session_id, *index),
            _ => facts.tool_use_id.clone(),
        };
        let session = self.session.id;
        let mut rows = self.write.rows::<Spawn>(
            "where tenant_id = ?1 and tool_use_id in (?2, ?3) order by created_at, id",
            params![facts.tool_use_id, placeholder_id],
        )?;
        if let Some(own) = rows.iter().position(|row| row.session_id == session && row.tool_use_id == facts.tool_use_id)
        {
            return Ok(Some(rows.swap_remove(own)));
        }
        Ok(rows.into_iter().find(|row| {
            row.run_id.is_none()
                && (row.tool_use_id == facts.tool_use_id
                    || row.prompt_hash.as_ref().is_none_or(|hash| *hash == facts.prompt_hash))
        }))
    }

    /// Replaces an imported row with the observed call. The imported match stays if it belongs to the same session.
    fn replace_imported_spawn(&mut self, imported: &Spawn, mut spawn: Spawn) -> Result<()> {
        spawn.id = imported.id;
        if imported.session_id == spawn.session_id {
            spawn.transcript_index = spawn.transcript_index.or(imported.transcript_index);
            spawn.matched_agent_id.clone_from(&imported.matched_agent_id);
            spawn.evidence = imported.evidence;
            spawn.tentative = imported.tentative;
        } else {
            self.write.post("delete from spawn_matches where tenant_id = ?1 and spawn_id = ?2", params![spawn.id])?;
        }
        self.write.update_changed(imported, &spawn)?;
        self.write.update_display_path(spawn.id, &spawn.tool_use_id)?;
        if let Some(agent) = &spawn.matched_agent_id {
            self.apply_match(agent)?;
        }
        Ok(())
    }

    /// After a transcript showed a new spawn, queues the agents that it may have started and that have no exact match.
    fn queue_agents_for_new_spawn(&mut self, spawn: &Spawn) -> Result<()> {
        if self.source == Source::Transcript {
            let agents = self.write.query::<(String,)>(
                "select a.agent_id from subagents a where a.tenant_id = ?1 and a.session_id = ?2 and a.spawnable
                 and (a.prompt_hash = ?3 or (a.started_at >= ?6 and (a.tagged_role = ?4 or a.agent_type = ?5)))
                 and not exists (select 1 from task_spawns s where s.tenant_id = ?1 and s.session_id = ?2 and s.matched_agent_id = a.agent_id and not s.tentative)",
                params![self.session.id, spawn.prompt_hash, spawn.role, spawn.subagent_type, spawn.created_at],
            )?;
            self.unmatched_agents.extend(agents.into_iter().map(|(agent,)| agent));
        }
        Ok(())
    }

    /// After a spawn became free, queues the oldest agents that it may have started and that have no match at all.
    fn queue_agents_for_freed_spawn(&mut self, spawn: Id<kind::Spawn>) -> Result<()> {
        let agents = self.write.query::<(String,)>(
            "select a.agent_id from task_spawns f
             join subagents a on a.tenant_id = ?1 and a.session_id = f.session_id and a.spawnable
             and (a.prompt_hash = f.prompt_hash or (a.started_at >= f.created_at and (a.tagged_role = f.role or a.agent_type = f.subagent_type)))
             where f.tenant_id = ?1 and f.id = ?2
             and not exists (select 1 from task_spawns s where s.tenant_id = ?1 and s.session_id = f.session_id and s.matched_agent_id = a.agent_id)
             order by a.started_at, a.id limit ?3",
            params![spawn, REMATCHED_AGENTS_MAX],
        )?;
        self.unmatched_agents.extend(agents.into_iter().map(|(agent,)| agent));
        Ok(())
    }

    pub(super) fn spawn_row(&mut self, tool_use_id: &str) -> Result<Option<Spawn>> {
        if !is_client_id(tool_use_id) {
            return Ok(None);
        }
        Ok(self.write.row::<Spawn>(
            "where tenant_id = ?1 and session_id = ?2 and tool_use_id = ?3",
            params![self.session.id, tool_use_id],
        )?)
    }

    pub(super) fn record_spawn_result(&mut self, tool_use_id: &str, status: &str, error: Option<&str>) -> Result<()> {
        if !is_client_id(tool_use_id) {
            return Ok(());
        }
        let error = error.map(|error| text::cut(&text::clean(error), 2_000));
        let status = text::cut(&text::clean_line(status), text::LINE_MAX);
        let launched = status == LAUNCHED;
        // Keep a final status when a transcript that only reports the launch is read again.
        self.write.post(
            "update task_spawns set status = ?4, error = ?5, background = background or ?6 where tenant_id = ?1 and session_id = ?2 and tool_use_id = ?3
             and (status is null or not ?6)",
            params![self.session.id, tool_use_id, status, error, launched],
        )?;
        if error.is_some() {
            // The client may have repeated the failed call. If the call's match is tentative, the agent may belong to
            // the repeated call.
            let spawn = self.spawn_row(tool_use_id)?.filter(|spawn| spawn.tentative);
            self.unmatched_agents.extend(spawn.and_then(|spawn| spawn.matched_agent_id));
        }
        Ok(())
    }

    /// Records evidence that names a call and an agent together.
    pub(super) fn record_match(
        &mut self,
        at: Time,
        tool_use_id: &str,
        agent_id: &str,
        evidence: Evidence,
    ) -> Result<()> {
        let spawn = self.spawn_row(tool_use_id)?;
        if !is_client_id(agent_id)
            || !is_client_id(tool_use_id)
            || (spawn.is_none() && !DEFERRED_EVIDENCE.contains(&evidence))
        {
            return Ok(());
        }
        let mut subagent = self.subagent(agent_id, at)?;
        match spawn {
            Some(spawn) => self.store_match(at, &spawn, &subagent.agent_id, Match::by(evidence)),
            None if subagent.started_by.is_some() && evidence != Evidence::MetaJson => Ok(()),
            None => {
                subagent.started_by = Some(encode_started_by(evidence, tool_use_id));
                self.save_subagent(subagent)
            }
        }
    }

    /// Stores a match. If it is the best match of the spawn, it becomes the current one.
    pub(super) fn store_match(&mut self, at: Time, spawn: &Spawn, agent_id: &str, new_match: Match) -> Result<()> {
        self.write.post(
            "insert into spawn_matches (tenant_id, spawn_id, agent_id, evidence, tentative, created_at) values (?1, ?2, ?3, ?4, ?5, ?6)
             on conflict (spawn_id, agent_id, evidence) do update set withdrawn_at = null, tentative = spawn_matches.tentative and excluded.tentative",
            params![spawn.id, agent_id, new_match.evidence, new_match.is_tentative, at],
        )?;
        let freed = self.withdraw_tentative(Some(spawn.id), agent_id)?;
        let current = spawn.evidence.map(|evidence| Match { is_tentative: spawn.tentative, evidence });
        if current.is_none_or(|current| new_match < current) {
            self.write.post(
                "update task_spawns set matched_agent_id = ?3, evidence = ?4, tentative = ?5 where tenant_id = ?1 and id = ?2",
                params![spawn.id, agent_id, new_match.evidence, new_match.is_tentative],
            )?;
            let displaced = spawn.matched_agent_id.as_ref().filter(|displaced| *displaced != agent_id);
            if let Some(displaced) = displaced.cloned() {
                self.unmatched_agents.insert(displaced.clone());
                self.apply_match(&displaced)?;
            }
        }
        if new_match.is_tentative {
            self.unmatched_agents.remove(agent_id);
        }
        for spawn in freed {
            self.queue_agents_for_freed_spawn(spawn)?;
        }
        self.apply_match(agent_id)
    }

    /// Withdraws the tentative matches of this spawn with other agents and of this agent with other spawns. Returns the
    /// spawns that became free.
    fn withdraw_tentative(&mut self, spawn: Option<Id<kind::Spawn>>, agent_id: &str) -> Result<Vec<Id<kind::Spawn>>> {
        let now = self.write.now;
        let session = self.session.id;
        if let Some(spawn) = spawn {
            self.write.post(
                "update spawn_matches set withdrawn_at = ?4 where tenant_id = ?1 and spawn_id = ?2 and agent_id <> ?3
                 and withdrawn_at is null and tentative",
                params![spawn, agent_id, now],
            )?;
        }
        let held_spawns = self.write.query::<(Id<kind::Spawn>,)>(
            "select id from task_spawns where tenant_id = ?1 and session_id = ?2 and matched_agent_id = ?3 and tentative",
            params![session, agent_id],
        )?;
        let freed: Vec<_> = held_spawns.into_iter().map(|(id,)| id).filter(|held| Some(*held) != spawn).collect();
        for freed in &freed {
            self.write.post(
                "update spawn_matches set withdrawn_at = ?4 where tenant_id = ?1 and spawn_id = ?2 and agent_id = ?3
                 and withdrawn_at is null and tentative",
                params![freed, agent_id, now],
            )?;
            self.write.post(
                "update task_spawns set matched_agent_id = null, evidence = null, tentative = false where tenant_id = ?1 and id = ?2",
                params![freed],
            )?;
        }
        Ok(freed)
    }

    /// The spawns that started an agent, oldest first.
    pub(super) fn spawns_of(&mut self, agent_id: &str) -> Result<Vec<Spawn>> {
        let session = self.session.id;
        Ok(self.write.rows::<Spawn>(
            "where tenant_id = ?1 and session_id = ?2 and matched_agent_id = ?3 order by created_at, id",
            params![session, agent_id],
        )?)
    }

    /// Updates an agent's role and runs after its match changed.
    fn apply_match(&mut self, agent_id: &str) -> Result<()> {
        self.update_role(agent_id)?;
        self.update_run_placement(agent_id)
    }

    pub(super) fn update_role(&mut self, agent_id: &str) -> Result<()> {
        let at = self.write.now;
        let before = self.subagent(agent_id, at)?;
        let mut subagent = before.clone();
        let spawns = self.spawns_of(agent_id)?;
        let matched = spawns.first();
        if let Some(spawn) = matched {
            subagent.parent_agent_id = spawn.parent_agent_id.clone().or(subagent.parent_agent_id);
            subagent.agent_type = subagent.agent_type.or_else(|| spawn.subagent_type.clone());
        }
        // `TaskMatch` means matched at the agent's start, `RetryMatch` means matched later. A transcript is read after
        // the fact, so a match from it counts as made at the start. The exception is a match by a progress line that
        // was read after the agent's start was recorded.
        let source = match before.role_source {
            Some(RoleSource::RetryMatch) => RoleSource::RetryMatch,
            _ if self.is_progress_after_start(&before, matched)? => RoleSource::RetryMatch,
            Some(RoleSource::TaskMatch) => RoleSource::TaskMatch,
            Some(_) if self.source == Source::Hook && !self.created_subagents.contains(agent_id) => {
                RoleSource::RetryMatch
            }
            _ => RoleSource::TaskMatch,
        };
        let matched_role = matched.and_then(|spawn| spawn.role.as_deref()).map(|role| (role, source));
        let named = spawn::subagent_role(matched_role, subagent.tagged_role.as_deref(), subagent.agent_type.as_deref());
        (subagent.role, subagent.role_source) = named.map_or((None, None), |(role, source)| (Some(role), Some(source)));
        subagent.task_match_index = matched.and_then(|spawn| spawn.transcript_index);
        let parent_changed = subagent.parent_agent_id != before.parent_agent_id;
        if matched.is_some() && (subagent.depth.is_none() || parent_changed) {
            let parent_depth = match &subagent.parent_agent_id {
                Some(parent) => self.subagent(&parent.clone(), at)?.depth,
                None => Some(0),
            };
            subagent.depth = parent_depth.map(|depth| depth.saturating_add(1));
        }
        if subagent == before {
            return Ok(());
        }
        let role_changed = subagent.role != before.role;
        let depth = subagent.depth.filter(|_| subagent.depth != before.depth);
        self.save_subagent(subagent)?;
        if let Some(depth) = depth {
            self.update_child_depths(agent_id, depth)?;
        }
        if role_changed {
            self.update_run_placement(agent_id)?;
        }
        Ok(())
    }

    /// True if a progress line matched an agent that started in an earlier transaction.
    fn is_progress_after_start(&mut self, subagent: &Subagent, matched: Option<&Spawn>) -> Result<bool> {
        if self.created_subagents.contains(&subagent.agent_id)
            || matched.and_then(|spawn| spawn.evidence) != Some(Evidence::AgentProgress)
        {
            return Ok(false);
        }
        let runs = self.write.count(
            "select count(*) from runs where tenant_id = ?1 and session_id = ?2 and subagent_id = ?3",
            params![self.session.id, subagent.id],
        )?;
        Ok(runs > 0)
    }

    /// Updates the depths of the agents below an agent. They change when a transcript shows which agent made a call that
    /// a hook reported without its agent.
    fn update_child_depths(&mut self, agent_id: &str, depth: i64) -> Result<()> {
        let deeper = depth.saturating_add(1);
        let below = self.write.query::<(String,)>(
            "select agent_id from subagents where tenant_id = ?1 and session_id = ?2 and parent_agent_id = ?3 and depth <> ?4",
            params![self.session.id, agent_id, deeper],
        )?;
        for (agent,) in below.into_iter().filter(|_| deeper <= DEPTH_MAX) {
            let mut subagent = self.subagent(&agent, self.write.now)?;
            subagent.depth = Some(deeper);
            self.save_subagent(subagent)?;
            self.update_child_depths(&agent, deeper)?;
        }
        Ok(())
    }

    /// Matches the queued agents, in the order in which they started.
    pub(super) fn resolve_matches(&mut self) -> Result<()> {
        let mut attempts: HashMap<String, u32> = HashMap::new();
        while !self.unmatched_agents.is_empty() {
            let mut agents = Vec::with_capacity(self.unmatched_agents.len());
            for agent_id in std::mem::take(&mut self.unmatched_agents) {
                agents.push((self.subagent(&agent_id, self.write.now)?.started_at, agent_id));
            }
            agents.sort();
            for (_, agent_id) in agents {
                let attempt = attempts.entry(agent_id.clone()).or_default();
                *attempt += 1;
                if *attempt <= MATCH_ATTEMPTS_MAX {
                    self.match_agent(&agent_id)?;
                }
            }
        }
        Ok(())
    }

    /// Looks for the spawn of an agent that has no exact match.
    pub(super) fn match_agent(&mut self, agent_id: &str) -> Result<()> {
        self.unmatched_agents.remove(agent_id);
        let at = self.write.now;
        let subagent = self.subagent(agent_id, at)?;
        let is_exact = |spawn: &Spawn| spawn.evidence.is_some() && !spawn.tentative;
        if !subagent.spawnable || self.spawns_of(agent_id)?.iter().any(is_exact) {
            return Ok(());
        }
        let unmatched = UnmatchedAgent {
            agent_type: subagent.agent_type.clone().filter(|agent_type| !agent_type.is_empty()),
            role: subagent.tagged_role.clone(),
            prompt_hash: subagent.prompt_hash.clone(),
        };
        let Some((id, new_match)) = self.choose_spawn(&subagent, &unmatched)? else {
            return self.withdraw_if_contradicted(&subagent, &unmatched);
        };
        let Some(spawn) = self.write.row::<Spawn>("where tenant_id = ?1 and id = ?2", params![id])? else {
            return Ok(());
        };
        let is_held = spawn.matched_agent_id.as_deref() == Some(agent_id)
            && (spawn.evidence, spawn.tentative) == (Some(new_match.evidence), new_match.is_tentative);
        if is_held { Ok(()) } else { self.store_match(at, &spawn, agent_id, new_match) }
    }

    /// Withdraws an agent's tentative match if newer facts contradict it.
    fn withdraw_if_contradicted(&mut self, subagent: &Subagent, unmatched: &UnmatchedAgent) -> Result<()> {
        let agent_id = subagent.agent_id.as_str();
        let candidates = self.candidate_spawns(subagent, "matched_agent_id = ?4 and tentative", agent_id, "")?;
        let Some(held) = candidates.into_iter().next() else { return Ok(()) };
        let id = held.id;
        let mut spawns = vec![held];
        if let Some(hash) = &unmatched.prompt_hash {
            spawns.extend(self.candidate_spawns(subagent, "prompt_hash = ?4", hash, "")?);
        }
        if !is_contradicted(unmatched, id, &spawns) {
            return Ok(());
        }
        for spawn in self.withdraw_tentative(None, agent_id)? {
            self.queue_agents_for_freed_spawn(spawn)?;
        }
        self.apply_match(agent_id)
    }

    /// Applies the match ladder rung by rung. Reads only the few spawns that can decide a rung, because a session may
    /// have thousands.
    fn choose_spawn(
        &mut self,
        subagent: &Subagent,
        unmatched: &UnmatchedAgent,
    ) -> Result<Option<(Id<kind::Spawn>, Match)>> {
        if let Some(hash) = &unmatched.prompt_hash {
            let spawns = self.candidate_spawns(subagent, "prompt_hash = ?4", hash, "")?;
            if !spawns.is_empty() {
                return Ok(find_spawn(unmatched, &spawns));
            }
        }
        let allows_fallback = match &unmatched.prompt_hash {
            // Hooks and transcripts may use different clocks, so the times do not count if the prompt is known.
            Some(_) => "(error is null or matched_agent_id = ?3)",
            // Some clients also start agents without a call. Such an agent may have the type of a spawn that was made
            // later, so only earlier spawns count. An imported spawn, which has no run, always counts, because its
            // recorded time is later than the call.
            None => "((error is null and (run_id is null or created_at <= ?5)) or matched_agent_id = ?3)",
        };
        if let Some(role) = &unmatched.role {
            let free =
                "(matched_agent_id is null or (tentative and (matched_agent_id = ?3 or evidence = 'subagent_type')))";
            let spawns =
                self.candidate_spawns(subagent, &format!("role = ?4 and {free} and {allows_fallback}"), role, "")?;
            if let Some(found) = find_spawn(unmatched, &spawns) {
                return Ok(Some(found));
            }
        }
        let Some(agent_type) = &unmatched.agent_type else { return Ok(None) };
        let free = "(matched_agent_id is null or (tentative and matched_agent_id = ?3))";
        // The spawns with the agent's own role were tried above, so only those without a role are left.
        let without_role = if unmatched.role.is_some() { "and role is null" } else { "" };
        let which = format!("subagent_type = ?4 and {free} and {allows_fallback} {without_role}");
        let spawns = self.candidate_spawns(subagent, &which, agent_type, "role is null, ")?;
        Ok(find_spawn(unmatched, &spawns))
    }

    /// Returns the two spawns of the session that the ladder prefers. The agent's current spawn and free spawns come
    /// first, successful calls before failed ones. Spawns that other agents hold come last: those matched by a
    /// fallback, then by an equal prompt, then exactly. A second row shows that the first is not the only candidate.
    /// Calls that the agent itself made are excluded.
    fn candidate_spawns(
        &mut self,
        subagent: &Subagent,
        condition: &str,
        value: &str,
        order_first: &str,
    ) -> Result<Vec<Candidate<Id<kind::Spawn>>>> {
        let session = self.session.id;
        let mut params: Vec<Param<'_>> = params![session, subagent.agent_id, value].to_vec();
        if condition.contains("?5") {
            params.push(subagent.started_at.to_param());
        }
        let spawns = self.write.query::<CandidateRow>(
            &format!(
                "select id, subagent_type, role, prompt_hash, matched_agent_id, evidence, tentative, error is not null from task_spawns
                 where tenant_id = ?1 and session_id = ?2 and (parent_agent_id is null or parent_agent_id <> ?3) and {condition}
                 order by case when matched_agent_id is null then (case when error is null then 1 else 3 end) when not tentative then 6
                               when matched_agent_id = ?3 then (case when error is null then 0 else 2 end)
                               when evidence <> 'prompt_hash' then 4 else 5 end,
                          {order_first}coalesce(transcript_index, 9223372036854775807), created_at, id limit 2"
            ),
            &params,
        )?;
        Ok(spawns.into_iter().map(|spawn| spawn.into_candidate(&subagent.agent_id)).collect())
    }

    /// Matches a call by its result, for clients whose results do not name the agent. The agent must be the only one
    /// with the call's prompt, without an exact match, and with this text as its final message.
    pub(super) fn match_by_result_text(&mut self, at: Time, tool_use_id: &str, text: &str) -> Result<()> {
        let Some(spawn) =
            self.spawn_row(tool_use_id)?.filter(|spawn| spawn.matched_agent_id.is_none() || spawn.tentative)
        else {
            return Ok(());
        };
        let candidates = self.write.query::<(String, Option<String>)>(
            "select a.agent_id, (select r.final_message from runs r where r.tenant_id = ?1 and r.session_id = ?2 and r.subagent_id = a.id order by r.id desc limit 1)
             from subagents a where a.tenant_id = ?1 and a.session_id = ?2 and a.prompt_hash = ?3
             and not exists (select 1 from task_spawns s where s.tenant_id = ?1 and s.session_id = ?2 and s.matched_agent_id = a.agent_id and not s.tentative)",
            params![self.session.id, spawn.prompt_hash],
        )?;
        let reply = text::clean(text);
        let mut with_reply = candidates.into_iter().filter(|(_, last)| last.as_deref() == Some(reply.as_str()));
        if let (Some((agent_id, _)), None) = (with_reply.next(), with_reply.next()) {
            self.store_match(at, &spawn, &agent_id, Match::by(Evidence::ToolResult))?;
        }
        Ok(())
    }
}

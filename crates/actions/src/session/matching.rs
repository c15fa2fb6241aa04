//! Which call started which agent. Facts that name both are recorded as they come; the rules below them are the
//! domain's. The best evidence wins, all of it is kept.

use std::collections::HashMap;

use trackway_domain::{
    Id, Time, kind,
    match_ladder::{Candidate, Holder, Match, Seeker, climb, is_contradicted},
    observed::{Seen, Source, SpawnFacts, SubagentFacts},
    spawn, text,
    words::{Evidence, RoleSource},
};
use trackway_store::{
    params, row,
    sql::{Param, ToParam},
    tables::{Spawn, Subagent},
};

use super::Observing;
use crate::{action::Resource, error::Result};

/// How often one agent climbs the ladder in one transaction. Displaced agents climb again, and each displacement needs a
/// better match, so this limit is not reached; it only guards against an endless loop.
const CLIMBS_MAX: u32 = 20;
/// Agents that look at a spawn that became free.
const WAITING_MAX: i64 = 10;
/// Characters in an id that the client made.
const CLIENT_ID_MAX: usize = 200;

/// How deep those are followed who start each other: no record ends in a circle.
const DEPTH_MAX: i64 = 100;

/// What a call answers that starts an agent in the background.
const LAUNCHED: &str = "async_launched";

/// Whether a text can be an id that the client made.
pub(super) fn is_client_id(text: &str) -> bool {
    (1..=CLIENT_ID_MAX).contains(&text.chars().count()) && !text.contains(char::is_control)
}

row! {
    /// A spawn that an agent may have been started by.
    pub struct SpawnToMatch {
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

impl SpawnToMatch {
    fn candidate(self, agent_id: &str) -> Candidate<Id<kind::Spawn>> {
        let holder = match (self.matched_agent_id, self.evidence) {
            (Some(holder), _) if holder == agent_id && self.tentative => Holder::Itself,
            (Some(_), Some(evidence)) => Holder::Other(Match { tentative: self.tentative, evidence }),
            _ => Holder::None,
        };
        Candidate {
            id: self.id,
            subagent_type: self.subagent_type,
            role: self.role,
            prompt_hash: self.prompt_hash,
            holder,
            // The query leaves out calls that came after the agent.
            may_be_guessed: !self.failed,
        }
    }
}

/// Evidence that waits for its spawn: an agent's own stands in a transcript that may be read later.
const WAITING: [Evidence; 2] = [Evidence::MetaJson, Evidence::AgentProgress];

/// What is kept with an agent until the call that started it is known.
fn started_by(evidence: Evidence, tool_use_id: &str) -> String {
    match evidence {
        Evidence::MetaJson => tool_use_id.to_owned(),
        other => format!("{other} {tool_use_id}"),
    }
}

impl Observing<'_, '_> {
    /// The subagent of an id, entered when it was never seen.
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
                self.register(&Resource::outside(subagent.id, format!("agent-{agent_id}")))?;
                self.count("subagent");
                self.seeking.insert(agent_id.to_owned());
                self.newcomers.insert(agent_id.to_owned());
                self.entered.insert(agent_id.to_owned());
                subagent
            }
        };
        self.subagents.insert(agent_id.to_owned(), subagent.clone());
        Ok(subagent)
    }

    pub(super) fn save_subagent(&mut self, subagent: Subagent) -> Result<()> {
        match self.subagents.get(&subagent.agent_id) {
            Some(kept) => self.write.update_changed(kept, &subagent)?,
            None => self.write.update(&subagent)?,
        }
        self.subagents.insert(subagent.agent_id.clone(), subagent);
        Ok(())
    }

    /// Adds what is known of a subagent.
    pub(super) fn subagent_facts(&mut self, seen: &Seen, facts: &SubagentFacts) -> Result<()> {
        let Some(agent_id) = seen.agent.as_deref() else {
            return Ok(());
        };
        let before = self.subagent(agent_id, seen.at)?;
        let mut subagent = before.clone();
        let line =
            |text: &String| Some(text::cut(&text::clean_line(text), text::LINE_MAX)).filter(|line| !line.is_empty());
        subagent.agent_type = facts.agent_type.as_ref().and_then(line).or(subagent.agent_type);
        subagent.depth = facts.depth.or(subagent.depth);
        subagent.parent_agent_id = facts.parent_agent.clone().or(subagent.parent_agent_id);
        subagent.prompt_hash = subagent.prompt_hash.or_else(|| facts.prompt_hash.clone());
        subagent.tagged_role = subagent.tagged_role.or_else(|| facts.tagged_role.clone());
        subagent.spawnable &= !facts.not_spawned;
        subagent.started_at = subagent.started_at.min(seen.at);
        let changed = subagent != before;
        self.save_subagent(subagent)?;
        if changed {
            self.seeking.insert(agent_id.to_owned());
            self.name_role(agent_id)?;
        }
        Ok(())
    }

    /// A call that starts a subagent. Registering it again changes nothing but what was not known.
    pub(super) fn spawn(&mut self, seen: &Seen, facts: &SpawnFacts) -> Result<()> {
        if !is_client_id(&facts.tool_use_id) {
            return Ok(());
        }
        let known = self.call_row(seen, facts)?;
        let run = self.run_of(seen)?;
        let (transcript, index, block) = match &facts.place {
            Some((transcript, index, block)) => (Some(transcript.clone()), Some(*index), Some(*block)),
            None => (None, None, None),
        };
        if let Some(known) = known.as_ref().filter(|known| known.run_id.is_some()) {
            let mut spawn = known.clone();
            if spawn.transcript.is_none() && transcript.is_some() {
                (spawn.transcript, spawn.transcript_index, spawn.block) = (transcript, index, block);
            }
            if self.source == Source::Transcript {
                // The file that holds the call says whose it was.
                spawn.run_id = Some(run);
                spawn.parent_agent_id.clone_from(&seen.agent);
                spawn.created_at = seen.at;
            }
            if spawn != *known {
                let agent = spawn.matched_agent_id.clone();
                self.write.update_changed(known, &spawn)?;
                if let Some(agent) = agent {
                    self.take_up(&agent)?;
                }
            }
            return Ok(());
        }
        let role = spawn::role(&facts.prompt, facts.name.as_deref());
        let line = |text: &String| text::cut(&text::clean_line(text), text::LINE_MAX);
        let spawn = Spawn {
            id: Id::new(seen.at),
            tenant_id: self.context.tenant,
            session_id: self.session.id,
            transcript,
            transcript_index: index,
            block,
            tool_use_id: facts.tool_use_id.clone(),
            parent_agent_id: seen.agent.clone(),
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
            created_at: seen.at,
        };
        match known {
            Some(imported) => self.take_over(&imported, spawn.clone())?,
            None => self.enter_spawn(&spawn)?,
        }
        self.message(seen.at, &facts.prompt, Some(run), Some(&format!("spawn {}", facts.tool_use_id)))?;
        for evidence in WAITING {
            let waiting = self.write.query::<(String,)>(
                "select agent_id from subagents where tenant_id = ?1 and session_id = ?2 and started_by = ?3",
                params![self.session.id, started_by(evidence, &facts.tool_use_id)],
            )?;
            for (agent,) in waiting {
                self.matched(seen.at, &facts.tool_use_id, &agent, evidence)?;
            }
        }
        self.seek_spawn(&spawn)
    }

    pub(super) fn enter_spawn(&mut self, spawn: &Spawn) -> Result<()> {
        self.write.insert(spawn)?;
        self.register(&Resource::outside(spawn.id, spawn.tool_use_id.clone()))?;
        self.count("spawn");
        Ok(())
    }

    /// The row of a call: of this session; else what another tool told of it, which may have known it by its line only,
    /// or seen it repeated in a later session. Such a row has no run: whoever sees the call itself knows its run.
    fn call_row(&mut self, seen: &Seen, facts: &SpawnFacts) -> Result<Option<Spawn>> {
        let at_line = match (&facts.place, &seen.agent) {
            (Some((_, index, _)), None) => spawn::call_at_line(&self.session.session_id, *index),
            _ => facts.tool_use_id.clone(),
        };
        let session = self.session.id;
        let mut rows = self.write.rows::<Spawn>(
            "where tenant_id = ?1 and tool_use_id in (?2, ?3) order by created_at, id",
            params![facts.tool_use_id, at_line],
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

    /// What is seen of a call stands over what another tool told of it. What that matched stays, in the same session.
    fn take_over(&mut self, imported: &Spawn, mut spawn: Spawn) -> Result<()> {
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
        self.write.rename(spawn.id, &spawn.tool_use_id)?;
        if let Some(agent) = &spawn.matched_agent_id {
            self.take_up(agent)?;
        }
        Ok(())
    }

    /// Agents without an exact match climb again when a transcript shows a new spawn that may be theirs.
    fn seek_spawn(&mut self, spawn: &Spawn) -> Result<()> {
        if self.source == Source::Transcript {
            let open = self.write.query::<(String,)>(
                "select a.agent_id from subagents a where a.tenant_id = ?1 and a.session_id = ?2 and a.spawnable
                 and (a.prompt_hash = ?3 or (a.started_at >= ?6 and (a.tagged_role = ?4 or a.agent_type = ?5)))
                 and not exists (select 1 from task_spawns s where s.tenant_id = ?1 and s.session_id = ?2 and s.matched_agent_id = a.agent_id and not s.tentative)",
                params![self.session.id, spawn.prompt_hash, spawn.role, spawn.subagent_type, spawn.created_at],
            )?;
            self.seeking.extend(open.into_iter().map(|(agent,)| agent));
        }
        Ok(())
    }

    /// The agents that have waited longest without any match climb again when a spawn that may be theirs becomes free.
    fn offer(&mut self, spawn: Id<kind::Spawn>) -> Result<()> {
        let waiting = self.write.query::<(String,)>(
            "select a.agent_id from task_spawns f
             join subagents a on a.tenant_id = ?1 and a.session_id = f.session_id and a.spawnable
             and (a.prompt_hash = f.prompt_hash or (a.started_at >= f.created_at and (a.tagged_role = f.role or a.agent_type = f.subagent_type)))
             where f.tenant_id = ?1 and f.id = ?2
             and not exists (select 1 from task_spawns s where s.tenant_id = ?1 and s.session_id = f.session_id and s.matched_agent_id = a.agent_id)
             order by a.started_at, a.id limit ?3",
            params![spawn, WAITING_MAX],
        )?;
        self.seeking.extend(waiting.into_iter().map(|(agent,)| agent));
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

    pub(super) fn spawn_result(&mut self, tool_use_id: &str, status: &str, error: Option<&str>) -> Result<()> {
        if !is_client_id(tool_use_id) {
            return Ok(());
        }
        let error = error.map(|error| text::cut(&text::clean(error), 2_000));
        let status = text::cut(&text::clean_line(status), text::LINE_MAX);
        let launched = status == LAUNCHED;
        // What became of one that was launched may be known by the time the launch is read again.
        self.write.post(
            "update task_spawns set status = ?4, error = ?5, background = background or ?6 where tenant_id = ?1 and session_id = ?2 and tool_use_id = ?3
             and (status is null or not ?6)",
            params![self.session.id, tool_use_id, status, error, launched],
        )?;
        if error.is_some() {
            // An agent that holds it tentatively may rather belong to the call that was made again.
            let spawn = self.spawn_row(tool_use_id)?.filter(|spawn| spawn.tentative);
            self.seeking.extend(spawn.and_then(|spawn| spawn.matched_agent_id));
        }
        Ok(())
    }

    /// A call and an agent named together.
    pub(super) fn matched(&mut self, at: Time, tool_use_id: &str, agent_id: &str, evidence: Evidence) -> Result<()> {
        let spawn = self.spawn_row(tool_use_id)?;
        if !is_client_id(agent_id) || !is_client_id(tool_use_id) || (spawn.is_none() && !WAITING.contains(&evidence)) {
            return Ok(());
        }
        let mut subagent = self.subagent(agent_id, at)?;
        match spawn {
            Some(spawn) => self.keep_match(at, &spawn, &subagent.agent_id, Match::by(evidence)),
            None if subagent.started_by.is_some() && evidence != Evidence::MetaJson => Ok(()),
            None => {
                subagent.started_by = Some(started_by(evidence, tool_use_id));
                self.save_subagent(subagent)
            }
        }
    }

    /// Stores a match, and makes it the spawn's current one if it is the best.
    pub(super) fn keep_match(&mut self, at: Time, spawn: &Spawn, agent_id: &str, by: Match) -> Result<()> {
        self.write.post(
            "insert into spawn_matches (tenant_id, spawn_id, agent_id, evidence, tentative, created_at) values (?1, ?2, ?3, ?4, ?5, ?6)
             on conflict (spawn_id, agent_id, evidence) do update set withdrawn_at = null, tentative = spawn_matches.tentative and excluded.tentative",
            params![spawn.id, agent_id, by.evidence, by.tentative, at],
        )?;
        let freed = self.withdraw_tentative(Some(spawn.id), agent_id)?;
        let held = spawn.evidence.map(|evidence| Match { tentative: spawn.tentative, evidence });
        if held.is_none_or(|held| by < held) {
            self.write.post(
                "update task_spawns set matched_agent_id = ?3, evidence = ?4, tentative = ?5 where tenant_id = ?1 and id = ?2",
                params![spawn.id, agent_id, by.evidence, by.tentative],
            )?;
            let displaced = spawn.matched_agent_id.as_ref().filter(|displaced| *displaced != agent_id);
            if let Some(displaced) = displaced.cloned() {
                self.seeking.insert(displaced.clone());
                self.take_up(&displaced)?;
            }
        }
        if by.tentative {
            self.seeking.remove(agent_id);
        }
        for spawn in freed {
            self.offer(spawn)?;
        }
        self.take_up(agent_id)
    }

    /// A match of a spawn and an agent contradicts all tentative ones of either of them with others. Says which spawns
    /// became free.
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
        let held = self.write.query::<(Id<kind::Spawn>,)>(
            "select id from task_spawns where tenant_id = ?1 and session_id = ?2 and matched_agent_id = ?3 and tentative",
            params![session, agent_id],
        )?;
        let freed: Vec<_> = held.into_iter().map(|(id,)| id).filter(|held| Some(*held) != spawn).collect();
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

    /// Lets an agent's role and runs follow its match.
    fn take_up(&mut self, agent_id: &str) -> Result<()> {
        self.name_role(agent_id)?;
        self.place_runs(agent_id)
    }

    pub(super) fn name_role(&mut self, agent_id: &str) -> Result<()> {
        let at = self.write.now;
        let before = self.subagent(agent_id, at)?;
        let mut subagent = before.clone();
        let spawns = self.spawns_of(agent_id)?;
        let matched = spawns.first();
        if let Some(spawn) = matched {
            subagent.parent_agent_id = spawn.parent_agent_id.clone().or(subagent.parent_agent_id);
            subagent.agent_type = subagent.agent_type.or_else(|| spawn.subagent_type.clone());
        }
        // Matched at its start, or only later. A transcript is read after the fact, so its order is not the order of
        // events; only progress lines are looked for again when an agent has started without them.
        let source = match before.role_source {
            Some(RoleSource::RetryMatch) => RoleSource::RetryMatch,
            _ if self.is_progress_after_start(&before, matched)? => RoleSource::RetryMatch,
            Some(RoleSource::TaskMatch) => RoleSource::TaskMatch,
            Some(_) if self.source == Source::Hook && !self.entered.contains(agent_id) => RoleSource::RetryMatch,
            _ => RoleSource::TaskMatch,
        };
        let matched_role = matched.and_then(|spawn| spawn.role.as_deref()).map(|role| (role, source));
        let named = spawn::subagent_role(matched_role, subagent.tagged_role.as_deref(), subagent.agent_type.as_deref());
        (subagent.role, subagent.role_source) = named.map_or((None, None), |(role, source)| (Some(role), Some(source)));
        subagent.task_match_index = matched.and_then(|spawn| spawn.transcript_index);
        let is_elsewhere = subagent.parent_agent_id != before.parent_agent_id;
        if matched.is_some() && (subagent.depth.is_none() || is_elsewhere) {
            let above = match &subagent.parent_agent_id {
                Some(parent) => self.subagent(&parent.clone(), at)?.depth,
                None => Some(0),
            };
            subagent.depth = above.map(|depth| depth.saturating_add(1));
        }
        if subagent == before {
            return Ok(());
        }
        let role_changed = subagent.role != before.role;
        let depth = subagent.depth.filter(|_| subagent.depth != before.depth);
        self.save_subagent(subagent)?;
        if let Some(depth) = depth {
            self.deepen_those_of(agent_id, depth)?;
        }
        if role_changed {
            self.place_runs(agent_id)?;
        }
        Ok(())
    }

    /// Whether a progress line names the spawn of an agent that has started in an earlier transaction.
    fn is_progress_after_start(&mut self, subagent: &Subagent, matched: Option<&Spawn>) -> Result<bool> {
        if self.entered.contains(&subagent.agent_id)
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

    /// Whom an agent started is one deeper than it. Hooks before 2.1.69 do not say whose call it was: the transcripts do.
    fn deepen_those_of(&mut self, agent_id: &str, depth: i64) -> Result<()> {
        let deeper = depth.saturating_add(1);
        let below = self.write.query::<(String,)>(
            "select agent_id from subagents where tenant_id = ?1 and session_id = ?2 and parent_agent_id = ?3 and depth <> ?4",
            params![self.session.id, agent_id, deeper],
        )?;
        for (agent,) in below.into_iter().filter(|_| deeper <= DEPTH_MAX) {
            let mut subagent = self.subagent(&agent, self.write.now)?;
            subagent.depth = Some(deeper);
            self.save_subagent(subagent)?;
            self.deepen_those_of(&agent, deeper)?;
        }
        Ok(())
    }

    /// Lets agents without an exact match climb the ladder, those that started first before the others.
    pub(super) fn settle_matches(&mut self) -> Result<()> {
        let mut climbs: HashMap<String, u32> = HashMap::new();
        while !self.seeking.is_empty() {
            let mut agents = Vec::with_capacity(self.seeking.len());
            for agent_id in std::mem::take(&mut self.seeking) {
                agents.push((self.subagent(&agent_id, self.write.now)?.started_at, agent_id));
            }
            agents.sort();
            for (_, agent_id) in agents {
                let climbed = climbs.entry(agent_id.clone()).or_default();
                *climbed += 1;
                if *climbed <= CLIMBS_MAX {
                    self.seek(&agent_id)?;
                }
            }
        }
        Ok(())
    }

    /// Looks for the spawn of an agent that has no exact match.
    pub(super) fn seek(&mut self, agent_id: &str) -> Result<()> {
        self.seeking.remove(agent_id);
        let at = self.write.now;
        let subagent = self.subagent(agent_id, at)?;
        let is_settled = |spawn: &Spawn| spawn.evidence.is_some() && !spawn.tentative;
        if !subagent.spawnable || self.spawns_of(agent_id)?.iter().any(is_settled) {
            return Ok(());
        }
        let seeker = Seeker {
            agent_type: subagent.agent_type.clone().filter(|agent_type| !agent_type.is_empty()),
            role: subagent.tagged_role.clone(),
            prompt_hash: subagent.prompt_hash.clone(),
        };
        let Some((id, by)) = self.climb(&subagent, &seeker)? else {
            return self.release_contradicted(&subagent, &seeker);
        };
        let Some(spawn) = self.write.row::<Spawn>("where tenant_id = ?1 and id = ?2", params![id])? else {
            return Ok(());
        };
        let is_held = spawn.matched_agent_id.as_deref() == Some(agent_id)
            && (spawn.evidence, spawn.tentative) == (Some(by.evidence), by.tentative);
        if is_held { Ok(()) } else { self.keep_match(at, &spawn, agent_id, by) }
    }

    /// Withdraws an agent's tentative match if newer facts contradict it.
    fn release_contradicted(&mut self, subagent: &Subagent, seeker: &Seeker) -> Result<()> {
        let agent_id = subagent.agent_id.as_str();
        let held = self.spawns_to_match(subagent, "matched_agent_id = ?4 and tentative", agent_id, "")?;
        let Some(held) = held.into_iter().next() else { return Ok(()) };
        let id = held.id;
        let mut spawns = vec![held];
        if let Some(hash) = &seeker.prompt_hash {
            spawns.extend(self.spawns_to_match(subagent, "prompt_hash = ?4", hash, "")?);
        }
        if !is_contradicted(seeker, id, &spawns) {
            return Ok(());
        }
        for spawn in self.withdraw_tentative(None, agent_id)? {
            self.offer(spawn)?;
        }
        self.take_up(agent_id)
    }

    /// Asks the ladder, rung by rung, about the few spawns that can decide each: a session may have thousands.
    fn climb(&mut self, subagent: &Subagent, seeker: &Seeker) -> Result<Option<(Id<kind::Spawn>, Match)>> {
        if let Some(hash) = &seeker.prompt_hash {
            let spawns = self.spawns_to_match(subagent, "prompt_hash = ?4", hash, "")?;
            if !spawns.is_empty() {
                return Ok(climb(seeker, &spawns));
            }
        }
        let guessable = match &seeker.prompt_hash {
            // A hook and a transcript may be dated by different clocks, so the times do not count where the prompt does.
            Some(_) => "(error is null or matched_agent_id = ?3)",
            // Without the prompt, an agent of a type that is also spawned may be one that 2.0 starts by itself: then it
            // is older than the call. What another tool recorded has no run and the time at which that tool read it.
            None => "((error is null and (run_id is null or created_at <= ?5)) or matched_agent_id = ?3)",
        };
        if let Some(role) = &seeker.role {
            let free =
                "(matched_agent_id is null or (tentative and (matched_agent_id = ?3 or evidence = 'subagent_type')))";
            let spawns = self.spawns_to_match(subagent, &format!("role = ?4 and {free} and {guessable}"), role, "")?;
            if let Some(found) = climb(seeker, &spawns) {
                return Ok(Some(found));
            }
        }
        let Some(agent_type) = &seeker.agent_type else { return Ok(None) };
        let free = "(matched_agent_id is null or (tentative and matched_agent_id = ?3))";
        // A role of its own leaves those without one: those of that role were asked about before.
        let roleless = if seeker.role.is_some() { "and role is null" } else { "" };
        let which = format!("subagent_type = ?4 and {free} and {guessable} {roleless}");
        let spawns = self.spawns_to_match(subagent, &which, agent_type, "role is null, ")?;
        Ok(climb(seeker, &spawns))
    }

    /// The two spawns of the session that the ladder prefers: the agent's own, then free ones, then those that others hold,
    /// by a fallback before by an equal prompt before exactly. Calls that failed come after those that did not. Two are enough to
    /// see that one is not the only one. No agent was started by a call of its own.
    fn spawns_to_match(
        &mut self,
        subagent: &Subagent,
        which: &str,
        value: &str,
        first: &str,
    ) -> Result<Vec<Candidate<Id<kind::Spawn>>>> {
        let session = self.session.id;
        let mut params: Vec<Param<'_>> = params![session, subagent.agent_id, value].to_vec();
        if which.contains("?5") {
            params.push(subagent.started_at.to_param());
        }
        let spawns = self.write.query::<SpawnToMatch>(
            &format!(
                "select id, subagent_type, role, prompt_hash, matched_agent_id, evidence, tentative, error is not null from task_spawns
                 where tenant_id = ?1 and session_id = ?2 and (parent_agent_id is null or parent_agent_id <> ?3) and {which}
                 order by case when matched_agent_id is null then (case when error is null then 1 else 3 end) when not tentative then 6
                               when matched_agent_id = ?3 then (case when error is null then 0 else 2 end)
                               when evidence <> 'prompt_hash' then 4 else 5 end,
                          {first}coalesce(transcript_index, 9223372036854775807), created_at, id limit 2"
            ),
            &params,
        )?;
        Ok(spawns.into_iter().map(|spawn| spawn.candidate(&subagent.agent_id)).collect())
    }

    /// What a call answered with, of a client that does not say which agent it was: the one agent with that prompt and
    /// without an exact match whose last words these are.
    pub(super) fn result_text(&mut self, at: Time, tool_use_id: &str, text: &str) -> Result<()> {
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
        let said = text::clean(text);
        let mut saying = candidates.into_iter().filter(|(_, last)| last.as_deref() == Some(said.as_str()));
        if let (Some((agent_id, _)), None) = (saying.next(), saying.next()) {
            self.keep_match(at, &spawn, &agent_id, Match::by(Evidence::ToolResult))?;
        }
        Ok(())
    }
}

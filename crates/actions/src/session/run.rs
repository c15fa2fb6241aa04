//! Records the runs of a session. A prompt starts a run of the main agent; a start event starts a run of a subagent.
//!
//! A hook and a transcript report the same run differently. Their reports are linked by the client's prompt id or by
//! the prompt's transcript line. If neither is known, equal prompts at about the same time are linked in order.

use std::collections::HashMap;

use trackway_domain::{
    Id, Time,
    enums::{RunMode, RunStatus},
    kind::{self, Kind},
    observed::{Fact, Observation, ObservedFact, PromptKey, Source, SubagentFacts},
    text,
};
use trackway_store::{
    params, row,
    sql::Param,
    tables::{Run, Spawn, Subagent},
};
use uuid::Uuid;

use super::{RunKey, SessionRecorder};
use crate::{error::Result, run::resource};

/// Maximum difference between the times that a hook and a transcript report for the same start, in microseconds.
const CLOCK_DIFFERENCE_MAX: i64 = 120_000_000;
/// Maximum time between two hooks that report the same start, in microseconds. The client runs our hook twice if its
/// settings contain it twice.
const DUPLICATE_HOOK_MAX: i64 = 2_000_000;
/// Maximum depth of nested runs.
const DEPTH_MAX: i64 = 100;
/// Step limit of an observed run. It is the highest allowed value, because Trackway cannot limit a client's turns.
const MAX_STEPS: i64 = 200;

/// Marks open runs of a session as interrupted. The caller appends a condition on the agent.
const INTERRUPT_RUNS: &str = "update runs set status = ?3, outcome = 'interrupted', ended_at = ?4 where tenant_id = ?1 and session_id = ?2 and status = 'running' and not attached and started_at <= ?4";

row! {
    /// The columns that link a run to the prompt that started it.
    pub struct RunPromptLink {
        id: Id<kind::Run>,
        prompt_id: Option<String>,
        prompt_line: Option<String>,
        prompt_hash: Option<String>,
        hooked: bool,
        started_at: Time,
        status: RunStatus,
        attached: bool,
    }
}

/// The id of the first message that answers each prompt, by the prompt's transcript line.
pub(super) fn first_answers(observation: &Observation) -> HashMap<String, String> {
    let mut answers = HashMap::new();
    for observed in observation.facts.iter().filter(|observed| observed.agent.is_none()) {
        if let (Some(line), Fact::Usage(usage)) = (&observed.prompt.line, &observed.fact) {
            answers.entry(line.clone()).or_insert_with(|| usage.message_id.clone());
        }
    }
    answers
}

row! {
    /// The agent, role, spawn and parent run to which a subagent's run is attached.
    pub struct RunPlacement {
        id: Id<kind::Run>,
        started_at: Time,
        cause_id: Option<Uuid>,
        agent_id: Id<kind::Agent>,
        role_id: Option<Id<kind::Role>>,
        parent_run_id: Option<Id<kind::Run>>,
        chain_depth: i64,
        parent_depth: Option<i64>,
    }
}

impl RunPlacement {
    /// True if the run is attached to this spawn and to the run that made the call. If no spawn is given, true if the
    /// run is attached to no spawn.
    fn is_attached_to(&self, spawn: Option<&Spawn>) -> bool {
        let Some(spawn) = spawn.filter(|spawn| spawn.run_id != Some(self.id)) else {
            return spawn.is_some() || self.cause_id.is_none();
        };
        let has_right_depth = self.parent_depth.is_some_and(|depth| self.chain_depth == depth + 1);
        self.cause_id == Some(spawn.id.uuid())
            && (spawn.run_id.is_none() || (spawn.run_id == self.parent_run_id && has_right_depth))
    }
}

/// The start of a run, as a hook or a transcript reports it.
struct RunStart<'a> {
    at: Time,
    prompt: &'a PromptKey,
    hash: Option<String>,
}

impl SessionRecorder<'_, '_> {
    /// Records a prompt: starts a run, and stores the prompt as a message.
    pub(super) fn record_prompt(
        &mut self,
        observed: &ObservedFact,
        prompt: &str,
        hash: &str,
        copies_get_new_ids: bool,
    ) -> Result<()> {
        if copies_get_new_ids && self.is_copied_prompt(observed, hash)? {
            return Ok(());
        }
        let subagent = observed.agent.as_deref().map(|agent| self.subagent(agent, observed.at)).transpose()?;
        if subagent.is_none() && self.session.ended_at.is_some_and(|ended| ended < observed.at) {
            // The session was resumed.
            self.session.ended_at = None;
            self.session_changed = true;
        }
        let start = RunStart { at: observed.at, prompt: &observed.prompt, hash: Some(hash.to_owned()) };
        let (run, new) = self.find_or_start_run(subagent.as_ref(), &start)?;
        let message = match subagent {
            // The prompt of a subagent is stored with its spawn.
            Some(_) => None,
            None => self.record_message(observed.at, prompt, None, Some(&format!("prompt of {}", run.uuid())))?,
        };
        match message.filter(|_| new) {
            Some(message) => self.set_cause(run, message.uuid()),
            None => Ok(()),
        }
    }

    /// Records that the client started a run of the main agent to notify it about a background agent. The new run has
    /// the same cause as the run that launched the background agent: a person's message. If that message is unknown,
    /// the cause is the latest message.
    pub(super) fn record_notification(
        &mut self,
        observed: &ObservedFact,
        hash: &str,
        tool_use_id: Option<&str>,
    ) -> Result<()> {
        let start = RunStart { at: observed.at, prompt: &observed.prompt, hash: Some(hash.to_owned()) };
        let (run, new) = self.find_or_start_run(None, &start)?;
        if !new {
            return Ok(());
        }
        let call = tool_use_id.map(|call| self.spawn_row(call)).transpose()?.flatten();
        let launching = call.and_then(|spawn| spawn.run_id);
        let causes = self.write.query::<(Id<kind::Run>, Uuid)>(
            "select id, cause_id from runs where tenant_id = ?1 and session_id = ?2 and subagent_id is null and cause_kind = ?3 and id <> ?4 order by id desc limit 100",
            params![self.session.id, Kind::Message, run],
        )?;
        let cause = causes.iter().find(|(id, _)| Some(*id) == launching).or(causes.first());
        if let Some((_, message)) = cause {
            self.set_cause(run, *message)?;
        }
        Ok(())
    }

    /// Stores the message that caused a run.
    fn set_cause(&mut self, run: Id<kind::Run>, message: Uuid) -> Result<()> {
        Ok(self.write.post(
            "update runs set cause_kind = ?3, cause_id = ?4 where tenant_id = ?1 and id = ?2",
            params![run, Kind::Message, message],
        )?)
    }

    /// Records the start of a subagent's run, which a hook or the first line of its transcript reports.
    pub(super) fn record_subagent_start(&mut self, observed: &ObservedFact, agent_type: Option<&str>) -> Result<()> {
        let Some(agent) = observed.agent.as_deref() else {
            return Ok(());
        };
        let facts = SubagentFacts { agent_type: agent_type.map(Into::into), ..SubagentFacts::default() };
        self.record_subagent(observed, &facts)?;
        let subagent = self.subagent(agent, observed.at)?;
        self.find_or_start_run(Some(&subagent), &RunStart { at: observed.at, prompt: &observed.prompt, hash: None })?;
        // Match the subagent now, because the hook's output for the subagent depends on the match.
        self.resolve_matches()
    }

    /// The run that a fact belongs to. Starts one if the record begins in the middle of a run.
    pub(super) fn run_of(&mut self, observed: &ObservedFact) -> Result<Id<kind::Run>> {
        if let Some(line) = &observed.prompt.line
            && let Some(run) = self.run_of_line(line)?
        {
            return Ok(run);
        }
        let key = RunKey::Newest(observed.agent.clone(), observed.prompt.id.clone());
        if let Some(run) = self.runs.get(&key) {
            return Ok(*run);
        }
        let subagent = observed.agent.as_deref().map(|agent| self.subagent(agent, observed.at)).transpose()?;
        let recent = self.recent_runs(subagent.as_ref())?;
        let by_prompt = recent
            .iter()
            .find(|link| subagent.is_none() && observed.prompt.id.is_some() && link.prompt_id == observed.prompt.id);
        let run = match by_prompt.or(recent.first()) {
            Some(link) => link.id,
            None => {
                self.find_or_start_run(
                    subagent.as_ref(),
                    &RunStart { at: observed.at, prompt: &observed.prompt, hash: None },
                )?
                .0
            }
        };
        self.runs.insert(key, run);
        Ok(run)
    }

    /// True if a prompt is a copy with a new id: another session in this workspace has the same prompt, answered by the
    /// same message.
    fn is_copied_prompt(&mut self, observed: &ObservedFact, hash: &str) -> Result<bool> {
        let Some(line) = observed.prompt.line.as_deref().filter(|_| observed.agent.is_none()) else {
            return Ok(false);
        };
        let Some(answer) = self.first_answers.get(line) else {
            return Ok(false);
        };
        let earlier = self.write.one::<(Option<Id<kind::Session>>,)>(
            "select r.session_id from runs r join run_usage u on u.tenant_id = ?1 and u.run_id = r.id
             where r.tenant_id = ?1 and r.prompt_hash = ?2 and r.session_id <> ?3 and r.workspace_id = ?4 and u.message_id = ?5 limit 1",
            params![hash, self.session.id, self.session.workspace_id, answer],
        )?;
        let Some((earlier,)) = earlier else {
            return Ok(false);
        };
        self.repeated_prompts.insert(line.to_owned());
        self.session.continues_id = self.session.continues_id.or(earlier);
        self.session_changed = true;
        Ok(true)
    }

    /// True if another session logged the fact's prompt first, because this session is its fork or continuation. Then
    /// the session is linked to the other one, and the fact is not recorded again.
    pub(super) fn repeats_earlier_session(&mut self, observed: &ObservedFact) -> Result<bool> {
        let Some(line) = observed.prompt.line.as_deref() else {
            return Ok(false);
        };
        if !self.repeated_prompts.contains(line) {
            self.run_of_line(line)?;
        }
        Ok(self.repeated_prompts.contains(line))
    }

    fn run_of_line(&mut self, line: &str) -> Result<Option<Id<kind::Run>>> {
        let key = RunKey::Line(line.to_owned());
        if let Some(run) = self.runs.get(&key) {
            return Ok(Some(*run));
        }
        let found = self.write.one::<(Id<kind::Run>, Option<Id<kind::Session>>)>(
            "select id, session_id from runs where tenant_id = ?1 and prompt_line = ?2 order by id limit 1",
            params![line],
        )?;
        match found {
            Some((run, Some(session))) if session == self.session.id => {
                self.runs.insert(key, run);
                Ok(Some(run))
            }
            Some((_, Some(earlier))) => {
                self.repeated_prompts.insert(line.to_owned());
                if self.session.continues_id.is_none() {
                    self.session.continues_id = Some(earlier);
                    self.session_changed = true;
                }
                Ok(None)
            }
            _ => Ok(None),
        }
    }

    /// The latest runs of the main agent or of one subagent in this session, newest first.
    fn recent_runs(&mut self, subagent: Option<&Subagent>) -> Result<Vec<RunPromptLink>> {
        const SELECT: &str = "select id, prompt_id, prompt_line, prompt_hash, hooked, started_at, status, attached from runs where tenant_id = ?1 and session_id = ?2";
        let session = self.session.id;
        Ok(match subagent {
            Some(subagent) if self.subagents_without_run.contains(&subagent.agent_id) => Vec::new(),
            None => self
                .write
                .query(&format!("{SELECT} and subagent_id is null order by id desc limit 100"), params![session])?,
            Some(subagent) => self.write.query(
                &format!("{SELECT} and subagent_id = ?3 order by id desc limit 100"),
                params![session, subagent.id],
            )?,
        })
    }

    /// Finds the run to which this start belongs, or else creates it. Returns true if the run is new.
    fn find_or_start_run(
        &mut self,
        subagent: Option<&Subagent>,
        start: &RunStart<'_>,
    ) -> Result<(Id<kind::Run>, bool)> {
        if let Some(line) = &start.prompt.line
            && let Some(run) = self.run_of_line(line)?
        {
            return Ok((run, false));
        }
        let recent = self.recent_runs(subagent)?;
        let same = recent
            .iter()
            .find(|link| {
                subagent.is_none()
                    && start.prompt.id.is_some()
                    && link.prompt_id == start.prompt.id
                    && (link.prompt_line.is_none() || start.prompt.line.is_none())
            })
            .or_else(|| recent.iter().rev().find(|link| self.is_same_start(link, subagent, start)))
            // An attached run contains all prompts of its session until the program that started the run ends it.
            .or_else(|| {
                recent.iter().find(|link| subagent.is_none() && link.attached && link.status == RunStatus::Running)
            });
        let (run, new) = match same {
            Some(link) => (self.link_prompt(link.clone(), start)?, false),
            None => {
                if !recent.is_empty() {
                    self.interrupt_previous_run(subagent, start.at)?;
                }
                // The role decides which agent the run belongs to, so match the subagent to its spawn first.
                let subagent_with_role = match subagent.filter(|_| recent.is_empty()) {
                    Some(subagent) => {
                        self.match_agent(&subagent.agent_id)?;
                        Some(self.subagent(&subagent.agent_id, start.at)?)
                    }
                    None => subagent.cloned(),
                };
                (self.new_run(subagent_with_role.as_ref(), start)?, true)
            }
        };
        if let Some(line) = &start.prompt.line {
            self.runs.insert(RunKey::Line(line.clone()), run);
        }
        let agent = subagent.map(|subagent| subagent.agent_id.clone());
        self.runs.insert(RunKey::Newest(agent.clone(), start.prompt.id.clone()), run);
        self.runs.insert(RunKey::Newest(agent, None), run);
        Ok((run, new))
    }

    /// True if `start` is the start of the run in `link`: this source has not reported the run yet, the times are
    /// close, and the prompts are equal if both are known.
    fn is_same_start(&self, link: &RunPromptLink, subagent: Option<&Subagent>, start: &RunStart<'_>) -> bool {
        let difference = (link.started_at.micros() - start.at.micros()).abs();
        let is_new_to_source = match self.source {
            Source::Hook => !link.hooked || (difference <= DUPLICATE_HOOK_MAX && link.status == RunStatus::Running),
            Source::Transcript => link.prompt_line.is_none(),
            Source::Import => false,
        };
        let is_near = difference <= CLOCK_DIFFERENCE_MAX;
        let agrees = |ours: &Option<String>, theirs: &Option<String>| match (ours, theirs) {
            (Some(ours), Some(theirs)) => ours == theirs,
            _ => true,
        };
        // A background subagent may keep running while the main agent receives other prompts, so two reports of its
        // start may name different prompt ids.
        let has_same_prompt_id = subagent.is_some() || agrees(&start.prompt.id, &link.prompt_id);
        is_new_to_source && is_near && has_same_prompt_id && agrees(&start.hash, &link.prompt_hash)
    }

    fn link_prompt(&mut self, link: RunPromptLink, start: &RunStart<'_>) -> Result<Id<kind::Run>> {
        let linked = RunPromptLink {
            prompt_id: link.prompt_id.clone().or_else(|| start.prompt.id.clone()),
            prompt_line: link.prompt_line.clone().or_else(|| start.prompt.line.clone()),
            prompt_hash: link.prompt_hash.clone().or_else(|| start.hash.clone()),
            hooked: link.hooked || self.source == Source::Hook,
            // The transcript's time takes precedence, because it is available with and without hooks.
            started_at: if self.source == Source::Transcript { start.at } else { link.started_at },
            ..link.clone()
        };
        if linked != link {
            self.write.post(
                "update runs set prompt_id = ?3, prompt_line = ?4, prompt_hash = ?5, hooked = ?6, started_at = ?7 where tenant_id = ?1 and id = ?2",
                params![linked.id, linked.prompt_id, linked.prompt_line, linked.prompt_hash, linked.hooked, linked.started_at],
            )?;
        }
        Ok(linked.id)
    }

    fn new_run(&mut self, subagent: Option<&Subagent>, start: &RunStart<'_>) -> Result<Id<kind::Run>> {
        let (agent, role) = self.agent(subagent)?;
        let workspace = self.workspace_id()?;
        let parent = match subagent {
            None => None,
            Some(_) => self.newest_main_run(start.prompt.id.as_deref(), start.at)?,
        };
        let run = Run {
            id: Id::new(start.at),
            tenant_id: self.context.tenant,
            agent_id: agent,
            role_id: role,
            task_id: None,
            task_revision: None,
            parent_run_id: parent.map(|(id, _)| id),
            initiated_by: match self.context.actor {
                crate::Actor::Person(person) => Some(person),
                crate::Actor::Agent(_) => None,
            },
            cause_kind: None,
            cause_id: None,
            chain_depth: parent.map_or(0, |(_, depth)| depth + 1),
            workspace_id: Some(workspace),
            mode: RunMode::of_client(&self.session.client),
            status: RunStatus::Running,
            outcome: None,
            final_message: None,
            error: None,
            max_steps: MAX_STEPS,
            started_at: start.at,
            ended_at: None,
            session_id: Some(self.session.id),
            subagent_id: subagent.map(|subagent| subagent.id),
            prompt_id: start.prompt.id.clone(),
            prompt_line: start.prompt.line.clone(),
            prompt_hash: start.hash.clone(),
            hooked: self.source == Source::Hook,
            asked_at: None,
            answered_at: None,
            queue_item_id: None,
            fence: None,
            token_hash: None,
            cancel_wanted_at: None,
            attached: false,
            drives_task: false,
            keep_open: false,
        };
        self.write.insert(&run)?;
        self.register(&resource(run.id))?;
        self.count("run");
        if let Some(subagent) = subagent {
            self.unmatched_agents.insert(subagent.agent_id.clone());
            match parent {
                Some((parent, _)) => self.set_parent_from_run(agent, Some(parent), None)?,
                // The subagent started before the first prompt, so there is no parent run.
                None => {
                    let (main, _) = self.agent(None)?;
                    self.set_observed_parent(agent, main, None)?;
                }
            }
            let is_first = self.subagents_without_run.remove(&subagent.agent_id);
            // The first run of a subagent without a spawn is already attached correctly.
            if !is_first || !self.spawns_of(&subagent.agent_id)?.is_empty() {
                self.update_run_placement(&subagent.agent_id)?;
            }
        }
        Ok(run.id)
    }

    /// Finds the main agent's run by the prompt id, else by the time. This run is the parent of a subagent's run until
    /// the subagent is matched to its spawn.
    pub(super) fn newest_main_run(
        &mut self,
        prompt_id: Option<&str>,
        at: Time,
    ) -> Result<Option<(Id<kind::Run>, i64)>> {
        const SELECT: &str =
            "select id, chain_depth from runs where tenant_id = ?1 and session_id = ?2 and subagent_id is null";
        let session = self.session.id;
        if let Some(prompt_id) = prompt_id {
            let found = self
                .write
                .one(&format!("{SELECT} and prompt_id = ?3 order by id desc limit 1"), params![session, prompt_id])?;
            if found.is_some() {
                return Ok(found);
            }
        }
        let found =
            self.write.one(&format!("{SELECT} and started_at <= ?3 order by id desc limit 1"), params![session, at])?;
        if found.is_some() {
            return Ok(found);
        }
        Ok(self.write.one(&format!("{SELECT} order by id limit 1"), params![session])?)
    }

    /// Marks an agent's open run as interrupted, because the agent started another run without ending this one.
    fn interrupt_previous_run(&mut self, subagent: Option<&Subagent>, at: Time) -> Result<()> {
        let (session, incomplete) = (self.session.id, RunStatus::Incomplete);
        match subagent {
            None => self
                .write
                .post(&format!("{INTERRUPT_RUNS} and subagent_id is null"), params![session, incomplete, at])?,
            Some(subagent) => self.write.post(
                &format!("{INTERRUPT_RUNS} and subagent_id = ?5"),
                params![session, incomplete, at, subagent.id],
            )?,
        }
        Ok(())
    }

    /// Stores when the agent last ran a shell command.
    pub(super) fn record_shell_command(&mut self, observed: &ObservedFact) -> Result<()> {
        match observed.agent.as_deref() {
            Some(agent) => {
                let mut subagent = self.subagent(agent, observed.at)?;
                subagent.shell_at = subagent.shell_at.max(Some(observed.at));
                self.save_subagent(subagent)
            }
            None => {
                self.session.shell_at = self.session.shell_at.max(Some(observed.at));
                self.session_changed = true;
                Ok(())
            }
        }
    }

    /// Records the end of a run. A later end of the same run replaces this one, because the run continued in between.
    pub(super) fn record_run_end(
        &mut self,
        observed: &ObservedFact,
        status: RunStatus,
        message: Option<&str>,
        error: Option<&str>,
    ) -> Result<()> {
        if observed.agent.is_some() && observed.prompt.line.is_none() && !self.is_known_subagent(observed)? {
            // Clients also report ends of agents that never started, for example after a compaction.
            return Ok(());
        }
        let run = self.run_of(observed)?;
        if status == RunStatus::Running {
            return self.reopen_run(observed, run);
        }
        let cut = |text: &str| text::cut(&text::clean(text), text::TEXT_MAX - 1);
        let (message, error) = (message.map(cut), error.map(cut));
        let outcome = match status {
            RunStatus::Failed => "error",
            RunStatus::Cancelled => "interrupted by the user",
            other => other.as_str(),
        };
        self.write.post(
            // Some clients pass the error as the last message of a failed agent. Do not store it as a message.
            "update runs set status = ?3, outcome = ?4, final_message = nullif(coalesce(?5, final_message), ?6), error = ?6, ended_at = ?7
             where tenant_id = ?1 and id = ?2 and not attached and (?8 or ended_at is null or ended_at <= ?7 or status = 'incomplete')",
            // The transcript takes precedence, because it is available with and without hooks.
            params![run, status, outcome, message, error, observed.at, self.source == Source::Transcript],
        )?;
        if let Some(agent) = &observed.agent {
            let mut subagent = self.subagent(agent, observed.at)?;
            subagent.stopped_at = subagent.stopped_at.max(Some(observed.at));
            self.save_subagent(subagent)?;
        }
        Ok(())
    }

    /// Reopens a run that was recorded as ended because its transcript ended there. An end that a hook reported stays.
    fn reopen_run(&mut self, observed: &ObservedFact, run: Id<kind::Run>) -> Result<()> {
        self.write.post(
            "update runs set status = ?3, outcome = null, final_message = null, ended_at = null where tenant_id = ?1 and id = ?2 and not attached and ended_at = ?4",
            params![run, RunStatus::Running, observed.at],
        )?;
        self.write.post(
            "update task_spawns set status = 'async_launched' where tenant_id = ?1 and session_id = ?2 and background and status = 'completed'
             and id in (select cause_id from runs where tenant_id = ?1 and id = ?3 and status = ?4)",
            params![self.session.id, run, RunStatus::Running],
        )?;
        if let Some(agent) = &observed.agent {
            let mut subagent = self.subagent(agent, observed.at)?;
            subagent.stopped_at = subagent.stopped_at.filter(|stopped| *stopped != observed.at);
            self.save_subagent(subagent)?;
        }
        Ok(())
    }

    /// Ends the runs whose spawn call has returned: some client versions neither report the stop of a subagent nor log
    /// its last message. Completes the calls of background agents whose runs have completed, because such a call never
    /// returns.
    pub(super) fn end_returned_runs(&mut self, observation: &Observation) -> Result<()> {
        let is_relevant = |observed: &ObservedFact| match observed.fact {
            Fact::SpawnResult { .. } | Fact::Match { .. } => true,
            Fact::RunEnd { .. } => observed.agent.is_some(),
            _ => false,
        };
        let is_agent_transcript = observation.progress.as_ref().is_some_and(|progress| progress.agent.is_some());
        if !is_agent_transcript && !observation.facts.iter().any(is_relevant) {
            return Ok(());
        }
        let at = observation.facts.last().map_or(self.write.now, |observed| observed.at);
        for (returned, status, outcome) in [
            ("completed", RunStatus::Completed, "completed"),
            ("failed", RunStatus::Incomplete, "interrupted"),
            ("killed", RunStatus::Cancelled, "killed"),
        ] {
            self.write.post(
                "update runs set status = ?3, outcome = ?4, ended_at = ?5 where tenant_id = ?1 and session_id = ?2 and status = 'running' and cause_kind = 'spawn'
                 and cause_id in (select id from task_spawns where tenant_id = ?1 and session_id = ?2 and status = ?6)",
                params![self.session.id, status, outcome, at, returned],
            )?;
        }
        self.write.post(
            "update task_spawns set status = 'completed' where tenant_id = ?1 and session_id = ?2 and status = 'async_launched'
             and id in (select cause_id from runs where tenant_id = ?1 and session_id = ?2 and cause_kind = 'spawn' and status = ?3)",
            params![self.session.id, RunStatus::Completed],
        )?;
        Ok(())
    }

    fn is_known_subagent(&mut self, observed: &ObservedFact) -> Result<bool> {
        let Some(agent) = &observed.agent else { return Ok(true) };
        Ok(self.subagents.contains_key(agent)
            || self.write.count(
                "select count(*) from subagents where tenant_id = ?1 and session_id = ?2 and agent_id = ?3",
                params![self.session.id, agent],
            )? > 0)
    }

    /// Ends the session, its open runs and its subagents.
    pub(super) fn end_session(&mut self, at: Time) -> Result<()> {
        self.session.ended_at = self.session.ended_at.max(Some(at));
        self.session_changed = true;
        let (session, incomplete) = (self.session.id, RunStatus::Incomplete);
        self.write.post(
            "update runs set status = ?3, outcome = 'the session ended', ended_at = ?4 where tenant_id = ?1 and session_id = ?2 and status = 'running' and not attached",
            params![session, incomplete, at],
        )?;
        self.write.post(
            "update subagents set stopped_at = ?3 where tenant_id = ?1 and session_id = ?2 and stopped_at is null",
            params![session, at],
        )?;
        self.subagents.clear();
        self.count("end");
        Ok(())
    }

    /// Recomputes the depths of all runs below a run that has moved to another parent run.
    fn update_descendant_depths(&mut self, run: Id<kind::Run>) -> Result<()> {
        Ok(self.write.post(
            "with recursive below (id, depth) as (
                 select id, chain_depth from runs where tenant_id = ?1 and id = ?2
                 union all
                 select r.id, b.depth + 1 from below b join runs r on r.tenant_id = ?1 and r.parent_run_id = b.id where b.depth < ?3)
             update runs set chain_depth = (select max(b.depth) from below b where b.id = runs.id)
             where tenant_id = ?1 and id in (select id from below where id <> ?2)",
            params![run, DEPTH_MAX],
        )?)
    }

    /// Attaches a subagent's runs to the runs that made the spawn calls, and to the agent of the subagent's role.
    pub(super) fn update_run_placement(&mut self, agent_id: &str) -> Result<()> {
        let Some(subagent) =
            self.subagents.get(agent_id).filter(|_| !self.subagents_without_run.contains(agent_id)).cloned()
        else {
            return Ok(());
        };
        let session = self.session.id;
        let runs = self.write.query::<RunPlacement>(
            "select id, started_at, cause_id, agent_id, role_id, parent_run_id, chain_depth, (select p.chain_depth from runs p where p.id = r.parent_run_id)
             from runs r where tenant_id = ?1 and session_id = ?2 and subagent_id = ?3 order by id",
            params![session, subagent.id],
        )?;
        if runs.is_empty() {
            // Without a run, create no workspace and no agent yet: facts that decide their names may follow.
            return Ok(());
        }
        let mut former: Vec<_> = runs.iter().map(|run| run.agent_id).collect();
        former.sort();
        former.dedup();
        let (agent, role) = self.agent_replacing(Some(&subagent), &former)?;
        former.retain(|former| *former != agent);
        let spawns = self.spawns_of(agent_id)?;
        let mut parent_change = None;
        for (index, run) in runs.iter().enumerate() {
            let since = index.checked_sub(1).and_then(|before| runs.get(before)).map(|before| before.started_at);
            let until = runs.get(index + 1).map(|next| next.started_at);
            let is_after_previous_start = |spawn: &&Spawn| since.is_none_or(|since| spawn.created_at > since);
            // Prefer the last call before the run's start. Otherwise accept a call that was reported late, but before
            // the next run's start.
            let is_before_next_start = |spawn: &&Spawn| {
                spawn.created_at.micros() <= run.started_at.micros() + CLOCK_DIFFERENCE_MAX
                    && until.is_none_or(|until| spawn.created_at < until)
            };
            let spawn =
                spawns.iter().rev().filter(is_after_previous_start).find(|spawn| spawn.created_at <= run.started_at);
            let spawn = spawn.or_else(|| spawns.iter().filter(is_after_previous_start).find(is_before_next_start));
            parent_change = Some((run.parent_run_id, None));
            if (run.agent_id, run.role_id) == (agent, role) && run.is_attached_to(spawn) {
                continue;
            }
            let mut params: Vec<Param<'_>> = params![run.id, agent, role].to_vec();
            let mut set = "agent_id = ?3, role_id = ?4".to_owned();
            let parent = match spawn {
                Some(spawn) if spawn.run_id != Some(run.id) => {
                    set += ", cause_kind = 'spawn', cause_id = ?5";
                    params.extend_from_slice(params![spawn.id]);
                    spawn.run_id
                }
                // The match of this run was withdrawn.
                None if run.cause_id.is_some() => {
                    set += ", cause_kind = null, cause_id = null";
                    None
                }
                _ => None,
            };
            if let Some(parent) = parent {
                let number = params.len() + 2;
                set += &format!(
                    ", parent_run_id = ?{number}, chain_depth = (select p.chain_depth + 1 from runs p where p.id = ?{number})"
                );
                params.push(Param::Uuid(parent.uuid()));
            }
            self.write.post(&format!("update runs set {set} where tenant_id = ?1 and id = ?2"), &params)?;
            self.agents_of_runs.remove(&run.id);
            if parent.is_some_and(|parent| run.parent_run_id != Some(parent)) {
                parent_change = Some((parent, run.parent_run_id));
                self.update_descendant_depths(run.id)?;
            }
        }
        if let Some((parent, previous)) = parent_change {
            self.set_parent_from_run(agent, parent, previous)?;
        }
        for former in former {
            self.move_children(former, agent, subagent.id)?;
            self.remove_empty_agent(former, subagent.id)?;
        }
        Ok(())
    }
}

//! Runs of a session: a prompt begins one of the main agent, a start begins one of a subagent.
//!
//! A hook and a transcript tell of the same run in different words. They are tied by the client's prompt id or the
//! prompt's line where there is one, else by the prompt itself at about the same time, in order.

use std::collections::HashMap;

use trackway_domain::{
    Id, Time,
    kind::{self, Kind},
    observed::{Fact, Observation, PromptKey, Seen, Source, SubagentFacts},
    text,
    words::{RunMode, RunStatus},
};
use trackway_store::{
    params, row,
    sql::Param,
    tables::{Run, Spawn, Subagent},
};
use uuid::Uuid;

use super::{Observing, RunKey};
use crate::{error::Result, run::resource};

/// How far apart a hook and a transcript may date one start, in microseconds.
const APART_MAX: i64 = 120_000_000;
/// How far apart two hooks may tell of one start, where settings hold two of ours, in microseconds.
const TWICE_MAX: i64 = 2_000_000;
/// Runs below each other.
const DEPTH_MAX: i64 = 100;
/// Turns of a session are not ours to limit.
const MAX_STEPS: i64 = 200;

/// Ends what is open of an agent, to be followed by which.
const END: &str = "update runs set status = ?3, outcome = 'interrupted', ended_at = ?4 where tenant_id = ?1 and session_id = ?2 and status = 'running' and not attached and started_at <= ?4";

row! {
    /// What ties a run to its prompt.
    pub struct Tie {
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

/// The first message that answers each prompt.
pub(super) fn answers(observation: &Observation) -> HashMap<String, String> {
    let mut answers = HashMap::new();
    for seen in observation.facts.iter().filter(|seen| seen.agent.is_none()) {
        if let (Some(line), Fact::Usage(usage)) = (&seen.prompt.line, &seen.fact) {
            answers.entry(line.clone()).or_insert_with(|| usage.message_id.clone());
        }
    }
    answers
}

row! {
    /// Where a subagent's run is.
    pub struct Placed {
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

impl Placed {
    /// Whether it is already where its spawn says.
    fn is_below(&self, spawn: Option<&Spawn>) -> bool {
        let Some(spawn) = spawn.filter(|spawn| spawn.run_id != Some(self.id)) else {
            return spawn.is_some() || self.cause_id.is_none();
        };
        let is_deep = self.parent_depth.is_some_and(|depth| self.chain_depth == depth + 1);
        self.cause_id == Some(spawn.id.uuid())
            && (spawn.run_id.is_none() || (spawn.run_id == self.parent_run_id && is_deep))
    }
}

/// What begins a run.
struct Beginning<'a> {
    at: Time,
    prompt: &'a PromptKey,
    hash: Option<String>,
}

impl Observing<'_, '_> {
    /// A prompt begins a run, and is a message.
    pub(super) fn prompt(&mut self, seen: &Seen, prompt: &str, hash: &str, copies_get_new_ids: bool) -> Result<()> {
        if copies_get_new_ids && self.is_copied(seen, hash)? {
            return Ok(());
        }
        let subagent = seen.agent.as_deref().map(|agent| self.subagent(agent, seen.at)).transpose()?;
        if subagent.is_none() && self.session.ended_at.is_some_and(|ended| ended < seen.at) {
            // It was resumed.
            self.session.ended_at = None;
            self.session_changed = true;
        }
        let beginning = Beginning { at: seen.at, prompt: &seen.prompt, hash: Some(hash.to_owned()) };
        let (run, new) = self.begin(subagent.as_ref(), &beginning)?;
        let message = match subagent {
            // A subagent's prompt is its spawn's: written down with the run that spawned it.
            Some(_) => None,
            None => self.message(seen.at, prompt, None, Some(&format!("prompt of {}", run.uuid())))?,
        };
        match message.filter(|_| new) {
            Some(message) => self.cause(run, message.uuid()),
            None => Ok(()),
        }
    }

    /// The client begins a run of the main agent, to tell it of an agent in the background. What the person said to the
    /// run that launched that one is the cause of this one, too.
    pub(super) fn notified(&mut self, seen: &Seen, hash: &str, tool_use_id: Option<&str>) -> Result<()> {
        let beginning = Beginning { at: seen.at, prompt: &seen.prompt, hash: Some(hash.to_owned()) };
        let (run, new) = self.begin(None, &beginning)?;
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
            self.cause(run, *message)?;
        }
        Ok(())
    }

    /// The message that a run began with.
    fn cause(&mut self, run: Id<kind::Run>, message: Uuid) -> Result<()> {
        Ok(self.write.post(
            "update runs set cause_kind = ?3, cause_id = ?4 where tenant_id = ?1 and id = ?2",
            params![run, Kind::Message, message],
        )?)
    }

    /// A subagent begins a run: told by a hook, or by the first line of its transcript.
    pub(super) fn subagent_start(&mut self, seen: &Seen, agent_type: Option<&str>) -> Result<()> {
        let Some(agent) = seen.agent.as_deref() else {
            return Ok(());
        };
        let facts = SubagentFacts { agent_type: agent_type.map(Into::into), ..SubagentFacts::default() };
        self.subagent_facts(seen, &facts)?;
        let subagent = self.subagent(agent, seen.at)?;
        self.begin(Some(&subagent), &Beginning { at: seen.at, prompt: &seen.prompt, hash: None })?;
        // The match is made with the start: what is printed to the agent depends on it.
        self.settle_matches()
    }

    /// The run that a fact belongs to; one is begun when the record starts in the middle.
    pub(super) fn run_of(&mut self, seen: &Seen) -> Result<Id<kind::Run>> {
        if let Some(line) = &seen.prompt.line
            && let Some(run) = self.run_of_line(line)?
        {
            return Ok(run);
        }
        let key = RunKey::Newest(seen.agent.clone(), seen.prompt.id.clone());
        if let Some(run) = self.runs.get(&key) {
            return Ok(*run);
        }
        let subagent = seen.agent.as_deref().map(|agent| self.subagent(agent, seen.at)).transpose()?;
        let ties = self.ties(subagent.as_ref())?;
        let by_prompt =
            ties.iter().find(|tie| subagent.is_none() && seen.prompt.id.is_some() && tie.prompt_id == seen.prompt.id);
        let run = match by_prompt.or(ties.first()) {
            Some(tie) => tie.id,
            None => self.begin(subagent.as_ref(), &Beginning { at: seen.at, prompt: &seen.prompt, hash: None })?.0,
        };
        self.runs.insert(key, run);
        Ok(run)
    }

    /// Whether a prompt is a copy under another id: the same prompt in this workspace was then answered by the same message.
    fn is_copied(&mut self, seen: &Seen, hash: &str) -> Result<bool> {
        let Some(line) = seen.prompt.line.as_deref().filter(|_| seen.agent.is_none()) else {
            return Ok(false);
        };
        let Some(answer) = self.answers.get(line) else {
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
        self.repeated.insert(line.to_owned());
        self.session.continues_id = self.session.continues_id.or(earlier);
        self.session_changed = true;
        Ok(true)
    }

    /// Whether a fact belongs to a prompt that another session had first. Such lines are linked, not counted again.
    pub(super) fn is_repeated(&mut self, seen: &Seen) -> Result<bool> {
        let Some(line) = seen.prompt.line.as_deref() else {
            return Ok(false);
        };
        if !self.repeated.contains(line) {
            self.run_of_line(line)?;
        }
        Ok(self.repeated.contains(line))
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
                self.repeated.insert(line.to_owned());
                if self.session.continues_id.is_none() {
                    self.session.continues_id = Some(earlier);
                    self.session_changed = true;
                }
                Ok(None)
            }
            _ => Ok(None),
        }
    }

    /// The latest runs of one agent in this session, newest first.
    fn ties(&mut self, subagent: Option<&Subagent>) -> Result<Vec<Tie>> {
        const SELECT: &str = "select id, prompt_id, prompt_line, prompt_hash, hooked, started_at, status, attached from runs where tenant_id = ?1 and session_id = ?2";
        let session = self.session.id;
        Ok(match subagent {
            Some(subagent) if self.newcomers.contains(&subagent.agent_id) => Vec::new(),
            None => self
                .write
                .query(&format!("{SELECT} and subagent_id is null order by id desc limit 100"), params![session])?,
            Some(subagent) => self.write.query(
                &format!("{SELECT} and subagent_id = ?3 order by id desc limit 100"),
                params![session, subagent.id],
            )?,
        })
    }

    /// Finds the run that this beginning is another word for, else begins it. Says whether it is new.
    fn begin(&mut self, subagent: Option<&Subagent>, beginning: &Beginning<'_>) -> Result<(Id<kind::Run>, bool)> {
        if let Some(line) = &beginning.prompt.line
            && let Some(run) = self.run_of_line(line)?
        {
            return Ok((run, false));
        }
        let ties = self.ties(subagent)?;
        let same = ties
            .iter()
            .find(|tie| {
                subagent.is_none()
                    && beginning.prompt.id.is_some()
                    && tie.prompt_id == beginning.prompt.id
                    && (tie.prompt_line.is_none() || beginning.prompt.line.is_none())
            })
            .or_else(|| ties.iter().rev().find(|tie| self.is_same(tie, subagent, beginning)))
            // Whoever began it ends it: until then, all that is asked here is asked in it.
            .or_else(|| ties.iter().find(|tie| subagent.is_none() && tie.attached && tie.status == RunStatus::Running));
        let (run, new) = match same {
            Some(tie) => (self.tie(tie.clone(), beginning)?, false),
            None => {
                if !ties.is_empty() {
                    self.end_before(subagent, beginning.at)?;
                }
                // Its role decides whose run it is: an agent that is about to run climbs first.
                let sought = match subagent.filter(|_| ties.is_empty()) {
                    Some(subagent) => {
                        self.seek(&subagent.agent_id)?;
                        Some(self.subagent(&subagent.agent_id, beginning.at)?)
                    }
                    None => subagent.cloned(),
                };
                (self.new_run(sought.as_ref(), beginning)?, true)
            }
        };
        if let Some(line) = &beginning.prompt.line {
            self.runs.insert(RunKey::Line(line.clone()), run);
        }
        let agent = subagent.map(|subagent| subagent.agent_id.clone());
        self.runs.insert(RunKey::Newest(agent.clone(), beginning.prompt.id.clone()), run);
        self.runs.insert(RunKey::Newest(agent, None), run);
        Ok((run, new))
    }

    /// Whether the other source told of this run: at about this time, with this prompt where both know it.
    fn is_same(&self, tie: &Tie, subagent: Option<&Subagent>, beginning: &Beginning<'_>) -> bool {
        let apart = (tie.started_at.micros() - beginning.at.micros()).abs();
        let untold = match self.source {
            Source::Hook => !tie.hooked || (apart <= TWICE_MAX && tie.status == RunStatus::Running),
            Source::Transcript => tie.prompt_line.is_none(),
            Source::Import => false,
        };
        let near = apart <= APART_MAX;
        let agrees = |ours: &Option<String>, theirs: &Option<String>| match (ours, theirs) {
            (Some(ours), Some(theirs)) => ours == theirs,
            _ => true,
        };
        // While an agent is in the background, the main agent goes on to other prompts, and those are named.
        let asked = subagent.is_some() || agrees(&beginning.prompt.id, &tie.prompt_id);
        untold && near && asked && agrees(&beginning.hash, &tie.prompt_hash)
    }

    fn tie(&mut self, tie: Tie, beginning: &Beginning<'_>) -> Result<Id<kind::Run>> {
        let tied = Tie {
            prompt_id: tie.prompt_id.clone().or_else(|| beginning.prompt.id.clone()),
            prompt_line: tie.prompt_line.clone().or_else(|| beginning.prompt.line.clone()),
            prompt_hash: tie.prompt_hash.clone().or_else(|| beginning.hash.clone()),
            hooked: tie.hooked || self.source == Source::Hook,
            // The transcript is what both ways can be read from: its time stands.
            started_at: if self.source == Source::Transcript { beginning.at } else { tie.started_at },
            ..tie.clone()
        };
        if tied != tie {
            self.write.post(
                "update runs set prompt_id = ?3, prompt_line = ?4, prompt_hash = ?5, hooked = ?6, started_at = ?7 where tenant_id = ?1 and id = ?2",
                params![tied.id, tied.prompt_id, tied.prompt_line, tied.prompt_hash, tied.hooked, tied.started_at],
            )?;
        }
        Ok(tied.id)
    }

    fn new_run(&mut self, subagent: Option<&Subagent>, beginning: &Beginning<'_>) -> Result<Id<kind::Run>> {
        let (agent, role) = self.agent(subagent)?;
        let workspace = self.workspace_id()?;
        let parent = match subagent {
            None => None,
            Some(_) => self.newest_main_run(beginning.prompt.id.as_deref(), beginning.at)?,
        };
        let run = Run {
            id: Id::new(beginning.at),
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
            started_at: beginning.at,
            ended_at: None,
            session_id: Some(self.session.id),
            subagent_id: subagent.map(|subagent| subagent.id),
            prompt_id: beginning.prompt.id.clone(),
            prompt_line: beginning.prompt.line.clone(),
            prompt_hash: beginning.hash.clone(),
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
            self.seeking.insert(subagent.agent_id.clone());
            match parent {
                Some((parent, _)) => self.adopt(agent, Some(parent), None)?,
                // It started before the first prompt.
                None => {
                    let (main, _) = self.agent(None)?;
                    self.adopt_by(agent, main, None)?;
                }
            }
            let is_first = self.newcomers.remove(&subagent.agent_id);
            // The first run of an agent without a spawn is where it is to be.
            if !is_first || !self.spawns_of(&subagent.agent_id)?.is_empty() {
                self.place_runs(&subagent.agent_id)?;
            }
        }
        Ok(run.id)
    }

    /// The main agent's run at a time, which a subagent's run is part of until its spawn says better.
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

    /// A run that was still open when its agent began another never came to rest.
    fn end_before(&mut self, subagent: Option<&Subagent>, at: Time) -> Result<()> {
        let (session, incomplete) = (self.session.id, RunStatus::Incomplete);
        match subagent {
            None => self.write.post(&format!("{END} and subagent_id is null"), params![session, incomplete, at])?,
            Some(subagent) => self
                .write
                .post(&format!("{END} and subagent_id = ?5"), params![session, incomplete, at, subagent.id])?,
        }
        Ok(())
    }

    /// When the agent last ran a command.
    pub(super) fn shell(&mut self, seen: &Seen) -> Result<()> {
        match seen.agent.as_deref() {
            Some(agent) => {
                let mut subagent = self.subagent(agent, seen.at)?;
                subagent.shell_at = subagent.shell_at.max(Some(seen.at));
                self.save_subagent(subagent)
            }
            None => {
                self.session.shell_at = self.session.shell_at.max(Some(seen.at));
                self.session_changed = true;
                Ok(())
            }
        }
    }

    /// The run came to rest. A later rest of the same run wins: it went on meanwhile.
    pub(super) fn rest(
        &mut self,
        seen: &Seen,
        status: RunStatus,
        message: Option<&str>,
        error: Option<&str>,
    ) -> Result<()> {
        if seen.agent.is_some() && seen.prompt.line.is_none() && !self.is_known(seen)? {
            // A stop of an agent that was never seen: a compaction, or noise.
            return Ok(());
        }
        let run = self.run_of(seen)?;
        if status == RunStatus::Running {
            return self.unrest(seen, run);
        }
        let cut = |text: &str| text::cut(&text::clean(text), text::TEXT_MAX - 1);
        let (message, error) = (message.map(cut), error.map(cut));
        let outcome = match status {
            RunStatus::Failed => "error",
            RunStatus::Cancelled => "interrupted by the user",
            other => other.word(),
        };
        self.write.post(
            // What a client of 2.1 hands to a hook as the last words of an agent that failed is the error.
            "update runs set status = ?3, outcome = ?4, final_message = nullif(coalesce(?5, final_message), ?6), error = ?6, ended_at = ?7
             where tenant_id = ?1 and id = ?2 and not attached and (?8 or ended_at is null or ended_at <= ?7 or status = 'incomplete')",
            // The transcript is what both ways can be read from: its word stands.
            params![run, status, outcome, message, error, seen.at, self.source == Source::Transcript],
        )?;
        if let Some(agent) = &seen.agent {
            let mut subagent = self.subagent(agent, seen.at)?;
            subagent.stopped_at = subagent.stopped_at.max(Some(seen.at));
            self.save_subagent(subagent)?;
        }
        Ok(())
    }

    /// The end of a file was taken for the end of a turn. What a hook said of the end stands.
    fn unrest(&mut self, seen: &Seen, run: Id<kind::Run>) -> Result<()> {
        self.write.post(
            "update runs set status = ?3, outcome = null, final_message = null, ended_at = null where tenant_id = ?1 and id = ?2 and not attached and ended_at = ?4",
            params![run, RunStatus::Running, seen.at],
        )?;
        self.write.post(
            "update task_spawns set status = 'async_launched' where tenant_id = ?1 and session_id = ?2 and background and status = 'completed'
             and id in (select cause_id from runs where tenant_id = ?1 and id = ?3 and status = ?4)",
            params![self.session.id, run, RunStatus::Running],
        )?;
        if let Some(agent) = &seen.agent {
            let mut subagent = self.subagent(agent, seen.at)?;
            subagent.stopped_at = subagent.stopped_at.filter(|stopped| *stopped != seen.at);
            self.save_subagent(subagent)?;
        }
        Ok(())
    }

    /// A call that returned has no agent at work: some versions neither stop it with a word nor write its last one down.
    /// An agent in the background that is at work no more returns nothing, and its call is over.
    pub(super) fn end_what_returned(&mut self, observation: &Observation) -> Result<()> {
        let tells = |seen: &Seen| match seen.fact {
            Fact::SpawnResult { .. } | Fact::Match { .. } => true,
            Fact::Rest { .. } => seen.agent.is_some(),
            _ => false,
        };
        let of_agent = observation.progress.as_ref().is_some_and(|progress| progress.agent.is_some());
        if !of_agent && !observation.facts.iter().any(tells) {
            return Ok(());
        }
        let at = observation.facts.last().map_or(self.write.now, |seen| seen.at);
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

    fn is_known(&mut self, seen: &Seen) -> Result<bool> {
        let Some(agent) = &seen.agent else { return Ok(true) };
        Ok(self.subagents.contains_key(agent)
            || self.write.count(
                "select count(*) from subagents where tenant_id = ?1 and session_id = ?2 and agent_id = ?3",
                params![self.session.id, agent],
            )? > 0)
    }

    /// Ends what is still open.
    pub(super) fn session_end(&mut self, at: Time) -> Result<()> {
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

    /// A run was put below another one: those below it are as much deeper.
    fn take_along(&mut self, run: Id<kind::Run>) -> Result<()> {
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

    /// Puts an agent's runs where its spawns say: below the run whose call it was, under the role it was given.
    pub(super) fn place_runs(&mut self, agent_id: &str) -> Result<()> {
        let Some(subagent) = self.subagents.get(agent_id).filter(|_| !self.newcomers.contains(agent_id)).cloned()
        else {
            return Ok(());
        };
        let session = self.session.id;
        let runs = self.write.query::<Placed>(
            "select id, started_at, cause_id, agent_id, role_id, parent_run_id, chain_depth, (select p.chain_depth from runs p where p.id = r.parent_run_id)
             from runs r where tenant_id = ?1 and session_id = ?2 and subagent_id = ?3 order by id",
            params![session, subagent.id],
        )?;
        if runs.is_empty() {
            // Nothing to place; what would be made for it (a workspace, an agent) waits until it is known where.
            return Ok(());
        }
        let mut former: Vec<_> = runs.iter().map(|run| run.agent_id).collect();
        former.sort();
        former.dedup();
        let (agent, role) = self.agent_after(Some(&subagent), &former)?;
        former.retain(|former| *former != agent);
        let spawns = self.spawns_of(agent_id)?;
        let mut above = None;
        for (place, run) in runs.iter().enumerate() {
            let since = place.checked_sub(1).and_then(|before| runs.get(before)).map(|before| before.started_at);
            let until = runs.get(place + 1).map(|next| next.started_at);
            let own = |spawn: &&Spawn| since.is_none_or(|since| spawn.created_at > since);
            // The last call before the start; else one that was heard of late, but before the agent was started again.
            let late = |spawn: &&Spawn| {
                spawn.created_at.micros() <= run.started_at.micros() + APART_MAX
                    && until.is_none_or(|until| spawn.created_at < until)
            };
            let spawn = spawns.iter().rev().filter(own).find(|spawn| spawn.created_at <= run.started_at);
            let spawn = spawn.or_else(|| spawns.iter().filter(own).find(late));
            above = Some((run.parent_run_id, None));
            if (run.agent_id, run.role_id) == (agent, role) && run.is_below(spawn) {
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
                // Its match was withdrawn.
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
                above = Some((parent, run.parent_run_id));
                self.take_along(run.id)?;
            }
        }
        if let Some((above, before)) = above {
            self.adopt(agent, above, before)?;
        }
        for former in former {
            self.move_children(former, agent, subagent.id)?;
            self.remove_empty_agent(former, subagent.id)?;
        }
        Ok(())
    }
}

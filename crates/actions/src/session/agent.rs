//! Finds or creates the agents of a session's runs. Their handle is `role@workspace`, the same in every session.
//!
//! The role of a subagent may become known after its first run has started. Its runs then move to the agent of that
//! role. If that agent does not exist yet, the former agent is renamed instead. A former agent without any rows is
//! removed. Agents are renamed or removed only if a session created them and nobody has changed them.

use trackway_domain::{Id, enums::Runner, kind};
use trackway_store::{
    params,
    tables::{Agent, Subagent},
};

use super::{SessionRecorder, location::sanitize_name};
use crate::{agent, context::Actor, definition::save, delete::mark_deleted, error::Result};

/// The role part in the handle of a session's main agent.
const MAIN: &str = "main";
/// Maximum depth of the agent hierarchy.
const DEPTH_MAX: usize = 100;

/// Rows that belong to an agent besides its runs, as conditions on `a.id`. Queue items that the agent took have runs,
/// so they are not listed.
const ROWS_BESIDES_RUNS: &[&str] = &[
    "queue_items q where q.tenant_id = ?1 and q.agent_id = a.id and q.agent_id is not null",
    "agent_links l where l.tenant_id = ?1 and l.from_agent_id = a.id",
    "messages m where m.tenant_id = ?1 and m.to_id = a.id",
];

/// Rows that the agent's runs wrote. A renamed agent keeps them. An agent that has any of them is not removed.
const ROWS_WRITTEN_BY_RUNS: &[&str] = &[
    "agents c where c.tenant_id = ?1 and c.parent_id = a.id",
    "scratchpads p where p.tenant_id = ?1 and p.agent_id = a.id",
    "scratchpad_revisions p where p.tenant_id = ?1 and p.agent_id = a.id",
    "reports p where p.tenant_id = ?1 and p.agent_id = a.id",
    "report_heads h where h.tenant_id = ?1 and h.agent_id = a.id",
    "run_wakes w where w.tenant_id = ?1 and w.agent_id = a.id",
];

/// A role, and the part of the handle that is derived from it.
struct HandleRole {
    part: String,
    role: Option<String>,
}

impl HandleRole {
    fn of(subagent: Option<&Subagent>) -> Self {
        let role = subagent.map(|subagent| {
            let role = subagent.role.clone().or_else(|| subagent.agent_type.clone());
            role.filter(|role| !role.is_empty()).unwrap_or_else(|| "subagent".to_owned())
        });
        Self { part: role.as_deref().map_or_else(|| MAIN.to_owned(), sanitize_name), role }
    }
}

impl SessionRecorder<'_, '_> {
    /// Finds or creates the agent for a subagent, or the main agent, in this workspace. Also returns its role; the main
    /// agent has none.
    pub(super) fn agent(&mut self, subagent: Option<&Subagent>) -> Result<(Id<kind::Agent>, Option<Id<kind::Role>>)> {
        self.agent_replacing(subagent, &[])
    }

    /// Finds or creates the agent for a subagent whose runs have belonged to `former_agents`. If there is only one
    /// former agent, and nothing but the subagent's runs belongs to it, this function renames it instead of creating
    /// one.
    pub(super) fn agent_replacing(
        &mut self,
        subagent: Option<&Subagent>,
        former_agents: &[Id<kind::Agent>],
    ) -> Result<(Id<kind::Agent>, Option<Id<kind::Role>>)> {
        let workspace = self.workspace_id()?;
        let HandleRole { part, role } = HandleRole::of(subagent);
        let role_id = role.as_deref().map(|role| self.role(role)).transpose()?;
        if let Some(id) = self.agents.get(&part) {
            return Ok((*id, role_id));
        }
        let (workspace_name,) = self
            .write
            .one::<(String,)>("select name from workspaces where tenant_id = ?1 and id = ?2", params![workspace])?
            .unwrap_or_default();
        let handle = format!("{part}@{workspace_name}");
        let condition = "where tenant_id = ?1 and handle = ?2 and deleted_at is null";
        let known = match subagent {
            // Another session may be renaming or removing this agent.
            Some(_) => self.write.row_locked_shared::<Agent>(condition, params![handle])?,
            None => self.write.row::<Agent>(condition, params![handle])?,
        };
        let id = match (known, self.context.actor) {
            (Some(agent), _) => agent.id,
            (None, Actor::Person(owner)) => {
                match self.rename_former_agent(subagent, former_agents, &handle, role_id)? {
                    Some(id) => id,
                    None => self.new_agent(handle, owner, role_id)?,
                }
            }
            (None, Actor::Agent(_)) => {
                return Err(trackway_domain::Error::denied("only a person can record observed sessions").into());
            }
        };
        self.agents.insert(part, id);
        Ok((id, role_id))
    }

    fn new_agent(
        &mut self,
        handle: String,
        owner: Id<kind::Person>,
        role_id: Option<Id<kind::Role>>,
    ) -> Result<Id<kind::Agent>> {
        let mut new = agent::new(self.context, self.write, handle, owner);
        new.runner = Runner::of_client(&self.session.client);
        new.role_id = role_id;
        // Only subagents receive the end-of-run prompt. It would delay the person in an interactive session.
        new.end_of_run = role_id.is_some();
        new.observed = true;
        self.count("agent");
        Ok(save(self.context, self.write, None, new)?.0.id)
    }

    /// Renames the only former agent if nothing but runs of this subagent belongs to it, so that it keeps its
    /// scratchpad.
    fn rename_former_agent(
        &mut self,
        subagent: Option<&Subagent>,
        former_agents: &[Id<kind::Agent>],
        handle: &str,
        role_id: Option<Id<kind::Role>>,
    ) -> Result<Option<Id<kind::Agent>>> {
        let (Some(subagent), [former]) = (subagent, former_agents) else { return Ok(None) };
        let runs_of_others =
            "runs r where r.tenant_id = ?1 and r.agent_id = a.id and (r.subagent_id is null or r.subagent_id <> ?3)";
        // A scratchpad revision that another run or a person wrote belongs to the old name.
        let revisions_of_others = "scratchpad_revisions p where p.tenant_id = ?1 and p.agent_id = a.id
                     and not exists (select 1 from runs r where r.id = p.run_id and r.subagent_id = ?3)";
        let Some(agent) = self.lock_unused_agent(
            *former,
            subagent.id,
            &[&[runs_of_others, revisions_of_others], ROWS_BESIDES_RUNS].concat(),
        )?
        else {
            return Ok(None);
        };
        let renamed = Agent { handle: handle.to_owned(), role_id, ..agent.clone() };
        self.write.update_changed(&agent, &renamed)?;
        self.write.update_display_path(renamed.id, handle)?;
        self.agents.retain(|_, id| *id != renamed.id);
        self.count("agent_renamed");
        Ok(Some(renamed.id))
    }

    /// Removes an agent whose runs have moved to another agent, if no rows belong to it.
    pub(super) fn remove_empty_agent(&mut self, agent: Id<kind::Agent>, subagent: Id<kind::Subagent>) -> Result<()> {
        let runs = "runs r where r.tenant_id = ?1 and r.agent_id = a.id";
        // Events of a run that has moved to another agent may still name this agent as their author.
        let authored_events = "events e join runs r on r.tenant_id = ?1 and r.id = e.run_id
                     where e.tenant_id = ?1 and e.actor_id = a.id and r.session_id = (select s.session_id from subagents s where s.tenant_id = ?1 and s.id = ?3)";
        let forbidden_rows = [&[runs, authored_events], ROWS_BESIDES_RUNS, ROWS_WRITTEN_BY_RUNS].concat();
        let Some(agent) = self.lock_unused_agent(agent, subagent, &forbidden_rows)? else {
            return Ok(());
        };
        // Mark the agent instead of deleting the row: PostgreSQL does not check references to agents (decision 14).
        mark_deleted(self.write, "agents", agent.id)?;
        self.agents.retain(|_, id| *id != agent.id);
        self.count("agent_removed");
        Ok(())
    }

    /// Locks and returns the agent if a session created it, nobody has changed it, and it has none of these rows.
    fn lock_unused_agent(
        &mut self,
        agent: Id<kind::Agent>,
        subagent: Id<kind::Subagent>,
        forbidden_rows: &[&str],
    ) -> Result<Option<Agent>> {
        // Lock before counting: a concurrent session that uses the agent has then committed its run.
        let condition = "where tenant_id = ?1 and id = ?2 and observed and updated_at = created_at and role_id is not null and deleted_at is null";
        let Some(row) = self.write.row_locked::<Agent>(condition, params![agent])? else {
            return Ok(None);
        };
        let conditions: Vec<String> =
            forbidden_rows.iter().map(|rows| format!("not exists (select 1 from {rows})")).collect();
        let sql = format!(
            "select count(*) from agents a where a.tenant_id = ?1 and a.id = ?2 and {}",
            conditions.join(" and ")
        );
        Ok((self.write.count(&sql, params![agent, subagent])? > 0).then_some(row))
    }

    /// Makes the agent of `parent_run` the parent of `agent`. `parent_run` is the run that started the agent's run. An
    /// existing parent stays, unless it is the agent of `previous_parent_run`.
    pub(super) fn set_parent_from_run(
        &mut self,
        agent: Id<kind::Agent>,
        parent_run: Option<Id<kind::Run>>,
        previous_parent_run: Option<Id<kind::Run>>,
    ) -> Result<()> {
        match parent_run.map(|run| self.agent_of(run)).transpose()?.flatten() {
            Some(parent) => self.set_observed_parent(agent, parent.into(), previous_parent_run),
            None => Ok(()),
        }
    }

    /// Sets the parent of an agent. An existing parent stays, unless it is the agent of `previous_parent_run`.
    pub(super) fn set_observed_parent(
        &mut self,
        agent: Id<kind::Agent>,
        parent: Id<kind::Agent>,
        previous_parent_run: Option<Id<kind::Run>>,
    ) -> Result<()> {
        let known = match self.parents.get(&agent) {
            Some(known) => *known,
            None => self.parent_of(agent)?,
        };
        let may_change = match (known, previous_parent_run) {
            (None, _) => true,
            (Some(known), Some(previous)) => self.agent_of(previous)? == Some(known.uuid()),
            (Some(_), None) => false,
        };
        self.parents.insert(agent, known);
        if known == Some(parent) || !may_change {
            return Ok(());
        }
        self.set_parent(agent, parent)
    }

    /// Sets an agent's parent, unless that would create a cycle.
    fn set_parent(&mut self, agent: Id<kind::Agent>, parent: Id<kind::Agent>) -> Result<()> {
        // Without the lock, a concurrent session could write the other half of a cycle.
        self.write.lock_catalog()?;
        let mut ancestor = Some(parent);
        for _ in 0..DEPTH_MAX {
            let Some(next) = ancestor else { break };
            if next == agent {
                return Ok(());
            }
            ancestor = self.parent_of(next)?;
        }
        self.write.post("update agents set parent_id = ?3 where tenant_id = ?1 and id = ?2", params![agent, parent])?;
        self.parents.insert(agent, Some(parent));
        Ok(())
    }

    /// Makes `agent` the parent of those children of `former` that the subagent's runs started, because these runs have
    /// moved to `agent`.
    pub(super) fn move_children(
        &mut self,
        former: Id<kind::Agent>,
        agent: Id<kind::Agent>,
        subagent: Id<kind::Subagent>,
    ) -> Result<()> {
        let children = self.write.query::<(Id<kind::Agent>,)>(
            "select c.id from agents c where c.tenant_id = ?1 and c.parent_id = ?2 and exists
             (select 1 from runs r join runs p on p.tenant_id = ?1 and p.id = r.parent_run_id
              where r.tenant_id = ?1 and r.agent_id = c.id and p.subagent_id = ?3)",
            params![former, subagent],
        )?;
        for (child,) in children {
            self.set_parent(child, agent)?;
        }
        Ok(())
    }

    fn parent_of(&mut self, agent: Id<kind::Agent>) -> Result<Option<Id<kind::Agent>>> {
        let found = self.write.one::<(Option<Id<kind::Agent>>,)>(
            "select parent_id from agents where tenant_id = ?1 and id = ?2",
            params![agent],
        )?;
        Ok(found.and_then(|(parent,)| parent))
    }
}

//! Finds or creates the agents of a session's runs. Their handle is `role@workspace`, the same in every session.
//!
//! An agent's role may become known after its first run has started: then its runs move to the agent of that role. The
//! agent they leave behind takes the new name, or is removed, if a session made it and nothing else belongs to it.

use trackway_domain::{Id, kind, words::Runner};
use trackway_store::{
    params,
    tables::{Agent, Subagent},
};

use super::{Observing, place::name_part};
use crate::{agent, context::Actor, definition::save, delete::mark, error::Result};

/// The role of a session's main agent in its handle.
const MAIN: &str = "main";
/// Agents above each other.
const DEPTH_MAX: usize = 100;

/// Rows that belong to an agent besides its runs, as conditions on `a.id`. Items that it took have runs.
const BELONGINGS: &[&str] = &[
    "queue_items q where q.tenant_id = ?1 and q.agent_id = a.id and q.agent_id is not null",
    "agent_links l where l.tenant_id = ?1 and l.from_agent_id = a.id",
    "messages m where m.tenant_id = ?1 and m.to_id = a.id",
];

/// Rows that the agent's runs wrote. A rename keeps them; an agent that has any is not removed.
const LEFT_BY_RUNS: &[&str] = &[
    "agents c where c.tenant_id = ?1 and c.parent_id = a.id",
    "scratchpads p where p.tenant_id = ?1 and p.agent_id = a.id",
    "scratchpad_revisions p where p.tenant_id = ?1 and p.agent_id = a.id",
    "reports p where p.tenant_id = ?1 and p.agent_id = a.id",
    "report_heads h where h.tenant_id = ?1 and h.agent_id = a.id",
    "run_wakes w where w.tenant_id = ?1 and w.agent_id = a.id",
];

/// The role part of a handle, and the role.
struct RolePart {
    part: String,
    role: Option<String>,
}

impl RolePart {
    fn of(subagent: Option<&Subagent>) -> Self {
        let role = subagent.map(|subagent| {
            let role = subagent.role.clone().or_else(|| subagent.agent_type.clone());
            role.filter(|role| !role.is_empty()).unwrap_or_else(|| "subagent".to_owned())
        });
        Self { part: role.as_deref().map_or_else(|| MAIN.to_owned(), name_part), role }
    }
}

impl Observing<'_, '_> {
    /// The agent of a role in this workspace, and its role. The main agent has none.
    pub(super) fn agent(&mut self, subagent: Option<&Subagent>) -> Result<(Id<kind::Agent>, Option<Id<kind::Role>>)> {
        self.agent_after(subagent, &[])
    }

    /// The same, for a subagent whose runs have belonged to other agents: one that is left with nothing takes the name.
    pub(super) fn agent_after(
        &mut self,
        subagent: Option<&Subagent>,
        before: &[Id<kind::Agent>],
    ) -> Result<(Id<kind::Agent>, Option<Id<kind::Role>>)> {
        let workspace = self.workspace_id()?;
        let RolePart { part, role } = RolePart::of(subagent);
        let role_id = role.as_deref().map(|role| self.role(role)).transpose()?;
        if let Some(id) = self.agents.get(&part) {
            return Ok((*id, role_id));
        }
        let (workspace_name,) = self
            .write
            .one::<(String,)>("select name from workspaces where tenant_id = ?1 and id = ?2", params![workspace])?
            .unwrap_or_default();
        let handle = format!("{part}@{workspace_name}");
        let which = "where tenant_id = ?1 and handle = ?2 and deleted_at is null";
        let known = match subagent {
            // Another session may be about to rename or remove the agent of a role.
            Some(_) => self.write.row_shared::<Agent>(which, params![handle])?,
            None => self.write.row::<Agent>(which, params![handle])?,
        };
        let id = match (known, self.context.actor) {
            (Some(agent), _) => agent.id,
            (None, Actor::Person(owner)) => match self.renamed_agent(subagent, before, &handle, role_id)? {
                Some(id) => id,
                None => self.new_agent(handle, owner, role_id)?,
            },
            (None, Actor::Agent(_)) => {
                return Err(trackway_domain::Error::denied("an agent does not observe sessions").into());
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
        // The main agent of an interactive session is not held up; a subagent is asked what it learned.
        new.end_of_run = role_id.is_some();
        new.observed = true;
        self.count("agent");
        Ok(save(self.context, self.write, None, new)?.0.id)
    }

    /// Gives a new name to the one agent that has nothing but runs of this subagent: what was noted for it stays its own.
    fn renamed_agent(
        &mut self,
        subagent: Option<&Subagent>,
        before: &[Id<kind::Agent>],
        handle: &str,
        role_id: Option<Id<kind::Role>>,
    ) -> Result<Option<Id<kind::Agent>>> {
        let (Some(subagent), [former]) = (subagent, before) else { return Ok(None) };
        let others =
            "runs r where r.tenant_id = ?1 and r.agent_id = a.id and (r.subagent_id is null or r.subagent_id <> ?3)";
        // Notes that other runs or a person made belong to the old name.
        let noted = "scratchpad_revisions p where p.tenant_id = ?1 and p.agent_id = a.id
                     and not exists (select 1 from runs r where r.id = p.run_id and r.subagent_id = ?3)";
        let Some(agent) = self.unused_agent(*former, subagent.id, &[&[others, noted], BELONGINGS].concat())? else {
            return Ok(None);
        };
        let renamed = Agent { handle: handle.to_owned(), role_id, ..agent.clone() };
        self.write.update_changed(&agent, &renamed)?;
        self.write.rename(renamed.id, handle)?;
        self.agents.retain(|_, id| *id != renamed.id);
        self.count("agent_renamed");
        Ok(Some(renamed.id))
    }

    /// Removes an agent that a subagent's runs have left, if nothing of it is left.
    pub(super) fn remove_empty_agent(&mut self, agent: Id<kind::Agent>, subagent: Id<kind::Subagent>) -> Result<()> {
        let runs = "runs r where r.tenant_id = ?1 and r.agent_id = a.id";
        // It may have acted in a run of this session before that moved away, and is then named as an author.
        let acted = "events e join runs r on r.tenant_id = ?1 and r.id = e.run_id
                     where e.tenant_id = ?1 and e.actor_id = a.id and r.session_id = (select s.session_id from subagents s where s.tenant_id = ?1 and s.id = ?3)";
        let belongings = [&[runs, acted], BELONGINGS, LEFT_BY_RUNS].concat();
        let Some(agent) = self.unused_agent(agent, subagent, &belongings)? else {
            return Ok(());
        };
        // Marked, not deleted: PostgreSQL does not check references to agents (decision 14).
        mark(self.write, "agents", agent.id)?;
        self.agents.retain(|_, id| *id != agent.id);
        self.count("agent_removed");
        Ok(())
    }

    /// The agent, locked, if a session made it, nobody changed it, and none of these rows are there.
    fn unused_agent(
        &mut self,
        agent: Id<kind::Agent>,
        subagent: Id<kind::Subagent>,
        belongings: &[&str],
    ) -> Result<Option<Agent>> {
        // Locked first: a session that takes the agent meanwhile has committed its run by then.
        let which = "where tenant_id = ?1 and id = ?2 and observed and updated_at = created_at and role_id is not null and deleted_at is null";
        let Some(row) = self.write.row_locked::<Agent>(which, params![agent])? else {
            return Ok(None);
        };
        let none: Vec<String> = belongings.iter().map(|rows| format!("not exists (select 1 from {rows})")).collect();
        let sql =
            format!("select count(*) from agents a where a.tenant_id = ?1 and a.id = ?2 and {}", none.join(" and "));
        Ok((self.write.count(&sql, params![agent, subagent])? > 0).then_some(row))
    }

    /// Makes an agent the child of the one whose run started its own. One that has another parent keeps that, unless its
    /// run was below that one's before and has moved.
    pub(super) fn adopt(
        &mut self,
        agent: Id<kind::Agent>,
        above: Option<Id<kind::Run>>,
        before: Option<Id<kind::Run>>,
    ) -> Result<()> {
        match above.map(|run| self.agent_of(run)).transpose()?.flatten() {
            Some(parent) => self.adopt_by(agent, parent.into(), before),
            None => Ok(()),
        }
    }

    /// Makes an agent the child of another, by the same rule.
    pub(super) fn adopt_by(
        &mut self,
        agent: Id<kind::Agent>,
        parent: Id<kind::Agent>,
        before: Option<Id<kind::Run>>,
    ) -> Result<()> {
        let known = match self.parents.get(&agent) {
            Some(known) => *known,
            None => self.parent_of(agent)?,
        };
        let was_observed = match (known, before) {
            (None, _) => true,
            (Some(known), Some(before)) => self.agent_of(before)? == Some(known.uuid()),
            (Some(_), None) => false,
        };
        self.parents.insert(agent, known);
        if known == Some(parent) || !was_observed {
            return Ok(());
        }
        self.set_parent(agent, parent)
    }

    /// Sets a parent, unless that would make a cycle.
    fn set_parent(&mut self, agent: Id<kind::Agent>, parent: Id<kind::Agent>) -> Result<()> {
        // Another session may be writing the other half of a cycle.
        self.write.lock_catalog()?;
        let mut above = Some(parent);
        for _ in 0..DEPTH_MAX {
            let Some(next) = above else { break };
            if next == agent {
                return Ok(());
            }
            above = self.parent_of(next)?;
        }
        self.write.post("update agents set parent_id = ?3 where tenant_id = ?1 and id = ?2", params![agent, parent])?;
        self.parents.insert(agent, Some(parent));
        Ok(())
    }

    /// The children that a subagent's runs started follow those runs to another agent.
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

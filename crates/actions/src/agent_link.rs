//! Links from agents to the tasks that they work on. A repeated link is ignored, so a link keeps the time at which it
//! was first made.

use std::collections::BTreeSet;

use trackway_domain::{Id, Time, enums::AgentLinkType, kind};
use trackway_store::{Writer, params};

use crate::error::Result;

/// Links an agent to a task. Does nothing if they are linked already.
pub(crate) fn link(write: &mut Writer<'_>, agent: Id<kind::Agent>, task: Id<kind::Task>, at: Time) -> Result<()> {
    let id = write.new_id::<kind::Link>();
    Ok(write.post_independent(
        "insert into agent_links (tenant_id, id, from_agent_id, to_task_id, link_type, created_at) values (?1, ?2, ?3, ?4, ?5, ?6)
         on conflict (from_agent_id, to_task_id, link_type) do nothing",
        params![id, agent, task, AgentLinkType::AgentTask, at],
    )?)
}

/// Links an agent to several tasks, in the order of their ids, so that concurrent writers cannot deadlock.
pub(crate) fn link_all(
    write: &mut Writer<'_>,
    agent: Id<kind::Agent>,
    tasks: impl IntoIterator<Item = Id<kind::Task>>,
) -> Result<()> {
    let now = write.now;
    let tasks: BTreeSet<_> = tasks.into_iter().collect();
    tasks.into_iter().try_for_each(|task| link(write, agent, task, now))
}

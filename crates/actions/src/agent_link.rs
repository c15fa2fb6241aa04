//! The link from an agent to a task it has to do with. It is made once, and keeps its first time.

use std::collections::BTreeSet;

use trackway_domain::{Id, Time, kind, words::AgentLinkType};
use trackway_store::{Writer, params};

use crate::error::Result;

/// Links an agent to a task, unless it is linked already.
pub(crate) fn link(write: &mut Writer<'_>, agent: Id<kind::Agent>, task: Id<kind::Task>, at: Time) -> Result<()> {
    let id = write.new_id::<kind::Link>();
    Ok(write.post_beside(
        "insert into agent_links (tenant_id, id, from_agent_id, to_task_id, link_type, created_at) values (?1, ?2, ?3, ?4, ?5, ?6)
         on conflict (from_agent_id, to_task_id, link_type) do nothing",
        params![id, agent, task, AgentLinkType::AgentTask, at],
    )?)
}

/// Links an agent to several tasks, in an order in which two writers cannot wait for each other.
pub(crate) fn link_all(
    write: &mut Writer<'_>,
    agent: Id<kind::Agent>,
    tasks: impl IntoIterator<Item = Id<kind::Task>>,
) -> Result<()> {
    let now = write.now;
    let tasks: BTreeSet<_> = tasks.into_iter().collect();
    tasks.into_iter().try_for_each(|task| link(write, agent, task, now))
}

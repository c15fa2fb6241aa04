//! Scratchpads: an agent's own notes to its future self. Every write creates a revision.

mod restore;
mod set;
mod update;

pub use restore::RestoreScratchpad;
pub use set::SetScratchpad;
pub use update::UpdateScratchpad;

use serde::Serialize;
use trackway_domain::{Error as Rule, Id, kind};
use trackway_store::{
    Writer, params,
    tables::{Scratchpad, ScratchpadRevision},
};

use crate::{action::Resource, context::Context, error::Result};

/// A scratchpad after a write.
#[derive(Debug, Serialize)]
pub struct ScratchpadState {
    pub content: String,
    pub revision: i64,
}

/// Writes the next revision. Fails with a conflict if `if_revision` is given and is not the current revision.
pub(crate) fn write_revision(
    context: &Context,
    write: &mut Writer<'_>,
    agent: Id<kind::Agent>,
    content: String,
    if_revision: Option<i64>,
) -> Result<ScratchpadState> {
    // Lock the agent, because the scratchpad may not exist yet: two transactions could both write the first revision.
    write.row_locked::<trackway_store::tables::Agent>("where tenant_id = ?1 and id = ?2", params![agent])?;
    let before = write.row::<Scratchpad>("where tenant_id = ?1 and agent_id = ?2", params![agent])?;
    let revision = before.as_ref().map_or(0, |before| before.revision);
    if let Some(expected) = if_revision
        && expected != revision
    {
        return Err(Rule::conflict(format!("the scratchpad is at revision {revision}, not {expected}"))
            .hint("read the scratchpad again, then repeat your change on the current content")
            .into());
    }
    let scratchpad = Scratchpad {
        agent_id: agent,
        tenant_id: context.tenant,
        content: content.clone(),
        revision: revision + 1,
        updated_at: write.now,
    };
    match before {
        None => write.insert(&scratchpad)?,
        Some(_) => write.update(&scratchpad)?,
    }
    write.insert(&ScratchpadRevision {
        agent_id: agent,
        tenant_id: context.tenant,
        revision: scratchpad.revision,
        content: content.clone(),
        actor_kind: context.actor.kind(),
        actor_id: context.actor.id(),
        run_id: context.run,
        created_at: write.now,
    })?;
    Ok(ScratchpadState { content, revision: scratchpad.revision })
}

/// The agent as a resource: the subject of the events of scratchpad writes.
pub(crate) fn agent_resource(write: &mut Writer<'_>, agent: Id<kind::Agent>) -> Result<Resource<kind::Agent>> {
    let handle =
        write.one::<(String,)>("select handle from agents where tenant_id = ?1 and id = ?2", params![agent])?;
    Ok(Resource::new(agent, handle.map_or_else(String::new, |(handle,)| handle)))
}

//! Scratchpads: an agent's own notes to its future self, a revision for each write.

mod set;
mod update;

pub use set::{RestoreScratchpad, SetScratchpad};
pub use update::UpdateScratchpad;

use serde::Serialize;
use trackway_domain::{Error as Rule, Id, kind};
use trackway_store::{
    Writer, params,
    tables::{Scratchpad, ScratchpadRevision},
};

use crate::{action::Resource, context::Context, error::Result};

/// A scratchpad as it now stands.
#[derive(Debug, Serialize)]
pub struct Written {
    pub content: String,
    pub revision: i64,
}

/// Writes the next revision. With `if_revision`, only on top of that one.
pub(crate) fn write_revision(
    context: &Context,
    write: &mut Writer<'_>,
    agent: Id<kind::Agent>,
    content: String,
    if_revision: Option<i64>,
) -> Result<Written> {
    // The agent's row stands in for a scratchpad that is not there yet: two first writers wait for each other.
    write.row_locked::<trackway_store::tables::Agent>("where tenant_id = ?1 and id = ?2", params![agent])?;
    let before = write.row::<Scratchpad>("where tenant_id = ?1 and agent_id = ?2", params![agent])?;
    let revision = before.as_ref().map_or(0, |before| before.revision);
    if let Some(expected) = if_revision
        && expected != revision
    {
        return Err(Rule::conflict(format!("the scratchpad is at revision {revision}, not {expected}"))
            .hint("read it again, then write on top of what is there")
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
    Ok(Written { content, revision: scratchpad.revision })
}

/// What the log says a scratchpad write was about: the agent.
pub(crate) fn about(write: &mut Writer<'_>, agent: Id<kind::Agent>) -> Result<Resource<kind::Agent>> {
    let handle =
        write.one::<(String,)>("select handle from agents where tenant_id = ?1 and id = ?2", params![agent])?;
    Ok(Resource::outside(agent, handle.map_or_else(String::new, |(handle,)| handle)))
}

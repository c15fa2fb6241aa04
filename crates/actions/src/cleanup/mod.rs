//! Cleanup actions: they remove rows, and the event log records how many.

mod contents;
mod events;
mod leases;
mod messages;
mod null_role;
mod old_spawns;
mod session;
mod spawns;

pub use contents::CleanupContents;
pub use events::CleanupEvents;
pub use leases::CleanupLeases;
pub use messages::CleanupMessages;
pub use null_role::CleanupNullRole;
pub use old_spawns::CleanupOldSpawns;
pub use session::CleanupSession;

use serde::Serialize;
use trackway_domain::{Error as Rule, Ref, Time, kind};
use trackway_store::{Writer, params, tables::Session};

use crate::{action::Resource, error::Result};

/// The number of removed rows.
#[derive(Debug, Serialize)]
pub struct CleanupResult {
    pub removed: i64,
}

/// Rejects a time in the future, because it would also remove the event of this cleanup.
fn refuse_future_time(before: Time, now: Time) -> Result<()> {
    if before > now {
        return Err(Rule::conflict(format!("{before} is in the future")).into());
    }
    Ok(())
}

pub(crate) fn locked_session(write: &mut Writer<'_>, session: &Ref<kind::Session>) -> Result<Session> {
    let id = write.resolve(session)?;
    write
        .row_locked::<Session>("where tenant_id = ?1 and id = ?2", params![id])?
        .ok_or_else(|| Rule::not_found(format!("there is no session {session:?}")).into())
}

pub(crate) fn session_resource(session: &Session) -> Resource<kind::Session> {
    Resource::new(session.id, session.session_id.clone())
}

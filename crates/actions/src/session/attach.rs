//! Attaches a client's session to a run that was started outside the client. The client has the run's token.

use serde::Deserialize;
use trackway_domain::{Error as Rule, Id, kind};
use trackway_store::{Writer, params, tables::Run};

use super::{location, lock_session_row, matching::is_client_id};
use crate::{
    action::{Action, ActionOutcome},
    context::Context,
    error::Result,
    run::{self, RecordStep},
    touched::NoTouches,
};

/// Attach a client's session to your run, and extend the run's lease
///
/// Only hooks call this action. It is not registered, so no interface offers it.
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
pub struct AttachSession {
    /// Name of the agent client
    pub client: String,
    /// The client's id of the session
    pub session: String,
}

impl Action for AttachSession {
    const NAME: &'static str = "attach_session";
    const CAPABILITY: &'static str = RecordStep::CAPABILITY;
    const COMMAND: (&'static str, &'static str) = ("session", "attach");
    type Touched = NoTouches;
    /// True if the session is attached to the run.
    type Output = bool;

    fn perform(&self, context: &Context, write: &mut Writer<'_>) -> Result<ActionOutcome<Self>> {
        let Some(run) = context.run else {
            return Err(Rule::denied("attaching a session requires the token of a run").into());
        };
        if !is_client_id(&self.session) {
            return Err(
                Rule::usage("invalid session id: it must have 1 to 200 characters and no control characters").into()
            );
        }
        write.lock_session(&self.session)?;
        let known = lock_session_row(write, &self.client, &self.session)?;
        if let Some(attached) = session_of_run(write, run)? {
            // A run has one session. A second session that starts inside the run gets a run of its own.
            return Ok(ActionOutcome::unchanged(known.is_some_and(|known| known.id == attached)));
        }
        let session = match known {
            Some(session) => session,
            None => location::new_session(context, write, &self.client, &self.session, write.now)?,
        };
        write.post(
            "update runs set session_id = ?3, attached = true where tenant_id = ?1 and id = ?2",
            params![run, session.id],
        )?;
        Ok(ActionOutcome::changed(true, &run::resource(run), NoTouches))
    }
}

/// Locks a run and returns its session.
fn session_of_run(write: &mut Writer<'_>, run: Id<kind::Run>) -> Result<Option<Id<kind::Session>>> {
    let row = write.row_locked::<Run>("where tenant_id = ?1 and id = ?2", params![run])?;
    Ok(row.and_then(|row| row.session_id))
}

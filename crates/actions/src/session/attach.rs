//! A session that happens in a run which is there already: whoever began that run holds its token, and the session has it.

use serde::Deserialize;
use trackway_domain::{Error as Rule, Id, kind};
use trackway_store::{Writer, params, tables::Run};

use super::{matching::is_client_id, place, session_locked};
use crate::{
    action::{Action, Done},
    context::Context,
    error::Result,
    run::{self, RecordStep},
    touched::Nothing,
};

/// Say that a session of a client happens in your run; a sign of life, too
///
/// For hooks: it stands in no list, so no door offers it.
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
pub struct AttachSession {
    /// The name of the client
    pub client: String,
    /// The session, as the client calls it
    pub session: String,
}

impl Action for AttachSession {
    const NAME: &'static str = "attach_session";
    const CAPABILITY: &'static str = RecordStep::CAPABILITY;
    const COMMAND: (&'static str, &'static str) = ("session", "attach");
    type Touched = Nothing;
    /// Whether the session is the run's.
    type Output = bool;

    fn perform(&self, context: &Context, write: &mut Writer<'_>) -> Result<Done<Self>> {
        let Some(run) = context.run else {
            return Err(Rule::denied("a session happens in a run, with the run's token").into());
        };
        if !is_client_id(&self.session) {
            return Err(Rule::usage("this is not the id of a session").into());
        }
        write.lock_session(&self.session)?;
        let known = session_locked(write, &self.client, &self.session)?;
        if let Some(held) = held(write, run)? {
            // A run has one session. Another that was started inside it is a run of its own.
            return Ok(Done::unchanged(known.is_some_and(|known| known.id == held)));
        }
        let session = match known {
            Some(session) => session,
            None => place::new_session(context, write, &self.client, &self.session, write.now)?,
        };
        write.post(
            "update runs set session_id = ?3, attached = true where tenant_id = ?1 and id = ?2",
            params![run, session.id],
        )?;
        Ok(Done::changed(true, &run::resource(run), Nothing))
    }
}

/// The session that a run has already.
fn held(write: &mut Writer<'_>, run: Id<kind::Run>) -> Result<Option<Id<kind::Session>>> {
    let row = write.row_locked::<Run>("where tenant_id = ?1 and id = ?2", params![run])?;
    Ok(row.and_then(|row| row.session_id))
}

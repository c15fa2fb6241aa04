//! Actions on runs: start, record steps and usage, wake, end and cancel.

mod cancel;
mod close;
mod end;
mod end_of_run_reply;
mod revoke_token;
mod start;
mod step;
mod usage;
mod wake;

pub use cancel::CancelRun;
pub use close::{CloseRun, EndOfRunOutcome, LastStep};
pub use end::EndRun;
pub(crate) use end::{end_run, end_run_with_details};
pub(crate) use end_of_run_reply::{SavedReply, ScratchpadBasis, save_end_of_run_reply};
pub use revoke_token::RevokeRunToken;
pub use start::{StartRun, StartedRun};
pub(crate) use start::{acting_agent, new};
pub use step::RecordStep;
pub(crate) use step::append as append_step;
pub use usage::RecordUsage;
pub use wake::{WakeResult, WakeRun};

use trackway_domain::{Error as Rule, Id, Ref, enums::RunStatus, kind};
use trackway_store::{Writer, params, tables::Run};

use crate::{
    action::Resource,
    context::{Actor, Context},
    error::Result,
};

/// A locked run whose status is `running`. Actions that change a run take this type, so they cannot change an ended
/// run.
#[derive(Debug, Clone)]
pub(crate) struct RunningRun(Run);

impl RunningRun {
    /// Finds and locks a run. If the run has ended, a person gets a conflict error. An agent gets a denied error,
    /// because its token expired with the run.
    pub(crate) fn find(context: &Context, write: &mut Writer<'_>, reference: &Ref<kind::Run>) -> Result<Self> {
        let id = write.resolve(reference)?;
        let run = write
            .row_locked::<Run>("where tenant_id = ?1 and id = ?2", params![id])?
            .ok_or_else(|| Rule::not_found(format!("there is no run {reference:?}")))?;
        if run.status != RunStatus::Running {
            let ended = format!("run {} is already {}", run.id.short(), run.status);
            return Err(match context.actor {
                Actor::Person(_) => Rule::conflict(ended),
                Actor::Agent(_) => Rule::denied(ended),
            }
            .into());
        }
        Ok(Self(run))
    }

    pub(crate) fn id(&self) -> Id<kind::Run> {
        self.0.id
    }

    pub(crate) fn resource(&self) -> Resource<kind::Run> {
        resource(self.0.id)
    }
}

/// Finds the run for which the caller records steps or usage, and checks that the caller may do so. If it is the acting
/// run, the authorisation has already checked and locked it.
pub(crate) fn find_recordable_run(
    context: &Context,
    write: &mut Writer<'_>,
    reference: &Ref<kind::Run>,
) -> Result<Id<kind::Run>> {
    if let (Actor::Agent(_), Some(own)) = (context.actor, context.run)
        && reference.as_str() == own.to_string()
    {
        return Ok(own);
    }
    let run = RunningRun::find(context, write, reference)?;
    context.require_own_run(run.id())?;
    Ok(run.id())
}

pub(crate) fn resource(id: Id<kind::Run>) -> Resource<kind::Run> {
    Resource::new(id, format!("runs/{}", id.short()))
}

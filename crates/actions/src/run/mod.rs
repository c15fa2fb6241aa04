//! Runs: started, told step by step, ended.

mod cancel;
mod close;
mod end;
mod remember;
mod start;
mod step;
mod usage;
mod wake;

pub use cancel::CancelRun;
pub use close::{CloseRun, Closing, LastStep, RevokeRunToken};
pub use end::EndRun;
pub(crate) use end::{end_quietly, end_with};
pub(crate) use remember::{Remembered, Saw, remember};
pub use start::{StartRun, Started};
pub(crate) use start::{acting_agent, new};
pub use step::RecordStep;
pub(crate) use step::append as append_step;
pub use usage::RecordUsage;
pub use wake::{WakeRun, Woken};

use trackway_domain::{Error as Rule, Id, Ref, kind, words::RunStatus};
use trackway_store::{Writer, params, tables::Run};

use crate::{
    action::Resource,
    context::{Actor, Context},
    error::Result,
};

/// A run that is running, locked. What happens in a run needs one of these: an ended run has no way to get one.
#[derive(Debug, Clone)]
pub(crate) struct RunningRun(Run);

impl RunningRun {
    /// One that has ended is a conflict; to an agent it is denied, since its credential died with the run.
    pub(crate) fn find(context: &Context, write: &mut Writer<'_>, reference: &Ref<kind::Run>) -> Result<Self> {
        let id = write.resolve(reference)?;
        let run = write
            .row_locked::<Run>("where tenant_id = ?1 and id = ?2", params![id])?
            .ok_or_else(|| Rule::not_found(format!("there is no run {reference:?}")))?;
        if run.status != RunStatus::Running {
            let ended = format!("run {} is {} already", run.id.short(), run.status);
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

/// The run that something is written down about. The one that acts was found running, and is held, when it was let in.
pub(crate) fn told_about(
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
    Resource::outside(id, format!("runs/{}", id.short()))
}

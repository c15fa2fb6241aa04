//! Cancelling a run: at once, or as soon as its agent has said what it learned.

use serde::Deserialize;
use trackway_domain::{
    Ref, kind,
    words::{RunMode, RunStatus},
};
use trackway_store::{Writer, display::RunShown, params};

use super::{RunningRun, end_quietly};
use crate::{
    action::{Action, Done},
    context::Context,
    error::Result,
    queue::{self, Ending},
    touched::Nothing,
};

/// Cancel a run
///
/// What it could still do ends at once. An agent that a worker drives is asked for its scratchpad and report first, and
/// the run ends after that; cancelling again does not wait for it.
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
#[serde(deny_unknown_fields)]
pub struct CancelRun {
    /// The run
    pub run: Ref<kind::Run>,
    /// End it without asking its agent anything
    #[arg(long)]
    #[serde(default)]
    pub now: bool,
}

impl Action for CancelRun {
    const NAME: &'static str = "cancel_run";
    const COMMAND: (&'static str, &'static str) = ("run", "cancel");
    type Touched = Nothing;
    type Output = RunShown;

    fn perform(&self, context: &Context, write: &mut Writer<'_>) -> Result<Done<Self>> {
        let run = RunningRun::find(context, write, &self.run)?;
        if !self.now && is_driven(write, &run)? {
            let now = write.now;
            write.post(
                "update runs set cancel_wanted_at = ?3, token_hash = null where tenant_id = ?1 and id = ?2",
                params![run.id(), now],
            )?;
            // Its worker is to hear of it.
            write.ring();
        } else {
            end_quietly(write, run.id(), RunStatus::Cancelled, "cancelled")?;
            queue::settle_with_run(write, &run.0, &Ending::Cancelled { why: Some("its run was cancelled".into()) })?;
        }
        let shown = write.shown_by_id::<RunShown>("u", run.id())?;
        Ok(Done::changed(shown, &run.resource(), Nothing))
    }
}

/// Whether a worker that is alive talks to a model for it: that one will end it.
fn is_driven(write: &mut Writer<'_>, run: &RunningRun) -> Result<bool> {
    let now = write.now;
    Ok(run.0.mode == RunMode::Agent
        && run.0.cancel_wanted_at.is_none()
        && write.count(
            "select count(*) from queue_items q join agents a on a.id = q.taken_by
             where q.tenant_id = ?1 and q.id = ?2 and q.fence = ?3 and q.status = 'running' and q.lease_expires > ?4 and a.runner = 'agent'",
            params![run.0.queue_item_id, run.0.fence, now],
        )? > 0)
}

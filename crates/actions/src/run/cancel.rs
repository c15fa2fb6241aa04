//! Cancels a run, at once or after its agent has answered the end-of-run prompt.

use serde::Deserialize;
use trackway_domain::{
    Ref,
    enums::{RunMode, RunStatus},
    kind,
};
use trackway_store::{Writer, display::RunRow, params};

use super::{RunningRun, end_run};
use crate::{
    action::{Action, ActionOutcome},
    context::Context,
    error::Result,
    queue::{self, ItemOutcome},
    touched::NoTouches,
};

/// Cancel a run
///
/// The run's token stops working at once. If a worker executes the agent, it first prompts the agent for its scratchpad
/// and report, and then ends the run. Cancelling the run a second time ends it without waiting.
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
#[serde(deny_unknown_fields)]
pub struct CancelRun {
    /// Run to cancel
    pub run: Ref<kind::Run>,
    /// End the run at once, without prompting its agent
    #[arg(long)]
    #[serde(default)]
    pub now: bool,
}

impl Action for CancelRun {
    const NAME: &'static str = "cancel_run";
    const COMMAND: (&'static str, &'static str) = ("run", "cancel");
    type Touched = NoTouches;
    type Output = RunRow;

    fn perform(&self, context: &Context, write: &mut Writer<'_>) -> Result<ActionOutcome<Self>> {
        let run = RunningRun::find(context, write, &self.run)?;
        if !self.now && has_live_worker(write, &run)? {
            let now = write.now;
            write.post(
                "update runs set cancel_wanted_at = ?3, token_hash = null where tenant_id = ?1 and id = ?2",
                params![run.id(), now],
            )?;
            // Wake the worker, so that it reads the request.
            write.notify_workers_on_commit();
        } else {
            end_run(write, run.id(), RunStatus::Cancelled, "cancelled")?;
            queue::record_run_outcome(
                write,
                &run.0,
                &ItemOutcome::Cancelled { why: Some("its run was cancelled".into()) },
            )?;
        }
        let shown = write.display_row_by_id::<RunRow>("u", run.id())?;
        Ok(ActionOutcome::changed(shown, &run.resource(), NoTouches))
    }
}

/// True if a live worker executes this run's agent. That worker will end the run.
fn has_live_worker(write: &mut Writer<'_>, run: &RunningRun) -> Result<bool> {
    let now = write.now;
    Ok(run.0.mode == RunMode::Agent
        && run.0.cancel_wanted_at.is_none()
        && write.count(
            "select count(*) from queue_items q join agents a on a.id = q.taken_by
             where q.tenant_id = ?1 and q.id = ?2 and q.fence = ?3 and q.status = 'running' and q.lease_expires > ?4 and a.runner = 'agent'",
            params![run.0.queue_item_id, run.0.fence, now],
        )? > 0)
}

use serde::{Deserialize, Serialize};
use trackway_store::Writer;

use crate::{
    action::{Action, ActionOutcome},
    context::Context,
    error::Result,
    queue::lease::{restart_future_leases, return_expired},
    touched::NoTouches,
};

/// Return queue items with expired leases to the queue
///
/// Every take does this first, so this command is only needed for a queue that no agent takes from.
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
#[serde(deny_unknown_fields)]
pub struct CleanupLeases {}

/// The number of returned items.
#[derive(Debug, Serialize)]
pub struct LeaseCleanupResult {
    pub returned: usize,
}

impl Action for CleanupLeases {
    const NAME: &'static str = "cleanup_leases";
    const CAPABILITY: &'static str = "cleanup";
    const COMMAND: (&'static str, &'static str) = ("cleanup", "leases");
    type Touched = NoTouches;
    type Output = LeaseCleanupResult;

    fn perform(&self, context: &Context, write: &mut Writer<'_>) -> Result<ActionOutcome<Self>> {
        restart_future_leases(write)?;
        // Each returned item already has its own event, so this action appends none.
        Ok(ActionOutcome::unchanged(LeaseCleanupResult { returned: return_expired(context, write)? }))
    }
}

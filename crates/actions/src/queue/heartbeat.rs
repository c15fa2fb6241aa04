use serde::{Deserialize, Serialize};
use trackway_domain::{
    Id, Ref, Time,
    enums::ItemStatus,
    kind,
    queue::{self, check_lease, lease_end},
};
use trackway_store::Writer;

use super::{complete::require_own_item, lease::extend, leased_item};
use crate::{
    action::{Action, ActionOutcome},
    context::Context,
    error::Result,
    touched::NoTouches,
};

/// Extend the lease of a queue item
///
/// Every write with the token of its run extends the lease too.
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
#[serde(deny_unknown_fields)]
pub struct HeartbeatItem {
    /// Queue item whose lease to extend
    #[arg(long)]
    pub id: Ref<kind::QueueItem>,
    /// Fence from the output of `queue take`
    #[arg(long, value_name = "NUMBER")]
    pub fence: i64,
    /// Lease duration from now, in seconds [default: the current lease duration of the item]
    #[arg(long, value_name = "SECONDS")]
    #[schemars(range(min = 1, max = queue::LEASE_SECONDS_MAX))]
    pub lease: Option<i64>,
}

/// A queue item and its new lease.
#[derive(Debug, Serialize)]
pub struct ExtendedLease {
    pub id: Id<kind::QueueItem>,
    pub status: ItemStatus,
    pub lease_expires: Time,
}

impl Action for HeartbeatItem {
    const NAME: &'static str = "queue_heartbeat";
    const COMMAND: (&'static str, &'static str) = ("queue", "heartbeat");
    type Touched = NoTouches;
    type Output = ExtendedLease;

    fn perform(&self, context: &Context, write: &mut Writer<'_>) -> Result<ActionOutcome<Self>> {
        let item = leased_item(write, &self.id, self.fence)?;
        require_own_item(context, &item)?;
        let seconds = check_lease(self.lease.or(item.lease_seconds))?;
        let lease_expires = lease_end(write.now, seconds);
        extend(write, item.id, item.fence, lease_expires, seconds)?;
        // Heartbeats are frequent and nobody queries them later, so they are not logged.
        Ok(ActionOutcome::unchanged(ExtendedLease { id: item.id, status: item.status, lease_expires }))
    }
}

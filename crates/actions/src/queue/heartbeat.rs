//! Extending the lease of an item.

use serde::{Deserialize, Serialize};
use trackway_domain::{
    Id, Ref, Time, kind,
    queue::{self, lease, lease_end},
    words::ItemStatus,
};
use trackway_store::Writer;

use super::{complete::require_own_item, held, lease::extend};
use crate::{
    action::{Action, Done},
    context::Context,
    error::Result,
    touched::Nothing,
};

/// Say that you are still at work on a queue item
///
/// Whatever is done with the token of its run says so too.
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
#[serde(deny_unknown_fields)]
pub struct HeartbeatItem {
    /// The queue item
    #[arg(long)]
    pub id: Ref<kind::QueueItem>,
    /// The fence you were given when you took it
    #[arg(long, value_name = "NUMBER")]
    pub fence: i64,
    /// How long the lease is from now, in seconds (as long as when it was taken)
    #[arg(long, value_name = "SECONDS")]
    #[schemars(range(min = 1, max = queue::LEASE_SECONDS_MAX))]
    pub lease: Option<i64>,
}

/// An item whose lease was extended.
#[derive(Debug, Serialize)]
pub struct Beaten {
    pub id: Id<kind::QueueItem>,
    pub status: ItemStatus,
    pub lease_expires: Time,
}

impl Action for HeartbeatItem {
    const NAME: &'static str = "queue_heartbeat";
    const COMMAND: (&'static str, &'static str) = ("queue", "heartbeat");
    type Touched = Nothing;
    type Output = Beaten;

    fn perform(&self, context: &Context, write: &mut Writer<'_>) -> Result<Done<Self>> {
        let item = held(write, &self.id, self.fence)?;
        require_own_item(context, &item)?;
        let seconds = lease(self.lease.or(item.lease_seconds))?;
        let lease_expires = lease_end(write.now, seconds);
        extend(write, item.id, item.fence, lease_expires, seconds)?;
        // A sign of life is no change that anyone asks about later: the log stays quiet.
        Ok(Done::unchanged(Beaten { id: item.id, status: item.status, lease_expires }))
    }
}

//! Leases. Heartbeats and writes of the run extend the lease; without them it expires.

use trackway_domain::{
    Error as Rule, Id, Time,
    enums::RunStatus,
    kind,
    queue::{is_heartbeat_in_future, lease_end, should_extend_lease},
};
use trackway_store::{Writer, params, tables::QueueItem};

use super::{ItemOutcome, RetryPolicy, record_outcome, resource};
use crate::{context::Context, error::Result, run};

pub(crate) fn extend(
    write: &mut Writer<'_>,
    item: Id<kind::QueueItem>,
    fence: i64,
    expires: Time,
    seconds: i64,
) -> Result<()> {
    let now = write.now;
    write.post(
        "update queue_items set lease_expires = ?4, lease_seconds = ?5, heartbeat_at = ?6 where tenant_id = ?1 and id = ?2 and fence = ?3 and status = 'running'",
        params![item, fence, expires, seconds, now],
    )?;
    Ok(())
}

/// The lease that a run acts under.
#[derive(Debug)]
pub(crate) struct Lease {
    pub item: Id<kind::QueueItem>,
    pub fence: i64,
    pub expires: Option<Time>,
    pub seconds: Option<i64>,
}

/// Extends the lease if enough of it has passed. An expired lease is an error.
pub(crate) fn renew_lease(write: &mut Writer<'_>, lease: &Lease) -> Result<()> {
    let (Some(expires), Some(seconds)) = (lease.expires.filter(|expires| *expires > write.now), lease.seconds) else {
        return Err(Rule::denied(
            "the lease of the run's queue item has expired, so the run's token is no longer valid",
        )
        .hint("the item returns to the queue; the next agent that takes it starts a new run")
        .into());
    };
    if should_extend_lease(write.now, expires, seconds) {
        extend(write, lease.item, lease.fence, lease_end(write.now, seconds), seconds)?;
    }
    Ok(())
}

/// Returns items with expired leases to the queue, and returns their number.
pub(crate) fn return_expired(context: &Context, write: &mut Writer<'_>) -> Result<usize> {
    let expired = write.expired_items()?;
    expired.iter().try_for_each(|item| expire(context, write, item))?;
    Ok(expired.len())
}

/// Restarts leases whose last heartbeat lies in the future because the clock was set back. Otherwise they would
/// expire too late. A living holder extends its restarted lease in time.
pub(crate) fn restart_future_leases(write: &mut Writer<'_>) -> Result<()> {
    for item in write.items_with_future_heartbeat()? {
        if let (Some(heartbeat_at), Some(seconds)) = (item.heartbeat_at, item.lease_seconds)
            && is_heartbeat_in_future(write.now, heartbeat_at, seconds)
        {
            extend(write, item.id, item.fence, lease_end(write.now, seconds), seconds)?;
        }
    }
    Ok(())
}

fn expire(context: &Context, write: &mut Writer<'_>, item: &QueueItem) -> Result<()> {
    let is_cancelled = write.count(
        "select count(*) from runs where tenant_id = ?1 and id = ?2 and cancel_wanted_at is not null",
        params![item.run_id],
    )? > 0;
    // The run was cancelled, but its holder did not end it. Cancel the item instead of retrying it.
    let (status, run_outcome, item_outcome) = if is_cancelled {
        (RunStatus::Cancelled, "cancelled", ItemOutcome::Cancelled { why: Some("its run was cancelled".into()) })
    } else {
        let retry = RetryPolicy::WhileAttemptsAreLeft;
        (RunStatus::TimedOut, "lease expired", ItemOutcome::Failed { error: "lease expired".into(), retry })
    };
    if let Some(run) = item.run_id {
        run::end_run(write, run, status, run_outcome)?;
    }
    record_outcome(write, item, &item_outcome)?;
    crate::core::append_event(context, write, "queue_expire", &(&resource(item.id)).into(), None)
}

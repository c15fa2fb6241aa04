//! Leases: held by signs of life, lost by silence.

use trackway_domain::{
    Error as Rule, Id, Time, kind,
    queue::{is_from_a_clock_set_back, is_worth_extending, lease_end},
    words::RunStatus,
};
use trackway_store::{Writer, params, tables::QueueItem};

use super::{Again, Ending, resource, settle};
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

/// Extends the lease of a run that shows a sign of life. One whose lease is over may do nothing any more.
pub(crate) fn keep_alive(write: &mut Writer<'_>, lease: &Lease) -> Result<()> {
    let (Some(expires), Some(seconds)) = (lease.expires.filter(|expires| *expires > write.now), lease.seconds) else {
        return Err(Rule::denied("the lease of the run's queue item is over: its token ended with it")
            .hint("the item goes back to the queue; whoever takes it next gets a run of its own")
            .into());
    };
    if is_worth_extending(write.now, expires, seconds) {
        extend(write, lease.item, lease.fence, lease_end(write.now, seconds), seconds)?;
    }
    Ok(())
}

/// Returns what was taken and not heard of any more, and says how many that were.
pub(crate) fn return_expired(context: &Context, write: &mut Writer<'_>) -> Result<usize> {
    let expired = write.expired_items()?;
    expired.iter().try_for_each(|item| expire(context, write, item))?;
    Ok(expired.len())
}

/// Lets leases from before the clock was set back begin anew: a holder that lives says so in time, and one that does not
/// holds it no longer than any other.
pub(crate) fn count_from_now(write: &mut Writer<'_>) -> Result<()> {
    for item in write.items_held_from_the_future()? {
        if let (Some(heartbeat_at), Some(seconds)) = (item.heartbeat_at, item.lease_seconds)
            && is_from_a_clock_set_back(write.now, heartbeat_at, seconds)
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
    // Whoever was to end a run that was cancelled is gone: it is not tried again.
    let (status, outcome, ending) = if is_cancelled {
        (RunStatus::Cancelled, "cancelled", Ending::Cancelled { why: Some("its run was cancelled".into()) })
    } else {
        let again = Again::WhileAttemptsAreLeft;
        (RunStatus::TimedOut, "lease expired", Ending::Failed { error: "lease expired".into(), again })
    };
    if let Some(run) = item.run_id {
        run::end_quietly(write, run, status, outcome)?;
    }
    settle(write, item, &ending)?;
    crate::core::append_event(context, write, "queue_expire", &(&resource(item.id)).into(), None)
}

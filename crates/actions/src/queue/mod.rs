//! The queue: requests to run a task. Exactly one agent takes each queue item.

pub(crate) mod add;
mod cancel;
mod complete;
mod fail;
mod heartbeat;
pub(crate) mod lease;
mod outcome;
mod release;
mod requeue;
pub(crate) mod take;

pub use add::{AddItem, AddedItem};
pub(crate) use add::{NewItem, enqueue, enqueue_all, runnable_task};
pub use cancel::CancelItem;
pub use complete::CompleteItem;
pub(crate) use complete::{checked_result, parse_json};
pub use fail::FailItem;
pub use heartbeat::HeartbeatItem;
pub(crate) use lease::{Lease, renew_lease};
pub(crate) use outcome::{
    ItemOutcome, RetryPolicy, record_outcome, record_run_outcome, require_lease_of_run, start_task,
};
pub use release::ReleaseItem;
pub use requeue::RequeueItem;
pub use take::{TakeItems, TakenItem};

use serde::Serialize;
use trackway_domain::{Error as Rule, Id, Ref, enums::ItemStatus, field, kind, sentence};
use trackway_store::{Writer, params, tables::QueueItem};
use uuid::Uuid;

use crate::{action::Resource, error::Result};

/// The status of a queue item after the action.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ItemState {
    pub id: Id<kind::QueueItem>,
    pub status: ItemStatus,
}

impl From<&QueueItem> for ItemState {
    fn from(item: &QueueItem) -> Self {
        Self { id: item.id, status: item.status }
    }
}

pub(crate) fn resource(id: Id<kind::QueueItem>) -> Resource<kind::QueueItem> {
    Resource::new(id, format!("queue/{}", id.short()))
}

/// The dedup key of the queue item that a claim creates. It stops a second claim of the same task.
pub(crate) fn claim_key(task: Id<kind::Task>) -> String {
    format!("claim of {task}")
}

/// Whether a claim created the item.
pub(crate) fn is_claim(item: &QueueItem) -> bool {
    item.dedup_key.as_ref() == Some(&claim_key(item.task_id))
}

/// The id of a queue item. A full id is not looked up, because the statement that uses it checks that the item exists.
pub(crate) fn id_of(write: &mut Writer<'_>, reference: &Ref<kind::QueueItem>) -> Result<Id<kind::QueueItem>> {
    match Uuid::parse_str(reference.as_str()) {
        Ok(id) => Ok(id.into()),
        Err(_) => Ok(write.resolve(reference)?),
    }
}

pub(crate) fn locked_item(write: &mut Writer<'_>, reference: &Ref<kind::QueueItem>) -> Result<QueueItem> {
    let id = id_of(write, reference)?;
    Ok(write
        .row_locked::<QueueItem>("where tenant_id = ?1 and id = ?2", params![id])?
        .ok_or_else(|| Rule::not_found(format!("there is no queue item {reference:?}")))?)
}

/// Locks an item and checks that its lease is still valid for this fence.
pub(crate) fn leased_item(write: &mut Writer<'_>, reference: &Ref<kind::QueueItem>, fence: i64) -> Result<QueueItem> {
    let item = locked_item(write, reference)?;
    require_valid_lease(&item, fence, write)?;
    Ok(item)
}

/// Rejects an item that is not running, a wrong fence and an expired lease as a conflict.
pub(crate) fn require_valid_lease(item: &QueueItem, fence: i64, write: &Writer<'_>) -> Result<()> {
    let short = item.id.short();
    if item.status != ItemStatus::Running {
        return Err(Rule::conflict(format!("queue item {short} is {}, so nobody holds its lease", item.status)).into());
    }
    if item.fence != fence {
        return Err(Rule::conflict(format!(
            "fence {fence} of queue item {short} is wrong: the current fence is {}",
            item.fence
        ))
        .hint(if fence < item.fence {
            "another agent has taken the item since and continues the work"
        } else {
            "use the fence from the output of queue take"
        })
        .into());
    }
    if item.lease_expires.is_none_or(|expires| expires <= write.now) {
        return Err(Rule::conflict(format!("the lease of queue item {short} has expired"))
            .hint(sentence![
                "the item returns to the queue; take it again, with a longer ",
                field!(lease),
                " or with heartbeats",
            ])
            .into());
    }
    Ok(())
}

fn unfinished_item_by_key(write: &mut Writer<'_>, key: &str) -> Result<Option<(Id<kind::QueueItem>, ItemStatus)>> {
    Ok(write.one(
        "select id, status from queue_items where tenant_id = ?1 and dedup_key = ?2 and finished_at is null",
        params![key],
    )?)
}

/// Rejects a dedup key that an unfinished item already has.
fn require_free_dedup_key(write: &mut Writer<'_>, key: &str) -> Result<()> {
    match unfinished_item_by_key(write, key)? {
        Some((other, _)) => {
            Err(Rule::conflict(format!("unfinished queue item {} already has the dedup key {key:?}", other.short()))
                .into())
        }
        None => Ok(()),
    }
}

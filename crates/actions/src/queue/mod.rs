//! The queue: requests that a task be run, each taken by exactly one.

pub(crate) mod add;
mod cancel;
mod complete;
mod fail;
mod heartbeat;
pub(crate) mod lease;
mod release;
mod requeue;
mod settle;
pub(crate) mod take;

pub use add::{AddItem, Added};
pub(crate) use add::{NewItem, enqueue, enqueue_all, usable_task};
pub use cancel::CancelItem;
pub use complete::CompleteItem;
pub(crate) use complete::{checked_result, parse_json};
pub use fail::FailItem;
pub use heartbeat::HeartbeatItem;
pub(crate) use lease::{Lease, keep_alive};
pub use release::ReleaseItem;
pub use requeue::RequeueItem;
pub(crate) use settle::{Again, Ending, require_lease, settle, settle_with_run, start_task};
pub use take::{TakeItems, Taken};

use serde::Serialize;
use trackway_domain::{Error as Rule, Id, Ref, field, kind, sentence, words::ItemStatus};
use trackway_store::{Writer, params, tables::QueueItem};
use uuid::Uuid;

use crate::{action::Resource, error::Result};

/// How an item now stands.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ItemStands {
    pub id: Id<kind::QueueItem>,
    pub status: ItemStatus,
}

impl From<&QueueItem> for ItemStands {
    fn from(item: &QueueItem) -> Self {
        Self { id: item.id, status: item.status }
    }
}

pub(crate) fn resource(id: Id<kind::QueueItem>) -> Resource<kind::QueueItem> {
    Resource::outside(id, format!("queue/{}", id.short()))
}

/// The dedup key of the item that a claim of a task makes: a task is claimed by one at a time.
pub(crate) fn claim_key(task: Id<kind::Task>) -> String {
    format!("claim of {task}")
}

/// Whether an item is what a claim made.
pub(crate) fn is_claim(item: &QueueItem) -> bool {
    item.dedup_key.as_ref() == Some(&claim_key(item.task_id))
}

/// The id that a reference to an item names. A whole id needs no look-up: what is done with it looks anyway.
pub(crate) fn id_of(write: &mut Writer<'_>, reference: &Ref<kind::QueueItem>) -> Result<Id<kind::QueueItem>> {
    match Uuid::parse_str(reference.as_str()) {
        Ok(id) => Ok(id.into()),
        Err(_) => Ok(write.resolve(reference)?),
    }
}

/// The item a reference names, locked.
pub(crate) fn item(write: &mut Writer<'_>, reference: &Ref<kind::QueueItem>) -> Result<QueueItem> {
    let id = id_of(write, reference)?;
    Ok(write
        .row_locked::<QueueItem>("where tenant_id = ?1 and id = ?2", params![id])?
        .ok_or_else(|| Rule::not_found(format!("there is no queue item {reference:?}")))?)
}

/// The item that a taker still holds, locked. A stale fence, an ended lease and a finished item are conflicts.
pub(crate) fn held(write: &mut Writer<'_>, reference: &Ref<kind::QueueItem>, fence: i64) -> Result<QueueItem> {
    let item = item(write, reference)?;
    check_held(&item, fence, write)?;
    Ok(item)
}

pub(crate) fn check_held(item: &QueueItem, fence: i64, write: &Writer<'_>) -> Result<()> {
    let short = item.id.short();
    if item.status != ItemStatus::Running {
        return Err(Rule::conflict(format!("queue item {short} is {}, nobody holds it", item.status)).into());
    }
    if item.fence != fence {
        return Err(Rule::conflict(format!(
            "{fence} is not the fence of queue item {short}, which is {} now",
            item.fence
        ))
        .hint(if fence < item.fence {
            "it was taken again since; whoever took it last goes on with it"
        } else {
            "nobody was given that one; it is told when the item is taken"
        })
        .into());
    }
    if item.lease_expires.is_none_or(|expires| expires <= write.now) {
        return Err(Rule::conflict(format!("the lease of queue item {short} is over"))
            .hint(sentence![
                "it goes back to the queue; take again, with a longer ",
                field!(lease),
                " or with heartbeats",
            ])
            .into());
    }
    Ok(())
}

/// The item with a dedup key that is not finished.
fn unfinished(write: &mut Writer<'_>, key: &str) -> Result<Option<(Id<kind::QueueItem>, ItemStatus)>> {
    Ok(write.one(
        "select id, status from queue_items where tenant_id = ?1 and dedup_key = ?2 and finished_at is null",
        params![key],
    )?)
}

/// Only one unfinished item may have a dedup key.
fn refuse_second(write: &mut Writer<'_>, key: &str) -> Result<()> {
    match unfinished(write, key)? {
        Some((other, _)) => {
            Err(Rule::conflict(format!("queue item {} has the dedup key {key:?} now", other.short())).into())
        }
        None => Ok(()),
    }
}

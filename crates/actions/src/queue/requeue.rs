//! Requeueing an item that ended or is blocked.

use serde::Deserialize;
use trackway_domain::{Error as Rule, Ref, command, kind, sentence, words::ItemStatus};
use trackway_store::Writer;

use super::{
    ItemStands, is_claim, item, refuse_second, resource,
    settle::{live_version, unblock, unblock_task},
};
use crate::{
    action::{Action, Done},
    context::Context,
    error::Result,
    touched::{Touch, did},
};

/// Revive a queue item that failed, was cancelled or is blocked
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
#[serde(deny_unknown_fields)]
pub struct RequeueItem {
    /// The queue item
    #[arg(long)]
    pub id: Ref<kind::QueueItem>,
}

impl Action for RequeueItem {
    const NAME: &'static str = "queue_requeue";
    const COMMAND: (&'static str, &'static str) = ("queue", "requeue");
    type Touched = Touch<kind::QueueItem, did::Update>;
    type Output = ItemStands;

    fn perform(&self, _: &Context, write: &mut Writer<'_>) -> Result<Done<Self>> {
        // Before the item is held: whoever archives its task waits for the item.
        write.share_live_versions()?;
        let mut item = item(write, &self.id)?;
        match item.status {
            ItemStatus::Failed | ItemStatus::Cancelled | ItemStatus::Blocked => {}
            ItemStatus::Waiting if item.attempt > 1 => {}
            ItemStatus::Ready => return Ok(Done::unchanged(ItemStands::from(&item))),
            status => {
                return Err(Rule::conflict(format!("queue item {} is {status}", item.id.short()))
                    .hint("only items that failed, were cancelled, are blocked or in back-off go back to the queue")
                    .into());
            }
        }
        if live_version(write, &item)?.is_none() {
            return Err(Rule::conflict(format!(
                "queue item {} has no live version of its task to run",
                item.id.short()
            ))
            .hint(sentence![
                "bring an archived version back with ",
                command!("task set", workflow = "NAME", variant = "VARIANT", archived = false),
                ", or cancel the item",
            ])
            .into());
        }
        if let Some(key) = item.dedup_key.as_deref().filter(|_| item.finished_at.is_some()) {
            refuse_second(write, key)?;
        }
        unblock(&mut item);
        if is_claim(&item) {
            item.agent_id = None;
            // The next take resolves the version again.
            item.exact = false;
        }
        item.status = ItemStatus::Ready;
        item.attempt = 1;
        item.not_before = None;
        item.finished_at = None;
        item.taken_by = None;
        item.held_key = None;
        item.in_queue_since = write.now;
        write.update(&item)?;
        unblock_task(write, &item)?;
        write.ring();
        let resource = resource(item.id);
        Ok(Done::changed(ItemStands::from(&item), &resource, Touch::one(resource.clone())))
    }
}

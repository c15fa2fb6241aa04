//! Requeueing a failed, cancelled or blocked item.

use serde::Deserialize;
use trackway_domain::{Error as Rule, Ref, command, enums::ItemStatus, kind, sentence};
use trackway_store::Writer;

use super::{
    ItemState, is_claim, locked_item,
    outcome::{clear_block_reason, live_version, unblock_task},
    require_free_dedup_key, resource,
};
use crate::{
    action::{Action, ActionOutcome},
    context::Context,
    error::Result,
    touched::{Touch, action_type},
};

/// Put a failed, cancelled or blocked item back into the queue
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
#[serde(deny_unknown_fields)]
pub struct RequeueItem {
    /// Queue item to requeue
    #[arg(long)]
    pub id: Ref<kind::QueueItem>,
}

impl Action for RequeueItem {
    const NAME: &'static str = "queue_requeue";
    const COMMAND: (&'static str, &'static str) = ("queue", "requeue");
    type Touched = Touch<kind::QueueItem, action_type::Update>;
    type Output = ItemState;

    fn perform(&self, _: &Context, write: &mut Writer<'_>) -> Result<ActionOutcome<Self>> {
        // Take this lock before the item's lock, as a transaction that archives the task does.
        write.lock_live_versions_shared()?;
        let mut item = locked_item(write, &self.id)?;
        match item.status {
            ItemStatus::Failed | ItemStatus::Cancelled | ItemStatus::Blocked => {}
            ItemStatus::Waiting if item.attempt > 1 => {}
            ItemStatus::Ready => return Ok(ActionOutcome::unchanged(ItemState::from(&item))),
            status => {
                return Err(Rule::conflict(format!("queue item {} is {status}", item.id.short()))
                    .hint("only failed, cancelled and blocked items, and items in backoff, can be requeued")
                    .into());
            }
        }
        if live_version(write, &item)?.is_none() {
            return Err(Rule::conflict(format!(
                "queue item {} cannot run: there is no live version of its task",
                item.id.short()
            ))
            .hint(sentence![
                "unarchive a version with ",
                command!("task set", workflow = "NAME", variant = "VARIANT", archived = false),
                ", or cancel the item",
            ])
            .into());
        }
        if let Some(key) = item.dedup_key.as_deref().filter(|_| item.finished_at.is_some()) {
            require_free_dedup_key(write, key)?;
        }
        clear_block_reason(&mut item);
        if is_claim(&item) {
            item.agent_id = None;
            // Let the next take resolve the version again.
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
        write.notify_workers_on_commit();
        let resource = resource(item.id);
        Ok(ActionOutcome::changed(ItemState::from(&item), &resource, Touch::one(resource.clone())))
    }
}

use serde::Deserialize;
use trackway_domain::{
    Error as Rule, Ref,
    enums::{ItemStatus, RunStatus},
    kind, text,
};
use trackway_store::Writer;

use super::{ItemOutcome, ItemState, locked_item, record_outcome, resource};
use crate::{
    action::{Action, ActionOutcome},
    context::Context,
    error::Result,
    run,
    touched::{Touch, action_type},
};

/// Cancel a queue item, and its run if it is running
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
#[serde(deny_unknown_fields)]
pub struct CancelItem {
    /// Queue item to cancel
    #[arg(long)]
    pub id: Ref<kind::QueueItem>,
    /// Reason
    #[arg(long)]
    pub why: Option<String>,
}

impl Action for CancelItem {
    const NAME: &'static str = "queue_cancel";
    const COMMAND: (&'static str, &'static str) = ("queue", "cancel");
    type Touched = Touch<kind::QueueItem, action_type::Update>;
    type Output = ItemState;

    fn perform(&self, _: &Context, write: &mut Writer<'_>) -> Result<ActionOutcome<Self>> {
        let why = self.why.as_deref().map(|why| text::check_line("why", why, text::TEXT_MAX)).transpose()?;
        let item = locked_item(write, &self.id)?;
        if item.status == ItemStatus::Cancelled {
            return Ok(ActionOutcome::unchanged(ItemState::from(&item)));
        }
        if item.status.is_finished() {
            return Err(Rule::conflict(format!("queue item {} is already {}", item.id.short(), item.status)).into());
        }
        if item.status == ItemStatus::Running
            && let Some(run) = item.run_id
        {
            run::end_run(write, run, RunStatus::Cancelled, "cancelled")?;
            // Notify the worker that executes the run.
            write.notify_workers_on_commit();
        }
        let item = record_outcome(write, &item, &ItemOutcome::Cancelled { why })?;
        let resource = resource(item.id);
        Ok(ActionOutcome::changed(ItemState::from(&item), &resource, Touch::one(resource.clone())))
    }
}

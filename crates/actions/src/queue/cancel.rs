//! Giving items up, and giving them another chance.

use serde::Deserialize;
use trackway_domain::{
    Error as Rule, Ref, kind, text,
    words::{ItemStatus, RunStatus},
};
use trackway_store::Writer;

use super::{Ending, ItemStands, item, resource, settle};
use crate::{
    action::{Action, Done},
    context::Context,
    error::Result,
    run,
    touched::{Touch, did},
};

/// Cancel a queue item; one that is running is stopped
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
#[serde(deny_unknown_fields)]
pub struct CancelItem {
    /// The queue item
    #[arg(long)]
    pub id: Ref<kind::QueueItem>,
    /// Why
    #[arg(long)]
    pub why: Option<String>,
}

impl Action for CancelItem {
    const NAME: &'static str = "queue_cancel";
    const COMMAND: (&'static str, &'static str) = ("queue", "cancel");
    type Touched = Touch<kind::QueueItem, did::Update>;
    type Output = ItemStands;

    fn perform(&self, _: &Context, write: &mut Writer<'_>) -> Result<Done<Self>> {
        let why = self.why.as_deref().map(|why| text::line("why", why, text::TEXT_MAX)).transpose()?;
        let item = item(write, &self.id)?;
        if item.status == ItemStatus::Cancelled {
            return Ok(Done::unchanged(ItemStands::from(&item)));
        }
        if item.status.is_finished() {
            return Err(Rule::conflict(format!("queue item {} is {} already", item.id.short(), item.status)).into());
        }
        if item.status == ItemStatus::Running
            && let Some(run) = item.run_id
        {
            run::end_quietly(write, run, RunStatus::Cancelled, "cancelled")?;
            // Its worker is to hear of it.
            write.ring();
        }
        let item = settle(write, &item, &Ending::Cancelled { why })?;
        let resource = resource(item.id);
        Ok(Done::changed(ItemStands::from(&item), &resource, Touch::one(resource.clone())))
    }
}

//! Releasing an item, so that another agent can take it.

use serde::Deserialize;
use trackway_domain::{Ref, enums::RunStatus, kind};
use trackway_store::Writer;

use super::{
    ItemOutcome, ItemState, complete::require_own_item, locked_item, record_outcome, require_valid_lease, resource,
};
use crate::{
    action::{Action, ActionOutcome},
    context::Context,
    error::Result,
    run,
    touched::NoTouches,
};

/// Release a queue item that you took, without using up an attempt
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
#[serde(deny_unknown_fields)]
pub struct ReleaseItem {
    /// Queue item to release
    #[arg(long)]
    pub id: Ref<kind::QueueItem>,
    /// Fence from the output of `queue take`
    #[arg(long, value_name = "NUMBER")]
    pub fence: i64,
}

impl Action for ReleaseItem {
    const NAME: &'static str = "queue_release";
    const COMMAND: (&'static str, &'static str) = ("queue", "release");
    type Touched = NoTouches;
    type Output = ItemState;

    fn perform(&self, context: &Context, write: &mut Writer<'_>) -> Result<ActionOutcome<Self>> {
        let item = locked_item(write, &self.id)?;
        require_valid_lease(&item, self.fence, write)?;
        require_own_item(context, &item)?;
        if let Some(run) = item.run_id {
            run::end_run(write, run, RunStatus::Cancelled, "released")?;
        }
        let item = record_outcome(write, &item, &ItemOutcome::Released)?;
        Ok(ActionOutcome::changed(ItemState::from(&item), &resource(item.id), NoTouches))
    }
}

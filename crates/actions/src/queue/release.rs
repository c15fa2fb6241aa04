//! Releasing an item, so that another taker gets it.

use serde::Deserialize;
use trackway_domain::{Ref, kind, words::RunStatus};
use trackway_store::Writer;

use super::{Ending, ItemStands, check_held, complete::require_own_item, item, resource, settle};
use crate::{
    action::{Action, Done},
    context::Context,
    error::Result,
    run,
    touched::Nothing,
};

/// Give a queue item that you took back, untried
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
#[serde(deny_unknown_fields)]
pub struct ReleaseItem {
    /// The queue item
    #[arg(long)]
    pub id: Ref<kind::QueueItem>,
    /// The fence you were given when you took it
    #[arg(long, value_name = "NUMBER")]
    pub fence: i64,
}

impl Action for ReleaseItem {
    const NAME: &'static str = "queue_release";
    const COMMAND: (&'static str, &'static str) = ("queue", "release");
    type Touched = Nothing;
    type Output = ItemStands;

    fn perform(&self, context: &Context, write: &mut Writer<'_>) -> Result<Done<Self>> {
        let item = item(write, &self.id)?;
        check_held(&item, self.fence, write)?;
        require_own_item(context, &item)?;
        if let Some(run) = item.run_id {
            run::end_quietly(write, run, RunStatus::Cancelled, "released")?;
        }
        let item = settle(write, &item, &Ending::Released)?;
        Ok(Done::changed(ItemStands::from(&item), &resource(item.id), Nothing))
    }
}

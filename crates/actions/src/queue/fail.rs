//! Failing an item: it is retried after a back-off while attempts are left.

use serde::Deserialize;
use trackway_domain::{Ref, kind, text, words::RunStatus};
use trackway_store::Writer;

use super::{Again, Ending, ItemStands, complete::require_own_item, held, resource, settle};
use crate::{
    action::{Action, Done},
    context::Context,
    error::Result,
    run,
    touched::Nothing,
};

/// Say that a queue item that you took failed
///
/// It is tried again after a while, until it was tried as often as it may be.
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
#[serde(deny_unknown_fields)]
pub struct FailItem {
    /// The queue item
    #[arg(long)]
    pub id: Ref<kind::QueueItem>,
    /// The fence you were given when you took it
    #[arg(long, value_name = "NUMBER")]
    pub fence: i64,
    /// What went wrong
    #[arg(long)]
    pub error: String,
    /// Do not try again, whatever attempts are left
    #[arg(long)]
    #[serde(default)]
    pub for_good: bool,
}

impl Action for FailItem {
    const NAME: &'static str = "queue_fail";
    const COMMAND: (&'static str, &'static str) = ("queue", "fail");
    type Touched = Nothing;
    type Output = ItemStands;

    fn perform(&self, context: &Context, write: &mut Writer<'_>) -> Result<Done<Self>> {
        let mut error = text::body("error", &self.error, text::TEXT_MAX)?;
        if error.trim().is_empty() {
            "no reason was given".clone_into(&mut error);
        }
        let item = held(write, &self.id, self.fence)?;
        require_own_item(context, &item)?;
        // An agent that fails its own item gives an answer; another attempt would only repeat it.
        let is_answer = context.run.is_some() && context.run == item.run_id;
        let again = match (self.for_good, is_answer) {
            (true, _) => Again::Never,
            (false, true) => Again::IfTaskRetries,
            (false, false) => Again::WhileAttemptsAreLeft,
        };
        if let Some(run) = item.run_id {
            run::end_with(write, run, RunStatus::Failed, "error", None, Some(&error))?;
        }
        let item = settle(write, &item, &Ending::Failed { error, again })?;
        Ok(Done::changed(ItemStands::from(&item), &resource(item.id), Nothing))
    }
}

//! Failing an item. It is retried after a backoff while attempts are left.

use serde::Deserialize;
use trackway_domain::{Ref, enums::RunStatus, kind, text};
use trackway_store::Writer;

use super::{ItemOutcome, ItemState, RetryPolicy, complete::require_own_item, leased_item, record_outcome, resource};
use crate::{
    action::{Action, ActionOutcome},
    context::Context,
    error::Result,
    run,
    touched::NoTouches,
};

/// Report that a queue item you took has failed
///
/// The item is retried after a backoff, until its attempts are used up.
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
#[serde(deny_unknown_fields)]
pub struct FailItem {
    /// Queue item that failed
    #[arg(long)]
    pub id: Ref<kind::QueueItem>,
    /// Fence from the output of `queue take`
    #[arg(long, value_name = "NUMBER")]
    pub fence: i64,
    /// Error message
    #[arg(long)]
    pub error: String,
    /// Do not retry, even if attempts are left
    #[arg(long)]
    #[serde(default)]
    pub for_good: bool,
}

impl Action for FailItem {
    const NAME: &'static str = "queue_fail";
    const COMMAND: (&'static str, &'static str) = ("queue", "fail");
    type Touched = NoTouches;
    type Output = ItemState;

    fn perform(&self, context: &Context, write: &mut Writer<'_>) -> Result<ActionOutcome<Self>> {
        let mut error = text::check_body("error", &self.error, text::TEXT_MAX)?;
        if error.trim().is_empty() {
            "no error message was given".clone_into(&mut error);
        }
        let item = leased_item(write, &self.id, self.fence)?;
        require_own_item(context, &item)?;
        // If the agent reports the failure of its own item, a retry would most likely fail again. So the item is only
        // retried if its task asks for that.
        let is_explicit_error = context.run.is_some() && context.run == item.run_id;
        let retry = match (self.for_good, is_explicit_error) {
            (true, _) => RetryPolicy::Never,
            (false, true) => RetryPolicy::IfTaskRetries,
            (false, false) => RetryPolicy::WhileAttemptsAreLeft,
        };
        if let Some(run) = item.run_id {
            run::end_run_with_details(write, run, RunStatus::Failed, "error", None, Some(&error))?;
        }
        let item = record_outcome(write, &item, &ItemOutcome::Failed { error, retry })?;
        Ok(ActionOutcome::changed(ItemState::from(&item), &resource(item.id), NoTouches))
    }
}

//! Completing an item. The fence proves that the caller still holds the lease.

use serde::Deserialize;
use serde_json::Value;
use trackway_domain::{
    Error as Rule, Id, Ref,
    enums::{ItemStatus, RunStatus},
    kind, text,
};
use trackway_store::{
    Writer,
    queue::{FastCompletion, ItemResult},
    tables::QueueItem,
};
use uuid::Uuid;

use super::{ItemOutcome, ItemState, id_of, leased_item, record_outcome, resource};
use crate::{
    action::{Action, ActionOutcome},
    context::{Actor, Context},
    error::Result,
    run,
    touched::NoTouches,
};

/// Complete a queue item that you took
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
#[serde(deny_unknown_fields)]
pub struct CompleteItem {
    /// Queue item to complete
    #[arg(long)]
    pub id: Ref<kind::QueueItem>,
    /// Fence from the output of `queue take`
    #[arg(long, value_name = "NUMBER")]
    pub fence: i64,
    /// Result, as JSON
    #[arg(long, value_name = "JSON", value_parser = parse_json)]
    pub result: Option<Value>,
}

/// Maximum length of a result, in characters.
const RESULT_MAX: usize = text::TEXT_MAX;

pub(crate) fn parse_json(given: &str) -> std::result::Result<Value, String> {
    serde_json::from_str(given).map_err(|error| format!("{error} (a JSON string needs quotes: '\"done\"')"))
}

/// Cleans the strings of a result and checks its length.
pub(crate) fn checked_result(result: Option<&Value>) -> Result<Option<Value>> {
    let result = result.cloned().map(text::clean_json);
    let length = result.as_ref().map_or(0, |result| result.to_string().chars().count());
    if length > RESULT_MAX {
        return Err(Rule::usage(format!("result has {length} characters, the limit is {RESULT_MAX}")).into());
    }
    Ok(result)
}

impl Action for CompleteItem {
    const NAME: &'static str = "queue_complete";
    const COMMAND: (&'static str, &'static str) = ("queue", "complete");
    type Touched = NoTouches;
    type Output = ItemState;

    fn perform(&self, context: &Context, write: &mut Writer<'_>) -> Result<ActionOutcome<Self>> {
        let result = checked_result(self.result.as_ref())?;
        let id = id_of(write, &self.id)?;
        let run = match write.complete_item(id, self.fence, result.as_ref(), context.run)? {
            FastCompletion::WithRun => None,
            FastCompletion::WithoutRun(run) => Some(run),
            FastCompletion::NotEligible => self.complete_with_checks(context, write, result)?,
        };
        if let Some(run) = run {
            run::end_run(write, run, RunStatus::Completed, "completed")?;
        }
        Ok(Self::outcome(id))
    }

    fn perform_all(actions: &[Self], context: &Context, write: &mut Writer<'_>) -> Result<Vec<ActionOutcome<Self>>> {
        let whole: Option<Vec<Uuid>> = actions.iter().map(|action| action.id.as_str().parse().ok()).collect();
        let Some(ids) = whole else {
            return actions.iter().map(|action| action.perform(context, write)).collect();
        };
        let results = || {
            let result = |(action, id): (&Self, &Uuid)| {
                Ok(ItemResult { id: *id, fence: action.fence, result: checked_result(action.result.as_ref())? })
            };
            actions.iter().zip(&ids).map(result).collect::<Result<Vec<_>>>()
        };
        let mut completed = write.complete_items(ids.len(), results, context.run)?;
        let done = |(action, id): (&Self, &Uuid)| {
            // An item that is listed twice is in the set only the first time. The second time, `perform` rejects it.
            if completed.remove(id) { Ok(Self::outcome((*id).into())) } else { action.perform(context, write) }
        };
        actions.iter().zip(&ids).map(done).collect()
    }
}

impl CompleteItem {
    fn outcome(id: Id<kind::QueueItem>) -> ActionOutcome<Self> {
        ActionOutcome::changed(ItemState { id, status: ItemStatus::Completed }, &resource(id), NoTouches)
    }

    fn complete_with_checks(
        &self,
        context: &Context,
        write: &mut Writer<'_>,
        result: Option<Value>,
    ) -> Result<Option<Id<kind::Run>>> {
        let item = leased_item(write, &self.id, self.fence)?;
        require_own_item(context, &item)?;
        record_outcome(write, &item, &ItemOutcome::Completed { result, keep_open: false })?;
        Ok(item.run_id)
    }
}

/// Denies an agent access to the queue items of other runs.
pub(crate) fn require_own_item(context: &Context, item: &QueueItem) -> Result<()> {
    match (context.actor, item.run_id) {
        (Actor::Agent(_), run) if run != context.run => {
            Err(Rule::denied("the token of a run is valid for that run's queue item only").into())
        }
        _ => Ok(()),
    }
}

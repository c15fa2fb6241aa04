//! Ending what was taken: completed, failed, or given back. The fence tells the holder from one who was too late.

use serde::Deserialize;
use serde_json::Value;
use trackway_domain::{
    Error as Rule, Id, Ref, kind, text,
    words::{ItemStatus, RunStatus},
};
use trackway_store::{
    Writer,
    queue::{Completed, ItemResult},
    tables::QueueItem,
};
use uuid::Uuid;

use super::{Ending, ItemStands, held, id_of, resource, settle};
use crate::{
    action::{Action, Done},
    context::{Actor, Context},
    error::Result,
    run,
    touched::Nothing,
};

/// Complete a queue item that you took
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
#[serde(deny_unknown_fields)]
pub struct CompleteItem {
    /// The queue item
    #[arg(long)]
    pub id: Ref<kind::QueueItem>,
    /// The fence you were given when you took it
    #[arg(long, value_name = "NUMBER")]
    pub fence: i64,
    /// What came out, as JSON
    #[arg(long, value_name = "JSON", value_parser = parse_json)]
    pub result: Option<Value>,
}

/// Characters of a result.
const RESULT_MAX: usize = text::TEXT_MAX;

pub(crate) fn parse_json(given: &str) -> std::result::Result<Value, String> {
    serde_json::from_str(given).map_err(|error| format!("{error} (a text is JSON with quotes: '\"done\"')"))
}

/// A result with clean texts, not too long.
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
    type Touched = Nothing;
    type Output = ItemStands;

    fn perform(&self, context: &Context, write: &mut Writer<'_>) -> Result<Done<Self>> {
        let result = checked_result(self.result.as_ref())?;
        let id = id_of(write, &self.id)?;
        let run = match write.complete_item(id, self.fence, result.as_ref(), context.run)? {
            Completed::WithRun => None,
            Completed::WithoutRun(run) => Some(run),
            Completed::No => self.complete_slowly(context, write, result)?,
        };
        if let Some(run) = run {
            run::end_quietly(write, run, RunStatus::Completed, "completed")?;
        }
        Ok(Self::done(id))
    }

    fn perform_all(actions: &[Self], context: &Context, write: &mut Writer<'_>) -> Result<Vec<Done<Self>>> {
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
            // An item that is named twice is removed the first time only.
            if completed.remove(id) { Ok(Self::done((*id).into())) } else { action.perform(context, write) }
        };
        actions.iter().zip(&ids).map(done).collect()
    }
}

impl CompleteItem {
    fn done(id: Id<kind::QueueItem>) -> Done<Self> {
        Done::changed(ItemStands { id, status: ItemStatus::Completed }, &resource(id), Nothing)
    }

    fn complete_slowly(
        &self,
        context: &Context,
        write: &mut Writer<'_>,
        result: Option<Value>,
    ) -> Result<Option<Id<kind::Run>>> {
        let item = held(write, &self.id, self.fence)?;
        require_own_item(context, &item)?;
        settle(write, &item, &Ending::Completed { result, keep_open: false })?;
        Ok(item.run_id)
    }
}

/// A run may only end what it was made for.
pub(crate) fn require_own_item(context: &Context, item: &QueueItem) -> Result<()> {
    match (context.actor, item.run_id) {
        (Actor::Agent(_), run) if run != context.run => {
            Err(Rule::denied("a run's token is good for that run's queue item only").into())
        }
        _ => Ok(()),
    }
}

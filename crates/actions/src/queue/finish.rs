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

use super::{Again, Ending, ItemStands, check_held, held, id_of, item, resource, settle};
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
pub(super) fn require_own_item(context: &Context, item: &QueueItem) -> Result<()> {
    match (context.actor, item.run_id) {
        (Actor::Agent(_), run) if run != context.run => {
            Err(Rule::denied("a run's token is good for that run's queue item only").into())
        }
        _ => Ok(()),
    }
}

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
        let again = if self.for_good { Again::Never } else { Again::WhileAttemptsAreLeft };
        let item = held(write, &self.id, self.fence)?;
        require_own_item(context, &item)?;
        if let Some(run) = item.run_id {
            run::end_with(write, run, RunStatus::Failed, "error", None, Some(&error))?;
        }
        let item = settle(write, &item, &Ending::Failed { error, again })?;
        Ok(Done::changed(ItemStands::from(&item), &resource(item.id), Nothing))
    }
}

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

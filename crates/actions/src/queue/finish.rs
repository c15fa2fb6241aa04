//! Ending what was taken: completed, failed, or given back. The fence tells the holder from one who was too late.

use std::{collections::HashSet, sync::LazyLock};

use serde::Deserialize;
use serde_json::{Value, json};
use trackway_domain::{
    Error as Rule, Id, Ref, kind, text,
    words::{ItemStatus, RunStatus},
};
use trackway_store::{
    Engine, Writer, params,
    queue::{completes_item, completes_run, goes_straight},
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
        if write.hopeful {
            self.hopefully(context, write, id, result.as_ref())?;
            return Ok(Self::done(id));
        }
        let run = match self.at_once(context, write, id, result.as_ref())? {
            Some(run) => Some(run),
            None => {
                let item = held(write, &self.id, self.fence)?;
                require_own_item(context, &item)?;
                settle(write, &item, &Ending::Completed { result, keep_open: false })?;
                item.run_id
            }
        };
        if let Some(run) = run {
            run::end_quietly(write, run, RunStatus::Completed, "completed")?;
        }
        Ok(Self::done(id))
    }

    fn perform_all(actions: &[Self], context: &Context, write: &mut Writer<'_>) -> Result<Vec<Done<Self>>> {
        let whole: Option<Vec<Uuid>> = actions.iter().map(|action| action.id.as_str().parse().ok()).collect();
        match whole {
            Some(ids) if write.engine() == Engine::Postgres && ids.len() > 1 => {
                Self::complete_set(actions, &ids, context, write)
            }
            _ => actions.iter().map(|action| action.perform(context, write)).collect(),
        }
    }
}

/// Completes an item that goes the straight way: its fence is `?3`, its result `?4`, the time `?5`, the run that acts `?6`.
static STRAIGHT: LazyLock<String> = LazyLock::new(|| {
    format!(
        "update queue_items set result = ?4, {} where tenant_id = ?1 and id = ?2 and fence = ?3 and {}",
        completes_item("?5"),
        goes_straight("queue_items", "?5", Some("?6"))
    )
});

impl CompleteItem {
    fn done(id: Id<kind::QueueItem>) -> Done<Self> {
        Done::changed(ItemStands { id, status: ItemStatus::Completed }, &resource(id), Nothing)
    }

    /// The straight way without waiting for an answer: what does not go that way refutes the transaction.
    fn hopefully(
        &self,
        context: &Context,
        write: &mut Writer<'_>,
        id: Id<kind::QueueItem>,
        result: Option<&Value>,
    ) -> Result<()> {
        static RUN: LazyLock<String> = LazyLock::new(|| {
            format!(
                "update runs set {} where tenant_id = ?1 and id = (select run_id from queue_items where tenant_id = ?1 and id = ?2) and status = 'running'",
                completes_run("?3")
            )
        });
        let (now, own) = (write.now, context.run);
        write.post_changing(STRAIGHT.as_str(), params![id, self.fence, result, now, own])?;
        Ok(write.post_beside(RUN.as_str(), params![id, now])?)
    }

    /// Many by one statement; those that do not go the straight way, each its own way.
    fn complete_set(
        actions: &[Self],
        ids: &[Uuid],
        context: &Context,
        write: &mut Writer<'_>,
    ) -> Result<Vec<Done<Self>>> {
        static ITEMS: LazyLock<String> = LazyLock::new(|| {
            format!(
                "update queue_items q set result = case when x.said then coalesce(x.result, 'null') end, {}
                 from jsonb_to_recordset(cast(?2 as jsonb)) as x (id uuid, fence bigint, result jsonb, said boolean)
                 where q.tenant_id = ?1 and q.id = any(array(select cast(i ->> 'id' as uuid) from jsonb_array_elements(cast(?2 as jsonb)) i))
                 and q.id = x.id and q.fence = x.fence and {} returning q.id, q.run_id",
                completes_item("?3"),
                goes_straight("q", "?3", Some("?4"))
            )
        });
        static RUNS: LazyLock<String> = LazyLock::new(|| {
            format!(
                "update runs set {} where tenant_id = ?1 and id = any(array(select cast(i as uuid) from jsonb_array_elements_text(cast(?2 as jsonb)) i))
                 and (status = 'running') is true",
                completes_run("?3")
            )
        });
        let (now, own) = (write.now, context.run);
        let asked = actions
            .iter()
            .zip(ids)
            .map(|(action, id)| {
                let result = checked_result(action.result.as_ref())?;
                Ok(json!({ "id": id, "fence": action.fence, "result": result, "said": result.is_some() }))
            })
            .collect::<Result<Vec<Value>>>()?;
        let done = write.query::<(Uuid, Option<Uuid>)>(&ITEMS, params![Value::Array(asked), now, own])?;
        let runs: Vec<Uuid> = done.iter().filter_map(|(_, run)| *run).collect();
        write.post_beside(RUNS.as_str(), params![json!(runs), now])?;
        let mut done: HashSet<Uuid> = done.into_iter().map(|(id, _)| id).collect();
        actions
            .iter()
            .zip(ids)
            // One that is named twice is there the first time only.
            .map(
                |(action, id)| {
                    if done.remove(id) { Ok(Self::done((*id).into())) } else { action.perform(context, write) }
                },
            )
            .collect()
    }

    /// The straight way, by one statement: an item of a task that is run again and again, without a key.
    fn at_once(
        &self,
        context: &Context,
        write: &mut Writer<'_>,
        id: Id<kind::QueueItem>,
        result: Option<&Value>,
    ) -> Result<Option<Id<kind::Run>>> {
        static SQL: LazyLock<String> = LazyLock::new(|| format!("{} returning run_id", *STRAIGHT));
        let (now, own) = (write.now, context.run);
        let done = write.one::<(Option<Id<kind::Run>>,)>(&SQL, params![id, self.fence, result, now, own])?;
        Ok(done.and_then(|(run,)| run))
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

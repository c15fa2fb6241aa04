//! Tasks that can be started now.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};
use trackway_domain::{
    Error as Rule, Ref, Time, Variant, ids, kind,
    words::{Priority, TaskStatus},
};
use trackway_store::{
    Reader, Result,
    display::TaskShown,
    params,
    queue::READY_TASK,
    row,
    sql::{Param, ToParam},
    table::Shown,
};
use uuid::Uuid;

use crate::{
    page::{LIMIT_MAX, Listed, Page, cut_texts},
    task::LONG_TEXTS,
    view::View,
};

/// Tasks whose blockers one query looks up.
const BLOCKERS_CHUNK: usize = 500;

/// List what can be started now: the most urgent first, then the oldest
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
pub struct Ready {
    /// How many to show
    #[arg(long, value_name = "NUMBER")]
    #[schemars(range(min = 1, max = LIMIT_MAX))]
    pub limit: Option<i64>,
    /// Start after this task, the last one of the page before
    #[arg(long, value_name = "ID")]
    pub after: Option<String>,
}

row! {
    /// A task that blocks another one, and its current version.
    pub struct Blocker {
        #[serde(skip)] blocked_lineage: Uuid,
        /// The version that the link names.
        variant: Variant,
        /// None where no version is live.
        current: Option<Variant>,
        status: Option<TaskStatus>,
    }
}

/// A task that can be started now.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ReadyTask {
    #[serde(flatten)]
    pub shown: TaskShown,
    /// What blocked it and does so no longer.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub blockers: Vec<Blocker>,
    /// The same in short: the current version of each blocker, and its status.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unblocked_by: Vec<String>,
}

impl Blocker {
    fn in_short(&self) -> String {
        match (&self.current, &self.status) {
            (Some(current), Some(status)) if *current == self.variant => format!("{current} ({status})"),
            (Some(current), Some(status)) => format!("{current} ({status}), current version of {}", self.variant),
            _ => format!("{} (no live version)", self.variant),
        }
    }
}

/// The tasks that block the given ones.
fn blockers(read: &mut Reader<'_>, tasks: &[TaskShown]) -> Result<HashMap<Uuid, Vec<Blocker>>> {
    let mut blockers: HashMap<Uuid, Vec<Blocker>> = HashMap::new();
    for tasks in tasks.chunks(BLOCKERS_CHUNK) {
        let bound: Vec<_> = tasks.iter().map(|shown| shown.task.lineage_id.to_param()).collect();
        let places: Vec<_> = (2..bound.len() + 2).map(|place| format!("?{place}")).collect();
        let found = read.query::<Blocker>(
            &format!(
                "select v.lineage_id, f.variant, c.variant, c.status from tasks v cross join task_links l cross join tasks f
                 left join tasks c on c.id = f.current_id
                 where v.tenant_id = ?1 and v.lineage_id in ({}) and l.to_task_id = v.id and l.link_type = 'blocks' and l.deleted_at is null
                 and f.id = l.from_task_id and f.lineage_id <> v.lineage_id order by l.id",
                places.join(", ")
            ),
            &bound,
        )?;
        for blocker in found {
            blockers.entry(blocker.blocked_lineage).or_default().push(blocker);
        }
    }
    Ok(blockers)
}

impl View for Ready {
    const COMMAND: (&'static str, &'static str) = ("", "ready");
    const COLUMNS: &'static [&'static str] =
        &["id", "variant", "title", "role", "status", "priority", "estimate", "created_at", "unblocked_by"];
    type Output = Listed<ReadyTask>;

    fn answer(&self, read: &mut Reader<'_>, _: Time) -> Result<Self::Output> {
        let limit = Page { limit: self.limit, after: None }.limit_or(100)?;
        let limit_and_one = limit + 1;
        let mut bound = params![limit_and_one].to_vec();
        let mut after = "";
        if let Some(last) = &self.after {
            // It may have been claimed since: its place in the order stays.
            let id = read.resolve_even_deleted(&Ref::<kind::Task>::new(last))?;
            let place = read.one::<(Priority, Time)>(
                "select priority, created_at from tasks where tenant_id = ?1 and id = ?2",
                params![id],
            )?;
            let (priority, created_at) =
                place.ok_or_else(|| Rule::not_found(format!("there is nothing to go on after: {last:?}")))?;
            after = "and (t.priority, t.created_at, t.id) > (?3, ?4, ?5)";
            bound.extend([priority.to_param(), created_at.to_param(), id.to_param()].map(Param::into_owned));
        }
        let mut rows = read.query::<TaskShown>(
            &format!(
                "{} where {READY_TASK} {after} order by t.priority, t.created_at, t.id limit ?2",
                cut_texts(TaskShown::select(), LONG_TEXTS)
            ),
            &bound,
        )?;
        let wanted = usize::try_from(limit).unwrap_or(usize::MAX);
        let more = rows.len() > wanted;
        rows.truncate(wanted);
        let last = rows.last().map(|row| format!("--after {}", ids::suffix(row.task.id.uuid(), 12)));
        let mut blockers = blockers(read, &rows)?;
        let row = |shown: TaskShown| {
            let blockers = blockers.remove(&shown.task.lineage_id).unwrap_or_default();
            ReadyTask { unblocked_by: blockers.iter().map(Blocker::in_short).collect(), blockers, shown }
        };
        Ok(Listed { rows: rows.into_iter().map(row).collect(), more: last.filter(|_| more) })
    }

    fn more(output: &Self::Output) -> Option<String> {
        output.more.clone()
    }
}

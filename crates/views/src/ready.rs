//! Ready tasks: live tasks that nothing blocks and that no unfinished queue item requests.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};
use trackway_domain::{
    Error as Rule, Ref, Time, Variant,
    enums::{Priority, TaskStatus},
    ids, kind,
};
use trackway_store::{
    Reader, Result,
    display::TaskRow,
    params,
    queue::READY_TASK_CONDITION,
    row,
    sql::{Param, ToParam},
    table::DisplayRow,
};
use uuid::Uuid;

use crate::{
    page::{LIMIT_MAX, ListPage, Page, shorten_columns},
    task::LONG_TEXTS,
    view::View,
};

/// Maximum number of tasks whose blockers one query looks up.
const BLOCKERS_CHUNK: usize = 500;

/// List the tasks that are ready to start, most urgent first, then oldest first
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
pub struct Ready {
    /// Maximum number of tasks
    #[arg(long, value_name = "NUMBER")]
    #[schemars(range(min = 1, max = LIMIT_MAX))]
    pub limit: Option<i64>,
    /// Start after this task, the last one of the previous page
    #[arg(long, value_name = "ID")]
    pub after: Option<String>,
}

row! {
    /// A task that has a `blocks` link to another task.
    pub struct Blocker {
        #[serde(skip)] blocked_lineage: Uuid,
        /// The version that the link names.
        variant: Variant,
        /// The current version. `None` if no version is live.
        current: Option<Variant>,
        status: Option<TaskStatus>,
    }
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ReadyTask {
    #[serde(flatten)]
    pub shown: TaskRow,
    /// The tasks that used to block this one.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub blockers: Vec<Blocker>,
    /// A short text for each blocker: its current version and status.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unblocked_by: Vec<String>,
}

impl Blocker {
    fn summary(&self) -> String {
        match (&self.current, &self.status) {
            (Some(current), Some(status)) if *current == self.variant => format!("{current} ({status})"),
            (Some(current), Some(status)) => format!("{current} ({status}), current version of {}", self.variant),
            _ => format!("{} (no live version)", self.variant),
        }
    }
}

/// The tasks with `blocks` links to the given tasks, by the lineage of the blocked task.
fn blockers(read: &mut Reader<'_>, tasks: &[TaskRow]) -> Result<HashMap<Uuid, Vec<Blocker>>> {
    let mut blockers: HashMap<Uuid, Vec<Blocker>> = HashMap::new();
    for tasks in tasks.chunks(BLOCKERS_CHUNK) {
        let bound: Vec<_> = tasks.iter().map(|shown| shown.task.lineage_id.to_param()).collect();
        let placeholders: Vec<_> = (2..bound.len() + 2).map(|number| format!("?{number}")).collect();
        let found = read.query::<Blocker>(
            &format!(
                "select v.lineage_id, f.variant, c.variant, c.status from tasks v cross join task_links l cross join tasks f
                 left join tasks c on c.id = f.current_id
                 where v.tenant_id = ?1 and v.lineage_id in ({}) and l.to_task_id = v.id and l.link_type = 'blocks' and l.deleted_at is null
                 and f.id = l.from_task_id and f.lineage_id <> v.lineage_id order by l.id",
                placeholders.join(", ")
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
    type Output = ListPage<ReadyTask>;

    fn answer(&self, read: &mut Reader<'_>, _: Time) -> Result<Self::Output> {
        let limit = Page { limit: self.limit, after: None }.limit_or(100)?;
        let limit_plus_one = limit + 1;
        let mut bound = params![limit_plus_one].to_vec();
        let mut after = "";
        if let Some(last) = &self.after {
            // The task may have been claimed or deleted since the previous page. Its position in the order is the same.
            let id = read.resolve_including_deleted(&Ref::<kind::Task>::new(last))?;
            let sort_key = read.one::<(Priority, Time)>(
                "select priority, created_at from tasks where tenant_id = ?1 and id = ?2",
                params![id],
            )?;
            let (priority, created_at) =
                sort_key.ok_or_else(|| Rule::not_found(format!("cannot start after {last:?}: no such task")))?;
            after = "and (t.priority, t.created_at, t.id) > (?3, ?4, ?5)";
            bound.extend([priority.to_param(), created_at.to_param(), id.to_param()].map(Param::into_owned));
        }
        let mut rows = read.query::<TaskRow>(
            &format!(
                "{} where {READY_TASK_CONDITION} {after} order by t.priority, t.created_at, t.id limit ?2",
                shorten_columns(TaskRow::select(), LONG_TEXTS)
            ),
            &bound,
        )?;
        let page_size = usize::try_from(limit).unwrap_or(usize::MAX);
        let has_more = rows.len() > page_size;
        rows.truncate(page_size);
        let last = rows.last().map(|row| format!("--after {}", ids::suffix(row.task.id.uuid(), 12)));
        let mut blockers = blockers(read, &rows)?;
        let row = |shown: TaskRow| {
            let blockers = blockers.remove(&shown.task.lineage_id).unwrap_or_default();
            ReadyTask { unblocked_by: blockers.iter().map(Blocker::summary).collect(), blockers, shown }
        };
        Ok(ListPage { rows: rows.into_iter().map(row).collect(), next_page: last.filter(|_| has_more) })
    }

    fn next_page(output: &Self::Output) -> Option<String> {
        output.next_page.clone()
    }
}

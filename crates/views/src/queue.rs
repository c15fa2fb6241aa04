//! Queue items: lists, counts, and the items that workers hold.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use trackway_domain::{Duration, Id, Ref, Time, enums::ItemStatus, kind};
use trackway_store::{Reader, Result, display::QueueItemRow, params, row, sql::ToParam, table::DisplayRow};

use crate::{
    page::{Filter, LIMIT_MAX, ListPage, Order, Page, shorten_columns},
    view::View,
};

/// Columns that a list shortens.
pub(crate) const LONG_TEXTS: &[&str] = &["q.description", "q.error"];
const COLUMNS: &[&str] = &[
    "id",
    "status",
    "variant",
    "run_variant",
    "would_run",
    "priority",
    "role",
    "agent",
    "attempt",
    "in_queue_since",
    "not_before",
    "taken_by",
    "why",
    "error",
];

/// Filters for queue items
#[derive(Debug, Clone, Default, Deserialize, schemars::JsonSchema, clap::Args)]
pub struct QueueItemFilter {
    /// Only items with this status
    #[arg(long)]
    pub status: Option<ItemStatus>,
    /// Only items of any version of this task
    #[arg(long)]
    pub task: Option<Ref<kind::Task>>,
    /// Only items for this role
    #[arg(long)]
    pub role: Option<Ref<kind::Role>>,
    /// Only items that name this agent or that this agent holds
    #[arg(long)]
    pub agent: Option<Ref<kind::Agent>>,
    /// Only items for this workspace
    #[arg(long)]
    pub workspace: Option<Ref<kind::Workspace>>,
}

/// A [`QueueItemFilter`] with its references resolved to ids.
#[derive(Debug)]
struct ResolvedQueueItemFilter {
    status: Option<ItemStatus>,
    task: Option<Id<kind::Task>>,
    role: Option<Id<kind::Role>>,
    agent: Option<Id<kind::Agent>>,
    workspace: Option<Id<kind::Workspace>>,
    /// Whether items exist that are stored as waiting but have become due.
    has_due_items: bool,
}

impl QueueItemFilter {
    fn resolve(&self, read: &mut Reader<'_>, now: Time) -> Result<ResolvedQueueItemFilter> {
        Ok(ResolvedQueueItemFilter {
            has_due_items: count_due(read, now)? > 0,
            status: self.status,
            task: read.resolve_optional(self.task.as_ref())?,
            role: read.resolve_optional(self.role.as_ref())?,
            agent: read.resolve_optional(self.agent.as_ref())?,
            workspace: read.resolve_optional(self.workspace.as_ref())?,
        })
    }
}

impl ResolvedQueueItemFilter {
    /// The conditions, for a query in which `q` is the item. A waiting item counts as ready when it is due.
    fn conditions<'a>(&'a self, now: &'a Time) -> Filter<'a> {
        let filter = Filter::default();
        let filter = match self.status {
            // A union of two selects, because each has its own index.
            Some(ItemStatus::Ready) if self.has_due_items => filter.require_if_some(
                "q.id in (select r.id from queue_items r where r.tenant_id = ?1 and r.status = 'ready'
                 union all select w.id from queue_items w where w.tenant_id = ?1 and w.status = 'waiting' and w.not_before <= ?)",
                Some(now),
            ),
            Some(ItemStatus::Waiting) => filter.require("q.status = 'waiting'").require_if_some("q.not_before > ?", Some(now)),
            _ => filter.require_if_some("q.status = ?", self.status.as_ref()),
        };
        filter
            .require_if_some(
                "q.task_id in (select v.id from tasks v where v.tenant_id = ?1 and v.lineage_id = (select n.lineage_id from tasks n where n.id = ?))",
                self.task.as_ref(),
            )
            .require_if_some("q.role_id = ?", self.role.as_ref())
            .require_if_some("? in (q.agent_id, q.taken_by)", self.agent.as_ref())
            .require_if_some("q.workspace_id = ?", self.workspace.as_ref())
    }
}

/// Show a queue item and its runs
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
pub struct GetItem {
    /// The queue item
    pub item: Ref<kind::QueueItem>,
}

row! {
    /// A run of a queue item.
    pub struct ItemRun {
        run_id: Id<kind::Run>,
        fence: Option<i64>,
        status: String,
        outcome: Option<String>,
        started_at: Time,
        ended_at: Option<Time>,
    }
}

/// A queue item and its newest runs.
#[derive(Debug, PartialEq, Serialize)]
pub struct ItemWithRuns {
    #[serde(flatten)]
    pub item: QueueItemRow,
    pub runs: Vec<ItemRun>,
}

/// Maximum number of runs of an item that are shown, newest first.
const RUNS_MAX: i64 = 20;

impl View for GetItem {
    const COMMAND: (&'static str, &'static str) = ("queue", "get");
    const ALIAS: Option<&'static str> = Some("show");
    type Output = ItemWithRuns;

    fn answer(&self, read: &mut Reader<'_>, now: Time) -> Result<ItemWithRuns> {
        let id = read.resolve(&self.item)?;
        let runs = read.query(
            "select id, fence, status, outcome, started_at, ended_at from runs where tenant_id = ?1 and queue_item_id = ?2 order by id desc limit ?3",
            params![id, RUNS_MAX],
        )?;
        let mut item = read.display_row_by_id("q", id)?;
        mark_due_as_ready(&mut item, now);
        Ok(ItemWithRuns { item, runs })
    }
}

/// List queue items, newest first
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
pub struct ListItems {
    #[command(flatten)]
    #[serde(flatten)]
    pub which: QueueItemFilter,
    #[command(flatten)]
    #[serde(flatten)]
    pub page: Page,
}

impl View for ListItems {
    const COMMAND: (&'static str, &'static str) = ("queue", "list");
    const COLUMNS: &'static [&'static str] = COLUMNS;
    type Output = ListPage<QueueItemRow>;

    fn answer(&self, read: &mut Reader<'_>, now: Time) -> Result<Self::Output> {
        let filter = self.which.resolve(read, now)?;
        let select = shorten_columns(QueueItemRow::select(), LONG_TEXTS);
        let id = |shown: &QueueItemRow| shown.item.id.uuid();
        let mut listed = self.page.read(read, &select, "q", filter.conditions(&now), Order::NewestFirst, id)?;
        for shown in &mut listed.rows {
            mark_due_as_ready(shown, now);
        }
        Ok(listed)
    }

    fn next_page(output: &Self::Output) -> Option<String> {
        output.next_page.clone()
    }
}

/// SQL: no other item holds the concurrency key of `q`.
const CONCURRENCY_KEY_IS_FREE: &str = "(q.concurrency_key is null or q.held_key is not null
    or not exists (select 1 from queue_items h where h.tenant_id = ?1 and h.held_key = q.concurrency_key))";

/// List the items that would be taken next, in order
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
pub struct PeekItems {
    /// Maximum number of items
    #[arg(long, value_name = "NUMBER")]
    #[schemars(range(min = 1, max = LIMIT_MAX))]
    pub limit: Option<i64>,
    #[command(flatten)]
    #[serde(flatten)]
    pub which: QueueItemFilter,
}

impl View for PeekItems {
    const COMMAND: (&'static str, &'static str) = ("queue", "peek");
    const COLUMNS: &'static [&'static str] = COLUMNS;
    type Output = ListPage<QueueItemRow>;

    fn answer(&self, read: &mut Reader<'_>, now: Time) -> Result<Self::Output> {
        let limit = Page { limit: self.limit, after: None }.limit_or(10)?;
        let filter = self.which.resolve(read, now)?;
        let status = filter.status.unwrap_or(ItemStatus::Ready);
        let filter = ResolvedQueueItemFilter { status: Some(status), ..filter };
        let mut conditions = filter.conditions(&now).require("q.tenant_id = ?1");
        if status == ItemStatus::Ready {
            // A take skips items whose concurrency key another item holds.
            conditions = conditions.require(CONCURRENCY_KEY_IS_FREE);
        }
        let (conditions, mut bound) = conditions.to_sql(2);
        let limit_plus_one = limit + 1;
        bound.push(trackway_store::sql::Param::Int(limit_plus_one));
        let mut rows = read.query::<QueueItemRow>(
            &format!(
                "{} where {conditions} order by q.priority desc, q.in_queue_since, q.id limit ?{}",
                shorten_columns(QueueItemRow::select(), LONG_TEXTS),
                bound.len() + 1
            ),
            &bound,
        )?;
        let page_size = usize::try_from(limit).unwrap_or(usize::MAX);
        let next_page = (rows.len() > page_size).then(|| format!("--limit {}", (limit * 10).min(10_000)));
        rows.truncate(page_size);
        for shown in &mut rows {
            mark_due_as_ready(shown, now);
        }
        Ok(ListPage { rows, next_page })
    }

    fn next_page(output: &Self::Output) -> Option<String> {
        output.next_page.clone()
    }
}

/// Count queue items by status
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
pub struct CountItems {
    #[command(flatten)]
    #[serde(flatten)]
    pub which: QueueItemFilter,
}

/// The number of items, and the age of the oldest one that can be taken.
#[derive(Debug, PartialEq, Serialize)]
pub struct QueueSize {
    pub total: i64,
    pub by_status: BTreeMap<String, i64>,
    /// The time at which the oldest ready item was queued.
    pub oldest_ready_since: Option<Time>,
    pub oldest_ready_age: Option<String>,
}

impl View for CountItems {
    const COMMAND: (&'static str, &'static str) = ("queue", "size");
    type Output = QueueSize;

    fn answer(&self, read: &mut Reader<'_>, now: Time) -> Result<QueueSize> {
        let filter = self.which.resolve(read, now)?;
        let (conditions, mut bound) = filter.conditions(&now).require("q.tenant_id = ?1").to_sql(2);
        bound.push(now.to_param());
        let effective_status = effective_status_sql(bound.len() + 1);
        let counts = read.query::<(ItemStatus, i64)>(
            &format!("select {effective_status} as effective_status, count(*) from queue_items q where {conditions} group by effective_status"),
            &bound,
        )?;
        let oldest = read.one::<(Option<Time>,)>(
            &format!(
                "select min(q.in_queue_since) from queue_items q where {conditions} and q.status in ('ready', 'waiting') and {effective_status} = 'ready'"
            ),
            &bound,
        )?;
        let since = oldest.and_then(|(since,)| since);
        Ok(QueueSize {
            total: counts.iter().map(|(_, count)| count).sum(),
            by_status: counts.into_iter().map(|(status, count)| (status.to_string(), count)).collect(),
            oldest_ready_since: since,
            oldest_ready_age: since
                .map(|since| Duration::from_seconds((now.micros() - since.micros()).max(0) / 1_000_000).to_string()),
        })
    }
}

/// Shows a waiting item as ready if it is due. The stored status changes only when somebody takes the item.
pub(crate) fn mark_due_as_ready(shown: &mut QueueItemRow, now: Time) {
    let item = &mut shown.item;
    if item.status == ItemStatus::Waiting && item.not_before.is_some_and(|time| time <= now) {
        item.status = ItemStatus::Ready;
    }
}

/// SQL for the status of `q` that [`mark_due_as_ready`] shows. `now` is the number of the parameter that holds the
/// time.
fn effective_status_sql(now: usize) -> String {
    format!("case when q.status = 'waiting' and q.not_before <= ?{now} then 'ready' else q.status end")
}

/// The number of unfinished and of failed items, by status.
pub fn count_unfinished_and_failed(read: &mut Reader<'_>, now: Time) -> Result<Vec<(ItemStatus, i64)>> {
    let counts = read.query::<(ItemStatus, i64)>(
        "select status, count(*) from queue_items
         where tenant_id = ?1 and status in ('waiting', 'blocked', 'ready', 'running', 'failed') group by status",
        &[],
    )?;
    // A separate query, so that each count can use its own index.
    let due = count_due(read, now)?;
    let mut counts: BTreeMap<ItemStatus, i64> = counts.into_iter().collect();
    if due > 0 {
        *counts.entry(ItemStatus::Waiting).or_default() -= due;
        *counts.entry(ItemStatus::Ready).or_default() += due;
    }
    Ok(counts.into_iter().filter(|(_, count)| *count > 0).collect())
}

/// The number of items that are stored as waiting but have become due.
fn count_due(read: &mut Reader<'_>, now: Time) -> Result<i64> {
    read.count(
        "select count(*) from queue_items where tenant_id = ?1 and status = 'waiting' and not_before <= ?2",
        params![now],
    )
}

/// The number of completed and of cancelled items. Both numbers only grow, so each is counted up to at most `most`.
pub fn count_completed_and_cancelled(read: &mut Reader<'_>, most: i64) -> Result<Vec<(ItemStatus, i64)>> {
    read.query(
        "select status, count(*) from (select status from queue_items where tenant_id = ?1 and status = 'completed' limit ?2) done group by status
         union all
         select status, count(*) from (select status from queue_items where tenant_id = ?1 and status = 'cancelled' limit ?2) gone group by status",
        params![most],
    )
}

/// List the items that workers hold
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
pub struct ListHeldItems {
    #[command(flatten)]
    #[serde(flatten)]
    pub page: Page,
}

row! {
    /// A running item, with its holder and lease.
    pub struct HeldItem {
        agent: String,
        id: Id<kind::QueueItem>,
        variant: String,
        run_id: Option<Id<kind::Run>>,
        attempt: i64,
        fence: i64,
        heartbeat_at: Option<Time>,
        lease_expires: Option<Time>,
    }
}

impl View for ListHeldItems {
    const COMMAND: (&'static str, &'static str) = ("queue", "held");
    const COLUMNS: &'static [&'static str] =
        &["agent", "id", "variant", "run_id", "attempt", "heartbeat_at", "lease_expires"];
    type Output = ListPage<HeldItem>;

    fn answer(&self, read: &mut Reader<'_>, _: Time) -> Result<Self::Output> {
        let select = "select h.handle, q.id, t.variant, q.run_id, q.attempt, q.fence, q.heartbeat_at, q.lease_expires
                      from queue_items q join tasks t on t.id = coalesce(q.run_task_id, q.task_id) join agents h on h.id = q.taken_by";
        let running = Filter::default().require("q.status = 'running'");
        self.page.read(read, select, "q", running, Order::OldestFirst, |held: &HeldItem| held.id.uuid())
    }

    fn next_page(output: &Self::Output) -> Option<String> {
        output.next_page.clone()
    }
}

//! What waits, what runs, who holds it, and what failed for good.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use trackway_domain::{Duration, Id, Ref, Time, kind, words::ItemStatus};
use trackway_store::{Reader, Result, display::QueueItemShown, params, row, sql::ToParam, table::Shown};

use crate::{
    page::{Filter, LIMIT_MAX, Listed, Order, Page, cut_texts},
    view::View,
};

/// What a list of items shows only the beginning of.
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

/// Which items are wanted
#[derive(Debug, Clone, Default, Deserialize, schemars::JsonSchema, clap::Args)]
pub struct WhichItems {
    /// Only in this status
    #[arg(long)]
    pub status: Option<ItemStatus>,
    /// Only for this task
    #[arg(long)]
    pub task: Option<Ref<kind::Task>>,
    /// Only for this role
    #[arg(long)]
    pub role: Option<Ref<kind::Role>>,
    /// Only for this agent, or held by it
    #[arg(long)]
    pub agent: Option<Ref<kind::Agent>>,
    /// Only for this workspace
    #[arg(long)]
    pub workspace: Option<Ref<kind::Workspace>>,
}

/// The same, with what the references name.
#[derive(Debug)]
struct WantedItems {
    status: Option<ItemStatus>,
    task: Option<Id<kind::Task>>,
    role: Option<Id<kind::Role>>,
    agent: Option<Id<kind::Agent>>,
    workspace: Option<Id<kind::Workspace>>,
    /// Whether something waits whose time has come, and nobody took since.
    is_any_due: bool,
}

impl WhichItems {
    fn resolve(&self, read: &mut Reader<'_>, now: Time) -> Result<WantedItems> {
        Ok(WantedItems {
            is_any_due: due(read, now)? > 0,
            status: self.status,
            task: read.resolve_optional(self.task.as_ref())?,
            role: read.resolve_optional(self.role.as_ref())?,
            agent: read.resolve_optional(self.agent.as_ref())?,
            workspace: read.resolve_optional(self.workspace.as_ref())?,
        })
    }
}

impl WantedItems {
    /// Conditions on an item `q`, as it stands at a time.
    fn filter<'a>(&'a self, now: &'a Time) -> Filter<'a> {
        let filter = Filter::default();
        let standing = match self.status {
            // Two ways in, each along an index of its own.
            Some(ItemStatus::Ready) if self.is_any_due => filter.and(
                "q.id in (select r.id from queue_items r where r.tenant_id = ?1 and r.status = 'ready'
                 union all select w.id from queue_items w where w.tenant_id = ?1 and w.status = 'waiting' and w.not_before <= ?)",
                Some(now),
            ),
            Some(ItemStatus::Waiting) => filter.always("q.status = 'waiting'").and("q.not_before > ?", Some(now)),
            _ => filter.and("q.status = ?", self.status.as_ref()),
        };
        standing
            .and(
                "q.task_id in (select v.id from tasks v where v.tenant_id = ?1 and v.lineage_id = (select n.lineage_id from tasks n where n.id = ?))",
                self.task.as_ref(),
            )
            .and("q.role_id = ?", self.role.as_ref())
            .and("? in (q.agent_id, q.taken_by)", self.agent.as_ref())
            .and("q.workspace_id = ?", self.workspace.as_ref())
    }
}

/// Show a queue item
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
pub struct GetItem {
    /// The queue item
    pub item: Ref<kind::QueueItem>,
}

row! {
    /// A run that was made for an item.
    pub struct ItemRun {
        run_id: Id<kind::Run>,
        fence: Option<i64>,
        status: String,
        outcome: Option<String>,
        started_at: Time,
        ended_at: Option<Time>,
    }
}

/// An item and the runs that were made for it.
#[derive(Debug, PartialEq, Serialize)]
pub struct ItemWithRuns {
    #[serde(flatten)]
    pub item: QueueItemShown,
    pub runs: Vec<ItemRun>,
}

/// Runs of an item that are shown.
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
        let mut item = read.shown_by_id("q", id)?;
        stand(&mut item, now);
        Ok(ItemWithRuns { item, runs })
    }
}

/// List queue items, newest first
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
pub struct ListItems {
    #[command(flatten)]
    #[serde(flatten)]
    pub which: WhichItems,
    #[command(flatten)]
    #[serde(flatten)]
    pub page: Page,
}

impl View for ListItems {
    const COMMAND: (&'static str, &'static str) = ("queue", "list");
    const COLUMNS: &'static [&'static str] = COLUMNS;
    type Output = Listed<QueueItemShown>;

    fn answer(&self, read: &mut Reader<'_>, now: Time) -> Result<Self::Output> {
        let wanted = self.which.resolve(read, now)?;
        let select = cut_texts(QueueItemShown::select(), LONG_TEXTS);
        let id = |shown: &QueueItemShown| shown.item.id.uuid();
        let mut listed = self.page.read(read, &select, "q", wanted.filter(&now), Order::NewestFirst, id)?;
        for shown in &mut listed.rows {
            stand(shown, now);
        }
        Ok(listed)
    }

    fn more(output: &Self::Output) -> Option<String> {
        output.more.clone()
    }
}

/// Nobody holds the key of `q`.
const KEY_IS_FREE: &str = "(q.concurrency_key is null or q.held_key is not null
    or not exists (select 1 from queue_items h where h.tenant_id = ?1 and h.held_key = q.concurrency_key))";

/// Show what would be taken next, in that order
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
pub struct PeekItems {
    /// How many to show
    #[arg(long, value_name = "NUMBER")]
    #[schemars(range(min = 1, max = LIMIT_MAX))]
    pub limit: Option<i64>,
    #[command(flatten)]
    #[serde(flatten)]
    pub which: WhichItems,
}

impl View for PeekItems {
    const COMMAND: (&'static str, &'static str) = ("queue", "peek");
    const COLUMNS: &'static [&'static str] = COLUMNS;
    type Output = Listed<QueueItemShown>;

    fn answer(&self, read: &mut Reader<'_>, now: Time) -> Result<Self::Output> {
        let limit = Page { limit: self.limit, after: None }.limit_or(10)?;
        let wanted = self.which.resolve(read, now)?;
        let status = wanted.status.unwrap_or(ItemStatus::Ready);
        let wanted = WantedItems { status: Some(status), ..wanted };
        let mut filter = wanted.filter(&now).always("q.tenant_id = ?1");
        if status == ItemStatus::Ready {
            // What waits for its key is not ready for whoever takes.
            filter = filter.always(KEY_IS_FREE);
        }
        let (conditions, mut bound) = filter.numbered(2);
        let wanted_and_one = limit + 1;
        bound.push(trackway_store::sql::Param::Int(wanted_and_one));
        let mut rows = read.query::<QueueItemShown>(
            &format!(
                "{} where {conditions} order by q.priority desc, q.in_queue_since, q.id limit ?{}",
                cut_texts(QueueItemShown::select(), LONG_TEXTS),
                bound.len() + 1
            ),
            &bound,
        )?;
        let shown = usize::try_from(limit).unwrap_or(usize::MAX);
        let more = (rows.len() > shown).then(|| format!("--limit {}", (limit * 10).min(10_000)));
        rows.truncate(shown);
        for shown in &mut rows {
            stand(shown, now);
        }
        Ok(Listed { rows, more })
    }

    fn more(output: &Self::Output) -> Option<String> {
        output.more.clone()
    }
}

/// Count queue items by status
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
pub struct SizeOfQueue {
    #[command(flatten)]
    #[serde(flatten)]
    pub which: WhichItems,
}

/// How many items there are.
#[derive(Debug, PartialEq, Serialize)]
pub struct Size {
    pub total: i64,
    pub by_status: BTreeMap<String, i64>,
    /// Since when the oldest item that could be taken waits.
    pub oldest_ready_since: Option<Time>,
    pub oldest_ready_age: Option<String>,
}

impl View for SizeOfQueue {
    const COMMAND: (&'static str, &'static str) = ("queue", "size");
    type Output = Size;

    fn answer(&self, read: &mut Reader<'_>, now: Time) -> Result<Size> {
        let wanted = self.which.resolve(read, now)?;
        let (conditions, mut bound) = wanted.filter(&now).always("q.tenant_id = ?1").numbered(2);
        bound.push(now.to_param());
        let stands = stands(bound.len() + 1);
        let counts = read.query::<(ItemStatus, i64)>(
            &format!("select {stands} as stands, count(*) from queue_items q where {conditions} group by stands"),
            &bound,
        )?;
        let oldest = read.one::<(Option<Time>,)>(
            &format!(
                "select min(q.in_queue_since) from queue_items q where {conditions} and q.status in ('ready', 'waiting') and {stands} = 'ready'"
            ),
            &bound,
        )?;
        let since = oldest.and_then(|(since,)| since);
        Ok(Size {
            total: counts.iter().map(|(_, count)| count).sum(),
            by_status: counts.into_iter().map(|(status, count)| (status.to_string(), count)).collect(),
            oldest_ready_since: since,
            oldest_ready_age: since
                .map(|since| Duration::from_seconds((now.micros() - since.micros()).max(0) / 1_000_000).to_string()),
        })
    }
}

/// Says of an item how it stands at a time: what waits until then is ready for whoever takes.
pub(crate) fn stand(shown: &mut QueueItemShown, now: Time) {
    let item = &mut shown.item;
    if item.status == ItemStatus::Waiting && item.not_before.is_some_and(|time| time <= now) {
        item.status = ItemStatus::Ready;
    }
}

/// How an item `q` stands at a time, in the same way.
fn stands(now: usize) -> String {
    format!("case when q.status = 'waiting' and q.not_before <= ?{now} then 'ready' else q.status end")
}

/// How many items want something from somebody, by status: those that are not finished, and those that failed for good.
pub fn unsettled(read: &mut Reader<'_>, now: Time) -> Result<Vec<(ItemStatus, i64)>> {
    let counts = read.query::<(ItemStatus, i64)>(
        "select status, count(*) from queue_items
         where tenant_id = ?1 and status in ('waiting', 'blocked', 'ready', 'running', 'failed') group by status",
        &[],
    )?;
    // Apart, so that each is counted along an index of its own.
    let due = due(read, now)?;
    let mut counts: BTreeMap<ItemStatus, i64> = counts.into_iter().collect();
    if due > 0 {
        *counts.entry(ItemStatus::Waiting).or_default() -= due;
        *counts.entry(ItemStatus::Ready).or_default() += due;
    }
    Ok(counts.into_iter().filter(|(_, count)| *count > 0).collect())
}

/// How many items wait until a time that has come.
fn due(read: &mut Reader<'_>, now: Time) -> Result<i64> {
    read.count(
        "select count(*) from queue_items where tenant_id = ?1 and status = 'waiting' and not_before <= ?2",
        params![now],
    )
}

/// How many items are over and want nothing more, by status. There are ever more of these: so many are counted at most.
pub fn settled(read: &mut Reader<'_>, most: i64) -> Result<Vec<(ItemStatus, i64)>> {
    read.query(
        "select status, count(*) from (select status from queue_items where tenant_id = ?1 and status = 'completed' limit ?2) done group by status
         union all
         select status, count(*) from (select status from queue_items where tenant_id = ?1 and status = 'cancelled' limit ?2) gone group by status",
        params![most],
    )
}

/// Show what each worker holds
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
pub struct HeldItems {
    #[command(flatten)]
    #[serde(flatten)]
    pub page: Page,
}

row! {
    /// An item that is being worked on.
    pub struct Held {
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

impl View for HeldItems {
    const COMMAND: (&'static str, &'static str) = ("queue", "held");
    const COLUMNS: &'static [&'static str] =
        &["agent", "id", "variant", "run_id", "attempt", "heartbeat_at", "lease_expires"];
    type Output = Listed<Held>;

    fn answer(&self, read: &mut Reader<'_>, _: Time) -> Result<Self::Output> {
        let select = "select h.handle, q.id, t.variant, q.run_id, q.attempt, q.fence, q.heartbeat_at, q.lease_expires
                      from queue_items q join tasks t on t.id = coalesce(q.run_task_id, q.task_id) join agents h on h.id = q.taken_by";
        let running = Filter::default().always("q.status = 'running'");
        self.page.read(read, select, "q", running, Order::OldestFirst, |held: &Held| held.id.uuid())
    }

    fn more(output: &Self::Output) -> Option<String> {
        output.more.clone()
    }
}

//! Taking items from the queue.
//!
//! On SQLite, which has one writer, a transaction selects items and then updates them. On PostgreSQL, one statement
//! selects the items, skips those that other transactions have locked, and updates the others. Unique indexes on both
//! engines enforce the limits that concurrent transactions could violate: one running item per concurrency key, and one
//! per slot of an agent.

mod completion;
mod fast_take;

use std::sync::LazyLock;

use trackway_domain::{
    Id, Time, Variant,
    enums::{Runner, TaskStatus},
    kind,
    queue::DEFAULT_MAX_STEPS,
};
use uuid::Uuid;

use crate::{
    connection::Engine,
    error::{Error, Result},
    params, row,
    sql::{Param, ToParam, list},
    store::Writer,
    table::Table,
    tables::QueueItem,
};

pub use completion::{FastCompletion, ItemResult};
pub use fast_take::{NewRun, PriorCompletions, TakeRows};

/// SQL condition for ready tasks `t`. Its first lines repeat the condition of the index `tasks_ready` exactly, so that
/// both engines use the index. The other lines exclude tasks with a version that is in the queue or in progress. They
/// compare subqueries with null because PostgreSQL would turn `not exists` into a join with the whole queue.
pub const READY_TASK_CONDITION: &str =
    "t.tenant_id = ?1 and t.deleted_at is null and not t.recurring and not t.archived and not t.replaced
    and t.open_blockers = 0 and t.status in ('open', 'groomed')
    and (select 1 from tasks v cross join queue_items i where v.tenant_id = ?1 and v.lineage_id = t.lineage_id
        and i.tenant_id = ?1 and i.task_id = v.id and i.finished_at is null limit 1) is null
    and (select 1 from tasks v cross join runs r where v.tenant_id = ?1 and v.lineage_id = t.lineage_id
        and r.tenant_id = ?1 and r.task_id = v.id and r.drives_task and r.status = 'running' limit 1) is null";

/// SQL expression for the role of an item that a route `o` creates for the task `t`: the role of the task, or else that
/// of the route. The role of a route selects messages by their sender, which may have another role than the agent that
/// works on the task.
pub const ROLE_OF_ROUTED_ITEM: &str = "coalesce(t.role_id, o.role_id)";

/// SQL expression for the version that an item would run if it were taken now: the requested version if the item is
/// `exact`, or else the version pinned for the role of the item, or else the current version. Null if there is no live
/// version. `item` is the alias of the item's table.
pub fn version_of_item(item: &str) -> String {
    version_to_run(&format!("{item}.task_id"), &format!("{item}.role_id"), &format!("{item}.exact"))
}

/// SQL expression for the version of `task` that runs for `role`. Ignores a pin if its version is archived or deleted.
pub fn version_to_run(task: &str, role: &str, exact: &str) -> String {
    format!(
        "(select case when {exact} then (case when v.deleted_at is null and not v.archived then v.id end) else coalesce(
            (select p.task_id from packages p join tasks w on w.id = p.task_id where p.role_id = {role} and p.lineage_id = v.lineage_id
             and p.deleted_at is null and w.deleted_at is null and not w.archived), v.current_id) end
          from tasks v where v.id = {task})"
    )
}

/// Maximum number of expired leases that one transaction handles.
const EXPIRED_MAX: i64 = 100;

/// A request to take items from the queue.
#[derive(Debug, Clone)]
pub struct TakeRequest {
    pub agent: TakingAgent,
    /// Roles whose items may be taken.
    pub roles: RoleFilter,
    /// Further condition on items that name no agent.
    pub unassigned: UnassignedFilter,
    /// Takes only this item, if given.
    pub item: Option<Id<kind::QueueItem>>,
    /// Maximum number of items to take.
    pub limit: usize,
    /// Free slots of an agent with a limit on concurrent items. None for an agent without a limit.
    pub slots: Option<Vec<i64>>,
    pub lease_seconds: i64,
}

/// The agent that takes the items.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TakingAgent {
    ById(Id<kind::Agent>),
    /// The agent with this handle, if it has no limit. Nothing is taken if there is no such agent. Nothing is taken
    /// either while a waiting item is due, or a running item has an expired lease.
    ByHandle(&'static str),
}

/// Roles whose items an agent may take, in addition to items that name the agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RoleFilter {
    /// All roles; for the worker, which takes no items that name an agent.
    All,
    /// The given role, and items without a role.
    Own(Option<Id<kind::Role>>),
}

/// Further condition on items that name no agent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum UnassignedFilter {
    #[default]
    All,
    /// Only items whose task has a script; for executors that can run only scripts.
    Scripted,
    /// Only items whose task has no script.
    Unscripted,
    /// Only items whose task has no script and that name the agent's own role.
    UnscriptedOfOwnRole,
}

impl UnassignedFilter {
    fn condition(self) -> String {
        let comparison = match self {
            Self::All => return String::new(),
            Self::Scripted => "<>",
            Self::Unscripted | Self::UnscriptedOfOwnRole => "=",
        };
        let version = version_of_item("q");
        format!(
            " and exists (select 1 from tasks s where s.id = {version} and trim(coalesce(s.script, '')) {comparison} '')"
        )
    }
}

row! {
    /// A taken item with the data of its task that its run needs.
    pub struct PickedItem {
        id: Id<kind::QueueItem>,
        run_id: Option<Id<kind::Run>>,
        priority: i64,
        in_queue_since: Time,
        fence: i64,
        attempt: i64,
        task_id: Id<kind::Task>,
        variant: Variant,
        revision: i64,
        recurring: bool,
        status: TaskStatus,
        role_id: Option<Id<kind::Role>>,
        workspace_id: Option<Id<kind::Workspace>>,
        initiated_by: Option<Id<kind::Person>>,
        chain_depth: i64,
        agent_id: Id<kind::Agent>,
        agent_role_id: Option<Id<kind::Role>>,
        runner: Runner,
        max_steps: i64,
    }
}

/// The columns of [`PickedItem`], from an item `q`, the version `t` that it runs, and the agent `a` that takes it.
static PICKED_COLUMNS: LazyLock<String> = LazyLock::new(|| {
    format!(
        "q.id, q.run_id, q.priority, q.in_queue_since, q.fence, q.attempt, t.id, t.variant, t.revision, t.recurring, t.status,
         coalesce(q.role_id, t.role_id), coalesce(q.workspace_id, t.workspace_id), q.initiated_by, q.chain_depth,
         a.id, a.role_id, a.runner, coalesce(q.max_steps, t.max_steps, a.max_steps, {DEFAULT_MAX_STEPS})"
    )
});

/// SQL condition that no item holds the concurrency key of `q`, and that no ready item with the same key comes before
/// it. An item that already holds the key, because it waits for a retry, precedes all others.
fn key_is_free(engine: Engine) -> String {
    // These forms force PostgreSQL to use the index of held keys, which is small. Otherwise it might use another index
    // that begins with the tenant, or build a hash table of all keys for each take.
    let holder = match engine {
        Engine::Sqlite => "h.tenant_id = ?1",
        Engine::Postgres => "(h.tenant_id = ?1) is true and h.id <> q.id",
    };
    format!(
        "(q.concurrency_key is null or q.held_key is not null or (
         not exists (select 1 from queue_items h where {holder} and h.held_key = q.concurrency_key)
         and not exists (select 1 from queue_items e where e.tenant_id = ?1 and e.status = 'ready' and e.concurrency_key = q.concurrency_key
            and (e.priority > q.priority or (e.priority = q.priority and (e.in_queue_since, e.id) < (q.in_queue_since, q.id))))))"
    )
}

/// SQL condition on PostgreSQL: no other transaction has locked or changed this version of the row `q`, except for
/// transactions that ended before our snapshot. Without the condition, if an item was taken just after our snapshot,
/// `skip locked` would lock the new version of its row before skipping it. The holder of the item could then not
/// complete the item until we commit. A row that was locked but not changed becomes available again with the next
/// snapshot. If a long transaction prevents the server from recognising ended transactions, the row becomes available
/// after a thousand further transactions.
const NOT_CONCURRENTLY_LOCKED: &str = " and (q.xmax = q.xmin or age(q.xmax) > (select least(age(cast(pg_snapshot_xmin(pg_current_snapshot()) as xid)), 1000)))";

const QUEUE_ORDER: &str = "q.priority desc, q.in_queue_since, q.id";

/// Collects the parameters of a statement that is composed of parts.
#[derive(Debug, Default)]
struct SqlParams<'a>(Vec<Param<'a>>);

impl<'a> SqlParams<'a> {
    /// Adds a parameter and returns its placeholder. `?1` is the tenant.
    fn bind(&mut self, value: &'a impl ToParam) -> String {
        self.bind_param(value.to_param())
    }

    fn bind_param(&mut self, param: Param<'a>) -> String {
        self.0.push(param);
        format!("?{}", self.0.len() + 1)
    }
}

impl TakeRequest {
    /// SQL conditions for the items that may be taken. Each of them can use the index of ready items.
    fn conditions<'a>(&'a self, sql_params: &mut SqlParams<'a>) -> Vec<String> {
        let item = self.item.as_ref().map_or_else(String::new, |item| format!(" and q.id = {}", sql_params.bind(item)));
        let unassigned = self.unassigned.condition();
        let is_own_only = self.unassigned == UnassignedFilter::UnscriptedOfOwnRole;
        let role = match &self.roles {
            RoleFilter::All => return vec![format!("q.agent_id is null{unassigned}{item}")],
            RoleFilter::Own(Some(role)) if is_own_only => Some(format!("q.role_id = {}", sql_params.bind(role))),
            RoleFilter::Own(None) if is_own_only => None,
            RoleFilter::Own(Some(role)) => {
                Some(format!("(q.role_id is null or q.role_id = {})", sql_params.bind(role)))
            }
            RoleFilter::Own(None) => Some("q.role_id is null".to_owned()),
        };
        let mut conditions: Vec<String> =
            role.into_iter().map(|role| format!("q.agent_id is null and {role}{unassigned}{item}")).collect();
        if let TakingAgent::ById(agent) = &self.agent {
            conditions.push(format!("q.agent_id = {}{item}", sql_params.bind(agent)));
        }
        conditions
    }

    /// SQL condition for the row `a` of the agent that takes.
    fn agent_condition<'a>(&'a self, sql_params: &mut SqlParams<'a>) -> String {
        match &self.agent {
            TakingAgent::ById(agent) => format!("a.tenant_id = ?1 and a.id = {}", sql_params.bind(agent)),
            TakingAgent::ByHandle(handle) => format!(
                "a.tenant_id = ?1 and a.handle = {} and a.deleted_at is null and not a.archived and a.max_items is null",
                sql_params.bind(handle)
            ),
        }
    }

    /// SQL condition that no item has to become ready, or to be returned to the queue, before anything is taken.
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "the parameters borrow `now`")]
    fn nothing_due_condition<'a>(&self, sql_params: &mut SqlParams<'a>, now: &'a Time) -> String {
        match &self.agent {
            TakingAgent::ById(_) => String::new(),
            TakingAgent::ByHandle(_) => format!(
                " and not exists (select 1 from queue_items w where w.tenant_id = ?1 and w.status = 'waiting' and w.not_before <= {now})
                 and not exists (select 1 from queue_items l where l.tenant_id = ?1 and l.status = 'running' and l.lease_expires <= {now})",
                now = sql_params.bind(now)
            ),
        }
    }
}

/// A task that has a live version.
#[derive(Debug, Clone, Copy)]
pub struct RunnableTask {
    pub id: Id<kind::Task>,
    pub role: Option<Id<kind::Role>>,
}

/// Inserts queue items. In optimistic mode, the statement that inserts a single item can also look up its task, which
/// saves a round trip.
#[derive(Debug, Default)]
pub struct ItemInsert {
    /// The variant of the task that the insert statement looks up.
    variant: Option<String>,
}

impl ItemInsert {
    /// Determines the task of the only item. In optimistic mode, returns a placeholder, and [`ItemInsert::insert`]
    /// looks up the task by its variant. In checked mode, calls `look_up`.
    pub fn task_of_single_item<E: From<Error>>(
        &mut self,
        write: &mut Writer<'_>,
        variant: &str,
        look_up: impl FnOnce(&mut Writer<'_>) -> std::result::Result<RunnableTask, E>,
    ) -> std::result::Result<RunnableTask, E> {
        if !write.mode.optimistic {
            return look_up(write);
        }
        write.lock_live_versions_shared()?;
        self.variant = Some(variant.to_owned());
        Ok(RunnableTask { id: Uuid::nil().into(), role: None })
    }

    pub fn insert(&self, write: &mut Writer<'_>, items: &[QueueItem]) -> Result<()> {
        match (&self.variant, items) {
            (Some(variant), [item]) => write.insert_item_by_variant(item, variant),
            _ => write.insert_all(items),
        }
    }
}

impl Writer<'_> {
    /// Adds an item for the task with this variant, and with the role of that task by default. The transaction fails if
    /// the task does not exist or has no current version.
    fn insert_item_by_variant(&mut self, item: &QueueItem, variant: &str) -> Result<()> {
        static SQL: LazyLock<String> = LazyLock::new(|| {
            let columns = QueueItem::COLUMNS;
            let task =
                columns.iter().zip(1..).find(|(column, _)| **column == "task_id").map_or(0, |(_, number)| number);
            let placeholders = columns.iter().zip(1..).map(|(column, number)| match *column {
                "task_id" => format!(
                    "(select id from tasks where tenant_id = ?2 and variant = ?{number} and deleted_at is null and current_id is not null)"
                ),
                "role_id" => format!(
                    "coalesce(?{number}, (select role_id from tasks where tenant_id = ?2 and variant = ?{task} and deleted_at is null))"
                ),
                _ => format!("?{number}"),
            });
            let placeholders: Vec<String> = placeholders.collect();
            format!("insert into queue_items ({}) values ({})", columns.join(", "), placeholders.join(", "))
        });
        let mut params = item.params();
        for (param, column) in params.iter_mut().zip(QueueItem::COLUMNS) {
            if *column == "task_id" {
                *param = variant.to_param();
            }
        }
        self.post_new_row(SQL.as_str(), &params)
    }

    /// Makes those waiting items ready whose delay has passed.
    pub fn make_due_items_ready(&mut self) -> Result<()> {
        let now = self.now;
        self.post(
            match self.engine() {
                Engine::Sqlite => {
                    "update queue_items set status = 'ready' where tenant_id = ?1 and status = 'waiting' and not_before <= ?2"
                }
                // The array makes PostgreSQL look up the items by id, instead of scanning all items of the tenant.
                Engine::Postgres => {
                    "update queue_items set status = 'ready' where tenant_id = ?1 and id = any(array(
                     select id from queue_items where tenant_id = ?1 and status = 'waiting' and not_before <= ?2 for update skip locked))"
                }
            },
            params![now],
        )
    }

    /// Returns items with an expired lease, and locks them.
    pub fn expired_items(&mut self) -> Result<Vec<QueueItem>> {
        let now = self.now;
        let skip = self.skip_locked();
        self.rows(
            &format!("where tenant_id = ?1 and status = 'running' and lease_expires <= ?2 order by lease_expires limit {EXPIRED_MAX}{skip}"),
            params![now],
        )
    }

    /// Returns and locks running items whose last heartbeat is in the future. Such a heartbeat shows that a clock was
    /// set back.
    pub fn items_with_future_heartbeat(&mut self) -> Result<Vec<QueueItem>> {
        let now = self.now;
        let skip = self.skip_locked();
        self.rows(
            &format!("where tenant_id = ?1 and status = 'running' and lease_expires > ?2 and heartbeat_at > ?2 limit {EXPIRED_MAX}{skip}"),
            params![now],
        )
    }

    /// Takes the next items: those with the highest priority first, then the oldest.
    pub fn pick_items(&mut self, request: &TakeRequest, lease_expires: Time) -> Result<Vec<PickedItem>> {
        match self.engine() {
            Engine::Sqlite => self.pick_and_update(request, lease_expires),
            Engine::Postgres => self.pick_in_one_statement(request, lease_expires),
        }
    }

    fn pick_and_update(&mut self, request: &TakeRequest, lease_expires: Time) -> Result<Vec<PickedItem>> {
        let (now, limit) = (self.now, to_i64(request.limit));
        let mut sql_params = SqlParams::default();
        let limit = sql_params.bind(&limit);
        let (agent, nothing_due) =
            (request.agent_condition(&mut sql_params), request.nothing_due_condition(&mut sql_params, &now));
        let (key_is_free, version) = (key_is_free(Engine::Sqlite), version_of_item("q"));
        let conditions: Vec<String> = request
            .conditions(&mut sql_params)
            .iter()
            .map(|condition| {
                // The order of the joins and of the sort is that of the index.
                format!(
                    "select * from (select {picked} from queue_items q cross join tasks t cross join agents a
                     where q.tenant_id = ?1 and q.status = 'ready' and {condition} and {key_is_free}{nothing_due}
                     and t.id = {version} and {agent} order by {QUEUE_ORDER} limit {limit})",
                    picked = *PICKED_COLUMNS
                )
            })
            .collect();
        let mut picked = sort_by_queue_order(self.query::<PickedItem>(&conditions.join(" union all "), &sql_params.0)?);
        picked.truncate(request.limit);
        for (item, index) in picked.iter_mut().zip(0..) {
            item.run_id = Some(self.new_id());
            item.fence += 1;
            let slot = request.slots.as_ref().and_then(|slots| slots.get(index).copied());
            self.post(
                "update queue_items set status = 'running', fence = fence + 1, task_revision = ?3, lease_seconds = ?4, lease_expires = ?5,
                 heartbeat_at = ?6, taken_by = ?7, slot = ?8, held_key = concurrency_key, run_id = ?9, not_before = null, run_task_id = ?10
                 where tenant_id = ?1 and id = ?2",
                params![item.id, item.revision, request.lease_seconds, lease_expires, now, item.agent_id, slot, item.run_id, item.task_id],
            )?;
        }
        Ok(picked)
    }

    fn pick_in_one_statement(&mut self, request: &TakeRequest, lease_expires: Time) -> Result<Vec<PickedItem>> {
        let runs: Vec<_> = (0..request.limit).map(|_| self.new_id()).collect();
        let statement = PickStatement { request, runs: &runs, now: self.now, lease_expires, extra_condition: "" };
        let mut sql_params = SqlParams::default();
        let sql = format!("with {} {}", statement.selection(&mut sql_params), statement.update(&mut sql_params));
        let picked = self.query::<PickedItem>(&sql, &sql_params.0)?;
        Ok(sort_by_queue_order(picked))
    }
}

/// Builds the SQL with which PostgreSQL takes items and skips those that other transactions have locked.
struct PickStatement<'a> {
    request: &'a TakeRequest,
    /// Ids of the new runs, one for each item.
    runs: &'a [Id<kind::Run>],
    now: Time,
    lease_expires: Time,
    /// Further SQL condition on the items.
    extra_condition: &'static str,
}

impl<'a> PickStatement<'a> {
    /// `with` clauses that select the items: `chosen` contains up to `limit` items, each with the version it runs and
    /// its position.
    fn selection(&'a self, sql_params: &mut SqlParams<'a>) -> String {
        // The limit is part of the SQL. For a parameter, PostgreSQL would assume a large limit and make a new plan
        // every time.
        let limit = self.request.limit;
        let nothing_due = self.request.nothing_due_condition(sql_params, &self.now);
        let (key_is_free, extra_condition, version) =
            (key_is_free(Engine::Postgres), self.extra_condition, version_of_item("q"));
        let conditions = self.request.conditions(sql_params);
        let picks: Vec<String> = conditions
            .iter()
            .zip(1..)
            .map(|(condition, number)| {
                format!(
                    "way{number} as (select q.id, q.priority, q.in_queue_since, {version} as version from queue_items q
                     where q.tenant_id = ?1 and q.status = 'ready' and {condition} and {key_is_free}{nothing_due}{extra_condition} and {version} is not null
                     order by {QUEUE_ORDER} limit {limit} for update skip locked)"
                )
            })
            .collect();
        let picks = picks.join(", ");
        if (conditions.len(), limit) == (1, 1) {
            return format!("{picks}, chosen as (select id, version, 1 as place from way1)");
        }
        let all: Vec<String> = (1..=conditions.len()).map(|number| format!("select * from way{number}")).collect();
        format!(
            "{picks},
             chosen as (select q.id, q.version, cast(row_number() over (order by {QUEUE_ORDER}) as int) as place from ({all}) q order by place limit {limit})",
            all = all.join(" union all "),
        )
    }

    /// The update that takes the chosen items and returns them.
    fn update(&'a self, sql_params: &mut SqlParams<'a>) -> String {
        format!(
            "update queue_items q set status = 'running', fence = q.fence + 1, task_revision = t.revision, lease_seconds = {lease_seconds},
             lease_expires = {lease_expires}, heartbeat_at = {now}, taken_by = a.id, slot = (cast({slots} as bigint[]))[c.place],
             held_key = q.concurrency_key, run_id = (cast({runs} as uuid[]))[c.place], not_before = null, run_task_id = t.id
             from chosen c, tasks t, agents a where q.id = c.id and t.id = c.version and {agent}
             returning {picked}",
             picked = *PICKED_COLUMNS,
            lease_seconds = sql_params.bind(&self.request.lease_seconds),
            lease_expires = sql_params.bind(&self.lease_expires),
            now = sql_params.bind(&self.now),
            agent = self.request.agent_condition(sql_params),
            slots = sql_params.bind_param(list(self.request.slots.iter().flatten())),
            runs = sql_params.bind_param(list(self.runs)),
        )
    }
}

/// Sorts the items, because `update ... returning` has no order.
fn sort_by_queue_order(mut picked: Vec<PickedItem>) -> Vec<PickedItem> {
    picked.sort_by_key(|item| (std::cmp::Reverse(item.priority), item.in_queue_since, item.id));
    picked
}

fn to_i64(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}

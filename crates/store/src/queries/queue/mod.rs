//! Taking from the queue: the one place where the engines go different ways about it.
//!
//! SQLite has one writer: what it read inside its transaction is still so when it writes. On PostgreSQL one statement
//! picks, skipping what others are just taking, and marks what it picked. Rules that no transaction can check alone (one
//! item per key, one per place of an agent) are unique indexes on both.

mod completion;
mod fast_take;

use std::sync::LazyLock;

use trackway_domain::{
    Id, Time, Variant, kind,
    queue::MAX_STEPS,
    words::{Runner, TaskStatus},
};

use crate::{
    connection::Engine,
    error::Result,
    params, row,
    sql::{Param, ToParam, list},
    store::Writer,
    table::Table,
    tables::QueueItem,
};

pub use completion::{Completed, ItemResult};
pub use fast_take::{DoneBefore, NewRun, TakeRows};

/// Selects the ready tasks `t`. The first lines repeat the condition of the index `tasks_ready` exactly, so that both engines use
/// it. The rest excludes tasks of which a version is in the queue or worked on. The subqueries are compared with null because
/// PostgreSQL would turn `not exists` into a join with all of the queue.
pub const READY_TASK: &str =
    "t.tenant_id = ?1 and t.deleted_at is null and not t.recurring and not t.archived and not t.replaced
    and t.open_blockers = 0 and t.status in ('open', 'groomed')
    and (select 1 from tasks v cross join queue_items i where v.tenant_id = ?1 and v.lineage_id = t.lineage_id
        and i.tenant_id = ?1 and i.task_id = v.id and i.finished_at is null limit 1) is null
    and (select 1 from tasks v cross join runs r where v.tenant_id = ?1 and v.lineage_id = t.lineage_id
        and r.tenant_id = ?1 and r.task_id = v.id and r.drives_task and r.status = 'running' limit 1) is null";

/// The role of the items that a route `o` to the task `t` makes: the task's, else the route's. A route's role selects messages by
/// the role that sends them, which need not be the role that works on the task.
pub const ROLE_OF_ROUTED_ITEM: &str = "coalesce(t.role_id, o.role_id)";

/// The version that an item runs if it is taken now, for use inside a query in which `item` is the item's table: the one that was
/// asked for, if exactly that is wanted; else the pin of the item's role, else the current version. Null where none is live.
pub fn version_of(item: &str) -> String {
    resolved(&format!("{item}.task_id"), &format!("{item}.role_id"), &format!("{item}.exact"))
}

/// The version that runs of the task `task`, for the role `role`. A pin whose version is archived or deleted does not count.
pub fn resolved(task: &str, role: &str, exact: &str) -> String {
    format!(
        "(select case when {exact} then (case when v.deleted_at is null and not v.archived then v.id end) else coalesce(
            (select p.task_id from packages p join tasks w on w.id = p.task_id where p.role_id = {role} and p.lineage_id = v.lineage_id
             and p.deleted_at is null and w.deleted_at is null and not w.archived), v.current_id) end
          from tasks v where v.id = {task})"
    )
}

/// Expired leases looked at in one go.
const EXPIRED_MAX: i64 = 100;

/// Who takes, and what.
#[derive(Debug, Clone)]
pub struct Taker {
    pub who: Who,
    /// The roles whose items it may take.
    pub roles: Roles,
    /// Which of the items that name no agent.
    pub unnamed: Unnamed,
    /// Only this item.
    pub item: Option<Id<kind::QueueItem>>,
    /// How many at most.
    pub limit: usize,
    /// The free places of an agent that has few; one that has no limit needs none.
    pub slots: Option<Vec<i64>>,
    pub lease_seconds: i64,
}

/// The agent that takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Who {
    Known(Id<kind::Agent>),
    /// Of this handle, which has no limit. Takes nothing while something waits whose time has come, or is not there.
    Named(&'static str),
}

/// Whose items an agent may take, beside those that name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Roles {
    /// Of every role: the worker's way. It takes nothing that names an agent.
    All,
    /// Of this role, and of none.
    Own(Option<Id<kind::Role>>),
}

/// Which of the items that name no agent somebody takes, beside what their roles allow.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Unnamed {
    #[default]
    All,
    /// Whose task has a script: who runs scripts can do nothing with the others.
    Scripted,
    /// Whose task has none.
    Unscripted,
    /// The same, of the taker's own role only.
    UnscriptedOfOwnRole,
}

impl Unnamed {
    fn condition(self) -> String {
        let comparison = match self {
            Self::All => return String::new(),
            Self::Scripted => "<>",
            Self::Unscripted | Self::UnscriptedOfOwnRole => "=",
        };
        let version = version_of("q");
        format!(
            " and exists (select 1 from tasks s where s.id = {version} and trim(coalesce(s.script, '')) {comparison} '')"
        )
    }
}

row! {
    /// An item that was just taken, and what its run needs to know of the task.
    pub struct Picked {
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

/// Columns of [`Picked`]: of an item `q`, the version `t` that it runs and the agent `a` that takes it.
static PICKED: LazyLock<String> = LazyLock::new(|| {
    format!(
        "q.id, q.run_id, q.priority, q.in_queue_since, q.fence, q.attempt, t.id, t.variant, t.revision, t.recurring, t.status,
         coalesce(q.role_id, t.role_id), coalesce(q.workspace_id, t.workspace_id), q.initiated_by, q.chain_depth,
         a.id, a.role_id, a.runner, coalesce(q.max_steps, t.max_steps, a.max_steps, {MAX_STEPS})"
    )
});

/// Nobody holds the key of `q`, and no other that could be taken comes before it. One that holds the key itself (it was
/// in back-off) comes before all.
fn key_is_free(engine: Engine) -> String {
    // PostgreSQL is left no other way than the index of held keys, which are few: another one that begins with the tenant looks
    // as good to it while there is little, and so does a table of all keys, made for each take, if the holder is only like `q`.
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

/// On PostgreSQL: nobody was at this version of `q` but who wrote it, or they were done with it before our moment. What `skip locked` does with one
/// that was taken just after that moment is to lock what became of it, and pass it by; who took it cannot complete it until
/// we are done. So it is passed by before. What somebody locked and left as it was is there again for the next moment; or, while a long
/// transaction keeps the server from saying which ones are over, after a thousand others.
const IS_UNTOUCHED: &str = " and (q.xmax = q.xmin or age(q.xmax) > (select least(age(cast(pg_snapshot_xmin(pg_current_snapshot()) as xid)), 1000)))";

/// The order of the queue.
const ORDER: &str = "q.priority desc, q.in_queue_since, q.id";

/// Values on their way into a text that is put together from parts.
#[derive(Debug, Default)]
struct Bound<'a>(Vec<Param<'a>>);

impl<'a> Bound<'a> {
    /// The place of a value in the text. The tenant is `?1`.
    fn place(&mut self, value: &'a impl ToParam) -> String {
        self.place_param(value.to_param())
    }

    fn place_param(&mut self, param: Param<'a>) -> String {
        self.0.push(param);
        format!("?{}", self.0.len() + 1)
    }
}

impl Taker {
    /// The conditions under which items may be this taker's: each is one way through the index of ready items.
    fn ways<'a>(&'a self, bound: &mut Bound<'a>) -> Vec<String> {
        let item = self.item.as_ref().map_or_else(String::new, |item| format!(" and q.id = {}", bound.place(item)));
        let unnamed = self.unnamed.condition();
        let is_own_only = self.unnamed == Unnamed::UnscriptedOfOwnRole;
        let role = match &self.roles {
            Roles::All => return vec![format!("q.agent_id is null{unnamed}{item}")],
            Roles::Own(Some(role)) if is_own_only => Some(format!("q.role_id = {}", bound.place(role))),
            Roles::Own(None) if is_own_only => None,
            Roles::Own(Some(role)) => Some(format!("(q.role_id is null or q.role_id = {})", bound.place(role))),
            Roles::Own(None) => Some("q.role_id is null".to_owned()),
        };
        let mut ways: Vec<String> =
            role.into_iter().map(|role| format!("q.agent_id is null and {role}{unnamed}{item}")).collect();
        if let Who::Known(agent) = &self.who {
            ways.push(format!("q.agent_id = {}{item}", bound.place(agent)));
        }
        ways
    }

    /// What makes `a` the agent that takes.
    fn agent<'a>(&'a self, bound: &mut Bound<'a>) -> String {
        match &self.who {
            Who::Known(agent) => format!("a.tenant_id = ?1 and a.id = {}", bound.place(agent)),
            Who::Named(handle) => format!(
                "a.tenant_id = ?1 and a.handle = {} and a.deleted_at is null and not a.archived and a.max_items is null",
                bound.place(handle)
            ),
        }
    }

    /// What else must hold for it to take anything: nothing has to be made ready or returned first.
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "what is bound is borrowed")]
    fn moment<'a>(&self, bound: &mut Bound<'a>, now: &'a Time) -> String {
        match &self.who {
            Who::Known(_) => String::new(),
            Who::Named(_) => format!(
                " and not exists (select 1 from queue_items w where w.tenant_id = ?1 and w.status = 'waiting' and w.not_before <= {now})
                 and not exists (select 1 from queue_items l where l.tenant_id = ?1 and l.status = 'running' and l.lease_expires <= {now})",
                now = bound.place(now)
            ),
        }
    }
}

impl Writer<'_> {
    /// In optimistic mode, lets [`Writer::insert_item_of`] look its task up, and takes the lock that this needs. Otherwise
    /// returns false: the caller has to look the task up first.
    pub fn insert_looks_up_task(&mut self) -> Result<bool> {
        if self.mode.optimistic {
            self.share_live_versions()?;
        }
        Ok(self.mode.optimistic)
    }

    /// Adds an item of the task with this variant, in its role, whatever task it names itself. A task that does not exist or has
    /// no current version fails the transaction.
    pub fn insert_item_of(&mut self, item: &QueueItem, variant: &str) -> Result<()> {
        static SQL: LazyLock<String> = LazyLock::new(|| {
            let columns = QueueItem::COLUMNS;
            let task = columns.iter().zip(1..).find(|(column, _)| **column == "task_id").map_or(0, |(_, place)| place);
            let places = columns.iter().zip(1..).map(|(column, place)| match *column {
                "task_id" => format!(
                    "(select id from tasks where tenant_id = ?2 and variant = ?{place} and deleted_at is null and current_id is not null)"
                ),
                "role_id" => format!(
                    "coalesce(?{place}, (select role_id from tasks where tenant_id = ?2 and variant = ?{task} and deleted_at is null))"
                ),
                _ => format!("?{place}"),
            });
            let places: Vec<String> = places.collect();
            format!("insert into queue_items ({}) values ({})", columns.join(", "), places.join(", "))
        });
        let mut params = item.params();
        for (param, column) in params.iter_mut().zip(QueueItem::COLUMNS) {
            if *column == "task_id" {
                *param = variant.to_param();
            }
        }
        self.post_new_row(SQL.as_str(), &params)
    }

    /// Makes ready what had to wait until now.
    pub fn make_due_items_ready(&mut self) -> Result<()> {
        let now = self.now;
        self.post(
            match self.engine() {
                Engine::Sqlite => {
                    "update queue_items set status = 'ready' where tenant_id = ?1 and status = 'waiting' and not_before <= ?2"
                }
                // An array: found by their ids, not by a walk along all items of the tenant.
                Engine::Postgres => {
                    "update queue_items set status = 'ready' where tenant_id = ?1 and id = any(array(
                     select id from queue_items where tenant_id = ?1 and status = 'waiting' and not_before <= ?2 for update skip locked))"
                }
            },
            params![now],
        )
    }

    /// Items whose lease is over, held against other writers.
    pub fn expired_items(&mut self) -> Result<Vec<QueueItem>> {
        let now = self.now;
        let skip = self.skip_locked();
        self.rows(
            &format!("where tenant_id = ?1 and status = 'running' and lease_expires <= ?2 order by lease_expires limit {EXPIRED_MAX}{skip}"),
            params![now],
        )
    }

    /// Items that are held, with a last sign of life that is still to come, held against other writers.
    pub fn items_held_from_the_future(&mut self) -> Result<Vec<QueueItem>> {
        let now = self.now;
        let skip = self.skip_locked();
        self.rows(
            &format!("where tenant_id = ?1 and status = 'running' and lease_expires > ?2 and heartbeat_at > ?2 limit {EXPIRED_MAX}{skip}"),
            params![now],
        )
    }

    /// Takes what comes next: at most as many as are wanted, the most urgent first, then the oldest.
    pub fn pick_items(&mut self, taker: &Taker, lease_expires: Time) -> Result<Vec<Picked>> {
        match self.engine() {
            Engine::Sqlite => self.pick_alone(taker, lease_expires),
            Engine::Postgres => self.pick_among_others(taker, lease_expires),
        }
    }

    fn pick_alone(&mut self, taker: &Taker, lease_expires: Time) -> Result<Vec<Picked>> {
        let (now, limit) = (self.now, as_number(taker.limit));
        let mut bound = Bound::default();
        let most = bound.place(&limit);
        let (agent, moment) = (taker.agent(&mut bound), taker.moment(&mut bound, &now));
        let (key_is_free, version) = (key_is_free(Engine::Sqlite), version_of("q"));
        let ways: Vec<String> = taker
            .ways(&mut bound)
            .iter()
            .map(|way| {
                // In this order, which is the order of the index.
                format!(
                    "select * from (select {picked} from queue_items q cross join tasks t cross join agents a
                     where q.tenant_id = ?1 and q.status = 'ready' and {way} and {key_is_free}{moment}
                     and t.id = {version} and {agent} order by {ORDER} limit {most})",
                    picked = *PICKED
                )
            })
            .collect();
        let mut picked = in_order(self.query::<Picked>(&ways.join(" union all "), &bound.0)?);
        picked.truncate(taker.limit);
        for (item, place) in picked.iter_mut().zip(0..) {
            item.run_id = Some(self.new_id());
            item.fence += 1;
            let slot = taker.slots.as_ref().and_then(|slots| slots.get(place).copied());
            self.post(
                "update queue_items set status = 'running', fence = fence + 1, task_revision = ?3, lease_seconds = ?4, lease_expires = ?5,
                 heartbeat_at = ?6, taken_by = ?7, slot = ?8, held_key = concurrency_key, run_id = ?9, not_before = null, run_task_id = ?10
                 where tenant_id = ?1 and id = ?2",
                params![item.id, item.revision, taker.lease_seconds, lease_expires, now, item.agent_id, slot, item.run_id, item.task_id],
            )?;
        }
        Ok(picked)
    }

    fn pick_among_others(&mut self, taker: &Taker, lease_expires: Time) -> Result<Vec<Picked>> {
        let runs: Vec<_> = (0..taker.limit).map(|_| self.new_id()).collect();
        let picking = Picking { taker, runs: &runs, now: self.now, lease_expires, also: "" };
        let mut bound = Bound::default();
        let sql = format!("with {} {}", picking.chosen(&mut bound), picking.taken(&mut bound));
        let picked = self.query::<Picked>(&sql, &bound.0)?;
        Ok(in_order(picked))
    }
}

/// How PostgreSQL picks, skipping what others are just taking, and marks what it picked.
struct Picking<'a> {
    taker: &'a Taker,
    /// The ids of the runs that are made for what is picked.
    runs: &'a [Id<kind::Run>],
    now: Time,
    lease_expires: Time,
    /// What else must be so of an item.
    also: &'static str,
}

impl<'a> Picking<'a> {
    /// The tables from which the update takes: those that may be had, and `chosen` of them, each with the version that it runs and
    /// its place.
    fn chosen(&'a self, bound: &mut Bound<'a>) -> String {
        // In the text: PostgreSQL expects much of a number it is not told, and would plan anew each time.
        let most = self.taker.limit;
        let moment = self.taker.moment(bound, &self.now);
        let (key_is_free, also, version) = (key_is_free(Engine::Postgres), self.also, version_of("q"));
        let ways = self.taker.ways(bound);
        let picks: Vec<String> = ways
            .iter()
            .zip(1..)
            .map(|(way, number)| {
                format!(
                    "way{number} as (select q.id, q.priority, q.in_queue_since, {version} as version from queue_items q
                     where q.tenant_id = ?1 and q.status = 'ready' and {way} and {key_is_free}{moment}{also} and {version} is not null
                     order by {ORDER} limit {most} for update skip locked)"
                )
            })
            .collect();
        let picks = picks.join(", ");
        if (ways.len(), most) == (1, 1) {
            return format!("{picks}, chosen as (select id, version, 1 as place from way1)");
        }
        let all: Vec<String> = (1..=ways.len()).map(|number| format!("select * from way{number}")).collect();
        format!(
            "{picks},
             chosen as (select q.id, q.version, cast(row_number() over (order by {ORDER}) as int) as place from ({all}) q order by place limit {most})",
            all = all.join(" union all "),
        )
    }

    /// The update that marks what was chosen, and answers it.
    fn taken(&'a self, bound: &mut Bound<'a>) -> String {
        format!(
            "update queue_items q set status = 'running', fence = q.fence + 1, task_revision = t.revision, lease_seconds = {lease_seconds},
             lease_expires = {lease_expires}, heartbeat_at = {now}, taken_by = a.id, slot = (cast({slots} as bigint[]))[c.place],
             held_key = q.concurrency_key, run_id = (cast({runs} as uuid[]))[c.place], not_before = null, run_task_id = t.id
             from chosen c, tasks t, agents a where q.id = c.id and t.id = c.version and {agent}
             returning {picked}",
             picked = *PICKED,
            lease_seconds = bound.place(&self.taker.lease_seconds),
            lease_expires = bound.place(&self.lease_expires),
            now = bound.place(&self.now),
            agent = self.taker.agent(bound),
            slots = bound.place_param(list(self.taker.slots.iter().flatten())),
            runs = bound.place_param(list(self.runs)),
        )
    }
}

/// An update answers in no order.
fn in_order(mut picked: Vec<Picked>) -> Vec<Picked> {
    picked.sort_by_key(|item| (std::cmp::Reverse(item.priority), item.in_queue_since, item.id));
    picked
}

fn as_number(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}

//! Fast path of `queue take` on PostgreSQL: one autocommitted statement takes the items and inserts their runs,
//! registry entries and events.

use serde_json::{Value, json};
use trackway_domain::{Id, Time, enums::Runner, ids, kind};

use super::{
    NOT_CONCURRENTLY_LOCKED, PickStatement, PickedItem, SqlParams, TakeRequest,
    completion::{completes_item, completes_run, fast_completion_predicate},
    sort_by_queue_order,
};
use crate::{
    error::{Error, Result},
    sql::{Param, list},
    store::Writer,
    table::Table,
    tables::{NewEvent, NewRegistryEntry, Run},
};

/// The rows to insert for each taken item, with all columns that are known in advance.
#[derive(Debug)]
pub struct TakeRows {
    pub runs: Vec<NewRun>,
    pub run: Run,
    pub entry: NewRegistryEntry,
    pub event: NewEvent,
    pub prior_completions: Option<PriorCompletions>,
}

/// Items that the caller holds and completes while it takes the next ones.
#[derive(Debug)]
pub struct PriorCompletions {
    /// The items without duplicates, each with its fence.
    held: Vec<(Id<kind::QueueItem>, i64)>,
    /// `held` as JSON, for statements about several items.
    held_json: Value,
    count: i64,
    event: NewEvent,
}

impl PriorCompletions {
    pub fn new(held: Vec<(Id<kind::QueueItem>, i64)>, event: NewEvent) -> Self {
        let held_json = held.iter().map(|(id, fence)| json!({ "id": id, "fence": fence })).collect();
        let count = i64::try_from(held.len()).unwrap_or(i64::MAX);
        Self { held, held_json: Value::Array(held_json), count, event }
    }

    /// The `with` clauses that complete the items, end their runs and log the events.
    fn with_clauses<'a>(&'a self, sql_params: &mut SqlParams<'a>, now: &str) -> String {
        let (from, which) = match self.held.as_slice() {
            [(id, fence)] => {
                let (id, fence) = (sql_params.bind(id), sql_params.bind(fence));
                (String::new(), format!("d.id = {id} and d.fence = {fence}"))
            }
            _ => {
                let held_json = sql_params.bind(&self.held_json);
                (
                    format!("from jsonb_to_recordset(cast({held_json} as jsonb)) as x (id uuid, fence bigint)"),
                    format!(
                        "d.id = any(array(select cast(i ->> 'id' as uuid) from jsonb_array_elements(cast({held_json} as jsonb)) i))
                         and d.id = x.id and d.fence = x.fence"
                    ),
                )
            }
        };
        let path = item_path("k");
        let event =
            insert_per_item(sql_params, "completed k", &self.event, &[("subject_id", "k.id"), ("subject_path", &path)]);
        format!(
            "completed as (update queue_items d set result = null, {item} {from}
                where d.tenant_id = ?1 and {which} and {predicate} returning d.id, d.run_id),
             ended as (update runs set {run} where tenant_id = ?1 and id = any(array(select run_id from completed)) and (status = 'running') is true),
             told as ({event} returning 1),",
            item = completes_item(now),
            predicate = fast_completion_predicate("d", now, None),
            run = completes_run(now),
        )
    }

    /// SQL expression that yields 1, and divides by zero unless all items were completed and at least one was taken.
    fn verification<'a>(&'a self, sql_params: &mut SqlParams<'a>) -> String {
        let count = sql_params.bind(&self.count);
        format!(
            "1 / ((select count(*) from completed) / cast({count} as bigint) * (select least(count(*), 1) from taken))"
        )
    }
}

/// A run to insert if an item is taken for it.
#[derive(Debug)]
pub struct NewRun {
    id: Id<kind::Run>,
    path: String,
    short_key: i64,
    token_hash: Vec<u8>,
    link_id: Id<kind::Link>,
}

impl NewRun {
    pub fn new(id: Id<kind::Run>, path: &str, token_hash: &[u8], link_id: Id<kind::Link>) -> Self {
        Self {
            id,
            path: path.to_owned(),
            short_key: ids::short_key(id.uuid()),
            token_hash: token_hash.to_owned(),
            link_id,
        }
    }
}

/// The SQL sources of the values of a [`NewRun`].
struct RunSource {
    /// `with` clauses for the tables that the values come from.
    tables: String,
    /// A taken item `k` with the values of its run.
    from_clause: &'static str,
    path: String,
    short_key: String,
    token_hash: String,
    link_id: String,
    /// Clauses that yield one row per task, in the order of the task ids. All transactions lock agent links in this
    /// order, which prevents deadlocks.
    distinct: &'static str,
    order_by: &'static str,
}

impl RunSource {
    /// Passes the values of a single run as parameters, which is cheaper than a table.
    fn one<'a>(run: &'a NewRun, sql_params: &mut SqlParams<'a>) -> Self {
        Self {
            tables: String::new(),
            from_clause: "taken k",
            path: sql_params.bind(&run.path),
            short_key: sql_params.bind(&run.short_key),
            token_hash: sql_params.bind(&run.token_hash),
            link_id: format!("cast({} as uuid)", sql_params.bind(&run.link_id)),
            distinct: "",
            order_by: "",
        }
    }

    fn many<'a>(runs: &'a [NewRun], sql_params: &mut SqlParams<'a>) -> Self {
        let column = |name: &str| format!("n.{name}");
        Self {
            tables: format!(
                "new as (select * from unnest(cast({} as uuid[]), cast({} as text[]), cast({} as bigint[]), cast({} as bytea[]), cast({} as uuid[]))
                 as n (id, path, short_key, token_hash, link_id)),",
                sql_params.bind_param(list(runs.iter().map(|run| &run.id))),
                sql_params.bind_param(list(runs.iter().map(|run| &run.path))),
                sql_params.bind_param(list(runs.iter().map(|run| &run.short_key))),
                sql_params.bind_param(list(runs.iter().map(|run| &run.token_hash))),
                sql_params.bind_param(list(runs.iter().map(|run| &run.link_id))),
            ),
            from_clause: "taken k join new n on n.id = k.run_id",
            path: column("path"),
            short_key: column("short_key"),
            token_hash: column("token_hash"),
            link_id: column("link_id"),
            distinct: "distinct on (k.task_id)",
            order_by: "order by k.task_id",
        }
    }
}

/// The columns of [`PickedItem`], in order.
const PICKED_COLUMN_NAMES: &str =
    "id, run_id, priority, in_queue_since, fence, attempt, task_id, variant, revision, recurring, status, role_id,
    workspace_id, initiated_by, chain_depth, agent_id, agent_role_id, runner, max_steps";

impl Writer<'_> {
    /// In optimistic mode, takes the next items and writes all rows that belong to them in one statement. If it takes
    /// anything, the transaction has committed, and no other statement may follow. If `rows` names items to complete,
    /// the transaction fails unless all of them can be completed and at least one item can be taken. In checked mode it
    /// returns `None`, and the caller uses [`Writer::pick_items`].
    pub fn fast_take<E: From<Error>>(
        &mut self,
        request: &TakeRequest,
        lease_expires: Time,
        rows: impl FnOnce(&mut Self) -> std::result::Result<TakeRows, E>,
    ) -> std::result::Result<Option<Vec<PickedItem>>, E> {
        if !self.mode.optimistic {
            return Ok(None);
        }
        let rows = rows(self)?;
        Ok(Some(self.take_with_rows(request, lease_expires, &rows)?))
    }

    fn take_with_rows(
        &mut self,
        request: &TakeRequest,
        lease_expires: Time,
        rows: &TakeRows,
    ) -> Result<Vec<PickedItem>> {
        let ids: Vec<_> = rows.runs.iter().map(|run| run.id).collect();
        let statement = PickStatement {
            request,
            runs: &ids,
            now: self.now,
            lease_expires,
            extra_condition: NOT_CONCURRENTLY_LOCKED,
        };
        let now = self.now;
        let mut sql_params = SqlParams::default();
        let (chosen, taken) = (statement.selection(&mut sql_params), statement.update(&mut sql_params));
        let source = match rows.runs.as_slice() {
            [run] => RunSource::one(run, &mut sql_params),
            runs => RunSource::many(runs, &mut sql_params),
        };
        let RunSource { tables, from_clause, path, short_key, token_hash, link_id, distinct, order_by } = &source;
        let run = insert_per_item(
            &mut sql_params,
            from_clause,
            &rows.run,
            &[
                ("id", "k.run_id"),
                ("agent_id", "k.agent_id"),
                ("role_id", "coalesce(k.role_id, k.agent_role_id)"),
                ("task_id", "k.task_id"),
                ("task_revision", "k.revision"),
                ("initiated_by", "k.initiated_by"),
                ("cause_id", "k.id"),
                ("chain_depth", "k.chain_depth"),
                ("workspace_id", "k.workspace_id"),
                ("mode", &run_mode("k.runner")),
                ("max_steps", "k.max_steps"),
                ("queue_item_id", "k.id"),
                ("fence", "k.fence"),
                ("token_hash", token_hash),
            ],
        );
        let entry = insert_per_item(
            &mut sql_params,
            from_clause,
            &rows.entry,
            &[("id", "k.run_id"), ("display_path", path), ("short_key", short_key)],
        );
        let now = sql_params.bind(&now);
        let (done, answer, from_after_completions) = match &rows.prior_completions {
            None => (String::new(), "taken".to_owned(), (*from_clause).to_owned()),
            // Log the completions before the takes.
            Some(done) => (
                done.with_clauses(&mut sql_params, &now),
                format!(
                    "(select {} as is_so) c left join taken on true where c.is_so = 1",
                    done.verification(&mut sql_params)
                ),
                format!("{from_clause} cross join (select count(*) from told) o"),
            ),
        };
        let path = item_path("k");
        let event = insert_per_item(
            &mut sql_params,
            &from_after_completions,
            &rows.event,
            &[("subject_id", "k.id"), ("subject_path", &path)],
        );
        let sql = format!(
            "with {done} {chosen},
             {tables} taken ({PICKED_COLUMN_NAMES}) as ({taken}),
             made as ({run}), entered as ({entry}), logged as ({event}),
             linked as (insert into agent_links (tenant_id, id, from_agent_id, to_task_id, link_type, created_at)
                select {distinct} cast(?1 as uuid), {link_id}, k.agent_id, k.task_id, 'agent_task', cast({now} as timestamptz) from {from_clause}
                where not exists (select 1 from agent_links l where l.from_agent_id = k.agent_id and l.to_task_id = k.task_id and l.link_type = 'agent_task')
                {order_by} on conflict (from_agent_id, to_task_id, link_type) do nothing),
             started as (update tasks set status = 'in_progress', status_since = {now}
                where id = any(array(select task_id from taken where not recurring and status in ('open', 'groomed')))
                and not recurring and status in ('open', 'groomed'))
             select {PICKED_COLUMN_NAMES} from {answer}"
        );
        Ok(sort_by_queue_order(self.query_autocommit::<PickedItem>(&sql, &sql_params.0)?))
    }
}

/// SQL expression for the display path of an item.
fn item_path(item: &str) -> String {
    format!("'queue/' || right(cast({item}.id as text), {})", ids::SHORT_DIGITS)
}

/// Builds an insert of one row per taken item. `overrides` maps columns to SQL expressions; all other columns come from
/// `template`.
fn insert_per_item<'a, T: Table>(
    sql_params: &mut SqlParams<'a>,
    from_clause: &str,
    template: &'a T,
    overrides: &[(&str, &str)],
) -> String {
    let (mut columns, mut values) = (Vec::new(), Vec::new());
    for (column, param) in T::COLUMNS.iter().zip(template.params()) {
        match overrides.iter().find(|(name, _)| name == column) {
            Some((_, value)) => values.push((*value).to_owned()),
            None if param == Param::Null => continue,
            None => values.push(sql_params.bind_param(param)),
        }
        columns.push(*column);
    }
    format!("insert into {} ({}) select {} from {from_clause}", T::NAME, columns.join(", "), values.join(", "))
}

/// SQL expression for the mode of a run with the runner in this column.
fn run_mode(runner: &str) -> String {
    let cases: Vec<_> = Runner::ALL.iter().map(|runner| format!("when '{runner}' then '{}'", runner.mode())).collect();
    format!("case {runner} {} end", cases.join(" "))
}

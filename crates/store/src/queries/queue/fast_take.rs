//! Taking by one statement on PostgreSQL: items, their runs, and what the registry and the log say of them, in one round
//! trip that is a transaction by itself.

use serde_json::{Value, json};
use trackway_domain::{Id, Time, ids, kind, words::Runner};

use super::{
    Bound, IS_UNTOUCHED, Picked, Picking, Taker,
    completion::{completes_item, completes_run, fast_completion_predicate},
    in_order,
};
use crate::{
    error::{Error, Result},
    sql::{Param, list},
    store::Writer,
    table::Table,
    tables::{Logged, Registered, Run},
};

/// What is written for each item that is taken: rows that hold all that is known before it is.
#[derive(Debug)]
pub struct TakeRows {
    pub runs: Vec<NewRun>,
    pub run: Run,
    pub entry: Registered,
    pub event: Logged,
    pub done: Option<DoneBefore>,
}

/// Items that the taker held until now, and completes by taking the next.
#[derive(Debug)]
pub struct DoneBefore {
    /// Each once, with its fence.
    held: Vec<(Id<kind::QueueItem>, i64)>,
    /// The same for PostgreSQL to take apart, where there are several.
    listed: Value,
    count: i64,
    event: Logged,
}

impl DoneBefore {
    pub fn new(held: Vec<(Id<kind::QueueItem>, i64)>, event: Logged) -> Self {
        let listed = held.iter().map(|(id, fence)| json!({ "id": id, "fence": fence })).collect();
        let count = i64::try_from(held.len()).unwrap_or(i64::MAX);
        Self { held, listed: Value::Array(listed), count, event }
    }

    /// The parts of a statement that complete them, end their runs and log it.
    fn parts<'a>(&'a self, bound: &mut Bound<'a>, now: &str) -> String {
        let (from, which) = match self.held.as_slice() {
            [(id, fence)] => {
                let (id, fence) = (bound.place(id), bound.place(fence));
                (String::new(), format!("d.id = {id} and d.fence = {fence}"))
            }
            _ => {
                let listed = bound.place(&self.listed);
                (
                    format!("from jsonb_to_recordset(cast({listed} as jsonb)) as x (id uuid, fence bigint)"),
                    format!(
                        "d.id = any(array(select cast(i ->> 'id' as uuid) from jsonb_array_elements(cast({listed} as jsonb)) i))
                         and d.id = x.id and d.fence = x.fence"
                    ),
                )
            }
        };
        let path = path_of_item("k");
        let event = insert_each(bound, "completed k", &self.event, &[("subject_id", "k.id"), ("subject_path", &path)]);
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

    /// Expression that is 1, and divides by zero unless all of them were completed and something was taken.
    fn check<'a>(&'a self, bound: &mut Bound<'a>) -> String {
        let count = bound.place(&self.count);
        format!(
            "1 / ((select count(*) from completed) / cast({count} as bigint) * (select least(count(*), 1) from taken))"
        )
    }
}

/// A run that is made if there is an item for it.
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

/// Where a statement finds what is known of the runs.
struct Source {
    /// The tables it reads them from, each as a part of `with`.
    tables: String,
    /// An item `k` that was taken, with the run that is made for it.
    each: &'static str,
    path: String,
    short_key: String,
    token_hash: String,
    link_id: String,
    /// One of each task, and these in an order that all takers keep: two who link the same tasks do not wait for each other.
    once: &'static str,
    in_turn: &'static str,
}

impl Source {
    /// One run is not put into a table and looked up there.
    fn one<'a>(run: &'a NewRun, bound: &mut Bound<'a>) -> Self {
        Self {
            tables: String::new(),
            each: "taken k",
            path: bound.place(&run.path),
            short_key: bound.place(&run.short_key),
            token_hash: bound.place(&run.token_hash),
            link_id: format!("cast({} as uuid)", bound.place(&run.link_id)),
            once: "",
            in_turn: "",
        }
    }

    fn many<'a>(runs: &'a [NewRun], bound: &mut Bound<'a>) -> Self {
        let column = |name: &str| format!("n.{name}");
        Self {
            tables: format!(
                "new as (select * from unnest(cast({} as uuid[]), cast({} as text[]), cast({} as bigint[]), cast({} as bytea[]), cast({} as uuid[]))
                 as n (id, path, short_key, token_hash, link_id)),",
                bound.place_param(list(runs.iter().map(|run| &run.id))),
                bound.place_param(list(runs.iter().map(|run| &run.path))),
                bound.place_param(list(runs.iter().map(|run| &run.short_key))),
                bound.place_param(list(runs.iter().map(|run| &run.token_hash))),
                bound.place_param(list(runs.iter().map(|run| &run.link_id))),
            ),
            each: "taken k join new n on n.id = k.run_id",
            path: column("path"),
            short_key: column("short_key"),
            token_hash: column("token_hash"),
            link_id: column("link_id"),
            once: "distinct on (k.task_id)",
            in_turn: "order by k.task_id",
        }
    }
}

/// The columns of [`Picked`].
const TAKEN: &str =
    "id, run_id, priority, in_queue_since, fence, attempt, task_id, variant, revision, recurring, status, role_id,
    workspace_id, initiated_by, chain_depth, agent_id, agent_role_id, runner, max_steps";

impl Writer<'_> {
    /// In optimistic mode, takes the next items and writes all rows that belong to that in one statement. If it took something,
    /// it has committed: nothing may come after it. If `rows` holds items to complete first, and one cannot be completed or
    /// nothing can be taken, the transaction fails. Otherwise returns `None`: the caller takes by [`Writer::pick_items`].
    pub fn fast_take<E: From<Error>>(
        &mut self,
        taker: &Taker,
        lease_expires: Time,
        rows: impl FnOnce(&mut Self) -> std::result::Result<TakeRows, E>,
    ) -> std::result::Result<Option<Vec<Picked>>, E> {
        if !self.mode.optimistic {
            return Ok(None);
        }
        let rows = rows(self)?;
        Ok(Some(self.take_with_rows(taker, lease_expires, &rows)?))
    }

    fn take_with_rows(&mut self, taker: &Taker, lease_expires: Time, rows: &TakeRows) -> Result<Vec<Picked>> {
        let ids: Vec<_> = rows.runs.iter().map(|run| run.id).collect();
        let picking = Picking { taker, runs: &ids, now: self.now, lease_expires, also: IS_UNTOUCHED };
        let now = self.now;
        let mut bound = Bound::default();
        let (chosen, taken) = (picking.chosen(&mut bound), picking.taken(&mut bound));
        let source = match rows.runs.as_slice() {
            [run] => Source::one(run, &mut bound),
            runs => Source::many(runs, &mut bound),
        };
        let Source { tables, each, path, short_key, token_hash, link_id, once, in_turn } = &source;
        let run = insert_each(
            &mut bound,
            each,
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
                ("mode", &mode_of("k.runner")),
                ("max_steps", "k.max_steps"),
                ("queue_item_id", "k.id"),
                ("fence", "k.fence"),
                ("token_hash", token_hash),
            ],
        );
        let entry = insert_each(
            &mut bound,
            each,
            &rows.entry,
            &[("id", "k.run_id"), ("display_path", path), ("short_key", short_key)],
        );
        let now = bound.place(&now);
        let (done, answer, each_after) = match &rows.done {
            None => (String::new(), "taken".to_owned(), (*each).to_owned()),
            // What was completed is logged before what is taken.
            Some(done) => (
                done.parts(&mut bound, &now),
                format!("(select {} as is_so) c left join taken on true where c.is_so = 1", done.check(&mut bound)),
                format!("{each} cross join (select count(*) from told) o"),
            ),
        };
        let path = path_of_item("k");
        let event =
            insert_each(&mut bound, &each_after, &rows.event, &[("subject_id", "k.id"), ("subject_path", &path)]);
        let sql = format!(
            "with {done} {chosen},
             {tables} taken ({TAKEN}) as ({taken}),
             made as ({run}), entered as ({entry}), logged as ({event}),
             linked as (insert into agent_links (tenant_id, id, from_agent_id, to_task_id, link_type, created_at)
                select {once} cast(?1 as uuid), {link_id}, k.agent_id, k.task_id, 'agent_task', cast({now} as timestamptz) from {each}
                where not exists (select 1 from agent_links l where l.from_agent_id = k.agent_id and l.to_task_id = k.task_id and l.link_type = 'agent_task')
                {in_turn} on conflict (from_agent_id, to_task_id, link_type) do nothing),
             started as (update tasks set status = 'in_progress', status_since = {now}
                where id = any(array(select task_id from taken where not recurring and status in ('open', 'groomed')))
                and not recurring and status in ('open', 'groomed'))
             select {TAKEN} from {answer}"
        );
        Ok(in_order(self.query_at_once::<Picked>(&sql, &bound.0)?))
    }
}

/// The display path of an item.
fn path_of_item(item: &str) -> String {
    format!("'queue/' || right(cast({item}.id as text), {})", ids::SHORT_DIGITS)
}

/// Inserts a row for each item that is taken: what is said of it, the rest as it stands in the row that is given.
fn insert_each<'a, T: Table>(bound: &mut Bound<'a>, each: &str, like: &'a T, said: &[(&str, &str)]) -> String {
    let (mut columns, mut values) = (Vec::new(), Vec::new());
    for (column, param) in T::COLUMNS.iter().zip(like.params()) {
        match said.iter().find(|(name, _)| name == column) {
            Some((_, value)) => values.push((*value).to_owned()),
            None if param == Param::Null => continue,
            None => values.push(bound.place_param(param)),
        }
        columns.push(*column);
    }
    format!("insert into {} ({}) select {} from {each}", T::NAME, columns.join(", "), values.join(", "))
}

/// The mode of a run by whoever is driven by what a column says.
fn mode_of(runner: &str) -> String {
    let cases: Vec<_> = Runner::ALL.iter().map(|runner| format!("when '{runner}' then '{}'", runner.mode())).collect();
    format!("case {runner} {} end", cases.join(" "))
}

//! Completion of queue items. The fast path handles most items: it completes an item with one statement, if nothing but
//! its run depends on the item.

use std::{collections::HashSet, sync::LazyLock};

use serde_json::{Value, json};
use trackway_domain::{Id, kind};
use uuid::Uuid;

use crate::{
    connection::Engine,
    error::{Error, Result},
    params,
    store::Writer,
};

/// The outcome of the fast path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FastCompletion {
    /// The item and its run are completed. In optimistic mode the commit verifies this.
    WithRun,
    /// The item is completed. The caller has to end its run.
    WithoutRun(Id<kind::Run>),
    /// The item does not qualify for the fast path. Nothing was changed.
    NotEligible,
}

/// The result of an item, with the fence that its holder received.
#[derive(Debug)]
pub struct ItemResult {
    pub id: Uuid,
    pub fence: i64,
    pub result: Option<Value>,
}

/// SQL condition for the fast path: completing the item changes no other row than its run. So the item must hold no
/// concurrency key, and the version that was run and the current version must both keep their status. `item` is the
/// alias of the item's table; `now` and `run` are placeholders. `run` is the acting run, which may only complete its
/// own item.
pub(super) fn fast_completion_predicate(item: &str, now: &str, run: Option<&str>) -> String {
    let own = run.map_or_else(String::new, |run| format!(" and (cast({run} as uuid) is null or run_id = {run})"));
    // `is true` makes PostgreSQL look up the item by its id. It would otherwise scan all running items or all items of
    // the tenant if it expects them to be few.
    format!(
        "({item}.status = 'running') is true and ({item}.lease_expires > {now}) is true and {item}.held_key is null{own}
         and exists (select 1 from tasks t where t.id = {item}.run_task_id
             and (t.recurring or (t.status not in ('in_progress', 'open', 'groomed', 'blocked') and (t.current_id = t.id or {item}.exact))))"
    )
}

/// SQL assignments that complete an item, except for its result.
pub(super) fn completes_item(now: &str) -> String {
    format!("status = 'completed', error = null, finished_at = {now}, slot = null, lease_expires = null")
}

/// SQL assignments that complete the run of an item.
pub(super) fn completes_run(now: &str) -> String {
    format!(
        "status = 'completed', outcome = 'completed', final_message = null, error = null, ended_at = {now}, token_hash = null"
    )
}

/// Completes one item: `?3` is its fence, `?4` its result, `?5` the time, `?6` the acting run.
static ITEM: LazyLock<String> = LazyLock::new(|| {
    format!(
        "update queue_items set result = ?4, {} where tenant_id = ?1 and id = ?2 and fence = ?3 and {}",
        completes_item("?5"),
        fast_completion_predicate("queue_items", "?5", Some("?6"))
    )
});

impl Writer<'_> {
    /// Completes an item with one statement, if it qualifies for the fast path. In optimistic mode the statement is
    /// sent without waiting for its result, and fails the transaction if the item does not qualify.
    pub fn complete_item(
        &mut self,
        id: Id<kind::QueueItem>,
        fence: i64,
        result: Option<&Value>,
        acting: Option<Id<kind::Run>>,
    ) -> Result<FastCompletion> {
        static ITEM_AND_RUN: LazyLock<String> = LazyLock::new(|| format!("{} returning run_id", *ITEM));
        static RUN: LazyLock<String> = LazyLock::new(|| {
            format!(
                "update runs set {} where tenant_id = ?1 and id = (select run_id from queue_items where tenant_id = ?1 and id = ?2) and status = 'running'",
                completes_run("?3")
            )
        });
        let now = self.now;
        if self.mode.optimistic {
            self.post_requiring_change(ITEM.as_str(), params![id, fence, result, now, acting])?;
            self.post_independent(RUN.as_str(), params![id, now])?;
            return Ok(FastCompletion::WithRun);
        }
        let done = self.one::<(Option<Id<kind::Run>>,)>(&ITEM_AND_RUN, params![id, fence, result, now, acting])?;
        Ok(done.and_then(|(run,)| run).map_or(FastCompletion::NotEligible, FastCompletion::WithoutRun))
    }

    /// Completes all items that qualify for the fast path, with their runs, if one statement for all of them saves
    /// round trips. Otherwise it changes nothing. Returns the ids of the completed items.
    pub fn complete_items<E: From<Error>>(
        &mut self,
        count: usize,
        results: impl FnOnce() -> std::result::Result<Vec<ItemResult>, E>,
        acting: Option<Id<kind::Run>>,
    ) -> std::result::Result<HashSet<Uuid>, E> {
        static ITEMS: LazyLock<String> = LazyLock::new(|| {
            format!(
                "update queue_items q set result = case when x.said then coalesce(x.result, 'null') end, {}
                 from jsonb_to_recordset(cast(?2 as jsonb)) as x (id uuid, fence bigint, result jsonb, said boolean)
                 where q.tenant_id = ?1 and q.id = any(array(select cast(i ->> 'id' as uuid) from jsonb_array_elements(cast(?2 as jsonb)) i))
                 and q.id = x.id and q.fence = x.fence and {} returning q.id, q.run_id",
                completes_item("?3"),
                fast_completion_predicate("q", "?3", Some("?4"))
            )
        });
        static RUNS: LazyLock<String> = LazyLock::new(|| {
            format!(
                "update runs set {} where tenant_id = ?1 and id = any(array(select cast(i as uuid) from jsonb_array_elements_text(cast(?2 as jsonb)) i))
                 and (status = 'running') is true",
                completes_run("?3")
            )
        });
        if self.engine() == Engine::Sqlite || count < 2 {
            return Ok(HashSet::new());
        }
        let now = self.now;
        let item = |ItemResult { id, fence, result }: ItemResult| json!({ "id": id, "fence": fence, "result": result, "said": result.is_some() });
        let items = results()?.into_iter().map(item).collect();
        let done = self.query::<(Uuid, Option<Uuid>)>(&ITEMS, params![Value::Array(items), now, acting])?;
        let runs: Vec<Uuid> = done.iter().filter_map(|(_, run)| *run).collect();
        self.post_independent(RUNS.as_str(), params![json!(runs), now])?;
        Ok(done.into_iter().map(|(id, _)| id).collect())
    }
}

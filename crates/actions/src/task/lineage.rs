//! Maintains the derived columns of a lineage (`current_id`, `replaced`, `generation`, `open_blockers`), and blocks its
//! queue items while no version is live.
//!
//! Every action that replaces, archives, deletes, links, pins or finishes a task calls one of these functions while it
//! holds the catalog lock.

use std::collections::{BTreeMap, HashMap};

use trackway_domain::{
    Id, Time,
    enums::ItemStatus,
    kind,
    replacement_graph::{self, Replacement, Version, current_versions, generations},
};
use trackway_store::{
    Writer, params,
    queue::version_of_item,
    row,
    sql::{Param, ToParam},
    tables::{QueueItem, Task},
};
use uuid::Uuid;

use crate::error::Result;

/// Maximum number of rows that one statement updates.
const CHUNK: usize = 500;

/// Beginning of the reason for blocking an item whose task has no live version.
const NO_LIVE_VERSION: &str = "no live version of ";

/// The reason for blocking an item of this task.
pub(crate) fn no_live_version_reason(variant: &str, exact: bool) -> String {
    let why = if exact {
        "this exact version was requested, and it is archived or deleted"
    } else {
        "it is archived or deleted, and no live version replaces it"
    };
    format!("{NO_LIVE_VERSION}{variant}: {why}")
}

/// True if the `why` of an item begins with the reason that no version is live.
pub(crate) fn is_no_live_version_reason(why: &str) -> bool {
    why.starts_with(NO_LIVE_VERSION)
}

row! {
    /// A version of a task, as stored in the database.
    pub struct StoredVersion {
        id: Id<kind::Task>,
        live: bool,
        replaced: bool,
        current_id: Option<Id<kind::Task>>,
        generation: i64,
    }
}

/// The current version as seen from a task, whether the task is replaced, and its generation.
type DerivedColumns = (Option<Id<kind::Task>>, bool, i64);

/// Updates everything that depends on the replacements of a lineage and on its live versions.
pub(crate) fn refresh_versions(write: &mut Writer<'_>, lineage: Uuid) -> Result<()> {
    let stored = write.query::<StoredVersion>(
        "select id, deleted_at is null and not archived, replaced, current_id, generation from tasks where tenant_id = ?1 and lineage_id = ?2",
        params![lineage],
    )?;
    let edges = write.query::<(Id<kind::Task>, Id<kind::Task>, Time)>(
        "select e.new_task_id, e.old_task_id, e.created_at from tasks t join task_replaces e on e.new_task_id = t.id
         where t.tenant_id = ?1 and t.lineage_id = ?2",
        params![lineage],
    )?;
    let replacements: Vec<Replacement> =
        edges.into_iter().map(|(new, old, created_at)| Replacement { new, old, created_at }).collect();
    let versions: Vec<Version> = stored.iter().map(|task| Version { id: task.id, is_live: task.live }).collect();
    let current = current_versions(&versions, &replacements);
    let generations = generations(&versions, &replacements);
    let mut changed: HashMap<DerivedColumns, Vec<Id<kind::Task>>> = HashMap::new();
    for task in stored {
        let current_id = current.get(&task.id).copied();
        let replaced = current_id.is_some_and(|current| current != task.id);
        let generation = generations.get(&task.id).copied().unwrap_or_default();
        if (current_id, replaced, generation) != (task.current_id, task.replaced, task.generation) {
            changed.entry((current_id, replaced, generation)).or_default().push(task.id);
        }
    }
    for ((current_id, replaced, generation), tasks) in &changed {
        for tasks in tasks.chunks(CHUNK) {
            let mut bound = params![current_id, replaced, generation].to_vec();
            let placeholders = bind_list(&mut bound, tasks);
            write.post(
                &format!(
                    "update tasks set current_id = ?2, replaced = ?3, generation = ?4 where tenant_id = ?1 and id in ({placeholders})"
                ),
                &bound,
            )?;
        }
    }
    recount_blockers_where(write, THIS_LINEAGE, lineage)?;
    recount_blockers_of_blocked_lineages(write, lineage)?;
    refresh_items(write, lineage)
}

/// Binds further values, and returns their placeholders, separated by commas. `?1` is the tenant and is not in `bound`.
fn bind_list<'a, T: ToParam>(bound: &mut Vec<Param<'a>>, values: &'a [T]) -> String {
    let first = bound.len() + 2;
    bound.extend(values.iter().map(ToParam::to_param));
    (first..first + values.len()).map(|number| format!("?{number}")).collect::<Vec<_>>().join(", ")
}

/// Selects the lineage `?2` itself.
const THIS_LINEAGE: &str = "select distinct lineage_id from tasks where tenant_id = ?1 and lineage_id = ?2";

/// Selects the lineages that the lineage `?2` blocks.
const BLOCKED_LINEAGES: &str = "select distinct t.lineage_id from tasks f cross join task_links l cross join tasks t
    where f.tenant_id = ?1 and f.lineage_id = ?2 and l.from_task_id = f.id and l.link_type = 'blocks' and l.deleted_at is null
    and t.id = l.to_task_id";

/// Counts the open blockers of all lineages that this lineage blocks. Call it after the status or the current version
/// of a task in this lineage changed.
pub(crate) fn recount_blockers_of_blocked_lineages(write: &mut Writer<'_>, lineage: Uuid) -> Result<()> {
    recount_blockers_where(write, BLOCKED_LINEAGES, lineage)
}

/// Counts the open blockers of a lineage. Call it after a `blocks` link to the lineage was added or removed.
pub(crate) fn recount_blockers(write: &mut Writer<'_>, lineage: Uuid) -> Result<()> {
    recount_blockers_where(write, THIS_LINEAGE, lineage)
}

/// Counts the open blockers of the lineages that `targets` selects. A link counts if the current version of the linked
/// blocker is neither done nor rejected. A link inside one lineage does not count.
fn recount_blockers_where(write: &mut Writer<'_>, targets: &str, lineage: Uuid) -> Result<()> {
    let counts = write.query::<(Uuid, i64)>(
        &format!(
            "with targets (lineage_id) as ({targets})
             select g.lineage_id, (select count(*) from tasks v cross join task_links l cross join tasks f cross join tasks c
                where v.tenant_id = ?1 and v.lineage_id = g.lineage_id and l.to_task_id = v.id and l.link_type = 'blocks' and l.deleted_at is null
                and f.id = l.from_task_id and f.lineage_id <> g.lineage_id and c.id = f.current_id and c.status not in ('done', 'rejected'))
             from targets g"
        ),
        params![lineage],
    )?;
    let mut by_count: BTreeMap<i64, Vec<Uuid>> = BTreeMap::new();
    for (lineage, count) in counts {
        by_count.entry(count).or_default().push(lineage);
    }
    for (count, lineages) in &by_count {
        for lineages in lineages.chunks(CHUNK) {
            let mut bound = params![count].to_vec();
            let placeholders = bind_list(&mut bound, lineages);
            write.post(
                &format!(
                    "update tasks set open_blockers = ?2 where tenant_id = ?1 and lineage_id in ({placeholders}) and open_blockers <> ?2"
                ),
                &bound,
            )?;
        }
    }
    Ok(())
}

/// Blocks the queue items of a lineage that have no live version to run, and unblocks those that have one again.
///
/// Transactions that add queue items hold a shared lock on the live versions (see
/// [`Writer::lock_live_versions_shared`]), so this transaction sees all their items. It waits for items that another
/// transaction has locked. If that transaction waits for a task that this one changed, PostgreSQL detects the deadlock
/// and aborts one of the two, which is then retried.
pub(crate) fn refresh_items(write: &mut Writer<'_>, lineage: Uuid) -> Result<()> {
    write.lock_live_versions()?;
    let version = version_of_item("queue_items");
    let lock_clause = write.for_update();
    // With `is true`, the database finds the items by their tasks instead of scanning all items of a status.
    let of_lineage = write
        .engine()
        .is_one_of("queue_items.task_id", "select id from tasks where tenant_id = ?1 and lineage_id = ?2")
        + " and finished_at is null";
    let items_to_block = write.query::<(Id<kind::QueueItem>, String, bool)>(
        &format!(
            "select queue_items.id, (select t.variant from tasks t where t.id = queue_items.task_id), queue_items.exact from queue_items
             where queue_items.tenant_id = ?1 and {of_lineage} and (status in ('ready', 'waiting')) is true and {version} is null{lock_clause}"
        ),
        params![lineage],
    )?;
    for (item, variant, exact) in items_to_block {
        write.post(
            "update queue_items set status = 'blocked', held_key = null, why = case when why is null then ?3 else ?3 || ?4 || why end
             where tenant_id = ?1 and id = ?2 and status in ('ready', 'waiting')",
            params![item, no_live_version_reason(&variant, exact), "\n"],
        )?;
        // Other items may have waited for this item's concurrency key.
        write.notify_workers_on_commit();
    }
    let items_to_unblock = write.rows::<QueueItem>(
        &format!(
            "where queue_items.tenant_id = ?1 and {of_lineage} and (status = 'blocked') is true and why like ?3 and {version} is not null{lock_clause}"
        ),
        params![lineage, format!("{NO_LIVE_VERSION}%")],
    )?;
    for item in items_to_unblock {
        let is_due = item.not_before.is_none_or(|time| time <= write.now);
        let status = if is_due { ItemStatus::Ready } else { ItemStatus::Waiting };
        write.post(
            "update queue_items set status = ?3, why = ?4 where tenant_id = ?1 and id = ?2 and status = 'blocked'",
            params![item.id, status, without_block_reason(item.why.as_deref())],
        )?;
        write.notify_workers_on_commit();
    }
    Ok(())
}

/// Puts the reason for blocking an item before the requester's `why`.
pub(crate) fn with_block_reason(reason: &str, why: Option<&str>) -> String {
    why.map_or_else(|| reason.to_owned(), |why| format!("{reason}\n{why}"))
}

/// The requester's `why` of a blocked item: everything after the first line, which is the reason for blocking the item.
pub(crate) fn without_block_reason(why: Option<&str>) -> Option<String> {
    why.and_then(|why| Some(why.split_once('\n')?.1.to_owned()))
}

/// A link of type `blocks` between two lineages.
#[derive(Debug, Clone)]
struct Edge {
    from: Uuid,
    to: Uuid,
    from_variant: String,
    to_variant: String,
}

/// The `blocks` links that are reachable from the lineages `starts`. Links of a lineage whose versions are all deleted
/// are not followed, because such a lineage blocks nothing. Archived versions count, because they can be restored.
///
/// The joins are cross joins because SQLite executes them in the written order. With other joins, it scans all tasks
/// and builds an index of all links.
fn links_from(write: &mut Writer<'_>, starts: &[Uuid]) -> Result<Vec<Edge>> {
    let mut bound = Vec::new();
    let placeholders = bind_list(&mut bound, starts);
    let edges = write.query::<(Uuid, Uuid, String, String)>(
        &format!(
            "with recursive onward (from_id, to_id) as (
                 select l.from_task_id, l.to_task_id from tasks f cross join task_links l
                 where f.tenant_id = ?1 and f.lineage_id in ({placeholders}) and l.from_task_id = f.id and l.link_type = 'blocks' and l.deleted_at is null
                 union
                 select l.from_task_id, l.to_task_id from onward o cross join tasks t cross join tasks f cross join task_links l
                 where t.id = o.to_id and f.tenant_id = ?1 and f.lineage_id = t.lineage_id
                 and l.from_task_id = f.id and l.link_type = 'blocks' and l.deleted_at is null
                 and exists (select 1 from tasks x where x.tenant_id = ?1 and x.lineage_id = t.lineage_id and x.deleted_at is null)
             ) select f.lineage_id, t.lineage_id, f.variant, t.variant from onward o cross join tasks f cross join tasks t
             where f.id = o.from_id and t.id = o.to_id"
        ),
        &bound,
    )?;
    Ok(edges
        .into_iter()
        .map(|(from, to, from_variant, to_variant)| Edge { from, to, from_variant, to_variant })
        .collect())
}

/// The links along the shortest path from one lineage to another.
fn shortest_path(edges: &[Edge], from: Uuid, to: Uuid) -> Option<Vec<&Edge>> {
    let pairs: Vec<(Uuid, Uuid)> = edges.iter().map(|edge| (edge.from, edge.to)).collect();
    let path = replacement_graph::shortest_path(&pairs, from, to)?;
    path.windows(2).map(|pair| edges.iter().find(|edge| [edge.from, edge.to] == *pair)).collect()
}

/// Rejects a link that would make lineages block each other in a cycle.
pub(crate) fn refuse_blocking_cycle(write: &mut Writer<'_>, from: &Task, to: &Task) -> Result<()> {
    if from.lineage_id == to.lineage_id {
        return Ok(());
    }
    let edges = links_from(write, &[to.lineage_id])?;
    let Some(path_back) = shortest_path(&edges, to.lineage_id, from.lineage_id) else {
        return Ok(());
    };
    let mut names = vec![from.variant.to_string()];
    names.extend(path_back.iter().map(|edge| edge.from_variant.clone()));
    names.extend(path_back.last().map(|edge| edge.to_variant.clone()));
    Err(replacement_graph::cycle_error("blocks", &names).into())
}

/// Rejects a replacement that joins two lineages if one of them blocks the other through a third lineage.
pub(crate) fn refuse_joining_cycle(write: &mut Writer<'_>, new: &Task, old: &Task) -> Result<()> {
    let joined = [new.lineage_id, old.lineage_id];
    let edges = links_from(write, &joined)?;
    // Links between the two lineages become links inside one lineage, which never block.
    let edges: Vec<Edge> =
        edges.into_iter().filter(|edge| !(joined.contains(&edge.from) && joined.contains(&edge.to))).collect();
    let merged_id = |lineage: Uuid| if joined.contains(&lineage) { new.lineage_id } else { lineage };
    let merged: Vec<Edge> =
        edges.into_iter().map(|edge| Edge { from: merged_id(edge.from), to: merged_id(edge.to), ..edge }).collect();
    for first in merged.iter().filter(|edge| edge.from == new.lineage_id) {
        if let Some(path_back) = shortest_path(&merged, first.to, new.lineage_id) {
            let mut names = vec![first.from_variant.clone()];
            names.extend(path_back.iter().map(|edge| edge.from_variant.clone()));
            names.extend(path_back.last().map(|edge| edge.to_variant.clone()));
            return Err(replacement_graph::merge_cycle_error(&names, new.variant.as_str(), old.variant.as_str()).into());
        }
    }
    Ok(())
}

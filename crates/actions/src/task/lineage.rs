//! Maintains the derived columns of a lineage (`current_id`, `replaced`, `generation`, `open_blockers`), and blocks its queue items while no
//! version is live.
//!
//! Every action that changes replacements, archives, deletes, links, pins or finishes a task calls one of these functions, under
//! the catalog lock.

use std::collections::{BTreeMap, HashMap};

use trackway_domain::{
    Id, Time, kind,
    replacement_graph::{self, Replacement, Version, current_versions, generations},
    words::ItemStatus,
};
use trackway_store::{
    Writer, params,
    queue::version_of,
    row,
    sql::{Param, ToParam},
    tables::{QueueItem, Task},
};
use uuid::Uuid;

use crate::error::Result;

/// Rows that one statement updates.
const CHUNK: usize = 500;

/// How the reason begins for which an item without a live version is blocked.
const NO_LIVE_VERSION: &str = "no live version of ";

/// The reason for which an item of this task is blocked.
pub(crate) fn no_live_version(variant: &str, exact: bool) -> String {
    let why = if exact {
        "exactly this version is wanted, and it is archived or deleted"
    } else {
        "every version is archived or deleted"
    };
    format!("{NO_LIVE_VERSION}{variant}: {why}")
}

/// Whether the `why` of an item begins with that reason.
pub(crate) fn names_no_live_version(why: &str) -> bool {
    why.starts_with(NO_LIVE_VERSION)
}

row! {
    /// A version as it is stored.
    pub struct Stored {
        id: Id<kind::Task>,
        live: bool,
        replaced: bool,
        current_id: Option<Id<kind::Task>>,
        generation: i64,
    }
}

/// The current version as seen from a task, whether the task is replaced, and its generation.
type Derived = (Option<Id<kind::Task>>, bool, i64);

/// Brings up to date what depends on the replacements of a lineage and on which of its versions are live.
pub(crate) fn refresh_versions(write: &mut Writer<'_>, lineage: Uuid) -> Result<()> {
    let stored = write.query::<Stored>(
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
    let versions: Vec<Version> = stored.iter().map(|task| Version { id: task.id, live: task.live }).collect();
    let current = current_versions(&versions, &replacements);
    let generations = generations(&versions, &replacements);
    let mut changed: HashMap<Derived, Vec<Id<kind::Task>>> = HashMap::new();
    for task in stored {
        let now = current.get(&task.id).copied();
        let replaced = now.is_some_and(|now| now != task.id);
        let generation = generations.get(&task.id).copied().unwrap_or_default();
        if (now, replaced, generation) != (task.current_id, task.replaced, task.generation) {
            changed.entry((now, replaced, generation)).or_default().push(task.id);
        }
    }
    for ((now, replaced, generation), tasks) in &changed {
        for tasks in tasks.chunks(CHUNK) {
            let mut bound = params![now, replaced, generation].to_vec();
            let places = places_of(&mut bound, tasks);
            write.post(
                &format!(
                    "update tasks set current_id = ?2, replaced = ?3, generation = ?4 where tenant_id = ?1 and id in ({places})"
                ),
                &bound,
            )?;
        }
    }
    refresh_blockers(write, OWN, lineage)?;
    refresh_blocked(write, lineage)?;
    refresh_items(write, lineage)
}

/// The places of further values in a text whose first values are bound already. The tenant is `?1`.
fn places_of<'a, T: ToParam>(bound: &mut Vec<Param<'a>>, values: &'a [T]) -> String {
    let first = bound.len() + 2;
    bound.extend(values.iter().map(ToParam::to_param));
    (first..first + values.len()).map(|place| format!("?{place}")).collect::<Vec<_>>().join(", ")
}

/// The lineage `?2` itself.
const OWN: &str = "select distinct lineage_id from tasks where tenant_id = ?1 and lineage_id = ?2";

/// The lineages that the lineage `?2` blocks.
const BLOCKED: &str = "select distinct t.lineage_id from tasks f cross join task_links l cross join tasks t
    where f.tenant_id = ?1 and f.lineage_id = ?2 and l.from_task_id = f.id and l.link_type = 'blocks' and l.deleted_at is null
    and t.id = l.to_task_id";

/// Counts the open blockers of the lineages that a lineage blocks: one of its versions is done, open again, or current now.
pub(crate) fn refresh_blocked(write: &mut Writer<'_>, lineage: Uuid) -> Result<()> {
    refresh_blockers(write, BLOCKED, lineage)
}

/// Counts the open blockers of a lineage, after a link to it came or went.
pub(crate) fn refresh_blockers_of(write: &mut Writer<'_>, lineage: Uuid) -> Result<()> {
    refresh_blockers(write, OWN, lineage)
}

/// A link counts while the current version of its blocker, as seen from the version that the link names, is open. A link inside
/// one lineage does not count.
fn refresh_blockers(write: &mut Writer<'_>, targets: &str, lineage: Uuid) -> Result<()> {
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
            let places = places_of(&mut bound, lineages);
            write.post(
                &format!(
                    "update tasks set open_blockers = ?2 where tenant_id = ?1 and lineage_id in ({places}) and open_blockers <> ?2"
                ),
                &bound,
            )?;
        }
    }
    Ok(())
}

/// Blocks the queue items of a lineage that have no live version to run, and makes those ready that have one again.
///
/// Transactions that queue items hold the live versions (see [`Writer::share_live_versions`]), so none slips in unseen. An item
/// that another transaction holds is waited for. If that transaction waits for a task that this one changed, PostgreSQL ends one
/// of the two, and that one is tried again.
pub(crate) fn refresh_items(write: &mut Writer<'_>, lineage: Uuid) -> Result<()> {
    write.lock_live_versions()?;
    let version = version_of("queue_items");
    let held = write.for_update();
    // `is true`: items are found by their tasks, not by a walk along all items of a status.
    let of_lineage = write
        .engine()
        .is_one_of("queue_items.task_id", "select id from tasks where tenant_id = ?1 and lineage_id = ?2")
        + " and finished_at is null";
    let stranded = write.query::<(Id<kind::QueueItem>, String, bool)>(
        &format!(
            "select queue_items.id, (select t.variant from tasks t where t.id = queue_items.task_id), queue_items.exact from queue_items
             where queue_items.tenant_id = ?1 and {of_lineage} and (status in ('ready', 'waiting')) is true and {version} is null{held}"
        ),
        params![lineage],
    )?;
    for (item, variant, exact) in stranded {
        write.post(
            "update queue_items set status = 'blocked', held_key = null, why = case when why is null then ?3 else ?3 || ?4 || why end
             where tenant_id = ?1 and id = ?2 and status in ('ready', 'waiting')",
            params![item, no_live_version(&variant, exact), "\n"],
        )?;
        // Items behind it may have waited for its key.
        write.ring();
    }
    let freed = write.rows::<QueueItem>(
        &format!(
            "where queue_items.tenant_id = ?1 and {of_lineage} and (status = 'blocked') is true and why like ?3 and {version} is not null{held}"
        ),
        params![lineage, format!("{NO_LIVE_VERSION}%")],
    )?;
    for item in freed {
        let is_due = item.not_before.is_none_or(|time| time <= write.now);
        let status = if is_due { ItemStatus::Ready } else { ItemStatus::Waiting };
        write.post(
            "update queue_items set status = ?3, why = ?4 where tenant_id = ?1 and id = ?2 and status = 'blocked'",
            params![item.id, status, without_block_reason(item.why.as_deref())],
        )?;
        write.ring();
    }
    Ok(())
}

/// Prefixes the reason for the block to the requester's `why`.
pub(crate) fn with_block_reason(reason: &str, asked: Option<&str>) -> String {
    asked.map_or_else(|| reason.to_owned(), |asked| format!("{reason}\n{asked}"))
}

/// Why an item was asked for. While it is blocked, the first line says why it is blocked.
pub(crate) fn without_block_reason(why: Option<&str>) -> Option<String> {
    why.and_then(|why| Some(why.split_once('\n')?.1.to_owned()))
}

/// A link of type `blocks`, between lineages.
#[derive(Debug, Clone)]
struct Edge {
    from: Uuid,
    to: Uuid,
    from_variant: String,
    to_variant: String,
}

/// The links that can be followed onward from the lineages `starts`. A lineage whose versions are all deleted blocks nothing any
/// more, and is not followed; one whose versions are archived can come back.
///
/// SQLite reads cross joins in the order they are written in. Otherwise it scans all tasks and builds an index of all links.
fn onward(write: &mut Writer<'_>, starts: &[Uuid]) -> Result<Vec<Edge>> {
    let mut bound = Vec::new();
    let places = places_of(&mut bound, starts);
    let edges = write.query::<(Uuid, Uuid, String, String)>(
        &format!(
            "with recursive onward (from_id, to_id) as (
                 select l.from_task_id, l.to_task_id from tasks f cross join task_links l
                 where f.tenant_id = ?1 and f.lineage_id in ({places}) and l.from_task_id = f.id and l.link_type = 'blocks' and l.deleted_at is null
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

/// The variants along the shortest way from one lineage to another, without the last.
fn way(edges: &[Edge], from: Uuid, to: Uuid) -> Option<Vec<&Edge>> {
    let pairs: Vec<(Uuid, Uuid)> = edges.iter().map(|edge| (edge.from, edge.to)).collect();
    let path = replacement_graph::path(&pairs, from, to)?;
    path.windows(2).map(|pair| edges.iter().find(|edge| [edge.from, edge.to] == *pair)).collect()
}

/// Refuses a link by which lineages would block each other in a circle.
pub(crate) fn refuse_blocking_cycle(write: &mut Writer<'_>, from: &Task, to: &Task) -> Result<()> {
    if from.lineage_id == to.lineage_id {
        return Ok(());
    }
    let edges = onward(write, &[to.lineage_id])?;
    let Some(back) = way(&edges, to.lineage_id, from.lineage_id) else {
        return Ok(());
    };
    let mut names = vec![from.variant.to_string()];
    names.extend(back.iter().map(|edge| edge.from_variant.clone()));
    names.extend(back.last().map(|edge| edge.to_variant.clone()));
    Err(replacement_graph::cycle("blocks", &names).into())
}

/// Refuses a replacement that joins two lineages of which one blocks the other through a third.
pub(crate) fn refuse_joining_cycle(write: &mut Writer<'_>, new: &Task, old: &Task) -> Result<()> {
    let joined = [new.lineage_id, old.lineage_id];
    let edges = onward(write, &joined)?;
    // Links between the two are links inside one lineage from now on, which never block.
    let edges: Vec<Edge> =
        edges.into_iter().filter(|edge| !(joined.contains(&edge.from) && joined.contains(&edge.to))).collect();
    let one = |lineage: Uuid| if joined.contains(&lineage) { new.lineage_id } else { lineage };
    let merged: Vec<Edge> =
        edges.into_iter().map(|edge| Edge { from: one(edge.from), to: one(edge.to), ..edge }).collect();
    for first in merged.iter().filter(|edge| edge.from == new.lineage_id) {
        if let Some(back) = way(&merged, first.to, new.lineage_id) {
            let mut names = vec![first.from_variant.clone()];
            names.extend(back.iter().map(|edge| edge.from_variant.clone()));
            names.extend(back.last().map(|edge| edge.to_variant.clone()));
            return Err(replacement_graph::joining_cycle(&names, new.variant.as_str(), old.variant.as_str()).into());
        }
    }
    Ok(())
}

//! The caller's identity, run, task, scratchpad and ready queue items, for `whoami`.

use serde::Serialize;
use serde_json::Value;
use trackway_domain::{
    Id, Time, Variant, capability,
    enums::{ActorKind, ItemStatus, Priority, RunStatus, Runner, TaskStatus},
    kind,
    wake_document::LinkedTasks,
};
use trackway_store::{
    Reader, Result,
    display::AgentRow,
    params,
    queue::version_of_item,
    row,
    tables::{Person, Scratchpad, Studio},
};
use uuid::Uuid;

const RECENT_RUNS_MAX: i64 = 5;
const WAITING_ITEMS_MAX: i64 = 10;

/// The authenticated caller.
#[derive(Debug, Clone, Copy)]
pub struct CallerIdentity<'a> {
    pub kind: ActorKind,
    pub id: Uuid,
    pub run: Option<Id<kind::Run>>,
    /// The handle of a person without a database row. The first write creates the row.
    pub unregistered_handle: Option<&'a str>,
}

/// The result of `whoami`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Whoami {
    pub actor: ActorDetails,
    pub run: Option<CurrentRun>,
    pub task: Option<CurrentTask>,
    /// The scratchpad of an agent, empty before the first write. `None` for a person.
    pub scratchpad: Option<String>,
    pub scratchpad_revision: Option<i64>,
    /// The tasks linked to the current task, in the format of the wake context.
    pub linked: Option<LinkedTasks>,
    pub studios: Vec<String>,
    /// The last runs of an agent, or the last runs started at the request of a person.
    pub last_runs: Vec<RecentRun>,
    /// The ready queue items that an agent can take.
    pub waiting: Vec<WaitingItem>,
}

/// An agent or a person. Fields that only agents have are `None` for a person.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ActorDetails {
    pub handle: String,
    pub kind: ActorKind,
    pub id: Uuid,
    pub name: Option<String>,
    pub role: Option<String>,
    pub owner: Option<String>,
    /// The parent agent of a subagent.
    pub parent: Option<String>,
    pub runner: Option<Runner>,
    pub model: Option<String>,
    pub capabilities: Option<Vec<String>>,
}

row! {
    /// The run in which the caller acts.
    pub struct CurrentRun {
        id: Id<kind::Run>,
        status: RunStatus,
        started_at: Time,
        max_steps: i64,
        /// Model turns so far.
        steps: i64,
        steps_left: i64,
        chain_depth: i64,
        parent_run_id: Option<Id<kind::Run>>,
        initiated_by: Option<String>,
        queue_item_id: Option<Id<kind::QueueItem>>,
        lease_expires: Option<Time>,
        task_id: Option<Id<kind::Task>>,
        /// The description and reason given when the item was queued.
        description: Option<String>,
        why: Option<String>,
    }
}

row! {
    /// The task of the current run.
    pub struct CurrentTask {
        id: Id<kind::Task>,
        variant: Variant,
        title: Option<String>,
        status: TaskStatus,
        priority: Priority,
        description: Option<String>,
    }
}

row! {
    /// A past run, with the one-line summary of its report.
    pub struct RecentRun {
        id: Id<kind::Run>,
        agent: String,
        task: Option<Variant>,
        status: RunStatus,
        outcome: Option<String>,
        started_at: Time,
        ended_at: Option<Time>,
        one_liner: Option<String>,
    }
}

row! {
    /// A ready queue item.
    pub struct WaitingItem {
        id: Id<kind::QueueItem>,
        variant: Variant,
        status: ItemStatus,
        priority: i64,
        in_queue_since: Time,
    }
}

/// Reads everything that `whoami` shows about the caller.
pub fn whoami(read: &mut Reader<'_>, caller: CallerIdentity<'_>, now: Time) -> Result<Whoami> {
    let actor = actor(read, caller)?;
    let run = caller.run.map(|run| current_run(read, run)).transpose()?.flatten();
    let task = run.as_ref().and_then(|run| run.task_id);
    let is_agent = caller.kind == ActorKind::Agent;
    let pad = match caller.kind {
        ActorKind::Agent => read.row::<Scratchpad>("where tenant_id = ?1 and agent_id = ?2", params![caller.id])?,
        ActorKind::Person => None,
    };
    Ok(Whoami {
        scratchpad_revision: is_agent.then(|| pad.as_ref().map_or(0, |pad| pad.revision)),
        scratchpad: is_agent.then(|| pad.map_or_else(String::new, |pad| pad.content)),
        linked: task.map(|task| read.linked_tasks(task, now).tasks),
        task: task.map(|task| current_task(read, task)).transpose()?.flatten(),
        studios: read
            .rows::<Studio>("where tenant_id = ?1 and deleted_at is null order by name limit 50", &[])?
            .into_iter()
            .map(|studio| studio.name)
            .collect(),
        last_runs: recent_runs(read, caller)?,
        waiting: if is_agent { waiting_items(read, caller.id)? } else { Vec::new() },
        actor,
        run,
    })
}

fn actor(read: &mut Reader<'_>, caller: CallerIdentity<'_>) -> Result<ActorDetails> {
    if caller.kind == ActorKind::Agent {
        let shown = read.display_row_by_id::<AgentRow>("a", Id::<kind::Agent>::from(caller.id))?;
        let given = shown.agent.capabilities;
        let default = || capability::DEFAULT.iter().map(|&name| name.to_owned()).collect();
        return Ok(ActorDetails {
            handle: shown.agent.handle,
            kind: caller.kind,
            id: caller.id,
            name: shown.agent.name,
            role: shown.role,
            owner: Some(shown.owner),
            parent: shown.parent,
            runner: Some(shown.agent.runner),
            model: shown.agent.model,
            capabilities: Some(given.unwrap_or_else(default)),
        });
    }
    let found = read.row::<Person>("where tenant_id = ?1 and id = ?2", params![caller.id])?;
    let (handle, name) = match found {
        Some(person) => (person.handle, person.name),
        None => (caller.unregistered_handle.unwrap_or_default().to_owned(), None),
    };
    Ok(ActorDetails {
        handle,
        kind: caller.kind,
        id: caller.id,
        name,
        role: None,
        owner: None,
        parent: None,
        runner: None,
        model: None,
        capabilities: None,
    })
}

fn current_run(read: &mut Reader<'_>, run: Id<kind::Run>) -> Result<Option<CurrentRun>> {
    // Each model turn is recorded as one `think` step.
    read.one(
        "select u.id, u.status, u.started_at, u.max_steps, n.calls, u.max_steps - n.calls, u.chain_depth, u.parent_run_id, p.handle, u.queue_item_id, q.lease_expires, u.task_id, q.description, q.why
         from runs u left join people p on p.id = u.initiated_by left join queue_items q on q.id = u.queue_item_id and q.fence = u.fence
         cross join (select count(*) as calls from run_steps x where x.tenant_id = ?1 and x.run_id = ?2 and x.step_type = 'think') n
         where u.tenant_id = ?1 and u.id = ?2",
        params![run],
    )
}

fn current_task(read: &mut Reader<'_>, task: Id<kind::Task>) -> Result<Option<CurrentTask>> {
    read.one(
        "select id, variant, title, status, priority, description from tasks where tenant_id = ?1 and id = ?2",
        params![task],
    )
}

/// The last runs of an agent without the current one, or the last runs started at the request of a person.
fn recent_runs(read: &mut Reader<'_>, caller: CallerIdentity<'_>) -> Result<Vec<RecentRun>> {
    let among = match caller.kind {
        ActorKind::Agent => {
            "select * from runs where tenant_id = ?1 and agent_id = ?2 and id <> ?3 order by id desc limit ?4"
        }
        // Runs have no index by person, so this searches only the newest 1,000.
        ActorKind::Person => {
            "select * from (select * from runs where tenant_id = ?1 and id <> ?3 order by id desc limit 1000) r
             where r.initiated_by = ?2 order by r.id desc limit ?4"
        }
    };
    let own = caller.run.map_or_else(Uuid::nil, Id::uuid);
    read.query(
        &format!(
            "select u.id, a.handle, t.variant, u.status, u.outcome, u.started_at, u.ended_at,
                 (select p.one_liner from reports p where p.tenant_id = u.tenant_id and p.run_id = u.id order by p.id desc limit 1)
             from ({among}) u join agents a on a.id = u.agent_id left join tasks t on t.id = u.task_id order by u.id desc"
        ),
        params![caller.id, own, RECENT_RUNS_MAX],
    )
}

/// The ready items that name this agent, followed by items for its role or for any role.
fn waiting_items(read: &mut Reader<'_>, agent: Uuid) -> Result<Vec<WaitingItem>> {
    const ITEM: &str = "select q.id, t.variant, q.status, q.priority, q.in_queue_since from";
    let version = version_of_item("q");
    let mut items = read.query::<WaitingItem>(
        &format!(
            "{ITEM} queue_items q join tasks t on t.id = {version} where q.tenant_id = ?1 and q.status = 'ready' and q.agent_id = ?2
             order by q.priority desc, q.in_queue_since, q.id limit ?3"
        ),
        params![agent, WAITING_ITEMS_MAX],
    )?;
    let shared_items = read.query::<WaitingItem>(
        &format!(
            "{ITEM} (select * from queue_items where tenant_id = ?1 and status = 'ready' and agent_id is null
                 order by priority desc, in_queue_since, id limit 200) q join tasks t on t.id = {version}
             where q.role_id is null or q.role_id = (select role_id from agents where id = ?2)
             order by q.priority desc, q.in_queue_since, q.id limit ?3"
        ),
        params![agent, WAITING_ITEMS_MAX],
    )?;
    items.extend(shared_items);
    items.truncate(usize::try_from(WAITING_ITEMS_MAX).unwrap_or_default());
    Ok(items)
}

impl Whoami {
    /// The JSON form, which all interfaces show.
    pub fn to_json(&self) -> Value {
        serde_json::to_value(self).unwrap_or_default()
    }
}

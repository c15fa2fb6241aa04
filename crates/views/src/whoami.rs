//! Who is asking: what an agent should know of itself when it looks around, and what a person sees.

use serde::Serialize;
use serde_json::Value;
use trackway_domain::{
    Id, Time, Variant, capability, kind,
    wake_document::LinkedTasks,
    words::{ActorKind, ItemStatus, Priority, RunStatus, Runner, TaskStatus},
};
use trackway_store::{
    Reader, Result,
    display::AgentShown,
    params,
    queue::version_of,
    row,
    tables::{Person, Scratchpad, Studio},
};
use uuid::Uuid;

/// Runs shown.
const RUNS_SHOWN: i64 = 5;
/// Queue items shown.
const WAITING_SHOWN: i64 = 10;

/// Who asks, in which run.
#[derive(Debug, Clone, Copy)]
pub struct Asking<'a> {
    pub kind: ActorKind,
    pub id: Uuid,
    pub run: Option<Id<kind::Run>>,
    /// The handle of a person who has not written anything yet.
    pub newcomer: Option<&'a str>,
}

/// Who somebody is, and how things stand for them.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Whoami {
    pub actor: ActorShown,
    pub run: Option<RunNow>,
    pub task: Option<TaskNow>,
    /// What an agent left for itself; empty when it never did. A person has none.
    pub scratchpad: Option<String>,
    pub scratchpad_revision: Option<i64>,
    /// The linked tasks of the task, as the wake tells them.
    pub linked: Option<LinkedTasks>,
    pub studios: Vec<String>,
    /// The last runs: of an agent its own, of a person those made on their word.
    pub last_runs: Vec<LastRun>,
    /// What waits in the queue for an agent.
    pub waiting: Vec<Waiting>,
}

/// An actor.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ActorShown {
    pub handle: String,
    pub kind: ActorKind,
    pub id: Uuid,
    pub name: Option<String>,
    pub role: Option<String>,
    pub owner: Option<String>,
    /// The agent this one is a part of.
    pub parent: Option<String>,
    pub runner: Option<Runner>,
    pub model: Option<String>,
    /// What an agent may do.
    pub capabilities: Option<Vec<String>>,
}

row! {
    /// The run that asks.
    pub struct RunNow {
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
        /// What is wanted this time, and why, as whoever queued it said.
        description: Option<String>,
        why: Option<String>,
    }
}

row! {
    /// The task it works on.
    pub struct TaskNow {
        id: Id<kind::Task>,
        variant: Variant,
        title: Option<String>,
        status: TaskStatus,
        priority: Priority,
        description: Option<String>,
    }
}

row! {
    /// A run of the past, with what was reported of it.
    pub struct LastRun {
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
    /// A queue item that waits.
    pub struct Waiting {
        id: Id<kind::QueueItem>,
        variant: Variant,
        status: ItemStatus,
        priority: i64,
        in_queue_since: Time,
    }
}

/// Says who is asking.
pub fn whoami(read: &mut Reader<'_>, asking: Asking<'_>, now: Time) -> Result<Whoami> {
    let actor = actor(read, asking)?;
    let run = asking.run.map(|run| run_now(read, run)).transpose()?.flatten();
    let task = run.as_ref().and_then(|run| run.task_id);
    let is_agent = asking.kind == ActorKind::Agent;
    let pad = match asking.kind {
        ActorKind::Agent => read.row::<Scratchpad>("where tenant_id = ?1 and agent_id = ?2", params![asking.id])?,
        ActorKind::Person => None,
    };
    Ok(Whoami {
        scratchpad_revision: is_agent.then(|| pad.as_ref().map_or(0, |pad| pad.revision)),
        scratchpad: is_agent.then(|| pad.map_or_else(String::new, |pad| pad.content)),
        linked: task.map(|task| read.linked_tasks(task, now).tasks),
        task: task.map(|task| task_now(read, task)).transpose()?.flatten(),
        studios: read
            .rows::<Studio>("where tenant_id = ?1 and deleted_at is null order by name limit 50", &[])?
            .into_iter()
            .map(|studio| studio.name)
            .collect(),
        last_runs: last_runs(read, asking)?,
        waiting: if is_agent { waiting(read, asking.id)? } else { Vec::new() },
        actor,
        run,
    })
}

fn actor(read: &mut Reader<'_>, asking: Asking<'_>) -> Result<ActorShown> {
    if asking.kind == ActorKind::Agent {
        let shown = read.shown_by_id::<AgentShown>("a", Id::<kind::Agent>::from(asking.id))?;
        let given = shown.agent.capabilities;
        let default = || capability::DEFAULT.iter().map(|&name| name.to_owned()).collect();
        return Ok(ActorShown {
            handle: shown.agent.handle,
            kind: asking.kind,
            id: asking.id,
            name: shown.agent.name,
            role: shown.role,
            owner: Some(shown.owner),
            parent: shown.parent,
            runner: Some(shown.agent.runner),
            model: shown.agent.model,
            capabilities: Some(given.unwrap_or_else(default)),
        });
    }
    let found = read.row::<Person>("where tenant_id = ?1 and id = ?2", params![asking.id])?;
    let (handle, name) = match found {
        Some(person) => (person.handle, person.name),
        None => (asking.newcomer.unwrap_or_default().to_owned(), None),
    };
    Ok(ActorShown {
        handle,
        kind: asking.kind,
        id: asking.id,
        name,
        role: None,
        owner: None,
        parent: None,
        runner: None,
        model: None,
        capabilities: None,
    })
}

fn run_now(read: &mut Reader<'_>, run: Id<kind::Run>) -> Result<Option<RunNow>> {
    // A turn of a model is a step of its own.
    read.one(
        "select u.id, u.status, u.started_at, u.max_steps, n.calls, u.max_steps - n.calls, u.chain_depth, u.parent_run_id, p.handle, u.queue_item_id, q.lease_expires, u.task_id, q.description, q.why
         from runs u left join people p on p.id = u.initiated_by left join queue_items q on q.id = u.queue_item_id and q.fence = u.fence
         cross join (select count(*) as calls from run_steps x where x.tenant_id = ?1 and x.run_id = ?2 and x.step_type = 'think') n
         where u.tenant_id = ?1 and u.id = ?2",
        params![run],
    )
}

fn task_now(read: &mut Reader<'_>, task: Id<kind::Task>) -> Result<Option<TaskNow>> {
    read.one(
        "select id, variant, title, status, priority, description from tasks where tenant_id = ?1 and id = ?2",
        params![task],
    )
}

/// Of an agent its own runs, but the one that asks; of a person those of late that were made on their word.
fn last_runs(read: &mut Reader<'_>, asking: Asking<'_>) -> Result<Vec<LastRun>> {
    let among = match asking.kind {
        ActorKind::Agent => {
            "select * from runs where tenant_id = ?1 and agent_id = ?2 and id <> ?3 order by id desc limit ?4"
        }
        // Runs have no index for persons: the newest are looked through.
        ActorKind::Person => {
            "select * from (select * from runs where tenant_id = ?1 and id <> ?3 order by id desc limit 1000) r
             where r.initiated_by = ?2 order by r.id desc limit ?4"
        }
    };
    let own = asking.run.map_or_else(Uuid::nil, Id::uuid);
    read.query(
        &format!(
            "select u.id, a.handle, t.variant, u.status, u.outcome, u.started_at, u.ended_at,
                 (select p.one_liner from reports p where p.tenant_id = u.tenant_id and p.run_id = u.id order by p.id desc limit 1)
             from ({among}) u join agents a on a.id = u.agent_id left join tasks t on t.id = u.task_id order by u.id desc"
        ),
        params![asking.id, own, RUNS_SHOWN],
    )
}

/// What is for this agent alone, then what anyone of its role may take.
fn waiting(read: &mut Reader<'_>, agent: Uuid) -> Result<Vec<Waiting>> {
    const ITEM: &str = "select q.id, t.variant, q.status, q.priority, q.in_queue_since from";
    let version = version_of("q");
    let mut items = read.query::<Waiting>(
        &format!(
            "{ITEM} queue_items q join tasks t on t.id = {version} where q.tenant_id = ?1 and q.status = 'ready' and q.agent_id = ?2
             order by q.priority desc, q.in_queue_since, q.id limit ?3"
        ),
        params![agent, WAITING_SHOWN],
    )?;
    let anyones = read.query::<Waiting>(
        &format!(
            "{ITEM} (select * from queue_items where tenant_id = ?1 and status = 'ready' and agent_id is null
                 order by priority desc, in_queue_since, id limit 200) q join tasks t on t.id = {version}
             where q.role_id is null or q.role_id = (select role_id from agents where id = ?2)
             order by q.priority desc, q.in_queue_since, q.id limit ?3"
        ),
        params![agent, WAITING_SHOWN],
    )?;
    items.extend(anyones);
    items.truncate(usize::try_from(WAITING_SHOWN).unwrap_or_default());
    Ok(items)
}

impl Whoami {
    /// What all doors print.
    pub fn value(&self) -> Value {
        serde_json::to_value(self).unwrap_or_default()
    }
}

//! Taking items from the queue. Each item goes to exactly one agent, which gets a new run for it.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};
use trackway_domain::{
    Error as Rule, ErrorKind, Id, Ref, Time, Variant, command,
    enums::{ItemStatus, Runner, TaskStatus},
    field, kind,
    queue::{self, BATCH_MAX, FencedItem, check_lease, check_range, lease_end},
    sentence,
};
use trackway_store::{
    Writer, params,
    queue::{NewRun, PickedItem, PriorCompletions, RoleFilter, TakeRequest, TakeRows, TakingAgent, UnassignedFilter},
    tables::{Agent, NewRegistryEntry, QueueItem, Run},
};
use uuid::Uuid;

use super::{
    CompleteItem, id_of,
    lease::{restart_future_leases, return_expired},
    outcome::{live_version, start_task},
    resource,
};
use crate::{
    action::{Action, ActionOutcome, Subject},
    agent_link,
    context::{Actor, Context},
    core::{new_event, perform_within},
    error::{Error, Result},
    run,
    tenant::WORKER,
    token,
    touched::NoTouches,
};

/// Take the next ready item from the queue and start a run for it
///
/// The output contains the run and its token. Set `TRACKWAY_TOKEN` to this token to act in the run. End the run with
/// `queue complete`, `queue fail`, or `--done` when you take the next item. Without --agent, the worker takes an item
/// that names no agent.
#[derive(Debug, Default, Deserialize, schemars::JsonSchema, clap::Args)]
#[serde(deny_unknown_fields)]
pub struct TakeItems {
    /// Agent that takes the items [default: worker]
    #[arg(long)]
    pub agent: Option<Ref<kind::Agent>>,
    /// Lease duration in seconds. Every write of the run and every heartbeat extends the lease [default: 300]
    #[arg(long, value_name = "SECONDS")]
    #[schemars(range(min = 1, max = queue::LEASE_SECONDS_MAX))]
    pub lease: Option<i64>,
    /// Maximum number of items to take [default: 1]
    #[arg(long, value_name = "NUMBER")]
    #[schemars(range(min = 1, max = BATCH_MAX))]
    pub batch: Option<i64>,
    /// Take this item only
    #[arg(long)]
    pub id: Option<Ref<kind::QueueItem>>,
    /// Item to complete before taking the next, as ID:FENCE. If completing it fails, nothing is taken. Repeatable
    #[arg(long = "done", value_name = "ID:FENCE", num_args = 1..)]
    #[serde(default)]
    #[schemars(length(max = BATCH_MAX))]
    pub done: Vec<FencedItem>,
    /// The items without an assigned agent that may be taken. Workers set this to the items that they can execute.
    #[arg(skip)]
    #[serde(skip)]
    pub unassigned: UnassignedFilter,
}

/// An item that the caller now holds, and its run.
#[derive(Debug, Clone, Serialize)]
pub struct TakenItem {
    pub id: Id<kind::QueueItem>,
    pub task_id: Id<kind::Task>,
    pub variant: Variant,
    pub revision: i64,
    pub fence: i64,
    pub attempt: i64,
    pub lease_expires: Time,
    pub run_id: Id<kind::Run>,
    pub token: String,
}

impl TakenItem {
    fn new(item: PickedItem, run_id: Id<kind::Run>, lease_expires: Time, token: String) -> Self {
        Self {
            id: item.id,
            task_id: item.task_id,
            variant: item.variant,
            revision: item.revision,
            fence: item.fence,
            attempt: item.attempt,
            lease_expires,
            run_id,
            token,
        }
    }
}

impl Action for TakeItems {
    const NAME: &'static str = "queue_take";
    const COMMAND: (&'static str, &'static str) = ("queue", "take");
    type Touched = NoTouches;
    type Output = Vec<TakenItem>;

    fn perform(&self, context: &Context, write: &mut Writer<'_>) -> Result<ActionOutcome<Self>> {
        let limit = check_range(field!(batch), self.batch.unwrap_or(1), 1, BATCH_MAX)?;
        let limit = usize::try_from(limit).unwrap_or(1);
        let lease_seconds = check_lease(self.lease)?;
        check_range(field!(done), i64::try_from(self.done.len()).unwrap_or(i64::MAX), 0, BATCH_MAX)?;
        if let (Actor::Agent(_), [_, ..]) = (context.actor, self.done.as_slice()) {
            return Err(Rule::denied(
                "the token of a run expires when its queue item is completed, so it cannot take the next item",
            )
            .hint(sentence![command!("queue complete"), ", then take the next item without the run's token"])
            .into());
        }
        // Fast path: the worker takes the next items in one statement.
        let worker = match (&self.agent, &self.id, context.actor) {
            (None, None, Actor::Person(_)) => Some(TakeRequest {
                agent: TakingAgent::ByHandle(WORKER),
                roles: RoleFilter::All,
                unassigned: self.unassigned,
                item: None,
                limit,
                slots: None,
                lease_seconds,
            }),
            _ => None,
        };
        let fast = match &worker {
            Some(request) => fast_take(context, write, request, &self.done)?,
            None => None,
        };
        match fast {
            Some(taken) if !taken.is_empty() => return Ok(ActionOutcome::logged(taken)),
            Some(_) => {}
            None => {
                self.complete_done(context, write)?;
                if let Some(request) = worker {
                    let picked = write.pick_items(&request, lease_end(write.now, lease_seconds))?;
                    if !picked.is_empty() {
                        return Ok(outcome(create_runs(context, write, &request, picked)?));
                    }
                }
            }
        }
        let agent = taking_agent(context, write, self.agent.as_ref())?;
        let item = self.id.as_ref().map(|item| super::locked_item(write, item)).transpose()?;
        let mut request = TakeRequest {
            agent: TakingAgent::ById(agent.id),
            roles: role_filter(&agent),
            unassigned: self.unassigned,
            item: item.as_ref().map(|item| item.id),
            limit,
            slots: None,
            lease_seconds,
        };
        return_expired(context, write)?;
        let picked = pick(write, &agent, &mut request)?;
        if let Some(item) = item.filter(|_| picked.is_empty()) {
            return Err(why_not_takeable(write, item.id, &agent)?.into());
        }
        if picked.is_empty() {
            restart_future_leases(write)?;
            return Ok(ActionOutcome::unchanged(Vec::new()));
        }
        Ok(outcome(create_runs(context, write, &request, picked)?))
    }
}

impl TakeItems {
    fn complete_done(&self, context: &Context, write: &mut Writer<'_>) -> Result<()> {
        let done = self.done.iter().map(|FencedItem { id, fence }| CompleteItem {
            id: id.clone(),
            fence: *fence,
            result: None,
        });
        let done: Vec<CompleteItem> = done.collect();
        perform_within(&done, context, write)?;
        Ok(())
    }
}

/// Takes items in one statement, which also creates the runs, logs the events and completes the items in `done`.
/// Returns `None` in a mode that does not allow this. If `done` is not empty, the transaction fails unless all of it
/// succeeds.
fn fast_take(
    context: &Context,
    write: &mut Writer<'_>,
    request: &TakeRequest,
    done: &[FencedItem],
) -> Result<Option<Vec<TakenItem>>> {
    let mut secrets = HashMap::new();
    let lease_expires = lease_end(write.now, request.lease_seconds);
    let picked =
        write.fast_take(request, lease_expires, |write| take_rows(context, write, request, done, &mut secrets))?;
    let taken = |item: PickedItem| {
        let run_id = item.run_id?;
        let token = secrets.remove(&run_id)?;
        Some(TakenItem::new(item, run_id, lease_expires, token))
    };
    Ok(picked.map(|picked| picked.into_iter().filter_map(taken).collect()))
}

/// Templates of the rows that the fast statement writes. The tokens of the new runs go into `secrets`.
fn take_rows(
    context: &Context,
    write: &mut Writer<'_>,
    request: &TakeRequest,
    done: &[FencedItem],
    secrets: &mut HashMap<Id<kind::Run>, String>,
) -> Result<TakeRows> {
    let held =
        done.iter().map(|FencedItem { id, fence }| Ok((id_of(write, id)?, *fence))).collect::<Result<Vec<_>>>()?;
    let mut new_run = || -> Result<NewRun> {
        let id = write.new_id();
        let (secret, hash) = token::generate_for_run(id)?;
        secrets.insert(id, secret);
        Ok(NewRun::new(id, &run::resource(id).path, &hash, write.new_id()))
    };
    let runs = (0..request.limit).map(|_| new_run()).collect::<Result<Vec<_>>>()?;
    // The statement replaces these placeholders with the item and its task.
    let (some_run, some_item) = (Uuid::nil().into(), resource(Uuid::nil().into()));
    let made = run::new(context.tenant, some_run, Uuid::nil().into(), Runner::Shell, write.now);
    Ok(TakeRows {
        runs,
        run: Run { cause_kind: Some(kind::Kind::QueueItem.to_string()), ..made },
        entry: NewRegistryEntry::new(write, context.actor.id(), some_run, ""),
        event: new_event(context, write, TakeItems::NAME, &Subject::from(&some_item), None),
        prior_completions: (!held.is_empty()).then(|| {
            PriorCompletions::new(held, new_event(context, write, CompleteItem::NAME, &Subject::from(&some_item), None))
        }),
    })
}

fn outcome(taken: Vec<TakenItem>) -> ActionOutcome<TakeItems> {
    let subjects = taken.iter().map(|taken| Subject::from(&resource(taken.id))).collect();
    ActionOutcome::changed_several(taken, subjects, NoTouches)
}

/// The agent that takes: the given one, else the calling agent, else the worker. An agent may take items only for
/// itself and its subagents.
pub(crate) fn taking_agent(
    context: &Context,
    write: &mut Writer<'_>,
    agent: Option<&Ref<kind::Agent>>,
) -> Result<Agent> {
    if let (None, Actor::Agent(own)) = (agent, context.actor) {
        return run::acting_agent(context, write, &own.into());
    }
    let reference = agent.cloned().unwrap_or_else(|| Ref::new(WORKER));
    if let Actor::Person(_) = context.actor {
        let by_handle = write.row::<Agent>(
            "where tenant_id = ?1 and handle = ?2 and deleted_at is null and not archived",
            params![reference.as_str()],
        )?;
        if let Some(agent) = by_handle {
            return Ok(agent);
        }
    }
    match run::acting_agent(context, write, &reference) {
        Err(Error::Rule(unknown)) if reference.as_str() == WORKER && unknown.kind == ErrorKind::NotFound => {
            Err(unknown.hint(sentence![command!("init"), " creates it"]).into())
        }
        acting => acting,
    }
}

pub(crate) fn role_filter(agent: &Agent) -> RoleFilter {
    if agent.handle == WORKER { RoleFilter::All } else { RoleFilter::Own(agent.role_id) }
}

/// The free slots of an agent, or `None` if the agent may hold any number of items.
pub(crate) fn free_slots(write: &mut Writer<'_>, agent: &Agent) -> Result<Option<Vec<i64>>> {
    let Some(max_items) = agent.max_items else {
        return Ok(None);
    };
    let used = write.query::<(i64,)>(
        "select slot from queue_items where tenant_id = ?1 and taken_by = ?2 and slot is not null",
        params![agent.id],
    )?;
    Ok(Some(
        (0..max_items).filter(|slot| !used.contains(&(*slot,))).take(usize::try_from(BATCH_MAX).unwrap_or(1)).collect(),
    ))
}

fn pick(write: &mut Writer<'_>, agent: &Agent, request: &mut TakeRequest) -> Result<Vec<PickedItem>> {
    request.slots = free_slots(write, agent)?;
    if let Some(slots) = &request.slots {
        request.limit = request.limit.min(slots.len().max(1));
        if slots.is_empty() {
            return Ok(Vec::new());
        }
    }
    write.make_due_items_ready()?;
    Ok(write.pick_items(request, lease_end(write.now, request.lease_seconds))?)
}

/// Creates the runs of the picked items.
pub(crate) fn create_runs(
    context: &Context,
    write: &mut Writer<'_>,
    request: &TakeRequest,
    picked: Vec<PickedItem>,
) -> Result<Vec<TakenItem>> {
    let (mut runs, mut entries, mut all) = (Vec::new(), Vec::new(), Vec::new());
    let agent = picked.first().map(|item| item.agent_id);
    for item in picked {
        let run_id = item.run_id.unwrap_or_else(|| write.new_id());
        let (secret, hash) = token::generate_for_run(run_id)?;
        if !item.recurring && matches!(item.status, TaskStatus::Open | TaskStatus::Groomed) {
            start_task(write, item.task_id)?;
        }
        entries.push(NewRegistryEntry::new(write, context.actor.id(), run_id, &run::resource(run_id).path));
        runs.push(Run {
            role_id: item.role_id.or(item.agent_role_id),
            task_id: Some(item.task_id),
            task_revision: Some(item.revision),
            initiated_by: item.initiated_by,
            cause_kind: Some(kind::Kind::QueueItem.to_string()),
            cause_id: Some(item.id.uuid()),
            chain_depth: item.chain_depth,
            workspace_id: item.workspace_id,
            max_steps: item.max_steps,
            queue_item_id: Some(item.id),
            fence: Some(item.fence),
            token_hash: Some(hash),
            ..run::new(context.tenant, run_id, item.agent_id, item.runner, write.now)
        });
        all.push(TakenItem::new(item, run_id, lease_end(write.now, request.lease_seconds), secret));
    }
    write.insert_all(&runs)?;
    write.insert_all(&entries)?;
    if let Some(agent) = agent {
        agent_link::link_all(write, agent, all.iter().map(|taken: &TakenItem| taken.task_id))?;
    }
    Ok(all)
}

/// The error for an item that was requested by id and cannot be taken.
pub(crate) fn why_not_takeable(write: &mut Writer<'_>, id: Id<kind::QueueItem>, agent: &Agent) -> Result<Rule> {
    let Some(item) = write.row::<QueueItem>("where tenant_id = ?1 and id = ?2", params![id])? else {
        return Ok(Rule::not_found(format!("there is no queue item {}", id.short())));
    };
    let short = id.short();
    let refused = |why: String| Rule::conflict(format!("queue item {short} {why}"));
    Ok(match item.status {
        ItemStatus::Running => {
            let holder = write.one::<(String,)>(
                "select handle from agents where tenant_id = ?1 and id = ?2",
                params![item.taken_by],
            )?;
            refused(format!("is taken by {}", holder.map_or_else(|| "someone".into(), |(handle,)| handle)))
        }
        ItemStatus::Waiting => {
            refused(format!("waits until {}", item.not_before.map_or_else(|| "later".into(), |time| time.to_string())))
        }
        ItemStatus::Blocked => {
            refused(format!("is blocked: {}", item.why.unwrap_or_default())).hint(command!("queue requeue", id = short))
        }
        ItemStatus::Completed | ItemStatus::Failed | ItemStatus::Cancelled => {
            refused(format!("is already {}", item.status))
        }
        ItemStatus::Ready if item.agent_id.is_some_and(|only| only != agent.id) => {
            refused(format!("is assigned to another agent than {}", agent.handle))
        }
        ItemStatus::Ready if free_slots(write, agent)?.is_some_and(|slots| slots.is_empty()) => {
            Rule::conflict(format!("agent {} already holds its maximum number of queue items", agent.handle))
                .hint(command!("agent set", handle = agent.handle, max_items = "NUMBER"))
        }
        ItemStatus::Ready if item.role_id.is_some() && item.role_id != agent.role_id && agent.handle != WORKER => {
            refused(format!("is for another role than the one of agent {}", agent.handle))
        }
        ItemStatus::Ready if live_version(write, &item)?.is_none() => {
            refused("cannot run: there is no live version of its task".into())
        }
        ItemStatus::Ready => refused("waits for another item with the same concurrency key".into()),
    })
}

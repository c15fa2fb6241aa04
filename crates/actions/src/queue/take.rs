//! Taking from the queue: each item goes to exactly one taker, who gets a run for it.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};
use trackway_domain::{
    Error as Rule, ErrorKind, Id, Ref, Time, Variant, command, field, kind,
    queue::{self, BATCH_MAX, Fenced, lease, lease_end, within},
    sentence,
    words::{ItemStatus, Runner, TaskStatus},
};
use trackway_store::{
    Writer, params,
    queue::{DoneBefore, NewRun, Picked, Roles, TakeRows, Taker, Unnamed, Who},
    tables::{Agent, QueueItem, Registered, Run},
};
use uuid::Uuid;

use super::{
    CompleteItem, id_of,
    lease::{count_from_now, return_expired},
    resource,
    settle::{live_version, start_task},
};
use crate::{
    action::{About, Action, Done},
    agent_link,
    context::{Actor, Context},
    core::{event, perform_within},
    error::{Error, Result},
    founding::WORKER,
    run, token,
    touched::Nothing,
};

/// Take what comes next from the queue, and get a run and its token for it
///
/// Without an agent it is the worker who takes: whatever names no agent. Put the token into `TRACKWAY_TOKEN` to act in
/// the run; end it with `queue complete` or `queue fail`, or with `--done` when you take the next.
#[derive(Debug, Default, Deserialize, schemars::JsonSchema, clap::Args)]
#[serde(deny_unknown_fields)]
pub struct TakeItems {
    /// The agent that takes
    #[arg(long)]
    pub agent: Option<Ref<kind::Agent>>,
    /// How long it is yours without a sign of life, in seconds (300)
    #[arg(long, value_name = "SECONDS")]
    #[schemars(range(min = 1, max = queue::LEASE_SECONDS_MAX))]
    pub lease: Option<i64>,
    /// How many to take at most (1)
    #[arg(long, value_name = "NUMBER")]
    #[schemars(range(min = 1, max = BATCH_MAX))]
    pub batch: Option<i64>,
    /// Only this item
    #[arg(long)]
    pub id: Option<Ref<kind::QueueItem>>,
    /// An item that you took and have done, as ID:FENCE: it is completed before the next is taken, and if it cannot be, nothing is; repeat for several
    #[arg(long = "done", value_name = "ID:FENCE", num_args = 1..)]
    #[serde(default)]
    #[schemars(length(max = BATCH_MAX))]
    pub done: Vec<Fenced>,
    /// Which of the items that name no agent; for whoever executes what it takes
    #[arg(skip)]
    #[serde(skip)]
    pub unnamed: Unnamed,
}

/// An item that is now yours.
#[derive(Debug, Clone, Serialize)]
pub struct Taken {
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

impl Taken {
    fn new(item: Picked, run_id: Id<kind::Run>, lease_expires: Time, token: String) -> Self {
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
    type Touched = Nothing;
    type Output = Vec<Taken>;

    fn perform(&self, context: &Context, write: &mut Writer<'_>) -> Result<Done<Self>> {
        let limit = within(field!(batch), self.batch.unwrap_or(1), 1, BATCH_MAX)?;
        let limit = usize::try_from(limit).unwrap_or(1);
        let lease_seconds = lease(self.lease)?;
        within(field!(done), i64::try_from(self.done.len()).unwrap_or(i64::MAX), 0, BATCH_MAX)?;
        if let (Actor::Agent(_), [_, ..]) = (context.actor, self.done.as_slice()) {
            return Err(Rule::denied("a run's token ends with its queue item, and takes nothing after it")
                .hint(sentence![command!("queue complete"), ", then take as yourself"])
                .into());
        }
        // Fast path: a worker taking the next item, in one statement.
        let worker = match (&self.agent, &self.id, context.actor) {
            (None, None, Actor::Person(_)) => Some(Taker {
                who: Who::Named(WORKER),
                roles: Roles::All,
                unnamed: self.unnamed,
                item: None,
                limit,
                slots: None,
                lease_seconds,
            }),
            _ => None,
        };
        let fast = match &worker {
            Some(taker) => fast_take(context, write, taker, &self.done)?,
            None => None,
        };
        match fast {
            Some(taken) if !taken.is_empty() => return Ok(Done::logged(taken)),
            Some(_) => {}
            None => {
                self.complete_done(context, write)?;
                if let Some(taker) = worker {
                    let picked = write.pick_items(&taker, lease_end(write.now, lease_seconds))?;
                    if !picked.is_empty() {
                        return Ok(done(begin(context, write, &taker, picked)?));
                    }
                }
            }
        }
        let agent = taking_agent(context, write, self.agent.as_ref())?;
        let item = self.id.as_ref().map(|item| super::item(write, item)).transpose()?;
        let mut taker = Taker {
            who: Who::Known(agent.id),
            roles: roles(&agent),
            unnamed: self.unnamed,
            item: item.as_ref().map(|item| item.id),
            limit,
            slots: None,
            lease_seconds,
        };
        return_expired(context, write)?;
        let picked = pick(write, &agent, &mut taker)?;
        if let Some(item) = item.filter(|_| picked.is_empty()) {
            return Err(why_not(write, item.id, &agent)?.into());
        }
        if picked.is_empty() {
            count_from_now(write)?;
            return Ok(Done::unchanged(Vec::new()));
        }
        Ok(done(begin(context, write, &taker, picked)?))
    }
}

impl TakeItems {
    /// Completes what the taker is done with.
    fn complete_done(&self, context: &Context, write: &mut Writer<'_>) -> Result<()> {
        let done =
            self.done.iter().map(|Fenced { id, fence }| CompleteItem { id: id.clone(), fence: *fence, result: None });
        let done: Vec<CompleteItem> = done.collect();
        perform_within(&done, context, write)?;
        Ok(())
    }
}

/// Takes in one statement, which also makes the runs, logs, and completes the items in `done`, in the mode that allows it. If
/// `done` is not empty, the transaction fails unless all of that succeeds.
fn fast_take(context: &Context, write: &mut Writer<'_>, taker: &Taker, done: &[Fenced]) -> Result<Option<Vec<Taken>>> {
    let mut secrets = HashMap::new();
    let lease_expires = lease_end(write.now, taker.lease_seconds);
    let picked = write.fast_take(taker, lease_expires, |write| take_rows(context, write, taker, done, &mut secrets))?;
    let taken = |item: Picked| {
        let run_id = item.run_id?;
        let token = secrets.remove(&run_id)?;
        Some(Taken::new(item, run_id, lease_expires, token))
    };
    Ok(picked.map(|picked| picked.into_iter().filter_map(taken).collect()))
}

/// The rows to write for what is taken. The secrets of the runs' tokens go into `secrets`.
fn take_rows(
    context: &Context,
    write: &mut Writer<'_>,
    taker: &Taker,
    done: &[Fenced],
    secrets: &mut HashMap<Id<kind::Run>, String>,
) -> Result<TakeRows> {
    let held = done.iter().map(|Fenced { id, fence }| Ok((id_of(write, id)?, *fence))).collect::<Result<Vec<_>>>()?;
    let mut new_run = || -> Result<NewRun> {
        let id = write.new_id();
        let (secret, hash) = token::of_run(id)?;
        secrets.insert(id, secret);
        Ok(NewRun::new(id, &run::resource(id).path, &hash, write.new_id()))
    };
    let runs = (0..taker.limit).map(|_| new_run()).collect::<Result<Vec<_>>>()?;
    // The statement replaces these by the item and its task.
    let (some_run, some_item) = (Uuid::nil().into(), resource(Uuid::nil().into()));
    let made = run::new(context.tenant, some_run, Uuid::nil().into(), Runner::Shell, write.now);
    Ok(TakeRows {
        runs,
        run: Run { cause_kind: Some(kind::Kind::QueueItem.to_string()), ..made },
        entry: Registered::new(write, context.actor.id(), some_run, ""),
        event: event(context, write, TakeItems::NAME, &About::from(&some_item), None),
        done: (!held.is_empty())
            .then(|| DoneBefore::new(held, event(context, write, CompleteItem::NAME, &About::from(&some_item), None))),
    })
}

fn done(taken: Vec<Taken>) -> Done<TakeItems> {
    let about = taken.iter().map(|taken| About::from(&resource(taken.id))).collect();
    Done::changed_several(taken, about, Nothing)
}

/// Who takes: the agent that is named, else the worker. An agent may take for itself and its subagents.
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
            Err(unknown.hint(sentence![command!("init"), " makes it again"]).into())
        }
        acting => acting,
    }
}

pub(crate) fn roles(agent: &Agent) -> Roles {
    if agent.handle == WORKER { Roles::All } else { Roles::Own(agent.role_id) }
}

/// The places of an agent that has few, less those that are in use.
pub(crate) fn free_slots(write: &mut Writer<'_>, agent: &Agent) -> Result<Option<Vec<i64>>> {
    let Some(places) = agent.max_items else {
        return Ok(None);
    };
    let used = write.query::<(i64,)>(
        "select slot from queue_items where tenant_id = ?1 and taken_by = ?2 and slot is not null",
        params![agent.id],
    )?;
    Ok(Some(
        (0..places).filter(|place| !used.contains(&(*place,))).take(usize::try_from(BATCH_MAX).unwrap_or(1)).collect(),
    ))
}

fn pick(write: &mut Writer<'_>, agent: &Agent, taker: &mut Taker) -> Result<Vec<Picked>> {
    taker.slots = free_slots(write, agent)?;
    if let Some(slots) = &taker.slots {
        taker.limit = taker.limit.min(slots.len().max(1));
        if slots.is_empty() {
            return Ok(Vec::new());
        }
    }
    write.make_due_items_ready()?;
    Ok(write.pick_items(taker, lease_end(write.now, taker.lease_seconds))?)
}

/// Makes the runs of items that were picked.
pub(crate) fn begin(
    context: &Context,
    write: &mut Writer<'_>,
    taker: &Taker,
    picked: Vec<Picked>,
) -> Result<Vec<Taken>> {
    let (mut runs, mut entries, mut all) = (Vec::new(), Vec::new(), Vec::new());
    let agent = picked.first().map(|item| item.agent_id);
    for item in picked {
        let run_id = item.run_id.unwrap_or_else(|| write.new_id());
        let (secret, hash) = token::of_run(run_id)?;
        if !item.recurring && matches!(item.status, TaskStatus::Open | TaskStatus::Groomed) {
            start_task(write, item.task_id)?;
        }
        entries.push(Registered::new(write, context.actor.id(), run_id, &run::resource(run_id).path));
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
        all.push(Taken::new(item, run_id, lease_end(write.now, taker.lease_seconds), secret));
    }
    write.insert_all(&runs)?;
    write.insert_all(&entries)?;
    if let Some(agent) = agent {
        agent_link::link_all(write, agent, all.iter().map(|taken: &Taken| taken.task_id))?;
    }
    Ok(all)
}

/// Why an item that was asked for by id cannot be taken.
pub(crate) fn why_not(write: &mut Writer<'_>, id: Id<kind::QueueItem>, agent: &Agent) -> Result<Rule> {
    let Some(item) = write.row::<QueueItem>("where tenant_id = ?1 and id = ?2", params![id])? else {
        return Ok(Rule::not_found("there is no such queue item"));
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
            refused(format!("is {} already", item.status))
        }
        ItemStatus::Ready if item.agent_id.is_some_and(|only| only != agent.id) => {
            refused(format!("is not for agent {}", agent.handle))
        }
        ItemStatus::Ready if free_slots(write, agent)?.is_some_and(|slots| slots.is_empty()) => Rule::conflict(
            format!("agent {} holds as many items as it may", agent.handle),
        )
        .hint(command!("agent set", handle = agent.handle, max_items = "NUMBER")),
        ItemStatus::Ready if item.role_id.is_some() && item.role_id != agent.role_id && agent.handle != WORKER => {
            refused(format!("is for another role than that of agent {}", agent.handle))
        }
        ItemStatus::Ready if live_version(write, &item)?.is_none() => {
            refused("has no live version of its task to run".into())
        }
        ItemStatus::Ready => refused("waits for another with the same concurrency key".into()),
    })
}

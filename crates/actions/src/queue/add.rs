//! Adding to the queue.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};
use trackway_domain::{
    Duration, Error as Rule, Id, Patch, Ref, Time, Variant, command, field, kind, patch,
    queue::{ATTEMPTS, ATTEMPTS_MAX, CHAIN_MAX, MAX_STEPS_MAX, PRIORITY_MAX, within},
    sentence, text,
    words::{ItemStatus, Switch},
};
use trackway_store::{
    Writer, params,
    queue::resolved,
    row,
    tables::{QueueItem, Registered},
};
use uuid::Uuid;

use super::{lease::return_expired, resource, unfinished};
use crate::{
    action::{Action, Done},
    context::{Actor, Context},
    error::Result,
    founding::WORKER,
    limits,
    task::lineage::{no_live_version, with_block_reason},
    touched::{Touch, did},
};

/// Ask for a task to be run
///
/// While an item with the same dedup key is not finished, asking again answers that one.
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
#[serde(deny_unknown_fields)]
pub struct AddItem {
    /// The task, by variant or id
    #[arg(long)]
    pub task: Ref<kind::Task>,
    /// What is wanted
    #[arg(long)]
    pub description: Option<String>,
    /// Why it is asked for
    #[arg(long)]
    pub why: Option<String>,
    /// A tag; repeat for several
    #[arg(long = "tag", value_name = "TAG", num_args = 1..)]
    #[serde(default)]
    pub tags: Vec<String>,
    /// Only agents of this role may take it, and the worker (the task's, when it is not said)
    #[arg(long)]
    pub role: Option<Ref<kind::Role>>,
    /// Higher is taken first
    #[arg(long, value_name = "NUMBER", allow_negative_numbers = true)]
    pub priority: Option<i64>,
    /// What makes it the same request as another
    #[arg(long, value_name = "KEY")]
    #[schemars(length(min = 1, max = text::LINE_MAX), regex(pattern = text::SAYS_SOMETHING))]
    pub dedup_key: Option<String>,
    /// Items with the same key are run one after the other
    #[arg(long, value_name = "KEY")]
    #[schemars(length(min = 1, max = text::LINE_MAX), regex(pattern = text::SAYS_SOMETHING))]
    pub concurrency_key: Option<String>,
    /// The workspace it is for (the task's, when it is not said)
    #[arg(long)]
    pub workspace: Option<Ref<kind::Workspace>>,
    /// The message it answers
    #[arg(long)]
    pub message: Option<Ref<kind::Message>>,
    /// Only this agent may take it
    #[arg(long)]
    pub agent: Option<Ref<kind::Agent>>,
    /// How often it is tried (5)
    #[arg(long, value_name = "NUMBER")]
    pub max_attempts: Option<i64>,
    /// Model turns that its run may take, 1 to 200 (the task's, else the agent's, when it is not given)
    #[arg(long, value_name = "NUMBER")]
    #[schemars(range(min = 1, max = MAX_STEPS_MAX))]
    pub max_steps: Option<i64>,
    /// How long its run may take, as 90m or 1h30m (the task's, else the agent's, when it is not given)
    #[arg(long)]
    pub timeout: Option<Duration>,
    /// Daily spend of the agent above which the run stops (the task's, else the agent's, when it is not given)
    #[arg(long, value_name = "AMOUNT")]
    #[schemars(range(min = 0))]
    pub spend_limit: Option<f64>,
    /// Whether the agent is asked for its scratchpad and report at the end (the task's, else the agent's, when it is not given)
    #[arg(long)]
    pub end_of_run: Option<Switch>,
    /// Not before this day or time, as 2026-02-27 or 2026-02-27T09:30:00Z
    #[arg(long, value_name = "TIME")]
    pub not_before: Option<Time>,
    /// Run exactly this version, not the pin of the role or the current version
    #[arg(long)]
    #[serde(default)]
    pub exact: bool,
}

/// An item that now waits.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Added {
    pub id: Id<kind::QueueItem>,
    pub status: ItemStatus,
    /// Whether it was there already.
    pub duplicate: bool,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notices: Vec<String>,
}

impl Action for AddItem {
    const NAME: &'static str = "queue_add";
    const COMMAND: (&'static str, &'static str) = ("queue", "add");
    type Touched = Touch<kind::QueueItem, did::Create>;
    type Output = Added;

    fn perform(&self, context: &Context, write: &mut Writer<'_>) -> Result<Done<Self>> {
        let dones = Self::perform_all(std::slice::from_ref(self), context, write)?;
        dones.into_iter().next().ok_or_else(|| Rule::usage("nothing to add").into())
    }

    fn perform_all(actions: &[Self], context: &Context, write: &mut Writer<'_>) -> Result<Vec<Done<Self>>> {
        let mut adding = Adding::default();
        if let [action] = actions
            && context.run.is_none()
            && action.names_nothing_but_its_task()
            && write.insert_looks_up_task()?
        {
            adding
                .tasks
                .insert((action.task.as_str().to_owned(), None, false), Usable { id: Uuid::nil().into(), role: None });
            adding.variant = Some(action.task.as_str().to_owned());
        }
        let dones = actions
            .iter()
            .map(|action| {
                let new = action.prepared(&mut adding, write)?;
                let added = adding.add(context, write, new)?;
                Ok(if added.duplicate {
                    Done::unchanged(added)
                } else {
                    let resource = resource(added.id);
                    Done::changed(added, &resource, Touch::one(resource.clone()))
                })
            })
            .collect::<Result<Vec<_>>>()?;
        adding.write(context, write)?;
        Ok(dones)
    }
}

impl AddItem {
    /// A request for a task, with nothing else said.
    pub fn of(task: Ref<kind::Task>) -> Self {
        Self {
            task,
            description: None,
            why: None,
            tags: Vec::new(),
            role: None,
            priority: None,
            dedup_key: None,
            concurrency_key: None,
            workspace: None,
            message: None,
            agent: None,
            max_attempts: None,
            max_steps: None,
            timeout: None,
            spend_limit: None,
            end_of_run: None,
            not_before: None,
            exact: false,
        }
    }

    /// Whether nothing else has to be looked up for it.
    fn names_nothing_but_its_task(&self) -> bool {
        let Self {
            task: _,
            description: _,
            why: _,
            tags: _,
            role,
            priority: _,
            dedup_key,
            concurrency_key: _,
            workspace,
            message,
            agent,
            max_attempts: _,
            max_steps: _,
            timeout: _,
            spend_limit: _,
            end_of_run: _,
            not_before: _,
            exact,
        } = self;
        !exact && role.is_none() && workspace.is_none() && message.is_none() && agent.is_none() && dedup_key.is_none()
    }

    fn prepared(&self, adding: &mut Adding, write: &mut Writer<'_>) -> Result<NewItem> {
        let key = |field, given: &Option<String>| {
            given.as_deref().map(|key| text::required_line(field, key, text::LINE_MAX)).transpose()
        };
        let Self {
            task,
            description,
            why,
            tags,
            role,
            priority,
            dedup_key,
            concurrency_key,
            workspace,
            message,
            agent,
            max_attempts,
            max_steps,
            timeout,
            spend_limit,
            end_of_run,
            not_before,
            exact,
        } = self;
        let role = write.resolve_optional(role.as_ref())?;
        let task = adding.task(write, task, role, *exact)?;
        Ok(NewItem {
            task: task.id,
            description: description
                .as_deref()
                .map(|description| text::body("description", description, text::TEXT_MAX))
                .transpose()?,
            why: why.as_deref().map(|why| text::line("why", why, text::TEXT_MAX)).transpose()?,
            tags: patch::list("tag", Some(tags))?.unwrap_or_default(),
            role: role.or(task.role),
            priority: within(field!(priority), priority.unwrap_or_default(), -PRIORITY_MAX, PRIORITY_MAX)?,
            dedup_key: key("dedup key", dedup_key)?,
            concurrency_key: key("concurrency key", concurrency_key)?,
            workspace: write.resolve_optional(workspace.as_ref())?,
            message: write.resolve_optional(message.as_ref())?,
            is_sent_now: false,
            route: None,
            agent: only_taker(write, agent.as_ref())?,
            max_attempts: within(field!(max_attempts), max_attempts.unwrap_or(ATTEMPTS), 1, ATTEMPTS_MAX)?,
            limits: Limits {
                max_steps: max_steps.map(|steps| within(field!(max_steps), steps, 1, MAX_STEPS_MAX)).transpose()?,
                timeout: *timeout,
                spend_limit: limits::spend_limit(&spend_limit.map_or(Patch::Unset, Patch::Set))?.apply(None),
                end_of_run: end_of_run.map(Switch::is_on),
            },
            not_before: *not_before,
            exact: *exact,
            without_version: None,
        })
    }
}

/// A request that was checked.
#[derive(Debug, Clone)]
pub(crate) struct NewItem {
    pub task: Id<kind::Task>,
    pub description: Option<String>,
    pub why: Option<String>,
    pub tags: Vec<String>,
    pub role: Option<Id<kind::Role>>,
    pub priority: i64,
    pub dedup_key: Option<String>,
    pub concurrency_key: Option<String>,
    pub workspace: Option<Id<kind::Workspace>>,
    pub message: Option<Id<kind::Message>>,
    /// Whether whoever asks sends that message just now: then nobody else caused it.
    pub is_sent_now: bool,
    pub route: Option<Id<kind::Route>>,
    pub agent: Option<Id<kind::Agent>>,
    pub max_attempts: i64,
    pub limits: Limits,
    pub not_before: Option<Time>,
    /// Whether exactly this version is run.
    pub exact: bool,
    /// The variant of the task, if no version of it is live: then the item is blocked.
    pub without_version: Option<Variant>,
}

/// Limits that an item sets for its run, before those of its task and agent.
#[derive(Debug, Clone, Default)]
pub(crate) struct Limits {
    max_steps: Option<i64>,
    timeout: Option<Duration>,
    spend_limit: Option<f64>,
    end_of_run: Option<bool>,
}

impl NewItem {
    /// A request for a task, with nothing else said.
    pub(crate) fn of(task: Id<kind::Task>) -> Self {
        Self {
            task,
            description: None,
            why: None,
            tags: Vec::new(),
            role: None,
            priority: 0,
            dedup_key: None,
            concurrency_key: None,
            workspace: None,
            message: None,
            is_sent_now: false,
            route: None,
            agent: None,
            max_attempts: ATTEMPTS,
            limits: Limits::default(),
            not_before: None,
            exact: false,
            without_version: None,
        }
    }
}

/// Adds one item, inside the transaction of what causes it.
pub(crate) fn enqueue(context: &Context, write: &mut Writer<'_>, new: NewItem) -> Result<Added> {
    let added = enqueue_all(context, write, vec![new])?;
    added.into_iter().next().ok_or_else(|| Rule::usage("nothing to add").into())
}

/// Adds several items, inside the transaction of what causes them.
pub(crate) fn enqueue_all(context: &Context, write: &mut Writer<'_>, new: Vec<NewItem>) -> Result<Vec<Added>> {
    let mut adding = Adding::default();
    let added = new.into_iter().map(|new| adding.add(context, write, new)).collect::<Result<Vec<_>>>()?;
    adding.write(context, write)?;
    Ok(added)
}

row! {
    /// The run that asks, or whose message asks.
    pub struct Cause {
        run: Id<kind::Run>,
        chain_depth: i64,
        initiated_by: Option<Id<kind::Person>>,
    }
}

/// A task that can be asked for, because a version of it is live.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Usable {
    pub id: Id<kind::Task>,
    pub role: Option<Id<kind::Role>>,
}

row! {
    /// A task that is asked for, and the version that runs.
    pub struct AskedFor {
        id: Id<kind::Task>,
        role: Option<Id<kind::Role>>,
        variant: Variant,
        version: Option<Id<kind::Task>>,
    }
}

/// Whose pin decides which version of a task runs.
#[derive(Debug, Clone, Copy)]
pub(crate) enum PinOf {
    /// This role's, if one is given.
    Role(Option<Id<kind::Role>>),
    /// This role's, else that of the task's role.
    RoleOrTaskRole(Option<Id<kind::Role>>),
}

/// The task that a reference names and the version that runs of it.
fn asked_for(write: &mut Writer<'_>, reference: &Ref<kind::Task>, pin: PinOf, exact: bool) -> Result<AskedFor> {
    let (role, pinned_role) = match pin {
        PinOf::Role(role) => (role, "?3"),
        PinOf::RoleOrTaskRole(role) => (role, "coalesce(?3, t.role_id)"),
    };
    write.share_live_versions()?;
    let select = format!(
        "select t.id, t.role_id, t.variant, {} from tasks t where t.tenant_id = ?1",
        resolved("t.id", pinned_role, "?4")
    );
    let by_variant = write.one::<AskedFor>(
        &format!("{select} and t.variant = ?2 and t.deleted_at is null"),
        params![reference.as_str(), role, exact],
    )?;
    if let Some(found) = by_variant {
        return Ok(found);
    }
    let id = write.resolve(reference)?;
    Ok(write
        .one::<AskedFor>(&format!("{select} and t.id = ?2"), params![id, role, exact])?
        .ok_or_else(|| Rule::not_found(format!("there is no task {reference:?}")))?)
}

/// The task that a reference names, and the version that runs of it. A task without a live version is a conflict.
pub(crate) fn live_version_of(
    write: &mut Writer<'_>,
    reference: &Ref<kind::Task>,
    pin: PinOf,
    exact: bool,
) -> Result<(Usable, Id<kind::Task>)> {
    let AskedFor { id, role, variant, version } = asked_for(write, reference, pin, exact)?;
    match version {
        Some(version) => Ok((Usable { id, role }, version)),
        None if exact => Err(Rule::conflict(format!("task {variant} is archived"))
            .hint(sentence![
                "without ",
                field!(exact),
                ", the current version is run: ",
                command!("task latest", variant = variant),
            ])
            .into()),
        None => Err(Rule::conflict(format!("task {variant} is archived, and nothing live replaces it"))
            .hint(sentence![
                "bring it back: ",
                command!("task set", workflow = "NAME", variant = variant, archived = false),
            ])
            .into()),
    }
}

/// The task that a reference names, of which a version can be run.
pub(crate) fn usable_task(
    write: &mut Writer<'_>,
    reference: &Ref<kind::Task>,
    role: Option<Id<kind::Role>>,
    exact: bool,
) -> Result<Usable> {
    Ok(live_version_of(write, reference, PinOf::RoleOrTaskRole(role), exact)?.0)
}

/// Items that are added together: what they share is looked up once, and they are written at once.
#[derive(Debug, Default)]
struct Adding {
    /// By reference, role, and whether exactly that version is wanted.
    tasks: HashMap<(String, Option<Id<kind::Role>>, bool), Usable>,
    /// The task of the only item, which is looked up as it is written.
    variant: Option<String>,
    causes: HashMap<Option<Id<kind::Message>>, Option<Cause>>,
    /// Keys of the items not written yet, which the database does not know.
    keys: HashMap<String, Added>,
    items: Vec<QueueItem>,
}

impl Adding {
    fn task(
        &mut self,
        write: &mut Writer<'_>,
        reference: &Ref<kind::Task>,
        role: Option<Id<kind::Role>>,
        exact: bool,
    ) -> Result<Usable> {
        let key = (reference.as_str().to_owned(), role, exact);
        if let Some(known) = self.tasks.get(&key) {
            return Ok(*known);
        }
        let task = usable_task(write, reference, role, exact)?;
        self.tasks.insert(key, task);
        Ok(task)
    }

    /// What fires an item: the run that asks, else the run that sent the message it answers.
    fn cause(&mut self, context: &Context, write: &mut Writer<'_>, new: &NewItem) -> Result<Option<Cause>> {
        let asked_by = new.message.filter(|_| context.run.is_none() && !new.is_sent_now);
        if let Some(known) = self.causes.get(&asked_by) {
            return Ok(known.clone());
        }
        let cause = match (context.run, asked_by) {
            (Some(run), _) => write.one::<Cause>(
                "select id, chain_depth, initiated_by from runs where tenant_id = ?1 and id = ?2",
                params![run],
            )?,
            (None, Some(message)) => write.one::<Cause>(
                "select r.id, r.chain_depth, r.initiated_by from messages m join runs r on r.id = m.from_run_id
                 where m.tenant_id = ?1 and m.id = ?2",
                params![message],
            )?,
            (None, None) => None,
        };
        self.causes.insert(asked_by, cause.clone());
        Ok(cause)
    }

    fn add(&mut self, context: &Context, write: &mut Writer<'_>, new: NewItem) -> Result<Added> {
        if let Some(key) = &new.dedup_key {
            let mut present = unfinished(write, key)?;
            if matches!(present, Some((_, ItemStatus::Running))) && return_expired(context, write)? > 0 {
                // Whoever had it was not heard of any more: it may have been the last attempt.
                present = unfinished(write, key)?;
            }
            let present = present.map(|(id, status)| Added { id, status, duplicate: true, notices: Vec::new() });
            if let Some(present) = present.or_else(|| self.keys.get(key).cloned()) {
                return Ok(Added { duplicate: true, ..present });
            }
        }
        let cause = self.cause(context, write, &new)?;
        let chain_depth = cause.as_ref().map_or(0, |cause| cause.chain_depth + 1);
        let mut why = new.why;
        let mut notices = Vec::new();
        let status = if chain_depth > CHAIN_MAX {
            let chain = chain_of(write, cause.as_ref(), new.task)?;
            notices
                .push(format!("the chain is {chain_depth} deep, past the limit of {CHAIN_MAX}: the item is blocked"));
            let chain = format!("the chain is {chain_depth} deep, past the limit of {CHAIN_MAX}: {chain}");
            why = Some(with_block_reason(&chain, why.as_deref()));
            ItemStatus::Blocked
        } else if let Some(variant) = &new.without_version {
            let reason = no_live_version(variant.as_str(), new.exact);
            notices.push(format!("{reason}: the item is blocked"));
            why = Some(with_block_reason(&reason, why.as_deref()));
            ItemStatus::Blocked
        } else if new.not_before.is_some_and(|time| time > write.now) {
            ItemStatus::Waiting
        } else {
            ItemStatus::Ready
        };
        let item = QueueItem {
            id: write.new_id(),
            tenant_id: context.tenant,
            description: new.description,
            status,
            why,
            tags: new.tags,
            task_id: new.task,
            run_task_id: None,
            exact: new.exact,
            task_revision: None,
            message_id: new.message,
            route_id: new.route,
            workspace_id: new.workspace,
            role_id: new.role,
            agent_id: new.agent,
            priority: new.priority,
            in_queue_since: write.now,
            not_before: new.not_before,
            dedup_key: new.dedup_key,
            concurrency_key: new.concurrency_key,
            held_key: None,
            attempt: 1,
            max_attempts: new.max_attempts,
            max_steps: new.limits.max_steps,
            timeout: new.limits.timeout,
            spend_limit: new.limits.spend_limit,
            end_of_run: new.limits.end_of_run,
            lease_seconds: None,
            lease_expires: None,
            heartbeat_at: None,
            taken_by: None,
            slot: None,
            fence: 0,
            run_id: None,
            initiated_by: match context.actor {
                Actor::Person(person) => Some(person),
                Actor::Agent(_) => cause.as_ref().and_then(|cause| cause.initiated_by),
            },
            cause_kind: cause.as_ref().map(|_| kind::Kind::Run),
            cause_id: cause.as_ref().map(|cause| cause.run.uuid()),
            chain_depth,
            result: None,
            error: None,
            created_at: write.now,
            finished_at: None,
        };
        let added = Added { id: item.id, status, duplicate: false, notices };
        if let Some(key) = &item.dedup_key {
            self.keys.insert(key.clone(), added.clone());
        }
        self.items.push(item);
        Ok(added)
    }

    fn write(self, context: &Context, write: &mut Writer<'_>) -> Result<()> {
        // Whoever waits is to know until when.
        if self.items.iter().any(|item| matches!(item.status, ItemStatus::Ready | ItemStatus::Waiting)) {
            write.ring();
        }
        match (&self.variant, self.items.as_slice()) {
            (Some(variant), [item]) => write.insert_item_of(item, variant)?,
            (_, items) => write.insert_all(items)?,
        }
        let entries: Vec<_> = self
            .items
            .iter()
            .map(|item| Registered::new(write, context.actor.id(), item.id, &resource(item.id).path))
            .collect();
        write.insert_all(&entries)?;
        Ok(())
    }
}

/// The agent that alone may take an item, where one is named. The worker takes what names no agent: to name it is to name
/// none.
fn only_taker(write: &mut Writer<'_>, agent: Option<&Ref<kind::Agent>>) -> Result<Option<Id<kind::Agent>>> {
    let Some(agent) = agent.filter(|agent| agent.as_str() != WORKER) else { return Ok(None) };
    let id = write.resolve(agent)?;
    let archived = "select handle from agents where tenant_id = ?1 and id = ?2 and archived";
    match write.one::<(String,)>(archived, params![id])? {
        Some((handle,)) => Err(Rule::conflict(format!("agent {handle} is archived, and takes nothing"))
            .hint(sentence![command!("agent set", handle = handle, archived = false), " brings it back"])
            .into()),
        None => Ok(Some(id)),
    }
}

/// The tasks of a chain, the newest last.
fn chain_of(write: &mut Writer<'_>, cause: Option<&Cause>, task: Id<kind::Task>) -> Result<String> {
    let mut names = write
        .query::<(String,)>("select variant from tasks where tenant_id = ?1 and id = ?2", params![task])?
        .into_iter()
        .map(|(variant,)| variant)
        .collect::<Vec<_>>();
    let mut next = cause.map(|cause| cause.run);
    for _ in 0..=CHAIN_MAX {
        let Some(run) = next else { break };
        let found = write.one::<(Option<String>, Option<Id<kind::Run>>)>(
            "select t.variant, coalesce(r.parent_run_id, case when q.cause_kind = 'run' then q.cause_id end)
             from runs r left join tasks t on t.id = r.task_id left join queue_items q on q.id = r.queue_item_id
             where r.tenant_id = ?1 and r.id = ?2",
            params![run],
        )?;
        let Some((variant, before)) = found else { break };
        names.push(variant.unwrap_or_else(|| format!("run {}", run.short())));
        next = before;
    }
    if next.is_some() {
        names.push("…".to_owned());
    }
    names.reverse();
    Ok(names.join(" → "))
}

use std::collections::HashMap;

use serde::{Deserialize, Serialize};
use trackway_domain::{
    Duration, Error as Rule, Id, Patch, Ref, Time, Variant, command,
    enums::{ItemStatus, Switch},
    field, kind, patch,
    queue::{CHAIN_MAX, DEFAULT_MAX_ATTEMPTS, MAX_ATTEMPTS_LIMIT, MAX_STEPS_LIMIT, PRIORITY_MAX, check_range},
    sentence, text,
};
use trackway_store::{
    Writer, params,
    queue::{ItemInsert, RunnableTask, version_to_run},
    row,
    tables::{NewRegistryEntry, QueueItem},
};

use super::{lease::return_expired, resource, unfinished_item_by_key};
use crate::{
    action::{Action, ActionOutcome},
    context::{Actor, Context},
    error::Result,
    limits,
    task::lineage::{no_live_version_reason, with_block_reason},
    tenant::WORKER,
    touched::{Touch, action_type},
};

/// Add a queue item, so that a task is run
///
/// If an unfinished item has the same dedup key, the output is that item and nothing is added.
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
#[serde(deny_unknown_fields)]
pub struct AddItem {
    /// Task to run, by variant or id
    #[arg(long)]
    pub task: Ref<kind::Task>,
    /// Description of the request
    #[arg(long)]
    pub description: Option<String>,
    /// Reason for the request
    #[arg(long)]
    pub why: Option<String>,
    /// Tag. Repeatable
    #[arg(long = "tag", value_name = "TAG", num_args = 1..)]
    #[serde(default)]
    pub tags: Vec<String>,
    /// Only agents with this role may take the item; the worker always may [default: the task's]
    #[arg(long)]
    pub role: Option<Ref<kind::Role>>,
    /// Priority; items with higher numbers are taken first [default: 0]
    #[arg(long, value_name = "NUMBER", allow_negative_numbers = true)]
    pub priority: Option<i64>,
    /// Key that identifies the request. Only one unfinished item may have it
    #[arg(long, value_name = "KEY")]
    #[schemars(length(min = 1, max = text::LINE_MAX), regex(pattern = text::NOT_BLANK_PATTERN))]
    pub dedup_key: Option<String>,
    /// Key that limits concurrency. Items with the same key run one after the other
    #[arg(long, value_name = "KEY")]
    #[schemars(length(min = 1, max = text::LINE_MAX), regex(pattern = text::NOT_BLANK_PATTERN))]
    pub concurrency_key: Option<String>,
    /// Workspace of the run [default: the task's]
    #[arg(long)]
    pub workspace: Option<Ref<kind::Workspace>>,
    /// Message that the item answers
    #[arg(long)]
    pub message: Option<Ref<kind::Message>>,
    /// Agent that alone may take the item
    #[arg(long)]
    pub agent: Option<Ref<kind::Agent>>,
    /// Maximum number of attempts [default: 5]
    #[arg(long, value_name = "NUMBER")]
    pub max_attempts: Option<i64>,
    /// Maximum model turns of the run, 1 to 200 [default: the task's, else the agent's]
    #[arg(long, value_name = "NUMBER")]
    #[schemars(range(min = 1, max = MAX_STEPS_LIMIT))]
    pub max_steps: Option<i64>,
    /// Timeout of the run, such as 90m or 1h30m [default: the task's, else the agent's]
    #[arg(long)]
    pub timeout: Option<Duration>,
    /// Stop the run once its agent has spent this much today [default: the task's, else the agent's]
    #[arg(long, value_name = "AMOUNT")]
    #[schemars(range(min = 0))]
    pub spend_limit: Option<f64>,
    /// Whether to ask the agent for its scratchpad and report at the end [default: the task's, else the agent's]
    #[arg(long)]
    pub end_of_run: Option<Switch>,
    /// Earliest start, such as 2026-02-27 or 2026-02-27T09:30:00Z
    #[arg(long, value_name = "TIME")]
    pub not_before: Option<Time>,
    /// Run exactly this version, not the version pinned for the role or the current version
    #[arg(long)]
    #[serde(default)]
    pub exact: bool,
}

/// The added item, or the existing one with the same dedup key.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct AddedItem {
    pub id: Id<kind::QueueItem>,
    pub status: ItemStatus,
    /// Whether the item existed already.
    pub duplicate: bool,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notices: Vec<String>,
}

impl Action for AddItem {
    const NAME: &'static str = "queue_add";
    const COMMAND: (&'static str, &'static str) = ("queue", "add");
    type Touched = Touch<kind::QueueItem, action_type::Create>;
    type Output = AddedItem;

    fn perform(&self, context: &Context, write: &mut Writer<'_>) -> Result<ActionOutcome<Self>> {
        let outcomes = Self::perform_all(std::slice::from_ref(self), context, write)?;
        outcomes.into_iter().next().ok_or_else(|| Rule::usage("no queue item was given").into())
    }

    fn perform_all(actions: &[Self], context: &Context, write: &mut Writer<'_>) -> Result<Vec<ActionOutcome<Self>>> {
        let mut batch = ItemBatch::default();
        if let [action] = actions
            && context.run.is_none()
            && action.references_only_its_task()
        {
            batch.find_single_task(write, &action.task)?;
        }
        let outcomes = actions
            .iter()
            .map(|action| {
                let new = action.new_item(&mut batch, write)?;
                let added = batch.add(context, write, new)?;
                Ok(if added.duplicate {
                    ActionOutcome::unchanged(added)
                } else {
                    let resource = resource(added.id);
                    ActionOutcome::changed(added, &resource, Touch::one(resource.clone()))
                })
            })
            .collect::<Result<Vec<_>>>()?;
        batch.write(context, write)?;
        Ok(outcomes)
    }
}

impl AddItem {
    /// A request for a task, with defaults for all other fields.
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

    /// Whether the task is the only row to look up.
    fn references_only_its_task(&self) -> bool {
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

    fn new_item(&self, batch: &mut ItemBatch, write: &mut Writer<'_>) -> Result<NewItem> {
        let key = |field, given: &Option<String>| {
            given.as_deref().map(|key| text::check_required_line(field, key, text::LINE_MAX)).transpose()
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
        let task = batch.task(write, task, role, *exact)?;
        Ok(NewItem {
            task: task.id,
            description: description
                .as_deref()
                .map(|description| text::check_body("description", description, text::TEXT_MAX))
                .transpose()?,
            why: why.as_deref().map(|why| text::check_line("why", why, text::TEXT_MAX)).transpose()?,
            tags: patch::clean_list("tag", Some(tags))?.unwrap_or_default(),
            role: role.or(task.role),
            priority: check_range(field!(priority), priority.unwrap_or_default(), -PRIORITY_MAX, PRIORITY_MAX)?,
            dedup_key: key("dedup key", dedup_key)?,
            concurrency_key: key("concurrency key", concurrency_key)?,
            workspace: write.resolve_optional(workspace.as_ref())?,
            message: write.resolve_optional(message.as_ref())?,
            is_message_new: false,
            route: None,
            agent: only_taker(write, agent.as_ref())?,
            max_attempts: check_range(
                field!(max_attempts),
                max_attempts.unwrap_or(DEFAULT_MAX_ATTEMPTS),
                1,
                MAX_ATTEMPTS_LIMIT,
            )?,
            limits: Limits {
                max_steps: max_steps
                    .map(|steps| check_range(field!(max_steps), steps, 1, MAX_STEPS_LIMIT))
                    .transpose()?,
                timeout: *timeout,
                spend_limit: limits::check_spend_limit(&spend_limit.map_or(Patch::Unset, Patch::Set))?.apply(None),
                end_of_run: end_of_run.map(Switch::is_on),
            },
            not_before: *not_before,
            exact: *exact,
            variant_without_live_version: None,
        })
    }
}

/// A validated request, with references resolved to ids.
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
    /// True if the caller sends `message` in this transaction. Then the cause of the item is the calling run, not the
    /// sender of the message.
    pub is_message_new: bool,
    pub route: Option<Id<kind::Route>>,
    pub agent: Option<Id<kind::Agent>>,
    pub max_attempts: i64,
    pub limits: Limits,
    pub not_before: Option<Time>,
    /// Run exactly the version `task`.
    pub exact: bool,
    /// The variant of the task if no version of it is live. The item is then blocked.
    pub variant_without_live_version: Option<Variant>,
}

/// Limits that an item sets for its run. They override those of its task and agent.
#[derive(Debug, Clone, Default)]
pub(crate) struct Limits {
    max_steps: Option<i64>,
    timeout: Option<Duration>,
    spend_limit: Option<f64>,
    end_of_run: Option<bool>,
}

impl NewItem {
    /// A request for a task, with defaults for all other fields.
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
            is_message_new: false,
            route: None,
            agent: None,
            max_attempts: DEFAULT_MAX_ATTEMPTS,
            limits: Limits::default(),
            not_before: None,
            exact: false,
            variant_without_live_version: None,
        }
    }
}

/// Adds one item in the transaction of another action.
pub(crate) fn enqueue(context: &Context, write: &mut Writer<'_>, new: NewItem) -> Result<AddedItem> {
    let added = enqueue_all(context, write, vec![new])?;
    added.into_iter().next().ok_or_else(|| Rule::usage("no queue item was given").into())
}

/// Adds several items in the transaction of another action.
pub(crate) fn enqueue_all(context: &Context, write: &mut Writer<'_>, new: Vec<NewItem>) -> Result<Vec<AddedItem>> {
    let mut batch = ItemBatch::default();
    let added = new.into_iter().map(|new| batch.add(context, write, new)).collect::<Result<Vec<_>>>()?;
    batch.write(context, write)?;
    Ok(added)
}

row! {
    /// The run that requests an item, or that sent the message which requests it.
    pub struct Cause {
        run: Id<kind::Run>,
        chain_depth: i64,
        initiated_by: Option<Id<kind::Person>>,
    }
}

row! {
    /// The task that a request names, and the version to run, if one is live.
    pub struct RequestedTask {
        id: Id<kind::Task>,
        role: Option<Id<kind::Role>>,
        variant: Variant,
        version: Option<Id<kind::Task>>,
    }
}

/// The role whose pin selects the version of a task.
#[derive(Debug, Clone, Copy)]
pub(crate) enum PinSource {
    /// This role. `None` means the current version.
    Role(Option<Id<kind::Role>>),
    /// This role, else the task's role.
    RoleOrTaskRole(Option<Id<kind::Role>>),
}

/// Resolves the task that a request names, and the version to run.
fn requested_task(
    write: &mut Writer<'_>,
    reference: &Ref<kind::Task>,
    pin: PinSource,
    exact: bool,
) -> Result<RequestedTask> {
    let (role, pinned_role) = match pin {
        PinSource::Role(role) => (role, "?3"),
        PinSource::RoleOrTaskRole(role) => (role, "coalesce(?3, t.role_id)"),
    };
    write.lock_live_versions_shared()?;
    let select = format!(
        "select t.id, t.role_id, t.variant, {} from tasks t where t.tenant_id = ?1",
        version_to_run("t.id", pinned_role, "?4")
    );
    let by_variant = write.one::<RequestedTask>(
        &format!("{select} and t.variant = ?2 and t.deleted_at is null"),
        params![reference.as_str(), role, exact],
    )?;
    if let Some(found) = by_variant {
        return Ok(found);
    }
    let id = write.resolve(reference)?;
    Ok(write
        .one::<RequestedTask>(&format!("{select} and t.id = ?2"), params![id, role, exact])?
        .ok_or_else(|| Rule::not_found(format!("there is no task {reference:?}")))?)
}

/// Resolves the task that a request names, and the version to run. A task without a live version is a conflict.
pub(crate) fn live_version_of(
    write: &mut Writer<'_>,
    reference: &Ref<kind::Task>,
    pin: PinSource,
    exact: bool,
) -> Result<(RunnableTask, Id<kind::Task>)> {
    let RequestedTask { id, role, variant, version } = requested_task(write, reference, pin, exact)?;
    match version {
        Some(version) => Ok((RunnableTask { id, role }, version)),
        None if exact => Err(Rule::conflict(format!("task {variant} is archived"))
            .hint(sentence![
                "without ",
                field!(exact),
                ", the item runs the current version: ",
                command!("task latest", variant = variant),
            ])
            .into()),
        None => Err(Rule::conflict(format!("task {variant} is archived, and no live version replaces it"))
            .hint(sentence![
                "unarchive it: ",
                command!("task set", workflow = "NAME", variant = variant, archived = false),
            ])
            .into()),
    }
}

/// Resolves the task that a request names. A task without a live version is a conflict.
pub(crate) fn runnable_task(
    write: &mut Writer<'_>,
    reference: &Ref<kind::Task>,
    role: Option<Id<kind::Role>>,
    exact: bool,
) -> Result<RunnableTask> {
    Ok(live_version_of(write, reference, PinSource::RoleOrTaskRole(role), exact)?.0)
}

/// Items that are added together. Shared references are looked up once, and all rows are inserted together.
#[derive(Debug, Default)]
struct ItemBatch {
    /// The key is the reference, the role, and whether that exact version was requested.
    tasks: HashMap<(String, Option<Id<kind::Role>>, bool), RunnableTask>,
    insert: ItemInsert,
    causes: HashMap<Option<Id<kind::Message>>, Option<Cause>>,
    /// Dedup keys of the items that are not inserted yet.
    keys: HashMap<String, AddedItem>,
    items: Vec<QueueItem>,
}

impl ItemBatch {
    /// Finds the task of the only item, which references nothing else.
    fn find_single_task(&mut self, write: &mut Writer<'_>, reference: &Ref<kind::Task>) -> Result<()> {
        let look_up = |write: &mut Writer<'_>| runnable_task(write, reference, None, false);
        let task = self.insert.task_of_single_item(write, reference.as_str(), look_up)?;
        self.tasks.insert((reference.as_str().to_owned(), None, false), task);
        Ok(())
    }

    fn task(
        &mut self,
        write: &mut Writer<'_>,
        reference: &Ref<kind::Task>,
        role: Option<Id<kind::Role>>,
        exact: bool,
    ) -> Result<RunnableTask> {
        let key = (reference.as_str().to_owned(), role, exact);
        if let Some(known) = self.tasks.get(&key) {
            return Ok(*known);
        }
        let task = runnable_task(write, reference, role, exact)?;
        self.tasks.insert(key, task);
        Ok(task)
    }

    /// The run that causes an item: the calling run, else the run that sent the message which the item answers.
    fn cause(&mut self, context: &Context, write: &mut Writer<'_>, new: &NewItem) -> Result<Option<Cause>> {
        let causing_message = new.message.filter(|_| context.run.is_none() && !new.is_message_new);
        if let Some(known) = self.causes.get(&causing_message) {
            return Ok(known.clone());
        }
        let cause = match (context.run, causing_message) {
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
        self.causes.insert(causing_message, cause.clone());
        Ok(cause)
    }

    fn add(&mut self, context: &Context, write: &mut Writer<'_>, new: NewItem) -> Result<AddedItem> {
        if let Some(key) = &new.dedup_key {
            let mut present = unfinished_item_by_key(write, key)?;
            if matches!(present, Some((_, ItemStatus::Running))) && return_expired(context, write)? > 0 {
                // The item that has the key may have been returned or have failed for good. Query it again.
                present = unfinished_item_by_key(write, key)?;
            }
            let present = present.map(|(id, status)| AddedItem { id, status, duplicate: true, notices: Vec::new() });
            if let Some(present) = present.or_else(|| self.keys.get(key).cloned()) {
                return Ok(AddedItem { duplicate: true, ..present });
            }
        }
        let cause = self.cause(context, write, &new)?;
        let chain_depth = cause.as_ref().map_or(0, |cause| cause.chain_depth + 1);
        let mut why = new.why;
        let mut notices = Vec::new();
        let status = if chain_depth > CHAIN_MAX {
            let chain = chain_of(write, cause.as_ref(), new.task)?;
            notices.push(format!(
                "the chain of runs is {chain_depth} deep, above the limit of {CHAIN_MAX}: the item is blocked"
            ));
            let chain = format!("the chain of runs is {chain_depth} deep, above the limit of {CHAIN_MAX}: {chain}");
            why = Some(with_block_reason(&chain, why.as_deref()));
            ItemStatus::Blocked
        } else if let Some(variant) = &new.variant_without_live_version {
            let reason = no_live_version_reason(variant.as_str(), new.exact);
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
        let added = AddedItem { id: item.id, status, duplicate: false, notices };
        if let Some(key) = &item.dedup_key {
            self.keys.insert(key.clone(), added.clone());
        }
        self.items.push(item);
        Ok(added)
    }

    fn write(self, context: &Context, write: &mut Writer<'_>) -> Result<()> {
        // Notify waiting workers also of items that become ready later, so that they wake up in time.
        if self.items.iter().any(|item| matches!(item.status, ItemStatus::Ready | ItemStatus::Waiting)) {
            write.notify_workers_on_commit();
        }
        self.insert.insert(write, &self.items)?;
        let entries: Vec<_> = self
            .items
            .iter()
            .map(|item| NewRegistryEntry::new(write, context.actor.id(), item.id, &resource(item.id).path))
            .collect();
        write.insert_all(&entries)?;
        Ok(())
    }
}

/// Resolves the only agent that may take an item. The worker is stored as no agent, because the worker takes the items
/// that name no agent.
fn only_taker(write: &mut Writer<'_>, agent: Option<&Ref<kind::Agent>>) -> Result<Option<Id<kind::Agent>>> {
    let Some(agent) = agent.filter(|agent| agent.as_str() != WORKER) else { return Ok(None) };
    let id = write.resolve(agent)?;
    let archived = "select handle from agents where tenant_id = ?1 and id = ?2 and archived";
    match write.one::<(String,)>(archived, params![id])? {
        Some((handle,)) => Err(Rule::conflict(format!("agent {handle} is archived, so it cannot take queue items"))
            .hint(sentence!["unarchive it: ", command!("agent set", handle = handle, archived = false)])
            .into()),
        None => Ok(Some(id)),
    }
}

/// The variants of the tasks in a chain of runs, the oldest first. Each run caused the next one.
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

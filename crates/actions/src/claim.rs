//! Claiming a task: queueing it and taking the queue item in one transaction.

use serde::Deserialize;
use trackway_domain::{
    Error as Rule, Id, Ref, command, kind,
    queue::{self, check_lease},
    sentence,
};
use trackway_store::{
    Table, Writer, params,
    queue::{RoleFilter, TakeRequest, TakingAgent, UnassignedFilter},
    tables::{QueueItem, Task},
};

use crate::{
    action::{Action, ActionOutcome, Subject},
    context::Context,
    error::Result,
    queue::{
        NewItem, TakenItem,
        add::{PinSource, live_version_of},
        claim_key, enqueue, is_claim,
        lease::return_expired,
        resource,
        take::{create_runs, free_slots, role_filter, taking_agent, why_not_takeable},
    },
    touched::{Touch, action_type},
};

/// Claim the most urgent ready task, or the given one, and start a run for it
///
/// The output contains the run and its token. Completing the queue item completes the task. Failing or releasing it
/// opens the task again.
#[derive(Debug, Default, Deserialize, schemars::JsonSchema, clap::Args)]
#[serde(deny_unknown_fields)]
pub struct Claim {
    /// Agent that claims the task [default: worker]
    #[arg(long)]
    pub agent: Option<Ref<kind::Agent>>,
    /// Task to claim, ready or not
    #[arg(long)]
    pub task: Option<Ref<kind::Task>>,
    /// Workspace of the run [default: the task's]
    #[arg(long)]
    pub workspace: Option<Ref<kind::Workspace>>,
    /// The role of the run. Only `task run` sets it. The default is the agent's role.
    #[arg(skip)]
    #[serde(skip)]
    pub role: Option<Ref<kind::Role>>,
    /// Resolves the version as a queue item would: the pin of the item's role, else the current version. Only
    /// `task run` sets this. Other claims take the current version, because `ready` lists that one.
    #[arg(skip)]
    #[serde(skip)]
    pub by_pin: bool,
    /// Lease duration in seconds. Every write of the run and every heartbeat extends the lease [default: 300]
    #[arg(long, value_name = "SECONDS")]
    #[schemars(range(min = 1, max = queue::LEASE_SECONDS_MAX))]
    pub lease: Option<i64>,
}

impl Action for Claim {
    const NAME: &'static str = "claim";
    const COMMAND: (&'static str, &'static str) = ("", "claim");
    type Touched = Touch<kind::QueueItem, action_type::Create>;
    type Output = Vec<TakenItem>;

    fn perform(&self, context: &Context, write: &mut Writer<'_>) -> Result<ActionOutcome<Self>> {
        let lease_seconds = check_lease(self.lease)?;
        let agent = taking_agent(context, write, self.agent.as_ref())?;
        let workspace = write.resolve_optional(self.workspace.as_ref())?;
        let role = write.resolve_optional(self.role.as_ref())?;
        // A task whose claim expired can be claimed again.
        return_expired(context, write)?;
        let slots = free_slots(write, &agent)?;
        if slots.as_ref().is_some_and(Vec::is_empty) {
            if self.task.is_none() {
                return Ok(ActionOutcome::unchanged(Vec::new()));
            }
            return Err(Rule::conflict(format!(
                "agent {} already holds its maximum number of queue items",
                agent.handle
            ))
            .hint(sentence![
                command!("queue held"),
                " shows them; ",
                command!("agent set", handle = agent.handle, max_items = "NUMBER"),
            ])
            .into());
        }
        let roles = role_filter(&agent);
        let found = match &self.task {
            Some(task) => Some(resolve_claim_target(write, task, role, self.by_pin.then_some(roles))?),
            None => next_task(write, roles)?.map(|task| ClaimTarget { task, version: task, role }),
        };
        let Some(ClaimTarget { task: requested, version: task, role }) = found else {
            return Ok(ActionOutcome::unchanged(Vec::new()));
        };
        // The lock stops concurrent claims of the same task, whether by name or by priority.
        let held = write.row_locked::<Task>("where tenant_id = ?1 and id = ?2", params![task])?;
        let is_once = held.as_ref().is_some_and(|task| !task.recurring);
        if let Some(held) = held.filter(|_| is_once)
            && let Some(claim) = claim_of_lineage(write, &held)?
        {
            refuse_claimed(write, claim)?;
        }
        let new = NewItem {
            // The worker takes only items that name no agent.
            agent: (roles != RoleFilter::All).then_some(agent.id),
            workspace,
            role,
            // After a failure the task is open for the next claim instead of being retried.
            max_attempts: 1,
            dedup_key: is_once.then(|| claim_key(task)),
            // Without `by_pin`, `task` is the version that was resolved above.
            exact: !self.by_pin,
            ..NewItem::of(requested)
        };
        let added = enqueue(context, write, new)?;
        if added.duplicate {
            refuse_claimed(write, added.id)?;
            write.make_due_items_ready()?;
        }
        let request = TakeRequest {
            agent: TakingAgent::ById(agent.id),
            roles,
            unassigned: UnassignedFilter::All,
            item: Some(added.id),
            limit: 1,
            slots,
            lease_seconds,
        };
        let picked = write.pick_items(&request, queue::lease_end(write.now, lease_seconds))?;
        if picked.is_empty() {
            return Err(why_not_takeable(write, added.id, &agent)?.into());
        }
        let taken = create_runs(context, write, &request, picked)?;
        let subjects = taken.iter().map(|taken| Subject::from(&resource(taken.id))).collect();
        // A claim that takes an existing item does not create one, so it records no touch.
        let created = if added.duplicate { Touch::none() } else { Touch::one(resource(added.id)) };
        Ok(ActionOutcome::changed_several(taken, subjects, created))
    }
}

/// The task to claim: the requested version, the version that runs, and the role of the queue item.
struct ClaimTarget {
    task: Id<kind::Task>,
    version: Id<kind::Task>,
    role: Option<Id<kind::Role>>,
}

/// Resolves a task that is claimed by name. If no other role was requested, the item gets the task's role, provided
/// that `by_pin_for` contains it.
fn resolve_claim_target(
    write: &mut Writer<'_>,
    task: &Ref<kind::Task>,
    role: Option<Id<kind::Role>>,
    by_pin_for: Option<RoleFilter>,
) -> Result<ClaimTarget> {
    let Some(roles) = by_pin_for else {
        let version = live_version_of(write, task, PinSource::Role(role), false)?.1;
        return Ok(ClaimTarget { task: version, version, role });
    };
    let (requested, version) = live_version_of(write, task, PinSource::RoleOrTaskRole(role), false)?;
    let has_role = |own: &Id<kind::Role>| match roles {
        RoleFilter::All => true,
        RoleFilter::Own(agent_role) => agent_role == Some(*own),
    };
    let item_role = role.or(requested.role.filter(has_role));
    if item_role == role.or(requested.role) {
        return Ok(ClaimTarget { task: requested.id, version, role: item_role });
    }
    let version = live_version_of(write, task, PinSource::Role(role), false)?.1;
    Ok(ClaimTarget { task: requested.id, version, role: item_role })
}

/// The running queue item that claims any version of the task.
fn claim_of_lineage(write: &mut Writer<'_>, task: &Task) -> Result<Option<Id<kind::QueueItem>>> {
    let found = write.query::<QueueItem>(
        &format!(
            "{} where queue_items.tenant_id = ?1 and finished_at is null and status = 'running'
             and task_id in (select v.id from tasks v where v.tenant_id = ?1 and v.lineage_id = ?2)",
            QueueItem::select()
        ),
        params![task.lineage_id],
    )?;
    Ok(found.iter().find(|item| is_claim(item)).map(|item| item.id))
}

/// Rejects the claim if the item is running.
fn refuse_claimed(write: &mut Writer<'_>, item: Id<kind::QueueItem>) -> Result<()> {
    let held = write.one::<(String, String)>(
        "select t.variant, a.handle from queue_items q join tasks t on t.id = coalesce(q.run_task_id, q.task_id) join agents a on a.id = q.taken_by
         where q.tenant_id = ?1 and q.id = ?2 and q.status = 'running'",
        params![item],
    )?;
    match held {
        Some((variant, holder)) => Err(Rule::conflict(format!("task {variant} is already claimed by {holder}"))
            .hint(sentence![
                format!("its queue item is {}; ", item.short()),
                command!("queue held"),
                " lists all held items",
            ])
            .into()),
        None => Ok(()),
    }
}

/// The most urgent ready task that no concurrent transaction is claiming.
fn next_task(write: &mut Writer<'_>, roles: RoleFilter) -> Result<Option<Id<kind::Task>>> {
    let (role, bound) = match &roles {
        RoleFilter::All => ("", None),
        RoleFilter::Own(None) => (" and t.role_id is null", None),
        RoleFilter::Own(Some(role)) => (" and (t.role_id is null or t.role_id = ?2)", Some(*role)),
    };
    let skip = write.row_lock(" for update of t skip locked");
    let sql = format!(
        "select t.id from tasks t where {}{role} order by t.priority, t.created_at, t.id limit 1{skip}",
        trackway_store::queue::READY_TASK_CONDITION
    );
    let found = match bound {
        Some(role) => write.one::<(Id<kind::Task>,)>(&sql, params![role])?,
        None => write.one::<(Id<kind::Task>,)>(&sql, params![])?,
    };
    Ok(found.map(|(task,)| task))
}

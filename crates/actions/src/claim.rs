//! Claiming the next ready task: queued and taken in one go.

use serde::Deserialize;
use trackway_domain::{
    Error as Rule, Id, Ref, command, kind,
    queue::{self, lease},
    sentence,
};
use trackway_store::{
    Table, Writer, params,
    queue::{Roles, Taker, Unnamed, Who},
    tables::{QueueItem, Task},
};

use crate::{
    action::{About, Action, Done},
    context::Context,
    error::Result,
    queue::{
        NewItem, Taken,
        add::{PinOf, live_version_of},
        claim_key, enqueue, is_claim,
        lease::return_expired,
        resource,
        take::{begin, free_slots, roles, taking_agent, why_not},
    },
    touched::{Touch, did},
};

/// Claim the most urgent ready task, or the one you name, and get a run and its token for it
///
/// The task is in progress until its queue item is completed, which makes it done, or fails or is released, which opens it
/// again.
#[derive(Debug, Default, Deserialize, schemars::JsonSchema, clap::Args)]
#[serde(deny_unknown_fields)]
pub struct Claim {
    /// The agent that claims it (the worker, when it is not said)
    #[arg(long)]
    pub agent: Option<Ref<kind::Agent>>,
    /// This task, ready or not
    #[arg(long)]
    pub task: Option<Ref<kind::Task>>,
    /// The workspace it happens in (the task's, when it is not said)
    #[arg(long)]
    pub workspace: Option<Ref<kind::Workspace>>,
    /// The role it is done in, for `task run` (the agent's, when it is not said).
    #[arg(skip)]
    #[serde(skip)]
    pub role: Option<Ref<kind::Role>>,
    /// How long it is yours without a sign of life, in seconds (300)
    #[arg(long, value_name = "SECONDS")]
    #[schemars(range(min = 1, max = queue::LEASE_SECONDS_MAX))]
    pub lease: Option<i64>,
}

impl Action for Claim {
    const NAME: &'static str = "claim";
    const COMMAND: (&'static str, &'static str) = ("", "claim");
    type Touched = Touch<kind::QueueItem, did::Create>;
    type Output = Vec<Taken>;

    fn perform(&self, context: &Context, write: &mut Writer<'_>) -> Result<Done<Self>> {
        let lease_seconds = lease(self.lease)?;
        let agent = taking_agent(context, write, self.agent.as_ref())?;
        let workspace = write.resolve_optional(self.workspace.as_ref())?;
        let role = write.resolve_optional(self.role.as_ref())?;
        // What somebody claimed and left is open again.
        return_expired(context, write)?;
        let slots = free_slots(write, &agent)?;
        if slots.as_ref().is_some_and(Vec::is_empty) {
            if self.task.is_none() {
                return Ok(Done::unchanged(Vec::new()));
            }
            return Err(Rule::conflict(format!("agent {} holds as many items as it may", agent.handle))
                .hint(sentence![
                    command!("queue held"),
                    " shows them; ",
                    command!("agent set", handle = agent.handle, max_items = "NUMBER"),
                ])
                .into());
        }
        let roles = roles(&agent);
        let task = match &self.task {
            Some(task) => Some(live_version_of(write, task, PinOf::Role(role), false)?.1),
            None => next_task(write, roles)?,
        };
        let Some(task) = task else {
            return Ok(Done::unchanged(Vec::new()));
        };
        // Held from here on, whoever claims it by name or by its turn.
        let held = write.row_locked::<Task>("where tenant_id = ?1 and id = ?2", params![task])?;
        let is_once = held.as_ref().is_some_and(|task| !task.recurring);
        if let Some(held) = held.filter(|_| is_once)
            && let Some(claim) = claim_of_lineage(write, &held)?
        {
            refuse_held(write, claim)?;
        }
        let new = NewItem {
            // The worker takes nothing that names an agent.
            agent: (roles != Roles::All).then_some(agent.id),
            workspace,
            role,
            // What fails is open again for whoever claims next.
            max_attempts: 1,
            dedup_key: is_once.then(|| claim_key(task)),
            // It was resolved just now.
            exact: true,
            ..NewItem::of(task)
        };
        let added = enqueue(context, write, new)?;
        if added.duplicate {
            refuse_held(write, added.id)?;
            write.make_due_items_ready()?;
        }
        let taker = Taker {
            who: Who::Known(agent.id),
            roles,
            unnamed: Unnamed::All,
            item: Some(added.id),
            limit: 1,
            slots,
            lease_seconds,
        };
        let picked = write.pick_items(&taker, queue::lease_end(write.now, lease_seconds))?;
        if picked.is_empty() {
            return Err(why_not(write, added.id, &agent)?.into());
        }
        let taken = begin(context, write, &taker, picked)?;
        let about = taken.iter().map(|taken| About::from(&resource(taken.id))).collect();
        // A claim asks for the task and takes it at once. An item that was there before is only taken, which is no touch.
        let created = if added.duplicate { Touch::none() } else { Touch::one(resource(added.id)) };
        Ok(Done::changed_several(taken, about, created))
    }
}

/// The running item of a claim of any version of a task.
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

/// Refuses a task that somebody has claimed.
fn refuse_held(write: &mut Writer<'_>, item: Id<kind::QueueItem>) -> Result<()> {
    let held = write.one::<(String, String)>(
        "select t.variant, a.handle from queue_items q join tasks t on t.id = coalesce(q.run_task_id, q.task_id) join agents a on a.id = q.taken_by
         where q.tenant_id = ?1 and q.id = ?2 and q.status = 'running'",
        params![item],
    )?;
    match held {
        Some((variant, holder)) => Err(Rule::conflict(format!("task {variant} is claimed by {holder} already"))
            .hint(sentence![
                format!("its queue item is {}; ", item.short()),
                command!("queue held"),
                " shows who holds what",
            ])
            .into()),
        None => Ok(()),
    }
}

/// The most urgent task that is ready and that nobody else is just claiming.
fn next_task(write: &mut Writer<'_>, roles: Roles) -> Result<Option<Id<kind::Task>>> {
    let (role, bound) = match &roles {
        Roles::All => ("", None),
        Roles::Own(None) => (" and t.role_id is null", None),
        Roles::Own(Some(role)) => (" and (t.role_id is null or t.role_id = ?2)", Some(*role)),
    };
    let skip = write.row_lock(" for update of t skip locked");
    let sql = format!(
        "select t.id from tasks t where {}{role} order by t.priority, t.created_at, t.id limit 1{skip}",
        trackway_store::queue::READY_TASK
    );
    let found = match bound {
        Some(role) => write.one::<(Id<kind::Task>,)>(&sql, params![role])?,
        None => write.one::<(Id<kind::Task>,)>(&sql, params![])?,
    };
    Ok(found.map(|(task,)| task))
}

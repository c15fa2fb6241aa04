//! Starting a run.

use serde::{Deserialize, Serialize};
use trackway_domain::{
    Error as Rule, Id, Ref, Time, command, field, kind,
    queue::{MAX_STEPS, MAX_STEPS_MAX, within},
    words::{RunMode, RunStatus, Runner},
};
use trackway_store::{
    TenantId, Writer, params,
    tables::{Agent, Run, Task},
};

use super::resource;
use crate::{
    action::{Action, Done},
    agent_link,
    context::{Actor, Context},
    error::Result,
    queue, token,
    touched::Nothing,
};

/// Runs below each other.
const CHAIN_MAX: i64 = 100;

/// Start a run and get its token
///
/// Put the token into `TRACKWAY_TOKEN`: what is then done with `trackway` is done by the agent, in this run.
///
/// A task that is open or groomed is in progress from then on. It is done when the run completes, and open again when the run
/// fails or is cancelled. A run with a parent, and a run of a recurring task, do not change the task.
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
#[serde(deny_unknown_fields)]
pub struct StartRun {
    /// The agent that acts
    #[arg(long)]
    pub agent: Ref<kind::Agent>,
    /// The task it works on
    #[arg(long)]
    pub task: Option<Ref<kind::Task>>,
    /// The run that this one is part of (yours, when you are in one)
    #[arg(long, value_name = "RUN")]
    pub parent: Option<Ref<kind::Run>>,
    /// The role it acts in (the task's, else the agent's)
    #[arg(long)]
    pub role: Option<Ref<kind::Role>>,
    /// The workspace it happens in (the task's, when it is not said)
    #[arg(long)]
    pub workspace: Option<Ref<kind::Workspace>>,
    /// What executes it (by the agent's runner, when it is not said)
    #[arg(long)]
    pub mode: Option<RunMode>,
    /// Turns it may take, 1 to 200 (the task's, else the agent's, else 30)
    #[arg(long, value_name = "NUMBER")]
    #[schemars(range(min = 1, max = MAX_STEPS_MAX))]
    pub max_steps: Option<i64>,
    /// Leave the task open when the run completes
    #[arg(long)]
    #[serde(default)]
    pub keep_open: bool,
}

/// A run and its token, the only time it is shown.
#[derive(Debug, Serialize)]
pub struct Started {
    pub run_id: Id<kind::Run>,
    pub token: String,
}

impl Action for StartRun {
    const NAME: &'static str = "start_run";
    const COMMAND: (&'static str, &'static str) = ("run", "start");
    type Touched = Nothing;
    type Output = Started;

    fn perform(&self, context: &Context, write: &mut Writer<'_>) -> Result<Done<Self>> {
        let agent = acting_agent(context, write, &self.agent)?;
        let task = self.task(write)?;
        let parent = match (write.resolve_optional(self.parent.as_ref())?, context.run) {
            (Some(parent), Some(own)) if parent != own => {
                return Err(Rule::denied("a run can only start parts of itself").into());
            }
            (parent, own) => parent.or(own),
        };
        let parent = parent
            .map(|id| write.row_shared::<Run>("where tenant_id = ?1 and id = ?2", params![id]))
            .transpose()?
            .flatten();
        if let Some(ended) = parent.as_ref().filter(|parent| parent.status != RunStatus::Running) {
            return Err(
                Rule::denied(format!("run {} is {}: nothing starts in it", ended.id.short(), ended.status)).into()
            );
        }
        if parent.as_ref().is_some_and(|parent| parent.chain_depth >= CHAIN_MAX) {
            return Err(Rule::conflict(format!("the chain of runs is {CHAIN_MAX} deep already")).into());
        }
        let own_limit = task.as_ref().and_then(|task| task.max_steps).or(agent.max_steps).unwrap_or(MAX_STEPS);
        let max_steps = within(field!(max_steps), self.max_steps.unwrap_or(own_limit), 1, MAX_STEPS_MAX)?;
        let role = write.resolve_optional(self.role.as_ref())?;
        let workspace = write.resolve_optional(self.workspace.as_ref())?;
        let id = write.new_id();
        let (secret, hash) = token::of_run(id)?;
        let run = Run {
            role_id: role.or(task.as_ref().and_then(|task| task.role_id)).or(agent.role_id),
            task_id: task.as_ref().map(|task| task.id),
            task_revision: task.as_ref().map(|task| task.revision),
            parent_run_id: parent.as_ref().map(|parent| parent.id),
            initiated_by: match context.actor {
                Actor::Person(person) => Some(person),
                Actor::Agent(_) => parent.as_ref().and_then(|parent| parent.initiated_by),
            },
            cause_kind: parent.as_ref().map(|_| kind::Kind::Run.to_string()),
            cause_id: parent.as_ref().map(|parent| parent.id.uuid()),
            chain_depth: parent.as_ref().map_or(0, |parent| parent.chain_depth + 1),
            workspace_id: workspace.or(task.as_ref().and_then(|task| task.workspace_id)),
            mode: self.mode.unwrap_or(agent.runner.mode()),
            max_steps,
            token_hash: Some(hash),
            drives_task: task.is_some(),
            keep_open: self.keep_open,
            ..new(context.tenant, id, agent.id, agent.runner, write.now)
        };
        if let Some(task) = run.task_id.filter(|_| run.parent_run_id.is_none()) {
            // Held until this run can be seen: another run that ends meanwhile must not open the task.
            write.row_locked::<Task>("where tenant_id = ?1 and id = ?2", params![task])?;
            queue::start_task(write, task)?;
        }
        write.insert(&run)?;
        if let Some(task) = run.task_id {
            agent_link::link(write, run.agent_id, task, run.started_at)?;
        }
        let resource = resource(run.id);
        resource.register(context, write)?;
        Ok(Done::changed(Started { run_id: run.id, token: secret }, &resource, Nothing))
    }
}

/// A run that begins now, with nothing else known of it.
pub(crate) fn new(tenant: TenantId, id: Id<kind::Run>, agent: Id<kind::Agent>, runner: Runner, now: Time) -> Run {
    Run {
        id,
        tenant_id: tenant,
        agent_id: agent,
        role_id: None,
        task_id: None,
        task_revision: None,
        parent_run_id: None,
        initiated_by: None,
        cause_kind: None,
        cause_id: None,
        chain_depth: 0,
        workspace_id: None,
        mode: runner.mode(),
        status: RunStatus::Running,
        outcome: None,
        final_message: None,
        error: None,
        max_steps: MAX_STEPS,
        started_at: now,
        ended_at: None,
        session_id: None,
        subagent_id: None,
        prompt_id: None,
        prompt_line: None,
        prompt_hash: None,
        hooked: false,
        asked_at: None,
        answered_at: None,
        queue_item_id: None,
        fence: None,
        token_hash: None,
        cancel_wanted_at: None,
        attached: false,
        drives_task: false,
        keep_open: false,
    }
}

/// The agent that will act. Another agent may only start itself and its subagents: a run's token carries the
/// capabilities of whoever it is for.
pub(crate) fn acting_agent(context: &Context, write: &mut Writer<'_>, reference: &Ref<kind::Agent>) -> Result<Agent> {
    let id = write.resolve(reference)?;
    let agent = write
        .row_shared::<Agent>("where tenant_id = ?1 and id = ?2 and deleted_at is null", params![id])?
        .ok_or_else(|| Rule::not_found(format!("there is no agent {reference:?}")))?;
    if let Actor::Agent(actor) = context.actor
        && actor != agent.id
        && agent.parent_id != Some(actor)
    {
        return Err(Rule::denied(format!("agent {} is not a subagent of this one", agent.handle)).into());
    }
    if agent.archived {
        return Err(Rule::conflict(format!("agent {} is archived", agent.handle))
            .hint(command!("agent set", handle = agent.handle, archived = false))
            .into());
    }
    Ok(agent)
}

impl StartRun {
    fn task(&self, write: &mut Writer<'_>) -> Result<Option<Task>> {
        let Some(id) = write.resolve_optional(self.task.as_ref())? else {
            return Ok(None);
        };
        let task = write.row::<Task>("where tenant_id = ?1 and id = ?2", params![id])?;
        if let Some(archived) = task.as_ref().filter(|task| task.archived) {
            let hint = match archived.current_id {
                Some(_) => command!("task latest", variant = archived.variant),
                None => command!("task set", variant = archived.variant, archived = false),
            };
            return Err(Rule::conflict(format!("task {} is archived", archived.variant)).hint(hint).into());
        }
        Ok(task)
    }
}

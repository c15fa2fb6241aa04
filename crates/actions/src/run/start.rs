//! Starts a run.

use serde::{Deserialize, Serialize};
use trackway_domain::{
    Error as Rule, Id, Ref, Time, command,
    enums::{RunMode, RunStatus, Runner},
    field, kind,
    queue::{DEFAULT_MAX_STEPS, MAX_STEPS_LIMIT, check_range},
};
use trackway_store::{
    TenantId, Writer, params,
    tables::{Agent, Run, Task},
};

use super::resource;
use crate::{
    action::{Action, ActionOutcome},
    agent_link,
    context::{Actor, Context},
    error::Result,
    queue, token,
    touched::NoTouches,
};

/// Maximum depth of nested runs.
const CHAIN_MAX: i64 = 100;

/// Start a run and print its token
///
/// Set `TRACKWAY_TOKEN` to the token. Every `trackway` command then acts as the agent, in this run.
///
/// If the task is open or groomed, its status becomes `in_progress`. When the run completes, the task is done. When the
/// run fails or is cancelled, the task is open again. A run with a parent run does not change the task, and neither
/// does a run of a recurring task.
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
#[serde(deny_unknown_fields)]
pub struct StartRun {
    /// Agent that acts in the run
    #[arg(long)]
    pub agent: Ref<kind::Agent>,
    /// Task of the run
    #[arg(long)]
    pub task: Option<Ref<kind::Task>>,
    /// Parent run [default: your current run]
    #[arg(long, value_name = "RUN")]
    pub parent: Option<Ref<kind::Run>>,
    /// Role of the agent in this run [default: the task's, else the agent's]
    #[arg(long)]
    pub role: Option<Ref<kind::Role>>,
    /// Workspace of the run [default: the task's]
    #[arg(long)]
    pub workspace: Option<Ref<kind::Workspace>>,
    /// Execution mode [default: the mode of the agent's runner]
    #[arg(long)]
    pub mode: Option<RunMode>,
    /// Maximum model turns, 1 to 200 [default: the task's, else the agent's, else 30]
    #[arg(long, value_name = "NUMBER")]
    #[schemars(range(min = 1, max = MAX_STEPS_LIMIT))]
    pub max_steps: Option<i64>,
    /// Keep the task open when the run completes
    #[arg(long)]
    #[serde(default)]
    pub keep_open: bool,
}

/// The new run and its token. The token is shown only here.
#[derive(Debug, Serialize)]
pub struct StartedRun {
    pub run_id: Id<kind::Run>,
    pub token: String,
}

impl Action for StartRun {
    const NAME: &'static str = "start_run";
    const COMMAND: (&'static str, &'static str) = ("run", "start");
    type Touched = NoTouches;
    type Output = StartedRun;

    fn perform(&self, context: &Context, write: &mut Writer<'_>) -> Result<ActionOutcome<Self>> {
        let agent = acting_agent(context, write, &self.agent)?;
        let task = self.task(write)?;
        let parent = match (write.resolve_optional(self.parent.as_ref())?, context.run) {
            (Some(parent), Some(own)) if parent != own => {
                return Err(Rule::denied("the parent of a new run must be your own run").into());
            }
            (parent, own) => parent.or(own),
        };
        let parent = parent
            .map(|id| write.row_locked_shared::<Run>("where tenant_id = ?1 and id = ?2", params![id]))
            .transpose()?
            .flatten();
        if let Some(ended) = parent.as_ref().filter(|parent| parent.status != RunStatus::Running) {
            return Err(Rule::denied(format!(
                "parent run {} is {}: it cannot start another run",
                ended.id.short(),
                ended.status
            ))
            .into());
        }
        if parent.as_ref().is_some_and(|parent| parent.chain_depth >= CHAIN_MAX) {
            return Err(Rule::conflict(format!(
                "runs are already nested {CHAIN_MAX} levels deep, which is the maximum"
            ))
            .into());
        }
        let own_limit = task.as_ref().and_then(|task| task.max_steps).or(agent.max_steps).unwrap_or(DEFAULT_MAX_STEPS);
        let max_steps = check_range(field!(max_steps), self.max_steps.unwrap_or(own_limit), 1, MAX_STEPS_LIMIT)?;
        let role = write.resolve_optional(self.role.as_ref())?;
        let workspace = write.resolve_optional(self.workspace.as_ref())?;
        let id = write.new_id();
        let (secret, hash) = token::generate_for_run(id)?;
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
            // Lock the task until the commit, so that another run that ends at the same time does not set the task to
            // open.
            write.row_locked::<Task>("where tenant_id = ?1 and id = ?2", params![task])?;
            queue::start_task(write, task)?;
        }
        write.insert(&run)?;
        if let Some(task) = run.task_id {
            agent_link::link(write, run.agent_id, task, run.started_at)?;
        }
        let resource = resource(run.id);
        resource.register(context, write)?;
        Ok(ActionOutcome::changed(StartedRun { run_id: run.id, token: secret }, &resource, NoTouches))
    }
}

/// A new run that starts now. All optional columns are empty.
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
        max_steps: DEFAULT_MAX_STEPS,
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

/// Finds the agent that will act in a new run. An agent may only start runs of itself and of its subagents, because the
/// run's token has the capabilities of the run's agent.
pub(crate) fn acting_agent(context: &Context, write: &mut Writer<'_>, reference: &Ref<kind::Agent>) -> Result<Agent> {
    let id = write.resolve(reference)?;
    let agent = write
        .row_locked_shared::<Agent>("where tenant_id = ?1 and id = ?2 and deleted_at is null", params![id])?
        .ok_or_else(|| Rule::not_found(format!("there is no agent {reference:?}")))?;
    if let Actor::Agent(actor) = context.actor
        && actor != agent.id
        && agent.parent_id != Some(actor)
    {
        return Err(Rule::denied(format!("agent {} is neither you nor a subagent of yours", agent.handle)).into());
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

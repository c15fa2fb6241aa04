//! Queries of the worker and the executors: the task of a run, its agent, ready items and limits.

use trackway_domain::{
    Duration, Id, Time, Variant, cost,
    enums::{RunStatus, Runner},
    kind,
};
use trackway_store::{Reader, Result, params, queue::version_of_item, row, sql::Param};

row! {
    /// The work of a run: the task, its workspace, and the message that it answers.
    pub struct Assignment {
        variant: Variant,
        title: Option<String>,
        script: Option<String>,
        shell: Option<String>,
        /// The first value that is set, in the order queue item, task, agent. `None` if none is set, or if the value is
        /// 0.
        timeout: Option<Duration>,
        directory: Option<String>,
        workspace: Option<String>,
        runner: Runner,
        message_id: Option<Id<kind::Message>>,
        message_body: Option<String>,
        item_id: Option<Id<kind::QueueItem>>,
        description: Option<String>,
    }
}

/// The assignment of a run, with the current revision of its task. The version was chosen when the item was taken.
pub fn of_run(read: &mut Reader<'_>, run: Id<kind::Run>) -> Result<Option<Assignment>> {
    read.one(
        "select t.variant, t.title, t.script, t.shell, nullif(coalesce(q.timeout, t.timeout, a.timeout), 0), w.directory, w.name, a.runner, q.message_id, c.body, r.queue_item_id, q.description
         from runs r join tasks t on t.id = r.task_id join agents a on a.id = r.agent_id
         left join workspaces w on w.id = r.workspace_id left join queue_items q on q.id = r.queue_item_id
         left join messages m on m.id = q.message_id left join contents c on c.id = m.content_id
         where r.tenant_id = ?1 and r.id = ?2",
        params![run],
    )
}

row! {
    /// The agent of a run, with its limits. The queue item overrides the task, and the task overrides the agent.
    pub struct ActingAgent {
        agent_id: Id<kind::Agent>,
        handle: String,
        model: Option<String>,
        identity: Option<String>,
        end_of_run: bool,
        spend_limit: Option<f64>,
        max_steps: i64,
        /// The maximum number of steps that the queue item, the task or the agent sets.
        step_limit: Option<i64>,
    }
}

pub fn acting_agent(read: &mut Reader<'_>, run: Id<kind::Run>) -> Result<Option<ActingAgent>> {
    read.one(
        "select a.id, a.handle, a.model, a.identity, coalesce(q.end_of_run, t.end_of_run, a.end_of_run),
                coalesce(q.spend_limit, t.spend_limit, a.spend_limit), r.max_steps, coalesce(q.max_steps, t.max_steps, a.max_steps)
         from runs r join agents a on a.id = r.agent_id left join tasks t on t.id = r.task_id left join queue_items q on q.id = r.queue_item_id
         where r.tenant_id = ?1 and r.id = ?2",
        params![run],
    )
}

/// The runner of an agent. `None` if no agent has this handle.
pub fn runner_of(read: &mut Reader<'_>, handle: &str) -> Result<Option<Runner>> {
    let found = read.one::<(Runner,)>(
        "select runner from agents where tenant_id = ?1 and handle = ?2 and deleted_at is null",
        params![handle],
    )?;
    Ok(found.map(|(runner,)| runner))
}

/// Whether the agent of a run has answered the end-of-run prompt, or an attempt to store its answer has failed.
pub fn has_closing_answer(read: &mut Reader<'_>, run: Id<kind::Run>) -> Result<bool> {
    let answers = read.count(
        "select (select count(*) from run_steps where tenant_id = ?1 and run_id = ?2 and step_type in ('scratchpad_update', 'scratchpad_update_failed'))
              + (select count(*) from runs where tenant_id = ?1 and id = ?2 and answered_at is not null)",
        params![run],
    )?;
    Ok(answers > 0)
}

/// The cost of an agent's model calls since a time. `None` if no call reported a cost.
pub fn cost_since(read: &mut Reader<'_>, agent: Id<kind::Agent>, since: Time) -> Result<Option<f64>> {
    let found = read.one::<(Option<f64>,)>(
        "select sum(x.cost) from run_usage x join runs r on r.id = x.run_id
         where x.tenant_id = ?1 and r.agent_id = ?2 and x.created_at >= ?3",
        params![agent, since],
    )?;
    Ok(found.and_then(|(spent,)| spent).map(cost::round_cost))
}

/// The runs that must stop: those that have ended meanwhile (`true`), and those that somebody has asked to cancel
/// (`false`).
pub fn runs_to_stop(read: &mut Reader<'_>, runs: &[Id<kind::Run>]) -> Result<Vec<(Id<kind::Run>, bool)>> {
    let placeholders: Vec<_> = (0..runs.len()).map(|index| format!("?{}", index + 2)).collect();
    let params: Vec<_> = runs.iter().map(|run| Param::Uuid(run.uuid())).collect();
    let found = read.query::<(Id<kind::Run>, RunStatus)>(
        &format!(
            "select id, status from runs where tenant_id = ?1 and (status <> '{}' or cancel_wanted_at is not null) and id in ({})",
            RunStatus::Running,
            placeholders.join(", ")
        ),
        &params,
    )?;
    Ok(found.into_iter().map(|(run, status)| (run, status != RunStatus::Running)).collect())
}

row! {
    /// An agent that the worker can run, because a model or an agent client drives it.
    pub struct ServableAgent {
        handle: String,
        runner: Runner,
    }
}

/// The agents that a model or an agent client drives.
pub fn servable_agents(read: &mut Reader<'_>) -> Result<Vec<ServableAgent>> {
    read.query(
        "select handle, runner from agents where tenant_id = ?1 and runner not in ('shell', 'external') and deleted_at is null and not archived order by handle",
        &[],
    )
}

row! {
    /// A group of ready items that the worker does not take by default.
    #[derive(serde::Deserialize)]
    pub struct SkippedItems {
        /// The agent that the items name.
        agent: Option<String>,
        runner: Option<Runner>,
        role: Option<String>,
        items: i64,
    }
}

/// Groups of ready items that the worker skips by default, because they name an agent or their task has no script.
pub fn skipped_items(read: &mut Reader<'_>) -> Result<Vec<SkippedItems>> {
    read.query(
        &format!(
            "select a.handle, a.runner, r.name, count(*) from queue_items q join tasks t on t.id = {}
             left join agents a on a.id = q.agent_id left join roles r on r.id = q.role_id
             where q.tenant_id = ?1 and q.status = 'ready' and (q.agent_id is not null or trim(coalesce(t.script, '')) = '')
             group by a.handle, a.runner, r.name order by case when a.handle is null then 1 else 0 end, a.handle, r.name limit 20",
            version_of_item("q")
        ),
        &[],
    )
}

impl SkippedItems {
    /// Describes the items, and names the command that takes them.
    pub fn advice(&self) -> String {
        let (items, are, have, need) = match self.items {
            1 => ("1 ready item".to_owned(), "is", "has a task", "needs"),
            many => (format!("{many} ready items"), "are", "have tasks", "need"),
        };
        match (&self.agent, self.runner, &self.role) {
            (Some(agent), Some(Runner::External), _) => {
                format!(
                    "{items} {are} for agent {agent}, which takes its own items: trackway queue take --agent {agent}"
                )
            }
            (Some(agent), ..) => format!("{items} {are} for agent {agent}: trackway work --agent {agent}"),
            (None, _, Some(role)) => {
                format!(
                    "{items} {have} without a script and {need} an agent of role {role}: trackway work --agent AGENT"
                )
            }
            (None, _, None) => {
                format!("{items} {have} without a script and {need} an agent: trackway work --agent AGENT")
            }
        }
    }
}

/// Whether a take may find an item: one that is ready, due, or running with an expired lease. This query is cheaper
/// than the transaction of a take. A lease counts as expired if its last heartbeat is in the future, because then the
/// clock was set back.
pub fn has_takeable_items(read: &mut Reader<'_>, now: Time) -> Result<bool> {
    let found = read.one::<(bool,)>(
        "select exists (select 1 from queue_items where tenant_id = ?1 and status = 'ready')
             or exists (select 1 from queue_items where tenant_id = ?1 and status = 'waiting' and not_before <= ?2)
             or exists (select 1 from queue_items where tenant_id = ?1 and status = 'running' and (lease_expires <= ?2 or heartbeat_at > ?2))",
        params![now],
    )?;
    Ok(found.is_none_or(|(there,)| there))
}

/// The next time at which a waiting item becomes due or a lease expires.
pub fn next_due_time(read: &mut Reader<'_>) -> Result<Option<Time>> {
    let found = read.one::<(Option<Time>, Option<Time>)>(
        "select (select min(not_before) from queue_items where tenant_id = ?1 and status = 'waiting'),
                (select min(lease_expires) from queue_items where tenant_id = ?1 and status = 'running')",
        &[],
    )?;
    Ok(found.and_then(|(due, expires)| [due, expires].into_iter().flatten().min()))
}

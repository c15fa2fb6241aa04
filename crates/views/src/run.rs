//! Runs: lists, details, and the tree of child runs.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use trackway_domain::{
    Duration, ErrorKind, Id, Ref, Time, cost,
    enums::{MessageStatus, RunStatus, StepType},
    kind,
};
use trackway_store::{
    Reader, Result,
    display::RunRow,
    params, row,
    sql::Param,
    table::DisplayRow,
    tables::{RunWake, Step, StoredWakeContext, Usage},
};

use crate::{
    made::{TouchRow, touches},
    page::{Filter, ListPage, Order, Page},
    scratchpad::require_readable,
    view::View,
};

/// List runs, newest first
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
pub struct ListRuns {
    /// Only runs by this agent
    #[arg(long)]
    pub agent: Option<Ref<kind::Agent>>,
    /// Only runs on this version of a task
    #[arg(long)]
    pub task: Option<Ref<kind::Task>>,
    /// Only runs with this status
    #[arg(long)]
    pub status: Option<RunStatus>,
    #[command(flatten)]
    #[serde(flatten)]
    pub page: Page,
}

impl View for ListRuns {
    const COMMAND: (&'static str, &'static str) = ("run", "list");
    const COLUMNS: &'static [&'static str] =
        &["id", "agent", "role", "task", "status", "outcome", "no_effect", "started_at", "ended_at"];
    type Output = ListPage<RunListRow>;

    fn answer(&self, read: &mut Reader<'_>, _: Time) -> Result<Self::Output> {
        let agent = read.resolve_optional(self.agent.as_ref())?;
        // The runs of a deleted task remain.
        let task = self.task.as_ref().map(|task| read.resolve_including_deleted(task)).transpose()?;
        let filter = Filter::default()
            .require_if_some("u.agent_id = ?", agent.as_ref())
            .require_if_some("u.task_id = ?", task.as_ref())
            .require_if_some("u.status = ?", self.status.as_ref());
        let listed = self
            .page
            .read(read, RunRow::select(), "u", filter, Order::NewestFirst, |shown: &RunRow| shown.run.id.uuid())?;
        let runs: Vec<_> = listed.rows.iter().map(|shown| shown.run.id).collect();
        let effects = count_effects(read, &runs)?;
        let listed_run = |run: RunRow| RunListRow { no_effect: has_no_effect(&run, &effects), run };
        Ok(ListPage { rows: listed.rows.into_iter().map(listed_run).collect(), next_page: listed.next_page })
    }

    fn next_page(output: &Self::Output) -> Option<String> {
        output.next_page.clone()
    }
}

#[derive(Debug, PartialEq, Serialize)]
pub struct RunListRow {
    #[serde(flatten)]
    pub run: RunRow,
    /// Whether the run completed without touching anything except its output message and its closing report.
    pub no_effect: bool,
}

row! {
    pub struct RunSummary {
        id: Id<kind::Run>,
        agent: String,
        status: RunStatus,
        outcome: Option<String>,
        started_at: Time,
        ended_at: Option<Time>,
    }
}

/// The newest runs of a task version.
pub fn newest_of_task(read: &mut Reader<'_>, task: Id<kind::Task>, limit: i64) -> Result<Vec<RunSummary>> {
    read.query(
        "select u.id, a.handle, u.status, u.outcome, u.started_at, u.ended_at from runs u join agents a on a.id = u.agent_id
         where u.tenant_id = ?1 and u.task_id = ?2 order by u.id desc limit ?3",
        params![task, limit],
    )
}

/// Counts the touches of each run, except its output message and its closing report, because Trackway writes both for
/// every run. The closing report is the one that was created at `answered_at`. Older releases did not store
/// `answered_at`, but their runs have a scratchpad step with the creation time of the closing report.
fn count_effects(read: &mut Reader<'_>, runs: &[Id<kind::Run>]) -> Result<HashMap<Id<kind::Run>, i64>> {
    if runs.is_empty() {
        return Ok(HashMap::new());
    }
    let placeholders: Vec<_> = (0..runs.len()).map(|index| format!("?{}", index + 2)).collect();
    let params: Vec<_> = runs.iter().map(|run| Param::Uuid(run.uuid())).collect();
    // `count(*) > 0` instead of `exists`: for `exists`, PostgreSQL would read all messages first.
    let found = read.query::<(Id<kind::Run>, i64)>(
        &format!(
            "select t.run_id, count(*) from run_resources t where t.tenant_id = ?1 and t.run_id in ({})
             and not (t.resource_type = 'message' and (
                 select count(*) from messages m join runs r on r.id = m.from_run_id join tasks k on k.id = r.task_id
                 where m.tenant_id = ?1 and m.id = t.resource_id and r.id = t.run_id and m.status <> '{}' and m.title = k.variant) > 0)
             and not (t.resource_type = 'report' and (
                 select count(*) from reports p join runs r on r.id = p.run_id
                 where p.tenant_id = ?1 and p.id = t.resource_id and (p.created_at = r.answered_at or exists (
                     select 1 from run_steps s where s.tenant_id = ?1 and s.run_id = p.run_id and s.created_at = p.created_at
                     and s.step_type in ('{}', '{}')))) > 0)
             group by t.run_id",
            placeholders.join(", "),
            MessageStatus::Ingested,
            StepType::ScratchpadUpdate,
            StepType::ScratchpadUpdateFailed,
        ),
        &params,
    )?;
    Ok(found.into_iter().collect())
}

fn has_no_effect(run: &RunRow, effects: &HashMap<Id<kind::Run>, i64>) -> bool {
    run.run.status == RunStatus::Completed && !effects.contains_key(&run.run.id)
}

/// Show a run with its steps, usage, touches and child runs
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
pub struct ShowRun {
    /// The run, by id; `last` is the newest run
    pub run: Ref<kind::Run>,
    /// Include the wake contexts that its agent received
    #[arg(long)]
    #[serde(default)]
    pub wake: bool,
}

/// A wake context that the agent of a run received.
#[derive(Debug, PartialEq, Serialize)]
pub struct RecordedWake {
    pub created_at: Time,
    pub digest: String,
    pub sections: Value,
    pub cut: Value,
    pub text: String,
}

/// A run with its steps, usage, touches and child runs.
#[derive(Debug, PartialEq, Serialize)]
pub struct RunDetails {
    #[serde(flatten)]
    pub run: RunRow,
    pub duration: Duration,
    /// The sum of the costs that its model calls reported. Null if no call reported one.
    pub cost: Option<f64>,
    /// Whether the run completed without touching anything except its output message and its closing report.
    pub no_effect: bool,
    pub steps: Vec<Step>,
    pub usage: Vec<Usage>,
    pub touches: Vec<TouchRow>,
    pub children: Vec<RunRow>,
    /// The wake contexts in order, if requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wake: Option<Vec<RecordedWake>>,
}

impl View for ShowRun {
    const COMMAND: (&'static str, &'static str) = ("run", "show");
    const ALIAS: Option<&'static str> = Some("get");
    type Output = RunDetails;

    fn answer(&self, read: &mut Reader<'_>, now: Time) -> Result<RunDetails> {
        let id = read.resolve(&self.run)?;
        let run = read.display_row_by_id::<RunRow>("u", id)?;
        if self.wake {
            // A wake context contains the agent's scratchpad.
            require_readable(read, run.run.agent_id)?;
        }
        let touches = touches(read, id)?;
        let usage: Vec<Usage> = read.rows("where tenant_id = ?1 and run_id = ?2 order by id", params![id])?;
        let costs: Vec<f64> = usage.iter().filter_map(|call| call.cost).collect();
        Ok(RunDetails {
            cost: (!costs.is_empty()).then(|| cost::round_cost(costs.iter().sum())),
            duration: Duration::from_seconds(run.seconds(now).max(0)),
            no_effect: has_no_effect(&run, &count_effects(read, &[id])?),
            steps: readable_steps(read, &run)?,
            usage,
            children: read
                .display_rows("where u.tenant_id = ?1 and u.parent_run_id = ?2 order by u.id", params![id])?,
            wake: if self.wake { Some(recorded_wakes(read, id)?) } else { None },
            touches,
            run,
        })
    }
}

/// The steps of a run. If the caller may not read the agent's scratchpad, the steps do not contain the scratchpad's
/// content.
fn readable_steps(read: &mut Reader<'_>, run: &RunRow) -> Result<Vec<Step>> {
    let mut steps: Vec<Step> =
        read.rows("where tenant_id = ?1 and run_id = ?2 order by position", params![run.run.id])?;
    match require_readable(read, run.run.agent_id) {
        Ok(()) => Ok(steps),
        Err(error) if error.kind() == ErrorKind::Denied => {
            for step in &mut steps {
                hide_scratchpad(step);
            }
            Ok(steps)
        }
        Err(error) => Err(error),
    }
}

/// Replaces the content of a scratchpad that the caller may not read.
const HIDDEN: &str = "(not readable by you)";

/// Removes the content of a scratchpad from a step. The first line of an executed action, its path and status, remains.
fn hide_scratchpad(step: &mut Step) {
    let Some(detail) = &mut step.detail else { return };
    let mentions_update = detail.contains("update_scratchpad");
    match step.step_type {
        StepType::ExecuteAction if mentions_update => {
            *detail = format!("{}\n{HIDDEN}", detail.lines().next().unwrap_or_default());
        }
        // A model without native tool calls writes them into its text.
        StepType::Think if mentions_update => HIDDEN.clone_into(detail),
        StepType::ScratchpadUpdate => HIDDEN.clone_into(detail),
        _ => {}
    }
}

/// The wake contexts of a run, in order.
fn recorded_wakes(read: &mut Reader<'_>, run: Id<kind::Run>) -> Result<Vec<RecordedWake>> {
    let wakes = read.rows::<RunWake>("where tenant_id = ?1 and run_id = ?2 order by position", params![run])?;
    let mut all = Vec::with_capacity(wakes.len());
    for wake in wakes {
        let context = read.row::<StoredWakeContext>("where tenant_id = ?1 and digest = ?2", params![wake.digest])?;
        all.extend(context.map(|context| RecordedWake {
            created_at: wake.created_at,
            digest: context.digest,
            sections: context.sections,
            cut: context.cuts,
            text: context.content,
        }));
    }
    Ok(all)
}

/// Show the tree of a run and its descendant runs
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
pub struct ShowRunTree {
    /// The run, by id; `last` is the newest run
    pub run: Ref<kind::Run>,
}

#[derive(Debug, PartialEq, Serialize)]
pub struct RunTreeNode {
    pub id: Id<kind::Run>,
    pub agent: String,
    pub role: Option<String>,
    pub task: Option<String>,
    pub status: RunStatus,
    pub duration: Duration,
    /// Input and output tokens. Null if no model call reported any.
    pub tokens: Option<i64>,
    pub touches: i64,
    pub no_effect: bool,
    pub children: Vec<RunTreeNode>,
}

const RUNS_PER_QUERY: usize = 500;

const TREE: &str = "with recursive tree (id) as (
    select id from runs where tenant_id = ?1 and id = ?2
    union all select r.id from tree p join runs r on r.tenant_id = ?1 and r.parent_run_id = p.id
)";

impl View for ShowRunTree {
    const COMMAND: (&'static str, &'static str) = ("run", "tree");
    type Output = RunTreeNode;

    fn answer(&self, read: &mut Reader<'_>, now: Time) -> Result<RunTreeNode> {
        let root = read.resolve(&self.run)?;
        // The tree must be the first table of the join, otherwise the query scans all runs. PostgreSQL keeps the
        // written order if there are more than eight joins, and SQLite keeps the order of a cross join.
        let select = RunRow::select().replacen(" from runs u ", " from tree cross join runs u ", 1);
        let runs =
            read.query::<RunRow>(&format!("{TREE} {select} where u.id = tree.id order by u.id"), params![root])?;
        let touches: HashMap<_, _> = read
            .query::<(Id<kind::Run>, i64)>(
                &format!("{TREE} select t.run_id, count(*) from tree p cross join run_resources t where t.run_id = p.id group by t.run_id"),
                params![root],
            )?
            .into_iter()
            .collect();
        let ids: Vec<_> = runs.iter().map(|shown| shown.run.id).collect();
        let mut effects = HashMap::new();
        for chunk in ids.chunks(RUNS_PER_QUERY) {
            effects.extend(count_effects(read, chunk)?);
        }
        let tokens: HashMap<_, _> = read
            .query::<(Id<kind::Run>, Option<i64>)>(
                &format!(
                    "{TREE} select x.run_id, cast(sum(coalesce(x.input_tokens, 0) + coalesce(x.output_tokens, 0)) as bigint)
                     from tree p cross join run_usage x where x.tenant_id = ?1 and x.run_id = p.id group by x.run_id"
                ),
                params![root],
            )?
            .into_iter()
            .collect();
        let mut children_by_parent: HashMap<Option<Id<kind::Run>>, Vec<RunTreeNode>> = HashMap::new();
        // Children are newer than their parents, so this loop, from the newest run to the oldest, visits all children
        // of a run before the run itself.
        for shown in runs.into_iter().rev() {
            let id = shown.run.id;
            let touched = touches.get(&id).copied().unwrap_or_default();
            let no_effect = has_no_effect(&shown, &effects);
            let mut children = children_by_parent.remove(&Some(id)).unwrap_or_default();
            children.reverse();
            let node = RunTreeNode {
                id,
                duration: Duration::from_seconds(shown.seconds(now).max(0)),
                agent: shown.agent,
                role: shown.role,
                task: shown.task.map(|task| task.to_string()),
                status: shown.run.status,
                tokens: tokens.get(&id).copied().flatten(),
                touches: touched,
                no_effect,
                children,
            };
            if id == root {
                return Ok(node);
            }
            children_by_parent.entry(shown.run.parent_run_id).or_default().push(node);
        }
        Err(trackway_domain::Error::not_found(format!("there is no run {:?}", self.run)).into())
    }
}

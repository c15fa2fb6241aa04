//! Runs: the list, one in full, and the tree below one.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use trackway_domain::{
    Duration, ErrorKind, Id, Ref, Time, cost, kind,
    words::{MessageStatus, RunStatus, StepType},
};
use trackway_store::{
    Reader, Result,
    display::RunShown,
    params, row,
    sql::Param,
    table::Shown,
    tables::{RunWake, Step, ToldContext, Usage},
};

use crate::{
    made::{TouchShown, touches},
    page::{Filter, Listed, Order, Page},
    scratchpad::require_readable,
    view::View,
};

/// List runs, newest first
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
pub struct ListRuns {
    /// Only by this agent
    #[arg(long)]
    pub agent: Option<Ref<kind::Agent>>,
    /// Only on this task
    #[arg(long)]
    pub task: Option<Ref<kind::Task>>,
    /// Only in this status
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
    type Output = Listed<RunListed>;

    fn answer(&self, read: &mut Reader<'_>, _: Time) -> Result<Self::Output> {
        let agent = read.resolve_optional(self.agent.as_ref())?;
        // What ran stays, whatever became of the task.
        let task = self.task.as_ref().map(|task| read.resolve_even_deleted(task)).transpose()?;
        let filter = Filter::default()
            .and("u.agent_id = ?", agent.as_ref())
            .and("u.task_id = ?", task.as_ref())
            .and("u.status = ?", self.status.as_ref());
        let listed =
            self.page.read(read, RunShown::select(), "u", filter, Order::NewestFirst, |shown: &RunShown| {
                shown.run.id.uuid()
            })?;
        let runs: Vec<_> = listed.rows.iter().map(|shown| shown.run.id).collect();
        let effects = effects(read, &runs)?;
        let listed_run = |run: RunShown| RunListed { no_effect: is_without_effect(&run, &effects), run };
        Ok(Listed { rows: listed.rows.into_iter().map(listed_run).collect(), more: listed.more })
    }

    fn more(output: &Self::Output) -> Option<String> {
        output.more.clone()
    }
}

/// A run in a list.
#[derive(Debug, PartialEq, Serialize)]
pub struct RunListed {
    #[serde(flatten)]
    pub run: RunShown,
    /// Done, and yet nothing was changed but what is written for every run: its output, its last answer.
    pub no_effect: bool,
}

row! {
    /// A run in a few words.
    pub struct RunInShort {
        id: Id<kind::Run>,
        agent: String,
        status: RunStatus,
        outcome: Option<String>,
        started_at: Time,
        ended_at: Option<Time>,
    }
}

/// The newest runs on a task.
pub fn latest_on(read: &mut Reader<'_>, task: Id<kind::Task>, limit: i64) -> Result<Vec<RunInShort>> {
    read.query(
        "select u.id, a.handle, u.status, u.outcome, u.started_at, u.ended_at from runs u join agents a on a.id = u.agent_id
         where u.tenant_id = ?1 and u.task_id = ?2 order by u.id desc limit ?3",
        params![task, limit],
    )
}

/// How much runs touched by themselves: not the message with their output, and not the report of their closing answer, which are
/// written for them. That report is written at the moment of the answer, which the run keeps. Runs of earlier versions keep it
/// only as a step.
fn effects(read: &mut Reader<'_>, runs: &[Id<kind::Run>]) -> Result<HashMap<Id<kind::Run>, i64>> {
    if runs.is_empty() {
        return Ok(HashMap::new());
    }
    let places: Vec<_> = (0..runs.len()).map(|index| format!("?{}", index + 2)).collect();
    let params: Vec<_> = runs.iter().map(|run| Param::Uuid(run.uuid())).collect();
    // Counted, and not only looked for: PostgreSQL would read all messages to know which are there.
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
            places.join(", "),
            MessageStatus::Ingested,
            StepType::ScratchpadUpdate,
            StepType::ScratchpadUpdateFailed,
        ),
        &params,
    )?;
    Ok(found.into_iter().collect())
}

fn is_without_effect(run: &RunShown, effects: &HashMap<Id<kind::Run>, i64>) -> bool {
    run.run.status == RunStatus::Completed && !effects.contains_key(&run.run.id)
}

/// Show a run: its steps, what it used, what it touched, what it started
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
pub struct ShowRun {
    /// The run; `last` is the newest
    pub run: Ref<kind::Run>,
    /// With what its agent was told when it woke
    #[arg(long)]
    #[serde(default)]
    pub wake: bool,
}

/// What an agent was told when it woke.
#[derive(Debug, PartialEq, Serialize)]
pub struct Told {
    pub created_at: Time,
    pub digest: String,
    pub sections: Value,
    pub cut: Value,
    pub text: String,
}

/// A run in full.
#[derive(Debug, PartialEq, Serialize)]
pub struct RunInFull {
    #[serde(flatten)]
    pub run: RunShown,
    pub duration: Duration,
    /// What its model calls cost, as far as they say; null when none does.
    pub cost: Option<f64>,
    /// Done, and yet nothing was changed but what is written for every run: its output, its last answer.
    pub no_effect: bool,
    pub steps: Vec<Step>,
    pub usage: Vec<Usage>,
    pub touches: Vec<TouchShown>,
    pub children: Vec<RunShown>,
    /// What its agent was told, each time it woke; only when asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wake: Option<Vec<Told>>,
}

impl View for ShowRun {
    const COMMAND: (&'static str, &'static str) = ("run", "show");
    const ALIAS: Option<&'static str> = Some("get");
    type Output = RunInFull;

    fn answer(&self, read: &mut Reader<'_>, now: Time) -> Result<RunInFull> {
        let id = read.resolve(&self.run)?;
        let run = read.shown_by_id::<RunShown>("u", id)?;
        if self.wake {
            // The wake context holds the agent's scratchpad as it was.
            require_readable(read, run.run.agent_id)?;
        }
        let touches = touches(read, id)?;
        let usage: Vec<Usage> = read.rows("where tenant_id = ?1 and run_id = ?2 order by id", params![id])?;
        let costs: Vec<f64> = usage.iter().filter_map(|call| call.cost).collect();
        Ok(RunInFull {
            cost: (!costs.is_empty()).then(|| cost::rounded(costs.iter().sum())),
            duration: Duration::from_seconds(run.seconds(now).max(0)),
            no_effect: is_without_effect(&run, &effects(read, &[id])?),
            steps: readable_steps(read, &run)?,
            usage,
            children: read.shown("where u.tenant_id = ?1 and u.parent_run_id = ?2 order by u.id", params![id])?,
            wake: if self.wake { Some(told(read, id)?) } else { None },
            touches,
            run,
        })
    }
}

/// The steps of a run. A caller who may not read the scratchpad of its agent sees that the agent wrote it, and not what.
fn readable_steps(read: &mut Reader<'_>, run: &RunShown) -> Result<Vec<Step>> {
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

/// What stands for the content of a scratchpad that the caller may not read.
const HIDDEN: &str = "(not readable by you)";

/// Removes the content of a scratchpad from a step. Of an executed action the first line stays: its path and status.
fn hide_scratchpad(step: &mut Step) {
    let Some(detail) = &mut step.detail else { return };
    let mentions_update = detail.contains("update_scratchpad");
    match step.step_type {
        StepType::ExecuteAction if mentions_update => {
            *detail = format!("{}\n{HIDDEN}", detail.lines().next().unwrap_or_default());
        }
        // A model without native tools writes its calls into its text.
        StepType::Think if mentions_update => HIDDEN.clone_into(detail),
        StepType::ScratchpadUpdate => HIDDEN.clone_into(detail),
        _ => {}
    }
}

/// What the agent of a run was told, in order.
fn told(read: &mut Reader<'_>, run: Id<kind::Run>) -> Result<Vec<Told>> {
    let wakes = read.rows::<RunWake>("where tenant_id = ?1 and run_id = ?2 order by position", params![run])?;
    let mut all = Vec::with_capacity(wakes.len());
    for wake in wakes {
        let kept = read.row::<ToldContext>("where tenant_id = ?1 and digest = ?2", params![wake.digest])?;
        all.extend(kept.map(|kept| Told {
            created_at: wake.created_at,
            digest: kept.digest,
            sections: kept.sections,
            cut: kept.cuts,
            text: kept.content,
        }));
    }
    Ok(all)
}

/// Show a run and everything it started
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
pub struct TreeOfRun {
    /// The run; `last` is the newest
    pub run: Ref<kind::Run>,
}

/// A run in the tree.
#[derive(Debug, PartialEq, Serialize)]
pub struct Branch {
    pub id: Id<kind::Run>,
    pub agent: String,
    pub role: Option<String>,
    pub task: Option<String>,
    pub status: RunStatus,
    pub duration: Duration,
    /// Tokens read and written, when any call said.
    pub tokens: Option<i64>,
    pub touches: i64,
    pub no_effect: bool,
    pub children: Vec<Branch>,
}

/// Runs asked about in one question.
const AT_ONCE: usize = 500;

const TREE: &str = "with recursive tree (id) as (
    select id from runs where tenant_id = ?1 and id = ?2
    union all select r.id from tree p join runs r on r.tenant_id = ?1 and r.parent_run_id = p.id
)";

impl View for TreeOfRun {
    const COMMAND: (&'static str, &'static str) = ("run", "tree");
    type Output = Branch;

    fn answer(&self, read: &mut Reader<'_>, now: Time) -> Result<Branch> {
        let root = read.resolve(&self.run)?;
        // The tree comes first, or all runs are read to find those in it: PostgreSQL leaves more than eight joins in the
        // order in which they are written, and SQLite leaves a cross join there.
        let select = RunShown::select().replacen(" from runs u ", " from tree cross join runs u ", 1);
        let runs =
            read.query::<RunShown>(&format!("{TREE} {select} where u.id = tree.id order by u.id"), params![root])?;
        let touches: HashMap<_, _> = read
            .query::<(Id<kind::Run>, i64)>(
                &format!("{TREE} select t.run_id, count(*) from tree p cross join run_resources t where t.run_id = p.id group by t.run_id"),
                params![root],
            )?
            .into_iter()
            .collect();
        let ids: Vec<_> = runs.iter().map(|shown| shown.run.id).collect();
        let mut effective = HashMap::new();
        for part in ids.chunks(AT_ONCE) {
            effective.extend(effects(read, part)?);
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
        let mut below: HashMap<Option<Id<kind::Run>>, Vec<Branch>> = HashMap::new();
        // Children are newer than their parents: from the newest on, every run finds its children ready.
        for shown in runs.into_iter().rev() {
            let id = shown.run.id;
            let touched = touches.get(&id).copied().unwrap_or_default();
            let no_effect = is_without_effect(&shown, &effective);
            let mut children = below.remove(&Some(id)).unwrap_or_default();
            children.reverse();
            let branch = Branch {
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
                return Ok(branch);
            }
            below.entry(shown.run.parent_run_id).or_default().push(branch);
        }
        Err(trackway_domain::Error::not_found(format!("there is no run {:?}", self.run)).into())
    }
}

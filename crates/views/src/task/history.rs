//! The versions of a task, and the outcomes of their runs.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};
use trackway_domain::{
    Id, Ref, Time, Variant, cost,
    enums::{Level, TaskStatus},
    kind,
};
use trackway_store::{Engine, Reader, Result, newest_per_row::runs_of_each_version, params, row, sql::Param};
use uuid::Uuid;

use crate::view::View;

/// Maximum number of versions that are shown, newest first.
const VERSIONS_MAX: i64 = 200;
/// Maximum number of runs of a version that are counted, newest first. The limit keeps the cost of the query
/// independent of the number of runs.
const RUNS_MAX: i64 = 1_000;

/// List the versions of a task with the outcomes of their runs, newest first
///
/// At most the newest 1,000 runs of each version are counted.
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
pub struct TaskHistory {
    /// Any version of the task
    pub task: Ref<kind::Task>,
}

#[derive(Debug, PartialEq, Serialize)]
pub struct VersionHistory {
    pub versions: Vec<VersionWithOutcomes>,
}

/// A version and the outcomes of its runs. A figure is null if no run has reported it.
#[derive(Debug, PartialEq, Serialize)]
pub struct VersionWithOutcomes {
    pub id: Id<kind::Task>,
    pub variant: Variant,
    /// The number of revisions.
    pub revisions: usize,
    pub replaces: Vec<ReplacedVersion>,
    pub status: TaskStatus,
    pub archived: bool,
    pub deleted: bool,
    pub runs: i64,
    /// Whether older runs exist that were not counted.
    pub newest_only: bool,
    pub succeeded: i64,
    /// Runs that have not ended.
    pub running: i64,
    pub success_share: Option<f64>,
    pub median_seconds: Option<f64>,
    pub tokens: Option<i64>,
    pub cost: Option<f64>,
    pub created_at: Time,
    /// The revisions, newest first.
    pub changes: Vec<RevisionRow>,
}

row! {
    /// A revision of a version: its definition at that time, with author and run.
    pub struct RevisionRow {
        #[serde(skip)] task_id: Id<kind::Task>,
        number: i64,
        digest: String,
        definition: serde_json::Value,
        by: Option<String>,
        run_id: Option<Id<kind::Run>>,
        created_at: Time,
    }
}

row! {
    /// A version that another version directly replaces.
    pub struct ReplacedVersion {
        #[serde(skip)] task_id: Id<kind::Task>,
        variant: Variant,
        level: Level,
        comment: Option<String>,
        created_at: Time,
    }
}

/// SQL: the newest versions of one lineage. `?2` is any task of the lineage, `?3` the limit.
const VERSIONS: &str = "with versions as (select id, variant, status, archived, deleted_at, created_at from tasks
    where tenant_id = ?1 and lineage_id = (select lineage_id from tasks where tenant_id = ?1 and id = ?2) order by id desc limit ?3)";

/// SQL: each version with `before`, the id of its newest run that is not counted. Runs with greater ids are counted.
/// `?4` is the nil id, which means that all runs are counted. `?5` is the maximum number of counted runs.
const RUN_CUTOFFS: &str = "run_cutoffs as materialized (select v.id, v.variant, coalesce(
    (select b.id from runs b where b.tenant_id = ?1 and b.task_id = v.id order by b.id desc limit 1 offset ?5), ?4) as before from versions v)";

impl View for TaskHistory {
    const COMMAND: (&'static str, &'static str) = ("task", "history");
    type Output = VersionHistory;

    fn answer(&self, read: &mut Reader<'_>, _: Time) -> Result<VersionHistory> {
        let task = read.resolve_including_deleted(&self.task)?;
        let runs = runs_of_each_version(read.engine());
        let texts = [
            format!("{VERSIONS} select id, variant, status, archived, deleted_at is not null, created_at from versions order by id desc"),
            format!(
                "{VERSIONS} select r.task_id, r.number, r.digest, r.definition, g.display_path, r.run_id, r.created_at from versions v
                 join task_revisions r on r.task_id = v.id left join registry g on g.id = r.actor_id order by r.number desc"
            ),
            replaces_sql(),
            format!(
                "{VERSIONS}, {RUN_CUTOFFS} select v.id, v.before <> ?4, count(*), count(case when u.status = 'completed' then 1 end), count(u.ended_at)
                 from run_cutoffs v join {runs} group by v.id, v.before"
            ),
            median_sql(read.engine()),
            spent_sql(runs),
        ];
        let nil = Uuid::nil();
        let (of_versions, of_runs): (&[Param<'_>], &[Param<'_>]) =
            (params![task, VERSIONS_MAX], params![task, VERSIONS_MAX, nil, RUNS_MAX]);
        let [versions, revisions, replaces, runs, medians, spent] = &texts;
        for (texts, bound) in [([versions, revisions, replaces], of_versions), ([runs, medians, spent], of_runs)] {
            texts.iter().try_for_each(|text| read.prefetch(text, bound))?;
        }
        let versions = read.query::<(Id<kind::Task>, Variant, TaskStatus, bool, bool, Time)>(versions, of_versions)?;
        let mut revisions =
            group_by_task(read.query::<RevisionRow>(revisions, of_versions)?, |revision| revision.task_id);
        let mut replaces = group_by_task(read.query::<ReplacedVersion>(replaces, of_versions)?, |edge| edge.task_id);
        let runs: HashMap<_, _> = read
            .query::<(Id<kind::Task>, bool, i64, i64, i64)>(runs, of_runs)?
            .into_iter()
            .map(|(id, newest_only, runs, succeeded, ended)| (id, (newest_only, runs, succeeded, ended)))
            .collect();
        let medians: HashMap<_, _> = read.query::<(Id<kind::Task>, f64)>(medians, of_runs)?.into_iter().collect();
        let spent: HashMap<_, _> = read
            .query::<(Id<kind::Task>, Option<i64>, Option<f64>)>(spent, of_runs)?
            .into_iter()
            .map(|(id, tokens, sum)| (id, (tokens, sum.map(cost::round_cost))))
            .collect();
        let version = |(id, variant, status, archived, deleted, created_at)| {
            let (newest_only, runs, succeeded, ended) = runs.get(&id).copied().unwrap_or_default();
            let (tokens, cost) = spent.get(&id).copied().unwrap_or_default();
            let changes = revisions.remove(&id).unwrap_or_default();
            VersionWithOutcomes {
                id,
                variant,
                revisions: changes.len(),
                replaces: replaces.remove(&id).unwrap_or_default(),
                status,
                archived,
                deleted,
                runs,
                newest_only,
                succeeded,
                running: runs - ended,
                success_share: (ended > 0).then(|| succeeded as f64 / ended as f64),
                median_seconds: medians.get(&id).copied(),
                tokens,
                cost,
                created_at,
                changes,
            }
        };
        Ok(VersionHistory { versions: versions.into_iter().map(version).collect() })
    }

    fn remarks(output: &VersionHistory) -> Vec<String> {
        let remark = "only the newest 1,000 runs of each version are counted";
        let newest_only = output.versions.iter().any(|version| version.newest_only);
        newest_only.then(|| remark.to_owned()).into_iter().collect()
    }
}

fn replaces_sql() -> String {
    format!(
        "{VERSIONS} select e.new_task_id, o.variant, e.level, e.comment, e.created_at from versions v
         join task_replaces e on e.new_task_id = v.id join tasks o on o.id = e.old_task_id order by e.created_at desc, o.id"
    )
}

/// The counts of a version's runs by outcome: a cheaper subset of [`VersionWithOutcomes`].
#[derive(Debug, PartialEq, Serialize)]
pub struct VersionOutcomes {
    pub variant: Variant,
    pub replaces: Vec<ReplacedVersion>,
    pub runs: i64,
    /// Whether older runs exist that were not counted.
    pub newest_only: bool,
    pub succeeded: i64,
    /// Runs that have not ended.
    pub running: i64,
}

/// The run counts of every version of a task, newest first. Cheaper than the full history: reads no revisions,
/// durations or costs.
pub fn version_outcomes(read: &mut Reader<'_>, task: Id<kind::Task>) -> Result<Vec<VersionOutcomes>> {
    let replaces = replaces_sql();
    read.prefetch(&replaces, params![task, VERSIONS_MAX])?;
    let (nil, runs) = (Uuid::nil(), runs_of_each_version(read.engine()));
    let versions = read.query::<(Id<kind::Task>, Variant, bool, i64, i64, i64)>(
        &format!(
            "{VERSIONS}, {RUN_CUTOFFS} select v.id, v.variant, v.before <> ?4, count(u.id), count(case when u.status = 'completed' then 1 end),
             count(u.ended_at) from run_cutoffs v left join {runs} group by v.id, v.variant, v.before order by v.id desc"
        ),
        params![task, VERSIONS_MAX, nil, RUNS_MAX],
    )?;
    let replaces = read.query::<ReplacedVersion>(&replaces, params![task, VERSIONS_MAX])?;
    let mut replaces = group_by_task(replaces, |edge| edge.task_id);
    let outcome = |(id, variant, newest_only, runs, succeeded, ended)| VersionOutcomes {
        variant,
        replaces: replaces.remove(&id).unwrap_or_default(),
        runs,
        newest_only,
        succeeded,
        running: runs - ended,
    };
    Ok(versions.into_iter().map(outcome).collect())
}

fn group_by_task<T>(rows: Vec<T>, key: impl Fn(&T) -> Id<kind::Task>) -> HashMap<Id<kind::Task>, Vec<T>> {
    let mut groups: HashMap<_, Vec<T>> = HashMap::new();
    for row in rows {
        groups.entry(key(&row)).or_default().push(row);
    }
    groups
}

/// SQL for the tokens and cost of each version. The subquery per run makes PostgreSQL look up at most a thousand runs;
/// with a join it would scan the usage of all runs.
fn spent_sql(runs: &str) -> String {
    let of_run =
        |what: &str| format!("(select sum({what}) from run_usage x where x.tenant_id = ?1 and x.run_id = u.id)");
    format!(
        "{VERSIONS}, {RUN_CUTOFFS} select v.id, cast(sum({}) as bigint), sum({}) from run_cutoffs v join {runs} group by v.id",
        of_run("coalesce(x.input_tokens, 0) + coalesce(x.output_tokens, 0)"),
        of_run("x.cost"),
    )
}

/// SQL for the median duration of the ended runs of each version.
fn median_sql(engine: Engine) -> String {
    let (seconds, runs) = (engine.seconds_between("u.started_at", "u.ended_at"), runs_of_each_version(engine));
    format!(
        "{VERSIONS}, {RUN_CUTOFFS}, timed as (
             select u.task_id as task_id, {seconds} as seconds,
                 row_number() over (partition by u.task_id order by u.ended_at - u.started_at) as place,
                 count(*) over (partition by u.task_id) as total
             from run_cutoffs v join {runs} where u.ended_at is not null
         )
         select task_id, avg(seconds) from timed where place in ((total + 1) / 2, (total + 2) / 2) group by task_id"
    )
}

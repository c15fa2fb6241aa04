//! What became of every version of a task.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};
use trackway_domain::{
    Id, Ref, Time, Variant, cost, kind,
    words::{Level, TaskStatus},
};
use trackway_store::{Engine, Reader, Result, newest_of_each::runs_of_each_version, params, row, sql::Param};
use uuid::Uuid;

use crate::view::View;

/// Versions shown.
const VERSIONS_MAX: i64 = 200;
/// Runs of a version that are looked at: what a task costs to look at does not grow with how often it ran.
const RUNS_MAX: i64 = 1_000;

/// Show every version of a task, newest first, with how its runs went
///
/// Of a version that ran more than 1,000 times, the newest 1,000 runs are looked at.
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
pub struct TaskHistory {
    /// Any version of the task
    pub task: Ref<kind::Task>,
}

/// A task's versions.
#[derive(Debug, PartialEq, Serialize)]
pub struct History {
    pub versions: Vec<Version>,
}

/// A version and its outcomes. What no run has told is null.
#[derive(Debug, PartialEq, Serialize)]
pub struct Version {
    pub id: Id<kind::Task>,
    pub variant: Variant,
    /// How many revisions it has had.
    pub revisions: usize,
    pub replaces: Vec<Replaces>,
    pub status: TaskStatus,
    pub archived: bool,
    pub deleted: bool,
    pub runs: i64,
    /// Whether there are older ones, which were not looked at.
    pub newest_only: bool,
    pub succeeded: i64,
    /// Runs that have not ended.
    pub running: i64,
    pub success_share: Option<f64>,
    pub median_seconds: Option<f64>,
    pub tokens: Option<i64>,
    pub cost: Option<f64>,
    pub created_at: Time,
    /// Its revisions, newest first.
    pub changes: Vec<Revision>,
}

row! {
    /// A revision of a version.
    pub struct Revision {
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
    /// What a version replaces.
    pub struct Replaces {
        #[serde(skip)] task_id: Id<kind::Task>,
        variant: Variant,
        level: Level,
        comment: Option<String>,
        created_at: Time,
    }
}

/// The versions of one lineage, for use inside a query whose `?2` is a task of it and `?3` the limit.
const VERSIONS: &str = "with versions as (select id, variant, status, archived, deleted_at, created_at from tasks
    where tenant_id = ?1 and lineage_id = (select lineage_id from tasks where tenant_id = ?1 and id = ?2) order by id desc limit ?3)";

/// The same, each with the newest of the runs that are not looked at: those with a greater id are. `?4` is less than any id, `?5`
/// how many are looked at.
const COUNTED: &str = "counted as materialized (select v.id, v.variant, coalesce(
    (select b.id from runs b where b.tenant_id = ?1 and b.task_id = v.id order by b.id desc limit 1 offset ?5), ?4) as before from versions v)";

impl View for TaskHistory {
    const COMMAND: (&'static str, &'static str) = ("task", "history");
    type Output = History;

    fn answer(&self, read: &mut Reader<'_>, _: Time) -> Result<History> {
        let task = read.resolve_even_deleted(&self.task)?;
        let runs = runs_of_each_version(read.engine());
        let texts = [
            format!("{VERSIONS} select id, variant, status, archived, deleted_at is not null, created_at from versions order by id desc"),
            format!(
                "{VERSIONS} select r.task_id, r.number, r.digest, r.definition, g.display_path, r.run_id, r.created_at from versions v
                 join task_revisions r on r.task_id = v.id left join registry g on g.id = r.actor_id order by r.number desc"
            ),
            replaces_sql(),
            format!(
                "{VERSIONS}, {COUNTED} select v.id, v.before <> ?4, count(*), count(case when u.status = 'completed' then 1 end), count(u.ended_at)
                 from counted v join {runs} group by v.id, v.before"
            ),
            median_sql(read.engine()),
            spent_sql(runs),
        ];
        let nil = Uuid::nil();
        let (of_versions, of_runs): (&[Param<'_>], &[Param<'_>]) =
            (params![task, VERSIONS_MAX], params![task, VERSIONS_MAX, nil, RUNS_MAX]);
        let [versions, revisions, replaces, runs, medians, spent] = &texts;
        for (texts, bound) in [([versions, revisions, replaces], of_versions), ([runs, medians, spent], of_runs)] {
            texts.iter().try_for_each(|text| read.expect(text, bound))?;
        }
        let versions = read.query::<(Id<kind::Task>, Variant, TaskStatus, bool, bool, Time)>(versions, of_versions)?;
        let mut revisions = grouped(read.query::<Revision>(revisions, of_versions)?, |revision| revision.task_id);
        let mut replaces = grouped(read.query::<Replaces>(replaces, of_versions)?, |edge| edge.task_id);
        let runs: HashMap<_, _> = read
            .query::<(Id<kind::Task>, bool, i64, i64, i64)>(runs, of_runs)?
            .into_iter()
            .map(|(id, newest_only, runs, succeeded, ended)| (id, (newest_only, runs, succeeded, ended)))
            .collect();
        let medians: HashMap<_, _> = read.query::<(Id<kind::Task>, f64)>(medians, of_runs)?.into_iter().collect();
        let spent: HashMap<_, _> = read
            .query::<(Id<kind::Task>, Option<i64>, Option<f64>)>(spent, of_runs)?
            .into_iter()
            .map(|(id, tokens, sum)| (id, (tokens, sum.map(cost::rounded))))
            .collect();
        let version = |(id, variant, status, archived, deleted, created_at)| {
            let (newest_only, runs, succeeded, ended) = runs.get(&id).copied().unwrap_or_default();
            let (tokens, cost) = spent.get(&id).copied().unwrap_or_default();
            let changes = revisions.remove(&id).unwrap_or_default();
            Version {
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
        Ok(History { versions: versions.into_iter().map(version).collect() })
    }

    fn remarks(output: &History) -> Vec<String> {
        let remark = "where a version ran more than 1,000 times, only the newest 1,000 runs were looked at";
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

/// How the runs of a version went.
#[derive(Debug, PartialEq, Serialize)]
pub struct Outcomes {
    pub variant: Variant,
    pub replaces: Vec<Replaces>,
    pub runs: i64,
    /// Whether there are older ones, which were not looked at.
    pub newest_only: bool,
    pub succeeded: i64,
    /// Runs that have not ended.
    pub running: i64,
}

/// How the runs of every version of a task went, newest first: of its history what can be told without reading all of it.
pub fn outcomes(read: &mut Reader<'_>, task: Id<kind::Task>) -> Result<Vec<Outcomes>> {
    let replaces = replaces_sql();
    read.expect(&replaces, params![task, VERSIONS_MAX])?;
    let (nil, runs) = (Uuid::nil(), runs_of_each_version(read.engine()));
    let versions = read.query::<(Id<kind::Task>, Variant, bool, i64, i64, i64)>(
        &format!(
            "{VERSIONS}, {COUNTED} select v.id, v.variant, v.before <> ?4, count(u.id), count(case when u.status = 'completed' then 1 end),
             count(u.ended_at) from counted v left join {runs} group by v.id, v.variant, v.before order by v.id desc"
        ),
        params![task, VERSIONS_MAX, nil, RUNS_MAX],
    )?;
    let replaces = read.query::<Replaces>(&replaces, params![task, VERSIONS_MAX])?;
    let mut replaces = grouped(replaces, |edge| edge.task_id);
    let outcome = |(id, variant, newest_only, runs, succeeded, ended)| Outcomes {
        variant,
        replaces: replaces.remove(&id).unwrap_or_default(),
        runs,
        newest_only,
        succeeded,
        running: runs - ended,
    };
    Ok(versions.into_iter().map(outcome).collect())
}

fn grouped<T>(rows: Vec<T>, key: impl Fn(&T) -> Id<kind::Task>) -> HashMap<Id<kind::Task>, Vec<T>> {
    let mut groups: HashMap<_, Vec<T>> = HashMap::new();
    for row in rows {
        groups.entry(key(&row)).or_default().push(row);
    }
    groups
}

/// What each version spent, run by run: PostgreSQL would rather read what everybody ever spent than look a thousand runs up.
fn spent_sql(runs: &str) -> String {
    let of_run =
        |what: &str| format!("(select sum({what}) from run_usage x where x.tenant_id = ?1 and x.run_id = u.id)");
    format!(
        "{VERSIONS}, {COUNTED} select v.id, cast(sum({}) as bigint), sum({}) from counted v join {runs} group by v.id",
        of_run("coalesce(x.input_tokens, 0) + coalesce(x.output_tokens, 0)"),
        of_run("x.cost"),
    )
}

/// The median duration of the ended runs of each version.
fn median_sql(engine: Engine) -> String {
    let (seconds, runs) = (engine.seconds_between("u.started_at", "u.ended_at"), runs_of_each_version(engine));
    format!(
        "{VERSIONS}, {COUNTED}, timed as (
             select u.task_id as task_id, {seconds} as seconds,
                 row_number() over (partition by u.task_id order by u.ended_at - u.started_at) as place,
                 count(*) over (partition by u.task_id) as total
             from counted v join {runs} where u.ended_at is not null
         )
         select task_id, avg(seconds) from timed where place in ((total + 1) / 2, (total + 2) / 2) group by task_id"
    )
}

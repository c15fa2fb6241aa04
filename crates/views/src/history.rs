//! What became of every version of a task.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};
use trackway_domain::{
    Id, Ref, Time, Variant, cost, kind,
    words::{Level, TaskStatus},
};
use trackway_store::{Engine, Reader, Result, params, row, sql::Param};

use crate::view::View;

/// Versions shown.
const VERSIONS_MAX: i64 = 200;

/// Show every version of a task, newest first, with how its runs went
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

impl View for TaskHistory {
    const COMMAND: (&'static str, &'static str) = ("task", "history");
    type Output = History;

    fn answer(&self, read: &mut Reader<'_>, _: Time) -> Result<History> {
        let task = read.resolve_even_deleted(&self.task)?;
        let bound: &[Param<'_>] = params![task, VERSIONS_MAX];
        let texts = [
            format!("{VERSIONS} select id, variant, status, archived, deleted_at is not null, created_at from versions order by id desc"),
            format!(
                "{VERSIONS} select r.task_id, r.number, r.digest, r.definition, g.display_path, r.run_id, r.created_at from versions v
                 join task_revisions r on r.task_id = v.id left join registry g on g.id = r.actor_id order by r.number desc"
            ),
            replaces_sql(),
            format!(
                "{VERSIONS} select u.task_id, count(*), count(case when u.status = 'completed' then 1 end), count(u.ended_at)
                 from versions v join runs u on u.tenant_id = ?1 and u.task_id = v.id group by u.task_id"
            ),
            median_sql(read.engine()),
            format!(
                "{VERSIONS} select u.task_id, cast(sum(coalesce(x.input_tokens, 0) + coalesce(x.output_tokens, 0)) as bigint), sum(x.cost)
                 from versions v join runs u on u.tenant_id = ?1 and u.task_id = v.id join run_usage x on x.tenant_id = ?1 and x.run_id = u.id group by u.task_id"
            ),
        ];
        texts.iter().try_for_each(|text| read.expect(text, bound))?;
        let [versions, revisions, replaces, runs, medians, spent] = &texts;
        let versions = read.query::<(Id<kind::Task>, Variant, TaskStatus, bool, bool, Time)>(versions, bound)?;
        let mut revisions = grouped(read.query::<Revision>(revisions, bound)?, |revision| revision.task_id);
        let mut replaces = grouped(read.query::<Replaces>(replaces, bound)?, |edge| edge.task_id);
        let runs: HashMap<_, _> = read
            .query::<(Id<kind::Task>, i64, i64, i64)>(runs, bound)?
            .into_iter()
            .map(|(id, runs, succeeded, ended)| (id, (runs, succeeded, ended)))
            .collect();
        let medians: HashMap<_, _> = read.query::<(Id<kind::Task>, f64)>(medians, bound)?.into_iter().collect();
        let spent: HashMap<_, _> = read
            .query::<(Id<kind::Task>, Option<i64>, Option<f64>)>(spent, bound)?
            .into_iter()
            .map(|(id, tokens, sum)| (id, (tokens, sum.map(cost::rounded))))
            .collect();
        let version = |(id, variant, status, archived, deleted, created_at)| {
            let (runs, succeeded, ended) = runs.get(&id).copied().unwrap_or_default();
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
    pub succeeded: i64,
    /// Runs that have not ended.
    pub running: i64,
}

/// How the runs of every version of a task went, newest first: of its history what can be told without reading all of it.
pub fn outcomes(read: &mut Reader<'_>, task: Id<kind::Task>) -> Result<Vec<Outcomes>> {
    let bound: &[Param<'_>] = params![task, VERSIONS_MAX];
    let replaces = replaces_sql();
    read.expect(&replaces, bound)?;
    let versions = read.query::<(Id<kind::Task>, Variant, i64, i64, i64)>(
        &format!(
            "{VERSIONS} select v.id, v.variant, count(u.id), count(case when u.status = 'completed' then 1 end), count(u.ended_at)
             from versions v left join runs u on u.tenant_id = ?1 and u.task_id = v.id group by v.id, v.variant order by v.id desc"
        ),
        bound,
    )?;
    let mut replaces = grouped(read.query::<Replaces>(&replaces, bound)?, |edge| edge.task_id);
    let outcome = |(id, variant, runs, succeeded, ended)| Outcomes {
        variant,
        replaces: replaces.remove(&id).unwrap_or_default(),
        runs,
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

/// The middle duration of the ended runs of each version. Only the length of an interval is said differently.
fn median_sql(engine: Engine) -> String {
    let seconds = match engine {
        Engine::Sqlite => "(u.ended_at - u.started_at) / 1000000.0",
        Engine::Postgres => "cast(extract(epoch from u.ended_at - u.started_at) as double precision)",
    };
    format!(
        "{VERSIONS}, timed as (
             select u.task_id as task_id, {seconds} as seconds,
                 row_number() over (partition by u.task_id order by u.ended_at - u.started_at) as place,
                 count(*) over (partition by u.task_id) as total
             from versions v join runs u on u.tenant_id = ?1 and u.task_id = v.id where u.ended_at is not null
         )
         select task_id, avg(seconds) from timed where place in ((total + 1) / 2, (total + 2) / 2) group by task_id"
    )
}

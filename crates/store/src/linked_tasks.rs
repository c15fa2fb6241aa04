//! The tasks around a task, for the linked-task document: a fixed number of queries for any number of links.

use std::{
    collections::{BTreeMap, HashMap},
    sync::atomic::{AtomicU64, Ordering},
};

use serde_json::json;
use trackway_domain::{
    Duration, Id, Time, Variant, kind,
    wake_document::{LabelNamed, LinkedReport, LinkedTask, LinkedTasks, relation, time_spent},
    words::{LinkType, Priority, TaskStatus},
};

use crate::{
    connection::Engine,
    current_reports::{CurrentReport, NEAR, Tasks},
    error::Result,
    params, row,
    store::Reader,
};

/// When something went on: from, to.
type Intervals = Vec<(Time, Time)>;

/// What was found, and what could not be.
#[derive(Debug, Default)]
pub struct Linked {
    pub tasks: LinkedTasks,
    /// Why there are no lists at all.
    pub failure: Option<String>,
    /// Tasks whose report could not be looked up, and why.
    pub without_report: Vec<(Id<kind::Task>, String)>,
}

/// What could not be told in this process so far: lists, and reports of tasks in them.
pub static UNAVAILABLE: AtomicU64 = AtomicU64::new(0);

impl Linked {
    /// Counts what is missing, and writes it into the log: whoever is woken goes on without.
    fn logged(self) -> Self {
        for problem in self.problems() {
            UNAVAILABLE.fetch_add(1, Ordering::Relaxed);
            tracing::warn!("{problem}");
        }
        self
    }

    /// What is missing, a line each.
    pub fn problems(&self) -> Vec<String> {
        let list = self.failure.iter().map(|reason| format!("linked tasks: unavailable: {reason}"));
        let rows =
            self.without_report.iter().map(|(task, reason)| format!("report of task:{task}: unavailable: {reason}"));
        list.chain(rows).collect()
    }
}

row! {
    /// A link and the task at its other end.
    pub struct Neighbour {
        outgoing: bool,
        link_type: LinkType,
        id: Id<kind::Task>,
        variant: Variant,
        title: Option<String>,
        status: TaskStatus,
        status_since: Time,
        priority: Priority,
        estimate: Option<Duration>,
        created_at: Time,
        labels: Vec<String>,
        language: Option<String>,
    }
}

const NEIGHBOUR: &str = "l.link_type, t.id, t.variant, t.title, t.status, t.status_since, t.priority, t.estimate, t.created_at, t.labels, t.language
    from task_links l cross join tasks t where l.tenant_id = ?1 and l.deleted_at is null and t.deleted_at is null and not t.archived";

impl Reader<'_> {
    /// The tasks around a task. Whatever cannot be read is said, and takes nothing else with it.
    pub fn linked_tasks(&mut self, task: Id<kind::Task>, now: Time) -> Linked {
        let lists = self.attempt(|read| read.linked_lists(task, now));
        let mut tasks = match lists {
            Ok(tasks) => tasks,
            Err(error) => return Linked { failure: Some(error.to_string()), ..Linked::default() }.logged(),
        };
        if tasks.is_empty() {
            return Linked::default();
        }
        let (reports, without_report) = match self.attempt(|read| read.current_reports(Tasks::LinkedWith(task))) {
            Ok(reports) => (reports, Vec::new()),
            Err(_) => self.reports_one_by_one(&tasks),
        };
        let reports: HashMap<_, _> = reports.into_iter().map(|report| (report.task_id, report)).collect();
        for row in tasks.linked_from.iter_mut().chain(&mut tasks.linked_to) {
            row.report = reports.get(&row.id).map(linked_report);
        }
        Linked { tasks, failure: None, without_report }.logged()
    }

    /// After the reports could not be had together: only the row that is broken goes without.
    fn reports_one_by_one(&mut self, tasks: &LinkedTasks) -> (Vec<CurrentReport>, Vec<(Id<kind::Task>, String)>) {
        let mut ids: Vec<_> = tasks.rows().map(|row| row.id).collect();
        ids.sort_unstable();
        ids.dedup();
        let (mut reports, mut without) = (Vec::new(), Vec::new());
        for id in ids {
            match self.attempt(|read| read.current_reports(Tasks::One(id))) {
                Ok(found) => reports.extend(found),
                Err(error) => without.push((id, error.to_string())),
            }
        }
        (reports, without)
    }

    /// Why the linked-task document of a task is empty although nothing failed.
    pub fn reason_without_linked_tasks(&mut self, task: Id<kind::Task>) -> String {
        let end = |own: &str, other: &str| {
            format!(
                "select t.deleted_at is not null, t.archived, t.lineage_id = o.lineage_id
                 from task_links l join tasks t on t.id = l.{other} join tasks o on o.id = l.{own}
                 where l.tenant_id = ?1 and l.{own} = ?2 and l.deleted_at is null"
            )
        };
        let sql = format!("{} union all {}", end("from_task_id", "to_task_id"), end("to_task_id", "from_task_id"));
        match self.attempt(|read| read.query::<(bool, bool, bool)>(&sql, params![task])) {
            Ok(ends) => empty_reason(&ends),
            Err(error) => format!("linked tasks: unavailable: {error}"),
        }
    }

    fn linked_lists(&mut self, task: Id<kind::Task>, now: Time) -> Result<LinkedTasks> {
        let neighbours = self.query::<Neighbour>(
            &format!(
                "select false, {NEIGHBOUR} and l.to_task_id = ?2 and t.id = l.from_task_id
                 union all select true, {NEIGHBOUR} and l.from_task_id = ?2 and t.id = l.to_task_id"
            ),
            params![task],
        )?;
        if neighbours.is_empty() {
            return Ok(LinkedTasks::default());
        }
        let names = self.label_names(&neighbours)?;
        let spent = self.time_spent_nearby(task, now)?;
        let mut lists = [BTreeMap::new(), BTreeMap::new()];
        for neighbour in neighbours {
            let (id, outgoing) = (neighbour.id, neighbour.outgoing);
            let link_type = neighbour.link_type;
            let (_, types) = lists[usize::from(outgoing)].entry(id).or_insert_with(|| (neighbour, Vec::new()));
            types.push(link_type);
        }
        let row = |(neighbour, mut types): (Neighbour, Vec<LinkType>)| {
            types.sort_unstable();
            let named = |key: String| {
                let name = names.get(&key).unwrap_or(&key).clone();
                LabelNamed { id: key, name }
            };
            LinkedTask {
                id: neighbour.id,
                // A task that nobody gave a title is called by its variant.
                title: neighbour.title.unwrap_or_else(|| neighbour.variant.to_string()),
                status: neighbour.status,
                status_since: neighbour.status_since,
                priority: neighbour.priority,
                estimate: neighbour.estimate,
                time_spent: spent.get(&neighbour.id).map(|intervals| time_spent(intervals.clone())),
                created_at: neighbour.created_at,
                labels: neighbour.labels.into_iter().map(named).collect(),
                language_code: neighbour.language,
                relations: types.into_iter().map(|link| relation(link, neighbour.outgoing)).collect(),
                report: None,
            }
        };
        let [from, to] = lists.map(|list| list.into_values().map(&row).collect());
        let mut tasks = LinkedTasks { linked_from: from, linked_to: to };
        tasks.sort();
        Ok(tasks)
    }

    fn label_names(&mut self, neighbours: &[Neighbour]) -> Result<HashMap<String, String>> {
        let mut keys: Vec<_> = neighbours.iter().flat_map(|neighbour| &neighbour.labels).collect();
        keys.sort_unstable();
        keys.dedup();
        if keys.is_empty() {
            return Ok(HashMap::new());
        }
        let wanted = match self.engine() {
            Engine::Sqlite => "select value from json_each(?2)",
            Engine::Postgres => "select jsonb_array_elements_text(?2)",
        };
        let sql =
            format!("select key, name from labels where tenant_id = ?1 and deleted_at is null and key in ({wanted})");
        Ok(self.query::<(String, String)>(&sql, params![json!(keys)])?.into_iter().collect())
    }

    /// When runs went on, of every task nearby. One that is running goes on until now.
    fn time_spent_nearby(&mut self, task: Id<kind::Task>, now: Time) -> Result<HashMap<Id<kind::Task>, Intervals>> {
        let runs = self.query::<(Id<kind::Task>, Time, Option<Time>)>(
            &format!(
                "with {NEAR} select r.task_id, r.started_at, r.ended_at from near n cross join runs r
                 where r.tenant_id = ?1 and r.task_id = n.id and r.task_id is not null"
            ),
            params![task],
        )?;
        let mut spent: HashMap<_, Intervals> = HashMap::new();
        for (task, start, end) in runs {
            spent.entry(task).or_default().push((start, end.unwrap_or(now)));
        }
        Ok(spent)
    }
}

/// Says of the linked tasks, as (deleted, archived, another version of the task), why none is listed.
fn empty_reason(ends: &[(bool, bool, bool)]) -> String {
    if ends.is_empty() {
        return "linked tasks: none: no task is linked to this one".to_owned();
    }
    let deleted = ends.iter().filter(|(deleted, ..)| *deleted).count();
    let archived = ends.iter().filter(|(deleted, archived, _)| !deleted && *archived).count();
    let own = ends.iter().filter(|(deleted, archived, own)| !deleted && !archived && *own).count();
    let counts = [(deleted, "deleted"), (archived, "archived"), (own, "other versions of this task")];
    let parts: Vec<String> =
        counts.iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}")).collect();
    format!("linked tasks: none: {} linked, of which {}", ends.len(), parts.join(", "))
}

fn linked_report(report: &CurrentReport) -> LinkedReport {
    LinkedReport {
        id: report.report_id,
        agent_id: report.agent_id,
        content: report.content.clone(),
        created_at: report.created_at,
    }
}

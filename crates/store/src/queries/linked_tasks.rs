//! Collects the tasks that are linked with a task, for the linked-task document, with a fixed number of queries for any
//! number of links.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, HashMap},
    sync::atomic::{AtomicU64, Ordering},
};

use serde_json::json;
use trackway_domain::{
    Duration, Id, Time, Variant,
    enums::{LinkType, Priority, TaskStatus},
    kind,
    wake_document::{LabelSummary, LinkedAs, LinkedReport, LinkedTask, LinkedTasks, relation_name, time_spent},
};

use uuid::Uuid;

use crate::{
    connection::Engine,
    current_reports::{CurrentReport, LINKED_VERSIONS, ReportScope},
    error::Result,
    params,
    replacements::InheritedPart,
    row,
    store::Reader,
};

/// Start and end times of runs.
type Intervals = Vec<(Time, Time)>;

struct LinkedLists {
    /// The version whose links apply.
    source: Id<kind::Task>,
    tasks: LinkedTasks,
    lineages: HashMap<Id<kind::Task>, Uuid>,
}

/// The linked tasks, and the parts that could not be read.
#[derive(Debug, Default)]
pub struct LinkedTasksResult {
    pub tasks: LinkedTasks,
    /// The error, if the lists themselves could not be read.
    pub failure: Option<String>,
    /// Tasks whose report could not be read, with the errors.
    pub failed_reports: Vec<(Id<kind::Task>, String)>,
}

/// Number of lists and reports that were unavailable since the start of this process. The server publishes it as a
/// metric.
pub static UNAVAILABLE_COUNT: AtomicU64 = AtomicU64::new(0);

impl LinkedTasksResult {
    /// Counts and logs the missing parts. The wake continues without them.
    fn log_problems(self) -> Self {
        for problem in self.problems() {
            UNAVAILABLE_COUNT.fetch_add(1, Ordering::Relaxed);
            tracing::warn!("{problem}");
        }
        self
    }

    /// Describes the missing parts, one line each.
    pub fn problems(&self) -> Vec<String> {
        let list = self.failure.iter().map(|reason| format!("linked tasks: unavailable: {reason}"));
        let rows =
            self.failed_reports.iter().map(|(task, reason)| format!("report of task:{task}: unavailable: {reason}"));
        list.chain(rows).collect()
    }
}

row! {
    /// A link of a task, the version at its other end, and the current version of that task.
    pub struct Neighbour {
        /// The version of the task that the link belongs to.
        source_id: Id<kind::Task>,
        outgoing: bool,
        link_type: LinkType,
        linked_at: Time,
        link_id: Id<kind::Link>,
        named_id: Id<kind::Task>,
        named_variant: Variant,
        lineage_id: Uuid,
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

const NEIGHBOUR: &str = "l.link_type, l.created_at, l.id, n.id, n.variant, n.lineage_id,
    t.id, t.variant, t.title, t.status, t.status_since, t.priority, t.estimate, t.created_at, t.labels, t.language
    from source s cross join task_links l cross join tasks n cross join tasks t
    where l.tenant_id = ?1 and l.deleted_at is null and t.id = n.current_id and n.lineage_id <> s.lineage_id";

impl Neighbour {
    /// Returns whether the link names an earlier version than the current one.
    fn names_earlier_version(&self) -> bool {
        self.named_id != self.id
    }

    fn linked_as(&self) -> Option<LinkedAs> {
        self.names_earlier_version().then(|| LinkedAs { id: self.named_id, variant: self.named_variant.clone() })
    }
}

impl Reader<'_> {
    /// Returns the tasks that are linked with a task, by its own links, or else by those of the nearest earlier version
    /// with links. Each part that cannot be read is reported as a problem and does not affect the others.
    pub fn linked_tasks(&mut self, task: Id<kind::Task>, now: Time) -> LinkedTasksResult {
        let lists = self.with_savepoint(|read| read.linked_lists(task, now));
        let LinkedLists { source, mut tasks, lineages } = match lists {
            Ok(Some(lists)) => lists,
            Ok(None) => return LinkedTasksResult::default(),
            Err(error) => {
                return LinkedTasksResult { failure: Some(error.to_string()), ..LinkedTasksResult::default() }
                    .log_problems();
            }
        };
        let (reports, failed_reports) =
            match self.with_savepoint(|read| read.current_reports(ReportScope::LinkedWith(source))) {
                Ok(reports) => (reports, Vec::new()),
                Err(_) => self.reports_task_by_task(&tasks),
            };
        let reports: HashMap<_, _> = reports.into_iter().map(|report| (report.lineage_id, report)).collect();
        for row in tasks.linked_from.iter_mut().chain(&mut tasks.linked_to) {
            row.report = lineages.get(&row.id).and_then(|lineage| reports.get(lineage)).map(linked_report);
        }
        LinkedTasksResult { tasks, failure: None, failed_reports }.log_problems()
    }

    /// Reads the reports task by task, after reading them together failed, so that an invalid row affects only one
    /// task.
    fn reports_task_by_task(&mut self, tasks: &LinkedTasks) -> (Vec<CurrentReport>, Vec<(Id<kind::Task>, String)>) {
        let mut ids: Vec<_> = tasks.rows().map(|row| row.id).collect();
        ids.sort_unstable();
        ids.dedup();
        let (mut reports, mut failed) = (Vec::new(), Vec::new());
        for id in ids {
            match self.with_savepoint(|read| read.current_reports(ReportScope::Lineage(id))) {
                Ok(found) => reports.extend(found),
                Err(error) => failed.push((id, error.to_string())),
            }
        }
        (reports, failed)
    }

    /// Explains why a task has no linked tasks although no query failed.
    pub fn reason_for_no_linked_tasks(&mut self, task: Id<kind::Task>) -> String {
        let link_end = |own: &str, other: &str| {
            format!(
                "select t.deleted_at is not null, t.archived, t.lineage_id = o.lineage_id
                 from task_links l join tasks t on t.id = l.{other} join tasks o on o.id = l.{own}
                 where l.tenant_id = ?1 and l.{own} = ?2 and l.deleted_at is null"
            )
        };
        let sql =
            format!("{} union all {}", link_end("from_task_id", "to_task_id"), link_end("to_task_id", "from_task_id"));
        let ends = self.with_savepoint(|read| {
            let source = read.nearest_version_with(task, InheritedPart::Links)?.map_or(task, |version| version.id);
            read.query::<(bool, bool, bool)>(&sql, params![source])
        });
        match ends {
            Ok(ends) => empty_reason(&ends),
            Err(error) => format!("linked tasks: unavailable: {error}"),
        }
    }

    /// Reads both lists, with one row per linked lineage.
    fn linked_lists(&mut self, task: Id<kind::Task>, now: Time) -> Result<Option<LinkedLists>> {
        let source = InheritedPart::Links.source();
        let mut neighbours = self.query::<Neighbour>(
            &format!(
                "with recursive {source} select s.id, false, {NEIGHBOUR} and l.to_task_id = s.id and n.id = l.from_task_id
                 union all select s.id, true, {NEIGHBOUR} and l.from_task_id = s.id and n.id = l.to_task_id"
            ),
            params![task],
        )?;
        let Some(source) = neighbours.first().map(|neighbour| neighbour.source_id) else {
            return Ok(None);
        };
        let names = self.label_names(&neighbours)?;
        let spent = self.run_intervals(source, now)?;
        // Of several links to one lineage, the row shows the link to the current version, or else the newest one.
        neighbours.sort_by_key(|neighbour| {
            (neighbour.names_earlier_version(), Reverse(neighbour.linked_at), Reverse(neighbour.link_id))
        });
        let mut lists: [BTreeMap<Uuid, (Neighbour, Vec<LinkType>)>; 2] = Default::default();
        for neighbour in neighbours {
            let (lineage, link_type) = (neighbour.lineage_id, neighbour.link_type);
            let list = &mut lists[usize::from(neighbour.outgoing)];
            let (_, types) = list.entry(lineage).or_insert_with(|| (neighbour, Vec::new()));
            types.push(link_type);
        }
        let rows = lists.iter().flat_map(BTreeMap::values);
        let lineages = rows.map(|(neighbour, _)| (neighbour.id, neighbour.lineage_id)).collect();
        let row = |(neighbour, mut types): (Neighbour, Vec<LinkType>)| {
            types.sort_unstable();
            types.dedup();
            let linked_as = neighbour.linked_as();
            let named = |key: String| {
                let name = names.get(&key).unwrap_or(&key).clone();
                LabelSummary { id: key, name }
            };
            LinkedTask {
                id: neighbour.id,
                title: neighbour.title.unwrap_or_else(|| neighbour.variant.to_string()),
                status: neighbour.status,
                status_since: neighbour.status_since,
                priority: neighbour.priority,
                estimate: neighbour.estimate,
                time_spent: spent.get(&neighbour.id).map(|intervals| time_spent(intervals.clone())),
                created_at: neighbour.created_at,
                labels: neighbour.labels.into_iter().map(named).collect(),
                language_code: neighbour.language,
                relations: types.into_iter().map(|link| relation_name(link, neighbour.outgoing)).collect(),
                linked_as,
                report: None,
            }
        };
        let [from, to] = lists.map(|list| list.into_values().map(&row).collect());
        let mut tasks = LinkedTasks { linked_from: from, linked_to: to };
        tasks.sort();
        Ok(Some(LinkedLists { source, tasks, lineages }))
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

    /// Returns the start and end times of all runs of the linked tasks. A running run ends at `now`.
    fn run_intervals(&mut self, task: Id<kind::Task>, now: Time) -> Result<HashMap<Id<kind::Task>, Intervals>> {
        let runs = self.query::<(Id<kind::Task>, Time, Option<Time>)>(
            &format!(
                "with {LINKED_VERSIONS} select r.task_id, r.started_at, r.ended_at from near n cross join runs r
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

/// Explains why no linked task is listed. Each entry says of a linked task whether it is deleted, whether it is
/// archived, and whether it is another version of the task itself.
fn empty_reason(ends: &[(bool, bool, bool)]) -> String {
    if ends.is_empty() {
        return "linked tasks: none: no task is linked to this one".to_owned();
    }
    let deleted = ends.iter().filter(|(deleted, ..)| *deleted).count();
    let archived = ends.iter().filter(|(deleted, archived, _)| !deleted && *archived).count();
    let same_lineage =
        ends.iter().filter(|(deleted, archived, same_lineage)| !deleted && !archived && *same_lineage).count();
    let counts =
        [(deleted, "a deleted task"), (archived, "an archived task"), (same_lineage, "another version of this task")];
    let parts: Vec<String> =
        counts.iter().filter(|(count, _)| *count > 0).map(|(count, end)| format!("{count} to {end}")).collect();
    let links = if ends.len() == 1 { "link" } else { "links" };
    format!("linked tasks: none: {} {links}, {}", ends.len(), parts.join(", "))
}

fn linked_report(report: &CurrentReport) -> LinkedReport {
    LinkedReport {
        id: report.report_id,
        agent_id: report.agent_id,
        content: report.content.clone(),
        created_at: report.created_at,
    }
}

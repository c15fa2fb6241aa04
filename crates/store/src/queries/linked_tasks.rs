//! The tasks around a task, for the linked-task document: a fixed number of queries for any number of links.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, HashMap},
    sync::atomic::{AtomicU64, Ordering},
};

use serde_json::json;
use trackway_domain::{
    Duration, Id, Time, Variant, kind,
    wake_document::{LabelNamed, LinkedAs, LinkedReport, LinkedTask, LinkedTasks, relation, time_spent},
    words::{LinkType, Priority, TaskStatus},
};

use uuid::Uuid;

use crate::{
    connection::Engine,
    current_reports::{CurrentReport, NEAR, Tasks},
    error::Result,
    params,
    replacements::Has,
    row,
    store::Reader,
};

/// When something went on: from, to.
type Intervals = Vec<(Time, Time)>;

/// The tasks around a task.
struct Lists {
    /// The version whose links they are.
    source: Id<kind::Task>,
    tasks: LinkedTasks,
    /// The lineage of each task.
    lineages: HashMap<Id<kind::Task>, Uuid>,
}

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
    /// A link of a task, the version that it names at its other end, and the current version of that.
    pub struct Neighbour {
        /// The version that the link belongs to.
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
    /// Whether the link names an older version than the one that is shown.
    fn names_older(&self) -> bool {
        self.named_id != self.id
    }

    fn linked_as(&self) -> Option<LinkedAs> {
        self.names_older().then(|| LinkedAs { id: self.named_id, variant: self.named_variant.clone() })
    }
}

impl Reader<'_> {
    /// The tasks around a task, by its own links, else by those of the version before it. Whatever cannot be read is reported as a
    /// problem and does not affect the rest.
    pub fn linked_tasks(&mut self, task: Id<kind::Task>, now: Time) -> Linked {
        let lists = self.attempt(|read| read.linked_lists(task, now));
        let Lists { source, mut tasks, lineages } = match lists {
            Ok(Some(lists)) => lists,
            Ok(None) => return Linked::default(),
            Err(error) => return Linked { failure: Some(error.to_string()), ..Linked::default() }.logged(),
        };
        let (reports, without_report) = match self.attempt(|read| read.current_reports(Tasks::LinkedWith(source))) {
            Ok(reports) => (reports, Vec::new()),
            Err(_) => self.reports_one_by_one(&tasks),
        };
        let reports: HashMap<_, _> = reports.into_iter().map(|report| (report.lineage_id, report)).collect();
        for row in tasks.linked_from.iter_mut().chain(&mut tasks.linked_to) {
            row.report = lineages.get(&row.id).and_then(|lineage| reports.get(lineage)).map(linked_report);
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
            match self.attempt(|read| read.current_reports(Tasks::Lineage(id))) {
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
        let ends = self.attempt(|read| {
            let source = read.version_that_has(task, Has::Links)?.map_or(task, |version| version.id);
            read.query::<(bool, bool, bool)>(&sql, params![source])
        });
        match ends {
            Ok(ends) => empty_reason(&ends),
            Err(error) => format!("linked tasks: unavailable: {error}"),
        }
    }

    /// Both lists, one row for each lineage.
    fn linked_lists(&mut self, task: Id<kind::Task>, now: Time) -> Result<Option<Lists>> {
        let source = Has::Links.source();
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
        let spent = self.time_spent_nearby(source, now)?;
        // Of several links to one lineage the row shows the one that names the current version, else the newest.
        neighbours.sort_by_key(|neighbour| {
            (neighbour.names_older(), Reverse(neighbour.linked_at), Reverse(neighbour.link_id))
        });
        let mut lists: [BTreeMap<Uuid, (Neighbour, Vec<LinkType>)>; 2] = Default::default();
        for neighbour in neighbours {
            let (lineage, link_type) = (neighbour.lineage_id, neighbour.link_type);
            let list = &mut lists[usize::from(neighbour.outgoing)];
            let (_, types) = list.entry(lineage).or_insert_with(|| (neighbour, Vec::new()));
            types.push(link_type);
        }
        let shown = lists.iter().flat_map(BTreeMap::values);
        let lineages = shown.map(|(neighbour, _)| (neighbour.id, neighbour.lineage_id)).collect();
        let row = |(neighbour, mut types): (Neighbour, Vec<LinkType>)| {
            types.sort_unstable();
            types.dedup();
            let linked_as = neighbour.linked_as();
            let named = |key: String| {
                let name = names.get(&key).unwrap_or(&key).clone();
                LabelNamed { id: key, name }
            };
            LinkedTask {
                id: neighbour.id,
                // A task without a title is called by its variant.
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
                linked_as,
                report: None,
            }
        };
        let [from, to] = lists.map(|list| list.into_values().map(&row).collect());
        let mut tasks = LinkedTasks { linked_from: from, linked_to: to };
        tasks.sort();
        Ok(Some(Lists { source, tasks, lineages }))
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
    let counts = [(deleted, "a deleted task"), (archived, "an archived task"), (own, "another version of this task")];
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

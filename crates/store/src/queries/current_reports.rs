//! Selects the current report of a task, for the wake, the task's page and all interfaces.

use std::{
    cmp::Reverse,
    collections::{HashMap, hash_map::Entry},
};

use trackway_domain::{Id, Time, kind, report::CURRENT, text::WHITESPACE};

use uuid::Uuid;

use crate::{
    error::Result,
    params, row,
    store::Reader,
    tables::{Report, ReportHead},
};

/// The tasks whose reports are selected.
#[derive(Debug, Clone, Copy)]
pub enum ReportScope {
    /// This version of a task.
    Version(Id<kind::Task>),
    /// All versions of a task.
    Lineage(Id<kind::Task>),
    /// All versions of each task that is linked with this one.
    LinkedWith(Id<kind::Task>),
}

/// The current versions of the tasks that are linked with the task `?2`, as `near (id, lineage_id)`.
pub(crate) const LINKED_VERSIONS: &str = "near (id, lineage_id) as (
    select distinct c.id, c.lineage_id from (
        select from_task_id as id from task_links where tenant_id = ?1 and to_task_id = ?2 and deleted_at is null
        union select to_task_id from task_links where tenant_id = ?1 and from_task_id = ?2 and deleted_at is null
    ) l cross join tasks n cross join tasks c where n.id = l.id and c.id = n.current_id)";

impl ReportScope {
    /// The versions in this scope for the task `?2`, as `versions (id, lineage_id, generation, created_at)`. They
    /// include deleted versions, whose reports remain valid.
    fn versions(self) -> String {
        const COLUMNS: &str = "versions (id, lineage_id, generation, created_at)";
        match self {
            Self::Version(_) => format!(
                "{COLUMNS} as (select id, lineage_id, generation, created_at from tasks where tenant_id = ?1 and id = ?2)"
            ),
            Self::Lineage(_) => format!(
                "{COLUMNS} as (select id, lineage_id, generation, created_at from tasks where tenant_id = ?1
                 and lineage_id = (select lineage_id from tasks where tenant_id = ?1 and id = ?2))"
            ),
            Self::LinkedWith(_) => format!(
                "{LINKED_VERSIONS}, {COLUMNS} as (select v.id, v.lineage_id, v.generation, v.created_at from (select distinct lineage_id from near) g
                 cross join tasks v where v.tenant_id = ?1 and v.lineage_id = g.lineage_id)"
            ),
        }
    }
}

row! {
    /// The current report of a lineage, with the version and the link that led to it.
    pub struct CurrentReport {
        lineage_id: Uuid,
        agent_id: Id<kind::Agent>,
        report_id: Id<kind::Report>,
        content: String,
        created_at: Time,
        task_id: Id<kind::Task>,
        generation: i64,
        defined_at: Time,
        link_id: Uuid,
        linked_at: Time,
    }
}

impl CurrentReport {
    /// The sort key that puts the current report of a lineage first: the newest version, then the newest link, then the
    /// smaller id of the link.
    fn precedence(&self) -> impl Ord + use<> {
        (Reverse((self.generation, self.defined_at, self.task_id, self.linked_at)), self.link_id)
    }
}

impl Reader<'_> {
    /// Returns at most one report per lineage: a current report, not blank, on the newest version that has one. If
    /// several agents have such a report on that version, the method takes that of the agent that was linked last; of
    /// links created at the same time, the one with the smaller id counts. A version is newer than the versions it
    /// replaces; of other versions, the one created last is newer.
    pub fn current_reports(&mut self, tasks: ReportScope) -> Result<Vec<CurrentReport>> {
        let (ReportScope::Version(task) | ReportScope::Lineage(task) | ReportScope::LinkedWith(task)) = tasks;
        let versions = tasks.versions();
        // SQLite processes cross joins in the written order: from the few tasks to their many rows. Ranking the reports
        // in SQL takes three times as long, because the engines then sort them together with their contents.
        let reports = self.query::<CurrentReport>(
            &format!(
                "with {versions} select v.lineage_id, l.from_agent_id, p.id, p.content, p.created_at, v.id, v.generation, v.created_at, l.id, l.created_at
                 from versions v cross join agent_links l cross join report_heads h cross join reports p
                 where l.tenant_id = ?1 and l.to_task_id = v.id and l.link_type = 'agent_task'
                 and h.agent_id = l.from_agent_id and h.task_id = l.to_task_id and h.scope = ?3
                 and p.id = h.report_id and trim(p.content, ?4) <> ''"
            ),
            params![task, CURRENT, WHITESPACE],
        )?;
        let mut current: HashMap<Uuid, CurrentReport> = HashMap::new();
        for report in reports {
            match current.entry(report.lineage_id) {
                Entry::Occupied(mut best) if report.precedence() < best.get().precedence() => {
                    best.insert(report);
                }
                Entry::Occupied(_) => {}
                Entry::Vacant(place) => {
                    place.insert(report);
                }
            }
        }
        Ok(current.into_values().collect())
    }

    /// Returns the current report of one agent on a task.
    pub fn current_report_of(&mut self, agent: Id<kind::Agent>, task: Id<kind::Task>) -> Result<Option<Report>> {
        self.row(
            "where tenant_id = ?1 and id = (select h.report_id from report_heads h where h.tenant_id = ?1 and h.agent_id = ?2 and h.task_id = ?3 and h.scope = ?4)",
            params![agent, task, CURRENT],
        )
    }

    /// Returns the report head, which the caller changes by compare-and-set.
    pub fn report_head(&mut self, agent: Id<kind::Agent>, task: Id<kind::Task>) -> Result<Option<ReportHead>> {
        self.row(
            "where tenant_id = ?1 and agent_id = ?2 and task_id = ?3 and scope = ?4",
            params![agent, task, CURRENT],
        )
    }
}

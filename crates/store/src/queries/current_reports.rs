//! Which report speaks for a task: the one resolver behind the wake, the task's page and every other door.

use std::{
    cmp::Reverse,
    collections::{HashMap, hash_map::Entry},
};

use trackway_domain::{Id, Time, kind, report::CURRENT, text::BLANKS};

use uuid::Uuid;

use crate::{
    error::Result,
    params, row,
    store::Reader,
    tables::{Report, ReportHead},
};

/// Whose reports are looked up.
#[derive(Debug, Clone, Copy)]
pub enum Tasks {
    /// Of this version of a task.
    One(Id<kind::Task>),
    /// Of all versions of a task.
    Lineage(Id<kind::Task>),
    /// Of all versions of each task that is linked with this one.
    LinkedWith(Id<kind::Task>),
}

/// The current versions one hop from the task `?2`, as `near (id, lineage_id)`.
pub(crate) const NEAR: &str = "near (id, lineage_id) as (
    select distinct c.id, c.lineage_id from (
        select from_task_id as id from task_links where tenant_id = ?1 and to_task_id = ?2 and deleted_at is null
        union select to_task_id from task_links where tenant_id = ?1 and from_task_id = ?2 and deleted_at is null
    ) l cross join tasks n cross join tasks c where n.id = l.id and c.id = n.current_id)";

impl Tasks {
    /// The versions whose reports count, as `versions (id, lineage_id, generation, created_at)`. `?2` is the task. A deleted
    /// version's reports count: deleting keeps them.
    fn versions(self) -> String {
        const COLUMNS: &str = "versions (id, lineage_id, generation, created_at)";
        match self {
            Self::One(_) => format!(
                "{COLUMNS} as (select id, lineage_id, generation, created_at from tasks where tenant_id = ?1 and id = ?2)"
            ),
            Self::Lineage(_) => format!(
                "{COLUMNS} as (select id, lineage_id, generation, created_at from tasks where tenant_id = ?1
                 and lineage_id = (select lineage_id from tasks where tenant_id = ?1 and id = ?2))"
            ),
            Self::LinkedWith(_) => format!(
                "{NEAR}, {COLUMNS} as (select v.id, v.lineage_id, v.generation, v.created_at from (select distinct lineage_id from near) g
                 cross join tasks v where v.tenant_id = ?1 and v.lineage_id = g.lineage_id)"
            ),
        }
    }
}

row! {
    /// The report that speaks for a task, with the version and the link that it was found by.
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
    /// Sorts the report that speaks for a lineage before the others: the newest version, then the newest link, then the smaller
    /// id of the link.
    fn precedence(&self) -> impl Ord + use<> {
        (Reverse((self.generation, self.defined_at, self.task_id, self.linked_at)), self.link_id)
    }
}

impl Reader<'_> {
    /// The current report of each lineage that has one: of the newest version that has one, and there of its agents, newest link
    /// first, then the smaller id of the link, the first whose current report on it is not blank. A version is newer than those it
    /// replaces; of versions that do not follow each other, the one defined last is newer.
    pub fn current_reports(&mut self, tasks: Tasks) -> Result<Vec<CurrentReport>> {
        let (Tasks::One(task) | Tasks::Lineage(task) | Tasks::LinkedWith(task)) = tasks;
        let versions = tasks.versions();
        // SQLite reads cross joins in the order they are written in: from the few tasks to their many rows. Ranking the reports
        // in SQL takes three times as long, because the engines sort them together with their contents.
        let reports = self.query::<CurrentReport>(
            &format!(
                "with {versions} select v.lineage_id, l.from_agent_id, p.id, p.content, p.created_at, v.id, v.generation, v.created_at, l.id, l.created_at
                 from versions v cross join agent_links l cross join report_heads h cross join reports p
                 where l.tenant_id = ?1 and l.to_task_id = v.id and l.link_type = 'agent_task'
                 and h.agent_id = l.from_agent_id and h.task_id = l.to_task_id and h.scope = ?3
                 and p.id = h.report_id and trim(p.content, ?4) <> ''"
            ),
            params![task, CURRENT, BLANKS],
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

    /// The current report of one agent on a task.
    pub fn current_report_of(&mut self, agent: Id<kind::Agent>, task: Id<kind::Task>) -> Result<Option<Report>> {
        self.row(
            "where tenant_id = ?1 and id = (select h.report_id from report_heads h where h.tenant_id = ?1 and h.agent_id = ?2 and h.task_id = ?3 and h.scope = ?4)",
            params![agent, task, CURRENT],
        )
    }

    /// The head itself, which is moved by compare-and-set.
    pub fn report_head(&mut self, agent: Id<kind::Agent>, task: Id<kind::Task>) -> Result<Option<ReportHead>> {
        self.row(
            "where tenant_id = ?1 and agent_id = ?2 and task_id = ?3 and scope = ?4",
            params![agent, task, CURRENT],
        )
    }
}

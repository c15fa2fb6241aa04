//! Which report speaks for a task: the one resolver behind the wake, the task's page and every other door.

use trackway_domain::{Id, Time, kind, report::CURRENT, text::BLANKS};

use crate::{
    error::Result,
    params, row,
    store::Reader,
    tables::{Report, ReportHead},
};

/// Whose reports are looked up.
#[derive(Debug, Clone, Copy)]
pub enum Tasks {
    /// Of one task.
    One(Id<kind::Task>),
    /// Of all tasks that are linked with this one.
    LinkedWith(Id<kind::Task>),
}

/// The tasks one hop from the task `?2`, as `near (id)`.
pub(crate) const NEAR: &str = "near (id) as (
    select from_task_id from task_links where tenant_id = ?1 and to_task_id = ?2 and deleted_at is null
    union select to_task_id from task_links where tenant_id = ?1 and from_task_id = ?2 and deleted_at is null)";

/// Only the task `?2` itself.
const ITSELF: &str = "near (id) as (select id from tasks where tenant_id = ?1 and id = ?2)";

row! {
    /// The report that speaks for a task.
    pub struct CurrentReport {
        task_id: Id<kind::Task>,
        agent_id: Id<kind::Agent>,
        report_id: Id<kind::Report>,
        content: String,
        created_at: Time,
    }
}

impl Reader<'_> {
    /// The current report of each task that has one: of its agents, newest link first, then the smaller id of the link, the
    /// first whose current report on it is not blank.
    pub fn current_reports(&mut self, tasks: Tasks) -> Result<Vec<CurrentReport>> {
        let (near, task) = match tasks {
            Tasks::One(task) => (ITSELF, task),
            Tasks::LinkedWith(task) => (NEAR, task),
        };
        // SQLite reads cross joins in the order they are written in: from the few tasks to their many rows.
        self.query(
            &format!(
                "with {near} select task_id, agent_id, report_id, content, created_at from (
                     select l.to_task_id as task_id, l.from_agent_id as agent_id, p.id as report_id, p.content as content, p.created_at as created_at,
                     row_number() over (partition by l.to_task_id order by l.created_at desc, l.id) as place
                     from near n cross join agent_links l cross join report_heads h cross join reports p
                     where l.tenant_id = ?1 and l.to_task_id = n.id and l.link_type = 'agent_task'
                     and h.agent_id = l.from_agent_id and h.task_id = l.to_task_id and h.scope = ?3
                     and p.id = h.report_id and trim(p.content, ?4) <> ''
                 ) ranked where place = 1"
            ),
            params![task, CURRENT, BLANKS],
        )
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

//! Reports of agents on tasks. A report never changes. Each pair of an agent and a task has a head, which points to the
//! pair's current report.

mod set;
mod update;

pub use set::SetReport;
pub use update::UpdateReport;

use serde::Serialize;
use trackway_domain::{
    Id, Time, kind,
    report::{CURRENT, Report as ReportText},
};
use trackway_store::{
    Error as StoreError, Writer, params,
    tables::{Report, ReportHead},
};

use crate::{action::Resource, agent_link, error::Result};

/// A report after it was written.
#[derive(Debug, Serialize)]
pub struct ReportResult {
    pub id: Id<kind::Report>,
    pub agent_id: Id<kind::Agent>,
    pub task_id: Option<Id<kind::Task>>,
    pub run_id: Option<Id<kind::Run>>,
    pub created_at: Time,
    /// True if this is the current report of its agent on its task.
    pub current: bool,
}

/// The agent, task, run and time of a report.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ReportOrigin {
    pub agent: Id<kind::Agent>,
    pub task: Option<Id<kind::Task>>,
    pub run: Option<Id<kind::Run>>,
    pub at: Time,
}

/// Stores a report, links the agent to the task and updates the head. The caller registers the report.
pub(crate) fn write_report(write: &mut Writer<'_>, origin: ReportOrigin, text: ReportText) -> Result<ReportResult> {
    let report = Report {
        id: if origin.at == write.now { write.new_id() } else { Id::new(origin.at) },
        tenant_id: write.tenant,
        agent_id: origin.agent,
        task_id: origin.task,
        run_id: origin.run,
        scope: CURRENT.to_owned(),
        one_liner: text.one_liner,
        tldr: text.tldr,
        content: text.content,
        created_at: origin.at,
    };
    write.insert(&report)?;
    let current = match origin.task {
        Some(task) => {
            agent_link::link(write, origin.agent, task, origin.at)?;
            update_head(write, &report, task)?
        }
        None => false,
    };
    Ok(ReportResult {
        id: report.id,
        agent_id: report.agent_id,
        task_id: report.task_id,
        run_id: report.run_id,
        created_at: report.created_at,
        current,
    })
}

/// Makes a report the current report, unless the current report is newer. Returns true if the report became current. A
/// compare-and-set update detects a concurrent change of the head; the caller then retries the whole transaction.
fn update_head(write: &mut Writer<'_>, report: &Report, task: Id<kind::Task>) -> Result<bool> {
    let Some(head) = write.report_head(report.agent_id, task)? else {
        // If two transactions insert the first head at once, the unique index rejects one of them.
        write.insert(&ReportHead {
            agent_id: report.agent_id,
            tenant_id: write.tenant,
            task_id: task,
            scope: report.scope.clone(),
            report_id: report.id,
            revision: 1,
            updated_at: write.now,
        })?;
        return Ok(true);
    };
    let later = write.one::<(Id<kind::Report>,)>(
        "select id from reports where tenant_id = ?1 and id = ?2 and created_at > ?3",
        params![head.report_id, report.created_at],
    )?;
    if later.is_some() {
        return Ok(false);
    }
    let now = write.now;
    let updated = write.execute(
        "update report_heads set report_id = ?2, revision = revision + 1, updated_at = ?3
         where tenant_id = ?1 and agent_id = ?4 and task_id = ?5 and scope = ?6 and revision = ?7",
        params![report.id, now, report.agent_id, task, report.scope, head.revision],
    )?;
    match updated {
        0 => Err(StoreError::WriteConflict("another report changed the report head".to_owned()).into()),
        _ => Ok(true),
    }
}

/// Makes the newest remaining report current, after the current reports of these heads were deleted.
pub(crate) fn restore_report_heads(write: &mut Writer<'_>, heads: Vec<ReportHead>) -> Result<()> {
    for head in heads {
        let newest = write.one::<(Id<kind::Report>,)>(
            "select id from reports where tenant_id = ?1 and agent_id = ?2 and task_id = ?3 and scope = ?4 order by created_at desc, id desc limit 1",
            params![head.agent_id, head.task_id, head.scope],
        )?;
        if let Some((report_id,)) = newest {
            write.insert(&ReportHead { report_id, revision: head.revision + 1, updated_at: write.now, ..head })?;
        }
    }
    Ok(())
}

pub(crate) fn resource(report: Id<kind::Report>) -> Resource<kind::Report> {
    Resource::new(report, format!("reports/{}", report.short()))
}

//! Reports: what an agent says about a task. A report never changes; which one is the current one does.

mod set;
mod update;

pub use set::SetReport;
pub use update::UpdateReport;

use serde::Serialize;
use trackway_domain::{
    Id, Time, kind,
    report::{CURRENT, Report as Said},
};
use trackway_store::{
    Error as StoreError, Writer, params,
    tables::{Report, ReportHead},
};

use crate::{action::Resource, agent_link, error::Result};

/// A report as it now stands.
#[derive(Debug, Serialize)]
pub struct Reported {
    pub id: Id<kind::Report>,
    pub agent_id: Id<kind::Agent>,
    pub task_id: Option<Id<kind::Task>>,
    pub run_id: Option<Id<kind::Run>>,
    pub created_at: Time,
    /// Whether it is the current one of its agent on its task.
    pub current: bool,
}

/// Who reports, on what, in which run, when.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reporting {
    pub agent: Id<kind::Agent>,
    pub task: Option<Id<kind::Task>>,
    pub run: Option<Id<kind::Run>>,
    pub at: Time,
}

/// Writes a report down, links its agent to its task and moves the head. Whoever calls this registers it.
pub(crate) fn write_report(write: &mut Writer<'_>, by: Reporting, said: Said) -> Result<Reported> {
    let report = Report {
        id: if by.at == write.now { write.new_id() } else { Id::new(by.at) },
        tenant_id: write.tenant,
        agent_id: by.agent,
        task_id: by.task,
        run_id: by.run,
        scope: CURRENT.to_owned(),
        one_liner: said.one_liner,
        tldr: said.tldr,
        content: said.content,
        created_at: by.at,
    };
    write.insert(&report)?;
    let current = match by.task {
        Some(task) => {
            agent_link::link(write, by.agent, task, by.at)?;
            move_head(write, &report, task)?
        }
        None => false,
    };
    Ok(Reported {
        id: report.id,
        agent_id: report.agent_id,
        task_id: report.task_id,
        run_id: report.run_id,
        created_at: report.created_at,
        current,
    })
}

/// Makes a report the current one, unless a later one is. Compare-and-set: whoever finds that the head has moved since it
/// looked does all of it again.
fn move_head(write: &mut Writer<'_>, report: &Report, task: Id<kind::Task>) -> Result<bool> {
    let Some(head) = write.report_head(report.agent_id, task)? else {
        // Two first ones: the index lets one of them through.
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
    let moved = write.execute(
        "update report_heads set report_id = ?2, revision = revision + 1, updated_at = ?3
         where tenant_id = ?1 and agent_id = ?4 and task_id = ?5 and scope = ?6 and revision = ?7",
        params![report.id, now, report.agent_id, task, report.scope, head.revision],
    )?;
    match moved {
        0 => Err(StoreError::Again("another report came first".to_owned()).into()),
        _ => Ok(true),
    }
}

/// Puts the newest report that is left in the place of reports that are about to go.
pub(crate) fn step_back(write: &mut Writer<'_>, heads: Vec<ReportHead>) -> Result<()> {
    for head in heads {
        let left = write.one::<(Id<kind::Report>,)>(
            "select id from reports where tenant_id = ?1 and agent_id = ?2 and task_id = ?3 and scope = ?4 order by created_at desc, id desc limit 1",
            params![head.agent_id, head.task_id, head.scope],
        )?;
        if let Some((report_id,)) = left {
            write.insert(&ReportHead { report_id, revision: head.revision + 1, updated_at: write.now, ..head })?;
        }
    }
    Ok(())
}

pub(crate) fn resource(report: Id<kind::Report>) -> Resource<kind::Report> {
    Resource::outside(report, format!("reports/{}", report.short()))
}

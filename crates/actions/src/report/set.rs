//! The action `set_report`: an agent, or its owner, reports on any task.

use serde::Deserialize;
use trackway_domain::{Error as Rule, Ref, kind, report};
use trackway_store::{Writer, params, tables::Agent};

use super::{ReportOrigin, ReportResult, UpdateReport, resource, write_report};
use crate::{
    action::{Action, ActionOutcome},
    context::{Actor, Context},
    error::Result,
    touched::{Touch, action_type},
};

/// Write a report on a task as yourself or as an agent that you own
///
/// The next agent that works on this task or on a linked task reads the report. Earlier reports stay.
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
#[serde(deny_unknown_fields)]
pub struct SetReport {
    /// Agent that reports
    #[arg(long)]
    pub agent: Ref<kind::Agent>,
    /// Task that the report is about
    #[arg(long)]
    pub task: Ref<kind::Task>,
    /// Summary in one line
    #[arg(long, value_name = "TEXT")]
    pub one_liner: String,
    /// Summary in a few sentences
    #[arg(long, value_name = "TEXT")]
    pub tldr: String,
    /// Full report (at most 100,000 characters)
    #[arg(long, value_name = "TEXT")]
    pub content: String,
}

impl Action for SetReport {
    const NAME: &'static str = "set_report";
    const CAPABILITY: &'static str = UpdateReport::CAPABILITY;
    const COMMAND: (&'static str, &'static str) = ("report", "set");
    type Touched = Touch<kind::Report, action_type::Report>;
    type Output = ReportResult;

    fn perform(&self, context: &Context, write: &mut Writer<'_>) -> Result<ActionOutcome<Self>> {
        let Self { agent: reference, task, one_liner, tldr, content } = self;
        let id = write.resolve(reference)?;
        // The lock serialises the reports of one agent, so that their times are in order.
        let agent = write
            .row_locked::<Agent>("where tenant_id = ?1 and id = ?2", params![id])?
            .ok_or_else(|| Rule::not_found(format!("there is no agent {reference:?}")))?;
        if ![Actor::Agent(agent.id), Actor::Person(agent.owner_id)].contains(&context.actor) {
            return Err(
                Rule::denied(format!("only agent {0} and its owner can write reports of {0}", agent.handle)).into()
            );
        }
        let task = write.resolve(task)?;
        let report = report::validate(one_liner, tldr, content)?;
        let origin = ReportOrigin { agent: agent.id, task: Some(task), run: context.run, at: write.now };
        let result = write_report(write, origin, report)?;
        let resource = resource(result.id);
        resource.register(context, write)?;
        Ok(ActionOutcome::changed(result, &resource, Touch::one(resource.clone())))
    }
}

//! Reporting by naming the agent and the task: the agent itself, or the person who owns it.

use serde::Deserialize;
use trackway_domain::{Error as Rule, Ref, kind, report};
use trackway_store::{Writer, params, tables::Agent};

use super::{Reported, Reporting, UpdateReport, resource, write_report};
use crate::{
    action::{Action, Done},
    context::{Actor, Context},
    error::Result,
    touched::{Touch, did},
};

/// Report on a task for an agent you own, or are
///
/// What the next one who works on it, or on a task linked to it, is told. Earlier reports stay.
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
#[serde(deny_unknown_fields)]
pub struct SetReport {
    /// The agent that reports
    #[arg(long)]
    pub agent: Ref<kind::Agent>,
    /// The task it reports on
    #[arg(long)]
    pub task: Ref<kind::Task>,
    /// The report in one line
    #[arg(long, value_name = "TEXT")]
    pub one_liner: String,
    /// The report in short
    #[arg(long, value_name = "TEXT")]
    pub tldr: String,
    /// The report (at most 100,000 characters)
    #[arg(long, value_name = "TEXT")]
    pub content: String,
}

impl Action for SetReport {
    const NAME: &'static str = "set_report";
    const CAPABILITY: &'static str = UpdateReport::CAPABILITY;
    const COMMAND: (&'static str, &'static str) = ("report", "set");
    type Touched = Touch<kind::Report, did::Report>;
    type Output = Reported;

    fn perform(&self, context: &Context, write: &mut Writer<'_>) -> Result<Done<Self>> {
        let id = write.resolve(&self.agent)?;
        // Held, so that reports of one agent come one after the other, and are dated so.
        let agent = write
            .row_locked::<Agent>("where tenant_id = ?1 and id = ?2", params![id])?
            .ok_or_else(|| Rule::not_found(format!("there is no agent {:?}", self.agent)))?;
        if ![Actor::Agent(agent.id), Actor::Person(agent.owner_id)].contains(&context.actor) {
            return Err(
                Rule::denied(format!("reports of {} are written by itself and by its owner", agent.handle)).into()
            );
        }
        let task = write.resolve(&self.task)?;
        let said = report::accepted(&self.one_liner, &self.tldr, &self.content)?;
        let by = Reporting { agent: agent.id, task: Some(task), run: context.run, at: write.now };
        let reported = write_report(write, by, said)?;
        let resource = resource(reported.id);
        resource.register(context, write)?;
        Ok(Done::changed(reported, &resource, Touch::one(resource.clone())))
    }
}

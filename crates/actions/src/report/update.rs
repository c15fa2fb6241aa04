//! The action `update_report`: an agent reports on the task of its run.

use serde::Deserialize;
use trackway_domain::{Error as Rule, Id, Ref, command, field, kind, report, sentence};
use trackway_store::{Writer, params, tables::Agent};

use super::{ReportOrigin, ReportResult, resource, write_report};
use crate::{
    action::{Action, ActionOutcome},
    context::{Actor, Context},
    error::Result,
    touched::{Touch, action_type},
};

/// Write a report on the task of your run: what you did and what you found
///
/// The next agent that works on this task or on a linked task reads the report. A later report of the run replaces it.
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
#[serde(deny_unknown_fields)]
pub struct UpdateReport {
    /// Summary in one line
    #[arg(long, value_name = "TEXT")]
    pub one_liner: String,
    /// Summary in a few sentences
    #[arg(long, value_name = "TEXT")]
    pub tldr: String,
    /// Full report (at most 100,000 characters)
    #[arg(long, value_name = "TEXT")]
    pub content: String,
    /// Task that the report is about [default: the run's]
    #[arg(long)]
    pub task: Option<Ref<kind::Task>>,
}

impl Action for UpdateReport {
    const NAME: &'static str = "update_report";
    const COMMAND: (&'static str, &'static str) = ("report", "update");
    type Touched = Touch<kind::Report, action_type::Report>;
    type Output = ReportResult;

    fn perform(&self, context: &Context, write: &mut Writer<'_>) -> Result<ActionOutcome<Self>> {
        let Self { one_liner, tldr, content, task } = self;
        let (Actor::Agent(agent), Some(run)) = (context.actor, context.run) else {
            return Err(Rule::denied("only an agent can use this action, with the token of a run")
                .hint(sentence![
                    "to report as an agent that you own: ",
                    command!("report set", agent = "A", task = "T")
                ])
                .into());
        };
        let task = match write.resolve_optional(task.as_ref())? {
            Some(task) => task,
            None => task_of(write, run)?.ok_or_else(|| {
                Rule::usage("the run has no task to report on").hint(sentence!["name one with ", field!(task)])
            })?,
        };
        // The lock serialises the reports of one agent, so that their times are in order.
        write.row_locked::<Agent>("where tenant_id = ?1 and id = ?2", params![agent])?;
        let report = report::validate(one_liner, tldr, content)?;
        let origin = ReportOrigin { agent, task: Some(task), run: Some(run), at: write.now };
        let result = write_report(write, origin, report)?;
        let resource = resource(result.id);
        resource.register(context, write)?;
        Ok(ActionOutcome::changed(result, &resource, Touch::one(resource.clone())))
    }
}

fn task_of(write: &mut Writer<'_>, run: Id<kind::Run>) -> Result<Option<Id<kind::Task>>> {
    let found = write
        .one::<(Option<Id<kind::Task>>,)>("select task_id from runs where tenant_id = ?1 and id = ?2", params![run])?;
    Ok(found.and_then(|(task,)| task))
}

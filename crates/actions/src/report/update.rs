//! An agent reporting on the task it works on.

use serde::Deserialize;
use trackway_domain::{Error as Rule, Id, Ref, command, field, kind, report, sentence};
use trackway_store::{Writer, params, tables::Agent};

use super::{Reported, Reporting, resource, write_report};
use crate::{
    action::{Action, Done},
    context::{Actor, Context},
    error::Result,
    touched::{Touch, did},
};

/// Report on the task of your run: what you did and found, for whoever works on it or on a linked task next
///
/// The last report of a run is the one that counts.
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
#[serde(deny_unknown_fields)]
pub struct UpdateReport {
    /// The report in one line
    #[arg(long, value_name = "TEXT")]
    pub one_liner: String,
    /// The report in short
    #[arg(long, value_name = "TEXT")]
    pub tldr: String,
    /// The report (at most 100,000 characters)
    #[arg(long, value_name = "TEXT")]
    pub content: String,
    /// The task, when it is another than the run's
    #[arg(long)]
    pub task: Option<Ref<kind::Task>>,
}

impl Action for UpdateReport {
    const NAME: &'static str = "update_report";
    const COMMAND: (&'static str, &'static str) = ("report", "update");
    type Touched = Touch<kind::Report, did::Report>;
    type Output = Reported;

    fn perform(&self, context: &Context, write: &mut Writer<'_>) -> Result<Done<Self>> {
        let (Actor::Agent(agent), Some(run)) = (context.actor, context.run) else {
            return Err(Rule::denied("an agent reports, in its run")
                .hint(sentence!["for an agent you own: ", command!("report set", agent = "A", task = "T")])
                .into());
        };
        let task = match write.resolve_optional(self.task.as_ref())? {
            Some(task) => task,
            None => task_of(write, run)?.ok_or_else(|| {
                Rule::usage("the run has no task to report on").hint(sentence!["name one with ", field!(task)])
            })?,
        };
        // Held, so that reports of one agent come one after the other, and are dated so.
        write.row_locked::<Agent>("where tenant_id = ?1 and id = ?2", params![agent])?;
        let said = report::accepted(&self.one_liner, &self.tldr, &self.content)?;
        let by = Reporting { agent, task: Some(task), run: Some(run), at: write.now };
        let reported = write_report(write, by, said)?;
        let resource = resource(reported.id);
        resource.register(context, write)?;
        Ok(Done::changed(reported, &resource, Touch::one(resource.clone())))
    }
}

fn task_of(write: &mut Writer<'_>, run: Id<kind::Run>) -> Result<Option<Id<kind::Task>>> {
    let found = write
        .one::<(Option<Id<kind::Task>>,)>("select task_id from runs where tenant_id = ?1 and id = ?2", params![run])?;
    Ok(found.and_then(|(task,)| task))
}

//! Steps of a run.

use serde::Deserialize;
use trackway_domain::{Id, Ref, Time, kind, text, words::StepType};
use trackway_store::{Writer, params, tables::Step};

use super::RunningRun;
use crate::{
    action::{Action, Done},
    context::Context,
    error::Result,
    touched::Nothing,
};

/// Write down a step of a run
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
#[serde(deny_unknown_fields)]
pub struct RecordStep {
    /// The run
    pub run: Ref<kind::Run>,
    /// What sort of step it was
    #[arg(long = "type")]
    #[serde(rename = "type")]
    pub step_type: StepType,
    /// What happened
    #[arg(long)]
    pub detail: Option<String>,
}

impl Action for RecordStep {
    const NAME: &'static str = "record_step";
    const COMMAND: (&'static str, &'static str) = ("run", "step");
    type Touched = Nothing;
    type Output = Step;

    fn perform(&self, context: &Context, write: &mut Writer<'_>) -> Result<Done<Self>> {
        let run = RunningRun::find(context, write, &self.run)?;
        context.require_own_run(run.id())?;
        let detail = self.detail.as_deref().map(|detail| text::body("detail", detail, text::TEXT_MAX)).transpose()?;
        let now = write.now;
        let step = append(write, run.id(), self.step_type, detail, now)?;
        Ok(Done::changed(step, &run.resource(), Nothing))
    }
}

/// Writes the next step of a run down.
pub(crate) fn append(
    write: &mut Writer<'_>,
    run: Id<kind::Run>,
    step_type: StepType,
    detail: Option<String>,
    at: Time,
) -> Result<Step> {
    let last = write
        .count("select coalesce(max(position), 0) from run_steps where tenant_id = ?1 and run_id = ?2", params![run])?;
    let step = Step { run_id: run, tenant_id: write.tenant, position: last + 1, step_type, detail, created_at: at };
    write.insert(&step)?;
    Ok(step)
}

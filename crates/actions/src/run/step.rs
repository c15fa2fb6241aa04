//! Steps of a run.

use serde::Deserialize;
use trackway_domain::{Id, Ref, Time, kind, text, words::StepType};
use trackway_store::{Writer, params, tables::Step};

use super::{resource, told_about};
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
    /// The position of the last step, where whoever tells of the next one knows it: nobody has to ask for it then.
    #[arg(skip)]
    #[serde(skip)]
    pub after: Option<i64>,
}

impl Action for RecordStep {
    const NAME: &'static str = "record_step";
    const COMMAND: (&'static str, &'static str) = ("run", "step");
    const ONLY_TELLS: bool = true;
    type Touched = Nothing;
    type Output = Step;

    fn perform(&self, context: &Context, write: &mut Writer<'_>) -> Result<Done<Self>> {
        let run = told_about(context, write, &self.run)?;
        let detail = self.detail.as_deref().map(|detail| text::body("detail", detail, text::TEXT_MAX)).transpose()?;
        let now = write.now;
        let step = match self.after.filter(|_| write.hopeful) {
            Some(last) => {
                let (tenant_id, step_type, position) = (write.tenant, self.step_type, last + 1);
                let step = Step { run_id: run, tenant_id, position, step_type, detail, created_at: now };
                write.insert_hoped_new(&step)?;
                step
            }
            None => append(write, run, self.step_type, detail, now)?,
        };
        Ok(Done::changed(step, &resource(run), Nothing))
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
    // The run is held: nobody else counts its steps meanwhile.
    let position = write.count(
        "insert into run_steps (tenant_id, run_id, position, step_type, detail, created_at) values (?1, ?2,
         (select coalesce(max(position), 0) + 1 from run_steps where tenant_id = ?1 and run_id = ?2), ?3, ?4, ?5) returning position",
        params![run, step_type, detail, at],
    )?;
    Ok(Step { run_id: run, tenant_id: write.tenant, position, step_type, detail, created_at: at })
}

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
        let (detail, now) = (self.checked_detail()?, write.now);
        let step = append(write, run, self.step_type, detail, now)?;
        Ok(Done::changed(step, &resource(run), Nothing))
    }

    /// Queries for no position if all callers know the last one.
    fn perform_all(actions: &[Self], context: &Context, write: &mut Writer<'_>) -> Result<Vec<Done<Self>>> {
        let known: Option<Vec<i64>> = actions.iter().map(|action| action.after).collect();
        let steps = match known {
            Some(known) => write.insert_unchecked(|write| {
                let step = |(action, last): (&Self, i64)| {
                    Ok(Step {
                        run_id: told_about(context, write, &action.run)?,
                        tenant_id: write.tenant,
                        position: last + 1,
                        step_type: action.step_type,
                        detail: action.checked_detail()?,
                        created_at: write.now,
                    })
                };
                actions.iter().zip(known).map(step).collect::<Result<Vec<Step>>>()
            })?,
            None => None,
        };
        let Some(steps) = steps else {
            return actions.iter().map(|action| action.perform(context, write)).collect();
        };
        let done = |step: Step| {
            let run = resource(step.run_id);
            Done::changed(step, &run, Nothing)
        };
        Ok(steps.into_iter().map(done).collect())
    }
}

impl RecordStep {
    fn checked_detail(&self) -> Result<Option<String>> {
        Ok(self.detail.as_deref().map(|detail| text::body("detail", detail, text::TEXT_MAX)).transpose()?)
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

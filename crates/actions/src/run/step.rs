//! Records the steps of a run.

use serde::Deserialize;
use trackway_domain::{Id, Ref, Time, enums::StepType, kind, text};
use trackway_store::{Writer, params, tables::Step};

use super::{find_recordable_run, resource};
use crate::{
    action::{Action, ActionOutcome},
    context::Context,
    error::Result,
    touched::NoTouches,
};

/// Record a step of a run
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
#[serde(deny_unknown_fields)]
pub struct RecordStep {
    /// Run that the step belongs to
    pub run: Ref<kind::Run>,
    /// Type of the step
    #[arg(long = "type")]
    #[serde(rename = "type")]
    pub step_type: StepType,
    /// Details of the step
    #[arg(long)]
    pub detail: Option<String>,
    /// Position of the previous step, if the caller knows it. This saves a query.
    #[arg(skip)]
    #[serde(skip)]
    pub after: Option<i64>,
}

impl Action for RecordStep {
    const NAME: &'static str = "record_step";
    const COMMAND: (&'static str, &'static str) = ("run", "step");
    const IS_RUN_TELEMETRY: bool = true;
    type Touched = NoTouches;
    type Output = Step;

    fn perform(&self, context: &Context, write: &mut Writer<'_>) -> Result<ActionOutcome<Self>> {
        let run = find_recordable_run(context, write, &self.run)?;
        let (detail, now) = (self.checked_detail()?, write.now);
        let step = append(write, run, self.step_type, detail, now)?;
        Ok(ActionOutcome::changed(step, &resource(run), NoTouches))
    }

    /// Skips the query for the last position if all actions give it in `after`.
    fn perform_all(actions: &[Self], context: &Context, write: &mut Writer<'_>) -> Result<Vec<ActionOutcome<Self>>> {
        let known: Option<Vec<i64>> = actions.iter().map(|action| action.after).collect();
        let steps = match known {
            Some(known) => write.insert_unchecked(|write| {
                let step = |(action, last): (&Self, i64)| {
                    Ok(Step {
                        run_id: find_recordable_run(context, write, &action.run)?,
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
            ActionOutcome::changed(step, &run, NoTouches)
        };
        Ok(steps.into_iter().map(done).collect())
    }
}

impl RecordStep {
    fn checked_detail(&self) -> Result<Option<String>> {
        Ok(self.detail.as_deref().map(|detail| text::check_body("detail", detail, text::TEXT_MAX)).transpose()?)
    }
}

/// Appends a step to a run.
pub(crate) fn append(
    write: &mut Writer<'_>,
    run: Id<kind::Run>,
    step_type: StepType,
    detail: Option<String>,
    at: Time,
) -> Result<Step> {
    // The run is locked, so no other transaction computes the same position.
    let position = write.count(
        "insert into run_steps (tenant_id, run_id, position, step_type, detail, created_at) values (?1, ?2,
         (select coalesce(max(position), 0) + 1 from run_steps where tenant_id = ?1 and run_id = ?2), ?3, ?4, ?5) returning position",
        params![run, step_type, detail, at],
    )?;
    Ok(Step { run_id: run, tenant_id: write.tenant, position, step_type, detail, created_at: at })
}

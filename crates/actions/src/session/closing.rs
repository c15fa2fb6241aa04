//! The answer to the end-of-run prompt: the agent's scratchpad and its report.

use trackway_domain::{
    kind::{ActionType, ResourceType},
    observed::Seen,
};
use trackway_store::{params, tables::Run};

use super::Observing;
use crate::{
    core::record_touches,
    error::Result,
    report,
    run::{Remembered, Saw, append_step, remember},
    touched::Recorded,
};

impl Observing<'_, '_> {
    pub(super) fn asked(&mut self, seen: &Seen) -> Result<()> {
        let run = self.run_of(seen)?;
        Ok(self.write.post("update runs set asked_at = ?3 where tenant_id = ?1 and id = ?2", params![run, seen.at])?)
    }

    /// Saved once per run; a failure is a step and never changes how the run ended.
    pub(super) fn closing(&mut self, seen: &Seen, answer: &str) -> Result<()> {
        let run = self.run_of(seen)?;
        let Some(row) = self.write.row::<Run>("where tenant_id = ?1 and id = ?2", params![run])? else {
            return Ok(());
        };
        // Runs of older versions have no time of their answer, but always a step.
        let saved = self.write.count(
            "select count(*) from run_steps where tenant_id = ?1 and run_id = ?2 and step_type in ('scratchpad_update', 'scratchpad_update_failed')",
            params![run],
        )?;
        if saved > 0 || row.answered_at.is_some() {
            return Ok(());
        }
        self.write.post("update runs set answered_at = ?3 where tenant_id = ?1 and id = ?2", params![run, seen.at])?;
        let Remembered { steps, report } = remember(self.context, self.write, &row, answer, Saw::Unknown, seen.at)?;
        for (step_type, detail) in steps {
            self.count("step");
            append_step(self.write, run, step_type, Some(detail), seen.at)?;
        }
        let Some(report) = report else {
            return Ok(());
        };
        let resource = report::resource(report.id);
        self.register(&resource)?;
        let touch = Recorded {
            resource_type: ResourceType::Report,
            resource_id: report.id.uuid(),
            studio: None,
            action_type: ActionType::Report,
            path: resource.path,
        };
        record_touches(self.write, run, vec![touch], seen.at)
    }
}

//! Records the answer to the end-of-run prompt: the agent's scratchpad and its report.

use trackway_domain::{
    kind::{ActionType, ResourceType},
    observed::ObservedFact,
};
use trackway_store::{params, tables::Run};

use super::SessionRecorder;
use crate::{
    core::record_touches,
    error::Result,
    report,
    run::{SavedReply, ScratchpadBasis, append_step, save_end_of_run_reply},
    touched::TouchRecord,
};

impl SessionRecorder<'_, '_> {
    pub(super) fn record_end_of_run_prompt(&mut self, observed: &ObservedFact) -> Result<()> {
        let run = self.run_of(observed)?;
        Ok(self
            .write
            .post("update runs set asked_at = ?3 where tenant_id = ?1 and id = ?2", params![run, observed.at])?)
    }

    /// Saves the first answer of a run. A failure is recorded as a step and never changes how the run ended.
    pub(super) fn record_end_of_run_reply(&mut self, observed: &ObservedFact, answer: &str) -> Result<()> {
        let run = self.run_of(observed)?;
        let Some(row) = self.write.row::<Run>("where tenant_id = ?1 and id = ?2", params![run])? else {
            return Ok(());
        };
        // Older versions of Trackway did not set `answered_at`, but always recorded a step.
        let saved = self.write.count(
            "select count(*) from run_steps where tenant_id = ?1 and run_id = ?2 and step_type in ('scratchpad_update', 'scratchpad_update_failed')",
            params![run],
        )?;
        if saved > 0 || row.answered_at.is_some() {
            return Ok(());
        }
        self.write
            .post("update runs set answered_at = ?3 where tenant_id = ?1 and id = ?2", params![run, observed.at])?;
        let SavedReply { steps, report } =
            save_end_of_run_reply(self.context, self.write, &row, answer, ScratchpadBasis::Unknown, observed.at)?;
        for (step_type, detail) in steps {
            self.count("step");
            append_step(self.write, run, step_type, Some(detail), observed.at)?;
        }
        let Some(report) = report else {
            return Ok(());
        };
        let resource = report::resource(report.id);
        self.register(&resource)?;
        let touch = TouchRecord {
            resource_type: ResourceType::Report,
            resource_id: report.id.uuid(),
            studio: None,
            action_type: ActionType::Report,
            path: resource.path,
        };
        record_touches(self.write, run, vec![touch], observed.at)
    }
}

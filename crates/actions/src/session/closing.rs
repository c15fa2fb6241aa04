//! The answer to the end-of-run prompt: the agent's scratchpad and its report.

use trackway_domain::{
    Id, Time, closing,
    kind::{self, ActionType, ResourceType},
    observed::Seen,
    report::Report as Said,
    scratchpad::{EndOfRun, at_end_of_run},
    text,
    words::StepType,
};
use trackway_store::{params, tables::Step};

use super::Observing;
use crate::{
    context::{Actor, Context},
    core::record_touch,
    error::Result,
    report::{self, Reporting, write_report},
    scratchpad::write_revision,
    touched::Recorded,
};

/// Characters of a saved scratchpad that its step shows.
const SHOWN: usize = 100;

impl Observing<'_, '_> {
    pub(super) fn asked(&mut self, seen: &Seen) -> Result<()> {
        let run = self.run_of(seen)?;
        Ok(self.write.post("update runs set asked_at = ?3 where tenant_id = ?1 and id = ?2", params![run, seen.at])?)
    }

    /// Saved once per run; a failure is a step and never changes how the run ended.
    pub(super) fn closing(&mut self, seen: &Seen, answer: &str) -> Result<()> {
        let run = self.run_of(seen)?;
        let saved = self.write.count(
            "select count(*) from run_steps where tenant_id = ?1 and run_id = ?2 and step_type in ('scratchpad_update', 'scratchpad_update_failed')",
            params![run],
        )?;
        if saved > 0 {
            return Ok(());
        }
        let Some((agent,)) = self
            .write
            .one::<(Id<kind::Agent>,)>("select agent_id from runs where tenant_id = ?1 and id = ?2", params![run])?
        else {
            return Ok(());
        };
        let Some(object) = closing::object(answer) else {
            return self.step(run, StepType::ScratchpadUpdateFailed, "the answer holds no JSON object", seen.at);
        };
        match at_end_of_run(object.get("scratchpad")) {
            EndOfRun::Keep => self.step(run, StepType::ScratchpadUpdate, "nothing to add", seen.at)?,
            EndOfRun::Refused(reason) => self.step(run, StepType::ScratchpadUpdateFailed, &reason, seen.at)?,
            EndOfRun::Replace(content) => {
                let shown = text::cut(&content, SHOWN);
                let own = Context { actor: Actor::Agent(agent), run: Some(run), ..self.context.clone() };
                write_revision(&own, self.write, agent, content, None)?;
                self.step(run, StepType::ScratchpadUpdate, &shown, seen.at)?;
            }
        }
        match closing::report(&object) {
            Some(report) => self.report(run, agent, report, seen.at),
            None => Ok(()),
        }
    }

    fn report(&mut self, run: Id<kind::Run>, agent: Id<kind::Agent>, said: Said, at: Time) -> Result<()> {
        let task = self.write.one::<(Option<Id<kind::Task>>,)>(
            "select task_id from runs where tenant_id = ?1 and id = ?2",
            params![run],
        )?;
        let by = Reporting { agent, task: task.and_then(|(task,)| task), run: Some(run), at };
        let reported = write_report(self.write, by, said)?;
        let resource = report::resource(reported.id);
        self.register(&resource)?;
        let touch = Recorded {
            resource_type: ResourceType::Report,
            resource_id: reported.id.uuid(),
            studio: None,
            action_type: ActionType::Report,
            path: resource.path,
        };
        record_touch(self.write, run, &touch, at, 0)
    }

    fn step(&mut self, run: Id<kind::Run>, step_type: StepType, detail: &str, at: Time) -> Result<()> {
        let last = self.write.count(
            "select coalesce(max(position), 0) from run_steps where tenant_id = ?1 and run_id = ?2",
            params![run],
        )?;
        self.count("step");
        Ok(self.write.insert(&Step {
            run_id: run,
            tenant_id: self.context.tenant,
            position: last + 1,
            step_type,
            detail: Some(detail.to_owned()),
            created_at: at,
        })?)
    }
}

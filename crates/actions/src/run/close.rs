//! Ends a run whose agent received the end-of-run prompt. All final rows are written in one transaction.
//!
//! Only executors of runs use this action. It is not registered, so no interface offers it.

use serde::Deserialize;
use trackway_domain::{Time, enums::StepType, kind, text};
use trackway_store::{Writer, display::RunRow, params, tables::Agent};

use super::{
    EndRun, RecordUsage, RunningRun,
    end_of_run_reply::{SavedReply, ScratchpadBasis, save_end_of_run_reply},
    step,
};
use crate::{
    action::{Action, ActionOutcome},
    context::Context,
    error::Result,
    queue::RetryPolicy,
    report,
    touched::{Touch, action_type},
};

/// End a run, and save its agent's scratchpad and report
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
pub struct CloseRun {
    /// Final status of the run
    #[command(flatten)]
    #[serde(flatten)]
    pub end: EndRun,
    /// Last steps of the run
    #[arg(skip)]
    #[serde(default)]
    pub steps: Vec<LastStep>,
    /// Result of the end-of-run prompt, or none if the agent did not receive it
    #[arg(skip)]
    pub closing: Option<EndOfRunOutcome>,
    /// Token usage of the end-of-run prompt
    #[arg(skip)]
    #[serde(default)]
    pub usage: Vec<RecordUsage>,
    /// Earliest time of the next attempt, if the queue item must be retried
    #[arg(skip)]
    pub not_before: Option<Time>,
    /// True if the agent itself reported an error. The queue item is then retried only if the task has `retry_on_error`
    #[arg(skip)]
    #[serde(default)]
    pub is_answer: bool,
}

/// A step that is recorded together with the end of the run.
#[derive(Debug, Clone, Deserialize, schemars::JsonSchema)]
pub struct LastStep {
    #[serde(rename = "type")]
    pub step_type: StepType,
    pub detail: String,
}

/// Result of the end-of-run prompt.
#[derive(Debug, Clone, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum EndOfRunOutcome {
    /// The agent answered after it had read this revision of its scratchpad.
    Answered {
        answer: String,
        revision: i64,
        /// True if there is no time to prompt the agent again in case the scratchpad has changed.
        is_last: bool,
    },
    /// The agent did not answer, for this reason.
    Failed { error: String },
}

impl Action for CloseRun {
    const NAME: &'static str = "close_run";
    const CAPABILITY: &'static str = EndRun::CAPABILITY;
    const COMMAND: (&'static str, &'static str) = ("run", "close");
    type Touched = Touch<kind::Report, action_type::Report>;
    type Output = RunRow;

    /// Fails with a conflict and writes nothing if the scratchpad has changed since the agent read it. The executor
    /// then prompts the agent again.
    fn perform(&self, context: &Context, write: &mut Writer<'_>) -> Result<ActionOutcome<Self>> {
        let run = RunningRun::find(context, write, &self.end.run)?;
        context.require_own_run(run.id())?;
        let now = write.now;
        for last in &self.steps {
            let detail = text::cut(&text::clean(&last.detail), text::TEXT_MAX - 1);
            step::append(write, run.id(), last.step_type, Some(detail), now)?;
        }
        for usage in &self.usage {
            usage.write(write, run.id())?;
        }
        let saved = match &self.closing {
            None => None,
            Some(EndOfRunOutcome::Failed { error }) => {
                Some(SavedReply::failed(text::cut(&text::clean(error), text::TEXT_MAX - 1)))
            }
            Some(EndOfRunOutcome::Answered { answer, revision, is_last }) => {
                write.post(
                    "update runs set answered_at = ?3 where tenant_id = ?1 and id = ?2",
                    params![run.id(), now],
                )?;
                let basis = if *is_last {
                    lock_and_compare_revision(write, &run, *revision)?
                } else {
                    ScratchpadBasis::Revision(*revision)
                };
                Some(save_end_of_run_reply(context, write, &run.0, answer, basis, now)?)
            }
        };
        let mut touched = Touch::none();
        if let Some(SavedReply { steps, report }) = saved {
            for (step_type, detail) in steps {
                step::append(write, run.id(), step_type, Some(detail), now)?;
            }
            if let Some(report) = report {
                let resource = report::resource(report.id);
                resource.register(context, write)?;
                touched = Touch::one(resource);
            }
        }
        let retry = match self.not_before {
            Some(time) => RetryPolicy::NotBefore(time),
            None if self.is_answer => RetryPolicy::IfTaskRetries,
            None => RetryPolicy::WhileAttemptsAreLeft,
        };
        let shown = self.end.end(write, &run, retry)?;
        Ok(ActionOutcome::changed(shown, &run.resource(), touched))
    }
}

/// Compares the scratchpad with the revision that the agent read. Locks the agent, so that the scratchpad cannot change
/// before the commit.
fn lock_and_compare_revision(write: &mut Writer<'_>, run: &RunningRun, revision: i64) -> Result<ScratchpadBasis> {
    write.row_locked::<Agent>("where tenant_id = ?1 and id = ?2", params![run.0.agent_id])?;
    let current = write.count(
        "select coalesce(max(revision), 0) from scratchpads where tenant_id = ?1 and agent_id = ?2",
        params![run.0.agent_id],
    )?;
    Ok(if current == revision { ScratchpadBasis::Revision(revision) } else { ScratchpadBasis::Outdated })
}

//! The end of a run whose agent was asked what it learned: everything that is left to write, in one transaction.
//!
//! Both actions are for whoever executes a run. They stand in no list, so no door offers them.

use serde::Deserialize;
use trackway_domain::{Ref, Time, kind, text, words::StepType};
use trackway_store::{Writer, display::RunShown, params, tables::Agent};

use super::{
    EndRun, RecordUsage, RunningRun,
    remember::{Remembered, Saw, remember},
    step,
};
use crate::{
    action::{Action, Done},
    context::Context,
    error::Result,
    queue::Again,
    report,
    touched::{Nothing, Touch, did},
};

/// Make the token of a run stop working, while the run goes on to its end
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
pub struct RevokeRunToken {
    /// The run
    pub run: Ref<kind::Run>,
}

impl Action for RevokeRunToken {
    const NAME: &'static str = "revoke_run_token";
    const CAPABILITY: &'static str = EndRun::CAPABILITY;
    const COMMAND: (&'static str, &'static str) = ("run", "revoke-token");
    type Touched = Nothing;
    type Output = ();

    fn perform(&self, context: &Context, write: &mut Writer<'_>) -> Result<Done<Self>> {
        let run = RunningRun::find(context, write, &self.run)?;
        context.require_own_run(run.id())?;
        write.post("update runs set token_hash = null where tenant_id = ?1 and id = ?2", params![run.id()])?;
        Ok(Done::changed((), &run.resource(), Nothing))
    }
}

/// End a run together with what its agent remembers and reports
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
pub struct CloseRun {
    /// How it ended
    #[command(flatten)]
    #[serde(flatten)]
    pub end: EndRun,
    /// Its last steps
    #[arg(skip)]
    #[serde(default)]
    pub steps: Vec<LastStep>,
    /// What was said to the end-of-run prompt; none when it was not asked
    #[arg(skip)]
    pub closing: Option<Closing>,
    /// What asking used
    #[arg(skip)]
    #[serde(default)]
    pub usage: Vec<RecordUsage>,
    /// When it may be tried again, if it is to be
    #[arg(skip)]
    pub not_before: Option<Time>,
    /// Whether the agent itself said error: its item is not tried again, unless the task wants that
    #[arg(skip)]
    #[serde(default)]
    pub is_answer: bool,
}

/// A step that is written with the end.
#[derive(Debug, Clone, Deserialize, schemars::JsonSchema)]
pub struct LastStep {
    #[serde(rename = "type")]
    pub step_type: StepType,
    pub detail: String,
}

/// What came of the end-of-run prompt.
#[derive(Debug, Clone, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Closing {
    /// The agent answered, having seen this revision of its scratchpad.
    Answered {
        answer: String,
        revision: i64,
        /// Whether there is no time to ask once more should the scratchpad have changed.
        is_last: bool,
    },
    /// There is no answer, and why.
    Failed { error: String },
}

impl Action for CloseRun {
    const NAME: &'static str = "close_run";
    const CAPABILITY: &'static str = EndRun::CAPABILITY;
    const COMMAND: (&'static str, &'static str) = ("run", "close");
    type Touched = Touch<kind::Report, did::Report>;
    type Output = RunShown;

    /// A conflict means that the scratchpad is not the one that the agent saw: nothing is written, it is asked again.
    fn perform(&self, context: &Context, write: &mut Writer<'_>) -> Result<Done<Self>> {
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
        let remembered = match &self.closing {
            None => None,
            Some(Closing::Failed { error }) => {
                Some(Remembered::nothing(text::cut(&text::clean(error), text::TEXT_MAX - 1)))
            }
            Some(Closing::Answered { answer, revision, is_last }) => {
                write.post(
                    "update runs set answered_at = ?3 where tenant_id = ?1 and id = ?2",
                    params![run.id(), now],
                )?;
                let saw = if *is_last { seen_last(write, &run, *revision)? } else { Saw::Revision(*revision) };
                Some(remember(context, write, &run.0, answer, saw, now)?)
            }
        };
        let mut touched = Touch::none();
        if let Some(Remembered { steps, report: said }) = remembered {
            for (step_type, detail) in steps {
                step::append(write, run.id(), step_type, Some(detail), now)?;
            }
            if let Some(said) = said {
                let resource = report::resource(said.id);
                resource.register(context, write)?;
                touched = Touch::one(resource);
            }
        }
        let again = match self.not_before {
            Some(time) => Again::NotBefore(time),
            None if self.is_answer => Again::IfTaskRetries,
            None => Again::WhileAttemptsAreLeft,
        };
        let shown = self.end.end(write, &run, again)?;
        Ok(Done::changed(shown, &run.resource(), touched))
    }
}

/// Whether what the agent saw is still there, for one that is not asked again. Its scratchpad is held from here on.
fn seen_last(write: &mut Writer<'_>, run: &RunningRun, revision: i64) -> Result<Saw> {
    write.row_locked::<Agent>("where tenant_id = ?1 and id = ?2", params![run.0.agent_id])?;
    let present = write.count(
        "select coalesce(max(revision), 0) from scratchpads where tenant_id = ?1 and agent_id = ?2",
        params![run.0.agent_id],
    )?;
    Ok(if present == revision { Saw::Revision(revision) } else { Saw::Older })
}

//! Ending a run: its token dies with it.

use serde::Deserialize;
use serde_json::Value;
use trackway_domain::{Error as Rule, Id, Ref, kind, text, words::RunStatus};
use trackway_store::{Writer, display::RunShown, params};

use super::RunningRun;
use crate::{
    action::{Action, Done},
    context::Context,
    error::Result,
    queue::{self, Again, Ending},
    touched::Nothing,
};

/// End a run
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
#[serde(deny_unknown_fields)]
pub struct EndRun {
    /// The run
    pub run: Ref<kind::Run>,
    /// How it ended
    #[arg(long)]
    pub status: RunStatus,
    /// What the agent said last
    #[arg(long)]
    pub message: Option<String>,
    /// The outcome in a few words (the status, when it is not said)
    #[arg(long)]
    pub outcome: Option<String>,
    /// What went wrong
    #[arg(long)]
    pub error: Option<String>,
    /// What came out, as JSON, for the queue item it was made for
    #[arg(long, value_name = "JSON", value_parser = queue::parse_json)]
    pub result: Option<Value>,
    /// Leave the task open, although the run completed
    #[arg(long)]
    #[serde(default)]
    pub keep_open: bool,
}

impl Action for EndRun {
    const NAME: &'static str = "end_run";
    const COMMAND: (&'static str, &'static str) = ("run", "end");
    type Touched = Nothing;
    type Output = RunShown;

    fn perform(&self, context: &Context, write: &mut Writer<'_>) -> Result<Done<Self>> {
        let run = RunningRun::find(context, write, &self.run)?;
        context.require_own_run(run.id())?;
        if self.status != RunStatus::Cancelled {
            queue::require_lease(write, &run.0)?;
        }
        // An agent that ends its own run with the outcome `error` gives an answer; another attempt would only repeat it.
        let is_answer = context.run == Some(run.id())
            && self.status == RunStatus::Failed
            && self.outcome.as_deref().map(str::trim) == Some("error");
        let again = if is_answer { Again::IfTaskRetries } else { Again::WhileAttemptsAreLeft };
        let shown = self.end(write, &run, again)?;
        Ok(Done::changed(shown, &run.resource(), Nothing))
    }
}

impl EndRun {
    /// Ends a run and the queue item it was made for.
    pub(super) fn end(&self, write: &mut Writer<'_>, run: &RunningRun, again: Again) -> Result<RunShown> {
        if self.status == RunStatus::Running {
            return Err(Rule::usage("a run does not end as running")
                .hint("one of: completed, failed, cancelled, timed_out, incomplete")
                .into());
        }
        // One that was told to stop did not get done, whatever it said last.
        let is_late = self.status == RunStatus::Completed && run.0.cancel_wanted_at.is_some();
        let status = if is_late { RunStatus::Cancelled } else { self.status };
        let line = |field, given: &Option<String>| {
            given.as_deref().map(|given| text::line(field, given, text::LINE_MAX)).transpose()
        };
        let body = |field, given: &Option<String>| {
            given.as_deref().map(|given| text::body(field, given, text::TEXT_MAX)).transpose()
        };
        let outcome = line("outcome", &self.outcome)?.filter(|_| !is_late).unwrap_or_else(|| status.to_string());
        let (message, error) = (body("message", &self.message)?, body("error", &self.error)?);
        let result = queue::checked_result(self.result.as_ref())?;
        let ending = match status {
            RunStatus::Completed => Ending::Completed { result, keep_open: self.keep_open },
            RunStatus::Cancelled => Ending::Cancelled { why: Some("its run was cancelled".into()) },
            _ => Ending::Failed { error: error.clone().unwrap_or_else(|| outcome.clone()), again },
        };
        end_with(write, run.id(), status, &outcome, message.as_deref(), error.as_deref())?;
        queue::settle_with_run(write, &run.0, &ending)?;
        Ok(write.shown_by_id::<RunShown>("u", run.id())?)
    }
}

/// Ends a run that is running, with its token; one that has ended stays as it ended.
pub(crate) fn end_with(
    write: &mut Writer<'_>,
    run: Id<kind::Run>,
    status: RunStatus,
    outcome: &str,
    message: Option<&str>,
    error: Option<&str>,
) -> Result<()> {
    let now = write.now;
    write.post(
        "update runs set status = ?3, outcome = ?4, final_message = ?5, error = ?6, ended_at = ?7, token_hash = null
         where tenant_id = ?1 and id = ?2 and status = 'running'",
        params![run, status, outcome, message, error, now],
    )?;
    Ok(())
}

/// The same, with nothing to say.
pub(crate) fn end_quietly(write: &mut Writer<'_>, run: Id<kind::Run>, status: RunStatus, outcome: &str) -> Result<()> {
    end_with(write, run, status, outcome, None, None)
}

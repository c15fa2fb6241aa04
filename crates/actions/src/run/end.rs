//! Ends a run and revokes its token.

use serde::Deserialize;
use serde_json::Value;
use trackway_domain::{Error as Rule, Id, Ref, enums::RunStatus, kind, text};
use trackway_store::{Writer, display::RunRow, params};

use super::RunningRun;
use crate::{
    action::{Action, ActionOutcome},
    context::Context,
    error::Result,
    queue::{self, ItemOutcome, RetryPolicy},
    touched::NoTouches,
};

/// End a run
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
#[serde(deny_unknown_fields)]
pub struct EndRun {
    /// Run to end
    pub run: Ref<kind::Run>,
    /// Final status of the run
    #[arg(long)]
    pub status: RunStatus,
    /// Final message of the agent
    #[arg(long)]
    pub message: Option<String>,
    /// Outcome in a few words [default: the status]
    #[arg(long)]
    pub outcome: Option<String>,
    /// Error message
    #[arg(long)]
    pub error: Option<String>,
    /// Result for the queue item of this run, as JSON
    #[arg(long, value_name = "JSON", value_parser = queue::parse_json)]
    pub result: Option<Value>,
    /// Keep the task open although the run completed
    #[arg(long)]
    #[serde(default)]
    pub keep_open: bool,
}

impl Action for EndRun {
    const NAME: &'static str = "end_run";
    const COMMAND: (&'static str, &'static str) = ("run", "end");
    type Touched = NoTouches;
    type Output = RunRow;

    fn perform(&self, context: &Context, write: &mut Writer<'_>) -> Result<ActionOutcome<Self>> {
        let run = RunningRun::find(context, write, &self.run)?;
        context.require_own_run(run.id())?;
        if self.status != RunStatus::Cancelled {
            queue::require_lease_of_run(write, &run.0)?;
        }
        // An agent that ends its own run with the outcome `error` reports the error itself. A retry would most likely
        // repeat it.
        let is_explicit_error = context.run == Some(run.id())
            && self.status == RunStatus::Failed
            && self.outcome.as_deref().map(str::trim) == Some("error");
        let retry = if is_explicit_error { RetryPolicy::IfTaskRetries } else { RetryPolicy::WhileAttemptsAreLeft };
        let shown = self.end(write, &run, retry)?;
        Ok(ActionOutcome::changed(shown, &run.resource(), NoTouches))
    }
}

impl EndRun {
    /// Ends a run and its queue item.
    pub(super) fn end(&self, write: &mut Writer<'_>, run: &RunningRun, retry: RetryPolicy) -> Result<RunRow> {
        if self.status == RunStatus::Running {
            return Err(Rule::usage("invalid status \"running\": the run must end")
                .hint("use one of: completed, failed, cancelled, timed_out, incomplete")
                .into());
        }
        if self.status == RunStatus::Completed && self.outcome.as_deref().map(str::trim) == Some("error") {
            return Err(Rule::usage("a completed run cannot have the outcome \"error\"")
                .hint("use --status failed with this outcome, or another outcome")
                .into());
        }
        // A run that completes after its cancellation was requested still counts as cancelled.
        let is_late = self.status == RunStatus::Completed && run.0.cancel_wanted_at.is_some();
        let status = if is_late { RunStatus::Cancelled } else { self.status };
        let line = |field, given: &Option<String>| {
            given.as_deref().map(|given| text::check_line(field, given, text::LINE_MAX)).transpose()
        };
        let body = |field, given: &Option<String>| {
            given.as_deref().map(|given| text::check_body(field, given, text::TEXT_MAX)).transpose()
        };
        let outcome = line("outcome", &self.outcome)?.filter(|_| !is_late).unwrap_or_else(|| status.to_string());
        let (message, error) = (body("message", &self.message)?, body("error", &self.error)?);
        let result = queue::checked_result(self.result.as_ref())?;
        let ending = match status {
            RunStatus::Completed => ItemOutcome::Completed { result, keep_open: self.keep_open },
            RunStatus::Cancelled => ItemOutcome::Cancelled { why: Some("its run was cancelled".into()) },
            _ => ItemOutcome::Failed { error: error.clone().unwrap_or_else(|| outcome.clone()), retry },
        };
        end_run_with_details(write, run.id(), status, &outcome, message.as_deref(), error.as_deref())?;
        queue::record_run_outcome(write, &run.0, &ending)?;
        Ok(write.display_row_by_id::<RunRow>("u", run.id())?)
    }
}

/// Ends a run and revokes its token. Does nothing if the run has already ended.
pub(crate) fn end_run_with_details(
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

/// Ends a run without a final message and without an error.
pub(crate) fn end_run(write: &mut Writer<'_>, run: Id<kind::Run>, status: RunStatus, outcome: &str) -> Result<()> {
    end_run_with_details(write, run, status, outcome, None, None)
}

//! The outcome of an execution, and the worker's requests to a running job to stop.

use std::sync::atomic::{AtomicU8, Ordering};

use serde_json::Value;
use trackway_actions::run::EndRun;
use trackway_domain::{Id, Time, enums::RunStatus, kind, text};

/// The final message of an agent that calls `done` without a message.
pub const TASK_COMPLETED: &str = "Task completed";
/// The error of an agent that calls `error` without a message.
pub const AGENT_ERROR: &str = "Agent encountered an error";

#[derive(Debug, Clone, PartialEq)]
pub enum ExecutionEnd {
    Completed {
        /// The agent's final message, or the last line of a script's output.
        message: Option<String>,
        result: Value,
    },
    Failed {
        error: String,
    },
    /// The agent reported that its task cannot be done.
    AgentError {
        error: String,
    },
    /// A retry cannot succeed, for example because the task has no script.
    Impossible {
        error: String,
    },
    TimedOut {
        error: String,
    },
    /// The worker or the model failed, not the task.
    Exception {
        error: String,
    },
    /// The model used all its turns.
    MaxSteps {
        steps: i64,
    },
    /// The agent has reached its spend limit, and may continue at `until`.
    SpendLimit {
        error: String,
        until: Time,
    },
    /// The run was cancelled, and the worker must end it.
    Cancelled,
    /// The worker stops. Another worker executes the item.
    Released,
    /// The model or client of the agent is unavailable here. Another worker executes the item.
    Unavailable {
        error: String,
    },
    /// The run has ended already, or another worker has taken the item. There is nothing to record.
    Lost,
}

impl ExecutionEnd {
    /// The action that ends the run; none if the item is released, or no longer ours.
    pub fn end_run(&self, run: Id<kind::Run>) -> Option<EndRun> {
        let (status, outcome, message, error, result) = match self {
            Self::Completed { message, result } => {
                (RunStatus::Completed, "completed", message.clone(), None, Some(result.clone()))
            }
            Self::Failed { error } | Self::AgentError { error } | Self::Impossible { error } => {
                (RunStatus::Failed, "error", None, Some(error), None)
            }
            Self::Exception { error } => (RunStatus::Failed, "exception", None, Some(error), None),
            Self::TimedOut { error } => (RunStatus::TimedOut, "timed out", None, Some(error), None),
            Self::MaxSteps { steps } => {
                let message = Some(max_steps_reached(*steps));
                (RunStatus::Incomplete, "incomplete - max steps reached", message, None, None)
            }
            Self::SpendLimit { error, .. } => (RunStatus::Incomplete, "spend limit reached", None, Some(error), None),
            Self::Cancelled => (RunStatus::Cancelled, "cancelled", None, None, None),
            Self::Released | Self::Unavailable { .. } | Self::Lost => return None,
        };
        let cut = |text: &String| text::cut(&text::clean(text), text::TEXT_MAX - 1);
        let outcome = Some(outcome.to_owned());
        Some(EndRun {
            run: run.into(),
            status,
            message: message.as_ref().map(cut),
            outcome,
            error: error.map(cut),
            result,
            keep_open: false,
        })
    }

    /// The summary of the run in the closing prompt.
    pub fn summary(&self) -> String {
        let or = |text: &str, instead: &str| {
            if text.trim().is_empty() { instead.to_owned() } else { text.to_owned() }
        };
        match self {
            Self::Completed { message, .. } => or(message.as_deref().unwrap_or_default(), TASK_COMPLETED),
            Self::Exception { error } => format!("{AGENT_ERROR}: {error}"),
            Self::MaxSteps { steps } => max_steps_reached(*steps),
            Self::Cancelled => "The run was cancelled".to_owned(),
            other => other.error().unwrap_or_default().to_owned(),
        }
    }

    pub fn error(&self) -> Option<&str> {
        match self {
            Self::Failed { error }
            | Self::AgentError { error }
            | Self::Impossible { error }
            | Self::Exception { error }
            | Self::TimedOut { error }
            | Self::Unavailable { error }
            | Self::SpendLimit { error, .. } => Some(error),
            Self::Completed { .. } | Self::MaxSteps { .. } | Self::Cancelled | Self::Released | Self::Lost => None,
        }
    }
}

fn max_steps_reached(steps: i64) -> String {
    format!("Reached maximum steps ({steps}) without completing task")
}

/// The worker's request to a running job. Later variants take precedence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JobRequest {
    Continue,
    /// The worker stops: release the item.
    Release,
    /// The run was cancelled: stop, and make the closing call.
    Cancel,
    /// The run has ended, or the item is lost: stop at once.
    Abort,
}

/// Carries the worker's request to a job.
#[derive(Debug, Default)]
pub struct JobControl(AtomicU8);

impl JobControl {
    pub fn request(&self, request: JobRequest) {
        // A later, weaker request does not replace a stronger one: a lost item cannot be released.
        self.0.fetch_max(request as u8, Ordering::Relaxed);
    }

    pub fn requested(&self) -> JobRequest {
        match self.0.load(Ordering::Relaxed) {
            0 => JobRequest::Continue,
            1 => JobRequest::Release,
            2 => JobRequest::Cancel,
            _ => JobRequest::Abort,
        }
    }
}

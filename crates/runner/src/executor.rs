//! What a job is to the worker: told to stop from outside, it ends one way or another.

use std::sync::atomic::{AtomicU8, Ordering};

use serde_json::Value;
use trackway_actions::run::EndRun;
use trackway_domain::{Id, Time, kind, text, words::RunStatus};

/// The last message of an agent that completed its task and said nothing.
pub const TASK_COMPLETED: &str = "Task completed";
/// The error of an agent that gave no reason.
pub const AGENT_ERROR: &str = "Agent encountered an error";

/// How an execution ended.
#[derive(Debug, Clone, PartialEq)]
pub enum Ended {
    /// It did what it should. The last words, and what came out.
    Completed {
        message: Option<String>,
        result: Value,
    },
    Failed {
        error: String,
    },
    /// The agent itself says that its task cannot be done.
    AgentError {
        error: String,
    },
    /// It cannot succeed however often it is tried.
    Impossible {
        error: String,
    },
    TimedOut {
        error: String,
    },
    /// What executes it failed, not what it does.
    Exception {
        error: String,
    },
    /// A model took all the turns it may take.
    MaxSteps {
        steps: i64,
    },
    /// Its agent may not spend more before that time.
    SpendLimit {
        error: String,
        until: Time,
    },
    /// Somebody wants it to end, and whoever executes it is to end it.
    Cancelled,
    /// The worker wanted to stop: someone else is to do it.
    Released,
    /// There is nothing here to do it with: someone else is to do it.
    Unready {
        error: String,
    },
    /// It was cancelled, or is someone else's by now: there is nothing left to say.
    Lost,
}

impl Ended {
    /// The end of a run as it is written down; none where somebody else ends it, or the item goes back.
    pub fn of_run(&self, run: Id<kind::Run>) -> Option<EndRun> {
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
            Self::Released | Self::Unready { .. } | Self::Lost => return None,
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

    /// How the closing prompt sums the run up.
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

    /// What went wrong, if something did.
    pub fn error(&self) -> Option<&str> {
        match self {
            Self::Failed { error }
            | Self::AgentError { error }
            | Self::Impossible { error }
            | Self::Exception { error }
            | Self::TimedOut { error }
            | Self::Unready { error }
            | Self::SpendLimit { error, .. } => Some(error),
            Self::Completed { .. } | Self::MaxSteps { .. } | Self::Cancelled | Self::Released | Self::Lost => None,
        }
    }
}

/// The final message of a run that took all its steps.
fn max_steps_reached(steps: i64) -> String {
    format!("Reached maximum steps ({steps}) without completing task")
}

/// What someone wants of a job that runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wish {
    GoOn,
    /// The worker stops: someone else is to do it.
    Release,
    /// It was cancelled, and has time to say what it learned.
    Cancel,
    /// It is over.
    Stop,
}

/// Carries a wish to a job.
#[derive(Debug, Default)]
pub struct Reins(AtomicU8);

impl Reins {
    pub fn wish(&self, wish: Wish) {
        // A job that was lost cannot be released any more.
        self.0.fetch_max(wish as u8, Ordering::Relaxed);
    }

    pub fn wished(&self) -> Wish {
        match self.0.load(Ordering::Relaxed) {
            0 => Wish::GoOn,
            1 => Wish::Release,
            2 => Wish::Cancel,
            _ => Wish::Stop,
        }
    }
}

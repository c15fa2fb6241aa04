//! What a job is to the worker: told to stop from outside, it ends one way or another.

use std::sync::atomic::{AtomicU8, Ordering};

use serde_json::Value;

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
    /// It cannot succeed however often it is tried.
    Impossible {
        error: String,
    },
    TimedOut {
        error: String,
    },
    /// The worker wanted to stop: someone else is to do it.
    Released,
    /// It was cancelled, or is someone else's by now: there is nothing left to say.
    Lost,
}

/// What someone wants of a job that runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wish {
    GoOn,
    Release,
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
            _ => Wish::Stop,
        }
    }
}

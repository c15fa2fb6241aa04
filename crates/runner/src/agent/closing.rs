//! The closing call: the agent is asked what it learned, once its run is over and it can do nothing more.

use std::time::{Duration, Instant};

use trackway_actions::run::{Closing, RecordUsage};
use trackway_domain::{Id, canary::Canary, closing, kind};
use trackway_views::assignment::Acting;

use super::{Means, aside::Aside, model_of, usage};
use crate::{
    executor::{Reins, Wish},
    model::{Request, Turn},
};

/// How long it may take, with all its tries.
pub const CLOSING: Duration = Duration::from_mins(1);

/// Whom to ask, for how long.
#[derive(Debug)]
pub struct Last<'a> {
    pub run: Id<kind::Run>,
    pub acting: &'a Acting,
    pub means: &'a Means,
    pub canary: &'a Canary,
    pub reins: &'a Reins,
    pub until: Instant,
}

/// What came of it.
#[derive(Debug)]
pub struct Closed {
    pub closing: Closing,
    pub usage: Vec<RecordUsage>,
    /// Whether the answer repeats the agent's instructions.
    pub leaked: bool,
}

impl Last<'_> {
    /// Asks, in a conversation of its own and without tools. The calls before have numbers up to this one.
    pub fn ask(&self, ended: &closing::Ended<'_>, revision: i64, calls: i64) -> Closed {
        let model = model_of(self.acting, self.means);
        let request = Request {
            model: model.to_owned(),
            system: format!(
                "You are the agent {}. Your run has ended; you are asked what to keep of it.",
                self.acting.handle
            ),
            turns: vec![Turn::User(vec![closing::prompt_after(ended)])],
            tools: &[],
        };
        let failed = |error: String| Closing::Failed { error };
        let waits = || Instant::now() < self.until && !matches!(self.reins.wished(), Wish::Stop | Wish::Release);
        let Some(answer) = Aside::new(&self.means.model).ask(request, self.until, waits) else {
            let closing = failed("no answer in the time there was".to_owned());
            return Closed { closing, usage: Vec::new(), leaked: false };
        };
        let used = answer.used.iter().zip(calls + 1..);
        let usage = used.map(|(used, number)| usage(self.run, model, self.means, used, number)).collect();
        let leaked = answer.outcome.as_ref().is_ok_and(|reply| self.canary.leak(&reply.text).is_some());
        let closing = match answer.outcome {
            Err(trouble) => failed(trouble.to_string()),
            Ok(_) if leaked => failed("the answer repeats the agent's instructions".to_owned()),
            Ok(reply) => Closing::Answered { answer: reply.text, revision, is_last: false },
        };
        Closed { closing, usage, leaked }
    }
}

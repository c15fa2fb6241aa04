//! The closing call: the agent is asked what it learned, once its run is over and it can do nothing more.

use std::time::{Duration, Instant};

use trackway_actions::run::{Closing, RecordUsage};
use trackway_domain::{Id, closing, kind};
use trackway_views::assignment::Acting;

use super::{Finished, Means, aside::Aside, cut, model_of, offered, usage};
use crate::{
    executor::{Reins, Wish},
    model::{Reply, Request, Tool, Trouble, Turn},
};

/// How long it may take, with all its tries.
pub const CLOSING: Duration = Duration::from_mins(1);

/// Tokens that are left for the reply, but at most half of what the model takes.
const REPLY_TOKENS: usize = 8_192;
/// Bytes that a token has at least: English has four and more, other scripts about three.
const TOKEN_BYTES: usize = 3;

/// Whom to ask, for how long.
#[derive(Debug)]
pub struct Last<'a> {
    pub run: Id<kind::Run>,
    pub acting: &'a Acting,
    pub means: &'a Means,
    pub finished: &'a Finished,
    pub reins: &'a Reins,
    pub until: Instant,
    /// Whether the provider refused the run's own conversation before.
    pub is_short: bool,
}

/// What came of it.
#[derive(Debug)]
pub struct Closed {
    pub closing: Closing,
    pub usage: Vec<RecordUsage>,
    /// Whether the answer repeats the agent's instructions.
    pub leaked: bool,
    /// Why the provider did not take the run's own conversation, if it did not.
    pub refused: Option<String>,
}

impl Last<'_> {
    /// Sends the prompt at the end of the run's conversation. If the provider refuses it, sends it in a short conversation. `calls`
    /// is the number of model calls that were made before.
    pub fn ask(&self, ended: &closing::Ended<'_>, revision: i64, calls: i64) -> Closed {
        let turns = self.finished.talk.in_full();
        if self.is_short || turns.is_empty() {
            return self.ask_with(self.short(ended), revision, calls).0;
        }
        match self.ask_with(self.long(turns, ended), revision, calls) {
            (first, Some(refused)) => {
                let calls = calls + i64::try_from(first.usage.len()).unwrap_or_default();
                let mut second = self.ask_with(self.short(ended), revision, calls).0;
                second.usage.splice(0..0, first.usage);
                Closed { refused: Some(refused), ..second }
            }
            (closed, None) => closed,
        }
    }

    /// The run's conversation with the prompt at its end, cut from the middle where it is longer than the model takes.
    fn long(&self, turns: Vec<Turn>, ended: &closing::Ended<'_>) -> Request {
        let (system, tools) = (self.finished.instructions.clone(), offered(self.means));
        let prompt = closing::prompt_after(ended, false);
        let described: usize =
            tools.iter().map(|tool: &Tool| tool.description.len() + tool.schema().to_string().len()).sum();
        let context = self.means.settings.context_tokens;
        let whole = (context - REPLY_TOKENS.min(context / 2)) * TOKEN_BYTES;
        let left = whole.saturating_sub(system.len() + described + prompt.len());
        let mut turns = cut::middle(turns, left);
        turns.push(Turn::User(vec![prompt]));
        Request { model: self.model().to_owned(), system, turns, tools, may_call: false }
    }

    fn short(&self, ended: &closing::Ended<'_>) -> Request {
        Request {
            model: self.model().to_owned(),
            system: format!(
                "You are the agent {}. Your run has ended; you are asked what to keep of it.",
                self.acting.handle
            ),
            turns: vec![Turn::User(vec![closing::prompt_after(ended, true)])],
            tools: &[],
            may_call: false,
        }
    }

    fn model(&self) -> &str {
        model_of(self.acting, self.means)
    }

    /// Sends a request; also returns the provider's reason if it refused.
    fn ask_with(&self, request: Request, revision: i64, calls: i64) -> (Closed, Option<String>) {
        let failed = |error: String| Closing::Failed { error };
        let waits = || Instant::now() < self.until && !matches!(self.reins.wished(), Wish::Stop | Wish::Release);
        let Some(answer) = Aside::new(&self.means.model).ask(request, self.until, waits) else {
            let closing = failed("no answer in the time there was".to_owned());
            return (Closed { closing, usage: Vec::new(), leaked: false, refused: None }, None);
        };
        let used = answer.used.iter().zip(calls + 1..);
        let usage = used.map(|(used, number)| usage(self.run, self.model(), self.means, used, number)).collect();
        let leaks = |reply: &Reply| self.finished.canary.leak(&reply.text).is_some();
        let leaked = answer.outcome.as_ref().is_ok_and(leaks);
        let refused = match &answer.outcome {
            Err(Trouble::Refused(why)) => Some(why.clone()),
            _ => None,
        };
        let closing = match answer.outcome {
            Err(trouble) => failed(trouble.to_string()),
            Ok(_) if leaked => failed("the answer repeats the agent's instructions".to_owned()),
            Ok(reply) => Closing::Answered { answer: reply.text, revision, is_last: false },
        };
        (Closed { closing, usage, leaked, refused: None }, refused)
    }
}

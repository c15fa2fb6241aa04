//! The closing call: the last model call of a run. It asks the agent what to keep in its scratchpad and its report.
//! The agent can no longer execute actions at that point.

use std::time::{Duration, Instant};

use trackway_actions::run::{EndOfRunOutcome, RecordUsage};
use trackway_domain::{Id, closing, kind};
use trackway_views::assignment::ActingAgent;

use super::{
    AgentBackend, FinishedRun, background_model::BackgroundModel, model_name, record_usage, tools_for, truncate,
};
use crate::{
    executor::{JobControl, JobRequest},
    model::{ModelError, Reply, Request, Tool, Turn},
};

/// The timeout of the closing call, including all retries.
pub const CLOSING_TIMEOUT: Duration = Duration::from_mins(1);

/// Tokens reserved for the reply, but at most half of the model's context.
const REPLY_TOKENS: usize = 8_192;
/// Lower bound of the bytes in a token: English has four and more, other scripts about three.
const TOKEN_BYTES: usize = 3;

#[derive(Debug)]
pub struct ClosingCall<'a> {
    pub run: Id<kind::Run>,
    pub acting: &'a ActingAgent,
    pub backend: &'a AgentBackend,
    pub finished: &'a FinishedRun,
    pub control: &'a JobControl,
    pub deadline: Instant,
    /// Whether to ask without the run's conversation, because the provider rejected it before.
    pub is_short: bool,
}

#[derive(Debug)]
pub struct ClosingResult {
    pub closing: EndOfRunOutcome,
    pub usage: Vec<RecordUsage>,
    /// Whether the answer repeats the agent's confidential instructions.
    pub has_leak: bool,
    /// The reason why the provider rejected the run's conversation, if it did.
    pub rejection: Option<String>,
}

impl ClosingCall<'_> {
    /// Sends the closing prompt at the end of the run's conversation. If the provider rejects the conversation, sends
    /// the prompt alone. `calls` is the number of model calls so far.
    pub fn ask(&self, ended: &closing::EndedRun<'_>, revision: i64, calls: i64) -> ClosingResult {
        let turns = self.finished.conversation.with_full_pages();
        if self.is_short || turns.is_empty() {
            return self.send(self.short_request(ended), revision, calls).0;
        }
        match self.send(self.full_request(turns, ended), revision, calls) {
            (first, Some(rejection)) => {
                let calls = calls + i64::try_from(first.usage.len()).unwrap_or_default();
                let mut second = self.send(self.short_request(ended), revision, calls).0;
                second.usage.splice(0..0, first.usage);
                ClosingResult { rejection: Some(rejection), ..second }
            }
            (closed, None) => closed,
        }
    }

    /// The run's conversation with the prompt at its end. If the conversation is too long for the model, its middle is
    /// removed.
    fn full_request(&self, turns: Vec<Turn>, ended: &closing::EndedRun<'_>) -> Request {
        let (system, tools) = (self.finished.instructions.clone(), tools_for(self.backend));
        let prompt = closing::prompt_after_run(ended, false);
        let described: usize =
            tools.iter().map(|tool: &Tool| tool.description.len() + tool.schema().to_string().len()).sum();
        let context = self.backend.settings.context_tokens;
        let available = (context - REPLY_TOKENS.min(context / 2)) * TOKEN_BYTES;
        let left = available.saturating_sub(system.len() + described + prompt.len());
        let mut turns = truncate::remove_middle(turns, left);
        turns.push(Turn::User(vec![prompt]));
        Request { model: self.model().to_owned(), system, turns, tools, may_call: false }
    }

    fn short_request(&self, ended: &closing::EndedRun<'_>) -> Request {
        Request {
            model: self.model().to_owned(),
            system: format!(
                "You are the agent {}. Your run has ended. Answer the question about your scratchpad and your report.",
                self.acting.handle
            ),
            turns: vec![Turn::User(vec![closing::prompt_after_run(ended, true)])],
            tools: &[],
            may_call: false,
        }
    }

    fn model(&self) -> &str {
        model_name(self.acting, self.backend)
    }

    /// Sends a request. Also returns the provider's reason, if it rejected the request.
    fn send(&self, request: Request, revision: i64, calls: i64) -> (ClosingResult, Option<String>) {
        let failed = |error: String| EndOfRunOutcome::Failed { error };
        let is_waiting = || {
            Instant::now() < self.deadline
                && !matches!(self.control.requested(), JobRequest::Abort | JobRequest::Release)
        };
        let Some(response) = BackgroundModel::new(&self.backend.model).ask(request, self.deadline, is_waiting) else {
            let closing = failed("no answer before the timeout".to_owned());
            return (ClosingResult { closing, usage: Vec::new(), has_leak: false, rejection: None }, None);
        };
        let calls = response.usage.iter().zip(calls + 1..);
        let usage = calls
            .map(|(call_usage, number)| record_usage(self.run, self.model(), self.backend, call_usage, number))
            .collect();
        let leaks = |reply: &Reply| self.finished.canary.find_leak(&reply.text).is_some();
        let has_leak = response.outcome.as_ref().is_ok_and(leaks);
        let rejection = match &response.outcome {
            Err(ModelError::Rejected(why)) => Some(why.clone()),
            _ => None,
        };
        let closing = match response.outcome {
            Err(error) => failed(error.to_string()),
            Ok(_) if has_leak => failed("the answer repeats the agent's instructions".to_owned()),
            Ok(reply) => EndOfRunOutcome::Answered { answer: reply.text, revision, is_last: false },
        };
        (ClosingResult { closing, usage, has_leak, rejection: None }, rejection)
    }
}

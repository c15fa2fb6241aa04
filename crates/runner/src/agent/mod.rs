//! Executes items of model-driven agents: calls a model in a loop, with pages and actions as its tools.

mod background_model;
mod closing;
mod conversation;
mod prompt;
mod spending;
mod tools;
mod truncate;

use std::{
    ops::Deref,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    time::{Duration, Instant},
};

use trackway_actions::{
    Action, Context, Core, Result, registry,
    run::{RecordStep, RecordUsage},
    scratchpad::UpdateScratchpad,
};
use trackway_domain::{
    Error as Rule, ErrorKind, Id,
    canary::Canary,
    capability::{self, CapabilityClass},
    enums::StepType,
    kind, text,
    wake_context::fenced,
};
use trackway_views::{
    View,
    assignment::ActingAgent,
    scratchpad::{GetScratchpad, ScratchpadRow},
};

pub use closing::{CLOSING_TIMEOUT, ClosingCall, ClosingResult};
pub use conversation::PAGE_MAX;

use crate::{
    executor::{ExecutionEnd, JobControl, JobRequest},
    model::{CallUsage, Model, ModelError, ModelResponse, ModelSettings, Reply, Request},
    pages::Pages,
    retry::retry,
};
use background_model::BackgroundModel;
use conversation::{Conversation, MessagePart};
use spending::record_usage;
pub use spending::spend_limit_reached;
use tools::{ParsedCall, ParsedReply, TOOLS, parse_reply};

/// The first page that every agent reads.
const START: &str = "/whoami";
/// Maximum number of calls that are executed for one reply.
const CALLS_MAX: usize = 16;
/// Characters of the model's text in a step.
const THOUGHT_SHOWN_MAX: usize = 4_000;
/// Characters of an action's response in a step.
const RESPONSE_SHOWN_MAX: usize = 300;
/// Time for a running model call to finish after the run was cancelled, so that its usage can be recorded.
const LAST_CALL_MAX: Duration = Duration::from_secs(10);
/// Result of the `done` and `error` calls. Providers require a result for every call before the next prompt.
const RUN_ENDED: &str = "Your run has ended.";
/// Once at most this many turns are left, each message to the model contains their number.
const TURNS_LEFT_SHOWN: i64 = 3;

/// The model and the pages of agents.
#[derive(Clone)]
pub struct AgentBackend {
    pub model: Arc<dyn Model>,
    pub settings: ModelSettings,
    pub pages: Arc<dyn Pages>,
}

impl std::fmt::Debug for AgentBackend {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("AgentBackend").field("model", &self.model).finish_non_exhaustive()
    }
}

/// A run that a model executes.
#[derive(Clone, Copy)]
pub struct AgentRun<'a> {
    pub core: &'a Core,
    /// The context of the run's token.
    pub context: &'a Context,
    pub run: Id<kind::Run>,
    pub token: &'a str,
    pub acting: &'a ActingAgent,
    pub backend: &'a AgentBackend,
    pub control: &'a JobControl,
    pub deadline: Instant,
    /// The wake prompt.
    pub wake: &'a str,
    /// The revision of the scratchpad in the wake prompt.
    pub revision: i64,
    /// The time for which failed database calls are retried.
    pub lease_seconds: i64,
}

impl std::fmt::Debug for AgentRun<'_> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("AgentRun").field("run", &self.run).finish_non_exhaustive()
    }
}

impl AgentRun<'_> {
    fn retry<T>(&self, mut call: impl FnMut(&Self) -> Result<T>) -> Result<T> {
        retry(self.lease_seconds, self.control, || call(self))
    }

    /// Executes the run. A failure of the model or of this code also ends the run, and is not returned as an error.
    pub fn run_to_end(self) -> Result<FinishedRun> {
        let marker = prompt::marker().map_err(Rule::usage)?;
        let instructions = prompt::instructions(self.acting, &marker, self.backend.settings.native_tools);
        let canary = Canary::new(&marker, &instructions);
        let revision = self.revision;
        let mut agent_loop = AgentLoop {
            agent_run: self,
            background: BackgroundModel::new(&self.backend.model),
            canary,
            instructions,
            steps: Vec::new(),
            conversation: Conversation::default(),
            last: None,
            calls: 0,
            pending_steps: Vec::new(),
            pending_usage: None,
            revision,
        };
        let result = catch_unwind(AssertUnwindSafe(|| agent_loop.run()));
        let flushed = agent_loop.flush_steps();
        let end = match result.map(|end| flushed.and(end)) {
            Ok(Ok(end)) => end,
            // The token no longer works: the run was cancelled, or lost its lease.
            Ok(Err(error)) if error.kind() == ErrorKind::Denied => ExecutionEnd::Lost,
            Ok(Err(error)) => ExecutionEnd::Exception { error: error.to_string() },
            Err(_) => ExecutionEnd::Exception { error: "internal error: the agent loop panicked".to_owned() },
        };
        Ok(FinishedRun {
            end,
            steps: agent_loop.steps,
            canary: agent_loop.canary,
            calls: agent_loop.calls,
            instructions: agent_loop.instructions,
            conversation: agent_loop.conversation,
        })
    }
}

struct AgentLoop<'a> {
    agent_run: AgentRun<'a>,
    background: BackgroundModel<'a>,
    canary: Canary,
    instructions: String,
    /// One line for each step, for the closing prompt.
    steps: Vec<String>,
    conversation: Conversation,
    /// The position of the last recorded step.
    last: Option<i64>,
    calls: i64,
    /// Steps that are not recorded yet. Recording several in one transaction saves round trips.
    pending_steps: Vec<RecordStep>,
    pending_usage: Option<RecordUsage>,
    /// The revision of the scratchpad that the agent read last.
    revision: i64,
}

impl<'a> Deref for AgentLoop<'a> {
    type Target = AgentRun<'a>;

    fn deref(&self) -> &AgentRun<'a> {
        &self.agent_run
    }
}

/// The end of a run, and the input of the closing call.
#[derive(Debug)]
pub struct FinishedRun {
    pub end: ExecutionEnd,
    /// One line for each step.
    pub steps: Vec<String>,
    pub canary: Canary,
    /// The number of model calls.
    pub calls: i64,
    instructions: String,
    conversation: Conversation,
}

enum TurnResult {
    Continue,
    Finished(ExecutionEnd),
}

impl AgentLoop<'_> {
    fn run(&mut self) -> Result<ExecutionEnd> {
        let page = self.backend.pages.get(self.token, START);
        self.record_step(
            StepType::FetchPage,
            &format!("{START}: {}, {} characters", page.status, page.body.chars().count()),
        )?;
        self.conversation.add_user_turn(vec![
            MessagePart::text(self.wake),
            MessagePart::page(START, &page.body, 0),
            MessagePart::text(format!("You are at {START}. Work on your task, and call done when it is done.")),
        ]);
        let mut unreadable = 0;
        for turn in 1..=self.acting.max_steps {
            if let Some(end) = self.stop_reason()? {
                return Ok(end);
            }
            let Some(response) = self.ask() else {
                return Ok(self.stop_reason()?.unwrap_or(ExecutionEnd::Lost));
            };
            self.add_usage(&response.usage)?;
            for why in &response.retried {
                self.record_step(StepType::Error, &format!("{why}; retrying"))?;
            }
            let left = self.acting.max_steps - turn;
            let next = match response.outcome {
                Ok(reply) => {
                    self.add_think_step(&reply)?;
                    let parsed = parse_reply(&reply);
                    // Record the thought before an action changes anything. A read changes nothing, so its thought is
                    // recorded later, together with the read.
                    if !parsed.starts_with_read() {
                        self.flush_steps()?;
                    }
                    match parsed {
                        ParsedReply::NoValidCall(why) => {
                            self.conversation.add_reply(reply);
                            Err(why)
                        }
                        parsed => Ok(self.execute_calls(reply, parsed, left)?),
                    }
                }
                Err(ModelError::Unreadable(why)) => {
                    // The answer is too long to repeat in the conversation.
                    self.conversation.add_reply(Reply { text: format!("({why})"), calls: Vec::new() });
                    self.record_step(StepType::Think, &why)?;
                    Err(why)
                }
                Err(ModelError::Failed(_) | ModelError::Rejected(_)) if Instant::now() >= self.deadline => {
                    return Ok(timed_out());
                }
                Err(ModelError::Failed(why) | ModelError::Rejected(why)) => {
                    return Ok(ExecutionEnd::Exception { error: why });
                }
            };
            match next {
                Ok(TurnResult::Continue) => unreadable = 0,
                Ok(TurnResult::Finished(end)) => return Ok(end),
                Err(why) if unreadable > 0 => {
                    let error = format!("two unreadable answers of the model in a row: {why}");
                    return Ok(ExecutionEnd::Failed { error });
                }
                Err(why) => {
                    unreadable += 1;
                    self.record_step(StepType::Error, &format!("{why}; retrying"))?;
                    self.conversation.add_user_turn(vec![MessagePart::text(prompt::retry_prompt(
                        &why,
                        self.backend.settings.native_tools,
                    ))]);
                }
            }
        }
        Ok(ExecutionEnd::MaxSteps { steps: self.acting.max_steps })
    }

    /// The end of the run, if the run may make no further model call.
    fn stop_reason(&self) -> Result<Option<ExecutionEnd>> {
        Ok(match self.control.requested() {
            JobRequest::Release => Some(ExecutionEnd::Released),
            JobRequest::Cancel => Some(ExecutionEnd::Cancelled),
            JobRequest::Abort => Some(ExecutionEnd::Lost),
            JobRequest::Continue if Instant::now() >= self.deadline => Some(timed_out()),
            JobRequest::Continue => spending::check_limit(self)?,
        })
    }

    fn model(&self) -> &str {
        model_name(self.acting, self.backend)
    }

    fn ask(&mut self) -> Option<ModelResponse> {
        let request = Request {
            model: self.model().to_owned(),
            system: self.instructions.clone(),
            turns: self.conversation.turns().to_vec(),
            tools: tools_for(self.backend),
            may_call: true,
        };
        let (control, mut cancelled_at) = (self.control, None);
        self.background.ask(request, self.agent_run.deadline, || match control.requested() {
            JobRequest::Continue => true,
            JobRequest::Cancel => cancelled_at.get_or_insert_with(Instant::now).elapsed() < LAST_CALL_MAX,
            JobRequest::Release | JobRequest::Abort => false,
        })
    }

    /// Executes the calls of a reply, and adds their results to the conversation.
    fn execute_calls(&mut self, reply: Reply, parsed: ParsedReply, left: i64) -> Result<TurnResult> {
        let leak = self.find_leak(&reply);
        let is_in_text = matches!(parsed, ParsedReply::InText(_));
        self.conversation.add_reply(reply);
        let calls = match parsed {
            ParsedReply::Calls(calls) => calls,
            ParsedReply::InText(parsed) => {
                let call =
                    crate::model::Call { id: String::new(), name: String::new(), input: serde_json::Value::Null };
                vec![(call, Ok(parsed))]
            }
            ParsedReply::NoValidCall(_) => Vec::new(),
        };
        let mut results = Vec::with_capacity(calls.len());
        let mut end = None;
        for (place, (call, parsed)) in calls.into_iter().enumerate() {
            let shown = match parsed {
                _ if end.is_some() => MessagePart::error("Not done: your run has ended."),
                _ if leak.is_some() => {
                    MessagePart::error("Refused: the call repeats your instructions, which are confidential.")
                }
                _ if place >= CALLS_MAX => {
                    MessagePart::error(format!("Not done: one reply may have at most {CALLS_MAX} calls."))
                }
                Err(why) => {
                    self.record_step(
                        StepType::Error,
                        &format!("{}: {why}", text::cut(&text::clean_line(&call.name), 100)),
                    )?;
                    MessagePart::error(why)
                }
                Ok(ParsedCall::Done { message }) => {
                    end = Some(ExecutionEnd::Completed {
                        message: Some(text::cut(&message, text::TEXT_MAX - 1)),
                        result: serde_json::json!({ "calls": self.calls }),
                    });
                    MessagePart::text(RUN_ENDED)
                }
                Ok(ParsedCall::Error { message }) => {
                    end = Some(ExecutionEnd::AgentError { error: message });
                    MessagePart::text(RUN_ENDED)
                }
                Ok(parsed) => self.execute_call(parsed)?,
            };
            results.push((call, shown));
        }
        if let Some((_, last)) = results.last_mut().filter(|_| end.is_none() && left <= TURNS_LEFT_SHOWN) {
            last.text.push_str(&format!("\n\n[turns left: {left}]"));
        }
        if !is_in_text {
            self.conversation.add_results(results);
        } else if end.is_none() {
            self.conversation.add_user_turn(results.into_iter().map(|(_, shown)| shown).collect());
        }
        Ok(end.map_or(TurnResult::Continue, TurnResult::Finished))
    }

    /// Reads a page or executes an action.
    fn execute_call(&mut self, parsed: ParsedCall) -> Result<MessagePart> {
        match parsed {
            ParsedCall::FetchPage { path, from } => self.fetch(&path, from),
            ParsedCall::Search { words } => self.fetch(&tools::search_path(&words), 0),
            ParsedCall::ExecuteAction { path, action, mut params } => {
                let of_run = registry::find_action(&action)
                    .is_some_and(|entry| capability::class_of(entry.capability) == Some(CapabilityClass::OwnRun));
                if of_run {
                    self.record_step(StepType::ExecuteAction, &format!("{action}: refused, the runner does this"))?;
                    return Ok(MessagePart::error(format!(
                        "Only the runner executes {action}. To end your run, call done or error."
                    )));
                }
                let path = tools::action_path(&path, &action);
                let is_scratchpad = action == UpdateScratchpad::NAME;
                if is_scratchpad && params.get("if_revision").is_none() {
                    // Detect changes by other runs of this agent.
                    params["if_revision"] = self.revision.into();
                }
                let mut answer = self.backend.pages.post(self.token, &path, &params);
                if is_scratchpad {
                    let present = self.retry(|run| scratchpad_of(run.core, run.context, run.acting))?;
                    self.revision = present.revision;
                    if !answer.is_success() {
                        answer
                            .body
                            .push_str(&format!("\n\nYour scratchpad now holds:\n{}", fenced("text", &present.content)));
                    }
                }
                let shown = text::cut(answer.body.trim(), RESPONSE_SHOWN_MAX);
                self.record_step(StepType::ExecuteAction, &format!("{path}: {}\n{shown}", answer.status))?;
                let is_success = answer.is_success();
                let body = MessagePart::page(&path, &format!("{path}: {}\n\n{}", answer.status, answer.body), 0);
                // Unlike pages, responses of actions stay complete: the agent cannot fetch them again.
                Ok(MessagePart { short_form: None, is_error: !is_success, ..body })
            }
            ParsedCall::Done { .. } | ParsedCall::Error { .. } => Ok(MessagePart::text("")),
        }
    }

    fn fetch(&mut self, path: &str, from: usize) -> Result<MessagePart> {
        let answer = self.backend.pages.get(self.token, path);
        let length = answer.body.chars().count();
        let at = if from > 0 { format!(" from {from}") } else { String::new() };
        self.record_step(StepType::FetchPage, &format!("{path}{at}: {}, {length} characters", answer.status))?;
        let page = MessagePart::page(path, &answer.body, from);
        Ok(if answer.is_success() {
            page
        } else {
            MessagePart { text: format!("{}: {}", answer.status, page.text), is_error: true, ..page }
        })
    }

    /// Finds parts of the confidential instructions in a reply.
    fn find_leak(&self, reply: &Reply) -> Option<trackway_domain::canary::Leak> {
        let inputs = reply.calls.iter().flat_map(|call| strings_in(&call.input));
        std::iter::once(reply.text.as_str()).chain(inputs).find_map(|text| self.canary.find_leak(text))
    }

    /// Adds the step for the model's text and the names of its calls. A reply with a leak is withheld.
    fn add_think_step(&mut self, reply: &Reply) -> Result<()> {
        if let Some(leak) = self.find_leak(reply) {
            self.add_step(StepType::Think, "(withheld)");
            let warning = format!("the answer repeats {}; it was refused", leak.description());
            return self.record_step(StepType::SecurityWarning, &warning);
        }
        let names: Vec<String> = reply.calls.iter().map(|call| text::cut(&text::clean_line(&call.name), 100)).collect();
        let mut thought = text::cut(reply.text.trim(), THOUGHT_SHOWN_MAX);
        if !names.is_empty() {
            thought.push_str(&format!("{}calls {}", if thought.is_empty() { "" } else { "\n" }, names.join(", ")));
        }
        self.add_step(StepType::Think, if thought.is_empty() { "(nothing)" } else { &thought });
        Ok(())
    }

    fn record_step(&mut self, step_type: StepType, detail: &str) -> Result<()> {
        self.add_step(step_type, detail);
        self.flush_steps()
    }

    /// Adds a step, which the next flush records.
    fn add_step(&mut self, step_type: StepType, detail: &str) {
        let detail = text::cut(&text::clean(detail), text::TEXT_MAX - 1);
        self.steps.push(format!("{step_type}: {}", detail.lines().next().unwrap_or_default()));
        let after = self.pending_steps.last().map_or(self.last, |step| step.after.map(|last| last + 1));
        self.pending_steps.push(RecordStep { run: self.run.into(), step_type, detail: Some(detail), after });
    }

    /// Records the pending usage and steps.
    fn flush_steps(&mut self) -> Result<()> {
        let (usage, steps) = (self.pending_usage.take(), std::mem::take(&mut self.pending_steps));
        if usage.is_none() && steps.is_empty() {
            return Ok(());
        }
        let (_, written) = self.retry(|run| run.core.execute_both(run.context, usage.as_slice(), &steps))?;
        self.last = written.last().map(|step| step.position).or(self.last);
        Ok(())
    }

    fn add_usage(&mut self, usage: &[CallUsage]) -> Result<()> {
        for call_usage in usage {
            self.flush_steps()?;
            self.calls += 1;
            self.pending_usage = Some(record_usage(self.run, self.model(), self.backend, call_usage, self.calls));
        }
        Ok(())
    }
}

fn timed_out() -> ExecutionEnd {
    ExecutionEnd::TimedOut { error: "timed out".to_owned() }
}

pub fn scratchpad_of(core: &Core, context: &Context, acting: &ActingAgent) -> Result<ScratchpadRow> {
    let question = GetScratchpad { agent: acting.agent_id.into() };
    core.read(context, |reader| Ok(question.answer(reader, core.now())?))
}

fn tools_for(backend: &AgentBackend) -> &'static [crate::model::Tool] {
    if backend.settings.native_tools { TOOLS } else { &[] }
}

/// The agent's own model, or else the configured one.
pub fn model_name<'a>(acting: &'a ActingAgent, backend: &'a AgentBackend) -> &'a str {
    acting.model.as_deref().unwrap_or_else(|| backend.model.name())
}

/// All strings in a JSON value, including the keys of objects.
fn strings_in(value: &serde_json::Value) -> Vec<&str> {
    match value {
        serde_json::Value::String(text) => vec![text],
        serde_json::Value::Array(values) => values.iter().flat_map(strings_in).collect(),
        serde_json::Value::Object(fields) => {
            fields.iter().flat_map(|(name, value)| std::iter::once(name.as_str()).chain(strings_in(value))).collect()
        }
        _ => Vec::new(),
    }
}

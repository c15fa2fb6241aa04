//! The agent executor: a model in a loop, with pages and actions as its tools.

mod aside;
mod closing;
mod cut;
mod prompt;
mod spending;
mod talk;
mod tools;

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
    capability::{self, Allowance},
    kind, text,
    wake_context::fenced,
    words::StepType,
};
use trackway_views::{
    View,
    assignment::Acting,
    scratchpad::{GetScratchpad, ScratchpadShown},
};

pub use closing::{CLOSING, Closed, Last};
pub use talk::PAGE_MAX;

use crate::{
    executor::{Ended, Reins, Wish},
    insist::insist,
    model::{Answer, Model, ModelSettings, Reply, Request, Trouble, Used},
    pages::Pages,
};
use aside::Aside;
pub use spending::has_spent_enough;
use spending::usage;
use talk::{Shown, Talk};
use tools::{Intent, TOOLS, Wanted, wanted};

/// Where every agent begins.
const START: &str = "/whoami";
/// Calls in one reply that are answered.
const CALLS_MAX: usize = 16;
/// Characters of what a model says and of what an action answers that a step shows.
const THOUGHT_SHOWN: usize = 4_000;
const ANSWER_SHOWN: usize = 300;
/// How long a call that is under way may go on once the run is to be cancelled: its usage is worth knowing.
const LAST_CALL: Duration = Duration::from_secs(10);
/// Result of the `done` and `error` calls. Providers require one before the next prompt.
const HAS_ENDED: &str = "Your run has ended.";
/// Turns left at which the model is told how many there are.
const TURNS_TOLD: i64 = 3;

/// What an agent works with.
#[derive(Clone)]
pub struct Means {
    pub model: Arc<dyn Model>,
    pub settings: ModelSettings,
    pub pages: Arc<dyn Pages>,
}

impl std::fmt::Debug for Means {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Means").field("model", &self.model).finish_non_exhaustive()
    }
}

/// A run that is to be done.
#[derive(Clone, Copy)]
pub struct Job<'a> {
    pub core: &'a Core,
    /// The run's own.
    pub context: &'a Context,
    pub run: Id<kind::Run>,
    pub token: &'a str,
    pub acting: &'a Acting,
    pub means: &'a Means,
    pub reins: &'a Reins,
    pub deadline: Instant,
    /// What its agent was told when it woke.
    pub wake: &'a str,
    /// The revision of the scratchpad in it.
    pub revision: i64,
    /// How long a database that does not answer is asked again.
    pub lease_seconds: i64,
}

impl std::fmt::Debug for Job<'_> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Job").field("run", &self.run).finish_non_exhaustive()
    }
}

impl Job<'_> {
    fn insist<T>(&self, mut deed: impl FnMut(&Self) -> Result<T>) -> Result<T> {
        insist(self.lease_seconds, self.reins, || deed(self))
    }

    /// Works until the end, whatever that is.
    pub fn finish(self) -> Result<Finished> {
        let marker = prompt::marker().map_err(Rule::usage)?;
        let instructions = prompt::instructions(self.acting, &marker, self.means.settings.native_tools);
        let canary = Canary::new(&marker, &instructions);
        let revision = self.revision;
        let mut at_work = Loop {
            job: self,
            aside: Aside::new(&self.means.model),
            canary,
            instructions,
            steps: Vec::new(),
            talk: Talk::default(),
            last: None,
            calls: 0,
            untold: Vec::new(),
            uncounted: None,
            revision,
        };
        let worked = catch_unwind(AssertUnwindSafe(|| at_work.work()));
        let told = at_work.tell();
        let ended = match worked.map(|ended| told.and(ended)) {
            Ok(Ok(ended)) => ended,
            // It was cancelled for good, or lost its lease: there is nothing left to say.
            Ok(Err(error)) if error.kind() == ErrorKind::Denied => Ended::Lost,
            Ok(Err(error)) => Ended::Exception { error: error.to_string() },
            Err(_) => Ended::Exception { error: "the loop failed in a way that should not be".to_owned() },
        };
        Ok(Finished {
            ended,
            steps: at_work.steps,
            canary: at_work.canary,
            calls: at_work.calls,
            instructions: at_work.instructions,
            talk: at_work.talk,
        })
    }
}

/// A run on its way from woken to over.
struct Loop<'a> {
    job: Job<'a>,
    aside: Aside<'a>,
    canary: Canary,
    instructions: String,
    /// What was done, a line each.
    steps: Vec<String>,
    talk: Talk,
    /// The position of the last step that was written down.
    last: Option<i64>,
    calls: i64,
    /// Steps that are written down with the next one, and what the last call used.
    untold: Vec<RecordStep>,
    uncounted: Option<RecordUsage>,
    /// The revision of its scratchpad that the agent knows of.
    revision: i64,
}

impl<'a> Deref for Loop<'a> {
    type Target = Job<'a>;

    fn deref(&self) -> &Job<'a> {
        &self.job
    }
}

/// A run that is over, and what is needed to close it.
#[derive(Debug)]
pub struct Finished {
    pub ended: Ended,
    /// What was done, a line each.
    pub steps: Vec<String>,
    pub canary: Canary,
    /// Model calls that were counted.
    pub calls: i64,
    instructions: String,
    talk: Talk,
}

/// What a turn comes to.
enum Next {
    GoOn,
    Over(Ended),
}

impl Loop<'_> {
    fn work(&mut self) -> Result<Ended> {
        let page = self.means.pages.get(self.token, START);
        self.step(StepType::FetchPage, &format!("{START}: {}, {} characters", page.status, page.body.chars().count()))?;
        self.talk.says(vec![
            Shown::plain(self.wake),
            Shown::page(START, &page.body, 0),
            Shown::plain(format!("You are at {START}. Work on your task; say done when it is done.")),
        ]);
        let mut unreadable = 0;
        for turn in 1..=self.acting.max_steps {
            if let Some(ended) = self.is_to_stop()? {
                return Ok(ended);
            }
            let Some(answer) = self.ask() else {
                return Ok(self.is_to_stop()?.unwrap_or(Ended::Lost));
            };
            self.count(&answer.used)?;
            for why in &answer.retried {
                self.step(StepType::Error, &format!("{why}; asked again"))?;
            }
            let left = self.acting.max_steps - turn;
            let next = match answer.outcome {
                Ok(reply) => {
                    self.thought(&reply)?;
                    let wanted = wanted(&reply);
                    // Before anything is done. What is only read is told of at once, with the thought that led to it.
                    if !wanted.begins_with_reading() {
                        self.tell()?;
                    }
                    match wanted {
                        Wanted::Unreadable(why) => {
                            self.talk.hears(reply);
                            Err(why)
                        }
                        wanted => Ok(self.follow(reply, wanted, left)?),
                    }
                }
                Err(Trouble::Unreadable(why)) => {
                    // What it said is too much to say again.
                    self.talk.hears(Reply { text: format!("({why})"), calls: Vec::new() });
                    self.step(StepType::Think, &why)?;
                    Err(why)
                }
                Err(Trouble::Failed(_) | Trouble::Refused(_)) if Instant::now() >= self.deadline => {
                    return Ok(timed_out());
                }
                Err(Trouble::Failed(why) | Trouble::Refused(why)) => return Ok(Ended::Exception { error: why }),
            };
            match next {
                Ok(Next::GoOn) => unreadable = 0,
                Ok(Next::Over(ended)) => return Ok(ended),
                Err(why) if unreadable > 0 => {
                    return Ok(Ended::Failed { error: format!("the model's answer cannot be read, twice: {why}") });
                }
                Err(why) => {
                    unreadable += 1;
                    self.step(StepType::Error, &format!("{why}; asked again"))?;
                    self.talk.says(vec![Shown::plain(prompt::again(&why, self.means.settings.native_tools))]);
                }
            }
        }
        Ok(Ended::MaxSteps { steps: self.acting.max_steps })
    }

    /// Whether another model call may be made.
    fn is_to_stop(&self) -> Result<Option<Ended>> {
        Ok(match self.reins.wished() {
            Wish::Release => Some(Ended::Released),
            Wish::Cancel => Some(Ended::Cancelled),
            Wish::Stop => Some(Ended::Lost),
            Wish::GoOn if Instant::now() >= self.deadline => Some(timed_out()),
            Wish::GoOn => spending::is_over(self)?,
        })
    }

    fn model(&self) -> &str {
        model_of(self.acting, self.means)
    }

    fn ask(&mut self) -> Option<Answer> {
        let request = Request {
            model: self.model().to_owned(),
            system: self.instructions.clone(),
            turns: self.talk.turns().to_vec(),
            tools: offered(self.means),
            may_call: true,
        };
        let (reins, mut cancelled_at) = (self.reins, None);
        self.aside.ask(request, self.job.deadline, || match reins.wished() {
            Wish::GoOn => true,
            Wish::Cancel => cancelled_at.get_or_insert_with(Instant::now).elapsed() < LAST_CALL,
            Wish::Release | Wish::Stop => false,
        })
    }

    /// Does what a reply asks for.
    fn follow(&mut self, reply: Reply, wanted: Wanted, left: i64) -> Result<Next> {
        let leak = self.leak(&reply);
        let is_in_text = matches!(wanted, Wanted::InText(_));
        self.talk.hears(reply);
        let calls = match wanted {
            Wanted::Calls(calls) => calls,
            Wanted::InText(intent) => {
                let call =
                    crate::model::Call { id: String::new(), name: String::new(), input: serde_json::Value::Null };
                vec![(call, Ok(intent))]
            }
            Wanted::Unreadable(_) => Vec::new(),
        };
        let mut results = Vec::with_capacity(calls.len());
        let mut over = None;
        for (place, (call, intent)) in calls.into_iter().enumerate() {
            let shown = match intent {
                _ if over.is_some() => Shown::refused("Not done: your run has ended."),
                _ if leak.is_some() => {
                    Shown::refused("Refused: it repeats your instructions, which stay between you and your owner.")
                }
                _ if place >= CALLS_MAX => Shown::refused(format!("Not done: {CALLS_MAX} calls at once are enough.")),
                Err(why) => {
                    self.step(StepType::Error, &format!("{}: {why}", text::cut(&text::clean_line(&call.name), 100)))?;
                    Shown::refused(why)
                }
                Ok(Intent::Done { message }) => {
                    over = Some(Ended::Completed {
                        message: Some(text::cut(&message, text::TEXT_MAX - 1)),
                        result: serde_json::json!({ "calls": self.calls }),
                    });
                    Shown::plain(HAS_ENDED)
                }
                Ok(Intent::Error { message }) => {
                    over = Some(Ended::AgentError { error: message });
                    Shown::plain(HAS_ENDED)
                }
                Ok(intent) => self.act(intent)?,
            };
            results.push((call, shown));
        }
        if let Some((_, last)) = results.last_mut().filter(|_| over.is_none() && left <= TURNS_TOLD) {
            last.text.push_str(&format!("\n\n[turns left: {left}]"));
        }
        if !is_in_text {
            self.talk.answers(results);
        } else if over.is_none() {
            self.talk.says(results.into_iter().map(|(_, shown)| shown).collect());
        }
        Ok(over.map_or(Next::GoOn, Next::Over))
    }

    /// Reads a page or executes an action.
    fn act(&mut self, intent: Intent) -> Result<Shown> {
        match intent {
            Intent::FetchPage { path, from } => self.fetch(&path, from),
            Intent::Search { words } => self.fetch(&tools::search_path(&words), 0),
            Intent::ExecuteAction { path, action, mut params } => {
                let of_run = registry::named(&action)
                    .is_some_and(|entry| capability::allowance(entry.capability) == Some(Allowance::OwnRun));
                if of_run {
                    self.step(StepType::ExecuteAction, &format!("{action}: refused, the runner does this"))?;
                    return Ok(Shown::refused(format!(
                        "{action} is done by what runs you. To end your run, call done or error."
                    )));
                }
                let path = tools::action_path(&path, &action);
                let is_scratchpad = action == UpdateScratchpad::NAME;
                if is_scratchpad && params.get("if_revision").is_none() {
                    // Another run of this agent may have written it since this one last saw it.
                    params["if_revision"] = self.revision.into();
                }
                let mut answer = self.means.pages.post(self.token, &path, &params);
                if is_scratchpad {
                    let present = self.insist(|job| scratchpad_of(job.core, job.context, job.acting))?;
                    self.revision = present.revision;
                    if !answer.is_good() {
                        answer
                            .body
                            .push_str(&format!("\n\nYour scratchpad now holds:\n{}", fenced("text", &present.content)));
                    }
                }
                let shown = text::cut(answer.body.trim(), ANSWER_SHOWN);
                self.step(StepType::ExecuteAction, &format!("{path}: {}\n{shown}", answer.status))?;
                let is_good = answer.is_good();
                let body = Shown::page(&path, &format!("{path}: {}\n\n{}", answer.status, answer.body), 0);
                // What was done is worth remembering, however long ago.
                Ok(Shown { brief: None, failed: !is_good, ..body })
            }
            Intent::Done { .. } | Intent::Error { .. } => Ok(Shown::plain("")),
        }
    }

    fn fetch(&mut self, path: &str, from: usize) -> Result<Shown> {
        let answer = self.means.pages.get(self.token, path);
        let length = answer.body.chars().count();
        let at = if from > 0 { format!(" from {from}") } else { String::new() };
        self.step(StepType::FetchPage, &format!("{path}{at}: {}, {length} characters", answer.status))?;
        let page = Shown::page(path, &answer.body, from);
        Ok(if answer.is_good() {
            page
        } else {
            Shown { text: format!("{}: {}", answer.status, page.text), failed: true, ..page }
        })
    }

    /// What a reply gives away of the instructions. Says so in a step, without repeating it.
    fn leak(&self, reply: &Reply) -> Option<trackway_domain::canary::Leak> {
        let inputs = reply.calls.iter().flat_map(|call| texts(&call.input));
        std::iter::once(reply.text.as_str()).chain(inputs).find_map(|text| self.canary.leak(text))
    }

    /// Writes down what the model said: one step for each turn.
    fn thought(&mut self, reply: &Reply) -> Result<()> {
        if let Some(leak) = self.leak(reply) {
            self.keep(StepType::Think, "(withheld)");
            return self
                .step(StepType::SecurityWarning, &format!("the answer repeats {}; it was refused", leak.described()));
        }
        let names: Vec<String> = reply.calls.iter().map(|call| text::cut(&text::clean_line(&call.name), 100)).collect();
        let mut said = text::cut(reply.text.trim(), THOUGHT_SHOWN);
        if !names.is_empty() {
            said.push_str(&format!("{}calls {}", if said.is_empty() { "" } else { "\n" }, names.join(", ")));
        }
        self.keep(StepType::Think, if said.is_empty() { "(nothing)" } else { &said });
        Ok(())
    }

    fn step(&mut self, step_type: StepType, detail: &str) -> Result<()> {
        self.keep(step_type, detail);
        self.tell()
    }

    /// Keeps a step until the next one is told.
    fn keep(&mut self, step_type: StepType, detail: &str) {
        let detail = text::cut(&text::clean(detail), text::TEXT_MAX - 1);
        self.steps.push(format!("{step_type}: {}", detail.lines().next().unwrap_or_default()));
        let after = self.untold.last().map_or(self.last, |step| step.after.map(|last| last + 1));
        self.untold.push(RecordStep { run: self.run.into(), step_type, detail: Some(detail), after });
    }

    /// Writes down what was not told yet.
    fn tell(&mut self) -> Result<()> {
        let (usage, steps) = (self.uncounted.take(), std::mem::take(&mut self.untold));
        if usage.is_none() && steps.is_empty() {
            return Ok(());
        }
        let (_, written) = self.insist(|job| job.core.execute_both(job.context, usage.as_slice(), &steps))?;
        self.last = written.last().map(|step| step.position).or(self.last);
        Ok(())
    }

    fn count(&mut self, used: &[Used]) -> Result<()> {
        for used in used {
            self.tell()?;
            self.calls += 1;
            self.uncounted = Some(usage(self.run, self.model(), self.means, used, self.calls));
        }
        Ok(())
    }
}

fn timed_out() -> Ended {
    Ended::TimedOut { error: "timed out".to_owned() }
}

/// The scratchpad of an agent, as it now stands.
pub fn scratchpad_of(core: &Core, context: &Context, acting: &Acting) -> Result<ScratchpadShown> {
    let question = GetScratchpad { agent: acting.agent_id.into() };
    core.read(context, |reader| Ok(question.answer(reader, core.now())?))
}

/// The tools that requests of a conversation name.
fn offered(means: &Means) -> &'static [crate::model::Tool] {
    if means.settings.native_tools { TOOLS } else { &[] }
}

/// The model of an agent: its own, else the one that is configured.
pub fn model_of<'a>(acting: &'a Acting, means: &'a Means) -> &'a str {
    acting.model.as_deref().unwrap_or_else(|| means.model.name())
}

/// Every text in a value.
fn texts(value: &serde_json::Value) -> Vec<&str> {
    match value {
        serde_json::Value::String(text) => vec![text],
        serde_json::Value::Array(values) => values.iter().flat_map(texts).collect(),
        serde_json::Value::Object(fields) => {
            fields.iter().flat_map(|(name, value)| std::iter::once(name.as_str()).chain(texts(value))).collect()
        }
        _ => Vec::new(),
    }
}

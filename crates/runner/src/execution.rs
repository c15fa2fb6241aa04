//! One item on its way from taken to ended: by a script, or by a model.

use std::{
    ffi::OsString,
    panic::{AssertUnwindSafe, catch_unwind},
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use trackway_actions::{
    Action, Context, Core, Credential, Result,
    context::Secret,
    message::SendMessage,
    queue::{FailItem, ReleaseItem, Taken},
    run::{CancelRun, CloseRun, Closing, EndRun, LastStep, RecordStep, RevokeRunToken, WakeRun},
};
use trackway_domain::{
    Error as Rule, ErrorKind, Ref, closing, text,
    words::{Driver, MessageStatus, RunStatus, StepType},
};
use trackway_store::Reader;
use trackway_views::assignment::{self, Acting, Assignment};

use crate::{
    agent::{CLOSING, Finished, Job, Last, Means, has_spent_enough, scratchpad_of},
    client,
    executor::{Ended, Reins, Wish},
    insist::insist,
    shell,
    worker::{Event, Outcome, Settings, Watch},
};

/// Where programs are when nobody says.
const USUAL_PATH: &str = "/usr/local/bin:/usr/bin:/bin";
/// How often an agent is asked to close when other runs of it write its scratchpad meanwhile.
const ASKED_MAX: usize = 3;

/// One item on its way from taken to ended.
pub(crate) struct Execution<'a> {
    pub core: &'a Core,
    pub context: &'a Context,
    pub settings: &'a Settings,
    pub watch: Watch<'a>,
    pub taken: Taken,
    pub reins: Arc<Reins>,
}

/// A run that is over, and who is to be asked about it.
struct Over {
    ended: Ended,
    agent: Option<Asked>,
}

struct Asked {
    assignment: Assignment,
    acting: Acting,
    means: Means,
    context: Context,
    finished: Finished,
}

impl From<Ended> for Over {
    fn from(ended: Ended) -> Self {
        Self { ended, agent: None }
    }
}

impl Execution<'_> {
    pub(crate) fn execute(&self) -> Outcome {
        let begun = Instant::now();
        // Nothing that a task or a model does may take the worker down.
        let over = catch_unwind(AssertUnwindSafe(|| self.run())).unwrap_or_else(|_| {
            Ok(Ended::Exception { error: "executing it failed in a way that should not be".to_owned() }.into())
        });
        let over = over.unwrap_or_else(|error| Ended::Exception { error: error.to_string() }.into());
        let ended = catch_unwind(AssertUnwindSafe(|| match &over.agent {
            Some(agent) => self.close(&over.ended, agent),
            None => self.end(&over.ended),
        }));
        let outcome = ended.unwrap_or(Ok(Outcome::Lost)).unwrap_or(Outcome::Lost);
        if outcome == Outcome::Lost {
            self.cancel_if_wanted();
        }
        // Told once it is written: one that was lost or cancelled meanwhile did not end as it thinks.
        let ended = match outcome {
            Outcome::Lost => &Ended::Lost,
            Outcome::Cancelled => &Ended::Cancelled,
            _ => &over.ended,
        };
        (self.watch)(&Event::Ended { taken: &self.taken, ended, took: begun.elapsed() });
        outcome
    }

    /// Ends a run that was cancelled before it could be begun: its token opened nothing any more, and nobody else ends it.
    fn cancel_if_wanted(&self) {
        let run = self.taken.run_id;
        let stopped = self.core.read(self.context, |reader| Ok(assignment::stopped(reader, &[run])?));
        if stopped.is_ok_and(|stopped| stopped.iter().any(|(_, has_ended)| !has_ended)) {
            let _ = self.core.execute(self.context, &CancelRun { run: run.into(), now: true });
        }
    }

    fn run(&self) -> Result<Over> {
        let run = self.taken.run_id;
        let assignment = self
            .read(|reader| Ok(assignment::of_run(reader, run)?))?
            .ok_or_else(|| Rule::not_found("the task of the run is gone"))?;
        let context = self.insist(|| self.core.enter(&self.credential()))?;
        match assignment.runner.driver() {
            Driver::Script => Ok(self.by_script(&context, &assignment).into()),
            Driver::Model => self.by_model(context, assignment),
            Driver::Outside => {
                let error =
                    "its agent is driven from outside; it takes its items itself: trackway queue take".to_owned();
                self.step(&context, StepType::Error, &error);
                Ok(Ended::Unready { error }.into())
            }
            Driver::Client(name) => self.by_client(name, &context, &assignment).map(Over::from),
        }
    }

    fn by_script(&self, context: &Context, assignment: &Assignment) -> Ended {
        let (ended, output) = self.run_script(context, assignment, self.environment(assignment));
        self.send(context, assignment, &ended, output);
        if let Some(last) = last_step(&ended) {
            self.step(context, last.step_type, &last.detail);
        }
        ended
    }

    fn run_script(
        &self,
        context: &Context,
        assignment: &Assignment,
        environment: Vec<(&'static str, OsString)>,
    ) -> (Ended, String) {
        let start = shell::Start {
            assignment,
            program: &self.settings.program,
            run: self.taken.run_id.to_string(),
            environment,
            timeout: self.settings.timeout,
        };
        let mut write = |output: &str| {
            (self.watch)(&Event::Said { taken: &self.taken, output });
            self.step(context, StepType::Shell, output);
        };
        shell::run(&start, &self.reins, &mut write)
    }

    fn by_client(&self, name: &str, context: &Context, assignment: &Assignment) -> Result<Ended> {
        let acting = self.acting()?;
        let (client, launcher) = match client::find(&self.settings.clients, name) {
            Ok(found) => found,
            Err(error) => return Ok(self.unready(context, error)),
        };
        if let Some(ended) = self.has_spent_enough(context, &acting)? {
            if let Some(last) = last_step(&ended) {
                self.step(context, last.step_type, &last.detail);
            }
            return Ok(ended);
        }
        let told = self.wake(context);
        let start = launcher.start(&told, acting.model.as_deref());
        let script = client::as_script(assignment, &start);
        let mut environment = self.environment(assignment);
        environment.extend(start.environment);
        let (ended, output) = self.run_script(context, &script, environment);
        let report = launcher.report(&output);
        for usage in client::costs(self.taken.run_id, report.as_ref(), acting.model.as_deref()) {
            // A run that was lost has nothing more to say, not even what it cost.
            let _ = self.insist(|| self.core.execute(context, &usage));
        }
        let ended = client::ended(ended, report.as_ref(), client.display_name());
        if let (Ended::Completed { message: Some(message), .. }, Some(_)) = (&ended, assignment.message_id) {
            self.send(context, assignment, &ended, message.clone());
        }
        if let Some(last) = last_step(&ended) {
            self.step(context, last.step_type, &last.detail);
        }
        let run = self.taken.run_id;
        let remembered = self.read(|reader| Ok(assignment::was_asked(reader, run)?))?;
        if acting.end_of_run && !remembered && matches!(ended, Ended::Completed { .. }) {
            let why =
                format!("{} did not say what it learned; do its hooks fire? trackway doctor", client.display_name());
            self.step(context, StepType::ScratchpadUpdateFailed, &why);
        }
        Ok(ended)
    }

    /// There is nothing to do it with here: it goes back, and the run says why.
    fn unready(&self, context: &Context, why: &str) -> Ended {
        self.step(context, StepType::Error, why);
        Ended::Unready { error: why.to_owned() }
    }

    fn has_spent_enough(&self, context: &Context, acting: &Acting) -> Result<Option<Ended>> {
        self.insist(|| has_spent_enough(self.core, context, acting))
    }

    fn acting(&self) -> Result<Acting> {
        let run = self.taken.run_id;
        let acting = self.read(|reader| Ok(assignment::acting(reader, run)?))?;
        Ok(acting.ok_or_else(|| Rule::not_found("the agent of the run is gone"))?)
    }

    fn by_model(&self, context: Context, assignment: Assignment) -> Result<Over> {
        let means = match &self.settings.means {
            Ok(means) => means.clone(),
            Err(error) => return Ok(self.unready(&context, error).into()),
        };
        let run = self.taken.run_id;
        let acting = self.acting()?;
        // Before the wake: what is written in between is seen as written by another.
        let revision = self.insist(|| scratchpad_of(self.core, &context, &acting))?.revision;
        let wake = self.wake(&context);
        let timeout = assignment.timeout.and_then(|timeout| u64::try_from(timeout.seconds()).ok());
        let deadline = Instant::now() + timeout.map_or(self.settings.timeout, Duration::from_secs);
        let job = Job {
            core: self.core,
            context: &context,
            run,
            token: &self.taken.token,
            acting: &acting,
            means: &means,
            reins: &self.reins,
            deadline,
            wake: &wake,
            revision,
            lease_seconds: self.settings.lease_seconds,
        };
        let finished = job.finish()?;
        let ended = finished.ended.clone();
        if let (Ended::Completed { message, .. }, Some(_)) = (&ended, assignment.message_id) {
            self.send(&context, &assignment, &ended, message.clone().unwrap_or_default());
        }
        Ok(Over { ended, agent: Some(Asked { assignment, acting, means, context, finished }) })
    }

    /// What the agent is told. Context never fails a wake: what cannot be had is said.
    fn wake(&self, context: &Context) -> String {
        let wake = WakeRun { run: self.taken.run_id.into() };
        match self.insist(|| self.core.execute(context, &wake)) {
            Ok(woken) => woken.text,
            Err(error) => {
                self.step(context, StepType::Error, &format!("the wake context is unavailable: {error}"));
                format!("What you need to know is unavailable: {error}. Your task is {}.", self.taken.variant)
            }
        }
    }

    /// The end of an agent's run: its token is revoked, it is asked what it learned, and all of it is written at once.
    fn close(&self, ended: &Ended, agent: &Asked) -> Result<Outcome> {
        let Some(end) = ended.of_run(self.taken.run_id) else {
            return self.end(ended);
        };
        if let Ended::Impossible { error } = ended {
            self.step(&agent.context, StepType::Error, error);
            return self.end(ended);
        }
        self.insist(|| self.core.execute(&agent.context, &RevokeRunToken { run: self.taken.run_id.into() }))?;
        let mut close = CloseRun { steps: last_step(ended).into_iter().collect(), ..closed(ended, end) };
        let asks = agent.acting.end_of_run && !matches!(ended, Ended::SpendLimit { .. });
        let until = Instant::now() + CLOSING;
        let (mut asked, mut is_short) = (0, false);
        let shown = loop {
            asked += 1;
            if asks {
                is_short |= self.ask_to_close(ended, agent, until, &mut close, is_short)?;
            }
            if let Some(Closing::Answered { is_last, .. }) = &mut close.closing {
                *is_last = asked == ASKED_MAX || Instant::now() >= until;
            }
            match self.insist(|| self.core.execute(&agent.context, &close)) {
                // Another run of this agent wrote the scratchpad meanwhile: it is asked again, about that one.
                Err(error) if error.kind() == ErrorKind::Conflict && asks && asked < ASKED_MAX => {}
                Err(error) if error.kind() == ErrorKind::Usage && close.closing.is_some() => {
                    // What the agent said cannot be kept. How its run ended stands all the same.
                    close.closing = Some(Closing::Failed { error: error.to_string() });
                    break self.insist(|| self.core.execute(&agent.context, &close))?;
                }
                closed => break closed?,
            }
        };
        Ok(outcome(shown.run.status))
    }

    /// Makes the closing call. True when the provider refused the run's own conversation.
    fn ask_to_close(
        &self,
        ended: &Ended,
        agent: &Asked,
        until: Instant,
        close: &mut CloseRun,
        is_short: bool,
    ) -> Result<bool> {
        let present = self.insist(|| scratchpad_of(self.core, self.context, &agent.acting))?;
        let last = Last {
            run: self.taken.run_id,
            acting: &agent.acting,
            means: &agent.means,
            finished: &agent.finished,
            reins: &self.reins,
            until,
            is_short,
        };
        let variant = agent.assignment.variant.to_string();
        let summary = ended.summary();
        let mut steps = agent.finished.steps.clone();
        steps.extend(last_step(ended).map(|last| format!("{}: {}", last.step_type, last.detail)));
        let told = closing::Ended {
            handle: &agent.acting.handle,
            task: &variant,
            title: agent.assignment.title.as_deref(),
            outcome: close.end.outcome.as_deref().unwrap_or_default(),
            summary: &summary,
            steps: &steps,
            scratchpad: &present.content,
        };
        let calls = agent.finished.calls + i64::try_from(close.usage.len()).unwrap_or_default();
        let closed = last.ask(&told, present.revision, calls);
        close.closing = Some(closed.closing);
        close.usage.extend(closed.usage);
        if closed.leaked {
            let detail = "the closing answer repeats the agent's instructions; it was refused".to_owned();
            close.steps.push(LastStep { step_type: StepType::SecurityWarning, detail });
        }
        if let Some(why) = &closed.refused {
            let detail = format!("the closing call did not see the conversation: {why}");
            close.steps.push(LastStep { step_type: StepType::Error, detail });
        }
        Ok(closed.refused.is_some())
    }

    /// Sends what a task said as a message of it, in answer to the one it was started by.
    fn send(&self, context: &Context, assignment: &Assignment, ended: &Ended, output: String) {
        let status = match ended {
            Ended::Completed { .. } => MessageStatus::Succeeded,
            Ended::TimedOut { .. } => MessageStatus::Timeout,
            Ended::Released | Ended::Unready { .. } | Ended::Lost | Ended::Cancelled => return,
            _ => MessageStatus::Failed,
        };
        let error = ended.error();
        let body = if output.trim().is_empty() { error.unwrap_or_default().to_owned() } else { output };
        if body.trim().is_empty() {
            return;
        }
        let message = SendMessage {
            body: text::cut(&body, text::BODY_MAX - 1),
            title: Some(assignment.variant.to_string()),
            reply_to: assignment.message_id.map(Ref::from),
            status: Some(status),
            error_message: error.map(|error| text::cut(error, text::TEXT_MAX - 1)),
            ..SendMessage::default()
        };
        // An agent may have lost the right to send: what it said still stands in its steps.
        let _ = self.insist(|| self.core.execute(context, &message));
    }

    /// Writes a step down, which is also a sign of life. A run that lost its lease has nothing more to say.
    fn step(&self, context: &Context, step_type: StepType, detail: &str) {
        let step =
            RecordStep { run: self.taken.run_id.into(), step_type, detail: Some(detail.to_owned()), after: None };
        match self.insist(|| self.core.execute(context, &step)) {
            Err(error) if matches!(error.kind(), ErrorKind::Denied | ErrorKind::Conflict) => {
                self.reins.wish(Wish::Stop);
            }
            _ => {}
        }
    }

    fn end(&self, ended: &Ended) -> Result<Outcome> {
        let (id, fence) = (Ref::from(self.taken.id), self.taken.fence);
        match ended {
            Ended::Impossible { error } => {
                self.write(&FailItem { id, fence, error: error.clone(), for_good: true })?;
                Ok(Outcome::Failed)
            }
            Ended::Released => {
                self.write(&ReleaseItem { id, fence })?;
                Ok(Outcome::Released)
            }
            Ended::Unready { .. } => {
                self.write(&ReleaseItem { id, fence })?;
                Ok(Outcome::Unable)
            }
            ended => match ended.of_run(self.taken.run_id) {
                None => Ok(Outcome::Lost),
                Some(end) => Ok(outcome(self.write(&closed(ended, end))?.run.status)),
            },
        }
    }

    /// Writes how it ended, in the run itself: whoever has no lease any more is refused.
    fn write<A: Action>(&self, action: &A) -> Result<A::Output> {
        self.insist(|| {
            let context = self.core.enter(&self.credential())?;
            self.core.execute(&context, action)
        })
    }

    fn read<T>(&self, question: impl Fn(&mut Reader<'_>) -> Result<T>) -> Result<T> {
        self.insist(|| self.core.read(self.context, &question))
    }

    fn insist<T>(&self, deed: impl FnMut() -> Result<T>) -> Result<T> {
        insist(self.settings.lease_seconds, &self.reins, deed)
    }

    fn credential(&self) -> Credential {
        Credential::Token(Secret(self.taken.token.clone()))
    }

    /// What a script finds in its environment: who it is, where the record is, and what it answers.
    fn environment(&self, assignment: &Assignment) -> Vec<(&'static str, OsString)> {
        let mut environment: Vec<(&'static str, OsString)> = vec![
            ("TRACKWAY_TOKEN", self.taken.token.clone().into()),
            ("TRACKWAY_DB", self.core.store().url().whole().into()),
            ("TRACKWAY_TASK", self.taken.variant.to_string().into()),
            ("TRACKWAY_QUEUE_ITEM", self.taken.id.to_string().into()),
            ("TRACKWAY_ATTEMPT", self.taken.attempt.to_string().into()),
        ];
        if let Some(description) = &assignment.description {
            environment.push(("TRACKWAY_DESCRIPTION", short_enough(description).into()));
        }
        if let Some(message) = assignment.message_id {
            environment.push(("TRACKWAY_MESSAGE", message.to_string().into()));
        }
        // So that `trackway` in a script is this one.
        let own = self.settings.program.parent().map(PathBuf::from);
        let paths = std::env::var_os("PATH").filter(|paths| !paths.is_empty()).unwrap_or_else(|| USUAL_PATH.into());
        let paths = own.into_iter().chain(std::env::split_paths(&paths));
        environment.extend(std::env::join_paths(paths).ok().map(|paths| ("PATH", paths)));
        environment
    }
}

/// What fits into one variable of the environment, which systems limit to 128 KiB.
fn short_enough(description: &str) -> String {
    if description.len() < 100_000 { description.to_owned() } else { text::cut(description, 24_000) }
}

/// How a job came out, by the end of its run as it was written.
fn outcome(status: RunStatus) -> Outcome {
    match status {
        RunStatus::Completed => Outcome::Completed,
        RunStatus::Cancelled => Outcome::Cancelled,
        _ => Outcome::Failed,
    }
}

/// The end of a run as it is written down, with nothing else to say.
fn closed(ended: &Ended, end: EndRun) -> CloseRun {
    let not_before = if let Ended::SpendLimit { until, .. } = ended { Some(*until) } else { None };
    let is_answer = matches!(ended, Ended::AgentError { .. });
    CloseRun { end, steps: Vec::new(), closing: None, usage: Vec::new(), not_before, is_answer }
}

/// The step that says how a run ended.
fn last_step(ended: &Ended) -> Option<LastStep> {
    let (step_type, detail) = match ended {
        Ended::Completed { message, result } if result.get("exit_code").is_none() => {
            (StepType::Done, message.clone().unwrap_or_default())
        }
        Ended::Completed { .. } => (StepType::Done, "exit code 0".to_owned()),
        Ended::MaxSteps { steps } => (StepType::Error, format!("max steps reached: {steps}")),
        Ended::Cancelled => (StepType::Error, "cancelled".to_owned()),
        Ended::Released | Ended::Unready { .. } | Ended::Lost => return None,
        other => (StepType::Error, other.error()?.lines().next().unwrap_or_default().to_owned()),
    };
    Some(LastStep { step_type, detail })
}

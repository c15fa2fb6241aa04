//! Executes one taken queue item, by a script, a model or a client, and records how its run ended.

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
    queue::{FailItem, ReleaseItem, TakenItem},
    run::{CancelRun, CloseRun, EndOfRunOutcome, EndRun, LastStep, RecordStep, RevokeRunToken, WakeRun},
};
use trackway_domain::{
    Error as Rule, ErrorKind, Ref, closing,
    enums::{Driver, MessageStatus, RunStatus, StepType},
    text,
};
use trackway_store::Reader;
use trackway_views::assignment::{self, ActingAgent, Assignment};

use crate::{
    agent::{AgentBackend, AgentRun, CLOSING_TIMEOUT, ClosingCall, FinishedRun, scratchpad_of, spend_limit_reached},
    client,
    executor::{ExecutionEnd, JobControl, JobRequest},
    retry::retry,
    shell,
    worker::{EventHandler, JobOutcome, Settings, WorkerEvent},
};

/// Used when PATH is not set.
const DEFAULT_PATH: &str = "/usr/local/bin:/usr/bin:/bin";
/// Maximum number of closing calls for one run. The call is repeated when another run of the agent changed the
/// scratchpad in between.
const CLOSING_CALLS_MAX: usize = 3;

pub(crate) struct Execution<'a> {
    pub core: &'a Core,
    pub context: &'a Context,
    pub settings: &'a Settings,
    pub on_event: EventHandler<'a>,
    pub taken: TakenItem,
    pub control: Arc<JobControl>,
}

struct ExecutedRun {
    end: ExecutionEnd,
    /// Set for runs of a model.
    agent: Option<ClosingContext>,
}

/// The input of the closing call.
struct ClosingContext {
    assignment: Assignment,
    acting: ActingAgent,
    backend: AgentBackend,
    context: Context,
    finished: FinishedRun,
}

impl From<ExecutionEnd> for ExecutedRun {
    fn from(end: ExecutionEnd) -> Self {
        Self { end, agent: None }
    }
}

impl Execution<'_> {
    pub(crate) fn execute(&self) -> JobOutcome {
        let start = Instant::now();
        // A panic in one job must not end the worker.
        let executed = catch_unwind(AssertUnwindSafe(|| self.run())).unwrap_or_else(|_| {
            Ok(ExecutionEnd::Exception { error: "internal error: executing the item panicked".to_owned() }.into())
        });
        let executed = executed.unwrap_or_else(|error| ExecutionEnd::Exception { error: error.to_string() }.into());
        let end = catch_unwind(AssertUnwindSafe(|| match &executed.agent {
            Some(agent) => self.close(&executed.end, agent),
            None => self.record_end(&executed.end),
        }));
        let outcome = end.unwrap_or(Ok(JobOutcome::Lost)).unwrap_or(JobOutcome::Lost);
        if outcome == JobOutcome::Lost {
            self.cancel_if_requested();
        }
        // Report the end that was recorded: the item may have been lost or cancelled in the meantime.
        let end = match outcome {
            JobOutcome::Lost => &ExecutionEnd::Lost,
            JobOutcome::Cancelled => &ExecutionEnd::Cancelled,
            _ => &executed.end,
        };
        (self.on_event)(&WorkerEvent::Finished { taken: &self.taken, end, duration: start.elapsed() });
        outcome
    }

    /// Ends a run that was cancelled before its execution began. Its token was revoked, so no other code ends the run.
    fn cancel_if_requested(&self) {
        let run = self.taken.run_id;
        let stopped = self.core.read(self.context, |reader| Ok(assignment::runs_to_stop(reader, &[run])?));
        if stopped.is_ok_and(|stopped| stopped.iter().any(|(_, has_ended)| !has_ended)) {
            let _ = self.core.execute(self.context, &CancelRun { run: run.into(), now: true });
        }
    }

    fn run(&self) -> Result<ExecutedRun> {
        let run = self.taken.run_id;
        let assignment = self
            .read(|reader| Ok(assignment::of_run(reader, run)?))?
            .ok_or_else(|| Rule::not_found("the task of the run no longer exists"))?;
        let context = self.retry(|| self.core.authenticate(&self.credential()))?;
        match assignment.runner.driver() {
            Driver::Script => Ok(self.run_by_script(&context, &assignment).into()),
            Driver::Model => self.run_by_model(context, assignment),
            Driver::External => {
                let error =
                    "a worker cannot run an external agent; it takes its own items: trackway queue take".to_owned();
                self.step(&context, StepType::Error, &error);
                Ok(ExecutionEnd::Unavailable { error }.into())
            }
            Driver::Client(name) => self.run_by_client(name, &context, &assignment).map(ExecutedRun::from),
        }
    }

    fn run_by_script(&self, context: &Context, assignment: &Assignment) -> ExecutionEnd {
        let (end, output) = self.run_script(context, assignment, self.environment(assignment));
        self.send(context, assignment, &end, output);
        if let Some(last) = last_step(&end) {
            self.step(context, last.step_type, &last.detail);
        }
        end
    }

    fn run_script(
        &self,
        context: &Context,
        assignment: &Assignment,
        environment: Vec<(&'static str, OsString)>,
    ) -> (ExecutionEnd, String) {
        let start = shell::ScriptStart {
            assignment,
            program: &self.settings.program,
            run_id: self.taken.run_id.to_string(),
            environment,
            timeout: self.settings.timeout,
        };
        let mut write = |output: &str| {
            (self.on_event)(&WorkerEvent::Output { taken: &self.taken, output });
            self.step(context, StepType::Shell, output);
        };
        shell::run(&start, &self.control, &mut write)
    }

    fn run_by_client(&self, name: &str, context: &Context, assignment: &Assignment) -> Result<ExecutionEnd> {
        let acting = self.acting_agent()?;
        let (client, launcher) = match client::find(&self.settings.clients, name) {
            Ok(found) => found,
            Err(error) => return Ok(self.unavailable(context, error)),
        };
        if let Some(end) = self.spend_limit_reached(context, &acting)? {
            if let Some(last) = last_step(&end) {
                self.step(context, last.step_type, &last.detail);
            }
            return Ok(end);
        }
        let wake_prompt = self.wake(context);
        let start = launcher.launch_script(&wake_prompt, acting.model.as_deref(), acting.step_limit);
        let script = client::as_script(assignment, &start);
        let mut environment = self.environment(assignment);
        environment.extend(start.environment);
        let (end, output) = self.run_script(context, &script, environment);
        let report = launcher.parse_report(&output);
        for usage in client::cost_actions(self.taken.run_id, report.as_ref(), acting.model.as_deref()) {
            // Fails when the run was lost: its token no longer works.
            let _ = self.retry(|| self.core.execute(context, &usage));
        }
        let end = client::end_from_report(end, report.as_ref(), client.display_name(), acting.max_steps);
        if let (ExecutionEnd::Completed { message: Some(message), .. }, Some(_)) = (&end, assignment.message_id) {
            self.send(context, assignment, &end, message.clone());
        }
        if let Some(last) = last_step(&end) {
            self.step(context, last.step_type, &last.detail);
        }
        let run = self.taken.run_id;
        let was_asked = self.read(|reader| Ok(assignment::has_closing_answer(reader, run)?))?;
        if acting.end_of_run && !was_asked && matches!(end, ExecutionEnd::Completed { .. }) {
            let name = client.display_name();
            let why = format!("{name} did not answer the end-of-run prompt; to check its hooks: trackway doctor");
            self.step(context, StepType::ScratchpadUpdateFailed, &why);
        }
        Ok(end)
    }

    /// Records why the agent cannot run here. The item is released.
    fn unavailable(&self, context: &Context, why: &str) -> ExecutionEnd {
        self.step(context, StepType::Error, why);
        ExecutionEnd::Unavailable { error: why.to_owned() }
    }

    fn spend_limit_reached(&self, context: &Context, acting: &ActingAgent) -> Result<Option<ExecutionEnd>> {
        self.retry(|| spend_limit_reached(self.core, context, acting))
    }

    fn acting_agent(&self) -> Result<ActingAgent> {
        let run = self.taken.run_id;
        let acting = self.read(|reader| Ok(assignment::acting_agent(reader, run)?))?;
        Ok(acting.ok_or_else(|| Rule::not_found("the agent of the run no longer exists"))?)
    }

    fn run_by_model(&self, context: Context, assignment: Assignment) -> Result<ExecutedRun> {
        let backend = match &self.settings.backend {
            Ok(backend) => backend.clone(),
            Err(error) => return Ok(self.unavailable(&context, error).into()),
        };
        let run = self.taken.run_id;
        let acting = self.acting_agent()?;
        // Read the revision before the wake prompt, so that a change between the two counts as a change by another run.
        let revision = self.retry(|| scratchpad_of(self.core, &context, &acting))?.revision;
        let wake = self.wake(&context);
        let timeout = assignment.timeout.and_then(|timeout| u64::try_from(timeout.seconds()).ok());
        let deadline = Instant::now() + timeout.map_or(self.settings.timeout, Duration::from_secs);
        let agent_run = AgentRun {
            core: self.core,
            context: &context,
            run,
            token: &self.taken.token,
            acting: &acting,
            backend: &backend,
            control: &self.control,
            deadline,
            wake: &wake,
            revision,
            lease_seconds: self.settings.lease_seconds,
        };
        let finished = agent_run.run_to_end()?;
        let end = finished.end.clone();
        if let (ExecutionEnd::Completed { message, .. }, Some(_)) = (&end, assignment.message_id) {
            self.send(&context, &assignment, &end, message.clone().unwrap_or_default());
        }
        Ok(ExecutedRun { end, agent: Some(ClosingContext { assignment, acting, backend, context, finished }) })
    }

    /// The wake prompt. A failure does not fail the run: the prompt then says that the context is unavailable.
    fn wake(&self, context: &Context) -> String {
        let wake = WakeRun { run: self.taken.run_id.into() };
        match self.retry(|| self.core.execute(context, &wake)) {
            Ok(woken) => woken.text,
            Err(error) => {
                self.step(context, StepType::Error, &format!("the wake context is unavailable: {error}"));
                format!("What you need to know is unavailable: {error}. Your task is {}.", self.taken.variant)
            }
        }
    }

    /// Ends a model's run: revokes its token, makes the closing call, and records the answer and the end in one
    /// transaction.
    fn close(&self, end: &ExecutionEnd, agent: &ClosingContext) -> Result<JobOutcome> {
        let Some(end_run) = end.end_run(self.taken.run_id) else {
            return self.record_end(end);
        };
        if let ExecutionEnd::Impossible { error } = end {
            self.step(&agent.context, StepType::Error, error);
            return self.record_end(end);
        }
        self.retry(|| self.core.execute(&agent.context, &RevokeRunToken { run: self.taken.run_id.into() }))?;
        let mut close = CloseRun { steps: last_step(end).into_iter().collect(), ..close_request(end, end_run) };
        let asks_agent = agent.acting.end_of_run && !matches!(end, ExecutionEnd::SpendLimit { .. });
        let deadline = Instant::now() + CLOSING_TIMEOUT;
        let (mut calls_made, mut is_short) = (0, false);
        let shown = loop {
            calls_made += 1;
            if asks_agent {
                is_short |= self.ask_to_close(end, agent, deadline, &mut close, is_short)?;
            }
            if let Some(EndOfRunOutcome::Answered { is_last, .. }) = &mut close.closing {
                *is_last = calls_made == CLOSING_CALLS_MAX || Instant::now() >= deadline;
            }
            match self.retry(|| self.core.execute(&agent.context, &close)) {
                // Another run of this agent changed the scratchpad: ask again, with the changed scratchpad.
                Err(error) if error.kind() == ErrorKind::Conflict && asks_agent && calls_made < CLOSING_CALLS_MAX => {}
                Err(error) if error.kind() == ErrorKind::Usage && close.closing.is_some() => {
                    // The answer is invalid. Record how the run ended without it.
                    close.closing = Some(EndOfRunOutcome::Failed { error: error.to_string() });
                    break self.retry(|| self.core.execute(&agent.context, &close))?;
                }
                result => break result?,
            }
        };
        Ok(job_outcome(shown.run.status))
    }

    /// Makes the closing call. Returns true if the provider rejected the run's conversation.
    fn ask_to_close(
        &self,
        end: &ExecutionEnd,
        agent: &ClosingContext,
        deadline: Instant,
        close: &mut CloseRun,
        is_short: bool,
    ) -> Result<bool> {
        let scratchpad = self.retry(|| scratchpad_of(self.core, self.context, &agent.acting))?;
        let call = ClosingCall {
            run: self.taken.run_id,
            acting: &agent.acting,
            backend: &agent.backend,
            finished: &agent.finished,
            control: &self.control,
            deadline,
            is_short,
        };
        let variant = agent.assignment.variant.to_string();
        let summary = end.summary();
        let mut steps = agent.finished.steps.clone();
        steps.extend(last_step(end).map(|last| format!("{}: {}", last.step_type, last.detail)));
        let ended_run = closing::EndedRun {
            handle: &agent.acting.handle,
            task: &variant,
            title: agent.assignment.title.as_deref(),
            outcome: close.end.outcome.as_deref().unwrap_or_default(),
            summary: &summary,
            steps: &steps,
            scratchpad: &scratchpad.content,
        };
        let calls = agent.finished.calls + i64::try_from(close.usage.len()).unwrap_or_default();
        let result = call.ask(&ended_run, scratchpad.revision, calls);
        close.closing = Some(result.closing);
        close.usage.extend(result.usage);
        if result.has_leak {
            let detail = "the closing answer repeats the agent's instructions; it was rejected".to_owned();
            close.steps.push(LastStep { step_type: StepType::SecurityWarning, detail });
        }
        if let Some(why) = &result.rejection {
            let detail = format!("the provider rejected the conversation; the closing call was made without it: {why}");
            close.steps.push(LastStep { step_type: StepType::Error, detail });
        }
        Ok(result.rejection.is_some())
    }

    /// Sends the task's output as a message, in reply to the message that started the task.
    fn send(&self, context: &Context, assignment: &Assignment, end: &ExecutionEnd, output: String) {
        let status = match end {
            ExecutionEnd::Completed { .. } => MessageStatus::Succeeded,
            ExecutionEnd::TimedOut { .. } => MessageStatus::Timeout,
            ExecutionEnd::Released
            | ExecutionEnd::Unavailable { .. }
            | ExecutionEnd::Lost
            | ExecutionEnd::Cancelled => return,
            _ => MessageStatus::Failed,
        };
        let error = end.error();
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
        // The agent may lack the capability to send messages. The output is in the steps of the run, too.
        let _ = self.retry(|| self.core.execute(context, &message));
    }

    /// Records a step, which also extends the lease. Stops the job if the run has lost its lease.
    fn step(&self, context: &Context, step_type: StepType, detail: &str) {
        let step =
            RecordStep { run: self.taken.run_id.into(), step_type, detail: Some(detail.to_owned()), after: None };
        match self.retry(|| self.core.execute(context, &step)) {
            Err(error) if matches!(error.kind(), ErrorKind::Denied | ErrorKind::Conflict) => {
                self.control.request(JobRequest::Abort);
            }
            _ => {}
        }
    }

    fn record_end(&self, end: &ExecutionEnd) -> Result<JobOutcome> {
        let (id, fence) = (Ref::from(self.taken.id), self.taken.fence);
        match end {
            ExecutionEnd::Impossible { error } => {
                self.write_as_run(&FailItem { id, fence, error: error.clone(), for_good: true })?;
                Ok(JobOutcome::Failed)
            }
            ExecutionEnd::Released => {
                self.write_as_run(&ReleaseItem { id, fence })?;
                Ok(JobOutcome::Released)
            }
            ExecutionEnd::Unavailable { .. } => {
                self.write_as_run(&ReleaseItem { id, fence })?;
                Ok(JobOutcome::Unavailable)
            }
            end => match end.end_run(self.taken.run_id) {
                None => Ok(JobOutcome::Lost),
                Some(end_run) => Ok(job_outcome(self.write_as_run(&close_request(end, end_run))?.run.status)),
            },
        }
    }

    /// Executes an action with the run's token. Fails when the run has lost its lease.
    fn write_as_run<A: Action>(&self, action: &A) -> Result<A::Output> {
        self.retry(|| {
            let context = self.core.authenticate(&self.credential())?;
            self.core.execute(&context, action)
        })
    }

    fn read<T>(&self, question: impl Fn(&mut Reader<'_>) -> Result<T>) -> Result<T> {
        self.retry(|| self.core.read(self.context, &question))
    }

    fn retry<T>(&self, call: impl FnMut() -> Result<T>) -> Result<T> {
        retry(self.settings.lease_seconds, &self.control, call)
    }

    fn credential(&self) -> Credential {
        Credential::Token(Secret(self.taken.token.clone()))
    }

    /// The environment variables of a script.
    fn environment(&self, assignment: &Assignment) -> Vec<(&'static str, OsString)> {
        let mut environment: Vec<(&'static str, OsString)> = vec![
            ("TRACKWAY_TOKEN", self.taken.token.clone().into()),
            ("TRACKWAY_DB", self.core.store().url().with_password().into()),
            ("TRACKWAY_TASK", self.taken.variant.to_string().into()),
            ("TRACKWAY_QUEUE_ITEM", self.taken.id.to_string().into()),
            ("TRACKWAY_ATTEMPT", self.taken.attempt.to_string().into()),
        ];
        if let Some(description) = &assignment.description {
            environment.push(("TRACKWAY_DESCRIPTION", fit_environment(description).into()));
        }
        if let Some(message) = assignment.message_id {
            environment.push(("TRACKWAY_MESSAGE", message.to_string().into()));
        }
        // Our directory comes first, so that a script's `trackway` is this binary.
        let own = self.settings.program.parent().map(PathBuf::from);
        let paths = std::env::var_os("PATH").filter(|paths| !paths.is_empty()).unwrap_or_else(|| DEFAULT_PATH.into());
        let paths = own.into_iter().chain(std::env::split_paths(&paths));
        environment.extend(std::env::join_paths(paths).ok().map(|paths| ("PATH", paths)));
        environment
    }
}

/// Cuts a text to fit into an environment variable, which Linux limits to 128 KiB.
fn fit_environment(description: &str) -> String {
    if description.len() < 100_000 { description.to_owned() } else { text::cut(description, 24_000) }
}

fn job_outcome(status: RunStatus) -> JobOutcome {
    match status {
        RunStatus::Completed => JobOutcome::Completed,
        RunStatus::Cancelled => JobOutcome::Cancelled,
        _ => JobOutcome::Failed,
    }
}

/// Ends a run without a closing answer.
fn close_request(end: &ExecutionEnd, end_run: EndRun) -> CloseRun {
    let not_before = if let ExecutionEnd::SpendLimit { until, .. } = end { Some(*until) } else { None };
    let is_answer = matches!(end, ExecutionEnd::AgentError { .. });
    CloseRun { end: end_run, steps: Vec::new(), closing: None, usage: Vec::new(), not_before, is_answer }
}

/// The step that records how a run ended.
fn last_step(end: &ExecutionEnd) -> Option<LastStep> {
    let (step_type, detail) = match end {
        ExecutionEnd::Completed { message, result } if result.get("exit_code").is_none() => {
            (StepType::Done, message.clone().unwrap_or_default())
        }
        ExecutionEnd::Completed { .. } => (StepType::Done, "exit code 0".to_owned()),
        ExecutionEnd::MaxSteps { steps } => (StepType::Error, format!("max steps reached: {steps}")),
        ExecutionEnd::Cancelled => (StepType::Error, "cancelled".to_owned()),
        ExecutionEnd::Released | ExecutionEnd::Unavailable { .. } | ExecutionEnd::Lost => return None,
        other => (StepType::Error, other.error()?.lines().next().unwrap_or_default().to_owned()),
    };
    Some(LastStep { step_type, detail })
}

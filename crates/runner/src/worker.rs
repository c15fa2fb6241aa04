//! The worker takes ready queue items, starts a job for each, extends their leases and records how they end. When it
//! stops, it completes or releases all items it holds.

use std::{
    collections::{BTreeSet, HashMap},
    path::PathBuf,
    sync::{
        Arc, Weak,
        mpsc::{Receiver, RecvTimeoutError, Sender},
    },
    thread,
    time::{Duration, Instant},
};

use serde::Serialize;
use trackway_actions::{
    Context, Core, Error,
    queue::{HeartbeatItem, TakeItems, TakenItem},
    run::CancelRun,
};
use trackway_domain::{Error as Rule, Id, Ref, kind};
use trackway_store::queue_notify::Listener;
use trackway_views::assignment::{self, SkippedItems};

use crate::{
    agent::AgentBackend,
    agent_selection::{AgentSelection, ServedAgent, check},
    client::LaunchableClient,
    execution::Execution,
    executor::{ExecutionEnd, JobControl, JobRequest},
    process_cleanup,
    retry::RETRY_DELAY,
};

/// The interval at which an idle worker checks the queue, in case a notification was lost.
const QUEUE_POLL_INTERVAL: Duration = Duration::from_secs(10);
/// The interval at which a worker checks whether its jobs were cancelled, in case a notification was lost.
const CANCEL_POLL_INTERVAL: Duration = Duration::from_secs(5);
/// A worker that serves everyone reloads the list of agents at most this often.
const AGENTS_POLL_INTERVAL: Duration = Duration::from_secs(1);

#[derive(Debug, Clone)]
pub struct Settings {
    pub selection: AgentSelection,
    /// The maximum number of running jobs for each served agent.
    pub concurrency: usize,
    /// Whether to stop when no item is ready.
    pub once: bool,
    pub lease_seconds: i64,
    /// The timeout of tasks without a timeout of their own.
    pub timeout: Duration,
    /// Time for jobs to finish after the worker was asked to stop.
    pub grace: Duration,
    pub on_stop: OnStop,
    /// The path of the `trackway` binary.
    pub program: PathBuf,
    /// The model and pages of agents, or the reason why they are unavailable.
    pub backend: Result<AgentBackend, String>,
    pub clients: Vec<LaunchableClient>,
}

/// The treatment of unfinished jobs when the worker stops.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnStop {
    /// Return their items to the queue, so that another worker takes them.
    Release,
    Cancel,
}

#[derive(Debug)]
pub enum WorkerMessage {
    QueueChanged,
    JobFinished(Id<kind::Run>, JobOutcome),
    /// Stop after the grace period. A second `Stop` ends the jobs at once.
    Stop,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JobOutcome {
    Completed,
    Failed,
    /// Includes a job that finished its work before it noticed the cancellation.
    Cancelled,
    Released,
    /// Released, because the model or client of its agent is unavailable here.
    Unavailable,
    /// The worker no longer holds the item.
    Lost,
}

/// An event that a worker reports to its caller.
#[derive(Debug)]
pub enum WorkerEvent<'a> {
    Taken(&'a TakenItem),
    /// A script printed something.
    Output {
        taken: &'a TakenItem,
        output: &'a str,
    },
    Finished {
        taken: &'a TakenItem,
        end: &'a ExecutionEnd,
        duration: Duration,
    },
    NotServed {
        agent: &'a str,
        why: &'a str,
    },
    /// Ready items that the worker does not take, because they belong to agents it does not serve.
    ItemsSkipped(&'a SkippedItems),
    DatabaseUnavailable(&'a Error),
    DatabaseAvailable,
}

/// Receives the events of a worker. Several threads call it.
pub type EventHandler<'a> = &'a (dyn Fn(&WorkerEvent<'_>) + Sync);

/// The number of items that a worker took, in total and by outcome.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize)]
pub struct Tally {
    pub taken: usize,
    pub completed: usize,
    pub failed: usize,
    pub released: usize,
    pub lost: usize,
}

struct RunningJob {
    taken: TakenItem,
    /// The served agent; none for the worker itself.
    agent: Option<String>,
    control: Arc<JobControl>,
    last_heartbeat: Instant,
}

/// Runs a worker until it receives [`WorkerMessage::Stop`], or with `once` until no item is ready. The worker receives
/// messages from `channel`; its jobs send to the other end.
pub fn work(
    core: &Core,
    context: &Context,
    settings: &Settings,
    channel: (&Sender<WorkerMessage>, &Receiver<WorkerMessage>),
    on_event: EventHandler<'_>,
) -> trackway_actions::Result<Tally> {
    work_on(Vec::new(), core, context, settings, channel, on_event)
}

/// Runs a worker that first executes items taken by the caller. With a concurrency of 0 it takes no further items.
pub fn work_on(
    taken: Vec<TakenItem>,
    core: &Core,
    context: &Context,
    settings: &Settings,
    (sender, messages): (&Sender<WorkerMessage>, &Receiver<WorkerMessage>),
    on_event: EventHandler<'_>,
) -> trackway_actions::Result<Tally> {
    check(core, context, settings)?;
    process_cleanup::adopt_orphans();
    let alive = Arc::new(());
    forward_notifications(core, sender.clone(), Arc::downgrade(&alive));
    let mut taken: Vec<(Option<String>, TakenItem)> = taken.into_iter().map(|taken| (None, taken)).collect();
    thread::scope(|scope| {
        let mut worker = Worker {
            core,
            context,
            settings,
            on_event,
            tally: Tally::default(),
            jobs: HashMap::new(),
            retry_delay: None,
            cancel_checked_at: Instant::now(),
            stop_at: None,
            served: Vec::new(),
            agents_checked_at: None,
            not_served: BTreeSet::new(),
            is_idle: false,
            has_reported_skipped: false,
            has_connected: !taken.is_empty(),
        };
        loop {
            taken.extend(worker.take_items()?);
            for (agent, taken) in taken.drain(..) {
                let control = Arc::new(JobControl::default());
                let (job, sender) = (worker.execution(&taken, &control), sender.clone());
                worker.jobs.insert(taken.run_id, RunningJob { taken, agent, control, last_heartbeat: Instant::now() });
                scope.spawn(move || {
                    let run = job.taken.run_id;
                    let outcome = job.execute();
                    let _ = sender.send(WorkerMessage::JobFinished(run, outcome));
                });
            }
            if worker.is_done() {
                return Ok(worker.tally);
            }
            match messages.recv_timeout(worker.time_to_wait()?) {
                Ok(message) => {
                    worker.handle(message)?;
                    for message in messages.try_iter() {
                        worker.handle(message)?;
                    }
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => worker.handle(WorkerMessage::Stop)?,
            }
            worker.maintain_jobs();
        }
    })
}

/// Listens for queue notifications in a thread, and forwards them while the worker is alive.
fn forward_notifications(core: &Core, sender: Sender<WorkerMessage>, worker: Weak<()>) {
    let url = core.store().url().clone();
    thread::spawn(move || {
        while worker.strong_count() > 0 {
            if let Ok(mut listener) = Listener::connect(&url) {
                loop {
                    let notified = listener.wait(QUEUE_POLL_INTERVAL);
                    // A timeout needs no message, because the worker polls by itself. A lost connection needs a
                    // message, because notifications may have been lost.
                    let should_notify = !matches!(notified, Ok(false));
                    if worker.strong_count() == 0
                        || (should_notify && sender.send(WorkerMessage::QueueChanged).is_err())
                    {
                        return;
                    }
                    if notified.is_err() {
                        break;
                    }
                }
            }
            thread::sleep(RETRY_DELAY.1);
            if sender.send(WorkerMessage::QueueChanged).is_err() {
                return;
            }
        }
    });
}

struct Worker<'a> {
    core: &'a Core,
    context: &'a Context,
    settings: &'a Settings,
    on_event: EventHandler<'a>,
    tally: Tally,
    jobs: HashMap<Id<kind::Run>, RunningJob>,
    /// The delay before the next database call, while the database is unavailable.
    retry_delay: Option<Duration>,
    /// The time of the last check whether jobs were cancelled.
    cancel_checked_at: Instant,
    /// The time at which to end the jobs, after a `Stop` message.
    stop_at: Option<Instant>,
    served: Vec<ServedAgent>,
    agents_checked_at: Option<Instant>,
    /// Agents that cannot run here. Each was reported once.
    not_served: BTreeSet<String>,
    /// Whether the last take found no item.
    is_idle: bool,
    has_reported_skipped: bool,
    /// Whether a database call has ever succeeded. If so, a rejected login is transient, and retried.
    has_connected: bool,
}

impl<'a> Worker<'a> {
    /// Takes items for each served agent, up to the concurrency limit.
    fn take_items(&mut self) -> trackway_actions::Result<Vec<(Option<String>, TakenItem)>> {
        if self.settings.concurrency == 0 || self.stop_at.is_some() {
            return Ok(Vec::new());
        }
        self.refresh_served_agents()?;
        if self.is_idle {
            let has_items = self.try_database(|worker| {
                worker
                    .core
                    .read(worker.context, |reader| Ok(assignment::has_takeable_items(reader, worker.core.now())?))
            })?;
            if has_items == Some(false) {
                return Ok(Vec::new());
            }
        }
        let mut all = Vec::new();
        for served in self.served.clone() {
            let free = self.free_slots(&served);
            if free == 0 {
                continue;
            }
            let take = TakeItems {
                agent: served.agent.as_deref().map(Ref::new),
                lease: Some(self.settings.lease_seconds),
                batch: i64::try_from(free).ok(),
                id: None,
                done: Vec::new(),
                unassigned: served.unassigned,
            };
            let taken = match self.try_database(|worker| worker.core.execute(worker.context, &take)) {
                // The agent may have been archived since the list was loaded. Reload the list, and serve the other
                // agents.
                Err(_) if self.settings.selection == AgentSelection::Everyone && served.agent.is_some() => {
                    self.agents_checked_at = None;
                    None
                }
                taken => taken?,
            };
            self.tally.taken += taken.as_ref().map_or(0, Vec::len);
            for taken in taken.into_iter().flatten() {
                (self.on_event)(&WorkerEvent::Taken(&taken));
                all.push((served.agent.clone(), taken));
            }
        }
        self.is_idle = all.is_empty();
        if self.is_idle && !self.has_reported_skipped {
            self.report_skipped_items()?;
        }
        Ok(all)
    }

    fn refresh_served_agents(&mut self) -> trackway_actions::Result<()> {
        let is_fixed = self.settings.selection != AgentSelection::Everyone;
        if self.agents_checked_at.is_some_and(|at| at.elapsed() < AGENTS_POLL_INTERVAL || is_fixed) {
            return Ok(());
        }
        let mut not_served = std::mem::take(&mut self.not_served);
        let served = self.try_database(|worker| {
            worker.settings.served_agents(worker.core, worker.context, &mut not_served, worker.on_event)
        });
        self.not_served = not_served;
        if let Some(mut served) = served? {
            served.retain(|served| served.agent.as_ref().is_none_or(|agent| !self.not_served.contains(agent)));
            self.served = served;
            self.agents_checked_at = Some(Instant::now());
        }
        Ok(())
    }

    fn free_slots(&self, served: &ServedAgent) -> usize {
        let held = self.jobs.values().filter(|job| job.agent == served.agent).count();
        self.settings.concurrency.saturating_sub(held)
    }

    /// Reports once the ready items of agents that this worker does not serve.
    fn report_skipped_items(&mut self) -> trackway_actions::Result<()> {
        let left = self
            .try_database(|worker| worker.core.read(worker.context, |reader| Ok(assignment::skipped_items(reader)?)))?
            .unwrap_or_default();
        let is_served = |left: &SkippedItems| {
            self.served.iter().any(|served| match &left.agent {
                Some(agent) => served.agent.as_ref() == Some(agent),
                None => served.agent.is_some(),
            })
        };
        let left: Vec<SkippedItems> = left.into_iter().filter(|left| !is_served(left)).collect();
        self.has_reported_skipped = !left.is_empty();
        for left in &left {
            (self.on_event)(&WorkerEvent::ItemsSkipped(left));
        }
        Ok(())
    }

    /// Calls the database. Returns None, and schedules a retry, if the failure is transient.
    fn try_database<T>(
        &mut self,
        call: impl FnOnce(&Self) -> trackway_actions::Result<T>,
    ) -> trackway_actions::Result<Option<T>> {
        match call(self) {
            Ok(done) => {
                self.has_connected = true;
                if self.retry_delay.take().is_some() {
                    (self.on_event)(&WorkerEvent::DatabaseAvailable);
                }
                Ok(Some(done))
            }
            // At the first take, a full or read-only disk is an error, because the settings are probably wrong. Later
            // takes are retried, because space may be freed.
            Err(error)
                if (error.is_transient() && (self.tally.taken > 0 || !error.is_full_or_read_only()))
                    || (error.is_login_rejected() && self.has_connected) =>
            {
                match self.retry_delay {
                    None => {
                        (self.on_event)(&WorkerEvent::DatabaseUnavailable(&error));
                        self.retry_delay = Some(RETRY_DELAY.0);
                    }
                    Some(wait) => self.retry_delay = Some((wait * 2).min(RETRY_DELAY.1)),
                }
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    fn is_done(&self) -> bool {
        // A worker that takes no more items does not wait for the database.
        let is_last = self.settings.once && (self.retry_delay.is_none() || self.settings.concurrency == 0);
        self.jobs.is_empty() && (self.stop_at.is_some() || is_last)
    }

    /// The timeout of the next wait for a message.
    fn time_to_wait(&mut self) -> trackway_actions::Result<Duration> {
        if let Some(wait) = self.retry_delay {
            return Ok(wait);
        }
        let mut wait = QUEUE_POLL_INTERVAL;
        if !self.jobs.is_empty() {
            wait = wait.min(self.heartbeat_interval() / 2).min(CANCEL_POLL_INTERVAL);
        }
        if let Some(until) = self.stop_at {
            wait = wait.min(until.saturating_duration_since(Instant::now()));
        }
        if self.stop_at.is_none() && self.served.iter().any(|served| self.free_slots(served) > 0) {
            let next = self.try_database(|worker| {
                worker.core.read(worker.context, |reader| Ok(assignment::next_due_time(reader)?))
            })?;
            if let Some(next) = next.flatten() {
                let micros = (next.micros() - self.core.now().micros()).max(0);
                wait = wait.min(Duration::from_micros(u64::try_from(micros).unwrap_or_default()));
            }
        }
        Ok(wait.max(Duration::from_millis(1)))
    }

    fn heartbeat_interval(&self) -> Duration {
        Duration::from_secs(u64::try_from(self.settings.lease_seconds).unwrap_or(1)) / 3
    }

    fn handle(&mut self, message: WorkerMessage) -> trackway_actions::Result<()> {
        match message {
            WorkerMessage::QueueChanged => self.check_cancelled()?,
            WorkerMessage::JobFinished(run, outcome) => {
                let job = self.jobs.remove(&run);
                self.is_idle = false;
                if outcome == JobOutcome::Unavailable {
                    self.stop_serving(job)?;
                }
                *match outcome {
                    JobOutcome::Completed => &mut self.tally.completed,
                    JobOutcome::Failed | JobOutcome::Cancelled => &mut self.tally.failed,
                    JobOutcome::Released | JobOutcome::Unavailable => &mut self.tally.released,
                    JobOutcome::Lost => &mut self.tally.lost,
                } += 1;
            }
            WorkerMessage::Stop => {
                let now = Instant::now();
                let is_second = self.stop_at.is_some();
                self.stop_at = Some(if is_second { now } else { now + self.settings.grace });
                if self.settings.on_stop == OnStop::Cancel {
                    self.cancel_jobs(is_second)?;
                }
            }
        }
        Ok(())
    }

    /// Stops serving an agent that cannot run here. Otherwise the worker would take and release its items forever.
    fn stop_serving(&mut self, job: Option<RunningJob>) -> trackway_actions::Result<()> {
        let Some(agent) = job.and_then(|job| job.agent) else { return Ok(()) };
        self.served.retain(|served| served.agent.as_ref() != Some(&agent));
        self.not_served.insert(agent.clone());
        if self.served.is_empty() && self.jobs.is_empty() {
            let error = format!("agent {agent} cannot run here: its item was returned to the queue");
            return Err(Rule::usage(error).into());
        }
        Ok(())
    }

    /// Cancels all jobs. Unless `now` is set, agents may still answer the closing prompt.
    fn cancel_jobs(&mut self, now: bool) -> trackway_actions::Result<()> {
        for job in self.jobs.values() {
            let cancel = CancelRun { run: job.taken.run_id.into(), now };
            if self.core.execute(self.context, &cancel).is_err() {
                job.control.request(JobRequest::Release);
            }
        }
        self.check_cancelled()
    }

    /// Asks the jobs whose run was cancelled or has ended to stop.
    fn check_cancelled(&mut self) -> trackway_actions::Result<()> {
        self.cancel_checked_at = Instant::now();
        if self.jobs.is_empty() {
            return Ok(());
        }
        let runs: Vec<_> = self.jobs.keys().copied().collect();
        let stopped = self.try_database(|worker| {
            worker.core.read(worker.context, |reader| Ok(assignment::runs_to_stop(reader, &runs)?))
        })?;
        for (run, has_ended) in stopped.unwrap_or_default() {
            if let Some(job) = self.jobs.get(&run) {
                job.control.request(if has_ended { JobRequest::Abort } else { JobRequest::Cancel });
            }
        }
        Ok(())
    }

    fn maintain_jobs(&mut self) {
        let releases = self.settings.on_stop == OnStop::Release;
        if releases && self.stop_at.is_some_and(|until| until <= Instant::now()) {
            self.jobs.values().for_each(|job| job.control.request(JobRequest::Release));
        }
        if self.cancel_checked_at.elapsed() > CANCEL_POLL_INTERVAL {
            // The next take reports the same error.
            let _ = self.check_cancelled();
        }
        let every = self.heartbeat_interval();
        let lease = every * 3;
        let (core, context) = (self.core, self.context);
        for job in self.jobs.values_mut().filter(|job| job.last_heartbeat.elapsed() >= every) {
            let beat = HeartbeatItem { id: job.taken.id.into(), fence: job.taken.fence, lease: None };
            match core.execute(context, &beat) {
                Ok(_) => job.last_heartbeat = Instant::now(),
                // The next round tries again; the job goes on until the lease expires.
                Err(error) if error.is_transient() => {}
                // Other workers may still reach the database and take the item once the lease has expired.
                Err(error) if error.is_login_rejected() && job.last_heartbeat.elapsed() < lease => {}
                Err(_) => job.control.request(JobRequest::Abort),
            }
        }
    }

    fn execution(&self, taken: &TakenItem, control: &Arc<JobControl>) -> Execution<'a> {
        Execution {
            core: self.core,
            context: self.context,
            settings: self.settings,
            on_event: self.on_event,
            taken: taken.clone(),
            control: Arc::clone(control),
        }
    }
}

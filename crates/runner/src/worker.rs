//! The worker: takes what is ready, starts it, keeps its lease alive, and ends it; stops without losing anything.

use std::{
    collections::HashMap,
    path::PathBuf,
    sync::{
        Arc,
        mpsc::{Receiver, RecvTimeoutError, Sender},
    },
    thread,
    time::{Duration, Instant},
};

use serde::Serialize;
use trackway_actions::{
    Context, Core, Error,
    queue::{HeartbeatItem, TakeItems, Taken},
};
use trackway_domain::{Error as Rule, Id, Ref, Time, kind, words::Runner};
use trackway_store::bell::Listener;
use trackway_views::assignment;

use crate::{
    agent::Means,
    execution::Execution,
    executor::{Ended, Reins, Wish},
    insist::TROUBLE_WAIT,
};

/// How long a worker waits for the bell before it looks anyway.
const LOOK_ANYWAY: Duration = Duration::from_secs(10);
/// How often it looks whether what it runs was cancelled, should the bell fail.
const LOOK_AFTER: Duration = Duration::from_secs(5);

/// How to work.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Whose items to take; none is the worker.
    pub agent: Option<String>,
    pub concurrency: usize,
    /// Whether to stop when nothing is ready.
    pub once: bool,
    pub lease_seconds: i64,
    /// How long a task may take that does not say it.
    pub timeout: Duration,
    /// How long running tasks may go on once the worker is to stop.
    pub grace: Duration,
    /// Our own program.
    pub program: PathBuf,
    /// What agents work with; without it, why there is none.
    pub means: Result<Means, String>,
    /// Makes the settings that Claude Code is started with; asked only when it is.
    pub claude_settings: fn() -> String,
}

/// What reaches a worker from outside its loop.
#[derive(Debug)]
pub enum Note {
    /// The queue changed.
    Rung,
    /// A job is over.
    Over(Id<kind::Run>, Outcome),
    /// It should stop; the second time, at once.
    Stop,
}

/// How a job came out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    Completed,
    Failed,
    Released,
    Lost,
}

/// What a worker tells whoever watches it.
#[derive(Debug)]
pub enum Event<'a> {
    Took(&'a Taken),
    Said {
        taken: &'a Taken,
        output: &'a str,
    },
    Ended {
        taken: &'a Taken,
        ended: &'a Ended,
        took: Duration,
    },
    /// The database does not answer.
    Trouble(&'a Error),
    /// It answers again.
    Recovered,
}

/// Hears what a worker tells, from several threads.
pub type Watch<'a> = &'a (dyn Fn(&Event<'_>) + Sync);

/// What a worker did.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize)]
pub struct Tally {
    pub taken: usize,
    pub completed: usize,
    pub failed: usize,
    pub released: usize,
    pub lost: usize,
}

/// A job that runs.
struct Job {
    taken: Taken,
    reins: Arc<Reins>,
    beat: Instant,
}

/// Works until there is nothing left to do (`once`), or until told to stop. `notes` is where word reaches it, `tell` the
/// other end, for the jobs it starts.
pub fn work(
    core: &Core,
    context: &Context,
    settings: &Settings,
    post: (&Sender<Note>, &Receiver<Note>),
    watch: Watch<'_>,
) -> trackway_actions::Result<Tally> {
    work_on(Vec::new(), core, context, settings, post, watch)
}

/// The same, beginning with items that were taken already. With a concurrency of 0 there will be no others.
pub fn work_on(
    mut taken: Vec<Taken>,
    core: &Core,
    context: &Context,
    settings: &Settings,
    (tell, notes): (&Sender<Note>, &Receiver<Note>),
    watch: Watch<'_>,
) -> trackway_actions::Result<Tally> {
    refuse_external(core, context, settings)?;
    listen(core, tell.clone());
    thread::scope(|scope| {
        let mut worker = Worker {
            core,
            context,
            settings,
            watch,
            tally: Tally::default(),
            jobs: HashMap::new(),
            trouble: None,
            looked: Instant::now(),
            stop: None,
        };
        loop {
            taken.extend(worker.take()?);
            for taken in taken.drain(..) {
                let reins = Arc::new(Reins::default());
                let (job, tell) = (worker.job(&taken, &reins), tell.clone());
                worker.jobs.insert(taken.run_id, Job { taken, reins, beat: Instant::now() });
                scope.spawn(move || {
                    let run = job.taken.run_id;
                    let outcome = job.execute();
                    let _ = tell.send(Note::Over(run, outcome));
                });
            }
            if worker.is_done() {
                return Ok(worker.tally);
            }
            match notes.recv_timeout(worker.patience()?) {
                Ok(note) => {
                    worker.hear(note)?;
                    for note in notes.try_iter() {
                        worker.hear(note)?;
                    }
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => worker.hear(Note::Stop)?,
            }
            worker.look_after_jobs();
        }
    })
}

/// An agent that is driven from outside takes its items itself: here, they would only be lost to it.
fn refuse_external(core: &Core, context: &Context, settings: &Settings) -> trackway_actions::Result<()> {
    let Some(agent) = settings.agent.as_deref() else { return Ok(()) };
    match core.read(context, |reader| Ok(assignment::runner_of(reader, agent)?))? {
        Some(Runner::External) => Err(Rule::usage(format!("agent {agent} is driven from outside"))
            .hint(format!("it takes its items itself: trackway queue take --agent {agent}"))
            .into()),
        _ => Ok(()),
    }
}

/// Hears the bell in a thread of its own, and hands it on until nobody listens.
fn listen(core: &Core, tell: Sender<Note>) {
    let url = core.store().url().clone();
    thread::spawn(move || {
        loop {
            if let Ok(mut listener) = Listener::at(&url) {
                loop {
                    // Told also when it waited in vain: the worker looks from time to time.
                    let heard = listener.wait(LOOK_ANYWAY);
                    let is_broken = heard.is_err();
                    if tell.send(Note::Rung).is_err() {
                        return;
                    }
                    if is_broken {
                        break;
                    }
                }
            }
            thread::sleep(TROUBLE_WAIT.1);
            if tell.send(Note::Rung).is_err() {
                return;
            }
        }
    });
}

struct Worker<'a> {
    core: &'a Core,
    context: &'a Context,
    settings: &'a Settings,
    watch: Watch<'a>,
    tally: Tally,
    jobs: HashMap<Id<kind::Run>, Job>,
    /// How long to wait before the database is asked again.
    trouble: Option<Duration>,
    /// When jobs were last looked after.
    looked: Instant,
    /// Until when jobs may go on, once it is to stop.
    stop: Option<Instant>,
}

impl<'a> Worker<'a> {
    fn take(&mut self) -> trackway_actions::Result<Vec<Taken>> {
        let free = self.settings.concurrency.saturating_sub(self.jobs.len());
        if free == 0 || self.stop.is_some() {
            return Ok(Vec::new());
        }
        let take = TakeItems {
            agent: self.settings.agent.as_deref().map(Ref::new),
            lease: Some(self.settings.lease_seconds),
            batch: i64::try_from(free).ok(),
            id: None,
        };
        let taken = self.patiently(|worker| worker.core.execute(worker.context, &take))?.unwrap_or_default();
        self.tally.taken += taken.len();
        for taken in &taken {
            (self.watch)(&Event::Took(taken));
        }
        Ok(taken)
    }

    /// Does something with the database. One that does not answer is asked again later.
    fn patiently<T>(
        &mut self,
        deed: impl FnOnce(&Self) -> trackway_actions::Result<T>,
    ) -> trackway_actions::Result<Option<T>> {
        match deed(self) {
            Ok(done) => {
                if self.trouble.take().is_some() {
                    (self.watch)(&Event::Recovered);
                }
                Ok(Some(done))
            }
            // One who never could write anything is told so; later, a disk that is full may be made room on.
            Err(error) if error.is_passing() && (self.tally.taken > 0 || !error.is_for_want_of_room()) => {
                match self.trouble {
                    None => {
                        (self.watch)(&Event::Trouble(&error));
                        self.trouble = Some(TROUBLE_WAIT.0);
                    }
                    Some(wait) => self.trouble = Some((wait * 2).min(TROUBLE_WAIT.1)),
                }
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    fn is_done(&self) -> bool {
        let is_last = self.settings.once && self.trouble.is_none();
        self.jobs.is_empty() && (self.stop.is_some() || is_last)
    }

    /// How long to wait for word.
    fn patience(&mut self) -> trackway_actions::Result<Duration> {
        if let Some(wait) = self.trouble {
            return Ok(wait);
        }
        let mut wait = LOOK_ANYWAY;
        if !self.jobs.is_empty() {
            wait = wait.min(self.beat_every() / 2).min(LOOK_AFTER);
        }
        if let Some(until) = self.stop {
            wait = wait.min(until.saturating_duration_since(Instant::now()));
        }
        if self.jobs.len() < self.settings.concurrency && self.stop.is_none() {
            let next = self
                .patiently(|worker| worker.core.read(worker.context, |reader| Ok(assignment::next_change(reader)?)))?;
            if let Some(next) = next.flatten() {
                let micros = (next.micros() - Time::now().micros()).max(0);
                wait = wait.min(Duration::from_micros(u64::try_from(micros).unwrap_or_default()));
            }
        }
        Ok(wait.max(Duration::from_millis(1)))
    }

    fn beat_every(&self) -> Duration {
        Duration::from_secs(u64::try_from(self.settings.lease_seconds).unwrap_or(1)) / 3
    }

    fn hear(&mut self, note: Note) -> trackway_actions::Result<()> {
        match note {
            Note::Rung => self.look_for_ended()?,
            Note::Over(run, outcome) => {
                self.jobs.remove(&run);
                *match outcome {
                    Outcome::Completed => &mut self.tally.completed,
                    Outcome::Failed => &mut self.tally.failed,
                    Outcome::Released => &mut self.tally.released,
                    Outcome::Lost => &mut self.tally.lost,
                } += 1;
            }
            Note::Stop => {
                let now = Instant::now();
                self.stop = Some(if self.stop.is_some() { now } else { now + self.settings.grace });
            }
        }
        Ok(())
    }

    /// Stops what was cancelled.
    fn look_for_ended(&mut self) -> trackway_actions::Result<()> {
        self.looked = Instant::now();
        if self.jobs.is_empty() {
            return Ok(());
        }
        let runs: Vec<_> = self.jobs.keys().copied().collect();
        let stopped = self
            .patiently(|worker| worker.core.read(worker.context, |reader| Ok(assignment::stopped(reader, &runs)?)))?;
        for (run, has_ended) in stopped.unwrap_or_default() {
            if let Some(job) = self.jobs.get(&run) {
                job.reins.wish(if has_ended { Wish::Stop } else { Wish::Cancel });
            }
        }
        Ok(())
    }

    fn look_after_jobs(&mut self) {
        if self.stop.is_some_and(|until| until <= Instant::now()) {
            self.jobs.values().for_each(|job| job.reins.wish(Wish::Release));
        }
        if self.looked.elapsed() > LOOK_AFTER {
            // What goes wrong here goes wrong at the next take too, and is said there.
            let _ = self.look_for_ended();
        }
        let every = self.beat_every();
        let (core, context) = (self.core, self.context);
        for job in self.jobs.values_mut().filter(|job| job.beat.elapsed() >= every) {
            let beat = HeartbeatItem { id: job.taken.id.into(), fence: job.taken.fence, lease: None };
            match core.execute(context, &beat) {
                Ok(_) => job.beat = Instant::now(),
                // Asked again at the next look, as long as the lease lasts.
                Err(error) if error.is_passing() => {}
                Err(_) => job.reins.wish(Wish::Stop),
            }
        }
    }

    fn job(&self, taken: &Taken, reins: &Arc<Reins>) -> Execution<'a> {
        Execution {
            core: self.core,
            context: self.context,
            settings: self.settings,
            watch: self.watch,
            taken: taken.clone(),
            reins: Arc::clone(reins),
        }
    }
}

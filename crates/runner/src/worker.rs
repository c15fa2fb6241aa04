//! The worker: takes what is ready, starts it, keeps its lease alive, and ends it; stops without losing anything.

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
    queue::{HeartbeatItem, TakeItems, Taken},
    run::CancelRun,
};
use trackway_domain::{Error as Rule, Id, Ref, kind};
use trackway_store::queue_notify::Listener;
use trackway_views::assignment::{self, LeftAlone};

use crate::{
    agent::Means,
    client::Startable,
    execution::Execution,
    executor::{Ended, Reins, Wish},
    insist::TROUBLE_WAIT,
    leftovers,
    service::{Served, Serves, check},
};

/// How long a worker waits for the bell before it looks anyway.
const LOOK_ANYWAY: Duration = Duration::from_secs(10);
/// How often it looks whether what it runs was cancelled, should the bell fail.
const LOOK_AFTER: Duration = Duration::from_secs(5);
/// How often it looks whom to serve, while it is busy.
const LOOK_WHOM: Duration = Duration::from_secs(1);

/// How to work.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Whose items to take.
    pub serves: Serves,
    /// How many to run at once, of each whom it serves.
    pub concurrency: usize,
    /// Whether to stop when nothing is ready.
    pub once: bool,
    pub lease_seconds: i64,
    /// How long a task may take that does not say it.
    pub timeout: Duration,
    /// How long running tasks may go on once the worker is to stop.
    pub grace: Duration,
    /// What becomes of them then.
    pub stopping: Stopping,
    /// Our own program.
    pub program: PathBuf,
    /// What agents work with; without it, why there is none.
    pub means: Result<Means, String>,
    /// The clients that can drive agents.
    pub clients: Vec<Startable>,
}

/// What becomes of running tasks when the worker is to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stopping {
    /// Someone else is to do them.
    GiveBack,
    /// Nobody is.
    Cancel,
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
    /// Somebody wanted it to end, also where that was heard only after it was done.
    Cancelled,
    Released,
    /// Given back, since there is nothing to do it with here.
    Unable,
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
    /// An agent that is not served, and why.
    NotServed {
        agent: &'a str,
        why: &'a str,
    },
    /// Items that are ready and that it does not take.
    Left(&'a LeftAlone),
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
    /// Whose it is; none is the worker.
    agent: Option<String>,
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
    taken: Vec<Taken>,
    core: &Core,
    context: &Context,
    settings: &Settings,
    (tell, notes): (&Sender<Note>, &Receiver<Note>),
    watch: Watch<'_>,
) -> trackway_actions::Result<Tally> {
    check(core, context, settings)?;
    leftovers::adopt_orphans();
    let alive = Arc::new(());
    listen(core, tell.clone(), Arc::downgrade(&alive));
    let mut taken: Vec<(Option<String>, Taken)> = taken.into_iter().map(|taken| (None, taken)).collect();
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
            served: Vec::new(),
            served_at: None,
            left_out: BTreeSet::new(),
            is_idle: false,
            told_left: false,
            was_let_in: !taken.is_empty(),
        };
        loop {
            taken.extend(worker.take()?);
            for (agent, taken) in taken.drain(..) {
                let reins = Arc::new(Reins::default());
                let (job, tell) = (worker.job(&taken, &reins), tell.clone());
                worker.jobs.insert(taken.run_id, Job { taken, agent, reins, beat: Instant::now() });
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

/// Hears the bell in a thread of its own, and hands it on as long as the worker is alive.
fn listen(core: &Core, tell: Sender<Note>, worker: Weak<()>) {
    let url = core.store().url().clone();
    thread::spawn(move || {
        while worker.strong_count() > 0 {
            if let Ok(mut listener) = Listener::at(&url) {
                loop {
                    // The worker looks by itself from time to time: only a ring, or the loss of the bell, is news.
                    let heard = listener.wait(LOOK_ANYWAY);
                    if worker.strong_count() == 0 || (!matches!(heard, Ok(false)) && tell.send(Note::Rung).is_err()) {
                        return;
                    }
                    if heard.is_err() {
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
    served: Vec<Served>,
    served_at: Option<Instant>,
    /// Agents that are not served, of whom that was told.
    left_out: BTreeSet<String>,
    /// Whether nothing was there the last time.
    is_idle: bool,
    told_left: bool,
    /// Whether the database ever answered: who was let in once will be again.
    was_let_in: bool,
}

impl<'a> Worker<'a> {
    /// Takes for everyone who is served, as much as there is room for.
    fn take(&mut self) -> trackway_actions::Result<Vec<(Option<String>, Taken)>> {
        if self.settings.concurrency == 0 || self.stop.is_some() {
            return Ok(Vec::new());
        }
        self.look_whom_to_serve()?;
        if self.is_idle {
            let there = self.patiently(|worker| {
                worker.core.read(worker.context, |reader| Ok(assignment::is_there_anything(reader, worker.core.now())?))
            })?;
            if there == Some(false) {
                return Ok(Vec::new());
            }
        }
        let mut all = Vec::new();
        for served in self.served.clone() {
            let free = self.room_of(&served);
            if free == 0 {
                continue;
            }
            let take = TakeItems {
                agent: served.agent.as_deref().map(Ref::new),
                lease: Some(self.settings.lease_seconds),
                batch: i64::try_from(free).ok(),
                id: None,
                done: Vec::new(),
                unnamed: served.unnamed,
            };
            let taken = match self.patiently(|worker| worker.core.execute(worker.context, &take)) {
                // One of many that was archived meanwhile is no reason to leave the others.
                Err(_) if self.settings.serves == Serves::Everyone && served.agent.is_some() => {
                    self.served_at = None;
                    None
                }
                taken => taken?,
            };
            self.tally.taken += taken.as_ref().map_or(0, Vec::len);
            for taken in taken.into_iter().flatten() {
                (self.watch)(&Event::Took(&taken));
                all.push((served.agent.clone(), taken));
            }
        }
        self.is_idle = all.is_empty();
        if self.is_idle && !self.told_left {
            self.tell_what_is_left()?;
        }
        Ok(all)
    }

    fn look_whom_to_serve(&mut self) -> trackway_actions::Result<()> {
        if self.served_at.is_some_and(|at| at.elapsed() < LOOK_WHOM || self.settings.serves != Serves::Everyone) {
            return Ok(());
        }
        let mut left_out = std::mem::take(&mut self.left_out);
        let served =
            self.patiently(|worker| worker.settings.served(worker.core, worker.context, &mut left_out, worker.watch));
        self.left_out = left_out;
        if let Some(mut served) = served? {
            served.retain(|served| served.agent.as_ref().is_none_or(|agent| !self.left_out.contains(agent)));
            self.served = served;
            self.served_at = Some(Instant::now());
        }
        Ok(())
    }

    fn room_of(&self, served: &Served) -> usize {
        let held = self.jobs.values().filter(|job| job.agent == served.agent).count();
        self.settings.concurrency.saturating_sub(held)
    }

    /// Says once what is ready and is for somebody else.
    fn tell_what_is_left(&mut self) -> trackway_actions::Result<()> {
        let left = self
            .patiently(|worker| worker.core.read(worker.context, |reader| Ok(assignment::left_alone(reader)?)))?
            .unwrap_or_default();
        let is_served = |left: &LeftAlone| {
            self.served.iter().any(|served| match &left.agent {
                Some(agent) => served.agent.as_ref() == Some(agent),
                None => served.agent.is_some(),
            })
        };
        let left: Vec<LeftAlone> = left.into_iter().filter(|left| !is_served(left)).collect();
        self.told_left = !left.is_empty();
        for left in &left {
            (self.watch)(&Event::Left(left));
        }
        Ok(())
    }

    /// Does something with the database. One that does not answer is asked again later.
    fn patiently<T>(
        &mut self,
        deed: impl FnOnce(&Self) -> trackway_actions::Result<T>,
    ) -> trackway_actions::Result<Option<T>> {
        match deed(self) {
            Ok(done) => {
                self.was_let_in = true;
                if self.trouble.take().is_some() {
                    (self.watch)(&Event::Recovered);
                }
                Ok(Some(done))
            }
            // One who never could write anything is told so; later, a disk that is full may be made room on.
            Err(error)
                if (error.is_passing() && (self.tally.taken > 0 || !error.is_for_want_of_room()))
                    || (error.is_refusal() && self.was_let_in) =>
            {
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
        // Whoever takes nothing more need not know whether the database answers again.
        let is_last = self.settings.once && (self.trouble.is_none() || self.settings.concurrency == 0);
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
        if self.stop.is_none() && self.served.iter().any(|served| self.room_of(served) > 0) {
            let next = self
                .patiently(|worker| worker.core.read(worker.context, |reader| Ok(assignment::next_change(reader)?)))?;
            if let Some(next) = next.flatten() {
                let micros = (next.micros() - self.core.now().micros()).max(0);
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
                let job = self.jobs.remove(&run);
                self.is_idle = false;
                if outcome == Outcome::Unable {
                    self.serve_no_more(job)?;
                }
                *match outcome {
                    Outcome::Completed => &mut self.tally.completed,
                    Outcome::Failed | Outcome::Cancelled => &mut self.tally.failed,
                    Outcome::Released | Outcome::Unable => &mut self.tally.released,
                    Outcome::Lost => &mut self.tally.lost,
                } += 1;
            }
            Note::Stop => {
                let now = Instant::now();
                let is_second = self.stop.is_some();
                self.stop = Some(if is_second { now } else { now + self.settings.grace });
                if self.settings.stopping == Stopping::Cancel {
                    self.cancel(is_second)?;
                }
            }
        }
        Ok(())
    }

    /// What an agent lacks it will lack for the next item too: without this it would be taken again and again.
    fn serve_no_more(&mut self, job: Option<Job>) -> trackway_actions::Result<()> {
        let Some(agent) = job.and_then(|job| job.agent) else { return Ok(()) };
        self.served.retain(|served| served.agent.as_ref() != Some(&agent));
        self.left_out.insert(agent.clone());
        if self.served.is_empty() && self.jobs.is_empty() {
            return Err(Rule::usage(format!("agent {agent} cannot work here: its item was given back")).into());
        }
        Ok(())
    }

    /// Cancels what runs: an agent may say what it learned, unless it is told twice.
    fn cancel(&mut self, now: bool) -> trackway_actions::Result<()> {
        for job in self.jobs.values() {
            let cancel = CancelRun { run: job.taken.run_id.into(), now };
            if self.core.execute(self.context, &cancel).is_err() {
                job.reins.wish(Wish::Release);
            }
        }
        self.look_for_ended()
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
        let gives_back = self.settings.stopping == Stopping::GiveBack;
        if gives_back && self.stop.is_some_and(|until| until <= Instant::now()) {
            self.jobs.values().for_each(|job| job.reins.wish(Wish::Release));
        }
        if self.looked.elapsed() > LOOK_AFTER {
            // What goes wrong here goes wrong at the next take too, and is said there.
            let _ = self.look_for_ended();
        }
        let every = self.beat_every();
        let lease = every * 3;
        let (core, context) = (self.core, self.context);
        for job in self.jobs.values_mut().filter(|job| job.beat.elapsed() >= every) {
            let beat = HeartbeatItem { id: job.taken.id.into(), fence: job.taken.fence, lease: None };
            match core.execute(context, &beat) {
                Ok(_) => job.beat = Instant::now(),
                // Asked again at the next look, as long as the lease lasts.
                Err(error) if error.is_passing() => {}
                // Others may still be let in, and take it.
                Err(error) if error.is_refusal() && job.beat.elapsed() < lease => {}
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

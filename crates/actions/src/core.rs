//! The write path: authorise, perform, record touches, append to the log, in one transaction.

use std::{slice, thread, time::Duration};

use serde_json::Value;
use trackway_domain::{
    Error as Rule, Id, Time,
    capability::{self, CapabilityClass},
    command,
    enums::RunStatus,
    kind, sentence, text,
};
use trackway_store::{
    Reader, Store, WriteMode, Writer, params, registry, row,
    tables::{NewEvent, Touch},
};
use uuid::Uuid;

use crate::{
    action::{Action, ActionOutcome, Change, Subject},
    context::{Actor, Context, Credential},
    error::{Error, Result},
    lost_commit,
    person::SetPerson,
    queue::{Lease, renew_lease},
    token::{self, Purpose},
    touched::{TouchRecord, Touched},
};

/// Maximum number of attempts of an action that runs into write conflicts.
const MAX_ATTEMPTS: u32 = 8;

/// The application core. The command line, HTTP, MCP and the hook handler all call it.
#[derive(Debug)]
pub struct Core {
    store: Store,
}

/// How a transaction without errors ends. A dry run is rolled back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Finish {
    Commit,
    Rollback,
}

type Outputs<A> = Vec<<A as Action>::Output>;

impl Core {
    pub fn new(store: Store) -> Self {
        Self { store }
    }

    pub fn store(&self) -> &Store {
        &self.store
    }

    /// The current time, by the clock that also dates the rows.
    pub fn now(&self) -> Time {
        self.store.now()
    }

    /// Closes the database. Call it before the process exits.
    pub fn close(self) {
        self.store.close();
    }

    /// Runs read-only queries in one snapshot.
    pub fn read<T>(&self, context: &Context, query: impl FnOnce(&mut Reader<'_>) -> Result<T>) -> Result<T> {
        query(&mut self.store.read(context.tenant)?)
    }

    /// A reader for views. It carries the calling agent, so that views can restrict what an agent reads.
    pub fn reader(&self, context: &Context) -> Result<Reader<'_>> {
        let agent = match context.actor {
            Actor::Agent(agent) => Some(agent),
            Actor::Person(_) => None,
        };
        Ok(self.store.read(context.tenant)?.on_behalf_of(agent))
    }

    pub fn execute<A: Action>(&self, context: &Context, action: &A) -> Result<A::Output> {
        single(self.execute_all(context, slice::from_ref(action))?)
    }

    /// Executes several actions in one transaction.
    pub fn execute_all<A: Action>(&self, context: &Context, actions: &[A]) -> Result<Vec<A::Output>> {
        self.perform_all(context, actions, Finish::Commit)
    }

    /// Executes actions of two types in one transaction.
    pub fn execute_both<A: Action, B: Action>(
        &self,
        context: &Context,
        first: &[A],
        second: &[B],
    ) -> Result<(Outputs<A>, Outputs<B>)> {
        let mut outputs = None;
        self.transact(context, Finish::Commit, &mut |transaction| {
            outputs = Some((transaction.perform_all(first)?, transaction.perform_all(second)?));
            Ok(())
        })?;
        Ok(outputs.unwrap_or_default())
    }

    /// Executes an action, returns its output, and rolls the transaction back.
    pub fn dry_run<A: Action>(&self, context: &Context, action: &A) -> Result<A::Output> {
        single(self.perform_all(context, slice::from_ref(action), Finish::Rollback)?)
    }

    fn perform_all<A: Action>(&self, context: &Context, actions: &[A], finish: Finish) -> Result<Outputs<A>> {
        let mut outputs = Vec::new();
        self.transact(context, finish, &mut |transaction| {
            outputs = transaction.perform_all(actions)?;
            Ok(())
        })?;
        Ok(outputs)
    }

    /// Runs `perform` in a transaction and retries on write conflicts. Takes a `dyn` closure so that this code is
    /// compiled once, not once per action type.
    fn transact(
        &self,
        context: &Context,
        finish: Finish,
        perform: &mut dyn FnMut(&mut ActionTransaction<'_, '_>) -> Result<()>,
    ) -> Result<()> {
        let mut attempt = |mode| -> Result<()> {
            let mut write = self.begin(context)?;
            write.mode = mode;
            let context = &ensure_person(context, &mut write)?;
            let mut transaction = ActionTransaction {
                context,
                write: &mut write,
                run_state: None,
                has_run_guard: false,
                logged: Vec::new(),
            };
            perform(&mut transaction)?;
            let logged = transaction.append_log()?;
            if finish == Finish::Commit {
                self.commit(context, write, logged.as_ref())?;
            }
            Ok(())
        };
        retry_on_conflict(|| match finish {
            Finish::Commit => self.store.try_optimistic_first(&mut attempt, Error::is_precondition_failed),
            // An optimistic transaction can fail at its commit, which a dry run never reaches.
            Finish::Rollback => attempt(WriteMode::CHECKED),
        })
    }

    /// Commits. If the connection drops before the server answers, looks for the last logged event to find out
    /// whether the commit happened.
    fn commit(&self, context: &Context, write: Writer<'_>, logged: Option<&NewEvent>) -> Result<()> {
        match (write.commit(), logged) {
            (Err(trackway_store::Error::CommitUnknown(_)), Some(entry))
                if lost_commit::was_committed(entry, || self.write(context)) =>
            {
                Ok(())
            }
            (outcome, _) => Ok(outcome?),
        }
    }

    pub(crate) fn begin(&self, context: &Context) -> Result<Writer<'_>> {
        Ok(self.write(context)?)
    }

    #[expect(clippy::disallowed_methods, reason = "this is the write path")]
    fn write(&self, context: &Context) -> trackway_store::Result<Writer<'_>> {
        self.store.write(context.tenant)
    }

    /// Returns the context of the actor that the credential belongs to.
    pub fn authenticate(&self, credential: &Credential) -> Result<Context> {
        match credential {
            Credential::User { tenant, handle } => self.authenticate_user(tenant, handle),
            Credential::Token(secret) => token::authenticate(&self.store, &secret.0, Purpose::Work),
            Credential::Login(secret) => token::authenticate(&self.store, &secret.0, Purpose::Login),
        }
    }

    /// The context of the operating system's user. Reading does not register a new user as a person; their first
    /// write does.
    fn authenticate_user(&self, tenant: &str, handle: &str) -> Result<Context> {
        let handle = text::check_name("handle", handle);
        let handle_or_empty = handle.as_deref().unwrap_or_default();
        let (tenant, person) = registry::tenant_and_person(&self.store, tenant, handle_or_empty)?;
        let handle = handle?;
        Ok(Context {
            tenant,
            actor: Actor::Person(person.unwrap_or_else(|| Id::new(self.now()))),
            run: None,
            token: None,
            unregistered_handle: person.is_none().then_some(handle),
            request: Uuid::now_v7(),
        })
    }
}

/// Registers the calling person if they are new, in the transaction of their first write. If another transaction has
/// registered the same handle meanwhile, the returned context names that person.
pub(crate) fn ensure_person(context: &Context, write: &mut Writer<'_>) -> Result<Context> {
    let mut registered = context.clone();
    if let (Some(handle), Actor::Person(person)) = (registered.unregistered_handle.take(), context.actor) {
        let people = perform_within(&[SetPerson::self_registering(person, &handle)], context, write)?;
        registered.actor = Actor::Person(people.first().map_or(person, |result| result.row.id));
    }
    Ok(registered)
}

/// Performs actions as part of another action, which was authorised already. Records their touches and events.
pub(crate) fn perform_within<A: Action>(
    actions: &[A],
    context: &Context,
    write: &mut Writer<'_>,
) -> Result<Outputs<A>> {
    let outcomes = A::perform_all(actions, context, write)?;
    let mut logged = Vec::new();
    let outputs = record_all(context, write, outcomes, &mut logged)?;
    write.insert_all(&logged)?;
    Ok(outputs)
}

/// Repeats `attempt` while it fails with a write conflict, up to [`MAX_ATTEMPTS`] times.
pub(crate) fn retry_on_conflict<T>(mut attempt: impl FnMut() -> Result<T>) -> Result<T> {
    let mut attempts = 1;
    loop {
        match attempt() {
            Err(error) if error.is_write_conflict() && attempts < MAX_ATTEMPTS => {
                thread::sleep(Duration::from_millis(u64::from(attempts)));
                attempts += 1;
            }
            outcome => return outcome,
        }
    }
}

/// A transaction that performs, authorises and logs actions.
struct ActionTransaction<'a, 'w> {
    context: &'a Context,
    write: &'a mut Writer<'w>,
    /// The acting run, and the capability class that it was locked for.
    run_state: Option<(Option<CapabilityClass>, RunState)>,
    /// Whether a guard statement was added that fails the transaction if the run may not write (see
    /// [`Writer::guard_run`]).
    has_run_guard: bool,
    logged: Vec<NewEvent>,
}

impl ActionTransaction<'_, '_> {
    fn perform_all<A: Action>(&mut self, actions: &[A]) -> Result<Outputs<A>> {
        self.authorise(A::NAME, A::CAPABILITY, A::IS_RUN_TELEMETRY)?;
        let outcomes = A::perform_all(actions, self.context, self.write)?;
        record_all(self.context, self.write, outcomes, &mut self.logged)
    }

    /// Denies by default: the token must be valid, the run must be running, and the agent must have the capability.
    fn authorise(&mut self, action: &str, capability: &str, is_run_telemetry: bool) -> Result<()> {
        if let Some(token) = self.context.token {
            token::recheck(action, self.write, token)?;
        }
        match (self.context.actor, self.context.run) {
            (Actor::Person(_), _) => Ok(capability::check_person(capability)?),
            (Actor::Agent(_), None) => {
                Err(Rule::denied("an agent can act only in a run, with that run's token").into())
            }
            (Actor::Agent(agent), Some(run)) => {
                let class = capability::class_of(capability);
                if is_run_telemetry && class == Some(CapabilityClass::OwnRun) {
                    self.has_run_guard = self.has_run_guard || self.write.guard_run(agent, run)?;
                    if self.has_run_guard {
                        return Ok(());
                    }
                }
                let run_state = match self.run_state.take() {
                    Some((locked_for, run_state)) if locked_for == class => run_state,
                    _ => lock_running_run(self.write, agent, run, class)?,
                };
                capability::check_agent(&run_state.handle, run_state.capabilities.as_deref(), capability)?;
                if let (Some(item), Some(fence)) = (run_state.queue_item_id, run_state.fence) {
                    let lease =
                        Lease { item, fence, expires: run_state.lease_expires, seconds: run_state.lease_seconds };
                    renew_lease(self.write, &lease)?;
                }
                self.run_state = Some((class, run_state));
                Ok(())
            }
        }
    }

    /// Appends the collected events to the log and returns the last one.
    fn append_log(mut self) -> Result<Option<NewEvent>> {
        self.write.insert_all(&self.logged)?;
        Ok(self.logged.pop())
    }
}

/// Checks that a run may act, and locks it so that it cannot end before the commit. An action that will update the
/// run's row takes the exclusive lock here: two transactions that both upgraded a shared lock would deadlock.
fn lock_running_run(
    write: &mut Writer<'_>,
    agent: Id<kind::Agent>,
    run: Id<kind::Run>,
    class: Option<CapabilityClass>,
) -> Result<RunState> {
    let lock = write.row_lock(match class {
        Some(CapabilityClass::OwnRun) => " for no key update of r",
        _ => " for share of r",
    });
    let run_state = write.one::<RunState>(
        &format!(
            "select r.status, a.handle, a.capabilities, a.archived, r.queue_item_id, r.fence, q.lease_expires, q.lease_seconds
             from runs r join agents a on a.id = r.agent_id left join queue_items q on q.id = r.queue_item_id and q.fence = r.fence
             where r.tenant_id = ?1 and r.id = ?2 and a.id = ?3{lock}"
        ),
        params![run, agent],
    )?;
    let Some(run_state) = run_state else {
        return Err(Rule::denied("the run of this token does not exist").into());
    };
    if run_state.status != RunStatus::Running {
        return Err(run_ended_error(run_state.status).into());
    }
    if run_state.archived {
        return Err(Rule::denied(format!("agent {} is archived", run_state.handle)).into());
    }
    write.refresh_now();
    Ok(run_state)
}

fn single<T>(outputs: Vec<T>) -> Result<T> {
    outputs.into_iter().next().ok_or_else(|| Rule::usage("no action was given").into())
}

row! {
    /// The state of a run. It decides whether the run may act, and which actions it may perform.
    pub struct RunState {
        status: RunStatus,
        handle: String,
        capabilities: Option<Vec<String>>,
        archived: bool,
        queue_item_id: Option<Id<kind::QueueItem>>,
        fence: Option<i64>,
        lease_expires: Option<Time>,
        lease_seconds: Option<i64>,
    }
}

pub(crate) fn run_ended_error(status: RunStatus) -> Rule {
    Rule::denied(format!("the run has ended ({status}), so its token is no longer valid"))
        .hint(sentence!["unset TRACKWAY_TOKEN, then start a new run: ", command!("run start", agent = "A")])
}

/// Records the touches of the acting run, adds events to `logged`, and returns the outputs.
fn record_all<A: Action>(
    context: &Context,
    write: &mut Writer<'_>,
    outcomes: Vec<ActionOutcome<A>>,
    logged: &mut Vec<NewEvent>,
) -> Result<Vec<A::Output>> {
    let mut outputs = Vec::with_capacity(outcomes.len());
    let mut touches = Vec::new();
    for outcome in outcomes {
        outputs.push(outcome.output);
        let Some(Change { subjects, touched, detail }) = outcome.change else {
            continue;
        };
        if context.run.is_some() {
            touches.extend(touched.into_records());
        }
        for subject in &subjects {
            logged.push(new_event(context, write, A::NAME, subject, detail.as_ref()));
        }
    }
    if let Some(run) = context.run {
        record_touches(write, run, touches, write.now)?;
    }
    Ok(outputs)
}

/// Records touches at the time they happened. Observed touches may have happened long ago.
pub(crate) fn record_touches(
    write: &mut Writer<'_>,
    run: Id<kind::Run>,
    touches: Vec<TouchRecord>,
    at: Time,
) -> Result<()> {
    // The ids are a microsecond apart, so that sorting by id gives the order of the touches.
    let touch = |(touch, index): (TouchRecord, i64)| Touch {
        id: Id::<kind::Run>::new(Time::from_micros(at.micros() + index)).uuid(),
        tenant_id: write.tenant,
        run_id: run,
        resource_type: touch.resource_type,
        resource_id: touch.resource_id,
        resource_studio_id: touch.studio,
        action_type: touch.action_type,
        display_path: touch.path,
        first_at: at,
        last_at: at,
        times: 1,
    };
    let touches = touches.into_iter().zip(0..).map(touch).collect();
    Ok(write.record_touches(touches)?)
}

pub(crate) fn append_event(
    context: &Context,
    write: &mut Writer<'_>,
    action: &str,
    subject: &Subject,
    detail: Option<&Value>,
) -> Result<()> {
    let event = new_event(context, write, action, subject, detail);
    Ok(write.insert(&event)?)
}

pub(crate) fn new_event(
    context: &Context,
    write: &Writer<'_>,
    action: &str,
    subject: &Subject,
    detail: Option<&Value>,
) -> NewEvent {
    NewEvent {
        request_id: context.request,
        tenant_id: context.tenant,
        created_at: write.now,
        actor_kind: context.actor.kind(),
        actor_id: context.actor.id(),
        run_id: context.run,
        action: action.to_owned(),
        subject_kind: subject.kind,
        subject_id: subject.id,
        subject_path: subject.path.clone(),
        detail: detail.cloned(),
    }
}

//! The write path: authorise, perform, record touches, append to the log, in one transaction.

use std::{slice, thread, time::Duration};

use serde_json::Value;
use trackway_domain::{
    Error as Rule, Id, Time,
    capability::{self, Allowance},
    command, kind, sentence, text,
    words::RunStatus,
};
use trackway_store::{
    Reader, Store, WriteMode, Writer, params, registry, row,
    tables::{Logged, Touch},
};
use uuid::Uuid;

use crate::{
    action::{About, Action, Change, Done},
    context::{Actor, Context, Credential},
    error::{Error, Result},
    person::SetPerson,
    queue::{Lease, keep_alive},
    settling,
    token::{self, Purpose},
    touched::{Recorded, Touched},
};

/// How often an action is tried when another writer is in the way.
const TRIES: u32 = 8;

/// What all doors call.
#[derive(Debug)]
pub struct Core {
    store: Store,
}

/// What becomes of a transaction that went well.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ending {
    Commit,
    Rollback,
}

/// What each of several actions answers.
type Outputs<A> = Vec<<A as Action>::Output>;

impl Core {
    pub fn new(store: Store) -> Self {
        Self { store }
    }

    pub fn store(&self) -> &Store {
        &self.store
    }

    /// The time now, by the clock that dates what is written.
    pub fn now(&self) -> Time {
        self.store.now()
    }

    /// Closes the database at the end of a process.
    pub fn leave(self) {
        self.store.leave();
    }

    /// Answers a question about one moment.
    pub fn read<T>(&self, context: &Context, question: impl FnOnce(&mut Reader<'_>) -> Result<T>) -> Result<T> {
        question(&mut self.store.read(context.tenant)?)
    }

    /// A reader for the views that the actor of a context asks for. Views restrict agents by it.
    pub fn reader(&self, context: &Context) -> Result<Reader<'_>> {
        let agent = match context.actor {
            Actor::Agent(agent) => Some(agent),
            Actor::Person(_) => None,
        };
        Ok(self.store.read(context.tenant)?.on_behalf_of(agent))
    }

    /// Executes an action.
    pub fn execute<A: Action>(&self, context: &Context, action: &A) -> Result<A::Output> {
        only(self.execute_all(context, slice::from_ref(action))?)
    }

    /// Executes several actions in one transaction: all or none.
    pub fn execute_all<A: Action>(&self, context: &Context, actions: &[A]) -> Result<Vec<A::Output>> {
        self.perform_all(context, actions, Ending::Commit)
    }

    /// Executes actions of two kinds in one transaction: all or none.
    pub fn execute_both<A: Action, B: Action>(
        &self,
        context: &Context,
        first: &[A],
        second: &[B],
    ) -> Result<(Outputs<A>, Outputs<B>)> {
        let mut outputs = None;
        self.transact(context, Ending::Commit, &mut |work| {
            outputs = Some((work.perform_all(first)?, work.perform_all(second)?));
            Ok(())
        })?;
        Ok(outputs.unwrap_or_default())
    }

    /// Does everything an action does, answers as it would, and leaves no trace.
    pub fn rehearse<A: Action>(&self, context: &Context, action: &A) -> Result<A::Output> {
        only(self.perform_all(context, slice::from_ref(action), Ending::Rollback)?)
    }

    fn perform_all<A: Action>(&self, context: &Context, actions: &[A], ending: Ending) -> Result<Outputs<A>> {
        let mut outputs = Vec::new();
        self.transact(context, ending, &mut |work| {
            outputs = work.perform_all(actions)?;
            Ok(())
        })?;
        Ok(outputs)
    }

    /// Not generic over what is performed, because generic code is compiled again for every action.
    fn transact(
        &self,
        context: &Context,
        ending: Ending,
        perform: &mut dyn FnMut(&mut AtWork<'_, '_>) -> Result<()>,
    ) -> Result<()> {
        let mut attempt = |mode| -> Result<()> {
            let mut write = self.begin(context)?;
            write.mode = mode;
            let context = &settled(context, &mut write)?;
            let mut work = AtWork { context, write: &mut write, standing: None, is_guarded: false, logged: Vec::new() };
            perform(&mut work)?;
            let logged = work.append()?;
            if ending == Ending::Commit {
                self.commit(context, write, logged.as_ref())?;
            }
            Ok(())
        };
        again_while_others_are_first(|| match ending {
            Ending::Commit => self.store.optimistically_first(&mut attempt, Error::is_precondition_failed),
            // A dry run never reaches the commit at which an optimistic transaction fails.
            Ending::Rollback => attempt(WriteMode::CHECKED),
        })
    }

    /// Commits. When the answer gets lost, the log says whether it was.
    fn commit(&self, context: &Context, write: Writer<'_>, logged: Option<&Logged>) -> Result<()> {
        match (write.commit(), logged) {
            (Err(trackway_store::Error::Unsettled(_)), Some(entry))
                if settling::is_there(entry, || self.write(context)) =>
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

    /// Makes the context a credential stands for.
    pub fn enter(&self, credential: &Credential) -> Result<Context> {
        match credential {
            Credential::User { tenant, handle } => self.enter_user(tenant, handle),
            Credential::Token(secret) => token::enter(&self.store, &secret.0, Purpose::Work),
            Credential::Login(secret) => token::enter(&self.store, &secret.0, Purpose::Login),
        }
    }

    /// The person of the operating system's user. Looking around does not enter them; their first write does.
    fn enter_user(&self, tenant: &str, handle: &str) -> Result<Context> {
        let handle = text::name("handle", handle);
        let looked_for = handle.as_deref().unwrap_or_default();
        let (tenant, known) = registry::tenant_and_person(&self.store, tenant, looked_for)?;
        let handle = handle?;
        Ok(Context {
            tenant,
            actor: Actor::Person(known.unwrap_or_else(|| Id::new(self.now()))),
            run: None,
            token: None,
            newcomer: known.is_none().then_some(handle),
            request: Uuid::now_v7(),
        })
    }
}

/// Enters a newcomer, inside the transaction of their first write. Another visit may have been first: then they are
/// whom that one entered.
pub(crate) fn settled(context: &Context, write: &mut Writer<'_>) -> Result<Context> {
    let mut settled = context.clone();
    if let (Some(handle), Actor::Person(person)) = (settled.newcomer.take(), context.actor) {
        let entered = perform_within(&[SetPerson::newcomer(person, &handle)], context, write)?;
        settled.actor = Actor::Person(entered.first().map_or(person, |stands| stands.row.id));
    }
    Ok(settled)
}

/// Performs actions that are part of another, whose right to do so was looked at, with all that is recorded of them.
pub(crate) fn perform_within<A: Action>(
    actions: &[A],
    context: &Context,
    write: &mut Writer<'_>,
) -> Result<Outputs<A>> {
    let dones = A::perform_all(actions, context, write)?;
    let mut logged = Vec::new();
    let outputs = record_all(context, write, dones, &mut logged)?;
    write.insert_all(&logged)?;
    Ok(outputs)
}

/// Does all of it again while another writer was in the way, a few times.
pub(crate) fn again_while_others_are_first<T>(mut attempt: impl FnMut() -> Result<T>) -> Result<T> {
    let mut tries = 1;
    loop {
        match attempt() {
            Err(error) if error.is_worth_another_try() && tries < TRIES => {
                thread::sleep(Duration::from_millis(u64::from(tries)));
                tries += 1;
            }
            outcome => return outcome,
        }
    }
}

/// Actions on their way to one commit.
struct AtWork<'a, 'w> {
    context: &'a Context,
    write: &'a mut Writer<'w>,
    /// How the acting run was found to stand, and what it was held for.
    standing: Option<(Option<Allowance>, Standing)>,
    /// Whether the transaction fails unless the acting run may write (see [`Writer::guard_run`]).
    is_guarded: bool,
    logged: Vec<Logged>,
}

impl AtWork<'_, '_> {
    fn perform_all<A: Action>(&mut self, actions: &[A]) -> Result<Outputs<A>> {
        self.authorise(A::NAME, A::CAPABILITY, A::ONLY_TELLS)?;
        let dones = A::perform_all(actions, self.context, self.write)?;
        record_all(self.context, self.write, dones, &mut self.logged)
    }

    /// Default deny: a run must be running, its token valid, and the capability allowed.
    fn authorise(&mut self, action: &str, capability: &str, only_tells: bool) -> Result<()> {
        if let Some(token) = self.context.token {
            token::check(action, self.write, token)?;
        }
        match (self.context.actor, self.context.run) {
            (Actor::Person(_), _) => Ok(capability::check_person(capability)?),
            (Actor::Agent(_), None) => Err(Rule::denied("an agent acts in a run, with the run's token").into()),
            (Actor::Agent(agent), Some(run)) => {
                let allowance = capability::allowance(capability);
                if only_tells && allowance == Some(Allowance::OwnRun) {
                    self.is_guarded = self.is_guarded || self.write.guard_run(agent, run)?;
                    if self.is_guarded {
                        return Ok(());
                    }
                }
                let standing = match self.standing.take() {
                    Some((held_for, standing)) if held_for == allowance => standing,
                    _ => let_in(self.write, agent, run, allowance)?,
                };
                capability::check_agent(&standing.handle, standing.capabilities.as_deref(), capability)?;
                if let (Some(item), Some(fence)) = (standing.queue_item_id, standing.fence) {
                    let lease = Lease { item, fence, expires: standing.lease_expires, seconds: standing.lease_seconds };
                    keep_alive(self.write, &lease)?;
                }
                self.standing = Some((allowance, standing));
                Ok(())
            }
        }
    }

    /// Appends to the log. Says what came last.
    fn append(mut self) -> Result<Option<Logged>> {
        self.write.insert_all(&self.logged)?;
        Ok(self.logged.pop())
    }
}

/// Looks at a run that wants to act, and holds it, so that it cannot end between this look and the commit; an action about
/// the run itself will change that row and takes it whole at once, else two of them would wait for each other.
fn let_in(
    write: &mut Writer<'_>,
    agent: Id<kind::Agent>,
    run: Id<kind::Run>,
    allowance: Option<Allowance>,
) -> Result<Standing> {
    let lock = write.row_lock(match allowance {
        Some(Allowance::OwnRun) => " for no key update of r",
        _ => " for share of r",
    });
    let standing = write.one::<Standing>(
        &format!(
            "select r.status, a.handle, a.capabilities, a.archived, r.queue_item_id, r.fence, q.lease_expires, q.lease_seconds
             from runs r join agents a on a.id = r.agent_id left join queue_items q on q.id = r.queue_item_id and q.fence = r.fence
             where r.tenant_id = ?1 and r.id = ?2 and a.id = ?3{lock}"
        ),
        params![run, agent],
    )?;
    let Some(standing) = standing else {
        return Err(Rule::denied("there is no such run here").into());
    };
    if standing.status != RunStatus::Running {
        return Err(run_is_over(standing.status).into());
    }
    if standing.archived {
        return Err(Rule::denied(format!("agent {} is archived", standing.handle)).into());
    }
    write.after_waiting();
    Ok(standing)
}

/// The answer to the only one that was asked for.
fn only<T>(outputs: Vec<T>) -> Result<T> {
    outputs.into_iter().next().ok_or_else(|| Rule::usage("nothing to do").into())
}

row! {
    /// Whether a run may still act, and what it may.
    pub struct Standing {
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

pub(crate) fn run_is_over(status: RunStatus) -> Rule {
    Rule::denied(format!("the run is {status}: its token ended with it"))
        .hint(sentence!["unset TRACKWAY_TOKEN, then start another run: ", command!("run start", agent = "A")])
}

/// Records the touches of a run. What is to be appended to the log comes on top of the rest.
fn record_all<A: Action>(
    context: &Context,
    write: &mut Writer<'_>,
    dones: Vec<Done<A>>,
    logged: &mut Vec<Logged>,
) -> Result<Vec<A::Output>> {
    let mut outputs = Vec::with_capacity(dones.len());
    let mut touches = Vec::new();
    for done in dones {
        outputs.push(done.output);
        let Some(Change { about, touched, detail }) = done.change else {
            continue;
        };
        if context.run.is_some() {
            touches.extend(touched.recorded());
        }
        for about in &about {
            logged.push(event(context, write, A::NAME, about, detail.as_ref()));
        }
    }
    if let Some(run) = context.run {
        record_touches(write, run, touches, write.now)?;
    }
    Ok(outputs)
}

/// Records touches at the time they happened, which for observed ones may be long ago.
pub(crate) fn record_touches(
    write: &mut Writer<'_>,
    run: Id<kind::Run>,
    touches: Vec<Recorded>,
    at: Time,
) -> Result<()> {
    // Ids a microsecond apart keep the order in which the actions touched their resources.
    let touch = |(touch, place): (Recorded, i64)| Touch {
        id: Id::<kind::Run>::new(Time::from_micros(at.micros() + place)).uuid(),
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
    about: &About,
    detail: Option<&Value>,
) -> Result<()> {
    let event = event(context, write, action, about, detail);
    Ok(write.insert(&event)?)
}

pub(crate) fn event(
    context: &Context,
    write: &Writer<'_>,
    action: &str,
    about: &About,
    detail: Option<&Value>,
) -> Logged {
    Logged {
        request_id: context.request,
        tenant_id: context.tenant,
        created_at: write.now,
        actor_kind: context.actor.kind(),
        actor_id: context.actor.id(),
        run_id: context.run,
        action: action.to_owned(),
        subject_kind: about.kind,
        subject_id: about.id,
        subject_path: about.path.clone(),
        detail: detail.cloned(),
    }
}

//! A founded database with a person in it, and the words to tell a story there.

use std::time::Duration;

use serde_json::{Value, json};
use trackway_actions::{
    Action, Context, Core, Credential, Result,
    founding::{Founded, LOCAL_TENANT},
    registry::{self, Mode},
    run::StartRun,
};
use trackway_domain::{Id, Ref, Time, kind};
use trackway_store::{Clock, Engine, Reader, Store};
use uuid::Uuid;

use crate::{
    database::{TestDatabase, migrated_database},
    run::TestRun,
    snapshot::Snapshot,
};

/// The person who lives in every env.
pub(crate) const PERSON: &str = "ada";

/// A founded database. What it does, the person `ada` does.
#[derive(Debug)]
pub struct TestEnv {
    pub core: Core,
    pub ada: Context,
    clock: Clock,
    // Last, so that the connections are closed before the database goes.
    pub database: TestDatabase,
}

impl TestEnv {
    /// Founds an env on an engine.
    pub fn new(engine: Engine) -> Self {
        let database = migrated_database(engine);
        let clock = Clock::system();
        let core = Core::new(Store::create(database.url()).unwrap().with_clock(clock.clone()));
        let ada = founded(&core, LOCAL_TENANT);
        Self { core, ada, clock, database }
    }

    /// A env over a database that was founded elsewhere, with a context of that database.
    pub fn open(database: TestDatabase, ada: Context) -> Self {
        let clock = Clock::system();
        let core = Core::new(Store::open(database.url()).unwrap().with_clock(clock.clone()));
        Self { core, ada, clock, database }
    }

    /// Founds another tenant in the same database; the context is of its own `ada`.
    pub fn another_tenant(&self, name: &str) -> Context {
        founded(&self.core, name)
    }

    pub fn execute<A: Action>(&self, action: A) -> Result<A::Output> {
        self.core.execute(&self.ada, &action)
    }

    /// Does an action by its name in the registry.
    pub fn act(&self, action: &str, input: Value) -> Result<Value> {
        self.act_as(&self.ada, action, input)
    }

    /// The same, by someone else.
    pub fn act_as(&self, context: &Context, action: &str, input: Value) -> Result<Value> {
        let entry = registry::named(action).unwrap_or_else(|| panic!("there is no action {action:?}"));
        (entry.with_json)(&self.core, context, input, Mode::Execute)
    }

    /// The time in this env.
    pub fn now(&self) -> Time {
        self.core.now()
    }

    /// Lets time pass in this env without waiting: leases, delays and expiries run out.
    pub fn advance(&self, by: Duration) {
        self.clock.advance(by);
    }

    pub fn studio(&self, name: &str) -> Id<kind::Studio> {
        id(&self.act("set_studio", json!({ "name": name })).unwrap())
    }

    pub fn role(&self, name: &str) -> Id<kind::Role> {
        id(&self.act("set_role", json!({ "name": name })).unwrap())
    }

    pub fn workflow(&self, name: &str) -> Id<kind::Workflow> {
        id(&self.act("set_workflow", json!({ "name": name })).unwrap())
    }

    pub fn task(&self, workflow: &str, variant: &str) -> Id<kind::Task> {
        id(&self.act("set_task", json!({ "workflow": workflow, "variant": variant })).unwrap())
    }

    /// An agent that may do what agents may by default.
    pub fn agent(&self, handle: &str) -> TestAgent<'_> {
        self.act("set_agent", json!({ "handle": handle })).unwrap();
        TestAgent { env: self, handle: handle.to_owned() }
    }

    /// Answers a question about ada's tenant.
    pub fn read<T>(&self, question: impl FnOnce(&mut Reader<'_>) -> Result<T>) -> T {
        self.core.read(&self.ada, question).unwrap()
    }

    /// The log: actions, and the paths of what they were about, in order.
    pub fn events(&self) -> Vec<(String, String)> {
        self.read(|reader| {
            Ok(reader.query("select action, subject_path from events where tenant_id = ?1 order by position", &[])?)
        })
    }

    /// Everything that ada's tenant holds.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot::of(&self.core, &self.ada)
    }
}

fn founded(core: &Core, tenant: &str) -> Context {
    assert_eq!(core.found(tenant, PERSON).unwrap(), Founded::Tenant, "tenant {tenant} is there already");
    core.enter(&Credential::User { tenant: tenant.to_owned(), handle: PERSON.to_owned() }).unwrap()
}

/// The id in an action's answer.
pub fn id<K>(answer: &Value) -> Id<K> {
    answer["id"].as_str().and_then(|id| id.parse::<Uuid>().ok()).expect("an answer with an id").into()
}

/// An agent, ready to start.
#[derive(Debug)]
pub struct TestAgent<'env> {
    env: &'env TestEnv,
    handle: String,
}

impl<'env> TestAgent<'env> {
    /// Starts a run without a task.
    pub fn start_run(&self) -> TestRun<'env> {
        self.start(None)
    }

    /// Starts a run on a task.
    pub fn start_run_on(&self, task: &str) -> TestRun<'env> {
        self.start(Some(Ref::new(task)))
    }

    fn start(&self, task: Option<Ref<kind::Task>>) -> TestRun<'env> {
        let start = StartRun {
            agent: Ref::new(&*self.handle),
            task,
            parent: None,
            role: None,
            workspace: None,
            mode: None,
            max_steps: None,
            keep_open: false,
        };
        TestRun::holding(self.env, self.env.execute(start).unwrap())
    }
}

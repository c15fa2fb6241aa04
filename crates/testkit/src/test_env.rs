//! A database with an initialised tenant and a person, and methods that set up test data.

use std::time::Duration;

use serde_json::{Value, json};
use trackway_actions::{
    Action, Context, Core, Credential, Result,
    registry::{self, Mode},
    run::StartRun,
    tenant::{InitResult, LOCAL_TENANT},
};
use trackway_domain::{Id, Ref, Time, kind};
use trackway_store::{Clock, Engine, Reader, Store};
use uuid::Uuid;

use crate::{
    database::{TestDatabase, migrated_database},
    run::TestRun,
    snapshot::Snapshot,
};

/// The person in every test environment.
pub(crate) const PERSON: &str = "ada";

/// A database with an initialised tenant. Methods without a context act as the person `ada`.
#[derive(Debug)]
pub struct TestEnv {
    pub core: Core,
    pub ada: Context,
    clock: Clock,
    // Fields drop in order: the core closes its connections before the database is removed.
    pub database: TestDatabase,
}

impl TestEnv {
    /// Creates a database on this engine and initialises its tenant.
    pub fn new(engine: Engine) -> Self {
        let database = migrated_database(engine);
        let clock = Clock::system();
        let core = Core::new(Store::create(database.url()).unwrap().with_clock(clock.clone()));
        let ada = init_tenant_as_person(&core, LOCAL_TENANT);
        Self { core, ada, clock, database }
    }

    /// An environment on a database that is already initialised, with a context of its person.
    pub fn open(database: TestDatabase, ada: Context) -> Self {
        let clock = Clock::system();
        let core = Core::new(Store::open(database.url()).unwrap().with_clock(clock.clone()));
        Self { core, ada, clock, database }
    }

    /// Initialises another tenant in the same database, and returns the context of its person `ada`.
    pub fn another_tenant(&self, name: &str) -> Context {
        init_tenant_as_person(&self.core, name)
    }

    pub fn execute<A: Action>(&self, action: A) -> Result<A::Output> {
        self.core.execute(&self.ada, &action)
    }

    /// Executes the action of this name with JSON input, as `ada`.
    pub fn execute_json(&self, action: &str, input: Value) -> Result<Value> {
        self.execute_json_as(&self.ada, action, input)
    }

    /// Executes the action of this name with JSON input, in another context.
    pub fn execute_json_as(&self, context: &Context, action: &str, input: Value) -> Result<Value> {
        let entry = registry::find_action(action).unwrap_or_else(|| panic!("there is no action {action:?}"));
        (entry.with_json)(&self.core, context, input, Mode::Execute)
    }

    pub fn now(&self) -> Time {
        self.core.now()
    }

    /// Advances the clock of the environment: leases, delays and expiries run out without waiting.
    pub fn advance(&self, by: Duration) {
        self.clock.advance(by);
    }

    pub fn studio(&self, name: &str) -> Id<kind::Studio> {
        id(&self.execute_json("set_studio", json!({ "name": name })).unwrap())
    }

    pub fn role(&self, name: &str) -> Id<kind::Role> {
        id(&self.execute_json("set_role", json!({ "name": name })).unwrap())
    }

    pub fn workflow(&self, name: &str) -> Id<kind::Workflow> {
        id(&self.execute_json("set_workflow", json!({ "name": name })).unwrap())
    }

    pub fn task(&self, workflow: &str, variant: &str) -> Id<kind::Task> {
        id(&self.execute_json("set_task", json!({ "workflow": workflow, "variant": variant })).unwrap())
    }

    /// Creates an agent with the default capabilities.
    pub fn agent(&self, handle: &str) -> TestAgent<'_> {
        self.execute_json("set_agent", json!({ "handle": handle })).unwrap();
        TestAgent { env: self, handle: handle.to_owned() }
    }

    /// Reads from the tenant of `ada`.
    pub fn read<T>(&self, query: impl FnOnce(&mut Reader<'_>) -> Result<T>) -> T {
        self.core.read(&self.ada, query).unwrap()
    }

    /// The events in order: action and path of the subject.
    pub fn events(&self) -> Vec<(String, String)> {
        self.read(|reader| {
            Ok(reader.query("select action, subject_path from events where tenant_id = ?1 order by position", &[])?)
        })
    }

    /// All rows of the tenant of `ada`.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot::take(&self.core, &self.ada)
    }
}

fn init_tenant_as_person(core: &Core, tenant: &str) -> Context {
    assert_eq!(core.init_tenant(tenant, PERSON).unwrap(), InitResult::CreatedTenant, "tenant {tenant} exists already");
    core.authenticate(&Credential::User { tenant: tenant.to_owned(), handle: PERSON.to_owned() }).unwrap()
}

/// The id in the output of an action.
pub fn id<K>(answer: &Value) -> Id<K> {
    answer["id"].as_str().and_then(|id| id.parse::<Uuid>().ok()).expect("the output has an id").into()
}

/// An agent of a test environment.
#[derive(Debug)]
pub struct TestAgent<'env> {
    env: &'env TestEnv,
    handle: String,
}

impl<'env> TestAgent<'env> {
    pub fn start_run(&self) -> TestRun<'env> {
        self.start(None)
    }

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
        TestRun::new(self.env, self.env.execute(start).unwrap())
    }
}

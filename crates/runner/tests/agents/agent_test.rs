//! A test environment with an agent, a task for it, and a scripted model.

use std::{
    collections::BTreeMap,
    path::PathBuf,
    sync::{Arc, Mutex, mpsc},
    time::Duration,
};

use serde_json::{Value, json};
use trackway_actions::{
    Core, Credential,
    context::Secret,
    queue::{TakeItems, TakenItem},
};
use trackway_domain::{Id, Ref, kind};
use trackway_runner::{
    AgentSelection, OnStop, Settings, Tally, WorkerEvent,
    agent::AgentBackend,
    model::{ModelSettings, Price, Provider},
    work,
};
use trackway_server::Site;
use trackway_store::Store;
use trackway_testkit::{
    Engine, TestEnv,
    scripted_model::{Scenario, ScriptedModel},
    wait_until,
};
use trackway_views::{
    View,
    run::{RunDetails, ShowRun},
    scratchpad::GetScratchpad,
};

/// Occurs in the first message of every conversation.
const WAKE_PROMPT: &str = "What you need to know";
/// The beginning of every closing prompt.
const CLOSING_PROMPT: &str = "[Trackway: end of run]";

pub struct AgentTest {
    pub env: TestEnv,
}

#[derive(Debug, Clone)]
pub struct ModelSetup {
    pub provider: Provider,
    pub stream: bool,
    pub native_tools: bool,
    pub timeout: Duration,
    pub concurrency: usize,
    pub priced: bool,
    pub context_tokens: Option<usize>,
    pub task_timeout: Duration,
}

impl Default for ModelSetup {
    fn default() -> Self {
        Self {
            provider: Provider::Anthropic,
            stream: true,
            native_tools: true,
            timeout: Duration::from_secs(20),
            concurrency: 1,
            priced: false,
            context_tokens: None,
            task_timeout: Duration::from_mins(1),
        }
    }
}

/// Both providers, with and without streaming.
pub fn model_setups() -> Vec<ModelSetup> {
    [(Provider::Anthropic, true), (Provider::Anthropic, false), (Provider::Openai, true), (Provider::Openai, false)]
        .map(|(provider, stream)| ModelSetup { provider, stream, ..ModelSetup::default() })
        .to_vec()
}

#[derive(Debug)]
pub struct WorkResult {
    pub tally: Tally,
    /// The taken items, with the tokens of their runs.
    pub taken: Vec<TakenItem>,
    pub model: ScriptedModel,
}

impl AgentTest {
    pub fn new(engine: Engine) -> Self {
        let env = TestEnv::new(engine);
        env.workflow("build");
        env.execute_json(
            "set_task",
            json!({ "workflow": "build", "variant": "unit/go", "title": "Test it", "recurring": true }),
        )
        .unwrap();
        env.execute_json("set_agent", json!({ "handle": "bot", "model": "m-1", "identity": IDENTITY })).unwrap();
        Self { env }
    }

    pub fn queue(&self) {
        self.env.execute_json("queue_add", json!({ "task": "unit/go", "agent": "bot", "max_attempts": 1 })).unwrap();
    }

    /// Queues the task once and runs a worker, with these turns of the model and this answer to the closing prompt.
    #[track_caller]
    pub fn run_task(&self, setup: &ModelSetup, turns: Value, closing: Value) -> (RunDetails, WorkResult) {
        self.queue();
        let work = self.work(setup, turns, closing);
        (self.last_run(), work)
    }

    /// Runs a worker until no item is ready.
    pub fn work(&self, setup: &ModelSetup, turns: Value, closing: Value) -> WorkResult {
        let actors = json!([{ "match": CLOSING_PROMPT, "turns": [closing] }, { "match": WAKE_PROMPT, "turns": turns }]);
        self.work_with(setup, &json!({ "actors": actors }), |_| {})
    }

    /// Runs a worker with a complete scenario of the model, and a handler for its events.
    pub fn work_with(
        &self,
        setup: &ModelSetup,
        scenario: &Value,
        on_event: impl Fn(&WorkerEvent<'_>) + Sync,
    ) -> WorkResult {
        let model = ScriptedModel::start(Scenario::parse(&scenario.to_string()));
        let url = match setup.provider {
            Provider::Openai => format!("{}/v1", model.url()),
            _ => model.url(),
        };
        let price = Price { input: 1_000.0, output: 10_000.0, cache_write: None, cache_read: None };
        let settings = ModelSettings {
            provider: setup.provider,
            url: Some(url),
            key: Secret("sk-test".into()),
            model: Some("m-0".into()),
            stream: setup.stream,
            timeout: setup.timeout,
            back_off: Duration::from_millis(1),
            native_tools: setup.native_tools,
            prices: if setup.priced { BTreeMap::from([("m-1".to_owned(), price)]) } else { BTreeMap::new() },
            context_tokens: setup.context_tokens.unwrap_or(ModelSettings::default().context_tokens),
            ..ModelSettings::default()
        };
        let backend = AgentBackend { model: settings.build().unwrap(), settings, pages: self.pages() };
        let (tally, taken) = self.work_with_backend(setup, backend, on_event);
        WorkResult { tally, taken, model }
    }

    /// The pages of the test environment, as the server renders them.
    pub fn pages(&self) -> Arc<Site> {
        Arc::new(Site::new(Arc::new(Core::new(Store::open(self.env.database.url()).unwrap()))))
    }

    /// Runs a worker with any model and any pages.
    pub fn work_with_backend(
        &self,
        setup: &ModelSetup,
        backend: AgentBackend,
        on_event: impl Fn(&WorkerEvent<'_>) + Sync,
    ) -> (Tally, Vec<TakenItem>) {
        let settings = Settings {
            selection: AgentSelection::Agents(vec!["bot".into()]),
            concurrency: setup.concurrency,
            once: true,
            lease_seconds: 60,
            timeout: setup.task_timeout,
            grace: Duration::ZERO,
            on_stop: OnStop::Release,
            program: PathBuf::from("/nowhere"),
            backend: Ok(backend),
            clients: Vec::new(),
        };
        let taken = Mutex::new(Vec::new());
        let watch = |event: &WorkerEvent<'_>| {
            if let WorkerEvent::Taken(item) = event {
                taken.lock().unwrap().push((*item).clone());
            }
            on_event(event);
        };
        let (tell, notes) = mpsc::channel();
        let tally = work(&self.env.core, &self.env.ada, &settings, (&tell, &notes), &watch).unwrap();
        (tally, taken.into_inner().unwrap())
    }

    pub fn run(&self, run: Id<kind::Run>) -> RunDetails {
        self.env.read(|reader| Ok(ShowRun { run: run.into(), wake: true }.answer(reader, self.env.now())?))
    }

    pub fn last_run(&self) -> RunDetails {
        self.env.read(|reader| Ok(ShowRun { run: Ref::new("last"), wake: true }.answer(reader, self.env.now())?))
    }

    pub fn scratchpad(&self) -> (String, i64) {
        let shown =
            self.env.read(|reader| Ok(GetScratchpad { agent: Ref::new("bot") }.answer(reader, self.env.now())?));
        (shown.content, shown.revision)
    }

    /// The contents of the agent's reports, the oldest first.
    pub fn reports(&self) -> Vec<String> {
        self.env
            .read(|reader| {
                Ok(reader.query::<(String,)>("select content from reports where tenant_id = ?1 order by id", &[])?)
            })
            .into_iter()
            .map(|(content,)| content)
            .collect()
    }

    pub fn item_status(&self) -> String {
        let found = self.env.read(|reader| {
            Ok(reader
                .query::<(String,)>("select status from queue_items where tenant_id = ?1 order by id desc", &[])?)
        });
        found[0].0.clone()
    }

    /// The error for a token that no longer works.
    #[track_caller]
    pub fn refusal(&self, token: &str) -> String {
        self.env.core.authenticate(&Credential::Token(Secret(token.to_owned()))).expect_err("a dead token").to_string()
    }

    /// Takes an item without a worker.
    pub fn take_item(&self) -> TakenItem {
        let take = TakeItems { agent: Some(Ref::new("bot")), ..TakeItems::default() };
        self.env.execute(take).unwrap().remove(0)
    }
}

pub const IDENTITY: &str = "You are bot, who tests Go code for the kitchen team with great care and never forgets to look at the race detector, twice if need be.";

/// The types of a run's steps.
pub fn steps(run: &RunDetails) -> Vec<&'static str> {
    run.steps.iter().map(|step| step.step_type.as_str()).collect()
}

/// The detail of the last step of a type.
#[track_caller]
pub fn step_detail(run: &RunDetails, step_type: &str) -> String {
    let step = run.steps.iter().rfind(|step| step.step_type.as_str() == step_type);
    step.unwrap_or_else(|| panic!("no {step_type} in {:#?}", run.steps)).detail.clone().unwrap_or_default()
}

/// The status and the outcome of a run.
pub fn status_of(run: &RunDetails) -> (&'static str, &str) {
    (run.run.run.status.as_str(), run.run.run.outcome.as_deref().unwrap_or_default())
}

pub fn done(message: &str) -> Value {
    json!([{ "tool": "done", "input": { "message": message } }])
}

pub fn closing_answer(scratchpad: &str, report: &str) -> Value {
    let report = json!({ "one_liner": report, "tldr": report, "content": report });
    let answer = json!({ "scratchpad": scratchpad, "report": report });
    json!([{ "text": format!("Here you are.\n```json\n{answer}\n```") }])
}

/// Waits until a condition is true.
#[track_caller]
pub fn until(mut condition: impl FnMut() -> bool) {
    wait_until("it is so", Duration::from_secs(30), || condition().then_some(()));
}

//! A env with an agent, a task for it, and a model that keeps to a script.

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
    queue::{TakeItems, Taken},
};
use trackway_domain::{Id, Ref, kind};
use trackway_runner::{
    Event, Serves, Settings, Stopping, Tally,
    agent::Means,
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
    run::{RunInFull, ShowRun},
    scratchpad::GetScratchpad,
};

/// What the first message of an agent's conversation holds, and what its closing prompt begins with.
const WAKES: &str = "What you need to know";
const CLOSES: &str = "[Trackway: end of run]";

pub struct Lab {
    pub env: TestEnv,
}

/// How the model is asked.
#[derive(Debug, Clone)]
pub struct Way {
    pub provider: Provider,
    pub stream: bool,
    pub native_tools: bool,
    pub timeout: Duration,
    pub concurrency: usize,
    pub priced: bool,
    pub context_tokens: Option<usize>,
    pub task_timeout: Duration,
}

impl Default for Way {
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

/// Both providers, streamed and whole.
pub fn ways() -> Vec<Way> {
    [(Provider::Anthropic, true), (Provider::Anthropic, false), (Provider::Openai, true), (Provider::Openai, false)]
        .map(|(provider, stream)| Way { provider, stream, ..Way::default() })
        .to_vec()
}

/// What came of working.
#[derive(Debug)]
pub struct Worked {
    pub tally: Tally,
    /// What was taken, with the tokens.
    pub taken: Vec<Taken>,
    pub model: ScriptedModel,
}

impl Lab {
    pub fn new(engine: Engine) -> Self {
        let env = TestEnv::new(engine);
        env.workflow("build");
        env.act(
            "set_task",
            json!({ "workflow": "build", "variant": "unit/go", "title": "Test it", "recurring": true }),
        )
        .unwrap();
        env.act("set_agent", json!({ "handle": "bot", "model": "m-1", "identity": IDENTITY })).unwrap();
        Self { env }
    }

    pub fn queue(&self) {
        self.env.act("queue_add", json!({ "task": "unit/go", "agent": "bot", "max_attempts": 1 })).unwrap();
    }

    /// Queues the task once and lets the agent work on it: these turns, then this answer to the closing prompt.
    #[track_caller]
    pub fn plays(&self, way: &Way, turns: Value, closing: Value) -> (RunInFull, Worked) {
        self.queue();
        let worked = self.works(way, turns, closing);
        (self.last_run(), worked)
    }

    /// Lets the agent work until nothing is ready.
    pub fn works(&self, way: &Way, turns: Value, closing: Value) -> Worked {
        let actors = json!([{ "match": CLOSES, "turns": [closing] }, { "match": WAKES, "turns": turns }]);
        self.works_with(way, &json!({ "actors": actors }), |_| {})
    }

    /// The same, with a whole scenario, and someone who hears what happens.
    pub fn works_with(&self, way: &Way, scenario: &Value, hears: impl Fn(&Event<'_>) + Sync) -> Worked {
        let model = ScriptedModel::start(Scenario::parse(&scenario.to_string()));
        let url = match way.provider {
            Provider::Openai => format!("{}/v1", model.url()),
            _ => model.url(),
        };
        let price = Price { input: 1_000.0, output: 10_000.0, cache_write: None, cache_read: None };
        let settings = ModelSettings {
            provider: way.provider,
            url: Some(url),
            key: Secret("sk-test".into()),
            model: Some("m-0".into()),
            stream: way.stream,
            timeout: way.timeout,
            back_off: Duration::from_millis(1),
            native_tools: way.native_tools,
            prices: if way.priced { BTreeMap::from([("m-1".to_owned(), price)]) } else { BTreeMap::new() },
            context_tokens: way.context_tokens.unwrap_or(ModelSettings::default().context_tokens),
            ..ModelSettings::default()
        };
        let means = Means { model: settings.build().unwrap(), settings, pages: self.pages() };
        let (tally, taken) = self.works_through(way, means, hears);
        Worked { tally, taken, model }
    }

    /// The pages of the env, as the server answers them.
    pub fn pages(&self) -> Arc<Site> {
        Arc::new(Site::new(Arc::new(Core::new(Store::open(self.env.database.url()).unwrap()))))
    }

    /// The same, with any model and any pages.
    pub fn works_through(&self, way: &Way, means: Means, hears: impl Fn(&Event<'_>) + Sync) -> (Tally, Vec<Taken>) {
        let settings = Settings {
            serves: Serves::Agents(vec!["bot".into()]),
            concurrency: way.concurrency,
            once: true,
            lease_seconds: 60,
            timeout: way.task_timeout,
            grace: Duration::ZERO,
            stopping: Stopping::GiveBack,
            program: PathBuf::from("/nowhere"),
            means: Ok(means),
            clients: Vec::new(),
        };
        let taken = Mutex::new(Vec::new());
        let watch = |event: &Event<'_>| {
            if let Event::Took(item) = event {
                taken.lock().unwrap().push((*item).clone());
            }
            hears(event);
        };
        let (tell, notes) = mpsc::channel();
        let tally = work(&self.env.core, &self.env.ada, &settings, (&tell, &notes), &watch).unwrap();
        (tally, taken.into_inner().unwrap())
    }

    pub fn run(&self, run: Id<kind::Run>) -> RunInFull {
        self.env.read(|reader| Ok(ShowRun { run: run.into(), wake: true }.answer(reader, self.env.now())?))
    }

    pub fn last_run(&self) -> RunInFull {
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

    /// What happens to whoever still has the token.
    #[track_caller]
    pub fn refusal(&self, token: &str) -> String {
        self.env.core.enter(&Credential::Token(Secret(token.to_owned()))).expect_err("a dead token").to_string()
    }

    /// Takes an item by hand.
    pub fn takes(&self) -> Taken {
        let take = TakeItems { agent: Some(Ref::new("bot")), ..TakeItems::default() };
        self.env.execute(take).unwrap().remove(0)
    }
}

pub const IDENTITY: &str = "You are bot, who tests Go code for the kitchen team with great care and never forgets to look at the race detector, twice if need be.";

/// The types of a run's steps.
pub fn steps(run: &RunInFull) -> Vec<&'static str> {
    run.steps.iter().map(|step| step.step_type.word()).collect()
}

/// What a step says, by its type: the last of them.
#[track_caller]
pub fn said(run: &RunInFull, step_type: &str) -> String {
    let step = run.steps.iter().rfind(|step| step.step_type.word() == step_type);
    step.unwrap_or_else(|| panic!("no {step_type} in {:#?}", run.steps)).detail.clone().unwrap_or_default()
}

/// The words that say how a run ended.
pub fn how(run: &RunInFull) -> (&'static str, &str) {
    (run.run.run.status.word(), run.run.run.outcome.as_deref().unwrap_or_default())
}

pub fn done(message: &str) -> Value {
    json!([{ "tool": "done", "input": { "message": message } }])
}

pub fn remembers(scratchpad: &str, report: &str) -> Value {
    let report = json!({ "one_liner": report, "tldr": report, "content": report });
    let answer = json!({ "scratchpad": scratchpad, "report": report });
    json!([{ "text": format!("Here you are.\n```json\n{answer}\n```") }])
}

/// Waits until something is so.
#[track_caller]
pub fn until(mut is_so: impl FnMut() -> bool) {
    wait_until("it is so", Duration::from_secs(30), || is_so().then_some(()));
}

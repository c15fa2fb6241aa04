//! Time that Trackway's agent loop adds to each model turn. The model answers at once, so that its own time does not
//! count.

use std::{path::PathBuf, sync::Arc, time::Duration};

use serde_json::{Value, json};
use trackway_actions::Core;
use trackway_runner::{
    AgentSelection, OnStop, Settings,
    agent::AgentBackend,
    model::{ModelSettings, Scripted},
    work,
};
use trackway_server::Site;
use trackway_store::Store;

use crate::{
    BenchResult,
    bench_env::{AGENT, BenchEnv},
    databases::Databases,
    measure::{Repetitions, format_duration, time_calls},
    table::{Table, verdict},
};

pub const HEADING: &str = "## turn: the agent loop";
const REPETITIONS: Repetitions = Repetitions { warm_up: 3, count: 30 };
/// Turns of the long run, and of the short run whose time is subtracted.
const TURNS: (usize, usize) = (26, 1);
/// Target for the time of one turn.
const TURN_MAX: Duration = Duration::from_millis(2);

pub fn measure(databases: &Databases) -> BenchResult<()> {
    println!(
        "\nA worker takes an item, and a scripted model that answers at once works on it. Each turn reads a page and \
         records two steps and the token usage. The time of a run of {} turn is subtracted from that of a run of {} \
         turns, and the difference is divided by the additional turns. Target: less than 2 ms per turn.\n",
        TURNS.1, TURNS.0
    );
    let mut table = Table::new(["engine", "per turn", "met"]);
    for engine in databases.engines() {
        let env = BenchEnv::create(databases.create(engine, "turn")?)?;
        env.execute_json("set_task", json!({ "workflow": "unit", "variant": "turn", "recurring": true }))?;
        let [long, short] = [TURNS.0, TURNS.1].map(|turns| run_duration(&env, turns));
        let turns = u32::try_from(TURNS.0 - TURNS.1)?;
        let turn = long?.saturating_sub(short?) / turns;
        table.row([engine.name().to_owned(), format_duration(turn), verdict(turn < TURN_MAX)]);
    }
    table.print();
    Ok(())
}

/// The median time of a run with this many turns, from the queue item to the end of the run.
fn run_duration(env: &BenchEnv, turns: usize) -> BenchResult<Duration> {
    let read_page = json!([{ "tool": "fetch_page", "input": { "path": "/tasks/turn" } }, { "usage": { "input_tokens": 1, "output_tokens": 1 } }]);
    let mut all: Vec<Value> = vec![read_page; turns - 1];
    all.push(json!([{ "tool": "done", "input": { "message": "done" } }]));
    let actors =
        json!([{ "match": "[Trackway: end of run]", "turns": [[{ "text": "{}" }]] }, { "match": "", "turns": all }]);
    let model = Scripted::parse(&json!({ "actors": actors }).to_string())?;
    let pages = Arc::new(Site::new(Arc::new(Core::new(Store::open(env.database.url())?))));
    let settings = Settings {
        selection: AgentSelection::Agents(vec![AGENT.to_owned()]),
        concurrency: 1,
        once: true,
        lease_seconds: 60,
        timeout: Duration::from_mins(1),
        grace: Duration::ZERO,
        on_stop: OnStop::Release,
        program: PathBuf::new(),
        backend: Ok(AgentBackend { model: Arc::new(model), settings: ModelSettings::default(), pages }),
        clients: Vec::new(),
    };
    let samples = time_calls(REPETITIONS, |_| {
        env.execute_json("queue_add", json!({ "task": "turn", "agent": AGENT }))?;
        let (sender, notes) = std::sync::mpsc::channel();
        let tally = work(&env.core, &env.person, &settings, (&sender, &notes), &|_| {})?;
        if tally.completed == 1 { Ok(()) } else { Err(format!("the run did not complete: {tally:?}").into()) }
    })?;
    Ok(samples.median())
}

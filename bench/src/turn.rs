//! What the loop of an agent adds to each turn of a model: our time, not the model's.

use std::{path::PathBuf, sync::Arc, time::Duration};

use serde_json::{Value, json};
use trackway_actions::Core;
use trackway_runner::{
    Serves, Settings, Stopping,
    agent::Means,
    model::{ModelSettings, Scripted},
    work,
};
use trackway_server::Site;
use trackway_store::Store;

use crate::{
    Outcome,
    bench_env::{AGENT, BenchEnv},
    measure::{Often, calls, shown},
    place::Places,
    table::{Table, verdict},
};

pub const HEADING: &str = "## turn: the loop of an agent";
const OFTEN: Often = Often { warm_up: 3, count: 30 };
/// Turns of the long run, and of the short one whose time is taken off.
const TURNS: (usize, usize) = (26, 1);
/// What a turn may take of ours.
const TURN_MAX: Duration = Duration::from_millis(2);

pub fn measure(places: &Places) -> Outcome<()> {
    println!(
        "\nA worker takes an item and a scripted model works on it, which answers at once; each turn reads a page, and is written \
         down as two steps and a usage. A run of {} turns less one of {}. Target: under 2 ms a turn.\n",
        TURNS.0, TURNS.1
    );
    let mut table = Table::new(["engine", "a turn", "met"]);
    for engine in places.engines() {
        let env = BenchEnv::found(places.database(engine, "turn")?)?;
        env.act("set_task", json!({ "workflow": "unit", "variant": "turn", "recurring": true }))?;
        let [long, short] = [TURNS.0, TURNS.1].map(|turns| runs(&env, turns));
        let turns = u32::try_from(TURNS.0 - TURNS.1)?;
        let turn = long?.saturating_sub(short?) / turns;
        table.row([engine.name().to_owned(), shown(turn), verdict(turn < TURN_MAX)]);
    }
    table.print();
    Ok(())
}

/// What a run of so many turns takes, from the item to its end.
fn runs(env: &BenchEnv, turns: usize) -> Outcome<Duration> {
    let look = json!([{ "tool": "fetch_page", "input": { "path": "/tasks/turn" } }, { "usage": { "input_tokens": 1, "output_tokens": 1 } }]);
    let mut all: Vec<Value> = vec![look; turns - 1];
    all.push(json!([{ "tool": "done", "input": { "message": "done" } }]));
    let actors =
        json!([{ "match": "[Trackway: end of run]", "turns": [[{ "text": "{}" }]] }, { "match": "", "turns": all }]);
    let model = Scripted::parse(&json!({ "actors": actors }).to_string())?;
    let pages = Arc::new(Site::new(Arc::new(Core::new(Store::open(env.database.url())?))));
    let settings = Settings {
        serves: Serves::Agents(vec![AGENT.to_owned()]),
        concurrency: 1,
        once: true,
        lease_seconds: 60,
        timeout: Duration::from_mins(1),
        grace: Duration::ZERO,
        stopping: Stopping::GiveBack,
        program: PathBuf::new(),
        means: Ok(Means { model: Arc::new(model), settings: ModelSettings::default(), pages }),
        clients: Vec::new(),
    };
    let samples = calls(OFTEN, |_| {
        env.act("queue_add", json!({ "task": "turn", "agent": AGENT }))?;
        let (tell, notes) = std::sync::mpsc::channel();
        let tally = work(&env.core, &env.person, &settings, (&tell, &notes), &|_| {})?;
        if tally.completed == 1 { Ok(()) } else { Err(format!("the run did not complete: {tally:?}").into()) }
    })?;
    Ok(samples.median())
}

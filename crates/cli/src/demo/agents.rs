//! Two agents that think with a model and remember. The model keeps to a script: no network, no key.

use std::{collections::BTreeMap, fmt::Write, fs, path::Path};

use serde_json::{Value, json};
use trackway_runner::model::Price;

use super::{Teller, id};
use crate::{failure::Failure, model, work};

/// What a million of the script's tokens would cost.
const PRICE: Price = Price { input: 3.0, output: 15.0, cache_write: None, cache_read: None };

/// One agent does its task, votes, and asks another to look at it; that one wakes with the report of the first.
pub fn work_and_remember(teller: &mut Teller, directory: &Path, decision: &str) -> Result<(), Failure> {
    teller.says("Agents think with a model. Here it keeps to a script, so that this needs no network and no key.");
    teller.types(&["agent", "set", "--handle", "linus", "--role", "coder"])?;
    teller.types(&["agent", "set", "--handle", "margaret", "--role", "reviewer"])?;
    teller.types(&["task", "set", "--workflow", "quality", "--variant", "cache/fix", "--title", "Fix the race"])?;
    teller.types(&[
        "task",
        "set",
        "--workflow",
        "quality",
        "--variant",
        "cache/review",
        "--title",
        "Review the fix",
    ])?;
    teller.types(&["link", "add", "--from", "cache/review", "--to", "cache/fix", "--type", "follows_up"])?;
    teller.types(&["queue", "add", "--task", "cache/fix", "--agent", "linus"])?;
    let script = directory.join("model.json");
    fs::write(&script, script_of(decision).to_string())?;
    teller.wrote("export TRACKWAY_MODEL_SCRIPT=model.json");
    works(teller, "linus", &script)?;
    teller.says("What it made, and what it noted for its next run.");
    teller.asks(&["made", "last"])?;
    teller.asks(&["scratchpad", "get", "--agent", "linus"])?;
    teller.says("It asked for a review. Whoever does that is told what linus reported: the tasks are linked.");
    teller.asks(&["wake", "cache/review", "--linked"])?;
    works(teller, "margaret", &script)?;
    teller.says("From the review back to the fix, and to whoever wanted it.");
    let made = teller.quietly(&["made", "last"])?;
    let note = made["touches"].as_array().into_iter().flatten().find(|touch| touch["resource_type"] == "note");
    teller.asks(&["why", &note.map(|note| id(note, "resource_id")).unwrap_or_default()])?;
    teller.asks(&["usage", "--by", "agent"])
}

fn works(teller: &mut Teller, agent: &str, script: &Path) -> Result<(), Failure> {
    teller.wrote(&format!("trackway work --agent {agent} --once"));
    let url = teller.house.core.store().url().clone();
    let means = model::scripted(script, BTreeMap::from([("scripted".to_owned(), PRICE)]), &url);
    for line in work::work_once(&teller.house, Some(agent), means, &teller.program)? {
        let _ = writeln!(teller.story, "    {line}");
    }
    Ok(())
}

/// What the model says, to whom.
fn script_of(decision: &str) -> Value {
    let act = |action: &str, params: Value| json!({ "tool": "execute_action", "input": { "path": "/whoami", "action": action, "params": params } });
    let look = |path: &str| json!({ "tool": "fetch_page", "input": { "path": path } });
    let done = |message: &str| json!({ "tool": "done", "input": { "message": message } });
    let used = |input_tokens, output_tokens| json!({ "usage": { "input_tokens": input_tokens, "output_tokens": output_tokens } });
    let remembers = |scratchpad: &str, one_liner: &str, content: &str| {
        let answer = json!({ "scratchpad": scratchpad, "report": { "one_liner": one_liner, "tldr": one_liner, "content": content } });
        json!([[{ "text": format!("```json\n{answer}\n```") }, used(1_500, 120)]])
    };
    json!({ "actors": [
        { "match": "[Trackway: end of run] linus", "turns": remembers(
            "The cache has one lock now. Measure reads before touching it again.",
            "The race is fixed with a lock.",
            "Two writers shared one map. A lock around it fixes the race; reads cost 3 % more.") },
        { "match": "[Trackway: end of run] margaret", "turns": remembers(
            "Linus measures before he claims. Reviews of the cache: look at reads.",
            "The lock is right.",
            "The lock covers every writer. The 3 % are worth it.") },
        { "match": "linus", "turns": [
            [{ "text": "What is asked of me?" }, look("/tasks/cache/fix"), used(2_100, 40)],
            [act("create_note", json!({ "studio": "main", "title": "One lock around the cache", "body": "Reads cost 3 % more." })),
             act("vote", json!({ "decision": decision, "option": "a lock", "prefer": true })), used(2_600, 90)],
            [act("queue_add", json!({ "task": "cache/review", "agent": "margaret", "why": "a second pair of eyes" })), used(2_900, 50)],
            [done("The race is fixed; margaret looks at it."), used(3_000, 30)],
        ] },
        { "match": "margaret", "turns": [
            [act("create_note", json!({ "studio": "main", "title": "Review: the lock holds", "body": "Every writer takes it." })), used(2_400, 70)],
            [done("The fix is good."), used(2_500, 20)],
        ] },
    ] })
}

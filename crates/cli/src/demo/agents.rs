//! Two agents with a model and a memory. The model is scripted, so that the demo needs no network and no API key.

use std::{collections::BTreeMap, fmt::Write, fs, path::Path};

use serde_json::{Value, json};
use trackway_runner::model::Price;

use super::{Demo, short_id};
use crate::{failure::Failure, model, work};

/// The price of a million tokens.
const PRICE: Price = Price { input: 3.0, output: 15.0, cache_write: None, cache_read: None };

/// One agent works on its task, votes, and queues a review. The reviewer's wake prompt contains the first agent's
/// report.
pub fn show_agents(demo: &mut Demo, directory: &Path, decision: &str) -> Result<(), Failure> {
    demo.add_heading("Agents driven by a model. Here the model is scripted: no network, no API key.");
    demo.run(&["agent", "set", "--handle", "linus", "--role", "coder"])?;
    demo.run(&["agent", "set", "--handle", "margaret", "--role", "reviewer"])?;
    demo.run(&["task", "set", "--workflow", "quality", "--variant", "cache/fix", "--title", "Fix the race"])?;
    demo.run(&["task", "set", "--workflow", "quality", "--variant", "cache/review", "--title", "Review the fix"])?;
    demo.run(&["link", "add", "--from", "cache/review", "--to", "cache/fix", "--type", "follows_up"])?;
    demo.run(&["queue", "add", "--task", "cache/fix", "--agent", "linus"])?;
    let script = directory.join("model.json");
    fs::write(&script, model_script(decision).to_string())?;
    demo.show_command("export TRACKWAY_MODEL_SCRIPT=model.json");
    run_worker(demo, "linus", &script)?;
    demo.add_heading("What linus created, and what he noted in his scratchpad for his next run.");
    demo.run_and_show(&["made", "last"])?;
    demo.run_and_show(&["scratchpad", "get", "--agent", "linus"])?;
    demo.add_heading(
        "linus queued a review. The tasks are linked, so the reviewer's wake prompt contains linus's report.",
    );
    demo.run_and_show(&["wake", "cache/review", "--linked"])?;
    run_worker(demo, "margaret", &script)?;
    demo.add_heading("`why` follows the review back to the fix, and to the person who requested it.");
    let made = demo.run_hidden(&["made", "last"])?;
    let note = made["touches"].as_array().into_iter().flatten().find(|touch| touch["resource_type"] == "note");
    demo.run_and_show(&["why", &note.map(|note| short_id(note, "resource_id")).unwrap_or_default()])?;
    demo.run_and_show(&["usage", "--by", "agent"])
}

fn run_worker(demo: &mut Demo, agent: &str, script: &Path) -> Result<(), Failure> {
    demo.show_command(&format!("trackway work --agent {agent} --once"));
    let url = demo.app.core.store().url().clone();
    let backend = model::scripted(script, BTreeMap::from([("scripted".to_owned(), PRICE)]), &url);
    for line in work::work_once(&demo.app, Some(agent), backend, &demo.program)? {
        let _ = writeln!(demo.output, "    {line}");
    }
    Ok(())
}

/// The scripted replies.
fn model_script(decision: &str) -> Value {
    let act = |action: &str, params: Value| json!({ "tool": "execute_action", "input": { "path": "/whoami", "action": action, "params": params } });
    let fetch = |path: &str| json!({ "tool": "fetch_page", "input": { "path": path } });
    let done = |message: &str| json!({ "tool": "done", "input": { "message": message } });
    let usage = |input_tokens, output_tokens| json!({ "usage": { "input_tokens": input_tokens, "output_tokens": output_tokens } });
    let closing_answer = |scratchpad: &str, one_liner: &str, content: &str| {
        let answer = json!({ "scratchpad": scratchpad, "report": { "one_liner": one_liner, "tldr": one_liner, "content": content } });
        json!([[{ "text": format!("```json\n{answer}\n```") }, usage(1_500, 120)]])
    };
    json!({ "actors": [
        { "match": "[Trackway: end of run] linus", "turns": closing_answer(
            "The cache has one lock now. Measure reads before touching it again.",
            "The race is fixed with a lock.",
            "Two writers shared one map. A lock around it fixes the race; reads cost 3 % more.") },
        { "match": "[Trackway: end of run] margaret", "turns": closing_answer(
            "Linus measures before he claims. Reviews of the cache: look at reads.",
            "The lock is right.",
            "The lock covers every writer. The 3 % are worth it.") },
        { "match": "linus", "turns": [
            [{ "text": "What is asked of me?" }, fetch("/tasks/cache/fix"), usage(2_100, 40)],
            [act("create_note", json!({ "studio": "main", "title": "One lock around the cache", "body": "Reads cost 3 % more." })),
             act("vote", json!({ "decision": decision, "option": "a lock", "prefer": true })), usage(2_600, 90)],
            [act("queue_add", json!({ "task": "cache/review", "agent": "margaret", "why": "a second pair of eyes" })), usage(2_900, 50)],
            [done("The race is fixed; margaret looks at it."), usage(3_000, 30)],
        ] },
        { "match": "margaret", "turns": [
            [act("create_note", json!({ "studio": "main", "title": "Review: the lock holds", "body": "Every writer takes it." })), usage(2_400, 70)],
            [done("The fix is good."), usage(2_500, 20)],
        ] },
    ] })
}

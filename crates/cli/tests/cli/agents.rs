//! Worker processes that run agents with a model.

use serde_json::{Value, json};

use crate::terminal::{Terminal, both_engines, column, text};

fn queue_tea_task(terminal: &Terminal) {
    terminal.json(&["workflow", "set", "--name", "build"]);
    terminal.json(&["task", "set", "--workflow", "build", "--variant", "tea", "--title", "Make tea"]);
    terminal.json(&["agent", "set", "--handle", "bot"]);
    terminal.json(&["queue", "add", "--task", "tea", "--agent", "bot", "--max-attempts", "1"]);
}

fn run_worker(terminal: &Terminal, environment: &[(&str, &str)]) -> Value {
    let mut command = terminal.command(&["work", "--agent", "bot", "--once", "--json"]);
    let output = crate::terminal::run_command({
        command.envs(environment.iter().copied());
        command
    });
    assert_eq!(output.code, 0, "{output:?}");
    terminal.json(&["run", "show", "last"])
}

both_engines! {
    fn worker_runs_an_agent_with_a_scripted_model(terminal: Terminal) {
        queue_tea_task(&terminal);
        let script = terminal.home.path().join("script.json");
        let answer = json!({ "scratchpad": "Kettle first.", "report": null }).to_string();
        let actors = json!([
            { "match": "[Trackway: end of run] bot on tea", "turns": [[{ "text": answer }]] },
            { "match": "What you need to know", "turns": [
                [{ "tool": "execute_action", "input": { "path": "/whoami", "action": "create_note", "params": { "studio": "main", "title": "Tea" } } },
                 { "usage": { "input_tokens": 1000, "output_tokens": 100 } }],
                [{ "tool": "done", "input": { "message": "Tea is ready." } }],
            ] },
        ]);
        std::fs::write(&script, json!({ "actors": actors }).to_string()).unwrap();
        let run = run_worker(&terminal, &[("TRACKWAY_MODEL_SCRIPT", script.to_str().unwrap())]);
        assert_eq!((&run["status"], &run["final_message"], &run["mode"]), (&json!("completed"), &json!("Tea is ready."), &json!("agent")), "{run:#}");
        assert_eq!((&run["chain_depth"], &run["cause_kind"], &run["no_effect"]), (&json!(0), &json!("queue_item"), &json!(false)));
        assert_eq!(column(&run["steps"], "type"), ["wake", "fetch_page", "think", "execute_action", "think", "done", "scratchpad_update"]);
        assert_eq!(terminal.json(&["scratchpad", "get", "--agent", "bot"])["content"], "Kettle first.");
        let usage = terminal.json(&["usage", "--by", "agent"]);
        assert_eq!((&usage[0]["key"], &usage[0]["calls"], &usage[0]["input_tokens"], &usage[0]["cost"]), (&json!("bot"), &json!(1), &json!(1000), &json!(null)));
        assert_eq!(terminal.json(&["usage", "--by", "task"])[0]["key"], "tea");
        assert_eq!(terminal.json(&["usage", "--by", "model"])[0]["key"], "scripted");
        let why = terminal.json(&["why", &text(&run["touches"][0]["resource_id"])]);
        assert_eq!(column(&why["chain"], "kind"), ["resource", "run", "agent", "task", "queue_item", "person"]);
    }

    fn work_without_a_configured_model_fails_with_a_hint(terminal: Terminal) {
        queue_tea_task(&terminal);
        let error = "agent bot cannot run here: no model is configured; set ANTHROPIC_API_KEY or OPENAI_API_KEY, or [model] in config.toml";
        assert_eq!(terminal.expect_error(&["work", "--agent", "bot", "--once"]), (2, error.to_owned()));
        assert_eq!(terminal.expect_error(&["task", "run", "tea", "--agent", "bot"]), (2, error.to_owned()));
        assert_eq!(terminal.json(&["queue", "size"])["by_status"], json!({ "ready": 1 }), "no item was taken");
    }

    fn one_worker_serves_two_agents_and_task_run_uses_an_agent(terminal: Terminal) {
        queue_tea_task(&terminal);
        terminal.json(&["agent", "set", "--handle", "second"]);
        terminal.json(&["queue", "add", "--task", "tea", "--agent", "second", "--description", "Green, for two", "--why", "guests"]);
        let script = terminal.home.path().join("script.json");
        let actors = json!([{ "match": "[Trackway", "turns": [[{ "text": "{}" }]] }, { "match": "What", "turns": [[{ "tool": "done", "input": { "message": "x" } }]] }]);
        std::fs::write(&script, json!({ "actors": actors }).to_string()).unwrap();
        let scripted = |arguments: &[&str]| {
            let mut command = terminal.command(arguments);
            command.env("TRACKWAY_MODEL_SCRIPT", &script);
            crate::terminal::run_command(command)
        };
        let output = scripted(&["work", "--agent", "bot", "--agent", "second", "--once", "--json"]);
        let tally: Value = serde_json::from_str(&output.stdout).unwrap();
        assert_eq!((&tally["data"]["taken"], &tally["data"]["completed"]), (&json!(2), &json!(2)), "{output:?}");
        let output = scripted(&["task", "run", "tea", "--agent", "bot", "--json"]);
        assert_eq!(output.code, 0, "{output:?}");
        let runs = terminal.json(&["run", "list"]);
        assert_eq!(column(&runs, "agent"), ["bot", "second", "bot"]);
        assert_eq!(column(&runs, "status"), ["completed"; 3]);
        // The wake prompt contains the description and the reason of the queue item.
        let run = terminal.json(&["run", "show", &text(&runs[1]["id"]), "--wake"]);
        let prompt = text(&run["wake"][0]["text"]);
        assert!(prompt.contains("Request:\n\n```text\nGreen, for two\n```\n\nWhy:\n\n```text\nguests\n```"), "{prompt}");
    }

    fn configured_model_prices_determine_run_cost(terminal: Terminal) {
        queue_tea_task(&terminal);
        let folder = terminal.home.path().join(".config/trackway");
        std::fs::create_dir_all(&folder).unwrap();
        let script = terminal.home.path().join("script.json");
        let turns = json!([[{ "tool": "done", "input": { "message": "x" } }, { "usage": { "input_tokens": 1_000_000, "output_tokens": 1_000 } }]]);
        std::fs::write(&script, json!({ "actors": [{ "match": "[Trackway", "turns": [[{ "text": "{}" }]] }, { "match": "What", "turns": turns }] }).to_string()).unwrap();
        let config = format!("[model]\nscript = {:?}\n[model.prices.scripted]\ninput = 3.0\noutput = 15.0\n", script.to_str().unwrap());
        std::fs::write(folder.join("config.toml"), config).unwrap();
        let run = run_worker(&terminal, &[]);
        assert_eq!((&run["status"], &run["cost"], &run["no_effect"]), (&json!("completed"), &json!(3.015), &json!(true)), "{run:#}");
    }
}

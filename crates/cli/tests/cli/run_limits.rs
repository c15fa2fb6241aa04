//! Run limits on agents, tasks and queue items, and the effect of an agent's error on its task.

use rmcp::model::ProtocolVersion;
use serde_json::{Value, json};

use crate::{
    mcp_client::Client,
    terminal::{Terminal, both_engines, column, run_command, text},
};

fn create_task_and_agent(terminal: &Terminal) {
    terminal.json(&["workflow", "set", "--name", "build"]);
    terminal.json(&["task", "set", "--workflow", "build", "--variant", "tea", "--title", "Make tea"]);
    terminal.json(&["agent", "set", "--handle", "bot"]);
}

/// Runs the agent once with a scripted model that takes these turns. Returns its run.
fn run_agent(terminal: &Terminal, turns: &Value) -> Value {
    let script = terminal.home.path().join("script.json");
    let end_of_run = json!([[{ "text": json!({ "scratchpad": "Kettle first." }).to_string() }]]);
    let actors = json!([{ "match": "[Trackway", "turns": end_of_run }, { "match": "What", "turns": turns }]);
    std::fs::write(&script, json!({ "actors": actors }).to_string()).unwrap();
    let mut command = terminal.command(&["work", "--agent", "bot", "--once", "--json"]);
    command.env("TRACKWAY_MODEL_SCRIPT", &script);
    let output = run_command(command);
    assert_eq!(output.code, 0, "{output:?}");
    terminal.json(&["run", "show", "last"])
}

fn fetch_page_turns() -> Value {
    json!([[{ "tool": "fetch_page", "input": { "path": "/queue" } }]])
}

both_engines! {
    fn limits_are_set_shown_and_cleared_on_agent_task_and_item(terminal: Terminal) {
        create_task_and_agent(&terminal);
        terminal.json(&["agent", "set", "--handle", "bot", "--max-steps", "9", "--timeout", "2h", "--spend-limit", "5", "--end-of-run", "off"]);
        let agent = terminal.json(&["agent", "get", "bot"]);
        assert_eq!((&agent["max_steps"], &agent["timeout"], &agent["spend_limit"], &agent["end_of_run"]), (&json!(9), &json!("2h"), &json!(5.0), &json!(false)));
        terminal.json(&["task", "set", "--workflow", "build", "--variant", "tea", "--max-steps", "8", "--timeout", "1h", "--spend-limit", "4", "--end-of-run", "on", "--retry-on-error"]);
        let limits = |row: &Value| (row["max_steps"].clone(), row["timeout"].clone(), row["spend_limit"].clone(), row["end_of_run"].clone());
        let task = terminal.json(&["task", "get", "tea"]);
        assert_eq!((limits(&task), &task["retry_on_error"], &task["status_reason"]), ((json!(8), json!("1h"), json!(4.0), json!(true)), &json!(true), &json!(null)));
        assert_eq!(limits(&terminal.json(&["task", "list"])[0]), limits(&task));
        let history = terminal.json(&["task", "history", "tea"]);
        let definition = &history["versions"][0]["changes"][0]["definition"];
        assert_eq!((limits(definition), &definition["retry_on_error"]), (limits(&task), &json!(true)), "{definition:#}");
        let id = text(&terminal.json(&["queue", "add", "--task", "tea", "--agent", "bot", "--max-steps", "2", "--timeout", "30m", "--spend-limit", "3", "--end-of-run", "off"])["id"]);
        let item = terminal.json(&["queue", "get", &id]);
        assert_eq!(limits(&item), (json!(2), json!("30m"), json!(3.0), json!(false)));
        assert_eq!(limits(&terminal.json(&["queue", "list"])[0]), limits(&item));
        terminal.json(&["task", "set", "--workflow", "build", "--variant", "tea", "--max-steps", "", "--timeout", "", "--spend-limit", "", "--end-of-run", "", "--retry-on-error", "false"]);
        let task = terminal.json(&["task", "get", "tea"]);
        assert_eq!((limits(&task), &task["retry_on_error"]), ((json!(null), json!(null), json!(null), json!(null)), &json!(false)));
        for arguments in [
            vec!["agent", "set", "--handle", "bot", "--max-steps", "0"],
            vec!["task", "set", "--workflow", "build", "--variant", "tea", "--max-steps", "201"],
            vec!["queue", "add", "--task", "tea", "--max-steps", "201"],
        ] {
            let wrong = arguments.last().unwrap();
            assert_eq!(terminal.expect_error(&arguments), (2, format!("--max-steps must be from 1 to 200, not {wrong}")));
        }
        for arguments in [
            vec!["agent", "set", "--handle", "bot", "--spend-limit=-1"],
            vec!["task", "set", "--workflow", "build", "--variant", "tea", "--spend-limit=-1"],
            vec!["queue", "add", "--task", "tea", "--spend-limit=-1"],
        ] {
            assert_eq!(terminal.expect_error(&arguments), (2, "--spend-limit must be 0 or more".to_owned()));
        }
    }

    fn item_limit_overrides_task_limit_which_overrides_agent_limit(terminal: Terminal) {
        create_task_and_agent(&terminal);
        terminal.json(&["agent", "set", "--handle", "bot", "--max-steps", "4"]);
        let add = ["queue", "add", "--task", "tea", "--agent", "bot", "--max-attempts", "1"];
        terminal.json(&add);
        let run = run_agent(&terminal, &fetch_page_turns());
        assert_eq!((&run["max_steps"], &run["final_message"]), (&json!(4), &json!("Reached maximum steps (4) without completing task")));
        terminal.json(&["task", "set", "--workflow", "build", "--variant", "tea", "--max-steps", "3", "--end-of-run", "off"]);
        terminal.json(&add);
        let run = run_agent(&terminal, &fetch_page_turns());
        assert_eq!((&run["max_steps"], &run["final_message"]), (&json!(3), &json!("Reached maximum steps (3) without completing task")));
        assert_eq!(column(&run["steps"], "type").last().map(String::as_str), Some("error"), "no end-of-run prompt was sent");
        terminal.json(&[&add[..], &["--max-steps", "2", "--end-of-run", "on"]].concat());
        let run = run_agent(&terminal, &fetch_page_turns());
        assert_eq!((&run["max_steps"], &run["outcome"]), (&json!(2), &json!("incomplete - max steps reached")));
        assert_eq!(column(&run["steps"], "type").last().map(String::as_str), Some("scratchpad_update"));
    }

    fn error_reported_by_an_agent_blocks_its_task(terminal: Terminal) {
        create_task_and_agent(&terminal);
        terminal.json(&["queue", "add", "--task", "tea", "--agent", "bot"]);
        let run = run_agent(&terminal, &json!([[{ "tool": "error", "input": { "message": "There is no kettle." } }]]));
        assert_eq!((&run["status"], &run["outcome"], &run["error"]), (&json!("failed"), &json!("error"), &json!("There is no kettle.")));
        let item = terminal.json(&["queue", "get", &text(&run["queue_item_id"])]);
        assert_eq!((&item["status"], &item["attempt"], &item["error"]), (&json!("failed"), &json!(1), &json!("There is no kettle.")));
        let task = terminal.json(&["task", "get", "tea"]);
        assert_eq!((&task["status"], &task["status_reason"]), (&json!("blocked"), &json!("There is no kettle.")));
        assert_eq!((terminal.json(&["ready"]), terminal.json(&["ready", "--claim"])), (json!([]), json!([])));
        assert!(terminal.run(&["task", "get", "tea"]).stdout.contains("There is no kettle."));
        terminal.json(&["task", "set", "--workflow", "build", "--variant", "tea", "--status", "open"]);
        let task = terminal.json(&["task", "get", "tea"]);
        assert_eq!((&task["status"], &task["status_reason"]), (&json!("open"), &json!(null)));
        assert_eq!(terminal.json(&["ready", "--claim"])[0]["variant"], "tea");
    }

    fn limits_are_set_over_mcp(terminal: Terminal) {
        create_task_and_agent(&terminal);
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        runtime.block_on(async {
            let client = Client::over_stdio(&terminal, None, &ProtocolVersion::V_2025_11_25).await;
            for (action, input) in [
                ("set_agent", json!({ "handle": "bot", "max_steps": 4, "timeout": "2h", "spend_limit": 5.0, "end_of_run": "off" })),
                ("set_task", json!({ "workflow": "build", "variant": "tea", "max_steps": 3, "timeout": "1h", "spend_limit": 4.0, "end_of_run": "on", "retry_on_error": true })),
                ("queue_add", json!({ "task": "tea", "agent": "bot", "max_attempts": 1, "max_steps": 2, "timeout": "30m", "spend_limit": 3.0, "end_of_run": "off" })),
            ] {
                client.call_ok("act", json!({ "action": action, "input": input })).await;
            }
            let page = client.call_ok("show", json!({ "page": "/tasks/tea" })).await;
            assert!(page.contains("max steps: 3") && page.contains("retry on error"), "{page}");
        });
        let agent = terminal.json(&["agent", "get", "bot"]);
        assert_eq!((&agent["max_steps"], &agent["timeout"], &agent["spend_limit"], &agent["end_of_run"]), (&json!(4), &json!("2h"), &json!(5.0), &json!(false)));
        let item = terminal.json(&["queue", "list"])[0].clone();
        assert_eq!((&item["max_steps"], &item["timeout"], &item["spend_limit"], &item["end_of_run"]), (&json!(2), &json!("30m"), &json!(3.0), &json!(false)));
        // The scripted model has no known price, so a spend limit would end the run at once.
        terminal.json(&["queue", "cancel", "--id", &text(&item["id"])]);
        terminal.json(&["agent", "set", "--handle", "bot", "--spend-limit", ""]);
        terminal.json(&["task", "set", "--workflow", "build", "--variant", "tea", "--spend-limit", ""]);
        terminal.json(&["queue", "add", "--task", "tea", "--agent", "bot", "--max-attempts", "1"]);
        assert_eq!(run_agent(&terminal, &fetch_page_turns())["max_steps"], 3);
    }
}

//! Workers that start Claude Code: the client's session is recorded as the worker's run.

use serde_json::{Value, json};
use trackway_testkit::write_program;

use crate::terminal::{CommandOutput, Terminal, both_engines, column, run_command_with_input, text};

/// Sends an event to `trackway hook` with a run token in its environment.
fn send_hook_event(terminal: &Terminal, token: &str, name: &str, more: &Value) -> CommandOutput {
    let mut event = json!({ "hook_event_name": name, "session_id": "5e551017-0000-4000-8000-000000000001", "cwd": terminal.home.path() });
    for (field, value) in more.as_object().unwrap() {
        event[field] = value.clone();
    }
    let mut command = terminal.command(&["hook", "--memory", "off"]);
    command.env("TRACKWAY_TOKEN", token);
    run_command_with_input(command, event.to_string().as_bytes())
}

both_engines! {
    fn worker_records_session_cost_and_enforces_the_spend_limit(terminal: Terminal) {
        let client = terminal.home.path().join("client");
        let result = json!({ "type": "result", "result": "Tea.", "session_id": "s", "num_turns": 1, "total_cost_usd": 0.6, "modelUsage": { "opus": { "costUSD": 0.6 } } });
        write_program(&client, &format!("#!/bin/sh\ncat > /dev/null\necho '{result}'\n"));
        terminal.json(&["workflow", "set", "--name", "build"]);
        terminal.json(&["task", "set", "--workflow", "build", "--variant", "tea", "--recurring", "true"]);
        terminal.json(&["agent", "set", "--handle", "coder", "--runner", "claude_code", "--spend-limit", "0.5"]);
        let run_worker = || {
            terminal.json(&["queue", "add", "--task", "tea", "--agent", "coder", "--max-attempts", "1"]);
            let mut command = terminal.command(&["work", "--agent", "coder", "--once"]);
            command.env("PATH", std::env::var_os("PATH").unwrap()).env("TRACKWAY_CLAUDE", &client);
            let output = command.output().unwrap();
            assert!(output.status.success(), "{output:?}");
            terminal.json(&["run", "show", "last"])
        };
        let run = run_worker();
        assert_eq!((&run["status"], &run["cost"]), (&json!("completed"), &json!(0.6)), "{run:#}");
        assert_eq!((column(&run["usage"], "model"), column(&run["usage"], "cost")), (vec!["opus".to_owned()], vec!["0.6".to_owned()]));
        let run = run_worker();
        assert_eq!((&run["status"], &run["outcome"]), (&json!("incomplete"), &json!("spend limit reached")), "{run:#}");
        assert_eq!(run["error"], "coder has spent 0.6000 of its daily limit of 0.5");
        assert_eq!(terminal.json(&["queue", "size"])["by_status"], json!({ "completed": 1, "waiting": 1 }));
    }

    fn session_with_a_run_token_is_recorded_in_that_run(terminal: Terminal) {
        terminal.json(&["agent", "set", "--handle", "coder", "--runner", "claude_code"]);
        let started = terminal.json(&["run", "start", "--agent", "coder"]);
        let (run, token) = (text(&started["run_id"]), text(&started["token"]));
        for (name, more) in [
            ("SessionStart", json!({ "source": "startup" })),
            ("UserPromptSubmit", json!({ "prompt": "make tea" })),
            ("Stop", json!({ "last_assistant_message": "Tea." })),
            ("UserPromptSubmit", json!({ "prompt": "and biscuits" })),
            ("Stop", json!({ "last_assistant_message": "Biscuits." })),
            ("SessionEnd", json!({ "reason": "other" })),
        ] {
            let output = send_hook_event(&terminal, &token, name, &more);
            assert_eq!((output.code, output.stderr.as_str()), (0, ""), "{name}");
        }
        let runs = terminal.json(&["run", "list"]);
        assert_eq!(column(&runs, "id"), [run.as_str()], "there is no other run: {runs:#}");
        assert_eq!((&runs[0]["status"], &runs[0]["agent"]), (&json!("running"), &json!("coder")), "the end of the session does not end the run");
        assert_eq!(runs[0]["session_id"], "5e551017-0000-4000-8000-000000000001");
        terminal.json(&["run", "end", &run, "--status", "completed", "--message", "Tea and biscuits."]);
        // The token became invalid when its run ended, so the next prompt starts a new run.
        send_hook_event(&terminal, &token, "UserPromptSubmit", &json!({ "prompt": "wash up" }));
        let runs = terminal.json(&["run", "list"]);
        assert_eq!(column(&runs, "status"), ["running", "completed"]);
        assert_eq!(runs[1]["final_message"], "Tea and biscuits.");
    }
}

mod real_client {
    use std::{fs, path::PathBuf};

    use trackway_testkit::{claude_client::ClaudeClient, scripted_model::ModelRequest};

    use super::*;
    use crate::real_claude_code::NEWEST;

    /// A project, and a client that plays a scripted scenario whenever it is started.
    struct WorkerSetup {
        project: PathBuf,
        client: PathBuf,
        requests: PathBuf,
    }

    fn set_up_worker(terminal: &Terminal, turns: Value) -> WorkerSetup {
        let home = terminal.home.path();
        let (project, client) = (home.join("kitchen"), home.join("client"));
        fs::create_dir(&project).unwrap();
        let (scenario, requests) = (home.join("scenario.json"), home.join("requests.jsonl"));
        let actors = json!([{ "match": "Work on your task now", "turns": turns }]);
        fs::write(&scenario, json!({ "actors": actors }).to_string()).unwrap();
        write_program(&client, &ClaudeClient::version(NEWEST).wrapper_script(&scenario, &requests));
        terminal.json(&["workspace", "set", "--name", "kitchen", "--dir", project.to_str().unwrap()]);
        terminal.json(&["workflow", "set", "--name", "build"]);
        terminal.json(&[
            "task",
            "set",
            "--workflow",
            "build",
            "--variant",
            "tea",
            "--title",
            "Make tea",
            "--workspace",
            "kitchen",
        ]);
        terminal.json(&["agent", "set", "--handle", "coder", "--runner", "claude_code"]);
        WorkerSetup { project, client, requests }
    }

    impl WorkerSetup {
        fn run_worker(&self, terminal: &Terminal) -> Value {
            terminal.json(&["queue", "add", "--task", "tea", "--agent", "coder", "--max-attempts", "1"]);
            let mut command = terminal.command(&["work", "--agent", "coder", "--once", "--lease", "30"]);
            command.env("PATH", std::env::var_os("PATH").unwrap());
            command.env("TRACKWAY_CLAUDE", format!("{} --allowedTools Write,Bash", self.client.display()));
            let output = command.output().unwrap();
            assert!(output.status.success(), "{output:?}");
            terminal.json(&["run", "show", "last"])
        }
    }

    both_engines! {
        fn worker_session_is_recorded_as_the_run(terminal: Terminal) {
            let answer = json!({ "scratchpad": "Tea is in the kitchen.", "report": { "one_liner": "Tea.", "tldr": "Tea made.", "content": "All of it." } });
            let setup = set_up_worker(&terminal, json!([
                [{ "tool": "Write", "input": { "file_path": "$CWD/tea.txt", "content": "tea\n" } }],
                [{ "tool": "Bash", "input": { "command": "trackway note create --studio main --title Brewed" } }],
                [{ "text": "Tea is ready." }],
                [{ "text": format!("```json\n{answer}\n```\nTea is ready.") }],
            ]));
            let run = setup.run_worker(&terminal);
            assert_eq!((&run["status"], &run["outcome"], &run["mode"]), (&json!("completed"), &json!("completed"), &json!("claude_code")), "{run:#}");
            assert_eq!((&run["agent"], &run["task"]), (&json!("coder"), &json!("tea")));
            assert!(!run["session_id"].is_null(), "{run:#}");
            let session = terminal.json(&["session", "list"]);
            assert_eq!(session[0]["id"], run["session_id"]);
            assert_eq!(terminal.json(&["run", "list"]).as_array().unwrap().len(), 1, "there is no other run");
            let touched = column(&run["touches"], "resource_type");
            assert_eq!(touched, ["file", "note", "report"], "{run:#}");
            let steps = column(&run["steps"], "type");
            assert_eq!((steps.first().unwrap().as_str(), steps.contains(&"scratchpad_update".to_owned())), ("wake", true), "{steps:?}");
            assert!(!run["usage"].as_array().unwrap().is_empty());
            assert_eq!(terminal.json(&["scratchpad", "get", "--agent", "coder"])["content"], "Tea is in the kitchen.");
            assert_eq!(terminal.json(&["report", "get", "--task", "tea"])["content"], "All of it.");
            assert_eq!(terminal.json(&["queue", "size"])["by_status"], json!({ "completed": 1 }));
            let why = terminal.json(&["why", setup.project.join("tea.txt").to_str().unwrap()]);
            assert_eq!(column(&why["chain"], "kind"), ["resource", "run", "agent", "task", "queue_item", "session", "person"]);
            // The model received the wake prompt.
            let requests: String = ModelRequest::read_all(&setup.requests).iter().map(|request| request.body.to_string()).collect();
            assert!(requests.contains("What you need to know") && requests.contains("Make tea"), "{requests}");
            // Reading the transcript later changes nothing.
            let before = terminal.json(&["run", "show", &text(&run["id"])]);
            terminal.json(&["ingest", terminal.home.path().join(".claude/projects").to_str().unwrap()]);
            let after = terminal.json(&["run", "show", &text(&run["id"])]);
            assert_eq!((&before["status"], &before["outcome"], &before["ended_at"]), (&after["status"], &after["outcome"], &after["ended_at"]));
            assert_eq!(terminal.json(&["run", "list"]).as_array().unwrap().len(), 1);
        }

        fn client_stops_at_the_maximum_number_of_steps(terminal: Terminal) {
            let write = |name: &str| json!([{ "tool": "Write", "input": { "file_path": format!("$CWD/{name}"), "content": "tea\n" } }]);
            let setup = set_up_worker(&terminal, json!([write("one.txt"), write("two.txt"), write("three.txt"), [{ "text": "Tea is ready." }]]));
            terminal.json(&["agent", "set", "--handle", "coder", "--max-steps", "2", "--end-of-run", "off"]);
            let run = setup.run_worker(&terminal);
            assert_eq!((&run["status"], &run["outcome"]), (&json!("incomplete"), &json!("incomplete - max steps reached")), "{run:#}");
            assert_eq!(run["final_message"], "Reached maximum steps (2) without completing task");
            assert!(!setup.project.join("three.txt").exists());
        }

        fn failing_client_fails_its_run(terminal: Terminal) {
            let setup = set_up_worker(&terminal, json!([[{ "error": 400 }]]));
            let run = setup.run_worker(&terminal);
            assert_eq!((&run["status"], &run["outcome"]), (&json!("failed"), &json!("error")), "{run:#}");
            assert_eq!(terminal.json(&["queue", "size"])["by_status"], json!({ "failed": 1 }));
        }
    }
}

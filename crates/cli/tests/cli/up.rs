//! The server with its worker, as a process: whom it serves, and how it stops.

use std::process::{Command, Stdio};

use serde_json::json;

use crate::{
    terminal::{Terminal, both_engines, text},
    work::wait_for,
};

both_engines! {
    fn every_agent_that_can_work_is_served_and_the_end_is_quiet(terminal: Terminal) {
        terminal.json(&["workflow", "set", "--name", "build"]);
        terminal.json(&["task", "set", "--workflow", "build", "--variant", "tea"]);
        terminal.json(&["agent", "set", "--handle", "bot"]);
        terminal.json(&["agent", "set", "--handle", "coder", "--runner", "claude_code"]);
        let script = terminal.home.path().join("script.json");
        let actors = json!([{ "match": "[Trackway", "turns": [[{ "text": "{}" }]] }, { "match": "What", "turns": [[{ "tool": "done", "input": { "message": "x" } }]] }]);
        std::fs::write(&script, json!({ "actors": actors }).to_string()).unwrap();
        let mut command = terminal.command(&["up", "--listen", "127.0.0.1:0"]);
        command.env("TRACKWAY_MODEL_SCRIPT", &script).stdout(Stdio::null()).stderr(Stdio::piped());
        let up = command.spawn().unwrap();
        let named = text(&terminal.json(&["queue", "add", "--task", "tea", "--agent", "bot"])["id"]);
        let free = text(&terminal.json(&["queue", "add", "--task", "tea"])["id"]);
        let coders = text(&terminal.json(&["queue", "add", "--task", "tea", "--agent", "coder"])["id"]);
        let status = |item: &str| text(&terminal.json(&["queue", "get", item])["status"]);
        wait_for(|| (status(&named) == "completed" && status(&free) == "completed").then_some(()));
        assert!(Command::new("kill").args(["-TERM", &up.id().to_string()]).status().unwrap().success());
        let ended = up.wait_with_output().unwrap();
        let said = String::from_utf8(ended.stderr).unwrap();
        assert_eq!(ended.status.code(), Some(0), "{said}");
        assert!(!said.contains("panicked"), "{said}");
        let why = "agent coder is not served: cannot find the program \"claude\"; set TRACKWAY_CLAUDE to the path of Claude Code\n";
        assert_eq!(said.matches(why).count(), 1, "{said}");
        assert_eq!(status(&coders), "ready");
    }
}

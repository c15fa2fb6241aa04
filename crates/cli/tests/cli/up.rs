//! `trackway up`: the server process with its worker.

use std::process::{Command, Stdio};

use serde_json::json;

use crate::{
    terminal::{Terminal, both_engines, text},
    work::wait_for,
};

both_engines! {
    fn up_serves_all_agents_that_can_run_and_stops_cleanly_on_sigterm(terminal: Terminal) {
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
        let assigned = text(&terminal.json(&["queue", "add", "--task", "tea", "--agent", "bot"])["id"]);
        let unassigned = text(&terminal.json(&["queue", "add", "--task", "tea"])["id"]);
        let unserved = text(&terminal.json(&["queue", "add", "--task", "tea", "--agent", "coder"])["id"]);
        let status = |item: &str| text(&terminal.json(&["queue", "get", item])["status"]);
        wait_for(|| (status(&assigned) == "completed" && status(&unassigned) == "completed").then_some(()));
        assert!(Command::new("kill").args(["-TERM", &up.id().to_string()]).status().unwrap().success());
        let ended = up.wait_with_output().unwrap();
        let stderr = String::from_utf8(ended.stderr).unwrap();
        assert_eq!(ended.status.code(), Some(0), "{stderr}");
        assert!(!stderr.contains("panicked"), "{stderr}");
        let warning = "agent coder is not served: cannot find the program \"claude\"; set TRACKWAY_CLAUDE to the path of Claude Code\n";
        assert_eq!(stderr.matches(warning).count(), 1, "{stderr}");
        assert_eq!(status(&unserved), "ready");
    }
}

//! Background agents: Trackway records their outcomes, but does not record the client's notifications about them as
//! messages of a person.

use serde_json::{Value, json};

use crate::{
    hook::{HookSession, agent_call, project, subagent_stop},
    ingest::{SESSION, TranscriptFolder, TranscriptWriter, ingest},
    resumed_sessions::with_current_timestamps,
    terminal::{Terminal, both_engines, column, text},
};

fn task_notification(agent: &str, call: &str, status: &str) -> String {
    format!(
        "<task-notification>\n<task-id>{agent}</task-id>\n<tool-use-id>{call}</tool-use-id>\n<status>{status}</status>\n<summary>Agent \"row\" {status}</summary>\n</task-notification>"
    )
}

/// The status of each spawn, with the status of the run of its agent.
fn spawn_and_run_statuses(terminal: &Terminal) -> Vec<(String, String)> {
    let spawns = terminal.json(&["spawn", "list"]);
    let tree = terminal.json(&["session", "show", &text(&spawns[0]["session_id"])])["tree"].clone();
    column(&spawns, "status").into_iter().zip(column(&tree, "status")).collect()
}

fn status_pairs<const COUNT: usize>(pairs: [(&str, &str); COUNT]) -> Vec<(String, String)> {
    pairs.map(|(spawn, run)| (spawn.to_owned(), run.to_owned())).to_vec()
}

/// Asserts that no notification is a message, and that `why` leads from a file that an agent wrote later to the
/// person's prompt.
fn assert_only_the_persons_prompt_is_a_message(terminal: &Terminal, path: &str) {
    let bodies = column(&terminal.json(&["message", "list"]), "body");
    assert!(!bodies.iter().any(|body| body.contains("notification")), "{bodies:?}");
    let chain = terminal.json(&["why", path])["chain"].clone();
    let messages: Vec<Value> =
        chain.as_array().unwrap().iter().filter(|hop| hop["kind"] == "message").cloned().collect();
    assert_eq!(messages.iter().map(|hop| text(&hop["label"])).collect::<Vec<_>>(), ["set sail"], "{chain:#}");
}

both_engines! {
    fn subagent_has_one_run_when_hook_and_transcript_name_different_prompts(terminal: Terminal) {
        let session = HookSession { terminal: &terminal, id: SESSION };
        session.prompt("set sail");
        session.send_agent_call("t1", "row");
        // The hook names prompt `p0`. The agent's transcript of Claude Code 2.1.220 instead names prompt `p1`, which
        // arrived while the agent started.
        session.send("SubagentStart", &json!({ "agent_id": "a1", "agent_type": "general-purpose", "prompt_id": "p0" }));
        let mut agent_lines = TranscriptWriter::new(SESSION, project(&terminal).to_str().unwrap()).for_agent("a1");
        TranscriptFolder::new(&terminal).append(Some("a1"), &with_current_timestamps(&(agent_lines.prompt("row") + &agent_lines.reply("n1", Some("end_turn"), 5, "Rowed."))));
        ingest(&terminal);
        assert_eq!(column(&terminal.json(&["run", "list"]), "final_message"), ["Rowed.", "null"]);
    }

    fn ingest_reads_background_agent_outcomes_from_task_notifications(terminal: Terminal) {
        let folder = TranscriptFolder::new(&terminal);
        let mut main = TranscriptWriter::new(SESSION, "/ship");
        let mut lines = main.prompt("set sail");
        for (number, agent) in [(1, "a1"), (2, "a2"), (3, "a3"), (4, "a4")] {
            let call = format!("t{number}");
            let spawn = json!({ "prompt": format!("row {number}"), "subagent_type": "general-purpose", "run_in_background": "true" });
            lines += &main.tool_call(&format!("m{number}"), "Agent", &call, &spawn);
            lines += &main.tool_result(&call, "launched", &json!({ "isAsync": true, "status": "async_launched", "agentId": agent }));
        }
        lines += &main.reply("m5", Some("end_turn"), 5, "They row.");
        folder.append(None, &lines);
        for (number, agent) in [(1, "a1"), (2, "a2"), (3, "a3"), (4, "a4")] {
            let mut agent_lines = TranscriptWriter::new(SESSION, "/ship").for_agent(agent);
            let mut lines = agent_lines.prompt(&format!("row {number}"));
            lines += &agent_lines.tool_call(&format!("n{number}"), "Bash", &format!("u{number}"), &json!({ "command": "row" }));
            if number == 4 {
                lines += &agent_lines.tool_result("u4", "rowed", &json!({}));
                lines += &agent_lines.reply("n5", Some("end_turn"), 5, "Rowed.");
            }
            folder.append(Some(agent), &lines);
        }
        ingest(&terminal);
        // Only the transcript of the last agent contains a final reply.
        assert_eq!(spawn_and_run_statuses(&terminal), status_pairs([("async_launched", "running"), ("async_launched", "running"), ("async_launched", "running"), ("completed", "completed")]));
        let mut lines = String::new();
        for (agent, call, status) in [("a1", "t1", "failed"), ("a2", "t2", "killed"), ("a3", "t3", "completed")] {
            let origin = json!({ "kind": "task-notification" });
            lines += &main.line("user", &json!({ "origin": origin, "message": { "content": task_notification(agent, call, status) } }));
            lines += &main.tool_call(&format!("w{call}"), "Write", &format!("w{call}"), &json!({ "file_path": format!("/ship/{status}.txt"), "content": "x" }));
            lines += &main.tool_result(&format!("w{call}"), "File created", &json!({ "type": "create" }));
        }
        folder.append(None, &lines);
        ingest(&terminal);
        assert_eq!(spawn_and_run_statuses(&terminal), status_pairs([("failed", "incomplete"), ("killed", "cancelled"), ("completed", "completed"), ("completed", "completed")]));
        assert_eq!(text(&terminal.json(&["spawn", "show", "t1"])["error"]), "Agent \"row\" failed");
        assert_only_the_persons_prompt_is_a_message(&terminal, "/ship/killed.txt");
    }

    fn hooks_record_background_agent_outcomes_as_they_happen(terminal: Terminal) {
        let session = HookSession { terminal: &terminal, id: "s1" };
        session.prompt("set sail");
        for (call, agent) in [("t1", "a1"), ("t2", "a2")] {
            session.send("PreToolUse", &agent_call(call, call));
            session.send("SubagentStart", &json!({ "agent_id": agent, "agent_type": "general-purpose" }));
            let mut launched = agent_call(call, call);
            launched["tool_response"] = json!({ "isAsync": true, "status": "async_launched", "agentId": agent });
            session.send("PostToolUse", &launched);
        }
        session.send("Stop", &json!({ "stop_hook_active": false, "last_assistant_message": "They row." }));
        assert_eq!(spawn_and_run_statuses(&terminal), status_pairs([("async_launched", "running"), ("async_launched", "running")]));
        session.send("SubagentStop", &subagent_stop("a1", "rowed"));
        assert_eq!(spawn_and_run_statuses(&terminal), status_pairs([("completed", "completed"), ("async_launched", "running")]));
        session.prompt(&task_notification("a2", "t2", "killed"));
        assert_eq!(spawn_and_run_statuses(&terminal), status_pairs([("completed", "completed"), ("killed", "cancelled")]));
        let path = project(&terminal).join("after.txt");
        session.send_file_write("t3", path.to_str().unwrap());
        assert_eq!(terminal.json(&["session", "show", "s1"])["prompts"].as_array().unwrap().len(), 2);
        assert_only_the_persons_prompt_is_a_message(&terminal, path.to_str().unwrap());
    }
}

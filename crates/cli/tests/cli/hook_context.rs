//! The texts that hooks pass to an agent: its identity and scratchpad at the start, the end-of-run prompt at the stop.

use serde_json::{Value, json};

use crate::{
    hook::{HookSession, subagent_stop},
    terminal::{Terminal, both_engines, column, run_command_with_input, text},
};

fn additional_context(answer: &Value) -> String {
    text(&answer["hookSpecificOutput"]["additionalContext"])
}

/// Sends an event to a hook with memory on. Returns the end-of-run prompt if the hook asks for one.
fn end_of_run_prompt(session: &HookSession<'_>, name: &str, more: &Value) -> Option<String> {
    let output =
        run_command_with_input(session.terminal.command(&["hook"]), session.event(name, more).to_string().as_bytes());
    assert_eq!((output.code, output.stderr.as_str()), (0, ""));
    (!output.stdout.is_empty()).then(|| text(&serde_json::from_str::<Value>(&output.stdout).unwrap()["reason"]))
}

fn set_scratchpad(terminal: &Terminal, agent: &str, content: &str) {
    terminal.json(&["scratchpad", "set", "--agent", agent, "--content", content]);
}

/// The length in UTF-16 units, which the client counts.
fn utf16_length(text: &str) -> usize {
    text.encode_utf16().count()
}

both_engines! {
    fn new_session_receives_its_identity_and_scratchpad(terminal: Terminal) {
        let first = HookSession { terminal: &terminal, id: "s1" };
        let context = additional_context(&first.send("SessionStart", &json!({ "source": "startup" })));
        assert_eq!(context, "Trackway records this work. Agent: main@project, of ada.\nThe scratchpad of main@project is empty.");
        assert_eq!(terminal.json(&["run", "list"]), json!([]));
        first.prompt("go");
        first.send("Stop", &json!({ "stop_hook_active": false, "last_assistant_message": "done" }));
        set_scratchpad(&terminal, "main@project", "Oil is in the ```second``` locker.\n-----\nObey.");
        terminal.json(&["agent", "set", "--handle", "main@project", "--identity", "Keeps the lamp."]);

        let second = HookSession { terminal: &terminal, id: "s2" };
        let context = additional_context(&second.send("SessionStart", &json!({ "source": "startup" })));
        assert_eq!(context, "Trackway records this work. Agent: main@project, of ada.\nDescription by its owner:\n```text\nKeeps the lamp.\n```\nThe scratchpad of main@project (revision 1), notes from its earlier runs:\n````text\nOil is in the ```second``` locker.\n-----\nObey.\n````\nRead it with: trackway scratchpad get --agent main@project");
        assert_eq!(terminal.json(&["run", "list"]).as_array().unwrap().len(), 1);

        // Work before the first prompt also belongs to a run.
        second.send_file_write("t1", "early.txt");
        let early = terminal.json(&["run", "list"])[0].clone();
        assert_eq!((text(&early["agent"]), text(&early["status"])), ("main@project".to_owned(), "running".to_owned()));
        assert_eq!(column(&terminal.json(&["made", &text(&early["id"])])["touches"], "display_path"), ["early.txt"]);
        // The context names a run only while that run is open.
        let resumed_context = |session: &HookSession<'_>| additional_context(&session.send("SessionStart", &json!({ "source": "resume" })));
        let named = format!("Trackway records this work. Agent: main@project, of ada. Run: {}.", &text(&early["id"])[28..]);
        assert!(resumed_context(&second).starts_with(&named), "{}", resumed_context(&second));
        assert!(!resumed_context(&first).contains("Run: "), "{}", resumed_context(&first));
    }

    fn hook_texts_stay_below_the_length_limit_of_the_client(terminal: Terminal) {
        let session = HookSession { terminal: &terminal, id: "s1" };
        session.prompt("go");
        session.send_agent_call("t1", "[ROLE:keeper] keep");
        session.send_subagent_start("a1");
        for content in ["𝄞".repeat(10_000), "x".repeat(10_000), "`".repeat(10_000)] {
            set_scratchpad(&terminal, "keeper@project", &content);
            let context = additional_context(&session.send_subagent_start("a1"));
            assert!(utf16_length(&context) < 10_000, "{}", utf16_length(&context));
            assert!(context.ends_with("\nThe text is cut here. Read all of it with: trackway scratchpad get --agent keeper@project"), "{context}");
        }
        let reason = end_of_run_prompt(&session, "SubagentStop", &subagent_stop("a1", "kept")).unwrap();
        assert!(utf16_length(&reason) < 10_000, "{}", utf16_length(&reason));
    }

    fn unmatched_subagent_with_candidate_spawns_gets_end_of_run_prompt(terminal: Terminal) {
        let session = HookSession { terminal: &terminal, id: "s1" };
        // No recorded spawn can have started this agent.
        session.send("SubagentStart", &json!({ "agent_id": "w1", "agent_type": "Explore" }));
        session.prompt("go");
        session.send_agent_call("t1", "same");
        session.send_agent_call("t2", "same");
        session.send_subagent_start("a1");
        session.send_subagent_start("a2");
        assert_eq!(column(&terminal.json(&["spawn", "list"]), "agent_id"), ["null", "null"]);
        assert_eq!(end_of_run_prompt(&session, "SubagentStop", &json!({ "agent_id": "w1", "agent_type": "Explore", "stop_hook_active": false })), None);
        let reason = end_of_run_prompt(&session, "SubagentStop", &subagent_stop("a1", "one")).unwrap();
        assert!(reason.starts_with("[Trackway: end of run] Before you stop: general-purpose@project has a scratchpad"), "{reason}");
        assert_eq!(end_of_run_prompt(&session, "SubagentStop", &subagent_stop("a1", "one")), None);
    }

    fn role_source_names_the_evidence_for_the_role(terminal: Terminal) {
        let session = HookSession { terminal: &terminal, id: "s1" };
        session.prompt("go");
        session.send_agent_call("t1", "[ROLE:keeper] keep");
        session.send_subagent_start("a1");
        // This agent's start is reported before its call.
        session.send_subagent_start("a2");
        session.send_agent_call("t2", "[ROLE:mate] help");
        session.send_agent_result("t2", "[ROLE:mate] help", "a2");
        session.send_subagent_start("a3");
        let subagents = terminal.json(&["subagent", "list"]);
        assert_eq!(column(&subagents, "role"), ["keeper", "mate", "general-purpose"]);
        assert_eq!(column(&subagents, "role_source"), ["task_match", "retry_match", "subagent_type"]);
    }
}

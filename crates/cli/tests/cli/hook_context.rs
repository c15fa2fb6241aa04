//! What a hook tells an agent: who it is when it starts, and what it is asked when it stops.

use serde_json::{Value, json};

use crate::{
    hook::{HookSession, subagent_stop},
    terminal::{Terminal, both_engines, column, run_command_with_input, text},
};

fn context(said: &Value) -> String {
    text(&said["hookSpecificOutput"]["additionalContext"])
}

/// Hands an event to a hook that asks for memory.
fn asked(session: &HookSession<'_>, name: &str, more: &Value) -> Option<String> {
    let output = run_command_with_input(session.terminal.command(&["hook"]), session.event(name, more).to_string().as_bytes());
    assert_eq!((output.code, output.stderr.as_str()), (0, ""));
    (!output.stdout.is_empty()).then(|| text(&serde_json::from_str::<Value>(&output.stdout).unwrap()["reason"]))
}

fn note(terminal: &Terminal, agent: &str, content: &str) {
    terminal.json(&["scratchpad", "set", "--agent", agent, "--content", content]);
}

/// As the client counts.
fn length(text: &str) -> usize {
    text.encode_utf16().count()
}

both_engines! {
    fn a_new_session_is_told_who_it_is_and_what_it_noted(terminal: Terminal) {
        let first = HookSession { terminal: &terminal, id: "s1" };
        let told = context(&first.send("SessionStart", &json!({ "source": "startup" })));
        assert_eq!(told, "Trackway records this work. Agent: main@project, of ada.\nThe scratchpad of main@project is empty.");
        assert_eq!(terminal.json(&["run", "list"]), json!([]));
        first.prompt("go");
        first.send("Stop", &json!({ "stop_hook_active": false, "last_assistant_message": "done" }));
        note(&terminal, "main@project", "Oil is in the ```second``` locker.\n-----\nObey.");
        terminal.json(&["agent", "set", "--handle", "main@project", "--identity", "Keeps the lamp."]);

        let second = HookSession { terminal: &terminal, id: "s2" };
        let told = context(&second.send("SessionStart", &json!({ "source": "startup" })));
        assert_eq!(told, "Trackway records this work. Agent: main@project, of ada.\nDescription by its owner:\n```text\nKeeps the lamp.\n```\nThe scratchpad of main@project (revision 1), notes from its earlier runs:\n````text\nOil is in the ```second``` locker.\n-----\nObey.\n````\nRead it with: trackway scratchpad get --agent main@project");
        assert_eq!(terminal.json(&["run", "list"]).as_array().unwrap().len(), 1);

        // Work before the first prompt has a run.
        second.send_file_write("t1", "early.txt");
        let early = terminal.json(&["run", "list"])[0].clone();
        assert_eq!((text(&early["agent"]), text(&early["status"])), ("main@project".to_owned(), "running".to_owned()));
        assert_eq!(column(&terminal.json(&["made", &text(&early["id"])])["touches"], "display_path"), ["early.txt"]);
        // One whose run goes on has a run to name.
        let told = |session: &HookSession<'_>| context(&session.send("SessionStart", &json!({ "source": "resume" })));
        let named = format!("Trackway records this work. Agent: main@project, of ada. Run: {}.", &text(&early["id"])[28..]);
        assert!(told(&second).starts_with(&named), "{}", told(&second));
        assert!(!told(&first).contains("Run: "), "{}", told(&first));
    }

    fn nothing_that_is_told_is_longer_than_the_client_takes(terminal: Terminal) {
        let session = HookSession { terminal: &terminal, id: "s1" };
        session.prompt("go");
        session.send_agent_call("t1", "[ROLE:keeper] keep");
        session.send_subagent_start("a1");
        for content in ["𝄞".repeat(10_000), "x".repeat(10_000), "`".repeat(10_000)] {
            note(&terminal, "keeper@project", &content);
            let told = context(&session.send_subagent_start("a1"));
            assert!(length(&told) < 10_000, "{}", length(&told));
            assert!(told.ends_with("\nThe text is cut here. Read all of it with: trackway scratchpad get --agent keeper@project"), "{told}");
        }
        let reason = asked(&session, "SubagentStop", &subagent_stop("a1", "kept")).unwrap();
        assert!(length(&reason) < 10_000, "{}", length(&reason));
    }

    fn an_agent_that_is_one_of_several_is_asked_too(terminal: Terminal) {
        let session = HookSession { terminal: &terminal, id: "s1" };
        // Nobody spawned this one.
        session.send("SubagentStart", &json!({ "agent_id": "w1", "agent_type": "Explore" }));
        session.prompt("go");
        session.send_agent_call("t1", "same");
        session.send_agent_call("t2", "same");
        session.send_subagent_start("a1");
        session.send_subagent_start("a2");
        assert_eq!(column(&terminal.json(&["spawn", "list"]), "agent_id"), ["null", "null"]);
        assert_eq!(asked(&session, "SubagentStop", &json!({ "agent_id": "w1", "agent_type": "Explore", "stop_hook_active": false })), None);
        let reason = asked(&session, "SubagentStop", &subagent_stop("a1", "one")).unwrap();
        assert!(reason.starts_with("[Trackway: end of run] Before you stop: general-purpose@project has a scratchpad"), "{reason}");
        assert_eq!(asked(&session, "SubagentStop", &subagent_stop("a1", "one")), None);
    }

    fn a_role_is_said_to_come_from_where_it_came(terminal: Terminal) {
        let session = HookSession { terminal: &terminal, id: "s1" };
        session.prompt("go");
        session.send_agent_call("t1", "[ROLE:keeper] keep");
        session.send_subagent_start("a1");
        // This one starts before its call is heard of.
        session.send_subagent_start("a2");
        session.send_agent_call("t2", "[ROLE:mate] help");
        session.send_agent_result("t2", "[ROLE:mate] help", "a2");
        session.send_subagent_start("a3");
        let subagents = terminal.json(&["subagent", "list"]);
        assert_eq!(column(&subagents, "role"), ["keeper", "mate", "general-purpose"]);
        assert_eq!(column(&subagents, "role_source"), ["task_match", "retry_match", "subagent_type"]);
    }
}

//! What a hook tells an agent: who it is when it starts, and what it is asked when it stops.

use serde_json::{Value, json};

use crate::{
    hook::{Session, stopping},
    terminal::{Terminal, both_engines, column, ran_with_input, text},
};

fn context(said: &Value) -> String {
    text(&said["hookSpecificOutput"]["additionalContext"])
}

/// Hands an event to a hook that asks for memory.
fn asked(session: &Session<'_>, name: &str, more: &Value) -> Option<String> {
    let ran = ran_with_input(session.terminal.command(&["hook"]), session.event(name, more).to_string().as_bytes());
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""));
    (!ran.stdout.is_empty()).then(|| text(&serde_json::from_str::<Value>(&ran.stdout).unwrap()["reason"]))
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
        let first = Session { terminal: &terminal, id: "s1" };
        let told = context(&first.hears("SessionStart", &json!({ "source": "startup" })));
        assert_eq!(told, "Trackway records this work. Agent: main@project, of ada.\nThe scratchpad of main@project is empty.");
        assert_eq!(terminal.json(&["run", "list"]), json!([]));
        first.prompt("go");
        first.hears("Stop", &json!({ "stop_hook_active": false, "last_assistant_message": "done" }));
        note(&terminal, "main@project", "Oil is in the ```second``` locker.\n-----\nObey.");
        terminal.json(&["agent", "set", "--handle", "main@project", "--identity", "Keeps the lamp."]);

        let second = Session { terminal: &terminal, id: "s2" };
        let told = context(&second.hears("SessionStart", &json!({ "source": "startup" })));
        assert_eq!(told, "Trackway records this work. Agent: main@project, of ada.\nWhat its owner says it is:\n```text\nKeeps the lamp.\n```\nThe scratchpad of main@project (revision 1), notes from its earlier runs:\n````text\nOil is in the ```second``` locker.\n-----\nObey.\n````\nRead it with: trackway scratchpad get --agent main@project");
        assert_eq!(terminal.json(&["run", "list"]).as_array().unwrap().len(), 1);

        // Work before the first prompt has a run.
        second.writes("t1", "early.txt");
        let early = terminal.json(&["run", "list"])[0].clone();
        assert_eq!((text(&early["agent"]), text(&early["status"])), ("main@project".to_owned(), "running".to_owned()));
        assert_eq!(column(&terminal.json(&["made", &text(&early["id"])])["touches"], "display_path"), ["early.txt"]);
        // One whose run goes on has a run to name.
        let told = |session: &Session<'_>| context(&session.hears("SessionStart", &json!({ "source": "resume" })));
        let named = format!("Trackway records this work. Agent: main@project, of ada. Run: {}.", &text(&early["id"])[28..]);
        assert!(told(&second).starts_with(&named), "{}", told(&second));
        assert!(!told(&first).contains("Run: "), "{}", told(&first));
    }

    fn nothing_that_is_told_is_longer_than_the_client_takes(terminal: Terminal) {
        let session = Session { terminal: &terminal, id: "s1" };
        session.prompt("go");
        session.spawns("t1", "[ROLE:keeper] keep");
        session.starts("a1");
        for content in ["𝄞".repeat(10_000), "x".repeat(10_000), "`".repeat(10_000)] {
            note(&terminal, "keeper@project", &content);
            let told = context(&session.starts("a1"));
            assert!(length(&told) < 10_000, "{}", length(&told));
            assert!(told.ends_with("\nIt is cut here. Read all of it with: trackway scratchpad get --agent keeper@project"), "{told}");
        }
        let reason = asked(&session, "SubagentStop", &stopping("a1", "kept")).unwrap();
        assert!(length(&reason) < 10_000, "{}", length(&reason));
    }

    fn an_agent_that_is_one_of_several_is_asked_too(terminal: Terminal) {
        let session = Session { terminal: &terminal, id: "s1" };
        // Nobody spawned this one.
        session.hears("SubagentStart", &json!({ "agent_id": "w1", "agent_type": "Explore" }));
        session.prompt("go");
        session.spawns("t1", "same");
        session.spawns("t2", "same");
        session.starts("a1");
        session.starts("a2");
        assert_eq!(column(&terminal.json(&["spawn", "list"]), "agent_id"), ["null", "null"]);
        assert_eq!(asked(&session, "SubagentStop", &json!({ "agent_id": "w1", "agent_type": "Explore", "stop_hook_active": false })), None);
        let reason = asked(&session, "SubagentStop", &stopping("a1", "one")).unwrap();
        assert!(reason.starts_with("[Trackway: end of run] Before you stop: general-purpose@project has a scratchpad"), "{reason}");
        assert_eq!(asked(&session, "SubagentStop", &stopping("a1", "one")), None);
    }

    fn a_role_is_said_to_come_from_where_it_came(terminal: Terminal) {
        let session = Session { terminal: &terminal, id: "s1" };
        session.prompt("go");
        session.spawns("t1", "[ROLE:keeper] keep");
        session.starts("a1");
        // This one starts before its call is heard of.
        session.starts("a2");
        session.spawns("t2", "[ROLE:mate] help");
        session.returns("t2", "[ROLE:mate] help", "a2");
        session.starts("a3");
        let subagents = terminal.json(&["subagent", "list"]);
        assert_eq!(column(&subagents, "role"), ["keeper", "mate", "general-purpose"]);
        assert_eq!(column(&subagents, "role_source"), ["task_match", "retry_match", "subagent_type"]);
    }
}

//! Resumed sessions of Claude Code 2.0. The first hooks of a resumed session name another session. Still, hooks and
//! transcripts give the same record.

use std::{fs, path::PathBuf};

use serde_json::{Value, json};
use trackway_store::Clock;

use crate::{
    hook::{HookSession, agent_call, project},
    ingest::{OTHER, SESSION, TranscriptFolder, TranscriptWriter, engine, projects_folder},
    record::comparable_record,
    terminal::{Terminal, both_engines, column, text},
};

/// Replaces the timestamps of transcript lines by the current time, so that they agree with the times of hooks.
pub fn with_current_timestamps(lines: &str) -> String {
    let mut lines: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    for line in &mut lines {
        line["timestamp"] = json!(Clock::system().now().to_string());
    }
    lines.iter().map(|line| format!("{line}\n")).collect()
}

/// Adds the transcript path to an event.
fn with_transcript(transcript: &PathBuf, mut more: Value) -> Value {
    more["transcript_path"] = json!(transcript);
    more
}

/// Ingests the same transcripts into a new database.
fn ingest_into_new_database(terminal: &Terminal) -> Terminal {
    let other = Terminal::new(engine(terminal));
    other.json(&["ingest", projects_folder(terminal).to_str().unwrap()]);
    other
}

/// Each agent as `SESSION AGENT RUN_STATUS`, and the total usage.
fn agents_and_usage(terminal: &Terminal) -> (Vec<String>, Value) {
    let list = terminal.json(&["subagent", "list"]);
    let mut agents: Vec<String> = list
        .as_array()
        .unwrap()
        .iter()
        .map(|agent| {
            let run = terminal.json(&["run", "show", &text(&agent["run_id"])]);
            format!("{} {} {}", text(&agent["session_id"]), text(&agent["agent_id"]), text(&run["status"]))
        })
        .collect();
    agents.sort();
    (agents, terminal.json(&["usage"]))
}

both_engines! {
    fn session_continued_in_another_file_stays_one_session(terminal: Terminal) {
        let folder = TranscriptFolder::new(&terminal);
        let session = HookSession { terminal: &terminal, id: SESSION };
        let own = folder.file(None);
        let mut writing = TranscriptWriter::new(SESSION, project(&terminal).to_str().unwrap());
        session.send("SessionStart", &with_transcript(&own, json!({ "source": "startup" })));
        session.send("UserPromptSubmit", &with_transcript(&own, json!({ "prompt": "one" })));
        folder.append(None, &with_current_timestamps(&(writing.prompt("one") + &writing.reply("m1", Some("end_turn"), 30, "first"))));
        session.send("Stop", &with_transcript(&own, json!({})));

        // With `-c`, Claude Code 2.0.0 reports a new session, which it never uses, and a transcript with the name of
        // that session.
        let other = folder.write(&format!("{OTHER}.jsonl"), b"");
        HookSession { terminal: &terminal, id: OTHER }.send("SessionStart", &with_transcript(&other, json!({ "source": "resume" })));
        session.send("UserPromptSubmit", &with_transcript(&own, json!({ "prompt": "two" })));
        let input = agent_call("t1", "help")["tool_input"].clone();
        let answered = json!({ "parentUuid": "its last line", "message": { "content": "two" } });
        let lines = writing.line("user", &answered) + &writing.tool_call("m2", "Task", "t1", &input)
            + &writing.tool_result("t1", "helped", &json!({ "status": "completed", "agentId": "a1" }))
            + &writing.reply("m3", Some("end_turn"), 40, "second");
        fs::write(&other, with_current_timestamps(&lines)).unwrap();
        session.send("Stop", &with_transcript(&own, json!({})));

        assert_eq!(column(&terminal.json(&["session", "list"]), "id"), [SESSION]);
        let runs = terminal.json(&["run", "list"]);
        assert_eq!(column(&runs, "final_message"), ["second", "first"]);
        assert_eq!(column(&terminal.json(&["spawn", "list"]), "agent_id"), ["a1"]);
        snapbox::assert_data_eq!(comparable_record(&terminal), snapbox::IntoData::raw(comparable_record(&ingest_into_new_database(&terminal))));
    }

    fn warmup_agent_belongs_to_the_session_named_in_its_transcript(terminal: Terminal) {
        let folder = TranscriptFolder::new(&terminal);
        let session = HookSession { terminal: &terminal, id: SESSION };
        let (own, other) = (folder.file(None), folder.write(&format!("{OTHER}.jsonl"), b""));
        let cwd = project(&terminal);
        let mut writing = TranscriptWriter::new(SESSION, cwd.to_str().unwrap());
        folder.append(None, &with_current_timestamps(&writing.prompt("one")));
        session.send("SessionStart", &with_transcript(&own, json!({ "source": "startup" })));
        session.send("UserPromptSubmit", &with_transcript(&own, json!({ "prompt": "one" })));

        // A client that resumes a session starts warm-up agents before it switches to that session. Claude Code 2.0.74
        // writes the prompt of a warm-up agent to its transcript. Claude Code 2.0.55 does not.
        for agent in ["a1", "a2"] {
            let start = json!({ "agent_id": agent, "agent_type": "Explore" });
            HookSession { terminal: &terminal, id: OTHER }.send("SubagentStart", &with_transcript(&other, start));
        }
        for (agent, prompt_session, message) in [("a1", Some(OTHER), "m1"), ("a2", None, "m2")] {
            let prompt = prompt_session.map(|prompt_session| TranscriptWriter::new(prompt_session, cwd.to_str().unwrap()).for_agent(agent).prompt("Warmup"));
            let answer = TranscriptWriter::new(SESSION, cwd.to_str().unwrap()).for_agent(agent).reply(message, Some("end_turn"), 50, "warm");
            let file = folder.write(&format!("agent-{agent}.jsonl"), with_current_timestamps(&(prompt.unwrap_or_default() + &answer)).as_bytes());
            let stop = json!({ "agent_id": agent, "agent_transcript_path": file });
            session.send("SubagentStop", &with_transcript(&own, stop));
        }
        folder.append(None, &with_current_timestamps(&writing.reply("m3", Some("end_turn"), 30, "first")));
        session.send("Stop", &with_transcript(&own, json!({})));

        let (agents, usage) = agents_and_usage(&terminal);
        assert_eq!(agents, [format!("{SESSION} a2 completed"), format!("{OTHER} a1 completed")]);
        assert_eq!((agents, usage), agents_and_usage(&ingest_into_new_database(&terminal)));
    }
}

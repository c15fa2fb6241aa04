//! Clients of 2.0 that come to another session on their way: hooks and transcripts tell of the same one.

use std::{fs, path::PathBuf};

use serde_json::{Value, json};
use trackway_store::Clock;

use crate::{
    hook::{HookSession, project, agent_call},
    ingest::{TranscriptFolder, OTHER, SESSION, TranscriptWriter, engine, projects},
    record::comparable_record,
    terminal::{Terminal, both_engines, column, text},
};

/// Lines as they are written now: hooks and transcripts tell of one moment.
pub fn with_current_timestamps(lines: &str) -> String {
    let mut lines: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    for line in &mut lines {
        line["timestamp"] = json!(Clock::system().now().to_string());
    }
    lines.iter().map(|line| format!("{line}\n")).collect()
}

/// An event that says where the transcript of its session is.
fn of(transcript: &PathBuf, mut more: Value) -> Value {
    more["transcript_path"] = json!(transcript);
    more
}

/// The same transcripts, read into another database.
fn ingested_into_new_database(terminal: &Terminal) -> Terminal {
    let other = Terminal::new(engine(terminal));
    other.json(&["ingest", projects_folder(terminal).to_str().unwrap()]);
    other
}

/// Which agents there are of which sessions, how their runs stand, and what all used.
fn agents(terminal: &Terminal) -> (Vec<String>, Value) {
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
    fn a_session_that_goes_on_in_another_file_is_one(terminal: Terminal) {
        let folder = TranscriptFolder::new(&terminal);
        let session = HookSession { terminal: &terminal, id: SESSION };
        let own = folder.file(None);
        let mut writing = TranscriptWriter::new(SESSION, project(&terminal).to_str().unwrap());
        session.send("SessionStart", &of(&own, json!({ "source": "startup" })));
        session.send("UserPromptSubmit", &of(&own, json!({ "prompt": "one" })));
        folder.append(None, &with_current_timestamps(&(writing.prompt("one") + &writing.reply("m1", Some("end_turn"), 30, "first"))));
        session.send("Stop", &of(&own, json!({})));

        // What 2.0.0 does upon `-c`: it starts a session that never is, and names its file after that.
        let other = folder.write(&format!("{OTHER}.jsonl"), b"");
        HookSession { terminal: &terminal, id: OTHER }.send("SessionStart", &of(&other, json!({ "source": "resume" })));
        session.send("UserPromptSubmit", &of(&own, json!({ "prompt": "two" })));
        let input = agent_call("t1", "help")["tool_input"].clone();
        let answered = json!({ "parentUuid": "its last line", "message": { "content": "two" } });
        let lines = writing.line("user", &answered) + &writing.tool_call("m2", "Task", "t1", &input)
            + &writing.tool_result("t1", "helped", &json!({ "status": "completed", "agentId": "a1" }))
            + &writing.reply("m3", Some("end_turn"), 40, "second");
        fs::write(&other, with_current_timestamps(&lines)).unwrap();
        session.send("Stop", &of(&own, json!({})));

        assert_eq!(column(&terminal.json(&["session", "list"]), "id"), [SESSION]);
        let runs = terminal.json(&["run", "list"]);
        assert_eq!(column(&runs, "final_message"), ["second", "first"]);
        assert_eq!(column(&terminal.json(&["spawn", "list"]), "agent_id"), ["a1"]);
        snapbox::assert_data_eq!(comparable_record(&terminal), snapbox::IntoData::raw(comparable_record(&ingested_into_new_database(&terminal))));
    }

    fn an_agent_that_is_warmed_up_is_of_the_session_its_file_names(terminal: Terminal) {
        let folder = TranscriptFolder::new(&terminal);
        let session = HookSession { terminal: &terminal, id: SESSION };
        let (own, other) = (folder.file(None), folder.write(&format!("{OTHER}.jsonl"), b""));
        let cwd = project(&terminal);
        let mut writing = TranscriptWriter::new(SESSION, cwd.to_str().unwrap());
        folder.append(None, &with_current_timestamps(&writing.prompt("one")));
        session.send("SessionStart", &of(&own, json!({ "source": "startup" })));
        session.send("UserPromptSubmit", &of(&own, json!({ "prompt": "one" })));

        // A client that resumes warms agents up before it comes to the session it resumes. 2.0.74 writes the first word to
        // such an agent down, 2.0.55 does not.
        for agent in ["a1", "a2"] {
            let warmed = json!({ "agent_id": agent, "agent_type": "Explore" });
            HookSession { terminal: &terminal, id: OTHER }.send("SubagentStart", &of(&other, warmed));
        }
        for (agent, asked_in, message) in [("a1", Some(OTHER), "m1"), ("a2", None, "m2")] {
            let prompt = asked_in.map(|asked_in| TranscriptWriter::new(asked_in, cwd.to_str().unwrap()).for_agent(agent).prompt("Warmup"));
            let answer = TranscriptWriter::new(SESSION, cwd.to_str().unwrap()).for_agent(agent).reply(message, Some("end_turn"), 50, "warm");
            let file = folder.write(&format!("agent-{agent}.jsonl"), with_current_timestamps(&(prompt.unwrap_or_default() + &answer)).as_bytes());
            let stopped = json!({ "agent_id": agent, "agent_transcript_path": file });
            session.send("SubagentStop", &of(&own, stopped));
        }
        folder.append(None, &with_current_timestamps(&writing.reply("m3", Some("end_turn"), 30, "first")));
        session.send("Stop", &of(&own, json!({})));

        let (found, usage) = agents(&terminal);
        assert_eq!(found, [format!("{SESSION} a2 completed"), format!("{OTHER} a1 completed")]);
        assert_eq!((found, usage), agents(&ingested_into_new_database(&terminal)));
    }
}

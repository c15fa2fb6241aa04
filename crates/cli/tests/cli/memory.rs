//! The scratchpad of a real client's subagent: the subagent updates it when it stops and reads it when it starts again.

use serde_json::{Value, json};
use trackway_store::{Url, connection::Connection};
use trackway_testkit::{
    Engine,
    claude_client::ClientResult,
    scripted_model::{ModelRequest, Scenario},
};

use crate::{
    real_claude_code::{ConnectedClient, NEWEST},
    record::comparable_record,
    terminal::{Terminal, column, text},
};

const ANSWER: &str = "The lamp burns.";
const NOTE: &str = "Oil is in the second locker.";

/// The main agent HELM spawns the subagent LAMP, which works, replies, and then replies to the end-of-run prompt.
fn scenario() -> Scenario {
    let end_of_run = json!({
        "scratchpad": NOTE,
        "report": { "one_liner": "Lit the lamp", "tldr": "It burns.", "content": "Filled it, lit it." },
    });
    let end_of_run = format!("```json\n{end_of_run}\n```\n{ANSWER}");
    let spawn = json!({ "description": "light the lamp", "prompt": "[ROLE:lighter] LAMP: light it", "subagent_type": "general-purpose" });
    let actors = json!([
        { "match": "LAMP", "turns": [
            [{ "tool": "Write", "input": { "file_path": "$CWD/lamp.txt", "content": "lit\n" } }],
            [{ "text": ANSWER }],
            [{ "text": end_of_run }],
        ] },
        { "match": "HELM", "turns": [[{ "tool": "SPAWN", "input": spawn }], [{ "text": "There is light." }]] },
    ]);
    Scenario::parse(&json!({ "prompt": "HELM: we need light", "actors": actors }).to_string())
}

/// The model requests of the subagent.
fn subagent_requests(result: &ClientResult) -> Vec<&ModelRequest> {
    let is_of_subagent = |request: &&ModelRequest| {
        request.body["tools"][0].is_object() && request.body["messages"][0].to_string().contains("LAMP: light it")
    };
    result.requests.iter().filter(is_of_subagent).collect()
}

/// The result of the spawning call that the main agent received.
fn spawn_result(result: &ClientResult) -> String {
    let answers = result.requests.iter().flat_map(|request| request.body["messages"].as_array().unwrap());
    let mut results = answers.filter_map(|message| message["content"].as_array()).flatten();
    let of_call =
        |block: &&Value| block["type"] == "tool_result" && block["tool_use_id"].as_str().unwrap().contains("_a1_");
    results.rfind(of_call).unwrap()["content"].to_string()
}

fn subagent_run(terminal: &Terminal, index: usize) -> Value {
    let runs = terminal.json(&["run", "list", "--agent", "lighter@project"]);
    terminal.json(&["run", "show", &column(&runs, "id")[index]])
}

fn reports(terminal: &Terminal) -> Vec<(String, String, String)> {
    let mut connection = match terminal.database.url() {
        Url::Sqlite(path) => Connection::sqlite(&path, false).unwrap(),
        Url::Postgres(_) => Connection::postgres(&terminal.database.url_text()).unwrap(),
    };
    connection.query("select one_liner, tldr, content from reports order by id", &[]).unwrap()
}

fn assert_subagent_updates_and_reads_its_scratchpad(engine: Engine) {
    let client = ConnectedClient::new(engine, NEWEST, &[]);
    let terminal = &client.terminal;
    let first = client.play(&scenario());
    let requests = subagent_requests(&first);
    assert_eq!(requests.len(), 3, "the work, the reply and the end-of-run prompt");
    assert!(requests[0].body["messages"][0].to_string().contains("The scratchpad of lighter@project is empty."));
    let question = requests[2].body["messages"].as_array().unwrap().last().unwrap().to_string();
    assert!(question.contains("[Trackway: end of run]") && question.contains("repeat your final answer"), "{question}");
    assert!(spawn_result(&first).contains(ANSWER), "{}", spawn_result(&first));
    assert_eq!(first.result()["result"], "There is light.");

    assert_eq!(terminal.json(&["scratchpad", "get", "--agent", "lighter@project"])["content"], NOTE);
    let run = subagent_run(terminal, 0);
    assert_eq!((&run["status"], &run["final_message"]), (&json!("completed"), &json!(ANSWER)));
    assert_eq!(column(&run["steps"], "type"), ["scratchpad_update"]);
    assert_eq!(column(&run["steps"], "detail"), [NOTE]);
    let mut touched = column(&run["touches"], "resource_type");
    touched.sort();
    assert_eq!(touched, ["file", "report"]);
    let report = ("Lit the lamp".to_owned(), "It burns.".to_owned(), "Filled it, lit it.".to_owned());
    assert_eq!(reports(terminal), [report]);

    // Ingest of the transcript gives the same record.
    let ingested = client.ingest_into_new_database(engine);
    snapbox::assert_data_eq!(comparable_record(terminal), snapbox::IntoData::raw(comparable_record(&ingested)));
    assert_eq!(ingested.json(&["scratchpad", "get", "--agent", "lighter@project"])["content"], NOTE);

    // A subagent of the same role in another session starts with the scratchpad.
    let second = client.play(&scenario());
    let context = subagent_requests(&second)[0].body["messages"][0].to_string();
    assert!(context.contains("SubagentStart hook additional context") && context.contains(NOTE), "{context}");
    assert_eq!(terminal.json(&["scratchpad", "get", "--agent", "lighter@project"])["content"], NOTE);

    // An agent with end_of_run off gets no end-of-run prompt.
    terminal.json(&["agent", "set", "--handle", "lighter@project", "--end-of-run", "off"]);
    let third = client.play(&scenario());
    assert_eq!(subagent_requests(&third).len(), 2);
    let run = subagent_run(terminal, 0);
    assert_eq!((&run["steps"], &run["final_message"]), (&json!([]), &json!(ANSWER)));
    assert!(
        subagent_requests(&third)[0].body["messages"][0].to_string().contains(NOTE),
        "the scratchpad is still passed at the start"
    );
}

mod real_client {
    use super::*;

    #[test]
    fn subagent_updates_and_reads_its_scratchpad_on_sqlite() {
        assert_subagent_updates_and_reads_its_scratchpad(Engine::Sqlite);
    }

    #[test]
    fn subagent_updates_and_reads_its_scratchpad_on_postgres() {
        assert_subagent_updates_and_reads_its_scratchpad(Engine::Postgres);
    }

    #[test]
    fn memory_off_sends_no_end_of_run_prompt() {
        let client = ConnectedClient::new(Engine::Sqlite, NEWEST, &["--memory", "off"]);
        let result = client.play(&scenario());
        assert_eq!(subagent_requests(&result).len(), 2);
        assert!(spawn_result(&result).contains(ANSWER));
        assert_eq!(client.terminal.json(&["scratchpad", "get", "--agent", "lighter@project"])["revision"], 0);
        assert_eq!(text(&subagent_run(&client.terminal, 0)["final_message"]), ANSWER);
    }
}

//! What a subagent of a real client notes for itself when it stops, and reads when it starts again.

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

/// A main agent, HELM, whose subagent LAMP works, answers, and answers once more when it is asked what it learned.
fn scenario() -> Scenario {
    let closing = json!({
        "scratchpad": NOTE,
        "report": { "one_liner": "Lit the lamp", "tldr": "It burns.", "content": "Filled it, lit it." },
    });
    let closing = format!("```json\n{closing}\n```\n{ANSWER}");
    let spawn = json!({ "description": "light the lamp", "prompt": "[ROLE:keeper] LAMP: light it", "subagent_type": "general-purpose" });
    let actors = json!([
        { "match": "LAMP", "turns": [
            [{ "tool": "Write", "input": { "file_path": "$CWD/lamp.txt", "content": "lit\n" } }],
            [{ "text": ANSWER }],
            [{ "text": closing }],
        ] },
        { "match": "HELM", "turns": [[{ "tool": "SPAWN", "input": spawn }], [{ "text": "There is light." }]] },
    ]);
    Scenario::parse(&json!({ "prompt": "HELM: we need light", "actors": actors }).to_string())
}

/// What the subagent was sent, request by request.
fn asked_of_keeper(result: &ClientResult) -> Vec<&ModelRequest> {
    let of_keeper = |request: &&ModelRequest| {
        request.body["tools"][0].is_object() && request.body["messages"][0].to_string().contains("LAMP: light it")
    };
    result.requests.iter().filter(of_keeper).collect()
}

/// What the main agent got from the call.
fn told_to_main(result: &ClientResult) -> String {
    let answers = result.requests.iter().flat_map(|request| request.body["messages"].as_array().unwrap());
    let mut results = answers.filter_map(|message| message["content"].as_array()).flatten();
    let of_call =
        |block: &&Value| block["type"] == "tool_result" && block["tool_use_id"].as_str().unwrap().contains("_a1_");
    results.rfind(of_call).unwrap()["content"].to_string()
}

fn keeper_run(terminal: &Terminal, place: usize) -> Value {
    let runs = terminal.json(&["run", "list", "--agent", "keeper@project"]);
    terminal.json(&["run", "show", &column(&runs, "id")[place]])
}

fn reports(terminal: &Terminal) -> Vec<(String, String, String)> {
    let mut connection = match terminal.database.url() {
        Url::Sqlite(path) => Connection::sqlite(&path, false).unwrap(),
        Url::Postgres(_) => Connection::postgres(&terminal.database.url_text()).unwrap(),
    };
    connection.query("select one_liner, tldr, content from reports order by id", &[]).unwrap()
}

fn a_subagent_keeps_what_it_learned(engine: Engine) {
    let client = ConnectedClient::new(engine, NEWEST, &[]);
    let terminal = &client.terminal;
    let first = client.play(&scenario());
    let asked = asked_of_keeper(&first);
    assert_eq!(asked.len(), 3, "its work, its answer, and what it learned");
    assert!(asked[0].body["messages"][0].to_string().contains("The scratchpad of keeper@project is empty."));
    let question = asked[2].body["messages"].as_array().unwrap().last().unwrap().to_string();
    assert!(question.contains("[Trackway: end of run]") && question.contains("repeat your final answer"), "{question}");
    assert!(told_to_main(&first).contains(ANSWER), "{}", told_to_main(&first));
    assert_eq!(first.result()["result"], "There is light.");

    assert_eq!(terminal.json(&["scratchpad", "get", "--agent", "keeper@project"])["content"], NOTE);
    let run = keeper_run(terminal, 0);
    assert_eq!((&run["status"], &run["final_message"]), (&json!("completed"), &json!(ANSWER)));
    assert_eq!(column(&run["steps"], "type"), ["scratchpad_update"]);
    assert_eq!(column(&run["steps"], "detail"), [NOTE]);
    let mut touched = column(&run["touches"], "resource_type");
    touched.sort();
    assert_eq!(touched, ["file", "report"]);
    let report = ("Lit the lamp".to_owned(), "It burns.".to_owned(), "Filled it, lit it.".to_owned());
    assert_eq!(reports(terminal), [report]);

    // The transcript tells the same.
    let ingested = client.ingested_into_new_database(engine);
    snapbox::assert_data_eq!(comparable_record(terminal), snapbox::IntoData::raw(comparable_record(&ingested)));
    assert_eq!(ingested.json(&["scratchpad", "get", "--agent", "keeper@project"])["content"], NOTE);

    // Another session, the same role: it begins with what it noted.
    let second = client.play(&scenario());
    let context = asked_of_keeper(&second)[0].body["messages"][0].to_string();
    assert!(context.contains("SubagentStart hook additional context") && context.contains(NOTE), "{context}");
    assert_eq!(terminal.json(&["scratchpad", "get", "--agent", "keeper@project"])["content"], NOTE);

    // Nobody is asked who is not to be asked.
    terminal.json(&["agent", "set", "--handle", "keeper@project", "--end-of-run", "off"]);
    let third = client.play(&scenario());
    assert_eq!(asked_of_keeper(&third).len(), 2);
    let run = keeper_run(terminal, 0);
    assert_eq!((&run["steps"], &run["final_message"]), (&json!([]), &json!(ANSWER)));
    assert!(asked_of_keeper(&third)[0].body["messages"][0].to_string().contains(NOTE), "it still reads");
}

mod real_client {
    use super::*;

    #[test]
    fn sqlite() {
        a_subagent_keeps_what_it_learned(Engine::Sqlite);
    }

    #[test]
    fn postgres() {
        a_subagent_keeps_what_it_learned(Engine::Postgres);
    }

    #[test]
    fn memory_off_asks_nobody() {
        let client = ConnectedClient::new(Engine::Sqlite, NEWEST, &["--memory", "off"]);
        let result = client.play(&scenario());
        assert_eq!(asked_of_keeper(&result).len(), 2);
        assert!(told_to_main(&result).contains(ANSWER));
        assert_eq!(client.terminal.json(&["scratchpad", "get", "--agent", "keeper@project"])["revision"], 0);
        assert_eq!(text(&keeper_run(&client.terminal, 0)["final_message"]), ANSWER);
    }
}

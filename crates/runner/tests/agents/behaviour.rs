//! Tests of unusual model behaviour. Each test checks the outcome and a step of the run, for both providers, with and
//! without streaming.

use std::time::Duration;

use serde_json::{Value, json};
use trackway_runner::{agent::AgentBackend, model::ModelSettings};
use trackway_testkit::engines;

use crate::agent_test::{
    AgentTest, IDENTITY, ModelSetup, closing_answer, done, model_setups, status_of, step_detail, steps,
};

/// Runs the same turns with all setups, and checks each result.
#[track_caller]
fn in_all_setups(
    test: &AgentTest,
    turns: &Value,
    check: impl Fn(&trackway_views::run::RunDetails, &crate::agent_test::WorkResult),
) {
    for setup in model_setups() {
        let (run, work) = test.run_task(&setup, turns.clone(), closing_answer("kept", "told"));
        assert!(matches!(step_detail(&run, "scratchpad_update").as_str(), "kept"), "{setup:?}");
        check(&run, &work);
    }
}

fn page(path: &str) -> Value {
    json!({ "tool": "fetch_page", "input": { "path": path } })
}

engines! {
    fn reply_without_a_call_is_retried_once(test: AgentTest) {
        in_all_setups(&test, &json!([[{ "text": "I think that all is well." }], done("x")]), |run, work| {
            assert_eq!(status_of(run), ("completed", "completed"));
            assert_eq!(step_detail(run, "error"), "the answer contains neither a tool call nor a valid JSON object; retrying");
            let again = work.model.requests()[1].body["messages"].to_string();
            assert!(again.contains("Your answer cannot be read: the answer contains neither"), "{again}");
        });
        in_all_setups(&test, &json!([[{ "text": "I think that all is well." }]]), |run, work| {
            assert_eq!(status_of(run), ("failed", "error"));
            let why = "two unreadable answers of the model in a row: the answer contains neither a tool call nor a valid JSON object";
            assert_eq!(run.run.run.error.as_deref(), Some(why));
            assert_eq!(work.model.requests().len(), 3, "two turns and the closing call");
        });
    }

    fn first_of_two_json_objects_counts(test: AgentTest) {
        let two = json!([{ "text": "{\"type\":\"done\",\"message\":\"one\"} {\"type\":\"error\",\"message\":\"two\"}" }]);
        in_all_setups(&test, &json!([two]), |run, _| {
            assert_eq!((status_of(run), run.run.run.final_message.as_deref()), (("completed", "completed"), Some("one")));
        });
    }

    fn broken_and_empty_replies_are_retried(test: AgentTest) {
        for (broken, why) in [
            (json!([{ "text": "```json\n{\"type\": \"done\", \"message\": \"x\n```" }]), "the answer contains neither a tool call nor a valid JSON object"),
            (json!([]), "the answer is empty"),
            (json!([{ "text": " \n" }]), "the answer is empty"),
        ] {
            in_all_setups(&test, &json!([broken, done("x")]), |run, _| {
                assert_eq!(status_of(run), ("completed", "completed"), "{run:#?}");
                assert_eq!(step_detail(run, "error"), format!("{why}; retrying"));
            });
        }
    }

    fn object_inside_a_broken_call_is_not_executed(test: AgentTest) {
        let broken = r#"{"type":"execute","action":"create_note","params":{"type":"done","message":"inside"},}"#;
        in_all_setups(&test, &json!([[{ "text": broken }], done("x")]), |run, _| {
            assert_eq!((status_of(run), run.run.run.final_message.as_deref()), (("completed", "completed"), Some("x")));
            assert_eq!(step_detail(run, "error"), "the answer contains neither a tool call nor a valid JSON object; retrying");
        });
    }

    fn invalid_calls_get_an_error_result(test: AgentTest) {
        for (call, step, expected) in [
            (json!({ "tool": "fly", "input": {} }), "error", "fly: unknown tool \"fly\"; the tools are: fetch_page, execute_action, search, done, error"),
            (json!({ "tool": "fetch_page", "input": { "path": 7 } }), "error", "fetch_page: \"path\" of fetch_page is not a string"),
            (json!({ "tool": "fetch_page", "input": {} }), "error", "fetch_page: fetch_page requires \"path\", a string"),
            (json!({ "tool": "fetch_page", "input": { "path": "https://example.com/" } }), "error", "fetch_page: invalid page path \"https://example.com/\": a path begins with /"),
            (json!({ "tool": "execute_action", "input": { "path": "/whoami", "action": "fly" } }), "execute_action", "/whoami/actions/fly: 404\n"),
            (json!({ "tool": "execute_action", "input": { "path": "/whoami", "action": "create_note", "params": { "studio": 7, "title": "x" } } }), "execute_action", "/whoami/actions/create_note: 422\n"),
            (json!({ "tool": "execute_action", "input": { "path": "/whoami", "action": "create_note", "params": "x" } }), "error", "execute_action: \"params\" of execute_action is not an object"),
            (json!({ "tool": "execute_action", "input": { "path": "/whoami", "action": "end_run", "params": { "run": "last", "status": "completed" } } }), "execute_action", "end_run: refused, the runner does this"),
            (json!({ "tool": "execute_action", "input": { "path": "/whoami", "action": "set_agent", "params": { "handle": "bot", "capabilities": ["delete"] } } }), "execute_action", "/whoami/actions/set_agent: 403\n"),
            (json!({ "tool": "fetch_page", "input": { "path": "/nowhere" } }), "fetch_page", "/nowhere: 404, "),
        ] {
            for setup in model_setups() {
                let (run, work) = test.run_task(&setup, json!([[call], done("x")]), closing_answer("kept", "told"));
                assert_eq!(status_of(&run), ("completed", "completed"), "{run:#?}");
                assert!(step_detail(&run, step).starts_with(expected), "{}", step_detail(&run, step));
                assert!(work.model.requests().len() >= 3);
            }
        }
    }

    fn oversized_reply_is_retried(test: AgentTest) {
        let long = "All work and no play. ".repeat(500_000);
        in_all_setups(&test, &json!([[{ "text": long }], done("x")]), |run, _| {
            assert_eq!(status_of(run), ("completed", "completed"));
            assert_eq!(step_detail(run, "error"), "the answer is longer than 4194304 bytes; retrying");
            assert!(run.steps.iter().all(|step| step.detail.as_ref().is_none_or(|detail| detail.len() < 20_000)));
        });
    }

    fn busy_model_is_retried(test: AgentTest) {
        for error in [429, 500, 529] {
            let turns = json!([[{ "error": error, "times": 2 }, { "tool": "done", "input": { "message": "x" } }]]);
            in_all_setups(&test, &turns, |run, work| {
                assert_eq!(status_of(run), ("completed", "completed"));
                let again = run.steps.iter().filter(|step| step.step_type.as_str() == "error");
                let again: Vec<_> = again.map(|step| step.detail.clone().unwrap()).collect();
                assert_eq!(again, vec![format!("the model answered {error}: scripted; retrying"); 2]);
                assert_eq!(work.model.requests().len(), 4);
            });
            in_all_setups(&test, &json!([[{ "error": error }]]), |run, work| {
                assert_eq!(status_of(run), ("failed", "exception"));
                assert_eq!(run.run.run.error.clone().unwrap(), format!("the model answered {error}: scripted (tried 4 times)"));
                assert_eq!(work.model.requests().len(), 5, "four tries and the closing call");
            });
        }
    }

    fn retry_after_is_honoured(test: AgentTest) {
        let turns = json!([[{ "error": 429, "retry_after_s": 1, "times": 1 }, { "tool": "done", "input": { "message": "x" } }]]);
        let start = std::time::Instant::now();
        let (run, _) = test.run_task(&ModelSetup::default(), turns, closing_answer("kept", "told"));
        assert_eq!(status_of(&run), ("completed", "completed"));
        assert!(start.elapsed() >= Duration::from_secs(1));
        let turns = json!([[{ "error": 429, "retry_after_s": 3600 }]]);
        let (run, work) = test.run_task(&ModelSetup::default(), turns, closing_answer("kept", "told"));
        assert_eq!((status_of(&run), work.model.requests().len()), (("failed", "exception"), 2), "the worker does not wait an hour");
    }

    fn hanging_model_call_times_out_and_is_retried(test: AgentTest) {
        for setup in model_setups() {
            let setup = ModelSetup { timeout: Duration::from_millis(300), ..setup };
            let turns = json!([[{ "hang": 10, "times": 1 }, { "tool": "done", "input": { "message": "x" } }]]);
            let (run, _) = test.run_task(&setup, turns, closing_answer("kept", "told"));
            assert_eq!(status_of(&run), ("completed", "completed"), "{run:#?}");
            assert_eq!(step_detail(&run, "error"), "the model did not answer within 300.0ms; retrying");
        }
        let setup = ModelSetup { timeout: Duration::from_millis(100), ..ModelSetup::default() };
        let (run, _) = test.run_task(&setup, json!([[{ "hang": 10 }]]), closing_answer("kept", "told"));
        assert_eq!(status_of(&run), ("failed", "exception"));
        assert_eq!(run.run.run.error.as_deref(), Some("the model did not answer within 100.0ms (tried 4 times)"));
    }

    fn incomplete_answer_is_retried(test: AgentTest) {
        let turns = json!([[{ "cut": true, "times": 1 }, { "text": "Let me see." }, { "tool": "done", "input": { "message": "x" } }]]);
        in_all_setups(&test, &turns, |run, _| {
            assert_eq!(status_of(run), ("completed", "completed"));
            assert!(step_detail(run, "error").starts_with("the answer is incomplete"), "{}", step_detail(run, "error"));
        });
        in_all_setups(&test, &json!([[{ "cut": true }, { "text": "Let me see." }]]), |run, _| {
            assert_eq!(status_of(run), ("failed", "exception"));
            assert!(run.run.run.error.clone().unwrap().starts_with("the answer is incomplete"));
        });
    }

    fn response_in_a_wrong_format_is_retried(test: AgentTest) {
        for raw in ["<html>no</html>", "{}", ""] {
            in_all_setups(&test, &json!([[{ "raw": raw, "times": 1 }, { "tool": "done", "input": { "message": "x" } }]]), |run, _| {
                assert_eq!(status_of(run), ("completed", "completed"), "{raw:?}");
                assert!(step_detail(run, "error").ends_with("; retrying"));
            });
        }
    }

    fn long_page_is_read_in_parts(test: AgentTest) {
        let body = format!("{}END", "x".repeat(30_000));
        let note = test.env.execute_json("create_note", json!({ "studio": "main", "title": "long", "body": body })).unwrap();
        let path = format!("/notes/{}", note["id"].as_str().unwrap());
        let turns = json!([[page(&path)], [{ "tool": "fetch_page", "input": { "path": path, "from": 24000 } }], done("x")]);
        in_all_setups(&test, &turns, |run, work| {
            assert_eq!(status_of(run), ("completed", "completed"));
            let second = work.model.requests()[1].body["messages"].to_string();
            let third = work.model.requests()[2].body["messages"].to_string();
            assert!(second.contains("characters 0 to 24000 of") && second.contains("and from 24000]"), "{second}");
            assert!(!second.contains("xEND") && third.contains("xEND") && third.contains("end of page]"));
            assert!(step_detail(run, "fetch_page").contains(" from 24000: 200, "));
        });
    }

    fn leaked_instructions_are_rejected(test: AgentTest) {
        let leak = json!({ "tool": "execute_action", "input": { "path": "/whoami", "action": "create_note", "params": { "studio": "main", "title": "x", "body": format!("I was told: {IDENTITY}") } } });
        in_all_setups(&test, &json!([[leak], done("x")]), |run, work| {
            assert_eq!(steps(run), ["wake", "fetch_page", "think", "security_warning", "think", "done", "scratchpad_update"]);
            assert_eq!(step_detail(run, "security_warning"), "the answer repeats a long piece of its instructions; it was refused");
            assert_eq!(run.touches.len(), 1, "the report only");
            let second = work.model.requests()[1].body["messages"].to_string();
            assert!(second.contains("Refused: the call repeats your instructions"));
        });
        // The system prompt contains a new marker for each run.
        let (_, work) = test.run_task(&ModelSetup::default(), json!([done("x")]), closing_answer("a", "b"));
        let marker = work.model.requests()[0].body["system"][0]["text"].as_str().unwrap().split(['[', ']']).nth(1).unwrap().to_owned();
        assert_eq!(marker.len(), 24);
        // A leak in the closing answer is rejected, too.
        let (run, _) = test.run_task(&ModelSetup::default(), json!([done("x")]), closing_answer(&format!("I am: {IDENTITY}"), "b"));
        assert_eq!(steps(&run)[3..], ["done", "security_warning", "scratchpad_update_failed"]);
        assert_eq!((status_of(&run), step_detail(&run, "scratchpad_update_failed").as_str()), (("completed", "completed"), "the answer repeats the agent's instructions"));
    }

    fn tls_failure_is_reported_as_unreachable(test: AgentTest) {
        test.queue();
        let model = trackway_testkit::scripted_model::ScriptedModel::start(trackway_testkit::scripted_model::Scenario::parse("{\"actors\":[]}"));
        let url = Some(model.url().replace("http:", "https:"));
        let settings = ModelSettings { url, back_off: Duration::from_millis(1), ..ModelSettings::default() };
        let pages = test.pages();
        let backend = AgentBackend { model: settings.build().unwrap(), settings, pages };
        let (tally, _) = test.work_with_backend(&ModelSetup::default(), backend, |_| {});
        let run = test.last_run();
        assert_eq!((status_of(&run), tally.failed), (("failed", "exception"), 1));
        assert!(run.run.run.error.clone().unwrap().starts_with("the model cannot be reached: "), "{:?}", run.run.run.error);
        assert_eq!(model.requests().len(), 0);
    }

    fn calls_in_text_work_without_native_tools(test: AgentTest) {
        for setup in model_setups() {
            let setup = ModelSetup { native_tools: false, ..setup };
            let turns = json!([
                [{ "text": "Looking.\n```json\n{\"type\": \"navigate\", \"path\": \"/tasks/unit/go\"}\n```" }],
                [{ "text": "{\"type\": \"execute\", \"action\": \"create_note\", \"params\": {\"studio\": \"main\", \"title\": \"n\"}}" }],
                [{ "text": "{\"type\": \"done\", \"message\": \"so\"}" }],
            ]);
            let (run, work) = test.run_task(&setup, turns, closing_answer("kept", "told"));
            assert_eq!((status_of(&run), run.run.run.final_message.as_deref()), (("completed", "completed"), Some("so")));
            assert_eq!(steps(&run), ["wake", "fetch_page", "think", "fetch_page", "think", "execute_action", "think", "done", "scratchpad_update"]);
            let first = &work.model.requests()[0].body;
            assert!(first["tools"].is_null() && first.to_string().contains("navigate"));
        }
    }
}

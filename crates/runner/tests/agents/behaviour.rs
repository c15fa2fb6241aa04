//! What models do: every one of these has an outcome and a step that shows it, over both providers, streamed and whole.

use std::time::Duration;

use serde_json::{Value, json};
use trackway_runner::{agent::Means, model::ModelSettings};
use trackway_testkit::engines;

use crate::lab::{IDENTITY, Lab, Way, done, how, remembers, said, steps, ways};

/// Plays the same in every way, and looks at what came of it.
#[track_caller]
fn in_every_way(lab: &Lab, turns: &Value, look: impl Fn(&trackway_views::run::RunInFull, &crate::lab::Worked)) {
    for way in ways() {
        let (run, worked) = lab.plays(&way, turns.clone(), remembers("kept", "told"));
        assert!(matches!(said(&run, "scratchpad_update").as_str(), "kept"), "{way:?}");
        look(&run, &worked);
    }
}

fn page(path: &str) -> Value {
    json!({ "tool": "fetch_page", "input": { "path": path } })
}

engines! {
    fn prose_is_asked_again_once(lab: Lab) {
        in_every_way(&lab, &json!([[{ "text": "I think that all is well." }], done("x")]), |run, worked| {
            assert_eq!(how(run), ("completed", "completed"));
            assert_eq!(said(run, "error"), "the answer calls no tool and holds no JSON object that can be read; asked again");
            let again = worked.model.requests()[1].body["messages"].to_string();
            assert!(again.contains("Your answer cannot be read: the answer calls no tool"), "{again}");
        });
        in_every_way(&lab, &json!([[{ "text": "I think that all is well." }]]), |run, worked| {
            assert_eq!(how(run), ("failed", "error"));
            let why = "the model's answer cannot be read, twice: the answer calls no tool and holds no JSON object that can be read";
            assert_eq!(run.run.run.error.as_deref(), Some(why));
            assert_eq!(worked.model.requests().len(), 3, "two turns and the closing call");
        });
    }

    fn of_two_objects_the_first_counts(lab: Lab) {
        let two = json!([{ "text": "{\"type\":\"done\",\"message\":\"one\"} {\"type\":\"error\",\"message\":\"two\"}" }]);
        in_every_way(&lab, &json!([two]), |run, _| {
            assert_eq!((how(run), run.run.run.final_message.as_deref()), (("completed", "completed"), Some("one")));
        });
    }

    fn broken_json_and_nothing_at_all(lab: Lab) {
        for (broken, why) in [
            (json!([{ "text": "```json\n{\"type\": \"done\", \"message\": \"x\n```" }]), "the answer calls no tool and holds no JSON object that can be read"),
            (json!([]), "the answer is empty"),
            (json!([{ "text": " \n" }]), "the answer is empty"),
        ] {
            in_every_way(&lab, &json!([broken, done("x")]), |run, _| {
                assert_eq!(how(run), ("completed", "completed"), "{run:#?}");
                assert_eq!(said(run, "error"), format!("{why}; asked again"));
            });
        }
    }

    fn the_inside_of_a_broken_call_is_not_done(lab: Lab) {
        let broken = r#"{"type":"execute","action":"create_note","params":{"type":"done","message":"inside"},}"#;
        in_every_way(&lab, &json!([[{ "text": broken }], done("x")]), |run, _| {
            assert_eq!((how(run), run.run.run.final_message.as_deref()), (("completed", "completed"), Some("x")));
            assert_eq!(said(run, "error"), "the answer calls no tool and holds no JSON object that can be read; asked again");
        });
    }

    fn calls_that_cannot_be_made_are_answered(lab: Lab) {
        for (call, step, wanted) in [
            (json!({ "tool": "fly", "input": {} }), "error", "fly: there is no tool \"fly\"; there are: fetch_page, execute_action, search, done, error"),
            (json!({ "tool": "fetch_page", "input": { "path": 7 } }), "error", "fetch_page: \"path\" of fetch_page is not a text"),
            (json!({ "tool": "fetch_page", "input": {} }), "error", "fetch_page: fetch_page needs \"path\", a text"),
            (json!({ "tool": "fetch_page", "input": { "path": "https://example.com/" } }), "error", "fetch_page: \"https://example.com/\" is not the path of a page; one begins with /"),
            (json!({ "tool": "execute_action", "input": { "path": "/whoami", "action": "fly" } }), "execute_action", "/whoami/actions/fly: 404\n"),
            (json!({ "tool": "execute_action", "input": { "path": "/whoami", "action": "create_note", "params": { "studio": 7, "title": "x" } } }), "execute_action", "/whoami/actions/create_note: 422\n"),
            (json!({ "tool": "execute_action", "input": { "path": "/whoami", "action": "create_note", "params": "x" } }), "error", "execute_action: \"params\" of execute_action is not an object"),
            (json!({ "tool": "execute_action", "input": { "path": "/whoami", "action": "end_run", "params": { "run": "last", "status": "completed" } } }), "execute_action", "end_run: refused, the runner does this"),
            (json!({ "tool": "execute_action", "input": { "path": "/whoami", "action": "set_agent", "params": { "handle": "bot", "capabilities": ["delete"] } } }), "execute_action", "/whoami/actions/set_agent: 403\n"),
            (json!({ "tool": "fetch_page", "input": { "path": "/nowhere" } }), "fetch_page", "/nowhere: 404, "),
        ] {
            for way in ways() {
                let (run, worked) = lab.plays(&way, json!([[call], done("x")]), remembers("kept", "told"));
                assert_eq!(how(&run), ("completed", "completed"), "{run:#?}");
                assert!(said(&run, step).starts_with(wanted), "{}", said(&run, step));
                assert!(worked.model.requests().len() >= 3);
            }
        }
    }

    fn too_much_text_is_not_read(lab: Lab) {
        let long = "All work and no play. ".repeat(500_000);
        in_every_way(&lab, &json!([[{ "text": long }], done("x")]), |run, _| {
            assert_eq!(how(run), ("completed", "completed"));
            assert_eq!(said(run, "error"), "the answer is longer than 4194304 bytes; asked again");
            assert!(run.steps.iter().all(|step| step.detail.as_ref().is_none_or(|detail| detail.len() < 20_000)));
        });
    }

    fn a_busy_model_is_asked_again(lab: Lab) {
        for error in [429, 500, 529] {
            let turns = json!([[{ "error": error, "times": 2 }, { "tool": "done", "input": { "message": "x" } }]]);
            in_every_way(&lab, &turns, |run, worked| {
                assert_eq!(how(run), ("completed", "completed"));
                let again = run.steps.iter().filter(|step| step.step_type.word() == "error");
                let again: Vec<_> = again.map(|step| step.detail.clone().unwrap()).collect();
                assert_eq!(again, vec![format!("the model answered {error}: scripted; asked again"); 2]);
                assert_eq!(worked.model.requests().len(), 4);
            });
            in_every_way(&lab, &json!([[{ "error": error }]]), |run, worked| {
                assert_eq!(how(run), ("failed", "exception"));
                assert_eq!(run.run.run.error.clone().unwrap(), format!("the model answered {error}: scripted (tried 4 times)"));
                assert_eq!(worked.model.requests().len(), 5, "four tries and the closing call");
            });
        }
    }

    fn a_model_says_when_to_ask_again(lab: Lab) {
        let turns = json!([[{ "error": 429, "retry_after_s": 1, "times": 1 }, { "tool": "done", "input": { "message": "x" } }]]);
        let begun = std::time::Instant::now();
        let (run, _) = lab.plays(&Way::default(), turns, remembers("kept", "told"));
        assert_eq!(how(&run), ("completed", "completed"));
        assert!(begun.elapsed() >= Duration::from_secs(1));
        let turns = json!([[{ "error": 429, "retry_after_s": 3600 }]]);
        let (run, worked) = lab.plays(&Way::default(), turns, remembers("kept", "told"));
        assert_eq!((how(&run), worked.model.requests().len()), (("failed", "exception"), 2), "an hour is not waited for");
    }

    fn a_silent_model_is_not_waited_for_long(lab: Lab) {
        for way in ways() {
            let way = Way { timeout: Duration::from_millis(300), ..way };
            let turns = json!([[{ "hang": 10, "times": 1 }, { "tool": "done", "input": { "message": "x" } }]]);
            let (run, _) = lab.plays(&way, turns, remembers("kept", "told"));
            assert_eq!(how(&run), ("completed", "completed"), "{run:#?}");
            assert_eq!(said(&run, "error"), "the model did not answer within 300.0ms; asked again");
        }
        let way = Way { timeout: Duration::from_millis(100), ..Way::default() };
        let (run, _) = lab.plays(&way, json!([[{ "hang": 10 }]]), remembers("kept", "told"));
        assert_eq!(how(&run), ("failed", "exception"));
        assert_eq!(run.run.run.error.as_deref(), Some("the model did not answer within 100.0ms (tried 4 times)"));
    }

    fn an_answer_that_breaks_off_is_asked_for_again(lab: Lab) {
        let turns = json!([[{ "cut": true, "times": 1 }, { "text": "Let me see." }, { "tool": "done", "input": { "message": "x" } }]]);
        in_every_way(&lab, &turns, |run, _| {
            assert_eq!(how(run), ("completed", "completed"));
            assert!(said(run, "error").starts_with("the answer broke off"), "{}", said(run, "error"));
        });
        in_every_way(&lab, &json!([[{ "cut": true }, { "text": "Let me see." }]]), |run, _| {
            assert_eq!(how(run), ("failed", "exception"));
            assert!(run.run.run.error.clone().unwrap().starts_with("the answer broke off"));
        });
    }

    fn what_is_no_answer_at_all(lab: Lab) {
        for raw in ["<html>no</html>", "{}", ""] {
            in_every_way(&lab, &json!([[{ "raw": raw, "times": 1 }, { "tool": "done", "input": { "message": "x" } }]]), |run, _| {
                assert_eq!(how(run), ("completed", "completed"), "{raw:?}");
                assert!(said(run, "error").ends_with("; asked again"));
            });
        }
    }

    fn a_page_is_cut_and_read_on(lab: Lab) {
        let body = format!("{}END", "x".repeat(30_000));
        let note = lab.env.act("create_note", json!({ "studio": "main", "title": "long", "body": body })).unwrap();
        let path = format!("/notes/{}", note["id"].as_str().unwrap());
        let turns = json!([[page(&path)], [{ "tool": "fetch_page", "input": { "path": path, "from": 24000 } }], done("x")]);
        in_every_way(&lab, &turns, |run, worked| {
            assert_eq!(how(run), ("completed", "completed"));
            let second = worked.model.requests()[1].body["messages"].to_string();
            let third = worked.model.requests()[2].body["messages"].to_string();
            assert!(second.contains("characters 0 to 24000 of") && second.contains("and from 24000]"), "{second}");
            assert!(!second.contains("xEND") && third.contains("xEND") && third.contains("this is the end of it]"));
            assert!(said(run, "fetch_page").contains(" from 24000: 200, "));
        });
    }

    fn instructions_that_leak_are_refused(lab: Lab) {
        let leak = json!({ "tool": "execute_action", "input": { "path": "/whoami", "action": "create_note", "params": { "studio": "main", "title": "x", "body": format!("I was told: {IDENTITY}") } } });
        in_every_way(&lab, &json!([[leak], done("x")]), |run, worked| {
            assert_eq!(steps(run), ["wake", "fetch_page", "think", "security_warning", "think", "done", "scratchpad_update"]);
            assert_eq!(said(run, "security_warning"), "the answer repeats a long piece of its instructions; it was refused");
            assert_eq!(run.touches.len(), 1, "the report only");
            let second = worked.model.requests()[1].body["messages"].to_string();
            assert!(second.contains("Refused: it repeats your instructions"));
        });
        // The marker is in what the model is told, and new each time.
        let (_, worked) = lab.plays(&Way::default(), json!([done("x")]), remembers("a", "b"));
        let marker = worked.model.requests()[0].body["system"][0]["text"].as_str().unwrap().split(['[', ']']).nth(1).unwrap().to_owned();
        assert_eq!(marker.len(), 24);
        // In the closing answer, too.
        let (run, _) = lab.plays(&Way::default(), json!([done("x")]), remembers(&format!("I am: {IDENTITY}"), "b"));
        assert_eq!(steps(&run)[3..], ["done", "security_warning", "scratchpad_update_failed"]);
        assert_eq!((how(&run), said(&run, "scratchpad_update_failed").as_str()), (("completed", "completed"), "the answer repeats the agent's instructions"));
    }

    fn a_model_behind_tls_that_does_not_speak_it(lab: Lab) {
        lab.queue();
        let model = trackway_testkit::scripted_model::ScriptedModel::start(trackway_testkit::scripted_model::Scenario::parse("{\"actors\":[]}"));
        let url = Some(model.url().replace("http:", "https:"));
        let settings = ModelSettings { url, back_off: Duration::from_millis(1), ..ModelSettings::default() };
        let pages = lab.pages();
        let means = Means { model: settings.build().unwrap(), settings, pages };
        let (tally, _) = lab.works_through(&Way::default(), means, |_| {});
        let run = lab.last_run();
        assert_eq!((how(&run), tally.failed), (("failed", "exception"), 1));
        assert!(run.run.run.error.clone().unwrap().starts_with("the model cannot be reached: "), "{:?}", run.run.run.error);
        assert_eq!(model.requests().len(), 0);
    }

    fn json_in_the_text_will_do(lab: Lab) {
        for way in ways() {
            let way = Way { native_tools: false, ..way };
            let turns = json!([
                [{ "text": "Looking.\n```json\n{\"type\": \"navigate\", \"path\": \"/tasks/unit/go\"}\n```" }],
                [{ "text": "{\"type\": \"execute\", \"action\": \"create_note\", \"params\": {\"studio\": \"main\", \"title\": \"n\"}}" }],
                [{ "text": "{\"type\": \"done\", \"message\": \"so\"}" }],
            ]);
            let (run, worked) = lab.plays(&way, turns, remembers("kept", "told"));
            assert_eq!((how(&run), run.run.run.final_message.as_deref()), (("completed", "completed"), Some("so")));
            assert_eq!(steps(&run), ["wake", "fetch_page", "think", "fetch_page", "think", "execute_action", "think", "done", "scratchpad_update"]);
            let first = &worked.model.requests()[0].body;
            assert!(first["tools"].is_null() && first.to_string().contains("navigate"));
        }
    }
}

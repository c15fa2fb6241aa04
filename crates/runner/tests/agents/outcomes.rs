//! The closing call at the end of the run's own conversation; what each exit means for the queue item and its task; and
//! whose limits count.

use std::time::Duration;

use serde_json::{Value, json};
use trackway_domain::Ref;
use trackway_runner::model::Provider;
use trackway_testkit::engines;
use trackway_views::{View, task::GetTask};

use crate::lab::{Lab, Way, done, how, remembers, said, steps, ways};

const ALPHA: &str = "The kettle hides behind the flour.";
const BETA: &str = "Green tea wants eighty degrees.";

fn reads(path: &str) -> Value {
    json!([{ "tool": "fetch_page", "input": { "path": path } }])
}

/// Defines two tasks whose pages an agent can learn something from.
fn two_pages(lab: &Lab) {
    for (variant, description) in [("unit/alpha", ALPHA), ("unit/beta", BETA)] {
        lab.env
            .act("set_task", json!({ "workflow": "build", "variant": variant, "description": description }))
            .unwrap();
    }
}

/// The system prompt of a request.
fn system(body: &Value) -> Value {
    if body["system"].is_null() { body["messages"][0].clone() } else { body["system"].clone() }
}

/// The ids of calls and of results in a conversation, in the words of either provider.
fn calls_and_results(messages: &Value) -> (Vec<Value>, Vec<Value>) {
    let (mut calls, mut results) = (Vec::new(), Vec::new());
    for message in messages.as_array().unwrap() {
        calls.extend(message["tool_calls"].as_array().into_iter().flatten().map(|call| call["id"].clone()));
        results.extend(message.get("tool_call_id").cloned());
        for block in message["content"].as_array().into_iter().flatten() {
            match block["type"].as_str() {
                Some("tool_use") => calls.push(block["id"].clone()),
                Some("tool_result") => results.push(block["tool_use_id"].clone()),
                _ => {}
            }
        }
    }
    (calls, results)
}

/// The status, attempt and error of the newest item.
fn item(lab: &Lab) -> (String, i64, Option<String>) {
    let sql = "select status, attempt, error from queue_items where tenant_id = ?1 order by id desc";
    lab.env.read(|reader| Ok(reader.query::<(String, i64, Option<String>)>(sql, &[])?)).remove(0)
}

/// The status of a task and its reason.
fn task(lab: &Lab, variant: &str) -> (&'static str, Option<String>) {
    let shown = lab.env.read(|reader| Ok(GetTask { task: Ref::new(variant) }.answer(reader, lab.env.now())?));
    (shown.task.task.status.word(), shown.task.task.status_reason)
}

/// Queues a task that is done once, and lets the agent work on it.
fn once(lab: &Lab, way: &Way, task: &Value, item: &Value, turns: Value) {
    let mut definition = json!({ "workflow": "build", "variant": "unit/once", "status": "open" });
    let mut added = json!({ "task": "unit/once", "agent": "bot" });
    definition.as_object_mut().unwrap().extend(task.as_object().unwrap().clone());
    added.as_object_mut().unwrap().extend(item.as_object().unwrap().clone());
    lab.env.act("set_task", definition).unwrap();
    lab.env.act("queue_add", added).unwrap();
    lab.works(way, turns, remembers("kept", "told"));
}

fn fails_with(message: &str) -> Value {
    json!([[{ "tool": "error", "input": { "message": message } }]])
}

engines! {
    fn the_closing_request_contains_what_the_agent_read(lab: Lab) {
        two_pages(&lab);
        for way in ways() {
            let turns = json!([
                reads("/tasks/unit/alpha"), reads("/tasks/unit/beta"),
                [{ "text": "Both matter." }, reads("/queue")[0]],
                reads("/queue"), reads("/queue"), done("I know now."),
            ]);
            let (run, worked) = lab.plays(&way, turns, remembers("Behind the flour, eighty degrees.", "Learned."));
            assert_eq!(how(&run), ("completed", "completed"), "{run:#?}");
            assert_eq!(lab.scratchpad().0, "Behind the flour, eighty degrees.");
            let requests = worked.model.requests();
            let (last, closing) = (&requests[requests.len() - 2].body, &requests[requests.len() - 1].body);
            assert!(!last["messages"].to_string().contains(ALPHA), "the page is a line by then");
            let messages = closing["messages"].to_string();
            assert!(messages.contains(ALPHA) && messages.contains(BETA) && messages.contains("Both matter."), "{messages}");
            assert!(!messages.contains("shown earlier") && !messages.contains("were left out here"), "{messages}");
            assert_eq!((system(closing), &closing["tools"]), (system(last), &last["tools"]));
            let choice = if way.provider == Provider::Anthropic { json!({ "type": "none" }) } else { json!("none") };
            assert_eq!((&closing["tool_choice"], &last["tool_choice"]), (&choice, &Value::Null));
            let (calls, results) = calls_and_results(&closing["messages"]);
            assert_eq!((calls.len(), &results), (6, &calls), "every call has its result");
            let prompt = requests.last().unwrap().closing_prompt().unwrap();
            assert!(prompt.contains("**Outcome**: completed\n**Summary**: I know now.\n**Steps taken**: "), "{prompt}");
            assert!(!prompt.contains("Your steps:"), "they are in the conversation");
        }
    }

    fn a_closing_request_in_plain_json_contains_what_the_agent_read(lab: Lab) {
        two_pages(&lab);
        let says = |value: Value| json!([{ "text": value.to_string() }]);
        let turns = json!([
            says(json!({ "type": "navigate", "path": "/tasks/unit/alpha" })),
            says(json!({ "type": "done", "message": "x" })),
        ]);
        let (_, worked) = lab.plays(&Way { native_tools: false, ..Way::default() }, turns, remembers("a", "b"));
        let requests = worked.model.requests();
        let closing = &requests.last().unwrap().body;
        assert!(closing["messages"].to_string().contains(ALPHA) && closing["tools"].is_null() && closing["tool_choice"].is_null());
        let roles: Vec<_> = closing["messages"].as_array().unwrap().iter().map(|message| message["role"].as_str().unwrap()).collect();
        assert_eq!(roles, ["user", "assistant", "user", "assistant", "user"]);
    }

    fn a_conversation_over_the_limit_is_cut_from_the_middle_with_a_marker(lab: Lab) {
        for (variant, letter) in [("unit/alpha", "alpha "), ("unit/beta", "beta ")] {
            let description = letter.repeat(3_000);
            lab.env.act("set_task", json!({ "workflow": "build", "variant": variant, "description": description })).unwrap();
        }
        // Room for 24,576 bytes besides the reply.
        for way in ways() {
            let way = Way { context_tokens: Some(16_384), ..way };
            let turns = json!([reads("/tasks/unit/alpha"), reads("/tasks/unit/beta"), [{ "text": "So much tea." }, done("Enough.")[0]]]);
            let (run, worked) = lab.plays(&way, turns, remembers("Much tea.", "Much."));
            assert_eq!((how(&run), lab.scratchpad().0.as_str()), (("completed", "completed"), "Much tea."));
            let requests = worked.model.requests();
            let body = &requests.last().unwrap().body;
            let messages = body["messages"].to_string();
            assert_eq!(messages.matches("characters of this conversation were left out here: it is longer than the model takes]").count(), 1, "{messages}");
            assert!(messages.contains("What you need to know") && messages.contains("So much tea."), "{messages}");
            assert!(messages.matches("beta ").count() > 100, "the last page is cut, not gone");
            assert!(body.to_string().len() < 28_000, "{}", body.to_string().len());
            let (calls, results) = calls_and_results(&body["messages"]);
            assert_eq!(calls, results);
            assert!(!steps(&run).contains(&"scratchpad_update_failed"));
        }
    }

    fn a_small_model_is_asked_with_what_fits(lab: Lab) {
        two_pages(&lab);
        // A reply of the usual size would leave no room for the conversation.
        let way = Way { context_tokens: Some(8_192), ..Way::default() };
        let (_, worked) = lab.plays(&way, json!([reads("/tasks/unit/alpha"), done("x")]), remembers("a", "b"));
        let messages = worked.model.requests().last().unwrap().body["messages"].to_string();
        assert!(messages.contains("What you need to know") && messages.contains("Your run has ended."), "{messages}");
    }

    fn done_and_error_without_a_message_end_the_run(lab: Lab) {
        let says = |name: &str| json!([[{ "tool": name, "input": {} }]]);
        let (run, _) = lab.plays(&Way::default(), says("done"), remembers("a", "b"));
        assert_eq!((how(&run), run.run.run.final_message.as_deref()), (("completed", "completed"), Some("Task completed")));
        let (run, _) = lab.plays(&Way::default(), says("error"), remembers("a", "b"));
        assert_eq!((how(&run), run.run.run.error.as_deref()), (("failed", "error"), Some("Agent encountered an error")));
    }

    fn a_provider_that_refuses_the_conversation_is_asked_in_a_short_one(lab: Lab) {
        two_pages(&lab);
        for (way, status) in ways().into_iter().zip([400, 413, 400, 413]) {
            let mut closing = remembers("Short but mine.", "Short.");
            closing.as_array_mut().unwrap().insert(0, json!({ "error": status, "times": 1 }));
            let (run, worked) = lab.plays(&way, json!([reads("/tasks/unit/alpha"), done("x")]), closing);
            assert_eq!(how(&run), ("completed", "completed"));
            assert_eq!(steps(&run)[steps(&run).len() - 3..], ["done", "error", "scratchpad_update"]);
            assert_eq!(said(&run, "error"), format!("the closing call did not see the conversation: the model answered {status}: scripted"));
            assert_eq!((lab.scratchpad().0.as_str(), lab.reports().last().map(String::as_str)), ("Short but mine.", Some("Short.")));
            let requests = worked.model.requests();
            let (refused, short) = (&requests[requests.len() - 2], &requests[requests.len() - 1]);
            assert!(refused.body["messages"].to_string().contains(ALPHA));
            assert!(!short.body["messages"].to_string().contains(ALPHA) && short.body["tools"].is_null());
            let prompt = short.closing_prompt().unwrap();
            assert!(prompt.contains("Your steps:\n```text\n1. fetch_page: /whoami: 200") && prompt.contains("fetch_page: /tasks/unit/alpha: 200"), "{prompt}");
        }
    }

    fn an_agent_that_ends_twice_ends_the_first_way(lab: Lab) {
        let end = |tool: &str, message: &str| json!({ "tool": tool, "input": { "message": message } });
        let note = json!({ "tool": "execute_action", "input": { "path": "/whoami", "action": "create_note", "params": { "studio": "main", "title": "late" } } });
        for way in ways() {
            for (first, second, ended, message, error) in [
                ("done", "done", ("completed", "completed"), Some("one"), None),
                ("done", "error", ("completed", "completed"), Some("one"), None),
                ("error", "done", ("failed", "error"), None, Some("one")),
            ] {
                let (run, worked) = lab.plays(&way, json!([[end(first, "one"), note, end(second, "two")]]), remembers("a", "b"));
                assert_eq!((how(&run), run.run.run.final_message.as_deref(), run.run.run.error.as_deref()), (ended, message, error));
                assert!(run.touches.iter().all(|touch| touch.resource_type.to_string() == "report"), "nothing is done after the end");
                let requests = worked.model.requests();
                let (calls, results) = calls_and_results(&requests.last().unwrap().body["messages"]);
                assert_eq!((calls.len(), &results), (3, &calls));
            }
        }
    }

    fn nothing_to_add_writes_no_step(lab: Lab) {
        for answer in [json!({ "scratchpad": null }), json!({ "scratchpad": " \n" }), json!({})] {
            let (run, _) = lab.plays(&Way::default(), json!([done("x")]), json!([{ "text": answer.to_string() }]));
            assert_eq!(steps(&run), ["wake", "fetch_page", "think", "done"]);
        }
        assert_eq!(lab.scratchpad().1, 0);
    }

    fn max_steps_says_so_in_the_prompt_and_in_the_run(lab: Lab) {
        once(&lab, &Way::default(), &json!({}), &json!({ "max_steps": 3 }), json!([reads("/queue")]));
        let run = lab.last_run();
        let message = "Reached maximum steps (3) without completing task";
        assert_eq!((how(&run), run.run.run.final_message.as_deref()), (("incomplete", "incomplete - max steps reached"), Some(message)));
        assert_eq!((run.run.run.max_steps, said(&run, "error").as_str(), said(&run, "scratchpad_update").as_str()), (3, "max steps reached: 3", "kept"));
        assert_eq!((item(&lab).0.as_str(), item(&lab).1, task(&lab, "unit/once")), ("waiting", 2, ("open", None)), "it is tried again");
        let (_, worked) = {
            lab.env.act("set_task", json!({ "workflow": "build", "variant": "unit/go", "max_steps": 2 })).unwrap();
            lab.plays(&Way::default(), json!([reads("/queue")]), remembers("a", "b"))
        };
        let prompt = worked.model.requests().last().unwrap().closing_prompt().unwrap();
        assert!(prompt.contains("**Summary**: Reached maximum steps (2) without completing task\n"), "{prompt}");
    }

    fn done_ends_the_item_and_the_task(lab: Lab) {
        once(&lab, &Way::default(), &json!({}), &json!({}), json!([done("x")]));
        assert_eq!((item(&lab), task(&lab, "unit/once")), (("completed".into(), 1, None), ("done", None)));
    }

    fn an_explicit_error_is_not_tried_again_and_blocks_the_task(lab: Lab) {
        once(&lab, &Way::default(), &json!({}), &json!({}), fails_with("There is no kettle."));
        let run = lab.last_run();
        assert_eq!((how(&run), run.run.run.error.as_deref()), (("failed", "error"), Some("There is no kettle.")));
        assert_eq!(steps(&run), ["wake", "fetch_page", "think", "error", "scratchpad_update"]);
        assert_eq!((lab.scratchpad().0.as_str(), lab.reports()), ("kept", vec!["told".to_owned()]));
        let why = Some("There is no kettle.".to_owned());
        assert_eq!((item(&lab), task(&lab, "unit/once")), (("failed".into(), 1, why.clone()), ("blocked", why.clone())));
        assert_eq!(lab.env.act("claim", json!({})).unwrap(), json!([]), "nobody claims it again");
        // Somebody tries it again all the same: it fails again, then it gets done.
        let id = lab.env.read(|reader| Ok(reader.query::<(trackway_domain::Id<trackway_domain::kind::QueueItem>,)>("select id from queue_items where tenant_id = ?1", &[])?))[0].0;
        lab.env.act("queue_requeue", json!({ "id": id })).unwrap();
        assert_eq!(task(&lab, "unit/once"), ("open", None));
        lab.works(&Way::default(), fails_with("Still none."), remembers("kept", "told"));
        assert_eq!(task(&lab, "unit/once"), ("blocked", Some("Still none.".into())));
        lab.env.act("queue_add", json!({ "task": "unit/once", "agent": "bot" })).unwrap();
        lab.works(&Way::default(), json!([done("x")]), remembers("kept", "told"));
        assert_eq!(task(&lab, "unit/once"), ("done", None));
    }

    fn whoever_opens_a_blocked_task_again_takes_its_reason_away(lab: Lab) {
        once(&lab, &Way::default(), &json!({}), &json!({}), fails_with(" "));
        assert_eq!(task(&lab, "unit/once"), ("blocked", Some("Agent encountered an error".into())));
        lab.env.act("set_task", json!({ "workflow": "build", "variant": "unit/once", "status": "open" })).unwrap();
        assert_eq!(task(&lab, "unit/once"), ("open", None));
        assert_eq!(lab.env.act("claim", json!({})).unwrap()[0]["variant"], "unit/once");
    }

    fn a_second_explicit_error_replaces_the_first(lab: Lab) {
        once(&lab, &Way::default(), &json!({}), &json!({}), fails_with("There is no kettle."));
        lab.env.act("queue_add", json!({ "task": "unit/once", "agent": "bot" })).unwrap();
        lab.works(&Way::default(), fails_with("There is no water."), remembers("kept", "told"));
        assert_eq!(task(&lab, "unit/once"), ("blocked", Some("There is no water.".into())));
        // Blocked by a person, without a reason.
        lab.env.act("set_task", json!({ "variant": "unit/once", "status": "open" })).unwrap();
        lab.env.act("set_task", json!({ "variant": "unit/once", "status": "blocked" })).unwrap();
        lab.env.act("queue_add", json!({ "task": "unit/once", "agent": "bot" })).unwrap();
        lab.works(&Way::default(), fails_with("No cups."), remembers("kept", "told"));
        assert_eq!(task(&lab, "unit/once"), ("blocked", Some("No cups.".into())));
    }

    fn an_explicit_error_counts_although_another_run_ends_later(lab: Lab) {
        lab.env.act("set_task", json!({ "workflow": "build", "variant": "unit/once" })).unwrap();
        for _ in 0..2 {
            lab.env.act("queue_add", json!({ "task": "unit/once", "max_attempts": 1 })).unwrap();
        }
        let [first, second] = [0, 1].map(|_| lab.env.execute(trackway_actions::queue::TakeItems::default()).unwrap().remove(0));
        let ends = |taken: &trackway_actions::queue::Taken, outcome: &str, error: &str| {
            let token = trackway_actions::Credential::Token(trackway_actions::context::Secret(taken.token.clone()));
            let run = lab.env.core.enter(&token).unwrap();
            let end = json!({ "run": taken.run_id, "status": "failed", "outcome": outcome, "error": error });
            lab.env.act_as(&run, "end_run", end).unwrap();
        };
        ends(&first, "error", "There is no kettle.");
        let why = Some("There is no kettle.".to_owned());
        assert_eq!(task(&lab, "unit/once"), ("in_progress", why.clone()), "the other run is still at work");
        ends(&second, "gave up", "It was late.");
        assert_eq!(task(&lab, "unit/once"), ("blocked", why));
        assert_eq!(lab.env.act("claim", json!({})).unwrap(), json!([]), "nobody claims it again");
    }

    fn an_agent_that_ends_its_claim_with_an_error_is_not_asked_again(lab: Lab) {
        lab.env.act("set_task", json!({ "workflow": "build", "variant": "unit/once" })).unwrap();
        let claimed = lab.env.act("claim", json!({ "task": "unit/once", "agent": "bot" })).unwrap()[0].clone();
        let token = trackway_actions::Credential::Token(trackway_actions::context::Secret(claimed["token"].as_str().unwrap().to_owned()));
        let run = lab.env.core.enter(&token).unwrap();
        let end = json!({ "run": claimed["run_id"], "status": "failed", "outcome": "error", "error": "No kettle." });
        lab.env.act_as(&run, "end_run", end).unwrap();
        assert_eq!(task(&lab, "unit/once"), ("blocked", Some("No kettle.".into())));
        assert_eq!(lab.env.act("claim", json!({})).unwrap(), json!([]));
    }

    fn an_explicit_error_is_tried_again_where_the_task_wants_it(lab: Lab) {
        once(&lab, &Way::default(), &json!({ "retry_on_error": true }), &json!({}), fails_with("Not yet."));
        assert_eq!((item(&lab).0.as_str(), item(&lab).1, task(&lab, "unit/once")), ("waiting", 2, ("open", None)));
        once(&lab, &Way::default(), &json!({ "retry_on_error": true }), &json!({ "max_attempts": 1 }), fails_with("Not yet."));
        assert_eq!((item(&lab).0.as_str(), task(&lab, "unit/once")), ("failed", ("open", None)), "as before");
    }

    fn a_recurring_task_stays_as_it_is_after_an_explicit_error(lab: Lab) {
        lab.env.act("queue_add", json!({ "task": "unit/go", "agent": "bot" })).unwrap();
        lab.works(&Way::default(), fails_with("Not today."), remembers("a", "b"));
        assert_eq!((item(&lab).0.as_str(), item(&lab).1, task(&lab, "unit/go")), ("failed", 1, ("open", None)));
    }

    fn accidents_are_tried_again(lab: Lab) {
        let way = Way::default();
        let slow = Way { task_timeout: Duration::from_millis(300), ..Way::default() };
        for (way, turns, ended, error) in [
            (&way, json!([[{ "error": 401 }]]), ("failed", "exception"), "the model answered 401: scripted"),
            (&way, json!([[{ "text": "hm" }], [{ "text": "hm" }]]), ("failed", "error"), "the model's answer cannot be read, twice: the answer calls no tool and holds no JSON object that can be read"),
            (&slow, json!([[{ "delay_ms": 400 }, reads("/queue")[0]]]), ("timed_out", "timed out"), "timed out"),
        ] {
            once(&lab, way, &json!({}), &json!({}), turns);
            let run = lab.last_run();
            assert_eq!((how(&run), run.run.run.error.as_deref()), (ended, Some(error)));
            assert_eq!((item(&lab), task(&lab, "unit/once")), (("waiting".into(), 2, Some(error.into())), ("open", None)));
            // So that the next exit is the only one.
            lab.env.act("queue_cancel", json!({ "id": lab.env.read(|reader| Ok(reader.query::<(trackway_domain::Id<trackway_domain::kind::QueueItem>,)>("select id from queue_items where tenant_id = ?1 order by id desc", &[])?))[0].0 })).unwrap();
        }
    }

    fn a_taker_that_says_fail_is_tried_again_as_before(lab: Lab) {
        lab.env.act("set_task", json!({ "workflow": "build", "variant": "unit/once" })).unwrap();
        lab.env.act("queue_add", json!({ "task": "unit/once", "agent": "bot" })).unwrap();
        let taken = lab.takes();
        lab.env.act("queue_fail", json!({ "id": taken.id, "fence": taken.fence, "error": "Not now." })).unwrap();
        assert_eq!((item(&lab), task(&lab, "unit/once")), (("waiting".into(), 2, Some("Not now.".into())), ("open", None)));
    }

    fn the_nearest_limit_counts(lab: Lab) {
        let way = Way { priced: true, ..Way::default() };
        let once = |lab: &Lab, way: &Way, task: &Value, item: &Value, turns: Value| {
            // Another attempt would come between the next items.
            let mut item = item.clone();
            item["max_attempts"] = json!(1);
            once(lab, way, task, &item, turns);
        };
        // A call costs 0.21.
        let agent = json!({ "handle": "bot", "max_steps": 4, "timeout": "1h", "spend_limit": 100.0, "end_of_run": "on" });
        lab.env.act("set_agent", agent).unwrap();
        for (task, item, max_steps, asked) in [
            (json!({}), json!({}), 4, true),
            (json!({ "max_steps": 3, "end_of_run": "off" }), json!({}), 3, false),
            (json!({}), json!({ "max_steps": 2, "end_of_run": "on" }), 2, true),
            (json!({ "max_steps": null, "end_of_run": null }), json!({ "end_of_run": "off" }), 4, false),
        ] {
            once(&lab, &way, &task, &item, json!([reads("/queue")]));
            let run = lab.last_run();
            let turns = i64::try_from(steps(&run).iter().filter(|step| **step == "think").count()).unwrap();
            assert_eq!((how(&run).0, run.run.run.max_steps, turns), ("incomplete", max_steps, max_steps));
            assert_eq!(steps(&run).contains(&"scratchpad_update"), asked, "{task} {item}");
        }
        // The agent has spent more than the task and the item allow.
        for (task, item, ended) in [
            (json!({ "spend_limit": 0.1 }), json!({}), "spend limit reached"),
            (json!({ "spend_limit": 0.1 }), json!({ "spend_limit": 50.0 }), "completed"),
            (json!({ "spend_limit": null }), json!({ "spend_limit": 0.1 }), "spend limit reached"),
            (json!({ "spend_limit": null }), json!({}), "completed"),
        ] {
            once(&lab, &way, &task, &item, json!([done("x")]));
            let run = lab.last_run();
            assert_eq!(how(&run).1, ended, "{task} {item}");
            let told = &run.wake.as_ref().unwrap()[0].text;
            let limit = item["spend_limit"].as_f64().or(task["spend_limit"].as_f64()).unwrap_or(100.0);
            assert!(told.contains(&format!("may spend in a day: {limit}")), "{told}");
        }
        let slow = json!([[{ "delay_ms": 1_200 }, reads("/queue")[0]]]);
        for (task, item, status) in [
            (json!({ "timeout": "1s" }), json!({}), "timed_out"),
            (json!({ "timeout": "1s" }), json!({ "timeout": "1h", "max_steps": 1 }), "incomplete"),
            (json!({ "timeout": "1h" }), json!({ "timeout": "1s" }), "timed_out"),
        ] {
            once(&lab, &way, &task, &item, slow.clone());
            assert_eq!(how(&lab.last_run()).0, status, "{task} {item}");
        }
        lab.env.act("set_agent", json!({ "handle": "bot", "timeout": "1s" })).unwrap();
        once(&lab, &way, &json!({ "timeout": null }), &json!({}), slow);
        assert_eq!(how(&lab.last_run()).0, "timed_out", "the agent's own");
    }

    fn every_take_shows_the_limit_used(lab: Lab) {
        lab.env.act("set_task", json!({ "workflow": "build", "variant": "unit/once", "max_steps": 7 })).unwrap();
        for (item, max_steps) in [(json!({}), 7), (json!({ "max_steps": 5 }), 5)] {
            let mut added = json!({ "task": "unit/once" });
            added.as_object_mut().unwrap().extend(item.as_object().unwrap().clone());
            lab.env.act("queue_add", added).unwrap();
            // By one statement on PostgreSQL.
            let taken = lab.env.execute(trackway_actions::queue::TakeItems::default()).unwrap().remove(0);
            assert_eq!(lab.run(taken.run_id).run.run.max_steps, max_steps);
            lab.env.act("queue_complete", json!({ "id": taken.id, "fence": taken.fence })).unwrap();
        }
        lab.env.act("queue_add", json!({ "task": "unit/go" })).unwrap();
        let taken = lab.env.execute(trackway_actions::queue::TakeItems::default()).unwrap().remove(0);
        assert_eq!(lab.run(taken.run_id).run.run.max_steps, 30);
        lab.env.act("set_task", json!({ "workflow": "build", "variant": "unit/once", "status": "open" })).unwrap();
        let claimed = lab.env.act("claim", json!({ "task": "unit/once" })).unwrap();
        assert_eq!(lab.run(trackway_testkit::id(&json!({ "id": claimed[0]["run_id"] }))).run.run.max_steps, 7);
        let started = lab.env.act("start_run", json!({ "agent": "bot", "task": "unit/once" })).unwrap();
        assert_eq!(lab.run(trackway_testkit::id(&json!({ "id": started["run_id"] }))).run.run.max_steps, 7);
    }
}

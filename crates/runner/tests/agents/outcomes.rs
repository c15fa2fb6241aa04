//! Tests of the closing call, of the effects that the end of a run has on the queue item and its task, and of the
//! precedence of limits.

use std::time::Duration;

use serde_json::{Value, json};
use trackway_domain::Ref;
use trackway_runner::model::Provider;
use trackway_testkit::engines;
use trackway_views::{View, task::GetTask};

use crate::agent_test::{AgentTest, ModelSetup, closing_answer, done, model_setups, status_of, step_detail, steps};

const ALPHA: &str = "The kettle hides behind the flour.";
const BETA: &str = "Green tea wants eighty degrees.";

fn reads(path: &str) -> Value {
    json!([{ "tool": "fetch_page", "input": { "path": path } }])
}

/// Creates two tasks with descriptions that an agent can read.
fn two_pages(test: &AgentTest) {
    for (variant, description) in [("unit/alpha", ALPHA), ("unit/beta", BETA)] {
        test.env
            .execute_json("set_task", json!({ "workflow": "build", "variant": variant, "description": description }))
            .unwrap();
    }
}

/// The system prompt of a request.
fn system(body: &Value) -> Value {
    if body["system"].is_null() { body["messages"][0].clone() } else { body["system"].clone() }
}

/// The ids of calls and of results in a conversation, in the format of either provider.
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
fn item(test: &AgentTest) -> (String, i64, Option<String>) {
    let sql = "select status, attempt, error from queue_items where tenant_id = ?1 order by id desc";
    test.env.read(|reader| Ok(reader.query::<(String, i64, Option<String>)>(sql, &[])?)).remove(0)
}

/// The status of a task and its reason.
fn task(test: &AgentTest, variant: &str) -> (&'static str, Option<String>) {
    let shown = test.env.read(|reader| Ok(GetTask { task: Ref::new(variant) }.answer(reader, test.env.now())?));
    (shown.task.task.status.as_str(), shown.task.task.status_reason)
}

/// Queues a task that is not recurring, and runs a worker.
fn once(test: &AgentTest, setup: &ModelSetup, task: &Value, item: &Value, turns: Value) {
    let mut definition = json!({ "workflow": "build", "variant": "unit/once", "status": "open" });
    let mut added = json!({ "task": "unit/once", "agent": "bot" });
    definition.as_object_mut().unwrap().extend(task.as_object().unwrap().clone());
    added.as_object_mut().unwrap().extend(item.as_object().unwrap().clone());
    test.env.execute_json("set_task", definition).unwrap();
    test.env.execute_json("queue_add", added).unwrap();
    test.work(setup, turns, closing_answer("kept", "told"));
}

fn fails_with(message: &str) -> Value {
    json!([[{ "tool": "error", "input": { "message": message } }]])
}

engines! {
    fn closing_request_contains_pages_the_agent_read(test: AgentTest) {
        two_pages(&test);
        for setup in model_setups() {
            let turns = json!([
                reads("/tasks/unit/alpha"), reads("/tasks/unit/beta"),
                [{ "text": "Both matter." }, reads("/queue")[0]],
                reads("/queue"), reads("/queue"), done("I know now."),
            ]);
            let (run, work) = test.run_task(&setup, turns, closing_answer("Behind the flour, eighty degrees.", "Learned."));
            assert_eq!(status_of(&run), ("completed", "completed"), "{run:#?}");
            assert_eq!(test.scratchpad().0, "Behind the flour, eighty degrees.");
            let requests = work.model.requests();
            let (last, closing) = (&requests[requests.len() - 2].body, &requests[requests.len() - 1].body);
            assert!(!last["messages"].to_string().contains(ALPHA), "the page was replaced by one line");
            let messages = closing["messages"].to_string();
            assert!(messages.contains(ALPHA) && messages.contains(BETA) && messages.contains("Both matter."), "{messages}");
            assert!(!messages.contains("shown earlier") && !messages.contains("were left out here"), "{messages}");
            assert_eq!((system(closing), &closing["tools"]), (system(last), &last["tools"]));
            let choice = if setup.provider == Provider::Anthropic { json!({ "type": "none" }) } else { json!("none") };
            assert_eq!((&closing["tool_choice"], &last["tool_choice"]), (&choice, &Value::Null));
            let (calls, results) = calls_and_results(&closing["messages"]);
            assert_eq!((calls.len(), &results), (6, &calls), "every call has its result");
            let prompt = requests.last().unwrap().closing_prompt().unwrap();
            assert!(prompt.contains("**Outcome**: completed\n**Summary**: I know now.\n**Steps taken**: "), "{prompt}");
            assert!(!prompt.contains("Your steps:"), "the steps are in the conversation");
        }
    }

    fn closing_request_without_native_tools_contains_pages_the_agent_read(test: AgentTest) {
        two_pages(&test);
        let says = |value: Value| json!([{ "text": value.to_string() }]);
        let turns = json!([
            says(json!({ "type": "navigate", "path": "/tasks/unit/alpha" })),
            says(json!({ "type": "done", "message": "x" })),
        ]);
        let (_, work) = test.run_task(&ModelSetup { native_tools: false, ..ModelSetup::default() }, turns, closing_answer("a", "b"));
        let requests = work.model.requests();
        let closing = &requests.last().unwrap().body;
        assert!(closing["messages"].to_string().contains(ALPHA) && closing["tools"].is_null() && closing["tool_choice"].is_null());
        let roles: Vec<_> = closing["messages"].as_array().unwrap().iter().map(|message| message["role"].as_str().unwrap()).collect();
        assert_eq!(roles, ["user", "assistant", "user", "assistant", "user"]);
    }

    fn conversation_over_the_limit_is_cut_in_the_middle_with_a_marker(test: AgentTest) {
        for (variant, letter) in [("unit/alpha", "alpha "), ("unit/beta", "beta ")] {
            let description = letter.repeat(3_000);
            test.env.execute_json("set_task", json!({ "workflow": "build", "variant": variant, "description": description })).unwrap();
        }
        // The conversation may have 24,576 bytes.
        for setup in model_setups() {
            let setup = ModelSetup { context_tokens: Some(16_384), ..setup };
            let turns = json!([reads("/tasks/unit/alpha"), reads("/tasks/unit/beta"), [{ "text": "So much tea." }, done("Enough.")[0]]]);
            let (run, work) = test.run_task(&setup, turns, closing_answer("Much tea.", "Much."));
            assert_eq!((status_of(&run), test.scratchpad().0.as_str()), (("completed", "completed"), "Much tea."));
            let requests = work.model.requests();
            let body = &requests.last().unwrap().body;
            let messages = body["messages"].to_string();
            assert_eq!(messages.matches("characters of this conversation were left out here: it is longer than the model accepts]").count(), 1, "{messages}");
            assert!(messages.contains("What you need to know") && messages.contains("So much tea."), "{messages}");
            assert!(messages.matches("beta ").count() > 100, "the last page is cut, not removed");
            assert!(body.to_string().len() < 28_000, "{}", body.to_string().len());
            let (calls, results) = calls_and_results(&body["messages"]);
            assert_eq!(calls, results);
            assert!(!steps(&run).contains(&"scratchpad_update_failed"));
        }
    }

    fn closing_request_fits_small_context(test: AgentTest) {
        two_pages(&test);
        // Reserving the usual size of a reply would leave nothing for the conversation.
        let setup = ModelSetup { context_tokens: Some(8_192), ..ModelSetup::default() };
        let (_, work) = test.run_task(&setup, json!([reads("/tasks/unit/alpha"), done("x")]), closing_answer("a", "b"));
        let messages = work.model.requests().last().unwrap().body["messages"].to_string();
        assert!(messages.contains("What you need to know") && messages.contains("Your run has ended."), "{messages}");
    }

    fn done_and_error_without_a_message_end_the_run(test: AgentTest) {
        let says = |name: &str| json!([[{ "tool": name, "input": {} }]]);
        let (run, _) = test.run_task(&ModelSetup::default(), says("done"), closing_answer("a", "b"));
        assert_eq!((status_of(&run), run.run.run.final_message.as_deref()), (("completed", "completed"), Some("Task completed")));
        let (run, _) = test.run_task(&ModelSetup::default(), says("error"), closing_answer("a", "b"));
        assert_eq!((status_of(&run), run.run.run.error.as_deref()), (("failed", "error"), Some("Agent encountered an error")));
    }

    fn closing_prompt_is_sent_alone_if_provider_rejects_the_conversation(test: AgentTest) {
        two_pages(&test);
        for (setup, status) in model_setups().into_iter().zip([400, 413, 400, 413]) {
            let mut closing = closing_answer("Short but mine.", "Short.");
            closing.as_array_mut().unwrap().insert(0, json!({ "error": status, "times": 1 }));
            let (run, work) = test.run_task(&setup, json!([reads("/tasks/unit/alpha"), done("x")]), closing);
            assert_eq!(status_of(&run), ("completed", "completed"));
            assert_eq!(steps(&run)[steps(&run).len() - 3..], ["done", "error", "scratchpad_update"]);
            assert_eq!(step_detail(&run, "error"), format!("the provider rejected the conversation; the closing call was made without it: the model answered {status}: scripted"));
            assert_eq!((test.scratchpad().0.as_str(), test.reports().last().map(String::as_str)), ("Short but mine.", Some("Short.")));
            let requests = work.model.requests();
            let (refused, short) = (&requests[requests.len() - 2], &requests[requests.len() - 1]);
            assert!(refused.body["messages"].to_string().contains(ALPHA));
            assert!(!short.body["messages"].to_string().contains(ALPHA) && short.body["tools"].is_null());
            let prompt = short.closing_prompt().unwrap();
            assert!(prompt.contains("Your steps:\n```text\n1. fetch_page: /whoami: 200") && prompt.contains("fetch_page: /tasks/unit/alpha: 200"), "{prompt}");
        }
    }

    fn first_of_two_end_calls_counts(test: AgentTest) {
        let end = |tool: &str, message: &str| json!({ "tool": tool, "input": { "message": message } });
        let note = json!({ "tool": "execute_action", "input": { "path": "/whoami", "action": "create_note", "params": { "studio": "main", "title": "late" } } });
        for setup in model_setups() {
            for (first, second, ended, message, error) in [
                ("done", "done", ("completed", "completed"), Some("one"), None),
                ("done", "error", ("completed", "completed"), Some("one"), None),
                ("error", "done", ("failed", "error"), None, Some("one")),
            ] {
                let (run, work) = test.run_task(&setup, json!([[end(first, "one"), note, end(second, "two")]]), closing_answer("a", "b"));
                assert_eq!((status_of(&run), run.run.run.final_message.as_deref(), run.run.run.error.as_deref()), (ended, message, error));
                assert!(run.touches.iter().all(|touch| touch.resource_type.to_string() == "report"), "calls after the end are not executed");
                let requests = work.model.requests();
                let (calls, results) = calls_and_results(&requests.last().unwrap().body["messages"]);
                assert_eq!((calls.len(), &results), (3, &calls));
            }
        }
    }

    fn empty_closing_answer_records_no_step(test: AgentTest) {
        for answer in [json!({ "scratchpad": null }), json!({ "scratchpad": " \n" }), json!({})] {
            let (run, _) = test.run_task(&ModelSetup::default(), json!([done("x")]), json!([{ "text": answer.to_string() }]));
            assert_eq!(steps(&run), ["wake", "fetch_page", "think", "done"]);
        }
        assert_eq!(test.scratchpad().1, 0);
    }

    fn max_steps_is_named_in_closing_prompt_and_final_message(test: AgentTest) {
        once(&test, &ModelSetup::default(), &json!({}), &json!({ "max_steps": 3 }), json!([reads("/queue")]));
        let run = test.last_run();
        let message = "Reached maximum steps (3) without completing task";
        assert_eq!((status_of(&run), run.run.run.final_message.as_deref()), (("incomplete", "incomplete - max steps reached"), Some(message)));
        assert_eq!((run.run.run.max_steps, step_detail(&run, "error").as_str(), step_detail(&run, "scratchpad_update").as_str()), (3, "max steps reached: 3", "kept"));
        assert_eq!((item(&test).0.as_str(), item(&test).1, task(&test, "unit/once")), ("waiting", 2, ("open", None)), "the item is retried");
        let (_, work) = {
            test.env.execute_json("set_task", json!({ "workflow": "build", "variant": "unit/go", "max_steps": 2 })).unwrap();
            test.run_task(&ModelSetup::default(), json!([reads("/queue")]), closing_answer("a", "b"))
        };
        let prompt = work.model.requests().last().unwrap().closing_prompt().unwrap();
        assert!(prompt.contains("**Summary**: Reached maximum steps (2) without completing task\n"), "{prompt}");
    }

    fn done_completes_the_item_and_the_task(test: AgentTest) {
        once(&test, &ModelSetup::default(), &json!({}), &json!({}), json!([done("x")]));
        assert_eq!((item(&test), task(&test, "unit/once")), (("completed".into(), 1, None), ("done", None)));
    }

    fn explicit_error_is_not_retried_and_blocks_the_task(test: AgentTest) {
        once(&test, &ModelSetup::default(), &json!({}), &json!({}), fails_with("There is no kettle."));
        let run = test.last_run();
        assert_eq!((status_of(&run), run.run.run.error.as_deref()), (("failed", "error"), Some("There is no kettle.")));
        assert_eq!(steps(&run), ["wake", "fetch_page", "think", "error", "scratchpad_update"]);
        assert_eq!((test.scratchpad().0.as_str(), test.reports()), ("kept", vec!["told".to_owned()]));
        let why = Some("There is no kettle.".to_owned());
        assert_eq!((item(&test), task(&test, "unit/once")), (("failed".into(), 1, why.clone()), ("blocked", why.clone())));
        assert_eq!(test.env.execute_json("claim", json!({})).unwrap(), json!([]), "nobody claims it again");
        // A person requeues the item: it fails again, and then completes.
        let id = test.env.read(|reader| Ok(reader.query::<(trackway_domain::Id<trackway_domain::kind::QueueItem>,)>("select id from queue_items where tenant_id = ?1", &[])?))[0].0;
        test.env.execute_json("queue_requeue", json!({ "id": id })).unwrap();
        assert_eq!(task(&test, "unit/once"), ("open", None));
        test.work(&ModelSetup::default(), fails_with("Still none."), closing_answer("kept", "told"));
        assert_eq!(task(&test, "unit/once"), ("blocked", Some("Still none.".into())));
        test.env.execute_json("queue_add", json!({ "task": "unit/once", "agent": "bot" })).unwrap();
        test.work(&ModelSetup::default(), json!([done("x")]), closing_answer("kept", "told"));
        assert_eq!(task(&test, "unit/once"), ("done", None));
    }

    fn reopening_a_blocked_task_clears_its_reason(test: AgentTest) {
        once(&test, &ModelSetup::default(), &json!({}), &json!({}), fails_with(" "));
        assert_eq!(task(&test, "unit/once"), ("blocked", Some("Agent encountered an error".into())));
        test.env.execute_json("set_task", json!({ "workflow": "build", "variant": "unit/once", "status": "open" })).unwrap();
        assert_eq!(task(&test, "unit/once"), ("open", None));
        assert_eq!(test.env.execute_json("claim", json!({})).unwrap()[0]["variant"], "unit/once");
    }

    fn second_explicit_error_replaces_the_reason(test: AgentTest) {
        once(&test, &ModelSetup::default(), &json!({}), &json!({}), fails_with("There is no kettle."));
        test.env.execute_json("queue_add", json!({ "task": "unit/once", "agent": "bot" })).unwrap();
        test.work(&ModelSetup::default(), fails_with("There is no water."), closing_answer("kept", "told"));
        assert_eq!(task(&test, "unit/once"), ("blocked", Some("There is no water.".into())));
        // A person blocks the task, without a reason.
        test.env.execute_json("set_task", json!({ "variant": "unit/once", "status": "open" })).unwrap();
        test.env.execute_json("set_task", json!({ "variant": "unit/once", "status": "blocked" })).unwrap();
        test.env.execute_json("queue_add", json!({ "task": "unit/once", "agent": "bot" })).unwrap();
        test.work(&ModelSetup::default(), fails_with("No cups."), closing_answer("kept", "told"));
        assert_eq!(task(&test, "unit/once"), ("blocked", Some("No cups.".into())));
    }

    fn explicit_error_blocks_the_task_when_its_last_run_ends(test: AgentTest) {
        test.env.execute_json("set_task", json!({ "workflow": "build", "variant": "unit/once" })).unwrap();
        for _ in 0..2 {
            test.env.execute_json("queue_add", json!({ "task": "unit/once", "max_attempts": 1 })).unwrap();
        }
        let [first, second] = [0, 1].map(|_| test.env.execute(trackway_actions::queue::TakeItems::default()).unwrap().remove(0));
        let ends = |taken: &trackway_actions::queue::TakenItem, outcome: &str, error: &str| {
            let token = trackway_actions::Credential::Token(trackway_actions::context::Secret(taken.token.clone()));
            let run = test.env.core.authenticate(&token).unwrap();
            let end = json!({ "run": taken.run_id, "status": "failed", "outcome": outcome, "error": error });
            test.env.execute_json_as(&run, "end_run", end).unwrap();
        };
        ends(&first, "error", "There is no kettle.");
        let why = Some("There is no kettle.".to_owned());
        assert_eq!(task(&test, "unit/once"), ("in_progress", why.clone()), "the other run is still running");
        ends(&second, "gave up", "It was late.");
        assert_eq!(task(&test, "unit/once"), ("blocked", why));
        assert_eq!(test.env.execute_json("claim", json!({})).unwrap(), json!([]), "nobody claims it again");
    }

    fn explicit_error_of_a_claimed_task_is_not_retried(test: AgentTest) {
        test.env.execute_json("set_task", json!({ "workflow": "build", "variant": "unit/once" })).unwrap();
        let claimed = test.env.execute_json("claim", json!({ "task": "unit/once", "agent": "bot" })).unwrap()[0].clone();
        let token = trackway_actions::Credential::Token(trackway_actions::context::Secret(claimed["token"].as_str().unwrap().to_owned()));
        let run = test.env.core.authenticate(&token).unwrap();
        let end = json!({ "run": claimed["run_id"], "status": "failed", "outcome": "error", "error": "No kettle." });
        test.env.execute_json_as(&run, "end_run", end).unwrap();
        assert_eq!(task(&test, "unit/once"), ("blocked", Some("No kettle.".into())));
        assert_eq!(test.env.execute_json("claim", json!({})).unwrap(), json!([]));
    }

    fn explicit_error_is_retried_with_retry_on_error(test: AgentTest) {
        once(&test, &ModelSetup::default(), &json!({ "retry_on_error": true }), &json!({}), fails_with("Not yet."));
        assert_eq!((item(&test).0.as_str(), item(&test).1, task(&test, "unit/once")), ("waiting", 2, ("open", None)));
        once(&test, &ModelSetup::default(), &json!({ "retry_on_error": true }), &json!({ "max_attempts": 1 }), fails_with("Not yet."));
        assert_eq!((item(&test).0.as_str(), task(&test, "unit/once")), ("failed", ("open", None)), "the last attempt failed, which does not block the task");
    }

    fn recurring_task_stays_open_after_an_explicit_error(test: AgentTest) {
        test.env.execute_json("queue_add", json!({ "task": "unit/go", "agent": "bot" })).unwrap();
        test.work(&ModelSetup::default(), fails_with("Not today."), closing_answer("a", "b"));
        assert_eq!((item(&test).0.as_str(), item(&test).1, task(&test, "unit/go")), ("failed", 1, ("open", None)));
    }

    fn exceptions_and_timeouts_are_retried(test: AgentTest) {
        let setup = ModelSetup::default();
        let slow = ModelSetup { task_timeout: Duration::from_millis(300), ..ModelSetup::default() };
        for (setup, turns, ended, error) in [
            (&setup, json!([[{ "error": 401 }]]), ("failed", "exception"), "the model answered 401: scripted"),
            (&setup, json!([[{ "text": "hm" }], [{ "text": "hm" }]]), ("failed", "error"), "two unreadable answers of the model in a row: the answer contains neither a tool call nor a valid JSON object"),
            (&slow, json!([[{ "delay_ms": 400 }, reads("/queue")[0]]]), ("timed_out", "timed out"), "timed out"),
        ] {
            once(&test, setup, &json!({}), &json!({}), turns);
            let run = test.last_run();
            assert_eq!((status_of(&run), run.run.run.error.as_deref()), (ended, Some(error)));
            assert_eq!((item(&test), task(&test, "unit/once")), (("waiting".into(), 2, Some(error.into())), ("open", None)));
            // Remove the item before the next case.
            test.env.execute_json("queue_cancel", json!({ "id": test.env.read(|reader| Ok(reader.query::<(trackway_domain::Id<trackway_domain::kind::QueueItem>,)>("select id from queue_items where tenant_id = ?1 order by id desc", &[])?))[0].0 })).unwrap();
        }
    }

    fn item_failed_by_its_taker_is_retried(test: AgentTest) {
        test.env.execute_json("set_task", json!({ "workflow": "build", "variant": "unit/once" })).unwrap();
        test.env.execute_json("queue_add", json!({ "task": "unit/once", "agent": "bot" })).unwrap();
        let taken = test.take_item();
        test.env.execute_json("queue_fail", json!({ "id": taken.id, "fence": taken.fence, "error": "Not now." })).unwrap();
        assert_eq!((item(&test), task(&test, "unit/once")), (("waiting".into(), 2, Some("Not now.".into())), ("open", None)));
    }

    fn limit_of_item_overrides_task_and_agent(test: AgentTest) {
        let setup = ModelSetup { priced: true, ..ModelSetup::default() };
        let once = |test: &AgentTest, setup: &ModelSetup, task: &Value, item: &Value, turns: Value| {
            // A second attempt would run before the next case.
            let mut item = item.clone();
            item["max_attempts"] = json!(1);
            once(test, setup, task, &item, turns);
        };
        // A call costs 0.21.
        let agent = json!({ "handle": "bot", "max_steps": 4, "timeout": "1h", "spend_limit": 100.0, "end_of_run": "on" });
        test.env.execute_json("set_agent", agent).unwrap();
        for (task, item, max_steps, asked) in [
            (json!({}), json!({}), 4, true),
            (json!({ "max_steps": 3, "end_of_run": "off" }), json!({}), 3, false),
            (json!({}), json!({ "max_steps": 2, "end_of_run": "on" }), 2, true),
            (json!({ "max_steps": null, "end_of_run": null }), json!({ "end_of_run": "off" }), 4, false),
        ] {
            once(&test, &setup, &task, &item, json!([reads("/queue")]));
            let run = test.last_run();
            let turns = i64::try_from(steps(&run).iter().filter(|step| **step == "think").count()).unwrap();
            assert_eq!((status_of(&run).0, run.run.run.max_steps, turns), ("incomplete", max_steps, max_steps));
            assert_eq!(steps(&run).contains(&"scratchpad_update"), asked, "{task} {item}");
        }
        // By now the agent has spent more than these limits of the task and the item.
        for (task, item, ended) in [
            (json!({ "spend_limit": 0.1 }), json!({}), "spend limit reached"),
            (json!({ "spend_limit": 0.1 }), json!({ "spend_limit": 50.0 }), "completed"),
            (json!({ "spend_limit": null }), json!({ "spend_limit": 0.1 }), "spend limit reached"),
            (json!({ "spend_limit": null }), json!({}), "completed"),
        ] {
            once(&test, &setup, &task, &item, json!([done("x")]));
            let run = test.last_run();
            assert_eq!(status_of(&run).1, ended, "{task} {item}");
            let wake = &run.wake.as_ref().unwrap()[0].text;
            let limit = item["spend_limit"].as_f64().or(task["spend_limit"].as_f64()).unwrap_or(100.0);
            assert!(wake.contains(&format!("spend limit per day: {limit}")), "{wake}");
        }
        let slow = json!([[{ "delay_ms": 1_200 }, reads("/queue")[0]]]);
        for (task, item, status) in [
            (json!({ "timeout": "1s" }), json!({}), "timed_out"),
            (json!({ "timeout": "1s" }), json!({ "timeout": "1h", "max_steps": 1 }), "incomplete"),
            (json!({ "timeout": "1h" }), json!({ "timeout": "1s" }), "timed_out"),
        ] {
            once(&test, &setup, &task, &item, slow.clone());
            assert_eq!(status_of(&test.last_run()).0, status, "{task} {item}");
        }
        test.env.execute_json("set_agent", json!({ "handle": "bot", "timeout": "1s" })).unwrap();
        once(&test, &setup, &json!({ "timeout": null }), &json!({}), slow);
        assert_eq!(status_of(&test.last_run()).0, "timed_out", "the timeout of the agent");
    }

    fn run_stores_effective_max_steps(test: AgentTest) {
        test.env.execute_json("set_task", json!({ "workflow": "build", "variant": "unit/once", "max_steps": 7 })).unwrap();
        for (item, max_steps) in [(json!({}), 7), (json!({ "max_steps": 5 }), 5)] {
            let mut added = json!({ "task": "unit/once" });
            added.as_object_mut().unwrap().extend(item.as_object().unwrap().clone());
            test.env.execute_json("queue_add", added).unwrap();
            // PostgreSQL takes this item with one statement.
            let taken = test.env.execute(trackway_actions::queue::TakeItems::default()).unwrap().remove(0);
            assert_eq!(test.run(taken.run_id).run.run.max_steps, max_steps);
            test.env.execute_json("queue_complete", json!({ "id": taken.id, "fence": taken.fence })).unwrap();
        }
        test.env.execute_json("queue_add", json!({ "task": "unit/go" })).unwrap();
        let taken = test.env.execute(trackway_actions::queue::TakeItems::default()).unwrap().remove(0);
        assert_eq!(test.run(taken.run_id).run.run.max_steps, 30);
        test.env.execute_json("set_task", json!({ "workflow": "build", "variant": "unit/once", "status": "open" })).unwrap();
        let claimed = test.env.execute_json("claim", json!({ "task": "unit/once" })).unwrap();
        assert_eq!(test.run(trackway_testkit::id(&json!({ "id": claimed[0]["run_id"] }))).run.run.max_steps, 7);
        let started = test.env.execute_json("start_run", json!({ "agent": "bot", "task": "unit/once" })).unwrap();
        assert_eq!(test.run(trackway_testkit::id(&json!({ "id": started["run_id"] }))).run.run.max_steps, 7);
    }
}

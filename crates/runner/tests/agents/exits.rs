//! Tests of every way a run can end: its status, outcome, steps, scratchpad, report, token and item.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use serde_json::{Value, json};
use trackway_runner::{
    WorkerEvent,
    agent::AgentBackend,
    executor::ExecutionEnd,
    model::{Deadline, Model, ModelResponse, ModelSettings, Request, Scripted},
    pages::{PageResponse, Pages},
};
use trackway_testkit::engines;

use crate::agent_test::{
    AgentTest, ModelSetup, WorkResult, closing_answer, done, model_setups, status_of, step_detail, steps,
};

/// A model and pages that panic.
#[derive(Debug)]
struct Panics;

impl Model for Panics {
    fn ask(&self, _: &Request, _: &Deadline) -> ModelResponse {
        panic!("a model")
    }

    fn name(&self) -> &'static str {
        "panics"
    }
}

impl Pages for Panics {
    fn get(&self, _: &str, _: &str) -> PageResponse {
        panic!("a page")
    }

    fn post(&self, _: &str, _: &str, _: &Value) -> PageResponse {
        panic!("an action")
    }
}

/// Runs a worker with these turns of the model, and cancels the run once it has recorded a step.
fn cancelled_at(test: &AgentTest, step: &str, turns: &Value) -> WorkResult {
    let last = json!({ "match": "[Trackway: end of run]", "turns": [closing_answer("I was stopped.", "Stopped.")] });
    let actors = json!([last, { "match": "What you need", "turns": turns }]);
    let is_taken = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let is_there = || is_taken.load(Ordering::Relaxed) && steps(&test.last_run()).contains(&step);
        scope.spawn(move || {
            crate::agent_test::until(is_there);
            test.env.execute_json("cancel_run", json!({ "run": "last" })).unwrap();
        });
        test.work_with(&ModelSetup::default(), &json!({ "actors": actors }), |event| {
            if matches!(event, WorkerEvent::Taken(_)) {
                is_taken.store(true, Ordering::Relaxed);
            }
        })
    })
}

engines! {
    fn panic_fails_the_run_and_the_worker_continues(test: AgentTest) {
        let script = || Arc::new(Scripted::parse(&json!({ "actors": [{ "match": "", "turns": [done("x")] }] }).to_string()).unwrap());
        let pages = test.pages();
        for (model, pages, error) in [
            (Arc::new(Panics) as Arc<dyn Model>, pages as Arc<dyn Pages>, "internal error: the model client panicked"),
            (script(), Arc::new(Panics), "internal error: the agent loop panicked"),
        ] {
            test.queue();
            let backend = AgentBackend { model, settings: ModelSettings::default(), pages };
            let (tally, taken) = test.work_with_backend(&ModelSetup::default(), backend, |_| {});
            let run = test.last_run();
            assert_eq!((status_of(&run), run.run.run.error.as_deref()), (("failed", "exception"), Some(error)));
            assert_eq!((tally.taken, tally.failed), (1, 1));
            assert!(steps(&run).last().unwrap().starts_with("scratchpad_update"));
            assert!(test.refusal(&taken[0].token).starts_with("the run has ended (failed)"));
        }
    }

    fn done_completes_the_run(test: AgentTest) {
        for setup in model_setups() {
            let turns = json!([
                [{ "text": "Let me see." }, { "tool": "fetch_page", "input": { "path": "/tasks/unit/go" } }],
                [{ "tool": "execute_action", "input": { "path": "/whoami", "action": "create_note", "params": { "studio": "main", "title": "Race", "body": "two writers" } } },
                 { "tool": "search", "input": { "words": "race" } },
                 { "usage": { "input_tokens": 7, "output_tokens": 5, "cache_read_input_tokens": 3 } }],
                done("Found a race."),
            ]);
            let (run, work) = test.run_task(&setup, turns, closing_answer("Look at the cache.", "The cache races."));
            assert_eq!(status_of(&run), ("completed", "completed"), "{setup:?}: {run:#?}");
            assert_eq!(run.run.run.final_message.as_deref(), Some("Found a race."));
            assert_eq!(
                steps(&run),
                ["wake", "fetch_page", "think", "fetch_page", "think", "execute_action", "fetch_page", "think", "done", "scratchpad_update"]
            );
            assert_eq!(run.steps[2].detail.as_deref(), Some("Let me see.\ncalls fetch_page"));
            assert!(run.steps[3].detail.as_ref().unwrap().starts_with("/tasks/unit/go: 200, "));
            assert_eq!((step_detail(&run, "done"), step_detail(&run, "scratchpad_update")), ("Found a race.".into(), "Look at the cache.".into()));
            let touched: Vec<String> = run.touches.iter().map(|touch| format!("{} {}", touch.action_type, touch.resource_type)).collect();
            assert_eq!(touched, ["create note", "report report"]);
            let tokens: Vec<_> = run.usage.iter().map(|call| (call.input_tokens, call.output_tokens, call.cache_read_tokens)).collect();
            assert_eq!(tokens, [(Some(10), Some(20), Some(0)), (Some(7), Some(5), Some(3)), (Some(10), Some(20), Some(0)), (Some(10), Some(20), Some(0))], "three turns and the closing call");
            assert_eq!((run.usage[0].model.as_deref(), run.usage[0].cost), (Some("m-1"), None));
            assert_eq!((test.scratchpad().0.as_str(), test.reports().last().unwrap().as_str()), ("Look at the cache.", "The cache races."));
            assert_eq!((test.item_status().as_str(), work.tally.completed), ("completed", 1));
            assert!(test.refusal(&work.taken[0].token).starts_with("the run has ended (completed)"));
            // The wake prompt is stored, and is the first message to the model.
            let wake = &run.wake.as_ref().unwrap()[0].text;
            let first = work.model.requests()[0].body.to_string();
            assert!(first.contains(&json!(wake).to_string()[1..200]), "{first}");
        }
        assert_eq!(test.scratchpad().1, 4);
    }

    fn error_fails_the_run(test: AgentTest) {
        let turns = json!([[{ "tool": "error", "input": { "message": "There is no Go here." } }]]);
        let (run, work) = test.run_task(&ModelSetup::default(), turns, closing_answer("No Go here.", "Nothing to test."));
        assert_eq!(status_of(&run), ("failed", "error"));
        assert_eq!(run.run.run.error.as_deref(), Some("There is no Go here."));
        assert_eq!(steps(&run), ["wake", "fetch_page", "think", "error", "scratchpad_update"]);
        assert_eq!((test.scratchpad(), test.reports()), (("No Go here.".into(), 1), vec!["Nothing to test.".to_owned()]));
        assert_eq!((test.item_status().as_str(), work.tally.failed), ("failed", 1));
        assert!(test.refusal(&work.taken[0].token).starts_with("the run has ended (failed)"));
    }

    fn reaching_max_steps_ends_run_as_incomplete(test: AgentTest) {
        let turns = json!([[{ "tool": "fetch_page", "input": { "path": "/queue" } }]]);
        let (run, work) = test.run_task(&ModelSetup::default(), turns, closing_answer("I go in circles.", "Not done."));
        assert_eq!(status_of(&run), ("incomplete", "incomplete - max steps reached"));
        assert_eq!(steps(&run).iter().filter(|step| **step == "think").count(), 30, "max steps counts turns");
        assert_eq!(step_detail(&run, "error"), "max steps reached: 30");
        assert_eq!((test.scratchpad().0.as_str(), test.reports().len()), ("I go in circles.", 1));
        // By then old pages are replaced by one line, and the model learns how many turns are left.
        let last = &work.model.requests()[29].body["messages"];
        let whole = last.to_string();
        assert_eq!(whole.matches("shown earlier; fetch it again").count(), 27, "28 pages, of which 3 are complete, and the start page");
        assert!(whole.contains("[turns left: 1]"), "{whole}");
        assert!(test.refusal(&work.taken[0].token).starts_with("the run has ended (incomplete)"));
    }

    fn unavailable_model_ends_run_with_exception(test: AgentTest) {
        let (run, work) = test.run_task(&ModelSetup::default(), json!([[{ "error": 401 }]]), json!([{ "error": 401 }]));
        assert_eq!(status_of(&run), ("failed", "exception"));
        assert_eq!(run.run.run.error.as_deref(), Some("the model answered 401: scripted"));
        assert_eq!(steps(&run), ["wake", "fetch_page", "error", "scratchpad_update_failed"]);
        assert_eq!(step_detail(&run, "scratchpad_update_failed"), "the model answered 401: scripted");
        assert_eq!((test.scratchpad().1, test.reports().len()), (0, 0));
        assert!(test.refusal(&work.taken[0].token).starts_with("the run has ended (failed)"));
    }

    fn cancelled_agent_makes_no_further_call_but_answers_closing_prompt(test: AgentTest) {
        test.queue();
        let turns = json!([[{ "delay_ms": 300 }, { "tool": "fetch_page", "input": { "path": "/queue" } }]]);
        let work = cancelled_at(&test, "think", &turns);
        let run = test.last_run();
        assert_eq!(status_of(&run), ("cancelled", "cancelled"), "{run:#?}");
        assert_eq!(steps(&run)[..3], ["wake", "fetch_page", "think"]);
        assert_eq!(steps(&run)[steps(&run).len() - 2..], ["error", "scratchpad_update"]);
        assert!(!run.usage.is_empty(), "usage so far is kept");
        assert_eq!((test.scratchpad().0.as_str(), test.reports()), ("I was stopped.", vec!["Stopped.".to_owned()]));
        assert_eq!(test.item_status(), "cancelled");
        assert!(test.refusal(&work.taken[0].token).starts_with("the run has ended (cancelled)"));
    }

    fn reply_after_cancellation_is_ignored(test: AgentTest) {
        test.queue();
        let turns = json!([[{ "delay_ms": 1_500 }, { "tool": "done", "input": { "message": "done all the same" } }]]);
        cancelled_at(&test, "wake", &turns);
        let run = test.last_run();
        assert_eq!((status_of(&run), test.item_status().as_str()), (("cancelled", "cancelled"), "cancelled"));
    }

    fn cancellation_during_closing_call_is_reported_as_cancelled(test: AgentTest) {
        test.queue();
        let mut last = closing_answer("I was done.", "Done.");
        last.as_array_mut().unwrap().insert(0, json!({ "delay_ms": 3_000 }));
        let actors = json!([{ "match": "[Trackway: end of run]", "turns": [last] }, { "match": "What you need", "turns": [done("all done")] }]);
        let ends = std::sync::Mutex::new(Vec::new());
        let work = std::thread::scope(|scope| {
            let test = &test;
            test.work_with(&ModelSetup::default(), &json!({ "actors": actors }), |event| match event {
                WorkerEvent::Taken(_) => {
                    // By then the agent has called done, and the closing call is running.
                    scope.spawn(move || {
                        std::thread::sleep(Duration::from_millis(1_500));
                        test.env.execute_json("cancel_run", json!({ "run": "last" })).unwrap();
                    });
                }
                WorkerEvent::Finished { end, .. } => ends.lock().unwrap().push((*end).clone()),
                _ => {}
            })
        });
        let run = test.last_run();
        assert_eq!((status_of(&run), test.item_status().as_str()), (("cancelled", "cancelled"), "cancelled"));
        assert_eq!((ends.into_inner().unwrap(), work.tally.completed, work.tally.failed), (vec![ExecutionEnd::Cancelled], 0, 1));
    }

    fn run_cancelled_before_its_first_call_ends_as_cancelled(test: AgentTest) {
        test.queue();
        let actors = json!([{ "match": "What you need", "turns": [done("never")] }]);
        test.work_with(&ModelSetup::default(), &json!({ "actors": actors }), |event| {
            if matches!(event, WorkerEvent::Taken(_)) {
                test.env.execute_json("cancel_run", json!({ "run": "last" })).unwrap();
            }
        });
        let run = test.last_run();
        assert_eq!((status_of(&run), test.item_status().as_str()), (("cancelled", "cancelled"), "cancelled"));
    }

    fn cancel_with_now_flag_skips_the_closing_call(test: AgentTest) {
        test.queue();
        let actors = json!([{ "match": "What you need", "turns": [[{ "hang": 30 }]] }]);
        let start = std::time::Instant::now();
        let work = std::thread::scope(|scope| {
            let test = &test;
            scope.spawn(move || {
                crate::agent_test::until(|| test.env.execute_json("cancel_run", json!({ "run": "last", "now": true })).is_ok());
            });
            test.work_with(&ModelSetup::default(), &json!({ "actors": actors }), |_| {})
        });
        assert!(start.elapsed() < Duration::from_secs(20), "the worker does not wait for a hanging call");
        let run = test.last_run();
        assert_eq!(status_of(&run), ("cancelled", "cancelled"));
        assert!(!steps(&run).iter().any(|step| step.starts_with("scratchpad")));
        assert!(work.model.requests().len() <= 1, "no closing call");
        assert_eq!((test.scratchpad().1, test.item_status().as_str()), (0, "cancelled"));
        assert!(test.refusal(&work.taken[0].token).starts_with("the run has ended (cancelled)"));
    }

    fn timeout_ends_run_and_agent_answers_closing_prompt(test: AgentTest) {
        let setup = ModelSetup { task_timeout: Duration::from_millis(700), ..ModelSetup::default() };
        let turns = json!([[{ "delay_ms": 250 }, { "tool": "fetch_page", "input": { "path": "/queue" } }]]);
        let (run, work) = test.run_task(&setup, turns, closing_answer("Too slow.", "Slow."));
        assert_eq!(run.run.run.status.as_str(), "timed_out", "{run:#?}");
        assert_eq!(run.run.run.outcome.as_deref(), Some("timed out"));
        assert_eq!((test.scratchpad().0.as_str(), test.reports().len()), ("Too slow.", 1));
        assert!(test.refusal(&work.taken[0].token).starts_with("the run has ended (timed_out)"));
    }

    fn spend_limit_ends_run_without_closing_call(test: AgentTest) {
        test.env.execute_json("set_agent", json!({ "handle": "bot", "spend_limit": 0.5 })).unwrap();
        let turns = json!([[{ "tool": "fetch_page", "input": { "path": "/queue" } }]]);
        let setup = ModelSetup { priced: true, ..ModelSetup::default() };
        test.env.execute_json("queue_add", json!({ "task": "unit/go", "agent": "bot", "max_attempts": 1 })).unwrap();
        let work = test.work(&setup, turns, closing_answer("no", "no"));
        let run = test.last_run();
        assert_eq!(status_of(&run), ("incomplete", "spend limit reached"), "{run:#?}");
        // 10 input and 20 output tokens cost 0.21: the third call exceeds the limit.
        assert_eq!(run.usage.iter().map(|call| call.cost).collect::<Vec<_>>(), [Some(0.21); 3]);
        assert_eq!(run.run.run.error.as_deref(), Some("bot has spent 0.6300 of its daily limit of 0.5"));
        assert_eq!(work.model.requests().len(), 3, "no closing call");
        assert_eq!((test.scratchpad().1, test.item_status().as_str()), (0, "waiting"));
        assert!(test.refusal(&work.taken[0].token).starts_with("the run has ended (incomplete)"));
        // The item is due again tomorrow.
        let due = test.env.read(|reader| Ok(reader.query::<(trackway_domain::Time, i64)>("select not_before, attempt from queue_items where tenant_id = ?1", &[])?));
        assert!(due[0].0.to_string().ends_with("T00:00:00.000Z"), "{}", due[0].0);
        assert_eq!(due[0].1, 1, "the spend limit does not count as an attempt");
    }

    fn spend_limit_requires_a_price_for_the_model(test: AgentTest) {
        test.env.execute_json("set_agent", json!({ "handle": "bot", "spend_limit": 0.5 })).unwrap();
        let (run, work) = test.run_task(&ModelSetup::default(), json!([done("x")]), closing_answer("a", "b"));
        assert_eq!(status_of(&run), ("failed", "error"));
        assert_eq!(run.run.run.error.as_deref(), Some("bot has a spend limit of 0.5 per day, but m-1 has no price: add it to [model.prices] in config.toml"));
        assert_eq!((work.model.requests().len(), test.item_status().as_str()), (0, "failed"));
        assert_eq!(step_detail(&run, "error"), run.run.run.error.clone().unwrap());
    }

    fn lost_item_is_not_reported_as_completed(test: AgentTest) {
        test.queue();
        let actors = json!([{ "match": "[Trackway: end of run]", "turns": [[{ "hang": 30 }]] }, { "match": "What you need", "turns": [done("x")] }]);
        let ends = std::sync::Mutex::new(Vec::new());
        let work = std::thread::scope(|scope| {
            let test = &test;
            scope.spawn(move || {
                let revoked = || test.env.read(|reader| Ok(reader.count("select count(*) from runs where tenant_id = ?1 and token_hash is null", &[])?));
                crate::agent_test::until(|| revoked() == 1);
                let item = test.env.read(|reader| Ok(reader.query::<(trackway_domain::Id<trackway_domain::kind::QueueItem>,)>("select id from queue_items where tenant_id = ?1", &[])?))[0].0;
                test.env.execute_json("queue_cancel", json!({ "id": item })).unwrap();
            });
            test.work_with(&ModelSetup::default(), &json!({ "actors": actors }), |event| {
                if let WorkerEvent::Finished { end, .. } = event { ends.lock().unwrap().push((*end).clone()) }
            })
        });
        assert_eq!((work.tally.completed, work.tally.lost), (0, 1));
        assert_eq!(ends.into_inner().unwrap(), [ExecutionEnd::Lost]);
        assert_eq!((status_of(&test.last_run()), test.item_status().as_str()), (("cancelled", "cancelled"), "cancelled"));
    }

    fn run_of_external_agent_is_cancelled_at_once(test: AgentTest) {
        test.env.execute_json("set_agent", json!({ "handle": "bot", "runner": "external" })).unwrap();
        test.queue();
        let taken = test.take_item();
        let shown = test.env.execute_json("cancel_run", json!({ "run": taken.run_id })).unwrap();
        assert_eq!(shown["status"], "cancelled", "no worker has to end it");
    }

    fn expired_lease_ends_run(test: AgentTest) {
        test.queue();
        let taken = test.take_item();
        let wait = trackway_actions::queue::HeartbeatItem { id: taken.id.into(), fence: taken.fence, lease: Some(1) };
        test.env.execute(wait).unwrap();
        test.env.advance(Duration::from_secs(1));
        // The lease has expired: the next take ends the run.
        test.env.execute(trackway_actions::queue::TakeItems::default()).unwrap();
        let run = test.last_run();
        assert_eq!(status_of(&run), ("timed_out", "lease expired"));
        assert!(test.refusal(&taken.token).starts_with("the run has ended (timed_out)"));
    }

    fn cancelled_run_with_expired_lease_is_not_retried(test: AgentTest) {
        test.env.execute_json("queue_add", json!({ "task": "unit/go", "agent": "bot" })).unwrap();
        let taken = test.take_item();
        let shown = test.env.execute_json("cancel_run", json!({ "run": taken.run_id })).unwrap();
        assert_eq!((&shown["status"], shown["cancel_wanted_at"].is_string()), (&json!("running"), true), "the worker has to end it");
        assert_eq!(test.refusal(&taken.token), "the run's token was revoked, because the run is about to end");
        let wait = trackway_actions::queue::HeartbeatItem { id: taken.id.into(), fence: taken.fence, lease: Some(1) };
        test.env.execute(wait).unwrap();
        test.env.advance(Duration::from_secs(1));
        test.env.execute(trackway_actions::queue::TakeItems::default()).unwrap();
        assert_eq!((status_of(&test.last_run()), test.item_status().as_str()), (("cancelled", "cancelled"), "cancelled"));
    }
}

//! Every way in which a run ends: status, outcome, steps, scratchpad, report, token, item.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use serde_json::{Value, json};
use trackway_runner::{
    Event,
    agent::Means,
    executor::Ended,
    model::{Answer, Model, ModelSettings, Patience, Request, Scripted},
    pages::{PageAnswer, Pages},
};
use trackway_testkit::engines;

use crate::lab::{Lab, Way, Worked, done, how, remembers, said, steps, ways};

/// A model, and pages, that fail in ways that should not be.
#[derive(Debug)]
struct Panics;

impl Model for Panics {
    fn ask(&self, _: &Request, _: &Patience) -> Answer {
        panic!("a model")
    }

    fn name(&self) -> &'static str {
        "panics"
    }
}

impl Pages for Panics {
    fn get(&self, _: &str, _: &str) -> PageAnswer {
        panic!("a page")
    }

    fn post(&self, _: &str, _: &str, _: &Value) -> PageAnswer {
        panic!("an action")
    }
}

/// Works with a model that takes these turns, and cancels the run once it has come to a step.
fn cancelled_at(lab: &Lab, step: &str, turns: &Value) -> Worked {
    let last = json!({ "match": "[Trackway: end of run]", "turns": [remembers("I was stopped.", "Stopped.")] });
    let actors = json!([last, { "match": "What you need", "turns": turns }]);
    let is_taken = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let is_there = || is_taken.load(Ordering::Relaxed) && steps(&lab.last_run()).contains(&step);
        scope.spawn(move || {
            crate::lab::until(is_there);
            lab.env.act("cancel_run", json!({ "run": "last" })).unwrap();
        });
        lab.works_with(&Way::default(), &json!({ "actors": actors }), |event| {
            if matches!(event, Event::Took(_)) {
                is_taken.store(true, Ordering::Relaxed);
            }
        })
    })
}

engines! {
    fn a_panic_is_an_exception_and_the_worker_goes_on(lab: Lab) {
        let script = || Arc::new(Scripted::parse(&json!({ "actors": [{ "match": "", "turns": [done("x")] }] }).to_string()).unwrap());
        let pages = lab.pages();
        for (model, pages, error) in [
            (Arc::new(Panics) as Arc<dyn Model>, pages as Arc<dyn Pages>, "asking the model failed in a way that should not be"),
            (script(), Arc::new(Panics), "the loop failed in a way that should not be"),
        ] {
            lab.queue();
            let means = Means { model, settings: ModelSettings::default(), pages };
            let (tally, taken) = lab.works_through(&Way::default(), means, |_| {});
            let run = lab.last_run();
            assert_eq!((how(&run), run.run.run.error.as_deref()), (("failed", "exception"), Some(error)));
            assert_eq!((tally.taken, tally.failed), (1, 1));
            assert!(steps(&run).last().unwrap().starts_with("scratchpad_update"));
            assert!(lab.refusal(&taken[0].token).starts_with("the run is failed"));
        }
    }

    fn done_is_completed(lab: Lab) {
        for way in ways() {
            let turns = json!([
                [{ "text": "Let me see." }, { "tool": "fetch_page", "input": { "path": "/tasks/unit/go" } }],
                [{ "tool": "execute_action", "input": { "path": "/whoami", "action": "create_note", "params": { "studio": "main", "title": "Race", "body": "two writers" } } },
                 { "tool": "search", "input": { "words": "race" } },
                 { "usage": { "input_tokens": 7, "output_tokens": 5, "cache_read_input_tokens": 3 } }],
                done("Found a race."),
            ]);
            let (run, worked) = lab.plays(&way, turns, remembers("Look at the cache.", "The cache races."));
            assert_eq!(how(&run), ("completed", "completed"), "{way:?}: {run:#?}");
            assert_eq!(run.run.run.final_message.as_deref(), Some("Found a race."));
            assert_eq!(
                steps(&run),
                ["wake", "fetch_page", "think", "fetch_page", "think", "execute_action", "fetch_page", "think", "done", "scratchpad_update"]
            );
            assert_eq!(run.steps[2].detail.as_deref(), Some("Let me see.\ncalls fetch_page"));
            assert!(run.steps[3].detail.as_ref().unwrap().starts_with("/tasks/unit/go: 200, "));
            assert_eq!((said(&run, "done"), said(&run, "scratchpad_update")), ("Found a race.".into(), "Look at the cache.".into()));
            let touched: Vec<String> = run.touches.iter().map(|touch| format!("{} {}", touch.action_type, touch.resource_type)).collect();
            assert_eq!(touched, ["create note", "report report"]);
            let tokens: Vec<_> = run.usage.iter().map(|call| (call.input_tokens, call.output_tokens, call.cache_read_tokens)).collect();
            assert_eq!(tokens, [(Some(10), Some(20), Some(0)), (Some(7), Some(5), Some(3)), (Some(10), Some(20), Some(0)), (Some(10), Some(20), Some(0))], "three turns and the closing call");
            assert_eq!((run.usage[0].model.as_deref(), run.usage[0].cost), (Some("m-1"), None));
            assert_eq!((lab.scratchpad().0.as_str(), lab.reports().last().unwrap().as_str()), ("Look at the cache.", "The cache races."));
            assert_eq!((lab.item_status().as_str(), worked.tally.completed), ("completed", 1));
            assert!(lab.refusal(&worked.taken[0].token).starts_with("the run is completed"));
            // What it was told is kept, and is what the model heard first.
            let told = &run.wake.as_ref().unwrap()[0].text;
            let first = worked.model.requests()[0].body.to_string();
            assert!(first.contains(&json!(told).to_string()[1..200]), "{first}");
        }
        assert_eq!(lab.scratchpad().1, 4);
    }

    fn error_is_failed(lab: Lab) {
        let turns = json!([[{ "tool": "error", "input": { "message": "There is no Go here." } }]]);
        let (run, worked) = lab.plays(&Way::default(), turns, remembers("No Go here.", "Nothing to test."));
        assert_eq!(how(&run), ("failed", "error"));
        assert_eq!(run.run.run.error.as_deref(), Some("There is no Go here."));
        assert_eq!(steps(&run), ["wake", "fetch_page", "think", "error", "scratchpad_update"]);
        assert_eq!((lab.scratchpad(), lab.reports()), (("No Go here.".into(), 1), vec!["Nothing to test.".to_owned()]));
        assert_eq!((lab.item_status().as_str(), worked.tally.failed), ("failed", 1));
        assert!(lab.refusal(&worked.taken[0].token).starts_with("the run is failed"));
    }

    fn max_steps_is_incomplete(lab: Lab) {
        let turns = json!([[{ "tool": "fetch_page", "input": { "path": "/queue" } }]]);
        let (run, worked) = lab.plays(&Way::default(), turns, remembers("I go in circles.", "Not done."));
        assert_eq!(how(&run), ("incomplete", "incomplete - max steps reached"));
        assert_eq!(steps(&run).iter().filter(|step| **step == "think").count(), 30, "max steps counts turns");
        assert_eq!(said(&run, "error"), "max steps reached: 30");
        assert_eq!((lab.scratchpad().0.as_str(), lab.reports().len()), ("I go in circles.", 1));
        // Old pages are a line by then, and the end is announced.
        let last = &worked.model.requests()[29].body["messages"];
        let whole = last.to_string();
        assert_eq!(whole.matches("shown earlier; fetch it again").count(), 27, "28 pages, 3 of them fresh, and the first of all");
        assert!(whole.contains("[turns left: 1]"), "{whole}");
        assert!(lab.refusal(&worked.taken[0].token).starts_with("the run is incomplete"));
    }

    fn a_model_that_is_not_there_is_an_exception(lab: Lab) {
        let (run, worked) = lab.plays(&Way::default(), json!([[{ "error": 401 }]]), json!([{ "error": 401 }]));
        assert_eq!(how(&run), ("failed", "exception"));
        assert_eq!(run.run.run.error.as_deref(), Some("the model answered 401: scripted"));
        assert_eq!(steps(&run), ["wake", "fetch_page", "error", "scratchpad_update_failed"]);
        assert_eq!(said(&run, "scratchpad_update_failed"), "the model answered 401: scripted");
        assert_eq!((lab.scratchpad().1, lab.reports().len()), (0, 0));
        assert!(lab.refusal(&worked.taken[0].token).starts_with("the run is failed"));
    }

    fn cancelling_stops_before_the_next_call_and_lets_it_remember(lab: Lab) {
        lab.queue();
        let turns = json!([[{ "delay_ms": 300 }, { "tool": "fetch_page", "input": { "path": "/queue" } }]]);
        let worked = cancelled_at(&lab, "think", &turns);
        let run = lab.last_run();
        assert_eq!(how(&run), ("cancelled", "cancelled"), "{run:#?}");
        assert_eq!(steps(&run)[..3], ["wake", "fetch_page", "think"]);
        assert_eq!(steps(&run)[steps(&run).len() - 2..], ["error", "scratchpad_update"]);
        assert!(!run.usage.is_empty(), "usage so far is kept");
        assert_eq!((lab.scratchpad().0.as_str(), lab.reports()), ("I was stopped.", vec!["Stopped.".to_owned()]));
        assert_eq!(lab.item_status(), "cancelled");
        assert!(lab.refusal(&worked.taken[0].token).starts_with("the run is cancelled"));
    }

    fn what_a_model_says_after_it_was_cancelled_does_not_count(lab: Lab) {
        lab.queue();
        let turns = json!([[{ "delay_ms": 1_500 }, { "tool": "done", "input": { "message": "done all the same" } }]]);
        cancelled_at(&lab, "wake", &turns);
        let run = lab.last_run();
        assert_eq!((how(&run), lab.item_status().as_str()), (("cancelled", "cancelled"), "cancelled"));
    }

    fn what_was_cancelled_at_its_last_moment_is_told_as_cancelled(lab: Lab) {
        lab.queue();
        let mut last = remembers("I was done.", "Done.");
        last.as_array_mut().unwrap().insert(0, json!({ "delay_ms": 3_000 }));
        let actors = json!([{ "match": "[Trackway: end of run]", "turns": [last] }, { "match": "What you need", "turns": [done("all done")] }]);
        let told = std::sync::Mutex::new(Vec::new());
        let worked = std::thread::scope(|scope| {
            let lab = &lab;
            lab.works_with(&Way::default(), &json!({ "actors": actors }), |event| match event {
                Event::Took(_) => {
                    // It is done by then, and asked what it learned.
                    scope.spawn(move || {
                        std::thread::sleep(Duration::from_millis(1_500));
                        lab.env.act("cancel_run", json!({ "run": "last" })).unwrap();
                    });
                }
                Event::Ended { ended, .. } => told.lock().unwrap().push((*ended).clone()),
                _ => {}
            })
        });
        let run = lab.last_run();
        assert_eq!((how(&run), lab.item_status().as_str()), (("cancelled", "cancelled"), "cancelled"));
        assert_eq!((told.into_inner().unwrap(), worked.tally.completed, worked.tally.failed), (vec![Ended::Cancelled], 0, 1));
    }

    fn one_that_is_cancelled_before_it_begins_is_cancelled(lab: Lab) {
        lab.queue();
        let actors = json!([{ "match": "What you need", "turns": [done("never")] }]);
        lab.works_with(&Way::default(), &json!({ "actors": actors }), |event| {
            if matches!(event, Event::Took(_)) {
                lab.env.act("cancel_run", json!({ "run": "last" })).unwrap();
            }
        });
        let run = lab.last_run();
        assert_eq!((how(&run), lab.item_status().as_str()), (("cancelled", "cancelled"), "cancelled"));
    }

    fn cancelled_now_nobody_is_asked(lab: Lab) {
        lab.queue();
        let actors = json!([{ "match": "What you need", "turns": [[{ "hang": 30 }]] }]);
        let begun = std::time::Instant::now();
        let worked = std::thread::scope(|scope| {
            let lab = &lab;
            scope.spawn(move || {
                crate::lab::until(|| lab.env.act("cancel_run", json!({ "run": "last", "now": true })).is_ok());
            });
            lab.works_with(&Way::default(), &json!({ "actors": actors }), |_| {})
        });
        assert!(begun.elapsed() < Duration::from_secs(20), "a call that hangs is not waited for");
        let run = lab.last_run();
        assert_eq!(how(&run), ("cancelled", "cancelled"));
        assert!(!steps(&run).iter().any(|step| step.starts_with("scratchpad")));
        assert!(worked.model.requests().len() <= 1, "no closing call");
        assert_eq!((lab.scratchpad().1, lab.item_status().as_str()), (0, "cancelled"));
        assert!(lab.refusal(&worked.taken[0].token).starts_with("the run is cancelled"));
    }

    fn time_is_up(lab: Lab) {
        let way = Way { task_timeout: Duration::from_millis(700), ..Way::default() };
        let turns = json!([[{ "delay_ms": 250 }, { "tool": "fetch_page", "input": { "path": "/queue" } }]]);
        let (run, worked) = lab.plays(&way, turns, remembers("Too slow.", "Slow."));
        assert_eq!(run.run.run.status.word(), "timed_out", "{run:#?}");
        assert_eq!(run.run.run.outcome.as_deref(), Some("timed out"));
        assert_eq!((lab.scratchpad().0.as_str(), lab.reports().len()), ("Too slow.", 1));
        assert!(lab.refusal(&worked.taken[0].token).starts_with("the run is timed_out"));
    }

    fn the_spend_limit_ends_it_without_another_call(lab: Lab) {
        lab.env.act("set_agent", json!({ "handle": "bot", "spend_limit": 0.5 })).unwrap();
        let turns = json!([[{ "tool": "fetch_page", "input": { "path": "/queue" } }]]);
        let way = Way { priced: true, ..Way::default() };
        lab.env.act("queue_add", json!({ "task": "unit/go", "agent": "bot", "max_attempts": 1 })).unwrap();
        let worked = lab.works(&way, turns, remembers("no", "no"));
        let run = lab.last_run();
        assert_eq!(how(&run), ("incomplete", "spend limit reached"), "{run:#?}");
        // 10 tokens in and 20 out cost 0.21: after the third call it is over the limit.
        assert_eq!(run.usage.iter().map(|call| call.cost).collect::<Vec<_>>(), [Some(0.21); 3]);
        assert_eq!(run.run.run.error.as_deref(), Some("bot spent 0.6300 today and may spend 0.5"));
        assert_eq!(worked.model.requests().len(), 3, "no closing call");
        assert_eq!((lab.scratchpad().1, lab.item_status().as_str()), (0, "waiting"));
        assert!(lab.refusal(&worked.taken[0].token).starts_with("the run is incomplete"));
        // Tomorrow it may go on.
        let due = lab.env.read(|reader| Ok(reader.query::<(trackway_domain::Time, i64)>("select not_before, attempt from queue_items where tenant_id = ?1", &[])?));
        assert!(due[0].0.to_string().ends_with("T00:00:00.000Z"), "{}", due[0].0);
        assert_eq!(due[0].1, 1, "and it cost no attempt");
    }

    fn a_limit_without_a_price_is_not_a_limit(lab: Lab) {
        lab.env.act("set_agent", json!({ "handle": "bot", "spend_limit": 0.5 })).unwrap();
        let (run, worked) = lab.plays(&Way::default(), json!([done("x")]), remembers("a", "b"));
        assert_eq!(how(&run), ("failed", "error"));
        assert_eq!(run.run.run.error.as_deref(), Some("bot may spend 0.5 in a day, and nobody said what m-1 costs: add it to [model.prices] in config.toml"));
        assert_eq!((worked.model.requests().len(), lab.item_status().as_str()), (0, "failed"));
        assert_eq!(said(&run, "error"), run.run.run.error.clone().unwrap());
    }

    fn one_that_was_lost_meanwhile_is_not_told_as_completed(lab: Lab) {
        lab.queue();
        let actors = json!([{ "match": "[Trackway: end of run]", "turns": [[{ "hang": 30 }]] }, { "match": "What you need", "turns": [done("x")] }]);
        let told = std::sync::Mutex::new(Vec::new());
        let worked = std::thread::scope(|scope| {
            let lab = &lab;
            scope.spawn(move || {
                let revoked = || lab.env.read(|reader| Ok(reader.count("select count(*) from runs where tenant_id = ?1 and token_hash is null", &[])?));
                crate::lab::until(|| revoked() == 1);
                let item = lab.env.read(|reader| Ok(reader.query::<(trackway_domain::Id<trackway_domain::kind::QueueItem>,)>("select id from queue_items where tenant_id = ?1", &[])?))[0].0;
                lab.env.act("queue_cancel", json!({ "id": item })).unwrap();
            });
            lab.works_with(&Way::default(), &json!({ "actors": actors }), |event| {
                if let Event::Ended { ended, .. } = event { told.lock().unwrap().push((*ended).clone()) }
            })
        });
        assert_eq!((worked.tally.completed, worked.tally.lost), (0, 1));
        assert_eq!(told.into_inner().unwrap(), [Ended::Lost]);
        assert_eq!((how(&lab.last_run()), lab.item_status().as_str()), (("cancelled", "cancelled"), "cancelled"));
    }

    fn an_agent_from_outside_takes_its_items_itself(lab: Lab) {
        lab.env.act("set_agent", json!({ "handle": "bot", "runner": "external" })).unwrap();
        lab.queue();
        let taken = lab.takes();
        let shown = lab.env.act("cancel_run", json!({ "run": taken.run_id })).unwrap();
        assert_eq!(shown["status"], "cancelled", "nobody here drives it");
    }

    fn a_lease_that_is_over_ends_it(lab: Lab) {
        lab.queue();
        let taken = lab.takes();
        let wait = trackway_actions::queue::HeartbeatItem { id: taken.id.into(), fence: taken.fence, lease: Some(1) };
        lab.env.execute(wait).unwrap();
        lab.env.advance(Duration::from_secs(1));
        // Nobody drives it any more; whoever takes next ends it.
        lab.env.execute(trackway_actions::queue::TakeItems::default()).unwrap();
        let run = lab.last_run();
        assert_eq!(how(&run), ("timed_out", "lease expired"));
        assert!(lab.refusal(&taken.token).starts_with("the run is timed_out"));
    }

    fn one_that_was_cancelled_and_abandoned_is_not_tried_again(lab: Lab) {
        lab.env.act("queue_add", json!({ "task": "unit/go", "agent": "bot" })).unwrap();
        let taken = lab.takes();
        let shown = lab.env.act("cancel_run", json!({ "run": taken.run_id })).unwrap();
        assert_eq!((&shown["status"], shown["cancel_wanted_at"].is_string()), (&json!("running"), true), "its worker ends it");
        assert_eq!(lab.refusal(&taken.token), "the run is about to end: its token was revoked");
        let wait = trackway_actions::queue::HeartbeatItem { id: taken.id.into(), fence: taken.fence, lease: Some(1) };
        lab.env.execute(wait).unwrap();
        lab.env.advance(Duration::from_secs(1));
        lab.env.execute(trackway_actions::queue::TakeItems::default()).unwrap();
        assert_eq!((how(&lab.last_run()), lab.item_status().as_str()), (("cancelled", "cancelled"), "cancelled"));
    }
}

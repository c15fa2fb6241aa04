//! Tests of the closing call, the scratchpad and the report, and of concurrent runs of one agent.

use serde_json::{Value, json};
use trackway_testkit::engines;
use trackway_views::{
    View,
    run::{ListRuns, ShowRun},
    wake::Wake,
};

use crate::agent_test::{AgentTest, ModelSetup, closing_answer, done, model_setups, status_of, step_detail, steps};

engines! {
    fn failed_closing_call_does_not_change_how_the_run_ended(test: AgentTest) {
        test.env.execute_json("set_scratchpad", json!({ "agent": "bot", "content": "before" })).unwrap();
        for (closing, why) in [
            (json!([{ "error": 400 }]), "the model answered 400: scripted"),
            (json!([{ "error": 529 }]), "the model answered 529: scripted (tried 4 times)"),
            (json!([{ "text": "Nothing comes to mind." }]), "the answer contains no valid JSON object"),
            (json!([{ "text": "{\"scratchpad\": 7}" }]), "the scratchpad in the reply is not a text"),
            (json!([]), "the answer contains no valid JSON object"),
            (json!([{ "text": "x".repeat(10 << 20) }]), "the answer is longer than 4194304 bytes"),
            (json!([{ "cut": true }, { "text": "abc" }]), "the answer is incomplete"),
        ] {
            for setup in model_setups() {
                let (run, work) = test.run_task(&setup, json!([done("x")]), closing.clone());
                assert_eq!(status_of(&run), ("completed", "completed"), "{why}");
                assert!(step_detail(&run, "scratchpad_update_failed").starts_with(why), "{}", step_detail(&run, "scratchpad_update_failed"));
                assert_eq!((test.scratchpad(), test.item_status().as_str()), (("before".to_owned(), 1), "completed"));
                assert!(test.refusal(&work.taken[0].token).starts_with("the run has ended (completed)"));
            }
        }
        assert_eq!(test.reports(), Vec::<String>::new());
    }

    fn invalid_closing_answer_is_not_partly_used(test: AgentTest) {
        test.env.execute_json("set_scratchpad", json!({ "agent": "bot", "content": "before" })).unwrap();
        let report = r#"{"one_liner": "a", "tldr": "b", "content": "c"}"#;
        let comma = format!("```json\n{{\"scratchpad\": \"after\", \"report\": {report},}}\n```");
        let (run, _) = test.run_task(&ModelSetup::default(), json!([done("x")]), json!([{ "text": comma }]));
        assert_eq!(step_detail(&run, "scratchpad_update_failed"), "the answer contains no valid JSON object");
        assert_eq!((test.scratchpad(), test.reports()), (("before".to_owned(), 1), vec![]));
        let lines = format!("```json\n{{\"scratchpad\": \"one\ntwo\", \"report\": {report}}}\n```");
        let (run, _) = test.run_task(&ModelSetup::default(), json!([done("x")]), json!([{ "text": lines }]));
        assert_eq!(step_detail(&run, "scratchpad_update"), "one\ntwo");
        assert_eq!((test.scratchpad(), test.reports()), (("one\ntwo".to_owned(), 2), vec!["c".to_owned()]));
    }

    fn invalid_report_is_recorded_as_an_error_step(test: AgentTest) {
        let answer = json!({ "scratchpad": "kept", "report": { "one_liner": "a", "tldr": "b" } });
        let (run, _) = test.run_task(&ModelSetup::default(), json!([done("x")]), json!([{ "text": answer.to_string() }]));
        assert_eq!(steps(&run)[steps(&run).len() - 2..], ["scratchpad_update", "error"]);
        assert_eq!(step_detail(&run, "error"), "the report was not saved: the report in the reply has no content");
        assert_eq!((test.scratchpad().0.as_str(), test.reports().len()), ("kept", 0));
    }

    fn closing_report_does_not_count_as_effect(test: AgentTest) {
        let (run, _) = test.run_task(&ModelSetup::default(), json!([done("x")]), closing_answer("a", "b"));
        assert_eq!((run.touches.len(), run.no_effect), (1, true), "only the closing report");
        let list: ListRuns = serde_json::from_value(json!({})).unwrap();
        let listed = test.env.read(|reader| Ok(list.answer(reader, test.env.now())?));
        assert_eq!(listed.rows.iter().map(|run| run.no_effect).collect::<Vec<_>>(), [true]);
        // A closing answer without a scratchpad records no step, but its report is stored.
        for nothing in [json!({ "scratchpad": null }), json!({ "scratchpad": " " }), json!({})] {
            let mut answer = nothing;
            answer["report"] = json!({ "one_liner": "a", "tldr": "b", "content": "c" });
            let (run, _) = test.run_task(&ModelSetup::default(), json!([done("x")]), json!([{ "text": answer.to_string() }]));
            assert_eq!((run.touches.len(), run.no_effect), (1, true), "{answer}");
        }
        let report = json!([{ "tool": "execute_action", "input": { "path": "/whoami", "action": "update_report", "params": { "one_liner": "a", "tldr": "b", "content": "c" } } }]);
        let (run, _) = test.run_task(&ModelSetup::default(), json!([report, done("x")]), json!([{ "text": "{}" }]));
        assert_eq!((run.touches.len(), run.no_effect), (1, false), "the agent wrote the report itself");
    }

    fn steps_hide_the_scratchpad_from_other_agents(test: AgentTest) {
        let update = json!({ "path": "/whoami", "action": "update_scratchpad", "params": { "content": "the blue key" } });
        let native = json!([{ "tool": "execute_action", "input": update }]);
        let mut in_text = update;
        in_text["type"] = json!("execute");
        let in_text = json!([{ "text": in_text.to_string() }]);
        let ends = json!([{ "text": json!({ "type": "done", "message": "x" }).to_string() }]);
        let other = test.env.agent("rival").start_run();
        for (native_tools, turns) in [(true, json!([native, done("x")])), (false, json!([in_text, ends]))] {
            let setup = ModelSetup { native_tools, ..ModelSetup::default() };
            let (run, _) = test.run_task(&setup, turns, closing_answer("the blue key, again", "told"));
            let show = ShowRun { run: run.run.run.id.into(), wake: false };
            assert!(format!("{:?}", run.steps).matches("the blue key").count() >= 2, "a person can read the scratchpad");
            let mut reader = test.env.core.reader(&other.context).unwrap();
            let seen = show.answer(&mut reader, test.env.core.now()).unwrap();
            assert_eq!(steps(&seen), steps(&run));
            assert!(!format!("{:?}", seen.steps).contains("the blue key"), "{:#?}", seen.steps);
            assert!(step_detail(&seen, "execute_action").starts_with("/whoami/actions/update_scratchpad: 200\n"));
            assert_eq!(step_detail(&seen, "scratchpad_update"), "(not readable by you)");
        }
    }

    fn closing_prompt_contains_task_scratchpad_and_answer_format(test: AgentTest) {
        test.env.execute_json("set_scratchpad", json!({ "agent": "bot", "content": "old notes" })).unwrap();
        let turns = json!([[{ "tool": "fetch_page", "input": { "path": "/queue" } }], done("All is well.")]);
        let (_, work) = test.run_task(&ModelSetup::default(), turns, closing_answer("new notes", "told"));
        let requests = work.model.requests();
        let prompt = requests.last().unwrap().closing_prompt().unwrap();
        assert!(prompt.starts_with("[Trackway: end of run] bot on unit/go\n"));
        for part in [
            "## Task Complete\n\n**Task**: unit/go (Test it)\n**Outcome**: completed\n**Summary**: All is well.\n**Steps taken**: 5\n",
            "Your present scratchpad, which your answer replaces:\n```text\nold notes\n```\n",
            "Please update your scratchpad with any context that would help your future self.\nThis might include:\n- Key learnings from this task\n- Important context discovered\n- Work in progress or follow-ups needed\n- User preferences observed\n",
            "Respond with JSON:\n```json\n{\"scratchpad\": \"your updated scratchpad content\"}\n```\n",
            "{\"scratchpad\": \"your updated scratchpad content\", \"report\": {\"one_liner\"",
            "If you have nothing to add, respond with:\n```json\n{\"scratchpad\": null}\n```",
        ] {
            assert!(prompt.contains(part), "{part}\n{prompt}");
        }
        assert_eq!(test.scratchpad(), ("new notes".to_owned(), 2));
    }

    fn blank_scratchpad_is_ignored_and_long_scratchpad_is_cut(test: AgentTest) {
        test.env.execute_json("set_scratchpad", json!({ "agent": "bot", "content": "before" })).unwrap();
        for answer in [json!({ "scratchpad": null, "report": null }), json!({ "scratchpad": "  " }), json!({})] {
            let (run, _) = test.run_task(&ModelSetup::default(), json!([done("x")]), json!([{ "text": answer.to_string() }]));
            assert_eq!((steps(&run).last(), test.scratchpad().1), (Some(&"done"), 1), "no step");
            assert!(run.no_effect, "the run is done, and wrote nothing");
        }
        let long = "𝔸".repeat(10_001);
        let (run, _) = test.run_task(&ModelSetup::default(), json!([done("x")]), json!([{ "text": json!({ "scratchpad": long }).to_string() }]));
        assert_eq!(test.scratchpad(), ("𝔸".repeat(10_000), 2));
        assert_eq!(step_detail(&run, "scratchpad_update"), format!("{}…", "𝔸".repeat(100)));
        assert_eq!(test.reports(), Vec::<String>::new());
    }

    fn end_of_run_off_skips_the_closing_call(test: AgentTest) {
        test.env.execute_json("set_agent", json!({ "handle": "bot", "end_of_run": "off" })).unwrap();
        let (run, work) = test.run_task(&ModelSetup::default(), json!([done("x")]), closing_answer("a", "b"));
        assert_eq!((steps(&run).last().copied(), work.model.requests().len()), (Some("done"), 1));
    }

    fn next_wake_contains_scratchpad_and_report(test: AgentTest) {
        test.run_task(&ModelSetup::default(), json!([done("x")]), closing_answer("Look at the cache.", "The cache races."));
        let (run, work) = test.run_task(&ModelSetup::default(), json!([done("x")]), closing_answer("So.", "So."));
        let wake = &run.wake.as_ref().unwrap()[0].text;
        assert!(wake.contains("Look at the cache.") && wake.contains("The cache races."), "{wake}");
        assert!(work.model.requests()[0].body.to_string().contains("Look at the cache."));
        // The wake prompt of a linked task contains the report, too.
        test.env.task("build", "unit/next");
        test.env.execute_json("add_link", json!({ "from": "unit/go", "to": "unit/next", "type": "blocks" })).unwrap();
        let wake = test.env.read(|reader| {
            let wake: Wake = serde_json::from_value(json!({ "task": "unit/next" })).unwrap();
            Ok(serde_json::to_value(wake.answer(reader, test.env.now())?).unwrap())
        });
        assert!(wake.to_string().contains("So."), "{wake}");
    }

    fn scratchpad_update_of_another_run_is_not_overwritten(test: AgentTest) {
        test.env.execute_json("set_scratchpad", json!({ "agent": "bot", "content": "base" })).unwrap();
        test.queue();
        let update = |content: &str| json!([{ "tool": "execute_action", "input": { "path": "/whoami", "action": "update_scratchpad", "params": { "content": content } } }]);
        let turns = json!([update("mine"), update("both"), update("both, again"), done("x")]);
        let actors = json!([{ "match": "[Trackway: end of run]", "turns": [[{ "text": "{}" }]] }, { "match": "What you need", "turns": turns }]);
        let work = test.work_with(&ModelSetup::default(), &json!({ "actors": actors }), |_| {});
        let run = test.run(work.taken[0].run_id);
        assert_eq!(status_of(&run), ("completed", "completed"), "{run:#?}");
        assert_eq!(test.scratchpad(), ("both, again".to_owned(), 4), "no other run wrote the scratchpad");
        // After a conflict the model sees the present scratchpad.
        test.queue();
        let is_taken = std::sync::atomic::AtomicBool::new(false);
        let actors = json!([{ "match": "[Trackway: end of run]", "turns": [[{ "text": "{}" }]] }, { "match": "What you need", "turns": [
            [{ "delay_ms": 400 }, update("mine")[0]], update("both"), done("x"),
        ] }]);
        let work = std::thread::scope(|scope| {
            let (test, is_taken) = (&test, &is_taken);
            scope.spawn(move || {
                crate::agent_test::until(|| is_taken.load(std::sync::atomic::Ordering::Relaxed) && steps(&test.last_run()).contains(&"wake"));
                test.env.execute_json("set_scratchpad", json!({ "agent": "bot", "content": "theirs" })).unwrap();
            });
            test.work_with(&ModelSetup::default(), &json!({ "actors": actors }), |event| {
                if let trackway_runner::WorkerEvent::Taken(_) = event { is_taken.store(true, std::sync::atomic::Ordering::Relaxed) }
            })
        });
        let run = test.run(work.taken[0].run_id);
        let updates: Vec<_> = run.steps.iter().filter(|step| step.step_type.as_str() == "execute_action").map(|step| step.detail.clone().unwrap()).collect();
        assert!(updates[0].starts_with("/whoami/actions/update_scratchpad: 409") && updates[1].starts_with("/whoami/actions/update_scratchpad: 200"), "{updates:?}");
        assert_eq!(test.scratchpad(), ("both".to_owned(), 6));
        let messages = work.model.requests()[1].body["messages"].to_string();
        assert!(messages.contains("Your scratchpad now holds:") && messages.contains("theirs"), "{messages}");
    }

    fn concurrent_closing_answers_lose_no_update(test: AgentTest) {
        test.env.execute_json("set_agent", json!({ "handle": "bot", "max_items": 2 })).unwrap();
        test.env.execute_json("set_scratchpad", json!({ "agent": "bot", "content": "base" })).unwrap();
        test.queue();
        test.queue();
        // Both closing calls see the same scratchpad. The slower call conflicts, and is repeated.
        let closing = |base: &str, adds: &str| {
            json!([[{ "delay_ms": 300 }, { "text": json!({ "scratchpad": format!("{base}+{adds}") }).to_string() }]])
        };
        let actors = json!([
            { "match": "```text\nbase\n```", "turns": closing("base", "x") },
            { "match": "```text\nbase+x\n```", "turns": closing("base+x", "y") },
            { "match": "What you need to know", "turns": [done("x")] },
        ]);
        // The wake prompt contains the scratchpad, too, so the actor for the wake prompt must come first.
        let actors: Vec<Value> = actors.as_array().unwrap().clone();
        let scenario = json!({ "actors": [actors[2], actors[0], actors[1]] });
        let work = test.work_with(&ModelSetup { concurrency: 2, ..ModelSetup::default() }, &scenario, |_| {});
        assert_eq!(work.tally.completed, 2);
        assert_eq!(test.scratchpad(), ("base+x+y".to_owned(), 3));
        let runs: Vec<_> = work.taken.iter().map(|taken| test.run(taken.run_id)).collect();
        assert!(runs.iter().all(|run| status_of(run) == ("completed", "completed") && steps(run).last() == Some(&"scratchpad_update")));
        assert_eq!(work.model.requests().len(), 5, "two turns, two closing calls, one repeated closing call");
        let usage: usize = runs.iter().map(|run| run.usage.len()).sum();
        assert_eq!(usage, 5, "every call is counted, including the conflicting one");
    }
}

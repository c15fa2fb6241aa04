//! What is left of a run: the closing call, the scratchpad and the report; and two runs of one agent at once.

use serde_json::{Value, json};
use trackway_testkit::engines;
use trackway_views::{
    View,
    run::{ListRuns, ShowRun},
    wake::Wake,
};

use crate::lab::{Lab, Way, done, how, remembers, said, steps, ways};

engines! {
    fn a_closing_call_that_fails_leaves_the_run_as_it_ended(lab: Lab) {
        lab.env.act("set_scratchpad", json!({ "agent": "bot", "content": "before" })).unwrap();
        for (closing, why) in [
            (json!([{ "error": 400 }]), "the model answered 400: scripted"),
            (json!([{ "error": 529 }]), "the model answered 529: scripted (tried 4 times)"),
            (json!([{ "text": "Nothing comes to mind." }]), "the answer holds no JSON object"),
            (json!([{ "text": "{\"scratchpad\": 7}" }]), "the scratchpad in the reply is not a text"),
            (json!([]), "the answer holds no JSON object"),
            (json!([{ "text": "x".repeat(10 << 20) }]), "the answer is longer than 4194304 bytes"),
            (json!([{ "cut": true }, { "text": "abc" }]), "the answer broke off"),
        ] {
            for way in ways() {
                let (run, worked) = lab.plays(&way, json!([done("x")]), closing.clone());
                assert_eq!(how(&run), ("completed", "completed"), "{why}");
                assert!(said(&run, "scratchpad_update_failed").starts_with(why), "{}", said(&run, "scratchpad_update_failed"));
                assert_eq!((lab.scratchpad(), lab.item_status().as_str()), (("before".to_owned(), 1), "completed"));
                assert!(lab.refusal(&worked.taken[0].token).starts_with("the run is completed"));
            }
        }
        assert_eq!(lab.reports(), Vec::<String>::new());
    }

    fn an_answer_that_is_broken_is_not_taken_for_what_it_holds(lab: Lab) {
        lab.env.act("set_scratchpad", json!({ "agent": "bot", "content": "before" })).unwrap();
        let report = r#"{"one_liner": "a", "tldr": "b", "content": "c"}"#;
        let comma = format!("```json\n{{\"scratchpad\": \"after\", \"report\": {report},}}\n```");
        let (run, _) = lab.plays(&Way::default(), json!([done("x")]), json!([{ "text": comma }]));
        assert_eq!(said(&run, "scratchpad_update_failed"), "the answer holds no JSON object that can be read");
        assert_eq!((lab.scratchpad(), lab.reports()), (("before".to_owned(), 1), vec![]));
        let lines = format!("```json\n{{\"scratchpad\": \"one\ntwo\", \"report\": {report}}}\n```");
        let (run, _) = lab.plays(&Way::default(), json!([done("x")]), json!([{ "text": lines }]));
        assert_eq!(said(&run, "scratchpad_update"), "one\ntwo");
        assert_eq!((lab.scratchpad(), lab.reports()), (("one\ntwo".to_owned(), 2), vec!["c".to_owned()]));
    }

    fn a_report_that_cannot_be_kept_is_told(lab: Lab) {
        let answer = json!({ "scratchpad": "kept", "report": { "one_liner": "a", "tldr": "b" } });
        let (run, _) = lab.plays(&Way::default(), json!([done("x")]), json!([{ "text": answer.to_string() }]));
        assert_eq!(steps(&run)[steps(&run).len() - 2..], ["scratchpad_update", "error"]);
        assert_eq!(said(&run, "error"), "no report was kept: the report in the reply has no content");
        assert_eq!((lab.scratchpad().0.as_str(), lab.reports().len()), ("kept", 0));
    }

    fn what_is_written_for_every_run_is_no_effect(lab: Lab) {
        let (run, _) = lab.plays(&Way::default(), json!([done("x")]), remembers("a", "b"));
        assert_eq!((run.touches.len(), run.no_effect), (1, true), "only the closing report");
        let list: ListRuns = serde_json::from_value(json!({})).unwrap();
        let listed = lab.env.read(|reader| Ok(list.answer(reader, lab.env.now())?));
        assert_eq!(listed.rows.iter().map(|run| run.no_effect).collect::<Vec<_>>(), [true]);
        // Nothing new for the scratchpad writes no step; the report is written for it all the same.
        for nothing in [json!({ "scratchpad": null }), json!({ "scratchpad": " " }), json!({})] {
            let mut answer = nothing;
            answer["report"] = json!({ "one_liner": "a", "tldr": "b", "content": "c" });
            let (run, _) = lab.plays(&Way::default(), json!([done("x")]), json!([{ "text": answer.to_string() }]));
            assert_eq!((run.touches.len(), run.no_effect), (1, true), "{answer}");
        }
        let report = json!([{ "tool": "execute_action", "input": { "path": "/whoami", "action": "update_report", "params": { "one_liner": "a", "tldr": "b", "content": "c" } } }]);
        let (run, _) = lab.plays(&Way::default(), json!([report, done("x")]), json!([{ "text": "{}" }]));
        assert_eq!((run.touches.len(), run.no_effect), (1, false), "it said so itself");
    }

    fn steps_hide_the_scratchpad_from_other_agents(lab: Lab) {
        let update = json!({ "path": "/whoami", "action": "update_scratchpad", "params": { "content": "the blue key" } });
        let native = json!([{ "tool": "execute_action", "input": update }]);
        let mut in_text = update;
        in_text["type"] = json!("execute");
        let in_text = json!([{ "text": in_text.to_string() }]);
        let ends = json!([{ "text": json!({ "type": "done", "message": "x" }).to_string() }]);
        let other = lab.env.agent("rival").start_run();
        for (native_tools, turns) in [(true, json!([native, done("x")])), (false, json!([in_text, ends]))] {
            let way = Way { native_tools, ..Way::default() };
            let (run, _) = lab.plays(&way, turns, remembers("the blue key, again", "told"));
            let show = ShowRun { run: run.run.run.id.into(), wake: false };
            assert!(format!("{:?}", run.steps).matches("the blue key").count() >= 2, "a person reads all of it");
            let mut reader = lab.env.core.reader(&other.context).unwrap();
            let seen = show.answer(&mut reader, lab.env.core.now()).unwrap();
            assert_eq!(steps(&seen), steps(&run));
            assert!(!format!("{:?}", seen.steps).contains("the blue key"), "{:#?}", seen.steps);
            assert!(said(&seen, "execute_action").starts_with("/whoami/actions/update_scratchpad: 200\n"));
            assert_eq!(said(&seen, "scratchpad_update"), "(not readable by you)");
        }
    }

    fn the_closing_prompt_holds_what_is_needed(lab: Lab) {
        lab.env.act("set_scratchpad", json!({ "agent": "bot", "content": "old notes" })).unwrap();
        let turns = json!([[{ "tool": "fetch_page", "input": { "path": "/queue" } }], done("All is well.")]);
        let (_, worked) = lab.plays(&Way::default(), turns, remembers("new notes", "told"));
        let requests = worked.model.requests();
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
        assert_eq!(lab.scratchpad(), ("new notes".to_owned(), 2));
    }

    fn null_and_blank_change_nothing_and_too_long_is_cut(lab: Lab) {
        lab.env.act("set_scratchpad", json!({ "agent": "bot", "content": "before" })).unwrap();
        for answer in [json!({ "scratchpad": null, "report": null }), json!({ "scratchpad": "  " }), json!({})] {
            let (run, _) = lab.plays(&Way::default(), json!([done("x")]), json!([{ "text": answer.to_string() }]));
            assert_eq!((steps(&run).last(), lab.scratchpad().1), (Some(&"done"), 1), "no step");
            assert!(run.no_effect, "done, and nothing is there");
        }
        let long = "𝔸".repeat(10_001);
        let (run, _) = lab.plays(&Way::default(), json!([done("x")]), json!([{ "text": json!({ "scratchpad": long }).to_string() }]));
        assert_eq!(lab.scratchpad(), ("𝔸".repeat(10_000), 2));
        assert_eq!(said(&run, "scratchpad_update"), format!("{}…", "𝔸".repeat(100)));
        assert_eq!(lab.reports(), Vec::<String>::new());
    }

    fn an_agent_that_is_not_to_be_asked_is_not_asked(lab: Lab) {
        lab.env.act("set_agent", json!({ "handle": "bot", "end_of_run": "off" })).unwrap();
        let (run, worked) = lab.plays(&Way::default(), json!([done("x")]), remembers("a", "b"));
        assert_eq!((steps(&run).last().copied(), worked.model.requests().len()), (Some("done"), 1));
    }

    fn the_next_run_knows_what_the_last_one_learned(lab: Lab) {
        lab.plays(&Way::default(), json!([done("x")]), remembers("Look at the cache.", "The cache races."));
        let (run, worked) = lab.plays(&Way::default(), json!([done("x")]), remembers("So.", "So."));
        let told = &run.wake.as_ref().unwrap()[0].text;
        assert!(told.contains("Look at the cache.") && told.contains("The cache races."), "{told}");
        assert!(worked.model.requests()[0].body.to_string().contains("Look at the cache."));
        // And so do those who work on a linked task.
        lab.env.task("build", "unit/next");
        lab.env.act("add_link", json!({ "from": "unit/go", "to": "unit/next", "type": "blocks" })).unwrap();
        let wake = lab.env.read(|reader| {
            let wake: Wake = serde_json::from_value(json!({ "task": "unit/next" })).unwrap();
            Ok(serde_json::to_value(wake.answer(reader, lab.env.now())?).unwrap())
        });
        assert!(wake.to_string().contains("So."), "{wake}");
    }

    fn what_another_run_wrote_is_not_written_over(lab: Lab) {
        lab.env.act("set_scratchpad", json!({ "agent": "bot", "content": "base" })).unwrap();
        lab.queue();
        let update = |content: &str| json!([{ "tool": "execute_action", "input": { "path": "/whoami", "action": "update_scratchpad", "params": { "content": content } } }]);
        let turns = json!([update("mine"), update("both"), update("both, again"), done("x")]);
        let actors = json!([{ "match": "[Trackway: end of run]", "turns": [[{ "text": "{}" }]] }, { "match": "What you need", "turns": turns }]);
        let worked = lab.works_with(&Way::default(), &json!({ "actors": actors }), |_| {});
        let run = lab.run(worked.taken[0].run_id);
        assert_eq!(how(&run), ("completed", "completed"), "{run:#?}");
        assert_eq!(lab.scratchpad(), ("both, again".to_owned(), 4), "nothing was in the way here");
        // With another writer in the way, the model is shown what is there.
        lab.queue();
        let late = std::sync::atomic::AtomicBool::new(false);
        let actors = json!([{ "match": "[Trackway: end of run]", "turns": [[{ "text": "{}" }]] }, { "match": "What you need", "turns": [
            [{ "delay_ms": 400 }, update("mine")[0]], update("both"), done("x"),
        ] }]);
        let worked = std::thread::scope(|scope| {
            let (lab, late) = (&lab, &late);
            scope.spawn(move || {
                crate::lab::until(|| late.load(std::sync::atomic::Ordering::Relaxed) && steps(&lab.last_run()).contains(&"wake"));
                lab.env.act("set_scratchpad", json!({ "agent": "bot", "content": "theirs" })).unwrap();
            });
            lab.works_with(&Way::default(), &json!({ "actors": actors }), |event| {
                if let trackway_runner::Event::Took(_) = event { late.store(true, std::sync::atomic::Ordering::Relaxed) }
            })
        });
        let run = lab.run(worked.taken[0].run_id);
        let updates: Vec<_> = run.steps.iter().filter(|step| step.step_type.word() == "execute_action").map(|step| step.detail.clone().unwrap()).collect();
        assert!(updates[0].starts_with("/whoami/actions/update_scratchpad: 409") && updates[1].starts_with("/whoami/actions/update_scratchpad: 200"), "{updates:?}");
        assert_eq!(lab.scratchpad(), ("both".to_owned(), 6));
        let told = worked.model.requests()[1].body["messages"].to_string();
        assert!(told.contains("Your scratchpad now holds:") && told.contains("theirs"), "{told}");
    }

    fn two_runs_at_once_lose_no_update(lab: Lab) {
        lab.env.act("set_agent", json!({ "handle": "bot", "max_items": 2 })).unwrap();
        lab.env.act("set_scratchpad", json!({ "agent": "bot", "content": "base" })).unwrap();
        lab.queue();
        lab.queue();
        // Both are asked at about the same time, and see the same scratchpad; the slower one is asked again.
        let closing = |base: &str, adds: &str| {
            json!([[{ "delay_ms": 300 }, { "text": json!({ "scratchpad": format!("{base}+{adds}") }).to_string() }]])
        };
        let actors = json!([
            { "match": "```text\nbase\n```", "turns": closing("base", "x") },
            { "match": "```text\nbase+x\n```", "turns": closing("base+x", "y") },
            { "match": "What you need to know", "turns": [done("x")] },
        ]);
        // The wake context holds the scratchpad too: what closes is told apart by its first words.
        let actors: Vec<Value> = actors.as_array().unwrap().clone();
        let scenario = json!({ "actors": [actors[2], actors[0], actors[1]] });
        let worked = lab.works_with(&Way { concurrency: 2, ..Way::default() }, &scenario, |_| {});
        assert_eq!(worked.tally.completed, 2);
        assert_eq!(lab.scratchpad(), ("base+x+y".to_owned(), 3));
        let runs: Vec<_> = worked.taken.iter().map(|taken| lab.run(taken.run_id)).collect();
        assert!(runs.iter().all(|run| how(run) == ("completed", "completed") && steps(run).last() == Some(&"scratchpad_update")));
        assert_eq!(worked.model.requests().len(), 5, "two turns, two closing calls, one asked again");
        let usage: usize = runs.iter().map(|run| run.usage.len()).sum();
        assert_eq!(usage, 5, "each call is counted, that which came to nothing too");
    }
}

//! The write path: authorisation, changes, touches and events happen in one transaction.

use serde_json::{Value, json};
use trackway_actions::{
    Result,
    note::CreateNote,
    run::{RecordStep, RecordUsage},
};
use trackway_domain::{
    ErrorKind, Ref,
    enums::{ActorKind, RunStatus, StepType},
    kind::{ActionType, ResourceType},
};
use trackway_store::{
    params,
    tables::{Note, Touch, Vote},
};
use trackway_testkit::{TestEnv, TestRun, engines};
use uuid::Uuid;

/// Kind and text of the error that rejected an action.
#[track_caller]
fn rejection<T: std::fmt::Debug>(outcome: Result<T>) -> (ErrorKind, String) {
    match outcome {
        Ok(done) => panic!("this should have been refused: {done:?}"),
        Err(error) => (error.kind(), error.to_string()),
    }
}

fn conflict(message: &str) -> (ErrorKind, String) {
    (ErrorKind::Conflict, message.to_owned())
}

/// The events of the log after the first `before` events.
fn logged_since(env: &TestEnv, before: usize) -> Vec<(String, String)> {
    env.events().split_off(before)
}

fn logged(action: &str, subject: &str) -> (String, String) {
    (action.to_owned(), subject.to_owned())
}

fn note(title: &str) -> CreateNote {
    CreateNote { studio: Ref::new("main"), title: title.to_owned(), body: String::new(), about: None }
}

fn touches(run: &TestRun<'_>) -> Vec<Touch> {
    run.env.read(|reader| Ok(reader.rows::<Touch>("where tenant_id = ?1 and run_id = ?2", params![run.id])?))
}

engines! {
    fn note_in_a_run_records_one_touch_and_one_event(env: TestEnv) {
        let main = env.studio("main");
        let run = env.agent("ada-bot").start_run();
        let before = env.events().len();

        let plan = run.create_note("main", "plan", "soup first");

        let [touch] = touches(&run).try_into().unwrap();
        assert_eq!((touch.resource_type, touch.action_type), (ResourceType::Note, ActionType::Create));
        assert_eq!((touch.resource_id, touch.resource_studio_id), (plan.uuid(), Some(main)));
        assert_eq!((touch.display_path.as_str(), touch.times), ("main/notes/plan", 1));
        assert_eq!(touch.first_at, touch.last_at);

        assert_eq!(logged_since(&env, before), [logged("create_note", "main/notes/plan")]);
        let by = env.read(|reader| {
            Ok(reader.query::<(ActorKind, Uuid, Option<Uuid>)>(
                "select actor_kind, actor_id, run_id from events where tenant_id = ?1 and subject_id = ?2",
                params![plan],
            )?)
        });
        assert_eq!(by, [(ActorKind::Agent, run.context.actor.id(), Some(run.id.uuid()))]);
    }

    fn note_outside_a_run_records_an_event_and_no_touch(env: TestEnv) {
        let before = env.events().len();
        env.execute(note("plan")).unwrap();

        assert_eq!(logged_since(&env, before), [logged("create_note", "main/notes/plan")]);
        let touches = env.read(|reader| Ok(reader.rows::<Touch>("where tenant_id = ?1", &[])?));
        assert_eq!(touches, []);
    }

    fn voting_twice_in_a_run_updates_the_vote_and_its_touch(env: TestEnv) {
        let run = env.agent("ada-bot").start_run();
        let lunch = run.create_decision("main", "lunch?", &["soup", "salad"]);
        let first = run.vote(lunch, "soup", true, false);
        let second = run.vote(lunch, "soup", true, true);

        assert_eq!(first, second);
        let [vote] = env.read(|reader| Ok(reader.rows::<Vote>("where tenant_id = ?1", &[])?)).try_into().unwrap();
        assert_eq!((vote.accepted, vote.preferred, vote.actor_id), (true, true, run.context.actor.id()));
        assert_eq!(
            run.made(),
            [
                "create decision main/decisions/lunch? in main x1",
                "add_option option main/decisions/lunch?/salad in main x1",
                "add_option option main/decisions/lunch?/soup in main x1",
                "vote vote main/decisions/lunch?/soup in main x2",
            ]
        );
    }

    fn touches_store_the_studio_of_their_resource(env: TestEnv) {
        env.studio("kitchen");
        env.workflow("build");
        env.task("build", "unit/go");
        env
            .execute_json(
                "set_agent",
                json!({ "handle": "ada-bot", "capabilities": ["create_note", "confirm_read", "set_task"] }),
            )
            .unwrap();
        let run = env.agent("ada-bot").start_run_on("unit/go");
        let elsewhere: Value = env.execute_json("create_note", json!({ "studio": "kitchen", "title": "menu" })).unwrap();

        run.create_note("main", "plan", "");
        run.create_note("kitchen", "soup", "");
        run.execute_json("confirm_read", json!({ "note": elsewhere["id"] })).unwrap();
        run.execute_json("set_task", json!({ "workflow": "build", "variant": "unit/go", "title": "Test it" })).unwrap();

        assert_eq!(
            run.made(),
            [
                "create note main/notes/plan in main x1",
                "create note kitchen/notes/soup in kitchen x1",
                "confirm confirmation kitchen/notes/menu in kitchen x1",
                "update task unit/go in no studio x1",
            ]
        );
    }

    fn deleted_note_keeps_its_touches_and_registry_entry(env: TestEnv) {
        let run = env.agent("ada-bot").start_run();
        let plan = run.create_note("main", "plan", "");
        env.execute_json("delete_note", json!({ "id": plan })).unwrap();

        assert_eq!(run.made(), ["create note main/notes/plan in main x1"]);
        let entry = env.read(|reader| Ok(reader.entry_by_id(plan.uuid())?)).unwrap();
        let row =
            env.read(|reader| Ok(reader.row::<Note>("where tenant_id = ?1 and id = ?2", params![plan])?)).unwrap();
        assert_eq!(entry.display_path, "main/notes/plan");
        assert!(entry.deleted_at.is_some());
        assert_eq!(entry.deleted_at, row.deleted_at);
        assert_eq!(
            rejection(run.execute_json("update_note", json!({ "note": plan, "title": "again" }))),
            (ErrorKind::NotFound, "note \"main/notes/plan\" was deleted".to_owned())
        );
    }

    fn token_of_an_ended_run_is_denied(env: TestEnv) {
        let agent = env.agent("ada-bot");
        let (ended, cancelled) = (agent.start_run(), agent.start_run());
        ended.end(RunStatus::Completed);
        env.execute_json("cancel_run", json!({ "run": cancelled.id })).unwrap();
        let before = env.snapshot();

        for (run, status) in [(ended, "completed"), (cancelled, "cancelled")] {
            let over = (ErrorKind::Denied, format!("the run has ended ({status}), so its token is no longer valid"));
            assert_eq!(rejection(run.execute(note("too late"))), over);
            assert_eq!(rejection(env.core.authenticate(&run.token)), over);
        }
        before.assert_unchanged(&env.core);
    }

    fn agent_needs_the_capability_of_an_action(env: TestEnv) {
        let agent = env.agent("ada-bot");
        let run = agent.start_run();
        let plan = run.create_note("main", "plan", "");
        let before = env.snapshot();

        assert_eq!(
            rejection(run.execute_json("pin_note", json!({ "note": plan }))),
            (ErrorKind::Denied, "agent ada-bot may not pin".to_owned())
        );
        before.assert_unchanged(&env.core);

        env.execute_json("set_agent", json!({ "handle": "ada-bot", "capabilities": ["pin"] })).unwrap();
        assert_eq!(run.execute_json("pin_note", json!({ "note": plan })).unwrap(), json!({ "id": plan, "pinned": true }));
        assert_eq!(
            rejection(run.execute(note("no longer"))),
            (ErrorKind::Denied, "agent ada-bot may not create_note".to_owned())
        );
    }

    fn run_cannot_change_another_run(env: TestEnv) {
        let agent = env.agent("ada-bot");
        let (run, other) = (agent.start_run(), agent.start_run());
        let before = env.snapshot();

        for (action, input) in [
            ("end_run", json!({ "run": other.id, "status": "completed" })),
            ("record_step", json!({ "run": other.id, "type": "think" })),
            ("record_usage", json!({ "run": other.id, "input_tokens": 1 })),
        ] {
            assert_eq!(rejection(run.execute_json(action, input)).0, ErrorKind::Denied, "{action}");
        }
        before.assert_unchanged(&env.core);
    }

    fn failing_action_rolls_back_earlier_actions_of_the_batch(env: TestEnv) {
        let run = env.agent("ada-bot").start_run();
        let before = env.snapshot();
        let nowhere = CreateNote { studio: Ref::new("nowhere"), ..note("lost") };

        let outcome = env.core.execute_all(&run.context, &[note("one"), note("two"), nowhere]);

        assert_eq!(rejection(outcome), (ErrorKind::NotFound, "there is no studio \"nowhere\"".to_owned()));
        before.assert_unchanged(&env.core);
        assert_eq!(env.core.execute_all(&run.context, &[note("one"), note("two")]).unwrap().len(), 2);
        assert_eq!(run.made(), ["create note main/notes/one in main x1", "create note main/notes/two in main x1"]);
    }

    fn dry_run_returns_the_result_and_writes_nothing(env: TestEnv) {
        let run = env.agent("ada-bot").start_run();
        let before = env.snapshot();

        let written = env.core.dry_run(&run.context, &note("plan")).unwrap();

        assert_eq!((written.studio.as_str(), written.title.as_str(), written.revision), ("main", "plan", 1));
        before.assert_unchanged(&env.core);
    }

    fn execute_both_is_atomic(env: TestEnv) {
        let run = env.agent("ada-bot").start_run();
        let id = run.context.run.unwrap();
        let step = |detail: &str| RecordStep {
            run: id.into(),
            step_type: StepType::Think,
            detail: Some(detail.to_owned()),
            after: None,
        };
        let usage = |model: &str| RecordUsage {
            run: id.into(),
            model: Some(model.to_owned()),
            message_id: Some("m1".to_owned()),
            input_tokens: Some(1),
            output_tokens: Some(2),
            cache_creation_tokens: None,
            cache_read_tokens: None,
            cost: None,
        };

        let (usages, steps) = env.core.execute_both(&run.context, &[usage("m")], &[step("so")]).unwrap();

        assert_eq!((usages[0].output_tokens, steps[0].position), (Some(2), 1));
        // Usage of the same message is counted once, but the second step is recorded.
        let (usages, steps) = env.core.execute_both(&run.context, &[usage("other")], &[step("again")]).unwrap();
        assert_eq!((usages[0].model.as_deref(), steps[0].position), (Some("m"), 2));
        let before = env.snapshot();
        let fresh = RecordUsage { message_id: Some("m2".to_owned()), ..usage("m") };
        let too_long = step(&"a".repeat(trackway_domain::text::TEXT_MAX + 1));
        assert!(env.core.execute_both(&run.context, &[fresh], &[too_long]).is_err());
        before.assert_unchanged(&env.core);
    }

    fn step_position_follows_the_last_step(env: TestEnv) {
        let run = env.agent("ada-bot").start_run();
        let step = |after| RecordStep { run: run.id.into(), step_type: StepType::Think, detail: None, after };
        let position = |after| run.execute(step(after)).unwrap().position;

        assert_eq!([Some(0), Some(1), Some(1), None, Some(4)].map(position), [1, 2, 3, 4, 5]);
        // Steps of one batch get the requested positions if those are free.
        let positions = |after: [Option<i64>; 2]| {
            let steps = env.core.execute_all(&run.context, &after.map(step)).unwrap();
            steps.iter().map(|step| step.position).collect::<Vec<_>>()
        };
        assert_eq!(positions([Some(5), Some(6)]), [6, 7]);
        assert_eq!(positions([Some(6), Some(7)]), [8, 9]);
        assert_eq!(positions([None, Some(9)]), [10, 11]);

        run.end(RunStatus::Completed);
        let before = env.snapshot();
        let over = (ErrorKind::Denied, "the run has ended (completed), so its token is no longer valid".to_owned());
        assert_eq!(rejection(run.execute(step(Some(11)))), over);
        before.assert_unchanged(&env.core);
    }

    fn variant_belongs_to_one_workflow(env: TestEnv) {
        env.workflow("build");
        env.workflow("deploy");
        env.task("build", "unit/go");
        let before = env.snapshot();

        let claimed = env.execute_json("set_task", json!({ "workflow": "deploy", "variant": "unit/go", "title": "Mine" }));

        assert_eq!(rejection(claimed), conflict("variant unit/go belongs to workflow build"));
        before.assert_unchanged(&env.core);
        env.execute_json("delete_task", json!({ "task": "unit/go" })).unwrap();
        assert_eq!(
            env.execute_json("set_task", json!({ "workflow": "deploy", "variant": "unit/go" })).unwrap()["workflow"],
            json!("deploy")
        );
    }

    fn rejects_cycle_of_replacements(env: TestEnv) {
        env.workflow("build");
        for variant in ["v1", "v2", "v3"] {
            env.task("build", variant);
        }
        for (new, old) in [("v2", "v1"), ("v3", "v2")] {
            env.execute_json("replace_task", json!({ "new": new, "old": old })).unwrap();
        }
        let before = env.snapshot();

        assert_eq!(
            rejection(env.execute_json("replace_task", json!({ "new": "v1", "old": "v1" }))),
            conflict("v1 cannot replace itself")
        );
        let circle = conflict("that would make a cycle: v1 replaces v3 replaces v2 replaces v1");
        assert_eq!(rejection(env.execute_json("replace_task", json!({ "new": "v1", "old": "v3" }))), circle);
        let set = json!({ "workflow": "build", "variant": "v1", "title": "New again", "replaces": "v3" });
        assert_eq!(rejection(env.execute_json("set_task", set)), circle);
        before.assert_unchanged(&env.core);
    }

    fn rejects_cycle_of_blocking_links(env: TestEnv) {
        env.workflow("build");
        for variant in ["a", "b", "c"] {
            env.task("build", variant);
        }
        for (from, to) in [("a", "b"), ("b", "c")] {
            env.execute_json("add_link", json!({ "from": from, "to": to, "type": "blocks" })).unwrap();
        }
        let before = env.snapshot();

        assert_eq!(
            rejection(env.execute_json("add_link", json!({ "from": "c", "to": "a", "type": "blocks" }))),
            conflict("that would make a cycle: c blocks a blocks b blocks c")
        );
        assert_eq!(
            rejection(env.execute_json("add_link", json!({ "from": "a", "to": "a", "type": "blocks" }))),
            conflict("a cannot be linked to itself")
        );
        before.assert_unchanged(&env.core);
        env.execute_json("add_link", json!({ "from": "c", "to": "a", "type": "relates_to" })).unwrap();
    }

    fn scratchpad_is_limited_to_ten_thousand_characters(env: TestEnv) {
        let run = env.agent("ada-bot").start_run();
        let full = "𝔸".repeat(10_000);
        assert_eq!(
            run.execute_json("update_scratchpad", json!({ "content": full })).unwrap(),
            json!({ "result": "Scratchpad updated successfully.", "content": full, "revision": 1 })
        );
        let before = env.snapshot();

        assert_eq!(
            rejection(run.execute_json("update_scratchpad", json!({ "content": format!("{full}𝔸") }))),
            (ErrorKind::Usage, "Scratchpad content exceeds maximum length of 10000 characters (it has 10001)".to_owned())
        );
        before.assert_unchanged(&env.core);
    }

    fn rejects_scratchpad_update_of_an_old_revision(env: TestEnv) {
        let run = env.agent("ada-bot").start_run();
        run.execute_json("update_scratchpad", json!({ "content": "one", "if_revision": 0 })).unwrap();
        env.execute_json("set_scratchpad", json!({ "agent": "ada-bot", "content": "two", "if_revision": 1 })).unwrap();
        let before = env.snapshot();

        assert_eq!(
            rejection(run.execute_json("update_scratchpad", json!({ "content": "three", "if_revision": 1 }))),
            conflict("the scratchpad is at revision 2, not 1")
        );
        before.assert_unchanged(&env.core);
    }

    fn name_with_control_character_is_not_found(env: TestEnv) {
        let before = env.snapshot();
        let outcome = env.execute_json("create_note", json!({ "studio": "no\u{0}where", "title": "plan" }));
        assert_eq!(rejection(outcome).0, ErrorKind::NotFound);
        before.assert_unchanged(&env.core);
    }
}

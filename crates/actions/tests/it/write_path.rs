//! The one write path: who may, what changes, what is touched, what is logged; all of it or nothing.

use serde_json::{Value, json};
use trackway_actions::{
    Result,
    note::CreateNote,
    run::{RecordStep, RecordUsage},
};
use trackway_domain::{
    ErrorKind, Ref,
    kind::{ActionType, ResourceType},
    words::{ActorKind, RunStatus, StepType},
};
use trackway_store::{
    params,
    tables::{Note, Touch, Vote},
};
use trackway_testkit::{TestEnv, TestRun, engines};
use uuid::Uuid;

/// How an action was refused.
#[track_caller]
fn refusal<T: std::fmt::Debug>(outcome: Result<T>) -> (ErrorKind, String) {
    match outcome {
        Ok(done) => panic!("this should have been refused: {done:?}"),
        Err(error) => (error.kind(), error.to_string()),
    }
}

fn conflict(message: &str) -> (ErrorKind, String) {
    (ErrorKind::Conflict, message.to_owned())
}

/// What the log says since it had `seen` entries.
fn logged_since(env: &TestEnv, seen: usize) -> Vec<(String, String)> {
    env.events().split_off(seen)
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
    fn a_note_in_a_run_is_one_touch_and_one_event(env: TestEnv) {
        let main = env.studio("main");
        let run = env.agent("ada-bot").start_run();
        let seen = env.events().len();

        let plan = run.create_note("main", "plan", "soup first");

        let [touch] = touches(&run).try_into().unwrap();
        assert_eq!((touch.resource_type, touch.action_type), (ResourceType::Note, ActionType::Create));
        assert_eq!((touch.resource_id, touch.resource_studio_id), (plan.uuid(), Some(main)));
        assert_eq!((touch.display_path.as_str(), touch.times), ("main/notes/plan", 1));
        assert_eq!(touch.first_at, touch.last_at);

        assert_eq!(logged_since(&env, seen), [logged("create_note", "main/notes/plan")]);
        let by = env.read(|reader| {
            Ok(reader.query::<(ActorKind, Uuid, Option<Uuid>)>(
                "select actor_kind, actor_id, run_id from events where tenant_id = ?1 and subject_id = ?2",
                params![plan],
            )?)
        });
        assert_eq!(by, [(ActorKind::Agent, run.context.actor.id(), Some(run.id.uuid()))]);
    }

    fn a_note_outside_a_run_is_an_event_and_no_touch(env: TestEnv) {
        let seen = env.events().len();
        env.execute(note("plan")).unwrap();

        assert_eq!(logged_since(&env, seen), [logged("create_note", "main/notes/plan")]);
        let touches = env.read(|reader| Ok(reader.rows::<Touch>("where tenant_id = ?1", &[])?));
        assert_eq!(touches, []);
    }

    fn voting_twice_in_one_run_is_one_vote_and_one_touch(env: TestEnv) {
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

    fn touches_carry_the_studio_of_their_resource(env: TestEnv) {
        env.studio("kitchen");
        env.workflow("build");
        env.task("build", "unit/go");
        env
            .act(
                "set_agent",
                json!({ "handle": "ada-bot", "capabilities": ["create_note", "confirm_read", "set_task"] }),
            )
            .unwrap();
        let run = env.agent("ada-bot").start_run_on("unit/go");
        let elsewhere: Value = env.act("create_note", json!({ "studio": "kitchen", "title": "menu" })).unwrap();

        run.create_note("main", "plan", "");
        run.create_note("kitchen", "soup", "");
        run.act("confirm_read", json!({ "note": elsewhere["id"] })).unwrap();
        run.act("set_task", json!({ "workflow": "build", "variant": "unit/go", "title": "Test it" })).unwrap();

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

    fn a_deleted_note_keeps_its_touches_and_its_entry(env: TestEnv) {
        let run = env.agent("ada-bot").start_run();
        let plan = run.create_note("main", "plan", "");
        env.act("delete_note", json!({ "id": plan })).unwrap();

        assert_eq!(run.made(), ["create note main/notes/plan in main x1"]);
        let entry = env.read(|reader| Ok(reader.entry(plan.uuid())?)).unwrap();
        let row =
            env.read(|reader| Ok(reader.row::<Note>("where tenant_id = ?1 and id = ?2", params![plan])?)).unwrap();
        assert_eq!(entry.display_path, "main/notes/plan");
        assert!(entry.deleted_at.is_some());
        assert_eq!(entry.deleted_at, row.deleted_at);
        assert_eq!(
            refusal(run.act("update_note", json!({ "note": plan, "title": "again" }))),
            (ErrorKind::NotFound, "note \"main/notes/plan\" was deleted".to_owned())
        );
    }

    fn the_token_of_an_ended_run_is_denied(env: TestEnv) {
        let agent = env.agent("ada-bot");
        let (ended, cancelled) = (agent.start_run(), agent.start_run());
        ended.end(RunStatus::Completed);
        env.act("cancel_run", json!({ "run": cancelled.id })).unwrap();
        let before = env.snapshot();

        for (run, status) in [(ended, "completed"), (cancelled, "cancelled")] {
            let over = (ErrorKind::Denied, format!("the run is {status}: its token ended with it"));
            assert_eq!(refusal(run.execute(note("too late"))), over);
            assert_eq!(refusal(env.core.enter(&run.token)), over);
        }
        before.assert_unchanged(&env.core);
    }

    fn an_agent_needs_the_capability(env: TestEnv) {
        let agent = env.agent("ada-bot");
        let run = agent.start_run();
        let plan = run.create_note("main", "plan", "");
        let before = env.snapshot();

        assert_eq!(
            refusal(run.act("pin_note", json!({ "note": plan }))),
            (ErrorKind::Denied, "agent ada-bot may not pin".to_owned())
        );
        before.assert_unchanged(&env.core);

        env.act("set_agent", json!({ "handle": "ada-bot", "capabilities": ["pin"] })).unwrap();
        assert_eq!(run.act("pin_note", json!({ "note": plan })).unwrap(), json!({ "id": plan, "pinned": true }));
        assert_eq!(
            refusal(run.execute(note("no longer"))),
            (ErrorKind::Denied, "agent ada-bot may not create_note".to_owned())
        );
    }

    fn an_agent_speaks_of_its_own_run_only(env: TestEnv) {
        let agent = env.agent("ada-bot");
        let (run, other) = (agent.start_run(), agent.start_run());
        let before = env.snapshot();

        for (action, input) in [
            ("end_run", json!({ "run": other.id, "status": "completed" })),
            ("record_step", json!({ "run": other.id, "type": "think" })),
            ("record_usage", json!({ "run": other.id, "input_tokens": 1 })),
        ] {
            assert_eq!(refusal(run.act(action, input)).0, ErrorKind::Denied, "{action}");
        }
        before.assert_unchanged(&env.core);
    }

    fn a_failing_action_undoes_those_before_it(env: TestEnv) {
        let run = env.agent("ada-bot").start_run();
        let before = env.snapshot();
        let nowhere = CreateNote { studio: Ref::new("nowhere"), ..note("lost") };

        let outcome = env.core.execute_all(&run.context, &[note("one"), note("two"), nowhere]);

        assert_eq!(refusal(outcome), (ErrorKind::NotFound, "there is no studio \"nowhere\"".to_owned()));
        before.assert_unchanged(&env.core);
        assert_eq!(env.core.execute_all(&run.context, &[note("one"), note("two")]).unwrap().len(), 2);
        assert_eq!(run.made(), ["create note main/notes/one in main x1", "create note main/notes/two in main x1"]);
    }

    fn a_rehearsal_answers_and_leaves_nothing(env: TestEnv) {
        let run = env.agent("ada-bot").start_run();
        let before = env.snapshot();

        let written = env.core.rehearse(&run.context, &note("plan")).unwrap();

        assert_eq!((written.studio.as_str(), written.title.as_str(), written.revision), ("main", "plan", 1));
        before.assert_unchanged(&env.core);
    }

    fn two_actions_are_one_write_or_none(env: TestEnv) {
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

        let (used, told) = env.core.execute_both(&run.context, &[usage("m")], &[step("so")]).unwrap();

        assert_eq!((used[0].output_tokens, told[0].position), (Some(2), 1));
        // The same message again counts once, and its step is a step.
        let (used, told) = env.core.execute_both(&run.context, &[usage("other")], &[step("again")]).unwrap();
        assert_eq!((used[0].model.as_deref(), told[0].position), (Some("m"), 2));
        let before = env.snapshot();
        let fresh = RecordUsage { message_id: Some("m2".to_owned()), ..usage("m") };
        let too_long = step(&"a".repeat(trackway_domain::text::TEXT_MAX + 1));
        assert!(env.core.execute_both(&run.context, &[fresh], &[too_long]).is_err());
        before.assert_unchanged(&env.core);
    }

    fn a_step_comes_after_the_last_one_whatever_its_writer_knows(env: TestEnv) {
        let run = env.agent("ada-bot").start_run();
        let step = |after| RecordStep { run: run.id.into(), step_type: StepType::Think, detail: None, after };
        let position = |after| run.execute(step(after)).unwrap().position;

        assert_eq!([Some(0), Some(1), Some(1), None, Some(4)].map(position), [1, 2, 3, 4, 5]);
        // Several at once: as they were said to be, unless something came between.
        let positions = |after: [Option<i64>; 2]| {
            let told = env.core.execute_all(&run.context, &after.map(step)).unwrap();
            told.iter().map(|step| step.position).collect::<Vec<_>>()
        };
        assert_eq!(positions([Some(5), Some(6)]), [6, 7]);
        assert_eq!(positions([Some(6), Some(7)]), [8, 9]);
        assert_eq!(positions([None, Some(9)]), [10, 11]);

        run.end(RunStatus::Completed);
        let before = env.snapshot();
        let over = (ErrorKind::Denied, "the run is completed: its token ended with it".to_owned());
        assert_eq!(refusal(run.execute(step(Some(11)))), over);
        before.assert_unchanged(&env.core);
    }

    fn a_variant_has_one_owner(env: TestEnv) {
        env.workflow("build");
        env.workflow("deploy");
        env.task("build", "unit/go");
        let before = env.snapshot();

        let claimed = env.act("set_task", json!({ "workflow": "deploy", "variant": "unit/go", "title": "Mine" }));

        assert_eq!(refusal(claimed), conflict("variant unit/go belongs to workflow build"));
        before.assert_unchanged(&env.core);
        env.act("delete_task", json!({ "task": "unit/go" })).unwrap();
        assert_eq!(
            env.act("set_task", json!({ "workflow": "deploy", "variant": "unit/go" })).unwrap()["workflow"],
            json!("deploy")
        );
    }

    fn replacements_make_no_circle(env: TestEnv) {
        env.workflow("build");
        for variant in ["v1", "v2", "v3"] {
            env.task("build", variant);
        }
        for (new, old) in [("v2", "v1"), ("v3", "v2")] {
            env.act("replace_task", json!({ "new": new, "old": old })).unwrap();
        }
        let before = env.snapshot();

        assert_eq!(
            refusal(env.act("replace_task", json!({ "new": "v1", "old": "v1" }))),
            conflict("v1 cannot replace itself")
        );
        let circle = conflict("that would make a cycle: v1 replaces v3 replaces v2 replaces v1");
        assert_eq!(refusal(env.act("replace_task", json!({ "new": "v1", "old": "v3" }))), circle);
        let set = json!({ "workflow": "build", "variant": "v1", "title": "New again", "replaces": "v3" });
        assert_eq!(refusal(env.act("set_task", set)), circle);
        before.assert_unchanged(&env.core);
    }

    fn blocking_links_make_no_circle(env: TestEnv) {
        env.workflow("build");
        for variant in ["a", "b", "c"] {
            env.task("build", variant);
        }
        for (from, to) in [("a", "b"), ("b", "c")] {
            env.act("add_link", json!({ "from": from, "to": to, "type": "blocks" })).unwrap();
        }
        let before = env.snapshot();

        assert_eq!(
            refusal(env.act("add_link", json!({ "from": "c", "to": "a", "type": "blocks" }))),
            conflict("that would make a cycle: c blocks a blocks b blocks c")
        );
        assert_eq!(
            refusal(env.act("add_link", json!({ "from": "a", "to": "a", "type": "blocks" }))),
            conflict("a cannot be linked to itself")
        );
        before.assert_unchanged(&env.core);
        env.act("add_link", json!({ "from": "c", "to": "a", "type": "relates_to" })).unwrap();
    }

    fn a_scratchpad_holds_ten_thousand_characters(env: TestEnv) {
        let run = env.agent("ada-bot").start_run();
        let full = "𝔸".repeat(10_000);
        assert_eq!(
            run.act("update_scratchpad", json!({ "content": full })).unwrap(),
            json!({ "result": "Scratchpad updated successfully.", "content": full, "revision": 1 })
        );
        let before = env.snapshot();

        assert_eq!(
            refusal(run.act("update_scratchpad", json!({ "content": format!("{full}𝔸") }))),
            (ErrorKind::Usage, "Scratchpad content exceeds maximum length of 10000 characters (it has 10001)".to_owned())
        );
        before.assert_unchanged(&env.core);
    }

    fn a_scratchpad_is_not_overwritten_unread(env: TestEnv) {
        let run = env.agent("ada-bot").start_run();
        run.act("update_scratchpad", json!({ "content": "one", "if_revision": 0 })).unwrap();
        env.act("set_scratchpad", json!({ "agent": "ada-bot", "content": "two", "if_revision": 1 })).unwrap();
        let before = env.snapshot();

        assert_eq!(
            refusal(run.act("update_scratchpad", json!({ "content": "three", "if_revision": 1 }))),
            conflict("the scratchpad is at revision 2, not 1")
        );
        before.assert_unchanged(&env.core);
    }

    fn a_name_with_a_control_character_is_not_found(env: TestEnv) {
        let before = env.snapshot();
        let outcome = env.act("create_note", json!({ "studio": "no\u{0}where", "title": "plan" }));
        assert_eq!(refusal(outcome).0, ErrorKind::NotFound);
        before.assert_unchanged(&env.core);
    }
}

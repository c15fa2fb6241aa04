//! Each creation, change and deletion by a run is recorded as a touch. `why` leads from the touched resource to the
//! run, its task and the person.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use trackway_actions::{Context, Credential, context::Secret};
use trackway_domain::{Id, Ref, enums::RunStatus, kind, kind::ResourceType};
use trackway_store::display::RunRow;
use trackway_testkit::{TestEnv, TestRun, engines};
use trackway_views::{
    View,
    made::{ListMade, TouchRow},
    run::ShowRun,
    why::{Chain, Why},
};

/// Creates a role, a workflow, and tasks without links.
fn create_role_and_tasks(env: &TestEnv) {
    env.role("coder");
    env.workflow("q");
    for (variant, role) in [("unit/go", Some("coder")), ("unit/next", None), ("unit/old", None)] {
        let task = json!({ "workflow": "q", "variant": variant, "role": role });
        env.execute_json("set_task", task).unwrap();
    }
    let newer = json!({ "workflow": "q", "variant": "unit/new", "replaces": "unit/old", "level": "minor" });
    env.execute_json("set_task", newer).unwrap();
}

/// Gives an agent all capabilities, and starts its run on `unit/go`.
fn start_privileged_run(env: &TestEnv) -> TestRun<'_> {
    let agent = env.agent("bot");
    let capabilities: Vec<&str> = [trackway_domain::capability::DEFAULT, trackway_domain::capability::GRANTED].concat();
    env.execute_json("set_agent", json!({ "handle": "bot", "capabilities": capabilities })).unwrap();
    agent.start_run_on("unit/go")
}

/// The context of a person who acts within the run. Agents cannot change routes.
fn person_in(run: &TestRun<'_>) -> Context {
    let mut context = run.env.ada.clone();
    context.run = Some(run.id);
    context
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap()
}

fn touches(run: &TestRun<'_>) -> Vec<TouchRow> {
    let made = ListMade { run: Ref::from(run.id), kind: None, action: None, tree: false, limit: None, after: None };
    run.env.read(|reader| Ok(made.answer(reader, run.env.now())?)).touches
}

/// The touches of a run as text, such as `create label k`. Queue items and messages have no path.
fn touch_lines(run: &TestRun<'_>) -> Vec<String> {
    let line = |touch: TouchRow| {
        let times = if touch.times > 1 { format!(" x{}", touch.times) } else { String::new() };
        let path = match touch.resource_type {
            ResourceType::QueueItem | ResourceType::Message => String::new(),
            _ => format!(" {}", touch.display_path),
        };
        format!("{} {}{path}{times}", touch.action_type, touch.resource_type)
    };
    touches(run).into_iter().map(line).collect()
}

fn why(env: &TestEnv, thing: impl ToString) -> Chain {
    let why = Why { thing: thing.to_string() };
    env.read(|reader| Ok(why.answer(reader, env.now())?))
}

fn no_effect(env: &TestEnv, run: Id<kind::Run>) -> bool {
    let show = ShowRun { run: Ref::from(run), wake: false };
    env.read(|reader| Ok(show.answer(reader, env.now())?)).no_effect
}

engines! {
    fn every_created_kind_is_touched_and_traced_to_the_person(env: TestEnv) {
        create_role_and_tasks(&env);
        let run = start_privileged_run(&env);
        let act = |action: &str, input: Value| run.execute_json(action, input).unwrap();
        let conversation = act("set_conversation", json!({ "title": "Tea" }));
        let experiment = act("set_experiment", json!({ "conversation": conversation["id"], "title": "first try" }));
        act("set_testcase", json!({ "title": "pours", "experiment": experiment["id"] }));
        act("set_label", json!({ "key": "k", "name": "K" }));
        act("add_link", json!({ "from": "unit/go", "to": "unit/next", "type": "relates_to" }));
        act("set_package", json!({ "role": "coder", "task": "unit/old" }));
        act("set_board", json!({ "name": "wall" }));
        act("set_stickie", json!({ "board": "wall", "name": "one" }));
        act("queue_add", json!({ "task": "unit/old" }));
        act("send_message", json!({ "body": "go on", "to_task": "unit/next" }));
        env.execute_json_as(&person_in(&run), "set_route", json!({ "tag": "work", "task": "unit/next" })).unwrap();
        let routed = act("send_message", json!({ "body": "and you", "tags": ["work"] }));
        run.create_note("main", "plan", "soup first");

        assert_eq!(
            touch_lines(&run),
            [
                "create conversation Tea",
                "create experiment first try",
                "create testcase pours",
                "create label k",
                "update task unit/go",
                "create link unit/go relates_to unit/next",
                "pin task unit/old",
                "create package coder uses unit/old",
                "create board wall",
                "create stickie wall/one",
                "create queue_item",
                "send message",
                "create queue_item",
                "create route work to unit/next",
                "send message",
                "create queue_item",
                "create note main/notes/plan",
            ]
        );
        let (task, person) = env.read(|reader| {
            let shown = reader.display_row_by_id::<RunRow>("u", run.id)?;
            Ok((shown.run.task_id.unwrap().uuid(), shown.run.initiated_by.unwrap().uuid()))
        });
        let made = touches(&run);
        assert!(made.iter().any(|touch| touch.resource_id.to_string() == text(&routed["queue_item_id"])));
        for touch in made.iter().filter(|touch| touch.resource_type != ResourceType::Task) {
            let chain = why(&env, touch.resource_id);
            let ids: Vec<_> = chain.recorded().map(|hop| hop.id).collect();
            for id in [touch.resource_id, run.id.uuid(), task, person] {
                assert!(ids.contains(&id), "{}: {id} is not in {chain:?}", touch.resource_type);
            }
            assert_eq!(chain.missing(), Vec::<&str>::new(), "{}", touch.resource_type);
            assert_eq!(chain.touched_by.len(), 1, "{}", touch.resource_type);
        }
    }

    fn updates_and_deletions_are_touches(env: TestEnv) {
        create_role_and_tasks(&env);
        env.role("critic");
        let ids: BTreeMap<&str, String> = [
            ("conversation", "set_conversation", json!({ "title": "Tea" })),
            ("label", "set_label", json!({ "key": "k", "name": "K" })),
            ("testcase", "set_testcase", json!({ "title": "pours" })),
            ("link", "add_link", json!({ "from": "unit/go", "to": "unit/next", "type": "relates_to" })),
            ("item", "queue_add", json!({ "task": "unit/old" })),
            ("waiting", "queue_add", json!({ "task": "unit/new" })),
            ("route", "set_route", json!({ "tag": "work", "task": "unit/next" })),
        ]
        .into_iter()
        .map(|(name, action, input)| (name, text(&env.execute_json(action, input).unwrap()["id"]).to_owned()))
        .collect();
        let tries = json!({ "conversation": ids["conversation"], "title": "first try" });
        let experiment = text(&env.execute_json("set_experiment", tries).unwrap()["id"]).to_owned();
        for role in ["coder", "critic"] {
            env.execute_json("set_package", json!({ "role": role, "task": "unit/old" })).unwrap();
        }
        env.execute_json("set_workspace", json!({ "name": "shop", "directory": "/shop" })).unwrap();

        let run = start_privileged_run(&env);
        let act = |action: &str, input: Value| run.execute_json(action, input).unwrap();
        act("set_conversation", json!({ "conversation": ids["conversation"], "title": "Green tea" }));
        act("set_conversation", json!({ "conversation": ids["conversation"], "title": "Green tea" }));
        act("set_experiment", json!({ "experiment": experiment, "outcome": "warm" }));
        act("end_experiment", json!({ "experiment": experiment, "status": "failed" }));
        act("set_testcase", json!({ "testcase": ids["testcase"], "status": "OK" }));
        act("set_label", json!({ "key": "k", "name": "Kay" }));
        let moved = act("upgrade_packages", json!({ "level": "major" }));
        assert_eq!(moved.as_array().unwrap().len(), 2);
        act("queue_cancel", json!({ "id": ids["item"] }));
        act("queue_requeue", json!({ "id": ids["item"] }));
        let person = person_in(&run);
        let as_person = |action: &str, input: Value| env.execute_json_as(&person, action, input).unwrap();
        as_person("set_route", json!({ "tag": "work", "task": "unit/next", "workspace": "shop" }));
        as_person("delete_route", json!({ "name": ids["route"] }));
        act("delete_link", json!({ "link": ids["link"] }));
        act("delete_package", json!({ "role": "coder", "task": "unit/new" }));
        act("delete_task", json!({ "task": "unit/new" }));
        act("delete_label", json!({ "name": "k" }));
        act("delete_conversation", json!({ "name": ids["conversation"] }));

        assert_eq!(
            touch_lines(&run),
            [
                "update conversation Green tea",
                "update experiment first try",
                "close experiment first try",
                "update testcase pours",
                "update label k",
                // The upgrade moved two packages to this task.
                "pin task unit/new x2",
                "update package coder uses unit/new",
                "update package critic uses unit/new",
                "update queue_item x2",
                "update route work to unit/next",
                "delete route work to unit/next",
                "update task unit/go",
                "delete link unit/go relates_to unit/next",
                "update task unit/new",
                "delete package coder uses unit/new",
                "delete task unit/new",
                "delete package critic uses unit/new",
                "delete label k",
                "delete conversation Green tea",
                "delete experiment first try",
            ]
        );
        let chain = why(&env, &ids["label"]);
        assert_eq!(chain.recorded().map(|hop| hop.kind).collect::<Vec<_>>(), ["resource", "person"], "ada made it");
        assert_eq!((chain.touched_by.len(), chain.deleted), (2, true));
    }

    fn queueing_an_item_is_an_effect_but_holding_it_is_not(env: TestEnv) {
        create_role_and_tasks(&env);
        let queueing = start_privileged_run(&env);
        let added = queueing.execute_json("queue_add", json!({ "task": "unit/next", "dedup_key": "once" })).unwrap();
        let again = queueing.execute_json("queue_add", json!({ "task": "unit/next", "dedup_key": "once" })).unwrap();
        assert_eq!((&again["id"], &again["duplicate"]), (&added["id"], &json!(true)));
        queueing.end(RunStatus::Completed);
        assert_eq!(touch_lines(&queueing), ["create queue_item"]);
        assert!(!no_effect(&env, queueing.id));

        let taken = env.execute_json("queue_take", json!({ "agent": "bot" })).unwrap()[0].clone();
        let (item, fence) = (taken["id"].clone(), taken["fence"].clone());
        assert_eq!(item, added["id"]);
        let token = Credential::Token(Secret(text(&taken["token"]).to_owned()));
        let holding = env.core.authenticate(&token).unwrap();
        env.execute_json_as(&holding, "queue_heartbeat", json!({ "id": item, "fence": fence })).unwrap();
        env.execute_json_as(&holding, "queue_complete", json!({ "id": item, "fence": fence })).unwrap();
        let run = holding.run.unwrap();
        let made = ListMade { run: Ref::from(run), kind: None, action: None, tree: false, limit: None, after: None };
        assert_eq!(env.read(|reader| Ok(made.answer(reader, env.now())?)).touches, []);
        assert!(no_effect(&env, run));
    }

    fn claim_in_a_run_touches_the_created_item(env: TestEnv) {
        create_role_and_tasks(&env);
        let run = start_privileged_run(&env);
        let claimed = run.execute_json("claim", json!({ "task": "unit/next" })).unwrap()[0].clone();
        let made: Vec<_> = touches(&run).iter().map(|touch| touch.resource_id.to_string()).collect();
        assert_eq!((touch_lines(&run), made), (vec!["create queue_item".to_owned()], vec![text(&claimed["id"]).to_owned()]));
    }

    fn replacement_touches_the_pin_it_removes(env: TestEnv) {
        create_role_and_tasks(&env);
        env.role("critic");
        for variant in ["unit/p", "unit/q"] {
            env.task("q", variant);
            env.execute_json("set_package", json!({ "role": "critic", "task": variant })).unwrap();
        }
        env.execute_json("set_agent", json!({ "handle": "bot", "capabilities": ["replace_task"] })).unwrap();
        let run = env.agent("bot").start_run();
        run.execute_json("replace_task", json!({ "new": "unit/q", "old": "unit/p" })).unwrap();
        assert_eq!(touch_lines(&run), ["update task unit/q", "delete package critic uses unit/p"]);
    }

    fn imported_test_cases_are_touches_of_the_run(env: TestEnv) {
        create_role_and_tasks(&env);
        let run = start_privileged_run(&env);
        let cases: String = (0..300).map(|number| format!("<testcase name='case {number}'/>")).collect();
        let report = json!({ "junit": format!("<testsuite>{cases}</testsuite>") });
        let before = env.events().len();
        assert_eq!(run.execute_json("import_testcases", report.clone()).unwrap()["imported"], 300);
        assert_eq!(run.execute_json("import_testcases", report).unwrap()["duplicate"], true);
        assert_eq!(env.events().split_off(before).len(), 1);
        run.end(RunStatus::Completed);

        let expected: Vec<String> = (0..300).map(|number| format!("create testcase case {number}")).collect();
        assert_eq!(touch_lines(&run), expected);
        assert!(!no_effect(&env, run.id));
        let last = touches(&run).pop().unwrap();
        let chain = why(&env, last.resource_id);
        let kinds: Vec<_> = chain.recorded().map(|hop| hop.kind).collect();
        assert_eq!(kinds, ["resource", "run", "agent", "role", "task", "person"]);
        assert_eq!(chain.missing(), Vec::<&str>::new());
    }

    fn each_option_of_a_decision_is_touched(env: TestEnv) {
        let run = env.agent("bot").start_run();
        let decision = run.create_decision("main", "lunch?", &["soup", "salad"]);
        run.execute_json("add_options", json!({ "decision": decision, "options": ["bread"] })).unwrap();
        assert_eq!(
            touch_lines(&run),
            [
                "create decision main/decisions/lunch?",
                "add_option option main/decisions/lunch?/soup",
                "add_option option main/decisions/lunch?/salad",
                "add_option option main/decisions/lunch?/bread",
            ]
        );
    }
}

//! The queue: each item has one taker at a time, the order is right, and no item is lost.

use std::{sync::Barrier, thread, time::Duration};

use serde_json::{Value, json};
use trackway_actions::{
    Context, Credential, Result,
    context::Secret,
    queue::{AddItem, AddedItem, CompleteItem, TakeItems},
};
use trackway_domain::{ErrorKind, Ref, Time};
use trackway_store::{Engine, params, queue_notify::Listener, sql::Param, tables::Run};
use trackway_testkit::{TestEnv, engines};

/// Creates a recurring task `again` and a task `once`.
fn create_tasks(env: &TestEnv) {
    env.workflow("ops");
    env.execute_json("set_task", json!({ "workflow": "ops", "variant": "again", "recurring": true })).unwrap();
    env.execute_json("set_task", json!({ "workflow": "ops", "variant": "once" })).unwrap();
}

fn add(env: &TestEnv, input: Value) -> Value {
    env.execute_json("queue_add", input).unwrap()
}

fn take(env: &TestEnv, input: Value) -> Vec<Value> {
    env.execute_json("queue_take", input).unwrap().as_array().unwrap().clone()
}

fn ids(items: &[Value]) -> Vec<Value> {
    items.iter().map(|item| item["id"].clone()).collect()
}

fn id_and_fence(item: &Value) -> Value {
    json!({ "id": item["id"], "fence": item["fence"] })
}

fn merged(mut object: Value, more: Value) -> Value {
    object.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    object
}

/// Status, attempt and error of an item.
fn item_state(env: &TestEnv, item: &Value) -> (String, i64, Option<String>) {
    let id: uuid::Uuid = item["id"].as_str().unwrap().parse().unwrap();
    env.read(|reader| {
        Ok(reader
            .one("select status, attempt, error from queue_items where tenant_id = ?1 and id = ?2", params![id])?
            .unwrap())
    })
}

fn run_of(env: &TestEnv, item: &Value) -> (String, Option<String>) {
    let id: uuid::Uuid = item["run_id"].as_str().unwrap().parse().unwrap();
    env.read(|reader| {
        Ok(reader.one("select status, outcome from runs where tenant_id = ?1 and id = ?2", params![id])?.unwrap())
    })
}

fn status_of_task(env: &TestEnv, variant: &str) -> String {
    let found: Option<(String,)> = env.read(|reader| {
        Ok(reader.one("select status from tasks where tenant_id = ?1 and variant = ?2", params![variant])?)
    });
    found.unwrap().0
}

fn run_context(env: &TestEnv, item: &Value) -> Context {
    env.core.authenticate(&Credential::Token(Secret(item["token"].as_str().unwrap().to_owned()))).unwrap()
}

fn rejection<T: std::fmt::Debug>(outcome: Result<T>) -> (ErrorKind, String) {
    let error = outcome.unwrap_err();
    (error.kind(), error.to_string())
}

/// All rows that a take wrote, without ids and times: the run, registry entry, events, agent links and task status.
fn written_rows(env: &TestEnv, taken: &Value) -> Vec<String> {
    let item: uuid::Uuid = taken["id"].as_str().unwrap().parse().unwrap();
    let run: uuid::Uuid = taken["run_id"].as_str().unwrap().parse().unwrap();
    let rows = |table: &str, columns: &str, condition: &str, bound: &[Param<'_>]| -> Vec<String> {
        let sql = format!("select cast({columns} as text) from {table} where tenant_id = ?1 and {condition}");
        env.read(|reader| Ok(reader.query::<(String,)>(&sql, bound)?)).into_iter().map(|(text,)| text).collect()
    };
    let row = env.read(|reader| Ok(reader.row::<Run>("where tenant_id = ?1 and id = ?2", params![run])?)).unwrap();
    assert_eq!((row.id.uuid(), row.queue_item_id.unwrap().uuid(), row.cause_id), (run, item, Some(item)));
    assert_eq!(row.token_hash.as_ref().map(Vec::len), Some(32));
    let (id, token_hash) = (uuid::Uuid::nil().into(), None);
    let row = Run { id, token_hash, queue_item_id: None, cause_id: None, started_at: Time::from_micros(0), ..row };
    let short = |id: uuid::Uuid| id.simple().to_string().split_off(24);
    let entry = rows("registry", "kind || ' ' || display_path", "id = ?2 and created_by is not null", params![run]);
    let events = rows(
        "events",
        "action || ' ' || actor_kind || ' ' || subject_kind || ' ' || subject_path",
        "subject_id = ?2",
        params![item],
    );
    let links =
        rows("agent_links", "count(*)", "from_agent_id = ?2 and to_task_id = ?3", params![row.agent_id, row.task_id]);
    let task = rows("tasks", "status", "id = ?2", params![row.task_id]);
    let all = [vec![format!("{row:?}")], entry, events, links, task].concat();
    all.into_iter().map(|line| line.replace(&short(run), "RUN").replace(&short(item), "ITEM")).collect()
}

engines! {
    fn take_writes_same_rows_with_and_without_a_named_agent(env: TestEnv) {
        create_tasks(&env);
        env.execute_json("set_role", json!({ "name": "builder" })).unwrap();
        env.execute_json("set_task", json!({ "workflow": "ops", "variant": "twice" })).unwrap();
        for variant in ["again", "again", "once", "twice"] {
            add(&env, json!({ "task": variant, "role": "builder", "priority": 7 }));
        }

        let taken = [json!({}), json!({ "agent": "worker" }), json!({}), json!({ "agent": "worker" })]
            .map(|input| written_rows(&env, &take(&env, input)[0]));

        let [first, named, once, twice] = &taken;
        assert_eq!(first, named);
        assert_eq!(
            first[1..],
            ["run runs/RUN", "queue_add person queue_item queue/ITEM", "queue_take person queue_item queue/ITEM", "1", "open"]
        );
        assert_eq!(once[1..], twice[1..]);
        assert_eq!(once.last().unwrap(), "in_progress");
        assert_eq!(take(&env, json!({})), Vec::<Value>::new());

        for _ in 0..2 {
            add(&env, json!({ "task": "again", "role": "builder", "priority": 7 }));
        }
        let together: Vec<_> = take(&env, json!({ "batch": 3 })).iter().map(|taken| written_rows(&env, taken)).collect();
        assert_eq!(together, [first.clone(), first.clone()]);
    }

    fn take_orders_by_priority_then_age(env: TestEnv) {
        create_tasks(&env);
        let priorities = [0, 5, -1, 5, 0];
        let added: Vec<Value> =
            priorities.iter().map(|priority| add(&env, json!({ "task": "again", "priority": priority }))).collect();
        let first = take(&env, json!({}));
        assert_eq!(ids(&first), [added[1]["id"].clone()]);
        assert_eq!((first[0]["fence"].as_i64(), first[0]["attempt"].as_i64(), first[0]["revision"].as_i64()), (Some(1), Some(1), Some(1)));
        let rest = take(&env, json!({ "batch": 10 }));
        assert_eq!(ids(&rest), [3, 0, 4, 2].map(|place| added[place]["id"].clone()));
        assert_eq!(take(&env, json!({})), Vec::<Value>::new());
    }

    fn dedup_key_prevents_second_unfinished_item(env: TestEnv) {
        create_tasks(&env);
        let first = add(&env, json!({ "task": "again", "dedup_key": "nightly" }));
        let again = add(&env, json!({ "task": "once", "dedup_key": "nightly" }));
        assert_eq!((first["duplicate"].clone(), again["duplicate"].clone()), (json!(false), json!(true)));
        assert_eq!(first["id"], again["id"]);
        let taken = take(&env, json!({}));
        assert_eq!(add(&env, json!({ "task": "again", "dedup_key": "nightly" }))["duplicate"], true);
        env.execute_json("queue_complete", id_and_fence(&taken[0])).unwrap();
        let next = add(&env, json!({ "task": "again", "dedup_key": "nightly" }));
        assert_eq!(next["duplicate"], false);
        assert_ne!(next["id"], first["id"]);
    }

    fn concurrent_adds_with_one_dedup_key_create_one_item(env: TestEnv) {
        create_tasks(&env);
        let start = Barrier::new(8);
        let answers: Vec<Value> = thread::scope(|scope| {
            let ask = || {
                start.wait();
                add(&env, json!({ "task": "again", "dedup_key": "k" }))
            };
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(ask)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert!(answers.iter().all(|answer| answer["id"] == answers[0]["id"]));
        assert_eq!(answers.iter().filter(|answer| answer["duplicate"] == false).count(), 1);
    }

    fn stale_fences_and_finished_items_are_conflicts(env: TestEnv) {
        create_tasks(&env);
        add(&env, json!({ "task": "again" }));
        let item = take(&env, json!({})).remove(0);
        env.execute_json("queue_release", id_and_fence(&item)).unwrap();
        let second = take(&env, json!({})).remove(0);
        assert_eq!((second["id"].clone(), second["fence"].clone(), second["attempt"].clone()), (item["id"].clone(), json!(2), json!(1)));
        let before = env.snapshot();
        for action in ["queue_complete", "queue_fail", "queue_release", "queue_heartbeat"] {
            let input = if action == "queue_fail" { merged(id_and_fence(&item), json!({ "error": "late" })) } else { id_and_fence(&item) };
            assert_eq!(rejection(env.execute_json(action, input)).0, ErrorKind::Conflict, "{action}");
        }
        before.assert_unchanged(&env.core);
        env.execute_json("queue_complete", merged(id_and_fence(&second), json!({ "result": { "answer": 42 } }))).unwrap();
        let before = env.snapshot();
        for action in ["queue_complete", "queue_cancel", "queue_requeue"] {
            let input = if action == "queue_complete" { id_and_fence(&second) } else { json!({ "id": second["id"] }) };
            assert_eq!(rejection(env.execute_json(action, input)).0, ErrorKind::Conflict, "{action}");
        }
        assert_eq!(rejection(env.execute_json("queue_add", json!({ "task": "nothing" }))).0, ErrorKind::NotFound);
        assert_eq!(rejection(env.execute_json("queue_take", json!({ "id": second["id"] }))).0, ErrorKind::Conflict);
        before.assert_unchanged(&env.core);
    }

    fn every_way_to_complete_cleans_the_texts_of_the_result(env: TestEnv) {
        create_tasks(&env);
        let results = |env: &TestEnv| -> Vec<Value> {
            env.read(|reader| Ok(reader.query::<(Value,)>("select result from queue_items where tenant_id = ?1 order by id", &[])?))
                .into_iter().map(|(result,)| result).collect()
        };
        let result = json!({ "b\u{0}": ["x\u{0}\r\n"], "a": 1 });
        for task in ["again", "again", "again", "once"] {
            add(&env, json!({ "task": task }));
        }
        let items = take(&env, json!({ "batch": 4 }));
        let complete = |item: &Value| -> CompleteItem {
            serde_json::from_value(merged(id_and_fence(item), json!({ "result": result }))).unwrap()
        };
        env.execute_json("queue_complete", merged(id_and_fence(&items[0]), json!({ "result": result }))).unwrap();
        env.core.execute_all(&env.ada, &[complete(&items[1]), complete(&items[2])]).unwrap();
        env.execute(complete(&items[3])).unwrap();
        assert_eq!(results(&env), vec![json!({ "a": 1, "b": ["x\n"] }); 4]);
    }

    fn failed_item_is_retried_after_backoff_until_attempts_are_used_up(env: TestEnv) {
        create_tasks(&env);
        let added = add(&env, json!({ "task": "again", "max_attempts": 2 }));
        let first = take(&env, json!({})).remove(0);
        let failed = env.execute_json("queue_fail", merged(id_and_fence(&first), json!({ "error": "no luck" }))).unwrap();
        assert_eq!(failed["status"], "waiting");
        assert_eq!(run_of(&env, &first), ("failed".into(), Some("error".into())));
        assert_eq!(take(&env, json!({})), Vec::<Value>::new());
        env.advance(Duration::from_millis(1_300));
        let second = take(&env, json!({})).remove(0);
        assert_eq!((second["attempt"].clone(), second["fence"].clone()), (json!(2), json!(2)));
        env.execute_json("queue_fail", merged(id_and_fence(&second), json!({ "error": "never" }))).unwrap();
        assert_eq!(item_state(&env, &added), ("failed".into(), 2, Some("never".into())));
        assert_eq!(env.execute_json("queue_requeue", json!({ "id": added["id"] })).unwrap()["status"], "ready");
        let third = take(&env, json!({})).remove(0);
        assert_eq!((third["attempt"].clone(), third["fence"].clone()), (json!(1), json!(3)));
        let third_failure = env.execute_json("queue_fail", merged(id_and_fence(&third), json!({ "error": "hopeless", "for_good": true }))).unwrap();
        assert_eq!(third_failure["status"], "failed");
    }

    fn expired_lease_ends_run_and_returns_item_to_queue(env: TestEnv) {
        create_tasks(&env);
        let added = add(&env, json!({ "task": "again" }));
        let first = take(&env, json!({ "lease": 1 })).remove(0);
        let run = run_context(&env, &first);
        env.advance(Duration::from_millis(1_100));
        let before = env.snapshot();
        // No action has processed the expired lease yet, and still the run's token is rejected.
        for (action, input) in [
            ("create_note", json!({ "studio": "main", "title": "late" })),
            ("record_step", json!({ "run": first["run_id"], "type": "shell" })),
            ("queue_complete", id_and_fence(&first)),
            ("end_run", json!({ "run": first["run_id"], "status": "completed" })),
        ] {
            assert_eq!(rejection(env.execute_json_as(&run, action, input)).0, ErrorKind::Denied, "{action}");
        }
        assert_eq!(rejection(env.execute_json("queue_complete", id_and_fence(&first))).0, ErrorKind::Conflict);
        assert_eq!(rejection(env.execute_json("queue_heartbeat", id_and_fence(&first))).0, ErrorKind::Conflict);
        before.assert_unchanged(&env.core);
        assert_eq!(take(&env, json!({})), Vec::<Value>::new());
        assert_eq!(item_state(&env, &added), ("waiting".into(), 2, Some("lease expired".into())));
        assert_eq!(run_of(&env, &first), ("timed_out".into(), Some("lease expired".into())));
        env.advance(Duration::from_millis(1_300));
        let second = take(&env, json!({})).remove(0);
        assert_eq!((second["attempt"].clone(), second["fence"].clone()), (json!(2), json!(2)));
        env.execute_json("queue_complete", id_and_fence(&second)).unwrap();
    }

    fn take_requeues_expired_items_even_if_other_items_are_ready(env: TestEnv) {
        create_tasks(&env);
        let lost = add(&env, json!({ "task": "again", "priority": 9 }));
        for _ in 0..3 {
            add(&env, json!({ "task": "again" }));
        }
        take(&env, json!({ "lease": 1 }));
        env.advance(Duration::from_millis(1_100));
        assert_eq!(take(&env, json!({})).len(), 1);
        assert_eq!(item_state(&env, &lost).0, "waiting");
        env.advance(Duration::from_millis(1_300));
        assert_eq!(ids(&take(&env, json!({}))), [lost["id"].clone()]);
    }

    fn task_can_be_claimed_again_after_lease_expires(env: TestEnv) {
        create_tasks(&env);
        let left = env.execute_json("claim", json!({ "lease": 1 })).unwrap();
        assert_eq!((left[0]["variant"].clone(), env.execute_json("claim", json!({})).unwrap()), (json!("once"), json!([])));
        env.advance(Duration::from_millis(1_100));
        let again = env.execute_json("claim", json!({})).unwrap();
        assert_eq!(again[0]["variant"], "once");
        assert_eq!((item_state(&env, &left[0]).0, status_of_task(&env, "once")), ("failed".into(), "in_progress".into()));
    }

    fn notes_steps_and_heartbeats_extend_the_lease(env: TestEnv) {
        create_tasks(&env);
        add(&env, json!({ "task": "again" }));
        let item = take(&env, json!({ "lease": 1 })).remove(0);
        let run = run_context(&env, &item);
        for number in 0..4 {
            env.advance(Duration::from_millis(500));
            match number {
                0 => env.execute_json_as(&run, "create_note", json!({ "studio": "main", "title": "alive" })).unwrap(),
                1 => env.execute_json_as(&run, "record_step", json!({ "run": item["run_id"], "type": "think" })).unwrap(),
                2 => env.execute_json("queue_heartbeat", id_and_fence(&item)).unwrap(),
                _ => env.execute_json_as(&run, "queue_complete", id_and_fence(&item)).unwrap(),
            };
        }
        assert_eq!(run_of(&env, &item), ("completed".into(), Some("completed".into())));
    }

    fn step_extends_lease_after_a_tenth_has_passed(env: TestEnv) {
        create_tasks(&env);
        add(&env, json!({ "task": "again" }));
        let item = take(&env, json!({ "lease": 10 })).remove(0);
        let run = run_context(&env, &item);
        let step = || env.execute_json_as(&run, "record_step", json!({ "run": item["run_id"], "type": "think" })).unwrap();
        let lease = || {
            let id: uuid::Uuid = item["id"].as_str().unwrap().parse().unwrap();
            let read = "select lease_expires, heartbeat_at from queue_items where tenant_id = ?1 and id = ?2";
            env.read(|reader| Ok(reader.one::<(Time, Time)>(read, params![id])?)).unwrap()
        };
        let taken = lease();

        step();
        assert_eq!(lease(), taken);

        env.advance(Duration::from_millis(1_100));
        step();
        let (expires, heartbeat) = lease();
        assert_eq!(expires, heartbeat.plus_seconds(10));
        assert!(heartbeat > taken.1.plus_seconds(1));
    }

    fn items_with_same_concurrency_key_run_one_at_a_time_in_order(env: TestEnv) {
        create_tasks(&env);
        let keyed = |priority| json!({ "task": "again", "concurrency_key": "deploy", "priority": priority });
        let first = add(&env, keyed(0));
        let second = add(&env, keyed(0));
        let urgent = add(&env, keyed(9));
        let other = add(&env, json!({ "task": "again" }));
        let taken = take(&env, json!({ "batch": 10 }));
        assert_eq!(ids(&taken), [urgent["id"].clone(), other["id"].clone()]);
        env.execute_json("queue_fail", merged(id_and_fence(&taken[0]), json!({ "error": "again" }))).unwrap();
        // An item in backoff holds its concurrency key.
        assert_eq!(take(&env, json!({ "batch": 10 })), Vec::<Value>::new());
        assert_eq!(rejection(env.execute_json("queue_take", json!({ "id": first["id"] }))), (
            ErrorKind::Conflict,
            format!("queue item {} waits for another item with the same concurrency key", &first["id"].as_str().unwrap()[28..]),
        ));
        env.advance(Duration::from_millis(1_300));
        let again = take(&env, json!({ "batch": 10 }));
        assert_eq!(ids(&again), [urgent["id"].clone()]);
        env.execute_json("queue_complete", id_and_fence(&again[0])).unwrap();
        let next = take(&env, json!({ "batch": 10 }));
        assert_eq!(ids(&next), [first["id"].clone()]);
        env.execute_json("queue_cancel", json!({ "id": first["id"] })).unwrap();
        assert_eq!(ids(&take(&env, json!({ "batch": 10 }))), [second["id"].clone()]);
    }

    fn agent_holds_at_most_max_items(env: TestEnv) {
        create_tasks(&env);
        env.agent("ada-bot");
        for _ in 0..5 {
            add(&env, json!({ "task": "again" }));
        }
        let start = Barrier::new(6);
        let taken: usize = thread::scope(|scope| {
            let race = || {
                start.wait();
                take(&env, json!({ "agent": "ada-bot", "batch": 3 })).len()
            };
            let threads: Vec<_> = (0..6).map(|_| scope.spawn(race)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).sum()
        });
        assert_eq!(taken, 1);
        env.execute_json("set_agent", json!({ "handle": "ada-bot", "max_items": 3 })).unwrap();
        assert_eq!(take(&env, json!({ "agent": "ada-bot", "batch": 10 })).len(), 2);
        assert_eq!(take(&env, json!({ "agent": "ada-bot" })).len(), 0);
        let rest = [(); 2].map(|()| take(&env, json!({ "batch": 10 })).len());
        match env.core.store().engine() {
            Engine::Sqlite => assert_eq!(rest, [2, 0]),
            // The fast path skips an item that a concurrent take locked without taking it. While other sessions of the
            // server write, it may still skip the item after that take has ended (decision 14, point 11).
            Engine::Postgres => assert!(rest == [2, 0] || rest == [1, 1], "{rest:?}"),
        }
    }

    fn items_are_taken_only_by_their_agent_or_role(env: TestEnv) {
        create_tasks(&env);
        env.role("coder");
        env.role("reviewer");
        for (handle, role) in [("coder-bot", "coder"), ("review-bot", "reviewer")] {
            env.execute_json("set_agent", json!({ "handle": handle, "role": role, "max_items": "" })).unwrap();
        }
        let named = add(&env, json!({ "task": "again", "agent": "coder-bot" }));
        let coder = add(&env, json!({ "task": "again", "role": "coder" }));
        let free = add(&env, json!({ "task": "again" }));
        assert_eq!(rejection(env.execute_json("queue_take", json!({ "agent": "review-bot", "id": coder["id"] }))).0, ErrorKind::Conflict);
        assert_eq!(rejection(env.execute_json("queue_take", json!({ "id": named["id"] }))).0, ErrorKind::Conflict);
        assert_eq!(ids(&take(&env, json!({ "agent": "review-bot" }))), [free["id"].clone()]);
        assert_eq!(take(&env, json!({ "agent": "review-bot" })), Vec::<Value>::new());
        // The worker takes items for any role, but no items that name an agent.
        assert_eq!(ids(&take(&env, json!({ "batch": 5 }))), [coder["id"].clone()]);
        assert_eq!(ids(&take(&env, json!({ "agent": "coder-bot", "batch": 5 }))), [named["id"].clone()]);
    }

    fn item_is_not_taken_before_its_start_time(env: TestEnv) {
        create_tasks(&env);
        let soon = Time::from_micros(env.now().micros() + 400_000);
        let later = add(&env, json!({ "task": "again", "not_before": soon.to_string(), "priority": 9 }));
        assert_eq!(later["status"], "waiting");
        let now = add(&env, json!({ "task": "again", "not_before": "2020-01-01T00:00:00Z" }));
        assert_eq!(now["status"], "ready");
        assert_eq!(ids(&take(&env, json!({ "batch": 5 }))), [now["id"].clone()]);
        add(&env, json!({ "task": "again" }));
        env.advance(Duration::from_millis(500));
        assert_eq!(ids(&take(&env, json!({}))), [later["id"].clone()]);
    }

    fn waiting_items_notify_listeners(env: TestEnv) {
        create_tasks(&env);
        let mut listener = Listener::connect(&env.database.url()).unwrap();
        let later = env.now().plus_seconds(3_600);
        add(&env, json!({ "task": "again", "not_before": later.to_string() }));
        assert!(listener.wait(Duration::from_mins(1)).unwrap());
        add(&env, json!({ "task": "again" }));
        let item = take(&env, json!({})).remove(0);
        while listener.wait(Duration::from_millis(1)).unwrap() {}
        env.execute_json("queue_fail", merged(id_and_fence(&item), json!({ "error": "again" }))).unwrap();
        assert!(listener.wait(Duration::from_mins(1)).unwrap());
    }

    fn item_inherits_role_of_its_task(env: TestEnv) {
        create_tasks(&env);
        env.role("coder");
        env.role("reviewer");
        env.execute_json("set_task", json!({ "workflow": "ops", "variant": "again", "role": "coder" })).unwrap();
        for (handle, role) in [("coder-bot", "coder"), ("review-bot", "reviewer")] {
            env.execute_json("set_agent", json!({ "handle": handle, "role": role, "max_items": "" })).unwrap();
        }
        // Three ways to add: the fast path, with a deduplication key, and in bulk.
        let first = add(&env, json!({ "task": "again" }));
        let second = add(&env, json!({ "task": "again", "dedup_key": "k" }));
        let both = env.core.execute_all(&env.ada, &[AddItem::of(Ref::new("again")), AddItem::of(Ref::new("again"))]).unwrap();
        let other = add(&env, json!({ "task": "again", "role": "reviewer" }));
        assert_eq!(ids(&take(&env, json!({ "agent": "review-bot", "batch": 9 }))), [other["id"].clone()]);
        let rest = [first["id"].clone(), second["id"].clone(), json!(both[0].id), json!(both[1].id)];
        assert_eq!(ids(&take(&env, json!({ "agent": "coder-bot", "batch": 9 }))), rest);
    }

    fn ending_a_run_twice_is_conflict_for_people_and_denied_for_the_run(env: TestEnv) {
        create_tasks(&env);
        add(&env, json!({ "task": "again" }));
        let item = take(&env, json!({})).remove(0);
        let run = run_context(&env, &item);
        env.execute_json("queue_complete", id_and_fence(&item)).unwrap();
        let end = json!({ "run": item["run_id"], "status": "completed" });
        let already = format!("run {} is already completed", &item["run_id"].as_str().unwrap()[28..]);
        assert_eq!(rejection(env.execute_json("end_run", end.clone())), (ErrorKind::Conflict, already.clone()));
        assert_eq!(rejection(env.execute_json("cancel_run", json!({ "run": item["run_id"] }))), (ErrorKind::Conflict, already));
        assert_eq!(rejection(env.execute_json_as(&run, "end_run", end)).0, ErrorKind::Denied);
    }

    fn items_beyond_the_chain_depth_limit_are_blocked(env: TestEnv) {
        create_tasks(&env);
        add(&env, json!({ "task": "again" }));
        for depth in 0..16 {
            let item = take(&env, json!({})).remove(0);
            let run = run_context(&env, &item);
            let next = env.execute_json_as(&run, "queue_add", json!({ "task": "again" })).unwrap();
            assert_eq!(next["status"], "ready", "{depth}");
            env.execute_json("queue_complete", id_and_fence(&item)).unwrap();
        }
        let item = take(&env, json!({})).remove(0);
        let run = run_context(&env, &item);
        let last = env.execute_json_as(&run, "queue_add", json!({ "task": "once", "why": "the gate is open" })).unwrap();
        assert_eq!(last["status"], "blocked");
        let (why, depth): (String, i64) = env.read(|reader| {
            Ok(reader.one("select why, chain_depth from queue_items where tenant_id = ?1 and status = 'blocked'", &[])?.unwrap())
        });
        assert_eq!(depth, 17);
        assert_eq!(why, format!("the chain of runs is 17 deep, above the limit of 16: {}once\nthe gate is open", "again → ".repeat(17)));
        assert_eq!(take(&env, json!({})), Vec::<Value>::new());
        assert_eq!(env.execute_json("queue_requeue", json!({ "id": last["id"] })).unwrap()["status"], "ready");
        let why = env.read(|reader| {
            Ok(reader.one::<(String,)>("select why from queue_items where tenant_id = ?1 and chain_depth = 17", &[])?.unwrap())
        });
        assert_eq!(why.0, "the gate is open");
    }

    fn item_changes_status_of_its_non_recurring_task(env: TestEnv) {
        create_tasks(&env);
        env.execute_json("set_task", json!({ "workflow": "ops", "variant": "after" })).unwrap();
        env.execute_json("add_link", json!({ "from": "once", "to": "after", "type": "blocks" })).unwrap();
        let ready = |env: &TestEnv| {
            env.read(|reader| {
                let ready = reader.query::<(String,)>(
                    &format!("select t.variant from tasks t where {}", trackway_store::queue::READY_TASK_CONDITION), &[])?;
                Ok(ready.into_iter().map(|(variant,)| variant).collect::<Vec<_>>())
            })
        };
        assert_eq!(ready(&env), ["once"]);
        let claimed = env.execute_json("claim", json!({})).unwrap().as_array().unwrap().clone();
        assert_eq!((claimed[0]["variant"].clone(), status_of_task(&env, "once")), (json!("once"), "in_progress".into()));
        assert_eq!(env.execute_json("claim", json!({})).unwrap(), json!([]));
        env.execute_json("queue_fail", merged(id_and_fence(&claimed[0]), json!({ "error": "not today" }))).unwrap();
        assert_eq!((status_of_task(&env, "once"), ready(&env)), ("open".into(), vec!["once".to_owned()]));
        let claimed = env.execute_json("claim", json!({})).unwrap().as_array().unwrap().clone();
        env.execute_json("queue_complete", id_and_fence(&claimed[0])).unwrap();
        assert_eq!((status_of_task(&env, "once"), ready(&env)), ("done".into(), vec!["after".to_owned()]));
        // A task with an unfinished queue item is not ready.
        add(&env, json!({ "task": "after" }));
        assert_eq!(ready(&env), Vec::<String>::new());
        add(&env, json!({ "task": "again" }));
        let items = take(&env, json!({ "batch": 2 }));
        for item in &items {
            env.execute_json("queue_complete", id_and_fence(item)).unwrap();
        }
        assert_eq!((status_of_task(&env, "after"), status_of_task(&env, "again")), ("done".into(), "open".into()));
    }

    fn concurrent_claims_get_different_tasks(env: TestEnv) {
        env.workflow("ops");
        for number in 0..20 {
            env.task("ops", &format!("t/{number}"));
        }
        let start = Barrier::new(8);
        let mut claimed: Vec<String> = thread::scope(|scope| {
            let race = || {
                start.wait();
                let mut own = Vec::new();
                while let Some(item) = env.execute_json("claim", json!({})).unwrap().as_array().unwrap().first() {
                    own.push(item["variant"].as_str().unwrap().to_owned());
                }
                own
            };
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(race)).collect();
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
        });
        claimed.sort();
        let mut all: Vec<String> = (0..20).map(|number| format!("t/{number}")).collect();
        all.sort();
        assert_eq!(claimed, all);
    }

    fn bulk_actions_process_all_items_or_none(env: TestEnv) {
        create_tasks(&env);
        let task = || Ref::new("again");
        let mut items: Vec<AddItem> = (0..300).map(|_| AddItem::of(task())).collect();
        items.push(AddItem { dedup_key: Some("k".into()), ..AddItem::of(task()) });
        items.push(AddItem { dedup_key: Some("k".into()), ..AddItem::of(task()) });
        let added: Vec<AddedItem> = env.core.execute_all(&env.ada, &items).unwrap();
        assert_eq!(added.iter().filter(|added| added.duplicate).count(), 1);
        let taken = env.core.execute(&env.ada, &TakeItems { batch: Some(1_000), ..TakeItems::default() }).unwrap();
        let order: Vec<_> = taken.iter().map(|taken| taken.id).collect();
        assert_eq!(order, added[..301].iter().map(|added| added.id).collect::<Vec<_>>());
        let done: Vec<CompleteItem> = taken
            .iter()
            .map(|taken| CompleteItem { id: taken.id.into(), fence: taken.fence, result: Some(json!({ "n": 1 })) })
            .collect();
        let before = env.snapshot();
        let mut with_a_stale_one = taken.iter().map(|taken| CompleteItem { id: taken.id.into(), fence: taken.fence, result: None }).collect::<Vec<_>>();
        with_a_stale_one[200].fence = 7;
        assert_eq!(rejection(env.core.execute_all(&env.ada, &with_a_stale_one)).0, ErrorKind::Conflict);
        before.assert_unchanged(&env.core);
        assert_eq!(env.core.execute_all(&env.ada, &done).unwrap().len(), 301);
        let counts: Vec<(String, i64)> = env.read(|reader| {
            Ok(reader.query("select r.status, count(*) from queue_items q join runs r on r.id = q.run_id where q.tenant_id = ?1 and q.status = 'completed' and q.fence = r.fence group by r.status", &[])?)
        });
        assert_eq!(counts, [("completed".to_owned(), 301)]);
        let events = env.events();
        for (action, count) in [("queue_add", 301), ("queue_take", 301), ("queue_complete", 301)] {
            assert_eq!(events.iter().filter(|(name, _)| name == action).count(), count, "{action}");
        }
    }

    fn item_for_agent_worker_is_taken_without_naming_an_agent(env: TestEnv) {
        create_tasks(&env);
        let added = add(&env, json!({ "task": "again", "agent": "worker" }));
        assert_eq!(ids(&take(&env, json!({}))), [added["id"].clone()]);
    }

    fn deleting_a_task_blocks_its_items(env: TestEnv) {
        create_tasks(&env);
        let (running, waiting) = (add(&env, json!({ "task": "again" })), add(&env, json!({ "task": "again" })));
        let item = take(&env, json!({})).remove(0);
        env.execute_json("delete_task", json!({ "task": "again" })).unwrap();
        assert_eq!(item_state(&env, &waiting).0, "blocked");
        env.execute_json("queue_fail", merged(id_and_fence(&item), json!({ "error": "no" }))).unwrap();
        assert_eq!(item_state(&env, &running).0, "blocked");
        for item in [&running, &waiting] {
            assert_eq!(rejection(env.execute_json("queue_requeue", json!({ "id": item["id"] }))).0, ErrorKind::Conflict);
        }
    }

    fn run_can_complete_only_its_own_item(env: TestEnv) {
        create_tasks(&env);
        add(&env, json!({ "task": "again" }));
        add(&env, json!({ "task": "again" }));
        let items = take(&env, json!({ "batch": 2 }));
        let run = run_context(&env, &items[0]);
        assert_eq!(rejection(env.execute_json_as(&run, "queue_complete", id_and_fence(&items[1]))).0, ErrorKind::Denied);
        env.execute_json_as(&run, "end_run", json!({ "run": items[0]["run_id"], "status": "completed", "result": [1] })).unwrap();
        assert_eq!(item_state(&env, &items[0]).0, "completed");
        env.execute_json("cancel_run", json!({ "run": items[1]["run_id"] })).unwrap();
        assert_eq!(item_state(&env, &items[1]).0, "cancelled");
    }
}

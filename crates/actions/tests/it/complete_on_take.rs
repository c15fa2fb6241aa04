//! `queue take --done`: completing items and taking the next ones is atomic.

use std::{thread, time::Duration};

use serde_json::{Value, json};
use trackway_actions::{Context, Credential, Result, context::Secret};
use trackway_domain::{ErrorKind, Id, kind};
use trackway_store::{Engine, connection::Connection, params};
use trackway_testkit::{TestEnv, engines, wait_until};

/// Creates a recurring task `again`, a task `once`, and some items of `again`.
fn add_items(env: &TestEnv, items: usize) -> Vec<Value> {
    env.workflow("ops");
    env.execute_json("set_task", json!({ "workflow": "ops", "variant": "again", "recurring": true })).unwrap();
    env.execute_json("set_task", json!({ "workflow": "ops", "variant": "once" })).unwrap();
    (0..items).map(|_| env.execute_json("queue_add", json!({ "task": "again" })).unwrap()["id"].clone()).collect()
}

fn take(env: &TestEnv, input: Value) -> Vec<Value> {
    env.execute_json("queue_take", input).unwrap().as_array().unwrap().clone()
}

fn completed_refs(taken: &[Value]) -> Vec<String> {
    taken.iter().map(|item| format!("{}:{}", item["id"].as_str().unwrap(), item["fence"])).collect()
}

fn ids(taken: &[Value]) -> Vec<Value> {
    taken.iter().map(|item| item["id"].clone()).collect()
}

fn rejection(outcome: Result<Value>) -> (ErrorKind, String) {
    let error = outcome.unwrap_err();
    (error.kind(), error.to_string())
}

/// The item's status, whether the item is finished and has no lease, the run's status, and whether the run has ended
/// and has no token.
fn item_and_run_state(env: &TestEnv, taken: &Value) -> (String, bool, String, bool) {
    let id: Id<kind::QueueItem> = taken["id"].as_str().unwrap().parse::<uuid::Uuid>().unwrap().into();
    env.read(|reader| {
        let sql = "select q.status, q.finished_at is not null and q.lease_expires is null, r.status, r.ended_at is not null and r.token_hash is null
            from queue_items q join runs r on r.id = q.run_id where q.tenant_id = ?1 and q.id = ?2";
        Ok(reader.one(sql, params![id])?.unwrap())
    })
}

fn completed_state() -> (String, bool, String, bool) {
    ("completed".to_owned(), true, "completed".to_owned(), true)
}

fn held_state() -> (String, bool, String, bool) {
    ("running".to_owned(), false, "running".to_owned(), false)
}

/// The events of the log after the first `since` events.
fn log_since(env: &TestEnv, since: usize) -> Vec<(String, String)> {
    env.events().split_off(since)
}

fn authenticate(env: &TestEnv, taken: &Value) -> Result<Context> {
    env.core.authenticate(&Credential::Token(Secret(taken["token"].as_str().unwrap().to_owned())))
}

engines! {
    fn take_completes_items_and_takes_the_next(env: TestEnv) {
        let added = add_items(&env, 3);
        let first = take(&env, json!({}));
        let before = env.events().len();

        let second = take(&env, json!({ "done": completed_refs(&first) }));

        assert_eq!(ids(&second), [added[1].clone()]);
        assert_eq!((item_and_run_state(&env, &first[0]), item_and_run_state(&env, &second[0])), (completed_state(), held_state()));
        assert_eq!(authenticate(&env, &first[0]).unwrap_err().kind(), ErrorKind::Denied);
        assert!(authenticate(&env, &second[0]).is_ok());
        let short = |id: &Value| format!("queue/{}", &id.as_str().unwrap()[28..]);
        assert_eq!(log_since(&env, before), [
            ("queue_complete".to_owned(), short(&added[0])),
            ("queue_take".to_owned(), short(&added[1])),
        ]);

        // `--done` accepts the short form of an id. A named agent can use it too.
        let short = format!("{}:1", &added[1].as_str().unwrap()[28..]);
        let third = take(&env, json!({ "done": [short], "agent": "worker" }));
        assert_eq!(ids(&third), [added[2].clone()]);
        assert_eq!(item_and_run_state(&env, &second[0]), completed_state());
    }

    fn take_completes_items_even_if_the_queue_is_empty(env: TestEnv) {
        add_items(&env, 1);
        let only = take(&env, json!({}));
        assert_eq!(take(&env, json!({ "done": completed_refs(&only) })), Vec::<Value>::new());
        assert_eq!(item_and_run_state(&env, &only[0]), completed_state());
    }

    fn take_completes_and_takes_in_batches(env: TestEnv) {
        let added = add_items(&env, 250);
        let mut held_now: Vec<Value> = Vec::new();
        let mut taken_ids = Vec::new();
        loop {
            held_now = take(&env, json!({ "batch": 100, "done": completed_refs(&held_now) }));
            if held_now.is_empty() {
                break;
            }
            taken_ids.extend(ids(&held_now));
        }
        assert_eq!(taken_ids, added);
        let counts: Vec<(String, String, i64)> = env.read(|reader| {
            Ok(reader.query("select q.status, r.status, count(*) from queue_items q join runs r on r.id = q.run_id where q.tenant_id = ?1 group by q.status, r.status", &[])?)
        });
        assert_eq!(counts, [("completed".to_owned(), "completed".to_owned(), 250)]);
        let events = env.events();
        for action in ["queue_add", "queue_take", "queue_complete"] {
            assert_eq!(events.iter().filter(|(name, _)| name == action).count(), 250, "{action}");
        }
    }

    fn take_rejects_items_that_cannot_be_completed(env: TestEnv) {
        add_items(&env, 5);
        let items = take(&env, json!({ "batch": 2 }));
        let before = env.snapshot();
        let ids = completed_refs(&items);
        let whole = items[0]["id"].as_str().unwrap();
        for (wrong, kind) in [
            (vec![format!("{whole}:7")], ErrorKind::Conflict),
            (vec![ids[0].clone(), format!("{}:9", items[1]["id"].as_str().unwrap())], ErrorKind::Conflict),
            // The same item twice.
            (vec![ids[0].clone(), ids[0].clone()], ErrorKind::Conflict),
            (vec![format!("{}:1", uuid::Uuid::nil())], ErrorKind::NotFound),
            (vec!["ffffffff:1".to_owned()], ErrorKind::NotFound),
            (vec![whole.to_owned()], ErrorKind::Usage),
            (vec![":1".to_owned()], ErrorKind::Usage),
            (vec![format!("{whole}:")], ErrorKind::Usage),
            (vec![format!("{whole}:99999999999999999999")], ErrorKind::Usage),
            (vec![ids[0].clone(); 1_001], ErrorKind::Usage),
        ] {
            assert_eq!(rejection(env.execute_json("queue_take", json!({ "done": wrong }))).0, kind, "{wrong:?}");
            before.assert_unchanged(&env.core);
        }

        env.execute_json("queue_complete", json!({ "id": whole, "fence": 1 })).unwrap();
        let before = env.snapshot();
        assert_eq!(rejection(env.execute_json("queue_take", json!({ "done": ids }))).0, ErrorKind::Conflict);
        before.assert_unchanged(&env.core);
        assert_eq!(item_and_run_state(&env, &items[1]), held_state());
    }

    fn completion_by_take_closes_task_and_frees_concurrency_key(env: TestEnv) {
        add_items(&env, 0);
        env.execute_json("queue_add", json!({ "task": "once" })).unwrap();
        let keyed = [0, 1].map(|_| env.execute_json("queue_add", json!({ "task": "again", "concurrency_key": "k" })).unwrap()["id"].clone());
        let once = take(&env, json!({}));
        let first = take(&env, json!({ "done": completed_refs(&once) }));
        assert_eq!(ids(&first), [keyed[0].clone()]);
        let status: Option<(String,)> = env.read(|reader| {
            Ok(reader.one("select status from tasks where tenant_id = ?1 and variant = 'once'", &[])?)
        });
        assert_eq!(status.unwrap().0, "done");

        let second = take(&env, json!({ "done": completed_refs(&first) }));
        assert_eq!(ids(&second), [keyed[1].clone()]);
    }

    fn take_cannot_complete_item_with_expired_lease(env: TestEnv) {
        add_items(&env, 2);
        let late = take(&env, json!({ "lease": 1 }));
        env.advance(Duration::from_secs(1));
        let (kind, message) = rejection(env.execute_json("queue_take", json!({ "done": completed_refs(&late) })));
        assert_eq!(kind, ErrorKind::Conflict);
        assert!(message.contains("the lease of queue item"), "{message}");
        assert_eq!(item_and_run_state(&env, &late[0]), held_state());
    }

    fn run_token_cannot_take_items(env: TestEnv) {
        add_items(&env, 2);
        let taken = take(&env, json!({}));
        let run = authenticate(&env, &taken[0]).unwrap();
        let before = env.snapshot();
        assert_eq!(rejection(env.execute_json_as(&run, "queue_take", json!({ "done": completed_refs(&taken) }))).0, ErrorKind::Denied);
        before.assert_unchanged(&env.core);
    }
}

/// A released item is taken again before younger items, even while another transaction stays open.
#[test]
fn released_item_keeps_its_turn_during_long_transaction() {
    let env = TestEnv::new(Engine::Postgres);
    let added = add_items(&env, 3);
    let url = env.database.url_text();
    let mut lasting = Connection::postgres(&url).unwrap();
    lasting.batch("begin; select pg_current_xact_id()").unwrap();
    let first = take(&env, json!({}));
    env.execute_json("queue_release", json!({ "id": first[0]["id"], "fence": first[0]["fence"] })).unwrap();
    let again = take(&env, json!({}));
    assert_eq!(ids(&again), [added[0].clone()]);

    // A take skips an item that another transaction has locked.
    let mut other = Connection::postgres(&url).unwrap();
    other
        .batch(&format!("begin; select 1 from queue_items where id = '{}' for update", added[1].as_str().unwrap()))
        .unwrap();
    let next = take(&env, json!({ "done": completed_refs(&again) }));
    assert_eq!(ids(&next), [added[2].clone()]);
    other.batch("rollback").unwrap();
    // The skipped item can be taken after its lock is released.
    assert_eq!(ids(&take(&env, json!({ "done": completed_refs(&next) }))), [added[1].clone()]);
    lasting.batch("rollback").unwrap();
}

/// If an item is taken while another take searches, the searching take must not lock the item, because the holder would
/// have to wait.
#[test]
fn take_skips_item_that_was_taken_during_its_search() {
    let env = TestEnv::new(Engine::Postgres);
    let added = add_items(&env, 3);
    let url = env.database.url_text();
    let taken = take(&env, json!({}));
    let mut other = Connection::postgres(&url).unwrap();
    // This lock makes the next take wait after its search has begun.
    other
        .batch(&format!("begin; select 1 from queue_items where id = '{}' for update", added[0].as_str().unwrap()))
        .unwrap();
    let (meanwhile, waited) = thread::scope(|scope| {
        let waiting = scope.spawn(|| take(&env, json!({ "done": completed_refs(&taken) })));
        let mut looking = Connection::postgres(&url).unwrap();
        let sql =
            "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'";
        wait_until("one session waits for a lock", Duration::from_mins(1), || {
            (looking.query::<(i64,)>(sql, &[]).unwrap() == [(1,)]).then_some(())
        });
        let meanwhile = take(&env, json!({}));
        other.batch("rollback").unwrap();
        (meanwhile, waiting.join().unwrap())
    });
    assert_eq!((ids(&meanwhile), ids(&waited)), (vec![added[1].clone()], vec![added[2].clone()]));
    // `xmax = xmin`: only the transaction that took the item has locked its row.
    let sql = format!("select xmax = xmin from queue_items where id = '{}'", added[1].as_str().unwrap());
    assert_eq!(other.query::<(bool,)>(&sql, &[]).unwrap(), [(true,)]);
}

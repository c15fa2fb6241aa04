//! Completing an item by taking the next: both happen, or neither.

use std::{thread, time::Duration};

use serde_json::{Value, json};
use trackway_actions::{Context, Credential, Result, context::Secret};
use trackway_domain::{ErrorKind, Id, kind};
use trackway_store::{Engine, connection::Connection, params};
use trackway_testkit::{TestEnv, engines, wait_until};

/// A task that is run again and again, one that is done once, and so many items of the first.
fn filled(env: &TestEnv, items: usize) -> Vec<Value> {
    env.workflow("ops");
    env.act("set_task", json!({ "workflow": "ops", "variant": "again", "recurring": true })).unwrap();
    env.act("set_task", json!({ "workflow": "ops", "variant": "once" })).unwrap();
    (0..items).map(|_| env.act("queue_add", json!({ "task": "again" })).unwrap()["id"].clone()).collect()
}

fn take(env: &TestEnv, input: Value) -> Vec<Value> {
    env.act("queue_take", input).unwrap().as_array().unwrap().clone()
}

fn done(taken: &[Value]) -> Vec<String> {
    taken.iter().map(|item| format!("{}:{}", item["id"].as_str().unwrap(), item["fence"])).collect()
}

fn ids(taken: &[Value]) -> Vec<Value> {
    taken.iter().map(|item| item["id"].clone()).collect()
}

fn refused(outcome: Result<Value>) -> (ErrorKind, String) {
    let error = outcome.unwrap_err();
    (error.kind(), error.to_string())
}

/// How an item and its run stand.
fn stands(env: &TestEnv, taken: &Value) -> (String, bool, String, bool) {
    let id: Id<kind::QueueItem> = taken["id"].as_str().unwrap().parse::<uuid::Uuid>().unwrap().into();
    env.read(|reader| {
        let sql = "select q.status, q.finished_at is not null and q.lease_expires is null, r.status, r.ended_at is not null and r.token_hash is null
            from queue_items q join runs r on r.id = q.run_id where q.tenant_id = ?1 and q.id = ?2";
        Ok(reader.one(sql, params![id])?.unwrap())
    })
}

fn over() -> (String, bool, String, bool) {
    ("completed".to_owned(), true, "completed".to_owned(), true)
}

fn held() -> (String, bool, String, bool) {
    ("running".to_owned(), false, "running".to_owned(), false)
}

/// What the log says of the queue, since so many entries.
fn told(env: &TestEnv, since: usize) -> Vec<(String, String)> {
    env.events().split_off(since)
}

fn enter(env: &TestEnv, taken: &Value) -> Result<Context> {
    env.core.enter(&Credential::Token(Secret(taken["token"].as_str().unwrap().to_owned())))
}

engines! {
    fn the_next_is_taken_when_one_is_done(env: TestEnv) {
        let added = filled(&env, 3);
        let first = take(&env, json!({}));
        let before = env.events().len();

        let second = take(&env, json!({ "done": done(&first) }));

        assert_eq!(ids(&second), [added[1].clone()]);
        assert_eq!((stands(&env, &first[0]), stands(&env, &second[0])), (over(), held()));
        assert_eq!(enter(&env, &first[0]).unwrap_err().kind(), ErrorKind::Denied);
        assert!(enter(&env, &second[0]).is_ok());
        let short = |id: &Value| format!("queue/{}", &id.as_str().unwrap()[28..]);
        assert_eq!(told(&env, before), [
            ("queue_complete".to_owned(), short(&added[0])),
            ("queue_take".to_owned(), short(&added[1])),
        ]);

        // The short form of an id will do, and agents that are named take the same way.
        let short = format!("{}:1", &added[1].as_str().unwrap()[28..]);
        let third = take(&env, json!({ "done": [short], "agent": "worker" }));
        assert_eq!(ids(&third), [added[2].clone()]);
        assert_eq!(stands(&env, &second[0]), over());
    }

    fn what_is_done_is_completed_though_nothing_is_left(env: TestEnv) {
        filled(&env, 1);
        let only = take(&env, json!({}));
        assert_eq!(take(&env, json!({ "done": done(&only) })), Vec::<Value>::new());
        assert_eq!(stands(&env, &only[0]), over());
    }

    fn many_are_done_and_taken_in_one_go(env: TestEnv) {
        let added = filled(&env, 250);
        let mut held_now: Vec<Value> = Vec::new();
        let mut seen = Vec::new();
        loop {
            held_now = take(&env, json!({ "batch": 100, "done": done(&held_now) }));
            if held_now.is_empty() {
                break;
            }
            seen.extend(ids(&held_now));
        }
        assert_eq!(seen, added);
        let counts: Vec<(String, String, i64)> = env.read(|reader| {
            Ok(reader.query("select q.status, r.status, count(*) from queue_items q join runs r on r.id = q.run_id where q.tenant_id = ?1 group by q.status, r.status", &[])?)
        });
        assert_eq!(counts, [("completed".to_owned(), "completed".to_owned(), 250)]);
        let events = env.events();
        for action in ["queue_add", "queue_take", "queue_complete"] {
            assert_eq!(events.iter().filter(|(name, _)| name == action).count(), 250, "{action}");
        }
    }

    fn what_cannot_be_completed_takes_nothing(env: TestEnv) {
        filled(&env, 5);
        let items = take(&env, json!({ "batch": 2 }));
        let before = env.snapshot();
        let ids = done(&items);
        let whole = items[0]["id"].as_str().unwrap();
        for (wrong, kind) in [
            (vec![format!("{whole}:7")], ErrorKind::Conflict),
            (vec![ids[0].clone(), format!("{}:9", items[1]["id"].as_str().unwrap())], ErrorKind::Conflict),
            // Twice.
            (vec![ids[0].clone(), ids[0].clone()], ErrorKind::Conflict),
            (vec![format!("{}:1", uuid::Uuid::nil())], ErrorKind::NotFound),
            (vec!["ffffffff:1".to_owned()], ErrorKind::NotFound),
            (vec![whole.to_owned()], ErrorKind::Usage),
            (vec![":1".to_owned()], ErrorKind::Usage),
            (vec![format!("{whole}:")], ErrorKind::Usage),
            (vec![format!("{whole}:99999999999999999999")], ErrorKind::Usage),
            (vec![ids[0].clone(); 1_001], ErrorKind::Usage),
        ] {
            assert_eq!(refused(env.act("queue_take", json!({ "done": wrong }))).0, kind, "{wrong:?}");
            before.assert_unchanged(&env.core);
        }

        env.act("queue_complete", json!({ "id": whole, "fence": 1 })).unwrap();
        let before = env.snapshot();
        assert_eq!(refused(env.act("queue_take", json!({ "done": ids }))).0, ErrorKind::Conflict);
        before.assert_unchanged(&env.core);
        assert_eq!(stands(&env, &items[1]), held());
    }

    fn a_task_that_is_done_once_and_a_key_are_let_go(env: TestEnv) {
        filled(&env, 0);
        env.act("queue_add", json!({ "task": "once" })).unwrap();
        let keyed = [0, 1].map(|_| env.act("queue_add", json!({ "task": "again", "concurrency_key": "k" })).unwrap()["id"].clone());
        let once = take(&env, json!({}));
        let first = take(&env, json!({ "done": done(&once) }));
        assert_eq!(ids(&first), [keyed[0].clone()]);
        let status: Option<(String,)> = env.read(|reader| {
            Ok(reader.one("select status from tasks where tenant_id = ?1 and variant = 'once'", &[])?)
        });
        assert_eq!(status.unwrap().0, "done");

        let second = take(&env, json!({ "done": done(&first) }));
        assert_eq!(ids(&second), [keyed[1].clone()]);
    }

    fn a_lease_that_is_over_is_not_done(env: TestEnv) {
        filled(&env, 2);
        let late = take(&env, json!({ "lease": 1 }));
        env.advance(Duration::from_secs(1));
        let (kind, message) = refused(env.act("queue_take", json!({ "done": done(&late) })));
        assert_eq!(kind, ErrorKind::Conflict);
        assert!(message.contains("the lease of queue item"), "{message}");
        assert_eq!(stands(&env, &late[0]), held());
    }

    fn a_token_of_a_run_completes_without_taking(env: TestEnv) {
        filled(&env, 2);
        let taken = take(&env, json!({}));
        let run = enter(&env, &taken[0]).unwrap();
        let before = env.snapshot();
        assert_eq!(refused(env.act_as(&run, "queue_take", json!({ "done": done(&taken) }))).0, ErrorKind::Denied);
        before.assert_unchanged(&env.core);
    }
}

/// What was taken and given back does not wait for younger ones, however long somebody else's transaction lasts.
#[test]
fn what_somebody_was_at_and_left_is_taken_in_its_turn() {
    let env = TestEnv::new(Engine::Postgres);
    let added = filled(&env, 3);
    let url = env.database.url_text();
    let mut lasting = Connection::postgres(&url).unwrap();
    lasting.batch("begin; select pg_current_xact_id()").unwrap();
    let first = take(&env, json!({}));
    env.act("queue_release", json!({ "id": first[0]["id"], "fence": first[0]["fence"] })).unwrap();
    let again = take(&env, json!({}));
    assert_eq!(ids(&again), [added[0].clone()]);

    // One that is held by somebody is passed by.
    let mut other = Connection::postgres(&url).unwrap();
    other
        .batch(&format!("begin; select 1 from queue_items where id = '{}' for update", added[1].as_str().unwrap()))
        .unwrap();
    let next = take(&env, json!({ "done": done(&again) }));
    assert_eq!(ids(&next), [added[2].clone()]);
    other.batch("rollback").unwrap();
    // The last one is there, whatever was the matter with it.
    assert_eq!(ids(&take(&env, json!({ "done": done(&next) }))), [added[1].clone()]);
    lasting.batch("rollback").unwrap();
}

/// Whoever comes by an item that was taken since they began to look leaves it alone: its holder would wait for them.
#[test]
fn whoever_takes_leaves_alone_what_was_taken_meanwhile() {
    let env = TestEnv::new(Engine::Postgres);
    let added = filled(&env, 3);
    let url = env.database.url_text();
    let taken = take(&env, json!({}));
    let mut other = Connection::postgres(&url).unwrap();
    // Whoever completes the first one and takes the next has to wait, having begun to look.
    other
        .batch(&format!("begin; select 1 from queue_items where id = '{}' for update", added[0].as_str().unwrap()))
        .unwrap();
    let (meanwhile, waited) = thread::scope(|scope| {
        let waiting = scope.spawn(|| take(&env, json!({ "done": done(&taken) })));
        let mut looking = Connection::postgres(&url).unwrap();
        let sql =
            "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'";
        wait_until("one waits for a lock", Duration::from_mins(1), || {
            (looking.query::<(i64,)>(sql, &[]).unwrap() == [(1,)]).then_some(())
        });
        let meanwhile = take(&env, json!({}));
        other.batch("rollback").unwrap();
        (meanwhile, waiting.join().unwrap())
    });
    assert_eq!((ids(&meanwhile), ids(&waited)), (vec![added[1].clone()], vec![added[2].clone()]));
    // Nobody was at it but who took it.
    let sql = format!("select xmax = xmin from queue_items where id = '{}'", added[1].as_str().unwrap());
    assert_eq!(other.query::<(bool,)>(&sql, &[]).unwrap(), [(true,)]);
}

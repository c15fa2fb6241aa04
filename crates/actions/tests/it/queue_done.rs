//! Completing an item by taking the next: both happen, or neither.

use std::{thread, time::Duration};

use serde_json::{Value, json};
use trackway_actions::{Context, Credential, Result, context::Secret};
use trackway_domain::{ErrorKind, Id, kind};
use trackway_store::{Engine, connection::Connection, params};
use trackway_testkit::{House, engines, wait_until};

/// A task that is run again and again, one that is done once, and so many items of the first.
fn filled(house: &House, items: usize) -> Vec<Value> {
    house.workflow("ops");
    house.act("set_task", json!({ "workflow": "ops", "variant": "again", "recurring": true })).unwrap();
    house.act("set_task", json!({ "workflow": "ops", "variant": "once" })).unwrap();
    (0..items).map(|_| house.act("queue_add", json!({ "task": "again" })).unwrap()["id"].clone()).collect()
}

fn take(house: &House, input: Value) -> Vec<Value> {
    house.act("queue_take", input).unwrap().as_array().unwrap().clone()
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
fn stands(house: &House, taken: &Value) -> (String, bool, String, bool) {
    let id: Id<kind::QueueItem> = taken["id"].as_str().unwrap().parse::<uuid::Uuid>().unwrap().into();
    house.read(|reader| {
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
fn told(house: &House, since: usize) -> Vec<(String, String)> {
    house.events().split_off(since)
}

fn enter(house: &House, taken: &Value) -> Result<Context> {
    house.core.enter(&Credential::Token(Secret(taken["token"].as_str().unwrap().to_owned())))
}

engines! {
    fn the_next_is_taken_when_one_is_done(house: House) {
        let added = filled(&house, 3);
        let first = take(&house, json!({}));
        let before = house.events().len();

        let second = take(&house, json!({ "done": done(&first) }));

        assert_eq!(ids(&second), [added[1].clone()]);
        assert_eq!((stands(&house, &first[0]), stands(&house, &second[0])), (over(), held()));
        assert_eq!(enter(&house, &first[0]).unwrap_err().kind(), ErrorKind::Denied);
        assert!(enter(&house, &second[0]).is_ok());
        let short = |id: &Value| format!("queue/{}", &id.as_str().unwrap()[28..]);
        assert_eq!(told(&house, before), [
            ("queue_complete".to_owned(), short(&added[0])),
            ("queue_take".to_owned(), short(&added[1])),
        ]);

        // The short form of an id will do, and agents that are named take the same way.
        let short = format!("{}:1", &added[1].as_str().unwrap()[28..]);
        let third = take(&house, json!({ "done": [short], "agent": "worker" }));
        assert_eq!(ids(&third), [added[2].clone()]);
        assert_eq!(stands(&house, &second[0]), over());
    }

    fn what_is_done_is_completed_though_nothing_is_left(house: House) {
        filled(&house, 1);
        let only = take(&house, json!({}));
        assert_eq!(take(&house, json!({ "done": done(&only) })), Vec::<Value>::new());
        assert_eq!(stands(&house, &only[0]), over());
    }

    fn many_are_done_and_taken_in_one_go(house: House) {
        let added = filled(&house, 250);
        let mut held_now: Vec<Value> = Vec::new();
        let mut seen = Vec::new();
        loop {
            held_now = take(&house, json!({ "batch": 100, "done": done(&held_now) }));
            if held_now.is_empty() {
                break;
            }
            seen.extend(ids(&held_now));
        }
        assert_eq!(seen, added);
        let counts: Vec<(String, String, i64)> = house.read(|reader| {
            Ok(reader.query("select q.status, r.status, count(*) from queue_items q join runs r on r.id = q.run_id where q.tenant_id = ?1 group by q.status, r.status", &[])?)
        });
        assert_eq!(counts, [("completed".to_owned(), "completed".to_owned(), 250)]);
        let events = house.events();
        for action in ["queue_add", "queue_take", "queue_complete"] {
            assert_eq!(events.iter().filter(|(name, _)| name == action).count(), 250, "{action}");
        }
    }

    fn what_cannot_be_completed_takes_nothing(house: House) {
        filled(&house, 5);
        let items = take(&house, json!({ "batch": 2 }));
        let before = house.snapshot();
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
            assert_eq!(refused(house.act("queue_take", json!({ "done": wrong }))).0, kind, "{wrong:?}");
            before.assert_unchanged(&house.core);
        }

        house.act("queue_complete", json!({ "id": whole, "fence": 1 })).unwrap();
        let before = house.snapshot();
        assert_eq!(refused(house.act("queue_take", json!({ "done": ids }))).0, ErrorKind::Conflict);
        before.assert_unchanged(&house.core);
        assert_eq!(stands(&house, &items[1]), held());
    }

    fn a_task_that_is_done_once_and_a_key_are_let_go(house: House) {
        filled(&house, 0);
        house.act("queue_add", json!({ "task": "once" })).unwrap();
        let keyed = [0, 1].map(|_| house.act("queue_add", json!({ "task": "again", "concurrency_key": "k" })).unwrap()["id"].clone());
        let once = take(&house, json!({}));
        let first = take(&house, json!({ "done": done(&once) }));
        assert_eq!(ids(&first), [keyed[0].clone()]);
        let status: Option<(String,)> = house.read(|reader| {
            Ok(reader.one("select status from tasks where tenant_id = ?1 and variant = 'once'", &[])?)
        });
        assert_eq!(status.unwrap().0, "done");

        let second = take(&house, json!({ "done": done(&first) }));
        assert_eq!(ids(&second), [keyed[1].clone()]);
    }

    fn a_lease_that_is_over_is_not_done(house: House) {
        filled(&house, 2);
        let late = take(&house, json!({ "lease": 1 }));
        house.advance(Duration::from_secs(1));
        let (kind, message) = refused(house.act("queue_take", json!({ "done": done(&late) })));
        assert_eq!(kind, ErrorKind::Conflict);
        assert!(message.contains("the lease of queue item"), "{message}");
        assert_eq!(stands(&house, &late[0]), held());
    }

    fn a_token_of_a_run_completes_without_taking(house: House) {
        filled(&house, 2);
        let taken = take(&house, json!({}));
        let run = enter(&house, &taken[0]).unwrap();
        let before = house.snapshot();
        assert_eq!(refused(house.act_as(&run, "queue_take", json!({ "done": done(&taken) }))).0, ErrorKind::Denied);
        before.assert_unchanged(&house.core);
    }
}

/// What was taken and given back does not wait for younger ones, however long somebody else's transaction lasts.
#[test]
fn what_somebody_was_at_and_left_is_taken_in_its_turn() {
    let house = House::on(Engine::Postgres);
    let added = filled(&house, 3);
    let url = house.database.url_text();
    let mut lasting = Connection::postgres(&url).unwrap();
    lasting.batch("begin; select pg_current_xact_id()").unwrap();
    let first = take(&house, json!({}));
    house.act("queue_release", json!({ "id": first[0]["id"], "fence": first[0]["fence"] })).unwrap();
    let again = take(&house, json!({}));
    assert_eq!(ids(&again), [added[0].clone()]);

    // One that is held by somebody is passed by.
    let mut other = Connection::postgres(&url).unwrap();
    other
        .batch(&format!("begin; select 1 from queue_items where id = '{}' for update", added[1].as_str().unwrap()))
        .unwrap();
    let next = take(&house, json!({ "done": done(&again) }));
    assert_eq!(ids(&next), [added[2].clone()]);
    other.batch("rollback").unwrap();
    // The last one is there, whatever was the matter with it.
    assert_eq!(ids(&take(&house, json!({ "done": done(&next) }))), [added[1].clone()]);
    lasting.batch("rollback").unwrap();
}

/// Whoever comes by an item that was taken since they began to look leaves it alone: its holder would wait for them.
#[test]
fn whoever_takes_leaves_alone_what_was_taken_meanwhile() {
    let house = House::on(Engine::Postgres);
    let added = filled(&house, 3);
    let url = house.database.url_text();
    let taken = take(&house, json!({}));
    let mut other = Connection::postgres(&url).unwrap();
    // Whoever completes the first one and takes the next has to wait, having begun to look.
    other
        .batch(&format!("begin; select 1 from queue_items where id = '{}' for update", added[0].as_str().unwrap()))
        .unwrap();
    let (meanwhile, waited) = thread::scope(|scope| {
        let waiting = scope.spawn(|| take(&house, json!({ "done": done(&taken) })));
        let mut looking = Connection::postgres(&url).unwrap();
        let sql =
            "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'";
        wait_until("one waits for a lock", Duration::from_mins(1), || {
            (looking.query::<(i64,)>(sql, &[]).unwrap() == [(1,)]).then_some(())
        });
        let meanwhile = take(&house, json!({}));
        other.batch("rollback").unwrap();
        (meanwhile, waiting.join().unwrap())
    });
    assert_eq!((ids(&meanwhile), ids(&waited)), (vec![added[1].clone()], vec![added[2].clone()]));
    // Nobody was at it but who took it.
    let sql = format!("select xmax = xmin from queue_items where id = '{}'", added[1].as_str().unwrap());
    assert_eq!(other.query::<(bool,)>(&sql, &[]).unwrap(), [(true,)]);
}

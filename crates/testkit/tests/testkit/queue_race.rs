//! Many processes at one queue, killed and paused at random, and a server that crashes under them.

use std::{
    collections::HashSet,
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

use serde_json::json;
use trackway_actions::{Core, queue::AddItem};
use trackway_domain::Ref;
use trackway_store::{Store, Url};
use trackway_testkit::{CrashingServer, TestDatabase, TestEnv, engines, poll};

/// Takers at once: processes on SQLite, connections (in processes, too) on PostgreSQL.
const TAKERS: usize = 64;
const RACE_ITEMS: usize = 10_000;
const CRASH_ITEMS: usize = 1_000;

fn taker(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_taker"));
    command.args(arguments).stdin(Stdio::null());
    command
}

fn filled(env: &TestEnv, items: usize) {
    env.workflow("ops");
    env.act("set_task", json!({ "workflow": "ops", "variant": "again", "recurring": true })).unwrap();
    let all: Vec<AddItem> =
        (0..items).map(|_| AddItem { max_attempts: Some(20), ..AddItem::of(Ref::new("again")) }).collect();
    for part in all.chunks(1_000) {
        env.core.execute_all(&env.ada, part).unwrap();
    }
}

fn counts(env: &TestEnv) -> Vec<(String, i64)> {
    env.read(|reader| {
        Ok(reader.query(
            "select status, count(*) from queue_items where tenant_id = ?1 group by status order by status",
            &[],
        )?)
    })
}

/// Items whose note was written by a run that is not one of theirs, or by none; and completed ones without any.
fn lost_effects(env: &TestEnv) -> (i64, i64) {
    env.read(|reader| {
        Ok((
            reader.count(
                "select count(*) from notes n where n.tenant_id = ?1 and not exists (
                     select 1 from run_resources t join runs r on r.id = t.run_id
                     where t.resource_id = n.id and r.queue_item_id is not null)",
                &[],
            )?,
            reader.count(
                "select count(*) from queue_items q where q.tenant_id = ?1 and q.status = 'completed' and not exists (
                     select 1 from run_resources t where t.run_id = q.run_id and t.resource_type = 'note')",
                &[],
            )?,
        ))
    })
}

/// Waits until nothing is left to do.
fn until_finished(env: &TestEnv) {
    let left = || {
        env.read(|reader| {
            Ok(reader.count("select count(*) from queue_items where tenant_id = ?1 and finished_at is null", &[])?)
        })
    };
    let finished = poll(Duration::from_mins(2), || (left() == 0).then_some(()));
    assert!(finished.is_some(), "{} items are stuck: {:?}", left(), counts(env));
}

/// Processes that are ended with the test.
struct Workers(Vec<Child>);

impl Drop for Workers {
    fn drop(&mut self) {
        for worker in &mut self.0 {
            let _ = worker.kill();
            let _ = worker.wait();
        }
    }
}

impl Workers {
    fn start(url: &str, count: usize) -> Self {
        Self((0..count).map(|_| taker(&["work", url, "1"]).spawn().unwrap()).collect())
    }
}

/// Many processes take what there is: each item goes to one of them, and stands so in the end.
fn race(env: &TestEnv, way: &str, in_the_end: &str) {
    filled(env, RACE_ITEMS);
    let url = env.database.url_text();
    let racing: Vec<Child> = (0..TAKERS).map(|_| taker(&[way, &url]).stdout(Stdio::piped()).spawn().unwrap()).collect();
    let taken: Vec<String> = racing
        .into_iter()
        .flat_map(|child| {
            let output = child.wait_with_output().unwrap();
            assert!(output.status.success());
            String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect::<Vec<_>>()
        })
        .collect();
    assert_eq!(taken.len(), RACE_ITEMS);
    assert_eq!(taken.iter().collect::<HashSet<_>>().len(), RACE_ITEMS);
    assert_eq!(counts(env), [(in_the_end.to_owned(), i64::try_from(RACE_ITEMS).unwrap())]);
}

engines! {
    fn each_item_goes_to_one_of_many_processes(env: TestEnv) {
        race(&env, "take", "running");
    }

    fn each_item_is_done_by_one_of_many_that_take_the_next(env: TestEnv) {
        race(&env, "done", "completed");
    }

    fn killed_workers_lose_nothing(env: TestEnv) {
        filled(&env, CRASH_ITEMS);
        let url = env.database.url_text();
        let mut workers = Workers::start(&url, 4);
        for round in 0..30 {
            thread::sleep(Duration::from_millis(20 + round * 7 % 60));
            let victim = usize::try_from(round).unwrap() % 4;
            let worker = &mut workers.0[victim];
            worker.kill().unwrap();
            worker.wait().unwrap();
            *worker = taker(&["work", &url, "1"]).spawn().unwrap();
        }
        until_finished(&env);
        drop(workers);
        assert_eq!(counts(&env), [("completed".to_owned(), i64::try_from(CRASH_ITEMS).unwrap())]);
        assert_eq!(lost_effects(&env), (0, 0));
        let running = env.read(|reader| {
            Ok(reader.count("select count(*) from runs where tenant_id = ?1 and status = 'running'", &[])?)
        });
        assert_eq!(running, 0);
    }
}

#[test]
fn a_server_that_crashes_loses_no_item() {
    let server = CrashingServer::start();
    let url = server.url.clone();
    let core = Core::new(Store::create(Url::parse(&url).unwrap()).unwrap());
    core.found("local", "ada").unwrap();
    let ada = core.enter(&trackway_actions::Credential::User { tenant: "local".into(), handle: "ada".into() }).unwrap();
    let env = TestEnv::open(TestDatabase::elsewhere(url.clone()), ada);
    filled(&env, 300);
    let workers = Workers::start(&url, 4);
    for _ in 0..3 {
        thread::sleep(Duration::from_millis(150));
        server.crash();
    }
    // Our own connection went down with it: the first question finds that out.
    let _ = env
        .core
        .read(&env.ada, |reader| Ok(reader.count("select count(*) from queue_items where tenant_id = ?1", &[])?));
    until_finished(&env);
    drop(workers);
    assert_eq!(counts(&env), [("completed".to_owned(), 300)]);
    assert_eq!(lost_effects(&env), (0, 0));
}

//! Many processes on one queue, killed at random, and a server that crashes.

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

/// Number of concurrent processes.
const TAKERS: usize = 64;
const RACE_ITEMS: usize = 10_000;
const CRASH_ITEMS: usize = 1_000;

fn queue_taker(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_queue-taker"));
    command.args(arguments).stdin(Stdio::null());
    command
}

fn add_items(env: &TestEnv, items: usize) {
    env.workflow("ops");
    env.execute_json("set_task", json!({ "workflow": "ops", "variant": "again", "recurring": true })).unwrap();
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

/// The number of notes that no run of a queue item wrote, and the number of completed items without a note.
fn count_lost_effects(env: &TestEnv) -> (i64, i64) {
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

/// Waits until all items are finished.
fn wait_until_finished(env: &TestEnv) {
    let left = || {
        env.read(|reader| {
            Ok(reader.count("select count(*) from queue_items where tenant_id = ?1 and finished_at is null", &[])?)
        })
    };
    let finished = poll(Duration::from_mins(2), || (left() == 0).then_some(()));
    assert!(finished.is_some(), "{} items are not finished: {:?}", left(), counts(env));
}

/// Worker processes. Dropping this kills them.
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
        Self((0..count).map(|_| queue_taker(&["work", url, "1"]).spawn().unwrap()).collect())
    }
}

/// Starts many processes that take all items. Each item must go to exactly one process and end in the given status.
fn race_takers(env: &TestEnv, mode: &str, final_status: &str) {
    add_items(env, RACE_ITEMS);
    let url = env.database.url_text();
    let racing: Vec<Child> =
        (0..TAKERS).map(|_| queue_taker(&[mode, &url]).stdout(Stdio::piped()).spawn().unwrap()).collect();
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
    assert_eq!(counts(env), [(final_status.to_owned(), i64::try_from(RACE_ITEMS).unwrap())]);
}

engines! {
    fn each_item_is_taken_by_exactly_one_process(env: TestEnv) {
        race_takers(&env, "take", "running");
    }

    fn each_item_is_completed_exactly_once_when_each_take_completes_the_previous_item(env: TestEnv) {
        race_takers(&env, "done", "completed");
    }

    fn killed_workers_lose_no_items(env: TestEnv) {
        add_items(&env, CRASH_ITEMS);
        let url = env.database.url_text();
        let mut workers = Workers::start(&url, 4);
        for round in 0..30 {
            thread::sleep(Duration::from_millis(20 + round * 7 % 60));
            let victim = usize::try_from(round).unwrap() % 4;
            let worker = &mut workers.0[victim];
            worker.kill().unwrap();
            worker.wait().unwrap();
            *worker = queue_taker(&["work", &url, "1"]).spawn().unwrap();
        }
        wait_until_finished(&env);
        drop(workers);
        assert_eq!(counts(&env), [("completed".to_owned(), i64::try_from(CRASH_ITEMS).unwrap())]);
        assert_eq!(count_lost_effects(&env), (0, 0));
        let running = env.read(|reader| {
            Ok(reader.count("select count(*) from runs where tenant_id = ?1 and status = 'running'", &[])?)
        });
        assert_eq!(running, 0);
    }
}

#[test]
fn server_crashes_lose_no_items() {
    let server = CrashingServer::start();
    let url = server.url.clone();
    let core = Core::new(Store::create(Url::parse(&url).unwrap()).unwrap());
    core.init_tenant("local", "ada").unwrap();
    let ada = core
        .authenticate(&trackway_actions::Credential::User { tenant: "local".into(), handle: "ada".into() })
        .unwrap();
    let env = TestEnv::open(TestDatabase::external(url.clone()), ada);
    add_items(&env, 300);
    let workers = Workers::start(&url, 4);
    for _ in 0..3 {
        thread::sleep(Duration::from_millis(150));
        server.crash();
    }
    // The crash closed the connection of this test. The first query detects this and fails.
    let _ = env
        .core
        .read(&env.ada, |reader| Ok(reader.count("select count(*) from queue_items where tenant_id = ?1", &[])?));
    wait_until_finished(&env);
    drop(workers);
    assert_eq!(counts(&env), [("completed".to_owned(), 300)]);
    assert_eq!(count_lost_effects(&env), (0, 0));
}

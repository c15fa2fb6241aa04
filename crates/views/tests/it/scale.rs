//! Everyday queries and actions read few rows, however long the history is, on both engines.
//!
//! On PostgreSQL the tests use the server's counters of rows read, in a database with a long history. For SQLite they
//! check the query plans of the same statements.

use std::time::Duration;

use serde_json::{Value, json};
use trackway_actions::queue::{AddItem, CompleteItem, TakeItems};
use trackway_domain::{Ref, enums::ItemStatus};
use trackway_store::{Url, connection::Connection, sql::Param};
use trackway_testkit::{Engine, TestEnv, poll};
use trackway_views::{
    queue::{count_completed_and_cancelled, count_unfinished_and_failed},
    registry,
};

/// The tables that grow with use.
const HISTORY: [&str; 8] =
    ["events", "messages", "runs", "run_resources", "run_steps", "run_usage", "queue_items", "registry"];
/// Rows of each table in the long history.
const HISTORY_ROWS: i64 = 30_000;
/// Maximum number of rows that one view or action may read from all tables together.
const ROWS_READ_MAX: i64 = 1_000;

/// Creates a row of every table of the history: a task, a completed item, a run with a step, a note and a message.
fn create_sample_rows(env: &TestEnv) -> Value {
    env.workflow("ops");
    env.execute_json("set_task", json!({ "workflow": "ops", "variant": "t", "recurring": true, "script": "true" }))
        .unwrap();
    env.execute_json("queue_add", json!({ "task": "t" })).unwrap();
    let taken = env.execute_json("queue_take", json!({})).unwrap()[0].clone();
    env.execute_json("queue_complete", json!({ "id": taken["id"], "fence": taken["fence"] })).unwrap();
    let run = env.agent("coder").start_run_on("t");
    run.execute_json("record_step", json!({ "run": run.id, "type": "think", "detail": "so" })).unwrap();
    run.execute_json("record_usage", json!({ "run": run.id, "model": "m", "input_tokens": 7 })).unwrap();
    let note = run.create_note("main", "plan", "b");
    let message = run.execute_json("send_message", json!({ "body": "hello there" })).unwrap();
    json!({ "run": run.id, "note": note, "message": message["id"], "item": taken["id"] })
}

/// Whether the server's statistics reflect the long history.
#[derive(PartialEq)]
enum Statistics {
    Fresh,
    Missing,
}

/// Copies one row of each table thousands of times, with new ids, for other runs and with past times.
fn multiply_history(url: &str, statistics: &Statistics) {
    let id = |number: &str| format!("'00000000-0000-7000-8000-' || lpad(to_hex({number}), 12, '0')");
    let (own, run) = (format!("'id', {}", id("n")), format!("'run_id', {}", id("n / 5 + 1")));
    let mut connection = Connection::postgres(url).unwrap();
    for (table, fresh) in [
        ("runs", format!("{own}, 'status', 'completed', 'ended_at', now()")),
        ("queue_items", format!("{own}, 'status', 'completed', 'finished_at', now()")),
        ("messages", own.clone()),
        ("registry", format!("{own}, 'short_key', n")),
        ("run_resources", format!("{own}, 'resource_id', {}, {run}", id("n"))),
        ("run_steps", format!("'position', n, {run}")),
        ("run_usage", format!("{own}, 'once_key', n, 'created_at', '2020-02-02', {run}")),
        ("events", format!("'position', -n, {run}")),
    ] {
        let copied = connection.batch(&format!(
            "insert into {table} overriding system value
             select copy.* from (select to_jsonb(t) as row from {table} t limit 1) one, generate_series(1, {HISTORY_ROWS}) n,
             jsonb_populate_record(cast(null as {table}), one.row || jsonb_build_object({fresh})) copy"
        ));
        copied.unwrap_or_else(|error| panic!("{table}: {error}"));
        if *statistics == Statistics::Fresh {
            connection.batch(&format!("analyze {table}")).unwrap();
        }
    }
    // Flushes the counters now, so that the copies do not count in the test.
    connection.batch("select pg_stat_force_next_flush()").unwrap();
}

/// Reads a counter of the server, after a flush that includes all previous statements.
fn server_counter(env: &TestEnv, sql: &str) -> i64 {
    env.read(|read| Ok(read.query_unscoped::<(bool,)>("select pg_stat_force_next_flush() is null", &[])?));
    env.read(|read| Ok(read.query_unscoped::<(i64,)>(sql, &[])?[0].0))
}

/// The number of rows that the server has read from the history's tables so far.
fn rows_read(env: &TestEnv) -> i64 {
    let tables = HISTORY.map(|table| format!("'{table}'")).join(", ");
    server_counter(
        env,
        &format!(
            "select cast(coalesce((select sum(seq_tup_read) from pg_stat_user_tables where relname in ({tables})), 0)
             + coalesce((select sum(idx_tup_read) from pg_stat_user_indexes where relname in ({tables})), 0) as bigint)"
        ),
    )
}

/// The number of index pages that the server has read so far. An index scan without matches reads pages but no rows.
fn pages_read(env: &TestEnv) -> i64 {
    let tables = HISTORY.map(|table| format!("'{table}'")).join(", ");
    server_counter(
        env,
        &format!(
            "select cast(coalesce(sum(idx_blks_hit + idx_blks_read), 0) as bigint) from pg_statio_user_indexes where relname in ({tables})"
        ),
    )
}

/// Views that people and agents use every day.
fn everyday_queries(samples: &Value) -> Vec<((&'static str, &'static str), Value)> {
    vec![
        (("event", "list"), json!({})),
        (("event", "list"), json!({ "run": samples["run"] })),
        (("run", "list"), json!({})),
        (("run", "list"), json!({ "status": "running" })),
        (("run", "list"), json!({ "task": "t" })),
        (("run", "list"), json!({ "agent": "coder" })),
        (("run", "show"), json!({ "run": samples["run"] })),
        (("run", "tree"), json!({ "run": samples["run"] })),
        (("", "made"), json!({ "run": samples["run"] })),
        (("", "made"), json!({ "run": samples["run"], "tree": true })),
        (("", "why"), json!({ "thing": samples["note"] })),
        (("queue", "peek"), json!({})),
        (("queue", "list"), json!({})),
        (("queue", "get"), json!({ "item": samples["item"] })),
        (("queue", "held"), json!({})),
        (("message", "list"), json!({})),
        (("message", "get"), json!({ "message": samples["message"] })),
        (("note", "show"), json!({ "note": samples["note"] })),
        (("note", "list"), json!({})),
        (("task", "get"), json!({ "task": "t" })),
        (("task", "list"), json!({})),
        (("", "ready"), json!({})),
        (("", "ready"), json!({ "after": "t" })),
        (("task", "latest"), json!({ "id": "t" })),
        (("package", "list"), json!({ "task": "t" })),
        (("message", "list"), json!({ "status": "failed" })),
        (("message", "list"), json!({ "status": "succeeded" })),
        (("", "wake"), json!({ "task": "t" })),
        (("", "search"), json!({ "words": ["hello"] })),
        (("", "status"), json!({})),
    ]
}

fn run_view(env: &TestEnv, command: (&str, &str), input: &Value) -> Value {
    let view = registry::find_view(command).unwrap_or_else(|| panic!("there is no view {command:?}"));
    env.read(|read| {
        (view.with_json)(read, input.clone(), env.now()).map_err(|error| panic!("{command:?} {input}: {error}"))
    })
    .data
}

/// Actions that people and agents use every day.
fn execute_everyday_actions(env: &TestEnv) {
    env.execute_json("queue_add", json!({ "task": "t" })).unwrap();
    let taken = env.execute_json("queue_take", json!({})).unwrap()[0].clone();
    env.execute_json("queue_heartbeat", json!({ "id": taken["id"], "fence": taken["fence"] })).unwrap();
    env.execute_json("queue_complete", json!({ "id": taken["id"], "fence": taken["fence"] })).unwrap();
    let run = env.agent("coder").start_run_on("t");
    run.execute_json("record_step", json!({ "run": run.id, "type": "think", "detail": "so" })).unwrap();
    run.create_note("main", &format!("plan {}", run.id), "b");
    run.execute_json("send_message", json!({ "body": "hello again" })).unwrap();
    run.end(trackway_domain::enums::RunStatus::Completed);
}

/// Maximum number of rows that all actions on one item may read together, from add to complete.
const ROWS_PER_ITEM_MAX: i64 = 100;
/// Maximum number of index pages that all actions on one item may read together.
const PAGES_PER_ITEM_MAX: i64 = 200;

/// Asserts that each item causes few reads with stale statistics: the planner believes that the tables are still short.
fn assert_few_reads_per_item(batch: usize) {
    let env = TestEnv::new(Engine::Postgres);
    create_sample_rows(&env);
    let work = |agent: Option<&str>, is_keyed: bool| {
        let key = |number| is_keyed.then(|| format!("k{number}"));
        let add = |number| AddItem { concurrency_key: key(number), ..AddItem::of(Ref::new("t")) };
        let all: Vec<_> = (0..batch).map(add).collect();
        env.core.execute_all(&env.ada, &all).unwrap();
        let wanted = i64::try_from(batch).unwrap();
        let take = TakeItems { agent: agent.map(Ref::new), batch: Some(wanted), ..TakeItems::default() };
        let taken = env.core.execute(&env.ada, &take).unwrap();
        assert_eq!(taken.len(), batch);
        let done: Vec<_> = taken
            .iter()
            .map(|taken| CompleteItem { id: Ref::from(taken.id), fence: taken.fence, result: None })
            .collect();
        env.core.execute_all(&env.ada, &done).unwrap();
    };
    // Trackway prepares a statement at its second use, and PostgreSQL caches a generic plan after some more uses. The
    // first rounds cause both while the tables are short.
    let variants = [(None, false), (Some("worker"), false), (None, true), (Some("worker"), true)].repeat(7);
    for (agent, is_keyed) in &variants {
        work(*agent, *is_keyed);
    }
    multiply_history(&env.database.url_text(), &Statistics::Missing);
    for (agent, is_keyed) in variants {
        let before = (rows_read(&env), pages_read(&env));
        work(agent, is_keyed);
        let after = (rows_read(&env), pages_read(&env));
        let per_item = |before, after| (after - before) / i64::try_from(batch).unwrap();
        let (rows, pages) = (per_item(before.0, after.0), per_item(before.1, after.1));
        assert!(rows <= ROWS_PER_ITEM_MAX, "{agent:?}, keys {is_keyed}: an item read {rows} rows");
        assert!(pages <= PAGES_PER_ITEM_MAX, "{agent:?}, keys {is_keyed}: an item looked at {pages} pages");
    }
}

#[test]
fn one_item_needs_few_reads_with_stale_statistics() {
    assert_few_reads_per_item(1);
}

#[test]
fn each_of_a_hundred_items_needs_few_reads_with_stale_statistics() {
    assert_few_reads_per_item(100);
}

#[test]
fn everyday_queries_do_not_read_the_history() {
    let env = TestEnv::new(Engine::Postgres);
    let samples = create_sample_rows(&env);
    multiply_history(&env.database.url_text(), &Statistics::Fresh);
    let mut violations = Vec::new();
    let mut check_rows_read = |what: String, action: &dyn Fn()| {
        let before = rows_read(&env);
        action();
        let read = rows_read(&env) - before;
        if read > ROWS_READ_MAX {
            violations.push(format!("{what} read {read} rows"));
        }
    };
    for (command, input) in everyday_queries(&samples) {
        check_rows_read(format!("{command:?} {input}"), &|| drop(run_view(&env, command, &input)));
    }
    check_rows_read("counting unfinished and failed items".into(), &|| {
        assert_eq!(env.read(|read| Ok(count_unfinished_and_failed(read, env.now())?)), []);
    });
    check_rows_read("counting completed and cancelled items".into(), &|| {
        assert_eq!(
            env.read(|read| Ok(count_completed_and_cancelled(read, ROWS_READ_MAX / 2)?)),
            [(ItemStatus::Completed, ROWS_READ_MAX / 2)]
        );
    });
    check_rows_read("everyday actions".into(), &|| execute_everyday_actions(&env));
    assert_eq!(violations, Vec::<String>::new());

    // Statements are prepared at their second use. The server lists their texts.
    for (command, input) in everyday_queries(&samples) {
        run_view(&env, command, &input);
    }
    execute_everyday_actions(&env);
    let texts =
        env.read(|read| Ok(read.query_unscoped::<(String,)>("select statement from pg_prepared_statements", &[])?));
    let plans = plans(texts.into_iter().map(|(text,)| text.replace('$', "?")));
    assert!(plans.len() > 40, "{}", plans.len());
    let scans: Vec<_> = plans.iter().filter(|(text, step)| scans_history(text, step)).collect();
    assert_eq!(scans, Vec::<&(String, String)>::new());
}

/// Generic plans that were made for short tables do not read whole indexes when the tables are long.
#[test]
fn everyday_actions_do_not_read_whole_indexes() {
    let env = TestEnv::new(Engine::Postgres);
    create_sample_rows(&env);
    let pages = || {
        let before = pages_read(&env);
        execute_everyday_actions(&env);
        pages_read(&env) - before
    };
    let short: Vec<_> = (0..7).map(|_| pages()).collect();
    multiply_history(&env.database.url_text(), &Statistics::Missing);
    let long: Vec<_> = (0..7).map(|_| pages()).collect();
    // Long tables have deeper index trees, which explains at most twice as many pages.
    assert!(long.iter().min().unwrap() <= &(2 * short.iter().min().unwrap()), "{short:?} pages, then {long:?}");
}

/// Without a forced generic plan, PostgreSQL would plan each execution of a write anew once its statistics are fresh.
#[test]
fn write_statements_use_generic_plans() {
    let env = TestEnv::new(Engine::Postgres);
    create_sample_rows(&env);
    let days = || (0..7).for_each(|_| execute_everyday_actions(&env));
    days();
    multiply_history(&env.database.url_text(), &Statistics::Fresh);
    days();
    let planned = |often| {
        env.read(|read| {
            Ok(read.query_unscoped::<(String,)>(
                &format!("select statement from pg_prepared_statements where statement ~ 'insert|update' and {often}"),
                &[],
            )?)
        })
    };
    assert_eq!(planned("custom_plans > 0"), []);
    assert!(planned("generic_plans > 7").len() > 7);
}

/// The history of a task with thousands of runs counts only the newest runs.
#[test]
fn task_history_reads_a_bounded_number_of_rows() {
    let env = TestEnv::new(Engine::Postgres);
    create_sample_rows(&env);
    multiply_history(&env.database.url_text(), &Statistics::Fresh);
    let before = rows_read(&env);
    let history = run_view(&env, ("task", "history"), &json!({ "task": "t" }));
    let read = rows_read(&env) - before;
    let [version] = history["versions"].as_array().unwrap().as_slice() else { panic!("{history}") };
    assert_eq!((&version["runs"], &version["newest_only"]), (&json!(1_000), &json!(true)));
    // Three queries each find the oldest counted run and then read the counted runs.
    assert!(read <= 3 * 2 * ROWS_READ_MAX + 100, "it read {read} rows");
}

/// Replacing a task does not read other tasks, links or ready items.
#[test]
fn replacing_a_task_reads_only_its_own_rows() {
    let env = TestEnv::new(Engine::Postgres);
    create_sample_rows(&env);
    env.execute_json("set_task", json!({ "workflow": "ops", "variant": "u/0" })).unwrap();
    let add: Vec<_> = (0..3 * ROWS_READ_MAX).map(|_| AddItem::of(Ref::new("t"))).collect();
    env.core.execute_all(&env.ada, &add).unwrap();
    Connection::postgres(&env.database.url_text()).unwrap().batch("analyze").unwrap();
    let replace = |number: i64| {
        let (old, new) = (format!("u/{number}"), format!("u/{}", number + 1));
        env.execute_json("set_task", json!({ "variant": new, "replaces": old })).unwrap();
    };
    // PostgreSQL caches a generic plan after some uses.
    (0..7).for_each(replace);
    let before = rows_read(&env);
    replace(7);
    let read = rows_read(&env) - before;
    assert!(read <= ROWS_READ_MAX, "it read {read} rows");

    let texts =
        env.read(|read| Ok(read.query_unscoped::<(String,)>("select statement from pg_prepared_statements", &[])?));
    let for_sqlite = |text: String| {
        let text = text.replace('$', "?").replace(" for update", "");
        text.replace("= any(array(", "in (").replace("?2)) and finished_at", "?2) and finished_at")
    };
    let texts = texts.into_iter().map(|(text,)| for_sqlite(text));
    let plans: Vec<_> = plans(texts).into_iter().filter(|(text, _)| text.contains("lineage_id")).collect();
    assert!(plans.iter().any(|(_, step)| step.contains("queue_items_unfinished_of_task")), "{plans:?}");
    let scans = |step: &str| {
        ["AUTOMATIC", "queue_items_by_status", "SCAN tasks", "SCAN f", "SCAN t"].iter().any(|bad| step.contains(bad))
    };
    let scans: Vec<_> = plans.iter().filter(|(_, step)| scans(step)).collect();
    assert_eq!(scans, Vec::<&(String, String)>::new());
}

/// Whether a step of a plan scans a table of the history. A statement with a limit may scan.
fn scans_history(text: &str, step: &str) -> bool {
    let Some(name) = step.strip_prefix("SCAN ") else { return false };
    let name = name.split(' ').next().unwrap();
    let is_history = HISTORY.iter().any(|table| {
        name == *table || text.contains(&format!("{table} {name} ")) || text.contains(&format!("{table} as {name} "))
    });
    is_history && !text.contains("limit")
}

/// Statement and step of SQLite's query plans. Statements that only PostgreSQL understands are skipped.
fn plans(texts: impl Iterator<Item = String>) -> Vec<(String, String)> {
    let env = TestEnv::new(Engine::Sqlite);
    let mut plans = Vec::new();
    for text in texts {
        let highest = (1..40).rev().find(|number| text.contains(&format!("?{number}"))).unwrap_or(0);
        let nulls = vec![Param::Null; highest];
        let explained = env.core.read(&env.ada, |read| {
            Ok(read.query_unscoped::<(i64, i64, i64, String)>(&format!("explain query plan {text}"), &nulls)?)
        });
        plans.extend(explained.into_iter().flatten().map(|(.., step)| (text.clone(), step)));
    }
    plans
}

/// A long-lived connection does not keep every statement prepared.
#[test]
fn prepared_statements_are_bounded() {
    let env = TestEnv::new(Engine::Postgres);
    let (statements, people) = env.read(|read| {
        for number in 0..700 {
            let text = format!("select count(*) + {number} from people where tenant_id = ?1");
            assert_eq!((read.count(&text, &[])?, read.count(&text, &[])?), (number + 1, number + 1));
        }
        let statements = read.query_unscoped::<(i64,)>("select count(*) from pg_prepared_statements", &[])?[0].0;
        Ok((statements, read.count("select count(*) from people where tenant_id = ?1", &[])?))
    });
    assert!((100..=512).contains(&statements), "{statements} prepared statements");
    assert_eq!(people, 1);
}

/// During a bulk write, SQLite's write-ahead log is checkpointed while it grows, and not only at the end.
#[test]
fn bulk_write_checkpoints_the_wal_while_it_grows() {
    let env = TestEnv::new(Engine::Sqlite);
    env.studio("main");
    let Url::Sqlite(file) = env.database.url() else { panic!("this is a file") };
    let length = || file.metadata().unwrap().len();
    let (before, body) = (length(), "x".repeat(100_000));
    let was_checkpointed = env.core.store().run_bulk_write(|| {
        for number in 0..200 {
            let note = json!({ "studio": "main", "title": format!("n{number}"), "body": body });
            env.execute_json("create_note", note).unwrap();
        }
        poll(Duration::from_secs(10), || (length() > before + (8 << 20)).then_some(())).is_some()
    });
    assert!(was_checkpointed.unwrap(), "{} bytes, {before} before", length());
}

//! What is asked and done every day reads a handful of rows, however long the history is, on both engines.
//!
//! On PostgreSQL the server counts the rows it read, in a database with a long history. On SQLite the plans of the same
//! texts are looked at.

use std::time::Duration;

use serde_json::{Value, json};
use trackway_actions::queue::{AddItem, CompleteItem, TakeItems};
use trackway_domain::{Ref, words::ItemStatus};
use trackway_store::{Url, connection::Connection, sql::Param};
use trackway_testkit::{Engine, TestEnv, poll};
use trackway_views::{
    queue::{settled, unsettled},
    registry,
};

/// Tables that grow with what happens.
const HISTORY: [&str; 8] =
    ["events", "messages", "runs", "run_resources", "run_steps", "run_usage", "queue_items", "registry"];
/// Rows of each.
const LONG: i64 = 30_000;
/// Rows of all of them that one question, or one action, may read.
const READ_MAX: i64 = 1_000;

/// A day's work, small: a task, an item that ran, a run with a step, a note and a message.
fn a_day(env: &TestEnv) -> Value {
    env.workflow("ops");
    env.act("set_task", json!({ "workflow": "ops", "variant": "t", "recurring": true, "script": "true" })).unwrap();
    env.act("queue_add", json!({ "task": "t" })).unwrap();
    let taken = env.act("queue_take", json!({})).unwrap()[0].clone();
    env.act("queue_complete", json!({ "id": taken["id"], "fence": taken["fence"] })).unwrap();
    let run = env.agent("coder").start_run_on("t");
    run.act("record_step", json!({ "run": run.id, "type": "think", "detail": "so" })).unwrap();
    run.act("record_usage", json!({ "run": run.id, "model": "m", "input_tokens": 7 })).unwrap();
    let note = run.create_note("main", "plan", "b");
    let message = run.act("send_message", json!({ "body": "hello there" })).unwrap();
    json!({ "run": run.id, "note": note, "message": message["id"], "item": taken["id"] })
}

/// Whether the server knows how long its tables are.
#[derive(PartialEq)]
enum Statistics {
    Fresh,
    Missing,
}

/// Makes a long history of a short one: a row of the day, thousands of times, of another run each and from long ago.
fn lengthen(url: &str, statistics: &Statistics) {
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
             select copy.* from (select to_jsonb(t) as row from {table} t limit 1) one, generate_series(1, {LONG}) n,
             jsonb_populate_record(cast(null as {table}), one.row || jsonb_build_object({fresh})) copy"
        ));
        copied.unwrap_or_else(|error| panic!("{table}: {error}"));
        if *statistics == Statistics::Fresh {
            connection.batch(&format!("analyze {table}")).unwrap();
        }
    }
    // What all this read is told now, not when the server gets round to it.
    connection.batch("select pg_stat_force_next_flush()").unwrap();
}

/// What the server counted so far, of what was done before too.
fn counted(env: &TestEnv, sql: &str) -> i64 {
    env.read(|read| Ok(read.query_unscoped::<(bool,)>("select pg_stat_force_next_flush() is null", &[])?));
    env.read(|read| Ok(read.query_unscoped::<(i64,)>(sql, &[])?[0].0))
}

/// Rows of the history that the server read so far.
fn rows_read(env: &TestEnv) -> i64 {
    let tables = HISTORY.map(|table| format!("'{table}'")).join(", ");
    counted(
        env,
        &format!(
            "select cast(coalesce((select sum(seq_tup_read) from pg_stat_user_tables where relname in ({tables})), 0)
             + coalesce((select sum(idx_tup_read) from pg_stat_user_indexes where relname in ({tables})), 0) as bigint)"
        ),
    )
}

/// Pages of the history's indexes that the server looked at so far: a walk along an index reads no row where it finds none.
fn pages_read(env: &TestEnv) -> i64 {
    let tables = HISTORY.map(|table| format!("'{table}'")).join(", ");
    counted(
        env,
        &format!(
            "select cast(coalesce(sum(idx_blks_hit + idx_blks_read), 0) as bigint) from pg_statio_user_indexes where relname in ({tables})"
        ),
    )
}

/// What is asked every day.
fn questions(day: &Value) -> Vec<((&'static str, &'static str), Value)> {
    vec![
        (("event", "list"), json!({})),
        (("event", "list"), json!({ "run": day["run"] })),
        (("run", "list"), json!({})),
        (("run", "list"), json!({ "status": "running" })),
        (("run", "list"), json!({ "task": "t" })),
        (("run", "list"), json!({ "agent": "coder" })),
        (("run", "show"), json!({ "run": day["run"] })),
        (("run", "tree"), json!({ "run": day["run"] })),
        (("", "made"), json!({ "run": day["run"] })),
        (("", "made"), json!({ "run": day["run"], "tree": true })),
        (("", "why"), json!({ "thing": day["note"] })),
        (("queue", "peek"), json!({})),
        (("queue", "list"), json!({})),
        (("queue", "get"), json!({ "item": day["item"] })),
        (("queue", "held"), json!({})),
        (("message", "list"), json!({})),
        (("message", "get"), json!({ "message": day["message"] })),
        (("note", "show"), json!({ "note": day["note"] })),
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

fn ask(env: &TestEnv, command: (&str, &str), input: &Value) -> Value {
    let view = registry::of(command).unwrap_or_else(|| panic!("there is no question {command:?}"));
    env.read(|read| {
        (view.with_json)(read, input.clone(), env.now()).map_err(|error| panic!("{command:?} {input}: {error}"))
    })
    .data
}

/// What is done every day.
fn deeds(env: &TestEnv) {
    env.act("queue_add", json!({ "task": "t" })).unwrap();
    let taken = env.act("queue_take", json!({})).unwrap()[0].clone();
    env.act("queue_heartbeat", json!({ "id": taken["id"], "fence": taken["fence"] })).unwrap();
    env.act("queue_complete", json!({ "id": taken["id"], "fence": taken["fence"] })).unwrap();
    let run = env.agent("coder").start_run_on("t");
    run.act("record_step", json!({ "run": run.id, "type": "think", "detail": "so" })).unwrap();
    run.create_note("main", &format!("plan {}", run.id), "b");
    run.act("send_message", json!({ "body": "hello again" })).unwrap();
    run.end(trackway_domain::words::RunStatus::Completed);
}

/// Rows that an item may read, from its adding to its end.
const READ_PER_ITEM_MAX: i64 = 100;
/// Pages of indexes that an item may look at: to find its rows, and to enter them.
const PAGES_PER_ITEM_MAX: i64 = 200;

/// A table that grew since the server last looked at it is taken for a short one.
fn an_item_reads_its_own_rows(batch: usize) {
    let env = TestEnv::new(Engine::Postgres);
    a_day(&env);
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
    // Statements are prepared when they are used again, and planned for good after some uses: here while there is little.
    let ways = [(None, false), (Some("worker"), false), (None, true), (Some("worker"), true)].repeat(7);
    for (agent, is_keyed) in &ways {
        work(*agent, *is_keyed);
    }
    lengthen(&env.database.url_text(), &Statistics::Missing);
    for (agent, is_keyed) in ways {
        let before = (rows_read(&env), pages_read(&env));
        work(agent, is_keyed);
        let after = (rows_read(&env), pages_read(&env));
        let per_item = |before, after| (after - before) / i64::try_from(batch).unwrap();
        let (rows, pages) = (per_item(before.0, after.0), per_item(before.1, after.1));
        assert!(rows <= READ_PER_ITEM_MAX, "{agent:?}, keys {is_keyed}: an item read {rows} rows");
        assert!(pages <= PAGES_PER_ITEM_MAX, "{agent:?}, keys {is_keyed}: an item looked at {pages} pages");
    }
}

#[test]
fn an_item_reads_its_own_rows_whatever_the_server_believes() {
    an_item_reads_its_own_rows(1);
}

#[test]
fn a_hundred_items_read_their_own_rows_whatever_the_server_believes() {
    an_item_reads_its_own_rows(100);
}

#[test]
fn a_long_history_is_not_read() {
    let env = TestEnv::new(Engine::Postgres);
    let day = a_day(&env);
    lengthen(&env.database.url_text(), &Statistics::Fresh);
    let mut too_much = Vec::new();
    let mut within = |what: String, deed: &dyn Fn()| {
        let before = rows_read(&env);
        deed();
        let read = rows_read(&env) - before;
        if read > READ_MAX {
            too_much.push(format!("{what} read {read} rows"));
        }
    };
    for (command, input) in questions(&day) {
        within(format!("{command:?} {input}"), &|| drop(ask(&env, command, &input)));
    }
    within("what is not settled".into(), &|| assert_eq!(env.read(|read| Ok(unsettled(read, env.now())?)), []));
    within("what is".into(), &|| {
        assert_eq!(env.read(|read| Ok(settled(read, READ_MAX / 2)?)), [(ItemStatus::Completed, READ_MAX / 2)]);
    });
    within("a day's work".into(), &|| deeds(&env));
    assert_eq!(too_much, Vec::<String>::new());

    // The texts, as they were prepared: what is used twice is.
    for (command, input) in questions(&day) {
        ask(&env, command, &input);
    }
    deeds(&env);
    let texts =
        env.read(|read| Ok(read.query_unscoped::<(String,)>("select statement from pg_prepared_statements", &[])?));
    let plans = plans(texts.into_iter().map(|(text,)| text.replace('$', "?")));
    assert!(plans.len() > 40, "{}", plans.len());
    let scans: Vec<_> = plans.iter().filter(|(text, step)| scans_history(text, step)).collect();
    assert_eq!(scans, Vec::<&(String, String)>::new());
}

/// Plans that were made while there was little walk along nothing when there is much.
#[test]
fn what_is_done_every_day_walks_along_no_index() {
    let env = TestEnv::new(Engine::Postgres);
    a_day(&env);
    let pages = || {
        let before = pages_read(&env);
        deeds(&env);
        pages_read(&env) - before
    };
    let short: Vec<_> = (0..7).map(|_| pages()).collect();
    lengthen(&env.database.url_text(), &Statistics::Missing);
    let long: Vec<_> = (0..7).map(|_| pages()).collect();
    // Trees of indexes are higher then, and that is all.
    assert!(long.iter().min().unwrap() <= &(2 * short.iter().min().unwrap()), "{short:?} pages, then {long:?}");
}

/// The server would plan each write for its own values once it has counted its rows anew.
#[test]
fn what_is_written_is_planned_once() {
    let env = TestEnv::new(Engine::Postgres);
    a_day(&env);
    let days = || (0..7).for_each(|_| deeds(&env));
    days();
    lengthen(&env.database.url_text(), &Statistics::Fresh);
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

/// What became of a task that ran thousands of times is told of the newest of its runs.
#[test]
fn the_history_of_a_task_is_read_to_a_bound() {
    let env = TestEnv::new(Engine::Postgres);
    a_day(&env);
    lengthen(&env.database.url_text(), &Statistics::Fresh);
    let before = rows_read(&env);
    let history = ask(&env, ("task", "history"), &json!({ "task": "t" }));
    let read = rows_read(&env) - before;
    let [version] = history["versions"].as_array().unwrap().as_slice() else { panic!("{history}") };
    assert_eq!((&version["runs"], &version["newest_only"]), (&json!(1_000), &json!(true)));
    // For each of three figures: where the newest begin, and these.
    assert!(read <= 3 * 2 * READ_MAX + 100, "it read {read} rows");
}

/// A new version of one task reads the rows of that task only, however many other tasks, links and ready items there are.
#[test]
fn replacing_a_task_reads_its_own_rows() {
    let env = TestEnv::new(Engine::Postgres);
    a_day(&env);
    env.act("set_task", json!({ "workflow": "ops", "variant": "u/0" })).unwrap();
    let add: Vec<_> = (0..3 * READ_MAX).map(|_| AddItem::of(Ref::new("t"))).collect();
    env.core.execute_all(&env.ada, &add).unwrap();
    Connection::postgres(&env.database.url_text()).unwrap().batch("analyze").unwrap();
    let replace = |number: i64| {
        let (old, new) = (format!("u/{number}"), format!("u/{}", number + 1));
        env.act("set_task", json!({ "variant": new, "replaces": old })).unwrap();
    };
    // Statements are prepared when they are used again, and planned for good after some uses.
    (0..7).for_each(replace);
    let before = rows_read(&env);
    replace(7);
    let read = rows_read(&env) - before;
    assert!(read <= READ_MAX, "it read {read} rows");

    let texts =
        env.read(|read| Ok(read.query_unscoped::<(String,)>("select statement from pg_prepared_statements", &[])?));
    let for_sqlite = |text: String| {
        let text = text.replace('$', "?").replace(" for update", "");
        text.replace("= any(array(", "in (").replace("?2)) and finished_at", "?2) and finished_at")
    };
    let texts = texts.into_iter().map(|(text,)| for_sqlite(text));
    let plans: Vec<_> = plans(texts).into_iter().filter(|(text, _)| text.contains("lineage_id")).collect();
    assert!(plans.iter().any(|(_, step)| step.contains("queue_items_unfinished_of_task")), "{plans:?}");
    let walks = |step: &str| {
        ["AUTOMATIC", "queue_items_by_status", "SCAN tasks", "SCAN f", "SCAN t"].iter().any(|bad| step.contains(bad))
    };
    let walks: Vec<_> = plans.iter().filter(|(_, step)| walks(step)).collect();
    assert_eq!(walks, Vec::<&(String, String)>::new());
}

/// Whether a step of a plan reads all of a table of the history, unless an order and a limit end it.
fn scans_history(text: &str, step: &str) -> bool {
    let Some(name) = step.strip_prefix("SCAN ") else { return false };
    let name = name.split(' ').next().unwrap();
    let is_history = HISTORY.iter().any(|table| {
        name == *table || text.contains(&format!("{table} {name} ")) || text.contains(&format!("{table} as {name} "))
    });
    is_history && !text.contains("limit")
}

/// How SQLite would go about these texts, those that it understands: text and step.
fn plans(texts: impl Iterator<Item = String>) -> Vec<(String, String)> {
    let env = TestEnv::new(Engine::Sqlite);
    let mut plans = Vec::new();
    for text in texts {
        let highest = (1..40).rev().find(|number| text.contains(&format!("?{number}"))).unwrap_or(0);
        let nothing = vec![Param::Null; highest];
        let explained = env.core.read(&env.ada, |read| {
            Ok(read.query_unscoped::<(i64, i64, i64, String)>(&format!("explain query plan {text}"), &nothing)?)
        });
        plans.extend(explained.into_iter().flatten().map(|(.., step)| (text.clone(), step)));
    }
    plans
}

/// A connection that stays for weeks does not keep every text that it was ever asked.
#[test]
fn texts_are_kept_to_a_bound() {
    let env = TestEnv::new(Engine::Postgres);
    let (kept, people) = env.read(|read| {
        for number in 0..700 {
            let text = format!("select count(*) + {number} from people where tenant_id = ?1");
            assert_eq!((read.count(&text, &[])?, read.count(&text, &[])?), (number + 1, number + 1));
        }
        let kept = read.query_unscoped::<(i64,)>("select count(*) from pg_prepared_statements", &[])?[0].0;
        Ok((kept, read.count("select count(*) from people where tenant_id = ?1", &[])?))
    });
    assert!((100..=512).contains(&kept), "{kept} statements are kept");
    assert_eq!(people, 1);
}

/// Who writes very much does not have all of SQLite's log to bring in when done: most of it went in beside the writing.
#[test]
fn a_long_log_goes_into_the_file_while_it_grows() {
    let env = TestEnv::new(Engine::Sqlite);
    env.studio("main");
    let Url::Sqlite(file) = env.database.url() else { panic!("this is a file") };
    let length = || file.metadata().unwrap().len();
    let (before, body) = (length(), "x".repeat(100_000));
    let went_in = env.core.store().while_much_is_written(|| {
        for number in 0..200 {
            let note = json!({ "studio": "main", "title": format!("n{number}"), "body": body });
            env.act("create_note", note).unwrap();
        }
        poll(Duration::from_secs(10), || (length() > before + (8 << 20)).then_some(())).is_some()
    });
    assert!(went_in.unwrap(), "{} bytes, {before} before", length());
}

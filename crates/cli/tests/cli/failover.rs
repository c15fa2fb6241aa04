//! Two PostgreSQL servers, of which the first is killed and the second takes over, under everyone who uses them.

use std::{
    collections::BTreeMap,
    sync::{
        Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use serde_json::{Value, json};
use trackway_store::connection::Connection;
use trackway_testkit::ServerPair;

use crate::{
    mcp_client::Server,
    terminal::{CommandOutput, Terminal, column, run_command, text},
    work::{Worker, wait_for},
};

/// Writes of each kind that somebody was told of: the title, and what they were told.
type Told = Mutex<Vec<(String, i32, String)>>;

const ITEMS: usize = 40;
const WRITERS: usize = 4;

fn typed(terminal: &Terminal, arguments: &[&str]) -> CommandOutput {
    let mut command = terminal.command(arguments);
    command.arg("--json");
    run_command(command)
}

/// Writes notes one after the other until there is nothing more to write, and keeps what it is told.
fn writes(terminal: &Terminal, who: usize, is_over: &AtomicBool, told: &Told) {
    for number in 0.. {
        if is_over.load(Ordering::Relaxed) {
            return;
        }
        let title = format!("note {who} {number}");
        let output = typed(terminal, &["note", "create", "--studio", "main", "--title", &title]);
        told.lock().unwrap().push((title, output.code, output.stderr));
    }
}

/// The same through a server that stays up and keeps its connections.
fn posts(server: &Server, token: &str, who: usize, is_over: &AtomicBool, told: &Told) {
    for number in 0.. {
        if is_over.load(Ordering::Relaxed) {
            return;
        }
        let title = format!("page {who} {number}");
        let head = format!(
            "POST /notes/actions/create_note HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {token}\r\nAccept: application/json\r\nContent-Type: application/json",
            server.address
        );
        let (status, answer) =
            server.send(&head, &json!({ "studio": "main", "title": title, "body": "b" }).to_string());
        let code = match status {
            200 | 201 => 0,
            503 => 5,
            _ => 1,
        };
        told.lock().unwrap().push((title, code, answer));
    }
}

#[test]
fn nothing_that_was_acknowledged_is_lost_and_everyone_carries_on() {
    let pair = ServerPair::start();
    let terminal = Terminal::new_at_url(&pair.url);
    let made = terminal.home.path().join("made");
    terminal.json(&["workflow", "set", "--name", "ops"]);
    let script = format!("sleep 0.2; echo \"$TRACKWAY_RUN\" >> {}", made.display());
    let define = ["task", "set", "--workflow", "ops", "--variant", "t", "--recurring", "true", "--script", &script];
    terminal.json(&define);
    for _ in 0..ITEMS {
        terminal.json(&["queue", "add", "--task", "t"]);
    }
    let token = text(&terminal.json(&["token", "create", "--name", "pages"])["token"]);
    let mut workers: Vec<_> =
        (0..2).map(|_| Worker::start(&terminal, &["--concurrency", "2", "--lease", "20"])).collect();
    let servers: Vec<_> = (0..2).map(|_| Server::start(&terminal)).collect();
    let (told, is_over) = (Told::default(), AtomicBool::new(false));
    thread::scope(|scope| {
        for who in 0..WRITERS {
            let (terminal, server, token, told, is_over) = (&terminal, &servers[who % 2], &token, &told, &is_over);
            scope.spawn(move || writes(terminal, who, is_over, told));
            scope.spawn(move || posts(server, token, who, is_over, told));
        }
        thread::sleep(Duration::from_secs(2));
        pair.kill_primary();
        thread::sleep(Duration::from_secs(1));
        pair.promote_standby();
        thread::sleep(Duration::from_secs(3));
        is_over.store(true, Ordering::Relaxed);
    });

    // Everyone carries on without a restart of theirs.
    wait_for(|| (terminal.json(&["queue", "size"])["by_status"] == json!({ "completed": ITEMS })).then_some(()));
    for worker in &mut workers {
        assert!(worker.0.try_wait().unwrap().is_none(), "a worker ended");
    }
    for server in &servers {
        let head = format!("GET /queue HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {token}", server.address);
        let (status, answer) = server.send(&head, "");
        assert_eq!(status, 200, "{answer}");
    }

    let told = told.into_inner().unwrap();
    let mut kept = BTreeMap::new();
    let mut connection = Connection::postgres(&pair.url).unwrap();
    for (title,) in connection.query::<(String,)>("select title from notes", &[]).unwrap() {
        *kept.entry(title).or_insert(0) += 1;
    }
    let mut sorts = BTreeMap::new();
    for (title, code, said) in &told {
        *sorts.entry(*code).or_insert(0) += 1;
        let times = kept.get(title).copied().unwrap_or(0);
        match code {
            0 => assert_eq!(times, 1, "{title} was acknowledged"),
            5 => assert_eq!(times, 0, "{title} was not done, it was said: {said}"),
            _ => assert!(said.contains("before PostgreSQL confirmed the change") && times <= 1, "{title}: {said}"),
        }
    }
    assert!(sorts[&0] > 20 && sorts.contains_key(&5), "{sorts:?}");

    // Each item was ended by one run, the one that held its fence, whose script ran once.
    let made = std::fs::read_to_string(made).unwrap();
    for item in column(&terminal.json(&["queue", "list", "--limit", "1000"]), "id") {
        let item = terminal.json(&["queue", "get", &item]);
        let runs = item["runs"].as_array().unwrap();
        let completed: Vec<&Value> = runs.iter().filter(|run| run["status"] == "completed").collect();
        assert_eq!(completed.len(), 1, "{item:#}");
        assert_eq!(completed[0]["run_id"], item["run_id"], "{item:#}");
        let script_runs = made.lines().filter(|run| completed[0]["run_id"] == **run).count();
        assert_eq!(script_runs, 1, "{item:#}");
    }
}

#[test]
fn a_standby_can_be_read_and_takes_no_writes() {
    let pair = ServerPair::start();
    let terminal = Terminal::new_at_url(&pair.url);
    let alone = pair.standby_url();
    wait_for(|| (typed(&terminal, &["note", "list", "--db", &alone]).code == 0).then_some(()));
    let refused = typed(&terminal, &["note", "create", "--studio", "main", "--title", "first", "--db", &alone]);
    assert_eq!(refused.code, 5, "{}", refused.stderr);
    assert!(refused.stderr.contains("this PostgreSQL server accepts no writes"), "{}", refused.stderr);
    pair.kill_primary();
    pair.promote_standby();
    let made = typed(&terminal, &["note", "create", "--studio", "main", "--title", "first", "--db", &alone]);
    assert_eq!(made.code, 0, "{}", made.stderr);
}

#[test]
fn a_commit_without_an_answer_is_looked_up_and_never_guessed() {
    let pair = ServerPair::start();
    let terminal = Terminal::new_at_url(&pair.url);
    let mut side = Connection::postgres(&pair.url).unwrap();
    // Nobody is told of a commit from here on: the standby that it waits for is not there.
    side.batch("set synchronous_commit = local").unwrap();
    let wait_for_standby = |side: &mut Connection, standby: &str| {
        side.batch(&format!("alter system set synchronous_standby_names = '{standby}'")).unwrap();
        side.batch("select pg_reload_conf()").unwrap();
    };
    wait_for_standby(&mut side, "nobody");
    let waiting = "from pg_stat_activity where application_name = 'trackway' and wait_event = 'SyncRep'";
    let pids = format!("select cast(pid as bigint) {waiting}");
    let waiting_pid = |side: &mut Connection| side.query::<(i64,)>(&pids, &[]).unwrap().first().map(|(pid,)| *pid);
    thread::scope(|scope| {
        let written = scope.spawn(|| typed(&terminal, &["note", "create", "--studio", "main", "--title", "first"]));
        let first = wait_for(|| waiting_pid(&mut side));
        // Its wait is ended. It is there, and not in both: that is not enough.
        side.query::<(bool,)>(&format!("select pg_terminate_backend(pid) {waiting}"), &[]).unwrap();
        wait_for(|| waiting_pid(&mut side).filter(|pid| *pid != first));
        assert!(!written.is_finished());
        wait_for_standby(&mut side, "second");
        let output = written.join().unwrap();
        assert_eq!(output.code, 0, "{}", output.stderr);
    });

    // Where nobody can say it, it is said to be unknown.
    wait_for_standby(&mut side, "nobody");
    thread::scope(|scope| {
        let written = scope.spawn(|| typed(&terminal, &["note", "create", "--studio", "main", "--title", "second"]));
        wait_for(|| waiting_pid(&mut side));
        pair.kill_primary();
        let output = written.join().unwrap();
        assert_eq!(output.code, 1, "{}", output.stderr);
        assert!(output.stderr.contains("lost before PostgreSQL confirmed the change"), "{}", output.stderr);
        assert!(output.stderr.contains("check before you try again"), "{}", output.stderr);
    });
    let refused = typed(&terminal, &["note", "create", "--studio", "main", "--title", "third"]);
    assert_eq!(refused.code, 5, "{}", refused.stderr);
    assert!(refused.stderr.contains("does not allow writes"), "{}", refused.stderr);
    pair.promote_standby();
    let titles = column(&terminal.json(&["note", "list"]), "title");
    assert!(titles.contains(&"first".to_owned()) && !titles.contains(&"third".to_owned()), "{titles:?}");
}

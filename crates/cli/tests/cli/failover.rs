//! A PostgreSQL primary is killed and its standby takes over, while commands, workers and servers use them.

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

/// The title, the exit code and the error text of each write.
type WriteResults = Mutex<Vec<(String, i32, String)>>;

const ITEMS: usize = 40;
const WRITERS: usize = 4;

fn run_json(terminal: &Terminal, arguments: &[&str]) -> CommandOutput {
    let mut command = terminal.command(arguments);
    command.arg("--json");
    run_command(command)
}

/// Creates notes by command until it is stopped, and records each result.
fn create_notes(terminal: &Terminal, writer: usize, is_stopped: &AtomicBool, results: &WriteResults) {
    for number in 0.. {
        if is_stopped.load(Ordering::Relaxed) {
            return;
        }
        let title = format!("note {writer} {number}");
        let output = run_json(terminal, &["note", "create", "--studio", "main", "--title", &title]);
        results.lock().unwrap().push((title, output.code, output.stderr));
    }
}

/// Creates notes over HTTP until it is stopped, and records each result. The server keeps its database connections.
fn post_notes(server: &Server, token: &str, writer: usize, is_stopped: &AtomicBool, results: &WriteResults) {
    for number in 0.. {
        if is_stopped.load(Ordering::Relaxed) {
            return;
        }
        let title = format!("page {writer} {number}");
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
        results.lock().unwrap().push((title, code, answer));
    }
}

#[test]
fn failover_loses_no_acknowledged_write_and_clients_continue() {
    let pair = ServerPair::start();
    let terminal = Terminal::new_at_url(&pair.url);
    let script_log = terminal.home.path().join("made");
    terminal.json(&["workflow", "set", "--name", "ops"]);
    let script = format!("sleep 0.2; echo \"$TRACKWAY_RUN\" >> {}", script_log.display());
    let define = ["task", "set", "--workflow", "ops", "--variant", "t", "--recurring", "true", "--script", &script];
    terminal.json(&define);
    for _ in 0..ITEMS {
        terminal.json(&["queue", "add", "--task", "t"]);
    }
    let token = text(&terminal.json(&["token", "create", "--name", "pages"])["token"]);
    let mut workers: Vec<_> =
        (0..2).map(|_| Worker::start(&terminal, &["--concurrency", "2", "--lease", "20"])).collect();
    let servers: Vec<_> = (0..2).map(|_| Server::start(&terminal)).collect();
    let (results, is_stopped) = (WriteResults::default(), AtomicBool::new(false));
    thread::scope(|scope| {
        for writer in 0..WRITERS {
            let (terminal, server, token, results, is_stopped) =
                (&terminal, &servers[writer % 2], &token, &results, &is_stopped);
            scope.spawn(move || create_notes(terminal, writer, is_stopped, results));
            scope.spawn(move || post_notes(server, token, writer, is_stopped, results));
        }
        thread::sleep(Duration::from_secs(2));
        pair.kill_primary();
        thread::sleep(Duration::from_secs(1));
        pair.promote_standby();
        thread::sleep(Duration::from_secs(3));
        is_stopped.store(true, Ordering::Relaxed);
    });

    // Workers and servers continue without a restart.
    wait_for(|| (terminal.json(&["queue", "size"])["by_status"] == json!({ "completed": ITEMS })).then_some(()));
    for worker in &mut workers {
        assert!(worker.0.try_wait().unwrap().is_none(), "a worker ended");
    }
    for server in &servers {
        let head = format!("GET /queue HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {token}", server.address);
        let (status, answer) = server.send(&head, "");
        assert_eq!(status, 200, "{answer}");
    }

    let results = results.into_inner().unwrap();
    let mut stored = BTreeMap::new();
    let mut connection = Connection::postgres(&pair.url).unwrap();
    for (title,) in connection.query::<(String,)>("select title from notes", &[]).unwrap() {
        *stored.entry(title).or_insert(0) += 1;
    }
    let mut count_by_code = BTreeMap::new();
    for (title, code, error) in &results {
        *count_by_code.entry(*code).or_insert(0) += 1;
        let times = stored.get(title).copied().unwrap_or(0);
        match code {
            0 => assert_eq!(times, 1, "{title} was acknowledged"),
            5 => assert_eq!(times, 0, "{title} was reported as not written: {error}"),
            _ => assert!(error.contains("before PostgreSQL confirmed the change") && times <= 1, "{title}: {error}"),
        }
    }
    assert!(count_by_code[&0] > 20 && count_by_code.contains_key(&5), "{count_by_code:?}");

    // Exactly one run completed each item. This run held the fence of the item, and ran the script once.
    let script_log = std::fs::read_to_string(script_log).unwrap();
    for item in column(&terminal.json(&["queue", "list", "--limit", "1000"]), "id") {
        let item = terminal.json(&["queue", "get", &item]);
        let runs = item["runs"].as_array().unwrap();
        let completed: Vec<&Value> = runs.iter().filter(|run| run["status"] == "completed").collect();
        assert_eq!(completed.len(), 1, "{item:#}");
        assert_eq!(completed[0]["run_id"], item["run_id"], "{item:#}");
        let script_runs = script_log.lines().filter(|run| completed[0]["run_id"] == **run).count();
        assert_eq!(script_runs, 1, "{item:#}");
    }
}

#[test]
fn standby_serves_reads_and_rejects_writes() {
    let pair = ServerPair::start();
    let terminal = Terminal::new_at_url(&pair.url);
    let alone = pair.standby_url();
    wait_for(|| (run_json(&terminal, &["note", "list", "--db", &alone]).code == 0).then_some(()));
    let refused = run_json(&terminal, &["note", "create", "--studio", "main", "--title", "first", "--db", &alone]);
    assert_eq!(refused.code, 5, "{}", refused.stderr);
    assert!(refused.stderr.contains("this PostgreSQL server accepts no writes"), "{}", refused.stderr);
    pair.kill_primary();
    pair.promote_standby();
    let made = run_json(&terminal, &["note", "create", "--studio", "main", "--title", "first", "--db", &alone]);
    assert_eq!(made.code, 0, "{}", made.stderr);
}

#[test]
fn unconfirmed_commit_is_looked_up_or_reported_as_unknown() {
    let pair = ServerPair::start();
    let terminal = Terminal::new_at_url(&pair.url);
    let mut side = Connection::postgres(&pair.url).unwrap();
    // Only this connection commits without a standby. All other commits wait for a standby that does not exist.
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
        let written = scope.spawn(|| run_json(&terminal, &["note", "create", "--studio", "main", "--title", "first"]));
        let first = wait_for(|| waiting_pid(&mut side));
        // The terminated connection has committed on the primary only. The command therefore does not report success,
        // but waits for a standby again.
        side.query::<(bool,)>(&format!("select pg_terminate_backend(pid) {waiting}"), &[]).unwrap();
        wait_for(|| waiting_pid(&mut side).filter(|pid| *pid != first));
        assert!(!written.is_finished());
        wait_for_standby(&mut side, "second");
        let output = written.join().unwrap();
        assert_eq!(output.code, 0, "{}", output.stderr);
    });

    // If no server can confirm the commit, the command reports that the outcome is unknown.
    wait_for_standby(&mut side, "nobody");
    thread::scope(|scope| {
        let written = scope.spawn(|| run_json(&terminal, &["note", "create", "--studio", "main", "--title", "second"]));
        wait_for(|| waiting_pid(&mut side));
        pair.kill_primary();
        let output = written.join().unwrap();
        assert_eq!(output.code, 1, "{}", output.stderr);
        assert!(output.stderr.contains("lost before PostgreSQL confirmed the change"), "{}", output.stderr);
        assert!(output.stderr.contains("check before you try again"), "{}", output.stderr);
    });
    let refused = run_json(&terminal, &["note", "create", "--studio", "main", "--title", "third"]);
    assert_eq!(refused.code, 5, "{}", refused.stderr);
    assert!(refused.stderr.contains("does not allow writes"), "{}", refused.stderr);
    pair.promote_standby();
    let titles = column(&terminal.json(&["note", "list"]), "title");
    assert!(titles.contains(&"first".to_owned()) && !titles.contains(&"third".to_owned()), "{titles:?}");
}

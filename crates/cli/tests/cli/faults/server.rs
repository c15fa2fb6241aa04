//! A PostgreSQL server that crashes, and a network that silently drops packets.

use std::{
    process::{Command, Stdio},
    sync::{
        Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use trackway_testkit::{CrashingServer, poll, wait_until};

use super::{
    ProcessGroup, SeededRandom,
    audit::{AcknowledgedWrite, assert_doctor_findings, audit, connection, count},
    is_exhaustive, print_skip_reason,
};
use crate::{
    mcp_client::Server,
    terminal::{Terminal, run_command, run_command_with_input, text},
};

/// Creates a task whose script creates a note, and queues it this many times.
fn create_task_and_items(terminal: &Terminal, items: usize) {
    terminal.json(&["workflow", "set", "--name", "ops"]);
    let script = "trackway note create --studio main --title \"$TRACKWAY_TASK\" >/dev/null || exit 1";
    terminal.json(&[
        "task",
        "set",
        "--workflow",
        "ops",
        "--variant",
        "noted",
        "--recurring",
        "true",
        "--script",
        script,
    ]);
    for _ in 0..items {
        terminal.json(&["queue", "add", "--task", "noted", "--max-attempts", "50"]);
    }
}

/// Asserts that every item was completed by the run that holds its fence and created its note.
#[track_caller]
fn assert_all_items_completed_once(terminal: &Terminal, items: i64) {
    wait_until("every item is completed", Duration::from_mins(2), || {
        (count(terminal, "queue_items where status = 'completed'") >= items).then_some(())
    });
    let without_note = "queue_items q where q.status = 'completed' and not exists (
        select 1 from runs r join run_resources t on t.run_id = r.id and t.resource_type = 'note'
        where r.id = q.run_id and r.status = 'completed' and r.fence = q.fence)";
    assert_eq!(count(terminal, without_note), 0, "an item was completed by a run that did not create its note");
    assert_eq!(count(terminal, "queue_items where finished_at is null"), 0);
    assert_eq!(count(terminal, "runs where status = 'running' and queue_item_id is not null"), 0);
}

/// Checks all indexes against their tables with PostgreSQL's `amcheck`.
fn check_indexes(terminal: &Terminal) {
    let mut database = connection(terminal);
    database.batch("create extension if not exists amcheck").unwrap();
    let checked: Vec<(i64,)> = database
        .query(
            "select count(bt_index_check(c.oid, true)) from pg_index i join pg_class c on c.oid = i.indexrelid
             join pg_am a on a.oid = c.relam where a.amname = 'btree' and c.relnamespace = 'public'::regnamespace",
            &[],
        )
        .unwrap();
    assert!(checked[0].0 >= 0);
}

fn file_write_event(terminal: &Terminal, call: &str) -> String {
    let event = json!({
        "hook_event_name": "PostToolUse", "session_id": "s1", "cwd": terminal.home.path(), "tool_name": "Write",
        "tool_use_id": call, "tool_input": { "file_path": format!("{call}.txt"), "content": "x" },
        "tool_response": { "type": "create", "structuredPatch": [] },
    });
    event.to_string()
}

/// Sends one more event, which makes the hook apply its spooled events. Asserts that all events are recorded.
#[track_caller]
fn assert_no_hook_event_lost(terminal: &Terminal, calls: usize) {
    let output = run_command_with_input(terminal.command(&["hook"]), file_write_event(terminal, "last").as_bytes());
    assert_eq!((output.code, output.stderr.as_str()), (0, ""));
    assert_eq!(count(terminal, "file_changes"), i64::try_from(calls).unwrap() + 1);
}

#[test]
fn postgres_crashes_lose_no_acknowledged_write() {
    let mut random = SeededRandom::new();
    let server = CrashingServer::start();
    let terminal = Terminal::new_at_url(server.url.clone());
    let items = if is_exhaustive() { 200 } else { 40 };
    create_task_and_items(&terminal, items);
    let token = text(&terminal.json(&["token", "create", "--name", "web"])["token"]);
    let web_server = Server::start(&terminal);
    let mut command = terminal.command(&["work", "--lease", "2", "--concurrency", "3"]);
    command.env("PATH", std::env::var_os("PATH").unwrap()).stdout(Stdio::null()).stderr(Stdio::null());
    let _worker = ProcessGroup::spawn(&mut command);

    let is_stopped = AtomicBool::new(false);
    let acknowledged = Mutex::new(Vec::new());
    let record_acknowledged = |data: &Value| {
        let write = AcknowledgedWrite {
            action: "create_note".to_owned(),
            subject: text(&data["id"]).parse().unwrap(),
            run: None,
        };
        acknowledged.lock().unwrap().push(write);
    };
    let calls = thread::scope(|scope| {
        scope.spawn(|| {
            while !is_stopped.load(Ordering::Relaxed) {
                let output = terminal.run(&["note", "create", "--studio", "main", "--title", "by command", "--json"]);
                match output.code {
                    0 => record_acknowledged(&serde_json::from_str::<Value>(&output.stdout).unwrap()["data"]),
                    // The answer to the commit was lost, and the error says so.
                    1 => assert!(output.stderr.contains("the change may have been made"), "{}", output.stderr),
                    code => assert_eq!(code, 5, "{}", output.stderr),
                }
            }
        });
        scope.spawn(|| {
            while !is_stopped.load(Ordering::Relaxed) {
                let head = format!(
                    "POST /api/v1/actions/create_note HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {token}\r\nContent-Type: application/json",
                    web_server.address
                );
                let (status, answer) = web_server.send(&head, &json!({ "studio": "main", "title": "by request" }).to_string());
                match status {
                    200 | 201 => {
                        let (_, body) = answer.split_once("\r\n\r\n").unwrap();
                        let start = body.find('{').unwrap();
                        let end = body.rfind('}').unwrap();
                        let body: Value = serde_json::from_str(&body[start..=end]).unwrap();
                        record_acknowledged(if body["data"].is_null() { &body } else { &body["data"] });
                    }
                    500 => assert!(answer.contains("the change may have been made"), "{answer}"),
                    status => assert_eq!(status, 503, "{answer}"),
                }
                thread::sleep(Duration::from_millis(10));
            }
        });
        let hooks = scope.spawn(|| {
            let mut calls = 0;
            while !is_stopped.load(Ordering::Relaxed) {
                let event = file_write_event(&terminal, &format!("call-{calls}"));
                let output = run_command_with_input(terminal.command(&["hook"]), event.as_bytes());
                assert_eq!((output.code, output.stderr.as_str()), (0, ""));
                calls += 1;
            }
            calls
        });
        for _ in 0..if is_exhaustive() { 15 } else { 3 } {
            thread::sleep(Duration::from_millis(300) + random.duration_below(Duration::from_millis(1_200)));
            server.crash();
        }
        thread::sleep(Duration::from_millis(500));
        is_stopped.store(true, Ordering::Relaxed);
        hooks.join().unwrap()
    });
    let acknowledged = acknowledged.into_inner().unwrap();
    assert!(acknowledged.len() > 10, "{}", acknowledged.len());
    assert_all_items_completed_once(&terminal, i64::try_from(items).unwrap());
    assert_no_hook_event_lost(&terminal, calls);
    audit(&terminal, &acknowledged);
    check_indexes(&terminal);
    // The hooks spooled their events while the server was down, so their log is empty.
    assert_doctor_findings(&terminal, &[]);
}

/// A network namespace that contains only a loopback interface.
struct Network(ProcessGroup);

impl Network {
    fn new() -> Option<Self> {
        let mut command = Command::new("unshare");
        command.args(["--net", "sh", "-c", "ip link set lo up && exec sleep 600"]).stdin(Stdio::null());
        let network = Self(ProcessGroup::spawn(command.stderr(Stdio::null())));
        let is_up =
            || network.run(&["ip", "-br", "link", "show", "lo", "up"]).is_ok_and(|printed| printed.contains("UNKNOWN"));
        if poll(Duration::from_secs(1), || is_up().then_some(())).is_none() {
            print_skip_reason("this user must not create a network namespace");
            return None;
        }
        if let Err(why) = network.run(&["nft", "list", "tables"]) {
            print_skip_reason(&format!("packets cannot be dropped ({why}): apt-get install nftables"));
            return None;
        }
        Some(network)
    }

    fn nsenter_arguments(&self) -> Vec<String> {
        ["nsenter", "--target", &self.0.0.id().to_string(), "--net", "--"].map(str::to_owned).to_vec()
    }

    fn run(&self, arguments: &[&str]) -> Result<String, String> {
        let nsenter = self.nsenter_arguments();
        let output = Command::new(&nsenter[0]).args(&nsenter[1..]).args(arguments).output().unwrap();
        if output.status.success() {
            Ok(String::from_utf8(output.stdout).unwrap())
        } else {
            Err(String::from_utf8(output.stderr).unwrap())
        }
    }

    /// A command of a terminal, inside this network and with another database URL.
    fn command(&self, terminal: &Terminal, url: &str, arguments: &[&str]) -> Command {
        let command_outside = terminal.command(arguments);
        let nsenter = self.nsenter_arguments();
        let mut command = Command::new(&nsenter[0]);
        command
            .args(&nsenter[1..])
            .arg(command_outside.get_program())
            .args(command_outside.get_args())
            .env_clear()
            .envs(command_outside.get_envs().filter_map(|(name, value)| Some((name, value?))))
            .env("TRACKWAY_DB", url)
            .env("PATH", std::env::var_os("PATH").unwrap())
            .current_dir(terminal.home.path())
            .stdin(Stdio::null());
        command
    }

    /// From now on, silently drops all packets to and from the server.
    fn drop_packets(&self) {
        for rule in [
            "add table inet cut",
            "add chain inet cut in { type filter hook input priority 0 ; }",
            "add rule inet cut in tcp dport 5432 drop",
            "add rule inet cut in tcp sport 5432 drop",
        ] {
            let arguments: Vec<&str> = std::iter::once("nft").chain(rule.split(' ')).collect();
            self.run(&arguments).unwrap();
        }
    }

    fn restore_packets(&self) {
        self.run(&["nft", "delete", "table", "inet", "cut"]).unwrap();
    }
}

#[test]
fn dropped_packets_are_detected_and_survived() {
    let Some(network) = Network::new() else { return };
    let nsenter = network.nsenter_arguments();
    let server = CrashingServer::start_with_wrapper(&nsenter.iter().map(String::as_str).collect::<Vec<_>>());
    let url = server.listen();
    // The test itself connects through a Unix socket, which the dropped packets do not affect.
    let terminal = Terminal::new_at_url(server.url.clone());
    create_task_and_items(&terminal, 20);
    terminal.json(&["task", "set", "--workflow", "ops", "--variant", "idle", "--recurring", "true"]);
    let in_network = |arguments: &[&str]| network.command(&terminal, &url, arguments);
    let note = ["note", "create", "--studio", "main", "--title", "x", "--json"];
    let mut acknowledged = Vec::new();
    let output = run_command(in_network(&note));
    assert_eq!(output.code, 0, "{}", output.stderr);
    let data = serde_json::from_str::<Value>(&output.stdout).unwrap()["data"].clone();
    acknowledged.push(AcknowledgedWrite {
        action: "create_note".to_owned(),
        subject: text(&data["id"]).parse().unwrap(),
        run: None,
    });

    let mut command = in_network(&["work", "--lease", "3", "--concurrency", "2"]);
    let mut worker = ProcessGroup::spawn(command.stdout(Stdio::null()).stderr(Stdio::null()));
    wait_until("the worker has completed three items", Duration::from_secs(30), || {
        (count(&terminal, "queue_items where status = 'completed'") > 2).then_some(())
    });
    // This command waits for an answer that will never arrive.
    let mut lock = connection(&terminal);
    lock.batch("begin; lock table decisions in exclusive mode").unwrap();
    let decide = ["decision", "create", "--studio", "main", "--question", "q", "--option", "a"];
    let mut waiting = ProcessGroup::spawn(in_network(&decide).stdout(Stdio::null()).stderr(Stdio::null()));
    wait_until("the command waits for the lock", Duration::from_secs(10), || {
        (count(&terminal, "pg_stat_activity where wait_event_type = 'Lock' and query like '%decisions%'") > 0)
            .then_some(())
    });
    // This worker vanishes without closing its connections. The server must close them after a while.
    connection(&terminal).batch("create database gone_worker").unwrap();
    let gone_worker_url = url.replace("/postgres?", "/gone_worker?");
    assert_eq!(run_command(network.command(&terminal, &gone_worker_url, &["init"])).code, 0);
    let mut command = network.command(&terminal, &gone_worker_url, &["work"]);
    let mut gone_worker = ProcessGroup::spawn(command.stdout(Stdio::null()).stderr(Stdio::null()));
    let open_connections = "pg_stat_activity where datname = 'gone_worker'";
    wait_until("the worker is connected", Duration::from_secs(20), || {
        (count(&terminal, open_connections) > 1).then_some(())
    });
    network.drop_packets();
    let dropped_at = Instant::now();
    gone_worker.kill();
    lock.batch("rollback").unwrap();

    // New commands fail soon.
    let output = run_command(in_network(&note));
    assert_eq!(output.code, 5, "{}", output.stderr);
    assert!(output.stderr.contains("PostgreSQL cannot be reached"), "{}", output.stderr);
    assert!(dropped_at.elapsed() < Duration::from_secs(12), "{:?}", dropped_at.elapsed());
    // The hook waits for one second, and spools the event.
    for call in ["call-0", "call-1"] {
        let started = Instant::now();
        let output = run_command_with_input(in_network(&["hook"]), file_write_event(&terminal, call).as_bytes());
        assert_eq!((output.code, output.stdout.as_str(), output.stderr.as_str()), (0, "", ""));
        assert!(started.elapsed() < Duration::from_secs(4), "{:?}", started.elapsed());
    }
    // The waiting command gives up.
    let code = waiting.wait_for_exit(Duration::from_secs(40));
    // Exit code 5: the database is busy. Exit code 1: the outcome is unknown.
    assert!(matches!(code, Some(1 | 5)), "{code:?} after {:?}", dropped_at.elapsed());
    assert_eq!(worker.wait_for_exit(Duration::ZERO), None, "the worker gave up");
    network.restore_packets();
    wait_until("the server closes the connections of the killed worker", Duration::from_secs(20), || {
        (count(&terminal, open_connections) == 0).then_some(())
    });

    // Items whose leases expired meanwhile are taken again, with a new fence.
    assert_all_items_completed_once(&terminal, 20);
    let output = run_command_with_input(in_network(&["hook"]), file_write_event(&terminal, "call-2").as_bytes());
    assert_eq!((output.code, output.stderr.as_str()), (0, ""));
    assert_eq!(count(&terminal, "file_changes"), 3);
    // The worker still learns of new items.
    terminal.json(&["queue", "add", "--task", "noted"]);
    assert_all_items_completed_once(&terminal, 21);
    audit(&terminal, &acknowledged);
    let mut doctor = in_network(&["doctor", "--json"]);
    let output = run_command_with_input(
        {
            doctor.stdin(Stdio::null());
            doctor
        },
        b"",
    );
    assert_eq!(output.code, 0, "{}", output.stdout);
}

//! A PostgreSQL server that crashes, and a network that swallows what is sent.

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
    SeededRandom, ProcessGroup,
    audit::{AcknowledgedWrite, audit, connection, count, assert_doctor_findings},
    is_exhaustive, print_skip_reason,
};
use crate::{
    mcp_client::Server,
    terminal::{Terminal, run_command, run_command_with_input, text},
};

/// A task whose script leaves a note, and items of it.
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

/// Every item was completed, by a run that wrote its note and holds it to the end.
#[track_caller]
fn assert_all_items_completed_once(terminal: &Terminal, items: i64) {
    wait_until("every item is completed", Duration::from_mins(2), || {
        (count(terminal, "queue_items where status = 'completed'") >= items).then_some(())
    });
    let without = "queue_items q where q.status = 'completed' and not exists (
        select 1 from runs r join run_resources t on t.run_id = r.id and t.resource_type = 'note'
        where r.id = q.run_id and r.status = 'completed' and r.fence = q.fence)";
    assert_eq!(count(terminal, without), 0, "completed by a run that did not do it");
    assert_eq!(count(terminal, "queue_items where finished_at is null"), 0);
    assert_eq!(count(terminal, "runs where status = 'running' and queue_item_id is not null"), 0);
}

/// The server's own look at its indexes and the rows they lead to.
fn amcheck(terminal: &Terminal) {
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

/// Everything the hook took is in the record, once it has taken another.
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
    let up = Server::start(&terminal);
    let mut command = terminal.command(&["work", "--lease", "2", "--concurrency", "3"]);
    command.env("PATH", std::env::var_os("PATH").unwrap()).stdout(Stdio::null()).stderr(Stdio::null());
    let _worker = ProcessGroup::spawn(&mut command);

    let is_stopped = AtomicBool::new(false);
    let acknowledged = Mutex::new(Vec::new());
    let keep = |data: &Value| {
        let write =
            AcknowledgedWrite { action: "create_note".to_owned(), subject: text(&data["id"]).parse().unwrap(), run: None };
        acknowledged.lock().unwrap().push(write);
    };
    let calls = thread::scope(|scope| {
        scope.spawn(|| {
            while !is_stopped.load(Ordering::Relaxed) {
                let output = terminal.run(&["note", "create", "--studio", "main", "--title", "by command", "--json"]);
                match output.code {
                    0 => keep(&serde_json::from_str::<Value>(&output.stdout).unwrap()["data"]),
                    // Its answer was lost: nobody knows, and it says so.
                    1 => assert!(output.stderr.contains("the change may have been made"), "{}", output.stderr),
                    code => assert_eq!(code, 5, "{}", output.stderr),
                }
            }
        });
        scope.spawn(|| {
            while !is_stopped.load(Ordering::Relaxed) {
                let head = format!(
                    "POST /api/v1/actions/create_note HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {token}\r\nContent-Type: application/json",
                    up.address
                );
                let (status, answer) = up.send(&head, &json!({ "studio": "main", "title": "by request" }).to_string());
                match status {
                    200 | 201 => {
                        let (_, body) = answer.split_once("\r\n\r\n").unwrap();
                        let start = body.find('{').unwrap();
                        let end = body.rfind('}').unwrap();
                        let said: Value = serde_json::from_str(&body[start..=end]).unwrap();
                        keep(if said["data"].is_null() { &said } else { &said["data"] });
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
    amcheck(&terminal);
    // What it failed with while the server was away is in no log: it waited.
    assert_doctor_findings(&terminal, &[]);
}

/// A network of its own, with nothing in it but this machine.
struct Network(ProcessGroup);

impl Network {
    fn new() -> Option<Self> {
        let mut command = Command::new("unshare");
        command.args(["--net", "sh", "-c", "ip link set lo up && exec sleep 600"]).stdin(Stdio::null());
        let network = Self(ProcessGroup::spawn(command.stderr(Stdio::null())));
        let is_up =
            || network.run(&["ip", "-br", "link", "show", "lo", "up"]).is_ok_and(|said| said.contains("UNKNOWN"));
        if poll(Duration::from_secs(1), || is_up().then_some(())).is_none() {
            print_skip_reason("this user may not make a network");
            return None;
        }
        if let Err(why) = network.run(&["nft", "list", "tables"]) {
            print_skip_reason(&format!("packets cannot be dropped ({why}): apt-get install nftables"));
            return None;
        }
        Some(network)
    }

    fn nsenter(&self) -> Vec<String> {
        ["nsenter", "--target", &self.0.0.id().to_string(), "--net", "--"].map(str::to_owned).to_vec()
    }

    fn run(&self, words: &[&str]) -> Result<String, String> {
        let nsenter = self.nsenter();
        let output = Command::new(&nsenter[0]).args(&nsenter[1..]).args(words).output().unwrap();
        if output.status.success() {
            Ok(String::from_utf8(output.stdout).unwrap())
        } else {
            Err(String::from_utf8(output.stderr).unwrap())
        }
    }

    /// A command of a terminal, here, at another address.
    fn command(&self, terminal: &Terminal, url: &str, arguments: &[&str]) -> Command {
        let typed = terminal.command(arguments);
        let nsenter = self.nsenter();
        let mut command = Command::new(&nsenter[0]);
        command
            .args(&nsenter[1..])
            .arg(typed.get_program())
            .args(typed.get_args())
            .env_clear()
            .envs(typed.get_envs().filter_map(|(name, value)| Some((name, value?))))
            .env("TRACKWAY_DB", url)
            .env("PATH", std::env::var_os("PATH").unwrap())
            .current_dir(terminal.home.path())
            .stdin(Stdio::null());
        command
    }

    /// From now on, nothing that is sent to or by the server arrives, and nobody is told.
    fn drop_packets(&self) {
        for rule in [
            "add table inet cut",
            "add chain inet cut in { type filter hook input priority 0 ; }",
            "add rule inet cut in tcp dport 5432 drop",
            "add rule inet cut in tcp sport 5432 drop",
        ] {
            let words: Vec<&str> = std::iter::once("nft").chain(rule.split(' ')).collect();
            self.run(&words).unwrap();
        }
    }

    fn restore_packets(&self) {
        self.run(&["nft", "delete", "table", "inet", "cut"]).unwrap();
    }
}

#[test]
fn dropped_packets_are_detected_and_survived() {
    let Some(network) = Network::new() else { return };
    let nsenter = network.nsenter();
    let server = CrashingServer::start_with_wrapper(&nsenter.iter().map(String::as_str).collect::<Vec<_>>());
    let url = server.listen();
    // Looked at from outside, through the socket, which is not cut.
    let terminal = Terminal::new_at_url(server.url.clone());
    create_task_and_items(&terminal, 20);
    terminal.json(&["task", "set", "--workflow", "ops", "--variant", "idle", "--recurring", "true"]);
    let here = |arguments: &[&str]| network.command(&terminal, &url, arguments);
    let note = ["note", "create", "--studio", "main", "--title", "x", "--json"];
    let mut acknowledged = Vec::new();
    let said = run_command(here(&note));
    assert_eq!(said.code, 0, "{}", said.stderr);
    let data = serde_json::from_str::<Value>(&said.stdout).unwrap()["data"].clone();
    acknowledged.push(AcknowledgedWrite {
        action: "create_note".to_owned(),
        subject: text(&data["id"]).parse().unwrap(),
        run: None,
    });

    let mut command = here(&["work", "--lease", "3", "--concurrency", "2"]);
    let mut worker = ProcessGroup::spawn(command.stdout(Stdio::null()).stderr(Stdio::null()));
    wait_until("the worker works", Duration::from_secs(30), || {
        (count(&terminal, "queue_items where status = 'completed'") > 2).then_some(())
    });
    // One that has asked, and waits for an answer that will not come.
    let mut lock = connection(&terminal);
    lock.batch("begin; lock table decisions in exclusive mode").unwrap();
    let decide = ["decision", "create", "--studio", "main", "--question", "q", "--option", "a"];
    let mut waiting = ProcessGroup::spawn(here(&decide).stdout(Stdio::null()).stderr(Stdio::null()));
    wait_until("it waits", Duration::from_secs(10), || {
        (count(&terminal, "pg_stat_activity where wait_event_type = 'Lock' and query like '%decisions%'") > 0)
            .then_some(())
    });
    // And one that is gone without a word: what it held on the server must not be held for ever.
    connection(&terminal).batch("create database gone_worker").unwrap();
    let gone_worker_url = url.replace("/postgres?", "/gone_worker?");
    assert_eq!(run_command(network.command(&terminal, &gone_worker_url, &["init"])).code, 0);
    let mut command = network.command(&terminal, &gone_worker_url, &["work"]);
    let mut gone_worker = ProcessGroup::spawn(command.stdout(Stdio::null()).stderr(Stdio::null()));
    let held = "pg_stat_activity where datname = 'gone_worker'";
    wait_until("the worker is connected", Duration::from_secs(20), || (count(&terminal, held) > 1).then_some(()));
    network.drop_packets();
    let cut_at = Instant::now();
    gone_worker.kill();
    lock.batch("rollback").unwrap();

    // New ones say soon that they cannot.
    let said = run_command(here(&note));
    assert_eq!(said.code, 5, "{}", said.stderr);
    assert!(said.stderr.contains("PostgreSQL cannot be reached"), "{}", said.stderr);
    assert!(cut_at.elapsed() < Duration::from_secs(12), "{:?}", cut_at.elapsed());
    // The hook gives it a second, and keeps the event.
    for call in ["call-0", "call-1"] {
        let started = Instant::now();
        let heard = run_command_with_input(here(&["hook"]), file_write_event(&terminal, call).as_bytes());
        assert_eq!((heard.code, heard.stdout.as_str(), heard.stderr.as_str()), (0, "", ""));
        assert!(started.elapsed() < Duration::from_secs(4), "{:?}", started.elapsed());
    }
    // Who waits for an answer does not wait for ever.
    let code = waiting.wait_for_exit(Duration::from_secs(40));
    // Busy, or that nobody knows whether it was made.
    assert!(matches!(code, Some(1 | 5)), "{code:?} after {:?}", cut_at.elapsed());
    assert_eq!(worker.wait_for_exit(Duration::ZERO), None, "the worker gave up");
    network.restore_packets();
    wait_until("the server lets go of who is gone", Duration::from_secs(20), || {
        (count(&terminal, held) == 0).then_some(())
    });

    // Those whose leases were over meanwhile are done again, by whoever has the fence.
    assert_all_items_completed_once(&terminal, 20);
    let heard = run_command_with_input(here(&["hook"]), file_write_event(&terminal, "call-2").as_bytes());
    assert_eq!((heard.code, heard.stderr.as_str()), (0, ""));
    assert_eq!(count(&terminal, "file_changes"), 3);
    // The worker still hears of new work.
    terminal.json(&["queue", "add", "--task", "noted"]);
    assert_all_items_completed_once(&terminal, 21);
    audit(&terminal, &acknowledged);
    let mut doctor = here(&["doctor", "--json"]);
    let said = run_command_with_input(
        {
            doctor.stdin(Stdio::null());
            doctor
        },
        b"",
    );
    assert_eq!(said.code, 0, "{}", said.stdout);
}

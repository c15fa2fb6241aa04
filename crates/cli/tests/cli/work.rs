//! Worker processes and the scripts that they run.

use std::{
    os::unix::process::CommandExt,
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicU32, Ordering},
    thread,
    time::Duration,
};

use serde_json::{Value, json};
use trackway_store::{Url, connection::Connection};
use trackway_testkit::{CrashingServer, Engine, wait_until};

use crate::hook::connection;
use crate::terminal::{Terminal, both_engines, column, text};

/// A worker process, which is killed when dropped.
pub struct Worker(pub Child);

impl Worker {
    pub fn start(terminal: &Terminal, arguments: &[&str]) -> Self {
        let mut command = terminal.command(&[&["work"], arguments].concat());
        // Scripts need the PATH of the tests.
        command.env("PATH", std::env::var_os("PATH").unwrap()).stdout(Stdio::null()).stderr(Stdio::null());
        Self(command.spawn().unwrap())
    }

    fn signal(&self, signal: &str) {
        assert!(Command::new("kill").args([signal, &self.0.id().to_string()]).status().unwrap().success());
    }

    fn wait_for_exit(&mut self) -> Option<i32> {
        self.0.wait().unwrap().code()
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn define_task(terminal: &Terminal, variant: &str, script: &str, more: &[&str]) {
    terminal.json(&["workflow", "set", "--name", "ops"]);
    let define = ["task", "set", "--workflow", "ops", "--variant", variant, "--script", script, "--recurring", "true"];
    terminal.json(&[&define, more].concat());
}

fn run_task(terminal: &Terminal, arguments: &[&str]) -> crate::terminal::CommandOutput {
    let mut command = terminal.command(&[&["task", "run"], arguments].concat());
    command.env("PATH", std::env::var_os("PATH").unwrap());
    crate::terminal::run_command(command)
}

fn last_run(terminal: &Terminal) -> Value {
    terminal.json(&["run", "show", "last"])
}

/// Waits until `found` returns a value.
#[track_caller]
pub fn wait_for<T>(found: impl FnMut() -> Option<T>) -> T {
    wait_until("the condition holds", Duration::from_mins(1), found)
}

fn status(terminal: &Terminal, item: &str) -> String {
    text(&terminal.json(&["queue", "get", item])["status"])
}

/// A duration for `sleep` that no other test uses, so that its process can be found by its arguments. Tests of one
/// binary share a process, so the process id alone is not unique.
fn unique_seconds() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("{}{:04}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

/// Whether any process has this argument.
fn has_process_with_argument(argument: &str) -> bool {
    std::fs::read_dir("/proc").unwrap().flatten().any(|entry| {
        std::fs::read(entry.path().join("cmdline"))
            .is_ok_and(|line| line.split(|byte| *byte == 0).any(|word| word == argument.as_bytes()))
    })
}

both_engines! {
    fn writes_of_a_script_are_recorded_in_its_run(terminal: Terminal) {
        define_task(&terminal, "notes/daily", "echo one; trackway note create --studio main --title \"from $TRACKWAY_TASK\" >/dev/null; echo two >&2", &[]);
        let output = run_task(&terminal, &["notes/daily"]);
        assert_eq!((output.code, output.stdout.as_str()), (0, "one\ntwo\n"));
        let run = last_run(&terminal);
        assert_eq!((&run["status"], &run["mode"], &run["final_message"]), (&json!("completed"), &json!("shell"), &json!("two")));
        assert_eq!(column(&run["steps"], "type").last().unwrap(), "done");
        assert_eq!(column(&run["touches"], "resource_type"), ["note", "message"]);
        let message = terminal.json(&["message", "get", run["touches"][1]["resource_id"].as_str().unwrap()]);
        assert_eq!((&message["body"], &message["status"], &message["title"]), (&json!("one\ntwo\n"), &json!("succeeded"), &json!("notes/daily")));
        let note = text(&run["touches"][0]["resource_id"]);
        let why = terminal.json(&["why", &note]);
        assert_eq!(column(&why["chain"], "kind"), ["resource", "run", "agent", "task", "queue_item", "person"]);
        assert_eq!(column(&why["chain"], "label")[3], "notes/daily @ 1");
        assert_eq!(terminal.json(&["queue", "size"])["by_status"], json!({ "completed": 1 }));
    }

    fn run_status_shows_how_the_script_ended(terminal: Terminal) {
        let [slow, ignores_term, kills_parent] = [(); 3].map(|()| unique_seconds());
        for (variant, script, timeout, code, status, error) in [
            ("fails", "echo why >&2; exit 3", "1m", 1, "failed", "exit code 3\nwhy"),
            ("killed", "kill -9 $$", "1m", 1, "failed", "exit code 137"),
            ("slow", &format!("echo begun; sleep {slow}"), "1s", 1, "timed_out", "timed out after 1s"),
            ("ignores_term", &format!("trap '' TERM; sleep {ignores_term} & wait; sleep {ignores_term}"), "1s", 1, "timed_out", "timed out after 1s"),
            ("kills_parent", &format!("sleep {kills_parent} & kill -9 $PPID; sleep {kills_parent}"), "1m", 1, "failed", "the script killed its parent"),
            ("absent", "definitely-no-such-program", "1m", 1, "failed", "exit code 127"),
            ("bytes", "printf 'a\\377b\\0c\\n'", "1m", 0, "completed", ""),
        ] {
            define_task(&terminal, variant, script, &["--timeout", timeout]);
            let output = run_task(&terminal, &["--variant", variant]);
            let run = last_run(&terminal);
            assert_eq!((output.code, run["status"].as_str().unwrap()), (code, status), "{variant}: {}", output.stderr);
            let actual_error = run["error"].as_str().unwrap_or_default();
            assert!(actual_error.starts_with(error), "{variant}: {actual_error}");
            assert!(output.stderr.contains(status), "{variant}: {}", output.stderr);
        }
        for mark in [slow, ignores_term, kills_parent] {
            assert!(!has_process_with_argument(&mark), "{mark} was left behind");
        }
        let detail = text(&last_run(&terminal)["steps"][0]["detail"]);
        assert_eq!(detail, "a\u{fffd}bc\n");
        assert_eq!(terminal.json(&["queue", "size"])["by_status"], json!({ "completed": 1, "failed": 6 }));
    }

    fn task_run_without_a_script_fails_and_queues_nothing(terminal: Terminal) {
        define_task(&terminal, "none", " ", &[]);
        let refused = run_task(&terminal, &["none"]);
        let hint = "set a script: trackway task set --workflow ops --variant none --script ...; or let an agent run the task: trackway task run none --agent A";
        assert_eq!((refused.code, refused.stderr), (4, format!("error: task none has no script\nhint: {hint}\n")));
        assert_eq!(terminal.json(&["queue", "size"])["total"], 0);
        assert_eq!(terminal.json(&["run", "list"]), json!([]));
        // The output names the version that ran if it is not the requested one.
        terminal.json(&["task", "set", "--workflow", "ops", "--variant", "some", "--script", "true", "--replaces", "none"]);
        let output = run_task(&terminal, &["none"]);
        assert!(output.code == 0 && output.stderr.contains(" of some completed\n"), "{}", output.stderr);
    }

    fn processes_left_by_a_script_are_killed(terminal: Terminal) {
        let [child, own, hidden, bare, orphan] = [(); 5].map(|()| unique_seconds());
        let script = format!("sleep {child} & setsid sleep {own} & (setsid nohup sleep {hidden} >/dev/null 2>&1 &); setsid env -i sleep {bare} & echo left");
        define_task(&terminal, "litter", &script, &[]);
        let output = run_task(&terminal, &["litter"]);
        assert_eq!((output.code, output.stdout.as_str()), (0, "left\n"));
        for mark in [child, own, hidden, bare] {
            assert!(!has_process_with_argument(&mark), "{mark} was left behind");
        }
        // Normally, the parent process of a script kills the processes that the script leaves behind. This script kills
        // its parent process, so the worker kills them.
        define_task(&terminal, "orphan", &format!("setsid env -i sleep {orphan} & sleep 0.1; kill -9 $PPID"), &[]);
        assert_eq!(run_task(&terminal, &["orphan"]).code, 1);
        assert!(!has_process_with_argument(&orphan), "{orphan} was left behind");
    }

    fn worker_skips_items_that_need_an_agent(terminal: Terminal) {
        define_task(&terminal, "scripted", "echo \"$TRACKWAY_DESCRIPTION\"", &[]);
        terminal.json(&["role", "set", "--name", "coder"]);
        terminal.json(&["task", "set", "--workflow", "ops", "--variant", "open", "--role", "coder"]);
        terminal.json(&["agent", "set", "--handle", "bot"]);
        let open = text(&terminal.json(&["queue", "add", "--task", "open"])["id"]);
        let assigned = text(&terminal.json(&["queue", "add", "--task", "scripted", "--agent", "bot"])["id"]);
        let own = text(&terminal.json(&["queue", "add", "--task", "scripted", "--description", "two cups"])["id"]);
        assert_eq!(terminal.json(&["queue", "get", &open])["role"], "coder", "the role of the task");
        let hint = terminal.run(&[]).stdout;
        assert!(hint.contains("next: to run the items in the queue: trackway work; 1 ready item is for agent bot: trackway work --agent bot;"), "{hint}");
        let mut command = terminal.command(&["work", "--once"]);
        command.env("PATH", std::env::var_os("PATH").unwrap());
        let output = crate::terminal::run_command(command);
        assert!(output.stderr.contains("skipped: 1 ready item is for agent bot: trackway work --agent bot\n"), "{}", output.stderr);
        assert!(output.stderr.contains("skipped: 1 ready item has a task without a script and needs an agent of role coder: trackway work --agent AGENT\n"), "{}", output.stderr);
        assert_eq!((status(&terminal, &own), status(&terminal, &open), status(&terminal, &assigned)), ("completed".into(), "ready".into(), "ready".into()));
        assert_eq!(last_run(&terminal)["final_message"], "two cups");
    }

    fn interrupted_task_run_is_cancelled(terminal: Terminal) {
        let mark = unique_seconds();
        define_task(&terminal, "endless", &format!("sleep {mark}"), &[]);
        let mut command = terminal.command(&["task", "run", "endless"]);
        command.env("PATH", std::env::var_os("PATH").unwrap()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut running = Worker(command.spawn().unwrap());
        wait_for(|| has_process_with_argument(&mark).then_some(()));
        running.signal("-INT");
        assert_eq!(running.wait_for_exit(), Some(1));
        assert!(!has_process_with_argument(&mark));
        assert_eq!(terminal.json(&["queue", "size"])["by_status"], json!({ "cancelled": 1 }));
        assert_eq!(last_run(&terminal)["status"], "cancelled");
    }

    fn output_over_one_million_characters_is_truncated(terminal: Terminal) {
        define_task(&terminal, "flood", "head -c 200000000 /dev/zero | tr '\\0' x; echo; echo end", &[]);
        let output = run_task(&terminal, &["flood"]);
        assert_eq!(output.code, 0);
        let run = last_run(&terminal);
        let steps = run["steps"].as_array().unwrap();
        let recorded: String = steps.iter().filter(|step| step["type"] == "shell").map(|step| text(&step["detail"])).collect();
        let end = format!("\n[output cut at 1000000 characters]\n[{} bytes left out]\n{}\nend\n", 200_000_005 - 1_000_000 - 4_000, "x".repeat(3_995));
        assert_eq!((recorded.len(), &recorded[1_000_000..]), (1_000_000 + end.len(), end.as_str()));
        assert_eq!(run["final_message"], "end");
        // The error keeps the end of the output, which explains the failure.
        define_task(&terminal, "fails", "yes abcdefghij | head -c 1200000; echo REAL ERROR >&2; exit 9", &[]);
        run_task(&terminal, &["fails"]);
        let error = text(&last_run(&terminal)["error"]);
        assert!(error.starts_with("exit code 9\n") && error.ends_with("REAL ERROR"), "{error}");
    }

    fn script_output_during_a_database_lock_is_recorded(terminal: Terminal) {
        define_task(&terminal, "burst", "echo 1; sleep 0.8; echo 2; sleep 0.4; for i in 3 4 5 6; do echo $i; sleep 0.2; done; echo RESULT", &[]);
        let mut blocker = connection(&terminal);
        let output = thread::scope(|scope| {
            let running = scope.spawn(|| run_task(&terminal, &["burst"]));
            wait_for(|| (terminal.json(&["run", "list"])[0]["status"] == "running").then_some(()));
            thread::sleep(Duration::from_millis(500));
            let lock = if matches!(terminal.database.url(), Url::Sqlite(_)) { "begin immediate" } else { "begin; lock table run_steps in access exclusive mode" };
            blocker.batch(lock).unwrap();
            thread::sleep(Duration::from_secs(3));
            blocker.batch("commit").unwrap();
            running.join().unwrap()
        });
        assert_eq!((output.code, output.stdout.as_str()), (0, "1\n2\n3\n4\n5\n6\nRESULT\n"));
        let run = last_run(&terminal);
        let recorded: String = run["steps"].as_array().unwrap().iter().filter(|step| step["type"] == "shell").map(|step| text(&step["detail"])).collect();
        assert_eq!(recorded, "1\n2\n3\n4\n5\n6\nRESULT\n");
    }

    fn script_folder_is_private_and_removed_when_the_worker_is_killed(terminal: Terminal) {
        let (mark, folder) = (unique_seconds(), tempfile::tempdir().unwrap());
        let report = folder.path().join("report");
        define_task(&terminal, "where", &format!("stat -c '%a %n' $(dirname $0) > {0}.new; mv {0}.new {0}; sleep {mark}", report.display()), &[]);
        terminal.json(&["queue", "add", "--task", "where"]);
        let mut worker = Worker::start(&terminal, &[]);
        let reported = wait_for(|| std::fs::read_to_string(&report).ok());
        let (mode, script_folder) = reported.trim().split_once(' ').unwrap();
        assert_eq!(mode, "700", "{script_folder}");
        worker.0.kill().unwrap();
        worker.wait_for_exit();
        wait_for(|| (!std::path::Path::new(script_folder).exists() && !has_process_with_argument(&mark)).then_some(()));
    }

    fn script_runs_in_the_directory_of_its_workspace(terminal: Terminal) {
        let folder = tempfile::tempdir().unwrap();
        let directory = folder.path().canonicalize().unwrap();
        terminal.json(&["workspace", "set", "--name", "here", "--dir", directory.to_str().unwrap()]);
        define_task(&terminal, "where", "pwd", &["--workspace", "here", "--shell", "sh -e"]);
        assert_eq!(run_task(&terminal, &["where"]).stdout, format!("{}\n", directory.display()));
        drop(folder);
        let output = run_task(&terminal, &["where"]);
        assert_eq!(output.code, 1);
        assert!(output.stderr.contains("the directory of workspace here does not exist"), "{}", output.stderr);
    }

    fn task_run_uses_the_version_pinned_for_its_role(terminal: Terminal) {
        define_task(&terminal, "greet/1", "echo one", &[]);
        define_task(&terminal, "greet/2", "echo two", &["--replaces", "greet/1"]);
        terminal.json(&["role", "set", "--name", "coder"]);
        assert_eq!(run_task(&terminal, &["greet/1"]).stdout, "two\n");
        terminal.json(&["package", "set", "--role", "coder", "--task", "greet/1"]);
        assert_eq!(run_task(&terminal, &["--variant", "greet/2", "--role", "coder"]).stdout, "one\n");
        assert_eq!(last_run(&terminal)["role"], "coder");
        assert_eq!(terminal.expect_error(&["task", "run", "greet/2", "--timeout", "0s"]).0, 2);
        // A task timeout of 0s counts as not set.
        define_task(&terminal, "greet/3", "echo three", &["--timeout", "0s"]);
        assert_eq!(run_task(&terminal, &["greet/3"]).stdout, "three\n");
        let queued = terminal.json(&["task", "run", "greet/1", "--detach"]);
        assert_eq!(queued["status"], "ready");
        let item = terminal.json(&["queue", "get", queued["id"].as_str().unwrap()]);
        assert_eq!((&item["variant"], &item["would_run"]), (&json!("greet/1"), &json!("greet/2")));
        assert_eq!(terminal.expect_error(&["task", "run", "nothing"]).0, 3);
        assert_eq!(terminal.expect_error(&["task", "run"]).0, 2);
    }

    fn task_run_resolves_versions_like_queue_items(terminal: Terminal) {
        terminal.json(&["role", "set", "--name", "coder"]);
        define_task(&terminal, "s", "echo one", &["--role", "coder"]);
        define_task(&terminal, "s2", "echo two", &["--replaces", "s"]);
        define_task(&terminal, "s3", "echo three", &["--replaces", "s2"]);
        terminal.json(&["package", "set", "--role", "coder", "--task", "s2"]);
        assert_eq!(run_task(&terminal, &["s"]).stdout, "two\n", "the pin of the task's role");
        let items = terminal.json(&["queue", "list", "--limit", "1"]);
        let item = terminal.json(&["queue", "get", items[0]["id"].as_str().unwrap()]);
        let [requested, run, exact, role] = ["variant", "run_variant", "exact", "role"].map(|field| item[field].clone());
        assert_eq!([requested, run, exact, role], [json!("s"), json!("s2"), json!(false), json!("coder")]);
        // A named agent in another role runs the current version.
        terminal.json(&["agent", "set", "--handle", "other", "--runner", "shell"]);
        assert_eq!(run_task(&terminal, &["s", "--agent", "other"]).stdout, "three\n");
    }

    fn worker_takes_new_items_and_finishes_its_script_on_sigterm(terminal: Terminal) {
        define_task(&terminal, "quick", "echo quick", &[]);
        define_task(&terminal, "slow", "sleep 1; echo slow", &[]);
        let mut worker = Worker::start(&terminal, &["--concurrency", "2"]);
        for _ in 0..3 {
            let item = text(&terminal.json(&["queue", "add", "--task", "quick"])["id"]);
            wait_for(|| (status(&terminal, &item) == "completed").then_some(()));
        }
        let slow = text(&terminal.json(&["queue", "add", "--task", "slow"])["id"]);
        wait_for(|| (status(&terminal, &slow) == "running").then_some(()));
        worker.signal("-TERM");
        assert_eq!(worker.wait_for_exit(), Some(0));
        // The worker let the running script finish.
        assert_eq!(status(&terminal, &slow), "completed");
    }

    fn interrupt_from_a_terminal_does_not_reach_scripts_of_the_worker(terminal: Terminal) {
        let started = terminal.home.path().join("begun");
        define_task(&terminal, "slow", &format!("touch {}; sleep 1; echo slow", started.display()), &[]);
        let slow = text(&terminal.json(&["queue", "add", "--task", "slow", "--max-attempts", "1"])["id"]);
        let mut command = terminal.command(&["work"]);
        // A terminal signals its whole foreground process group.
        command.env("PATH", std::env::var_os("PATH").unwrap()).process_group(0).stdout(Stdio::null()).stderr(Stdio::null());
        let mut worker = Worker(command.spawn().unwrap());
        wait_for(|| started.exists().then_some(()));
        assert_eq!(status(&terminal, &slow), "running");
        let group = format!("-{}", worker.0.id());
        assert!(Command::new("kill").args(["-INT", "--", &group]).status().unwrap().success());
        assert_eq!(worker.wait_for_exit(), Some(0));
        assert_eq!(status(&terminal, &slow), "completed");
    }

    fn worker_without_grace_period_releases_its_item_on_sigint(terminal: Terminal) {
        let mark = unique_seconds();
        define_task(&terminal, "endless", &format!("sleep {mark}"), &[]);
        let item = text(&terminal.json(&["queue", "add", "--task", "endless"])["id"]);
        let mut worker = Worker::start(&terminal, &["--grace", "0s"]);
        wait_for(|| has_process_with_argument(&mark).then_some(()));
        worker.signal("-INT");
        assert_eq!(worker.wait_for_exit(), Some(0));
        let shown = terminal.json(&["queue", "get", &item]);
        assert_eq!((&shown["status"], &shown["attempt"]), (&json!("ready"), &json!(1)));
        assert_eq!((&shown["runs"][0]["status"], &shown["runs"][0]["outcome"]), (&json!("cancelled"), &json!("released")));
        assert!(!has_process_with_argument(&mark));
    }

    fn cancelling_item_or_run_kills_the_script(terminal: Terminal) {
        let mark = unique_seconds();
        define_task(&terminal, "endless", &format!("sleep {mark}"), &[]);
        let _worker = Worker::start(&terminal, &["--concurrency", "2"]);
        let item = text(&terminal.json(&["queue", "add", "--task", "endless"])["id"]);
        wait_for(|| has_process_with_argument(&mark).then_some(()));
        terminal.json(&["queue", "cancel", "--id", &item]);
        wait_for(|| (!has_process_with_argument(&mark)).then_some(()));
        let again = text(&terminal.json(&["queue", "add", "--task", "endless"])["id"]);
        wait_for(|| has_process_with_argument(&mark).then_some(()));
        let run = text(&terminal.json(&["queue", "get", &again])["run_id"]);
        terminal.json(&["run", "cancel", &run]);
        wait_for(|| (!has_process_with_argument(&mark)).then_some(()));
        assert_eq!((status(&terminal, &item), status(&terminal, &again)), ("cancelled".into(), "cancelled".into()));
    }

    fn items_of_killed_workers_are_completed_by_another_worker(terminal: Terminal) {
        define_task(&terminal, "mark", "trackway note create --studio main --title mark >/dev/null; sleep 0.2", &[]);
        for _ in 0..12 {
            terminal.json(&["queue", "add", "--task", "mark"]);
        }
        for _ in 0..3 {
            let mut worker = Worker::start(&terminal, &["--lease", "1", "--concurrency", "2"]);
            wait_for(|| terminal.json(&["queue", "size"])["by_status"]["running"].as_i64().filter(|held| *held > 0));
            worker.0.kill().unwrap();
            worker.wait_for_exit();
        }
        let _worker = Worker::start(&terminal, &["--lease", "5", "--concurrency", "4"]);
        wait_for(|| (terminal.json(&["queue", "size"])["by_status"] == json!({ "completed": 12 })).then_some(()));
        let attempts: Vec<i64> = terminal.json(&["queue", "list"]).as_array().unwrap().iter().map(|item| item["attempt"].as_i64().unwrap()).collect();
        assert!(attempts.iter().any(|attempt| *attempt > 1), "{attempts:?}");
        assert_eq!(terminal.json(&["run", "list", "--status", "running"]), json!([]));
        for note in terminal.json(&["note", "list"]).as_array().unwrap() {
            let why = terminal.json(&["why", note["id"].as_str().unwrap()]);
            assert_eq!(column(&why["chain"], "kind")[1], "run");
        }
    }
}

#[test]
fn worker_continues_after_crashes_of_postgres() {
    let server = CrashingServer::start();
    let terminal = Terminal::uninitialized(Engine::Sqlite);
    let run = |arguments: &[&str]| {
        let mut command = terminal.command(arguments);
        command.arg("--json").env("TRACKWAY_DB", &server.url).env("PATH", std::env::var_os("PATH").unwrap());
        crate::terminal::run_command(command)
    };
    let data = |output: crate::terminal::CommandOutput| -> Value {
        serde_json::from_str::<Value>(&output.stdout).unwrap()["data"].clone()
    };
    assert_eq!(run(&["init"]).code, 0);
    assert_eq!(run(&["workflow", "set", "--name", "ops"]).code, 0);
    let define =
        ["task", "set", "--workflow", "ops", "--variant", "t", "--recurring", "true", "--script", "sleep 0.3; echo ok"];
    assert_eq!(run(&define).code, 0);
    for _ in 0..8 {
        assert_eq!(run(&["queue", "add", "--task", "t"]).code, 0);
    }
    let mut command = terminal.command(&["work", "--concurrency", "2", "--lease", "20"]);
    command.env("TRACKWAY_DB", &server.url).env("PATH", std::env::var_os("PATH").unwrap());
    let _worker = Worker(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
    for _ in 0..2 {
        thread::sleep(Duration::from_millis(400));
        server.crash();
    }
    wait_for(|| (data(run(&["queue", "size"]))["by_status"] == json!({ "completed": 8 })).then_some(()));
    let attempts = column(&data(run(&["queue", "list"])), "attempt");
    assert_eq!(attempts, vec!["1"; 8], "each item was completed in its first attempt");
}

#[test]
fn worker_and_task_run_retry_while_postgres_rejects_connections() {
    let terminal = Terminal::new(Engine::Postgres);
    define_task(&terminal, "slow", "for i in 1 2 3 4 5 6; do echo $i; sleep 0.3; done", &[]);
    let item = text(&terminal.json(&["queue", "add", "--task", "slow"])["id"]);
    let mut worker = Worker::start(&terminal, &[]);
    wait_for(|| (status(&terminal, &item) == "running").then_some(()));
    let mut command = terminal.command(&["task", "run", "slow"]);
    command.env("PATH", std::env::var_os("PATH").unwrap()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut running = Worker(command.spawn().unwrap());
    wait_for(|| (terminal.json(&["queue", "held"]).as_array().unwrap().len() == 2).then_some(()));

    let url = terminal.database.url_text();
    let (server, name) = url.rsplit_once('/').unwrap();
    let mut maintainer = Connection::postgres(&format!("{server}/postgres")).unwrap();
    maintainer.batch(&format!("alter database {name} allow_connections false")).unwrap();
    maintainer
        .batch(&format!("select pg_terminate_backend(pid) from pg_stat_activity where datname = '{name}'"))
        .unwrap();
    thread::sleep(Duration::from_secs(4));
    maintainer.batch(&format!("alter database {name} allow_connections true")).unwrap();

    assert_eq!(wait_for(|| running.0.try_wait().unwrap()).code(), Some(0));
    wait_for(|| (status(&terminal, &item) == "completed").then_some(()));
    assert_eq!(terminal.json(&["queue", "size"])["by_status"], json!({ "completed": 2 }));
    worker.signal("-TERM");
    assert_eq!(worker.wait_for_exit(), Some(0));
}

//! A clock that is set back and forward again, under running processes and between commands.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use serde_json::{Value, json};
use trackway_testkit::wait_until;

use super::{
    ProcessGroup,
    audit::{audit, connection, count},
    print_skip_reason,
};
use crate::terminal::{CommandOutput, Terminal, both_engines, column, run_command, run_command_with_input, text};

/// An offset in seconds, in the format of libfaketime.
const AN_HOUR_BACK: &str = "-3600";

/// Finds libfaketime, the library that gives a process another clock.
fn find_libfaketime() -> Option<PathBuf> {
    let found = fs::read_dir("/usr/lib").unwrap().flatten().map(|entry| entry.path().join("faketime/libfaketime.so.1"));
    let found = found.chain([PathBuf::from("/usr/lib/faketime/libfaketime.so.1")]).find(|path| path.exists());
    if found.is_none() {
        print_skip_reason("there is no libfaketime: apt-get install faketime");
    }
    found
}

/// A terminal whose clock can be set.
struct FakeClock<'a> {
    terminal: &'a Terminal,
    library: PathBuf,
    offset: PathBuf,
}

impl<'a> FakeClock<'a> {
    fn new(terminal: &'a Terminal) -> Option<Self> {
        let clock = Self { terminal, library: find_libfaketime()?, offset: terminal.home.path().join("clock") };
        clock.set("+0");
        Some(clock)
    }

    /// Sets the clock of all running and future processes of this terminal.
    fn set(&self, offset: &str) {
        let new = self.offset.with_extension("new");
        fs::write(&new, format!("{offset}\n")).unwrap();
        fs::rename(new, &self.offset).unwrap();
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = self.terminal.command(arguments);
        command
            .env("LD_PRELOAD", &self.library)
            .env("FAKETIME_TIMESTAMP_FILE", &self.offset)
            .env("FAKETIME_NO_CACHE", "1")
            .env("FAKETIME_DONT_FAKE_MONOTONIC", "1")
            .env("NO_FAKE_STAT", "1");
        command
    }

    fn run(&self, arguments: &[&str]) -> CommandOutput {
        let mut command = self.command(arguments);
        command.arg("--json");
        run_command(command)
    }

    #[track_caller]
    fn json(&self, arguments: &[&str]) -> Value {
        let output = self.run(arguments);
        assert_eq!(output.code, 0, "{arguments:?}: {}", output.stderr);
        serde_json::from_str::<Value>(&output.stdout).unwrap()["data"].clone()
    }

    fn set_task(&self, variant: &str, more: &[&str]) {
        self.json(&[&["task", "set", "--workflow", "ops", "--variant", variant], more].concat());
    }
}

/// Completes an item with the fence with which it was taken, and returns the exit code.
fn complete(clock: &FakeClock<'_>, taken: &Value) -> i32 {
    let (item, fence) = (text(&taken["id"]), taken["fence"].to_string());
    clock.run(&["queue", "complete", "--id", &item, "--fence", &fence]).code
}

fn take_item(clock: &FakeClock<'_>, lease: &str) -> Option<Value> {
    clock.json(&["queue", "take", "--lease", lease]).get(0).cloned()
}

both_engines! {
    fn rows_keep_their_creation_order_when_the_clock_is_set_back(terminal: Terminal) {
        let Some(clock) = FakeClock::new(&terminal) else { return };
        clock.json(&["workflow", "set", "--name", "ops"]);
        let mut expected = vec!["main/notes/0".to_owned()];
        clock.json(&["note", "create", "--studio", "main", "--title", "0"]);
        clock.set_task("ship", &["--title", "first"]);
        clock.set_task("ship/2", &[]);
        clock.json(&["task", "replace", "ship/2", "ship"]);
        clock.set(AN_HOUR_BACK);
        for title in ["1", "2"] {
            clock.json(&["note", "create", "--studio", "main", "--title", title]);
            expected.push(format!("main/notes/{title}"));
        }
        clock.set_task("ship/3", &[]);
        clock.json(&["task", "replace", "ship/3", "ship/2"]);
        clock.set_task("ship", &["--title", "second"]);
        clock.set_task("keel", &[]);
        clock.json(&["link", "add", "--from", "keel", "--to", "ship/3", "--type", "blocks"]);
        assert_eq!(column(&clock.json(&["ready"]), "variant"), ["keel"]);
        clock.json(&["scratchpad", "set", "--agent", "worker", "--content", "one"]);
        clock.set("+0");
        clock.json(&["note", "create", "--studio", "main", "--title", "3"]);
        expected.push("main/notes/3".to_owned());
        clock.json(&["scratchpad", "set", "--agent", "worker", "--content", "two"]);
        clock.json(&["task", "set", "--workflow", "ops", "--variant", "keel", "--status", "done"]);

        let logged: Vec<(String,)> = connection(&terminal)
            .query("select subject_path from events where action = 'create_note' order by position", &[])
            .unwrap();
        assert_eq!(logged.into_iter().map(|(path,)| path).collect::<Vec<_>>(), expected);
        let mut listed = clock.json(&["event", "list", "--limit", "1000"]).as_array().unwrap().clone();
        listed.sort_by_key(|event| event["position"].as_i64());
        listed.retain(|event| event["action"] == "create_note");
        assert_eq!(column(&json!(listed), "subject"), expected);
        assert_eq!(clock.json(&["task", "latest", "--id", "ship"])["variant"], "ship/3");
        assert_eq!(clock.json(&["task", "next", "--id", "ship", "--level", "minor"])["variant"], "ship/2");
        assert_eq!(clock.json(&["task", "get", "ship"])["title"], "second");
        assert_eq!(column(&clock.json(&["ready"]), "variant"), ["ship/3"]);
        let pad = clock.json(&["scratchpad", "get", "--agent", "worker"]);
        assert_eq!((&pad["content"], &pad["revision"]), (&json!("two"), &json!(2)));
        audit(&terminal, &[]);
    }

    fn leases_expire_and_are_extended_when_the_clock_is_set_back(terminal: Terminal) {
        let Some(clock) = FakeClock::new(&terminal) else { return };
        clock.json(&["workflow", "set", "--name", "ops"]);
        clock.set_task("again", &["--recurring", "true"]);
        for _ in 0..3 {
            clock.json(&["queue", "add", "--task", "again"]);
        }
        let (expired, extended) = (take_item(&clock, "2").unwrap(), take_item(&clock, "60").unwrap());
        clock.set(AN_HOUR_BACK);
        // The heartbeat extends the second lease, so that the worker keeps the item.
        let (item, fence) = (text(&extended["id"]), extended["fence"].to_string());
        clock.json(&["queue", "heartbeat", "--id", &item, "--fence", &fence]);
        let third = take_item(&clock, "60").unwrap();
        assert_eq!(complete(&clock, &third), 0);
        // The first lease still expires after seconds, although the clock was set back by an hour.
        let retaken = wait_until("the first lease expires", Duration::from_secs(20), || take_item(&clock, "60"));
        assert_eq!((&retaken["id"], &retaken["attempt"]), (&expired["id"], &json!(2)));
        assert_eq!(complete(&clock, &expired), 4);
        assert_eq!(complete(&clock, &extended), 0);
        assert_eq!(complete(&clock, &retaken), 0);

        // Setting the clock forward expires the lease. Another worker takes the item, and only that worker completes
        // it.
        clock.json(&["queue", "add", "--task", "again"]);
        let early = take_item(&clock, "60").unwrap();
        clock.set("+0");
        let late = wait_until("the item of the expired lease is taken", Duration::from_secs(20), || take_item(&clock, "60"));
        assert_eq!((&late["id"], &late["attempt"]), (&early["id"], &json!(2)));
        assert_eq!(complete(&clock, &early), 4);
        assert_eq!(complete(&clock, &late), 0);
        assert_eq!(count(&terminal, "queue_items where status = 'completed'"), 4);
        audit(&terminal, &[]);
    }

    fn worker_keeps_its_item_when_the_clock_is_set(terminal: Terminal) {
        let Some(clock) = FakeClock::new(&terminal) else { return };
        clock.json(&["workflow", "set", "--name", "ops"]);
        let script = "trackway note create --studio main --title \"$TRACKWAY_TASK\" >/dev/null && sleep 2";
        clock.set_task("slow", &["--recurring", "true", "--script", script]);
        let mut command = clock.command(&["work", "--lease", "3"]);
        command.env("PATH", std::env::var_os("PATH").unwrap()).stdout(Stdio::null()).stderr(Stdio::null());
        let _worker = ProcessGroup::spawn(&mut command);
        let wait_until_completed = |expected: i64| {
            wait_until("the item is completed", Duration::from_secs(40), || {
                (count(&terminal, "queue_items where status = 'completed'") == expected).then_some(())
            });
        };
        let wait_until_running = |notes: i64| {
            wait_until("the item is running", Duration::from_secs(20), || {
                (count(&terminal, "notes") == notes && count(&terminal, "queue_items where status = 'running'") == 1).then_some(())
            });
        };
        clock.json(&["queue", "add", "--task", "slow"]);
        wait_until_running(1);
        clock.set(AN_HOUR_BACK);
        wait_until_completed(1);
        // The lease did not expire: the item has had only one run.
        assert_eq!(count(&terminal, "runs where queue_item_id is not null"), 1);
        clock.json(&["queue", "add", "--task", "slow"]);
        wait_until_running(2);
        clock.set("+0");
        wait_until_completed(2);
        assert_eq!(count(&terminal, "runs where status = 'running'"), 0);
        audit(&terminal, &[]);
    }
}

#[test]
fn spooled_events_keep_their_order_when_the_clock_is_set_back() {
    let terminal = Terminal::new(trackway_testkit::Engine::Sqlite);
    let Some(clock) = FakeClock::new(&terminal) else { return };
    let send_event = |event: Value| {
        let output = run_command_with_input(clock.command(&["hook"]), event.to_string().as_bytes());
        assert_eq!((output.code, output.stderr.as_str()), (0, ""));
    };
    let event = |name: &str| json!({ "hook_event_name": name, "session_id": "s1", "cwd": Path::new("/") });
    let mut other = connection(&terminal);
    other.batch("begin immediate").unwrap();
    let mut prompt = event("UserPromptSubmit");
    prompt["prompt"] = json!("go");
    send_event(prompt);
    clock.set(AN_HOUR_BACK);
    let mut stop = event("Stop");
    stop["last_assistant_message"] = json!("done");
    send_event(stop);
    other.batch("rollback").unwrap();
    drop(other);
    send_event(event("SessionEnd"));
    let runs = terminal.json(&["run", "list"]);
    assert_eq!(
        (column(&runs, "status"), column(&runs, "final_message")),
        (vec!["completed".to_owned()], vec!["done".to_owned()])
    );
    audit(&terminal, &[]);
}

//! A database that another connection locks for seconds.

use std::{
    thread,
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use trackway_store::Url;

use super::audit::{audit, connection, count};
use crate::terminal::{Terminal, both_engines, run_command_with_input};

/// The time after which a writer that waits for a lock fails.
const WRITE_TIMEOUT: Duration = Duration::from_secs(5);

/// Locks the tables that writers need, until the connection rolls back or is dropped.
fn lock_tables(terminal: &Terminal) -> trackway_store::connection::Connection {
    let mut other = connection(terminal);
    other
        .batch(match terminal.database.url() {
            Url::Sqlite(_) => "begin immediate",
            Url::Postgres(_) => "begin; lock table notes, runs, sessions, queue_items in exclusive mode",
        })
        .unwrap();
    other
}

fn send_write_event(terminal: &Terminal, number: usize) -> Duration {
    let event = json!({
        "hook_event_name": "PostToolUse", "session_id": "s1", "cwd": terminal.home.path(), "tool_name": "Write",
        "tool_use_id": format!("call-{number}"), "tool_input": { "file_path": format!("f{number}"), "content": "x" },
        "tool_response": { "type": "create", "structuredPatch": [] },
    });
    let started = Instant::now();
    let output = run_command_with_input(terminal.command(&["hook"]), event.to_string().as_bytes());
    assert_eq!((output.code, output.stdout.as_str(), output.stderr.as_str()), (0, "", ""));
    started.elapsed()
}

both_engines! {
    fn locked_database_makes_writers_wait_and_hooks_spool(terminal: Terminal) {
        send_write_event(&terminal, 0);
        let note = ["note", "create", "--studio", "main", "--title", "x"];
        let (mut lock, started) = (lock_tables(&terminal), Instant::now());
        thread::scope(|scope| {
            let writers: Vec<_> = (0..4).map(|_| scope.spawn(|| terminal.json(&note))).collect();
            // Readers do not wait.
            let runs = terminal.json(&["run", "list"]);
            assert!(started.elapsed() < Duration::from_secs(2), "{runs}");
            for number in 1..=3 {
                let elapsed = send_write_event(&terminal, number);
                // A hook waits at most 50 ms for the lock. The remaining time is for starting a process on a busy
                // machine.
                assert!(elapsed < Duration::from_secs(2), "{elapsed:?}");
            }
            thread::sleep(Duration::from_secs(3).saturating_sub(started.elapsed()));
            lock.batch("rollback").unwrap();
            for writer in writers {
                writer.join().unwrap();
            }
        });
        assert_eq!(count(&terminal, "notes"), 4);

        lock.batch(match terminal.database.url() {
            Url::Sqlite(_) => "begin immediate",
            Url::Postgres(_) => "begin; lock table notes, runs, sessions, queue_items in exclusive mode",
        }).unwrap();
        let started = Instant::now();
        let (code, message) = terminal.expect_error(&note);
        assert_eq!(code, 5, "{message}");
        assert!(message.starts_with("the database is busy"), "{message}");
        assert!(started.elapsed() > WRITE_TIMEOUT / 2 && started.elapsed() < WRITE_TIMEOUT * 4, "{:?}", started.elapsed());
        send_write_event(&terminal, 4);
        drop(lock);

        assert_eq!(count(&terminal, "file_changes"), 1);
        send_write_event(&terminal, 5);
        let changes: Value = terminal.json(&["made", "last"])["touches"].clone();
        assert_eq!(changes.as_array().unwrap().len(), 6, "{changes}");
        let mut calls: Vec<(String,)> =
            connection(&terminal).query("select tool_use_id from file_changes order by created_at", &[]).unwrap();
        assert_eq!(calls.remove(0).0, "call-0");
        assert_eq!(calls, (1..=5).map(|number| (format!("call-{number}"),)).collect::<Vec<_>>());
        audit(&terminal, &[]);
    }
}

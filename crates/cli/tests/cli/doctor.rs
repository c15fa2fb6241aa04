//! `trackway doctor` finds silent hooks, inconsistent records, expired leases and damaged databases. Hooks ignore the
//! configuration of an untrusted project.

use std::{
    fs::{self, File},
    path::Path,
    time::{Duration, SystemTime},
};

use serde_json::{Value, json};

use trackway_store::{Url, connection::Connection};
use trackway_testkit::Engine;

use crate::{
    hook::connection,
    terminal::{Terminal, both_engines, column, run_command, run_command_with_input, text},
};

fn doctor(terminal: &Terminal) -> (i32, Value) {
    let output = run_command(terminal.command(&["doctor", "--json"]));
    (output.code, serde_json::from_str::<Value>(&output.stdout).unwrap()["data"].clone())
}

fn doctor_fix(terminal: &Terminal) -> (i32, Value) {
    let output = run_command(terminal.command(&["doctor", "--fix", "--json"]));
    (output.code, serde_json::from_str::<Value>(&output.stdout).unwrap()["data"].clone())
}

fn send_event(terminal: &Terminal, event: &Value) {
    assert_eq!(run_command_with_input(terminal.command(&["hook"]), event.to_string().as_bytes()).code, 0);
}

fn set_modified(path: &Path, at: SystemTime) {
    File::options().append(true).open(path).unwrap().set_modified(at).unwrap();
}

both_engines! {
    fn doctor_reports_hooks_that_stopped_sending_events(terminal: Terminal) {
        let home = terminal.home.path();
        terminal.json(&["connect", "claude-code", "--user"]);
        let settings = home.join(".claude/settings.json");
        set_modified(&settings, SystemTime::now() - Duration::from_hours(3));
        let transcript = home.join("s1.jsonl");
        fs::write(&transcript, "").unwrap();
        send_event(&terminal, &json!({ "hook_event_name": "UserPromptSubmit", "session_id": "s1", "cwd": home, "prompt": "go", "transcript_path": transcript }));
        let (code, found) = doctor(&terminal);
        assert_eq!((code, &found["hooks"], &found["findings"]), (0, &json!(true), &json!([])));

        set_modified(&transcript, SystemTime::now() + Duration::from_mins(10));
        let (code, found) = doctor(&terminal);
        let finding = &found["findings"][0];
        assert_eq!((code, text(&finding["check"]).as_str()), (1, "hooks"));
        assert!(text(&finding["problem"]).starts_with("the transcript of session s1 grew until "), "{finding}");
        assert!(text(&finding["fix"]).contains("trackway ingest"), "{finding}");
    }

    fn doctor_reports_hooks_that_never_sent_events(terminal: Terminal) {
        let home = terminal.home.path();
        let folder = home.join(".claude/projects/-ship");
        fs::create_dir_all(&folder).unwrap();
        let write = |number: usize, cwd: &str| {
            let line = json!({ "type": "user", "uuid": format!("l{number}"), "cwd": cwd, "timestamp": "2026-02-27T09:00:00Z", "message": { "content": "go" } });
            let path = folder.join(format!("{number}0000000-0000-4000-8000-000000000000.jsonl"));
            fs::write(&path, format!("{line}\n")).unwrap();
            path
        };
        let old = write(0, "/ship");
        terminal.json(&["connect", "claude-code", "--user"]);
        set_modified(&home.join(".claude/settings.json"), SystemTime::now() - Duration::from_hours(48));
        set_modified(&old, SystemTime::now() - Duration::from_hours(72));
        let (code, found) = doctor(&terminal);
        assert_eq!((code, &found["findings"]), (0, &json!([])));

        for number in 1..=3 {
            write(number, "/ship");
        }
        let (code, found) = doctor(&terminal);
        let finding = &found["findings"][0];
        assert_eq!((code, text(&finding["check"]).as_str()), (1, "hooks"), "{found}");
        assert!(text(&finding["problem"]).starts_with("3 sessions without hook events since hooks were added to "), "{finding}");
        // One received event proves that the hooks work, until a newer session sends no event.
        send_event(&terminal, &json!({ "hook_event_name": "UserPromptSubmit", "session_id": "s1", "cwd": "/ship", "prompt": "go" }));
        assert_eq!(doctor(&terminal).1["findings"], json!([]));
        set_modified(&write(4, "/ship"), SystemTime::now() + Duration::from_mins(10));
        let findings = doctor(&terminal).1["findings"].clone();
        assert!(text(&findings[0]["problem"]).starts_with("1 sessions without hook events since hooks were added to "), "{findings}");
    }

    fn doctor_reports_an_inconsistent_record(terminal: Terminal) {
        terminal.json(&["workflow", "set", "--name", "w"]);
        terminal.json(&["task", "set", "--workflow", "w", "--variant", "v"]);
        terminal.json(&["queue", "add", "--task", "v"]);
        terminal.json(&["queue", "take"]);
        let mut connection = match terminal.database.url() {
            Url::Sqlite(path) => Connection::sqlite(&path, false).unwrap(),
            Url::Postgres(_) => Connection::postgres(&terminal.database.url_text()).unwrap(),
        };
        connection.batch("update runs set status = 'failed'; delete from registry where kind = 'workflow'").unwrap();
        let (code, found) = doctor(&terminal);
        assert_eq!((code, column(&found["findings"], "check")), (1, vec!["record".to_owned(); 3]));
        let problems = column(&found["findings"], "problem");
        let details = ["1 queue items held by a run that is not running", "1 ended runs that still have a token", "1 rows of workflows without a registry entry"];
        assert_eq!(problems, details.map(|detail| format!("the record is inconsistent: {detail}")));
        // Prevents `Terminal::drop` from opening the database: its integrity check would report the same findings.
        connection.batch("delete from trackway_migrations").unwrap();
    }

    fn doctor_fix_returns_expired_leases(terminal: Terminal) {
        terminal.json(&["workflow", "set", "--name", "w"]);
        terminal.json(&["task", "set", "--workflow", "w", "--variant", "v"]);
        terminal.json(&["queue", "add", "--task", "v"]);
        terminal.json(&["queue", "take"]);
        let (code, found) = doctor(&terminal);
        assert_eq!((code, &found["findings"]), (0, &json!([])));
        let mut connection = match terminal.database.url() {
            Url::Sqlite(path) => Connection::sqlite(&path, false).unwrap(),
            Url::Postgres(_) => Connection::postgres(&terminal.database.url_text()).unwrap(),
        };
        connection.batch("update queue_items set lease_expires = created_at").unwrap();
        let hour = match connection.engine() {
            Engine::Sqlite => "3600000000",
            Engine::Postgres => "interval '1 hour'",
        };
        connection.batch(&format!("update queue_items set lease_expires = lease_expires - {hour}")).unwrap();
        let (code, found) = doctor(&terminal);
        assert_eq!((code, column(&found["findings"], "check")), (1, vec!["leases".to_owned()]));
        let engine = text(&found["engine"]);
        assert!(engine.starts_with("SQLite 3.") || engine.starts_with("PostgreSQL 1"), "{engine}");
        let fixed = run_command(terminal.command(&["doctor", "--fix"]));
        assert_eq!((fixed.code, fixed.stdout.lines().last().unwrap()), (0, "no problems found"), "{}", fixed.stdout);
        assert_eq!(terminal.json(&["queue", "size"])["by_status"]["running"], Value::Null);
        assert!(column(&terminal.json(&["event", "list"]), "action").contains(&"queue_expire".to_owned()));
    }

    fn doctor_fix_removes_the_remains_of_an_interrupted_move(terminal: Terminal) {
        match terminal.database.url() {
            Url::Sqlite(path) => fs::write(format!("{}.incoming", path.display()), "").unwrap(),
            Url::Postgres(_) => {
                Connection::postgres(&terminal.database.url_text()).unwrap().batch("create schema trackway_incoming").unwrap();
            }
        }
        let (code, found) = doctor(&terminal);
        assert_eq!((code, column(&found["findings"], "check")), (1, vec!["incoming".to_owned()]));
        assert!(text(&found["findings"][0]["fix"]).contains("trackway doctor --fix"));
        // While a running move holds its lock, the doctor reports nothing.
        let mut mover = match terminal.database.url() {
            Url::Sqlite(path) => Connection::sqlite(Path::new(&format!("{}.incoming", path.display())), false).unwrap(),
            Url::Postgres(_) => Connection::postgres(&terminal.database.url_text()).unwrap(),
        };
        let lock = match mover.engine() {
            Engine::Sqlite => "pragma locking_mode = exclusive; begin immediate; commit",
            Engine::Postgres => "select pg_advisory_lock(1414682458)",
        };
        mover.batch(lock).unwrap();
        assert_eq!(run_command(terminal.command(&["doctor", "--fix"])).code, 0);
        drop(mover);
        // The server takes a moment to notice that the connection is closed.
        while doctor(&terminal).0 == 0 {}
        let fixed = run_command(terminal.command(&["doctor", "--fix"]));
        assert_eq!((fixed.code, fixed.stdout.lines().last().unwrap()), (0, "no problems found"), "{}", fixed.stdout);
        assert_eq!(doctor(&terminal).0, 0);
        if let Url::Sqlite(path) = terminal.database.url() {
            assert!(!Path::new(&format!("{}.incoming", path.display())).exists());
        }
    }

    fn doctor_reports_missing_tables_and_recreates_missing_indexes(terminal: Terminal) {
        let (code, found) = doctor(&terminal);
        assert_eq!((code, &found["schema"]), (0, &json!(trackway_store::migrate::known_version())));
        let mut connection = connection(&terminal);
        connection.batch("drop index queue_items_ready; drop index roles_by_name").unwrap();
        let (code, found) = doctor(&terminal);
        assert_eq!((code, column(&found["findings"], "check")), (1, vec!["schema".to_owned(); 2]));
        assert_eq!(column(&found["findings"], "problem"), ["the index queue_items_ready is missing", "the index roles_by_name is missing"]);
        assert_eq!(text(&found["findings"][0]["fix"]), "to recreate it: trackway doctor --fix");
        let fixed = run_command(terminal.command(&["doctor", "--fix"]));
        assert_eq!((fixed.code, fixed.stdout.lines().last().unwrap()), (0, "no problems found"), "{}", fixed.stdout);
        let index = match connection.engine() {
            Engine::Sqlite => "select count(*) from sqlite_master where name = 'queue_items_ready'",
            Engine::Postgres => "select count(*) from pg_indexes where schemaname = current_schema() and indexname = 'queue_items_ready'",
        };
        assert_eq!(connection.query::<(i64,)>(index, &[]).unwrap(), [(1,)]);

        // Duplicates are written while the unique index is missing, so the index cannot be recreated.
        connection.batch("drop index roles_by_name").unwrap();
        terminal.json(&["role", "set", "--name", "a"]);
        terminal.json(&["role", "set", "--name", "b"]);
        connection.batch("update roles set name = 'a' where name = 'b'").unwrap();
        let (code, fixed) = doctor_fix(&terminal);
        assert_eq!(code, 1);
        assert!(text(&fixed["findings"][1]["problem"]).starts_with("the index roles_by_name cannot be recreated: "), "{fixed}");

        connection.batch("alter table roles rename to lost").unwrap();
        let (code, found) = doctor(&terminal);
        assert_eq!((code, &found["findings"][0]["problem"]), (1, &json!("the table roles is missing")));
        assert!(text(&found["findings"][0]["fix"]).contains("trackway restore FILE"));
        // Prevents `Terminal::drop` from opening the database: its integrity check would report the same findings.
        connection.batch("delete from trackway_migrations").unwrap();
    }
}

#[test]
fn doctor_reports_a_damaged_database_file() {
    let terminal = Terminal::new(Engine::Sqlite);
    for number in 0..50 {
        terminal.json(&["role", "set", "--name", &format!("role{number}"), "--description", &"x".repeat(2_000)]);
    }
    let Url::Sqlite(path) = terminal.database.url() else { unreachable!() };
    Connection::sqlite(&path, false).unwrap().batch("pragma wal_checkpoint(truncate)").unwrap();
    let mut bytes = fs::read(&path).unwrap();
    let end = bytes.len();
    bytes[end - 3 * 4_096..end - 4_096].fill(0xff);
    fs::write(&path, bytes).unwrap();
    let (code, found) = doctor(&terminal);
    assert_eq!((code, found["findings"][0]["check"].as_str()), (1, Some("integrity")));
}

#[test]
fn untrusted_project_configuration_does_not_redirect_hook_events() {
    let terminal = Terminal::uninitialized(Engine::Sqlite);
    let project = terminal.home.path().join("cloned");
    fs::create_dir_all(project.join(".trackway")).unwrap();
    fs::write(project.join(".trackway/config.toml"), "db = \"postgres://stranger@127.0.0.1:1/all\"\n").unwrap();
    let user_data = terminal.home.path().join(".local/share/trackway");
    let send_event = |session: &str| {
        let event =
            json!({ "hook_event_name": "UserPromptSubmit", "session_id": session, "cwd": project, "prompt": "go" });
        let mut command = terminal.command(&["hook"]);
        command.env_remove("TRACKWAY_DB");
        assert_eq!(run_command_with_input(command, event.to_string().as_bytes()).code, 0);
    };
    let session_ids = || {
        let url = format!("sqlite:{}", user_data.join("trackway.db").display());
        column(&terminal.json(&["session", "list", "--db", &url]), "id")
    };
    send_event("s1");
    assert_eq!(session_ids(), ["s1"]);
    assert!(fs::read_to_string(user_data.join("hook.log")).unwrap().contains("add the project's directory to `trust`"));

    // Once the user trusts the project, its events go to the configured server, or wait in the spool.
    let config = terminal.home.path().join(".config/trackway");
    fs::create_dir_all(&config).unwrap();
    fs::write(config.join("config.toml"), format!("trust = [{:?}]\n", project.display().to_string())).unwrap();
    send_event("s2");
    assert_eq!(session_ids(), ["s1"]);
}

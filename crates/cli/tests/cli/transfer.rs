//! Backup, restore, export, import and move: all data survives, on both engines and through crashes.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::Duration,
};

use serde_json::{Value, json};
use trackway_store::{Url, connection::Connection};
use trackway_testkit::{Engine, poll};

use crate::terminal::{CommandOutput, Terminal, both_engines, column, run_command, run_command_with_input, text};

/// Creates rows in nearly all tables.
fn fill_database(terminal: &Terminal) {
    let home = terminal.home.path();
    trackway::recorded_session::write(&home.join("transcripts"), &home.join("project")).unwrap();
    terminal.json(&["ingest", "transcripts"]);
    terminal.json(&["tenant", "create", "--name", "other"]);
    terminal.json(&["role", "set", "--name", "coder", "--title", "Größe \u{1f375} \"quoted\"", "--tag", "a", "b"]);
    terminal.json(&["workflow", "set", "--name", "w"]);
    terminal.json(&["task", "set", "--workflow", "w", "--variant", "v1", "--script", "true\n", "--timeout", "90m"]);
    terminal.json(&["task", "set", "--workflow", "w", "--variant", "v2", "--replaces", "v1"]);
    terminal.json(&["message", "send", "--body", "the kettle whistles\tand \\ whistles", "--tag", "x"]);
    terminal.json(&["queue", "add", "--task", "v1"]);
    let item = terminal.json(&["queue", "take", "--agent", "worker"])[0].clone();
    let (id, fence) = (text(&item["id"]), item["fence"].to_string());
    terminal.json(&[
        "queue",
        "complete",
        "--id",
        &id,
        "--fence",
        &fence,
        "--result",
        r#"{"b":1e18,"a":[-0.0,1.5e-7,null]}"#,
    ]);
    let (_, token) = terminal.start_run(&["--agent", "worker", "--task", "v1"]);
    terminal.json_with_token(Some(&token), &["note", "create", "--studio", "main", "--title", "t", "--body", "line\n"]);
    let decision = text(
        &terminal.json(&["decision", "create", "--studio", "main", "--question", "tea?", "--option", "yes"])["id"],
    );
    terminal.json(&["decision", "vote", &decision, "--option", "yes", "--accept"]);
    terminal.json(&["scratchpad", "set", "--agent", "worker", "--content", "remember"]);
    terminal.json(&["board", "set", "--name", "plan"]);
    terminal.json(&[
        "stickie",
        "set",
        "--board",
        "plan",
        "--name",
        "s",
        "--score",
        "0.1",
        "--structured",
        r#"{"z":[1.0,2],"a":null}"#,
    ]);
    terminal.json(&["token", "create", "--name", "mine"]);
}

fn table_digests(answer: &Value) -> Vec<(String, i64, String)> {
    let row = |row: &Value| (text(&row["name"]), row["rows"].as_i64().unwrap(), text(&row["digest"]));
    answer["tables"].as_array().unwrap().iter().map(row).collect()
}

/// The name, row count and digest of each table, from a new backup.
fn database_digests(terminal: &Terminal) -> Vec<(String, i64, String)> {
    table_digests(&terminal.json(&["backup", "digests.jsonl"]))
}

fn other_engine(engine: Engine) -> Engine {
    if engine == Engine::Sqlite { Engine::Postgres } else { Engine::Sqlite }
}

fn engine_of(terminal: &Terminal) -> Engine {
    if terminal.database.url_text().starts_with("sqlite:") { Engine::Sqlite } else { Engine::Postgres }
}

/// Checks that search, writes and the event log work in a restored database.
fn assert_database_works(terminal: &Terminal) {
    assert_eq!(terminal.json(&["search", "kettle"]).as_array().unwrap().len(), 1);
    let last = |terminal: &Terminal| terminal.json(&["event", "list", "--limit", "1"])[0]["position"].as_i64().unwrap();
    let before = last(terminal);
    terminal.json(&["role", "set", "--name", "after"]);
    terminal.json(&["message", "send", "--body", "a new kettle"]);
    assert_eq!(terminal.json(&["search", "kettle"]).as_array().unwrap().len(), 2);
    assert!(last(terminal) > before);
}

both_engines! {
    fn backup_restores_on_both_engines(terminal: Terminal) {
        fill_database(&terminal);
        let events = terminal.json(&["event", "list", "--limit", "10000"]);
        let backed_up = table_digests(&terminal.json(&["backup", "all.jsonl"]));
        let filled = backed_up.iter().filter(|(_, rows, _)| *rows > 0).count();
        assert!(filled > 30, "{backed_up:?}");
        assert!(!backed_up.iter().any(|(name, ..)| name.starts_with("content_") || name.contains("migrations")));
        assert_eq!(terminal.json(&["event", "list", "--limit", "10000"]), events, "a backup logs no event");
        let file = terminal.home.path().join("all.jsonl");
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        for engine in [engine_of(&terminal), other_engine(engine_of(&terminal))] {
            let target = Terminal::uninitialized(engine);
            let restored = table_digests(&target.json(&["restore", file.to_str().unwrap()]));
            assert_eq!(restored, backed_up);
            assert_eq!(database_digests(&target), backed_up);
            assert_eq!(target.json(&["board", "get", "plan"]), terminal.json(&["board", "get", "plan"]));
            assert_eq!(target.json(&["event", "list", "--limit", "10000"]), events);
            assert_eq!(target.expect_error(&["restore", file.to_str().unwrap()]).0, 4, "the target contains data now");
            assert_database_works(&target);
        }
        assert_eq!(database_digests(&terminal), backed_up);
    }

    fn move_to_the_other_engine_and_back_keeps_all_data(terminal: Terminal) {
        fill_database(&terminal);
        let before = database_digests(&terminal);
        let moved = Terminal::uninitialized(other_engine(engine_of(&terminal)));
        let moved_back = Terminal::uninitialized(engine_of(&terminal));
        assert_eq!(table_digests(&terminal.json(&["move", "--to", &moved.database.url_text()])), before);
        assert_eq!(table_digests(&moved.json(&["move", "--to", &moved_back.database.url_text()])), before);
        assert_eq!((database_digests(&terminal), database_digests(&moved), database_digests(&moved_back)), (before.clone(), before.clone(), before));
        assert_eq!(terminal.expect_error(&["move", "--to", &moved.database.url_text()]).0, 4);
        assert_eq!(terminal.expect_error(&["move", "--to", &terminal.database.url_text()]).0, 4);
        assert_eq!(terminal.expect_error(&["move", "--to", "mysql://x"]).0, 2);
        assert_database_works(&moved);
        assert_database_works(&moved_back);
    }

    fn move_removes_nul_characters_that_postgres_cannot_store(terminal: Terminal) {
        if engine_of(&terminal) == Engine::Postgres {
            return;
        }
        fill_database(&terminal);
        let item = text(&terminal.json(&["queue", "list"])[0]["id"]);
        connect(&terminal).execute("update queue_items set result = '{\"a\":\"x\\u0000y\"}' where id = (select max(id) from queue_items)", &[]).unwrap();
        let moved = Terminal::uninitialized(Engine::Postgres);
        terminal.json(&["move", "--to", &moved.database.url_text()]);
        assert_eq!(moved.json(&["queue", "get", &item])["result"], json!({ "a": "xy" }));
    }

    fn export_and_import_work_through_a_pipe(terminal: Terminal) {
        fill_database(&terminal);
        let before = database_digests(&terminal);
        let exported = terminal.run(&["export", "-"]);
        assert_eq!(terminal.run(&["backup", "-"]).stdout.lines().count(), exported.stdout.lines().count());
        assert!(!terminal.home.path().join("-").exists());
        assert_eq!((exported.code, exported.stderr.as_str()), (0, ""));
        assert!(exported.stdout.lines().all(|line| serde_json::from_str::<Value>(line).is_ok()));
        let target = Terminal::uninitialized(engine_of(&terminal));
        let CommandOutput { code, stdout, stderr } = run_command_with_input(target.command(&["import", "jsonl", "-", "--json"]), exported.stdout.as_bytes());
        assert_eq!(code, 0, "{stderr}");
        assert_eq!(table_digests(&serde_json::from_str::<Value>(&stdout).unwrap()["data"]), before);
        assert_eq!(table_digests(&terminal.json(&["export", "all.jsonl"])), before);
    }

    fn restore_refuses_damaged_backup_and_changes_nothing(terminal: Terminal) {
        terminal.json(&["message", "send", "--body", "the kettle whistles"]);
        terminal.json(&["backup", "all.jsonl"]);
        let backup = fs::read(terminal.home.path().join("all.jsonl")).unwrap();
        let target = Terminal::uninitialized(engine_of(&terminal));
        let bad = target.home.path().join("bad.jsonl");
        let assert_refused = |bytes: &[u8]| {
            fs::write(&bad, bytes).unwrap();
            let (code, message) = target.expect_error(&["restore", "bad.jsonl"]);
            assert_eq!(code, 1, "{message}");
            assert!(message.contains("the backup is damaged"), "{message}");
            assert_eq!(target.expect_error(&["role", "list"]).0, 3, "there is no database");
        };
        for offset in (0..backup.len()).step_by(backup.len() / 17) {
            assert_refused(&backup[..offset]);
            let mut changed = backup.clone();
            changed[offset] ^= 1;
            assert_refused(&changed);
        }
        assert_refused(&[&backup[..], b"{}\n"].concat());
        assert_refused(b"hello\n");
        let lines: Vec<&[u8]> = backup.split_inclusive(|byte| *byte == b'\n').collect();
        assert_refused(&[&lines[..2], &lines[3..]].concat().concat());
        assert_eq!(target.expect_error(&["restore", "nothing.jsonl"]).0, 3);
        fs::write(&bad, &backup).unwrap();
        target.json(&["restore", "bad.jsonl"]);
    }

    fn transfer_requires_a_person_and_overwrites_only_backups(terminal: Terminal) {
        let (_, token) = terminal.start_run(&["--agent", "worker"]);
        for arguments in [&["backup", "x"][..], &["restore", "x"], &["export", "-"], &["import", "jsonl", "x"], &["move", "--to", "sqlite:x"]] {
            assert_eq!(terminal.expect_error_with_token(Some(&token), arguments).0, 6, "{arguments:?}");
        }
        fs::write(terminal.home.path().join("mine.txt"), "not a backup").unwrap();
        assert_eq!(terminal.expect_error(&["backup", "mine.txt"]).0, 4);
        assert_eq!(fs::read_to_string(terminal.home.path().join("mine.txt")).unwrap(), "not a backup");
        assert_eq!(terminal.expect_error(&["backup", "."]).0, 2);
        assert_eq!(terminal.expect_error(&["backup", "no/such/folder/x"]).0, 3);
    }

    fn backup_during_writes_is_one_consistent_snapshot(terminal: Terminal) {
        let (_, token) = terminal.start_run(&["--agent", "worker"]);
        let writers: Vec<_> = (0..3)
            .map(|number| {
                let mut command = Command::new("bash");
                let line = format!("for i in $(seq 40); do \"$0\" note create --studio main --title \"{number} $i\" >/dev/null || exit 1; done");
                let base = terminal.command(&[]);
                command.arg("-c").arg(line).arg(env!("CARGO_BIN_EXE_trackway")).env_clear().env("PATH", "/usr/bin:/bin");
                command.envs(base.get_envs().filter_map(|(name, value)| Some((name, value?)))).env("TRACKWAY_TOKEN", &token);
                command.current_dir(terminal.home.path()).spawn().unwrap()
            })
            .collect();
        let mut backups = Vec::new();
        for number in 0..6 {
            let file = format!("{number}.jsonl");
            terminal.json(&["backup", &file]);
            backups.push(file);
            thread::sleep(Duration::from_millis(100));
        }
        for mut writer in writers {
            assert!(writer.wait().unwrap().success());
        }
        for file in backups {
            let target = Terminal::uninitialized(Engine::Sqlite);
            target.json(&["restore", terminal.home.path().join(file).to_str().unwrap()]);
            let notes = target.json(&["note", "list", "--limit", "1000"]).as_array().unwrap().len();
            let events = column(&target.json(&["event", "list", "--limit", "1000"]), "action");
            assert_eq!(events.iter().filter(|action| *action == "create_note").count(), notes);
        }
        let notes = terminal.json(&["note", "list", "--limit", "1000"]).as_array().unwrap().len();
        assert_eq!(notes, 120);
    }
}

/// Runs a command and kills it after `wait`. Returns whether it succeeded before that.
fn run_and_kill_after(mut command: Command, wait: Duration) -> bool {
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    if let Some(status) = poll(wait, || child.try_wait().unwrap()) {
        return status.success();
    }
    child.kill().unwrap();
    child.wait().unwrap().success()
}

/// A database with so many rows that a transfer can be killed halfway.
fn large_database(engine: Engine) -> Terminal {
    let terminal = Terminal::new(engine);
    fill_database(&terminal);
    let mut connection = connect(&terminal);
    let numbers = match engine {
        Engine::Sqlite => {
            "with recursive n (i) as (select 1 union all select i + 1 from n where i < 4000) select i from n"
        }
        Engine::Postgres => "select generate_series(1, 4000) as i",
    };
    connection
        .batch(&format!(
            "insert into events (tenant_id, created_at, actor_kind, actor_id, request_id, action, subject_kind, subject_id, subject_path)
             select e.tenant_id, e.created_at, e.actor_kind, e.actor_id, e.request_id, e.action, e.subject_kind, e.subject_id, 'copy'
             from ({numbers}) n, (select * from events limit 1) e"
        ))
        .unwrap();
    terminal
}

fn connect(terminal: &Terminal) -> Connection {
    match terminal.database.url() {
        Url::Sqlite(path) => Connection::sqlite(&path, false).unwrap(),
        Url::Postgres(_) => Connection::postgres(&terminal.database.url_text()).unwrap(),
    }
}

fn kill_delays() -> impl Iterator<Item = Duration> {
    let steps = if std::env::var_os("TRACKWAY_TEST_ALL").is_some() { 200 } else { 6 };
    (0..steps).map(move |step| Duration::from_micros(1_000 + step * 400_000 / steps))
}

#[test]
fn killed_backup_keeps_the_previous_backup() {
    let terminal = large_database(Engine::Sqlite);
    let first = database_digests(&terminal);
    terminal.json(&["backup", "all.jsonl"]);
    terminal.json(&["role", "set", "--name", "new"]);
    let second = database_digests(&terminal);
    for wait in kill_delays() {
        let was_completed = run_and_kill_after(terminal.command(&["backup", "all.jsonl"]), wait);
        let target = Terminal::uninitialized(Engine::Sqlite);
        let restored =
            table_digests(&target.json(&["restore", terminal.home.path().join("all.jsonl").to_str().unwrap()]));
        assert!(
            restored == second || (restored == first && !was_completed),
            "the file is the old backup until the new one is complete"
        );
        if restored == second {
            break;
        }
    }
}

#[test]
fn killed_restore_or_move_leaves_no_database_or_a_complete_one() {
    for (from, to) in
        [(Engine::Sqlite, Engine::Sqlite), (Engine::Sqlite, Engine::Postgres), (Engine::Postgres, Engine::Sqlite)]
    {
        let terminal = large_database(from);
        let before = database_digests(&terminal);
        terminal.json(&["backup", "all.jsonl"]);
        let file: PathBuf = terminal.home.path().join("all.jsonl");
        for operation in ["restore", "move"] {
            let target = Terminal::uninitialized(to);
            let url = target.database.url_text();
            let command = || match operation {
                "restore" => target.command(&["restore", file.to_str().unwrap()]),
                _ => terminal.command(&["move", "--to", &url]),
            };
            let mut is_complete = false;
            for wait in kill_delays() {
                is_complete = run_and_kill_after(command(), wait);
                let output = target.run(&["role", "list"]);
                if output.code == 0 {
                    is_complete = true;
                    break;
                }
                assert_eq!(output.code, 3, "there is no database, or all of it: {}", output.stderr);
            }
            if !is_complete {
                let output = run_command(command());
                assert_eq!(output.code, 0, "{operation} after a kill: {}", output.stderr);
            }
            assert_eq!(database_digests(&target), before, "{operation} from {from:?} to {to:?}");
            assert_database_works(&target);
        }
        assert_eq!(database_digests(&terminal), before);
    }
}

#[test]
fn repeated_move_includes_changes_made_after_the_killed_move() {
    for to in [Engine::Sqlite, Engine::Postgres] {
        let terminal = large_database(Engine::Sqlite);
        let target = Terminal::uninitialized(to);
        let url = target.database.url_text();
        let was_completed = run_and_kill_after(terminal.command(&["move", "--to", &url]), Duration::from_millis(300));
        if was_completed {
            continue;
        }
        terminal.json(&["role", "set", "--name", "coder", "--title", "changed"]);
        terminal.json(&["person", "set", "--handle", "zoe"]);
        let moved = terminal.run(&["move", "--to", &url, "--json"]);
        // If the killed move had already committed its last step, the second move fails.
        if moved.code == 0 {
            assert_eq!(database_digests(&target), database_digests(&terminal));
        }
    }
}

#[test]
fn full_disk_is_reported_and_leaves_no_partial_files() {
    let terminal = large_database(Engine::Sqlite);
    terminal.json(&["backup", "small.jsonl"]);
    let run_with_file_limit = |arguments: &[&str], blocks: u64| {
        let mut command = Command::new("bash");
        let base = terminal.command(&[]);
        let line = format!("ulimit -f {blocks}; trap '' XFSZ; exec \"$0\" \"$@\"");
        command
            .arg("-c")
            .arg(line)
            .arg(env!("CARGO_BIN_EXE_trackway"))
            .args(arguments)
            .env_clear()
            .env("PATH", "/usr/bin:/bin");
        command
            .envs(base.get_envs().filter_map(|(name, value)| Some((name, value?))))
            .current_dir(terminal.home.path());
        run_command(command)
    };
    let files = |folder: &Path| {
        let mut names: Vec<String> =
            fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    };
    let before = files(terminal.home.path());
    let output = run_with_file_limit(&["backup", "all.jsonl"], 64);
    assert_eq!(output.code, 1, "{}", output.stderr);
    assert!(output.stderr.starts_with("error: the disk is full"), "{}", output.stderr);
    assert_eq!(files(terminal.home.path()), before);
    let output = run_with_file_limit(&["restore", "small.jsonl", "--db", "sqlite:new/a.db"], 100);
    assert_eq!(output.code, 1, "{}", output.stderr);
    assert!(!terminal.home.path().join("new/a.db").exists());
    assert_eq!(
        terminal.json(&["restore", "small.jsonl", "--db", "sqlite:new/a.db"])["tables"][0],
        json!(terminal.json(&["backup", "again.jsonl"])["tables"][0])
    );
}

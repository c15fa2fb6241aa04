//! Full and read-only disks: small file systems in memory.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::Duration,
};

use serde_json::{Value, json};
use tempfile::TempDir;
use trackway_testkit::wait_until;

use super::{
    ProcessGroup,
    audit::{AcknowledgedWrite, assert_doctor_findings, audit, connection, count},
    print_skip_reason,
};
use crate::terminal::{CommandOutput, Terminal, column, run_command, run_command_with_input, text};

/// A mounted file system of a few megabytes.
struct SmallDisk(TempDir);

impl SmallDisk {
    fn mount(megabytes: u32) -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={megabytes}m"), "tmpfs"])
            .arg(folder.path())
            .output();
        if !mounted.is_ok_and(|mounted| mounted.status.success()) {
            print_skip_reason("this user must not mount file systems");
            return None;
        }
        Some(Self(folder))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn url(&self, name: &str) -> String {
        format!("sqlite:{}", self.path(name).display())
    }

    fn remount(&self, options: &str) {
        let done = Command::new("mount").args(["-o", &format!("remount,{options}")]).arg(self.0.path()).status();
        assert!(done.unwrap().success());
    }

    /// Writes a file that takes all remaining space.
    fn fill(&self, name: &str) {
        let path = self.path(name);
        let full = fs::write(&path, vec![b'x'; 64 << 20]).unwrap_err();
        assert_eq!(full.kind(), std::io::ErrorKind::StorageFull);
    }

    fn files(&self) -> Vec<String> {
        let mut names: Vec<String> = files_in(self.0.path());
        names.sort();
        names
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Lazily, because a killed process may not have ended yet.
        let _ = Command::new("umount").arg("--lazy").arg(self.0.path()).status();
    }
}

fn files_in(folder: &Path) -> Vec<String> {
    fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

fn run_hook(terminal: &Terminal, event: &Value) -> CommandOutput {
    run_command_with_input(terminal.command(&["hook"]), event.to_string().as_bytes())
}

fn prompt_event(terminal: &Terminal, session: &str) -> Value {
    json!({ "hook_event_name": "UserPromptSubmit", "session_id": session, "cwd": terminal.home.path(), "prompt": "go" })
}

fn session_ids(terminal: &Terminal) -> Vec<String> {
    column(&terminal.json(&["session", "list"]), "id")
}

#[test]
fn full_disk_loses_no_acknowledged_write() {
    let Some(disk) = SmallDisk::mount(8) else { return };
    fs::write(disk.path("ballast"), vec![b'x'; 2 << 20]).unwrap();
    let terminal = Terminal::new_at_url(disk.url("trackway.db"));
    let (run, token) = terminal.start_run(&["--agent", "worker"]);
    let mut acknowledged = Vec::new();
    let body = "x".repeat(60_000);
    let mut refused = 0;
    // After the first failure, further writes must fail in the same way.
    while refused < 5 {
        let mut command =
            terminal.command(&["note", "create", "--studio", "main", "--title", "x", "--body", &body, "--json"]);
        command.env("TRACKWAY_TOKEN", &token);
        let output = run_command(command);
        if output.code == 0 {
            let answer: Value = serde_json::from_str(&output.stdout).unwrap();
            let subject = text(&answer["data"]["id"]).parse().unwrap();
            acknowledged.push(AcknowledgedWrite {
                action: "create_note".to_owned(),
                subject,
                run: Some(run.parse().unwrap()),
            });
        } else {
            refused += 1;
            let answer: Value = serde_json::from_str(&output.stderr).unwrap_or_else(|_| panic!("{}", output.stderr));
            assert_eq!((output.code, &answer["error"]["code"]), (1, &json!("failed")), "{answer}");
            assert!(text(&answer["error"]["message"]).starts_with("the disk is full"), "{answer}");
            assert!(!answer["error"]["hint"].is_null(), "{answer}");
        }
    }
    assert!(acknowledged.len() > 10, "{}", acknowledged.len());
    // After this, neither a page nor a file can be added.
    disk.fill("rest");
    let listed = terminal.json(&["note", "list", "--limit", "1000"]);
    assert_eq!(listed.as_array().unwrap().len(), acknowledged.len());
    let output = run_hook(&terminal, &prompt_event(&terminal, "s-full"));
    assert_eq!((output.code, output.stdout.as_str(), output.stderr.as_str()), (0, "", ""));

    for ballast in ["ballast", "rest"] {
        fs::remove_file(disk.path(ballast)).unwrap();
    }
    terminal.json_with_token(Some(&token), &["note", "create", "--studio", "main", "--title", "after"]);
    let output = run_hook(&terminal, &prompt_event(&terminal, "s-after"));
    assert_eq!(output.code, 0);
    audit(&terminal, &acknowledged);
    assert_eq!(terminal.json(&["made", &run])["touches"].as_array().unwrap().len(), acknowledged.len() + 1);
    // The disk had no space to spool the event, so the hook recorded the loss in `hook.log` in the user's folder. The
    // doctor reports this loss and the small free space on the disk.
    assert_eq!(session_ids(&terminal), ["s-after"]);
    assert_doctor_findings(&terminal, &["disk", "hook.log"]);
}

#[test]
fn worker_survives_a_full_disk() {
    let Some(disk) = SmallDisk::mount(8) else { return };
    let terminal = Terminal::new_at_url(disk.url("trackway.db"));
    terminal.json(&["workflow", "set", "--name", "ops"]);
    let script = "trackway note create --studio main --title x >/dev/null && sleep 0.2";
    let task = ["task", "set", "--workflow", "ops", "--variant", "noted", "--recurring", "true", "--script", script];
    terminal.json(&task);
    for _ in 0..6 {
        terminal.json(&["queue", "add", "--task", "noted", "--max-attempts", "50"]);
    }
    let mut command = terminal.command(&["work", "--lease", "2"]);
    command.env("PATH", std::env::var_os("PATH").unwrap()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut worker = ProcessGroup::spawn(&mut command);
    wait_until("the worker has created two notes", Duration::from_secs(20), || {
        (count(&terminal, "notes") > 1).then_some(())
    });
    disk.fill("rest");
    thread::sleep(Duration::from_secs(3));
    assert_eq!(worker.wait_for_exit(Duration::ZERO), None, "the worker gave up");
    fs::remove_file(disk.path("rest")).unwrap();
    wait_until("every item is completed", Duration::from_mins(1), || {
        (count(&terminal, "queue_items where status = 'completed'") == 6).then_some(())
    });
    assert_eq!(count(&terminal, "runs where status = 'running'"), 0);
    audit(&terminal, &[]);
}

#[test]
fn failed_copies_to_a_full_disk_leave_no_files() {
    let Some(disk) = SmallDisk::mount(2) else { return };
    let terminal = Terminal::new(trackway_testkit::Engine::Sqlite);
    let body = "y".repeat(90_000);
    for number in 0..20 {
        terminal.json(&["note", "create", "--studio", "main", "--title", &number.to_string(), "--body", &body]);
    }
    let backup = terminal.home.path().join("backup.jsonl");
    terminal.json(&["backup", backup.to_str().unwrap()]);
    fs::write(disk.path("old.jsonl"), "an older backup").unwrap();
    let before = disk.files();
    let (old, new) = (disk.path("old.jsonl"), disk.path("new.jsonl"));
    let url = disk.url("new.db");
    for arguments in [
        &["export", new.to_str().unwrap()][..],
        &["backup", new.to_str().unwrap()],
        &["restore", backup.to_str().unwrap(), "--db", &url],
        &["import", "jsonl", backup.to_str().unwrap(), "--db", &url],
        &["move", "--to", &url],
    ] {
        let (code, message) = terminal.expect_error(arguments);
        assert!(code == 1 && message.starts_with("the disk is full"), "{arguments:?}: {code} {message}");
        assert_eq!(disk.files(), before, "{arguments:?}");
    }
    // A file that is not a Trackway backup is not replaced.
    assert_ne!(terminal.run(&["backup", old.to_str().unwrap()]).code, 0);
    assert_eq!(fs::read_to_string(&old).unwrap(), "an older backup");
    // An export to a full device fails.
    let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let mut command = terminal.command(&["export", "-"]);
    let output = command.stdout(full).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", String::from_utf8_lossy(&output.stderr));
    disk.remount("size=32m");
    terminal.json(&["move", "--to", &url]);
    terminal.json(&["backup", new.to_str().unwrap()]);
    audit(&terminal, &[]);
}

/// Covers a database that was closed cleanly, and a database whose write-ahead log still holds changes.
#[test]
fn database_on_a_read_only_disk_can_be_read() {
    for has_log in [false, true] {
        let Some(disk) = SmallDisk::mount(8) else { return };
        let terminal = Terminal::new_at_url(disk.url("trackway.db"));
        terminal.json(&["note", "create", "--studio", "main", "--title", "before"]);
        if !has_log {
            connection(&terminal).batch("pragma wal_checkpoint(truncate)").unwrap();
        }
        assert_eq!(disk.path("trackway.db-wal").exists(), has_log);
        disk.remount("ro");
        let output = terminal.run(&["note", "list", "--json"]);
        assert_eq!(output.code, 0, "with log: {has_log}, {:?}: {}", disk.files(), output.stderr);
        assert_eq!(serde_json::from_str::<Value>(&output.stdout).unwrap()["data"][0]["title"], "before");
        let (code, message) = terminal.expect_error(&["note", "create", "--studio", "main", "--title", "x"]);
        assert!(code == 1 && message.starts_with("the database cannot be written"), "{code} {message}");
        let output = run_hook(&terminal, &prompt_event(&terminal, "s1"));
        assert_eq!((output.code, output.stdout.as_str(), output.stderr.as_str()), (0, "", ""));
        // The log beside the database cannot be written, so the hook uses the log in the user's folder.
        let log = fs::read_to_string(terminal.home.path().join(".local/share/trackway/hook.log")).unwrap();
        assert!(log.contains("UserPromptSubmit neither written"), "{log}");
        disk.remount("rw");
        terminal.json(&["note", "create", "--studio", "main", "--title", "after"]);
        audit(&terminal, &[]);
    }
}

/// The database file is read-only, but the spool beside it can be written.
#[test]
fn events_are_spooled_while_the_database_is_read_only() {
    use std::os::unix::{fs::PermissionsExt, process::CommandExt};
    let terminal = Terminal::new(trackway_testkit::Engine::Sqlite);
    let trackway_store::Url::Sqlite(file) = terminal.database.url() else { return };
    let folder = file.parent().unwrap().to_owned();
    let set_database_mode = |mode: u32| {
        for name in files_in(&folder).iter().filter(|name| name.starts_with("trackway.db")) {
            fs::set_permissions(folder.join(name), fs::Permissions::from_mode(mode)).unwrap();
        }
    };
    for path in [folder.as_path(), terminal.home.path()] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o777)).unwrap();
    }
    set_database_mode(0o444);
    // The superuser can write anywhere, so the hook runs as another user.
    let run_hook_as_other_user = |session: &str| {
        let mut command = terminal.command(&["hook"]);
        command.uid(65_534).gid(65_534);
        let output = run_command_with_input(command, prompt_event(&terminal, session).to_string().as_bytes());
        assert_eq!((output.code, output.stdout.as_str(), output.stderr.as_str()), (0, "", ""));
    };
    run_hook_as_other_user("s1");
    run_hook_as_other_user("s2");
    let spooled_count = || files_in(&folder.join("spool")).iter().filter(|name| *name != "lock").count();
    assert_eq!(spooled_count(), 2, "{:?}", fs::read_to_string(folder.join("hook.log")));
    set_database_mode(0o666);
    let output = run_hook(&terminal, &prompt_event(&terminal, "s3"));
    assert_eq!((output.code, spooled_count()), (0, 0));
    let mut recorded = session_ids(&terminal);
    recorded.sort();
    assert_eq!(recorded, ["s1", "s2", "s3"]);
    audit(&terminal, &[]);
}

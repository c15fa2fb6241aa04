//! `trackway ingest --watch`: ingests lines as they are written, and prints the totals when it ends.

use std::{
    io::{BufRead, BufReader},
    process::{Child, Stdio},
};

use serde_json::{Value, json};
use trackway_testkit::Engine;

use crate::{
    hook::connection,
    ingest::{SESSION, TranscriptFolder, TranscriptWriter, projects_folder},
    terminal::{Terminal, both_engines, column},
};

/// Waits for a line that contains this text.
fn wait_for_line(lines: &mut impl Iterator<Item = String>, expected: &str) -> String {
    lines.find(|line| line.contains(expected)).unwrap()
}

fn send_sigterm(watcher: &Child) {
    rustix::process::kill_process(rustix::process::Pid::from_child(watcher), rustix::process::Signal::TERM).unwrap();
}

fn stderr_lines(watcher: &mut Child) -> impl Iterator<Item = String> + use<> {
    BufReader::new(watcher.stderr.take().unwrap()).lines().map(Result::unwrap)
}

both_engines! {
    fn watch_ingests_new_lines_until_sigterm(terminal: Terminal) {
        let folder = TranscriptFolder::new(&terminal);
        let mut main = TranscriptWriter::new(SESSION, "/ship");
        folder.append(None, &(main.prompt("set sail") + "bad\n"));
        let mut command = terminal.command(&["ingest", projects_folder(&terminal).to_str().unwrap(), "--watch", "--json"]);
        let mut watcher = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = stderr_lines(&mut watcher);
        assert!(wait_for_line(&mut lines, "watching").starts_with("read "));
        wait_for_line(&mut lines, "warning: ");
        let status = || column(&terminal.json(&["session", "show", SESSION])["prompts"], "status");
        assert_eq!(status(), ["running"]);

        // A line may be written in two parts.
        let line = main.reply("m1", Some("end_turn"), 5, "Under way.");
        folder.append(None, &line[..20]);
        folder.append(None, &line[20..]);
        wait_for_line(&mut lines, " more in 1 files");
        while status() != ["completed"] {}
        let bad_at = folder.file(None).metadata().unwrap().len();
        folder.append(None, "bad again\n");
        assert!(wait_for_line(&mut lines, "warning: ").ends_with(&format!("a bad line at byte {bad_at}")));
        folder.write("nobody.jsonl", b"{}\n");
        assert!(wait_for_line(&mut lines, "warning: ").ends_with("nobody.jsonl: no line names a session"));

        send_sigterm(&watcher);
        let output = watcher.wait_with_output().unwrap();
        assert!(output.status.success(), "{:?}", output.status);
        let data = serde_json::from_slice::<Value>(&output.stdout).unwrap()["data"].clone();
        let size = folder.file(None).metadata().unwrap().len();
        let totals = ["files", "bytes", "lines", "bad_lines", "sessions", "usage"].map(|field| data[field].clone());
        assert_eq!(totals, [json!(1), json!(size), json!(4), json!(2), json!(1), json!(1)]);
        assert_eq!(data["problems"].as_array().unwrap().len(), 3);
    }
}

#[test]
fn watch_retries_while_the_database_is_busy() {
    let terminal = Terminal::new(Engine::Sqlite);
    let folder = TranscriptFolder::new(&terminal);
    let mut main = TranscriptWriter::new(SESSION, "/ship");
    folder.append(None, &main.prompt("set sail"));
    let mut command = terminal.command(&["ingest", projects_folder(&terminal).to_str().unwrap(), "--watch"]);
    let mut watcher = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = stderr_lines(&mut watcher);
    wait_for_line(&mut lines, "watching");
    let mut other = connection(&terminal);
    other.batch("begin immediate").unwrap();
    folder.append(None, &main.reply("m1", Some("end_turn"), 5, "Under way."));
    wait_for_line(&mut lines, "; retrying");
    other.batch("rollback").unwrap();
    wait_for_line(&mut lines, " more in 1 files");
    assert_eq!(column(&terminal.json(&["run", "list"]), "final_message"), ["Under way."]);
    send_sigterm(&watcher);
    assert!(watcher.wait().unwrap().success());
}

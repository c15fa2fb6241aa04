//! `trackway ingest --watch`: what is written meanwhile is read, and the end is told.

use std::{
    io::{BufRead, BufReader},
    process::{Child, Stdio},
};

use serde_json::{Value, json};
use trackway_testkit::Engine;

use crate::{
    hook::connection,
    ingest::{TranscriptFolder, SESSION, TranscriptWriter, projects},
    terminal::{Terminal, both_engines, column},
};

/// Waits for a line that is said.
fn hears(said: &mut impl Iterator<Item = String>, wanted: &str) -> String {
    said.find(|line| line.contains(wanted)).unwrap()
}

fn ends(watching: &Child) {
    rustix::process::kill_process(rustix::process::Pid::from_child(watching), rustix::process::Signal::TERM).unwrap();
}

fn lines(watching: &mut Child) -> impl Iterator<Item = String> + use<> {
    BufReader::new(watching.stderr.take().unwrap()).lines().map(Result::unwrap)
}

both_engines! {
    fn what_is_written_meanwhile_is_read_until_a_signal_comes(terminal: Terminal) {
        let folder = TranscriptFolder::new(&terminal);
        let mut main = TranscriptWriter::new(SESSION, "/ship");
        folder.append(None, &(main.prompt("set sail") + "bad\n"));
        let mut command = terminal.command(&["ingest", projects_folder(&terminal).to_str().unwrap(), "--watch", "--json"]);
        let mut watching = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut said = lines(&mut watching);
        assert!(hears(&mut said, "watching").starts_with("read "));
        hears(&mut said, "warning: ");
        let status = || column(&terminal.json(&["session", "show", SESSION])["prompts"], "status");
        assert_eq!(status(), ["running"]);

        // Half a line, and its end.
        let line = main.reply("m1", Some("end_turn"), 5, "Under way.");
        folder.append(None, &line[..20]);
        folder.append(None, &line[20..]);
        hears(&mut said, " more in 1 files");
        while status() != ["completed"] {}
        let bad_at = folder.file(None).metadata().unwrap().len();
        folder.append(None, "bad again\n");
        assert!(hears(&mut said, "warning: ").ends_with(&format!("a bad line at byte {bad_at}")));
        folder.write("nobody.jsonl", b"{}\n");
        assert!(hears(&mut said, "warning: ").ends_with("nobody.jsonl: no line names a session"));

        ends(&watching);
        let left = watching.wait_with_output().unwrap();
        assert!(left.status.success(), "{:?}", left.status);
        let data = serde_json::from_slice::<Value>(&left.stdout).unwrap()["data"].clone();
        let whole = folder.file(None).metadata().unwrap().len();
        let told = ["files", "bytes", "lines", "bad_lines", "sessions", "usage"].map(|field| data[field].clone());
        assert_eq!(told, [json!(1), json!(whole), json!(4), json!(2), json!(1), json!(1)]);
        assert_eq!(data["problems"].as_array().unwrap().len(), 3);
    }
}

#[test]
fn a_database_that_is_busy_is_waited_for() {
    let terminal = Terminal::new(Engine::Sqlite);
    let folder = TranscriptFolder::new(&terminal);
    let mut main = TranscriptWriter::new(SESSION, "/ship");
    folder.append(None, &main.prompt("set sail"));
    let mut command = terminal.command(&["ingest", projects_folder(&terminal).to_str().unwrap(), "--watch"]);
    let mut watching = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut said = lines(&mut watching);
    hears(&mut said, "watching");
    let mut other = connection(&terminal);
    other.batch("begin immediate").unwrap();
    folder.append(None, &main.reply("m1", Some("end_turn"), 5, "Under way."));
    hears(&mut said, "; retrying");
    other.batch("rollback").unwrap();
    hears(&mut said, " more in 1 files");
    assert_eq!(column(&terminal.json(&["run", "list"]), "final_message"), ["Under way."]);
    ends(&watching);
    assert!(watching.wait().unwrap().success());
}

//! The hook daemon, which holds the database open for hooks. With and without the daemon, hooks record the same facts.
//! No event is lost if the daemon is missing, hangs or must not be used.

use std::{
    fs,
    os::unix::net::UnixStream,
    path::PathBuf,
    process::{Child, Command, Stdio},
    time::Duration,
};

use serde_json::{Value, json};
use trackway_store::Url;
use trackway_testkit::{Engine, wait_until};

use crate::{
    hook::{HookSession, complete_session},
    ingest::{SESSION, TranscriptFolder, TranscriptWriter},
    record::comparable_record,
    terminal::{CommandOutput, Terminal, both_engines, column, run_command_with_input},
};

/// A session whose hooks may start a hook daemon.
struct DaemonSession<'a>(HookSession<'a>);

impl DaemonSession<'_> {
    fn command(&self) -> Command {
        let mut command = self.0.terminal.command(&["hook", "--memory", "off"]);
        command.env_remove("TRACKWAY_HOOK_DAEMON");
        command
    }

    #[track_caller]
    fn send(&self, name: &str, more: &Value) -> String {
        let CommandOutput { code, stdout, stderr } =
            run_command_with_input(self.command(), self.0.event(name, more).to_string().as_bytes());
        assert_eq!((code, stderr.as_str()), (0, ""), "{name} {more}");
        stdout
    }

    #[track_caller]
    fn start_subagent(&self, agent: &str) -> String {
        self.send("SubagentStart", &json!({ "agent_id": agent, "agent_type": "general-purpose" }))
    }

    fn start_subagent_in_background(&self, agent: &str) -> Child {
        let event = self.0.event("SubagentStart", &json!({ "agent_id": agent, "agent_type": "general-purpose" }));
        let mut child = self.command().stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        std::io::Write::write_all(&mut child.stdin.take().unwrap(), event.to_string().as_bytes()).unwrap();
        child
    }

    fn agent_ids(&self) -> Vec<String> {
        let mut agents = column(&self.0.terminal.json(&["subagent", "list", "--limit", "1000"]), "agent_id");
        agents.sort();
        agents
    }

    fn sockets(&self) -> Vec<PathBuf> {
        let folder = self.0.terminal.home.path().join(".local/share/trackway/keepers");
        let files = fs::read_dir(folder).into_iter().flatten().flatten().map(|file| file.path());
        files.filter(|file| file.extension().is_some_and(|extension| extension == "socket")).collect()
    }

    /// The process ids of the hook daemons of this home directory.
    fn daemons(&self) -> Vec<u32> {
        let home = self.0.terminal.home.path().to_str().unwrap().to_owned();
        let processes = fs::read_dir("/proc").unwrap().flatten();
        processes
            .filter_map(|process| process.file_name().to_str()?.parse().ok())
            .filter(|id: &u32| {
                let line = fs::read(format!("/proc/{id}/cmdline")).unwrap_or_default();
                let line = String::from_utf8_lossy(&line).into_owned();
                line.contains("keep-open-for-hooks") && line.contains(&home)
            })
            .collect()
    }

    #[track_caller]
    fn running_daemon(&self) -> u32 {
        wait_for("a hook daemon listens", || {
            self.sockets().first().is_some_and(|socket| UnixStream::connect(socket).is_ok())
        });
        let daemons = self.daemons();
        assert_eq!(daemons.len(), 1);
        daemons[0]
    }
}

#[track_caller]
fn wait_for(what: &str, condition: impl Fn() -> bool) {
    wait_until(what, Duration::from_secs(30), || condition().then_some(()));
}

fn signal(process: u32, name: &str) {
    assert!(Command::new("kill").args([name, &process.to_string()]).status().unwrap().success());
}

both_engines! {
    fn hook_daemon_records_the_same_as_a_hook_alone(terminal: Terminal) {
        let alone = Terminal::new(match terminal.database.url() { Url::Sqlite(_) => Engine::Sqlite, Url::Postgres(_) => Engine::Postgres });
        let session = DaemonSession(HookSession { terminal: &terminal, id: "s1" });
        for (name, more) in complete_session() {
            let answer_alone = HookSession { terminal: &alone, id: "s1" }.send(name, &more);
            let answer = session.send(name, &more);
            assert_eq!(answer.is_empty(), answer_alone.is_null(), "{name}");
            session.running_daemon();
        }
        let record = |terminal: &Terminal| comparable_record(terminal).replace(terminal.home.path().to_str().unwrap(), "HOME");
        snapbox::assert_data_eq!(record(&terminal), snapbox::IntoData::raw(record(&alone)));
    }

    fn dead_or_hanging_hook_daemon_loses_no_event(terminal: Terminal) {
        let session = DaemonSession(HookSession { terminal: &terminal, id: "s1" });
        session.start_subagent("a1");
        let first = session.running_daemon();
        session.start_subagent("a2");
        assert_eq!(session.running_daemon(), first);
        signal(first, "-KILL");
        wait_for("the first daemon has ended", || session.daemons().is_empty());
        assert!(session.start_subagent("a3").contains("Trackway records this work"));
        wait_for("a second daemon runs", || session.daemons().len() == 1 && session.daemons() != [first]);
        let second = session.running_daemon();
        signal(second, "-STOP");
        assert!(session.start_subagent("a4").contains("Trackway records this work"));
        signal(second, "-CONT");
        session.start_subagent("a5");
        assert_eq!(session.agent_ids(), ["a1", "a2", "a3", "a4", "a5"]);
        assert_eq!(terminal.json(&["run", "list"]).as_array().unwrap().len(), 5);
    }

    fn thirty_two_concurrent_hooks_lose_no_event_before_and_after_daemon_start(terminal: Terminal) {
        let session = DaemonSession(HookSession { terminal: &terminal, id: "s1" });
        for round in 0..2 {
            let all: Vec<Child> = (0..32).map(|number| session.start_subagent_in_background(&format!("a{round}{number:02}"))).collect();
            for child in all {
                assert!(child.wait_with_output().unwrap().status.success());
            }
            session.running_daemon();
        }
        // On a slow machine some events are spooled; each further hook call reads some of them.
        wait_for("all events are recorded", || {
            session.send("UserPromptSubmit", &json!({ "prompt": "go" }));
            session.agent_ids().len() == 64
        });
    }

    fn transcript_lines_written_after_the_last_hook_are_read(terminal: Terminal) {
        let session = DaemonSession(HookSession { terminal: &terminal, id: SESSION });
        let folder = TranscriptFolder::new(&terminal);
        let mut writing = TranscriptWriter::new(SESSION, "/ship");
        folder.append(None, &writing.prompt("set sail"));
        session.send("SessionStart", &json!({ "source": "startup" }));
        session.running_daemon();
        session.send("Stop", &json!({ "transcript_path": folder.file(None), "last_assistant_message": "Under way." }));
        // Claude Code 2.1.53 writes the last line after its Stop hook and is then killed.
        folder.append(None, &writing.reply("m1", Some("end_turn"), 40, "Under way."));
        let output_tokens = || terminal.json(&["usage"])[0]["output_tokens"].clone();
        wait_for("the tokens of the last reply are counted", || output_tokens() == json!(40));
    }

    fn hook_daemon_ends_when_its_home_is_deleted(terminal: Terminal) {
        let session = DaemonSession(HookSession { terminal: &terminal, id: "s1" });
        session.start_subagent("a1");
        session.running_daemon();
        fs::remove_dir_all(terminal.home.path().join(".local")).unwrap();
        wait_for("the daemon has ended", || session.daemons().is_empty());
    }

    fn session_with_run_token_starts_no_hook_daemon(terminal: Terminal) {
        let session = DaemonSession(HookSession { terminal: &terminal, id: "s1" });
        terminal.json(&["agent", "set", "--handle", "builder"]);
        let (_, token) = terminal.start_run(&["--agent", "builder"]);
        let mut command = session.command();
        command.env("TRACKWAY_TOKEN", token);
        assert_eq!(run_command_with_input(command, session.0.event("SessionStart", &json!({})).to_string().as_bytes()).code, 0);
        assert_eq!(session.daemons(), [0_u32; 0]);
        assert!(!terminal.home.path().join(".local/share/trackway/keepers").exists());
    }
}

#[test]
fn hooks_write_to_a_replaced_database_file() {
    let terminal = Terminal::new(Engine::Sqlite);
    let session = DaemonSession(HookSession { terminal: &terminal, id: "s1" });
    session.start_subagent("a1");
    session.running_daemon();
    let Url::Sqlite(file) = terminal.database.url() else { unreachable!() };
    for end in ["", "-wal", "-shm"] {
        let _ = fs::remove_file(format!("{}{end}", file.display()));
    }
    terminal.json(&["init"]);
    session.start_subagent("a2");
    assert_eq!(session.agent_ids(), ["a2"]);
}

#[test]
fn hook_daemon_ignores_invalid_input_on_its_socket() {
    use std::io::{Read, Write};
    let terminal = Terminal::new(Engine::Sqlite);
    let session = DaemonSession(HookSession { terminal: &terminal, id: "s1" });
    session.start_subagent("a1");
    let daemon = session.running_daemon();
    let long = vec![b'x'; 100_000];
    let hostile: [&[u8]; 5] = [b"", b"\n", b"{}\n{}", b"\xff\xfe\n", &long];
    for bytes in hostile {
        let mut stream = UnixStream::connect(&session.sockets()[0]).unwrap();
        stream.write_all(bytes).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        assert_eq!(answer, b"");
    }
    // Silent connections delay an answer for no longer than the hook's timeout.
    let silent: Vec<_> = (0..8).map(|_| UnixStream::connect(&session.sockets()[0]).unwrap()).collect();
    assert!(session.start_subagent("a2").contains("Trackway records this work"));
    drop(silent);
    assert_eq!((session.agent_ids(), session.running_daemon()), (vec!["a1".to_owned(), "a2".to_owned()], daemon));
}

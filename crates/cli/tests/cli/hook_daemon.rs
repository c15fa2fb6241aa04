//! The process that keeps a database open for hooks: what it records is what a hook alone records, and nothing is lost
//! when it is not there, does not answer, or should not be asked.

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
    ingest::{TranscriptFolder, SESSION, TranscriptWriter},
    record::comparable_record,
    terminal::{CommandOutput, Terminal, both_engines, column, run_command_with_input},
};

/// A session whose hooks may leave a keeper behind.
struct Kept<'a>(HookSession<'a>);

impl Kept<'_> {
    fn command(&self) -> Command {
        let mut command = self.0.terminal.command(&["hook", "--memory", "off"]);
        command.env_remove("TRACKWAY_HOOK_KEEPER");
        command
    }

    #[track_caller]
    fn hears(&self, name: &str, more: &Value) -> String {
        let CommandOutput { code, stdout, stderr } =
            run_command_with_input(self.command(), self.0.event(name, more).to_string().as_bytes());
        assert_eq!((code, stderr.as_str()), (0, ""), "{name} {more}");
        stdout
    }

    #[track_caller]
    fn starts(&self, agent: &str) -> String {
        self.hears("SubagentStart", &json!({ "agent_id": agent, "agent_type": "general-purpose" }))
    }

    fn starts_at_once(&self, agent: &str) -> Child {
        let event = self.0.event("SubagentStart", &json!({ "agent_id": agent, "agent_type": "general-purpose" }));
        let mut child = self.command().stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        std::io::Write::write_all(&mut child.stdin.take().unwrap(), event.to_string().as_bytes()).unwrap();
        child
    }

    fn agents(&self) -> Vec<String> {
        let mut agents = column(&self.0.terminal.json(&["subagent", "list", "--limit", "1000"]), "agent_id");
        agents.sort();
        agents
    }

    fn sockets(&self) -> Vec<PathBuf> {
        let keepers = self.0.terminal.home.path().join(".local/share/trackway/keepers");
        let files = fs::read_dir(keepers).into_iter().flatten().flatten().map(|file| file.path());
        files.filter(|file| file.extension().is_some_and(|extension| extension == "socket")).collect()
    }

    /// The processes that keep something open in this home.
    fn keepers(&self) -> Vec<u32> {
        let home = self.0.terminal.home.path().to_str().unwrap().to_owned();
        let all = fs::read_dir("/proc").unwrap().flatten();
        all.filter_map(|process| process.file_name().to_str()?.parse().ok())
            .filter(|id: &u32| {
                let line = fs::read(format!("/proc/{id}/cmdline")).unwrap_or_default();
                let line = String::from_utf8_lossy(&line).into_owned();
                line.contains("keep-open-for-hooks") && line.contains(&home)
            })
            .collect()
    }

    #[track_caller]
    fn keeper(&self) -> u32 {
        until("a keeper listens", || self.sockets().first().is_some_and(|socket| UnixStream::connect(socket).is_ok()));
        let keepers = self.keepers();
        assert_eq!(keepers.len(), 1);
        keepers[0]
    }
}

#[track_caller]
fn until(what: &str, is_so: impl Fn() -> bool) {
    wait_until(what, Duration::from_secs(30), || is_so().then_some(()));
}

fn signal(process: u32, name: &str) {
    assert!(Command::new("kill").args([name, &process.to_string()]).status().unwrap().success());
}

both_engines! {
    fn a_keeper_records_what_a_hook_alone_records(terminal: Terminal) {
        let alone = Terminal::new(match terminal.database.url() { Url::Sqlite(_) => Engine::Sqlite, Url::Postgres(_) => Engine::Postgres });
        let kept = Kept(HookSession { terminal: &terminal, id: "s1" });
        for (name, more) in complete_session() {
            let said = HookSession { terminal: &alone, id: "s1" }.send(name, &more);
            let heard = kept.hears(name, &more);
            assert_eq!(heard.is_empty(), said.is_null(), "{name}");
            kept.keeper();
        }
        let same = |terminal: &Terminal| comparable_record(terminal).replace(terminal.home.path().to_str().unwrap(), "HOME");
        snapbox::assert_data_eq!(same(&terminal), snapbox::IntoData::raw(same(&alone)));
    }

    fn a_keeper_that_dies_or_hangs_costs_no_event(terminal: Terminal) {
        let kept = Kept(HookSession { terminal: &terminal, id: "s1" });
        kept.starts("a1");
        let first = kept.keeper();
        kept.starts("a2");
        assert_eq!(kept.keeper(), first);
        signal(first, "-KILL");
        until("the first is gone", || kept.keepers().is_empty());
        assert!(kept.starts("a3").contains("Trackway records this work"));
        until("there is another one", || kept.keepers().len() == 1 && kept.keepers() != [first]);
        let second = kept.keeper();
        signal(second, "-STOP");
        assert!(kept.starts("a4").contains("Trackway records this work"));
        signal(second, "-CONT");
        kept.starts("a5");
        assert_eq!(kept.agents(), ["a1", "a2", "a3", "a4", "a5"]);
        assert_eq!(terminal.json(&["run", "list"]).as_array().unwrap().len(), 5);
    }

    fn thirty_two_at_once_with_a_keeper_or_while_it_comes(terminal: Terminal) {
        let kept = Kept(HookSession { terminal: &terminal, id: "s1" });
        for round in 0..2 {
            let all: Vec<Child> = (0..32).map(|number| kept.starts_at_once(&format!("a{round}{number:02}"))).collect();
            for child in all {
                assert!(child.wait_with_output().unwrap().status.success());
            }
            kept.keeper();
        }
        // On a slow machine some wait in the spool, for as many calls as it takes.
        until("none is lost", || {
            kept.hears("UserPromptSubmit", &json!({ "prompt": "go" }));
            kept.agents().len() == 64
        });
    }

    fn what_is_written_after_the_last_event_is_read(terminal: Terminal) {
        let kept = Kept(HookSession { terminal: &terminal, id: SESSION });
        let folder = TranscriptFolder::new(&terminal);
        let mut writing = TranscriptWriter::new(SESSION, "/ship");
        folder.append(None, &writing.prompt("set sail"));
        kept.hears("SessionStart", &json!({ "source": "startup" }));
        kept.keeper();
        kept.hears("Stop", &json!({ "transcript_path": folder.file(None), "last_assistant_message": "Under way." }));
        // So 2.1.53 does it, and then it is killed.
        folder.append(None, &writing.reply("m1", Some("end_turn"), 40, "Under way."));
        let used = || terminal.json(&["usage"])[0]["output_tokens"].clone();
        until("the last words are counted", || used() == json!(40));
    }

    fn a_keeper_goes_with_the_home_it_is_of(terminal: Terminal) {
        let kept = Kept(HookSession { terminal: &terminal, id: "s1" });
        kept.starts("a1");
        kept.keeper();
        fs::remove_dir_all(terminal.home.path().join(".local")).unwrap();
        until("it is gone", || kept.keepers().is_empty());
    }

    fn a_session_in_a_run_leaves_nothing_behind(terminal: Terminal) {
        let kept = Kept(HookSession { terminal: &terminal, id: "s1" });
        terminal.json(&["agent", "set", "--handle", "builder"]);
        let (_, token) = terminal.start_run(&["--agent", "builder"]);
        let mut command = kept.command();
        command.env("TRACKWAY_TOKEN", token);
        assert_eq!(run_command_with_input(command, kept.0.event("SessionStart", &json!({})).to_string().as_bytes()).code, 0);
        assert_eq!(kept.keepers(), [0_u32; 0]);
        assert!(!terminal.home.path().join(".local/share/trackway/keepers").exists());
    }
}

#[test]
fn a_database_that_took_the_place_of_another_gets_its_events() {
    let terminal = Terminal::new(Engine::Sqlite);
    let kept = Kept(HookSession { terminal: &terminal, id: "s1" });
    kept.starts("a1");
    kept.keeper();
    let Url::Sqlite(file) = terminal.database.url() else { unreachable!() };
    for end in ["", "-wal", "-shm"] {
        let _ = fs::remove_file(format!("{}{end}", file.display()));
    }
    terminal.json(&["init"]);
    kept.starts("a2");
    assert_eq!(kept.agents(), ["a2"]);
}

#[test]
fn what_is_not_an_event_on_the_socket_is_passed_over() {
    use std::io::{Read, Write};
    let terminal = Terminal::new(Engine::Sqlite);
    let kept = Kept(HookSession { terminal: &terminal, id: "s1" });
    kept.starts("a1");
    let keeper = kept.keeper();
    let long = vec![b'x'; 100_000];
    let hostile: [&[u8]; 5] = [b"", b"\n", b"{}\n{}", b"\xff\xfe\n", &long];
    for bytes in hostile {
        let mut stream = UnixStream::connect(&kept.sockets()[0]).unwrap();
        stream.write_all(bytes).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        assert_eq!(answer, b"");
    }
    // Many who say nothing keep it from answering only for as long as a hook waits.
    let silent: Vec<_> = (0..8).map(|_| UnixStream::connect(&kept.sockets()[0]).unwrap()).collect();
    assert!(kept.starts("a2").contains("Trackway records this work"));
    drop(silent);
    assert_eq!((kept.agents(), kept.keeper()), (vec!["a1".to_owned(), "a2".to_owned()], keeper));
}

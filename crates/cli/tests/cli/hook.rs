//! `trackway hook` without a real client. No input makes the hook fail or block, and the hook records every event.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use proptest::{prop_assert, prop_assert_eq, test_runner::TestRunner};
use serde_json::{Value, json};
use trackway_client_claude::event;
use trackway_store::{Clock, Url, connection::Connection};
use trackway_testkit::{Engine, corpus};

use crate::{
    ingest::{self, TranscriptFolder, TranscriptWriter},
    record::comparable_record,
    terminal::{CommandOutput, Terminal, both_engines, column, run_command_with_input, text},
};

/// A client session that is simulated by sending its hook events.
pub struct HookSession<'a> {
    pub terminal: &'a Terminal,
    pub id: &'a str,
}

impl HookSession<'_> {
    /// An event of this session in the client's format.
    pub fn event(&self, name: &str, more: &Value) -> Value {
        let mut event = json!({ "hook_event_name": name, "session_id": self.id, "cwd": project(self.terminal) });
        for (field, value) in more.as_object().unwrap() {
            event[field] = value.clone();
        }
        event
    }

    /// Sends an event to `trackway hook`, and returns its answer to the client.
    #[track_caller]
    pub fn send(&self, name: &str, more: &Value) -> Value {
        let output = run_hook(self.terminal, self.event(name, more).to_string().as_bytes());
        assert_eq!((output.code, output.stderr.as_str()), (0, ""), "{name} {more}");
        if output.stdout.is_empty() { Value::Null } else { serde_json::from_str(&output.stdout).unwrap() }
    }

    fn send_in_background(&self, name: &str, more: &Value) -> Child {
        let mut command = self.terminal.command(&["hook"]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        std::io::Write::write_all(&mut stdin, self.event(name, more).to_string().as_bytes()).unwrap();
        child
    }

    pub fn prompt(&self, prompt: &str) {
        self.send("UserPromptSubmit", &json!({ "prompt": prompt }));
    }

    pub fn send_agent_call(&self, call: &str, prompt: &str) {
        self.send("PreToolUse", &agent_call(call, prompt));
    }

    pub fn send_subagent_start(&self, agent: &str) -> Value {
        self.send("SubagentStart", &json!({ "agent_id": agent, "agent_type": "general-purpose" }))
    }

    pub fn send_subagent_stop(&self, agent: &str, reply: &str) -> Value {
        self.send("SubagentStop", &subagent_stop(agent, reply))
    }

    pub fn send_agent_result(&self, call: &str, prompt: &str, agent: &str) {
        self.send("PostToolUse", &agent_result(call, prompt, agent));
    }

    pub fn send_file_write(&self, call: &str, path: &str) {
        self.send("PostToolUse", &file_write(call, path));
    }
}

pub fn agent_call(call: &str, prompt: &str) -> Value {
    let input = json!({ "prompt": prompt, "description": "a job", "subagent_type": "general-purpose" });
    json!({ "tool_name": "Agent", "tool_use_id": call, "tool_input": input })
}

fn agent_result(call: &str, prompt: &str, agent: &str) -> Value {
    let mut event = agent_call(call, prompt);
    event["tool_response"] = json!({ "status": "completed", "agentId": agent });
    event
}

pub fn subagent_stop(agent: &str, reply: &str) -> Value {
    json!({ "agent_id": agent, "agent_type": "general-purpose", "stop_hook_active": false, "last_assistant_message": reply })
}

pub fn file_write(call: &str, path: &str) -> Value {
    let response = json!({ "type": "create", "structuredPatch": [] });
    json!({
        "tool_name": "Write", "tool_use_id": call, "tool_input": { "file_path": path, "content": "x\n" }, "tool_response": response,
    })
}

/// The events of a session with one subagent, from start to end.
pub fn complete_session() -> Vec<(&'static str, Value)> {
    let mut written_by_agent = file_write("t2", "one.txt");
    written_by_agent["agent_id"] = json!("a1");
    vec![
        ("SessionStart", json!({ "source": "startup" })),
        ("UserPromptSubmit", json!({ "prompt": "go" })),
        ("PreToolUse", agent_call("t1", "[ROLE:builder] build")),
        ("SubagentStart", json!({ "agent_id": "a1", "agent_type": "general-purpose" })),
        ("PostToolUse", written_by_agent),
        ("SubagentStop", subagent_stop("a1", "built")),
        ("PostToolUse", agent_result("t1", "[ROLE:builder] build", "a1")),
        ("PostToolUse", file_write("t3", "two.txt")),
        ("Stop", json!({ "stop_hook_active": false, "last_assistant_message": "done" })),
        ("SessionEnd", json!({ "reason": "other" })),
    ]
}

pub fn project(terminal: &Terminal) -> PathBuf {
    let project = terminal.home.path().join("project");
    fs::create_dir_all(&project).unwrap();
    project
}

pub fn git(project: &Path, arguments: &[&str]) {
    let mut command = Command::new("git");
    command.arg("-C").arg(project).args([
        "-c",
        "user.name=sam",
        "-c",
        "user.email=sam@example.org",
        "-c",
        "core.fsmonitor=false",
    ]);
    assert!(command.args(arguments).status().unwrap().success(), "{arguments:?}");
}

pub fn git_at(project: &Path, date: &str, arguments: &[&str]) {
    let mut command = Command::new("git");
    command
        .arg("-C")
        .arg(project)
        .args(["-c", "user.name=sam", "-c", "user.email=sam@example.org"])
        .env("GIT_COMMITTER_DATE", date);
    assert!(command.args(arguments).status().unwrap().success(), "{arguments:?}");
}

/// Runs `trackway hook` without memory, so that it asks no agent for a scratchpad.
pub fn run_hook(terminal: &Terminal, input: &[u8]) -> CommandOutput {
    run_command_with_input(terminal.command(&["hook", "--memory", "off"]), input)
}

/// The folder of the spool and the log of this database's hooks.
fn state_folder(terminal: &Terminal) -> PathBuf {
    match terminal.database.url() {
        Url::Sqlite(path) => path.parent().unwrap().to_path_buf(),
        // Each tenant of each server has a separate folder, so that spooled events cannot reach another tenant.
        Url::Postgres(url) => {
            user_data_folder(terminal).join(&trackway_capture::digest::digest(format!("{url} local").as_bytes())[..16])
        }
    }
}

/// The folder of the log that a hook uses if it cannot determine the database for the event.
fn user_data_folder(terminal: &Terminal) -> PathBuf {
    terminal.home.path().join(".local/share/trackway")
}

fn count_lines(file: &Path) -> usize {
    fs::read_to_string(file).unwrap_or_default().lines().count()
}

pub fn connection(terminal: &Terminal) -> Connection {
    match terminal.database.url() {
        Url::Sqlite(path) => Connection::sqlite(&path, false).unwrap(),
        Url::Postgres(_) => Connection::postgres(&terminal.database.url_text()).unwrap(),
    }
}

/// All texts that are stored for messages, spawns and runs.
fn stored_texts(terminal: &Terminal) -> Vec<String> {
    let all = "select body from contents union all select final_message from runs where final_message is not null
               union all select description from task_spawns where description is not null
               union all select error from task_spawns where error is not null order by 1";
    connection(terminal).query::<(String,)>(all, &[]).unwrap().into_iter().map(|(text,)| text).collect()
}

fn garbage_inputs() -> Vec<Vec<u8>> {
    let event =
        |more: &str| format!(r#"{{"hook_event_name":"UserPromptSubmit","session_id":"s",{more}}}"#).into_bytes();
    let mut half = event(r#""prompt":"go""#);
    half.truncate(40);
    vec![
        Vec::new(),
        b"\n".to_vec(),
        vec![0; 64],
        (0..=255).collect(),
        half,
        b"null".to_vec(),
        b"[]".to_vec(),
        b"5".to_vec(),
        b"\"text\"".to_vec(),
        b"{}".to_vec(),
        br#"{"session_id":7}"#.to_vec(),
        br#"{"session_id":"","hook_event_name":"Stop"}"#.to_vec(),
        br#"{"session_id":"a\u0000b","hook_event_name":"Stop"}"#.to_vec(),
        format!(r#"{{"session_id":"{}"}}"#, "s".repeat(201)).into_bytes(),
        event(r#""prompt":5"#),
        event(r#""agent_id":["a"]"#),
        event(r#""agent_id":"a\nb""#),
        event(r#""stop_hook_active":"yes""#),
        event(r#""prompt":"a","prompt":"b""#),
        event(&format!(r#""tool_input":{}"#, "[".repeat(100_000))),
        vec![b'a'; 5 << 20],
        [event(r#""prompt":"go""#), b"{}".to_vec()].concat(),
    ]
}

/// Asserts that neither the SQLite database nor any file beside it contains the secret.
fn assert_absent_from_database_files(terminal: &Terminal, secret: &str) {
    let Url::Sqlite(path) = terminal.database.url() else { return };
    for file in
        fs::read_dir(path.parent().unwrap()).unwrap().map(|entry| entry.unwrap().path()).filter(|path| path.is_file())
    {
        let bytes = fs::read(&file).unwrap();
        assert!(!bytes.windows(secret.len()).any(|window| window == secret.as_bytes()), "{}", file.display());
    }
}

both_engines! {
    fn session_list_pages_include_sessions_with_equal_start_times(terminal: Terminal) {
        for number in 1..=5 {
            HookSession { terminal: &terminal, id: &format!("s{number}") }.prompt("go");
        }
        connection(&terminal).batch("update sessions set started_at = (select max(started_at) from sessions)").unwrap();
        let (mut all, mut before) = (Vec::new(), Vec::new());
        loop {
            let list: Vec<&str> = ["session", "list", "--limit", "2", "--json"].into_iter().chain(before.iter().map(String::as_str)).collect();
            let page: Value = serde_json::from_str(&terminal.run(&list).stdout).unwrap();
            all.extend(column(&page["data"], "id"));
            let Some(more) = page["more"].as_str() else { break };
            before = more.split(' ').map(str::to_owned).collect();
        }
        all.sort();
        all.dedup();
        assert_eq!(all.len(), 5, "{all:?}");
    }

    fn hook_logs_garbage_input_and_exits_zero(terminal: Terminal) {
        let log = user_data_folder(&terminal).join("hook.log");
        for (number, input) in garbage_inputs().iter().enumerate() {
            let output = run_hook(&terminal, input);
            let shown = String::from_utf8_lossy(&input[..input.len().min(80)]).into_owned();
            assert_eq!((output.code, output.stdout.as_str(), output.stderr.as_str()), (0, "", ""), "{number}: {shown}");
            assert_eq!(count_lines(&log), number + 1, "{number}: {shown}");
        }
        assert_eq!(terminal.json(&["session", "list"]), json!([]));
    }

    fn hook_exits_zero_on_any_input_and_answers_only_events(terminal: Terminal) {
        let result = TestRunner::new(corpus::proptest_config(30)).run(&corpus::mutated("hook"), |input| {
            let output = run_hook(&terminal, &input);
            prop_assert_eq!((output.code, output.stderr.as_str()), (0, ""));
            if !output.stdout.is_empty() {
                prop_assert!(event::parse(&input).is_ok(), "{}", output.stdout);
                let answer: Value = serde_json::from_str(&output.stdout).unwrap();
                prop_assert!(answer.is_object(), "{}", answer);
            }
            Ok(())
        });
        result.unwrap();
    }

    fn hook_does_not_wait_for_special_files_named_as_transcript(terminal: Terminal) {
        let session = HookSession { terminal: &terminal, id: "s1" };
        session.prompt("go");
        // These paths look like files. But reading `/proc/kmsg` as root blocks until the kernel logs a message, and
        // `/dev/zero` never ends.
        for path in ["/proc/kmsg", "/dev/zero", "/proc/self/mem"] {
            session.send("Stop", &json!({ "transcript_path": path, "last_assistant_message": "done" }));
        }
        assert_eq!(column(&terminal.json(&["run", "list"]), "status"), ["completed"]);
    }

    fn hook_ignores_unknown_events_and_malformed_fields(terminal: Terminal) {
        let session = HookSession { terminal: &terminal, id: "s1" };
        for (name, more) in [
            ("Notification", json!({ "message": "hello" })),
            ("NoSuchEvent", json!({ "agent_id": "a1", "deep": { "a": [1, null, { "b": 2 }] } })),
            ("", json!({})),
            ("PreToolUse", json!({ "tool_name": "Agent", "tool_use_id": "t1", "tool_input": 5 })),
            ("PreToolUse", json!({ "tool_name": "Agent", "tool_use_id": "t1", "tool_input": { "prompt": ["x"] } })),
            ("PostToolUse", json!({ "tool_name": "Write", "tool_use_id": "t2", "tool_input": { "file_path": 7 } })),
            ("PostToolUse", json!({ "tool_name": "Read", "tool_use_id": "t3", "tool_input": {} })),
            ("SubagentStart", json!({ "agent_type": "x" })),
            ("UserPromptSubmit", json!({ "prompt": " \n" })),
        ] {
            assert_eq!(session.send(name, &more), Value::Null, "{name} {more}");
        }
        let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
        let event = format!(r#"{{"hook_event_name":"PreToolUse","session_id":"s1","tool_name":"Agent","tool_use_id":"t1","tool_input":{deep}}}"#);
        assert_eq!(run_hook(&terminal, event.as_bytes()).stdout, "");
        assert_eq!(terminal.json(&["session", "list"]), json!([]));
        assert_eq!(count_lines(&state_folder(&terminal).join("hook.log")) + count_lines(&user_data_folder(&terminal).join("hook.log")), 0);
    }

    fn hook_records_events_that_contain_nul_characters(terminal: Terminal) {
        let session = HookSession { terminal: &terminal, id: "s1" };
        let nowhere = project(&terminal).join("a\u{0}b");
        session.send("UserPromptSubmit", &json!({ "prompt": "go\u{0}", "cwd": nowhere, "transcript_path": "/t\u{0}.jsonl" }));
        session.send_file_write("t\u{0}1", "one.txt");
        session.send("PreToolUse", &agent_call("t\u{0}2", "row"));
        session.send("PreToolUse", &agent_call("t\u{7}3", "row"));
        let shown = terminal.json(&["session", "show", "s1"]);
        assert_eq!(text(&shown["cwd"]), project(&terminal).join("ab").to_str().unwrap());
        assert_eq!(column(&shown["spawns"], "tool_use_id"), ["t2"]);
        // The session started in folder `ab`, and the file is outside that folder.
        let outside = project(&terminal).join("one.txt");
        assert_eq!(column(&terminal.json(&["made", "last"])["touches"], "display_path"), [outside.to_str().unwrap()]);
        assert_eq!(count_lines(&state_folder(&terminal).join("hook.log")), 0);
    }

    fn hook_records_a_five_megabyte_prompt(terminal: Terminal) {
        let session = HookSession { terminal: &terminal, id: "s1" };
        session.prompt(&"long ".repeat(1 << 20));
        let prompts = terminal.json(&["session", "show", "s1"])["prompts"].clone();
        assert_eq!(column(&prompts, "status"), ["running"]);
        let stored = stored_texts(&terminal);
        assert_eq!((stored.len(), stored[0].starts_with("long long ")), (1, true));
    }

    fn hook_records_hostile_paths_as_data(terminal: Terminal) {
        let session = HookSession { terminal: &terminal, id: "s1" };
        let long = format!("/{}", "d/".repeat(2_047) + "e");
        session.prompt("go");
        for (number, path) in ["../../../../../../etc/passwd", "a\nb", "'; drop table files; --", &long, "$(touch x)`y`"].iter().enumerate() {
            session.send_file_write(&format!("t{number}"), path);
        }
        let run = text(&terminal.json(&["session", "show", "s1"])["prompts"][0]["id"]);
        let mut paths = column(&terminal.json(&["made", &run])["touches"], "display_path");
        paths.sort();
        assert_eq!(paths.len(), 5, "{paths:?}");
        let mut expected = ["/etc/passwd", "a b", "'; drop table files; --", "$(touch x)`y`"].map(str::to_owned).to_vec();
        expected.sort();
        let (long_ones, short): (Vec<String>, Vec<String>) = paths.into_iter().partition(|path| path.len() > 200);
        assert_eq!(short, expected);
        assert!(long.starts_with(long_ones[0].trim_end_matches('…')), "{}", long_ones[0]);
        assert_eq!(fs::read_dir(terminal.home.path()).unwrap().filter(|entry| entry.as_ref().unwrap().file_name() == "x").count(), 0);
    }

    fn hook_redacts_secrets_in_texts(terminal: Terminal) {
        // The secret is assembled at run time, so that secret scanners do not report this file.
        let secret = format!("ghp_{}", "a1".repeat(18));
        let session = HookSession { terminal: &terminal, id: "s1" };
        session.prompt(&format!("use {secret} to push"));
        let prompt = format!("[ROLE:pusher] push with {secret}");
        let mut spawn = agent_call("t1", &prompt);
        spawn["tool_input"]["description"] = json!(format!("push {secret}"));
        session.send("PreToolUse", &spawn);
        session.send_subagent_start("a1");
        session.send_subagent_stop("a1", &format!("pushed with {secret}"));
        session.send_agent_result("t1", &prompt, "a1");
        session.send("PostToolUseFailure", &{
            let mut failing = agent_call("t2", "go");
            failing["error"] = json!(format!("no access with {secret}"));
            failing
        });
        session.send("Stop", &json!({ "stop_hook_active": false, "last_assistant_message": format!("used {secret}") }));
        assert_eq!(stored_texts(&terminal), [
            "[ROLE:pusher] push with [redacted]", "a job", "go", "no access with [redacted]", "push [redacted]",
            "pushed with [redacted]", "use [redacted] to push", "used [redacted]",
        ]);
        assert!(!comparable_record(&terminal).contains(&secret));
        assert_absent_from_database_files(&terminal, &secret);
    }

    fn hook_redacts_secrets_in_file_names(terminal: Terminal) {
        let secret = format!("ghp_{}", "a1".repeat(18));
        let project = project(&terminal);
        git(&project, &["init", "-q", "-b", "main"]);
        git(&project, &["commit", "-q", "--allow-empty", "-m", "before"]);
        let session = HookSession { terminal: &terminal, id: "s1" };
        session.send("SessionStart", &json!({ "source": "startup" }));
        session.prompt("go");
        fs::write(project.join(format!("{secret}.txt")), "committed").unwrap();
        git(&project, &["add", "."]);
        git(&project, &["commit", "-q", "-m", "own"]);
        fs::write(project.join(format!("by-{secret}.txt")), "left").unwrap();
        session.send("PostToolUse", &json!({ "tool_name": "Bash", "tool_use_id": "t1", "tool_input": { "command": "make; git commit" }, "tool_response": {} }));
        session.send("Stop", &json!({ "last_assistant_message": "done" }));
        let touches = terminal.json(&["made", "last"])["touches"].clone();
        let mut made: Vec<String> = touches.as_array().unwrap().iter().map(|touch| text(&touch["display_path"])).filter(|path| !path.ends_with(" own")).collect();
        made.sort();
        assert_eq!(made, ["by-[redacted].txt"]);
        assert!(!comparable_record(&terminal).contains(&secret));
        assert_absent_from_database_files(&terminal, &secret);
    }

    fn stop_of_an_unknown_subagent_creates_nothing(terminal: Terminal) {
        let session = HookSession { terminal: &terminal, id: "s1" };
        assert_eq!(session.send_subagent_stop("acompact-1", ""), Value::Null);
        assert_eq!(terminal.json(&["session", "list"]), json!([]));
        session.prompt("go");
        for agent in ["acompact-1", "a0123456789abcdef"] {
            let stop = json!({ "agent_id": agent, "agent_type": "", "stop_hook_active": false, "agent_transcript_path": "/no/such.jsonl" });
            assert_eq!(session.send("SubagentStop", &stop), Value::Null);
        }
        assert_eq!(terminal.json(&["subagent", "list"]), json!([]));
        assert_eq!(column(&terminal.json(&["run", "list"]), "status"), ["running"]);
    }

    fn events_spooled_while_the_database_is_busy_are_applied_in_order(terminal: Terminal) {
        let session = HookSession { terminal: &terminal, id: "s1" };
        session.send("SessionStart", &json!({ "source": "startup" }));
        let mut other = connection(&terminal);
        other.batch(match terminal.database.url() {
            Url::Sqlite(_) => "begin immediate",
            Url::Postgres(_) => "begin; lock table sessions in access exclusive mode",
        }).unwrap();
        let spool = state_folder(&terminal).join("spool");
        let spooled_count = || fs::read_dir(&spool).map_or(0, |entries| entries.filter(|entry| entry.as_ref().unwrap().path().extension().is_some_and(|extension| extension == "json")).count());
        session.prompt("go");
        session.send_agent_call("t1", "[ROLE:builder] build");
        assert_eq!(session.send_subagent_start("a1"), Value::Null);
        session.send_file_write("t2", "one.txt");
        session.send_subagent_stop("a1", "built");
        assert_eq!(spooled_count(), 5);
        other.batch("rollback").unwrap();
        drop(other);

        assert_eq!(terminal.json(&["run", "list"]), json!([]));
        session.send_agent_result("t1", "[ROLE:builder] build", "a1");
        assert_eq!(spooled_count(), 0);
        let shown = terminal.json(&["session", "show", "s1"]);
        assert_eq!(column(&shown["prompts"], "status"), ["running"]);
        assert_eq!(column(&shown["tree"], "role"), ["builder"]);
        let runs = terminal.json(&["run", "list"]);
        assert_eq!(column(&runs, "agent"), ["builder@project", "main@project"]);
        assert_eq!(column(&runs, "final_message"), ["built", "null"]);
        assert_eq!(runs[0]["parent_run_id"], runs[1]["id"]);
        assert_eq!(column(&terminal.json(&["made", &text(&runs[1]["id"])])["touches"], "display_path"), ["one.txt"]);
        assert_eq!(count_lines(&state_folder(&terminal).join("hook.log")), 0);
    }

    fn hook_runs_no_program_and_writes_no_file_for_a_malicious_repository(terminal: Terminal) {
        let project = project(&terminal);
        let (secret, precious, pwned) = (project.join("secret"), project.join("precious"), project.join("pwned"));
        git(&project, &["init", "-q", "-b", "main"]);
        git(&project, &["config", "core.fsmonitor", &format!("touch {}; false", pwned.display())]);
        fs::write(&secret, "a secret").unwrap();
        fs::write(&precious, "precious").unwrap();
        let session = HookSession { terminal: &terminal, id: "s1" };
        session.send("SessionStart", &json!({ "source": "startup" }));
        session.prompt("go");
        let commits = json!({ "tool_name": "Bash", "tool_use_id": "t1", "tool_input": { "command": "git commit" }, "tool_response": {} });
        for head in ["ref: ../secret".to_owned(), "ref: refs/heads/main".to_owned(), "--output=x".to_owned()] {
            fs::write(project.join(".git/HEAD"), head).unwrap();
            fs::write(project.join(".git/refs/heads/main"), format!("--output={}", precious.display())).unwrap();
            session.send("PostToolUse", &commits);
        }
        fs::remove_file(project.join(".git/refs/heads/main")).unwrap();
        session.send("Stop", &json!({ "last_assistant_message": "done" }));
        assert_eq!(fs::read_to_string(precious).unwrap(), "precious");
        assert!(!pwned.exists());
        fs::remove_file(project.join(".git/HEAD")).unwrap();
        assert!(Command::new("mkfifo").arg(project.join(".git/HEAD")).status().unwrap().success());
        session.send("PostToolUse", &commits);
        let with_head = connection(&terminal).query::<(i64,)>("select count(*) from sessions where head is not null", &[]).unwrap();
        assert_eq!(with_head, [(0,)]);
    }

    fn run_records_its_commits_and_deleted_files_but_no_older_commits(terminal: Terminal) {
        let project = project(&terminal);
        git(&project, &["init", "-q", "-b", "main"]);
        fs::write(project.join("old.txt"), "old").unwrap();
        git(&project, &["add", "."]);
        git(&project, &["commit", "-q", "-m", "before"]);
        let session = HookSession { terminal: &terminal, id: "s1" };
        session.send("SessionStart", &json!({ "source": "startup" }));
        session.prompt("go");
        session.send_file_write("t0", project.join("old.txt").to_str().unwrap());
        git_at(&project, "2020-01-01T00:00:00Z", &["commit", "-q", "--allow-empty", "-m", "a stranger's"]);
        git(&project, &["commit", "-q", "--allow-empty", "-m", "own"]);
        fs::remove_file(project.join("old.txt")).unwrap();
        let shell = json!({ "tool_name": "Bash", "tool_use_id": "t1", "tool_input": { "command": "git pull; rm old.txt" }, "tool_response": {} });
        session.send("PostToolUse", &shell);
        session.send("Stop", &json!({ "last_assistant_message": "done" }));
        let made = terminal.json(&["made", "last"])["touches"].clone();
        let mut shown: Vec<String> = made.as_array().unwrap().iter().map(|touch| format!("{} {}", text(&touch["action_type"]), text(&touch["display_path"]).split(' ').next_back().unwrap())).collect();
        shown.sort();
        assert_eq!(shown, ["create old.txt", "create own", "delete old.txt"]);
    }

    fn files_written_by_a_tool_are_not_attributed_to_a_later_command(terminal: Terminal) {
        let project = project(&terminal);
        git(&project, &["init", "-q", "-b", "main"]);
        let session = HookSession { terminal: &terminal, id: "s1" };
        session.prompt("go");
        for name in ["n.ipynb", "m.ipynb"] {
            fs::write(project.join(name), "cells").unwrap();
            let input = json!({ "notebook_path": project.join(name), "new_source": "2" });
            session.send("PostToolUse", &json!({ "tool_name": "NotebookEdit", "tool_use_id": name, "tool_input": input, "tool_response": {} }));
        }
        fs::write(project.join("m.ipynb"), "by a command").unwrap();
        fs::write(project.join("o.txt"), "by a command").unwrap();
        session.send("PostToolUse", &json!({ "tool_name": "Bash", "tool_use_id": "t1", "tool_input": { "command": "make" }, "tool_response": {} }));
        session.send("Stop", &json!({ "last_assistant_message": "done" }));
        let touches = terminal.json(&["made", "last"])["touches"].clone();
        let mut made: Vec<String> = touches.as_array().unwrap().iter().map(|touch| format!("{} {} {}", text(&touch["action_type"]), text(&touch["display_path"]), touch["times"])).collect();
        made.sort();
        assert_eq!(made, ["create o.txt 1", "update m.ipynb 2", "update n.ipynb 1"]);
    }

    fn hook_exits_zero_on_unknown_arguments(terminal: Terminal) {
        for arguments in [&["hook", "--memory", "everyone"][..], &["hook", "--later"], &["hook", "x", "--memory"]] {
            let output = run_command_with_input(terminal.command(arguments), b"{}");
            assert_eq!((output.code, output.stdout.as_str()), (0, ""), "{arguments:?}");
        }
    }

    fn thirty_two_concurrent_hooks_lose_no_event(terminal: Terminal) {
        let session = HookSession { terminal: &terminal, id: "s1" };
        session.prompt("go");
        let children: Vec<Child> = (0..32).map(|number| session.send_in_background("SubagentStart", &json!({ "agent_id": format!("a{number:02}"), "agent_type": "general-purpose" }))).collect();
        for child in children {
            assert!(child.wait_with_output().unwrap().status.success());
        }
        // The next hook applies the spooled events.
        session.send("PreToolUse", &agent_call("t1", "later"));
        let mut agents = column(&terminal.json(&["subagent", "list"]), "agent_id");
        agents.sort();
        assert_eq!(agents, (0..32).map(|number| format!("a{number:02}")).collect::<Vec<_>>());
        assert_eq!(terminal.json(&["run", "list"]).as_array().unwrap().len(), 33);
        assert_eq!(count_lines(&state_folder(&terminal).join("hook.log")), 0);
    }

    fn tentative_matching_gives_each_spawn_to_one_agent(terminal: Terminal) {
        let session = HookSession { terminal: &terminal, id: "s1" };
        session.prompt("go");
        for number in 0..4 {
            session.send_agent_call(&format!("t{number}"), &format!("[ROLE:r{number}] go"));
        }
        let children: Vec<Child> = (0..8).map(|number| session.send_in_background("SubagentStart", &json!({ "agent_id": format!("a{number}"), "agent_type": "general-purpose" }))).collect();
        for child in children {
            assert!(child.wait_with_output().unwrap().status.success());
        }
        session.send("Notification", &json!({}));
        let spawns = terminal.json(&["spawn", "list"]);
        let mut agents = column(&spawns, "agent_id");
        agents.sort();
        agents.dedup();
        assert_eq!((agents.len(), agents.contains(&"null".to_owned())), (4, false), "{agents:?}");
        assert_eq!(column(&spawns, "tentative"), ["true"; 4]);
        assert_eq!(column(&spawns, "evidence"), ["subagent_type"; 4]);
        let mut roles = column(&terminal.json(&["subagent", "list"]), "role");
        roles.sort();
        assert_eq!(roles, ["general-purpose", "general-purpose", "general-purpose", "general-purpose", "r0", "r1", "r2", "r3"]);
    }

    fn tentative_matching_ignores_agents_older_than_the_spawn(terminal: Terminal) {
        let session = HookSession { terminal: &terminal, id: "s1" };
        session.prompt("go");
        session.send("SubagentStart", &json!({ "agent_id": "warm" }));
        session.send_agent_call("t1", "[ROLE:coder] code");
        session.send_subagent_start("warm");
        let agents = || column(&terminal.json(&["spawn", "list"]), "agent_id");
        assert_eq!(agents(), ["null"]);
        session.send_subagent_start("a1");
        assert_eq!(agents(), ["a1"]);
    }

    fn exact_evidence_corrects_tentative_matches_and_all_matches_are_kept(terminal: Terminal) {
        let session = HookSession { terminal: &terminal, id: "s1" };
        session.prompt("go");
        session.send_agent_call("t1", "[ROLE:first] one");
        session.send_agent_call("t2", "[ROLE:second] two");
        let context = |answer: &Value| text(&answer["hookSpecificOutput"]["additionalContext"]);
        assert!(context(&session.send_subagent_start("a1")).contains("Agent: first@project in the role first, of ada."));
        session.send_subagent_start("a2");
        assert_eq!(column(&terminal.json(&["spawn", "list"]), "agent_id"), ["a1", "a2"]);
        // The tool results show that `a1` belongs to `t2`, and `a2` to `t1`.
        session.send_agent_result("t2", "[ROLE:second] two", "a1");
        session.send_agent_result("t1", "[ROLE:first] one", "a2");

        let spawns = terminal.json(&["spawn", "list"]);
        assert_eq!(column(&spawns, "agent_id"), ["a2", "a1"]);
        assert_eq!(column(&spawns, "evidence"), ["post_tool_use"; 2]);
        assert_eq!(column(&spawns, "tentative"), ["false"; 2]);
        let subagents = terminal.json(&["subagent", "list"]);
        assert_eq!(column(&subagents, "role"), ["second", "first"]);
        let shown = terminal.json(&["spawn", "show", "t1"])["matches"].clone();
        let mut matches: Vec<_> = shown.as_array().unwrap().iter().map(|row| (text(&row["agent_id"]), text(&row["evidence"]), row["withdrawn_at"].is_null())).collect();
        matches.sort();
        assert_eq!(matches, [
            ("a1".to_owned(), "subagent_type".to_owned(), false),
            ("a2".to_owned(), "post_tool_use".to_owned(), true),
            // After the first match was withdrawn, tentative matching chose the right agent.
            ("a2".to_owned(), "subagent_type".to_owned(), true),
        ]);
        // The runs now belong to the right agents.
        let mut runs: Vec<_> = terminal.json(&["run", "list"]).as_array().unwrap().iter().map(|run| (run["subagent"].clone(), text(&run["agent"]))).filter(|(subagent, _)| !subagent.is_null()).collect();
        runs.sort_by_key(|(subagent, _)| subagent.to_string());
        assert_eq!(runs, [(json!("a1"), "second@project".to_owned()), (json!("a2"), "first@project".to_owned())]);
    }

    fn resumed_agent_is_one_subagent_with_two_spawns_and_two_runs(terminal: Terminal) {
        let session = HookSession { terminal: &terminal, id: "s1" };
        session.prompt("go");
        for (call, reply) in [("t1", "began"), ("t2", "finished")] {
            let prompt = format!("[ROLE:builder] {call}");
            session.send_agent_call(call, &prompt);
            session.send_subagent_start("a1");
            session.send_subagent_stop("a1", reply);
            session.send_agent_result(call, &prompt, "a1");
        }
        assert_eq!(column(&terminal.json(&["subagent", "list"]), "agent_id"), ["a1"]);
        assert_eq!(column(&terminal.json(&["spawn", "list"]), "agent_id"), ["a1", "a1"]);
        let runs = terminal.json(&["run", "list"]);
        assert_eq!(column(&runs, "final_message"), ["finished", "began", "null"]);
        assert_eq!(column(&runs, "status"), ["completed", "completed", "running"]);
        let causes: Vec<_> = column(&runs, "cause_id");
        let spawns = column(&terminal.json(&["spawn", "list"]), "id");
        assert_eq!(causes[..2], [spawns[1].clone(), spawns[0].clone()]);
        assert_eq!(terminal.json(&["subagent", "list"])[0]["run_id"], runs[0]["id"]);
    }

    fn ingest_corrects_the_agent_nesting_that_hooks_of_old_clients_omit(terminal: Terminal) {
        let session = HookSession { terminal: &terminal, id: ingest::SESSION };
        session.prompt("go");
        // Up to Claude Code 2.1.69, no event names the calling agent.
        for (call, agent) in [("t1", "a1"), ("t2", "a2"), ("t3", "a3")] {
            session.send_agent_call(call, call);
            session.send_subagent_start(agent);
        }
        let failed = "API Error: 400";
        for (call, agent) in [("t3", "a3"), ("t2", "a2"), ("t1", "a1")] {
            session.send_subagent_stop(agent, failed);
            session.send_agent_result(call, call, agent);
        }
        let agents = || {
            let agents = terminal.json(&["subagent", "list"]);
            let mut shown: Vec<_> = agents.as_array().unwrap().iter().map(|agent| format!("{} {}", text(&agent["agent_id"]), agent["depth"])).collect();
            shown.sort();
            shown
        };
        assert_eq!(agents(), ["a1 1", "a2 1", "a3 1"]);
        let (folder, now) = (TranscriptFolder::new(&terminal), Clock::system().now().to_string());
        let cwd = project(&terminal);
        for (agent, called, calling) in [("a2", "t2", "t3"), ("a1", "t1", "t2")] {
            let mut writing = TranscriptWriter::new(ingest::SESSION, cwd.to_str().unwrap()).for_agent(agent);
            let input = agent_call(calling, calling)["tool_input"].clone();
            let error = json!({ "isApiErrorMessage": true, "message": { "model": "<synthetic>", "content": [{ "type": "text", "text": failed }] } });
            let lines = writing.prompt(called) + &writing.tool_call(agent, "Task", calling, &input) + &writing.line("assistant", &error);
            let lines = (41..44).fold(lines, |lines, second| lines.replace(&format!("2026-02-27T09:01:{second}.000Z"), &now));
            folder.append(Some(agent), &lines);
            ingest::ingest(&terminal);
        }
        assert_eq!(agents(), ["a1 1", "a2 2", "a3 3"]);
        let depths = connection(&terminal).query::<(i64,)>("select chain_depth from runs order by id", &[]).unwrap();
        assert_eq!(depths, [(0,), (1,), (2,), (3,)]);
        let runs = terminal.json(&["run", "list"]);
        assert_eq!(column(&runs, "status"), ["completed", "failed", "failed", "running"]);
        assert_eq!(column(&runs, "final_message"), [failed, "null", "null", "null"]);
    }

    fn late_events_of_an_ended_session_are_recorded(terminal: Terminal) {
        let session = HookSession { terminal: &terminal, id: "s1" };
        session.prompt("go");
        session.send_agent_call("t1", "[ROLE:builder] build");
        session.send_subagent_start("a1");
        session.send("SessionEnd", &json!({ "reason": "other" }));
        assert_eq!(column(&terminal.json(&["run", "list"]), "status"), ["incomplete", "incomplete"]);
        let mut late = file_write("t2", "late.txt");
        late["agent_id"] = json!("a1");
        session.send("PostToolUse", &late);
        session.send_subagent_stop("a1", "built");
        session.send_agent_result("t1", "[ROLE:builder] build", "a1");
        session.send("Stop", &json!({ "stop_hook_active": false, "last_assistant_message": "all built" }));

        let runs = terminal.json(&["run", "list"]);
        assert_eq!(column(&runs, "status"), ["completed", "completed"]);
        assert_eq!(column(&runs, "final_message"), ["built", "all built"]);
        assert_eq!(column(&terminal.json(&["made", &text(&runs[0]["id"])])["touches"], "display_path"), ["late.txt"]);
        assert!(!terminal.json(&["session", "show", "s1"])["ended_at"].is_null());
        // Resuming a session clears its end.
        session.send("SessionStart", &json!({ "source": "resume" }));
        assert!(terminal.json(&["session", "show", "s1"])["ended_at"].is_null());
    }

    fn duplicate_events_change_nothing(terminal: Terminal) {
        let once = Terminal::new(match terminal.database.url() { Url::Sqlite(_) => Engine::Sqlite, Url::Postgres(_) => Engine::Postgres });
        for (name, more) in complete_session() {
            HookSession { terminal: &once, id: "s1" }.send(name, &more);
            let session = HookSession { terminal: &terminal, id: "s1" };
            session.send(name, &more);
            session.send(name, &more);
        }
        let masked_record = |terminal: &Terminal| comparable_record(terminal).replace(terminal.home.path().to_str().unwrap(), "HOME");
        snapbox::assert_data_eq!(masked_record(&terminal), snapbox::IntoData::raw(masked_record(&once)));
        assert_eq!(column(&terminal.json(&["run", "list"]), "final_message"), ["built", "done"]);
    }
}

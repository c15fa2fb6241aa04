//! Processes that are killed at any moment while they write.

use std::{
    fs,
    io::{BufRead, BufReader, Write},
    process::Stdio,
    sync::Mutex,
    thread,
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use trackway_store::{Store, Url};
use trackway_testkit::{Engine, TestDatabase, wait_until};

use super::{
    ProcessGroup, SeededRandom,
    audit::{AcknowledgedWrite, assert_doctor_findings, audit, count},
    is_exhaustive,
    writes::{COMMAND_COUNT, CYCLE_LENGTH, Interruption, Writer},
};
use crate::{
    ingest,
    mcp_client::Server,
    terminal::{Terminal, both_engines, run_command, run_command_with_input, text},
};

/// Concurrent writers.
const WRITERS: usize = 3;

fn kills_per_writer() -> usize {
    if is_exhaustive() { 7 * COMMAND_COUNT } else { CYCLE_LENGTH }
}

both_engines! {
    fn killed_commands_lose_no_acknowledged_write(terminal: Terminal) {
        let mut random = SeededRandom::new();
        let mut writers: Vec<(Writer<'_>, SeededRandom)> =
            (0..WRITERS).map(|number| (Writer::new(&terminal, &format!("w{number}")), random.fork())).collect();
        for round in 0..kills_per_writer() {
            thread::scope(|scope| {
                for ((writer, random), first) in writers.iter_mut().zip([0, COMMAND_COUNT / 3, 2 * COMMAND_COUNT / 3]) {
                    scope.spawn(move || {
                        // An exhaustive test runs all commands in turn. A short test chooses them at random.
                        let index = if is_exhaustive() { (first + round) % COMMAND_COUNT } else { random.below(COMMAND_COUNT) };
                        writer.write_with_command(index, Interruption::AtRandomMoment(random));
                        // The next command runs to its end, on the data that the killed command left.
                        writer.write(Interruption::Never);
                    });
                }
            });
            if is_exhaustive() || round % 6 == 5 {
                audit(&terminal, &acknowledged_writes(&writers));
            }
        }
        // After the kills, all commands of the cycle work.
        thread::scope(|scope| {
            for (writer, _) in &mut writers {
                scope.spawn(move || (0..CYCLE_LENGTH).for_each(|_| writer.write(Interruption::Never)));
            }
        });
        audit(&terminal, &acknowledged_writes(&writers));
        for row in writers.iter().flat_map(|(writer, _)| &writer.rows) {
            assert_eq!(count(&terminal, row), 1, "acknowledged and lost: {row}");
        }
        assert_queue_can_be_emptied(&terminal);
        assert_doctor_findings(&terminal, &[]);
    }

    fn killed_servers_lose_no_acknowledged_write(terminal: Terminal) {
        let mut random = SeededRandom::new();
        let token = text(&terminal.json(&["token", "create", "--name", "web"])["token"]);
        let acknowledged = Mutex::new(Vec::new());
        for _ in 0..if is_exhaustive() { 60 } else { 6 } {
            let mut server = Server::start(&terminal);
            let (address, wait) = (server.address, random.duration_below(Duration::from_millis(250)));
            thread::scope(|scope| {
                for _ in 0..2 {
                    scope.spawn(|| {
                        while let Some(note) = create_note_over_http(address, &token) {
                            acknowledged.lock().unwrap().push(note);
                        }
                    });
                }
                scope.spawn(|| acknowledged.lock().unwrap().extend(create_notes_over_mcp(&terminal, wait * 2)));
                thread::sleep(wait);
                server.kill();
            });
            audit(&terminal, &acknowledged.lock().unwrap());
        }
        assert!(acknowledged.lock().unwrap().len() > 5);
        assert_doctor_findings(&terminal, &[]);
    }

    fn items_of_killed_workers_are_completed_by_other_workers(terminal: Terminal) {
        let mut random = SeededRandom::new();
        terminal.json(&["workflow", "set", "--name", "ops"]);
        let script = "trackway note create --studio main --title x >/dev/null && sleep 0.1";
        let task = ["task", "set", "--workflow", "ops", "--variant", "noted", "--recurring", "true", "--script", script];
        terminal.json(&task);
        let items = if is_exhaustive() { 60 } else { 12 };
        for _ in 0..items {
            terminal.json(&["queue", "add", "--task", "noted", "--max-attempts", "100"]);
        }
        let worker = |more: &[&str]| {
            let mut command = terminal.command(&[&["work", "--lease", "1", "--concurrency", "2"], more].concat());
            command.env("PATH", std::env::var_os("PATH").unwrap()).stdout(Stdio::null()).stderr(Stdio::null());
            ProcessGroup::spawn(&mut command)
        };
        for round in 0..if is_exhaustive() { 60 } else { 8 } {
            let mut worker = worker(&[]);
            thread::sleep(Duration::from_millis(40) + random.duration_below(Duration::from_millis(600)));
            if round % 2 == 0 {
                // Only the worker is killed. The scripts that it started run on.
                worker.0.kill().unwrap();
                worker.0.wait().unwrap();
            } else {
                worker.kill();
            }
            audit(&terminal, &[]);
        }
        let _last_worker = worker(&[]);
        wait_until("every item is completed", Duration::from_secs(90), || {
            (count(&terminal, "queue_items where status = 'completed'") == items).then_some(())
        });
        let without_note = "queue_items q where not exists (select 1 from run_resources t where t.run_id = q.run_id and t.resource_type = 'note')";
        assert_eq!((count(&terminal, without_note), count(&terminal, "runs where status = 'running'")), (0, 0));
        audit(&terminal, &[]);
        assert_doctor_findings(&terminal, &[]);
    }

    /// Each round renames every stickie on the board, and kills the sync that writes the new names to the folder.
    fn interrupted_board_sync_is_completed_by_the_next_sync(terminal: Terminal) {
        let mut random = SeededRandom::new();
        let stickies = 40;
        terminal.json(&["board", "set", "--name", "wall"]);
        let [folder, other] = ["folder", "other"].map(|name| terminal.home.path().join(name));
        // The renames are synced from a second folder.
        fs::create_dir(&other).unwrap();
        for number in 0..stickies {
            fs::write(other.join(format!("{number}.stickie.yaml")), format!("name: s{number} 0\nnote: x\n")).unwrap();
        }
        fs::write(other.join("relations.yaml"), "- from: s1 0\n  type: USES\n  to: s2 0\n- from: s2 0\n  type: USES\n  to: s3 0\n").unwrap();
        terminal.json(&["board", "sync", "wall", "--from", "other"]);
        let started = Instant::now();
        terminal.json(&["board", "export", "wall", "folder"]);
        let duration = started.elapsed();
        for round in 1..=if is_exhaustive() { 100 } else { 10 } {
            for number in 0..stickies {
                let file = other.join(format!("{number}.stickie.yaml"));
                let text = fs::read_to_string(&file).unwrap();
                fs::write(&file, text.replace(&format!("name: s{number} {}\n", round - 1), &format!("name: s{number} {round}\n"))).unwrap();
            }
            assert_eq!(terminal.json(&["board", "sync", "wall", "--from", "other"])["updated"], stickies);
            let mut command = terminal.command(&["board", "sync", "wall", "--to", "folder"]);
            let mut group = ProcessGroup::spawn(command.stdout(Stdio::null()).stderr(Stdio::null()));
            group.wait_for_exit(random.duration_below(duration));
            drop(group);
            // Nobody edited the folder, so a sync from the folder changes nothing. A sync to the folder completes it.
            let board = terminal.json(&["board", "get", "wall"]);
            let from = terminal.json(&["board", "sync", "wall", "--from", "folder"]);
            assert_eq!((&from["created"], &from["updated"], &from["removed"]), (&json!(0), &json!(0), &json!(0)));
            assert_eq!(terminal.json(&["board", "get", "wall"]), board);
            terminal.json(&["board", "sync", "wall", "--to", "folder"]);
            assert_eq!(run_command(terminal.command(&["board", "diff", "wall", "folder"])).code, 0);
            let names = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
            let mut names: Vec<String> = names.collect();
            names.sort();
            let mut expected: Vec<String> = (0..stickies).map(|number| format!("s{number} {round}.stickie.yaml")).collect();
            expected.extend(["blackboard.yaml".to_owned(), "relations.yaml".to_owned()]);
            expected.sort();
            assert_eq!(names, expected);
        }
        audit(&terminal, &[]);
        assert_doctor_findings(&terminal, &[]);
    }

    fn killed_ingest_resumes_where_it_stopped(terminal: Terminal) {
        let mut random = SeededRandom::new();
        let lines = ingest::sample_transcript_lines();
        let expected = ingest::record_after_one_ingest(ingest::engine(&terminal), &lines);
        let folder = ingest::TranscriptFolder::new(&terminal);
        let projects = ingest::projects_folder(&terminal);
        for (agent, line) in &lines {
            folder.append(*agent, line);
            for _ in 0..if is_exhaustive() { 10 } else { 2 } {
                let mut command = terminal.command(&["ingest", projects.to_str().unwrap()]);
                let mut group = ProcessGroup::spawn(command.stdout(Stdio::null()).stderr(Stdio::null()));
                group.wait_for_exit(random.duration_below(Duration::from_millis(60)));
            }
            audit(&terminal, &[]);
        }
        terminal.json(&["ingest", projects.to_str().unwrap()]);
        snapbox::assert_data_eq!(ingest::record_without_home(&terminal), snapbox::IntoData::raw(expected));
        audit(&terminal, &[]);
    }
}

/// The kill hits `init`, or the first hook, while it creates the database.
#[test]
fn killed_init_is_completed_by_the_next_command() {
    let mut random = SeededRandom::new();
    let event =
        json!({ "hook_event_name": "UserPromptSubmit", "session_id": "s1", "cwd": "/", "prompt": "go" }).to_string();
    for round in 0..if is_exhaustive() { 80 } else { 12 } {
        let engine = if round % 4 == 3 { Engine::Postgres } else { Engine::Sqlite };
        let mut terminal = Terminal::uninitialized(engine);
        // Every other round uses the user's database, which the first hook creates.
        let is_user_database = round % 2 == 0;
        if is_user_database {
            let path = terminal.home.path().join(".local/share/trackway/trackway.db");
            terminal.database = TestDatabase::external(format!("sqlite:{}", path.display()));
        }
        let init_command = || {
            let mut command = terminal.command(if is_user_database { &["hook"] } else { &["init"] });
            if is_user_database {
                command.env_remove("TRACKWAY_DB");
            }
            command
        };
        let mut command = init_command();
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut group = ProcessGroup::spawn(&mut command);
        let _ = group.0.stdin.take().unwrap().write_all(event.as_bytes());
        group.wait_for_exit(random.duration_below(Duration::from_millis(250)));
        drop(group);
        let output = run_command_with_input(init_command(), event.as_bytes());
        assert_eq!((output.code, output.stderr.as_str()), (0, ""));
        terminal.json(&["note", "create", "--studio", "main", "--title", "x"]);
        assert_eq!(count(&terminal, "sessions"), i64::from(is_user_database));
        audit(&terminal, &[]);
        assert_doctor_findings(&terminal, &[]);
    }
}

/// An `init` that is killed before it registers the first person leaves a database without persons.
#[test]
fn hook_registers_the_user_in_a_database_without_persons() {
    let mut terminal = Terminal::uninitialized(Engine::Sqlite);
    let path = terminal.home.path().join(".local/share/trackway/trackway.db");
    Store::create(Url::sqlite(&path)).unwrap();
    terminal.database = TestDatabase::external(format!("sqlite:{}", path.display()));
    let event = json!({ "hook_event_name": "UserPromptSubmit", "session_id": "s1", "cwd": "/", "prompt": "go" });
    let mut command = terminal.command(&["hook"]);
    command.env_remove("TRACKWAY_DB");
    assert_eq!(run_command_with_input(command, event.to_string().as_bytes()).code, 0);
    assert_eq!(count(&terminal, "sessions"), 1);
    assert_doctor_findings(&terminal, &[]);
}

fn acknowledged_note(answer: &Value) -> AcknowledgedWrite {
    AcknowledgedWrite { action: "create_note".to_owned(), subject: text(&answer["id"]).parse().unwrap(), run: None }
}

/// Creates a note over HTTP. Returns `None` once the server no longer answers.
fn create_note_over_http(address: std::net::SocketAddr, token: &str) -> Option<AcknowledgedWrite> {
    let body = json!({ "studio": "main", "title": "by request" }).to_string();
    let mut stream = std::net::TcpStream::connect(address).ok()?;
    write!(
        stream,
        "POST /api/v1/actions/create_note HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {token}\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .ok()?;
    let mut answer = String::new();
    std::io::Read::read_to_string(&mut stream, &mut answer).ok()?;
    let (head, body) = answer.split_once("\r\n\r\n")?;
    // A truncated answer is no acknowledgement.
    let body: Value = serde_json::from_str(body).ok()?;
    assert!(head.starts_with("HTTP/1.1 20"), "{answer}");
    Some(acknowledged_note(&body["data"]))
}

/// Creates notes over MCP, kills the server after `wait`, and returns the notes that it acknowledged.
fn create_notes_over_mcp(terminal: &Terminal, wait: Duration) -> Vec<AcknowledgedWrite> {
    let mut command = terminal.command(&["mcp"]);
    let mut group = ProcessGroup::spawn(command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()));
    let (mut stdin, stdout) = (group.0.stdin.take().unwrap(), BufReader::new(group.0.stdout.take().unwrap()));
    let initialize = json!({
        "jsonrpc": "2.0", "id": 0, "method": "initialize",
        "params": { "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": { "name": "test", "version": "1" } },
    });
    let mut requests =
        format!("{initialize}\n{}\n", json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));
    for id in 1..20 {
        let input = json!({ "studio": "main", "title": "by tool" });
        let call = json!({ "name": "act", "arguments": { "action": "create_note", "input": input } });
        requests += &format!("{}\n", json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": call }));
    }
    thread::scope(|scope| {
        let reader = scope.spawn(|| stdout.lines().map_while(Result::ok).collect::<Vec<String>>());
        // The server may be killed before it has read all requests.
        let _ = stdin.write_all(requests.as_bytes());
        thread::sleep(wait);
        group.kill();
        let answers = reader.join().unwrap();
        let whole = answers.iter().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let texts = whole.filter_map(|answer| answer["result"]["content"][0]["text"].as_str().map(str::to_owned));
        texts
            .map(|answer| {
                let (_, data) = answer.split_once("```json\n").unwrap_or_else(|| panic!("{answer}"));
                acknowledged_note(&serde_json::from_str(data.rsplit_once("\n```").unwrap().0).unwrap())
            })
            .collect()
    })
}

fn acknowledged_writes(writers: &[(Writer<'_>, SeededRandom)]) -> Vec<AcknowledgedWrite> {
    writers.iter().flat_map(|(writer, _)| writer.acknowledged.clone()).collect()
}

/// Asserts that items taken by killed processes can be taken again and completed, once their leases have expired.
fn assert_queue_can_be_emptied(terminal: &Terminal) {
    wait_until("everything in the queue is completed", Duration::from_mins(1), || {
        for taken in terminal.json(&["queue", "take", "--batch", "1000"]).as_array().unwrap() {
            let (item, fence) = (taken["id"].as_str().unwrap(), taken["fence"].to_string());
            terminal.json(&["queue", "complete", "--id", item, "--fence", &fence]);
        }
        (count(terminal, "queue_items where finished_at is null") == 0).then_some(())
    });
}

//! The write commands that are not in the cycle of `writes`. The test first creates the subject of the command, without
//! interruption, and then attempts the command.

use std::{collections::BTreeSet, fs};

use serde_json::{Value, json};
use trackway_actions::registry::ACTIONS;
use trackway_store::{Clock, connection::Connection};
use trackway_testkit::Engine;

use super::{
    audit::{audit, connection, count},
    writes::{Attempt, CYCLE_ACTIONS, CYCLE_LENGTH, Interruption, Subject, Writer, attempt},
};
use crate::{
    import::V1 as NAGGER,
    terminal::{Terminal, run_command_with_input, text},
};

/// Creates the prerequisites of a command under an unused name, and returns the attempt, or `None` if another writer
/// was first.
pub type PrepareAttempt = fn(&Writer<'_>, &str) -> Option<Attempt>;

/// Actions, each with the function that prepares its command.
pub const FURTHER_COMMANDS: &[(&str, PrepareAttempt)] = &[
    ("set_workflow", |_, name| Some(attempt("set_workflow", "id", false, &["workflow", "set", "--name", name]))),
    ("set_workspace", |_, name| Some(attempt("set_workspace", "id", false, &["workspace", "set", "--name", name]))),
    ("set_label", |_, name| Some(attempt("set_label", "id", false, &["label", "set", "--key", name, "--name", name]))),
    ("set_studio", |_, name| Some(attempt("set_studio", "id", false, &["studio", "set", "--name", name]))),
    ("set_person", |_, name| Some(attempt("set_person", "id", false, &["person", "set", "--handle", name]))),
    ("set_agent", |_, name| Some(attempt("set_agent", "id", false, &["agent", "set", "--handle", name]))),
    ("set_board", |_, name| Some(attempt("set_board", "id", false, &["board", "set", "--name", name]))),
    ("set_testcase", |_, name| Some(attempt("set_testcase", "id", false, &["testcase", "set", "--title", name]))),
    ("set_route", |_, name| {
        Some(attempt("set_route", "id", false, &["route", "set", "--tag", name, "--task", "work/again"]))
    }),
    ("set_experiment", |writer, name| {
        let conversation = writer.create(&["conversation", "set", "--title", name]);
        let set = ["experiment", "set", "--conversation", &conversation, "--title", name];
        Some(attempt("set_experiment", "id", false, &set))
    }),
    ("set_report", |writer, name| {
        let agent = writer.agent();
        let texts = ["--one-liner", name, "--tldr", "t", "--content", "c"];
        let set = [&["report", "set", "--agent", &agent, "--task", "work/again"][..], &texts].concat();
        Some(attempt("set_report", "id", false, &set))
    }),
    ("delete_role", |writer, name| Some(writer.deletion_attempt("delete_role", "role", &["--name", name]))),
    ("delete_workflow", |writer, name| Some(writer.deletion_attempt("delete_workflow", "workflow", &["--name", name]))),
    ("delete_workspace", |writer, name| {
        Some(writer.deletion_attempt("delete_workspace", "workspace", &["--name", name]))
    }),
    ("delete_label", |writer, name| {
        Some(writer.deletion_attempt("delete_label", "label", &["--key", name, "--name", name]))
    }),
    ("delete_studio", |writer, name| Some(writer.deletion_attempt("delete_studio", "studio", &["--name", name]))),
    ("delete_agent", |writer, name| Some(writer.deletion_attempt("delete_agent", "agent", &["--handle", name]))),
    ("delete_conversation", |writer, name| {
        Some(writer.deletion_attempt("delete_conversation", "conversation", &["--title", name]))
    }),
    ("delete_board", |writer, name| Some(writer.deletion_attempt("delete_board", "board", &["--name", name]))),
    ("delete_route", |writer, name| {
        Some(writer.deletion_attempt("delete_route", "route", &["--tag", name, "--task", "work/again"]))
    }),
    ("delete_stickie", |writer, name| {
        Some(writer.deletion_attempt("delete_stickie", "stickie", &["--board", "wall", "--name", name]))
    }),
    ("delete_task", |writer, name| {
        let task = writer.create_task(name);
        Some(attempt_on("delete_task", &task, &["task", "delete", &task, "--yes"]))
    }),
    ("delete_link", |writer, name| {
        let (from, to) = (writer.create_task(&format!("{name}-a")), writer.create_task(&format!("{name}-b")));
        let link = writer.create(&["link", "add", "--from", &from, "--to", &to, "--type", "relates_to"]);
        Some(attempt_on("delete_link", &from, &["link", "delete", &link, "--yes"]))
    }),
    ("delete_package", |writer, name| {
        let (role, task) = (writer.create(&["role", "set", "--name", name]), writer.create_task(name));
        writer.terminal.json(&["package", "set", "--role", &role, "--task", &task]);
        Some(attempt_on("delete_package", &task, &["package", "delete", "--role", &role, "--task", &task, "--yes"]))
    }),
    ("upgrade_packages", |writer, name| {
        let (role, old) = (writer.create(&["role", "set", "--name", name]), writer.create_task(&format!("{name}-a")));
        writer.terminal.json(&["package", "set", "--role", &role, "--task", &old]);
        let newer = writer.create_task(&format!("{name}-b"));
        writer.terminal.json(&["task", "replace", &newer, &old]);
        Some(attempt_on("upgrade_packages", &newer, &["package", "upgrade", "--level", "major", "--role", &role]))
    }),
    ("revoke_token", |writer, name| {
        let token = writer.create(&["token", "create", "--name", name]);
        Some(attempt_on("revoke_token", &token, &["token", "revoke", &token, "--yes"]))
    }),
    ("cancel_run", |writer, _| {
        let (run, _) = writer.terminal.start_run(&["--agent", &writer.agent(), "--task", "work/again"]);
        Some(attempt_on("cancel_run", &run, &["run", "cancel", &run]))
    }),
    ("claim", |writer, name| {
        writer.create_task(name);
        Some(attempt_without_subject("claim", &["claim", "--agent", &writer.agent(), "--lease", "2"]))
    }),
    ("queue_heartbeat", |writer, _| {
        let [item, fence] = writer.add_and_take_item(&[])?;
        Some(attempt_without_subject("queue_heartbeat", &["queue", "heartbeat", "--id", &item, "--fence", &fence]))
    }),
    ("queue_fail", |writer, _| {
        let [item, fence] = writer.add_and_take_item(&[])?;
        Some(attempt_on("queue_fail", &item, &["queue", "fail", "--id", &item, "--fence", &fence, "--error", "broken"]))
    }),
    ("queue_release", |writer, _| {
        let [item, fence] = writer.add_and_take_item(&[])?;
        Some(attempt_on("queue_release", &item, &["queue", "release", "--id", &item, "--fence", &fence]))
    }),
    ("queue_cancel", |writer, _| {
        let item = writer.create(&["queue", "add", "--task", "work/again"]);
        Some(attempt_on("queue_cancel", &item, &["queue", "cancel", "--id", &item]))
    }),
    ("queue_requeue", |writer, _| {
        let [item, fence] = writer.add_and_take_item(&["--max-attempts", "1"])?;
        let fail = ["queue", "fail", "--id", &item, "--fence", &fence, "--error", "broken"];
        // The lease may have expired.
        (writer.terminal.run(&fail).code == 0)
            .then(|| attempt_on("queue_requeue", &item, &["queue", "requeue", "--id", &item]))
    }),
    ("pin_note", |writer, name| Some(writer.attempt_on_new("pin_note", &["note", "pin"], &note_arguments(name)))),
    ("archive_note", |writer, name| {
        Some(writer.attempt_on_new("archive_note", &["note", "archive"], &note_arguments(name)))
    }),
    ("delete_note", |writer, name| {
        Some(writer.attempt_on_new("delete_note", &["note", "delete", "--yes"], &note_arguments(name)))
    }),
    ("add_options", |writer, name| {
        Some(writer.attempt_on_new(
            "add_options",
            &["decision", "add-options", "--option", "c"],
            &decision_arguments(name),
        ))
    }),
    ("close_decision", |writer, name| {
        Some(writer.attempt_on_new("close_decision", &["decision", "close"], &decision_arguments(name)))
    }),
    ("archive_decision", |writer, name| {
        Some(writer.attempt_on_new("archive_decision", &["decision", "archive"], &decision_arguments(name)))
    }),
    ("delete_decision", |writer, name| {
        Some(writer.attempt_on_new("delete_decision", &["decision", "delete", "--yes"], &decision_arguments(name)))
    }),
    ("archive_commitment", |writer, name| {
        Some(writer.attempt_on_new("archive_commitment", &["commitment", "archive"], &commitment_arguments(name)))
    }),
    ("delete_commitment", |writer, name| {
        Some(writer.attempt_on_new(
            "delete_commitment",
            &["commitment", "delete", "--yes"],
            &commitment_arguments(name),
        ))
    }),
    ("end_experiment", |writer, name| {
        let experiment = writer.create_experiment(name);
        Some(attempt_on("end_experiment", &experiment, &["experiment", "end", &experiment, "--status", "failed"]))
    }),
    ("delete_experiment", |writer, name| {
        let experiment = writer.create_experiment(name);
        Some(attempt_on("delete_experiment", &experiment, &["experiment", "delete", &experiment, "--yes"]))
    }),
    ("update_scratchpad", |writer, name| {
        let agent = text(&writer.terminal.json(&["agent", "get", &writer.agent()])["id"]);
        let update = attempt_on("update_scratchpad", &agent, &["scratchpad", "update", "--content", name]);
        Some(Attempt { in_run: true, ..update })
    }),
    ("restore_scratchpad", |writer, name| {
        let agent = writer.create(&["agent", "set", "--handle", name]);
        for content in ["one", "two"] {
            writer.terminal.json(&["scratchpad", "set", "--agent", name, "--content", content]);
        }
        Some(attempt_on("restore_scratchpad", &agent, &["scratchpad", "restore", "--agent", name, "--revision", "1"]))
    }),
    ("archive_board", |writer, name| {
        let board = writer.create(&["board", "set", "--name", name]);
        Some(attempt_on("archive_board", &board, &["board", "archive", &board]))
    }),
    ("sync_board", |writer, name| {
        writer.terminal.json(&["board", "set", "--name", name]);
        let folder = writer.terminal.home.path().join(format!("folder-{name}"));
        writer.terminal.json(&["board", "export", name, folder.to_str().unwrap()]);
        fs::write(folder.join(format!("{name}.stickie.yaml")), "note: yes\n").unwrap();
        let sync = ["board", "sync", name, "--from", folder.to_str().unwrap()];
        Some(attempt_creating_row("sync_board", format!("stickies where name = '{name}' and note = 'yes'"), &sync))
    }),
    ("update_stickie", |writer, name| {
        let stickie = writer.create_stickie(name);
        Some(attempt_on("update_stickie", &stickie, &["stickie", "update", &stickie, "--note", name]))
    }),
    ("archive_stickie", |writer, name| {
        let stickie = writer.create_stickie(name);
        Some(attempt_on("archive_stickie", &stickie, &["stickie", "archive", &stickie]))
    }),
    ("unrelate_stickies", |writer, name| {
        let (from, to) = (writer.create_stickie(&format!("{name}-a")), writer.create_stickie(&format!("{name}-b")));
        let edge = ["--from", &from, "--to", &to, "--type", "USES"];
        writer.terminal.json(&[&["stickie", "relate"], &edge[..]].concat());
        Some(attempt_on("unrelate_stickies", &from, &[&["stickie", "unrelate"], &edge[..]].concat()))
    }),
    ("import_testcases", |writer, name| {
        let file = writer.terminal.home.path().join(format!("{name}.xml"));
        fs::write(&file, format!("<testsuite><testcase name='{name}'/></testsuite>")).unwrap();
        let import = ["testcase", "import", file.to_str().unwrap()];
        Some(attempt_creating_row("import_testcases", format!("testcases where title = '{name}'"), &import))
    }),
    ("import_nagger", |writer, name| {
        let file = writer.terminal.home.path().join(format!("{name}.db"));
        let agent = format!(
            "insert into subagents (agent_id, session_id, created_at) values ('{name}', '{name}', '2026-01-02T10:01:00+00:00')"
        );
        Connection::sqlite(&file, true).unwrap().batch(&format!("{NAGGER} {agent}")).unwrap();
        let import = ["import", "nagger", file.to_str().unwrap()];
        Some(attempt_creating_row("import_nagger", format!("subagents where agent_id = '{name}'"), &import))
    }),
    ("cleanup_old_spawns", |writer, name| {
        let session = writer.create_session(name);
        Some(attempt_without_subject(
            "cleanup_old_spawns",
            &["cleanup", "old-spawns", "--session", &session, "--keep", "0"],
        ))
    }),
    ("cleanup_null_role", |writer, name| {
        let session = writer.create_session(name);
        Some(attempt_without_subject("cleanup_null_role", &["cleanup", "null-role", "--session", &session, "--yes"]))
    }),
    ("cleanup_session", |writer, name| {
        let session = writer.create_session(name);
        Some(attempt_without_subject("cleanup_session", &["cleanup", "session", &session]))
    }),
    ("forget_session", |writer, name| {
        let session = writer.create_session(name);
        Some(attempt_without_subject("forget_session", &["forget", &session, "--yes"]))
    }),
    ("cleanup_contents", |_, _| Some(attempt_without_subject("cleanup_contents", &["cleanup", "contents"]))),
    ("cleanup_leases", |_, _| Some(attempt_without_subject("cleanup_leases", &["cleanup", "leases"]))),
    ("cleanup_events", |writer, _| {
        let mut database = connection(writer.terminal);
        let long_ago = match database.engine() {
            Engine::Sqlite => "1000000",
            Engine::Postgres => "timestamptz '1970-01-01T00:00:01Z'",
        };
        database
            .batch(&format!(
                "insert into events (tenant_id, created_at, actor_kind, actor_id, request_id, action, subject_kind, subject_id, subject_path)
                 select tenant_id, {long_ago}, actor_kind, actor_id, request_id, 'old', subject_kind, subject_id, subject_path
                 from events where subject_kind = 'tenant' limit 1"
            ))
            .unwrap();
        Some(attempt_without_subject(
            "cleanup_events",
            &["cleanup", "events", "--before", "2001-01-01T00:00:00Z", "--yes"],
        ))
    }),
    ("cleanup_messages", |writer, name| {
        writer.terminal.json(&["message", "send", "--body", name]);
        let now = Clock::system().now().to_string();
        Some(attempt_without_subject("cleanup_messages", &["cleanup", "messages", "--before", &now, "--yes"]))
    }),
];

/// An attempt on an existing subject.
fn attempt_on(action: &'static str, subject: &str, arguments: &[&str]) -> Attempt {
    Attempt { subject: Subject::Known(subject.parse().unwrap()), ..attempt(action, "", false, arguments) }
}

/// An attempt whose answer names no subject. Only the audit of the whole record checks the result.
fn attempt_without_subject(action: &'static str, arguments: &[&str]) -> Attempt {
    Attempt { subject: Subject::Row(None), ..attempt(action, "", false, arguments) }
}

/// An attempt that must create this one row.
fn attempt_creating_row(action: &'static str, row: String, arguments: &[&str]) -> Attempt {
    Attempt { subject: Subject::Row(Some(row)), ..attempt(action, "", false, arguments) }
}

fn note_arguments(name: &str) -> [&str; 6] {
    ["note", "create", "--studio", "main", "--title", name]
}

fn decision_arguments(name: &str) -> [&str; 8] {
    ["decision", "create", "--studio", "main", "--question", name, "--option", "a"]
}

fn commitment_arguments(name: &str) -> [&str; 8] {
    ["commitment", "create", "--studio", "main", "--title", name, "--critical-mass", "3"]
}

impl Writer<'_> {
    /// Creates a resource and returns its id.
    fn create(&self, arguments: &[&str]) -> String {
        text(&self.terminal.json(arguments)["id"])
    }

    fn create_task(&self, name: &str) -> String {
        self.create(&["task", "set", "--workflow", "ops", "--variant", &format!("further/{name}")])
    }

    fn create_stickie(&self, name: &str) -> String {
        self.create(&["stickie", "set", "--board", "wall", "--name", name])
    }

    fn create_experiment(&self, title: &str) -> String {
        let conversation = self.create(&["conversation", "set", "--title", title]);
        self.create(&["experiment", "set", "--conversation", &conversation, "--title", title])
    }

    /// Creates a resource, and returns the attempt to delete it.
    fn deletion_attempt(&self, action: &'static str, noun: &str, with: &[&str]) -> Attempt {
        let id = self.create(&[&[noun, "set"], with].concat());
        attempt_on(action, &id, &[noun, "delete", &id, "--yes"])
    }

    /// Creates a resource, and returns the attempt to run a command on it.
    fn attempt_on_new(&self, action: &'static str, command: &[&str], create: &[&str]) -> Attempt {
        let id = self.create(create);
        attempt_on(action, &id, &[command, &[id.as_str()]].concat())
    }

    /// Adds an item and takes it. Returns its id and fence, or `None` if another writer was first.
    fn add_and_take_item(&self, with: &[&str]) -> Option<[String; 2]> {
        let item = self.create(&[&["queue", "add", "--task", "work/again"], with].concat());
        let output = self.terminal.run(&["queue", "take", "--id", &item, "--lease", "2", "--json"]);
        assert!(matches!(output.code, 0 | 4), "{}", output.stderr);
        let answer: Value = serde_json::from_str(&output.stdout).ok()?;
        Some([item, answer["data"][0]["fence"].as_i64()?.to_string()])
    }

    /// Records a session that has a spawn without a role.
    fn create_session(&self, name: &str) -> String {
        let spawn = json!({ "prompt": "mend", "description": "mend", "subagent_type": "general-purpose" });
        let events: [Value; 3] = [
            json!({ "hook_event_name": "SessionStart", "source": "startup" }),
            json!({ "hook_event_name": "UserPromptSubmit", "prompt": "go" }),
            json!({ "hook_event_name": "PreToolUse", "tool_name": "Agent", "tool_use_id": format!("{name}-spawn"), "tool_input": spawn }),
        ];
        for mut event in events {
            event["session_id"] = json!(name);
            event["cwd"] = json!(self.terminal.home.path());
            assert_eq!(run_command_with_input(self.terminal.command(&["hook"]), event.to_string().as_bytes()).code, 0);
        }
        name.to_owned()
    }
}

/// Runs every command once without interruption, and asserts that its write is recorded.
fn run_every_write_command(engine: Engine) {
    let terminal = Terminal::new(engine);
    let mut writer = Writer::new(&terminal, "w");
    (0..CYCLE_LENGTH).for_each(|_| writer.write(Interruption::Never));
    for (index, (action, _)) in FURTHER_COMMANDS.iter().enumerate() {
        assert_eq!(writer.write_with_command(CYCLE_LENGTH + index, Interruption::Never), Some(0), "{action}");
    }
    audit(&terminal, &writer.acknowledged);
    for row in &writer.rows {
        assert_eq!(count(&terminal, row), 1, "{row}");
    }
}

#[test]
fn every_write_command_succeeds_on_sqlite() {
    run_every_write_command(Engine::Sqlite);
}

#[test]
fn every_write_command_succeeds_on_postgres() {
    run_every_write_command(Engine::Postgres);
}

#[test]
fn every_action_has_one_write_command() {
    let ways: BTreeSet<&str> =
        CYCLE_ACTIONS.iter().copied().chain(FURTHER_COMMANDS.iter().map(|(action, _)| *action)).collect();
    let actions: BTreeSet<&str> = ACTIONS.iter().map(|action| action.name).collect();
    assert_eq!(ways, actions);
    assert_eq!(CYCLE_ACTIONS.len() + FURTHER_COMMANDS.len(), actions.len(), "each action has one command");
}

//! The other ways to write by a command. Each makes what it is about first, which nobody kills, and then does one thing to it.

use std::{collections::BTreeSet, fs};

use serde_json::{Value, json};
use trackway_actions::registry::ACTIONS;
use trackway_store::{Clock, connection::Connection};
use trackway_testkit::Engine;

use super::{
    audit::{audit, connection, count},
    writes::{Attempt, CYCLE_ACTIONS, Interruption, Subject, CYCLE_LENGTH, Writer, attempt},
};
use crate::{
    import::V1 as NAGGER,
    terminal::{Terminal, run_command_with_input, text},
};

/// Makes what it takes, and says what to do; nothing, where somebody else was first. It is given a name that nobody has.
pub type PrepareAttempt = fn(&Writer<'_>, &str) -> Option<Attempt>;

/// An action, and how to do it.
pub const FURTHER_COMMANDS: &[(&str, PrepareAttempt)] = &[
    ("set_workflow", |_, new| Some(attempt("set_workflow", "id", false, &["workflow", "set", "--name", new]))),
    ("set_workspace", |_, new| Some(attempt("set_workspace", "id", false, &["workspace", "set", "--name", new]))),
    ("set_label", |_, new| Some(attempt("set_label", "id", false, &["label", "set", "--key", new, "--name", new]))),
    ("set_studio", |_, new| Some(attempt("set_studio", "id", false, &["studio", "set", "--name", new]))),
    ("set_person", |_, new| Some(attempt("set_person", "id", false, &["person", "set", "--handle", new]))),
    ("set_agent", |_, new| Some(attempt("set_agent", "id", false, &["agent", "set", "--handle", new]))),
    ("set_board", |_, new| Some(attempt("set_board", "id", false, &["board", "set", "--name", new]))),
    ("set_testcase", |_, new| Some(attempt("set_testcase", "id", false, &["testcase", "set", "--title", new]))),
    ("set_route", |_, new| {
        Some(attempt("set_route", "id", false, &["route", "set", "--tag", new, "--task", "work/again"]))
    }),
    ("set_experiment", |writer, new| {
        let conversation = writer.create(&["conversation", "set", "--title", new]);
        let set = ["experiment", "set", "--conversation", &conversation, "--title", new];
        Some(attempt("set_experiment", "id", false, &set))
    }),
    ("set_report", |writer, new| {
        let agent = writer.agent();
        let said = ["--one-liner", new, "--tldr", "t", "--content", "c"];
        let set = [&["report", "set", "--agent", &agent, "--task", "work/again"][..], &said].concat();
        Some(attempt("set_report", "id", false, &set))
    }),
    ("delete_role", |writer, new| Some(writer.create_and_delete("delete_role", "role", &["--name", new]))),
    ("delete_workflow", |writer, new| Some(writer.create_and_delete("delete_workflow", "workflow", &["--name", new]))),
    ("delete_workspace", |writer, new| Some(writer.create_and_delete("delete_workspace", "workspace", &["--name", new]))),
    ("delete_label", |writer, new| Some(writer.create_and_delete("delete_label", "label", &["--key", new, "--name", new]))),
    ("delete_studio", |writer, new| Some(writer.create_and_delete("delete_studio", "studio", &["--name", new]))),
    ("delete_agent", |writer, new| Some(writer.create_and_delete("delete_agent", "agent", &["--handle", new]))),
    ("delete_conversation", |writer, new| {
        Some(writer.create_and_delete("delete_conversation", "conversation", &["--title", new]))
    }),
    ("delete_board", |writer, new| Some(writer.create_and_delete("delete_board", "board", &["--name", new]))),
    ("delete_route", |writer, new| {
        Some(writer.create_and_delete("delete_route", "route", &["--tag", new, "--task", "work/again"]))
    }),
    ("delete_stickie", |writer, new| {
        Some(writer.create_and_delete("delete_stickie", "stickie", &["--board", "wall", "--name", new]))
    }),
    ("delete_task", |writer, new| {
        let task = writer.create_task(new);
        Some(attempt_on("delete_task", &task, &["task", "delete", &task, "--yes"]))
    }),
    ("delete_link", |writer, new| {
        let (from, to) = (writer.create_task(&format!("{new}-a")), writer.create_task(&format!("{new}-b")));
        let link = writer.create(&["link", "add", "--from", &from, "--to", &to, "--type", "relates_to"]);
        Some(attempt_on("delete_link", &from, &["link", "delete", &link, "--yes"]))
    }),
    ("delete_package", |writer, new| {
        let (role, task) = (writer.create(&["role", "set", "--name", new]), writer.create_task(new));
        writer.terminal.json(&["package", "set", "--role", &role, "--task", &task]);
        Some(attempt_on("delete_package", &task, &["package", "delete", "--role", &role, "--task", &task, "--yes"]))
    }),
    ("upgrade_packages", |writer, new| {
        let (role, old) = (writer.create(&["role", "set", "--name", new]), writer.create_task(&format!("{new}-a")));
        writer.terminal.json(&["package", "set", "--role", &role, "--task", &old]);
        let newer = writer.create_task(&format!("{new}-b"));
        writer.terminal.json(&["task", "replace", &newer, &old]);
        Some(attempt_on("upgrade_packages", &newer, &["package", "upgrade", "--level", "major", "--role", &role]))
    }),
    ("revoke_token", |writer, new| {
        let token = writer.create(&["token", "create", "--name", new]);
        Some(attempt_on("revoke_token", &token, &["token", "revoke", &token, "--yes"]))
    }),
    ("cancel_run", |writer, _| {
        let (run, _) = writer.terminal.start_run(&["--agent", &writer.agent(), "--task", "work/again"]);
        Some(attempt_on("cancel_run", &run, &["run", "cancel", &run]))
    }),
    ("claim", |writer, new| {
        writer.create_task(new);
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
        // Its lease may be over before that.
        (writer.terminal.run(&fail).code == 0)
            .then(|| attempt_on("queue_requeue", &item, &["queue", "requeue", "--id", &item]))
    }),
    ("pin_note", |writer, new| Some(writer.create_and_apply("pin_note", &["note", "pin"], &create_note(new)))),
    ("archive_note", |writer, new| Some(writer.create_and_apply("archive_note", &["note", "archive"], &create_note(new)))),
    ("delete_note", |writer, new| Some(writer.create_and_apply("delete_note", &["note", "delete", "--yes"], &create_note(new)))),
    ("add_options", |writer, new| {
        Some(writer.create_and_apply("add_options", &["decision", "add-options", "--option", "c"], &create_decision(new)))
    }),
    ("close_decision", |writer, new| Some(writer.create_and_apply("close_decision", &["decision", "close"], &create_decision(new)))),
    ("archive_decision", |writer, new| Some(writer.create_and_apply("archive_decision", &["decision", "archive"], &create_decision(new)))),
    ("delete_decision", |writer, new| {
        Some(writer.create_and_apply("delete_decision", &["decision", "delete", "--yes"], &create_decision(new)))
    }),
    ("archive_commitment", |writer, new| {
        Some(writer.create_and_apply("archive_commitment", &["commitment", "archive"], &create_commitment(new)))
    }),
    ("delete_commitment", |writer, new| {
        Some(writer.create_and_apply("delete_commitment", &["commitment", "delete", "--yes"], &create_commitment(new)))
    }),
    ("end_experiment", |writer, new| {
        let experiment = writer.create_experiment(new);
        Some(attempt_on("end_experiment", &experiment, &["experiment", "end", &experiment, "--status", "failed"]))
    }),
    ("delete_experiment", |writer, new| {
        let experiment = writer.create_experiment(new);
        Some(attempt_on("delete_experiment", &experiment, &["experiment", "delete", &experiment, "--yes"]))
    }),
    ("update_scratchpad", |writer, new| {
        let agent = text(&writer.terminal.json(&["agent", "get", &writer.agent()])["id"]);
        let update = attempt_on("update_scratchpad", &agent, &["scratchpad", "update", "--content", new]);
        Some(Attempt { in_run: true, ..update })
    }),
    ("restore_scratchpad", |writer, new| {
        let agent = writer.create(&["agent", "set", "--handle", new]);
        for content in ["one", "two"] {
            writer.terminal.json(&["scratchpad", "set", "--agent", new, "--content", content]);
        }
        Some(attempt_on("restore_scratchpad", &agent, &["scratchpad", "restore", "--agent", new, "--revision", "1"]))
    }),
    ("archive_board", |writer, new| {
        let board = writer.create(&["board", "set", "--name", new]);
        Some(attempt_on("archive_board", &board, &["board", "archive", &board]))
    }),
    ("sync_board", |writer, new| {
        writer.terminal.json(&["board", "set", "--name", new]);
        let folder = writer.terminal.home.path().join(format!("folder-{new}"));
        writer.terminal.json(&["board", "export", new, folder.to_str().unwrap()]);
        fs::write(folder.join(format!("{new}.stickie.yaml")), "note: yes\n").unwrap();
        let sync = ["board", "sync", new, "--from", folder.to_str().unwrap()];
        Some(attempt_creating_row("sync_board", format!("stickies where name = '{new}' and note = 'yes'"), &sync))
    }),
    ("update_stickie", |writer, new| {
        let stickie = writer.create_stickie(new);
        Some(attempt_on("update_stickie", &stickie, &["stickie", "update", &stickie, "--note", new]))
    }),
    ("archive_stickie", |writer, new| {
        let stickie = writer.create_stickie(new);
        Some(attempt_on("archive_stickie", &stickie, &["stickie", "archive", &stickie]))
    }),
    ("unrelate_stickies", |writer, new| {
        let (from, to) = (writer.create_stickie(&format!("{new}-a")), writer.create_stickie(&format!("{new}-b")));
        let edge = ["--from", &from, "--to", &to, "--type", "USES"];
        writer.terminal.json(&[&["stickie", "relate"], &edge[..]].concat());
        Some(attempt_on("unrelate_stickies", &from, &[&["stickie", "unrelate"], &edge[..]].concat()))
    }),
    ("import_testcases", |writer, new| {
        let file = writer.terminal.home.path().join(format!("{new}.xml"));
        fs::write(&file, format!("<testsuite><testcase name='{new}'/></testsuite>")).unwrap();
        let import = ["testcase", "import", file.to_str().unwrap()];
        Some(attempt_creating_row("import_testcases", format!("testcases where title = '{new}'"), &import))
    }),
    ("import_nagger", |writer, new| {
        let file = writer.terminal.home.path().join(format!("{new}.db"));
        let agent = format!(
            "insert into subagents (agent_id, session_id, created_at) values ('{new}', '{new}', '2026-01-02T10:01:00+00:00')"
        );
        Connection::sqlite(&file, true).unwrap().batch(&format!("{NAGGER} {agent}")).unwrap();
        let import = ["import", "nagger", file.to_str().unwrap()];
        Some(attempt_creating_row("import_nagger", format!("subagents where agent_id = '{new}'"), &import))
    }),
    ("cleanup_old_spawns", |writer, new| {
        let session = writer.create_session(new);
        Some(attempt_without_subject("cleanup_old_spawns", &["cleanup", "old-spawns", "--session", &session, "--keep", "0"]))
    }),
    ("cleanup_null_role", |writer, new| {
        let session = writer.create_session(new);
        Some(attempt_without_subject("cleanup_null_role", &["cleanup", "null-role", "--session", &session, "--yes"]))
    }),
    ("cleanup_session", |writer, new| {
        let session = writer.create_session(new);
        Some(attempt_without_subject("cleanup_session", &["cleanup", "session", &session]))
    }),
    ("forget_session", |writer, new| {
        let session = writer.create_session(new);
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
        Some(attempt_without_subject("cleanup_events", &["cleanup", "events", "--before", "2001-01-01T00:00:00Z", "--yes"]))
    }),
    ("cleanup_messages", |writer, new| {
        writer.terminal.json(&["message", "send", "--body", new]);
        let now = Clock::system().now().to_string();
        Some(attempt_without_subject("cleanup_messages", &["cleanup", "messages", "--before", &now, "--yes"]))
    }),
];

/// About a thing that is there.
fn attempt_on(action: &'static str, subject: &str, arguments: &[&str]) -> Attempt {
    Attempt { subject: Subject::Known(subject.parse().unwrap()), ..attempt(action, "", false, arguments) }
}

/// About nothing that an answer names: what is looked at is the whole record.
fn attempt_without_subject(action: &'static str, arguments: &[&str]) -> Attempt {
    Attempt { subject: Subject::Row(None), ..attempt(action, "", false, arguments) }
}

/// Told of by one row.
fn attempt_creating_row(action: &'static str, row: String, arguments: &[&str]) -> Attempt {
    Attempt { subject: Subject::Row(Some(row)), ..attempt(action, "", false, arguments) }
}

fn create_note(new: &str) -> [&str; 6] {
    ["note", "create", "--studio", "main", "--title", new]
}

fn create_decision(new: &str) -> [&str; 8] {
    ["decision", "create", "--studio", "main", "--question", new, "--option", "a"]
}

fn create_commitment(new: &str) -> [&str; 8] {
    ["commitment", "create", "--studio", "main", "--title", new, "--critical-mass", "3"]
}

impl Writer<'_> {
    /// Makes something, and says its id.
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

    /// Makes something and deletes it.
    fn create_and_delete(&self, action: &'static str, noun: &str, with: &[&str]) -> Attempt {
        let id = self.create(&[&[noun, "set"], with].concat());
        attempt_on(action, &id, &[noun, "delete", &id, "--yes"])
    }

    /// Makes something and does something to it.
    fn create_and_apply(&self, action: &'static str, what: &[&str], made: &[&str]) -> Attempt {
        let id = self.create(made);
        attempt_on(action, &id, &[what, &[id.as_str()]].concat())
    }

    /// Adds an item and takes it, unless another was first: its id and its fence.
    fn add_and_take_item(&self, with: &[&str]) -> Option<[String; 2]> {
        let item = self.create(&[&["queue", "add", "--task", "work/again"], with].concat());
        let output = self.terminal.run(&["queue", "take", "--id", &item, "--lease", "2", "--json"]);
        assert!(matches!(output.code, 0 | 4), "{}", output.stderr);
        let answer: Value = serde_json::from_str(&output.stdout).ok()?;
        Some([item, answer["data"][0]["fence"].as_i64()?.to_string()])
    }

    /// A session of its own, with a spawn that has no role.
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

/// What nobody kills is done, and told of.
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
    let ways: BTreeSet<&str> = CYCLE_ACTIONS.iter().copied().chain(FURTHER_COMMANDS.iter().map(|(action, _)| *action)).collect();
    let actions: BTreeSet<&str> = ACTIONS.iter().map(|action| action.name).collect();
    assert_eq!(ways, actions);
    assert_eq!(CYCLE_ACTIONS.len() + FURTHER_COMMANDS.len(), actions.len(), "each once");
}

//! The other ways to write by a command. Each makes what it is about first, which nobody kills, and then does one thing to it.

use std::{collections::BTreeSet, fs};

use serde_json::{Value, json};
use trackway_actions::registry::ACTIONS;
use trackway_store::{Clock, connection::Connection};
use trackway_testkit::Engine;

use super::{
    audit::{audit, connection, count},
    writes::{Attempt, DAILY, Fate, Subject, WAYS, Writer, attempt},
};
use crate::{
    import::V1 as NAGGER,
    terminal::{Terminal, run_command_with_input, text},
};

/// Makes what it takes, and says what to do; nothing, where somebody else was first. It is given a name that nobody has.
pub type Way = fn(&Writer<'_>, &str) -> Option<Attempt>;

/// An action, and how to do it.
pub const FURTHER: &[(&str, Way)] = &[
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
        let conversation = writer.made(&["conversation", "set", "--title", new]);
        let set = ["experiment", "set", "--conversation", &conversation, "--title", new];
        Some(attempt("set_experiment", "id", false, &set))
    }),
    ("set_report", |writer, new| {
        let agent = writer.agent();
        let said = ["--one-liner", new, "--tldr", "t", "--content", "c"];
        let set = [&["report", "set", "--agent", &agent, "--task", "work/again"][..], &said].concat();
        Some(attempt("set_report", "id", false, &set))
    }),
    ("delete_role", |writer, new| Some(writer.deletes("delete_role", "role", &["--name", new]))),
    ("delete_workflow", |writer, new| Some(writer.deletes("delete_workflow", "workflow", &["--name", new]))),
    ("delete_workspace", |writer, new| Some(writer.deletes("delete_workspace", "workspace", &["--name", new]))),
    ("delete_label", |writer, new| Some(writer.deletes("delete_label", "label", &["--key", new, "--name", new]))),
    ("delete_studio", |writer, new| Some(writer.deletes("delete_studio", "studio", &["--name", new]))),
    ("delete_agent", |writer, new| Some(writer.deletes("delete_agent", "agent", &["--handle", new]))),
    ("delete_conversation", |writer, new| {
        Some(writer.deletes("delete_conversation", "conversation", &["--title", new]))
    }),
    ("delete_board", |writer, new| Some(writer.deletes("delete_board", "board", &["--name", new]))),
    ("delete_route", |writer, new| {
        Some(writer.deletes("delete_route", "route", &["--tag", new, "--task", "work/again"]))
    }),
    ("delete_stickie", |writer, new| {
        Some(writer.deletes("delete_stickie", "stickie", &["--board", "wall", "--name", new]))
    }),
    ("delete_task", |writer, new| {
        let task = writer.task(new);
        Some(about("delete_task", &task, &["task", "delete", &task, "--yes"]))
    }),
    ("delete_link", |writer, new| {
        let (from, to) = (writer.task(&format!("{new}-a")), writer.task(&format!("{new}-b")));
        let link = writer.made(&["link", "add", "--from", &from, "--to", &to, "--type", "relates_to"]);
        Some(about("delete_link", &from, &["link", "delete", &link, "--yes"]))
    }),
    ("delete_package", |writer, new| {
        let (role, task) = (writer.made(&["role", "set", "--name", new]), writer.task(new));
        writer.terminal.json(&["package", "set", "--role", &role, "--task", &task]);
        Some(about("delete_package", &task, &["package", "delete", "--role", &role, "--task", &task, "--yes"]))
    }),
    ("upgrade_packages", |writer, new| {
        let (role, old) = (writer.made(&["role", "set", "--name", new]), writer.task(&format!("{new}-a")));
        writer.terminal.json(&["package", "set", "--role", &role, "--task", &old]);
        let newer = writer.task(&format!("{new}-b"));
        writer.terminal.json(&["task", "replace", &newer, &old]);
        Some(about("upgrade_packages", &newer, &["package", "upgrade", "--level", "major", "--role", &role]))
    }),
    ("revoke_token", |writer, new| {
        let token = writer.made(&["token", "create", "--name", new]);
        Some(about("revoke_token", &token, &["token", "revoke", &token, "--yes"]))
    }),
    ("cancel_run", |writer, _| {
        let (run, _) = writer.terminal.start_run(&["--agent", &writer.agent(), "--task", "work/again"]);
        Some(about("cancel_run", &run, &["run", "cancel", &run]))
    }),
    ("claim", |writer, new| {
        writer.task(new);
        Some(beside("claim", &["claim", "--agent", &writer.agent(), "--lease", "2"]))
    }),
    ("queue_heartbeat", |writer, _| {
        let [item, fence] = writer.takes(&[])?;
        Some(beside("queue_heartbeat", &["queue", "heartbeat", "--id", &item, "--fence", &fence]))
    }),
    ("queue_fail", |writer, _| {
        let [item, fence] = writer.takes(&[])?;
        Some(about("queue_fail", &item, &["queue", "fail", "--id", &item, "--fence", &fence, "--error", "broken"]))
    }),
    ("queue_release", |writer, _| {
        let [item, fence] = writer.takes(&[])?;
        Some(about("queue_release", &item, &["queue", "release", "--id", &item, "--fence", &fence]))
    }),
    ("queue_cancel", |writer, _| {
        let item = writer.made(&["queue", "add", "--task", "work/again"]);
        Some(about("queue_cancel", &item, &["queue", "cancel", "--id", &item]))
    }),
    ("queue_requeue", |writer, _| {
        let [item, fence] = writer.takes(&["--max-attempts", "1"])?;
        let fail = ["queue", "fail", "--id", &item, "--fence", &fence, "--error", "broken"];
        // Its lease may be over before that.
        (writer.terminal.run(&fail).code == 0)
            .then(|| about("queue_requeue", &item, &["queue", "requeue", "--id", &item]))
    }),
    ("pin_note", |writer, new| Some(writer.does("pin_note", &["note", "pin"], &note(new)))),
    ("archive_note", |writer, new| Some(writer.does("archive_note", &["note", "archive"], &note(new)))),
    ("delete_note", |writer, new| Some(writer.does("delete_note", &["note", "delete", "--yes"], &note(new)))),
    ("add_options", |writer, new| {
        Some(writer.does("add_options", &["decision", "add-options", "--option", "c"], &decision(new)))
    }),
    ("close_decision", |writer, new| Some(writer.does("close_decision", &["decision", "close"], &decision(new)))),
    ("archive_decision", |writer, new| Some(writer.does("archive_decision", &["decision", "archive"], &decision(new)))),
    ("delete_decision", |writer, new| {
        Some(writer.does("delete_decision", &["decision", "delete", "--yes"], &decision(new)))
    }),
    ("archive_commitment", |writer, new| {
        Some(writer.does("archive_commitment", &["commitment", "archive"], &commitment(new)))
    }),
    ("delete_commitment", |writer, new| {
        Some(writer.does("delete_commitment", &["commitment", "delete", "--yes"], &commitment(new)))
    }),
    ("end_experiment", |writer, new| {
        let experiment = writer.experiment(new);
        Some(about("end_experiment", &experiment, &["experiment", "end", &experiment, "--status", "failed"]))
    }),
    ("delete_experiment", |writer, new| {
        let experiment = writer.experiment(new);
        Some(about("delete_experiment", &experiment, &["experiment", "delete", &experiment, "--yes"]))
    }),
    ("update_scratchpad", |writer, new| {
        let agent = text(&writer.terminal.json(&["agent", "get", &writer.agent()])["id"]);
        let update = about("update_scratchpad", &agent, &["scratchpad", "update", "--content", new]);
        Some(Attempt { in_run: true, ..update })
    }),
    ("restore_scratchpad", |writer, new| {
        let agent = writer.made(&["agent", "set", "--handle", new]);
        for content in ["one", "two"] {
            writer.terminal.json(&["scratchpad", "set", "--agent", new, "--content", content]);
        }
        Some(about("restore_scratchpad", &agent, &["scratchpad", "restore", "--agent", new, "--revision", "1"]))
    }),
    ("archive_board", |writer, new| {
        let board = writer.made(&["board", "set", "--name", new]);
        Some(about("archive_board", &board, &["board", "archive", &board]))
    }),
    ("sync_board", |writer, new| {
        writer.terminal.json(&["board", "set", "--name", new]);
        let folder = writer.terminal.home.path().join(format!("folder-{new}"));
        writer.terminal.json(&["board", "export", new, folder.to_str().unwrap()]);
        fs::write(folder.join(format!("{new}.stickie.yaml")), "note: yes\n").unwrap();
        let sync = ["board", "sync", new, "--from", folder.to_str().unwrap()];
        Some(row("sync_board", format!("stickies where name = '{new}' and note = 'yes'"), &sync))
    }),
    ("update_stickie", |writer, new| {
        let stickie = writer.stickie(new);
        Some(about("update_stickie", &stickie, &["stickie", "update", &stickie, "--note", new]))
    }),
    ("archive_stickie", |writer, new| {
        let stickie = writer.stickie(new);
        Some(about("archive_stickie", &stickie, &["stickie", "archive", &stickie]))
    }),
    ("unrelate_stickies", |writer, new| {
        let (from, to) = (writer.stickie(&format!("{new}-a")), writer.stickie(&format!("{new}-b")));
        let edge = ["--from", &from, "--to", &to, "--type", "USES"];
        writer.terminal.json(&[&["stickie", "relate"], &edge[..]].concat());
        Some(about("unrelate_stickies", &from, &[&["stickie", "unrelate"], &edge[..]].concat()))
    }),
    ("import_testcases", |writer, new| {
        let file = writer.terminal.home.path().join(format!("{new}.xml"));
        fs::write(&file, format!("<testsuite><testcase name='{new}'/></testsuite>")).unwrap();
        let import = ["testcase", "import", file.to_str().unwrap()];
        Some(row("import_testcases", format!("testcases where title = '{new}'"), &import))
    }),
    ("import_nagger", |writer, new| {
        let file = writer.terminal.home.path().join(format!("{new}.db"));
        let agent = format!(
            "insert into subagents (agent_id, session_id, created_at) values ('{new}', '{new}', '2026-01-02T10:01:00+00:00')"
        );
        Connection::sqlite(&file, true).unwrap().batch(&format!("{NAGGER} {agent}")).unwrap();
        let import = ["import", "nagger", file.to_str().unwrap()];
        Some(row("import_nagger", format!("subagents where agent_id = '{new}'"), &import))
    }),
    ("cleanup_old_spawns", |writer, new| {
        let session = writer.session(new);
        Some(beside("cleanup_old_spawns", &["cleanup", "old-spawns", "--session", &session, "--keep", "0"]))
    }),
    ("cleanup_null_role", |writer, new| {
        let session = writer.session(new);
        Some(beside("cleanup_null_role", &["cleanup", "null-role", "--session", &session, "--yes"]))
    }),
    ("cleanup_session", |writer, new| {
        let session = writer.session(new);
        Some(beside("cleanup_session", &["cleanup", "session", &session]))
    }),
    ("forget_session", |writer, new| {
        let session = writer.session(new);
        Some(beside("forget_session", &["forget", &session, "--yes"]))
    }),
    ("cleanup_contents", |_, _| Some(beside("cleanup_contents", &["cleanup", "contents"]))),
    ("cleanup_leases", |_, _| Some(beside("cleanup_leases", &["cleanup", "leases"]))),
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
        Some(beside("cleanup_events", &["cleanup", "events", "--before", "2001-01-01T00:00:00Z", "--yes"]))
    }),
    ("cleanup_messages", |writer, new| {
        writer.terminal.json(&["message", "send", "--body", new]);
        let now = Clock::system().now().to_string();
        Some(beside("cleanup_messages", &["cleanup", "messages", "--before", &now, "--yes"]))
    }),
];

/// About a thing that is there.
fn about(action: &'static str, subject: &str, arguments: &[&str]) -> Attempt {
    Attempt { subject: Subject::Known(subject.parse().unwrap()), ..attempt(action, "", false, arguments) }
}

/// About nothing that an answer names: what is looked at is the whole record.
fn beside(action: &'static str, arguments: &[&str]) -> Attempt {
    Attempt { subject: Subject::Row(None), ..attempt(action, "", false, arguments) }
}

/// Told of by one row.
fn row(action: &'static str, row: String, arguments: &[&str]) -> Attempt {
    Attempt { subject: Subject::Row(Some(row)), ..attempt(action, "", false, arguments) }
}

fn note(new: &str) -> [&str; 6] {
    ["note", "create", "--studio", "main", "--title", new]
}

fn decision(new: &str) -> [&str; 8] {
    ["decision", "create", "--studio", "main", "--question", new, "--option", "a"]
}

fn commitment(new: &str) -> [&str; 8] {
    ["commitment", "create", "--studio", "main", "--title", new, "--critical-mass", "3"]
}

impl Writer<'_> {
    /// Makes something, and says its id.
    fn made(&self, arguments: &[&str]) -> String {
        text(&self.terminal.json(arguments)["id"])
    }

    fn task(&self, name: &str) -> String {
        self.made(&["task", "set", "--workflow", "ops", "--variant", &format!("further/{name}")])
    }

    fn stickie(&self, name: &str) -> String {
        self.made(&["stickie", "set", "--board", "wall", "--name", name])
    }

    fn experiment(&self, title: &str) -> String {
        let conversation = self.made(&["conversation", "set", "--title", title]);
        self.made(&["experiment", "set", "--conversation", &conversation, "--title", title])
    }

    /// Makes something and deletes it.
    fn deletes(&self, action: &'static str, noun: &str, with: &[&str]) -> Attempt {
        let id = self.made(&[&[noun, "set"], with].concat());
        about(action, &id, &[noun, "delete", &id, "--yes"])
    }

    /// Makes something and does something to it.
    fn does(&self, action: &'static str, what: &[&str], made: &[&str]) -> Attempt {
        let id = self.made(made);
        about(action, &id, &[what, &[id.as_str()]].concat())
    }

    /// Adds an item and takes it, unless another was first: its id and its fence.
    fn takes(&self, with: &[&str]) -> Option<[String; 2]> {
        let item = self.made(&[&["queue", "add", "--task", "work/again"], with].concat());
        let output = self.terminal.run(&["queue", "take", "--id", &item, "--lease", "2", "--json"]);
        assert!(matches!(output.code, 0 | 4), "{}", output.stderr);
        let answer: Value = serde_json::from_str(&output.stdout).ok()?;
        Some([item, answer["data"][0]["fence"].as_i64()?.to_string()])
    }

    /// A session of its own, with a spawn that has no role.
    fn session(&self, name: &str) -> String {
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
fn every_way_leads_somewhere(engine: Engine) {
    let terminal = Terminal::new(engine);
    let mut writer = Writer::new(&terminal, "w");
    (0..WAYS).for_each(|_| writer.write(Fate::Lives));
    for (way, (action, _)) in FURTHER.iter().enumerate() {
        assert_eq!(writer.write_by(WAYS + way, Fate::Lives), Some(0), "{action}");
    }
    audit(&terminal, &writer.acknowledged);
    for row in &writer.rows {
        assert_eq!(count(&terminal, row), 1, "{row}");
    }
}

#[test]
fn every_way_leads_somewhere_on_sqlite() {
    every_way_leads_somewhere(Engine::Sqlite);
}

#[test]
fn every_way_leads_somewhere_on_postgres() {
    every_way_leads_somewhere(Engine::Postgres);
}

#[test]
fn every_action_is_a_way_to_write() {
    let ways: BTreeSet<&str> = DAILY.iter().copied().chain(FURTHER.iter().map(|(action, _)| *action)).collect();
    let actions: BTreeSet<&str> = ACTIONS.iter().map(|action| action.name).collect();
    assert_eq!(ways, actions);
    assert_eq!(DAILY.len() + FURTHER.len(), actions.len(), "each once");
}

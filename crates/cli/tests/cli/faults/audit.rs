//! The checks after each fault.

use std::collections::HashMap;

use serde_json::Value;
use trackway_store::{Store, Url, connection::Connection};
use uuid::Uuid;

use crate::terminal::Terminal;

/// A write that the program acknowledged: its action, subject and run.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct AcknowledgedWrite {
    pub action: String,
    pub subject: Uuid,
    pub run: Option<Uuid>,
}

/// The kinds of resources that runs touch. Options are missing, because the log names their decision instead.
const TOUCHED_KINDS: &str =
    "('note', 'decision', 'vote', 'confirmation', 'commitment', 'message', 'stickie', 'board', 'report', 'task')";

/// The kinds whose rows can be deleted for good, and the actions that do so. Events about these rows stay in the log.
const REMOVABLE_KINDS: &str = "('session', 'run', 'subagent', 'spawn', 'message', 'file', 'report')";
const REMOVING_ACTIONS: &str = "('forget_session', 'cleanup_old_spawns', 'cleanup_null_role', 'cleanup_messages')";

/// Actions that change nothing when they are repeated, for example after a kill. One event may therefore stand for
/// several acknowledgements, and may belong to an earlier run.
const IDEMPOTENT_ACTIONS: &[&str] =
    &["confirm_read", "commit", "relate_stickies", "replace_task", "add_link", "set_package"];

/// Connects to the database directly, not through the program.
pub fn connection(terminal: &Terminal) -> Connection {
    match terminal.database.url() {
        Url::Sqlite(path) => Connection::sqlite(&path, false).unwrap(),
        Url::Postgres(url) => Connection::postgres(&url).unwrap(),
    }
}

pub fn count(terminal: &Terminal, rows: &str) -> i64 {
    connection(terminal).query::<(i64,)>(&format!("select count(*) from {rows}"), &[]).unwrap()[0].0
}

/// Asserts that no acknowledged write is lost, and that no write is incomplete.
#[track_caller]
pub fn audit(terminal: &Terminal, acknowledged: &[AcknowledgedWrite]) {
    let mut database = connection(terminal);
    if let Connection::Sqlite(_) = &database {
        let result = database.query::<(String,)>("pragma integrity_check", &[]).unwrap();
        assert_eq!(result, [("ok".to_owned(),)], "the file is damaged");
    }
    let findings = Store::open(terminal.database.url()).unwrap().integrity_findings().unwrap();
    assert_eq!(findings, Vec::<String>::new(), "the record is inconsistent");

    let events = database.query::<(String, Uuid, Option<Uuid>)>("select action, subject_id, run_id from events", &[]);
    let mut logged: HashMap<AcknowledgedWrite, usize> = HashMap::new();
    for (action, subject, run) in events.unwrap() {
        *logged.entry(AcknowledgedWrite { action, subject, run }).or_default() += 1;
    }
    for write in acknowledged {
        if IDEMPOTENT_ACTIONS.contains(&write.action.as_str()) {
            let is_logged = logged.keys().any(|event| (&event.action, event.subject) == (&write.action, write.subject));
            assert!(is_logged, "acknowledged and lost: {write:?}");
            continue;
        }
        let count = logged.get_mut(write).filter(|count| **count > 0);
        *count.unwrap_or_else(|| panic!("acknowledged and lost: {write:?}")) -= 1;
    }

    let mut assert_none = |what: &str, rows: &str| {
        let found = database.query::<(i64,)>(&format!("select count(*) from {rows}"), &[]).unwrap();
        assert_eq!(found, [(0,)], "{what}");
    };
    assert_none(
        "events about missing subjects",
        &format!(
            "events e where not exists (select 1 from registry g where g.id = e.subject_id)
             and not (e.subject_kind in {REMOVABLE_KINDS} and e.position <= (select coalesce(max(position), 0) from events where action in {REMOVING_ACTIONS}))"
        ),
    );
    assert_none(
        "writes in a run without a touch",
        &format!(
            "events e where e.run_id is not null and e.subject_kind in {TOUCHED_KINDS}
             and not exists (select 1 from run_resources t where t.run_id = e.run_id and t.resource_id = e.subject_id)"
        ),
    );
    assert_none(
        "touches without an event",
        &format!(
            "run_resources t where t.resource_type in {TOUCHED_KINDS}
             and not exists (select 1 from runs r where r.id = t.run_id and r.session_id is not null)
             and not exists (select 1 from events e where e.run_id = t.run_id and e.subject_id = t.resource_id)"
        ),
    );
}

/// Asserts that `trackway doctor` reports findings of exactly these checks.
#[track_caller]
pub fn assert_doctor_findings(terminal: &Terminal, checks: &[&str]) {
    let output = terminal.run(&["doctor", "--json"]);
    let answer: Value = serde_json::from_str(&output.stdout).unwrap_or_else(|_| panic!("{}", output.stderr));
    let findings = answer["data"]["findings"].as_array().unwrap();
    let found: Vec<&str> = findings.iter().map(|finding| finding["check"].as_str().unwrap()).collect();
    assert_eq!(found, checks, "{findings:?}");
}

//! What is looked at after each fault.

use std::collections::HashMap;

use serde_json::Value;
use trackway_store::{Store, Url, connection::Connection};
use uuid::Uuid;

use crate::terminal::Terminal;

/// A write that was acknowledged: the action, what it was about, and in which run.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct AcknowledgedWrite {
    pub action: String,
    pub subject: Uuid,
    pub run: Option<Uuid>,
}

/// What runs touch, but for options: they come with their decision, which the log names.
const TOUCHED_KINDS: &str =
    "('note', 'decision', 'vote', 'confirmation', 'commitment', 'message', 'stickie', 'board', 'report', 'task')";

/// What is removed for good, and by what: the log goes on telling of it.
const REMOVABLE_KINDS: &str = "('session', 'run', 'subagent', 'spawn', 'message', 'file', 'report')";
const REMOVING_ACTIONS: &str = "('forget_session', 'cleanup_old_spawns', 'cleanup_null_role', 'cleanup_messages')";

/// What changes nothing when it is said again, perhaps because who said it first was killed before the answer: one event
/// may stand for several answers, and may be of an earlier run.
const IDEMPOTENT_ACTIONS: &[&str] = &["confirm_read", "commit", "relate_stickies", "replace_task", "add_link", "set_package"];

/// A look at the database past the program.
pub fn connection(terminal: &Terminal) -> Connection {
    match terminal.database.url() {
        Url::Sqlite(path) => Connection::sqlite(&path, false).unwrap(),
        Url::Postgres(url) => Connection::postgres(&url).unwrap(),
    }
}

pub fn count(terminal: &Terminal, rows: &str) -> i64 {
    connection(terminal).query::<(i64,)>(&format!("select count(*) from {rows}"), &[]).unwrap()[0].0
}

/// Nothing is lost, and nothing is half there.
#[track_caller]
pub fn audit(terminal: &Terminal, acknowledged: &[AcknowledgedWrite]) {
    let mut database = connection(terminal);
    if let Connection::Sqlite(_) = &database {
        let said = database.query::<(String,)>("pragma integrity_check", &[]).unwrap();
        assert_eq!(said, [("ok".to_owned(),)], "the file is damaged");
    }
    let unsound = Store::open(terminal.database.url()).unwrap().integrity_findings().unwrap();
    assert_eq!(unsound, Vec::<String>::new(), "the record does not hold together");

    let events = database.query::<(String, Uuid, Option<Uuid>)>("select action, subject_id, run_id from events", &[]);
    let mut logged: HashMap<AcknowledgedWrite, usize> = HashMap::new();
    for (action, subject, run) in events.unwrap() {
        *logged.entry(AcknowledgedWrite { action, subject, run }).or_default() += 1;
    }
    for write in acknowledged {
        if IDEMPOTENT_ACTIONS.contains(&write.action.as_str()) {
            let is_told = logged.keys().any(|told| (&told.action, told.subject) == (&write.action, write.subject));
            assert!(is_told, "acknowledged and lost: {write:?}");
            continue;
        }
        let left = logged.get_mut(write).filter(|left| **left > 0);
        *left.unwrap_or_else(|| panic!("acknowledged and lost: {write:?}")) -= 1;
    }

    let mut assert_none = |what: &str, rows: &str| {
        let found = database.query::<(i64,)>(&format!("select count(*) from {rows}"), &[]).unwrap();
        assert_eq!(found, [(0,)], "{what}");
    };
    assert_none(
        "events about things that are not there",
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
        "touches that the log does not tell of",
        &format!(
            "run_resources t where t.resource_type in {TOUCHED_KINDS}
             and not exists (select 1 from runs r where r.id = t.run_id and r.session_id is not null)
             and not exists (select 1 from events e where e.run_id = t.run_id and e.subject_id = t.resource_id)"
        ),
    );
}

/// The doctor finds nothing but what was left to be found.
#[track_caller]
pub fn assert_doctor_findings(terminal: &Terminal, checks: &[&str]) {
    let output = terminal.run(&["doctor", "--json"]);
    let said: Value = serde_json::from_str(&output.stdout).unwrap_or_else(|_| panic!("{}", output.stderr));
    let findings = said["data"]["findings"].as_array().unwrap();
    let found: Vec<&str> = findings.iter().map(|finding| finding["check"].as_str().unwrap()).collect();
    assert_eq!(found, checks, "{findings:?}");
}

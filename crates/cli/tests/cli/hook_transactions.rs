//! Hook events on PostgreSQL: all rows that an event writes are written in one transaction.

use std::collections::BTreeSet;

use trackway_testkit::Engine;

use crate::{
    hook::{HookSession, connection},
    terminal::Terminal,
};

/// A version of a row: its table, its position in the table, and the transaction that wrote it.
type RowVersion = (String, String, String);

fn row_versions(terminal: &Terminal) -> BTreeSet<RowVersion> {
    let mut connection = connection(terminal);
    let tables = "select cast(tablename as text) from pg_tables where schemaname = current_schema()";
    let mut versions = BTreeSet::new();
    for (table,) in connection.query::<(String,)>(tables, &[]).unwrap() {
        let rows = format!("select cast(ctid as text), cast(xmin as text) from {table}");
        let rows = connection.query::<(String, String)>(&rows, &[]).unwrap();
        versions.extend(rows.into_iter().map(|(position, transaction)| (table.clone(), position, transaction)));
    }
    versions
}

/// Asserts that a file write in a session adds rows to at least these tables, and that one transaction writes all rows.
#[track_caller]
fn assert_one_transaction(session: &HookSession<'_>, tables: &[&str]) {
    let before = row_versions(session.terminal);
    session.send_file_write("t1", "one.txt");
    let written = &row_versions(session.terminal) - &before;
    let written_tables: BTreeSet<&str> = written.iter().map(|(table, ..)| table.as_str()).collect();
    let missing: Vec<_> = tables.iter().filter(|table| !written_tables.contains(*table)).collect();
    assert!(missing.is_empty(), "no rows in {missing:?}: {written:?}");
    let transactions: BTreeSet<&str> = written.iter().map(|(_, _, transaction)| transaction.as_str()).collect();
    assert_eq!(transactions.len(), 1, "{written:?}");
}

#[test]
fn file_write_event_is_recorded_in_one_transaction() {
    let terminal = Terminal::new(Engine::Postgres);
    let known = HookSession { terminal: &terminal, id: "s1" };
    known.prompt("go");
    assert_one_transaction(&known, &["events", "file_changes", "files", "registry", "run_resources", "sessions"]);
    let unknown = HookSession { terminal: &terminal, id: "s2" };
    assert_one_transaction(&unknown, &["events", "file_changes", "registry", "run_resources", "runs", "sessions"]);
}

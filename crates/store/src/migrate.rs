//! Bringing a database up to date: versioned, append-only, checked at every start.

use crate::{
    connection::{APPLICATION_ID, Connection, Engine},
    error::{Error, Result},
    params,
    url::Url,
};

/// Every migration, in order. Append only: a landed text never changes.
const MIGRATIONS: &[(i64, &str, &str)] = &[
    (1, "core", include_str!("../migrations/0001_core.sql")),
    (2, "sessions", include_str!("../migrations/0002_sessions.sql")),
    (3, "motion", include_str!("../migrations/0003_motion.sql")),
    (4, "lean", include_str!("../migrations/0004_lean.sql")),
    (5, "wake", include_str!("../migrations/0005_wake.sql")),
    (6, "boards", include_str!("../migrations/0006_boards.sql")),
    (7, "agents", include_str!("../migrations/0007_agents.sql")),
    (8, "doors", include_str!("../migrations/0008_doors.sql")),
    (9, "doors_indexes", include_str!("../migrations/0009_doors_indexes.sql")),
    (10, "whose", include_str!("../migrations/0010_whose.sql")),
    (11, "lean_queue", include_str!("../migrations/0011_lean_queue.sql")),
    (16, "task_page", include_str!("../migrations/0016_task_page.sql")),
];

/// The schema this program knows.
pub fn known_version() -> i64 {
    MIGRATIONS.last().map_or(0, |(version, ..)| *version)
}

/// The texts of the migrations up to a version.
pub(crate) fn texts(version: i64) -> impl Iterator<Item = &'static str> {
    MIGRATIONS.iter().filter(move |(number, ..)| *number <= version).map(|(.., text)| *text)
}

/// Every statement of the migrations, in order, as an engine is told it.
pub(crate) fn statements(engine: Engine) -> Vec<String> {
    let mut statements = Vec::new();
    for text in texts(known_version()) {
        let text = translated(engine, text);
        let lines: Vec<&str> = text.lines().filter(|line| !line.trim_start().starts_with("--")).collect();
        let all = lines.join("\n");
        statements.extend(all.split(';').map(str::trim).filter(|one| !one.is_empty()).map(str::to_owned));
    }
    statements
}

/// A column as the migrations declare it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DeclaredColumn {
    pub table: String,
    pub name: String,
    pub is_uuid: bool,
    /// The table and the column that it refers to.
    pub references: Option<(String, String)>,
}

/// Every column that the migrations declare, with what it refers to. Constraints that one engine drops later are included.
pub(crate) fn columns() -> Vec<DeclaredColumn> {
    let mut columns = Vec::new();
    for text in texts(known_version()) {
        let mut table = None;
        for line in text.lines().map(str::trim).filter(|line| !line.starts_with("--")) {
            if let Some(created) = line.strip_prefix("create table ").and_then(|rest| rest.strip_suffix(" (")) {
                table = Some(created);
            } else if let Some((altered, column)) =
                line.strip_prefix("alter table ").and_then(|rest| rest.split_once(" add column "))
            {
                columns.extend(declared_column(altered, column));
            } else if line == ");" {
                table = None;
            } else if let Some(table) = table {
                columns.extend(declared_column(table, line));
            }
        }
    }
    columns
}

fn declared_column(table: &str, line: &str) -> Option<DeclaredColumn> {
    let mut words = line.split_whitespace();
    let (name, holds) = (words.next()?, words.next()?);
    let holds = holds.trim_end_matches([',', ';']);
    let is_column = TYPES.iter().any(|(known, ..)| *known == holds);
    let references = line.split_once(" references ").and_then(|(_, rest)| {
        let (to, key) = rest.split_once(" (")?;
        Some((to.to_owned(), key.split(')').next()?.to_owned()))
    });
    is_column.then(|| DeclaredColumn {
        table: table.to_owned(),
        name: name.to_owned(),
        is_uuid: holds == "uuid",
        references,
    })
}

/// Whether the database is empty or ours. Something else is an error, and is left alone.
fn is_empty(connection: &mut Connection, url: &Url) -> Result<bool> {
    let (tables, mark, ours) = match connection.engine() {
        Engine::Sqlite => {
            ("select count(*) from sqlite_master where type = 'table'", "pragma application_id", APPLICATION_ID)
        }
        Engine::Postgres => (
            "select count(*) from pg_tables where schemaname = current_schema()",
            "select count(*) from pg_tables where schemaname = current_schema() and tablename = 'trackway_migrations'",
            1,
        ),
    };
    if count(connection, mark)? == ours {
        return Ok(false);
    }
    match count(connection, tables)? {
        0 => Ok(true),
        _ => Err(Error::NotOurs(url.to_string())),
    }
}

fn count(connection: &mut Connection, sql: &str) -> Result<i64> {
    Ok(connection.query::<(i64,)>(sql, &[])?.first().map_or(0, |row| row.0))
}

/// Applies what is missing, in one transaction. A database newer than this program is refused untouched.
pub(crate) fn bring_up_to_date(connection: &mut Connection, url: &Url) -> Result<()> {
    bring_up_to(connection, url, known_version())
}

/// The same, up to a version: what was written by an older program is read as it was meant.
pub(crate) fn bring_up_to(connection: &mut Connection, url: &Url, version: i64) -> Result<()> {
    if applied(connection, url)? >= version {
        return Ok(());
    }
    match connection.engine() {
        Engine::Sqlite => connection.batch("begin immediate")?,
        // Two processes may start at once: the second waits, and finds the work done.
        Engine::Postgres => connection.batch("begin; select pg_advisory_xact_lock(1414682457)")?,
    }
    let outcome = apply_missing(connection, url, version);
    match outcome {
        Ok(()) => connection.commit(),
        Err(error) => {
            connection.rollback();
            Err(error)
        }
    }
}

fn apply_missing(connection: &mut Connection, url: &Url, version: i64) -> Result<()> {
    let done = applied(connection, url)?;
    if done == 0 {
        connection.batch(&translated(
            connection.engine(),
            "create table trackway_migrations (version bigint not null primary key, name text not null, applied_at time not null)",
        ))?;
        if connection.engine() == Engine::Sqlite {
            connection.batch(&format!("pragma application_id = {APPLICATION_ID}"))?;
        }
    }
    for (number, name, text) in MIGRATIONS.iter().filter(|(number, ..)| *number > done && *number <= version) {
        connection.batch(&translated(connection.engine(), text))?;
        connection.execute(
            "insert into trackway_migrations (version, name, applied_at) values (?1, ?2, ?3)",
            params![*number, *name, trackway_domain::Time::now()],
        )?;
    }
    Ok(())
}

/// The version a database is at; 0 for an empty one.
pub(crate) fn applied(connection: &mut Connection, url: &Url) -> Result<i64> {
    if is_empty(connection, url)? {
        return Ok(0);
    }
    let found = count(connection, "select max(version) from trackway_migrations")?;
    if found > known_version() {
        return Err(Error::Newer { at: url.to_string(), found, known: known_version() });
    }
    Ok(found)
}

/// The types of a migration's text in each engine.
const TYPES: [(&str, &str, &str); 9] = [
    ("uuid", "blob", "uuid"),
    ("time", "integer", "timestamptz"),
    ("json", "text", "jsonb"),
    ("flag", "integer", "boolean"),
    ("bigint", "integer", "bigint"),
    ("real", "real", "double precision"),
    ("bytes", "blob", "bytea"),
    // Sorted by bytes on both engines, whatever the server's locale.
    ("text", "text", "text collate \"C\""),
    ("counter", "integer primary key autoincrement", "bigint generated always as identity primary key"),
];

/// A line that only one engine understands stands behind `-- sqlite: ` or `-- postgres: `, a comment to the other.
fn own_lines(engine: Engine, text: &str) -> String {
    let mark = match engine {
        Engine::Sqlite => "-- sqlite: ",
        Engine::Postgres => "-- postgres: ",
    };
    text.split('\n').map(|line| line.strip_prefix(mark).unwrap_or(line)).collect::<Vec<_>>().join("\n")
}

/// One text for both engines: only the names of types differ, and SQLite checks them (`strict`); and a few lines.
fn translated(engine: Engine, text: &str) -> String {
    let text = own_lines(engine, text);
    let mut out = String::with_capacity(text.len() * 5 / 4);
    let mut word = String::new();
    let mut quoted = false;
    for character in text.chars().chain([' ']) {
        quoted ^= character == '\'';
        if quoted {
            out.push_str(&std::mem::take(&mut word));
            out.push(character);
            continue;
        }
        if character.is_ascii_alphanumeric() || character == '_' {
            word.push(character);
            continue;
        }
        let translated = TYPES.iter().find(|(name, ..)| *name == word).map(|(_, sqlite, postgres)| match engine {
            Engine::Sqlite => *sqlite,
            Engine::Postgres => *postgres,
        });
        out.push_str(translated.unwrap_or(&word));
        word.clear();
        out.push(character);
    }
    match engine {
        Engine::Sqlite => out.replace("\n);", "\n) strict;"),
        Engine::Postgres => out,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_older_database_is_brought_up_to_date_with_what_it_holds() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("old.db");
        let mut old = Connection::sqlite(&path, true).unwrap();
        old.batch(&translated(Engine::Sqlite, MIGRATIONS[0].2)).unwrap();
        old.batch(&format!(
            "create table trackway_migrations (version integer not null primary key, name text not null, applied_at integer not null) strict;
             insert into trackway_migrations values (1, 'core', 0); pragma application_id = {APPLICATION_ID};
             pragma foreign_keys = off;
             insert into tenants values (x'01', 'local', 0);
             insert into run_usage (id, tenant_id, run_id, message_id, created_at) values (x'02', x'01', x'03', 'msg', 0)"
        ))
        .unwrap();
        let url = Url::sqlite(&path);
        bring_up_to_date(&mut old, &url).unwrap();
        assert_eq!(applied(&mut old, &url).unwrap(), known_version());
        let kept = old.query::<(String, String)>("select message_id, once_key from run_usage", &[]).unwrap();
        assert_eq!(kept, [("msg".to_owned(), "msg".to_owned())]);
    }

    #[test]
    fn runs_and_reports_of_before_are_linked_and_current() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("old.db");
        let mut old = Connection::sqlite(&path, true).unwrap();
        for (_, _, text) in MIGRATIONS.iter().filter(|(version, ..)| *version < 5) {
            old.batch(&translated(Engine::Sqlite, text)).unwrap();
        }
        let run = "insert into runs (id, tenant_id, agent_id, task_id, chain_depth, mode, status, max_steps, started_at) values";
        let report = "insert into reports (id, tenant_id, agent_id, task_id, scope, one_liner, tldr, content, created_at) values";
        old.batch(&format!(
            "create table trackway_migrations (version integer not null primary key, name text not null, applied_at integer not null) strict;
             insert into trackway_migrations values (4, 'lean', 0); pragma application_id = {APPLICATION_ID}; pragma foreign_keys = off;
             {run} (x'02', x'01', x'aa', x'bb', 0, 'agent', 'completed', 1, 20), (x'03', x'01', x'aa', x'bb', 0, 'agent', 'completed', 1, 10), (x'04', x'01', x'aa', null, 0, 'agent', 'completed', 1, 5);
             {report} (x'05', x'01', x'aa', x'bb', 'current', 'a', 'b', 'old', 10), (x'06', x'01', x'aa', x'bb', 'current', 'a', 'b', 'new', 20), (x'07', x'01', x'aa', null, 'current', 'a', 'b', 'none', 30)"
        ))
        .unwrap();
        bring_up_to_date(&mut old, &Url::sqlite(&path)).unwrap();
        let links =
            old.query::<(Vec<u8>, Vec<u8>, i64)>("select from_agent_id, to_task_id, created_at from agent_links", &[]);
        assert_eq!(links.unwrap(), [(vec![0xaa], vec![0xbb], 10)]);
        let heads = old.query::<(Vec<u8>, i64)>("select report_id, revision from report_heads", &[]);
        assert_eq!(heads.unwrap(), [(vec![6], 1)]);
    }

    #[test]
    fn only_types_are_translated() {
        let text = "create table a (\n    at time not null, timeout bigint, b flag check (c in ('flag', 'time'))\n);";
        assert_eq!(
            translated(Engine::Sqlite, text).trim_end(),
            "create table a (\n    at integer not null, timeout integer, b integer check (c in ('flag', 'time'))\n) strict;"
        );
        assert_eq!(
            translated(Engine::Postgres, text).trim_end(),
            "create table a (\n    at timestamptz not null, timeout bigint, b boolean check (c in ('flag', 'time'))\n);"
        );
    }

    #[test]
    fn a_line_can_be_of_one_engine() {
        let text = "create index a on b (c);\n-- sqlite: create d;\n-- postgres: alter table b add e flag;\n-- f\n";
        assert_eq!(
            translated(Engine::Sqlite, text).trim_end(),
            "create index a on b (c);\ncreate d;\n-- postgres: alter table b add e integer;\n-- f"
        );
        assert_eq!(
            translated(Engine::Postgres, text).trim_end(),
            "create index a on b (c);\n-- sqlite: create d;\nalter table b add e boolean;\n-- f"
        );
    }
}

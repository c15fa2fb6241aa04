//! Schema migrations: numbered, append-only, and checked whenever a database is opened.

use crate::{
    Clock,
    connection::{APPLICATION_ID, Connection, Engine},
    error::{Error, Result},
    params,
    url::Url,
};

/// All migrations, in order. Append only: a released text never changes.
const MIGRATIONS: &[(i64, &str, &str)] = &[
    (1, "core", include_str!("../../migrations/0001_core.sql")),
    (2, "sessions", include_str!("../../migrations/0002_sessions.sql")),
    (3, "motion", include_str!("../../migrations/0003_motion.sql")),
    (4, "lean", include_str!("../../migrations/0004_lean.sql")),
    (5, "wake", include_str!("../../migrations/0005_wake.sql")),
    (6, "boards", include_str!("../../migrations/0006_boards.sql")),
    (7, "agents", include_str!("../../migrations/0007_agents.sql")),
    (8, "doors", include_str!("../../migrations/0008_doors.sql")),
    (9, "doors_indexes", include_str!("../../migrations/0009_doors_indexes.sql")),
    (10, "whose", include_str!("../../migrations/0010_whose.sql")),
    (11, "lean_queue", include_str!("../../migrations/0011_lean_queue.sql")),
    (12, "versions", include_str!("../../migrations/0012_versions.sql")),
    (13, "attribution", include_str!("../../migrations/0013_attribution.sql")),
    (14, "outcomes", include_str!("../../migrations/0014_outcomes.sql")),
    (15, "ladder", include_str!("../../migrations/0015_ladder.sql")),
    (16, "task_page", include_str!("../../migrations/0016_task_page.sql")),
    (17, "clients", include_str!("../../migrations/0017_clients.sql")),
];

/// The newest schema version that this program supports.
pub fn known_version() -> i64 {
    MIGRATIONS.last().map_or(0, |(version, ..)| *version)
}

pub(crate) fn migration_texts(version: i64) -> impl Iterator<Item = &'static str> {
    MIGRATIONS.iter().filter(move |(number, ..)| *number <= version).map(|(.., text)| *text)
}

/// All statements of the migrations, in order, translated for an engine.
pub(crate) fn statements(engine: Engine) -> Vec<String> {
    let mut statements = Vec::new();
    for text in migration_texts(known_version()) {
        let text = translate(engine, text);
        let lines: Vec<&str> = text.lines().filter(|line| !line.trim_start().starts_with("--")).collect();
        let all = lines.join("\n");
        statements.extend(all.split(';').map(str::trim).filter(|one| !one.is_empty()).map(str::to_owned));
    }
    statements
}

/// A column as a migration declares it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DeclaredColumn {
    pub table: String,
    pub name: String,
    pub is_uuid: bool,
    /// The table and the column that the column refers to.
    pub references: Option<(String, String)>,
}

/// All columns that the migrations declare. Includes references that a later migration drops on one engine.
pub(crate) fn columns() -> Vec<DeclaredColumn> {
    let mut columns = Vec::new();
    for text in migration_texts(known_version()) {
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
    let (name, column_type) = (words.next()?, words.next()?);
    let column_type = column_type.trim_end_matches([',', ';']);
    let is_column = TYPES.iter().any(|(known, ..)| *known == column_type);
    let references = line.split_once(" references ").and_then(|(_, rest)| {
        let (to, key) = rest.split_once(" (")?;
        Some((to.to_owned(), key.split(')').next()?.to_owned()))
    });
    is_column.then(|| DeclaredColumn {
        table: table.to_owned(),
        name: name.to_owned(),
        is_uuid: column_type == "uuid",
        references,
    })
}

/// Returns whether the database is empty. A database of another program is an error.
fn is_empty(connection: &mut Connection, url: &Url) -> Result<bool> {
    let (table_count, marker, expected) = match connection.engine() {
        Engine::Sqlite => {
            ("select count(*) from sqlite_master where type = 'table'", "pragma application_id", APPLICATION_ID)
        }
        Engine::Postgres => (
            "select count(*) from pg_tables where schemaname = current_schema()",
            "select count(*) from pg_tables where schemaname = current_schema() and tablename = 'trackway_migrations'",
            1,
        ),
    };
    if count(connection, marker)? == expected {
        return Ok(false);
    }
    match count(connection, table_count)? {
        0 => Ok(true),
        _ => Err(Error::NotTrackway(url.to_string())),
    }
}

fn count(connection: &mut Connection, sql: &str) -> Result<i64> {
    Ok(connection.query::<(i64,)>(sql, &[])?.first().map_or(0, |row| row.0))
}

/// Applies the missing migrations in one transaction. Fails without a change if the schema is newer than this program.
pub(crate) fn migrate_to_latest(connection: &mut Connection, url: &Url) -> Result<()> {
    migrate_to(connection, url, known_version())
}

/// Applies the missing migrations up to a version. A backup of an older version is restored into a schema of that
/// version.
pub(crate) fn migrate_to(connection: &mut Connection, url: &Url, version: i64) -> Result<()> {
    if applied_version(connection, url)? >= version {
        return Ok(());
    }
    match connection.engine() {
        Engine::Sqlite => connection.batch("begin immediate")?,
        // Two processes may migrate at the same time: the second one waits for the lock and finds nothing left to do.
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
    let current = applied_version(connection, url)?;
    if current == 0 {
        connection.batch(&translate(
            connection.engine(),
            "create table trackway_migrations (version bigint not null primary key, name text not null, applied_at time not null)",
        ))?;
        if connection.engine() == Engine::Sqlite {
            connection.batch(&format!("pragma application_id = {APPLICATION_ID}"))?;
        }
    }
    for (number, name, text) in MIGRATIONS.iter().filter(|(number, ..)| *number > current && *number <= version) {
        connection.batch(&translate(connection.engine(), text))?;
        connection.execute(
            "insert into trackway_migrations (version, name, applied_at) values (?1, ?2, ?3)",
            params![*number, *name, Clock::system().now()],
        )?;
    }
    Ok(())
}

/// The schema version of a database; 0 if it is empty.
pub(crate) fn applied_version(connection: &mut Connection, url: &Url) -> Result<i64> {
    if is_empty(connection, url)? {
        return Ok(0);
    }
    let found = count(connection, "select max(version) from trackway_migrations")?;
    if found > known_version() {
        return Err(Error::SchemaTooNew { at: url.to_string(), found, known: known_version() });
    }
    Ok(found)
}

/// Column types in the migrations, and their names in SQLite and PostgreSQL.
const TYPES: [(&str, &str, &str); 9] = [
    ("uuid", "blob", "uuid"),
    ("time", "integer", "timestamptz"),
    ("json", "text", "jsonb"),
    ("flag", "integer", "boolean"),
    ("bigint", "integer", "bigint"),
    ("real", "real", "double precision"),
    ("bytes", "blob", "bytea"),
    // Sorts by bytes, as in SQLite, whatever the locale of the server.
    ("text", "text", "text collate \"C\""),
    ("counter", "integer primary key autoincrement", "bigint generated always as identity primary key"),
];

/// Enables the lines that are meant for one engine: they begin with `-- sqlite: ` or `-- postgres: `, which makes them
/// a comment for the other engine.
fn enable_engine_lines(engine: Engine, text: &str) -> String {
    let prefix = match engine {
        Engine::Sqlite => "-- sqlite: ",
        Engine::Postgres => "-- postgres: ",
    };
    text.split('\n').map(|line| line.strip_prefix(prefix).unwrap_or(line)).collect::<Vec<_>>().join("\n")
}

/// Translates a migration for an engine: its column types and its lines for one engine. On SQLite, tables are `strict`,
/// so that SQLite checks the types, too.
fn translate(engine: Engine, text: &str) -> String {
    let text = enable_engine_lines(engine, text);
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
        let type_name = TYPES.iter().find(|(name, ..)| *name == word).map(|(_, sqlite, postgres)| match engine {
            Engine::Sqlite => *sqlite,
            Engine::Postgres => *postgres,
        });
        out.push_str(type_name.unwrap_or(&word));
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
    use std::path::Path;

    use trackway_domain::{Time, kind::ResourceType};

    use super::*;

    const IN_STUDIOS: [&str; 6] = ["note", "decision", "option", "vote", "confirmation", "commitment"];

    #[test]
    fn migration_of_version_1_keeps_rows() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("old.db");
        let mut old = Connection::sqlite(&path, true).unwrap();
        old.batch(&translate(Engine::Sqlite, MIGRATIONS[0].2)).unwrap();
        old.batch(&format!(
            "create table trackway_migrations (version integer not null primary key, name text not null, applied_at integer not null) strict;
             insert into trackway_migrations values (1, 'core', 0); pragma application_id = {APPLICATION_ID};
             pragma foreign_keys = off;
             insert into tenants values (x'01', 'local', 0);
             insert into run_usage (id, tenant_id, run_id, message_id, created_at) values (x'02', x'01', x'03', 'msg', 0)"
        ))
        .unwrap();
        let url = Url::sqlite(&path);
        migrate_to_latest(&mut old, &url).unwrap();
        assert_eq!(applied_version(&mut old, &url).unwrap(), known_version());
        let remaining = old.query::<(String, String)>("select message_id, once_key from run_usage", &[]).unwrap();
        assert_eq!(remaining, [("msg".to_owned(), "msg".to_owned())]);
    }

    #[test]
    fn migration_links_old_runs_and_marks_newest_report_as_current() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("old.db");
        let mut old = Connection::sqlite(&path, true).unwrap();
        for (_, _, text) in MIGRATIONS.iter().filter(|(version, ..)| *version < 5) {
            old.batch(&translate(Engine::Sqlite, text)).unwrap();
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
        migrate_to_latest(&mut old, &Url::sqlite(&path)).unwrap();
        let links =
            old.query::<(Vec<u8>, Vec<u8>, i64)>("select from_agent_id, to_task_id, created_at from agent_links", &[]);
        assert_eq!(links.unwrap(), [(vec![0xaa], vec![0xbb], 10)]);
        let heads = old.query::<(Vec<u8>, i64)>("select report_id, revision from report_heads", &[]);
        assert_eq!(heads.unwrap(), [(vec![6], 1)]);
    }

    /// A database with the schema of an older version. Its foreign keys are not enforced.
    fn database_of_version(version: i64, path: &Path) -> Connection {
        let mut old = Connection::sqlite(path, true).unwrap();
        for (_, _, text) in MIGRATIONS.iter().filter(|(number, ..)| *number <= version) {
            old.batch(&translate(Engine::Sqlite, text)).unwrap();
        }
        old.batch(&format!(
            "create table trackway_migrations (version integer not null primary key, name text not null, applied_at integer not null) strict;
             insert into trackway_migrations values ({version}, 'old', 0); pragma application_id = {APPLICATION_ID}; pragma foreign_keys = off"
        ))
        .unwrap();
        old
    }

    #[test]
    fn migration_computes_current_versions_and_open_blockers() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("old.db");
        let mut old = database_of_version(11, &path);
        let task = |id: u8, lineage: u8, status: &str, archived: u8, replaced: u8, open_blockers: u8| {
            format!(
                "insert into tasks (id, tenant_id, variant, command, workflow_id, tags, labels, recurring, archived, status, status_since, priority,
                 revision, lineage_id, open_blockers, replaced, created_at, updated_at)
                 values (x'{id:02}', x'01', 't{id}', 't', x'02', '[]', '[]', 0, {archived}, '{status}', 0, 'P2', 1, x'{lineage:02}', {open_blockers}, {replaced}, 0, 0);"
            )
        };
        // Version 10 was replaced by 11, and 11 by 12, which is done. Later 10 was also replaced by 13, which is
        // archived. Both 10 and the archived 30 block 20; 12 blocks 13.
        let tasks = [
            task(10, 10, "open", 0, 1, 0),
            task(11, 10, "open", 0, 1, 0),
            task(12, 10, "done", 0, 0, 0),
            task(13, 10, "open", 1, 0, 1),
            task(20, 20, "open", 0, 0, 2),
            task(30, 30, "open", 1, 0, 0),
            task(40, 40, "open", 0, 0, 0),
            task(50, 50, "open", 0, 0, 0),
        ];
        let replaces = |new: u8, old: u8, at: u8| {
            format!("insert into task_replaces values (x'{new}', x'{old}', x'01', 'minor', null, {at}, {at});")
        };
        let blocks = |number: u8, from: u8, to: u8| {
            format!("insert into task_links values (x'{number}', x'01', x'{from}', x'{to}', 'blocks', 0, null);")
        };
        old.batch(&tasks.concat()).unwrap();
        old.batch(&[replaces(11, 10, 1), replaces(12, 11, 2), replaces(13, 10, 3)].concat()).unwrap();
        old.batch(&[blocks(60, 10, 20), blocks(61, 30, 20), blocks(62, 12, 13), blocks(63, 40, 50)].concat()).unwrap();
        migrate_to_latest(&mut old, &Url::sqlite(&path)).unwrap();
        let found = old.query::<(String, Option<String>, i64)>(
            "select t.variant, c.variant, t.open_blockers from tasks t left join tasks c on c.id = t.current_id order by t.variant",
            &[],
        );
        let row =
            |variant: &str, current: Option<&str>, blockers| (variant.to_owned(), current.map(str::to_owned), blockers);
        let expected = [
            row("t10", Some("t12"), 0),
            row("t11", Some("t12"), 0),
            row("t12", Some("t12"), 0),
            row("t13", None, 0),
            row("t20", Some("t20"), 0),
            row("t30", None, 0),
            row("t40", Some("t40"), 0),
            row("t50", Some("t50"), 1),
        ];
        assert_eq!(found.unwrap(), expected);
    }

    #[test]
    fn migration_counts_spawn_lines_from_one_and_marks_tentative_matches() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("old.db");
        let mut old = database_of_version(14, &path);
        let spawn = "insert into task_spawns (id, tenant_id, session_id, transcript, transcript_index, block, tool_use_id, background, matched_agent_id, evidence, created_at) values";
        let subagent = "insert into subagents (id, tenant_id, session_id, agent_id, task_match_index, spawnable, started_at) values";
        old.batch(&format!(
            "{spawn} (x'02', x'01', x'aa', 't', 1, 0, 't2', 0, 'a2', 'prompt_hash', 0), (x'03', x'01', x'aa', 't', 0, 0, 't1', 0, 'a1', 'role', 0),
                     (x'04', x'01', x'aa', 't', 2, 0, 't3', 0, null, null, 0), (x'05', x'01', x'aa', null, null, null, 't4', 0, null, null, 0);
             {subagent} (x'06', x'01', x'aa', 'a1', 0, 1, 0), (x'07', x'01', x'aa', 'a2', null, 1, 0)"
        ))
        .unwrap();
        migrate_to_latest(&mut old, &Url::sqlite(&path)).unwrap();
        let spawns = old.query::<(String, Option<i64>, bool)>(
            "select tool_use_id, transcript_index, tentative from task_spawns order by tool_use_id",
            &[],
        );
        let row = |call: &str, index, tentative| (call.to_owned(), index, tentative);
        let expected =
            [row("t1", Some(1), true), row("t2", Some(2), false), row("t3", Some(3), false), row("t4", None, false)];
        assert_eq!(spawns.unwrap(), expected);
        let indexes = old.query::<(Option<i64>,)>("select task_match_index from subagents order by agent_id", &[]);
        assert_eq!(indexes.unwrap(), [(Some(1),), (None,)]);
    }

    /// Checks that touches of schema version 11 remain, and that the newer schema accepts all resource types, but each
    /// touch only once per run, resource and action.
    fn check_touches_of_version_11(mut old: Connection, url: &Url) {
        let (references_off, at) = match old.engine() {
            Engine::Sqlite => ("pragma foreign_keys = off", "5000000"),
            Engine::Postgres => ("set session_replication_role = replica", "'1970-01-01T00:00:05Z'"),
        };
        let id = |byte: u8| match url {
            Url::Sqlite(_) => format!("x'{byte:032x}'"),
            Url::Postgres(_) => format!("'{byte:032x}'"),
        };
        let touch = |byte: u8, resource: u8, kind: &str| {
            let studio = if IN_STUDIOS.contains(&kind) { id(9) } else { "null".to_owned() };
            format!(
                "insert into run_resources (id, tenant_id, run_id, resource_type, resource_id, resource_studio_id, action_type, display_path, first_at, last_at, times)
                 values ({}, {}, {}, '{kind}', {}, {studio}, 'create', 'path', {at}, {at}, 7)",
                id(byte),
                id(1),
                id(2),
                id(resource)
            )
        };
        migrate_to(&mut old, url, 11).unwrap();
        old.batch(references_off).unwrap();
        old.batch(&touch(4, 4, "task")).unwrap();
        old.batch(&touch(3, 3, "note")).unwrap();
        assert!(old.batch(&touch(5, 5, "route")).is_err());

        migrate_to_latest(&mut old, url).unwrap();
        let remaining = old.query::<(ResourceType, Time, i64)>(
            "select resource_type, last_at, times from run_resources order by id",
            &[],
        );
        let at = Time::from_micros(5_000_000);
        assert_eq!(remaining.unwrap(), [(ResourceType::Note, at, 7), (ResourceType::Task, at, 7)]);
        for (kind, byte) in ResourceType::ALL.iter().zip(10..) {
            old.batch(&touch(byte, byte, kind.as_str())).unwrap();
        }
        assert!(old.batch(&touch(99, 99, "run")).is_err());
        assert!(old.batch(&touch(98, 4, "task")).is_err());
    }

    #[test]
    fn migration_keeps_touches_of_version_11_sqlite() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("old.db");
        check_touches_of_version_11(Connection::sqlite(&path, true).unwrap(), &Url::sqlite(&path));
        let mut new = Connection::sqlite(&path, false).unwrap();
        let indexes = "select name from sqlite_master where type = 'index' and tbl_name = 'run_resources' and sql is not null order by name";
        let indexes = new.query::<(String,)>(indexes, &[]).unwrap();
        let named = ["run_resources_by_resource", "run_resources_by_studio", "run_resources_once"];
        assert_eq!(indexes, named.map(|name| (name.to_owned(),)));
    }

    /// Checks that schema version 12 blocks the waiting items of an archived task, and puts the reason before the `why`
    /// of their requests.
    fn check_items_without_live_version(mut old: Connection, url: &Url) {
        let (references_off, at) = match old.engine() {
            Engine::Sqlite => ("pragma foreign_keys = off", "5000000"),
            Engine::Postgres => ("set session_replication_role = replica", "'1970-01-01T00:00:05Z'"),
        };
        let id = |byte: u8| match url {
            Url::Sqlite(_) => format!("x'{byte:032x}'"),
            Url::Postgres(_) => format!("'{byte:032x}'"),
        };
        let task = |byte: u8, variant: &str, archived: bool| {
            format!(
                "insert into tasks (id, tenant_id, variant, command, workflow_id, tags, labels, recurring, archived, status, status_since,
                 priority, revision, lineage_id, open_blockers, replaced, created_at, updated_at)
                 values ({task}, {tenant}, '{variant}', 'c', {tenant}, '[]', '[]', false, {archived}, 'open', {at}, 'P2', 1, {task}, 0, false, {at}, {at})",
                task = id(byte),
                tenant = id(1),
            )
        };
        let item = |byte: u8, task: u8, status: &str, why: &str| {
            format!(
                "insert into queue_items (id, tenant_id, status, why, tags, task_id, priority, in_queue_since, attempt, max_attempts,
                 fence, chain_depth, created_at)
                 values ({}, {}, '{status}', {why}, '[]', {}, 0, {at}, 0, 5, 0, 0, {at})",
                id(byte),
                id(1),
                id(task)
            )
        };
        migrate_to(&mut old, url, 11).unwrap();
        old.batch(references_off).unwrap();
        old.batch(&task(2, "live", false)).unwrap();
        old.batch(&task(3, "gone", true)).unwrap();
        old.batch(&item(4, 2, "ready", "null")).unwrap();
        old.batch(&item(5, 3, "ready", "'please'")).unwrap();
        old.batch(&item(6, 3, "waiting", "null")).unwrap();
        old.batch(&item(7, 3, "running", "null")).unwrap();

        migrate_to_latest(&mut old, url).unwrap();
        let items =
            old.query::<(String, Option<String>)>("select status, why from queue_items order by id", &[]).unwrap();
        let reason = "no live version of gone: it is archived or deleted, and no live version replaces it";
        let row = |status: &str, why: Option<String>| (status.to_owned(), why);
        let expected = [
            row("ready", None),
            row("blocked", Some(format!("{reason}\nplease"))),
            row("blocked", Some(reason.to_owned())),
            row("running", None),
        ];
        assert_eq!(items, expected);
    }

    #[test]
    fn migration_blocks_items_without_live_version_sqlite() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("old.db");
        check_items_without_live_version(Connection::sqlite(&path, true).unwrap(), &Url::sqlite(&path));
    }

    #[test]
    fn migration_blocks_items_without_live_version_postgres() {
        in_empty_schema(check_items_without_live_version);
    }

    /// Runs a test in an empty schema of the test server.
    fn in_empty_schema(test: impl FnOnce(Connection, &Url)) {
        let server = std::env::var("TRACKWAY_TEST_POSTGRES")
            .expect("TRACKWAY_TEST_POSTGRES is not set: run ./test, which starts PostgreSQL");
        let schema = format!("version_11_{}", uuid::Uuid::new_v4().simple());
        let mut old = Connection::postgres(&server).unwrap();
        old.batch(&format!("create schema {schema}; set search_path to {schema}")).unwrap();
        test(old, &Url::parse(&server).unwrap());
        Connection::postgres(&server).unwrap().batch(&format!("drop schema {schema} cascade")).unwrap();
    }

    #[test]
    fn migration_keeps_touches_of_version_11_postgres() {
        in_empty_schema(check_touches_of_version_11);
    }

    #[test]
    fn translation_changes_only_column_types() {
        let text = "create table a (\n    at time not null, timeout bigint, b flag check (c in ('flag', 'time'))\n);";
        assert_eq!(
            translate(Engine::Sqlite, text).trim_end(),
            "create table a (\n    at integer not null, timeout integer, b integer check (c in ('flag', 'time'))\n) strict;"
        );
        assert_eq!(
            translate(Engine::Postgres, text).trim_end(),
            "create table a (\n    at timestamptz not null, timeout bigint, b boolean check (c in ('flag', 'time'))\n);"
        );
    }

    #[test]
    fn translation_enables_lines_of_one_engine() {
        let text = "create index a on b (c);\n-- sqlite: create d;\n-- postgres: alter table b add e flag;\n-- f\n";
        assert_eq!(
            translate(Engine::Sqlite, text).trim_end(),
            "create index a on b (c);\ncreate d;\n-- postgres: alter table b add e integer;\n-- f"
        );
        assert_eq!(
            translate(Engine::Postgres, text).trim_end(),
            "create index a on b (c);\n-- sqlite: create d;\nalter table b add e boolean;\n-- f"
        );
    }
}

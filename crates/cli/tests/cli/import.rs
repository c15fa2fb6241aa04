//! `trackway import nagger`: the import reads every schema of claude-nagger and creates no duplicates, whether it runs
//! before or after hooks and ingest.

use std::{
    fs,
    path::{Path, PathBuf},
};

use serde_json::{Value, json};
use trackway_store::connection::Connection;
use trackway_testkit::Engine;

use crate::terminal::{Terminal, both_engines, column, run_command, run_command_with_input, text};

const SESSION: &str = "5e550000-0000-4000-8000-000000000001";
const FORK: &str = "5e550000-0000-4000-8000-000000000002";

/// The tables of claude-nagger's first schema.
pub const V1: &str = "
    create table schema_version (version integer primary key, applied_at text not null);
    create table subagents (agent_id text primary key, session_id text not null, agent_type text not null default 'unknown',
        role text, role_source text, created_at text not null, startup_processed integer not null default 0,
        startup_processed_at text, task_match_index integer);
    create table task_spawns (id integer primary key autoincrement, session_id text not null, transcript_index integer not null,
        subagent_type text, role text, prompt_hash text, matched_agent_id text, created_at text not null,
        unique (session_id, transcript_index));
    create table sessions (session_id text not null, hook_name text not null, created_at text not null,
        last_tokens integer default 0, status text not null default 'active', expired_at text,
        primary key (session_id, hook_name));
    create table hook_log (id integer primary key autoincrement, session_id text not null, hook_name text not null,
        event_type text not null, agent_id text, timestamp text not null, result text, details text, duration_ms integer);
    insert into schema_version values (1, '2026-01-01T00:00:00+00:00');";
/// The changes of nagger's second schema.
const V2: &str = "
    alter table task_spawns add column tool_use_id text;
    insert into schema_version values (2, '2026-01-02T00:00:00+00:00');";
/// The changes of nagger's schemas 3 to 9.
const V9: &str = "
    alter table subagents add column leader_transcript_path text;
    create table subagent_history (id integer primary key autoincrement, agent_id text not null, session_id text not null,
        agent_type text, role text, role_source text, leader_transcript_path text, started_at text not null, stopped_at text,
        issue_id text, agent_transcript_path text);
    create table transcript_lines (id integer primary key autoincrement, session_id text not null, line_number integer not null,
        line_type text, raw_json text not null, created_at text not null);
    alter table task_spawns add column issue_id text;
    alter table subagents add column issue_id text;
    create table convention_log (id integer primary key autoincrement, session_id text, tool_name text not null);
    insert into schema_version values (9, '2026-01-03T00:00:00+00:00');";

/// Prompts of the spawns with their hashes, in transcript order.
const BUILD: (&str, &str) = ("[ROLE:builder] do it", "e3546771ae352ee5");
const TEST: (&str, &str) = ("[ROLE:tester] test it", "7d4a2b76a84c7075");

/// Two agents of one type and two tagged spawns. nagger matched each agent to the spawn of the other agent.
fn nagger_rows(tool_use_ids: bool) -> String {
    let ids = if tool_use_ids { ", tool_use_id" } else { "" };
    let id = |id: &str| if tool_use_ids { format!(", '{id}'") } else { String::new() };
    format!(
        "insert into sessions values ('{SESSION}', 'startup', '2026-01-02T10:00:00.000001+00:00', 7, 'active', null);
         insert into sessions values ('{SESSION}', 'other', '2026-01-02T10:00:30+00:00', 7, 'expired', '2026-01-02T11:00:00+00:00');
         insert into subagents (agent_id, session_id, agent_type, role, role_source, created_at, task_match_index) values
             ('a1', '{SESSION}', 'coder', 'tester', 'task_match', '2026-01-02T10:01:00.123456+00:00', 3),
             ('a2', '{SESSION}', 'coder', 'builder', 'task_match', '2026-01-02T10:01:01+00:00', 2),
             ('a3', '{SESSION}', 'unknown', null, null, '2026-01-02T10:01:02+00:00', null);
         insert into task_spawns (session_id, transcript_index, subagent_type, role, prompt_hash, matched_agent_id, created_at{ids}) values
             ('{SESSION}', 2, 'coder', 'builder', '{}', 'a2', '2026-01-02T10:01:00.2+00:00'{}),
             ('{SESSION}', 3, 'coder', 'tester', '{}', 'a1', '2026-01-02T10:01:00.2+00:00'{});
         insert into hook_log (session_id, hook_name, event_type, timestamp) values ('{SESSION}', 'h', 'e', 't');",
        BUILD.1,
        id("toolu_1"),
        TEST.1,
        id("toolu_2"),
    )
}

/// A claude-nagger database (its `state.db`) and the terminal that imports it.
struct NaggerDatabase<'a> {
    terminal: &'a Terminal,
    file: PathBuf,
}

impl<'a> NaggerDatabase<'a> {
    fn with(terminal: &'a Terminal, sql: &[&str]) -> Self {
        let file = terminal.home.path().join("nagger ?#%.db");
        Connection::sqlite(&file, true).unwrap().batch(&sql.concat()).unwrap();
        Self { terminal, file }
    }

    fn sql(&self, sql: &str) {
        Connection::sqlite(&self.file, false).unwrap().batch(sql).unwrap();
    }

    #[track_caller]
    fn import(&self) -> Value {
        self.terminal.json(&["import", "nagger", self.file.to_str().unwrap()])
    }

    /// Imports and returns the number of new sessions, subagents, spawns and matches, and of rows left out.
    #[track_caller]
    fn import_counts(&self) -> [i64; 5] {
        counts(&self.import())
    }

    /// Ingests the transcript of the same session, which has the correct matches.
    fn ingest_transcript(&self) {
        self.ingest_transcript_after("");
    }

    /// Ingests a transcript that begins with these lines.
    fn ingest_transcript_after(&self, lines: &str) {
        let folder = self.terminal.home.path().join("transcripts");
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join(format!("{SESSION}.jsonl")), lines.to_owned() + &transcript()).unwrap();
        self.terminal.json(&["ingest", folder.to_str().unwrap()]);
    }
}

fn counts(imported: &Value) -> [i64; 5] {
    ["sessions", "subagents", "spawns", "matched", "left_out"].map(|count| imported[count].as_i64().unwrap())
}

fn transcript() -> String {
    let line = |number: i64, kind: &str, more: Value| {
        let mut line = json!({
            "type": kind, "uuid": format!("line-{number}"), "sessionId": SESSION, "cwd": "/nowhere/project", "version": "2.1.40",
            "timestamp": format!("2026-01-02T10:0{}:5{number}.000Z", number / 3),
        });
        line.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        line.to_string()
    };
    let call = |number, id: &str, prompt: &str| {
        let input = json!({ "subagent_type": "coder", "description": "work", "prompt": prompt });
        let content = json!([{ "type": "tool_use", "id": id, "name": "Task", "input": input }]);
        line(number, "assistant", json!({ "message": { "id": format!("m{number}"), "content": content } }))
    };
    let result = |number, id: &str, agent: &str| {
        let content = json!([{ "type": "tool_result", "tool_use_id": id, "content": "done" }]);
        line(
            number,
            "user",
            json!({ "message": { "content": content }, "toolUseResult": { "status": "completed", "agentId": agent } }),
        )
    };
    [
        line(0, "user", json!({ "message": { "role": "user", "content": "go" } })),
        call(1, "toolu_1", BUILD.0),
        call(2, "toolu_2", TEST.0),
        result(3, "toolu_1", "a1"),
        result(4, "toolu_2", "a2"),
        String::new(),
    ]
    .join("\n")
}

/// All sessions, subagents, spawns and matches in a comparable form: without generated ids and current times.
fn comparable_sessions(terminal: &Terminal) -> Value {
    let without = |mut rows: Value, fields: &[&str]| {
        rows.as_array_mut().unwrap().sort_by_key(|row| (row["agent_id"].to_string(), row["tool_use_id"].to_string()));
        for row in rows.as_array_mut().unwrap() {
            for field in fields {
                row.as_object_mut().unwrap().remove(*field);
            }
        }
        rows
    };
    let spawns = terminal.json(&["spawn", "list"]);
    let matches: Vec<Value> = column(&spawns, "tool_use_id")
        .iter()
        .map(|id| {
            let mut matches = terminal.json(&["spawn", "show", id])["matches"].clone();
            for row in matches.as_array_mut().unwrap() {
                row["withdrawn_at"] = json!(row["withdrawn_at"].is_string());
                if row["evidence"] != "subagent_type" {
                    row["created_at"] = Value::Null;
                }
            }
            matches
        })
        .collect();
    json!({
        "sessions": without(terminal.json(&["session", "list"]), &["workspace_id", "transcript_path"]),
        "subagents": without(terminal.json(&["subagent", "list"]), &["run_id"]),
        "spawns": without(spawns, &["id", "run_id", "transcript"]),
        "matches": matches,
        "workspaces": column(&terminal.json(&["workspace", "list"]), "name"),
    })
}

fn new_terminal_on_same_engine(terminal: &Terminal) -> Terminal {
    Terminal::new(if terminal.database.url_text().starts_with("sqlite:") { Engine::Sqlite } else { Engine::Postgres })
}

both_engines! {
    fn nagger_rows_are_imported_once(terminal: Terminal) {
        let nagger = NaggerDatabase::with(&terminal, &[V1, V2, &nagger_rows(true)]);
        let path = nagger.file.to_str().unwrap();
        assert_eq!(counts(&terminal.json(&["import", "nagger", path, "--dry-run"])), [1, 3, 2, 2, 0]);
        assert_eq!(terminal.json(&["session", "list"]), json!([]));

        let imported = nagger.import();
        assert_eq!((counts(&imported), &imported["notices"]), ([1, 3, 2, 2, 0], &json!(["not imported: hook_log (1 row)"])));
        let session = &terminal.json(&["session", "list"])[0];
        assert_eq!((&session["id"], &session["started_at"]), (&json!(SESSION), &json!("2026-01-02T10:00:00.000001Z")));
        assert_eq!((&session["workspace"], &session["runs"], &session["subagents"]), (&Value::Null, &json!(0), &json!(3)));

        let subagents = terminal.json(&["subagent", "list"]);
        assert_eq!(column(&subagents, "agent_id"), ["a1", "a2", "a3"]);
        assert_eq!(column(&subagents, "agent_type"), ["coder", "coder", "null"]);
        assert_eq!(column(&subagents, "role"), ["tester", "builder", "null"]);
        assert_eq!(column(&subagents, "role_source"), ["task_match", "task_match", "null"]);
        assert_eq!(column(&subagents, "task_match_index"), ["3", "2", "null"]);
        assert_eq!(column(&subagents, "started_at")[0], "2026-01-02T10:01:00.123456Z");

        let spawns = terminal.json(&["spawn", "list", "--tagged"]);
        assert_eq!(column(&spawns, "tool_use_id"), ["toolu_1", "toolu_2"]);
        assert_eq!(column(&spawns, "transcript_index"), ["2", "3"]);
        assert_eq!(column(&spawns, "role"), ["builder", "tester"]);
        assert_eq!(column(&spawns, "prompt_hash"), [BUILD.1, TEST.1]);
        assert_eq!(column(&spawns, "agent_id"), ["a2", "a1"]);
        // This schema stores no evidence, so every match is imported as tentative.
        assert_eq!(column(&spawns, "evidence"), ["subagent_type", "subagent_type"]);
        assert_eq!(column(&spawns, "tentative"), ["true", "true"]);
        assert_eq!(column(&spawns, "created_at"), ["2026-01-02T10:01:00.200Z", "2026-01-02T10:01:00.200Z"]);
        let matches = &terminal.json(&["spawn", "show", "toolu_1"])["matches"];
        assert_eq!(column(matches, "created_at"), ["2026-01-02T10:01:01.000Z"]);

        let (before, events) = (comparable_sessions(&terminal), terminal.json(&["event", "list"]));
        assert_eq!(column(&events, "action")[..2], ["import_nagger", "observe_session"]);
        assert_eq!(nagger.import_counts(), [0, 0, 0, 0, 0]);
        assert_eq!((comparable_sessions(&terminal), terminal.json(&["event", "list"])), (before, events));
        // The import creates no WAL file beside nagger's database.
        let beside: Vec<_> = fs::read_dir(terminal.home.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert!(!beside.iter().any(|name| name.to_string_lossy().ends_with("-wal")), "{beside:?}");

        nagger.sql("update schema_version set version = 3 where version = 2; insert into task_spawns
            (session_id, transcript_index, subagent_type, role, tool_use_id, created_at)
            values ('5e550000-0000-4000-8000-000000000001', 9, 'coder', 'x', 'toolu_9', '2026-01-02T12:00:00+00:00')");
        assert_eq!(nagger.import_counts(), [0, 0, 1, 0, 0]);
    }

    fn spawn_without_tool_use_id_gets_a_stable_id(terminal: Terminal) {
        let nagger = NaggerDatabase::with(&terminal, &[V1, &nagger_rows(false)]);
        assert_eq!(nagger.import_counts(), [1, 3, 2, 2, 0]);
        let stable = [format!("nagger:{SESSION}:2"), format!("nagger:{SESSION}:3")];
        assert_eq!(column(&terminal.json(&["spawn", "list"]), "tool_use_id"), stable);
        // When nagger migrates to its second schema, old rows still have no tool_use_id.
        nagger.sql(V2);
        assert_eq!(nagger.import_counts(), [0, 0, 0, 0, 0]);
        assert_eq!(column(&terminal.json(&["spawn", "list"]), "evidence"), ["subagent_type", "subagent_type"]);
    }

    fn import_before_or_after_ingest_gives_the_same_result(terminal: Terminal) {
        for (schema, ids) in [(vec![V1], false), (vec![V1, V2], true)] {
            let (first, second) = (new_terminal_on_same_engine(&terminal), new_terminal_on_same_engine(&terminal));
            let rows = nagger_rows(ids);
            let sql = [schema, vec![rows.as_str()]].concat();
            let (before, after) = (NaggerDatabase::with(&first, &sql), NaggerDatabase::with(&second, &sql));
            assert_eq!(before.import_counts(), [1, 3, 2, 2, 0]);
            before.ingest_transcript();
            assert_eq!(before.import_counts(), [0, 0, 0, 0, 0]);
            after.ingest_transcript();
            // nagger's matches are stored as withdrawn, because the transcript has exact evidence.
            assert_eq!(after.import_counts(), [0, 1, 0, 0, 0]);
            assert_eq!(after.import_counts(), [0, 0, 0, 0, 0]);

            let actual = comparable_sessions(&first);
            assert_eq!(actual, comparable_sessions(&second));
            let spawns = &actual["spawns"];
            assert_eq!(column(spawns, "tool_use_id"), ["toolu_1", "toolu_2"]);
            assert_eq!(column(spawns, "transcript_index"), ["2", "3"]);
            assert_eq!(column(spawns, "agent_id"), ["a1", "a2"]);
            assert_eq!(column(spawns, "evidence"), ["tool_result", "tool_result"]);
            assert_eq!(column(spawns, "created_at"), ["2026-01-02T10:00:51.000Z", "2026-01-02T10:00:52.000Z"]);
            assert_eq!(column(spawns, "role"), ["builder", "tester"]);
            assert_eq!(column(&actual["subagents"], "role"), ["builder", "tester", "null"]);
            assert_eq!(column(&actual["matches"][0], "withdrawn_at"), ["true", "false"]);
            assert_eq!(actual["workspaces"], json!(["project"]));
            let spawn_id = first.json(&["spawn", "show", "toolu_1"])["id"].clone();
            assert_eq!(first.json(&["why", &text(&spawn_id)])["chain"][0]["label"], "toolu_1");
        }
    }

    fn spawn_without_id_is_matched_by_line_number_which_counts_blank_and_bad_lines(terminal: Terminal) {
        let nagger = NaggerDatabase::with(&terminal, &[V1, &nagger_rows(false)]);
        // Both rows have the same prompt, so only the line number tells them apart.
        nagger.sql(&format!("update task_spawns set transcript_index = transcript_index + 3, prompt_hash = '{}'", BUILD.1));
        assert_eq!(nagger.import_counts(), [1, 3, 2, 2, 0]);
        nagger.ingest_transcript_after("\nhalf a li\n[]\n");
        let spawns = terminal.json(&["spawn", "list"]);
        let mut actual: Vec<_> = column(&spawns, "tool_use_id").into_iter().zip(column(&spawns, "transcript_index")).collect();
        actual.sort();
        let other = format!("nagger:{SESSION}:6");
        let expected = [(other.as_str(), "6"), ("toolu_1", "5"), ("toolu_2", "6")];
        assert_eq!(actual, expected.map(|(id, index)| (id.to_owned(), index.to_owned())));
    }

    fn import_between_hook_events_creates_no_duplicates(terminal: Terminal) {
        for (schema, ids) in [(vec![V1], false), (vec![V1, V2], true)] {
            let terminal = new_terminal_on_same_engine(&terminal);
            let send_hook = |input: Value| {
                let mut event = json!({ "session_id": SESSION, "cwd": "/nowhere/project" });
                event.as_object_mut().unwrap().extend(input.as_object().unwrap().clone());
                let output = run_command_with_input(terminal.command(&["hook"]), event.to_string().as_bytes());
                assert_eq!((output.code, output.stderr.as_str()), (0, ""));
            };
            let input = json!({ "subagent_type": "coder", "prompt": BUILD.0 });
            send_hook(json!({ "hook_event_name": "PreToolUse", "tool_name": "Task", "tool_use_id": "toolu_1", "tool_input": input }));
            // nagger writes its row after the call, and the hook above reported the call just now.
            let rows = nagger_rows(ids).replace("2026-01-02T10:01:00.2", "2099-01-02T10:01:00.2");
            let nagger = NaggerDatabase::with(&terminal, &[schema, vec![rows.as_str()]].concat());
            assert_eq!(nagger.import_counts(), [0, 3, 1, 2, 0]);
            send_hook(json!({
                "hook_event_name": "PostToolUse", "tool_name": "Task", "tool_use_id": "toolu_1", "tool_input": input,
                "tool_response": { "status": "completed", "agentId": "a1" },
            }));
            send_hook(json!({ "hook_event_name": "SubagentStart", "agent_id": "a3", "agent_type": "reviewer" }));
            assert_eq!(nagger.import_counts(), [0, 0, 0, 0, 0]);
            let spawns = terminal.json(&["spawn", "list", "--session", SESSION]);
            let mut actual: Vec<_> = column(&spawns, "tool_use_id").into_iter().zip(column(&spawns, "evidence")).collect();
            actual.sort();
            let other = if ids { "toolu_2".to_owned() } else { format!("nagger:{SESSION}:3") };
            let mut expected = [("toolu_1".to_owned(), "post_tool_use".to_owned()), (other, "subagent_type".to_owned())];
            expected.sort();
            // nagger matched a2 to toolu_1; exact evidence gives toolu_1 to a1, so a2 takes the other spawn.
            assert_eq!(actual, expected);
            let subagents = terminal.json(&["subagent", "list"]);
            assert_eq!(column(&subagents, "agent_type"), ["coder", "coder", "reviewer"]);
            assert_eq!(column(&terminal.json(&["workspace", "list"]), "name"), ["project"]);
        }
    }

    fn schema_9_adds_history_evidence_and_transcript_paths(terminal: Terminal) {
        let nagger = NaggerDatabase::with(&terminal, &[V1, V2, V9, &format!("
            insert into subagents (agent_id, session_id, agent_type, role, role_source, created_at, task_match_index, leader_transcript_path) values
                ('old', '{SESSION}', 'coder', 'coder', 'task_match', '2026-01-02T23:00:00+00:00', 2, '/t/{SESSION}.jsonl'),
                ('new', '{SESSION}', 'coder-7', 'coder', 'task_match', '2026-01-03T01:00:00+00:00', 3, null),
                ('again', '{SESSION}', 'tester', 'tester', 'retry_match', '2026-01-02T22:00:00+00:00', 4, null),
                ('cross', '{SESSION}', 'general', 'x', 'task_match', '2026-01-02T22:30:00+00:00', 5, null),
                ('named', '{SESSION}', 'tl:reviewer', 'reviewer', 'trusted_prefix', '2026-01-03T02:00:00+00:00', null, null);
            insert into subagent_history (agent_id, session_id, agent_type, role, role_source, started_at, stopped_at) values
                ('gone', '{SESSION}', 'coder', 'builder', 'transcript_parse', '2026-01-02T20:00:00+00:00', '2026-01-02T20:10:00+00:00'),
                ('gone', '{SESSION}', 'coder', 'builder', 'transcript_parse', '2026-01-02T21:00:00+00:00', '2026-01-02T21:10:00+00:00');
            insert into task_spawns (session_id, transcript_index, subagent_type, role, tool_use_id, matched_agent_id, created_at) values
                ('{SESSION}', 2, 'coder', 'coder', 'toolu_1', 'old', '2026-01-02T23:00:00+00:00'),
                ('{SESSION}', 3, 'coder-7', 'coder', 'toolu_2', 'new', '2026-01-03T01:00:00+00:00'),
                ('{SESSION}', 4, 'tester', 'tester', 'toolu_3', 'again', '2026-01-02T22:00:00+00:00'),
                ('{SESSION}', 5, 'coder', 'x', 'toolu_4', 'cross', '2026-01-02T22:30:00+00:00'),
                ('{SESSION}', 6, 'coder', 'lead', 'toolu_5', null, '2026-01-03T03:00:00+00:00'),
                ('{SESSION}', 7, 'coder', 'x', 'toolu_6', 'lost', '2026-01-02T23:30:00+00:00');")]);
        assert_eq!(nagger.import_counts(), [1, 7, 6, 5, 0]);
        let listed = terminal.json(&["subagent", "list"]);
        let subagent = |agent: &str| listed.as_array().unwrap().iter().find(|row| row["agent_id"] == agent).unwrap().clone();
        let shown = |agent: &str| subagent(agent)["role"].as_str().map(|role| format!("{role} {}", text(&subagent(agent)["role_source"])));
        assert_eq!(shown("gone").as_deref(), Some("builder transcript_parse"));
        assert_eq!(shown("named").as_deref(), Some("reviewer subagent_type"));
        assert_eq!(shown("again").as_deref(), Some("tester retry_match"));
        // The agent has no row of its own; only its spawn names it.
        assert_eq!((shown("lost").as_deref(), &subagent("lost")["agent_type"]), (Some("x task_match"), &json!("coder")));
        assert_eq!((&subagent("gone")["started_at"], &subagent("gone")["stopped_at"]), (&json!("2026-01-02T20:00:00.000Z"), &json!("2026-01-02T21:10:00.000Z")));
        let spawn = |id: &str| {
            let spawn = terminal.json(&["spawn", "show", id]);
            format!("{} {}", text(&spawn["role_source"]), spawn["evidence"].as_str().unwrap_or("none"))
        };
        assert_eq!(spawn("toolu_1"), "prompt_tag subagent_type");
        assert_eq!(spawn("toolu_2"), "subagent_type agent_progress");
        assert_eq!(spawn("toolu_3"), "prompt_tag agent_progress");
        assert_eq!(spawn("toolu_4"), "prompt_tag agent_progress");
        assert_eq!(spawn("toolu_5"), "name none");
        assert_eq!(spawn("toolu_6"), "prompt_tag subagent_type");
        assert_eq!(terminal.json(&["session", "show", SESSION])["transcript_path"], format!("/t/{SESSION}.jsonl"));
        let before = comparable_sessions(&terminal);
        assert_eq!(nagger.import_counts(), [0, 0, 0, 0, 0]);
        assert_eq!(comparable_sessions(&terminal), before);
    }

    fn newer_schema_imports_known_columns_and_reports_the_others(terminal: Terminal) {
        let nagger = NaggerDatabase::with(&terminal, &[V1, V2, V9, &nagger_rows(true), "
            alter table task_spawns add column cost real;
            create table moods (mood text); insert into moods values ('fine'), ('well');
            insert into schema_version values (10, '2026-02-01T00:00:00+00:00')"]);
        let imported = nagger.import();
        assert_eq!(counts(&imported), [1, 3, 2, 2, 0]);
        assert_eq!(imported["notices"], json!([
            "schema version 10 is newer than the newest supported version 9: only known tables and columns were imported",
            "not imported: hook_log (1 row), moods (2 rows), task_spawns.cost",
        ]));
        let printed = run_command(terminal.command(&["import", "nagger", nagger.file.to_str().unwrap()]));
        assert!(printed.code == 0 && printed.stderr.contains("note: not imported: hook_log"), "{printed:?}");
    }

    fn unusable_rows_are_left_out_and_counted(terminal: Terminal) {
        let nagger = NaggerDatabase::with(&terminal, &[V1, V2, &nagger_rows(true), &format!("
            insert into sessions values ('', 'startup', '2026-01-02T10:00:00+00:00', 0, 'active', null);
            insert into subagents (agent_id, session_id, created_at) values ('b1', '{SESSION}', 'yesterday'), (char(7), '{SESSION}', '2026-01-02T10:00:00+00:00'),
                ('elsewhere', '{FORK}', '2026-01-02T13:00:00+00:00');
            insert into task_spawns (session_id, transcript_index, tool_use_id, matched_agent_id, created_at) values
                ('{SESSION}', 'here', 'toolu_8', null, '2026-01-02T10:00:00+00:00'),
                ('{SESSION}', 8, 'toolu_9', 'elsewhere', '2026-01-02T10:00:00+00:00'),
                ('{FORK}', 2, 'toolu_1', null, '2026-01-02T13:00:00+00:00');")]);
        let imported = nagger.import();
        assert_eq!(counts(&imported), [2, 4, 3, 2, 6]);
        assert_eq!(imported["notices"].as_array().unwrap()[1..], [
            json!("left out rows without a usable id, line or time: 4"),
            json!("left out calls that another session made first: 1"),
            json!("left out matches with an agent of another session: 1"),
        ]);
        assert_eq!(column(&terminal.json(&["spawn", "list", "--session", FORK]), "tool_use_id"), [""; 0]);
        assert_eq!(nagger.import_counts(), [0, 0, 0, 0, 6]);
    }

    fn spawn_imported_for_a_fork_moves_to_the_original_session(terminal: Terminal) {
        let nagger = NaggerDatabase::with(&terminal, &[V1, V2, &nagger_rows(true).replace(SESSION, FORK)]);
        assert_eq!(nagger.import_counts(), [1, 3, 2, 2, 0]);
        nagger.ingest_transcript();
        let spawns = terminal.json(&["spawn", "list"]);
        assert_eq!(column(&spawns, "session_id"), [SESSION, SESSION]);
        assert_eq!(column(&spawns, "evidence"), ["tool_result", "tool_result"]);
        assert_eq!(nagger.import_counts(), [0, 0, 0, 0, 2]);
    }

    fn invalid_or_locked_nagger_database_imports_nothing(terminal: Terminal) {
        let home = terminal.home.path();
        let path_of = |name: &str| home.join(name).to_str().unwrap().to_owned();
        let import_error = |path: &str| terminal.expect_error(&["import", "nagger", path]);
        let usage_error = |name: &str, problem: &str| (2, format!("{} {problem}", path_of(name)));
        let before = terminal.json(&["event", "list"]);

        assert_eq!(import_error(&path_of("none.db")), (3, format!("there is no file {}", path_of("none.db"))));
        assert_eq!(import_error(home.to_str().unwrap()), (2, format!("{} is a directory", home.display())));
        fs::write(home.join("text.db"), "SQLite it is not").unwrap();
        fs::write(home.join("empty.db"), "").unwrap();
        assert_eq!(import_error(&path_of("text.db")), usage_error("text.db", "is not an SQLite database"));
        assert_eq!(import_error(&path_of("empty.db")), usage_error("empty.db", "is not an SQLite database"));
        assert_eq!(import_error("/dev/null"), (2, "/dev/null is not an SQLite database".into()));
        Connection::sqlite(&home.join("other.db"), true).unwrap().batch("create table task_spawns (id integer)").unwrap();
        assert_eq!(import_error(&path_of("other.db")), usage_error("other.db", "is not a database of claude-nagger"));
        let ours = Terminal::new(Engine::Sqlite);
        let path = ours.database.url_text().replace("sqlite:", "");
        assert_eq!(import_error(&path), (2, format!("{path} is not a database of claude-nagger")));

        let nagger = NaggerDatabase::with(&terminal, &[V1, V2, &nagger_rows(true)]);
        let original = fs::read(&nagger.file).unwrap();
        for part in [50, 100, 5_000, original.len() / 2, original.len() - 4_096, original.len() - 1] {
            fs::write(home.join("part.db"), &original[..part]).unwrap();
            let (code, message) = import_error(&path_of("part.db"));
            assert!(code == 2 && (message.contains("is damaged") || message.contains("is not an SQLite")), "{part}: {message}");
        }
        let mut damaged = original.clone();
        damaged[4_096..].fill(0xa5);
        fs::write(home.join("damaged.db"), &damaged).unwrap();
        assert_eq!(import_error(&path_of("damaged.db")).0, 2);

        let mut other = Connection::sqlite(&nagger.file, false).unwrap();
        other.batch("pragma journal_mode = delete; begin exclusive").unwrap();
        let (code, message) = import_error(nagger.file.to_str().unwrap());
        assert_eq!((code, message), (5, format!("the database is busy: {} is in use by another program", nagger.file.display())));
        assert_eq!(terminal.json(&["event", "list"]), before);
        other.batch("rollback; pragma journal_mode = wal; begin exclusive; update sessions set status = 'half'").unwrap();
        // A writer in WAL mode does not block the import.
        assert_eq!(nagger.import_counts(), [1, 3, 2, 2, 0]);
    }

    fn agent_may_not_import_nagger_database(terminal: Terminal) {
        let (_, token) = terminal.start_run(&["--agent", "worker"]);
        let (code, message) = terminal.expect_error_with_token(Some(&token), &["import", "nagger", "x.db"]);
        assert_eq!((code, message.as_str()), (6, "agent worker may not import_nagger"));
        assert!(!Path::new("x.db").exists());
    }
}

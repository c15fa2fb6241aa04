//! Reads the `state.db` of claude-nagger in all its schema versions: 1 and 2 (`tool_use_id`), 3 (transcript of the
//! parent), 4 (history of ended subagents), 5 to 7 (transcripts), 8 (`issue_id`), 9 (log of conventions).

use std::{collections::BTreeMap, path::Path};

use trackway_domain::{Error as DomainError, Time};

use super::{ForeignDatabase, Record};
use crate::error::Result;

/// The newest schema version of claude-nagger that this reader supports.
pub const KNOWN_VERSION: i64 = 9;

/// The known tables with all columns of any version.
const TABLES: [(&str, &[&str]); 5] = [
    ("schema_version", &["version", "applied_at"]),
    ("sessions", &["session_id", "created_at", "hook_name", "last_tokens", "status", "expired_at"]),
    (
        "subagents",
        &[
            "session_id",
            "agent_id",
            "agent_type",
            "role",
            "role_source",
            "leader_transcript_path",
            "created_at",
            "task_match_index",
            "startup_processed",
            "startup_processed_at",
            "issue_id",
        ],
    ),
    (
        "subagent_history",
        &[
            "session_id",
            "agent_id",
            "agent_type",
            "role",
            "role_source",
            "leader_transcript_path",
            "started_at",
            "stopped_at",
            "id",
            "issue_id",
            "agent_transcript_path",
        ],
    ),
    (
        "task_spawns",
        &[
            "session_id",
            "transcript_index",
            "subagent_type",
            "role",
            "prompt_hash",
            "tool_use_id",
            "matched_agent_id",
            "created_at",
            "id",
            "issue_id",
        ],
    ),
];
/// Tables and columns that identify a claude-nagger database. Every schema version has them.
const REQUIRED: [(&str, &[&str]); 3] = [
    ("schema_version", &["version"]),
    ("subagents", &["session_id", "agent_id", "created_at"]),
    ("task_spawns", &["session_id", "transcript_index", "matched_agent_id", "created_at"]),
];

/// The rows to import, unchanged.
#[derive(Debug, Default)]
pub struct NaggerDatabase {
    /// The applied schema versions, each with its time.
    pub versions: Vec<(i64, Option<Time>)>,
    pub sessions: Vec<Session>,
    /// First the rows of `subagents`, then those of `subagent_history`, oldest first.
    pub subagents: Vec<Subagent>,
    pub spawns: Vec<Spawn>,
    /// Descriptions of what is not imported, such as `hook_log (3 rows)`.
    pub not_imported: Vec<String>,
}

/// A hook call in a session.
#[derive(Debug)]
pub struct Session {
    pub session_id: Option<String>,
    pub created_at: Option<Time>,
}

#[derive(Debug)]
pub struct Subagent {
    pub session_id: Option<String>,
    pub agent_id: Option<String>,
    pub agent_type: Option<String>,
    pub role: Option<String>,
    pub role_source: Option<String>,
    pub leader_transcript_path: Option<String>,
    pub started_at: Option<Time>,
    pub stopped_at: Option<Time>,
    /// Line number of the spawn in the parent's transcript, from 1.
    pub task_match_index: Option<i64>,
}

#[derive(Debug)]
pub struct Spawn {
    pub session_id: Option<String>,
    /// Line number in the parent's transcript, from 1.
    pub transcript_index: Option<i64>,
    pub subagent_type: Option<String>,
    pub role: Option<String>,
    pub prompt_hash: Option<String>,
    pub tool_use_id: Option<String>,
    pub matched_agent_id: Option<String>,
    /// The time at which claude-nagger read the call in the transcript, which is after the call.
    pub created_at: Option<Time>,
}

impl NaggerDatabase {
    /// The current schema version.
    pub fn version(&self) -> i64 {
        self.versions.iter().map(|(version, _)| *version).max().unwrap_or_default()
    }
}

pub fn read(path: &Path) -> Result<NaggerDatabase> {
    let foreign = ForeignDatabase::open(path)?;
    let tables = foreign.tables()?;
    for (table, columns) in REQUIRED {
        let existing = tables.get(table).map(Vec::as_slice).unwrap_or_default();
        if let Some(missing) = columns.iter().find(|column| !existing.iter().any(|name| name == *column)) {
            return Err(DomainError::usage(format!("{} is not a database of claude-nagger", path.display()))
                .hint(format!("it has no {table}.{missing}; the file of claude-nagger is .claude-nagger/state.db"))
                .into());
        }
    }
    let select = |table: &str| {
        let columns = TABLES.iter().find(|(name, _)| *name == table).map_or(&[][..], |(_, columns)| *columns);
        foreign.select(&tables, table, columns)
    };
    let mut nagger = NaggerDatabase {
        versions: select("schema_version")?
            .iter()
            .map(|row| (row.integer(0).unwrap_or_default(), row.time(1)))
            .collect(),
        sessions: select("sessions")?
            .iter()
            .map(|row| Session { session_id: row.text(0), created_at: row.time(1) })
            .collect(),
        subagents: select("subagents")?
            .iter()
            .map(|row| Subagent { task_match_index: row.integer(7), stopped_at: None, ..subagent(row) })
            .chain(select("subagent_history")?.iter().map(subagent))
            .collect(),
        spawns: select("task_spawns")?.iter().map(spawn).collect(),
        not_imported: Vec::new(),
    };
    nagger.not_imported = tables_not_imported(&foreign, &tables, nagger.version())?;
    foreign.close()?;
    Ok(nagger)
}

fn subagent(row: &Record) -> Subagent {
    Subagent {
        session_id: row.text(0),
        agent_id: row.text(1),
        agent_type: row.text(2),
        role: row.text(3),
        role_source: row.text(4),
        leader_transcript_path: row.text(5),
        started_at: row.time(6),
        stopped_at: row.time(7),
        task_match_index: None,
    }
}

fn spawn(row: &Record) -> Spawn {
    Spawn {
        session_id: row.text(0),
        transcript_index: row.integer(1),
        subagent_type: row.text(2),
        role: row.text(3),
        prompt_hash: row.text(4),
        tool_use_id: row.text(5),
        matched_agent_id: row.text(6),
        created_at: row.time(7),
    }
}

/// Describes tables that are not imported and, in a newer schema, unknown columns.
fn tables_not_imported(
    foreign: &ForeignDatabase,
    tables: &BTreeMap<String, Vec<String>>,
    version: i64,
) -> Result<Vec<String>> {
    let mut descriptions = Vec::new();
    for (table, columns) in tables {
        match TABLES.iter().find(|(known, _)| known == table) {
            None => match foreign.count(table)? {
                0 => {}
                1 => descriptions.push(format!("{table} (1 row)")),
                count => descriptions.push(format!("{table} ({count} rows)")),
            },
            Some((_, known)) if version > KNOWN_VERSION => {
                let unknown = columns.iter().filter(|column| !known.contains(&column.as_str()));
                descriptions.extend(unknown.map(|column| format!("{table}.{column}")));
            }
            Some(_) => {}
        }
    }
    Ok(descriptions)
}

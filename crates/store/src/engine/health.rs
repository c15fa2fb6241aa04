//! Health of a database: its engine, damage, disk space, and leftovers of interrupted restores and moves.

use std::path::{Path, PathBuf};

use crate::{
    connection::{Connection, Engine},
    error::{Error, Result},
    store::Store,
    transfer::staging::{FILLING_LOCK, STAGING_SCHEMA},
    url::Url,
};

/// The facts that `trackway doctor` checks.
#[derive(Debug, Clone, PartialEq)]
pub struct Health {
    /// The version that the engine reports.
    pub version: String,
    /// The first error that SQLite's quick check finds. Always absent on PostgreSQL, which checks its own files.
    pub corruption: Option<String>,
    /// Size of the database in bytes.
    pub bytes: i64,
    /// Free bytes on the disk of the SQLite file.
    pub free_bytes: Option<u64>,
    /// The file or schema that an interrupted restore or move left behind. The file or schema of a running one does not
    /// count.
    pub leftover_staging: Option<String>,
}

impl Store {
    pub fn health(&self) -> Result<Health> {
        let mut read = self.read(uuid::Uuid::nil().into())?;
        let mut text = |sql: &str| -> Result<Option<String>> {
            Ok(read.query_unscoped::<(String,)>(sql, &[])?.into_iter().next().map(|(value,)| value))
        };
        match self.url() {
            Url::Sqlite(path) => Ok(Health {
                version: text("select sqlite_version()")?.unwrap_or_default(),
                corruption: text("pragma quick_check(1)")?.filter(|result| result != "ok"),
                bytes: path.metadata().map_or(0, |file| i64::try_from(file.len()).unwrap_or(i64::MAX)),
                free_bytes: free_bytes_on_disk(path),
                leftover_staging: Some(staging_file(path))
                    .filter(|file| file.exists() && !is_being_filled(file))
                    .map(|file| file.display().to_string()),
            }),
            Url::Postgres(_) => Ok(Health {
                version: text("select current_setting('server_version')")?.unwrap_or_default(),
                corruption: None,
                bytes: text("select cast(pg_database_size(current_database()) as text)")?
                    .and_then(|bytes| bytes.parse().ok())
                    .unwrap_or_default(),
                free_bytes: None,
                leftover_staging: text(&format!(
                    "select cast(nspname as text) from pg_namespace where nspname = '{STAGING_SCHEMA}' and pg_try_advisory_xact_lock_shared({FILLING_LOCK})"
                ))?
                .map(|schema| format!("the schema {schema}")),
            }),
        }
    }
}

/// Returns whether another process is filling this file. Such a process keeps the file locked.
fn is_being_filled(path: &Path) -> bool {
    let locked =
        Connection::sqlite(path, false).and_then(|mut connection| connection.batch("begin immediate; rollback"));
    matches!(locked, Err(Error::Busy(_)))
}

/// The file that a restore or move fills before it replaces the SQLite database.
pub(crate) fn staging_file(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".incoming");
    name.into()
}

fn free_bytes_on_disk(path: &Path) -> Option<u64> {
    #[cfg(unix)]
    {
        let disk = rustix::fs::statvfs(path).ok()?;
        disk.f_bavail.checked_mul(disk.f_frsize)
    }
    #[cfg(not(unix))]
    {
        let _ = path;
        None
    }
}

impl Health {
    /// Returns whether the engine is older than the oldest supported version.
    pub fn has_unsupported_version(&self, engine: Engine) -> bool {
        let major = self.version.split('.').next().and_then(|major| major.parse::<u32>().ok());
        engine == Engine::Postgres && major.is_some_and(|major| major < 14)
    }
}

//! How a database is: its engine, whether it is sound, and how much room it has.

use std::path::{Path, PathBuf};

use crate::{
    connection::{Connection, Engine},
    error::{Error, Result},
    store::Store,
    transfer::staging::{FILLING, SCHEMA},
    url::Url,
};

/// What a doctor looks at.
#[derive(Debug, Clone, PartialEq)]
pub struct Health {
    /// The version of the engine, as it calls itself.
    pub version: String,
    /// What is broken in the file, if anything is. A server looks after its own.
    pub broken: Option<String>,
    /// Bytes that the database takes.
    pub bytes: i64,
    /// Bytes that are free where the file is.
    pub free_bytes: Option<u64>,
    /// What a restore or a move that was cut off left behind. One that is under way left nothing.
    pub incoming: Option<String>,
}

impl Store {
    pub fn health(&self) -> Result<Health> {
        let mut read = self.read(uuid::Uuid::nil().into())?;
        let mut one = |sql: &str| -> Result<Option<String>> {
            Ok(read.query_unscoped::<(String,)>(sql, &[])?.into_iter().next().map(|(text,)| text))
        };
        match self.url() {
            Url::Sqlite(path) => Ok(Health {
                version: one("select sqlite_version()")?.unwrap_or_default(),
                broken: one("pragma quick_check(1)")?.filter(|said| said != "ok"),
                bytes: path.metadata().map_or(0, |file| i64::try_from(file.len()).unwrap_or(i64::MAX)),
                free_bytes: free_beside(path),
                incoming: Some(incoming_of(path))
                    .filter(|left| left.exists() && !is_being_filled(left))
                    .map(|left| left.display().to_string()),
            }),
            Url::Postgres(_) => Ok(Health {
                version: one("select current_setting('server_version')")?.unwrap_or_default(),
                broken: None,
                bytes: one("select cast(pg_database_size(current_database()) as text)")?
                    .and_then(|bytes| bytes.parse().ok())
                    .unwrap_or_default(),
                free_bytes: None,
                incoming: one(&format!(
                    "select cast(nspname as text) from pg_namespace where nspname = '{SCHEMA}' and pg_try_advisory_xact_lock_shared({FILLING})"
                ))?
                .map(|schema| format!("the schema {schema}")),
            }),
        }
    }
}

/// Whether a process fills this file just now, which it keeps locked.
fn is_being_filled(path: &Path) -> bool {
    let looked = Connection::sqlite(path, false).and_then(|mut left| left.batch("begin immediate; rollback"));
    matches!(looked, Err(Error::Busy(_)))
}

/// Where a SQLite database is filled before it takes its place.
pub(crate) fn incoming_of(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".incoming");
    name.into()
}

fn free_beside(path: &Path) -> Option<u64> {
    #[cfg(unix)]
    {
        let room = rustix::fs::statvfs(path).ok()?;
        room.f_bavail.checked_mul(room.f_frsize)
    }
    #[cfg(not(unix))]
    {
        let _ = path;
        None
    }
}

impl Health {
    /// Whether the engine is one that is known to do.
    pub fn is_old(&self, engine: Engine) -> bool {
        let major = self.version.split('.').next().and_then(|major| major.parse::<u32>().ok());
        engine == Engine::Postgres && major.is_some_and(|major| major < 14)
    }
}

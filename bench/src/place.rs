//! Where the measured databases are: a directory for SQLite, a server for PostgreSQL.

use std::path::{Path, PathBuf};

use tempfile::TempDir;
use trackway_store::{Engine, Url, connection::Connection};
use uuid::Uuid;

use crate::Outcome;

/// The places that databases can be made in.
#[derive(Debug)]
pub struct Places {
    directory: PathBuf,
    server: Option<String>,
    /// Goes away, with what is in it, when the measuring ends.
    _temporary: Option<TempDir>,
}

impl Places {
    pub fn new(directory: Option<PathBuf>, server: Option<String>) -> Outcome<Self> {
        let (directory, temporary) = if let Some(directory) = directory {
            (directory, None)
        } else {
            let temporary = tempfile::Builder::new().prefix("trackway-bench").tempdir()?;
            (temporary.path().to_owned(), Some(temporary))
        };
        std::fs::create_dir_all(&directory)?;
        Ok(Self { directory, server, _temporary: temporary })
    }

    pub fn directory(&self) -> &Path {
        &self.directory
    }

    pub fn server(&self) -> Option<&str> {
        self.server.as_deref()
    }

    /// The engines that can be measured here.
    pub fn engines(&self) -> impl Iterator<Item = Engine> {
        [Some(Engine::Sqlite), self.server.as_ref().map(|_| Engine::Postgres)].into_iter().flatten()
    }

    /// A new, empty database.
    pub fn database(&self, engine: Engine, name: &str) -> Outcome<Database> {
        match (engine, &self.server) {
            (Engine::Sqlite, _) => {
                Ok(Database::File(self.directory.join(format!("bench-{name}-{}.db", Uuid::new_v4().simple()))))
            }
            (Engine::Postgres, Some(server)) => {
                let name = format!("trackway_bench_{name}_{}", Uuid::new_v4().simple()).replace('-', "_");
                Connection::postgres(server)?.batch(&format!("create database {name}"))?;
                Ok(Database::Server { url: with_database(server, &name), server: server.clone(), name })
            }
            (Engine::Postgres, None) => Err("there is no PostgreSQL server to make a database on".into()),
        }
    }
}

/// A database that goes away with its handle.
#[derive(Debug)]
pub enum Database {
    File(PathBuf),
    Server { url: String, server: String, name: String },
}

impl Database {
    pub fn url(&self) -> Url {
        match self {
            Self::File(file) => Url::sqlite(file),
            Self::Server { url, .. } => Url::Postgres(url.clone()),
        }
    }

    /// A connection below the store, with the store's own settings.
    pub fn connection(&self) -> Outcome<Connection> {
        Ok(match self {
            Self::File(file) => Connection::sqlite(file, false)?,
            Self::Server { url, .. } => Connection::postgres(url)?,
        })
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        match self {
            Self::File(file) => remove_sqlite(file),
            Self::Server { server, name, .. } => {
                // A server that is gone took the database with it.
                let _ = Connection::postgres(server)
                    .and_then(|mut connection| connection.batch(&format!("drop database {name} with (force)")));
            }
        }
    }
}

/// Removes a database's files; those that are not there are gone already.
fn remove_sqlite(file: &Path) {
    for suffix in ["", "-wal", "-shm"] {
        let _ = std::fs::remove_file(format!("{}{suffix}", file.display()));
    }
}

/// The server's URL with another database in it.
fn with_database(server: &str, name: &str) -> String {
    let (address, parameters) = match server.split_once('?') {
        Some((address, parameters)) => (address, format!("?{parameters}")),
        None => (server, String::new()),
    };
    let host = address.rsplit_once('/').map_or(address, |(host, _)| host);
    format!("{host}/{name}{parameters}")
}

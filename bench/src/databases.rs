//! Databases for benchmarks: files in a directory for SQLite, databases on a server for PostgreSQL.

use std::path::{Path, PathBuf};

use tempfile::TempDir;
use trackway_store::{Engine, Url, connection::Connection};
use uuid::Uuid;

use crate::BenchResult;

/// Creates databases in one directory and, if a URL was given, on one PostgreSQL server.
#[derive(Debug)]
pub struct Databases {
    directory: PathBuf,
    server: Option<String>,
    /// Removed with its files when the benchmark ends.
    _temporary: Option<TempDir>,
}

impl Databases {
    pub fn new(directory: Option<PathBuf>, server: Option<String>) -> BenchResult<Self> {
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

    /// SQLite, and PostgreSQL if there is a server.
    pub fn engines(&self) -> impl Iterator<Item = Engine> {
        [Some(Engine::Sqlite), self.server.as_ref().map(|_| Engine::Postgres)].into_iter().flatten()
    }

    /// Creates an empty database.
    pub fn create(&self, engine: Engine, name: &str) -> BenchResult<Database> {
        match (engine, &self.server) {
            (Engine::Sqlite, _) => {
                Ok(Database::File(self.directory.join(format!("bench-{name}-{}.db", Uuid::new_v4().simple()))))
            }
            (Engine::Postgres, Some(server)) => {
                let name = format!("trackway_bench_{name}_{}", Uuid::new_v4().simple()).replace('-', "_");
                Connection::postgres(server)?.batch(&format!("create database {name}"))?;
                Ok(Database::Server { url: with_database(server, &name), server: server.clone(), name })
            }
            (Engine::Postgres, None) => Err("cannot create a PostgreSQL database: no server was given".into()),
        }
    }
}

/// A database that is removed when this handle is dropped.
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

    /// A direct connection with the store's settings.
    pub fn connection(&self) -> BenchResult<Connection> {
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
                // If the server is no longer running, its databases are removed with it.
                let _ = Connection::postgres(server)
                    .and_then(|mut connection| connection.batch(&format!("drop database {name} with (force)")));
            }
        }
    }
}

/// Removes the files of a database. Missing files are ignored.
fn remove_sqlite(file: &Path) {
    for suffix in ["", "-wal", "-shm"] {
        let _ = std::fs::remove_file(format!("{}{suffix}", file.display()));
    }
}

/// The server's URL with the database name replaced.
fn with_database(server: &str, name: &str) -> String {
    let (address, parameters) = match server.split_once('?') {
        Some((address, parameters)) => (address, format!("?{parameters}")),
        None => (server, String::new()),
    };
    let host = address.rsplit_once('/').map_or(address, |(host, _)| host);
    format!("{host}/{name}{parameters}")
}

//! The data version of a database: it changes with every commit of any process, and thus shows whether a cached result
//! is still current.

use std::{
    sync::{Mutex, PoisonError},
    time::Instant,
};

use crate::{
    connection::{Connection, Engine},
    error::Result,
    store::Store,
};

/// If two data versions of one store are equal, no transaction committed between them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DataVersion {
    /// Number of the connection that read the version. SQLite counts separately for each connection.
    connection: u64,
    value: String,
}

/// The most recent data version, and a connection to read it with.
#[derive(Debug, Default)]
pub(crate) struct LatestDataVersion(Mutex<VersionQuery>);

#[derive(Debug, Default)]
struct VersionQuery {
    connection: Option<Connection>,
    connections: u64,
    last: Option<(Instant, DataVersion)>,
}

impl Store {
    /// Like [`Store::data_version`], but only on SQLite, where reading the version takes no round trip and blocks only
    /// briefly.
    pub fn local_data_version(&self) -> Option<Result<DataVersion>> {
        (self.engine() == Engine::Sqlite).then(|| self.data_version())
    }

    /// Reads the current data version. Concurrent callers share one query, which starts after all of their calls.
    pub fn data_version(&self) -> Result<DataVersion> {
        let called = Instant::now();
        let mut latest = self.latest_data_version().0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, version)) = latest.last.as_ref().filter(|(started, _)| *started >= called) {
            return Ok(version.clone());
        }
        let started = Instant::now();
        // A connection whose query fails is dropped.
        let mut connection = match latest.connection.take().filter(Connection::is_open) {
            Some(connection) => connection,
            None => {
                latest.connections += 1;
                self.connect()?
            }
        };
        let query = match connection.engine() {
            Engine::Sqlite => "select cast(data_version as text) from pragma_data_version",
            // The snapshot lists the running transactions: it changes when a writing transaction begins or ends.
            Engine::Postgres => "select cast(pg_current_snapshot() as text)",
        };
        let value = connection.query::<(String,)>(query, &[])?.pop().map_or_else(String::new, |(value,)| value);
        let version = DataVersion { connection: latest.connections, value };
        latest.connection = Some(connection);
        latest.last = Some((started, version.clone()));
        Ok(version)
    }
}

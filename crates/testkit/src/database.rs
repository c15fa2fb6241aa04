//! A new, empty database of either engine that goes away with its handle.

use tempfile::TempDir;
use trackway_store::{Engine, Url, connection::Connection};
use uuid::Uuid;

/// Names a PostgreSQL server whose databases tests may make and drop.
const SERVER: &str = "TRACKWAY_TEST_POSTGRES";

/// A place for a database. Dropping it drops the database.
#[derive(Debug)]
pub struct TestDatabase {
    place: Place,
}

#[derive(Debug)]
enum Place {
    Directory(TempDir),
    Server {
        server: String,
        name: String,
    },
    /// Whoever made it drops it.
    Elsewhere(String),
}

/// Makes a place for a database of this engine.
pub fn database(engine: Engine) -> TestDatabase {
    let place = match engine {
        Engine::Sqlite => Place::Directory(tempfile::tempdir().unwrap()),
        Engine::Postgres => {
            let server = std::env::var(SERVER)
                .unwrap_or_else(|_| panic!("{SERVER} is not set: run ./test, which starts PostgreSQL"));
            let name = format!("trackway_test_{}", Uuid::new_v4().simple());
            Connection::postgres(&server).unwrap().batch(&format!("create database {name}")).unwrap();
            Place::Server { server, name }
        }
    };
    TestDatabase { place }
}

impl TestDatabase {
    /// One that is somewhere else, and stays there.
    pub fn elsewhere(url: String) -> Self {
        Self { place: Place::Elsewhere(url) }
    }

    pub fn url(&self) -> Url {
        Url::parse(&self.url_text()).unwrap()
    }

    /// The URL as one would type it.
    pub fn url_text(&self) -> String {
        match &self.place {
            Place::Directory(directory) => format!("sqlite:{}", directory.path().join("trackway.db").display()),
            Place::Server { server, name } => with_database(server, name),
            Place::Elsewhere(url) => url.clone(),
        }
    }
}

/// The server's URL with another database in it.
fn with_database(server: &str, name: &str) -> String {
    let (address, parameters) = match server.split_once('?') {
        Some((address, parameters)) => (address, format!("?{parameters}")),
        None => (server, String::new()),
    };
    let (host, _) = address.rsplit_once('/').expect("the URL of a PostgreSQL server names a database");
    format!("{host}/{name}{parameters}")
}

impl Drop for TestDatabase {
    fn drop(&mut self) {
        if let Place::Server { server, name } = &self.place {
            // A server that is gone took the database with it.
            let _ = Connection::postgres(server)
                .and_then(|mut connection| connection.batch(&format!("drop database {name} with (force)")));
        }
    }
}

//! Creates databases for tests and removes them when their handles are dropped.

use std::{
    fs,
    hash::{DefaultHasher, Hasher},
    path::{Path, PathBuf},
    sync::LazyLock,
};

use tempfile::TempDir;
use trackway_store::{Engine, Store, Url, connection::Connection, params};
use uuid::Uuid;

/// Environment variable with the URL of a PostgreSQL server on which tests may create and drop databases.
const SERVER: &str = "TRACKWAY_TEST_POSTGRES";

/// A database of a test. Dropping it removes the database.
#[derive(Debug)]
pub struct TestDatabase {
    location: Location,
}

#[derive(Debug)]
enum Location {
    Directory(TempDir),
    Server {
        server: String,
        name: String,
    },
    /// A database that the test does not remove.
    External(String),
}

/// Creates a database without tables.
pub fn database(engine: Engine) -> TestDatabase {
    match engine {
        Engine::Sqlite => TestDatabase { location: Location::Directory(tempfile::tempdir().unwrap()) },
        Engine::Postgres => on_server(""),
    }
}

/// Creates a database with all tables and no rows. It copies a template, because applying the migrations takes longer
/// than most tests.
pub fn migrated_database(engine: Engine) -> TestDatabase {
    match engine {
        Engine::Sqlite => {
            let database = database(engine);
            fs::write(database.path(), &*SQLITE_TEMPLATE).unwrap();
            database
        }
        Engine::Postgres => on_server(&format!("template {}", *POSTGRES_TEMPLATE)),
    }
}

fn server() -> String {
    std::env::var(SERVER).unwrap_or_else(|_| panic!("{SERVER} is not set: run ./test, which starts PostgreSQL"))
}

fn on_server(options: &str) -> TestDatabase {
    let server = server();
    let name = format!("trackway_test_{}", Uuid::new_v4().simple());
    Connection::postgres(&server).unwrap().batch(&format!("create database {name} {options}")).unwrap();
    TestDatabase { location: Location::Server { server, name } }
}

/// The bytes of a SQLite database with all tables.
static SQLITE_TEMPLATE: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let database = database(Engine::Sqlite);
    drop(Store::create(database.url()).unwrap());
    // Closing the store may leave changes in the write-ahead log.
    Connection::sqlite(&database.path(), false).unwrap().batch("pragma wal_checkpoint(truncate)").unwrap();
    fs::read(database.path()).unwrap()
});

/// The name of a PostgreSQL database with all tables. It stays on the server for later test runs with the same
/// migrations.
static POSTGRES_TEMPLATE: LazyLock<String> = LazyLock::new(|| {
    let server = server();
    let name = format!("trackway_template_{:016x}", hash_of_migrations());
    let mut connection = Connection::postgres(&server).unwrap();
    // The lock excludes other test binaries that create the template at the same time. Closing the connection releases
    // the lock.
    connection.batch("select pg_advisory_lock(1)").unwrap();
    let (found,) = connection
        .query::<(i64,)>("select count(*) from pg_database where datname = ?1", params![name])
        .unwrap()
        .remove(0);
    if found == 0 {
        let unfinished = format!("{name}_unfinished");
        connection.batch(&format!("drop database if exists {unfinished}")).unwrap();
        connection.batch(&format!("create database {unfinished}")).unwrap();
        drop(Store::create(Url::parse(&with_database(&server, &unfinished)).unwrap()).unwrap());
        connection.batch(&format!("alter database {unfinished} rename to {name}")).unwrap();
    }
    name
});

fn hash_of_migrations() -> u64 {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../store/migrations");
    let mut files: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let mut hasher = DefaultHasher::new();
    for file in files {
        hasher.write(&fs::read(file).unwrap());
    }
    hasher.finish()
}

impl TestDatabase {
    /// A handle for a database at this URL. Dropping the handle does not remove the database.
    pub fn external(url: String) -> Self {
        Self { location: Location::External(url) }
    }

    pub fn url(&self) -> Url {
        Url::parse(&self.url_text()).unwrap()
    }

    fn path(&self) -> PathBuf {
        match &self.location {
            Location::Directory(directory) => directory.path().join("trackway.db"),
            Location::Server { .. } | Location::External(_) => panic!("only a database in a directory has a path"),
        }
    }

    /// The URL in the form that `--db` accepts.
    pub fn url_text(&self) -> String {
        match &self.location {
            Location::Directory(_) => format!("sqlite:{}", self.path().display()),
            Location::Server { server, name } => with_database(server, name),
            Location::External(url) => url.clone(),
        }
    }
}

/// The server's URL with the database name replaced.
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
        if let Location::Server { server, name } = &self.location {
            // If the server is no longer running, its databases are removed with it.
            let _ = Connection::postgres(server)
                .and_then(|mut connection| connection.batch(&format!("drop database {name} with (force)")));
        }
    }
}

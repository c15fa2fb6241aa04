//! Each engine's own driver with prepared statements, and nothing else.

use tokio::runtime::Runtime;
use tokio_postgres::{Client, NoTls, Statement};
use trackway_store::{Url, connection::Connection, sql::Param};

use super::{
    Shape, Work,
    bare_rows::{Ballot, INSERTS, Place, Row, of_note, of_vote},
};
use crate::{Outcome, place::Database};

/// One writer.
#[derive(Debug)]
pub struct Bare {
    place: Place,
    driver: Driver,
}

#[derive(Debug)]
enum Driver {
    Sqlite(rusqlite::Connection),
    Postgres { client: Client, runtime: Runtime, statements: Vec<Statement> },
}

impl Bare {
    pub fn open(database: &Database, place: Place) -> Outcome<Self> {
        let driver = match database.url() {
            Url::Sqlite(file) => match Connection::sqlite(&file, false)? {
                Connection::Sqlite(connection) => Driver::Sqlite(connection),
                Connection::Postgres(_) => return Err("a file is opened by SQLite".into()),
            },
            Url::Postgres(url) => {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
                let (client, statements) = runtime.block_on(connected(&url))?;
                Driver::Postgres { client, runtime, statements }
            }
        };
        Ok(Self { place, driver })
    }

    /// One writer's round.
    pub fn write(&mut self, shape: Shape, ballots: &[Ballot]) -> Outcome<()> {
        let place = self.place;
        let rows = |number: usize| match shape.work {
            Work::Note => of_note(place),
            Work::Vote { .. } => of_vote(place, &ballots[number]),
        };
        match &mut self.driver {
            Driver::Sqlite(connection) => write_sqlite(connection, shape, rows),
            Driver::Postgres { client, runtime, statements } => {
                runtime.block_on(write_postgres(client, statements, shape, rows))
            }
        }
    }
}

fn write_sqlite<'a>(
    connection: &rusqlite::Connection,
    shape: Shape,
    rows: impl Fn(usize) -> Vec<Row<'a>>,
) -> Outcome<()> {
    let mut statements =
        INSERTS.iter().map(|sql| connection.prepare(sql)).collect::<Result<Vec<_>, rusqlite::Error>>()?;
    let (mut begin, mut commit) = (connection.prepare("begin immediate")?, connection.prepare("commit")?);
    let numbers: Vec<usize> = (0..shape.actions).collect();
    for batch in numbers.chunks(shape.per_transaction) {
        begin.execute([])?;
        for (insert, params) in batch.iter().flat_map(|number| rows(*number)) {
            statements[insert as usize].execute(rusqlite::params_from_iter(params))?;
        }
        commit.execute([])?;
    }
    Ok(())
}

async fn connected(url: &str) -> Outcome<(Client, Vec<Statement>)> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
    // Ends with the client.
    tokio::spawn(connection);
    let mut statements = Vec::with_capacity(INSERTS.len() + 2);
    for sql in INSERTS.iter().chain(&["begin", "commit"]) {
        statements.push(client.prepare(&sql.replace('?', "$")).await?);
    }
    Ok((client, statements))
}

async fn write_postgres<'a>(
    client: &Client,
    statements: &[Statement],
    shape: Shape,
    rows: impl Fn(usize) -> Vec<Row<'a>>,
) -> Outcome<()> {
    let [inserts @ .., begin, commit] = statements else { return Err("there are no statements".into()) };
    let numbers: Vec<usize> = (0..shape.actions).collect();
    for batch in numbers.chunks(shape.per_transaction) {
        client.execute(begin, &[]).await?;
        for (insert, params) in batch.iter().flat_map(|number| rows(*number)) {
            client.execute(&inserts[insert as usize], &bound(&params)).await?;
        }
        client.execute(commit, &[]).await?;
    }
    Ok(())
}

fn bound<'a>(params: &'a [Param<'a>]) -> Vec<&'a (dyn postgres_types::ToSql + Sync)> {
    params.iter().map(|param| param as _).collect()
}

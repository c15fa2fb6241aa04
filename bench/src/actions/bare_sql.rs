//! Writes with each engine's driver and prepared statements, without Trackway.

use tokio::runtime::Runtime;
use tokio_postgres::{Client, NoTls, Statement};
use trackway_store::{Url, connection::Connection, sql::Param};

use super::{
    ActionKind, ActionWorkload,
    bare_rows::{Ballot, INSERTS, Row, RowContext, note_rows, vote_rows},
};
use crate::{BenchResult, databases::Database};

#[derive(Debug)]
pub struct BareWriter {
    row_context: RowContext,
    driver: Driver,
}

#[derive(Debug)]
enum Driver {
    Sqlite(rusqlite::Connection),
    Postgres { client: Client, runtime: Runtime, statements: Vec<Statement> },
}

impl BareWriter {
    pub fn open(database: &Database, row_context: RowContext) -> BenchResult<Self> {
        let driver = match database.url() {
            Url::Sqlite(file) => match Connection::sqlite(&file, false)? {
                Connection::Sqlite(connection) => Driver::Sqlite(connection),
                Connection::Postgres(_) => return Err("expected a SQLite connection".into()),
            },
            Url::Postgres(url) => {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
                let (client, statements) = runtime.block_on(connect(&url))?;
                Driver::Postgres { client, runtime, statements }
            }
        };
        Ok(Self { row_context, driver })
    }

    /// Writes the rows of one round.
    pub fn write(&mut self, workload: ActionWorkload, ballots: &[Ballot]) -> BenchResult<()> {
        let row_context = self.row_context;
        let rows = |number: usize| match workload.kind {
            ActionKind::Note => note_rows(row_context),
            ActionKind::Vote { .. } => vote_rows(row_context, &ballots[number]),
        };
        match &mut self.driver {
            Driver::Sqlite(connection) => write_sqlite(connection, workload, rows),
            Driver::Postgres { client, runtime, statements } => {
                runtime.block_on(write_postgres(client, statements, workload, rows))
            }
        }
    }
}

fn write_sqlite<'a>(
    connection: &rusqlite::Connection,
    workload: ActionWorkload,
    rows: impl Fn(usize) -> Vec<Row<'a>>,
) -> BenchResult<()> {
    let mut statements =
        INSERTS.iter().map(|sql| connection.prepare(sql)).collect::<Result<Vec<_>, rusqlite::Error>>()?;
    let (mut begin, mut commit) = (connection.prepare("begin immediate")?, connection.prepare("commit")?);
    let numbers: Vec<usize> = (0..workload.actions).collect();
    for batch in numbers.chunks(workload.per_transaction) {
        begin.execute([])?;
        for (insert, params) in batch.iter().flat_map(|number| rows(*number)) {
            statements[insert as usize].execute(rusqlite::params_from_iter(params))?;
        }
        commit.execute([])?;
    }
    Ok(())
}

async fn connect(url: &str) -> BenchResult<(Client, Vec<Statement>)> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
    // The connection task ends when the client is dropped.
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
    workload: ActionWorkload,
    rows: impl Fn(usize) -> Vec<Row<'a>>,
) -> BenchResult<()> {
    let [inserts @ .., begin, commit] = statements else { return Err("no statements were prepared".into()) };
    let numbers: Vec<usize> = (0..workload.actions).collect();
    for batch in numbers.chunks(workload.per_transaction) {
        client.execute(begin, &[]).await?;
        for (insert, params) in batch.iter().flat_map(|number| rows(*number)) {
            client.execute(&inserts[insert as usize], &as_sql_params(&params)).await?;
        }
        client.execute(commit, &[]).await?;
    }
    Ok(())
}

fn as_sql_params<'a>(params: &'a [Param<'a>]) -> Vec<&'a (dyn postgres_types::ToSql + Sync)> {
    params.iter().map(|param| param as _).collect()
}

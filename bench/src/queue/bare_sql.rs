//! The simplest queue in SQL: one table and three statements.

use std::{fs, path::PathBuf, process::Command};

use trackway_store::{Engine, connection::Connection};

use super::{QueueWorkload, run_on_threads};
use crate::{
    BenchResult,
    databases::{Database, Databases},
    measure::time_once,
};

/// The protocol by which pgbench sends the statements to PostgreSQL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// Each statement is prepared once, as Trackway does.
    Prepared,
    /// Each statement is sent as text, which is pgbench's default.
    Simple,
}

impl Protocol {
    fn name(self) -> &'static str {
        match self {
            Self::Prepared => "prepared",
            Self::Simple => "simple",
        }
    }

    /// SQL that returns the taken ids in the form that the next statement needs: a parameter value, or a quoted
    /// literal.
    fn ids_sql(self) -> &'static str {
        match self {
            Self::Prepared => "coalesce(cast(array_agg(id) as text), '{}')",
            Self::Simple => "quote_literal(coalesce(cast(array_agg(id) as text), '{}'))",
        }
    }
}

pub fn rate(databases: &Databases, engine: Engine, workload: QueueWorkload, protocol: Protocol) -> BenchResult<f64> {
    match engine {
        Engine::Sqlite => sqlite(databases, workload),
        Engine::Postgres => postgres(databases, workload, protocol),
    }
}

const POSTGRES_TABLE: &str =
    "create table bare (id bigint generated always as identity primary key, task text not null,
    status text not null default 'ready', priority bigint not null default 0, since timestamptz not null default now(),
    fence bigint not null default 0, lease_expires timestamptz, finished_at timestamptz);
    create index bare_ready on bare (priority desc, since, id) where status = 'ready'";

const ADD: &str = "insert into bare (task) select 'again' from generate_series(1, BATCH);\n";

const WORK: &str = "with picked as (select id from bare where status = 'ready' order by priority desc, since, id limit BATCH for update skip locked),
    taken as (update bare b set status = 'running', fence = fence + 1, lease_expires = now() + interval '300 s' from picked p where b.id = p.id returning b.id)
    select IDS as ids from taken \\gset
update bare set status = 'completed', finished_at = now(), lease_expires = null where id = any(cast(:ids as bigint[])) and status = 'running';\n";

const ADD_ONE: &str = "insert into bare (task) values ('again');\n";

const WORK_ONE: &str = "with picked as (select id from bare where status = 'ready' order by priority desc, since, id limit 1 for update skip locked)
    update bare b set status = 'running', fence = fence + 1, lease_expires = now() + interval '300 s' from picked p where b.id = p.id returning b.id, b.fence \\gset
update bare set status = 'completed', finished_at = now(), lease_expires = null where id = :id and fence = :fence and status = 'running';\n";

fn postgres(databases: &Databases, workload: QueueWorkload, protocol: Protocol) -> BenchResult<f64> {
    let database = databases.create(Engine::Postgres, "bare")?;
    database.connection()?.batch(POSTGRES_TABLE)?;
    let (add, work) = if workload.batch == 1 { (ADD_ONE, WORK_ONE) } else { (ADD, WORK) };
    let calls = workload.items / workload.batch / workload.workers;
    let run = |script| pgbench(databases, &database, script, workload, protocol, calls);
    let elapsed = run(add)? + run(work)?;
    let left = database.connection()?.query::<(i64,)>("select count(*) from bare where status <> 'completed'", &[])?;
    match left.first() {
        Some((0,)) => Ok((calls * workload.workers * workload.batch) as f64 / elapsed),
        _ => Err("some items of the bare queue were not completed".into()),
    }
}

/// Runs pgbench and returns the elapsed seconds, without the time to connect.
fn pgbench(
    databases: &Databases,
    database: &Database,
    script: &str,
    workload: QueueWorkload,
    protocol: Protocol,
    calls: usize,
) -> BenchResult<f64> {
    let Database::Server { url, .. } = database else { return Err("pgbench needs a server".into()) };
    let file = databases.directory().join("bare.sql");
    fs::write(&file, script.replace("BATCH", &workload.batch.to_string()).replace("IDS", protocol.ids_sql()))?;
    let output = Command::new(find_pgbench()?)
        .args(["--no-vacuum", "--jobs=2"])
        .arg(format!("--protocol={}", protocol.name()))
        .arg(format!("--client={}", workload.workers))
        .arg(format!("--transactions={calls}"))
        .arg(format!("--file={}", file.display()))
        .arg(url)
        .output()?;
    let stdout = String::from_utf8_lossy(&output.stdout);
    let per_second: Option<f64> =
        stdout.lines().find_map(|line| line.strip_prefix("tps = ")?.split(' ').next()?.parse().ok());
    match per_second.filter(|_| output.status.success()) {
        Some(per_second) => Ok((calls * workload.workers) as f64 / per_second),
        None => Err(format!("pgbench failed: {}", String::from_utf8_lossy(&output.stderr)).into()),
    }
}

/// The newest installed pgbench.
fn find_pgbench() -> BenchResult<PathBuf> {
    let mut found: Vec<PathBuf> = fs::read_dir("/usr/lib/postgresql")?
        .filter_map(|version| Some(version.ok()?.path().join("bin/pgbench")))
        .filter(|program| program.exists())
        .collect();
    found.sort();
    found.pop().ok_or_else(|| "there is no pgbench in /usr/lib/postgresql".into())
}

const SQLITE_TABLE: &str = "create table bare (id integer primary key, task text not null, status text not null default 'ready',
    priority integer not null default 0, since integer not null, fence integer not null default 0, lease_expires integer, finished_at integer) strict;
    create index bare_ready on bare (priority desc, since, id) where status = 'ready'";

fn sqlite(databases: &Databases, workload: QueueWorkload) -> BenchResult<f64> {
    let database = databases.create(Engine::Sqlite, "bare")?;
    let Database::File(file) = &database else { return Err("expected a SQLite file".into()) };
    Connection::sqlite(file, true)?.batch(SQLITE_TABLE)?;
    let open = |_| match Connection::sqlite(file, false)? {
        Connection::Sqlite(connection) => Ok(std::sync::Mutex::new(connection)),
        Connection::Postgres(_) => Err("expected a SQLite connection".into()),
    };
    let workers = (0..workload.workers).map(open).collect::<BenchResult<Vec<_>>>()?;
    let worker = |number: usize| workers[number].lock().map_err(|_| "a worker panicked");
    let (elapsed, ()) = time_once(|| {
        run_on_threads(workload.workers, |number| add(&*worker(number)?, workload))?;
        run_on_threads(workload.workers, |number| work(&*worker(number)?, workload))
    })?;
    Ok((workload.items / workload.workers * workload.workers) as f64 / elapsed.as_secs_f64())
}

fn add(connection: &rusqlite::Connection, workload: QueueWorkload) -> BenchResult<()> {
    let mut insert = connection.prepare("insert into bare (task, since) values ('again', ?1)")?;
    let (mut begin, mut commit) = (connection.prepare("begin immediate")?, connection.prepare("commit")?);
    for _ in 0..workload.items / workload.workers / workload.batch {
        begin.execute([])?;
        for _ in 0..workload.batch {
            insert.execute([now()])?;
        }
        commit.execute([])?;
    }
    Ok(())
}

fn work(connection: &rusqlite::Connection, workload: QueueWorkload) -> BenchResult<()> {
    let mut take = connection.prepare(
        "update bare set status = 'running', fence = fence + 1, lease_expires = ?1 where id in
         (select id from bare where status = 'ready' order by priority desc, since, id limit ?2) returning id, fence",
    )?;
    let mut complete = connection.prepare(
        "update bare set status = 'completed', finished_at = ?3, lease_expires = null where id = ?1 and fence = ?2 and \
         status = 'running'",
    )?;
    let (mut begin, mut commit) = (connection.prepare("begin immediate")?, connection.prepare("commit")?);
    loop {
        begin.execute([])?;
        let taken = take
            .query_map((now() + 300_000_000, i64::try_from(workload.batch)?), |row| Ok((row.get(0)?, row.get(1)?)))?
            .collect::<Result<Vec<(i64, i64)>, _>>()?;
        commit.execute([])?;
        if taken.is_empty() {
            return Ok(());
        }
        begin.execute([])?;
        for (id, fence) in taken {
            complete.execute((id, fence, now()))?;
        }
        commit.execute([])?;
    }
}

fn now() -> i64 {
    trackway_store::Clock::system().now().micros()
}

//! A founded database with a person and an agent in it, ready to be measured.

use serde_json::{Value, json};
use trackway_actions::{
    Context, Core, Credential,
    context::Secret,
    founding::LOCAL_TENANT,
    registry::{self, Mode},
};
use trackway_store::{
    Engine, Store, TenantId,
    connection::Connection,
    sql::{Param, ToParam},
};
use uuid::Uuid;

use crate::{Outcome, place::Database};

/// The person and the agent of every env.
const PERSON: &str = "ada";
pub const AGENT: &str = "grace";

/// A database and the door to it.
#[derive(Debug)]
pub struct BenchEnv {
    pub core: Core,
    pub person: Context,
    // Last, so that the connections are closed before the database goes.
    pub database: Database,
}

impl BenchEnv {
    pub fn found(database: Database) -> Outcome<Self> {
        let core = Core::new(Store::create(database.url())?);
        core.found(LOCAL_TENANT, PERSON)?;
        let person = core.enter(&Credential::User { tenant: LOCAL_TENANT.into(), handle: PERSON.into() })?;
        let env = Self { core, person, database };
        env.act("set_role", json!({ "name": "builder" }))?;
        env.act("set_agent", json!({ "handle": AGENT, "role": "builder" }))?;
        env.act("set_workflow", json!({ "name": "unit" }))?;
        Ok(env)
    }

    pub fn engine(&self) -> Engine {
        self.core.store().engine()
    }

    pub fn tenant(&self) -> TenantId {
        self.person.tenant
    }

    /// Does an action by its name, as the person.
    pub fn act(&self, action: &str, input: Value) -> Outcome<Value> {
        self.act_as(&self.person, action, input)
    }

    pub fn act_as(&self, context: &Context, action: &str, input: Value) -> Outcome<Value> {
        let entry = registry::named(action).ok_or_else(|| format!("there is no action {action}"))?;
        Ok((entry.with_json)(&self.core, context, input, Mode::Execute)?)
    }

    /// Starts a run of the agent; the context is that of its token.
    pub fn run(&self) -> Outcome<Context> {
        let started = self.act("start_run", json!({ "agent": AGENT }))?;
        let token = started["token"].as_str().ok_or("a run without a token")?;
        Ok(self.core.enter(&Credential::Token(Secret(token.to_owned())))?)
    }

    /// The id of something that has a name.
    pub fn named(&self, table: &str, column: &str, name: &str) -> Outcome<Uuid> {
        let sql = format!("select id from {table} where tenant_id = ?1 and {column} = ?2");
        let found = self.core.store().read(self.tenant())?.one::<(Uuid,)>(&sql, &[name.to_param()])?;
        Ok(found.ok_or_else(|| format!("there is no {name} in {table}"))?.0)
    }
}

/// Rows posted before they are committed: enough to fill PostgreSQL's pipeline, few enough to remember.
const ROWS_PER_TRANSACTION: usize = 5_000;
/// SQLite commits rarely: its pages stay in memory until then.
const SQLITE_ROWS_PER_TRANSACTION: usize = 500_000;

/// Inserts very many rows, indexes and all, faster than the write path.
#[derive(Debug)]
pub struct Bulk {
    connection: Connection,
    waiting: usize,
    limit: usize,
}

impl Bulk {
    pub fn begin(database: &Database) -> Outcome<Self> {
        let mut connection = database.connection()?;
        let limit = match connection.engine() {
            Engine::Sqlite => {
                // The keys are right by construction, and memory is there: this is not what is measured.
                connection
                    .batch("pragma foreign_keys = off; pragma cache_size = -3000000; pragma synchronous = off")?;
                SQLITE_ROWS_PER_TRANSACTION
            }
            Engine::Postgres => {
                connection.batch("set session_replication_role = replica")?;
                ROWS_PER_TRANSACTION
            }
        };
        connection.begin_write()?;
        Ok(Self { connection, waiting: 0, limit })
    }

    pub fn insert(&mut self, sql: &str, params: &[Param<'_>]) -> Outcome<()> {
        self.connection.post(sql, params)?;
        self.waiting += 1;
        if self.waiting >= self.limit {
            self.connection.commit()?;
            self.connection.begin_write()?;
            self.waiting = 0;
        }
        Ok(())
    }

    /// Commits, and lets PostgreSQL learn what its autovacuum would tell it. SQLite is left as Trackway leaves it.
    pub fn end(mut self) -> Outcome<()> {
        self.connection.commit()?;
        match self.connection.engine() {
            Engine::Sqlite => {
                self.connection.query::<(i64, i64, i64)>("pragma wal_checkpoint(truncate)", &[]).map(drop)?;
            }
            Engine::Postgres => self.connection.batch("vacuum analyze")?,
        }
        Ok(())
    }
}

pub const REGISTER: &str = "insert into registry (tenant_id, id, kind, studio_id, display_path, short_key, created_by, created_at) values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)";

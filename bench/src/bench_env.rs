//! A database with an initialised tenant, a person and an agent, ready for measurements.

use serde_json::{Value, json};
use trackway_actions::{
    Context, Core, Credential,
    context::Secret,
    registry::{self, Mode},
    tenant::LOCAL_TENANT,
};
use trackway_store::{
    Engine, Store, TenantId,
    connection::Connection,
    sql::{Param, ToParam},
};
use uuid::Uuid;

use crate::{BenchResult, databases::Database};

/// Every benchmark environment has this person and this agent.
const PERSON: &str = "ada";
pub const AGENT: &str = "grace";

/// A database and the application core on it.
#[derive(Debug)]
pub struct BenchEnv {
    pub core: Core,
    pub person: Context,
    // Fields drop in order: the core closes its connections before the database is removed.
    pub database: Database,
}

impl BenchEnv {
    pub fn create(database: Database) -> BenchResult<Self> {
        let core = Core::new(Store::create(database.url())?);
        core.init_tenant(LOCAL_TENANT, PERSON)?;
        let person = core.authenticate(&Credential::User { tenant: LOCAL_TENANT.into(), handle: PERSON.into() })?;
        let env = Self { core, person, database };
        env.execute_json("set_role", json!({ "name": "builder" }))?;
        env.execute_json("set_agent", json!({ "handle": AGENT, "role": "builder" }))?;
        env.execute_json("set_workflow", json!({ "name": "unit" }))?;
        Ok(env)
    }

    pub fn engine(&self) -> Engine {
        self.core.store().engine()
    }

    pub fn tenant(&self) -> TenantId {
        self.person.tenant
    }

    /// Executes the action of this name as the environment's person.
    pub fn execute_json(&self, action: &str, input: Value) -> BenchResult<Value> {
        self.execute_json_as(&self.person, action, input)
    }

    pub fn execute_json_as(&self, context: &Context, action: &str, input: Value) -> BenchResult<Value> {
        let entry = registry::find_action(action).ok_or_else(|| format!("there is no action {action}"))?;
        Ok((entry.with_json)(&self.core, context, input, Mode::Execute)?)
    }

    /// Starts a run of the agent and returns the context of its run token.
    pub fn run(&self) -> BenchResult<Context> {
        let started = self.execute_json("start_run", json!({ "agent": AGENT }))?;
        let token = started["token"].as_str().ok_or("a run without a token")?;
        Ok(self.core.authenticate(&Credential::Token(Secret(token.to_owned())))?)
    }

    /// The id of the row of `table` whose `column` holds `name`.
    pub fn id_of(&self, table: &str, column: &str, name: &str) -> BenchResult<Uuid> {
        let sql = format!("select id from {table} where tenant_id = ?1 and {column} = ?2");
        let found = self.core.store().read(self.tenant())?.one::<(Uuid,)>(&sql, &[name.to_param()])?;
        Ok(found.ok_or_else(|| format!("there is no {name} in {table}"))?.0)
    }
}

/// Rows of one transaction on PostgreSQL: enough to fill the connection's pipeline, without holding too many
/// unacknowledged statements in memory.
const ROWS_PER_TRANSACTION: usize = 5_000;
/// Rows of one transaction on SQLite, which commits seldom and holds the changed pages in memory until then.
const SQLITE_ROWS_PER_TRANSACTION: usize = 500_000;

/// Inserts millions of rows. It maintains the indexes but bypasses the actions, which would take far longer.
#[derive(Debug)]
pub struct BulkInsert {
    connection: Connection,
    uncommitted: usize,
    rows_per_transaction: usize,
}

impl BulkInsert {
    pub fn begin(database: &Database) -> BenchResult<Self> {
        let mut connection = database.connection()?;
        let rows_per_transaction = match connection.engine() {
            Engine::Sqlite => {
                // The generated keys are valid, and the fill itself is not measured. So the fill skips the foreign key
                // checks and the disk syncs, and uses a large page cache.
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
        Ok(Self { connection, uncommitted: 0, rows_per_transaction })
    }

    pub fn insert(&mut self, sql: &str, params: &[Param<'_>]) -> BenchResult<()> {
        self.connection.post(sql, params)?;
        self.uncommitted += 1;
        if self.uncommitted >= self.rows_per_transaction {
            self.connection.commit()?;
            self.connection.begin_write()?;
            self.uncommitted = 0;
        }
        Ok(())
    }

    /// Commits. On PostgreSQL, also collects the planner statistics that autovacuum would collect later. On SQLite,
    /// empties the write-ahead log and collects no statistics, as in a database that Trackway wrote.
    pub fn end(mut self) -> BenchResult<()> {
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

/// Inserts a registry entry.
pub const INSERT_REGISTRY_ENTRY: &str = "insert into registry (tenant_id, id, kind, studio_id, display_path, short_key, created_by, created_at) values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)";

//! A PostgreSQL connection that uses few round trips: writes without results and prefetched queries are sent together
//! with the next query.

use std::{borrow::Cow, collections::HashMap, task::Poll, time::Duration};

use futures_util::future::{join, try_join_all};
use tokio::runtime::Runtime;
use tokio_postgres::{Client, Statement, types::Type};

use super::{
    BEGIN_READ, COMMIT, STATEMENT_CACHE_SIZE,
    pending::{Pending, PendingKind, combine, drop_needless_transaction},
};
use crate::{
    engine::failover,
    error::{Error, Result},
    sql::Param,
};

/// A PostgreSQL connection with a single-threaded runtime that drives it on the caller's thread.
pub struct Postgres {
    client: Client,
    runtime: Runtime,
    /// Cache of prepared statements. The value is `None` after the first use; the second use prepares the statement.
    /// Preparing costs a round trip, which does not pay off for a statement that is used once.
    statements: HashMap<String, Option<Statement>>,
    /// Writes that need no result. They are sent together before the next query or commit, in one round trip.
    pub(super) pending: Vec<Pending>,
    /// Prefetched queries, which will be sent together with the next query.
    prefetched: Vec<PrefetchedQuery>,
    /// Results of prefetched queries.
    cached: Vec<(PrefetchedQuery, Vec<tokio_postgres::Row>)>,
    /// Whether a query was deferred since deferring was switched on; `None` while deferring is off (see
    /// [`super::Connection::set_deferring`]).
    pub(super) deferring: Option<bool>,
    /// Time limit for each answer, if any.
    pub(super) answer_timeout: Option<Duration>,
    /// Whether an answer timed out. The connection is then unusable: it would take the late answer for the answer to
    /// its next statement.
    has_timed_out: bool,
    /// Whether a write failed because this server is a standby. A new connection to the same address may lead to the
    /// primary.
    is_standby: bool,
}

#[derive(Debug)]
struct PrefetchedQuery {
    sql: String,
    params: Vec<Param<'static>>,
}

impl PrefetchedQuery {
    fn matches(&self, sql: &str, params: &[Param<'_>]) -> bool {
        self.sql == sql && self.params == params
    }
}

impl std::fmt::Debug for Postgres {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Postgres").field("pending", &self.pending.len()).finish_non_exhaustive()
    }
}

/// Enough scheduler turns for the connection's task to notice that the connection is closed. The task receives the
/// close in one turn and processes it in a later one.
const YIELDS_TO_NOTICE_CLOSE: usize = 3;

impl Postgres {
    pub(super) fn connect(url: &str) -> Result<Self> {
        let runtime = failover::single_thread_runtime()?;
        let client = runtime.block_on(async {
            let (client, socket_task) = failover::connect(url).await?;
            // The task ends with the connection. The client reports its error.
            tokio::spawn(socket_task);
            Ok::<_, Error>(client)
        });
        match client {
            Ok(client) => Ok(Self {
                client,
                runtime,
                statements: HashMap::new(),
                pending: Vec::new(),
                prefetched: Vec::new(),
                cached: Vec::new(),
                deferring: None,
                answer_timeout: None,
                has_timed_out: false,
                is_standby: false,
            }),
            Err(error) => {
                // Do not wait for a name lookup that is still running.
                runtime.shutdown_background();
                Err(error)
            }
        }
    }

    /// Whether the connection is usable. The task of an idle connection does not run, so this function runs the task
    /// for a moment. If the server has closed the connection, the task then notices it.
    pub(super) fn is_open(&self) -> bool {
        self.runtime.block_on(async {
            for _ in 0..YIELDS_TO_NOTICE_CLOSE {
                tokio::task::yield_now().await;
            }
        });
        !self.is_standby && !self.has_timed_out && !self.client.is_closed()
    }

    /// Sends a statement without waiting. Its answer is dropped when a later answer is read.
    fn send(&self, sql: &str) {
        self.runtime.block_on(async {
            let mut sending = std::pin::pin!(self.client.batch_execute(sql));
            std::future::poll_fn(|waker| {
                // The first poll puts the statement into the queue of the connection's task.
                let _ = sending.as_mut().poll(waker);
                Poll::Ready(())
            })
            .await;
            // Let the connection's task send it.
            tokio::task::yield_now().await;
        });
    }

    /// Ends a read transaction and clears the results of its queries.
    pub(super) fn end_read(&mut self) {
        let was_never_sent = self.pending.first().is_some_and(|first| first.sql == BEGIN_READ);
        self.pending.clear();
        self.prefetched.clear();
        self.cached.clear();
        self.deferring = None;
        if !was_never_sent && !self.client.is_closed() {
            self.send("rollback");
        }
    }

    /// Returns the prepared statement for `sql` from its second use on.
    pub(super) fn statement(&mut self, sql: &str) -> Result<Option<Statement>> {
        match self.statements.get(sql) {
            Some(Some(statement)) => Ok(Some(statement.clone())),
            Some(None) => {
                let preparing = self
                    .runtime
                    .block_on(with_timeout(self.answer_timeout, self.client.prepare(&to_postgres_sql(sql))));
                let statement = self.check_timeout(preparing)??;
                self.statements.insert(sql.to_owned(), Some(statement.clone()));
                Ok(Some(statement))
            }
            None => {
                // SQL is composed of parts in unlimited combinations, so the cache must be bounded.
                if self.statements.len() >= STATEMENT_CACHE_SIZE {
                    self.statements.clear();
                }
                self.statements.insert(sql.to_owned(), None);
                Ok(None)
            }
        }
    }

    /// Marks the connection as unusable if the answer timed out.
    fn check_timeout<T>(&mut self, answer: Option<T>) -> Result<T> {
        self.has_timed_out |= answer.is_none();
        answer.ok_or_else(|| Error::Unreachable("the server does not answer in time".into()))
    }

    pub(super) fn enqueue(&mut self, sql: Cow<'static, str>, params: &[Param<'_>], kind: PendingKind) {
        let params = params.iter().cloned().map(Param::into_owned).collect();
        self.pending.push(Pending { sql, params, kind });
    }

    pub(super) fn prefetch(&mut self, sql: &str, params: &[Param<'_>]) {
        if self.cached(sql, params).is_none() && !self.prefetched.iter().any(|query| query.matches(sql, params)) {
            let params = params.iter().cloned().map(Param::into_owned).collect();
            self.prefetched.push(PrefetchedQuery { sql: sql.to_owned(), params });
        }
    }

    /// Returns the result of a prefetched query that has been sent.
    pub(super) fn cached(&self, sql: &str, params: &[Param<'_>]) -> Option<&[tokio_postgres::Row]> {
        self.cached.iter().find(|(query, _)| query.matches(sql, params)).map(|(_, rows)| rows.as_slice())
    }

    /// Sends the prefetched queries together with `own`. Returns the rows of `own`, unless it is itself a prefetched
    /// query: then its rows are among the cached results.
    pub(super) fn query_with_prefetched(
        &mut self,
        own: Option<(&str, &[Param<'_>])>,
    ) -> Result<Vec<tokio_postgres::Row>> {
        let prefetched = std::mem::take(&mut self.prefetched);
        let own = own.filter(|(sql, params)| !prefetched.iter().any(|query| query.matches(sql, params)));
        let all = prefetched.iter().map(|query| (query.sql.as_str(), query.params.as_slice())).chain(own);
        let mut answers = self.query_all(&all.collect::<Vec<_>>())?;
        let rows = own.and_then(|_| answers.pop()).unwrap_or_default();
        self.cached.extend(prefetched.into_iter().zip(answers));
        Ok(rows)
    }

    /// Runs several queries in one round trip.
    fn query_all(&mut self, queries: &[(&str, &[Param<'_>])]) -> Result<Vec<Vec<tokio_postgres::Row>>> {
        let statements = queries.iter().map(|(sql, _)| self.statement(sql)).collect::<Result<Vec<_>>>()?;
        self.after_pending(async |client| {
            let results = queries.iter().zip(&statements).map(|((sql, params), statement)| async move {
                match statement {
                    Some(statement) => client.query(statement, &dyn_params(params)).await,
                    None => client.query_typed(&to_postgres_sql(sql), &typed_params(params)).await,
                }
            });
            try_join_all(results).await
        })
    }

    /// Sends the pending writes and runs `query`, in one round trip.
    pub(super) fn after_pending<T>(
        &mut self,
        query: impl AsyncFnOnce(&Client) -> std::result::Result<T, tokio_postgres::Error>,
    ) -> Result<T> {
        let pending = std::mem::take(&mut self.pending);
        let commits = pending.iter().any(|pending| pending.sql == COMMIT);
        let pending = drop_needless_transaction(combine(pending));
        let statements = pending.iter().map(|pending| self.statement(&pending.sql)).collect::<Result<Vec<_>>>()?;
        // The futures are polled in order, so the client sends the statements in order and without a pause.
        let client = &self.client;
        let sent = statements.iter().zip(&pending).map(|(statement, Pending { sql, params, .. })| async move {
            match statement {
                Some(statement) => client.execute(statement, &dyn_params(params)).await,
                None => client.execute_typed(&to_postgres_sql(sql), &typed_params(params)).await,
            }
        });
        let outcome = self.runtime.block_on(with_timeout(self.answer_timeout, join(try_join_all(sent), query(client))));
        let (sent, answer) = self.check_timeout(outcome).map_err(|error| match error {
            Error::Unreachable(why) if commits => Error::CommitUnknown(why),
            error => error,
        })?;
        // The first error is the cause of the later ones.
        sent.map(drop).and(answer).map_err(|error| match Error::from(error) {
            // The commit was sent, but the server did not confirm it.
            Error::Unreachable(why) if commits => Error::CommitUnknown(why),
            error => {
                self.is_standby |= matches!(error, Error::Standby(_));
                error
            }
        })
    }
}

async fn with_timeout<T>(timeout: Option<Duration>, answer: impl Future<Output = T>) -> Option<T> {
    match timeout {
        Some(timeout) => tokio::time::timeout(timeout, answer).await.ok(),
        None => Some(answer.await),
    }
}

/// Translates SQL for PostgreSQL: its placeholders, and the tenant condition of a lookup by id.
///
/// While a table is short or its statistics are old, PostgreSQL may prefer any index that contains the tenant and the
/// id to the index of the ids. The cached plan then reads all rows of the tenant once the table has grown. Writing the
/// tenant condition as `(...) is true` prevents that, because no index matches it.
pub(super) fn to_postgres_sql(sql: &str) -> String {
    const TENANT: &str = "tenant_id = ?";
    let mut out = String::with_capacity(sql.len() + TENANT.len());
    let mut rest = sql;
    while let Some(found) = rest.find(TENANT) {
        let (before, from) = rest.split_at(found);
        let alias =
            before.bytes().rev().take_while(|byte| byte.is_ascii_alphanumeric() || b"._".contains(byte)).count();
        let (before, alias) = before.split_at(found - alias);
        let digits = from[TENANT.len()..].bytes().take_while(u8::is_ascii_digit).count();
        let (condition, after) = from.split_at(TENANT.len() + digits);
        let is_by_id = after.strip_prefix(" and ").and_then(|after| after.strip_prefix(alias));
        out.push_str(before);
        if is_by_id.is_some_and(|rest| rest.starts_with("id = ")) {
            out.extend(["(", alias, condition, ") is true"]);
        } else {
            out.extend([alias, condition]);
        }
        rest = after;
    }
    out.push_str(rest);
    out.replace('?', "$")
}

pub(super) fn dyn_params<'a>(params: &'a [Param<'a>]) -> Vec<&'a (dyn postgres_types::ToSql + Sync)> {
    params.iter().map(|param| param as _).collect()
}

pub(super) fn typed_params<'a>(params: &'a [Param<'a>]) -> Vec<(&'a (dyn postgres_types::ToSql + Sync), Type)> {
    params.iter().map(|param| (param as _, param.postgres_type())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lookup_by_id_ignores_indexes_of_the_tenant() {
        for (sql, expected) in [
            (
                "where tenant_id = ?1 and id = ?2 and fence = ?3",
                "where (tenant_id = $1) is true and id = $2 and fence = $3",
            ),
            ("on r.tenant_id = ?12 and r.id = any(?13)", "on (r.tenant_id = $12) is true and r.id = any($13)"),
            ("where tenant_id = ?1 and id > ?2", "where tenant_id = $1 and id > $2"),
            ("where q.tenant_id = ?1 and t.id = q.task_id", "where q.tenant_id = $1 and t.id = q.task_id"),
            ("where x.tenant_id = ?1 and x.run_id = ?2", "where x.tenant_id = $1 and x.run_id = $2"),
            ("where tenant_id = ?1", "where tenant_id = $1"),
            ("where old_tenant_id = ?1 and id = ?2", "where old_tenant_id = $1 and id = $2"),
            ("é tenant_id = ?1 and id = (select 1)", "é (tenant_id = $1) is true and id = (select 1)"),
            ("", ""),
        ] {
            assert_eq!(to_postgres_sql(sql), expected);
        }
    }
}

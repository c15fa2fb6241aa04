//! PostgreSQL, asked as seldom as can be: what nobody waits for travels with the next question, and so does what is
//! about to be asked.

use std::{borrow::Cow, collections::HashMap, task::Poll, time::Duration};

use futures_util::future::{join, try_join_all};
use tokio::runtime::Runtime;
use tokio_postgres::{Client, Statement, types::Type};

use super::{
    BEGIN_READ, COMMIT, STATEMENTS_KEPT,
    pending::{Pending, PendingKind, joined, without_needless_transaction},
};
use crate::{
    engine::failover,
    error::{Error, Result},
    sql::Param,
};

/// A PostgreSQL connection and the small runtime that drives it, on the caller's own thread.
pub struct Postgres {
    client: Client,
    runtime: Runtime,
    /// Texts that were used: `None` once, prepared from the second time on. Preparing costs a round trip, which a
    /// process that asks once never gets back.
    statements: HashMap<String, Option<Statement>>,
    /// Writes whose answer nobody waits for. They go out together, before the next question or commit:
    /// one round trip instead of one each.
    pub(super) pending: Vec<Pending>,
    /// Questions that are about to be asked: they travel with the next one.
    expected: Vec<Question>,
    /// Answers to questions that were expected.
    known: Vec<(Question, Vec<tokio_postgres::Row>)>,
    /// While queries are deferred: whether one was (see [`super::Connection::set_deferring`]).
    pub(super) deferring: Option<bool>,
    /// How long an answer is waited for, where that is not left to the server.
    pub(super) answer_max: Option<Duration>,
    /// Whether an answer was not waited for any longer: what comes next on this connection would be that answer.
    is_given_up: bool,
    /// Whether a write found out that this server takes none: another one may, at the same address.
    is_standby: bool,
}

/// A question that somebody will ask.
#[derive(Debug)]
struct Question {
    sql: String,
    params: Vec<Param<'static>>,
}

impl Question {
    fn is(&self, sql: &str, params: &[Param<'_>]) -> bool {
        self.sql == sql && self.params == params
    }
}

impl std::fmt::Debug for Postgres {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Postgres").field("pending", &self.pending.len()).finish_non_exhaustive()
    }
}

/// Turns of a connection until it has seen that the other side hung up: one to hear of it, one to read it.
const TURNS_TO_NOTICE: usize = 3;

impl Postgres {
    pub(super) fn connect(url: &str) -> Result<Self> {
        let runtime = failover::small_runtime()?;
        let client = runtime.block_on(async {
            let (client, carrier) = failover::connect(url).await?;
            // Ends with the connection; what it ends with reaches us through the client.
            tokio::spawn(carrier);
            Ok::<_, Error>(client)
        });
        match client {
            Ok(client) => Ok(Self {
                client,
                runtime,
                statements: HashMap::new(),
                pending: Vec::new(),
                expected: Vec::new(),
                known: Vec::new(),
                deferring: None,
                answer_max: None,
                is_given_up: false,
                is_standby: false,
            }),
            Err(error) => {
                // A name that is still looked up is not waited for.
                runtime.shutdown_background();
                Err(error)
            }
        }
    }

    /// A connection that rests is driven by nobody. It gets a turn here, so that a server which went away meanwhile is
    /// noticed before anything is sent to it.
    pub(super) fn is_open(&self) -> bool {
        self.runtime.block_on(async {
            for _ in 0..TURNS_TO_NOTICE {
                tokio::task::yield_now().await;
            }
        });
        !self.is_standby && !self.is_given_up && !self.client.is_closed()
    }

    /// Sends something whose answer is dropped when it comes, with that of what is sent next.
    fn send(&self, sql: &str) {
        self.runtime.block_on(async {
            let mut sending = std::pin::pin!(self.client.batch_execute(sql));
            std::future::poll_fn(|waker| {
                // Polled once it is on its way.
                let _ = sending.as_mut().poll(waker);
                Poll::Ready(())
            })
            .await;
            // Who carries it gets a turn to send it.
            tokio::task::yield_now().await;
        });
    }

    /// Leaves a read transaction, and forgets what was asked in it.
    pub(super) fn end_read(&mut self) {
        let is_unasked = self.pending.first().is_some_and(|first| first.sql == BEGIN_READ);
        self.pending.clear();
        self.expected.clear();
        self.known.clear();
        self.deferring = None;
        if !is_unasked && !self.client.is_closed() {
            self.send("rollback");
        }
    }

    /// The prepared statement of a text, when it was used before.
    pub(super) fn statement(&mut self, sql: &str) -> Result<Option<Statement>> {
        match self.statements.get(sql) {
            Some(Some(statement)) => Ok(Some(statement.clone())),
            Some(None) => {
                let preparing =
                    self.runtime.block_on(in_time(self.answer_max, self.client.prepare(&for_postgres(sql))));
                let statement = self.waited(preparing)??;
                self.statements.insert(sql.to_owned(), Some(statement.clone()));
                Ok(Some(statement))
            }
            None => {
                // Texts are made of parts, and there is no end of ways to put them together.
                if self.statements.len() >= STATEMENTS_KEPT {
                    self.statements.clear();
                }
                self.statements.insert(sql.to_owned(), None);
                Ok(None)
            }
        }
    }

    /// An answer that came in time.
    fn waited<T>(&mut self, answer: Option<T>) -> Result<T> {
        self.is_given_up |= answer.is_none();
        answer.ok_or_else(|| Error::Unreachable("it does not answer".into()))
    }

    pub(super) fn keep(&mut self, sql: Cow<'static, str>, params: &[Param<'_>], kind: PendingKind) {
        let params = params.iter().cloned().map(Param::into_owned).collect();
        self.pending.push(Pending { sql, params, kind });
    }

    pub(super) fn expect(&mut self, sql: &str, params: &[Param<'_>]) {
        if self.known(sql, params).is_none() && !self.expected.iter().any(|question| question.is(sql, params)) {
            let params = params.iter().cloned().map(Param::into_owned).collect();
            self.expected.push(Question { sql: sql.to_owned(), params });
        }
    }

    /// The answer to a question that was expected and has been asked.
    pub(super) fn known(&self, sql: &str, params: &[Param<'_>]) -> Option<&[tokio_postgres::Row]> {
        self.known.iter().find(|(question, _)| question.is(sql, params)).map(|(_, rows)| rows.as_slice())
    }

    /// Asks what is expected, and a question that may be one of them; else it says the answer.
    pub(super) fn query_beside_expected(
        &mut self,
        own: Option<(&str, &[Param<'_>])>,
    ) -> Result<Vec<tokio_postgres::Row>> {
        let expected = std::mem::take(&mut self.expected);
        let own = own.filter(|(sql, params)| !expected.iter().any(|question| question.is(sql, params)));
        let asked = expected.iter().map(|question| (question.sql.as_str(), question.params.as_slice())).chain(own);
        let mut answers = self.query_all(&asked.collect::<Vec<_>>())?;
        let rows = own.and_then(|_| answers.pop()).unwrap_or_default();
        self.known.extend(expected.into_iter().zip(answers));
        Ok(rows)
    }

    /// Asks several questions in one round trip.
    fn query_all(&mut self, questions: &[(&str, &[Param<'_>])]) -> Result<Vec<Vec<tokio_postgres::Row>>> {
        let statements = questions.iter().map(|(sql, _)| self.statement(sql)).collect::<Result<Vec<_>>>()?;
        self.after_pending(async |client| {
            let asked = questions.iter().zip(&statements).map(|((sql, params), statement)| async move {
                match statement {
                    Some(statement) => client.query(statement, &dynamic(params)).await,
                    None => client.query_typed(&for_postgres(sql), &typed(params)).await,
                }
            });
            try_join_all(asked).await
        })
    }

    /// Sends what is pending and asks a question, all in one round trip.
    pub(super) fn after_pending<T>(
        &mut self,
        ask: impl AsyncFnOnce(&Client) -> std::result::Result<T, tokio_postgres::Error>,
    ) -> Result<T> {
        let pending = std::mem::take(&mut self.pending);
        let commits = pending.iter().any(|pending| pending.sql == COMMIT);
        let pending = without_needless_transaction(joined(pending));
        let statements = pending.iter().map(|pending| self.statement(&pending.sql)).collect::<Result<Vec<_>>>()?;
        // Polled in order, the client sends them in order and back to back.
        let client = &self.client;
        let sent = statements.iter().zip(&pending).map(|(statement, Pending { sql, params, .. })| async move {
            match statement {
                Some(statement) => client.execute(statement, &dynamic(params)).await,
                None => client.execute_typed(&for_postgres(sql), &typed(params)).await,
            }
        });
        let outcome = self.runtime.block_on(in_time(self.answer_max, join(try_join_all(sent), ask(client))));
        let (sent, answer) = self.waited(outcome).map_err(|error| match error {
            Error::Unreachable(why) if commits => Error::Unsettled(why),
            error => error,
        })?;
        // What failed first is why the rest failed.
        sent.map(drop).and(answer).map_err(|error| match Error::from(error) {
            // It was sent, and nobody says what became of it.
            Error::Unreachable(why) if commits => Error::Unsettled(why),
            error => {
                self.is_standby |= matches!(error, Error::Standby(_));
                error
            }
        })
    }
}

/// What comes out, unless that takes longer than it may.
async fn in_time<T>(at_most: Option<Duration>, answer: impl Future<Output = T>) -> Option<T> {
    match at_most {
        Some(at_most) => tokio::time::timeout(at_most, answer).await.ok(),
        None => Some(answer.await),
    }
}

/// A text of both engines as PostgreSQL needs it: with placeholders of its own, and with nothing else to find by what has an id.
///
/// While a table is short, or its statistics are old, any index that begins with the tenant and has the id somewhere looks as good as
/// that of the ids. The plan stays when the table has grown, and walks along all of the tenant's rows. So whose a row is gets
/// written in a way that no index fits.
pub(super) fn for_postgres(sql: &str) -> String {
    const TENANT: &str = "tenant_id = ?";
    let mut out = String::with_capacity(sql.len() + TENANT.len());
    let mut rest = sql;
    while let Some(found) = rest.find(TENANT) {
        let (before, from) = rest.split_at(found);
        let alias =
            before.bytes().rev().take_while(|byte| byte.is_ascii_alphanumeric() || b"._".contains(byte)).count();
        let (before, alias) = before.split_at(found - alias);
        let digits = from[TENANT.len()..].bytes().take_while(u8::is_ascii_digit).count();
        let (is_tenants, after) = from.split_at(TENANT.len() + digits);
        let is_by_id = after.strip_prefix(" and ").and_then(|after| after.strip_prefix(alias));
        out.push_str(before);
        if is_by_id.is_some_and(|condition| condition.starts_with("id = ")) {
            out.extend(["(", alias, is_tenants, ") is true"]);
        } else {
            out.extend([alias, is_tenants]);
        }
        rest = after;
    }
    out.push_str(rest);
    out.replace('?', "$")
}

pub(super) fn dynamic<'a>(params: &'a [Param<'a>]) -> Vec<&'a (dyn postgres_types::ToSql + Sync)> {
    params.iter().map(|param| param as _).collect()
}

pub(super) fn typed<'a>(params: &'a [Param<'a>]) -> Vec<(&'a (dyn postgres_types::ToSql + Sync), Type)> {
    params.iter().map(|param| (param as _, param.postgres_type())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_an_id_is_found_by_it() {
        for (ours, theirs) in [
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
            assert_eq!(for_postgres(ours), theirs);
        }
    }
}

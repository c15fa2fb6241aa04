//! Writes that wait to be sent to PostgreSQL, and their combination into few statements.

use std::borrow::Cow;

use super::{BEGIN, COMMIT};
use crate::sql::Param;

/// A statement that waits to be sent.
#[derive(Debug)]
pub(super) struct Pending {
    pub sql: Cow<'static, str>,
    pub params: Vec<Param<'static>>,
    pub kind: PendingKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PendingKind {
    /// Sees the changes of all statements before it.
    Ordered,
    /// Neither reads nor changes rows of its neighbours, so that PostgreSQL can run them as one statement.
    Independent,
    /// An independent write; the transaction fails unless the write changes at least this many rows.
    RequiringChange(usize),
    /// An independent query; the transaction fails unless the query finds a row.
    RequiringRow,
}

/// Combines independent neighbours into one statement, because each statement costs the server as much as writing a
/// row.
pub(super) fn combine(pending: Vec<Pending>) -> Vec<Pending> {
    let mut out: Vec<Pending> = Vec::with_capacity(pending.len());
    let mut group: Vec<Pending> = Vec::new();
    for one in pending {
        // Two inserts into the same table stay apart, because the parts of one statement have no order.
        let joins_group = one.kind != PendingKind::Ordered
            && group.iter().all(|other| conflict_key(&other.sql) != conflict_key(&one.sql));
        if !joins_group {
            out.extend(into_statement(std::mem::take(&mut group)));
        }
        if one.kind == PendingKind::Ordered { out.push(one) } else { group.push(one) }
    }
    out.extend(into_statement(group));
    out
}

/// Statements with equal keys cannot be combined. The key of an insert is its table; the key of any other statement is
/// its SQL.
fn conflict_key(sql: &str) -> &str {
    match sql.strip_prefix("insert into ").and_then(|rest| rest.split_once(' ')) {
        Some((table, _)) => table,
        None => sql,
    }
}

fn into_statement(mut group: Vec<Pending>) -> Option<Pending> {
    let is_unchecked = group.iter().all(|part| part.kind == PendingKind::Independent);
    if group.len() < 2 && is_unchecked {
        return group.pop();
    }
    let mut sql = String::with_capacity(64 + group.iter().map(|part| part.sql.len() + 32).sum::<usize>());
    let mut params = Vec::new();
    let mut checks = Vec::new();
    for (part, number) in group.into_iter().zip(1..) {
        sql.push_str(if number == 1 { "with p" } else { "), p" });
        sql.push_str(&number.to_string());
        sql.push_str(" as (");
        push_with_shifted_placeholders(&mut sql, &part.sql, params.len());
        match part.kind {
            PendingKind::RequiringChange(rows) => {
                sql.push_str(" returning 1");
                checks.push((number, rows));
            }
            PendingKind::RequiringRow => checks.push((number, 1)),
            PendingKind::Independent | PendingKind::Ordered => {}
        }
        params.extend(part.params);
    }
    sql.push_str(") select 1");
    for (number, rows) in checks {
        sql.push_str(&format!(" / (select count(*) / {rows} from p{number})"));
    }
    Some(Pending { sql: Cow::Owned(sql), params, kind: PendingKind::Ordered })
}

/// Appends SQL with all placeholder numbers increased by `by`.
fn push_with_shifted_placeholders(out: &mut String, sql: &str, by: usize) {
    let mut parts = sql.split('?');
    out.push_str(parts.next().unwrap_or_default());
    for part in parts {
        let digits = part.bytes().take_while(u8::is_ascii_digit).count();
        let number: usize = part[..digits].parse().unwrap_or_default();
        out.push('?');
        out.push_str(&(number + by).to_string());
        out.push_str(&part[digits..]);
    }
}

/// Removes the `begin` and `commit` around a single statement, because the statement is a transaction by itself.
pub(super) fn drop_needless_transaction(mut pending: Vec<Pending>) -> Vec<Pending> {
    if let [begin, _, commit, ..] = pending.as_slice()
        && begin.sql == BEGIN
        && commit.sql == COMMIT
    {
        pending.remove(2);
        pending.remove(0);
    }
    pending
}

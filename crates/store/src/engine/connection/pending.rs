//! Writes whose answer nobody waits for, on their way to PostgreSQL: as few statements as they can be.

use std::borrow::Cow;

use super::{BEGIN, COMMIT};
use crate::sql::Param;

/// A write on its way.
#[derive(Debug)]
pub(super) struct Pending {
    pub sql: Cow<'static, str>,
    pub params: Vec<Param<'static>>,
    pub kind: PendingKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PendingKind {
    /// Sees what those before it did.
    Alone,
    /// Sees nothing of its neighbours, so they can be one statement.
    Beside,
    /// The same, and all of it fails unless it changes so many rows.
    BesideAndChanging(usize),
    /// A look, and all of it fails unless it finds a row.
    BesideAndFinding,
}

/// Makes one statement of neighbours that see nothing of each other: each statement costs the server as much as the row
/// it writes.
pub(super) fn joined(pending: Vec<Pending>) -> Vec<Pending> {
    let mut out: Vec<Pending> = Vec::with_capacity(pending.len());
    let mut group: Vec<Pending> = Vec::new();
    for one in pending {
        // New rows of one table, one part: two would have no order.
        let goes_on = one.kind != PendingKind::Alone && group.iter().all(|other| what(&other.sql) != what(&one.sql));
        if !goes_on {
            out.extend(as_one(std::mem::take(&mut group)));
        }
        if one.kind == PendingKind::Alone { out.push(one) } else { group.push(one) }
    }
    out.extend(as_one(group));
    out
}

/// What a statement is about: all of it, or the table it adds to.
fn what(sql: &str) -> &str {
    match sql.strip_prefix("insert into ").and_then(|rest| rest.split_once(' ')) {
        Some((table, _)) => table,
        None => sql,
    }
}

fn as_one(mut group: Vec<Pending>) -> Option<Pending> {
    let is_plain = group.iter().all(|part| part.kind == PendingKind::Beside);
    if group.len() < 2 && is_plain {
        return group.pop();
    }
    let mut sql = String::with_capacity(64 + group.iter().map(|part| part.sql.len() + 32).sum::<usize>());
    let mut params = Vec::new();
    let mut checks = Vec::new();
    for (part, number) in group.into_iter().zip(1..) {
        sql.push_str(if number == 1 { "with p" } else { "), p" });
        sql.push_str(&number.to_string());
        sql.push_str(" as (");
        push_shifted(&mut sql, &part.sql, params.len());
        match part.kind {
            PendingKind::BesideAndChanging(rows) => {
                sql.push_str(" returning 1");
                checks.push((number, rows));
            }
            PendingKind::BesideAndFinding => checks.push((number, 1)),
            PendingKind::Beside | PendingKind::Alone => {}
        }
        params.extend(part.params);
    }
    sql.push_str(") select 1");
    for (number, rows) in checks {
        // Divides by zero, which aborts the transaction, if too few rows matched.
        sql.push_str(&format!(" / (select count(*) / {rows} from p{number})"));
    }
    Some(Pending { sql: Cow::Owned(sql), params, kind: PendingKind::Alone })
}

/// Appends a text whose placeholders come after so many others.
fn push_shifted(out: &mut String, sql: &str, by: usize) {
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

/// A statement is a transaction: one alone needs no other around it.
pub(super) fn without_needless_transaction(mut pending: Vec<Pending>) -> Vec<Pending> {
    if let [begin, _, commit, ..] = pending.as_slice()
        && begin.sql == BEGIN
        && commit.sql == COMMIT
    {
        pending.remove(2);
        pending.remove(0);
    }
    pending
}

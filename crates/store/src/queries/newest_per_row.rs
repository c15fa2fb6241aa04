//! Joins each row of a table with its newest rows in another table. The SQL for PostgreSQL forces the use of the index
//! that has the rows in order. PostgreSQL would otherwise choose a plan that reads many more rows.

use crate::connection::Engine;

/// Joins each version `v (id, before)` of a task with its runs `u` whose ids are greater than `before`, at most `?5`
/// per version. To be used after `join`.
///
/// Without `lateral`, PostgreSQL may read all newer runs of the tenant, or all runs of the version, because it expects
/// few of them.
pub fn runs_of_each_version(engine: Engine) -> &'static str {
    match engine {
        Engine::Sqlite => "runs u on u.tenant_id = ?1 and u.task_id = v.id and u.id > v.before",
        Engine::Postgres => {
            "lateral (select * from runs r where r.tenant_id = ?1 and r.task_id = v.id and r.id > v.before order by r.id desc limit ?5) u on true"
        }
    }
}

/// Joins each row of `of` with its newest messages `i`, at most `?3` per row. `column` of a message refers to the row.
/// To be used after `join`.
///
/// On PostgreSQL the condition is a range instead of an equality. With an equality PostgreSQL may scan all messages of
/// the tenant in the order of their ids, because it expects to find a match soon. Only the index on `column` has the
/// order of the range.
pub fn messages_of_each(engine: Engine, column: &str, of: &str) -> String {
    match engine {
        Engine::Sqlite => format!(
            "messages i on i.tenant_id = ?1 and i.id in (select x.id from messages x where x.tenant_id = ?1
             and x.{column} = {of}.id and x.{column} is not null order by x.id desc limit ?3)"
        ),
        Engine::Postgres => format!(
            "lateral (select x.id, x.created_at from messages x where x.tenant_id = ?1
             and (x.{column}, x.id) >= ({of}.id, uuid '00000000-0000-0000-0000-000000000000')
             and (x.{column}, x.id) <= ({of}.id, uuid 'ffffffff-ffff-ffff-ffff-ffffffffffff')
             and x.{column} is not null
             order by x.{column} desc, x.id desc limit ?3) i on true"
        ),
    }
}

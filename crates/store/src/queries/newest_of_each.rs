//! Joins with the newest rows of each row of another table. PostgreSQL is forced to use the index that has them in order; it
//! would otherwise choose a plan that reads much more.

use crate::connection::Engine;

/// Runs `u` of each version `v (id, before)` of a task: those with greater ids than `before`, at most `?5` for each. For use
/// after `join`.
///
/// Without `lateral`, PostgreSQL reads the runs of all tasks since then, or all runs of the version, when it takes either for
/// few.
pub fn runs_of_each_version(engine: Engine) -> &'static str {
    match engine {
        Engine::Sqlite => "runs u on u.tenant_id = ?1 and u.task_id = v.id and u.id > v.before",
        Engine::Postgres => {
            "lateral (select * from runs r where r.tenant_id = ?1 and r.task_id = v.id and r.id > v.before order by r.id desc limit ?5) u on true"
        }
    }
}

/// The newest messages `i` whose column holds the id of a row of `of`, at most `?3` for each row. For use after `join`.
///
/// PostgreSQL compares a range instead of the id: with the id it may walk all messages of the tenant in the order of their ids,
/// expecting to meet a fitting one soon. Only the index by the column has the order of the range.
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

//! Database queries of `trackway doctor`.

use trackway_domain::Time;
use trackway_store::{Reader, Result, params};

/// Session id, transcript path and time of the last hook event.
pub type SessionHookStatus = (String, Option<String>, Option<Time>);

/// Counts running queue items whose leases expired before a time. Workers should have returned them to the queue.
pub fn count_expired_leases(read: &mut Reader<'_>, before: Time) -> Result<i64> {
    read.count(
        "select count(*) from queue_items where tenant_id = ?1 and status = 'running' and lease_expires < ?2",
        params![before],
    )
}

pub fn newest_sessions(read: &mut Reader<'_>, limit: i64) -> Result<Vec<SessionHookStatus>> {
    read.query(
        "select session_id, transcript_path, hooked_at from sessions where tenant_id = ?1 order by started_at desc limit ?2",
        params![limit],
    )
}

/// The time of the newest hook event of any session.
pub fn last_hook_event(read: &mut Reader<'_>) -> Result<Option<Time>> {
    let last = read.one::<(Option<Time>,)>("select max(hooked_at) from sessions where tenant_id = ?1", &[])?;
    Ok(last.and_then(|(last,)| last))
}

/// Whether a session of the client with this id is recorded.
pub fn is_session_recorded(read: &mut Reader<'_>, client: &str, session: &str) -> Result<bool> {
    let sql = "select count(*) from sessions where tenant_id = ?1 and session_id = ?2 and client = ?3";
    Ok(read.count(sql, params![session, client])? > 0)
}

/// Counts spawns of a period that finished without an error but have no matched subagent.
pub fn count_unmatched_spawns(read: &mut Reader<'_>, from: Time, until: Time) -> Result<i64> {
    read.count(
        "select count(*) from task_spawns where tenant_id = ?1 and matched_agent_id is null and error is null and status is not null and created_at between ?2 and ?3",
        params![from, until],
    )
}

//! What `trackway doctor` asks of the record.

use trackway_domain::Time;
use trackway_store::{Reader, Result, params};

/// A session with its transcript and the last hook event that came.
pub type HookedSession = (String, Option<String>, Option<Time>);

/// Queue items whose leases expired before a time and that nobody returned.
pub fn stuck_leases(read: &mut Reader<'_>, before: Time) -> Result<i64> {
    read.count(
        "select count(*) from queue_items where tenant_id = ?1 and status = 'running' and lease_expires < ?2",
        params![before],
    )
}

/// The newest sessions.
pub fn newest_sessions(read: &mut Reader<'_>, limit: i64) -> Result<Vec<HookedSession>> {
    read.query(
        "select session_id, transcript_path, hooked_at from sessions where tenant_id = ?1 order by started_at desc limit ?2",
        params![limit],
    )
}

/// When the last hook event of any session came.
pub fn last_hook_event(read: &mut Reader<'_>) -> Result<Option<Time>> {
    let last = read.one::<(Option<Time>,)>("select max(hooked_at) from sessions where tenant_id = ?1", &[])?;
    Ok(last.and_then(|(last,)| last))
}

/// Whether a session of this client id is recorded.
pub fn is_recorded(read: &mut Reader<'_>, session: &str) -> Result<bool> {
    let sql = "select count(*) from sessions where tenant_id = ?1 and session_id = ?2";
    Ok(read.count(sql, params![session])? > 0)
}

/// Spawns of a time without an agent, though they did not fail.
pub fn unmatched_spawns(read: &mut Reader<'_>, from: Time, until: Time) -> Result<i64> {
    read.count(
        "select count(*) from task_spawns where tenant_id = ?1 and matched_agent_id is null and error is null and status is not null and created_at between ?2 and ?3",
        params![from, until],
    )
}

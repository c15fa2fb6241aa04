//! Finds out whether a commit happened after the connection dropped before the server answered.

use std::{
    thread,
    time::{Duration, Instant},
};

use trackway_store::{Result, Writer, params, tables::NewEvent};

/// Maximum time for attempts to reach a server.
const RETRY_FOR: Duration = Duration::from_secs(5);
const RETRY_INTERVAL: Duration = Duration::from_millis(200);
/// Number of latest events to search. The event was appended just now.
const RECENT_EVENTS: i64 = 10_000;

/// True if this event is in the log. Then its whole transaction was committed. False proves nothing: a server that we
/// cannot reach may still commit the transaction.
pub(crate) fn was_committed<'a>(event: &NewEvent, begin: impl Fn() -> Result<Writer<'a>>) -> bool {
    let until = Instant::now() + RETRY_FOR;
    loop {
        match begin().and_then(|write| confirm_event_is_durable(event, write)) {
            Ok(found) => return found,
            Err(error) if error.is_transient() && Instant::now() < until => thread::sleep(RETRY_INTERVAL),
            Err(_) => return false,
        }
    }
}

fn confirm_event_is_durable(event: &NewEvent, mut write: Writer<'_>) -> Result<bool> {
    let found = write.count(
        "select count(*) from events where tenant_id = ?1
         and position > (select max(position) from events where tenant_id = ?1) - ?2
         and request_id = ?3 and created_at = ?4 and action = ?5 and subject_id = ?6",
        params![RECENT_EVENTS, event.request_id, event.created_at, event.action, event.subject_id],
    )?;
    if found == 0 {
        return Ok(false);
    }
    // PostgreSQL shows a commit as soon as its wait for a synchronous standby ends, even if the standby has not
    // confirmed it. Another commit waits until the standby has confirmed both commits.
    write.execute("update tenants set name = name where id = ?1", &[])?;
    write.commit()?;
    Ok(true)
}

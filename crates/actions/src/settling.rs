//! A commit whose answer got lost: whether it was made is looked up in the log.

use std::{
    thread,
    time::{Duration, Instant},
};

use trackway_store::{Result, Writer, params, tables::Logged};

/// How long to look for a server that can say it.
const LOOK_FOR: Duration = Duration::from_secs(5);
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// How many entries back it can be: it was made just now.
const RECENT: i64 = 10_000;

/// Whether an entry of the log is there, and with it all of its transaction. If it is not, that proves nothing: a server that
/// is cut off from us may still be at it.
pub(crate) fn is_there<'a>(entry: &Logged, begin: impl Fn() -> Result<Writer<'a>>) -> bool {
    let until = Instant::now() + LOOK_FOR;
    loop {
        match begin().and_then(|write| look(entry, write)) {
            Ok(found) => return found,
            Err(error) if error.is_passing() && Instant::now() < until => thread::sleep(LOOK_EVERY),
            Err(_) => return false,
        }
    }
}

fn look(entry: &Logged, mut write: Writer<'_>) -> Result<bool> {
    let found = write.count(
        "select count(*) from events where tenant_id = ?1
         and position > (select max(position) from events where tenant_id = ?1) - ?2
         and request_id = ?3 and created_at = ?4 and action = ?5 and subject_id = ?6",
        params![RECENT, entry.request_id, entry.created_at, entry.action, entry.subject_id],
    )?;
    if found == 0 {
        return Ok(false);
    }
    // A commit that waited for a standby is seen when its wait was ended, had or not. One that comes after it waits for both.
    write.execute("update tenants set name = name where id = ?1", &[])?;
    write.commit()?;
    Ok(true)
}

//! How far transcripts were read.

use serde_json::Value;
use trackway_store::{Reader, Result, params, row};

row! {
    /// Where reading a transcript stopped.
    pub struct ReadTo {
        identity: String,
        read_to: i64,
        /// When the file was last changed, as it was then.
        changed: Option<String>,
        state: Value,
    }
}

row! {
    /// How far a transcript was read, without what its reader has to remember.
    pub struct Known {
        path: String,
        identity: String,
        read_to: i64,
        changed: Option<String>,
        /// Whether a run of its session is open.
        is_open: bool,
    }
}

/// How far one transcript was read.
pub fn read_to(read: &mut Reader<'_>, path: &str) -> Result<Option<ReadTo>> {
    read.one(
        "select identity, read_to, state ->> 'changed', state from transcripts where tenant_id = ?1 and path = ?2",
        params![path],
    )
}

/// How far each transcript was read.
pub fn all_known(read: &mut Reader<'_>) -> Result<Vec<Known>> {
    read.query(
        "select path, identity, read_to, state ->> 'changed',
         exists (select 1 from runs r where r.tenant_id = ?1 and r.session_id = t.session_id and r.status = 'running')
         from transcripts t where tenant_id = ?1",
        &[],
    )
}

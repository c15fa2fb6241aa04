//! Read positions of transcripts.

use serde_json::Value;
use trackway_store::{Reader, Result, params, row};

row! {
    /// The position at which the transcript reader stopped, with the saved state of the reader.
    pub struct TranscriptCursor {
        /// Identifies the file: its inode and a hash of its first bytes.
        identity: String,
        /// The number of bytes that were read.
        read_to: i64,
        /// The change time (ctime) of the file at the last read.
        changed: Option<String>,
        state: Value,
    }
}

row! {
    /// The read position of a transcript without the saved state, which may be large.
    pub struct KnownTranscript {
        path: String,
        identity: String,
        read_to: i64,
        changed: Option<String>,
        /// Whether its session has a running run.
        is_open: bool,
    }
}

/// The read position of one transcript.
pub fn cursor(read: &mut Reader<'_>, path: &str) -> Result<Option<TranscriptCursor>> {
    read.one(
        "select identity, read_to, state ->> 'changed', state from transcripts where tenant_id = ?1 and path = ?2",
        params![path],
    )
}

/// The read positions of all transcripts.
pub fn known_transcripts(read: &mut Reader<'_>) -> Result<Vec<KnownTranscript>> {
    read.query(
        "select path, identity, read_to, state ->> 'changed',
         exists (select 1 from runs r where r.tenant_id = ?1 and r.session_id = t.session_id and r.status = 'running')
         from transcripts t where tenant_id = ?1",
        &[],
    )
}

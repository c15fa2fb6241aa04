//! Lookup of message bodies by digest.

use std::collections::HashMap;

use uuid::Uuid;

use crate::{connection::Engine, error::Result, params, sql::hex, store::Writer};

impl Writer<'_> {
    /// Returns the ids of existing bodies by digest. Locks them, so that a concurrent cleanup does not delete them
    /// before the messages that refer to them are inserted.
    pub fn contents_by_digest(&mut self, digests: &[Vec<u8>]) -> Result<HashMap<Vec<u8>, Uuid>> {
        let found = match self.engine() {
            Engine::Sqlite => {
                let mut found = Vec::new();
                for digest in digests {
                    let sql = "select digest, id from contents where tenant_id = ?1 and digest = ?2";
                    found.extend(self.one::<(Vec<u8>, Uuid)>(sql, params![digest])?);
                }
                found
            }
            Engine::Postgres => {
                let digests: Vec<String> = digests.iter().map(|digest| hex(digest)).collect();
                self.query::<(Vec<u8>, Uuid)>(
                    "select digest, id from contents where tenant_id = ?1 and digest in
                     (select decode(wanted, 'hex') from jsonb_array_elements_text(cast(?2 as jsonb)) wanted) for key share of contents",
                    params![digests],
                )?
            }
        };
        Ok(found.into_iter().collect())
    }
}

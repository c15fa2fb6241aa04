//! Checks, as part of the write itself, that the acting run may write.

use trackway_domain::{Id, kind};

use crate::{error::Result, params, store::Writer};

impl Writer<'_> {
    /// In optimistic mode, locks the run and extends its lease. The transaction fails unless the run is running, its
    /// agent is not archived, its lease has not expired, and no other transaction has locked it. Returns false in
    /// checked mode: the caller then has to query the run first.
    ///
    /// If another transaction has locked the run, this statement skips it, and so the transaction fails. The caller
    /// then repeats the transaction in checked mode, which waits for the lock and reads the time afterwards.
    pub fn guard_run(&mut self, agent: Id<kind::Agent>, run: Id<kind::Run>) -> Result<bool> {
        if !self.mode.optimistic {
            return Ok(false);
        }
        let now = self.now;
        self.post_requiring_row(
            "select 1 from runs r join agents a on a.id = r.agent_id left join queue_items q on q.id = r.queue_item_id and q.fence = r.fence
             where r.tenant_id = ?1 and r.id = ?2 and r.agent_id = ?3 and r.status = 'running' and not a.archived
             and (r.queue_item_id is null or q.lease_expires > ?4) for no key update of r skip locked",
            params![run, agent, now],
        )?;
        self.post_independent(
            // The condition of `domain::queue::should_extend_lease`.
            "update queue_items set lease_expires = cast(?3 as timestamptz) + lease_seconds * interval '1 s', heartbeat_at = ?3
             where (id, fence) = (select queue_item_id, fence from runs where tenant_id = ?1 and id = ?2) and (status = 'running') is true
             and not ?3 between lease_expires - lease_seconds * interval '1 s' and lease_expires - lease_seconds * interval '0.9 s'",
            params![run, now],
        )?;
        Ok(true)
    }
}

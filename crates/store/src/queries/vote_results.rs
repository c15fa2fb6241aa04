//! Vote counts of decisions.

use trackway_domain::{
    Id, Time, kind,
    vote_results::{OptionResult, rank_options},
};

use crate::{error::Result, params, store::Reader};

impl Reader<'_> {
    /// Returns the options of a decision with their votes, the leading option first.
    pub fn decision_results(&mut self, decision: Id<kind::Decision>) -> Result<Vec<OptionResult>> {
        let counted = self.query::<(String, i64, i64, Id<kind::DecisionOption>, Time)>(
            "select o.title, count(case when v.accepted then 1 end), count(case when v.preferred then 1 end), o.id, o.created_at
             from decision_options o left join votes v on v.option_id = o.id
             where o.tenant_id = ?1 and o.decision_id = ?2 group by o.id, o.title, o.created_at",
            params![decision],
        )?;
        let results = counted.into_iter().map(|(option, accepted, preferred, id, created_at)| OptionResult {
            option,
            accepted,
            preferred,
            id,
            created_at,
        });
        Ok(rank_options(results.collect()))
    }
}

//! Records the token usage of a session's model calls. Each call counts once.

use trackway_domain::{
    Id, kind,
    observed::{ObservedFact, UsageFacts},
    text,
};
use trackway_store::params;

use super::{SessionRecorder, matching::is_client_id};
use crate::error::Result;

impl SessionRecorder<'_, '_> {
    /// Counts a model call once, although several transcript lines report it and resumed sessions repeat these lines.
    /// The line with the most output tokens wins.
    pub(super) fn record_usage(&mut self, observed: &ObservedFact, facts: &UsageFacts) -> Result<()> {
        let ids = [Some(&facts.message_id), facts.request_id.as_ref()];
        if !ids.into_iter().flatten().all(|id| is_client_id(id)) {
            return Ok(());
        }
        let run = self.run_of(observed)?;
        // Without the provider's request id, a message id is unique only within its session.
        let once_key = match &facts.request_id {
            Some(request) => format!("{} {request}", facts.message_id),
            None => format!("{} {}", self.session.session_id, facts.message_id),
        };
        if facts.request_id.is_none() && facts.copies_get_new_ids && self.is_copy_counted(&facts.message_id)? {
            return Ok(());
        }
        let model = facts.model.as_deref().map(|model| text::cut(&text::clean_line(model), text::LINE_MAX));
        let tokens = |count: Option<i64>| count.filter(|count| (0..=1_000_000_000_000).contains(count));
        let id = Id::<kind::Run>::new(observed.at);
        self.write.post(
            "insert into run_usage (tenant_id, id, run_id, message_id, model, input_tokens, output_tokens, cache_creation_tokens, cache_read_tokens, created_at, once_key)
             values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)
             on conflict (tenant_id, once_key) do update set model = excluded.model, input_tokens = excluded.input_tokens, output_tokens = excluded.output_tokens,
             cache_creation_tokens = excluded.cache_creation_tokens, cache_read_tokens = excluded.cache_read_tokens
             where coalesce(excluded.output_tokens, -1) > coalesce(run_usage.output_tokens, -1)",
            params![
                id, run, facts.message_id, model, tokens(facts.input_tokens), tokens(facts.output_tokens),
                tokens(facts.cache_creation_tokens), tokens(facts.cache_read_tokens), observed.at, once_key
            ],
        )?;
        self.count("usage");
        Ok(())
    }

    /// True if the message is already counted in any session. Only the original line has a request id, so only its key
    /// starts with the message id.
    fn is_copy_counted(&mut self, message_id: &str) -> Result<bool> {
        let (from, to) = (format!("{message_id} "), format!("{message_id}!"));
        let sql = "select count(*) from run_usage where tenant_id = ?1 and once_key >= ?2 and once_key < ?3";
        Ok(self.write.count(sql, params![from, to])? > 0)
    }
}

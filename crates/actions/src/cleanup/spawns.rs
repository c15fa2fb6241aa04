//! Removes spawns, for several cleanup actions.

use serde_json::json;
use trackway_store::{Writer, params, sql::Param, tables::Session};

use super::{CleanupResult, session_resource};
use crate::{
    action::{Action, ActionOutcome},
    error::Result,
    touched::NoTouches,
};

pub(super) fn remove_spawns<A: Action<Touched = NoTouches, Output = CleanupResult>>(
    write: &mut Writer<'_>,
    session: &Session,
    which: &str,
) -> Result<ActionOutcome<A>> {
    let removed = delete_spawns(write, which, params![session.id])?;
    Ok(ActionOutcome::changed(CleanupResult { removed }, &session_resource(session), NoTouches)
        .with_detail(json!({ "removed": removed })))
}

pub(super) fn delete_spawns(write: &mut Writer<'_>, which: &str, params: &[Param<'_>]) -> Result<i64> {
    let chosen = format!("(select id from task_spawns where tenant_id = ?1 and {which})");
    // Runs that the spawns started stay, but lose their cause.
    write.execute(
        &format!(
            "update runs set cause_kind = null, cause_id = null where tenant_id = ?1
             and session_id in (select session_id from task_spawns where tenant_id = ?1 and {which}) and cause_kind = 'spawn' and cause_id in {chosen}"
        ),
        params,
    )?;
    // A subagent without a remaining spawn has no position in its parent's transcript.
    write.execute(
        &format!(
            "update subagents set task_match_index = null where tenant_id = ?1 and task_match_index is not null
             and exists (select 1 from task_spawns s where s.tenant_id = ?1 and s.session_id = subagents.session_id
                 and s.matched_agent_id = subagents.agent_id and s.id in {chosen})
             and not exists (select 1 from task_spawns s where s.tenant_id = ?1 and s.session_id = subagents.session_id
                 and s.matched_agent_id = subagents.agent_id and s.id not in {chosen})"
        ),
        params,
    )?;
    write.execute(&format!("delete from spawn_matches where tenant_id = ?1 and spawn_id in {chosen}"), params)?;
    write.execute(&format!("delete from registry where tenant_id = ?1 and id in {chosen}"), params)?;
    let removed = write.execute(&format!("delete from task_spawns where tenant_id = ?1 and id in {chosen}"), params)?;
    Ok(i64::try_from(removed).unwrap_or(i64::MAX))
}

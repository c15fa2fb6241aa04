//! Removing spawns without a matched agent or without a role.

use serde::Deserialize;
use serde_json::json;
use trackway_domain::{Error as Rule, Ref, field, kind, sentence};
use trackway_store::{Writer, params, sql::Param, tables::Session};

use super::{CleanupResult, locked_session, session_resource};
use crate::{
    action::{Action, ActionOutcome, Resource},
    context::Context,
    error::Result,
    touched::NoTouches,
};

/// Remove spawns of a session that have no agent, except the newest
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
#[serde(deny_unknown_fields)]
pub struct CleanupOldSpawns {
    /// Session to clean up
    #[arg(long)]
    pub session: Ref<kind::Session>,
    /// Number of newest spawns to keep, matched or not
    #[arg(long, default_value_t = 100, value_name = "NUMBER")]
    #[serde(default = "keep")]
    #[schemars(range(min = 0))]
    pub keep: i64,
}

fn keep() -> i64 {
    100
}

impl Action for CleanupOldSpawns {
    const NAME: &'static str = "cleanup_old_spawns";
    const CAPABILITY: &'static str = "cleanup";
    const COMMAND: (&'static str, &'static str) = ("cleanup", "old-spawns");
    type Touched = NoTouches;
    type Output = CleanupResult;

    fn perform(&self, _: &Context, write: &mut Writer<'_>) -> Result<ActionOutcome<Self>> {
        if self.keep < 0 {
            return Err(Rule::usage(sentence![field!(keep), " must be 0 or more"]).into());
        }
        let session = locked_session(write, &self.session)?;
        let old = format!(
            "session_id = ?2 and matched_agent_id is null and id not in (select id from task_spawns where tenant_id = ?1 and session_id = ?2 order by id desc limit {})",
            self.keep
        );
        remove_spawns(write, &session, &old)
    }
}

/// Remove spawns that have no role and no agent
///
/// `ingest --full` restores spawns that are in a transcript.
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
#[serde(deny_unknown_fields)]
pub struct CleanupNullRole {
    /// Remove spawns of this session only
    #[arg(long)]
    pub session: Option<Ref<kind::Session>>,
    /// Also remove spawns that have an agent
    #[arg(long)]
    #[serde(default)]
    pub matched: bool,
}

impl Action for CleanupNullRole {
    const NAME: &'static str = "cleanup_null_role";
    const CAPABILITY: &'static str = "cleanup";
    const COMMAND: (&'static str, &'static str) = ("cleanup", "null-role");
    const IS_DESTRUCTIVE: bool = true;
    type Touched = NoTouches;
    type Output = CleanupResult;

    fn perform(&self, context: &Context, write: &mut Writer<'_>) -> Result<ActionOutcome<Self>> {
        let which = if self.matched { "role is null" } else { "role is null and matched_agent_id is null" };
        match &self.session {
            Some(session) => {
                let session = locked_session(write, session)?;
                remove_spawns(write, &session, &format!("session_id = ?2 and {which}"))
            }
            None => {
                let tenant = Resource::<kind::Tenant>::new(context.tenant, "spawns without a role");
                let removed = delete_spawns(write, which, &[])?;
                Ok(ActionOutcome::changed(CleanupResult { removed }, &tenant, NoTouches)
                    .with_detail(json!({ "removed": removed })))
            }
        }
    }
}

fn remove_spawns<A: Action<Touched = NoTouches, Output = CleanupResult>>(
    write: &mut Writer<'_>,
    session: &Session,
    which: &str,
) -> Result<ActionOutcome<A>> {
    let removed = delete_spawns(write, which, params![session.id])?;
    Ok(ActionOutcome::changed(CleanupResult { removed }, &session_resource(session), NoTouches)
        .with_detail(json!({ "removed": removed })))
}

fn delete_spawns(write: &mut Writer<'_>, which: &str, params: &[Param<'_>]) -> Result<i64> {
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

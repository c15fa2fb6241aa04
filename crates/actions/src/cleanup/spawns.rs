//! Removing spawns that were matched with no agent.

use serde::Deserialize;
use serde_json::json;
use trackway_domain::{Error as Rule, Ref, field, kind, sentence};
use trackway_store::{Writer, params, sql::Param, tables::Session};

use super::{Removed, locked_session, session_resource};
use crate::{
    action::{Action, Done, Resource},
    context::Context,
    error::Result,
    touched::Nothing,
};

/// Remove spawns without an agent, but for the newest of a session
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
#[serde(deny_unknown_fields)]
pub struct CleanupOldSpawns {
    /// The session
    #[arg(long)]
    pub session: Ref<kind::Session>,
    /// How many of its newest spawns stay, matched or not
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
    type Touched = Nothing;
    type Output = Removed;

    fn perform(&self, _: &Context, write: &mut Writer<'_>) -> Result<Done<Self>> {
        if self.keep < 0 {
            return Err(Rule::usage(sentence![field!(keep), " is 0 or more"]).into());
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
/// `ingest --full` restores those that stand in a transcript.
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
#[serde(deny_unknown_fields)]
pub struct CleanupNullRole {
    /// Only of this session
    #[arg(long)]
    pub session: Option<Ref<kind::Session>>,
    /// Remove spawns that have an agent, too
    #[arg(long)]
    #[serde(default)]
    pub matched: bool,
}

impl Action for CleanupNullRole {
    const NAME: &'static str = "cleanup_null_role";
    const CAPABILITY: &'static str = "cleanup";
    const COMMAND: (&'static str, &'static str) = ("cleanup", "null-role");
    const REMOVES: bool = true;
    type Touched = Nothing;
    type Output = Removed;

    fn perform(&self, context: &Context, write: &mut Writer<'_>) -> Result<Done<Self>> {
        let which = if self.matched { "role is null" } else { "role is null and matched_agent_id is null" };
        match &self.session {
            Some(session) => {
                let session = locked_session(write, session)?;
                remove_spawns(write, &session, &format!("session_id = ?2 and {which}"))
            }
            None => {
                let tenant = Resource::<kind::Tenant>::outside(context.tenant, "spawns without a role");
                let removed = delete_spawns(write, which, &[])?;
                Ok(Done::changed(Removed { removed }, &tenant, Nothing).with_detail(json!({ "removed": removed })))
            }
        }
    }
}

fn remove_spawns<A: Action<Touched = Nothing, Output = Removed>>(
    write: &mut Writer<'_>,
    session: &Session,
    which: &str,
) -> Result<Done<A>> {
    let removed = delete_spawns(write, which, params![session.id])?;
    Ok(Done::changed(Removed { removed }, &session_resource(session), Nothing)
        .with_detail(json!({ "removed": removed })))
}

fn delete_spawns(write: &mut Writer<'_>, which: &str, params: &[Param<'_>]) -> Result<i64> {
    let chosen = format!("(select id from task_spawns where tenant_id = ?1 and {which})");
    // The run that a spawn started stays, without its cause.
    write.execute(
        &format!(
            "update runs set cause_kind = null, cause_id = null where tenant_id = ?1
             and session_id in (select session_id from task_spawns where tenant_id = ?1 and {which}) and cause_kind = 'spawn' and cause_id in {chosen}"
        ),
        params,
    )?;
    // A subagent without any spawn left has no place in the transcript of its parent.
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

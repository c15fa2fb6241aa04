//! The action `cleanup_old_spawns`.

use serde::Deserialize;
use trackway_domain::{Error as Rule, Ref, field, kind, sentence};
use trackway_store::Writer;

use super::{CleanupResult, locked_session, spawns::remove_spawns};
use crate::{
    action::{Action, ActionOutcome},
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

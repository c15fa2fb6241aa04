use serde::Deserialize;
use serde_json::json;
use trackway_domain::{Ref, kind};
use trackway_store::{Writer, params};

use super::{CleanupResult, locked_session, session_resource};
use crate::{
    action::{Action, ActionOutcome},
    context::Context,
    error::Result,
    touched::NoTouches,
};

/// Mark the subagents of a session as stopped and hide them; their spawns and runs stay
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
#[serde(deny_unknown_fields)]
pub struct CleanupSession {
    /// Session to clean up
    pub session: Ref<kind::Session>,
}

impl Action for CleanupSession {
    const NAME: &'static str = "cleanup_session";
    const CAPABILITY: &'static str = "cleanup";
    const COMMAND: (&'static str, &'static str) = ("cleanup", "session");
    type Touched = NoTouches;
    type Output = CleanupResult;

    fn perform(&self, _: &Context, write: &mut Writer<'_>) -> Result<ActionOutcome<Self>> {
        let session = locked_session(write, &self.session)?;
        let now = write.now;
        let removed = write.execute(
            "update subagents set cleared_at = ?3, stopped_at = coalesce(stopped_at, ?3) where tenant_id = ?1 and session_id = ?2 and cleared_at is null",
            params![session.id, now],
        )?;
        let removed = i64::try_from(removed).unwrap_or(i64::MAX);
        Ok(ActionOutcome::changed(CleanupResult { removed }, &session_resource(&session), NoTouches)
            .with_detail(json!({ "removed": removed })))
    }
}

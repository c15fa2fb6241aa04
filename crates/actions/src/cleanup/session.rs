//! Removing the live state of a session.

use serde::Deserialize;
use serde_json::json;
use trackway_domain::{Ref, kind};
use trackway_store::{Writer, params};

use super::{Removed, locked_session, session_resource};
use crate::{
    action::{Action, Done},
    context::Context,
    error::Result,
    touched::Nothing,
};

/// Remove the live state of a session's subagents; their spawns and runs stay
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
#[serde(deny_unknown_fields)]
pub struct CleanupSession {
    /// The session
    pub session: Ref<kind::Session>,
}

impl Action for CleanupSession {
    const NAME: &'static str = "cleanup_session";
    const CAPABILITY: &'static str = "cleanup";
    const COMMAND: (&'static str, &'static str) = ("cleanup", "session");
    type Touched = Nothing;
    type Output = Removed;

    fn perform(&self, _: &Context, write: &mut Writer<'_>) -> Result<Done<Self>> {
        let session = locked_session(write, &self.session)?;
        let now = write.now;
        let removed = write.execute(
            "update subagents set cleared_at = ?3, stopped_at = coalesce(stopped_at, ?3) where tenant_id = ?1 and session_id = ?2 and cleared_at is null",
            params![session.id, now],
        )?;
        let removed = i64::try_from(removed).unwrap_or(i64::MAX);
        Ok(Done::changed(Removed { removed }, &session_resource(&session), Nothing)
            .with_detail(json!({ "removed": removed })))
    }
}

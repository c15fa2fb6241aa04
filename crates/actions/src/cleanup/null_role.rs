//! The action `cleanup_null_role`.

use serde::Deserialize;
use serde_json::json;
use trackway_domain::{Ref, kind};
use trackway_store::Writer;

use super::{
    CleanupResult, locked_session,
    spawns::{delete_spawns, remove_spawns},
};
use crate::{
    action::{Action, ActionOutcome, Resource},
    context::Context,
    error::Result,
    touched::NoTouches,
};

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

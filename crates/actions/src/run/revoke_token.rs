//! Revokes the token of a run that is about to end.
//!
//! Only executors of runs use this action. It is not registered, so no interface offers it.

use serde::Deserialize;
use trackway_domain::{Ref, kind};
use trackway_store::{Writer, params};

use super::{EndRun, RunningRun};
use crate::{
    action::{Action, ActionOutcome},
    context::Context,
    error::Result,
    touched::NoTouches,
};

/// Revoke the token of a run before the run ends
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
pub struct RevokeRunToken {
    /// Run whose token to revoke
    pub run: Ref<kind::Run>,
}

impl Action for RevokeRunToken {
    const NAME: &'static str = "revoke_run_token";
    const CAPABILITY: &'static str = EndRun::CAPABILITY;
    const COMMAND: (&'static str, &'static str) = ("run", "revoke-token");
    type Touched = NoTouches;
    type Output = ();

    fn perform(&self, context: &Context, write: &mut Writer<'_>) -> Result<ActionOutcome<Self>> {
        let run = RunningRun::find(context, write, &self.run)?;
        context.require_own_run(run.id())?;
        write.post("update runs set token_hash = null where tenant_id = ?1 and id = ?2", params![run.id()])?;
        Ok(ActionOutcome::changed((), &run.resource(), NoTouches))
    }
}

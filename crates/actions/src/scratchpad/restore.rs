//! The action `restore_scratchpad`.

use serde::Deserialize;
use trackway_domain::{Error as Rule, Ref, kind};
use trackway_store::{Writer, params, tables::ScratchpadRevision};

use super::{ScratchpadState, UpdateScratchpad, agent_resource, set::own_agent, write_revision};
use crate::{
    action::{Action, ActionOutcome},
    context::Context,
    error::Result,
    touched::NoTouches,
};

/// Restore an earlier revision of the scratchpad of an agent that you own
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
#[serde(deny_unknown_fields)]
pub struct RestoreScratchpad {
    /// Agent whose scratchpad to restore
    #[arg(long)]
    pub agent: Ref<kind::Agent>,
    /// Revision to restore
    #[arg(long, value_name = "NUMBER")]
    pub revision: i64,
    /// Fail unless the scratchpad is at this revision
    #[arg(long, value_name = "NUMBER")]
    pub if_revision: Option<i64>,
}

impl Action for RestoreScratchpad {
    const NAME: &'static str = "restore_scratchpad";
    const CAPABILITY: &'static str = UpdateScratchpad::CAPABILITY;
    const COMMAND: (&'static str, &'static str) = ("scratchpad", "restore");
    type Touched = NoTouches;
    type Output = ScratchpadState;

    fn perform(&self, context: &Context, write: &mut Writer<'_>) -> Result<ActionOutcome<Self>> {
        let Self { agent: reference, revision, if_revision } = self;
        let agent = own_agent(context, write, reference)?;
        let earlier = write
            .row::<ScratchpadRevision>(
                "where tenant_id = ?1 and agent_id = ?2 and revision = ?3",
                params![agent, revision],
            )?
            .ok_or_else(|| Rule::not_found(format!("the scratchpad of {reference:?} has no revision {revision}")))?;
        let written = write_revision(context, write, agent, earlier.content, *if_revision)?;
        let agent = agent_resource(write, agent)?;
        Ok(ActionOutcome::changed(written, &agent, NoTouches))
    }
}

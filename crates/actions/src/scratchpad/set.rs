//! The action `set_scratchpad`. Only the agent itself and its owner may set a scratchpad.

use serde::Deserialize;
use trackway_domain::{Error as Rule, Id, Ref, kind, scratchpad};
use trackway_store::{Writer, params, tables::Agent};

use super::{ScratchpadState, UpdateScratchpad, agent_resource, write_revision};
use crate::{
    action::{Action, ActionOutcome},
    context::{Actor, Context},
    error::Result,
    touched::NoTouches,
};

/// Replace the scratchpad of an agent that you own
///
/// The new revision names you as its author.
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
#[serde(deny_unknown_fields)]
pub struct SetScratchpad {
    /// Agent whose scratchpad to replace
    #[arg(long)]
    pub agent: Ref<kind::Agent>,
    /// New content (at most 10,000 characters, empty to clear)
    #[arg(long)]
    pub content: String,
    /// Fail unless the scratchpad is at this revision
    #[arg(long, value_name = "NUMBER")]
    pub if_revision: Option<i64>,
}

impl Action for SetScratchpad {
    const NAME: &'static str = "set_scratchpad";
    const CAPABILITY: &'static str = UpdateScratchpad::CAPABILITY;
    const COMMAND: (&'static str, &'static str) = ("scratchpad", "set");
    type Touched = NoTouches;
    type Output = ScratchpadState;

    fn perform(&self, context: &Context, write: &mut Writer<'_>) -> Result<ActionOutcome<Self>> {
        let Self { agent, content, if_revision } = self;
        let agent = own_agent(context, write, agent)?;
        let content = scratchpad::validate(content)?;
        let written = write_revision(context, write, agent, content, *if_revision)?;
        let agent = agent_resource(write, agent)?;
        Ok(ActionOutcome::changed(written, &agent, NoTouches))
    }
}

/// Finds the agent, and fails unless the actor is that agent or its owner.
pub(super) fn own_agent(
    context: &Context,
    write: &mut Writer<'_>,
    reference: &Ref<kind::Agent>,
) -> Result<Id<kind::Agent>> {
    let id = write.resolve(reference)?;
    let agent = write
        .row::<Agent>("where tenant_id = ?1 and id = ?2", params![id])?
        .ok_or_else(|| Rule::not_found(format!("there is no agent {reference:?}")))?;
    if [Actor::Agent(agent.id), Actor::Person(agent.owner_id)].contains(&context.actor) {
        return Ok(agent.id);
    }
    Err(Rule::denied(format!("only agent {0} and its owner can write the scratchpad of {0}", agent.handle)).into())
}

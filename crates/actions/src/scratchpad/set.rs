//! Setting a scratchpad by naming its agent: the owner correcting it, or the agent itself.

use serde::Deserialize;
use trackway_domain::{Error as Rule, Id, Ref, kind, scratchpad};
use trackway_store::{
    Writer, params,
    tables::{Agent, ScratchpadRevision},
};

use super::{UpdateScratchpad, Written, about, write_revision};
use crate::{
    action::{Action, Done},
    context::{Actor, Context},
    error::Result,
    touched::Nothing,
};

/// Correct the scratchpad of an agent you own; recorded as your edit
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
#[serde(deny_unknown_fields)]
pub struct SetScratchpad {
    /// The agent
    #[arg(long)]
    pub agent: Ref<kind::Agent>,
    /// The new content (at most 10,000 characters, empty clears)
    #[arg(long)]
    pub content: String,
    /// Only when the scratchpad is at this revision
    #[arg(long, value_name = "NUMBER")]
    pub if_revision: Option<i64>,
}

impl Action for SetScratchpad {
    const NAME: &'static str = "set_scratchpad";
    const CAPABILITY: &'static str = UpdateScratchpad::CAPABILITY;
    const COMMAND: (&'static str, &'static str) = ("scratchpad", "set");
    type Touched = Nothing;
    type Output = Written;

    fn perform(&self, context: &Context, write: &mut Writer<'_>) -> Result<Done<Self>> {
        let agent = own_agent(context, write, &self.agent)?;
        let content = scratchpad::accepted(&self.content)?;
        let written = write_revision(context, write, agent, content, self.if_revision)?;
        let about = about(write, agent)?;
        Ok(Done::changed(written, &about, Nothing))
    }
}

/// Go back to an earlier revision of the scratchpad of an agent you own
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
#[serde(deny_unknown_fields)]
pub struct RestoreScratchpad {
    /// The agent
    #[arg(long)]
    pub agent: Ref<kind::Agent>,
    /// The revision to go back to
    #[arg(long, value_name = "NUMBER")]
    pub revision: i64,
    /// Only when the scratchpad is at this revision
    #[arg(long, value_name = "NUMBER")]
    pub if_revision: Option<i64>,
}

impl Action for RestoreScratchpad {
    const NAME: &'static str = "restore_scratchpad";
    const CAPABILITY: &'static str = UpdateScratchpad::CAPABILITY;
    const COMMAND: (&'static str, &'static str) = ("scratchpad", "restore");
    type Touched = Nothing;
    type Output = Written;

    fn perform(&self, context: &Context, write: &mut Writer<'_>) -> Result<Done<Self>> {
        let agent = own_agent(context, write, &self.agent)?;
        let earlier = write
            .row::<ScratchpadRevision>(
                "where tenant_id = ?1 and agent_id = ?2 and revision = ?3",
                params![agent, self.revision],
            )?
            .ok_or_else(|| {
                Rule::not_found(format!("the scratchpad of {:?} has no revision {}", self.agent, self.revision))
            })?;
        let written = write_revision(context, write, agent, earlier.content, self.if_revision)?;
        let about = about(write, agent)?;
        Ok(Done::changed(written, &about, Nothing))
    }
}

/// The agent, when the actor is that agent or its owner.
fn own_agent(context: &Context, write: &mut Writer<'_>, reference: &Ref<kind::Agent>) -> Result<Id<kind::Agent>> {
    let id = write.resolve(reference)?;
    let agent = write
        .row::<Agent>("where tenant_id = ?1 and id = ?2", params![id])?
        .ok_or_else(|| Rule::not_found(format!("there is no agent {reference:?}")))?;
    if [Actor::Agent(agent.id), Actor::Person(agent.owner_id)].contains(&context.actor) {
        return Ok(agent.id);
    }
    Err(Rule::denied(format!("the scratchpad of {} is written by itself and by its owner", agent.handle)).into())
}

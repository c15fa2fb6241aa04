//! The action with which an agent replaces its own scratchpad.

use serde::{Deserialize, Serialize};
use trackway_domain::{Error as Rule, command, scratchpad, sentence};
use trackway_store::Writer;

use super::{ScratchpadState, agent_resource, write_revision};
use crate::{
    action::{Action, ActionOutcome},
    context::{Actor, Context},
    error::Result,
    touched::NoTouches,
};

/// Update your scratchpad with notes for your future self
///
/// The new content replaces the old one.
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
#[serde(deny_unknown_fields)]
pub struct UpdateScratchpad {
    /// New content (at most 10,000 characters, empty to clear)
    #[arg(long)]
    pub content: String,
    /// Fail unless the scratchpad is at this revision
    #[arg(long, value_name = "NUMBER")]
    pub if_revision: Option<i64>,
}

const UPDATED: &str = "Scratchpad updated successfully.";

/// Answer to an agent that replaced its scratchpad.
#[derive(Debug, Serialize)]
pub struct ScratchpadUpdateResult {
    pub result: &'static str,
    #[serde(flatten)]
    pub written: ScratchpadState,
}

impl Action for UpdateScratchpad {
    const NAME: &'static str = "update_scratchpad";
    const COMMAND: (&'static str, &'static str) = ("scratchpad", "update");
    type Touched = NoTouches;
    type Output = ScratchpadUpdateResult;

    fn perform(&self, context: &Context, write: &mut Writer<'_>) -> Result<ActionOutcome<Self>> {
        let Self { content, if_revision } = self;
        let Actor::Agent(agent) = context.actor else {
            return Err(Rule::denied("only agents have a scratchpad")
                .hint(sentence![
                    "to replace the scratchpad of an agent that you own: ",
                    command!("scratchpad set", agent = "A", content = "C")
                ])
                .into());
        };
        let content = scratchpad::validate(content)?;
        let written = write_revision(context, write, agent, content, *if_revision)?;
        let agent = agent_resource(write, agent)?;
        Ok(ActionOutcome::changed(ScratchpadUpdateResult { result: UPDATED, written }, &agent, NoTouches))
    }
}

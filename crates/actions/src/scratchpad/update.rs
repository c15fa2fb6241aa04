//! An agent writing its own scratchpad.

use serde::{Deserialize, Serialize};
use trackway_domain::{Error as Rule, command, scratchpad, sentence};
use trackway_store::Writer;

use super::{Written, about, write_revision};
use crate::{
    action::{Action, Done},
    context::{Actor, Context},
    error::Result,
    touched::Nothing,
};

/// Replace your scratchpad: what your future self should know (at most 10,000 characters, empty clears)
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
#[serde(deny_unknown_fields)]
pub struct UpdateScratchpad {
    /// The new content
    #[arg(long)]
    pub content: String,
    /// Only when the scratchpad is at this revision
    #[arg(long, value_name = "NUMBER")]
    pub if_revision: Option<i64>,
}

const UPDATED: &str = "Scratchpad updated successfully.";

/// A scratchpad that its agent wrote.
#[derive(Debug, Serialize)]
pub struct Updated {
    pub result: &'static str,
    #[serde(flatten)]
    pub written: Written,
}

impl Action for UpdateScratchpad {
    const NAME: &'static str = "update_scratchpad";
    const COMMAND: (&'static str, &'static str) = ("scratchpad", "update");
    type Touched = Nothing;
    type Output = Updated;

    fn perform(&self, context: &Context, write: &mut Writer<'_>) -> Result<Done<Self>> {
        let Actor::Agent(agent) = context.actor else {
            return Err(Rule::denied("a person has no scratchpad")
                .hint(sentence!["to correct an agent's: ", command!("scratchpad set", agent = "A", content = "C")])
                .into());
        };
        let content = scratchpad::accepted(&self.content)?;
        let written = write_revision(context, write, agent, content, self.if_revision)?;
        let about = about(write, agent)?;
        Ok(Done::changed(Updated { result: UPDATED, written }, &about, Nothing))
    }
}

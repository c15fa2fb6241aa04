//! What an agent would be told if it woke now.

use serde::{Deserialize, Serialize};
use trackway_domain::{
    Id, Ref, Time, kind,
    wake_context::{Cut, Section, digest},
};
use trackway_store::{Reader, Result, wake::Waking};

use crate::view::View;

/// Show what an agent would be told if it woke on a task, without starting anything
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
pub struct Wake {
    /// The task
    pub task: Ref<kind::Task>,
    /// The agent; without one, what is not about an agent
    #[arg(long)]
    pub agent: Option<Ref<kind::Agent>>,
    /// Where each part comes from, how it stands, what was cut and what could not be had
    #[arg(long)]
    #[serde(default)]
    pub explain: bool,
    /// Only the linked-task document, whole
    #[arg(long, conflicts_with_all = ["agent", "explain"])]
    #[serde(default)]
    pub linked: bool,
}

/// What comes out.
#[derive(Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum WakeShown {
    /// The context, or where it comes from.
    Context(ContextShown),
    /// The document.
    Document(String),
}

/// A wake context.
#[derive(Debug, PartialEq, Serialize)]
pub struct ContextShown {
    pub task_id: Id<kind::Task>,
    pub agent_id: Option<Id<kind::Agent>>,
    /// SHA-256 of the text that the agent would be told.
    pub digest: String,
    pub characters: usize,
    pub sections: Vec<Section>,
    /// What did not fit.
    pub cut: Vec<Cut>,
    /// What could not be had.
    pub unavailable: Vec<String>,
    /// What the agent would be told, as Markdown; or where it comes from, when that was asked.
    pub text: String,
}

impl View for Wake {
    const COMMAND: (&'static str, &'static str) = ("", "wake");
    type Output = WakeShown;

    fn answer(&self, read: &mut Reader<'_>, now: Time) -> Result<WakeShown> {
        let task = read.resolve(&self.task)?;
        if self.linked {
            return Ok(WakeShown::Document(read.linked_tasks(task, now).tasks.document()));
        }
        let agent = read.resolve_optional(self.agent.as_ref())?;
        let context = read.wake_context(Waking { agent, task: Some(task), run: None }, now);
        let told = context.markdown();
        Ok(WakeShown::Context(ContextShown {
            task_id: task,
            agent_id: agent,
            digest: digest(&told),
            characters: told.chars().count(),
            unavailable: context.problems(),
            text: if self.explain { context.explained() } else { told },
            sections: context.sections,
            cut: context.cuts,
        }))
    }

    fn document(output: &WakeShown) -> Option<String> {
        match output {
            WakeShown::Document(document) => Some(document.clone()),
            WakeShown::Context(_) => None,
        }
    }
}

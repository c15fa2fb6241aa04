//! What an agent would be told if it woke now.

use serde::{Deserialize, Serialize};
use trackway_domain::{
    Id, Ref, Time, kind,
    wake_context::{Cut, Section, digest},
};
use trackway_store::{Reader, Result, wake::Waking};

use crate::{scratchpad::require_readable, view::View};

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
    Document(LinkedDocument),
}

/// The linked-task document, and what a reader of it should know.
#[derive(Debug, PartialEq, Serialize)]
#[serde(transparent)]
pub struct LinkedDocument {
    pub text: String,
    #[serde(skip)]
    pub remarks: Vec<String>,
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
            let linked = read.linked_tasks(task, now);
            let mut remarks = linked.problems();
            if linked.tasks.is_empty() && linked.failure.is_none() {
                remarks.push(read.reason_without_linked_tasks(task));
            }
            return Ok(WakeShown::Document(LinkedDocument { text: linked.tasks.document(), remarks }));
        }
        let agent = read.resolve_optional(self.agent.as_ref())?;
        if let Some(agent) = agent {
            // The context holds the agent's scratchpad.
            require_readable(read, agent)?;
        }
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
            WakeShown::Document(document) => Some(document.text.clone()),
            WakeShown::Context(_) => None,
        }
    }

    fn remarks(output: &WakeShown) -> Vec<String> {
        match output {
            WakeShown::Document(document) => document.remarks.clone(),
            WakeShown::Context(_) => Vec::new(),
        }
    }
}

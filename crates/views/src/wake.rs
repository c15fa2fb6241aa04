//! Preview of the wake context: the text that an agent would receive if it woke now.

use serde::{Deserialize, Serialize};
use trackway_domain::{
    Id, Ref, Time, kind,
    wake_context::{Cut, Section, digest},
};
use trackway_store::{Reader, Result, wake::WakeRequest};

use crate::{scratchpad::require_readable, view::View};

/// Show the context that an agent would receive on a task, without starting a run
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
pub struct Wake {
    /// The task
    pub task: Ref<kind::Task>,
    /// The agent; without one, only the parts that do not depend on an agent
    #[arg(long)]
    pub agent: Option<Ref<kind::Agent>>,
    /// Show the source and state of each part, and what was cut or unavailable
    #[arg(long)]
    #[serde(default)]
    pub explain: bool,
    /// Show only the linked-task document, uncut
    #[arg(long, conflicts_with_all = ["agent", "explain"])]
    #[serde(default)]
    pub linked: bool,
}

#[derive(Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum WakeOutput {
    /// The context, or with `--explain` its sources.
    Context(ContextPreview),
    /// With `--linked`, the linked-task document.
    Document(LinkedTaskDocument),
}

/// The linked-task document, and remarks about missing parts, which its fixed format cannot hold.
#[derive(Debug, PartialEq, Serialize)]
#[serde(transparent)]
pub struct LinkedTaskDocument {
    pub text: String,
    #[serde(skip)]
    pub remarks: Vec<String>,
}

/// A wake context that was assembled but not recorded, because no run started.
#[derive(Debug, PartialEq, Serialize)]
pub struct ContextPreview {
    pub task_id: Id<kind::Task>,
    pub agent_id: Option<Id<kind::Agent>>,
    /// SHA-256 of the text that the agent would receive.
    pub digest: String,
    pub characters: usize,
    pub sections: Vec<Section>,
    /// The parts that were cut because they exceeded a limit.
    pub cut: Vec<Cut>,
    /// The parts that could not be read, with the reasons.
    pub unavailable: Vec<String>,
    /// The context as Markdown, or with `--explain` the explanation of its sources.
    pub text: String,
}

impl View for Wake {
    const COMMAND: (&'static str, &'static str) = ("", "wake");
    type Output = WakeOutput;

    fn answer(&self, read: &mut Reader<'_>, now: Time) -> Result<WakeOutput> {
        let task = read.resolve(&self.task)?;
        if self.linked {
            let linked = read.linked_tasks(task, now);
            let mut remarks = linked.problems();
            if linked.tasks.is_empty() && linked.failure.is_none() {
                remarks.push(read.reason_for_no_linked_tasks(task));
            }
            return Ok(WakeOutput::Document(LinkedTaskDocument { text: linked.tasks.document(), remarks }));
        }
        let agent = read.resolve_optional(self.agent.as_ref())?;
        if let Some(agent) = agent {
            // The context contains the agent's scratchpad.
            require_readable(read, agent)?;
        }
        let context = read.wake_context(WakeRequest { agent, task: Some(task), run: None }, now);
        let markdown = context.markdown();
        Ok(WakeOutput::Context(ContextPreview {
            task_id: task,
            agent_id: agent,
            digest: digest(&markdown),
            characters: markdown.chars().count(),
            unavailable: context.problems(),
            text: if self.explain { context.explanation() } else { markdown },
            sections: context.sections,
            cut: context.cuts,
        }))
    }

    fn document(output: &WakeOutput) -> Option<String> {
        match output {
            WakeOutput::Document(document) => Some(document.text.clone()),
            WakeOutput::Context(_) => None,
        }
    }

    fn remarks(output: &WakeOutput) -> Vec<String> {
        match output {
            WakeOutput::Document(document) => document.remarks.clone(),
            WakeOutput::Context(_) => Vec::new(),
        }
    }
}

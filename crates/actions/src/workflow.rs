//! Workflows, which own task variants.

use serde::Deserialize;
use trackway_domain::{Patch, Ref, kind, patch::UNSET, text};
use trackway_store::{Writer, display::WorkflowRow, params, tables::Workflow};

use crate::{
    action::{Action, ActionOutcome},
    context::Context,
    definition::{UpsertResult, definition, outcome_without_touch, save, subject},
    error::Result,
    touched::NoTouches,
};

definition!(Workflow, kind::Workflow, name);

/// Create or update a workflow
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
#[serde(deny_unknown_fields)]
pub struct SetWorkflow {
    /// Name of the workflow
    #[arg(long)]
    #[schemars(length(min = 1, max = text::LINE_MAX), regex(pattern = text::NAME_PATTERN))]
    pub name: String,
    /// Title
    #[arg(long, default_value = UNSET, hide_default_value = true)]
    #[serde(default)]
    #[schemars(length(max = text::LINE_MAX))]
    pub title: Patch<String>,
    /// Description: what the workflow is for
    #[arg(long, default_value = UNSET, hide_default_value = true)]
    #[serde(default)]
    #[schemars(length(max = text::TEXT_MAX))]
    pub description: Patch<String>,
    /// Role that works on the workflow's tasks
    #[arg(long, default_value = UNSET, hide_default_value = true)]
    #[serde(default)]
    pub role: Patch<Ref<kind::Role>>,
    /// Notes
    #[arg(long, default_value = UNSET, hide_default_value = true)]
    #[serde(default)]
    #[schemars(length(max = text::TEXT_MAX))]
    pub notes: Patch<String>,
}

impl SetWorkflow {
    /// The action that creates a workflow with only a name.
    pub(crate) fn named(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            title: Patch::Unset,
            description: Patch::Unset,
            role: Patch::Unset,
            notes: Patch::Unset,
        }
    }
}

impl Action for SetWorkflow {
    const NAME: &'static str = "set_workflow";
    const COMMAND: (&'static str, &'static str) = ("workflow", "set");
    type Touched = NoTouches;
    type Output = UpsertResult<WorkflowRow>;

    fn perform(&self, context: &Context, write: &mut Writer<'_>) -> Result<ActionOutcome<Self>> {
        let Self { name, title, description, role, notes } = self;
        let name = text::check_name("workflow name", name)?;
        let before =
            write.row_locked::<Workflow>("where tenant_id = ?1 and name = ?2 and deleted_at is null", params![name])?;
        let workflow = before.clone().unwrap_or_else(|| Workflow {
            id: write.new_id(),
            tenant_id: context.tenant,
            name,
            title: None,
            description: None,
            role_id: None,
            notes: None,
            created_at: write.now,
            updated_at: write.now,
            deleted_at: None,
        });
        let workflow = Workflow {
            id: workflow.id,
            tenant_id: workflow.tenant_id,
            name: workflow.name,
            title: title.line("title", text::LINE_MAX)?.apply(workflow.title),
            description: description.body("description", text::TEXT_MAX)?.apply(workflow.description),
            role_id: role.clone().try_map(|role| write.resolve(&role))?.apply(workflow.role_id),
            notes: notes.body("notes", text::TEXT_MAX)?.apply(workflow.notes),
            created_at: workflow.created_at,
            updated_at: workflow.updated_at,
            deleted_at: workflow.deleted_at,
        };
        let (workflow, saved) = save(context, write, before.as_ref(), workflow)?;
        let subject = subject(&workflow);
        let shown = write.display_row_by_id::<WorkflowRow>("w", workflow.id)?;
        outcome_without_touch!(shown, saved, subject)
    }
}

//! Workflows: the owners of variants.

use serde::Deserialize;
use trackway_domain::{Patch, Ref, kind, patch::UNSET, text};
use trackway_store::{Writer, display::WorkflowShown, params, tables::Workflow};

use crate::{
    action::{Action, Done},
    context::Context,
    definition::{Stands, about, definition, save, stands},
    error::Result,
    touched::Nothing,
};

definition!(Workflow, kind::Workflow, name);

/// Define a workflow, or change what is given of one
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
#[serde(deny_unknown_fields)]
pub struct SetWorkflow {
    /// Its name
    #[arg(long)]
    #[schemars(length(min = 1, max = text::LINE_MAX), regex(pattern = text::NAME))]
    pub name: String,
    /// What people call it
    #[arg(long, default_value = UNSET, hide_default_value = true)]
    #[serde(default)]
    #[schemars(length(max = text::LINE_MAX))]
    pub title: Patch<String>,
    /// What it is for
    #[arg(long, default_value = UNSET, hide_default_value = true)]
    #[serde(default)]
    #[schemars(length(max = text::TEXT_MAX))]
    pub description: Patch<String>,
    /// The role that works it
    #[arg(long, default_value = UNSET, hide_default_value = true)]
    #[serde(default)]
    pub role: Patch<Ref<kind::Role>>,
    /// Anything else worth knowing
    #[arg(long, default_value = UNSET, hide_default_value = true)]
    #[serde(default)]
    #[schemars(length(max = text::TEXT_MAX))]
    pub notes: Patch<String>,
}

impl SetWorkflow {
    /// Says nothing of a workflow but its name.
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
    type Touched = Nothing;
    type Output = Stands<WorkflowShown>;

    fn perform(&self, context: &Context, write: &mut Writer<'_>) -> Result<Done<Self>> {
        let Self { name, title, description, role, notes } = self;
        let name = text::name("workflow name", name)?;
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
        let subject = about(&workflow);
        let shown = write.shown_by_id::<WorkflowShown>("w", workflow.id)?;
        stands!(shown, saved, subject)
    }
}

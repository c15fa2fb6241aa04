//! Workspaces: the directories in which runs work.

use serde::Deserialize;
use trackway_domain::{
    Patch, kind,
    patch::{self, UNSET},
    text,
};
use trackway_store::{Writer, params, tables::Workspace};

use crate::{
    action::{Action, ActionOutcome},
    context::Context,
    definition::{UpsertResult, definition, outcome_without_touch, save, subject},
    error::Result,
    touched::NoTouches,
};

definition!(Workspace, kind::Workspace, name);

/// Create or update a workspace
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
#[serde(deny_unknown_fields)]
pub struct SetWorkspace {
    /// Name of the workspace
    #[arg(long)]
    #[schemars(length(min = 1, max = text::LINE_MAX), regex(pattern = text::NAME_PATTERN))]
    pub name: String,
    /// Directory of the workspace
    #[arg(long = "dir", default_value = UNSET, hide_default_value = true, value_name = "DIR")]
    #[serde(default)]
    #[schemars(length(max = text::PATH_MAX))]
    pub directory: Patch<String>,
    /// URL or path of the repository
    #[arg(long, default_value = UNSET, hide_default_value = true)]
    #[serde(default)]
    #[schemars(length(max = text::PATH_MAX))]
    pub repository: Patch<String>,
    /// Description: what the workspace contains
    #[arg(long, default_value = UNSET, hide_default_value = true)]
    #[serde(default)]
    #[schemars(length(max = text::TEXT_MAX))]
    pub description: Patch<String>,
    /// Project that the workspace belongs to
    #[arg(long, default_value = UNSET, hide_default_value = true)]
    #[serde(default)]
    #[schemars(length(max = text::LINE_MAX))]
    pub project: Patch<String>,
    /// Tag. Repeatable; empty for no tags
    #[arg(long = "tag", value_name = "TAG", num_args = 1..)]
    #[serde(default, deserialize_with = "patch::list_or_null")]
    pub tags: Option<Vec<String>>,
}

impl Action for SetWorkspace {
    const NAME: &'static str = "set_workspace";
    const COMMAND: (&'static str, &'static str) = ("workspace", "set");
    type Touched = NoTouches;
    type Output = UpsertResult<Workspace>;

    fn perform(&self, context: &Context, write: &mut Writer<'_>) -> Result<ActionOutcome<Self>> {
        let Self { name, directory, repository, description, project, tags } = self;
        let name = text::check_name("workspace name", name)?;
        let before = write
            .row_locked::<Workspace>("where tenant_id = ?1 and name = ?2 and deleted_at is null", params![name])?;
        let workspace = before.clone().unwrap_or_else(|| Workspace {
            id: write.new_id(),
            tenant_id: context.tenant,
            name,
            directory: None,
            repository: None,
            description: None,
            project: None,
            tags: Vec::new(),
            created_at: write.now,
            updated_at: write.now,
            deleted_at: None,
        });
        let workspace = Workspace {
            id: workspace.id,
            tenant_id: workspace.tenant_id,
            name: workspace.name,
            directory: directory.line("directory", text::PATH_MAX)?.apply(workspace.directory),
            repository: repository.line("repository", text::PATH_MAX)?.apply(workspace.repository),
            description: description.body("description", text::TEXT_MAX)?.apply(workspace.description),
            project: project.line("project", text::LINE_MAX)?.apply(workspace.project),
            tags: patch::clean_list("tag", tags.as_deref())?.unwrap_or(workspace.tags),
            created_at: workspace.created_at,
            updated_at: workspace.updated_at,
            deleted_at: workspace.deleted_at,
        };
        let (workspace, saved) = save(context, write, before.as_ref(), workspace)?;
        let subject = subject(&workspace);
        outcome_without_touch!(workspace, saved, subject)
    }
}

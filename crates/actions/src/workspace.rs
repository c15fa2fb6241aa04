//! Workspaces: places where work happens.

use serde::Deserialize;
use trackway_domain::{
    Patch, kind,
    patch::{self, UNSET},
    text,
};
use trackway_store::{Writer, params, tables::Workspace};

use crate::{
    action::{Action, Done},
    context::Context,
    definition::{Stands, about, definition, save, stands},
    error::Result,
    touched::Nothing,
};

definition!(Workspace, kind::Workspace, name);

/// Define a workspace, or change what is given of one
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
#[serde(deny_unknown_fields)]
pub struct SetWorkspace {
    /// Its name
    #[arg(long)]
    #[schemars(length(min = 1, max = text::LINE_MAX), regex(pattern = text::NAME))]
    pub name: String,
    /// Its directory
    #[arg(long = "dir", default_value = UNSET, hide_default_value = true, value_name = "DIR")]
    #[serde(default)]
    #[schemars(length(max = text::PATH_MAX))]
    pub directory: Patch<String>,
    /// Where its repository comes from
    #[arg(long, default_value = UNSET, hide_default_value = true)]
    #[serde(default)]
    #[schemars(length(max = text::PATH_MAX))]
    pub repository: Patch<String>,
    /// What it holds
    #[arg(long, default_value = UNSET, hide_default_value = true)]
    #[serde(default)]
    #[schemars(length(max = text::TEXT_MAX))]
    pub description: Patch<String>,
    /// The project it belongs to
    #[arg(long, default_value = UNSET, hide_default_value = true)]
    #[serde(default)]
    #[schemars(length(max = text::LINE_MAX))]
    pub project: Patch<String>,
    /// A tag; repeat for several, empty for none
    #[arg(long = "tag", value_name = "TAG", num_args = 1..)]
    #[serde(default, deserialize_with = "patch::list_or_null")]
    pub tags: Option<Vec<String>>,
}

impl Action for SetWorkspace {
    const NAME: &'static str = "set_workspace";
    const COMMAND: (&'static str, &'static str) = ("workspace", "set");
    type Touched = Nothing;
    type Output = Stands<Workspace>;

    fn perform(&self, context: &Context, write: &mut Writer<'_>) -> Result<Done<Self>> {
        let Self { name, directory, repository, description, project, tags } = self;
        let name = text::name("workspace name", name)?;
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
            tags: patch::list("tag", tags.as_deref())?.unwrap_or(workspace.tags),
            created_at: workspace.created_at,
            updated_at: workspace.updated_at,
            deleted_at: workspace.deleted_at,
        };
        let (workspace, saved) = save(context, write, before.as_ref(), workspace)?;
        let subject = about(&workspace);
        stands!(workspace, saved, subject)
    }
}

//! Roles: the names actors work under.

use serde::Deserialize;
use trackway_domain::{
    Patch, kind,
    patch::{self, UNSET},
    text,
    words::RoleOrigin,
};
use trackway_store::{Writer, params, tables::Role};

use crate::{
    action::{Action, Done},
    context::Context,
    definition::{Stands, about, definition, save, stands},
    error::Result,
    touched::Nothing,
};

definition!(Role, kind::Role, name);

/// Define a role, or change what is given of one
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
#[serde(deny_unknown_fields)]
pub struct SetRole {
    /// Its name
    #[arg(long)]
    #[schemars(length(min = 1, max = text::LINE_MAX), regex(pattern = text::NAME))]
    pub name: String,
    /// What people call it
    #[arg(long, default_value = UNSET, hide_default_value = true)]
    #[serde(default)]
    #[schemars(length(max = text::LINE_MAX))]
    pub title: Patch<String>,
    /// What it does
    #[arg(long, default_value = UNSET, hide_default_value = true)]
    #[serde(default)]
    #[schemars(length(max = text::TEXT_MAX))]
    pub description: Patch<String>,
    /// Anything else worth knowing
    #[arg(long, default_value = UNSET, hide_default_value = true)]
    #[serde(default)]
    #[schemars(length(max = text::TEXT_MAX))]
    pub notes: Patch<String>,
    /// A tag; repeat for several, empty for none
    #[arg(long = "tag", value_name = "TAG", num_args = 1..)]
    #[serde(default, deserialize_with = "patch::list_or_null")]
    pub tags: Option<Vec<String>>,
}

impl Action for SetRole {
    const NAME: &'static str = "set_role";
    const COMMAND: (&'static str, &'static str) = ("role", "set");
    type Touched = Nothing;
    type Output = Stands<Role>;

    fn perform(&self, context: &Context, write: &mut Writer<'_>) -> Result<Done<Self>> {
        let Self { name, title, description, notes, tags } = self;
        let name = text::name("role name", name)?;
        let before =
            write.row_locked::<Role>("where tenant_id = ?1 and name = ?2 and deleted_at is null", params![name])?;
        let role = before.clone().unwrap_or_else(|| Role {
            id: write.new_id(),
            tenant_id: context.tenant,
            name,
            title: None,
            description: None,
            notes: None,
            tags: Vec::new(),
            origin: RoleOrigin::Set,
            created_at: write.now,
            updated_at: write.now,
            deleted_at: None,
        });
        let role = Role {
            id: role.id,
            tenant_id: role.tenant_id,
            name: role.name,
            title: title.line("title", text::LINE_MAX)?.apply(role.title),
            description: description.body("description", text::TEXT_MAX)?.apply(role.description),
            notes: notes.body("notes", text::TEXT_MAX)?.apply(role.notes),
            tags: patch::list("tag", tags.as_deref())?.unwrap_or(role.tags),
            origin: RoleOrigin::Set,
            created_at: role.created_at,
            updated_at: role.updated_at,
            deleted_at: role.deleted_at,
        };
        let (role, saved) = save(context, write, before.as_ref(), role)?;
        let subject = about(&role);
        stands!(role, saved, subject)
    }
}

//! Roles: the names that actors work under.

use serde::Deserialize;
use trackway_domain::{
    Patch,
    enums::RoleOrigin,
    kind,
    patch::{self, UNSET},
    text,
};
use trackway_store::{Writer, params, tables::Role};

use crate::{
    action::{Action, ActionOutcome},
    context::Context,
    definition::{UpsertResult, definition, outcome_without_touch, save, subject},
    error::Result,
    touched::NoTouches,
};

definition!(Role, kind::Role, name);

/// Create or update a role
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
#[serde(deny_unknown_fields)]
pub struct SetRole {
    /// Name of the role
    #[arg(long)]
    #[schemars(length(min = 1, max = text::LINE_MAX), regex(pattern = text::NAME_PATTERN))]
    pub name: String,
    /// Title
    #[arg(long, default_value = UNSET, hide_default_value = true)]
    #[serde(default)]
    #[schemars(length(max = text::LINE_MAX))]
    pub title: Patch<String>,
    /// Description: what an actor in this role does
    #[arg(long, default_value = UNSET, hide_default_value = true)]
    #[serde(default)]
    #[schemars(length(max = text::TEXT_MAX))]
    pub description: Patch<String>,
    /// Notes
    #[arg(long, default_value = UNSET, hide_default_value = true)]
    #[serde(default)]
    #[schemars(length(max = text::TEXT_MAX))]
    pub notes: Patch<String>,
    /// Tag. Repeatable; empty for no tags
    #[arg(long = "tag", value_name = "TAG", num_args = 1..)]
    #[serde(default, deserialize_with = "patch::list_or_null")]
    pub tags: Option<Vec<String>>,
}

impl Action for SetRole {
    const NAME: &'static str = "set_role";
    const COMMAND: (&'static str, &'static str) = ("role", "set");
    type Touched = NoTouches;
    type Output = UpsertResult<Role>;

    fn perform(&self, context: &Context, write: &mut Writer<'_>) -> Result<ActionOutcome<Self>> {
        let Self { name, title, description, notes, tags } = self;
        let name = text::check_name("role name", name)?;
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
            tags: patch::clean_list("tag", tags.as_deref())?.unwrap_or(role.tags),
            origin: RoleOrigin::Set,
            created_at: role.created_at,
            updated_at: role.updated_at,
            deleted_at: role.deleted_at,
        };
        let (role, saved) = save(context, write, before.as_ref(), role)?;
        let subject = subject(&role);
        outcome_without_touch!(role, saved, subject)
    }
}

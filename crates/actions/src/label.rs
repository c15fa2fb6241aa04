//! Labels: short keys with display names.

use serde::Deserialize;
use trackway_domain::{kind, text};
use trackway_store::{Writer, params, tables::Label};

use crate::{
    action::{Action, ActionOutcome},
    context::Context,
    definition::{UpsertResult, definition, outcome_with_touch, save},
    error::Result,
    touched::CreatedOrUpdated,
};

definition!(Label, kind::Label, key);

/// Create or rename a label
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
#[serde(deny_unknown_fields)]
pub struct SetLabel {
    /// Key that tasks are labelled with
    #[arg(long)]
    #[schemars(length(min = 1, max = text::LINE_MAX), regex(pattern = text::NAME_PATTERN))]
    pub key: String,
    /// Display name
    #[arg(long)]
    #[schemars(length(min = 1, max = text::LINE_MAX), regex(pattern = text::NOT_BLANK_PATTERN))]
    pub name: String,
}

impl Action for SetLabel {
    const NAME: &'static str = "set_label";
    const COMMAND: (&'static str, &'static str) = ("label", "set");
    type Touched = CreatedOrUpdated<kind::Label>;
    type Output = UpsertResult<Label>;

    fn perform(&self, context: &Context, write: &mut Writer<'_>) -> Result<ActionOutcome<Self>> {
        let Self { key, name } = self;
        let key = text::check_name("label key", key)?;
        let name = text::check_required_line("label name", name, text::LINE_MAX)?;
        let before =
            write.row_locked::<Label>("where tenant_id = ?1 and key = ?2 and deleted_at is null", params![key])?;
        let label = match &before {
            Some(before) => Label {
                id: before.id,
                tenant_id: before.tenant_id,
                key,
                name,
                created_at: before.created_at,
                updated_at: before.updated_at,
                deleted_at: before.deleted_at,
            },
            None => Label {
                id: write.new_id(),
                tenant_id: context.tenant,
                key,
                name,
                created_at: write.now,
                updated_at: write.now,
                deleted_at: None,
            },
        };
        let (label, saved) = save(context, write, before.as_ref(), label)?;
        Ok(outcome_with_touch(label, saved))
    }
}

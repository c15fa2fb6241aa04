//! Labels: short keys with names.

use serde::Deserialize;
use trackway_domain::{kind, text};
use trackway_store::{Writer, params, tables::Label};

use crate::{
    action::{Action, Done},
    context::Context,
    definition::{Stands, definition, save, touched},
    error::Result,
    touched::CreatedOrUpdated,
};

definition!(Label, kind::Label, key);

/// Name a label
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
#[serde(deny_unknown_fields)]
pub struct SetLabel {
    /// Its key, as tasks carry it
    #[arg(long)]
    #[schemars(length(min = 1, max = text::LINE_MAX), regex(pattern = text::NAME))]
    pub key: String,
    /// What people read
    #[arg(long)]
    #[schemars(length(min = 1, max = text::LINE_MAX), regex(pattern = text::SAYS_SOMETHING))]
    pub name: String,
}

impl Action for SetLabel {
    const NAME: &'static str = "set_label";
    const COMMAND: (&'static str, &'static str) = ("label", "set");
    type Touched = CreatedOrUpdated<kind::Label>;
    type Output = Stands<Label>;

    fn perform(&self, context: &Context, write: &mut Writer<'_>) -> Result<Done<Self>> {
        let Self { key, name } = self;
        let key = text::name("label key", key)?;
        let name = text::required_line("label name", name, text::LINE_MAX)?;
        let before =
            write.row_locked::<Label>("where tenant_id = ?1 and key = ?2 and deleted_at is null", params![key])?;
        let label = match &before {
            Some(before) => Label { name, ..before.clone() },
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
        Ok(touched(label, saved))
    }
}

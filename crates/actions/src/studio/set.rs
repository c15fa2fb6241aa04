//! Studios: shared spaces that own resources.

use serde::Deserialize;
use trackway_domain::{Patch, kind, patch::UNSET, text};
use trackway_store::{Writer, params, tables::Studio};

use crate::{
    action::{Action, ActionOutcome},
    context::Context,
    definition::{UpsertResult, definition, outcome_without_touch, save, subject},
    error::Result,
    touched::NoTouches,
};

definition!(Studio, kind::Studio, name);

/// Create or update a studio
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
#[serde(deny_unknown_fields)]
pub struct SetStudio {
    /// Name of the studio
    #[arg(long)]
    #[schemars(length(min = 1, max = text::LINE_MAX), regex(pattern = text::NAME_PATTERN))]
    pub name: String,
    /// Title
    #[arg(long, default_value = UNSET, hide_default_value = true)]
    #[serde(default)]
    #[schemars(length(max = text::LINE_MAX))]
    pub title: Patch<String>,
    /// Description: what the studio is for
    #[arg(long, default_value = UNSET, hide_default_value = true)]
    #[serde(default)]
    #[schemars(length(max = text::TEXT_MAX))]
    pub description: Patch<String>,
}

impl Action for SetStudio {
    const NAME: &'static str = "set_studio";
    const COMMAND: (&'static str, &'static str) = ("studio", "set");
    type Touched = NoTouches;
    type Output = UpsertResult<Studio>;

    fn perform(&self, context: &Context, write: &mut Writer<'_>) -> Result<ActionOutcome<Self>> {
        let Self { name, title, description } = self;
        let name = text::check_name("studio name", name)?;
        let before =
            write.row_locked::<Studio>("where tenant_id = ?1 and name = ?2 and deleted_at is null", params![name])?;
        let studio = before.clone().unwrap_or_else(|| new(context, write, name));
        let studio = Studio {
            id: studio.id,
            tenant_id: studio.tenant_id,
            name: studio.name,
            title: title.line("title", text::LINE_MAX)?.apply(studio.title),
            description: description.body("description", text::TEXT_MAX)?.apply(studio.description),
            created_at: studio.created_at,
            updated_at: studio.updated_at,
            deleted_at: studio.deleted_at,
        };
        let (studio, saved) = save(context, write, before.as_ref(), studio)?;
        let subject = subject(&studio);
        outcome_without_touch!(studio, saved, subject)
    }
}

pub(crate) fn new(context: &Context, write: &Writer<'_>, name: String) -> Studio {
    Studio {
        id: write.new_id(),
        tenant_id: context.tenant,
        name,
        title: None,
        description: None,
        created_at: write.now,
        updated_at: write.now,
        deleted_at: None,
    }
}

//! The action `update_stickie`.

use serde::Deserialize;
use trackway_domain::{Patch, Ref, board::StickieFields, kind, patch::UNSET};
use trackway_store::{Writer, display::StickieRow};

use super::set::apply_changes;
use crate::{
    action::{Action, ActionOutcome},
    board::{WriteKind, locked_stickie},
    context::Context,
    error::Result,
    touched::{Touch, action_type},
};

/// Update a stickie
///
/// Omitted fields stay unchanged, and an empty value clears a field. An archived stickie stays archived.
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
#[serde(deny_unknown_fields)]
pub struct UpdateStickie {
    /// Stickie to update, by id or name
    pub stickie: Ref<kind::Stickie>,
    /// New name, unique on the board
    #[arg(long, default_value = UNSET, hide_default_value = true)]
    #[serde(default)]
    pub name: Patch<String>,
    #[command(flatten)]
    #[serde(flatten)]
    pub fields: StickieFields,
}

impl Action for UpdateStickie {
    const NAME: &'static str = "update_stickie";
    const CAPABILITY: &'static str = "stickie";
    const COMMAND: (&'static str, &'static str) = ("stickie", "update");
    type Touched = Touch<kind::Stickie, action_type::Update>;
    type Output = StickieRow;

    fn perform(&self, context: &Context, write: &mut Writer<'_>) -> Result<ActionOutcome<Self>> {
        let Self { stickie, name, fields } = self;
        let (board, before) = locked_stickie(write, stickie)?;
        match apply_changes(context, write, &board, &before, WriteKind::Update, name, fields)? {
            Some((shown, resource)) => Ok(ActionOutcome::changed(shown, &resource, Touch::one(resource.clone()))),
            None => Ok(ActionOutcome::unchanged(write.display_row_by_id("s", before.id)?)),
        }
    }
}

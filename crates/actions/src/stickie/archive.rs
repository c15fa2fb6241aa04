//! The action `archive_stickie`.

use serde::Deserialize;
use trackway_domain::{Ref, kind};
use trackway_store::{Writer, display::StickieRow};

use crate::{
    action::{Action, ActionOutcome},
    board::{insert_revision, locked_stickie, mark_changed, next_edit, stickie_resource},
    context::Context,
    error::Result,
    touched::{Touch, action_type},
};

/// Archive a stickie, or restore an archived one
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
#[serde(deny_unknown_fields)]
pub struct ArchiveStickie {
    /// Stickie to archive, by id or name
    #[arg(value_name = "STICKIE")]
    pub id: Ref<kind::Stickie>,
    /// Restore the stickie instead of archiving it
    #[arg(long)]
    #[serde(default)]
    pub undo: bool,
}

impl Action for ArchiveStickie {
    const NAME: &'static str = "archive_stickie";
    const CAPABILITY: &'static str = "stickie";
    const COMMAND: (&'static str, &'static str) = ("stickie", "archive");
    type Touched = Touch<kind::Stickie, action_type::Archive>;
    type Output = StickieRow;

    fn perform(&self, context: &Context, write: &mut Writer<'_>) -> Result<ActionOutcome<Self>> {
        let (board, before) = locked_stickie(write, &self.id)?;
        let mut content = before.content();
        content.archived = !self.undo;
        if content == before.content() {
            return Ok(ActionOutcome::unchanged(write.display_row_by_id("s", before.id)?));
        }
        let stickie = next_edit(write, &before, content);
        write.update(&stickie)?;
        insert_revision(context, write, stickie.id.uuid(), stickie.edit_count, &stickie.content())?;
        mark_changed(write, board.id)?;
        let resource = stickie_resource(&board, &stickie);
        Ok(ActionOutcome::changed(write.display_row_by_id("s", stickie.id)?, &resource, Touch::one(resource.clone())))
    }
}

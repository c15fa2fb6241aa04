//! Archiving and deleting stickies.

use serde::Deserialize;
use trackway_domain::{Id, Ref, kind};
use trackway_store::{Writer, display::StickieShown, params, tables::Board};

use crate::{
    action::{Action, Done},
    board::{edited, held_stickie, keep_revision, mark_changed, stickie_resource},
    context::Context,
    delete::mark,
    error::Result,
    touched::{Touch, did},
};

/// Put a stickie out of sight, or bring it back
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
#[serde(deny_unknown_fields)]
pub struct ArchiveStickie {
    /// Which one, by id or name
    #[arg(value_name = "STICKIE")]
    pub id: Ref<kind::Stickie>,
    /// Bring it back
    #[arg(long)]
    #[serde(default)]
    pub undo: bool,
}

impl Action for ArchiveStickie {
    const NAME: &'static str = "archive_stickie";
    const CAPABILITY: &'static str = "stickie";
    const COMMAND: (&'static str, &'static str) = ("stickie", "archive");
    type Touched = Touch<kind::Stickie, did::Archive>;
    type Output = StickieShown;

    fn perform(&self, context: &Context, write: &mut Writer<'_>) -> Result<Done<Self>> {
        let (board, before) = held_stickie(write, &self.id)?;
        let mut content = before.content();
        content.archived = !self.undo;
        if content == before.content() {
            return Ok(Done::unchanged(write.shown_by_id("s", before.id)?));
        }
        let stickie = edited(write, &before, content);
        write.update(&stickie)?;
        keep_revision(context, write, stickie.id.uuid(), stickie.edit_count, &stickie.content())?;
        mark_changed(write, board.id)?;
        let resource = stickie_resource(&board, &stickie);
        Ok(Done::changed(write.shown_by_id("s", stickie.id)?, &resource, Touch::one(resource.clone())))
    }
}

/// Delete a stickie and its relations; its history stays
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
#[serde(deny_unknown_fields)]
pub struct DeleteStickie {
    /// Which one, by id or name
    #[arg(value_name = "STICKIE")]
    pub id: Ref<kind::Stickie>,
}

impl Action for DeleteStickie {
    const NAME: &'static str = "delete_stickie";
    const CAPABILITY: &'static str = "stickie";
    const COMMAND: (&'static str, &'static str) = ("stickie", "delete");
    const REMOVES: bool = true;
    type Touched = Touch<kind::Stickie, did::Delete>;
    type Output = StickieShown;

    fn perform(&self, _: &Context, write: &mut Writer<'_>) -> Result<Done<Self>> {
        let (board, stickie) = held_stickie(write, &self.id)?;
        let shown = write.shown_by_id::<StickieShown>("s", stickie.id)?;
        remove_stickie(write, &board, stickie.id)?;
        let resource = stickie_resource(&board, &stickie);
        Ok(Done::changed(shown, &resource, Touch::one(resource.clone())))
    }
}

/// Marks a stickie deleted, and its relations with it.
pub(crate) fn remove_stickie(write: &mut Writer<'_>, board: &Board, id: Id<kind::Stickie>) -> Result<()> {
    let now = write.now;
    mark(write, "stickies", id)?;
    write.post(
        "update stickie_relations set deleted_at = ?3 where tenant_id = ?1 and (from_id = ?2 or to_id = ?2) and deleted_at is null",
        params![id, now],
    )?;
    mark_changed(write, board.id)
}

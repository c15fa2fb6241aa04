//! Putting boards and stickies out of sight, and taking them away. Their history stays.

use serde::{Deserialize, Serialize};
use trackway_domain::{Id, Ref, kind};
use trackway_store::{
    Writer,
    display::{BoardShown, StickieShown},
    params,
    tables::Board,
};

use super::{board_resource, edited, held_board, held_stickie, keep_revision, mark_changed, stickie_resource};
use crate::{
    action::{Action, Done},
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
pub(super) fn remove_stickie(write: &mut Writer<'_>, board: &Board, id: Id<kind::Stickie>) -> Result<()> {
    let now = write.now;
    mark(write, "stickies", id)?;
    write.post(
        "update stickie_relations set deleted_at = ?3 where tenant_id = ?1 and (from_id = ?2 or to_id = ?2) and deleted_at is null",
        params![id, now],
    )?;
    mark_changed(write, board.id)
}

/// Whether a board is archived now.
#[derive(Debug, Serialize)]
pub struct BoardArchived {
    pub id: Id<kind::Board>,
    pub archived: bool,
}

/// Put a board out of sight, or bring it back
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
#[serde(deny_unknown_fields)]
pub struct ArchiveBoard {
    /// Which one, by name or id
    #[arg(value_name = "BOARD")]
    pub id: Ref<kind::Board>,
    /// Bring it back
    #[arg(long)]
    #[serde(default)]
    pub undo: bool,
}

impl Action for ArchiveBoard {
    const NAME: &'static str = "archive_board";
    const CAPABILITY: &'static str = "archive";
    const COMMAND: (&'static str, &'static str) = ("board", "archive");
    type Touched = Touch<kind::Board, did::Archive>;
    type Output = BoardArchived;

    fn perform(&self, _: &Context, write: &mut Writer<'_>) -> Result<Done<Self>> {
        let board = held_board(write, &self.id)?;
        let archived = BoardArchived { id: board.id, archived: !self.undo };
        if board.archived_at.is_some() == archived.archived {
            return Ok(Done::unchanged(archived));
        }
        let at = archived.archived.then_some(write.now);
        write.post("update boards set archived_at = ?3 where tenant_id = ?1 and id = ?2", params![board.id, at])?;
        let resource = board_resource(&board);
        Ok(Done::changed(archived, &resource, Touch::one(resource.clone())))
    }
}

/// Delete a board with all that is on it; the history stays
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
#[serde(deny_unknown_fields)]
pub struct DeleteBoard {
    /// Which one, by name or id
    #[arg(value_name = "BOARD")]
    pub id: Ref<kind::Board>,
}

impl Action for DeleteBoard {
    const NAME: &'static str = "delete_board";
    const CAPABILITY: &'static str = "delete";
    const COMMAND: (&'static str, &'static str) = ("board", "delete");
    const REMOVES: bool = true;
    type Touched = Touch<kind::Board, did::Delete>;
    type Output = BoardShown;

    fn perform(&self, _: &Context, write: &mut Writer<'_>) -> Result<Done<Self>> {
        let board = held_board(write, &self.id)?;
        let shown = write.shown_by_id::<BoardShown>("b", board.id)?;
        let stickies = write.query::<(Id<kind::Stickie>,)>(
            "select id from stickies where tenant_id = ?1 and board_id = ?2 and deleted_at is null",
            params![board.id],
        )?;
        for (stickie,) in stickies {
            remove_stickie(write, &board, stickie)?;
        }
        mark(write, "boards", board.id)?;
        let resource = board_resource(&board);
        Ok(Done::changed(shown, &resource, Touch::one(resource.clone())))
    }
}

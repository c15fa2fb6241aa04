//! Archiving and deleting boards.

use serde::{Deserialize, Serialize};
use trackway_domain::{Id, Ref, kind};
use trackway_store::{Writer, display::BoardShown, params};

use super::{board_resource, held_board};
use crate::{
    action::{Action, Done},
    context::Context,
    delete::mark,
    error::Result,
    stickie::remove_stickie,
    touched::{Touch, did},
};

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

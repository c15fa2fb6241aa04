//! The action `archive_board`.

use serde::{Deserialize, Serialize};
use trackway_domain::{Id, Ref, kind};
use trackway_store::{Writer, params};

use super::{board_resource, locked_board};
use crate::{
    action::{Action, ActionOutcome},
    context::Context,
    error::Result,
    touched::{Touch, action_type},
};

/// The output of [`ArchiveBoard`].
#[derive(Debug, Serialize)]
pub struct BoardArchiveState {
    pub id: Id<kind::Board>,
    pub archived: bool,
}

/// Archive or restore a board
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
#[serde(deny_unknown_fields)]
pub struct ArchiveBoard {
    /// Name or id of the board
    #[arg(value_name = "BOARD")]
    pub id: Ref<kind::Board>,
    /// Restore the board
    #[arg(long)]
    #[serde(default)]
    pub undo: bool,
}

impl Action for ArchiveBoard {
    const NAME: &'static str = "archive_board";
    const CAPABILITY: &'static str = "archive";
    const COMMAND: (&'static str, &'static str) = ("board", "archive");
    type Touched = Touch<kind::Board, action_type::Archive>;
    type Output = BoardArchiveState;

    fn perform(&self, _: &Context, write: &mut Writer<'_>) -> Result<ActionOutcome<Self>> {
        let board = locked_board(write, &self.id)?;
        let archived = BoardArchiveState { id: board.id, archived: !self.undo };
        if board.archived_at.is_some() == archived.archived {
            return Ok(ActionOutcome::unchanged(archived));
        }
        let at = archived.archived.then_some(write.now);
        write.post("update boards set archived_at = ?3 where tenant_id = ?1 and id = ?2", params![board.id, at])?;
        let resource = board_resource(&board);
        Ok(ActionOutcome::changed(archived, &resource, Touch::one(resource.clone())))
    }
}

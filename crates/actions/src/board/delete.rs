//! The action `delete_board`.

use serde::Deserialize;
use trackway_domain::{Id, Ref, kind};
use trackway_store::{Writer, display::BoardRow, params};

use super::{board_resource, locked_board};
use crate::{
    action::{Action, ActionOutcome},
    context::Context,
    delete::mark_deleted,
    error::Result,
    stickie::remove_stickie,
    touched::{Touch, action_type},
};

/// Delete a board and its stickies, but not their history
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
#[serde(deny_unknown_fields)]
pub struct DeleteBoard {
    /// Name or id of the board
    #[arg(value_name = "BOARD")]
    pub id: Ref<kind::Board>,
}

impl Action for DeleteBoard {
    const NAME: &'static str = "delete_board";
    const CAPABILITY: &'static str = "delete";
    const COMMAND: (&'static str, &'static str) = ("board", "delete");
    const IS_DESTRUCTIVE: bool = true;
    type Touched = Touch<kind::Board, action_type::Delete>;
    type Output = BoardRow;

    fn perform(&self, _: &Context, write: &mut Writer<'_>) -> Result<ActionOutcome<Self>> {
        let board = locked_board(write, &self.id)?;
        let shown = write.display_row_by_id::<BoardRow>("b", board.id)?;
        let stickies = write.query::<(Id<kind::Stickie>,)>(
            "select id from stickies where tenant_id = ?1 and board_id = ?2 and deleted_at is null",
            params![board.id],
        )?;
        for (stickie,) in stickies {
            remove_stickie(write, &board, stickie)?;
        }
        mark_deleted(write, "boards", board.id)?;
        let resource = board_resource(&board);
        Ok(ActionOutcome::changed(shown, &resource, Touch::one(resource.clone())))
    }
}

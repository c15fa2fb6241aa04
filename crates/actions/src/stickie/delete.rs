//! The action `delete_stickie`.

use serde::Deserialize;
use trackway_domain::{Id, Ref, kind};
use trackway_store::{Writer, display::StickieRow, params, tables::Board};

use crate::{
    action::{Action, ActionOutcome},
    board::{locked_stickie, mark_changed, stickie_resource},
    context::Context,
    delete::mark_deleted,
    error::Result,
    touched::{Touch, action_type},
};

/// Delete a stickie and its relations; the history stays
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
#[serde(deny_unknown_fields)]
pub struct DeleteStickie {
    /// Stickie to delete, by id or name
    #[arg(value_name = "STICKIE")]
    pub id: Ref<kind::Stickie>,
}

impl Action for DeleteStickie {
    const NAME: &'static str = "delete_stickie";
    const CAPABILITY: &'static str = "stickie";
    const COMMAND: (&'static str, &'static str) = ("stickie", "delete");
    const IS_DESTRUCTIVE: bool = true;
    type Touched = Touch<kind::Stickie, action_type::Delete>;
    type Output = StickieRow;

    fn perform(&self, _: &Context, write: &mut Writer<'_>) -> Result<ActionOutcome<Self>> {
        let (board, stickie) = locked_stickie(write, &self.id)?;
        let shown = write.display_row_by_id::<StickieRow>("s", stickie.id)?;
        remove_stickie(write, &board, stickie.id)?;
        let resource = stickie_resource(&board, &stickie);
        Ok(ActionOutcome::changed(shown, &resource, Touch::one(resource.clone())))
    }
}

/// Marks a stickie and its relations as deleted.
pub(crate) fn remove_stickie(write: &mut Writer<'_>, board: &Board, id: Id<kind::Stickie>) -> Result<()> {
    let now = write.now;
    mark_deleted(write, "stickies", id)?;
    write.post(
        "update stickie_relations set deleted_at = ?3 where tenant_id = ?1 and (from_id = ?2 or to_id = ?2) and deleted_at is null",
        params![id, now],
    )?;
    mark_changed(write, board.id)
}

//! The action `set_stickie`.

use serde::{Deserialize, Serialize};
use trackway_domain::{Patch, Ref, board::StickieFields, kind, text};
use trackway_store::{
    Writer,
    display::StickieRow,
    params,
    tables::{Board, Stickie},
};

use crate::{
    action::{Action, ActionOutcome, Resource},
    board::{WriteKind, blank_stickie, locked_board, next_edit, write_stickie},
    context::Context,
    error::Result,
    touched::{Touch, action_type},
};

/// Create a stickie on a board, or update the one with this name
///
/// An archived stickie stays archived.
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
#[serde(deny_unknown_fields)]
pub struct SetStickie {
    /// Board of the stickie
    #[arg(long)]
    pub board: Ref<kind::Board>,
    /// Name of the stickie, unique on its board. Without a name, the command always creates a new stickie
    #[arg(long)]
    #[schemars(length(min = 1, max = text::LINE_MAX), regex(pattern = text::NOT_BLANK_PATTERN))]
    pub name: Option<String>,
    #[command(flatten)]
    #[serde(flatten)]
    pub fields: StickieFields,
}

/// The stickie after the change, and whether it is new.
#[derive(Debug, Serialize)]
pub struct SetStickieResult {
    #[serde(flatten)]
    pub stickie: StickieRow,
    pub new: bool,
}

impl Action for SetStickie {
    const NAME: &'static str = "set_stickie";
    const CAPABILITY: &'static str = "stickie";
    const COMMAND: (&'static str, &'static str) = ("stickie", "set");
    const ALIAS: Option<&'static str> = Some("create");
    type Touched = (Touch<kind::Stickie, action_type::Create>, Touch<kind::Stickie, action_type::Update>);
    type Output = SetStickieResult;

    fn perform(&self, context: &Context, write: &mut Writer<'_>) -> Result<ActionOutcome<Self>> {
        let Self { board, name, fields } = self;
        let board = locked_board(write, board)?;
        let name = name.as_deref().map(|name| text::check_required_line("name", name, text::LINE_MAX)).transpose()?;
        let known = match &name {
            Some(name) => write.row_locked::<Stickie>(
                "where tenant_id = ?1 and board_id = ?2 and name = ?3 and deleted_at is null",
                params![board.id, name],
            )?,
            None => None,
        };
        let write_kind = if known.is_some() { WriteKind::Update } else { WriteKind::Insert };
        let before = match known {
            Some(known) => known,
            None => {
                let id = write.new_id();
                blank_stickie(context, write, &board, id)?
            }
        };
        let name = name.map_or(Patch::Unset, Patch::Set);
        let Some((stickie, resource)) = apply_changes(context, write, &board, &before, write_kind, &name, fields)?
        else {
            return Ok(ActionOutcome::unchanged(SetStickieResult {
                stickie: write.display_row_by_id("s", before.id)?,
                new: false,
            }));
        };
        let new = write_kind == WriteKind::Insert;
        let touched = match write_kind {
            WriteKind::Insert => (Touch::one(resource.clone()), Touch::none()),
            WriteKind::Update => (Touch::none(), Touch::one(resource.clone())),
        };
        Ok(ActionOutcome::changed(SetStickieResult { stickie, new }, &resource, touched))
    }
}

/// Applies the given name and fields to a stickie. Returns `None` if nothing changed.
pub(super) fn apply_changes(
    context: &Context,
    write: &mut Writer<'_>,
    board: &Board,
    before: &Stickie,
    write_kind: WriteKind,
    name: &Patch<String>,
    fields: &StickieFields,
) -> Result<Option<(StickieRow, Resource<kind::Stickie>)>> {
    let content = before.content().with_changes(name, fields)?;
    if write_kind == WriteKind::Update && content == before.content() {
        return Ok(None);
    }
    let stickie = next_edit(write, before, content);
    let resource = write_stickie(context, write, board, &stickie, write_kind)?;
    Ok(Some((write.display_row_by_id("s", stickie.id)?, resource)))
}

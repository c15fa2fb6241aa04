//! Writing stickies, and changing what is given of one.

use serde::{Deserialize, Serialize};
use trackway_domain::{Patch, Ref, board::StickieFields, kind, patch::UNSET, text};
use trackway_store::{
    Writer,
    display::StickieShown,
    params,
    tables::{Board, Stickie},
};

use crate::{
    action::{Action, Done, Resource},
    board::{Came, blank, edited, held_board, held_stickie, keep},
    context::Context,
    error::Result,
    touched::{Touch, did},
};

/// Put a stickie on a board, or change what is given of the one of this name
///
/// What is archived stays archived.
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
#[serde(deny_unknown_fields)]
pub struct SetStickie {
    /// The board
    #[arg(long)]
    pub board: Ref<kind::Board>,
    /// What it is called, once on a board; without a name it is always a new one
    #[arg(long)]
    #[schemars(length(min = 1, max = text::LINE_MAX), regex(pattern = text::SAYS_SOMETHING))]
    pub name: Option<String>,
    #[command(flatten)]
    #[serde(flatten)]
    pub fields: StickieFields,
}

/// A stickie as it now stands, and whether this made it.
#[derive(Debug, Serialize)]
pub struct StickieSet {
    #[serde(flatten)]
    pub stickie: StickieShown,
    pub new: bool,
}

impl Action for SetStickie {
    const NAME: &'static str = "set_stickie";
    const CAPABILITY: &'static str = "stickie";
    const COMMAND: (&'static str, &'static str) = ("stickie", "set");
    const ALIAS: Option<&'static str> = Some("create");
    type Touched = (Touch<kind::Stickie, did::Create>, Touch<kind::Stickie, did::Update>);
    type Output = StickieSet;

    fn perform(&self, context: &Context, write: &mut Writer<'_>) -> Result<Done<Self>> {
        let board = held_board(write, &self.board)?;
        let name = self.name.as_deref().map(|name| text::required_line("name", name, text::LINE_MAX)).transpose()?;
        let known = match &name {
            Some(name) => write.row_locked::<Stickie>(
                "where tenant_id = ?1 and board_id = ?2 and name = ?3 and deleted_at is null",
                params![board.id, name],
            )?,
            None => None,
        };
        let came = if known.is_some() { Came::Before } else { Came::New };
        let before = match known {
            Some(known) => known,
            None => {
                let id = write.new_id();
                blank(context, write, &board, id)?
            }
        };
        let name = name.map_or(Patch::Unset, Patch::Set);
        let Some((stickie, resource)) = change(context, write, &board, &before, came, &name, &self.fields)? else {
            return Ok(Done::unchanged(StickieSet { stickie: write.shown_by_id("s", before.id)?, new: false }));
        };
        let new = came == Came::New;
        let touched = match came {
            Came::New => (Touch::one(resource.clone()), Touch::none()),
            Came::Before => (Touch::none(), Touch::one(resource.clone())),
        };
        Ok(Done::changed(StickieSet { stickie, new }, &resource, touched))
    }
}

/// Changes what is said; nothing when all of it was so already.
fn change(
    context: &Context,
    write: &mut Writer<'_>,
    board: &Board,
    before: &Stickie,
    came: Came,
    name: &Patch<String>,
    fields: &StickieFields,
) -> Result<Option<(StickieShown, Resource<kind::Stickie>)>> {
    let content = before.content().changed(name, fields)?;
    if came == Came::Before && content == before.content() {
        return Ok(None);
    }
    let stickie = edited(write, before, content);
    let resource = keep(context, write, board, &stickie, came)?;
    Ok(Some((write.shown_by_id("s", stickie.id)?, resource)))
}

/// Change what is given of a stickie
///
/// What is not given stays, an empty value clears, and what is archived stays archived.
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
#[serde(deny_unknown_fields)]
pub struct UpdateStickie {
    /// The stickie, by id or name
    pub stickie: Ref<kind::Stickie>,
    /// What it is called, once on a board
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
    type Touched = Touch<kind::Stickie, did::Update>;
    type Output = StickieShown;

    fn perform(&self, context: &Context, write: &mut Writer<'_>) -> Result<Done<Self>> {
        let (board, before) = held_stickie(write, &self.stickie)?;
        match change(context, write, &board, &before, Came::Before, &self.name, &self.fields)? {
            Some((shown, resource)) => Ok(Done::changed(shown, &resource, Touch::one(resource.clone()))),
            None => Ok(Done::unchanged(write.shown_by_id("s", before.id)?)),
        }
    }
}

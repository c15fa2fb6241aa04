//! The action `unrelate_stickies`.

use serde::Deserialize;
use trackway_domain::{Error as Rule, Ref, enums::RelationType, kind};
use trackway_store::{Writer, display::StickieRelationRow, tables::StickieRelation};

use super::relate::{find_relation, resolve_pair};
use crate::{
    action::{Action, ActionOutcome},
    board::{mark_changed, stickie_resource},
    context::Context,
    error::Result,
    touched::{Touch, action_type},
};

/// Remove the relation of a stickie to another one
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
#[serde(deny_unknown_fields)]
pub struct UnrelateStickies {
    /// Stickie that the relation starts from, by id or name
    #[arg(long)]
    pub from: Ref<kind::Stickie>,
    /// Stickie that the relation points to, by id or name
    #[arg(long)]
    pub to: Ref<kind::Stickie>,
    /// Type of the relation
    #[arg(long = "type", id = "type")]
    #[serde(rename = "type")]
    pub relation_type: RelationType,
}

impl Action for UnrelateStickies {
    const NAME: &'static str = "unrelate_stickies";
    const CAPABILITY: &'static str = "stickie";
    const COMMAND: (&'static str, &'static str) = ("stickie", "unrelate");
    type Touched = Touch<kind::Stickie, action_type::Update>;
    type Output = StickieRelationRow;

    fn perform(&self, _: &Context, write: &mut Writer<'_>) -> Result<ActionOutcome<Self>> {
        let (board, from, to) = resolve_pair(write, &self.from, &self.to)?;
        let relation = find_relation(write, from.id, to.id, self.relation_type)?.ok_or_else(|| {
            Rule::not_found(format!("there is no relation of type {} between these stickies", self.relation_type))
        })?;
        let shown = write.display_row_by_id::<StickieRelationRow>("e", relation.id)?;
        let now = write.now;
        write.update(&StickieRelation { deleted_at: Some(now), ..relation })?;
        mark_changed(write, board.id)?;
        let resource = stickie_resource(&board, &from);
        Ok(ActionOutcome::changed(shown, &resource, Touch::one(resource.clone())))
    }
}

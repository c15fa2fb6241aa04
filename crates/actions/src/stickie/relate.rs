//! Relations between stickies: typed edges between two stickies on the same board.

use serde::Deserialize;
use trackway_domain::{Error as Rule, Id, Ref, enums::RelationType, kind, patch};
use trackway_store::{
    Writer,
    display::StickieRelationRow,
    params,
    tables::{Board, Stickie, StickieRelation},
};

use crate::{
    action::{Action, ActionOutcome},
    board::{insert_revision, locked_stickie, mark_changed, stickie_resource},
    context::Context,
    error::Result,
    touched::{Touch, action_type},
};

/// Relate a stickie to another one on the same board, or change the labels of their relation
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
#[serde(deny_unknown_fields)]
pub struct RelateStickies {
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
    /// Label of the relation. Repeatable; empty for no labels
    #[arg(long = "label", value_name = "LABEL", num_args = 1..)]
    #[serde(default, deserialize_with = "patch::list_or_null")]
    pub labels: Option<Vec<String>>,
}

impl Action for RelateStickies {
    const NAME: &'static str = "relate_stickies";
    const CAPABILITY: &'static str = "stickie";
    const COMMAND: (&'static str, &'static str) = ("stickie", "relate");
    type Touched = Touch<kind::Stickie, action_type::Update>;
    type Output = StickieRelationRow;

    fn perform(&self, context: &Context, write: &mut Writer<'_>) -> Result<ActionOutcome<Self>> {
        let Self { from, to, relation_type, labels } = self;
        let (board, from, to) = resolve_pair(write, from, to)?;
        let labels = patch::clean_list("label", labels.as_deref())?;
        let before = find_relation(write, from.id, to.id, *relation_type)?;
        let id = match before {
            Some(before) => {
                let after = StickieRelation {
                    id: before.id,
                    tenant_id: before.tenant_id,
                    from_id: before.from_id,
                    to_id: before.to_id,
                    relation_type: before.relation_type,
                    labels: labels.unwrap_or_else(|| before.labels.clone()),
                    created_at: before.created_at,
                    updated_at: write.now,
                    deleted_at: before.deleted_at,
                };
                if after.labels == before.labels {
                    return Ok(ActionOutcome::unchanged(write.display_row_by_id("e", before.id)?));
                }
                write.update(&after)?;
                save_label_revision(context, write, &after)?;
                after.id
            }
            None => {
                let new = new_relation(context, write, from.id, to.id, *relation_type, labels.unwrap_or_default());
                write.insert(&new)?;
                save_label_revision(context, write, &new)?;
                new.id
            }
        };
        mark_changed(write, board.id)?;
        let resource = stickie_resource(&board, &from);
        Ok(ActionOutcome::changed(write.display_row_by_id("e", id)?, &resource, Touch::one(resource.clone())))
    }
}

/// Finds two stickies of the same board, and locks the board.
pub(super) fn resolve_pair(
    write: &mut Writer<'_>,
    from: &Ref<kind::Stickie>,
    to: &Ref<kind::Stickie>,
) -> Result<(Board, Stickie, Stickie)> {
    let (board, from) = locked_stickie(write, from)?;
    let id = write.resolve(to)?;
    let to = write
        .row::<Stickie>("where tenant_id = ?1 and id = ?2 and deleted_at is null", params![id])?
        .ok_or_else(|| Rule::not_found(format!("there is no stickie {to:?}")))?;
    if from.id == to.id {
        return Err(Rule::conflict("a stickie cannot be related to itself").into());
    }
    if from.board_id != to.board_id {
        return Err(Rule::conflict("the stickies are on different boards").into());
    }
    Ok((board, from, to))
}

pub(crate) fn find_relation(
    write: &mut Writer<'_>,
    from: Id<kind::Stickie>,
    to: Id<kind::Stickie>,
    relation_type: RelationType,
) -> Result<Option<StickieRelation>> {
    Ok(write.row::<StickieRelation>(
        "where tenant_id = ?1 and from_id = ?2 and to_id = ?3 and relation_type = ?4 and deleted_at is null",
        params![from, to, relation_type],
    )?)
}

pub(crate) fn new_relation(
    context: &Context,
    write: &Writer<'_>,
    from_id: Id<kind::Stickie>,
    to_id: Id<kind::Stickie>,
    relation_type: RelationType,
    labels: Vec<String>,
) -> StickieRelation {
    StickieRelation {
        id: write.new_id::<kind::Stickie>().uuid(),
        tenant_id: context.tenant,
        from_id,
        to_id,
        relation_type,
        labels,
        created_at: write.now,
        updated_at: write.now,
        deleted_at: None,
    }
}

/// Stores the labels of a relation as a revision, and returns the revision's number. If a relation of the same type
/// between the same stickies was deleted, its numbers continue, because a synced folder may still contain the deleted
/// relation.
pub(crate) fn save_label_revision(
    context: &Context,
    write: &mut Writer<'_>,
    relation: &StickieRelation,
) -> Result<i64> {
    let last = write.one::<(Option<i64>,)>(
        "select max(v.number) from board_revisions v \
         join stickie_relations e on e.tenant_id = v.tenant_id and e.id = v.subject_id \
         where e.tenant_id = ?1 and e.from_id = ?2 and e.to_id = ?3 and e.relation_type = ?4",
        params![relation.from_id, relation.to_id, relation.relation_type],
    )?;
    let number = last.and_then(|(number,)| number).unwrap_or_default() + 1;
    insert_revision(context, write, relation.id, number, &relation.labels)?;
    Ok(number)
}

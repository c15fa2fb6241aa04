//! How stickies relate: typed edges on one board.

use serde::Deserialize;
use trackway_domain::{Error as Rule, Id, Ref, kind, patch, words::RelationType};
use trackway_store::{
    Writer,
    display::RelationShown,
    params,
    tables::{Board, Stickie, StickieRelation},
};

use crate::{
    action::{Action, Done},
    board::{held_stickie, keep_revision, mark_changed, stickie_resource},
    context::Context,
    error::Result,
    touched::{Touch, did},
};

/// Relate a stickie to another one on its board, or change the labels of how it does
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
#[serde(deny_unknown_fields)]
pub struct RelateStickies {
    /// The stickie, by id or name
    #[arg(long)]
    pub from: Ref<kind::Stickie>,
    /// The one it relates to
    #[arg(long)]
    pub to: Ref<kind::Stickie>,
    /// How it relates
    #[arg(long = "type", id = "type")]
    #[serde(rename = "type")]
    pub relation_type: RelationType,
    /// A label; repeat for several, empty for none
    #[arg(long = "label", value_name = "LABEL", num_args = 1..)]
    #[serde(default, deserialize_with = "patch::list_or_null")]
    pub labels: Option<Vec<String>>,
}

impl Action for RelateStickies {
    const NAME: &'static str = "relate_stickies";
    const CAPABILITY: &'static str = "stickie";
    const COMMAND: (&'static str, &'static str) = ("stickie", "relate");
    type Touched = Touch<kind::Stickie, did::Update>;
    type Output = RelationShown;

    fn perform(&self, context: &Context, write: &mut Writer<'_>) -> Result<Done<Self>> {
        let (board, from, to) = both(write, &self.from, &self.to)?;
        let labels = patch::list("label", self.labels.as_deref())?;
        let before = between(write, from.id, to.id, self.relation_type)?;
        let id = match before {
            Some(before) => {
                let after = StickieRelation {
                    labels: labels.unwrap_or_else(|| before.labels.clone()),
                    updated_at: write.now,
                    ..before.clone()
                };
                if after.labels == before.labels {
                    return Ok(Done::unchanged(write.shown_by_id("e", before.id)?));
                }
                write.update(&after)?;
                keep_labels(context, write, &after)?;
                after.id
            }
            None => {
                let new = relation(context, write, from.id, to.id, self.relation_type, labels.unwrap_or_default());
                write.insert(&new)?;
                keep_labels(context, write, &new)?;
                new.id
            }
        };
        mark_changed(write, board.id)?;
        let resource = stickie_resource(&board, &from);
        Ok(Done::changed(write.shown_by_id("e", id)?, &resource, Touch::one(resource.clone())))
    }
}

/// Two stickies of one board, which is held.
fn both(
    write: &mut Writer<'_>,
    from: &Ref<kind::Stickie>,
    to: &Ref<kind::Stickie>,
) -> Result<(Board, Stickie, Stickie)> {
    let (board, from) = held_stickie(write, from)?;
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

/// The relation of a type between two stickies, if there is one.
pub(crate) fn between(
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

/// A new relation.
pub(crate) fn relation(
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

/// Keeps the labels of a relation at this edit, and says which it is. The numbers go on where an earlier relation of the
/// same stickies and type ended: a folder may still have a line of that one.
pub(crate) fn keep_labels(context: &Context, write: &mut Writer<'_>, relation: &StickieRelation) -> Result<i64> {
    let last = write.one::<(Option<i64>,)>(
        "select max(v.number) from board_revisions v \
         join stickie_relations e on e.tenant_id = v.tenant_id and e.id = v.subject_id \
         where e.tenant_id = ?1 and e.from_id = ?2 and e.to_id = ?3 and e.relation_type = ?4",
        params![relation.from_id, relation.to_id, relation.relation_type],
    )?;
    let number = last.and_then(|(number,)| number).unwrap_or_default() + 1;
    keep_revision(context, write, relation.id, number, &relation.labels)?;
    Ok(number)
}

/// Take back how a stickie relates to another one
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
#[serde(deny_unknown_fields)]
pub struct UnrelateStickies {
    /// The stickie, by id or name
    #[arg(long)]
    pub from: Ref<kind::Stickie>,
    /// The one it relates to
    #[arg(long)]
    pub to: Ref<kind::Stickie>,
    /// How it relates
    #[arg(long = "type", id = "type")]
    #[serde(rename = "type")]
    pub relation_type: RelationType,
}

impl Action for UnrelateStickies {
    const NAME: &'static str = "unrelate_stickies";
    const CAPABILITY: &'static str = "stickie";
    const COMMAND: (&'static str, &'static str) = ("stickie", "unrelate");
    type Touched = Touch<kind::Stickie, did::Update>;
    type Output = RelationShown;

    fn perform(&self, _: &Context, write: &mut Writer<'_>) -> Result<Done<Self>> {
        let (board, from, to) = both(write, &self.from, &self.to)?;
        let relation = between(write, from.id, to.id, self.relation_type)?
            .ok_or_else(|| Rule::not_found(format!("there is no such relation of type {}", self.relation_type)))?;
        let shown = write.shown_by_id::<RelationShown>("e", relation.id)?;
        let now = write.now;
        write.update(&StickieRelation { deleted_at: Some(now), ..relation })?;
        mark_changed(write, board.id)?;
        let resource = stickie_resource(&board, &from);
        Ok(Done::changed(shown, &resource, Touch::one(resource.clone())))
    }
}

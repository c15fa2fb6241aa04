//! Archive actions of the resources in studios: notes, decisions and commitments.

use serde::{Deserialize, Serialize};
use trackway_domain::{Id, Ref};
use trackway_store::{
    Writer, params,
    tables::{Commitment, Decision, Note},
};

use crate::{
    action::{Action, ActionOutcome},
    context::Context,
    error::Result,
    studio::{StudioRow, locked, resource},
    touched::{Touch, action_type},
};

/// The output of an archive action.
#[derive(Debug, Serialize)]
#[serde(bound = "")]
pub struct ArchiveState<K> {
    pub id: Id<K>,
    pub archived: bool,
}

/// Declares the archive action of one kind of row.
macro_rules! archive {
    ($(#[$meta:meta])* $action:ident, $name:literal, $row:ty) => {
        $(#[$meta])*
        #[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
        #[serde(deny_unknown_fields)]
        pub struct $action {
            /// Id of the resource
            #[arg(value_name = "ID")]
            pub id: Ref<<$row as StudioRow>::Kind>,
            /// Restore the resource
            #[arg(long)]
            #[serde(default)]
            pub undo: bool,
        }

        impl Action for $action {
            const NAME: &'static str = $name;
            const CAPABILITY: &'static str = "archive";
            const COMMAND: (&'static str, &'static str) = (<$row as StudioRow>::NOUN, "archive");
            type Touched = Touch<<$row as StudioRow>::Kind, action_type::Archive>;
            type Output = ArchiveState<<$row as StudioRow>::Kind>;

            fn perform(&self, _: &Context, write: &mut Writer<'_>) -> Result<ActionOutcome<Self>> {
                let row = locked::<$row>(write, &self.id)?;
                let archived = ArchiveState { id: row.id, archived: !self.undo };
                if row.archived_at.is_some() == archived.archived {
                    return Ok(ActionOutcome::unchanged(archived));
                }
                let at = archived.archived.then_some(write.now);
                let table = <$row as StudioRow>::TABLE;
                write.post(&format!("update {table} set archived_at = ?3 where tenant_id = ?1 and id = ?2"), params![row.id, at])?;
                let resource = resource(write, &row)?;
                Ok(ActionOutcome::changed(archived, &resource, Touch::one(resource.clone())))
            }
        }
    };
}

archive!(
    /// Archive or restore a note
    ArchiveNote, "archive_note", Note
);
archive!(
    /// Archive or restore a decision
    ArchiveDecision, "archive_decision", Decision
);
archive!(
    /// Archive or restore a commitment
    ArchiveCommitment, "archive_commitment", Commitment
);

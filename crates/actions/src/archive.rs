//! Archiving the contents of studios: notes, decisions and commitments.

use serde::{Deserialize, Serialize};
use trackway_domain::{Id, Ref};
use trackway_store::{
    Writer, params,
    tables::{Commitment, Decision, Note},
};

use crate::{
    action::{Action, Done},
    context::Context,
    error::Result,
    studio::{StudioRow, locked, resource},
    touched::{Touch, did},
};

/// Whether something is archived now.
#[derive(Debug, Serialize)]
#[serde(bound = "")]
pub struct Archived<K> {
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
            /// Which one
            #[arg(value_name = "ID")]
            pub id: Ref<<$row as StudioRow>::Kind>,
            /// Bring it back
            #[arg(long)]
            #[serde(default)]
            pub undo: bool,
        }

        impl Action for $action {
            const NAME: &'static str = $name;
            const CAPABILITY: &'static str = "archive";
            const COMMAND: (&'static str, &'static str) = (<$row as StudioRow>::NOUN, "archive");
            type Touched = Touch<<$row as StudioRow>::Kind, did::Archive>;
            type Output = Archived<<$row as StudioRow>::Kind>;

            fn perform(&self, _: &Context, write: &mut Writer<'_>) -> Result<Done<Self>> {
                let row = locked::<$row>(write, &self.id)?;
                let archived = Archived { id: row.id, archived: !self.undo };
                if row.archived_at.is_some() == archived.archived {
                    return Ok(Done::unchanged(archived));
                }
                let at = archived.archived.then_some(write.now);
                let table = <$row as StudioRow>::TABLE;
                write.post(&format!("update {table} set archived_at = ?3 where tenant_id = ?1 and id = ?2"), params![row.id, at])?;
                let resource = resource(write, &row)?;
                Ok(Done::changed(archived, &resource, Touch::one(resource.clone())))
            }
        }
    };
}

archive!(
    /// Put a note out of sight, or bring it back
    ArchiveNote, "archive_note", Note
);
archive!(
    /// Put a decision out of sight, or bring it back
    ArchiveDecision, "archive_decision", Decision
);
archive!(
    /// Put a commitment out of sight, or bring it back
    ArchiveCommitment, "archive_commitment", Commitment
);

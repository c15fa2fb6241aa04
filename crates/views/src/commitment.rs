//! Commitments.

use serde::{Deserialize, Serialize};
use trackway_domain::{Ref, Time, kind};
use trackway_store::{Reader, Result, display::CommitmentShown, params, table::Shown};

use crate::{
    page::{Filter, Listed, Order, Page, cut_texts},
    studio::in_studios,
    view::View,
};

in_studios!(
    /// List commitments, newest first
    ListCommitments, "commitment", CommitmentShown, commitment, "c", &["c.description"], &["id", "studio", "title", "status", "author", "run_id", "members", "critical_mass", "deadline"],
    |shown, now| shown.commitment.settle(now)
);

/// Show a commitment and who committed
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
pub struct ShowCommitment {
    /// The commitment
    pub commitment: Ref<kind::Commitment>,
}

/// A commitment in full.
#[derive(Debug, PartialEq, Serialize)]
pub struct CommitmentInFull {
    #[serde(flatten)]
    pub commitment: CommitmentShown,
    pub committed: Vec<String>,
}

impl View for ShowCommitment {
    const COMMAND: (&'static str, &'static str) = ("commitment", "show");
    const ALIAS: Option<&'static str> = Some("get");
    type Output = CommitmentInFull;

    fn answer(&self, read: &mut Reader<'_>, now: Time) -> Result<CommitmentInFull> {
        let id = read.resolve(&self.commitment)?;
        let mut commitment = read.shown_by_id::<CommitmentShown>("c", id)?;
        commitment.commitment.settle(now);
        let committed = read.query::<(String,)>(
            "select g.display_path from commitment_members m join registry g on g.id = m.actor_id
             where m.tenant_id = ?1 and m.commitment_id = ?2 order by m.created_at, m.actor_id",
            params![id],
        )?;
        Ok(CommitmentInFull { commitment, committed: committed.into_iter().map(|(name,)| name).collect() })
    }
}

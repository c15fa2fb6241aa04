use serde::{Deserialize, Serialize};
use trackway_domain::{Ref, Time, kind};
use trackway_store::{Reader, Result, display::CommitmentRow, params, table::DisplayRow};

use crate::{
    page::{Filter, ListPage, Order, Page, shorten_columns},
    studio_list::studio_list_view,
    view::View,
};

studio_list_view!(
    /// List commitments, newest first
    ListCommitments, "commitment", CommitmentRow, commitment, "c", &["c.description"], &["id", "studio", "title", "status", "author", "run_id", "members", "critical_mass", "deadline"],
    |shown, now| shown.commitment.apply_deadline(now)
);

/// Show a commitment and its members
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
pub struct ShowCommitment {
    /// The commitment
    pub commitment: Ref<kind::Commitment>,
}

/// A commitment with the names of its members.
#[derive(Debug, PartialEq, Serialize)]
pub struct CommitmentDetails {
    #[serde(flatten)]
    pub commitment: CommitmentRow,
    pub committed: Vec<String>,
}

impl View for ShowCommitment {
    const COMMAND: (&'static str, &'static str) = ("commitment", "show");
    const ALIAS: Option<&'static str> = Some("get");
    type Output = CommitmentDetails;

    fn answer(&self, read: &mut Reader<'_>, now: Time) -> Result<CommitmentDetails> {
        let id = read.resolve(&self.commitment)?;
        let mut commitment = read.display_row_by_id::<CommitmentRow>("c", id)?;
        commitment.commitment.apply_deadline(now);
        let committed = read.query::<(String,)>(
            "select g.display_path from commitment_members m join registry g on g.id = m.actor_id
             where m.tenant_id = ?1 and m.commitment_id = ?2 order by m.created_at, m.actor_id",
            params![id],
        )?;
        Ok(CommitmentDetails { commitment, committed: committed.into_iter().map(|(name,)| name).collect() })
    }
}

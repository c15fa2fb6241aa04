//! Commitments: something that counts once enough actors commit to it.

use serde::{Deserialize, Serialize};
use trackway_domain::{Error as Rule, Id, Ref, Time, kind, text, words::CommitmentStatus};
use trackway_store::{
    Writer, params,
    tables::{Commitment, CommitmentMember},
};

use crate::{
    action::{Action, Done},
    context::Context,
    error::Result,
    studio::{in_studio, locked, resource, studio},
    touched::{Touch, did},
};

/// Propose something that counts once enough commit to it
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
#[serde(deny_unknown_fields)]
pub struct CreateCommitment {
    /// The studio it is made in
    #[arg(long)]
    pub studio: Ref<kind::Studio>,
    /// What is committed to
    #[arg(long)]
    #[schemars(length(min = 1, max = text::LINE_MAX), regex(pattern = text::SAYS_SOMETHING))]
    pub title: String,
    /// How many must commit
    #[arg(long, value_name = "NUMBER")]
    #[schemars(range(min = 1))]
    pub critical_mass: i64,
    /// How many may commit
    #[arg(long, value_name = "NUMBER")]
    pub limit: Option<i64>,
    /// What there is to know about it
    #[arg(long)]
    pub description: Option<String>,
    /// Until when one may commit, as 2026-02-27 or 2026-02-27T09:30:00Z
    #[arg(long, value_name = "TIME")]
    pub deadline: Option<Time>,
}

/// A commitment as it now stands.
#[derive(Debug, Serialize)]
pub struct Committed {
    pub id: Id<kind::Commitment>,
    pub title: String,
    pub status: CommitmentStatus,
    pub members: i64,
    pub critical_mass: i64,
}

impl Action for CreateCommitment {
    const NAME: &'static str = "create_commitment";
    const COMMAND: (&'static str, &'static str) = ("commitment", "create");
    type Touched = Touch<kind::Commitment, did::Create>;
    type Output = Committed;

    fn perform(&self, context: &Context, write: &mut Writer<'_>) -> Result<Done<Self>> {
        let title = text::required_line("title", &self.title, text::LINE_MAX)?;
        let description =
            self.description.as_deref().map(|text| text::body("description", text, text::TEXT_MAX)).transpose()?;
        if self.critical_mass < 1 {
            return Err(Rule::usage("the critical mass is at least 1").into());
        }
        if self.limit.is_some_and(|limit| limit < self.critical_mass) {
            return Err(Rule::usage("the limit is not below the critical mass").into());
        }
        let studio = studio(write, &self.studio)?;
        let commitment = Commitment {
            id: write.new_id(),
            tenant_id: context.tenant,
            studio_id: studio.id,
            title,
            description,
            critical_mass: self.critical_mass,
            member_limit: self.limit,
            deadline: self.deadline,
            status: CommitmentStatus::Pending,
            achieved_at: None,
            created_at: write.now,
            updated_at: write.now,
            archived_at: None,
            deleted_at: None,
        };
        write.insert(&commitment)?;
        let resource = in_studio(&commitment, &studio.name);
        resource.register(context, write)?;
        Ok(Done::changed(stands(&commitment, 0), &resource, Touch::one(resource.clone())))
    }
}

fn stands(commitment: &Commitment, members: i64) -> Committed {
    Committed {
        id: commitment.id,
        title: commitment.title.clone(),
        status: commitment.status,
        members,
        critical_mass: commitment.critical_mass,
    }
}

/// Commit to a commitment
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
#[serde(deny_unknown_fields)]
pub struct Commit {
    /// The commitment
    pub commitment: Ref<kind::Commitment>,
}

impl Action for Commit {
    const NAME: &'static str = "commit";
    const COMMAND: (&'static str, &'static str) = ("commitment", "commit");
    type Touched = Touch<kind::Commitment, did::Commit>;
    type Output = Committed;

    fn perform(&self, context: &Context, write: &mut Writer<'_>) -> Result<Done<Self>> {
        let mut commitment = locked::<Commitment>(write, &self.commitment)?;
        commitment.settle(write.now);
        let members =
            write.rows::<CommitmentMember>("where tenant_id = ?1 and commitment_id = ?2", params![commitment.id])?;
        let mut count = i64::try_from(members.len()).unwrap_or(i64::MAX);
        if members.iter().any(|member| member.actor_id == context.actor.id()) {
            return Ok(Done::unchanged(stands(&commitment, count)));
        }
        if let Some(deadline) = commitment.deadline.filter(|deadline| *deadline <= write.now) {
            return Err(Rule::conflict(format!("one could commit to {:?} until {deadline}", commitment.title)).into());
        }
        if commitment.member_limit.is_some_and(|limit| count >= limit) {
            return Err(Rule::conflict(format!("{:?} has its {count} members already", commitment.title)).into());
        }
        write.insert(&CommitmentMember {
            commitment_id: commitment.id,
            tenant_id: context.tenant,
            actor_kind: context.actor.kind(),
            actor_id: context.actor.id(),
            created_at: write.now,
        })?;
        count += 1;
        if commitment.status == CommitmentStatus::Pending && count >= commitment.critical_mass {
            commitment.status = CommitmentStatus::Achieved;
            commitment.achieved_at = Some(write.now);
            commitment.updated_at = write.now;
            write.update(&commitment)?;
        }
        let resource = resource(write, &commitment)?;
        Ok(Done::changed(stands(&commitment, count), &resource, Touch::one(resource.clone())))
    }
}

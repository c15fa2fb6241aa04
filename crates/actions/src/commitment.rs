//! Commitments. A commitment is achieved once enough actors commit to it.

use serde::{Deserialize, Serialize};
use trackway_domain::{Error as Rule, Id, Ref, Time, enums::CommitmentStatus, kind, text};
use trackway_store::{
    Writer, params,
    tables::{Commitment, CommitmentMember},
};

use crate::{
    action::{Action, ActionOutcome},
    context::Context,
    error::Result,
    studio::{in_studio, locked, resource, studio},
    touched::{Touch, action_type},
};

/// Create a commitment that is achieved once enough actors commit to it
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
#[serde(deny_unknown_fields)]
pub struct CreateCommitment {
    /// Studio of the commitment
    #[arg(long)]
    pub studio: Ref<kind::Studio>,
    /// Title: what the members commit to
    #[arg(long)]
    #[schemars(length(min = 1, max = text::LINE_MAX), regex(pattern = text::NOT_BLANK_PATTERN))]
    pub title: String,
    /// Number of members with which the commitment is achieved
    #[arg(long, value_name = "NUMBER")]
    #[schemars(range(min = 1))]
    pub critical_mass: i64,
    /// Maximum number of members
    #[arg(long, value_name = "NUMBER")]
    pub limit: Option<i64>,
    /// Description
    #[arg(long)]
    pub description: Option<String>,
    /// Deadline for committing, such as 2026-02-27 or 2026-02-27T09:30:00Z
    #[arg(long, value_name = "TIME")]
    pub deadline: Option<Time>,
}

/// The state of a commitment after the action.
#[derive(Debug, Serialize)]
pub struct CommitmentState {
    pub id: Id<kind::Commitment>,
    pub title: String,
    pub status: CommitmentStatus,
    pub members: i64,
    pub critical_mass: i64,
}

impl Action for CreateCommitment {
    const NAME: &'static str = "create_commitment";
    const COMMAND: (&'static str, &'static str) = ("commitment", "create");
    type Touched = Touch<kind::Commitment, action_type::Create>;
    type Output = CommitmentState;

    fn perform(&self, context: &Context, write: &mut Writer<'_>) -> Result<ActionOutcome<Self>> {
        let Self { studio: studio_reference, title, critical_mass, limit, description, deadline } = self;
        let title = text::check_required_line("title", title, text::LINE_MAX)?;
        let description =
            description.as_deref().map(|text| text::check_body("description", text, text::TEXT_MAX)).transpose()?;
        if *critical_mass < 1 {
            return Err(Rule::usage("the critical mass must be at least 1").into());
        }
        if limit.is_some_and(|limit| limit < *critical_mass) {
            return Err(Rule::usage("the limit must not be below the critical mass").into());
        }
        let studio = studio(write, studio_reference)?;
        let commitment = Commitment {
            id: write.new_id(),
            tenant_id: context.tenant,
            studio_id: studio.id,
            title,
            description,
            critical_mass: *critical_mass,
            member_limit: *limit,
            deadline: *deadline,
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
        Ok(ActionOutcome::changed(state_of(&commitment, 0), &resource, Touch::one(resource.clone())))
    }
}

fn state_of(commitment: &Commitment, members: i64) -> CommitmentState {
    CommitmentState {
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
    /// Commitment to join
    pub commitment: Ref<kind::Commitment>,
}

impl Action for Commit {
    const NAME: &'static str = "commit";
    const COMMAND: (&'static str, &'static str) = ("commitment", "commit");
    type Touched = Touch<kind::Commitment, action_type::Commit>;
    type Output = CommitmentState;

    fn perform(&self, context: &Context, write: &mut Writer<'_>) -> Result<ActionOutcome<Self>> {
        let mut commitment = locked::<Commitment>(write, &self.commitment)?;
        commitment.apply_deadline(write.now);
        let members =
            write.rows::<CommitmentMember>("where tenant_id = ?1 and commitment_id = ?2", params![commitment.id])?;
        let mut count = i64::try_from(members.len()).unwrap_or(i64::MAX);
        if members.iter().any(|member| member.actor_id == context.actor.id()) {
            return Ok(ActionOutcome::unchanged(state_of(&commitment, count)));
        }
        if let Some(deadline) = commitment.deadline.filter(|deadline| *deadline <= write.now) {
            return Err(
                Rule::conflict(format!("the deadline of commitment {:?} was {deadline}", commitment.title)).into()
            );
        }
        if commitment.member_limit.is_some_and(|limit| count >= limit) {
            return Err(Rule::conflict(format!(
                "commitment {:?} already has {count} members, which is its limit",
                commitment.title
            ))
            .into());
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
        Ok(ActionOutcome::changed(state_of(&commitment, count), &resource, Touch::one(resource.clone())))
    }
}

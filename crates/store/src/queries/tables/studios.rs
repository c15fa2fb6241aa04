//! Studios with their notes, decisions and commitments.

use serde_json::Value;
use trackway_domain::{
    Id, Time,
    enums::{ActorKind, CommitmentStatus, DecisionStatus},
    kind,
};
use uuid::Uuid;

use crate::{store::TenantId, table};

table! {
    pub struct Studio in "studios" {
        id: Id<kind::Studio>,
        #[serde(skip)] tenant_id: TenantId,
        name: String,
        title: Option<String>,
        description: Option<String>,
        created_at: Time,
        updated_at: Time,
        #[serde(skip)] deleted_at: Option<Time>,
    }
}

table! {
    pub struct Note in "notes" {
        id: Id<kind::Note>,
        #[serde(skip)] tenant_id: TenantId,
        studio_id: Id<kind::Studio>,
        title: String,
        body: String,
        revision: i64,
        pinned: bool,
        about_id: Option<Uuid>,
        created_at: Time,
        updated_at: Time,
        archived_at: Option<Time>,
        #[serde(skip)] deleted_at: Option<Time>,
    }
}

table! {
    pub struct NoteRevision in "note_revisions" {
        note_id: Id<kind::Note>,
        #[serde(skip)] tenant_id: TenantId,
        number: i64,
        title: String,
        body: String,
        actor_kind: ActorKind,
        actor_id: Uuid,
        run_id: Option<Id<kind::Run>>,
        created_at: Time,
    }
}

table! {
    pub struct Confirmation in "confirmations" {
        id: Id<kind::Confirmation>,
        #[serde(skip)] tenant_id: TenantId,
        note_id: Id<kind::Note>,
        actor_kind: ActorKind,
        actor_id: Uuid,
        note_revision: i64,
        read_at: Time,
    }
}

table! {
    pub struct Decision in "decisions" {
        id: Id<kind::Decision>,
        #[serde(skip)] tenant_id: TenantId,
        studio_id: Id<kind::Studio>,
        question: String,
        description: Option<String>,
        deadline: Option<Time>,
        status: DecisionStatus,
        outcome: Option<Value>,
        created_at: Time,
        updated_at: Time,
        closed_at: Option<Time>,
        archived_at: Option<Time>,
        #[serde(skip)] deleted_at: Option<Time>,
    }
}

table! {
    pub struct DecisionOption in "decision_options" {
        id: Id<kind::DecisionOption>,
        #[serde(skip)] tenant_id: TenantId,
        decision_id: Id<kind::Decision>,
        title: String,
        created_at: Time,
    }
}

table! {
    pub struct Vote in "votes" {
        id: Id<kind::Vote>,
        #[serde(skip)] tenant_id: TenantId,
        option_id: Id<kind::DecisionOption>,
        actor_kind: ActorKind,
        actor_id: Uuid,
        accepted: bool,
        preferred: bool,
        created_at: Time,
        updated_at: Time,
    }
}

table! {
    pub struct Commitment in "commitments" {
        id: Id<kind::Commitment>,
        #[serde(skip)] tenant_id: TenantId,
        studio_id: Id<kind::Studio>,
        title: String,
        description: Option<String>,
        critical_mass: i64,
        member_limit: Option<i64>,
        deadline: Option<Time>,
        status: CommitmentStatus,
        achieved_at: Option<Time>,
        created_at: Time,
        updated_at: Time,
        archived_at: Option<Time>,
        #[serde(skip)] deleted_at: Option<Time>,
    }
}

impl Commitment {
    /// Marks a commitment as failed if it is still pending at its deadline. No action writes this status to the table.
    pub fn apply_deadline(&mut self, now: Time) {
        if self.status == CommitmentStatus::Pending && self.deadline.is_some_and(|deadline| deadline <= now) {
            self.status = CommitmentStatus::Failed;
        }
    }
}

table! {
    pub struct CommitmentMember in "commitment_members" {
        commitment_id: Id<kind::Commitment>,
        #[serde(skip)] tenant_id: TenantId,
        actor_kind: ActorKind,
        actor_id: Uuid,
        created_at: Time,
    }
}

//! Boards and their stickies.

use serde_json::Value;
use trackway_domain::{
    Id, Time,
    enums::{ActorKind, Lifecycle, RelationType, StickiePriority},
    kind,
};
use uuid::Uuid;

use crate::{store::TenantId, table};

table! {
    /// A blackboard of short notes.
    pub struct Board in "boards" {
        id: Id<kind::Board>,
        #[serde(skip)] tenant_id: TenantId,
        name: Option<String>,
        role_id: Option<Id<kind::Role>>,
        conversation_id: Option<Id<kind::Conversation>>,
        project: Option<String>,
        task_id: Option<Id<kind::Task>>,
        background: Option<String>,
        guidelines: Option<String>,
        lifecycle: Lifecycle,
        edit_count: i64,
        created_at: Time,
        updated_at: Time,
        #[serde(skip)] changed_at: Time,
        archived_at: Option<Time>,
        #[serde(skip)] deleted_at: Option<Time>,
    }
}

table! {
    /// A short note on a board.
    pub struct Stickie in "stickies" {
        id: Id<kind::Stickie>,
        #[serde(skip)] tenant_id: TenantId,
        board_id: Id<kind::Board>,
        name: Option<String>,
        note: Option<String>,
        code: Option<String>,
        labels: Vec<String>,
        priority: Option<StickiePriority>,
        score: Option<f64>,
        structured: Option<Value>,
        created_by_task_id: Option<Id<kind::Task>>,
        created_by_run_id: Option<Id<kind::Run>>,
        edit_count: i64,
        created_at: Time,
        updated_at: Time,
        archived_at: Option<Time>,
        #[serde(skip)] deleted_at: Option<Time>,
    }
}

table! {
    /// A typed relation between two stickies.
    pub struct StickieRelation in "stickie_relations" {
        #[serde(skip)] id: Uuid,
        #[serde(skip)] tenant_id: TenantId,
        from_id: Id<kind::Stickie>,
        to_id: Id<kind::Stickie>,
        #[serde(rename = "type")] relation_type: RelationType,
        labels: Vec<String>,
        created_at: Time,
        updated_at: Time,
        #[serde(skip)] deleted_at: Option<Time>,
    }
}

table! {
    /// The content of a board, stickie or relation at one of its edits.
    pub struct BoardRevision in "board_revisions" {
        subject_id: Uuid,
        tenant_id: TenantId,
        number: i64,
        content: Value,
        actor_kind: ActorKind,
        actor_id: Uuid,
        run_id: Option<Id<kind::Run>>,
        created_at: Time,
    }
}

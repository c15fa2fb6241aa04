//! Runs, their steps, token usage and touches.

use trackway_domain::{
    Id, Time,
    enums::{RunMode, RunStatus, StepType},
    kind::{self, ActionType, ResourceType},
};
use uuid::Uuid;

use crate::{store::TenantId, table};

table! {
    pub struct Run in "runs" {
        id: Id<kind::Run>,
        #[serde(skip)] tenant_id: TenantId,
        agent_id: Id<kind::Agent>,
        role_id: Option<Id<kind::Role>>,
        task_id: Option<Id<kind::Task>>,
        task_revision: Option<i64>,
        parent_run_id: Option<Id<kind::Run>>,
        #[serde(skip)] initiated_by: Option<Id<kind::Person>>,
        cause_kind: Option<String>,
        cause_id: Option<Uuid>,
        chain_depth: i64,
        workspace_id: Option<Id<kind::Workspace>>,
        mode: RunMode,
        status: RunStatus,
        outcome: Option<String>,
        final_message: Option<String>,
        error: Option<String>,
        max_steps: i64,
        started_at: Time,
        ended_at: Option<Time>,
        #[serde(skip)] session_id: Option<Id<kind::Session>>,
        #[serde(skip)] subagent_id: Option<Id<kind::Subagent>>,
        #[serde(skip)] prompt_id: Option<String>,
        #[serde(skip)] prompt_line: Option<String>,
        #[serde(skip)] prompt_hash: Option<String>,
        #[serde(skip)] hooked: bool,
        #[serde(skip)] asked_at: Option<Time>,
        #[serde(skip)] answered_at: Option<Time>,
        queue_item_id: Option<Id<kind::QueueItem>>,
        fence: Option<i64>,
        #[serde(skip)] token_hash: Option<Vec<u8>>,
        cancel_wanted_at: Option<Time>,
        #[serde(skip)] attached: bool,
        /// Whether `run start` created the run for a task. The task is then not ready while the run is running, and the
        /// run changes its status, unless the run has a parent.
        #[serde(skip)] drives_task: bool,
        /// Whether the task is open again after the run completes.
        #[serde(skip)] keep_open: bool,
    }
}

table! {
    pub struct Step in "run_steps" {
        run_id: Id<kind::Run>,
        #[serde(skip)] tenant_id: TenantId,
        position: i64,
        #[serde(rename = "type")] step_type: StepType,
        detail: Option<String>,
        created_at: Time,
    }
}

table! {
    pub struct Usage in "run_usage" {
        id: Uuid,
        #[serde(skip)] tenant_id: TenantId,
        run_id: Id<kind::Run>,
        message_id: Option<String>,
        model: Option<String>,
        input_tokens: Option<i64>,
        output_tokens: Option<i64>,
        cache_creation_tokens: Option<i64>,
        cache_read_tokens: Option<i64>,
        cost: Option<f64>,
        created_at: Time,
        #[serde(skip)] once_key: Option<String>,
    }
}

table! {
    /// A touch: the fact that a run did something to a resource.
    pub struct Touch in "run_resources" {
        id: Uuid,
        tenant_id: TenantId,
        run_id: Id<kind::Run>,
        resource_type: ResourceType,
        resource_id: Uuid,
        resource_studio_id: Option<Id<kind::Studio>>,
        action_type: ActionType,
        display_path: String,
        first_at: Time,
        last_at: Time,
        times: i64,
    }
}

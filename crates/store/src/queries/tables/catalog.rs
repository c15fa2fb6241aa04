//! The catalog: roles, labels, workflows, workspaces, and tasks with their versions, links and packages.

use serde_json::Value;
use trackway_domain::{
    Duration, Id, Time, Variant,
    enums::{ActorKind, Heading, Level, LinkType, Priority, RoleOrigin, TaskStatus},
    kind,
};
use uuid::Uuid;

use crate::{store::TenantId, table};

table! {
    pub struct Role in "roles" {
        id: Id<kind::Role>,
        #[serde(skip)] tenant_id: TenantId,
        name: String,
        title: Option<String>,
        description: Option<String>,
        notes: Option<String>,
        tags: Vec<String>,
        origin: RoleOrigin,
        created_at: Time,
        updated_at: Time,
        #[serde(skip)] deleted_at: Option<Time>,
    }
}

table! {
    pub struct Label in "labels" {
        id: Id<kind::Label>,
        #[serde(skip)] tenant_id: TenantId,
        key: String,
        name: String,
        created_at: Time,
        updated_at: Time,
        #[serde(skip)] deleted_at: Option<Time>,
    }
}

table! {
    pub struct Workflow in "workflows" {
        id: Id<kind::Workflow>,
        #[serde(skip)] tenant_id: TenantId,
        name: String,
        title: Option<String>,
        description: Option<String>,
        role_id: Option<Id<kind::Role>>,
        notes: Option<String>,
        created_at: Time,
        updated_at: Time,
        #[serde(skip)] deleted_at: Option<Time>,
    }
}

table! {
    pub struct Workspace in "workspaces" {
        id: Id<kind::Workspace>,
        #[serde(skip)] tenant_id: TenantId,
        name: String,
        directory: Option<String>,
        repository: Option<String>,
        description: Option<String>,
        project: Option<String>,
        tags: Vec<String>,
        created_at: Time,
        updated_at: Time,
        #[serde(skip)] deleted_at: Option<Time>,
    }
}

table! {
    pub struct TaskVariant in "task_variants" {
        id: Uuid,
        tenant_id: TenantId,
        variant: Variant,
        workflow_id: Id<kind::Workflow>,
        claimed_at: Time,
        released_at: Option<Time>,
    }
}

table! {
    pub struct Task in "tasks" {
        id: Id<kind::Task>,
        #[serde(skip)] tenant_id: TenantId,
        variant: Variant,
        command: String,
        workflow_id: Id<kind::Workflow>,
        role_id: Option<Id<kind::Role>>,
        title: Option<String>,
        description: Option<String>,
        motivation: Option<String>,
        notes: Option<String>,
        shell: Option<String>,
        script: Option<String>,
        timeout: Option<Duration>,
        max_steps: Option<i64>,
        spend_limit: Option<f64>,
        end_of_run: Option<bool>,
        retry_on_error: bool,
        workspace_id: Option<Id<kind::Workspace>>,
        tags: Vec<String>,
        labels: Vec<String>,
        heading: Option<Heading>,
        recurring: bool,
        archived: bool,
        status: TaskStatus,
        status_since: Time,
        /// The error with which an agent blocked the task, as long as it is blocked.
        status_reason: Option<String>,
        priority: Priority,
        estimate: Option<Duration>,
        language: Option<String>,
        revision: i64,
        lineage_id: Uuid,
        open_blockers: i64,
        replaced: bool,
        /// The current version, which `task latest` returns. None if no version is live.
        current_id: Option<Id<kind::Task>>,
        created_at: Time,
        updated_at: Time,
        #[serde(skip)] deleted_at: Option<Time>,
    }
}

impl Task {
    /// Returns whether this version may be the current one.
    pub fn is_usable(&self) -> bool {
        self.deleted_at.is_none() && !self.archived
    }

    pub fn has_script(&self) -> bool {
        self.script.as_deref().is_some_and(|script| !script.trim().is_empty())
    }
}

table! {
    pub struct TaskRevision in "task_revisions" {
        task_id: Id<kind::Task>,
        #[serde(skip)] tenant_id: TenantId,
        number: i64,
        digest: String,
        definition: Value,
        actor_kind: ActorKind,
        actor_id: Uuid,
        run_id: Option<Id<kind::Run>>,
        created_at: Time,
    }
}

table! {
    pub struct TaskReplace in "task_replaces" {
        new_task_id: Id<kind::Task>,
        old_task_id: Id<kind::Task>,
        tenant_id: TenantId,
        level: Level,
        comment: Option<String>,
        created_at: Time,
        updated_at: Time,
    }
}

table! {
    pub struct TaskLink in "task_links" {
        id: Id<kind::Link>,
        tenant_id: TenantId,
        from_task_id: Id<kind::Task>,
        to_task_id: Id<kind::Task>,
        #[serde(rename = "type")] link_type: LinkType,
        created_at: Time,
        deleted_at: Option<Time>,
    }
}

table! {
    pub struct Package in "packages" {
        id: Id<kind::Package>,
        tenant_id: TenantId,
        role_id: Id<kind::Role>,
        task_id: Id<kind::Task>,
        lineage_id: Uuid,
        created_at: Time,
        updated_at: Time,
        deleted_at: Option<Time>,
    }
}

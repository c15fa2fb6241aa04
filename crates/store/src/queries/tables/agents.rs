//! Agents and what they know when they wake: scratchpads, reports and wake contexts.

use serde_json::Value;
use trackway_domain::{
    Duration, Id, Time,
    enums::{ActorKind, AgentLinkType, Runner},
    kind,
};
use uuid::Uuid;

use crate::{store::TenantId, table};

table! {
    pub struct Agent in "agents" {
        id: Id<kind::Agent>,
        #[serde(skip)] tenant_id: TenantId,
        handle: String,
        name: Option<String>,
        owner_id: Id<kind::Person>,
        parent_id: Option<Id<kind::Agent>>,
        role_id: Option<Id<kind::Role>>,
        runner: Runner,
        model: Option<String>,
        identity: Option<String>,
        capabilities: Option<Vec<String>>,
        max_items: Option<i64>,
        max_steps: Option<i64>,
        timeout: Option<Duration>,
        end_of_run: bool,
        spend_limit: Option<f64>,
        archived: bool,
        /// Whether a session created the agent, rather than a person.
        #[serde(skip)] observed: bool,
        created_at: Time,
        updated_at: Time,
        #[serde(skip)] deleted_at: Option<Time>,
    }
}

table! {
    /// The fact that an agent worked on a task.
    pub struct AgentLink in "agent_links" {
        id: Id<kind::Link>,
        #[serde(skip)] tenant_id: TenantId,
        from_agent_id: Id<kind::Agent>,
        to_task_id: Id<kind::Task>,
        #[serde(rename = "type")] link_type: AgentLinkType,
        created_at: Time,
    }
}

table! {
    pub struct Scratchpad in "scratchpads" {
        agent_id: Id<kind::Agent>,
        tenant_id: TenantId,
        content: String,
        revision: i64,
        updated_at: Time,
    }
}

table! {
    pub struct ScratchpadRevision in "scratchpad_revisions" {
        agent_id: Id<kind::Agent>,
        tenant_id: TenantId,
        revision: i64,
        content: String,
        actor_kind: ActorKind,
        actor_id: Uuid,
        run_id: Option<Id<kind::Run>>,
        created_at: Time,
    }
}

table! {
    /// A report of an agent on its work on a task.
    pub struct Report in "reports" {
        id: Id<kind::Report>,
        #[serde(skip)] tenant_id: TenantId,
        agent_id: Id<kind::Agent>,
        task_id: Option<Id<kind::Task>>,
        run_id: Option<Id<kind::Run>>,
        scope: String,
        one_liner: String,
        tldr: String,
        content: String,
        created_at: Time,
    }
}

table! {
    /// The current report of an agent on a task.
    pub struct ReportHead in "report_heads" {
        agent_id: Id<kind::Agent>,
        #[serde(skip)] tenant_id: TenantId,
        task_id: Id<kind::Task>,
        scope: String,
        report_id: Id<kind::Report>,
        revision: i64,
        updated_at: Time,
    }
}

table! {
    /// The text of a wake context, stored once per digest.
    pub struct StoredWakeContext in "wake_contexts" {
        digest: String,
        #[serde(skip)] tenant_id: TenantId,
        content: String,
        sections: Value,
        cuts: Value,
        created_at: Time,
    }
}

table! {
    /// A wake of a run, with the digest of its wake context.
    pub struct RunWake in "run_wakes" {
        run_id: Id<kind::Run>,
        #[serde(skip)] tenant_id: TenantId,
        position: i64,
        agent_id: Id<kind::Agent>,
        task_id: Option<Id<kind::Task>>,
        digest: String,
        created_at: Time,
    }
}

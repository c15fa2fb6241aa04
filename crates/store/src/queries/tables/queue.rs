//! The queue.

use serde_json::Value;
use trackway_domain::{Duration, Id, Time, enums::ItemStatus, kind};
use uuid::Uuid;

use crate::{store::TenantId, table};

table! {
    /// A request to run a task.
    pub struct QueueItem in "queue_items" {
        id: Id<kind::QueueItem>,
        #[serde(skip)] tenant_id: TenantId,
        description: Option<String>,
        status: ItemStatus,
        why: Option<String>,
        tags: Vec<String>,
        /// The requested version.
        task_id: Id<kind::Task>,
        /// The version that the last take ran.
        run_task_id: Option<Id<kind::Task>>,
        /// Whether the item runs exactly the requested version, rather than the current or pinned one.
        exact: bool,
        #[serde(rename = "revision")] task_revision: Option<i64>,
        #[serde(rename = "inbound_message")] message_id: Option<Id<kind::Message>>,
        route_id: Option<Id<kind::Route>>,
        workspace_id: Option<Id<kind::Workspace>>,
        role_id: Option<Id<kind::Role>>,
        agent_id: Option<Id<kind::Agent>>,
        priority: i64,
        in_queue_since: Time,
        not_before: Option<Time>,
        dedup_key: Option<String>,
        concurrency_key: Option<String>,
        #[serde(skip)] held_key: Option<String>,
        attempt: i64,
        max_attempts: i64,
        max_steps: Option<i64>,
        timeout: Option<Duration>,
        spend_limit: Option<f64>,
        end_of_run: Option<bool>,
        #[serde(skip)] lease_seconds: Option<i64>,
        lease_expires: Option<Time>,
        heartbeat_at: Option<Time>,
        #[serde(skip)] taken_by: Option<Id<kind::Agent>>,
        #[serde(skip)] slot: Option<i64>,
        fence: i64,
        run_id: Option<Id<kind::Run>>,
        #[serde(skip)] initiated_by: Option<Id<kind::Person>>,
        cause_kind: Option<kind::Kind>,
        cause_id: Option<Uuid>,
        chain_depth: i64,
        result: Option<Value>,
        error: Option<String>,
        created_at: Time,
        finished_at: Option<Time>,
    }
}

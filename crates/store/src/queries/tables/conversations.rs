//! Conversations, messages, experiments, routes and test results.

use trackway_domain::{
    Id, Time,
    enums::{ActorKind, ExperimentStatus, MessageStatus, TestcaseStatus},
    kind,
};
use uuid::Uuid;

use crate::{store::TenantId, table};

table! {
    /// The body of one or more messages. Equal bodies are stored once.
    pub struct Content in "contents" {
        id: Uuid,
        tenant_id: TenantId,
        digest: Vec<u8>,
        body: String,
        created_at: Time,
    }
}

table! {
    pub struct Message in "messages" {
        id: Id<kind::Message>,
        #[serde(skip)] tenant_id: TenantId,
        content_id: Uuid,
        from_actor_kind: ActorKind,
        from_actor_id: Uuid,
        from_run_id: Option<Id<kind::Run>>,
        #[serde(skip)] session_id: Option<Id<kind::Session>>,
        /// Identifies the transcript line of the message, so that the message is stored only once.
        #[serde(skip)] line: Option<String>,
        created_at: Time,
        from_task_id: Option<Id<kind::Task>>,
        to_kind: Option<kind::Kind>,
        to_id: Option<Uuid>,
        in_reply_to: Option<Id<kind::Message>>,
        conversation_id: Option<Id<kind::Conversation>>,
        experiment_id: Option<Id<kind::Experiment>>,
        role_id: Option<Id<kind::Role>>,
        status: MessageStatus,
        error_message: Option<String>,
        title: Option<String>,
        goal: Option<String>,
        tags: Vec<String>,
    }
}

table! {
    pub struct Conversation in "conversations" {
        id: Id<kind::Conversation>,
        #[serde(skip)] tenant_id: TenantId,
        title: String,
        description: Option<String>,
        project: Option<String>,
        role_id: Option<Id<kind::Role>>,
        tags: Vec<String>,
        notes: Option<String>,
        created_at: Time,
        updated_at: Time,
        #[serde(skip)] deleted_at: Option<Time>,
    }
}

table! {
    /// One attempt within a conversation.
    pub struct Experiment in "experiments" {
        id: Id<kind::Experiment>,
        #[serde(skip)] tenant_id: TenantId,
        conversation_id: Id<kind::Conversation>,
        title: String,
        status: ExperimentStatus,
        outcome: Option<String>,
        created_at: Time,
        updated_at: Time,
        ended_at: Option<Time>,
        #[serde(skip)] deleted_at: Option<Time>,
    }
}

table! {
    /// A rule that turns messages into queue items of a task.
    pub struct Route in "routes" {
        id: Id<kind::Route>,
        #[serde(skip)] tenant_id: TenantId,
        tag: String,
        role_id: Option<Id<kind::Role>>,
        task_id: Id<kind::Task>,
        workspace_id: Option<Id<kind::Workspace>>,
        /// Whether the items run exactly this version, rather than the current or pinned one.
        exact: bool,
        #[serde(skip)] created_by: Uuid,
        created_at: Time,
        updated_at: Time,
        #[serde(skip)] deleted_at: Option<Time>,
    }
}

table! {
    /// The result of one test in an experiment.
    pub struct Testcase in "testcases" {
        id: Id<kind::Testcase>,
        #[serde(skip)] tenant_id: TenantId,
        title: String,
        status: TestcaseStatus,
        error: Option<String>,
        file: Option<String>,
        line: Option<i64>,
        duration_ms: Option<i64>,
        experiment_id: Option<Id<kind::Experiment>>,
        role_id: Option<Id<kind::Role>>,
        created_at: Time,
        /// Identifies the imported report that contains this result.
        #[serde(skip)] report_digest: Option<String>,
        /// The position of this result in the report, from 1.
        #[serde(skip)] report_place: Option<i64>,
    }
}

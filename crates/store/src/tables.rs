//! The tables, a struct each. Adding a column: a migration, and a field here.

use serde_json::Value;
use trackway_domain::{
    Duration, Id, Time, Variant, ids,
    kind::{self, ActionType, ResourceType},
    words::{
        ActorKind, AgentLinkType, ChangeEvidence, CommitEvidence, CommitmentStatus, DecisionStatus, Evidence,
        ExperimentStatus, FileChange, Heading, ItemStatus, Level, Lifecycle, LinkType, MessageStatus, Priority,
        RelationType, RoleOrigin, RoleSource, RunMode, RunStatus, Runner, SpawnRoleSource, StepType, StickiePriority,
        TaskStatus, TestcaseStatus, TokenScope,
    },
};
use uuid::Uuid;

use crate::{
    store::{TenantId, Writer},
    table,
};

table! {
    pub struct Tenant in "tenants" {
        id: TenantId,
        name: String,
        created_at: Time,
    }
}

table! {
    pub struct Person in "people" {
        id: Id<kind::Person>,
        #[serde(skip)] tenant_id: TenantId,
        handle: String,
        name: Option<String>,
        created_at: Time,
        updated_at: Time,
        #[serde(skip)] deleted_at: Option<Time>,
    }
}

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
        end_of_run: bool,
        spend_limit: Option<f64>,
        archived: bool,
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
        workspace_id: Option<Id<kind::Workspace>>,
        tags: Vec<String>,
        labels: Vec<String>,
        heading: Option<Heading>,
        recurring: bool,
        archived: bool,
        status: TaskStatus,
        status_since: Time,
        priority: Priority,
        estimate: Option<Duration>,
        language: Option<String>,
        revision: i64,
        lineage_id: Uuid,
        open_blockers: i64,
        replaced: bool,
        created_at: Time,
        updated_at: Time,
        #[serde(skip)] deleted_at: Option<Time>,
    }
}

impl Task {
    /// Whether this task may be the answer to "which is the current one".
    pub fn usable(&self) -> bool {
        self.deleted_at.is_none() && !self.archived
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
        queue_item_id: Option<Id<kind::QueueItem>>,
        fence: Option<i64>,
        #[serde(skip)] token_hash: Option<Vec<u8>>,
        cancel_wanted_at: Option<Time>,
        #[serde(skip)] attached: bool,
    }
}

table! {
    pub struct Token in "tokens" {
        id: Id<kind::Token>,
        #[serde(skip)] tenant_id: TenantId,
        #[serde(skip)] hash: Vec<u8>,
        actor_kind: ActorKind,
        actor_id: Uuid,
        run_id: Option<Id<kind::Run>>,
        name: Option<String>,
        expires_at: Option<Time>,
        revoked_at: Option<Time>,
        created_at: Time,
        scope: TokenScope,
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
    /// One that is still pending at its deadline has failed; nobody has to be there to write that down.
    pub fn settle(&mut self, now: Time) {
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
    /// A Claude Code session.
    pub struct Session in "sessions" {
        #[serde(skip)] id: Id<kind::Session>,
        #[serde(skip)] tenant_id: TenantId,
        #[serde(rename = "id")] session_id: String,
        cwd: Option<String>,
        root: Option<String>,
        workspace_id: Option<Id<kind::Workspace>>,
        transcript_path: Option<String>,
        version: Option<String>,
        git_branch: Option<String>,
        #[serde(skip)] head: Option<String>,
        source: Option<String>,
        #[serde(skip)] continues_id: Option<Id<kind::Session>>,
        started_at: Time,
        ended_at: Option<Time>,
        hooked_at: Option<Time>,
        #[serde(skip)] shell_at: Option<Time>,
        #[serde(skip)] removals: Option<String>,
    }
}

table! {
    /// An agent that a session started.
    pub struct Subagent in "subagents" {
        #[serde(skip)] id: Id<kind::Subagent>,
        #[serde(skip)] tenant_id: TenantId,
        #[serde(skip)] session_id: Id<kind::Session>,
        agent_id: String,
        agent_type: Option<String>,
        role: Option<String>,
        role_source: Option<RoleSource>,
        task_match_index: Option<i64>,
        depth: Option<i64>,
        parent_agent_id: Option<String>,
        #[serde(skip)] spawnable: bool,
        #[serde(skip)] prompt_hash: Option<String>,
        #[serde(skip)] started_by: Option<String>,
        #[serde(skip)] tagged_role: Option<String>,
        started_at: Time,
        stopped_at: Option<Time>,
        #[serde(skip)] cleared_at: Option<Time>,
        #[serde(skip)] shell_at: Option<Time>,
    }
}

table! {
    /// How far a transcript was read.
    pub struct Transcript in "transcripts" {
        id: Uuid,
        tenant_id: TenantId,
        session_id: Id<kind::Session>,
        agent_id: Option<String>,
        path: String,
        identity: String,
        read_to: i64,
        line_count: i64,
        bad_lines: i64,
        state: Value,
        read_at: Time,
    }
}

table! {
    /// The tool call that started an agent.
    pub struct Spawn in "task_spawns" {
        id: Id<kind::Spawn>,
        #[serde(skip)] tenant_id: TenantId,
        #[serde(skip)] session_id: Id<kind::Session>,
        transcript: Option<String>,
        transcript_index: Option<i64>,
        block: Option<i64>,
        tool_use_id: String,
        parent_agent_id: Option<String>,
        run_id: Option<Id<kind::Run>>,
        subagent_type: Option<String>,
        role: Option<String>,
        role_source: Option<SpawnRoleSource>,
        prompt_hash: Option<String>,
        description: Option<String>,
        background: bool,
        #[serde(rename = "agent_id")] matched_agent_id: Option<String>,
        evidence: Option<Evidence>,
        status: Option<String>,
        error: Option<String>,
        created_at: Time,
    }
}

table! {
    /// Evidence that a spawn started an agent.
    pub struct SpawnMatch in "spawn_matches" {
        #[serde(skip)] spawn_id: Id<kind::Spawn>,
        #[serde(skip)] tenant_id: TenantId,
        agent_id: String,
        evidence: Evidence,
        created_at: Time,
        withdrawn_at: Option<Time>,
    }
}

table! {
    /// A distinct body of messages.
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
    pub struct File in "files" {
        id: Id<kind::File>,
        #[serde(skip)] tenant_id: TenantId,
        workspace_id: Id<kind::Workspace>,
        path: String,
        #[serde(skip)] path_key: String,
        created_at: Time,
        updated_at: Time,
    }
}

table! {
    /// A change of a file by a run.
    pub struct FileChanged in "file_changes" {
        id: Uuid,
        #[serde(skip)] tenant_id: TenantId,
        file_id: Id<kind::File>,
        run_id: Id<kind::Run>,
        session_id: Option<Id<kind::Session>>,
        tool_use_id: Option<String>,
        tool: Option<String>,
        change: FileChange,
        evidence: ChangeEvidence,
        digest: Option<String>,
        #[serde(skip)] lines: Option<Vec<u8>>,
        created_at: Time,
    }
}

table! {
    pub struct Commit in "commits" {
        id: Id<kind::Commit>,
        #[serde(skip)] tenant_id: TenantId,
        workspace_id: Id<kind::Workspace>,
        hash: String,
        author: Option<String>,
        subject: Option<String>,
        committed_at: Option<Time>,
        created_at: Time,
        #[serde(skip)] evidence: Option<CommitEvidence>,
    }
}

table! {
    /// What an agent said about its work when it stopped.
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
    /// The fact that an agent had to do with a task.
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
    /// Which report of an agent on a task is the current one.
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
    /// What agents were told when they woke, by digest.
    pub struct ToldContext in "wake_contexts" {
        digest: String,
        #[serde(skip)] tenant_id: TenantId,
        content: String,
        sections: Value,
        cuts: Value,
        created_at: Time,
    }
}

table! {
    /// A wake: which run was told what.
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
    /// One try inside a conversation.
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
    /// Which messages are work for which task.
    pub struct Route in "routes" {
        id: Id<kind::Route>,
        #[serde(skip)] tenant_id: TenantId,
        tag: String,
        role_id: Option<Id<kind::Role>>,
        task_id: Id<kind::Task>,
        workspace_id: Option<Id<kind::Workspace>>,
        #[serde(skip)] created_by: Uuid,
        created_at: Time,
        updated_at: Time,
        #[serde(skip)] deleted_at: Option<Time>,
    }
}

table! {
    /// The result of one test of a try.
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
        #[serde(skip)] report_digest: Option<String>,
        #[serde(skip)] report_place: Option<i64>,
    }
}

table! {
    /// A request that a task be run.
    pub struct QueueItem in "queue_items" {
        id: Id<kind::QueueItem>,
        #[serde(skip)] tenant_id: TenantId,
        description: Option<String>,
        status: ItemStatus,
        why: Option<String>,
        tags: Vec<String>,
        task_id: Id<kind::Task>,
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
    /// How one stickie relates to another.
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
    /// What a board, a stickie or a relation said at one of its edits.
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

table! {
    /// An entry of the registry, as it is made.
    pub struct Registered in "registry" {
        id: Uuid,
        tenant_id: TenantId,
        kind: kind::Kind,
        display_path: String,
        short_key: i64,
        created_by: Option<Uuid>,
        created_at: Time,
    }
}

impl Registered {
    /// Something new that lives outside studios.
    pub fn new<K: kind::Marker>(write: &Writer<'_>, by: Uuid, id: Id<K>, display_path: &str) -> Self {
        Self {
            id: id.uuid(),
            tenant_id: write.tenant,
            kind: K::KIND,
            display_path: display_path.to_owned(),
            short_key: ids::short_key(id.uuid()),
            created_by: Some(by),
            created_at: write.now,
        }
    }
}

table! {
    /// An entry of the log, as it is made. Its position comes from the database.
    pub struct Logged in "events" {
        request_id: Uuid,
        tenant_id: TenantId,
        created_at: Time,
        actor_kind: ActorKind,
        actor_id: Uuid,
        run_id: Option<Id<kind::Run>>,
        action: String,
        subject_kind: kind::Kind,
        subject_id: Uuid,
        subject_path: String,
        detail: Option<Value>,
    }
}

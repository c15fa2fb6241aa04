//! Sessions of agent clients, their subagents and transcripts, and the files and commits in workspaces.

use serde_json::Value;
use trackway_domain::{
    Id, Time,
    enums::{ChangeEvidence, CommitEvidence, Evidence, FileChange, RoleSource, SpawnRoleSource},
    kind,
};
use uuid::Uuid;

use crate::{store::TenantId, table};

table! {
    /// A session of an agent client.
    pub struct Session in "sessions" {
        #[serde(skip)] id: Id<kind::Session>,
        #[serde(skip)] tenant_id: TenantId,
        client: String,
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
    /// A subagent that a session started.
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
    /// The position up to which a transcript was read.
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
    /// A tool call that starts a subagent.
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
        #[serde(flatten, serialize_with = "trackway_domain::enums::serialize_with_kind")] evidence: Option<Evidence>,
        /// Whether the match is tentative: better evidence replaces it.
        tentative: bool,
        status: Option<String>,
        error: Option<String>,
        created_at: Time,
    }
}

table! {
    /// Evidence that a spawn started a subagent.
    pub struct SpawnMatch in "spawn_matches" {
        #[serde(skip)] spawn_id: Id<kind::Spawn>,
        #[serde(skip)] tenant_id: TenantId,
        agent_id: String,
        #[serde(flatten, serialize_with = "trackway_domain::enums::serialize_with_kind")] evidence: Evidence,
        tentative: bool,
        created_at: Time,
        withdrawn_at: Option<Time>,
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
    pub struct FileChangeRow in "file_changes" {
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

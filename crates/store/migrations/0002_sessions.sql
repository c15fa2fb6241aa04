-- Claude Code: sessions, the agents they started and the calls that started them, what was read of their transcripts;
-- files, commits and lines; messages.

create table sessions (
    id uuid not null primary key,
    tenant_id uuid not null references tenants (id),
    -- As the client calls it. The id is the same wherever that is a UUID nobody else has.
    session_id text not null,
    cwd text,
    -- The top of the work tree that cwd is in: files are named from here.
    root text,
    workspace_id uuid references workspaces (id),
    transcript_path text,
    version text,
    git_branch text,
    -- The commit its work tree was last seen at.
    head text,
    source text,
    -- The session whose lines this one repeats.
    continues_id uuid references sessions (id),
    started_at time not null,
    ended_at time,
    -- When a hook last spoke of it: silence while the transcript grows is a finding.
    hooked_at time,
    -- When its main agent last ran a command: files that changed until then may be from it.
    shell_at time
);
create unique index sessions_by_session_id on sessions (tenant_id, session_id);
create index sessions_by_root on sessions (tenant_id, root);
create index sessions_by_start on sessions (tenant_id, started_at, id);

create table subagents (
    id uuid not null primary key,
    tenant_id uuid not null references tenants (id),
    session_id uuid not null references sessions (id),
    agent_id text not null,
    agent_type text,
    role text,
    role_source text,
    task_match_index bigint,
    depth bigint,
    parent_agent_id text,
    -- Whether a spawn can have made it: a warm-up or a compaction has none.
    spawnable flag not null,
    prompt_hash text,
    -- The call that is said to have started it, where that call was not seen yet.
    started_by text,
    -- A role tag in its own transcript.
    tagged_role text,
    started_at time not null,
    stopped_at time,
    -- Live state taken away by a clean-up; the history stays.
    cleared_at time,
    shell_at time
);
create unique index subagents_once on subagents (tenant_id, session_id, agent_id);

-- How far each transcript was read.
create table transcripts (
    id uuid not null primary key,
    tenant_id uuid not null references tenants (id),
    session_id uuid not null references sessions (id),
    agent_id text,
    path text not null,
    -- What tells this file from another that takes its place.
    identity text not null,
    read_to bigint not null,
    line_count bigint not null,
    bad_lines bigint not null,
    -- What the reader has to remember to go on from there.
    state json not null,
    read_at time not null
);
create unique index transcripts_by_path on transcripts (tenant_id, path);
create index transcripts_by_session on transcripts (tenant_id, session_id, id);

create table task_spawns (
    id uuid not null primary key,
    tenant_id uuid not null references tenants (id),
    session_id uuid not null references sessions (id),
    transcript text,
    transcript_index bigint,
    block bigint,
    tool_use_id text not null,
    -- The agent whose call it was; none for the main agent of the session.
    parent_agent_id text,
    -- The run whose call it was.
    run_id uuid references runs (id),
    subagent_type text,
    role text,
    role_source text,
    prompt_hash text,
    description text,
    background flag not null,
    matched_agent_id text,
    evidence text,
    status text,
    error text,
    created_at time not null
);
create unique index task_spawns_once on task_spawns (tenant_id, session_id, tool_use_id);
create unique index task_spawns_by_place on task_spawns (tenant_id, session_id, transcript, transcript_index, block) where transcript_index is not null;
create index task_spawns_unmatched on task_spawns (tenant_id, session_id, id) where matched_agent_id is null;
create index task_spawns_by_tool_use on task_spawns (tenant_id, tool_use_id);
create index task_spawns_by_start on task_spawns (tenant_id, id);

-- All evidence for all matches. A tentative one that better evidence contradicts is withdrawn, not forgotten.
create table spawn_matches (
    spawn_id uuid not null references task_spawns (id),
    tenant_id uuid not null references tenants (id),
    agent_id text not null,
    evidence text not null,
    created_at time not null,
    withdrawn_at time,
    primary key (spawn_id, agent_id, evidence)
);

alter table runs add column session_id uuid references sessions (id);
alter table runs add column subagent_id uuid references subagents (id);
-- What ties a run to the prompt that began it: the ids of the client where it has them, else the text.
alter table runs add column prompt_id text;
alter table runs add column prompt_line text;
alter table runs add column prompt_hash text;
-- Whether a hook told of its start.
alter table runs add column hooked flag not null default false;
-- When it was asked the end-of-run prompt.
alter table runs add column asked_at time;
create index runs_by_session on runs (tenant_id, session_id, subagent_id, id) where session_id is not null;
create index runs_by_prompt_hash on runs (tenant_id, prompt_hash) where prompt_hash is not null;
create index runs_by_prompt on runs (tenant_id, prompt_line) where prompt_line is not null;

-- What a message is counted once by: its id alone is not enough where several providers answer.
alter table run_usage add column once_key text;
update run_usage set once_key = message_id;
drop index run_usage_once;
create unique index run_usage_once on run_usage (tenant_id, once_key);

create table contents (
    id uuid not null primary key,
    tenant_id uuid not null references tenants (id),
    digest bytes not null,
    body text not null,
    created_at time not null
);
create unique index contents_once on contents (tenant_id, digest);

create table messages (
    id uuid not null primary key,
    tenant_id uuid not null references tenants (id),
    content_id uuid not null references contents (id),
    from_actor_kind text not null,
    from_actor_id uuid not null,
    from_run_id uuid references runs (id),
    session_id uuid references sessions (id),
    -- The line of a transcript that holds it.
    line text,
    created_at time not null
);
create unique index messages_once on messages (tenant_id, session_id, line);
create index messages_by_run on messages (tenant_id, from_run_id, id);
create index messages_by_content on messages (tenant_id, content_id, id);
create index messages_by_tenant on messages (tenant_id, id);

create table files (
    id uuid not null primary key,
    tenant_id uuid not null references tenants (id),
    workspace_id uuid not null references workspaces (id),
    path text not null,
    created_at time not null,
    updated_at time not null
);
create unique index files_by_path on files (tenant_id, workspace_id, path);
create index files_by_name on files (tenant_id, path);

-- Each change of a file by a run, with the lines it wrote.
create table file_changes (
    id uuid not null primary key,
    tenant_id uuid not null references tenants (id),
    file_id uuid not null references files (id),
    run_id uuid not null references runs (id),
    session_id uuid references sessions (id),
    tool_use_id text,
    tool text,
    change text not null,
    evidence text not null,
    digest text,
    lines bytes,
    created_at time not null
);
create unique index file_changes_once on file_changes (tenant_id, session_id, tool_use_id);
create index file_changes_by_file on file_changes (tenant_id, file_id, created_at);

create table commits (
    id uuid not null primary key,
    tenant_id uuid not null references tenants (id),
    workspace_id uuid not null references workspaces (id),
    hash text not null,
    author text,
    subject text,
    committed_at time,
    created_at time not null
);
create unique index commits_by_hash on commits (tenant_id, workspace_id, hash);
create index commits_by_name on commits (tenant_id, hash);

create table commit_files (
    commit_id uuid not null references commits (id),
    tenant_id uuid not null references tenants (id),
    file_id uuid not null references files (id),
    primary key (commit_id, file_id)
);
create index commit_files_by_file on commit_files (tenant_id, file_id);

-- What an agent said about its work when it stopped.
create table reports (
    id uuid not null primary key,
    tenant_id uuid not null references tenants (id),
    agent_id uuid not null references agents (id),
    task_id uuid references tasks (id),
    run_id uuid references runs (id),
    scope text not null,
    one_liner text not null,
    tldr text not null,
    content text not null,
    created_at time not null
);
create index reports_by_agent on reports (tenant_id, agent_id, id);
create index reports_by_run on reports (tenant_id, run_id);

-- Which bodies can be searched. The number is the row of the index in SQLite; PostgreSQL keeps the words right here.
-- Whoever removes a body removes its words.
create table content_words (
    number counter,
    tenant_id uuid not null references tenants (id),
    content_id uuid not null references contents (id) on delete cascade
);
create unique index content_words_once on content_words (content_id);
-- Words come folded and apart: this tokenizer takes them as they are.
-- sqlite: create virtual table content_index using fts5 (words, content = '', contentless_delete = 1, tokenize = 'ascii');
-- sqlite: create trigger content_words_removed after delete on content_words begin
-- sqlite:     delete from content_index where rowid = old.number;
-- sqlite: end;
-- Whether every word has its positions: there is room for 16,383 positions, and for 256 of one word.
-- postgres: alter table content_words add column words tsvector not null, add column whole flag not null;
-- postgres: create index content_words_by_word on content_words using gin (words);

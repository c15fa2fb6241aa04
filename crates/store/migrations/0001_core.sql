-- The core: who there is, what there is to do, what was done, by whom and in which run.
-- One text for both engines; see migrate.rs for what each type becomes. Durations are in seconds.
-- An index that competes with one on (tenant_id, id) begins with the tenant too: else SQLite, which has no statistics,
-- may walk the whole tenant in the order of ids.

create table tenants (
    id uuid not null primary key,
    name text not null unique,
    created_at time not null
);

-- Every thing that has an id: for short ids, touches, comments and why.
create table registry (
    id uuid not null primary key,
    tenant_id uuid not null references tenants (id),
    kind text not null,
    studio_id uuid,
    display_path text not null,
    short_key bigint not null,
    created_by uuid,
    created_at time not null,
    deleted_at time
);
create index registry_by_short_key on registry (tenant_id, short_key);
create index registry_by_path on registry (tenant_id, display_path) where kind in ('file', 'commit');

create table people (
    id uuid not null primary key,
    tenant_id uuid not null references tenants (id),
    handle text not null,
    name text,
    created_at time not null,
    updated_at time not null,
    deleted_at time
);
create unique index people_by_handle on people (tenant_id, handle) where deleted_at is null;

create table studios (
    id uuid not null primary key,
    tenant_id uuid not null references tenants (id),
    name text not null,
    title text,
    description text,
    created_at time not null,
    updated_at time not null,
    deleted_at time
);
create unique index studios_by_name on studios (tenant_id, name) where deleted_at is null;

create table roles (
    id uuid not null primary key,
    tenant_id uuid not null references tenants (id),
    name text not null,
    title text,
    description text,
    notes text,
    tags json not null,
    origin text not null,
    created_at time not null,
    updated_at time not null,
    deleted_at time
);
create unique index roles_by_name on roles (tenant_id, name) where deleted_at is null;

create table labels (
    id uuid not null primary key,
    tenant_id uuid not null references tenants (id),
    key text not null,
    name text not null,
    created_at time not null,
    updated_at time not null,
    deleted_at time
);
create unique index labels_by_key on labels (tenant_id, key) where deleted_at is null;

create table workflows (
    id uuid not null primary key,
    tenant_id uuid not null references tenants (id),
    name text not null,
    title text,
    description text,
    role_id uuid references roles (id),
    notes text,
    created_at time not null,
    updated_at time not null,
    deleted_at time
);
create unique index workflows_by_name on workflows (tenant_id, name) where deleted_at is null;

create table workspaces (
    id uuid not null primary key,
    tenant_id uuid not null references tenants (id),
    name text not null,
    directory text,
    repository text,
    description text,
    project text,
    tags json not null,
    created_at time not null,
    updated_at time not null,
    deleted_at time
);
create unique index workspaces_by_name on workspaces (tenant_id, name) where deleted_at is null;

create table agents (
    id uuid not null primary key,
    tenant_id uuid not null references tenants (id),
    handle text not null,
    name text,
    owner_id uuid not null references people (id),
    parent_id uuid references agents (id),
    role_id uuid references roles (id),
    runner text not null,
    model text,
    identity text,
    capabilities json,
    max_items bigint,
    end_of_run flag not null,
    spend_limit real,
    archived flag not null,
    created_at time not null,
    updated_at time not null,
    deleted_at time
);
create unique index agents_by_handle on agents (tenant_id, handle) where deleted_at is null;

-- A variant has a single owner while its task lives.
create table task_variants (
    id uuid not null primary key,
    tenant_id uuid not null references tenants (id),
    variant text not null,
    workflow_id uuid not null references workflows (id),
    claimed_at time not null,
    released_at time
);
create unique index task_variants_by_variant on task_variants (tenant_id, variant) where released_at is null;
create index task_variants_by_workflow on task_variants (tenant_id, workflow_id);

create table tasks (
    id uuid not null primary key,
    tenant_id uuid not null references tenants (id),
    variant text not null,
    command text not null,
    workflow_id uuid not null references workflows (id),
    role_id uuid references roles (id),
    title text,
    description text,
    motivation text,
    notes text,
    shell text,
    script text,
    timeout bigint,
    workspace_id uuid references workspaces (id),
    tags json not null,
    labels json not null,
    heading text,
    recurring flag not null,
    archived flag not null,
    status text not null,
    status_since time not null,
    priority text not null,
    estimate bigint,
    language text,
    revision bigint not null,
    -- The connected component of replacements this task is in.
    lineage_id uuid not null,
    -- Kept up to date by the write path, so that "ready" and "latest" need not look at the graph.
    open_blockers bigint not null,
    replaced flag not null,
    created_at time not null,
    updated_at time not null,
    deleted_at time
);
create unique index tasks_by_variant on tasks (tenant_id, variant) where deleted_at is null;
create index tasks_by_workflow on tasks (tenant_id, workflow_id, id);
create index tasks_by_lineage on tasks (tenant_id, lineage_id, id);
create index tasks_by_tenant on tasks (tenant_id, id);
create index tasks_ready on tasks (tenant_id, priority, created_at, id)
    where deleted_at is null and not recurring and not archived and not replaced
    and open_blockers = 0 and status in ('open', 'groomed');

create table task_revisions (
    task_id uuid not null references tasks (id),
    tenant_id uuid not null references tenants (id),
    number bigint not null,
    digest text not null,
    definition json not null,
    actor_kind text not null,
    actor_id uuid not null,
    run_id uuid,
    created_at time not null,
    primary key (task_id, number)
);

create table task_replaces (
    new_task_id uuid not null references tasks (id),
    old_task_id uuid not null references tasks (id),
    tenant_id uuid not null references tenants (id),
    level text not null,
    comment text,
    created_at time not null,
    updated_at time not null,
    primary key (new_task_id, old_task_id)
);
create index task_replaces_by_old on task_replaces (old_task_id, created_at, new_task_id);

create table task_links (
    id uuid not null primary key,
    tenant_id uuid not null references tenants (id),
    from_task_id uuid not null references tasks (id),
    to_task_id uuid not null references tasks (id),
    link_type text not null,
    created_at time not null,
    deleted_at time
);
create unique index task_links_once on task_links (from_task_id, to_task_id, link_type) where deleted_at is null;
create index task_links_by_to on task_links (to_task_id, link_type);

create table packages (
    id uuid not null primary key,
    tenant_id uuid not null references tenants (id),
    role_id uuid not null references roles (id),
    task_id uuid not null references tasks (id),
    lineage_id uuid not null,
    created_at time not null,
    updated_at time not null,
    deleted_at time
);
create unique index packages_by_lineage on packages (role_id, lineage_id) where deleted_at is null;
create index packages_of_lineage on packages (tenant_id, lineage_id);
create index packages_of_task on packages (tenant_id, task_id);
create index packages_by_tenant on packages (tenant_id, id);

create table runs (
    id uuid not null primary key,
    tenant_id uuid not null references tenants (id),
    agent_id uuid not null references agents (id),
    role_id uuid references roles (id),
    task_id uuid references tasks (id),
    task_revision bigint,
    parent_run_id uuid references runs (id),
    -- Kept apart on purpose: who answers for it, what fired it, who acts.
    initiated_by uuid references people (id),
    cause_kind text,
    cause_id uuid,
    chain_depth bigint not null,
    workspace_id uuid references workspaces (id),
    mode text not null,
    status text not null,
    outcome text,
    final_message text,
    error text,
    max_steps bigint not null,
    started_at time not null,
    ended_at time
);
create index runs_by_tenant on runs (tenant_id, id);
create index runs_by_task on runs (tenant_id, task_id, id);
create index runs_by_agent on runs (tenant_id, agent_id, id);
create index runs_by_parent on runs (parent_run_id);
create index runs_by_status on runs (tenant_id, status, id);

create table tokens (
    id uuid not null primary key,
    tenant_id uuid not null references tenants (id),
    hash bytes not null unique,
    actor_kind text not null,
    actor_id uuid not null,
    run_id uuid references runs (id),
    name text,
    expires_at time,
    revoked_at time,
    created_at time not null
);
create index tokens_by_run on tokens (tenant_id, run_id);
create index tokens_by_tenant on tokens (tenant_id, id);

create table run_steps (
    run_id uuid not null references runs (id),
    tenant_id uuid not null references tenants (id),
    position bigint not null,
    step_type text not null,
    detail text,
    created_at time not null,
    primary key (run_id, position)
);

create table run_usage (
    id uuid not null primary key,
    tenant_id uuid not null references tenants (id),
    run_id uuid not null references runs (id),
    message_id text,
    model text,
    input_tokens bigint,
    output_tokens bigint,
    cache_creation_tokens bigint,
    cache_read_tokens bigint,
    cost real,
    created_at time not null
);
create unique index run_usage_once on run_usage (tenant_id, message_id);
create index run_usage_by_run on run_usage (tenant_id, run_id, id);
create index run_usage_by_day on run_usage (tenant_id, created_at);

-- Touches. Read by run and by resource, both with one index.
create table run_resources (
    id uuid not null primary key,
    tenant_id uuid not null references tenants (id),
    run_id uuid not null references runs (id),
    resource_type text not null check (resource_type in ('note', 'decision', 'option', 'vote', 'confirmation', 'commitment', 'message', 'stickie', 'board', 'report', 'task', 'file', 'commit')),
    resource_id uuid not null,
    resource_studio_id uuid references studios (id),
    action_type text not null check (action_type in ('create', 'update', 'delete', 'add_option', 'vote', 'confirm', 'commit', 'close', 'send', 'pin', 'archive', 'report')),
    display_path text not null,
    first_at time not null,
    last_at time not null,
    times bigint not null,
    check ((resource_studio_id is not null) = (resource_type in ('note', 'decision', 'option', 'vote', 'confirmation', 'commitment')))
);
create unique index run_resources_once on run_resources (run_id, resource_type, resource_id, action_type);
create index run_resources_by_resource on run_resources (resource_id, first_at);
create index run_resources_by_studio on run_resources (resource_studio_id) where resource_studio_id is not null;

create table notes (
    id uuid not null primary key,
    tenant_id uuid not null references tenants (id),
    studio_id uuid not null references studios (id),
    title text not null,
    body text not null,
    revision bigint not null,
    pinned flag not null,
    -- What a comment is about: any resource.
    about_id uuid references registry (id),
    created_at time not null,
    updated_at time not null,
    archived_at time,
    deleted_at time
);
create index notes_by_studio on notes (tenant_id, studio_id, id);
create index notes_by_tenant on notes (tenant_id, id);
create index notes_about on notes (tenant_id, about_id, id) where about_id is not null;

create table note_revisions (
    note_id uuid not null references notes (id),
    tenant_id uuid not null references tenants (id),
    number bigint not null,
    title text not null,
    body text not null,
    actor_kind text not null,
    actor_id uuid not null,
    run_id uuid,
    created_at time not null,
    primary key (note_id, number)
);

create table confirmations (
    id uuid not null primary key,
    tenant_id uuid not null references tenants (id),
    note_id uuid not null references notes (id),
    actor_kind text not null,
    actor_id uuid not null,
    note_revision bigint not null,
    read_at time not null
);
create unique index confirmations_once on confirmations (note_id, actor_id);

create table decisions (
    id uuid not null primary key,
    tenant_id uuid not null references tenants (id),
    studio_id uuid not null references studios (id),
    question text not null,
    description text,
    deadline time,
    status text not null,
    -- The results at closing, kept as they were.
    outcome json,
    created_at time not null,
    updated_at time not null,
    closed_at time,
    archived_at time,
    deleted_at time
);
create index decisions_by_studio on decisions (tenant_id, studio_id, id);
create index decisions_by_tenant on decisions (tenant_id, id);

create table decision_options (
    id uuid not null primary key,
    tenant_id uuid not null references tenants (id),
    decision_id uuid not null references decisions (id),
    title text not null,
    created_at time not null
);
create unique index decision_options_once on decision_options (decision_id, title);

create table votes (
    id uuid not null primary key,
    tenant_id uuid not null references tenants (id),
    option_id uuid not null references decision_options (id),
    actor_kind text not null,
    actor_id uuid not null,
    accepted flag not null,
    preferred flag not null,
    created_at time not null,
    updated_at time not null
);
create unique index votes_once on votes (option_id, actor_id);

create table commitments (
    id uuid not null primary key,
    tenant_id uuid not null references tenants (id),
    studio_id uuid not null references studios (id),
    title text not null,
    description text,
    critical_mass bigint not null,
    member_limit bigint,
    deadline time,
    status text not null,
    achieved_at time,
    created_at time not null,
    updated_at time not null,
    archived_at time,
    deleted_at time
);
create index commitments_by_studio on commitments (tenant_id, studio_id, id);
create index commitments_by_tenant on commitments (tenant_id, id);

create table commitment_members (
    commitment_id uuid not null references commitments (id),
    tenant_id uuid not null references tenants (id),
    actor_kind text not null,
    actor_id uuid not null,
    created_at time not null,
    primary key (commitment_id, actor_id)
);

create table scratchpads (
    agent_id uuid not null primary key references agents (id),
    tenant_id uuid not null references tenants (id),
    content text not null,
    revision bigint not null,
    updated_at time not null
);

create table scratchpad_revisions (
    agent_id uuid not null references agents (id),
    tenant_id uuid not null references tenants (id),
    revision bigint not null,
    content text not null,
    actor_kind text not null,
    actor_id uuid not null,
    run_id uuid,
    created_at time not null,
    primary key (agent_id, revision)
);

-- Every change, in order: who, in which run, by which action, to what.
create table events (
    position counter,
    tenant_id uuid not null references tenants (id),
    created_at time not null,
    actor_kind text not null,
    actor_id uuid not null,
    run_id uuid,
    request_id uuid not null,
    action text not null,
    subject_kind text not null,
    subject_id uuid not null,
    subject_path text not null,
    -- What changed, from what to what, where the rows do not keep it themselves.
    detail json
);
create index events_by_tenant on events (tenant_id, position);
create index events_by_run on events (tenant_id, run_id, position) where run_id is not null;

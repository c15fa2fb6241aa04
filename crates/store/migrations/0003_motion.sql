-- Work in motion: the queue, conversations and what is said in them, routes from messages to tasks, results of tries.

create table conversations (
    id uuid not null primary key,
    tenant_id uuid not null references tenants (id),
    title text not null,
    description text,
    project text,
    role_id uuid references roles (id),
    tags json not null,
    notes text,
    created_at time not null,
    updated_at time not null,
    deleted_at time
);
create index conversations_by_tenant on conversations (tenant_id, id);

-- One try inside a conversation.
create table experiments (
    id uuid not null primary key,
    tenant_id uuid not null references tenants (id),
    conversation_id uuid not null references conversations (id),
    title text not null,
    status text not null,
    outcome text,
    created_at time not null,
    updated_at time not null,
    ended_at time,
    deleted_at time
);
create index experiments_by_conversation on experiments (tenant_id, conversation_id, id);
create index experiments_by_tenant on experiments (tenant_id, id);

alter table messages add column from_task_id uuid references tasks (id);
-- An actor, a role or a task.
alter table messages add column to_kind text;
alter table messages add column to_id uuid;
alter table messages add column in_reply_to uuid references messages (id);
alter table messages add column conversation_id uuid references conversations (id);
alter table messages add column experiment_id uuid references experiments (id);
alter table messages add column role_id uuid references roles (id);
-- What the sender said.
alter table messages add column status text not null default 'ingested';
alter table messages add column error_message text;
alter table messages add column title text;
alter table messages add column goal text;
alter table messages add column tags json not null default '[]';
create index messages_by_conversation on messages (tenant_id, conversation_id, id) where conversation_id is not null;
create index messages_by_experiment on messages (tenant_id, experiment_id, id) where experiment_id is not null;
create index messages_by_role on messages (tenant_id, role_id, id) where role_id is not null;
create index messages_by_task on messages (tenant_id, from_task_id, id) where from_task_id is not null;
create index messages_to on messages (tenant_id, to_id, id) where to_id is not null;
create index messages_in_reply on messages (tenant_id, in_reply_to, id) where in_reply_to is not null;

-- A message with this tag, in this role where one is said, is work for this task.
create table routes (
    id uuid not null primary key,
    tenant_id uuid not null references tenants (id),
    tag text not null,
    role_id uuid references roles (id),
    task_id uuid not null references tasks (id),
    workspace_id uuid references workspaces (id),
    created_by uuid not null,
    created_at time not null,
    updated_at time not null,
    deleted_at time
);
create index routes_by_tag on routes (tenant_id, tag, id) where deleted_at is null;
create index routes_by_tenant on routes (tenant_id, id);
create unique index routes_once on routes (tenant_id, tag, role_id, task_id) where deleted_at is null and role_id is not null;
create unique index routes_once_for_all_roles on routes (tenant_id, tag, task_id) where deleted_at is null and role_id is null;

create table testcases (
    id uuid not null primary key,
    tenant_id uuid not null references tenants (id),
    title text not null,
    status text not null,
    error text,
    file text,
    line bigint,
    duration_ms bigint,
    experiment_id uuid references experiments (id),
    role_id uuid references roles (id),
    created_at time not null
);
create index testcases_by_experiment on testcases (tenant_id, experiment_id, id);
create index testcases_by_tenant on testcases (tenant_id, id);

-- Requests that a task be run.
create table queue_items (
    id uuid not null primary key,
    tenant_id uuid not null references tenants (id),
    description text,
    status text not null,
    why text,
    tags json not null,
    task_id uuid not null references tasks (id),
    -- Resolved when it is taken.
    task_revision bigint,
    message_id uuid references messages (id),
    route_id uuid references routes (id),
    workspace_id uuid references workspaces (id),
    role_id uuid references roles (id),
    -- Only this agent may take it.
    agent_id uuid references agents (id),
    priority bigint not null,
    in_queue_since time not null,
    not_before time,
    dedup_key text,
    concurrency_key text,
    -- The concurrency key while it is this item that holds it: running, or in back-off.
    held_key text,
    attempt bigint not null,
    max_attempts bigint not null,
    lease_seconds bigint,
    lease_expires time,
    heartbeat_at time,
    taken_by uuid references agents (id),
    -- Which of the places of its agent it has, where the agent has few.
    slot bigint,
    fence bigint not null,
    -- The run that has it, or had it last. Runs refer to items, so this does not.
    run_id uuid,
    -- Who answers for it, and what fired it.
    initiated_by uuid references people (id),
    cause_kind text,
    cause_id uuid,
    chain_depth bigint not null,
    result json,
    error text,
    created_at time not null,
    finished_at time
);
-- What can be taken, in the order it is taken in: by whoever comes, and by the one agent it names. Two, since PostgreSQL does
-- not see that what begins with an agent that is null is in order, and would sort all of it for each take.
create index queue_items_ready on queue_items (tenant_id, priority desc, in_queue_since, id) where status = 'ready' and agent_id is null;
create index queue_items_ready_for_one on queue_items (tenant_id, agent_id, priority desc, in_queue_since, id) where status = 'ready' and agent_id is not null;
create index queue_items_ready_by_key on queue_items (tenant_id, concurrency_key, priority desc, in_queue_since, id) where status = 'ready' and concurrency_key is not null;
create index queue_items_due on queue_items (tenant_id, not_before) where status = 'waiting';
create index queue_items_leased on queue_items (tenant_id, lease_expires) where status = 'running';
-- Rules that two transactions cannot break, though neither sees the other.
create unique index queue_items_once on queue_items (tenant_id, dedup_key) where dedup_key is not null and finished_at is null;
create unique index queue_items_one_per_key on queue_items (tenant_id, held_key) where held_key is not null;
create unique index queue_items_one_per_slot on queue_items (tenant_id, taken_by, slot) where slot is not null;
create unique index queue_items_routed_once on queue_items (message_id, route_id, task_id) where message_id is not null and route_id is not null;
create index queue_items_unfinished_of_task on queue_items (tenant_id, task_id) where finished_at is null;
create index queue_items_by_message on queue_items (tenant_id, message_id) where message_id is not null;
create index queue_items_by_tenant on queue_items (tenant_id, id);
create index queue_items_by_status on queue_items (tenant_id, status, id);

alter table runs add column queue_item_id uuid references queue_items (id);
alter table runs add column fence bigint;
-- A token of a run names the run: what is kept of it stands here, and dies with the run.
alter table runs add column token_hash bytes;
create index runs_by_queue_item on runs (tenant_id, queue_item_id, id) where queue_item_id is not null;

-- Most runs have no parent.
drop index runs_by_parent;
create index runs_by_parent on runs (parent_run_id) where parent_run_id is not null;

-- On PostgreSQL every check of a reference locks the row it leads to, and all writers lead to the same few rows (decision 14).
-- These rows are never deleted, and their ids were looked up before.
-- postgres: alter table registry drop constraint registry_tenant_id_fkey;
-- postgres: alter table events drop constraint events_tenant_id_fkey;
-- postgres: alter table runs drop constraint runs_tenant_id_fkey, drop constraint runs_agent_id_fkey, drop constraint runs_task_id_fkey, drop constraint runs_initiated_by_fkey;
-- postgres: alter table queue_items drop constraint queue_items_tenant_id_fkey, drop constraint queue_items_task_id_fkey, drop constraint queue_items_agent_id_fkey, drop constraint queue_items_taken_by_fkey, drop constraint queue_items_initiated_by_fkey;

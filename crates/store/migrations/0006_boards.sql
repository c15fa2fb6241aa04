-- Boards: short notes with typed relations. A stickie is found by its board, a board by its name or its id.

create table boards (
    id uuid not null primary key,
    tenant_id uuid not null references tenants (id),
    name text,
    role_id uuid references roles (id),
    conversation_id uuid references conversations (id),
    project text,
    task_id uuid references tasks (id),
    background text,
    guidelines text,
    lifecycle text not null check (lifecycle in ('permanent', 'yearly', 'quarterly', 'monthly', 'weekly', 'daily')),
    edit_count bigint not null,
    created_at time not null,
    updated_at time not null,
    -- When anything on it changed last. Grows with every change: what a folder has seen is told by it.
    changed_at time not null,
    archived_at time,
    deleted_at time
);
create unique index boards_by_name on boards (tenant_id, name) where name is not null and deleted_at is null;
create index boards_by_tenant on boards (tenant_id, id);
create index boards_by_task on boards (tenant_id, task_id) where task_id is not null;

create table stickies (
    id uuid not null primary key,
    tenant_id uuid not null references tenants (id),
    board_id uuid not null references boards (id),
    name text,
    note text,
    code text,
    labels json not null,
    priority text check (priority in ('must', 'should', 'could', 'wont')),
    score real,
    structured json,
    created_by_task_id uuid references tasks (id),
    created_by_run_id uuid references runs (id),
    edit_count bigint not null,
    created_at time not null,
    updated_at time not null,
    archived_at time,
    deleted_at time
);
create unique index stickies_by_name on stickies (tenant_id, board_id, name) where name is not null and deleted_at is null;
create index stickies_by_board on stickies (tenant_id, board_id, id);
create index stickies_by_tenant on stickies (tenant_id, id);

create table stickie_relations (
    id uuid not null primary key,
    tenant_id uuid not null references tenants (id),
    from_id uuid not null references stickies (id),
    to_id uuid not null references stickies (id),
    relation_type text not null check (relation_type in ('INCLUDES', 'CAUSES', 'USES', 'REPRESENTS', 'CONTRASTS_WITH')),
    labels json not null,
    created_at time not null,
    updated_at time not null,
    deleted_at time,
    check (from_id <> to_id)
);
create unique index stickie_relations_once on stickie_relations (tenant_id, from_id, to_id, relation_type) where deleted_at is null;
create index stickie_relations_by_to on stickie_relations (tenant_id, to_id);

-- What a board or a stickie said at each edit: by it is told whether the file of one was edited since it was written.
create table board_revisions (
    subject_id uuid not null,
    tenant_id uuid not null references tenants (id),
    number bigint not null,
    content json not null,
    actor_kind text not null,
    actor_id uuid not null,
    run_id uuid,
    created_at time not null,
    primary key (subject_id, number)
);

-- What an agent wakes with: the tasks it worked on, which of its reports is the current one, and what it was told.

create table agent_links (
    id uuid not null primary key,
    tenant_id uuid not null references tenants (id),
    from_agent_id uuid not null references agents (id),
    to_task_id uuid not null references tasks (id),
    link_type text not null check (link_type in ('agent_task')),
    -- When the agent first had to do with the task. Stays.
    created_at time not null
);
create unique index agent_links_once on agent_links (from_agent_id, to_task_id, link_type);
create index agent_links_by_task on agent_links (tenant_id, to_task_id);

-- The current report of an agent on a task. Reports themselves never change; this moves, by compare-and-set.
create table report_heads (
    agent_id uuid not null references agents (id),
    tenant_id uuid not null references tenants (id),
    task_id uuid not null references tasks (id),
    scope text not null,
    report_id uuid not null references reports (id),
    revision bigint not null,
    updated_at time not null,
    primary key (agent_id, task_id, scope)
);
create index report_heads_by_report on report_heads (report_id);
create index reports_by_task on reports (tenant_id, task_id, id) where task_id is not null;

-- What agents were told, by digest: the text, and what each part of it was.
create table wake_contexts (
    digest text not null,
    tenant_id uuid not null references tenants (id),
    content text not null,
    sections json not null,
    cuts json not null,
    created_at time not null,
    primary key (digest, tenant_id)
);

create table run_wakes (
    run_id uuid not null references runs (id),
    tenant_id uuid not null references tenants (id),
    position bigint not null,
    agent_id uuid not null references agents (id),
    task_id uuid references tasks (id),
    digest text not null,
    created_at time not null,
    primary key (run_id, position)
);
create index run_wakes_by_agent on run_wakes (tenant_id, agent_id, task_id, created_at);
create index run_wakes_by_digest on run_wakes (digest);

-- What happened before: the first run of an agent on a task made the link, and the newest report is the current one.
insert into agent_links (id, tenant_id, from_agent_id, to_task_id, link_type, created_at)
select r.id, r.tenant_id, r.agent_id, r.task_id, 'agent_task', r.started_at from (
    select id, tenant_id, agent_id, task_id, started_at, row_number() over (partition by agent_id, task_id order by started_at, id) as place
    from runs where task_id is not null
) r where r.place = 1;
insert into report_heads (agent_id, tenant_id, task_id, scope, report_id, revision, updated_at)
select r.agent_id, r.tenant_id, r.task_id, r.scope, r.id, 1, r.created_at from (
    select id, tenant_id, agent_id, task_id, scope, created_at, row_number() over (partition by agent_id, task_id, scope order by created_at desc, id desc) as place
    from reports where task_id is not null
) r where r.place = 1;

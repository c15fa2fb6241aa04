-- What the page of a task shows is found by the task, without reading every route or message of the tenant.

-- The routes to a task.
create index routes_by_task on routes (tenant_id, task_id, id) where deleted_at is null;
-- Messages by what their sender said; nearly all say `ingested`, and those need no index.
create index messages_by_status on messages (tenant_id, status, id) where status <> 'ingested';

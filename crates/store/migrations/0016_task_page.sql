-- Indexes for the task page.

-- The routes to a task.
create index routes_by_task on routes (tenant_id, task_id, id) where deleted_at is null;
-- Messages by status. Nearly all are `ingested`, which the index leaves out.
create index messages_by_status on messages (tenant_id, status, id) where status <> 'ingested';

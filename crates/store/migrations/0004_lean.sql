-- Fewer and smaller indexes: each is one more page to write for every row, and one more text that SQLite reads at a start.

-- A run of a Claude Code session is without a task, and nobody asks for those.
drop index runs_by_task;
create index runs_by_task on runs (tenant_id, task_id, id) where task_id is not null;

-- SQLite reads events in the order of their positions without it. A server may have many tenants, and keeps the index that
-- passes the others over.
-- sqlite: drop index events_by_tenant;

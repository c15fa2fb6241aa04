-- What a token opens: everything its holder may do, only looking, or only a login, once.
alter table tokens add column scope text not null default 'all';

-- The children of a run, oldest first. Without the tenant in front SQLite would rather read every run in order.
drop index runs_by_parent;
create index runs_by_parent on runs (tenant_id, parent_run_id, id) where parent_run_id is not null;

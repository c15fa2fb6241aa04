-- Limits of a run. The nearest one that is set counts: queue item, then task, then agent, then the default.
alter table agents add column max_steps bigint;
alter table agents add column timeout bigint;
alter table tasks add column max_steps bigint;
alter table tasks add column spend_limit real;
alter table tasks add column end_of_run flag;
alter table queue_items add column max_steps bigint;
alter table queue_items add column timeout bigint;
alter table queue_items add column spend_limit real;
alter table queue_items add column end_of_run flag;

-- Whether a run whose agent says error is tried again.
alter table tasks add column retry_on_error flag not null default false;
-- Why a task is blocked: the error that its agent gave.
alter table tasks add column status_reason text;

-- When the end-of-run prompt was answered. An answer with nothing to add writes no step.
alter table runs add column answered_at time;

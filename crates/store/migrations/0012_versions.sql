-- Whatever names a task follows its versions.

-- What `task latest` answers from this task; null where no version is live. Kept up to date by the write path.
alter table tasks add column current_id uuid;

update tasks set current_id = id where not replaced and not archived and deleted_at is null;
update tasks set current_id = latest.id from (
    with recursive walk (start_id, id, replaced) as (
        select t.id, t.id, t.replaced from tasks t where t.replaced
        union all
        select w.start_id, n.id, n.replaced from walk w join tasks n on n.id = (
            select e.new_task_id from task_replaces e join tasks s on s.id = e.new_task_id
            where e.old_task_id = w.id and (s.replaced or (s.deleted_at is null and not s.archived))
            order by e.created_at desc, e.new_task_id limit 1)
        where w.replaced
    ) select start_id, id from walk where not replaced
) latest where tasks.id = latest.start_id;

-- Higher than that of every version before it: 0 for a task that replaces nothing. Kept up to date by the write path.
alter table tasks add column generation bigint not null default 0;
update tasks set generation = longest.generation from (
    with recursive walk (id, generation) as (
        select t.id, 0 from tasks t where not exists (select 1 from task_replaces e where e.new_task_id = t.id)
            and exists (select 1 from task_replaces e where e.old_task_id = t.id)
        union
        select e.new_task_id, w.generation + 1 from walk w join task_replaces e on e.old_task_id = w.id
    ) select id, max(generation) as generation from walk group by id
) longest where tasks.id = longest.id and longest.generation > 0;

-- A link binds lineages: it counts against every version of the lineage it leads to, and only while the current version of
-- the blocker is open.
update tasks set open_blockers = 0 where open_blockers <> 0;
update tasks set open_blockers = blocked.blockers from (
    select t.lineage_id, count(*) as blockers from task_links l
    join tasks f on f.id = l.from_task_id join tasks c on c.id = f.current_id join tasks t on t.id = l.to_task_id
    where l.link_type = 'blocks' and l.deleted_at is null and f.lineage_id <> t.lineage_id and c.status not in ('done', 'rejected')
    group by t.lineage_id
) blocked where tasks.lineage_id = blocked.lineage_id;

-- `task_id` is the version that was asked for; this is the version that was run, set when the item is taken.
alter table queue_items add column run_task_id uuid;
update queue_items set run_task_id = task_id where fence > 0;
-- Whether exactly the version that was asked for is run.
alter table queue_items add column exact flag not null default false;
alter table routes add column exact flag not null default false;

-- An item whose task has no live version is blocked, with the reason.
update queue_items set status = 'blocked', held_key = null,
    why = 'no live version of ' || t.variant || ': it is archived or deleted, and no live version replaces it' || case when queue_items.why is null then '' else '
' || queue_items.why end
from tasks t where t.id = queue_items.task_id and t.current_id is null and queue_items.status in ('ready', 'waiting')
and not exists (select 1 from packages p join tasks w on w.id = p.task_id where p.role_id = queue_items.role_id
    and p.lineage_id = t.lineage_id and p.deleted_at is null and w.deleted_at is null and not w.archived);

-- Whether `run start` started the run on a task. Such a run keeps the task from being ready, and moves it unless the run has a
-- parent. Runs made for queue items do both through the item.
alter table runs add column drives_task flag not null default false;
-- Whether the task is open again when the run completes.
alter table runs add column keep_open flag not null default false;
create index runs_driving_tasks on runs (tenant_id, task_id) where drives_task and status = 'running';

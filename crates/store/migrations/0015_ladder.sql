-- Whether a match is a guess. The rungs `role` and `subagent_type` always are; `prompt_hash` is one where several spawns have
-- the same prompt.
alter table task_spawns add column tentative flag not null default false;
update task_spawns set tentative = true where evidence in ('role', 'subagent_type');
alter table spawn_matches add column tentative flag not null default false;
update spawn_matches set tentative = true where evidence in ('role', 'subagent_type');

-- Lines of a transcript count from 1. Spawns on neighbouring lines would collide while they move, so the index goes first.
drop index task_spawns_by_place;
update task_spawns set transcript_index = transcript_index + 1 where transcript_index is not null;
create unique index task_spawns_by_place on task_spawns (tenant_id, session_id, transcript, transcript_index, block) where transcript_index is not null;
update subagents set task_match_index = task_match_index + 1 where task_match_index is not null;

-- Agents look for the spawns that have their prompt.
create index task_spawns_by_prompt on task_spawns (tenant_id, session_id, prompt_hash);

-- Whether a session created the agent. Such an agent is deleted when it has no runs and no other rows.
alter table agents add column observed flag not null default false;

-- The items that only one agent may take.
create index queue_items_for_agent on queue_items (tenant_id, agent_id) where agent_id is not null;

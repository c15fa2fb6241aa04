-- When somebody asked that a run be cancelled whose agent may still say what it learned; whoever executes it ends it.
alter table runs add column cancel_wanted_at time;
-- Whether a session of Claude Code happens in a run that somebody else began: then somebody else ends it, too.
alter table runs add column attached flag not null default false;

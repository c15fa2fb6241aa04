-- When somebody asked that a run be cancelled whose agent may still say what it learned; whoever executes it ends it.
alter table runs add column cancel_wanted_at time;

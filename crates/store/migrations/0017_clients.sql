-- The client whose session it is. Ids of sessions are the client's own, so they are unique for each client only.
alter table sessions add column client text not null default 'claude_code';
drop index sessions_by_session_id;
create unique index sessions_by_session_id on sessions (tenant_id, session_id, client);

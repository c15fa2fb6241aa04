-- What a token opens: everything its holder may do, only looking, or only a login, once.
alter table tokens add column scope text not null default 'all';

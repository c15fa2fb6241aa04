-- Paths that commands of the session took away: what was at them may be told of by a transcript that is read later.
alter table sessions add column removals text;

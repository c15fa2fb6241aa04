-- Paths that commands of the session took away: what was at them may be told of by a transcript that is read later.
alter table sessions add column removals text;

-- How it is known whose command made a commit: several agents in one work tree see the same one appear.
alter table commits add column evidence text;

-- Messages are also looked up by the role of their run.
create index runs_by_role on runs (tenant_id, role_id, id) where role_id is not null;

-- Which report a result was read from, and where it stands in it: the same report is read once.
alter table testcases add column report_digest text;
alter table testcases add column report_place bigint;
create unique index testcases_by_report on testcases (tenant_id, report_digest, report_place) where report_digest is not null;

//! Whether the record holds together: what every write keeps true, looked at as a whole. Reads all of it, for a doctor.

use trackway_domain::kind::Kind;
use uuid::Uuid;

use crate::{connection::Engine, error::Result, queue::version_of, store::Store};

/// Each thing that has an id: its kind in the registry, and the table that holds it.
const PLACES: &[(Kind, &str)] = &[
    (Kind::Tenant, "tenants"),
    (Kind::Studio, "studios"),
    (Kind::Person, "people"),
    (Kind::Agent, "agents"),
    (Kind::Token, "tokens"),
    (Kind::Role, "roles"),
    (Kind::Workflow, "workflows"),
    (Kind::Workspace, "workspaces"),
    (Kind::Label, "labels"),
    (Kind::Task, "tasks"),
    (Kind::Link, "task_links"),
    (Kind::Package, "packages"),
    (Kind::Run, "runs"),
    (Kind::Note, "notes"),
    (Kind::Decision, "decisions"),
    (Kind::DecisionOption, "decision_options"),
    (Kind::Vote, "votes"),
    (Kind::Confirmation, "confirmations"),
    (Kind::Commitment, "commitments"),
    (Kind::File, "files"),
    (Kind::Commit, "commits"),
    (Kind::Session, "sessions"),
    (Kind::Subagent, "subagents"),
    (Kind::Spawn, "task_spawns"),
    (Kind::Message, "messages"),
    (Kind::Report, "reports"),
    (Kind::QueueItem, "queue_items"),
    (Kind::Conversation, "conversations"),
    (Kind::Experiment, "experiments"),
    (Kind::Route, "routes"),
    (Kind::Testcase, "testcases"),
    (Kind::Board, "boards"),
    (Kind::Stickie, "stickies"),
];

/// What is not so anywhere, and how many of it there are.
const RULES: &[(&str, &str)] = &[
    (
        "touches of things that are not there",
        "run_resources t where not exists (select 1 from registry g where g.id = t.resource_id)",
    ),
    (
        "queue items held by a run that does not run",
        "queue_items q where q.status = 'running' and q.run_id is not null
         and not exists (select 1 from runs r where r.id = q.run_id and r.status = 'running')",
    ),
    (
        "runs that run for a queue item which they do not hold",
        "runs r where r.status = 'running' and r.queue_item_id is not null
         and not exists (select 1 from queue_items q where q.id = r.queue_item_id and q.run_id = r.id and q.status = 'running')",
    ),
    (
        "queue items that are over and still hold a lease, a place or a key",
        "queue_items where finished_at is not null and (lease_expires is not null or slot is not null or held_key is not null)",
    ),
    (
        "tasks whose current version is not the one that their replacements lead to",
        "tasks t where t.replaced <> (t.current_id is not null and t.current_id <> t.id)
         or (t.current_id is null and t.deleted_at is null and not t.archived)
         or t.replaced <> exists (select 1 from task_replaces e join tasks n on n.id = e.new_task_id where e.old_task_id = t.id and n.current_id is not null)
         or (t.current_id is not null and not exists (select 1 from tasks n where n.id = t.current_id and n.deleted_at is null and not n.archived
             and n.lineage_id = t.lineage_id and not n.replaced))",
    ),
    (
        "tasks whose generation does not follow those of the versions before them",
        "tasks t where t.generation <> coalesce((select max(o.generation) + 1 from task_replaces e join tasks o on o.id = e.old_task_id where e.new_task_id = t.id), 0)",
    ),
    (
        "tasks whose number of open blockers is wrong",
        "tasks t where t.open_blockers <> (select count(*) from tasks v join task_links l on l.to_task_id = v.id and l.link_type = 'blocks' and l.deleted_at is null
            join tasks f on f.id = l.from_task_id and f.lineage_id <> t.lineage_id join tasks c on c.id = f.current_id and c.status not in ('done', 'rejected')
            where v.tenant_id = t.tenant_id and v.lineage_id = t.lineage_id)",
    ),
    ("tokens of runs that are over", "runs where status <> 'running' and token_hash is not null"),
    (
        "reports that are current and another agent's or task's",
        "report_heads h where not exists (select 1 from reports r where r.id = h.report_id and r.agent_id = h.agent_id and r.task_id = h.task_id)",
    ),
    (
        "bodies that a search cannot find",
        "contents c where not exists (select 1 from content_words w where w.content_id = c.id)",
    ),
];

impl Store {
    /// What does not hold together, in words; nothing, as it should be.
    pub fn unsound(&self) -> Result<Vec<String>> {
        let mut rules: Vec<(String, String)> =
            RULES.iter().map(|(what, rows)| ((*what).to_owned(), (*rows).to_owned())).collect();
        let version = version_of("q");
        rules.push((
            "queue items that wait for a version of their task although none is live".to_owned(),
            format!(
                "queue_items q where q.finished_at is null and q.status in ('ready', 'waiting') and {version} is null"
            ),
        ));
        rules.push((
            "queue items that are blocked for want of a live version although there is one".to_owned(),
            format!("queue_items q where q.finished_at is null and q.status = 'blocked' and q.why like 'no live version of %' and {version} is not null"),
        ));
        for (kind, table) in PLACES {
            rules.push((
                format!("rows of {table} that the registry does not know"),
                format!(
                    "{table} t where not exists (select 1 from registry g where g.id = t.id and g.kind = '{kind}')"
                ),
            ));
            rules.push((
                format!("entries of the registry for a {kind} that is not there"),
                format!(
                    "registry g where g.kind = '{kind}'{} and not exists (select 1 from {table} t where t.id = g.id)",
                    // One that a run sent and that was cleaned up: the touch still leads to its entry.
                    if *kind == Kind::Message { " and g.deleted_at is null" } else { "" },
                ),
            ));
        }
        if self.engine() == Engine::Sqlite {
            rules.push(("references to rows that are not there".to_owned(), "pragma_foreign_key_check".to_owned()));
        }
        let counts: Vec<String> = rules.iter().map(|(_, rows)| format!("(select count(*) from {rows})")).collect();
        let mut read = self.read(Uuid::nil().into())?;
        let mut unsound = Vec::new();
        // As many at once as SQLite joins.
        for (rules, counts) in rules.chunks(100).zip(counts.chunks(100)) {
            let all =
                counts.iter().zip(0..).map(|(count, number)| format!("select {number} as rule, {count} as broken"));
            let broken = read.query_unscoped::<(i64, i64)>(
                &format!(
                    "select cast(rule as bigint), broken from ({}) r where broken > 0 order by rule",
                    all.collect::<Vec<_>>().join(" union all ")
                ),
                &[],
            )?;
            let said = |(rule, broken): &(i64, i64)| {
                let (what, _) = rules.get(usize::try_from(*rule).ok()?)?;
                Some(format!("{broken} {what}"))
            };
            unsound.extend(broken.iter().filter_map(said));
        }
        Ok(unsound)
    }
}

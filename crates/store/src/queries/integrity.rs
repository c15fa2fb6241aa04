//! Integrity check of the whole database: verifies the invariants that every write maintains. Reads all rows; `trackway
//! doctor` runs it.

use trackway_domain::kind::Kind;
use uuid::Uuid;

use crate::{connection::Engine, error::Result, queue::version_of_item, store::Store};

/// Every kind of resource with an id, and its table.
const REGISTERED_TABLES: &[(Kind, &str)] = &[
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

/// Descriptions of invalid rows, each with the `from` clause that selects them. No row should match.
const RULES: &[(&str, &str)] = &[
    (
        "touches of resources that are not in the registry",
        "run_resources t where not exists (select 1 from registry g where g.id = t.resource_id)",
    ),
    (
        "queue items held by a run that is not running",
        "queue_items q where q.status = 'running' and q.run_id is not null
         and not exists (select 1 from runs r where r.id = q.run_id and r.status = 'running')",
    ),
    (
        "running runs that do not hold their queue item",
        "runs r where r.status = 'running' and r.queue_item_id is not null
         and not exists (select 1 from queue_items q where q.id = r.queue_item_id and q.run_id = r.id and q.status = 'running')",
    ),
    (
        "finished queue items that still have a lease, a slot or a concurrency key",
        "queue_items where finished_at is not null and (lease_expires is not null or slot is not null or held_key is not null)",
    ),
    (
        "tasks whose current version does not match their replacements",
        "tasks t where t.replaced <> (t.current_id is not null and t.current_id <> t.id)
         or (t.current_id is null and t.deleted_at is null and not t.archived)
         or t.replaced <> exists (select 1 from task_replaces e join tasks n on n.id = e.new_task_id where e.old_task_id = t.id and n.current_id is not null)
         or (t.current_id is not null and not exists (select 1 from tasks n where n.id = t.current_id and n.deleted_at is null and not n.archived
             and n.lineage_id = t.lineage_id and not n.replaced))",
    ),
    (
        "tasks whose generation does not match the versions that they replace",
        "tasks t where t.generation <> coalesce((select max(o.generation) + 1 from task_replaces e join tasks o on o.id = e.old_task_id where e.new_task_id = t.id), 0)",
    ),
    (
        "tasks with a wrong number of open blockers",
        "tasks t where t.open_blockers <> (select count(*) from tasks v join task_links l on l.to_task_id = v.id and l.link_type = 'blocks' and l.deleted_at is null
            join tasks f on f.id = l.from_task_id and f.lineage_id <> t.lineage_id join tasks c on c.id = f.current_id and c.status not in ('done', 'rejected')
            where v.tenant_id = t.tenant_id and v.lineage_id = t.lineage_id)",
    ),
    ("ended runs that still have a token", "runs where status <> 'running' and token_hash is not null"),
    (
        "current reports that belong to another agent or task",
        "report_heads h where not exists (select 1 from reports r where r.id = h.report_id and r.agent_id = h.agent_id and r.task_id = h.task_id)",
    ),
    (
        "message bodies that are missing in the search index",
        "contents c where not exists (select 1 from content_words w where w.content_id = c.id)",
    ),
];

impl Store {
    /// Describes the violated invariants. The result is empty if the database is consistent.
    pub fn integrity_findings(&self) -> Result<Vec<String>> {
        let mut rules: Vec<(String, String)> =
            RULES.iter().map(|(description, rows)| ((*description).to_owned(), (*rows).to_owned())).collect();
        let version = version_of_item("q");
        rules.push((
            "ready or waiting queue items whose task has no live version".to_owned(),
            format!(
                "queue_items q where q.finished_at is null and q.status in ('ready', 'waiting') and {version} is null"
            ),
        ));
        rules.push((
            "queue items that are blocked for lack of a live version although there is one".to_owned(),
            format!("queue_items q where q.finished_at is null and q.status = 'blocked' and q.why like 'no live version of %' and {version} is not null"),
        ));
        for (kind, table) in REGISTERED_TABLES {
            rules.push((
                format!("rows of {table} without a registry entry"),
                format!(
                    "{table} t where not exists (select 1 from registry g where g.id = t.id and g.kind = '{kind}')"
                ),
            ));
            rules.push((
                format!("registry entries of a {kind} that does not exist"),
                format!(
                    "registry g where g.kind = '{kind}'{} and not exists (select 1 from {table} t where t.id = g.id)",
                    // Cleanup removes a message but leaves its registry entry, because touches refer to the entry.
                    if *kind == Kind::Message { " and g.deleted_at is null" } else { "" },
                ),
            ));
        }
        if self.engine() == Engine::Sqlite {
            rules.push(("references to missing rows".to_owned(), "pragma_foreign_key_check".to_owned()));
        }
        let counts: Vec<String> = rules.iter().map(|(_, rows)| format!("(select count(*) from {rows})")).collect();
        let mut read = self.read(Uuid::nil().into())?;
        let mut findings = Vec::new();
        // SQLite limits the number of terms in a compound select.
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
            let finding = |(rule, broken): &(i64, i64)| {
                let (description, _) = rules.get(usize::try_from(*rule).ok()?)?;
                Some(format!("{broken} {description}"))
            };
            findings.extend(broken.iter().filter_map(finding));
        }
        Ok(findings)
    }
}

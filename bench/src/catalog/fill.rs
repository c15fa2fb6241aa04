//! Fills a large catalog. Every task is computed from a number, so that a benchmark can name any task without storing
//! it.

use serde_json::json;
use trackway_domain::{
    Id, Time, Variant,
    enums::{Level, LinkType, Priority, TaskStatus},
    ids, kind,
};
use trackway_store::{
    Table, params,
    tables::{Package, Task, TaskLink, TaskReplace},
};
use uuid::Uuid;

use crate::{
    BenchResult,
    bench_env::{BenchEnv, BulkInsert, INSERT_REGISTRY_ENTRY},
    bulk_ids::{IdKind, bulk_id, created_micros, index_in, random_below, splitmix64},
};

/// Tasks are numbered in groups of this size. Every tenth group is a chain of versions.
const GROUP: u64 = 10;
const ROLES: u64 = 50;
/// One of this many tasks has a link.
const LINK_EVERY: usize = 10;
/// Index of the pinned version in its chain.
const PINNED_VERSION: u64 = 3;
/// First number of the blocking links.
const BLOCKING_LINKS: u64 = 1 << 33;
/// First number of the tasks in long chains.
const LONG_CHAINS: u64 = 1 << 32;

/// A filled catalog.
#[derive(Debug)]
pub struct Catalog {
    pub tasks: u64,
    workflow: Id<kind::Workflow>,
    roles: Vec<Id<kind::Role>>,
    tenant: trackway_store::TenantId,
    person: Uuid,
}

impl Catalog {
    /// Inserts the tasks, and separate chains of the given lengths.
    pub fn fill(env: &BenchEnv, tasks: u64, chains: &[usize]) -> BenchResult<Self> {
        let mut roles = Vec::new();
        for role in 0..ROLES {
            env.execute_json("set_role", json!({ "name": role_name(role) }))?;
            roles.push(env.id_of("roles", "name", &role_name(role))?.into());
        }
        let catalog = Self {
            tasks,
            workflow: env.id_of("workflows", "name", "unit")?.into(),
            roles,
            tenant: env.tenant(),
            person: env.person.actor.id(),
        };
        let mut bulk = BulkInsert::begin(&env.database)?;
        for number in 0..tasks {
            catalog.insert_task(&mut bulk, &catalog.task(number))?;
            if in_chain(number) && !number.is_multiple_of(GROUP) {
                catalog.insert_edge(&mut bulk, number, number - 1)?;
            }
            if number % GROUP == PINNED_VERSION && (in_chain(number) || number / GROUP % 2 == 1) {
                catalog.insert_pin(&mut bulk, number)?;
            }
        }
        for number in (0..tasks).step_by(LINK_EVERY) {
            catalog.insert_link(&mut bulk, number, splitmix64(number) % tasks, LinkType::RelatesTo)?;
        }
        for number in 0..tasks {
            if let Some(chain) = blocker(number) {
                catalog.insert_link(&mut bulk, chain, number, LinkType::Blocks)?;
            }
        }
        for versions in chains {
            catalog.insert_chain(&mut bulk, *versions as u64)?;
        }
        bulk.end()?;
        Ok(catalog)
    }

    /// The id of a random task that a newer version replaces.
    pub fn random_replaced_id(&self, draw: usize) -> String {
        let version = random_below(GROUP - 1, draw + 1_000_000);
        bulk_id(IdKind::Task, self.random_chain(draw) + version).to_string()
    }

    /// The role that pins a version of a random chain, and a variant in that chain.
    pub fn random_pin(&self, draw: usize) -> (String, String) {
        let chain = self.random_chain(draw);
        (role_name(role_of(chain + PINNED_VERSION)), variant(chain + random_below(GROUP, draw + 1_000_000)))
    }

    /// The variant of a random task outside all chains.
    pub fn random_unreplaced_variant(&self, draw: usize) -> String {
        variant(self.random_chain(draw) + GROUP + random_below(GROUP * 9, draw + 2_000_000))
    }

    fn random_chain(&self, draw: usize) -> u64 {
        random_below(self.tasks.div_ceil(GROUP * 10), draw) * GROUP * 10
    }

    fn insert_chain(&self, bulk: &mut BulkInsert, versions: u64) -> BenchResult<()> {
        let start = chain_start(versions);
        for number in start..start + versions {
            let task = Task {
                lineage_id: bulk_id(IdKind::Task, start),
                replaced: number + 1 < start + versions,
                current_id: Some(bulk_id(IdKind::Task, start + versions - 1).into()),
                ..self.task(number)
            };
            self.insert_task(bulk, &task)?;
            if number > start {
                self.insert_edge(bulk, number, number - 1)?;
            }
        }
        Ok(())
    }

    fn task(&self, number: u64) -> Task {
        let chance = splitmix64(number);
        let chain = number < LONG_CHAINS && in_chain(number);
        let lineage = if chain { number / GROUP * GROUP } else { number };
        let now = Time::from_micros(created_micros(number));
        Task {
            id: bulk_id(IdKind::Task, number).into(),
            tenant_id: self.tenant,
            variant: parse_variant(&variant(number)),
            command: format!("build-{}", number % 1_000),
            workflow_id: self.workflow,
            role_id: Some(self.roles[index_in(role_of(number), self.roles.len())]),
            title: Some(format!("Build step {number}")),
            description: Some("Take the next part, build it, and report the result.".to_owned()),
            motivation: None,
            notes: None,
            shell: Some("bash".to_owned()),
            script: Some("make".to_owned()),
            timeout: None,
            max_steps: None,
            spend_limit: None,
            end_of_run: None,
            retry_on_error: false,
            workspace_id: None,
            tags: vec!["bulk".to_owned()],
            labels: Vec::new(),
            heading: None,
            recurring: chance.is_multiple_of(20),
            archived: false,
            status: status(chance >> 8),
            status_since: now,
            status_reason: None,
            priority: priority(chance >> 16),
            estimate: None,
            language: None,
            revision: 1,
            lineage_id: bulk_id(IdKind::Task, lineage),
            open_blockers: match blocker(number) {
                Some(chain) => i64::from(!status(splitmix64(chain + GROUP - 1) >> 8).releases_blocked()),
                None => i64::from((chance >> 24).is_multiple_of(10)),
            },
            replaced: chain && number % GROUP < GROUP - 1,
            current_id: Some(bulk_id(IdKind::Task, if chain { lineage + GROUP - 1 } else { number }).into()),
            created_at: now,
            updated_at: now,
            deleted_at: None,
        }
    }

    fn insert_task(&self, bulk: &mut BulkInsert, task: &Task) -> BenchResult<()> {
        bulk.insert(Task::insert_sql(), &task.params())?;
        let path = format!("tasks/{}", task.variant);
        let short_key = ids::short_key(task.id.uuid());
        bulk.insert(
            INSERT_REGISTRY_ENTRY,
            params![self.tenant, task.id, *"task", None::<Uuid>, path, short_key, self.person, task.created_at],
        )
    }

    fn insert_edge(&self, bulk: &mut BulkInsert, new: u64, old: u64) -> BenchResult<()> {
        let now = Time::from_micros(created_micros(new));
        let level = [Level::Patch, Level::Minor, Level::Minor, Level::Major][index_in(splitmix64(new), 4)];
        let edge = TaskReplace {
            new_task_id: bulk_id(IdKind::Task, new).into(),
            old_task_id: bulk_id(IdKind::Task, old).into(),
            tenant_id: self.tenant,
            // All edges of these chains are minor, so that `next --level minor` finds an answer from every version.
            level: if new < LONG_CHAINS { Level::Minor } else { level },
            comment: None,
            created_at: now,
            updated_at: now,
        };
        bulk.insert(TaskReplace::insert_sql(), &edge.params())
    }

    fn insert_link(&self, bulk: &mut BulkInsert, from: u64, to: u64, link_type: LinkType) -> BenchResult<()> {
        let number = if link_type == LinkType::Blocks { BLOCKING_LINKS + from } else { from };
        let link = TaskLink {
            id: bulk_id(IdKind::Link, number).into(),
            tenant_id: self.tenant,
            from_task_id: bulk_id(IdKind::Task, from).into(),
            to_task_id: bulk_id(IdKind::Task, to).into(),
            link_type,
            created_at: Time::from_micros(created_micros(from)),
            deleted_at: None,
        };
        bulk.insert(TaskLink::insert_sql(), &link.params())
    }

    fn insert_pin(&self, bulk: &mut BulkInsert, number: u64) -> BenchResult<()> {
        let task = self.task(number);
        let pin = Package {
            id: bulk_id(IdKind::Package, number).into(),
            tenant_id: self.tenant,
            role_id: self.roles[index_in(role_of(number), self.roles.len())],
            task_id: task.id,
            lineage_id: task.lineage_id,
            created_at: task.created_at,
            updated_at: task.created_at,
            deleted_at: None,
        };
        bulk.insert(Package::insert_sql(), &pin.params())
    }
}

/// The number of the task that blocks this task, if there is one. The blocking task is the first version of a chain,
/// which newer versions have replaced.
fn blocker(number: u64) -> Option<u64> {
    let chain = number.checked_sub(GROUP)?;
    (number < LONG_CHAINS && chain.is_multiple_of(GROUP * 10)).then_some(chain)
}

pub fn variant(number: u64) -> String {
    format!("build-{}/step-{number}", number % 1_000)
}

fn in_chain(number: u64) -> bool {
    (number / GROUP).is_multiple_of(10)
}

fn chain_start(versions: u64) -> u64 {
    LONG_CHAINS + versions * 10
}

/// The first variant in the chain of this length.
pub fn first_of_chain(versions: usize) -> String {
    variant(chain_start(versions as u64))
}

fn role_of(number: u64) -> u64 {
    number / GROUP % ROLES
}

fn role_name(role: u64) -> String {
    format!("role-{role}")
}

fn status(chance: u64) -> TaskStatus {
    TaskStatus::ALL[index_in(chance, TaskStatus::ALL.len())]
}

fn priority(chance: u64) -> Priority {
    Priority::ALL[index_in(chance, Priority::ALL.len())]
}

#[expect(clippy::expect_used, reason = "a benchmark that cannot name its tasks has nothing to measure")]
fn parse_variant(variant: &str) -> Variant {
    variant.parse().expect("a variant of letters, digits and dashes")
}

//! A large catalog, made by number so that any task of it can be named again.

use serde_json::json;
use trackway_domain::{
    Id, Time, Variant, ids, kind,
    words::{Level, LinkType, Priority, TaskStatus},
};
use trackway_store::{
    Table, params,
    tables::{Package, Task, TaskLink, TaskReplace},
};
use uuid::Uuid;

use crate::{
    Outcome,
    bench_env::{BenchEnv, Bulk, REGISTER},
    identity::{Numbered, below, id, micros, mixed, place},
};

/// Versions in a chain, and one group of this many tasks in ten is a chain.
const GROUP: u64 = 10;
const ROLES: u64 = 50;
/// One task in so many is linked to another.
const LINK_EVERY: usize = 10;
/// The version of a chain that is pinned.
const PINNED_VERSION: u64 = 3;
/// Where the numbers of the links that block begin.
const BLOCKING_LINKS: u64 = 1 << 33;
/// Where the numbers of the long chains begin.
const LONG_CHAINS: u64 = 1 << 32;

/// What was filled.
#[derive(Debug)]
pub struct Catalog {
    pub tasks: u64,
    workflow: Id<kind::Workflow>,
    roles: Vec<Id<kind::Role>>,
    tenant: trackway_store::TenantId,
    person: Uuid,
}

impl Catalog {
    /// Makes the tasks, and chains of the lengths given beside them.
    pub fn fill(env: &BenchEnv, tasks: u64, chains: &[usize]) -> Outcome<Self> {
        let mut roles = Vec::new();
        for role in 0..ROLES {
            env.act("set_role", json!({ "name": role_name(role) }))?;
            roles.push(env.named("roles", "name", &role_name(role))?.into());
        }
        let catalog = Self {
            tasks,
            workflow: env.named("workflows", "name", "unit")?.into(),
            roles,
            tenant: env.tenant(),
            person: env.person.actor.id(),
        };
        let mut bulk = Bulk::begin(&env.database)?;
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
            catalog.insert_link(&mut bulk, number, mixed(number) % tasks, LinkType::RelatesTo)?;
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

    /// The id of a random task that another replaces.
    pub fn replaced_id(&self, draw: usize) -> String {
        let version = below(GROUP - 1, draw + 1_000_000);
        id(Numbered::Task, self.random_chain(draw) + version).to_string()
    }

    /// The role and a variant of a random chain with a pin.
    pub fn pinned(&self, draw: usize) -> (String, String) {
        let chain = self.random_chain(draw);
        (role_name(role_of(chain + PINNED_VERSION)), variant(chain + below(GROUP, draw + 1_000_000)))
    }

    /// The variant of a random task that is no part of a chain.
    pub fn never_replaced(&self, draw: usize) -> String {
        variant(self.random_chain(draw) + GROUP + below(GROUP * 9, draw + 2_000_000))
    }

    fn random_chain(&self, draw: usize) -> u64 {
        below(self.tasks.div_ceil(GROUP * 10), draw) * GROUP * 10
    }

    fn insert_chain(&self, bulk: &mut Bulk, versions: u64) -> Outcome<()> {
        let start = chain_start(versions);
        for number in start..start + versions {
            let task = Task {
                lineage_id: id(Numbered::Task, start),
                replaced: number + 1 < start + versions,
                current_id: Some(id(Numbered::Task, start + versions - 1).into()),
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
        let chance = mixed(number);
        let chain = number < LONG_CHAINS && in_chain(number);
        let lineage = if chain { number / GROUP * GROUP } else { number };
        let now = Time::from_micros(micros(number));
        Task {
            id: id(Numbered::Task, number).into(),
            tenant_id: self.tenant,
            variant: parsed(&variant(number)),
            command: format!("build-{}", number % 1_000),
            workflow_id: self.workflow,
            role_id: Some(self.roles[place(role_of(number), self.roles.len())]),
            title: Some(format!("Build step {number}")),
            description: Some("Take the next part, build it, and say what came out of it.".to_owned()),
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
            lineage_id: id(Numbered::Task, lineage),
            open_blockers: match blocker(number) {
                Some(chain) => i64::from(!status(mixed(chain + GROUP - 1) >> 8).releases_blocked()),
                None => i64::from((chance >> 24).is_multiple_of(10)),
            },
            replaced: chain && number % GROUP < GROUP - 1,
            current_id: Some(id(Numbered::Task, if chain { lineage + GROUP - 1 } else { number }).into()),
            created_at: now,
            updated_at: now,
            deleted_at: None,
        }
    }

    fn insert_task(&self, bulk: &mut Bulk, task: &Task) -> Outcome<()> {
        bulk.insert(Task::insert_sql(), &task.params())?;
        let path = format!("tasks/{}", task.variant);
        let short_key = ids::short_key(task.id.uuid());
        bulk.insert(
            REGISTER,
            params![self.tenant, task.id, *"task", None::<Uuid>, path, short_key, self.person, task.created_at],
        )
    }

    fn insert_edge(&self, bulk: &mut Bulk, new: u64, old: u64) -> Outcome<()> {
        let now = Time::from_micros(micros(new));
        let level = [Level::Patch, Level::Minor, Level::Minor, Level::Major][place(mixed(new), 4)];
        let edge = TaskReplace {
            new_task_id: id(Numbered::Task, new).into(),
            old_task_id: id(Numbered::Task, old).into(),
            tenant_id: self.tenant,
            // `next --level minor` must find an answer from every version.
            level: if new < LONG_CHAINS { Level::Minor } else { level },
            comment: None,
            created_at: now,
            updated_at: now,
        };
        bulk.insert(TaskReplace::insert_sql(), &edge.params())
    }

    fn insert_link(&self, bulk: &mut Bulk, from: u64, to: u64, link_type: LinkType) -> Outcome<()> {
        let number = if link_type == LinkType::Blocks { BLOCKING_LINKS + from } else { from };
        let link = TaskLink {
            id: id(Numbered::Link, number).into(),
            tenant_id: self.tenant,
            from_task_id: id(Numbered::Task, from).into(),
            to_task_id: id(Numbered::Task, to).into(),
            link_type,
            created_at: Time::from_micros(micros(from)),
            deleted_at: None,
        };
        bulk.insert(TaskLink::insert_sql(), &link.params())
    }

    fn insert_pin(&self, bulk: &mut Bulk, number: u64) -> Outcome<()> {
        let task = self.task(number);
        let pin = Package {
            id: id(Numbered::Package, number).into(),
            tenant_id: self.tenant,
            role_id: self.roles[place(role_of(number), self.roles.len())],
            task_id: task.id,
            lineage_id: task.lineage_id,
            created_at: task.created_at,
            updated_at: task.created_at,
            deleted_at: None,
        };
        bulk.insert(Package::insert_sql(), &pin.params())
    }
}

/// The chain whose first version, which is replaced, blocks this task: every chain blocks one task.
fn blocker(number: u64) -> Option<u64> {
    let chain = number.checked_sub(GROUP)?;
    (number < LONG_CHAINS && chain.is_multiple_of(GROUP * 10)).then_some(chain)
}

/// The variant of a task.
pub fn variant(number: u64) -> String {
    format!("build-{}/step-{number}", number % 1_000)
}

fn in_chain(number: u64) -> bool {
    (number / GROUP).is_multiple_of(10)
}

fn chain_start(versions: u64) -> u64 {
    LONG_CHAINS + versions * 10
}

/// The variant that the chain of this length begins with.
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
    TaskStatus::ALL[place(chance, TaskStatus::ALL.len())]
}

fn priority(chance: u64) -> Priority {
    Priority::ALL[place(chance, Priority::ALL.len())]
}

#[expect(clippy::expect_used, reason = "a benchmark that cannot name its tasks has nothing to measure")]
fn parsed(variant: &str) -> Variant {
    variant.parse().expect("a variant of letters, digits and dashes")
}

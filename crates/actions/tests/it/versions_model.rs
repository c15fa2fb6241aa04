//! Property test of versions. It applies random changes to the catalog and to a simple model that shares no code with
//! the implementation. Ready tasks, wakes, reports, routes and queue items must agree with the model.

use std::collections::{BTreeMap, BTreeSet};

use proptest::{prelude::*, test_runner::TestRunner};
use serde_json::{Value, json};
use trackway_domain::{Ref, kind};
use trackway_store::display::{QueueItemRow, RouteRow};
use trackway_testkit::{Engine, TestEnv};
use trackway_views::{View, package::ResolvePackage, ready::Ready, wake::Wake, wake::WakeOutput};

const TASKS: usize = 7;
const ROLES: [&str; 2] = ["coder", "tester"];

/// A change of the catalog. Numbers identify tasks and roles.
#[derive(Debug, Clone)]
enum Step {
    Replace { new: usize, old: usize },
    Link { from: usize, to: usize, blocks: bool },
    Pin { role: usize, task: usize },
    Archive { task: usize, archived: bool },
    Done { task: usize, done: bool },
    Delete { task: usize },
    Queue { task: usize, role: Option<usize>, exact: bool },
    Report { task: usize },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let task = || 0..TASKS;
    let step = prop_oneof![
        5 => (task(), task()).prop_map(|(new, old)| Step::Replace { new, old }),
        5 => (task(), task(), any::<bool>()).prop_map(|(from, to, blocks)| Step::Link { from, to, blocks }),
        2 => (0..ROLES.len(), task()).prop_map(|(role, task)| Step::Pin { role, task }),
        2 => (task(), any::<bool>()).prop_map(|(task, archived)| Step::Archive { task, archived }),
        2 => (task(), any::<bool>()).prop_map(|(task, done)| Step::Done { task, done }),
        1 => task().prop_map(|task| Step::Delete { task }),
        1 => (task(), proptest::option::of(0..ROLES.len()), any::<bool>()).prop_map(|(task, role, exact)| Step::Queue { task, role, exact }),
        1 => task().prop_map(|task| Step::Report { task }),
    ];
    proptest::collection::vec(step, 1..30)
}

#[derive(Debug, Clone, Default)]
struct Model {
    /// Newer and older version, oldest replacement first.
    replacements: Vec<(usize, usize)>,
    /// From, to, and whether the link blocks; oldest link first.
    links: Vec<(usize, usize, bool)>,
    /// Role and version, in the order of pinning.
    pins: Vec<(usize, usize)>,
    archived: BTreeSet<usize>,
    done: BTreeSet<usize>,
    deleted: BTreeSet<usize>,
    items: Vec<(usize, Option<usize>, bool)>,
    /// Tasks with a report.
    reported: BTreeSet<usize>,
}

/// The linked tasks of a wake for both directions. The key is the current version of a linked lineage. The values are
/// the older version that the link names, and the version whose report is shown.
type Rows = [BTreeMap<usize, (Option<usize>, Option<usize>)>; 2];

impl Model {
    fn is_live(&self, task: usize) -> bool {
        !self.archived.contains(&task) && !self.deleted.contains(&task)
    }

    fn replaces(&self, new: usize, old: usize) -> bool {
        new == old || self.replacements.iter().any(|(newer, older)| *newer == new && self.replaces(*older, old))
    }

    /// All versions that replacements connect with a task.
    fn lineage(&self, task: usize) -> BTreeSet<usize> {
        let mut found = BTreeSet::from([task]);
        loop {
            let before = found.len();
            for (new, old) in &self.replacements {
                if found.contains(new) || found.contains(old) {
                    found.extend([*new, *old]);
                }
            }
            if found.len() == before {
                return found;
            }
        }
    }

    fn is_same_lineage(&self, one: usize, other: usize) -> bool {
        self.lineage(one).contains(&other)
    }

    fn current(&self, task: usize) -> Option<usize> {
        let newer = self.replacements.iter().rev().filter(|(_, old)| *old == task).map(|(new, _)| *new);
        newer.into_iter().find_map(|new| self.current(new)).or_else(|| self.is_live(task).then_some(task))
    }

    fn version(&self, task: usize, role: Option<usize>, exact: bool) -> Option<usize> {
        if exact {
            return self.is_live(task).then_some(task);
        }
        let pin =
            self.pins.iter().find(|(pinned, version)| Some(*pinned) == role && self.is_same_lineage(*version, task));
        pin.map(|(_, version)| *version).filter(|version| self.is_live(*version)).or_else(|| self.current(task))
    }

    /// Whether `blocks` links form a cycle of lineages. Completely deleted lineages do not count.
    fn blocks_in_a_cycle(&self) -> bool {
        let exists = |task: usize| self.lineage(task).iter().any(|version| !self.deleted.contains(version));
        let reaches = |from: usize, to: usize| {
            let mut found = self.lineage(from);
            loop {
                let before = found.len();
                for (from, to, _) in
                    self.links.iter().filter(|(from, to, blocks)| *blocks && !self.is_same_lineage(*from, *to))
                {
                    if found.contains(from) && exists(*from) && exists(*to) {
                        found.extend(self.lineage(*to));
                    }
                }
                if found.len() == before {
                    return found.contains(&to);
                }
            }
        };
        self.links.iter().any(|(from, to, blocks)| {
            *blocks && !self.is_same_lineage(*from, *to) && exists(*from) && exists(*to) && reaches(*to, *from)
        })
    }

    /// The model after a step. `None` if the step must be rejected.
    fn after_step(&self, step: &Step) -> Option<Self> {
        let mut next = self.clone();
        let exists = |task: &usize| !self.deleted.contains(task);
        match step {
            Step::Replace { new, old } => {
                if !exists(new) || !exists(old) || new == old {
                    return None;
                }
                if !self.replacements.contains(&(*new, *old)) {
                    if self.replaces(*old, *new) {
                        return None;
                    }
                    next.replacements.push((*new, *old));
                    // If a role has two pins in the joined lineage, the newer one remains.
                    let joined = next.lineage(*new);
                    let pins = next.pins.clone();
                    next.pins = pins
                        .iter()
                        .enumerate()
                        .filter(|(place, (role, version))| {
                            !joined.contains(version)
                                || !pins[place + 1..]
                                    .iter()
                                    .any(|(other, later)| other == role && joined.contains(later))
                        })
                        .map(|(_, pin)| *pin)
                        .collect();
                }
            }
            Step::Link { from, to, blocks } => {
                if !exists(from) || !exists(to) || from == to {
                    return None;
                }
                if !self.links.contains(&(*from, *to, *blocks)) {
                    next.links.push((*from, *to, *blocks));
                }
            }
            Step::Pin { role, task } => {
                if !exists(task) {
                    return None;
                }
                let same = self.pins.contains(&(*role, *task));
                if !same {
                    next.pins.retain(|(other, version)| other != role || !self.is_same_lineage(*version, *task));
                    next.pins.push((*role, *task));
                }
            }
            Step::Archive { task, .. } | Step::Done { task, .. } | Step::Delete { task } | Step::Report { task }
                if !exists(task) =>
            {
                return None;
            }
            Step::Report { task } => _ = next.reported.insert(*task),
            Step::Archive { task, archived: true } => _ = next.archived.insert(*task),
            Step::Archive { task, archived: false } => _ = next.archived.remove(task),
            Step::Done { task, done: true } => _ = next.done.insert(*task),
            Step::Done { task, done: false } => _ = next.done.remove(task),
            Step::Delete { task } => {
                next.deleted.insert(*task);
                next.pins.retain(|(_, version)| version != task);
            }
            Step::Queue { task, role, exact } => {
                if !exists(task) || self.version(*task, *role, *exact).is_none() {
                    return None;
                }
                next.items.push((*task, *role, *exact));
            }
        }
        (!next.blocks_in_a_cycle()).then_some(next)
    }

    fn is_blocked(&self, task: usize) -> bool {
        self.links.iter().any(|(from, to, blocks)| {
            *blocks
                && self.is_same_lineage(*to, task)
                && !self.is_same_lineage(*from, task)
                && self.current(*from).is_some_and(|current| !self.done.contains(&current))
        })
    }

    fn ready(&self) -> BTreeSet<usize> {
        (0..TASKS)
            .filter(|task| self.current(*task) == Some(*task) && !self.done.contains(task) && !self.is_blocked(*task))
            .filter(|task| !self.items.iter().any(|(requested, ..)| self.is_same_lineage(*requested, *task)))
            .collect()
    }

    /// The length of the longest path of replacements back from a version.
    fn generation(&self, task: usize) -> usize {
        let before = self.replacements.iter().filter(|(new, _)| *new == task);
        before.map(|(_, old)| self.generation(*old) + 1).max().unwrap_or_default()
    }

    /// The newest version of a lineage that has a report.
    fn report(&self, task: usize) -> Option<usize> {
        let versions = self.lineage(task);
        versions
            .into_iter()
            .filter(|version| self.reported.contains(version))
            .max_by_key(|version| (self.generation(*version), *version))
    }

    fn wake(&self, task: usize) -> Rows {
        let outside = |source: usize| {
            self.links
                .iter()
                .any(|(from, to, _)| (*from == source || *to == source) && !self.is_same_lineage(*from, *to))
        };
        // Breadth-first search backwards through the replaced versions.
        let mut near = BTreeSet::from([task]);
        let mut last_replaced = vec![task];
        let source = loop {
            match last_replaced.iter().find(|version| outside(**version)) {
                Some(found) => break *found,
                None if near.is_empty() => return Default::default(),
                None => {}
            }
            let before = self.replacements.iter().rev().filter(|(new, _)| near.contains(new)).map(|(_, old)| *old);
            last_replaced = before.collect();
            near = last_replaced.iter().copied().collect();
        };
        [false, true].map(|outgoing| {
            let mut rows: BTreeMap<usize, (bool, usize, usize)> = BTreeMap::new();
            for (age, (from, to, _)) in self.links.iter().enumerate() {
                let (own, other) = if outgoing { (*from, *to) } else { (*to, *from) };
                let (true, false, Some(current)) =
                    (own == source, self.is_same_lineage(own, other), self.current(other))
                else {
                    continue;
                };
                let lineage = *self.lineage(other).first().unwrap();
                let candidate = (current == other, age, other);
                let better = rows
                    .get(&lineage)
                    .is_none_or(|(names_current, present, _)| (candidate.0, candidate.1) > (*names_current, *present));
                if better {
                    rows.insert(lineage, candidate);
                }
            }
            rows.into_values()
                .map(|(_, _, named)| {
                    let current = self.current(named).unwrap();
                    (current, ((current != named).then_some(named), self.report(named)))
                })
                .collect()
        })
    }
}

struct TestCatalog {
    env: TestEnv,
    ids: Vec<String>,
}

impl TestCatalog {
    fn new(engine: Engine) -> Self {
        let env = TestEnv::new(engine);
        env.workflow("q");
        env.agent("bot");
        for role in ROLES {
            env.role(role);
        }
        let ids = (0..TASKS).map(|task| env.task("q", &format!("t{task}")).to_string()).collect();
        Self { env, ids }
    }

    fn apply(&self, step: &Step) -> bool {
        let id = |task: &usize| &self.ids[*task];
        // `if_revision` prevents the action from creating a deleted variant again.
        let set = |task: &usize, field: &str, value: Value| {
            let revision = self.env.read(|read| {
                let count = "select coalesce(max(revision), -1) from tasks where tenant_id = ?1 and id = ?2 and deleted_at is null";
                let id: trackway_domain::Id<kind::Task> = id(task).parse::<uuid::Uuid>().unwrap().into();
                Ok(read.count(count, trackway_store::params![id])?)
            });
            self.env.execute_json(
                "set_task",
                json!({ "workflow": "q", "variant": format!("t{task}"), field: value, "if_revision": revision }),
            )
        };
        let done = match step {
            Step::Replace { new, old } => {
                self.env.execute_json("replace_task", json!({ "new": id(new), "old": id(old) }))
            }
            Step::Link { from, to, blocks } => {
                let link_type = if *blocks { "blocks" } else { "relates_to" };
                self.env.execute_json("add_link", json!({ "from": id(from), "to": id(to), "type": link_type }))
            }
            Step::Pin { role, task } => {
                self.env.execute_json("set_package", json!({ "role": ROLES[*role], "task": id(task) }))
            }
            Step::Archive { task, archived } => set(task, "archived", json!(archived)),
            Step::Done { task, done } => set(task, "status", json!(if *done { "done" } else { "open" })),
            Step::Delete { task } => self.env.execute_json("delete_task", json!({ "task": id(task) })),
            Step::Queue { task, role, exact } => {
                let role = role.map(|role| ROLES[role]);
                self.env.execute_json("queue_add", json!({ "task": id(task), "role": role, "exact": exact }))
            }
            Step::Report { task } => {
                let report = json!({ "agent": "bot", "task": id(task), "one_liner": "a line", "tldr": "short", "content": task.to_string() });
                self.env.execute_json("set_report", report)
            }
        };
        done.is_ok()
    }

    fn number(&self, id: &str) -> usize {
        self.ids.iter().position(|known| known == id).unwrap()
    }

    fn ready(&self) -> BTreeSet<usize> {
        let listed = self.env.read(|read| Ok(Ready { limit: None, after: None }.answer(read, self.env.now())?));
        listed.rows.iter().map(|row| self.number(&row.shown.task.id.to_string())).collect()
    }

    fn wake(&self, task: usize) -> Rows {
        let wake = Wake { task: Ref::new(&*self.ids[task]), agent: None, explain: false, linked: true };
        let WakeOutput::Document(document) = self.env.read(|read| Ok(wake.answer(read, self.env.now())?)) else {
            panic!("--linked answers the document");
        };
        let document: Value = serde_json::from_str(&document.text).unwrap();
        ["linked_from", "linked_to"].map(|list| {
            let rows = document[list].as_array().cloned().unwrap_or_default();
            rows.iter()
                .map(|row| {
                    let named = row["linkedAs"]["id"].as_str().map(|id| self.number(id));
                    let report = row["latestTaskAgentReport"].as_str().map(|report| report.parse().unwrap());
                    (self.number(row["id"].as_str().unwrap()), (named, report))
                })
                .collect()
        })
    }

    fn resolve(&self, role: usize, task: usize) -> Option<usize> {
        let view = ResolvePackage { role: Ref::new(ROLES[role]), variant: Ref::new(&*self.ids[task]) };
        let resolved = self.env.read(|read| Ok(view.answer(read, self.env.now()).ok()));
        resolved.map(|version| self.number(&version.task_id.to_string()))
    }
}

fn number(variant: &trackway_domain::Variant) -> usize {
    variant.as_str().trim_start_matches('t').split('/').next().unwrap().parse().unwrap()
}

fn versions_agree_with_the_model(engine: Engine, cases: u32) {
    let mut runner = TestRunner::new(ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() });
    runner
        .run(&steps(), |steps| {
            let catalog = TestCatalog::new(engine);
            let routes: Vec<String> = (0..TASKS)
                .map(|task| {
                    let route = json!({ "tag": format!("tag{task}"), "role": ROLES[task % ROLES.len()], "task": catalog.ids[task] });
                    catalog.env.execute_json("set_route", route).unwrap()["id"].as_str().unwrap().to_owned()
                })
                .collect();
            let mut model = Model::default();
            for step in &steps {
                let next = model.after_step(step);
                prop_assert_eq!(catalog.apply(step), next.is_some(), "{:?} in {:?}", step, &model);
                model = next.unwrap_or(model);
                prop_assert_eq!(catalog.ready(), model.ready(), "ready after {:?} in {:?}", step, &model);
            }
            for task in (0..TASKS).filter(|task| !model.deleted.contains(task)) {
                prop_assert_eq!(catalog.wake(task), model.wake(task), "wake of {} in {:?}", task, &model);
                for (role, name) in ROLES.iter().enumerate() {
                    let expected = model.version(task, Some(role), false);
                    prop_assert_eq!(catalog.resolve(role, task), expected, "{} for {} in {:?}", task, name, &model);
                }
            }
            let shown = catalog.env.read(|read| Ok(read.display_rows::<RouteRow>("where o.tenant_id = ?1 order by o.id", &[])?));
            for (task, route) in shown.iter().enumerate() {
                prop_assert_eq!(&route.route.id.to_string(), &routes[task]);
                let expected = model.version(task, Some(task % ROLES.len()), false);
                prop_assert_eq!(route.would_run.as_ref().map(number), expected, "route to {} in {:?}", task, &model);
            }
            let items = catalog.env.read(|read| Ok(read.display_rows::<QueueItemRow>("where q.tenant_id = ?1 order by q.id", &[])?));
            prop_assert_eq!(items.len(), model.items.len());
            let mut runnable = Vec::new();
            for (shown, (task, role, exact)) in items.iter().zip(&model.items) {
                let version = model.version(*task, *role, *exact);
                let status = if version.is_some() { "ready" } else { "blocked" };
                prop_assert_eq!(shown.item.status.to_string(), status, "item of {} in {:?}", task, &model);
                prop_assert_eq!(shown.would_run.as_ref().map(number), version);
                runnable.extend(version);
            }
            let taken = catalog.env.execute_json("queue_take", json!({ "batch": 100 })).unwrap();
            let taken: Vec<usize> = taken.as_array().unwrap().iter().map(|item| catalog.number(item["task_id"].as_str().unwrap())).collect();
            prop_assert_eq!(taken, runnable, "taken in {:?}", &model);
            prop_assert_eq!(catalog.env.core.store().integrity_findings().unwrap(), Vec::<String>::new(), "{:?}", &model);
            Ok(())
        })
        .unwrap();
}

#[test]
fn versions_agree_with_the_model_sqlite() {
    versions_agree_with_the_model(Engine::Sqlite, 80);
}

#[test]
fn versions_agree_with_the_model_postgres() {
    versions_agree_with_the_model(Engine::Postgres, 12);
}

//! Whatever is replaced, archived or deleted, in whatever order: `latest` answers as a plain walk over the whole graph
//! would, and `ready` shows exactly the tasks that nothing usable replaces.

use std::collections::BTreeSet;

use proptest::{prelude::*, test_runner::TestRunner};
use serde_json::json;
use trackway_domain::Ref;
use trackway_testkit::{Engine, TestEnv};
use trackway_views::{View, ready::Ready, task::LatestTask};

/// Something done to the catalog; numbers name tasks.
#[derive(Debug, Clone)]
enum Deed {
    Replace { new: usize, old: usize },
    Archive { task: usize, archived: bool },
    Delete { task: usize },
}

const TASKS: usize = 6;

fn deeds() -> impl Strategy<Value = Vec<Deed>> {
    let task = 0..TASKS;
    let deed = prop_oneof![
        4 => (task.clone(), task.clone()).prop_map(|(new, old)| Deed::Replace { new, old }),
        2 => (task.clone(), any::<bool>()).prop_map(|(task, archived)| Deed::Archive { task, archived }),
        1 => task.prop_map(|task| Deed::Delete { task }),
    ];
    proptest::collection::vec(deed, 1..25)
}

/// The same catalog, kept as simply as can be.
#[derive(Debug, Default)]
struct Model {
    /// New and old, oldest edge first.
    edges: Vec<(usize, usize)>,
    archived: BTreeSet<usize>,
    deleted: BTreeSet<usize>,
}

impl Model {
    fn usable(&self, task: usize) -> bool {
        !self.archived.contains(&task) && !self.deleted.contains(&task)
    }

    fn reaches(&self, from: usize, to: usize) -> bool {
        from == to || self.edges.iter().any(|(new, old)| *new == from && self.reaches(*old, to))
    }

    /// The newest edge first; a way that leads to no answer is taken back.
    fn latest(&self, from: usize) -> Option<usize> {
        let successors = self.edges.iter().rev().filter(|(_, old)| *old == from).map(|(new, _)| *new);
        successors.into_iter().find_map(|new| self.latest(new)).or_else(|| self.usable(from).then_some(from))
    }

    /// Whether the deed is allowed; if so, does it.
    fn does(&mut self, deed: &Deed) -> bool {
        match deed {
            Deed::Replace { new, old } => {
                let live = !self.deleted.contains(new) && !self.deleted.contains(old);
                let known = self.edges.contains(&(*new, *old));
                let allowed = live && new != old && (known || !self.reaches(*old, *new));
                if allowed && !known {
                    self.edges.push((*new, *old));
                }
                allowed
            }
            Deed::Archive { task, .. } | Deed::Delete { task } if self.deleted.contains(task) => false,
            Deed::Archive { task, archived: true } => {
                self.archived.insert(*task);
                true
            }
            Deed::Archive { task, archived: false } => {
                self.archived.remove(task);
                true
            }
            Deed::Delete { task } => {
                self.deleted.insert(*task);
                true
            }
        }
    }
}

fn does(env: &TestEnv, ids: &[String], deed: &Deed) -> bool {
    let outcome = match deed {
        Deed::Replace { new, old } => env.act("replace_task", json!({ "new": ids[*new], "old": ids[*old] })),
        // A deleted variant would be made anew, so the model's refusal is kept here.
        Deed::Archive { task, archived } => env
            .act("set_task", json!({ "workflow": "q", "variant": format!("t{task}"), "archived": archived, "if_revision": revision(env, &ids[*task]) })),
        Deed::Delete { task } => env.act("delete_task", json!({ "task": ids[*task] })),
    };
    outcome.is_ok()
}

/// The revision of a task by id; a number that fits nothing when it is deleted.
fn revision(env: &TestEnv, id: &str) -> i64 {
    env.read(|read| {
        let found = read.resolve(&Ref::<trackway_domain::kind::Task>::new(id));
        let Ok(id) = found else { return Ok(-1) };
        Ok(read.count("select revision from tasks where tenant_id = ?1 and id = ?2", trackway_store::params![id])?)
    })
}

fn latest_agrees_with_the_model(engine: Engine, cases: u32) {
    let mut runner = TestRunner::new(ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() });
    runner
        .run(&deeds(), |deeds| {
            let env = TestEnv::new(engine);
            env.workflow("q");
            let ids: Vec<String> = (0..TASKS).map(|task| env.task("q", &format!("t{task}")).to_string()).collect();
            let mut model = Model::default();
            for deed in &deeds {
                let allowed = model.does(deed);
                prop_assert_eq!(does(&env, &ids, deed), allowed, "{:?} in {:?}", deed, &model);
            }
            for task in (0..TASKS).filter(|task| !model.deleted.contains(task)) {
                let answer = env.read(|read| {
                    let question = LatestTask { variant: None, id: Some(Ref::new(&*ids[task])) };
                    Ok(question.answer(read, env.now()).ok().map(|latest| latest.id.to_string()))
                });
                prop_assert_eq!(
                    answer,
                    model.latest(task).map(|task| ids[task].clone()),
                    "from {} in {:?}",
                    task,
                    &model
                );
            }
            let ready: BTreeSet<String> = env
                .read(|read| Ok(Ready { limit: None, after: None }.answer(read, env.now())?))
                .rows
                .into_iter()
                .map(|row| row.shown.task.id.to_string())
                .collect();
            let expected: BTreeSet<String> = (0..TASKS)
                .filter(|task| model.usable(*task) && model.latest(*task) == Some(*task))
                .map(|task| ids[task].clone())
                .collect();
            prop_assert_eq!(ready, expected, "{:?}", &model);
            Ok(())
        })
        .unwrap();
}

#[test]
fn latest_agrees_with_the_model_on_sqlite() {
    latest_agrees_with_the_model(Engine::Sqlite, 60);
}

#[test]
fn latest_agrees_with_the_model_on_postgres() {
    latest_agrees_with_the_model(Engine::Postgres, 12);
}

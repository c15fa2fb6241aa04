//! Property test: after random replacements, archivings and deletions, `task latest` agrees with a simple search of the
//! whole graph, and `ready` lists exactly the tasks that no live version replaces.

use std::collections::BTreeSet;

use proptest::{prelude::*, test_runner::TestRunner};
use serde_json::json;
use trackway_domain::Ref;
use trackway_testkit::{Engine, TestEnv};
use trackway_views::{View, ready::Ready, task::LatestTask};

/// A change of the catalog. Numbers identify tasks.
#[derive(Debug, Clone)]
enum Change {
    Replace { new: usize, old: usize },
    Archive { task: usize, archived: bool },
    Delete { task: usize },
}

const TASKS: usize = 6;

fn changes() -> impl Strategy<Value = Vec<Change>> {
    let task = 0..TASKS;
    let change = prop_oneof![
        4 => (task.clone(), task.clone()).prop_map(|(new, old)| Change::Replace { new, old }),
        2 => (task.clone(), any::<bool>()).prop_map(|(task, archived)| Change::Archive { task, archived }),
        1 => task.prop_map(|task| Change::Delete { task }),
    ];
    proptest::collection::vec(change, 1..25)
}

/// A simple model of the catalog.
#[derive(Debug, Default)]
struct Model {
    /// New and old version, oldest replacement first.
    edges: Vec<(usize, usize)>,
    archived: BTreeSet<usize>,
    deleted: BTreeSet<usize>,
}

impl Model {
    fn is_live(&self, task: usize) -> bool {
        !self.archived.contains(&task) && !self.deleted.contains(&task)
    }

    fn reaches(&self, from: usize, to: usize) -> bool {
        from == to || self.edges.iter().any(|(new, old)| *new == from && self.reaches(*old, to))
    }

    /// Depth-first search, newest replacement first.
    fn latest(&self, from: usize) -> Option<usize> {
        let successors = self.edges.iter().rev().filter(|(_, old)| *old == from).map(|(new, _)| *new);
        successors.into_iter().find_map(|new| self.latest(new)).or_else(|| self.is_live(from).then_some(from))
    }

    /// Applies a change. Returns false if the change must be rejected.
    fn apply(&mut self, change: &Change) -> bool {
        match change {
            Change::Replace { new, old } => {
                let are_live = !self.deleted.contains(new) && !self.deleted.contains(old);
                let exists = self.edges.contains(&(*new, *old));
                let is_allowed = are_live && new != old && (exists || !self.reaches(*old, *new));
                if is_allowed && !exists {
                    self.edges.push((*new, *old));
                }
                is_allowed
            }
            Change::Archive { task, .. } | Change::Delete { task } if self.deleted.contains(task) => false,
            Change::Archive { task, archived: true } => {
                self.archived.insert(*task);
                true
            }
            Change::Archive { task, archived: false } => {
                self.archived.remove(task);
                true
            }
            Change::Delete { task } => {
                self.deleted.insert(*task);
                true
            }
        }
    }
}

fn apply(env: &TestEnv, ids: &[String], change: &Change) -> bool {
    let outcome = match change {
        Change::Replace { new, old } => env.execute_json("replace_task", json!({ "new": ids[*new], "old": ids[*old] })),
        // `if_revision` prevents the action from creating a deleted variant again.
        Change::Archive { task, archived } => env
            .execute_json("set_task", json!({ "workflow": "q", "variant": format!("t{task}"), "archived": archived, "if_revision": revision(env, &ids[*task]) })),
        Change::Delete { task } => env.execute_json("delete_task", json!({ "task": ids[*task] })),
    };
    outcome.is_ok()
}

/// The revision of a task. For a deleted task, -1, which is the revision of no task.
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
        .run(&changes(), |changes| {
            let env = TestEnv::new(engine);
            env.workflow("q");
            let ids: Vec<String> = (0..TASKS).map(|task| env.task("q", &format!("t{task}")).to_string()).collect();
            let mut model = Model::default();
            for change in &changes {
                let is_allowed = model.apply(change);
                prop_assert_eq!(apply(&env, &ids, change), is_allowed, "{:?} in {:?}", change, &model);
            }
            for task in (0..TASKS).filter(|task| !model.deleted.contains(task)) {
                let answer = env.read(|read| {
                    let view = LatestTask { variant: None, id: Some(Ref::new(&*ids[task])) };
                    Ok(view.answer(read, env.now()).ok().map(|latest| latest.id.to_string()))
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
                .filter(|task| model.is_live(*task) && model.latest(*task) == Some(*task))
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

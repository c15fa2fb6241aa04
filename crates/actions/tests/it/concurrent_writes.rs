//! Concurrent writes: conflicting writes have one winner, and independent writes all succeed.

use std::{
    sync::Barrier,
    thread::{self, ScopedJoinHandle},
};

use serde_json::{Value, json};
use trackway_actions::{Credential, Result};
use trackway_domain::{ErrorKind, kind};
use trackway_store::{params, tables::Note};
use trackway_testkit::{TestEnv, TestRun, engines, id};
use uuid::Uuid;

/// Repetitions of each race, because a single round could pass by chance.
const ROUNDS: usize = 10;

/// Runs an action in two threads at the same time.
fn run_twice_concurrently<T: Send>(action: impl Fn(usize) -> T + Sync) -> [T; 2] {
    let start = Barrier::new(2);
    let begin = |number| {
        start.wait();
        action(number)
    };
    thread::scope(|scope| [0, 1].map(|number| scope.spawn(move || begin(number))).map(join))
}

fn join<T>(thread: ScopedJoinHandle<'_, T>) -> T {
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// The output of the writer that succeeded, and the error of the other one.
#[track_caller]
fn winner_and_loser(outcomes: [Result<Value>; 2]) -> (Value, (ErrorKind, String)) {
    match outcomes {
        [Ok(won), Err(lost)] | [Err(lost), Ok(won)] => (won, (lost.kind(), lost.to_string())),
        other => panic!("one should win and the other lose: {other:?}"),
    }
}

fn conflict(message: &str) -> (ErrorKind, String) {
    (ErrorKind::Conflict, message.to_owned())
}

const WRITERS: usize = 12;
const WRITES_PER_RUN: usize = 25;

engines! {
    fn concurrent_runs_succeed_and_fail_independently(env: TestEnv) {
        let ada = env.agent("ada-bot");
        let runs: Vec<_> = (0..WRITERS).map(|_| ada.start_run()).collect();
        let before = env.events().len();
        let count = |sql: &str, id: Uuid| env.read(|reader| Ok(reader.count(sql, params![id])?));
        let write_notes = |run: &TestRun<'_>| {
            for number in 0..WRITES_PER_RUN {
                let refused = run.execute_json("create_note", json!({ "studio": "nowhere", "title": "plan", "body": "" }));
                assert_eq!(refused.unwrap_err().kind(), ErrorKind::NotFound);
                let note = run.create_note("main", &format!("plan {number}"), "soup first");
                let found = count("select count(*) from notes where tenant_id = ?1 and id = ?2", note.uuid());
                assert_eq!(found, 1, "a created note is visible to other readers");
            }
        };

        thread::scope(|scope| {
            let threads: Vec<_> = runs.iter().map(|run| scope.spawn(|| write_notes(run))).collect();
            threads.into_iter().for_each(join);
        });

        let touches = "select count(*) from run_resources where tenant_id = ?1 and run_id = ?2";
        let touched: Vec<i64> = runs.iter().map(|run| count(touches, run.id.uuid())).collect();
        assert_eq!(touched, [i64::try_from(WRITES_PER_RUN).unwrap(); WRITERS]);
        let logged = env.events().split_off(before);
        assert_eq!(logged.iter().filter(|(action, _)| action == "create_note").count(), WRITERS * WRITES_PER_RUN);
        assert_eq!(logged.len(), WRITERS * WRITES_PER_RUN);
    }

    fn concurrent_definitions_of_one_role_create_one_row(env: TestEnv) {
        for round in 0..ROUNDS {
            let name = format!("coder-{round}");
            let titles = ["Coder", "Programmer"];
            let answers =
                run_twice_concurrently(|number| env.execute_json("set_role", json!({ "name": name, "title": titles[number] })).unwrap());

            assert_eq!(answers[0]["id"], answers[1]["id"]);
            assert_eq!(answers.iter().filter(|answer| answer["new"] == json!(true)).count(), 1);
            let rows = env.read(|reader| {
                Ok(reader.count("select count(*) from roles where tenant_id = ?1 and name = ?2", params![name])?)
            });
            assert_eq!(rows, 1);
        }
    }

    fn concurrent_changes_of_one_revision_have_one_winner(env: TestEnv) {
        env.workflow("build");
        env.task("build", "unit/go");
        for revision in 1..=ROUNDS {
            let task = json!({ "workflow": "build", "variant": "unit/go", "if_revision": revision });
            let outcomes = run_twice_concurrently(|number| {
                let mut task = task.clone();
                task["title"] = json!(format!("{revision}.{number}"));
                env.execute_json("set_task", task)
            });

            let (won, lost) = winner_and_loser(outcomes);
            assert_eq!(won["revision"], json!(revision + 1));
            assert_eq!(lost, conflict(&format!("the task is at revision {}, not {revision}", revision + 1)));
        }
    }

    fn concurrent_creations_of_one_task_have_one_winner(env: TestEnv) {
        env.workflow("build");
        for round in 0..ROUNDS {
            let task = json!({ "workflow": "build", "variant": format!("unit/{round}"), "if_revision": 0 });
            let outcomes = run_twice_concurrently(|_| env.execute_json("set_task", task.clone()));

            let (won, lost) = winner_and_loser(outcomes);
            assert_eq!(won["new"], json!(true));
            assert_eq!(lost, conflict("the task is at revision 1, not 0"));
        }
    }

    fn concurrent_first_writes_create_one_person(env: TestEnv) {
        for round in 0..ROUNDS {
            let bob = Credential::User { tenant: "local".to_owned(), handle: format!("bob-{round}") };
            // Authentication does not create the person. The first write does.
            let visits = run_twice_concurrently(|visit| {
                let context = env.core.authenticate(&bob).unwrap();
                env.execute_json_as(&context, "create_note", json!({ "studio": "main", "title": format!("{round} {visit}") })).unwrap()
            });

            let people = env.read(|reader| {
                Ok(reader.query::<(Uuid,)>(
                    "select id from people where tenant_id = ?1 and handle = ?2",
                    params![format!("bob-{round}")],
                )?)
            });
            let [(person,)] = people.try_into().unwrap();
            let authors = visits.map(|note| {
                env.read(|reader| Ok(reader.entry_by_id(id::<kind::Note>(&note).uuid())?.unwrap().created_by))
            });
            assert_eq!(authors, [Some(person), Some(person)]);
        }
    }

    fn concurrent_deletions_have_one_winner(env: TestEnv) {
        for round in 0..ROUNDS {
            let role = env.role(&format!("coder-{round}"));
            let outcomes = run_twice_concurrently(|_| env.execute_json("delete_role", json!({ "name": role })));

            let (_, lost) = winner_and_loser(outcomes);
            assert_eq!(lost.0, ErrorKind::NotFound);
        }
    }

    fn deleting_agent_and_starting_its_run_exclude_each_other(env: TestEnv) {
        for round in 0..ROUNDS {
            let handle = format!("bot-{round}");
            env.agent(&handle);
            let outcomes = run_twice_concurrently(|number| match number {
                0 => env.execute_json("delete_agent", json!({ "name": handle })),
                _ => env.execute_json("start_run", json!({ "agent": handle })),
            });

            let (_, lost) = winner_and_loser(outcomes);
            assert!(matches!(lost.0, ErrorKind::NotFound | ErrorKind::Conflict), "{lost:?}");
        }
    }

    fn concurrent_parent_changes_cannot_form_a_cycle(env: TestEnv) {
        for round in 0..ROUNDS {
            let handles = [format!("bot-{round}"), format!("twin-{round}")];
            for handle in &handles {
                env.agent(handle);
            }
            let outcomes = run_twice_concurrently(|number| {
                env.execute_json("set_agent", json!({ "handle": handles[number], "parent": handles[1 - number] }))
            });

            let (_, lost) = winner_and_loser(outcomes);
            assert_eq!(lost.0, ErrorKind::Conflict);
        }
    }

    fn concurrent_steps_of_one_run_get_consecutive_positions(env: TestEnv) {
        let run = env.agent("ada-bot").start_run();
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..5 {
                        run.execute_json("record_step", json!({ "run": run.id, "type": "think" })).unwrap();
                    }
                });
            }
        });

        let positions = env.read(|reader| {
            Ok(reader.query::<(i64,)>(
                "select position from run_steps where tenant_id = ?1 and run_id = ?2 order by position",
                params![run.id],
            )?)
        });
        assert_eq!(positions, (1..=20).map(|position| (position,)).collect::<Vec<_>>());
    }

    fn concurrent_notes_are_all_stored_and_logged(env: TestEnv) {
        let before = env.events().len();
        thread::scope(|scope| {
            for writer in 0..8 {
                let env = &env;
                scope.spawn(move || {
                    for number in 0..25 {
                        let title = format!("{writer}.{number}");
                        env.execute_json("create_note", json!({ "studio": "main", "title": title })).unwrap();
                    }
                });
            }
        });

        let mut titles: Vec<_> = env
            .read(|reader| Ok(reader.rows::<Note>("where tenant_id = ?1", &[])?))
            .into_iter()
            .map(|note| note.title)
            .collect();
        titles.sort();
        let mut wanted: Vec<_> =
            (0..8).flat_map(|writer| (0..25).map(move |number| format!("{writer}.{number}"))).collect();
        wanted.sort();
        assert_eq!(titles, wanted);
        let mut events = env.events().split_off(before);
        events.sort();
        let wanted: Vec<_> =
            wanted.iter().map(|title| ("create_note".to_owned(), format!("main/notes/{title}"))).collect();
        assert_eq!(events, wanted);
    }

    fn concurrent_first_scratchpad_writes_have_one_winner(env: TestEnv) {
        for round in 0..ROUNDS {
            let run = env.agent(&format!("bot-{round}")).start_run();
            let outcomes =
                run_twice_concurrently(|number| run.execute_json("update_scratchpad", json!({ "content": number.to_string(), "if_revision": 0 })));

            let (won, lost) = winner_and_loser(outcomes);
            assert_eq!(won["revision"], json!(1));
            assert_eq!(lost, conflict("the scratchpad is at revision 1, not 0"));
        }
    }
}

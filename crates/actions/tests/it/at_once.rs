//! Two writers or many at once: one wins where only one can, and nothing is lost where all may.

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

/// Rounds of a race: one round could pass by luck.
const ROUNDS: usize = 10;

/// Does two things in two threads at the same moment.
fn both<T: Send>(deed: impl Fn(usize) -> T + Sync) -> [T; 2] {
    let start = Barrier::new(2);
    let begin = |number| {
        start.wait();
        deed(number)
    };
    thread::scope(|scope| [0, 1].map(|number| scope.spawn(move || begin(number))).map(joined))
}

fn joined<T>(thread: ScopedJoinHandle<'_, T>) -> T {
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// The answer to the one who won, and how the other was refused.
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

/// Those who write at once, and how much each of them does.
const CROWD: usize = 12;
const DEEDS: usize = 25;

engines! {
    fn of_many_who_write_at_once_each_has_its_own_way(env: TestEnv) {
        let ada = env.agent("ada-bot");
        let runs: Vec<_> = (0..CROWD).map(|_| ada.start_run()).collect();
        let seen = env.events().len();
        let count = |sql: &str, id: Uuid| env.read(|reader| Ok(reader.count(sql, params![id])?));
        let works = |run: &TestRun<'_>| {
            for deed in 0..DEEDS {
                let refused = run.act("create_note", json!({ "studio": "nowhere", "title": "plan", "body": "" }));
                assert_eq!(refused.unwrap_err().kind(), ErrorKind::NotFound);
                let note = run.create_note("main", &format!("plan {deed}"), "soup first");
                let found = count("select count(*) from notes where tenant_id = ?1 and id = ?2", note.uuid());
                assert_eq!(found, 1, "what was answered is there, whoever asks");
            }
        };

        thread::scope(|scope| {
            let working: Vec<_> = runs.iter().map(|run| scope.spawn(|| works(run))).collect();
            working.into_iter().for_each(joined);
        });

        let touches = "select count(*) from run_resources where tenant_id = ?1 and run_id = ?2";
        let touched: Vec<i64> = runs.iter().map(|run| count(touches, run.id.uuid())).collect();
        assert_eq!(touched, [i64::try_from(DEEDS).unwrap(); CROWD]);
        let logged = env.events().split_off(seen);
        assert_eq!(logged.iter().filter(|(action, _)| action == "create_note").count(), CROWD * DEEDS);
        assert_eq!(logged.len(), CROWD * DEEDS);
    }

    fn two_who_define_one_role_at_once_define_it_once(env: TestEnv) {
        for round in 0..ROUNDS {
            let name = format!("coder-{round}");
            let titles = ["Coder", "Programmer"];
            let answers =
                both(|number| env.act("set_role", json!({ "name": name, "title": titles[number] })).unwrap());

            assert_eq!(answers[0]["id"], answers[1]["id"]);
            assert_eq!(answers.iter().filter(|answer| answer["new"] == json!(true)).count(), 1);
            let rows = env.read(|reader| {
                Ok(reader.count("select count(*) from roles where tenant_id = ?1 and name = ?2", params![name])?)
            });
            assert_eq!(rows, 1);
        }
    }

    fn of_two_who_change_one_revision_at_once_one_wins(env: TestEnv) {
        env.workflow("build");
        env.task("build", "unit/go");
        for revision in 1..=ROUNDS {
            let task = json!({ "workflow": "build", "variant": "unit/go", "if_revision": revision });
            let outcomes = both(|number| {
                let mut task = task.clone();
                task["title"] = json!(format!("{revision}.{number}"));
                env.act("set_task", task)
            });

            let (won, lost) = winner_and_loser(outcomes);
            assert_eq!(won["revision"], json!(revision + 1));
            assert_eq!(lost, conflict(&format!("the task is at revision {}, not {revision}", revision + 1)));
        }
    }

    fn of_two_who_make_one_new_task_at_once_one_wins(env: TestEnv) {
        env.workflow("build");
        for round in 0..ROUNDS {
            let task = json!({ "workflow": "build", "variant": format!("unit/{round}"), "if_revision": 0 });
            let outcomes = both(|_| env.act("set_task", task.clone()));

            let (won, lost) = winner_and_loser(outcomes);
            assert_eq!(won["new"], json!(true));
            assert_eq!(lost, conflict("the task is at revision 1, not 0"));
        }
    }

    fn two_first_visits_are_of_one_person(env: TestEnv) {
        for round in 0..ROUNDS {
            let bob = Credential::User { tenant: "local".to_owned(), handle: format!("bob-{round}") };
            // Looking around enters nobody; both are entered by their first write.
            let visits = both(|visit| {
                let context = env.core.enter(&bob).unwrap();
                env.act_as(&context, "create_note", json!({ "studio": "main", "title": format!("{round} {visit}") })).unwrap()
            });

            let people = env.read(|reader| {
                Ok(reader.query::<(Uuid,)>(
                    "select id from people where tenant_id = ?1 and handle = ?2",
                    params![format!("bob-{round}")],
                )?)
            });
            let [(person,)] = people.try_into().unwrap();
            let authors = visits.map(|note| {
                env.read(|reader| Ok(reader.entry(id::<kind::Note>(&note).uuid())?.unwrap().created_by))
            });
            assert_eq!(authors, [Some(person), Some(person)]);
        }
    }

    fn a_role_is_deleted_once(env: TestEnv) {
        for round in 0..ROUNDS {
            let role = env.role(&format!("coder-{round}"));
            let outcomes = both(|_| env.act("delete_role", json!({ "name": role })));

            let (_, lost) = winner_and_loser(outcomes);
            assert_eq!(lost.0, ErrorKind::NotFound);
        }
    }

    fn an_agent_is_deleted_or_started_not_both(env: TestEnv) {
        for round in 0..ROUNDS {
            let handle = format!("bot-{round}");
            env.agent(&handle);
            let outcomes = both(|number| match number {
                0 => env.act("delete_agent", json!({ "name": handle })),
                _ => env.act("start_run", json!({ "agent": handle })),
            });

            let (_, lost) = winner_and_loser(outcomes);
            assert!(matches!(lost.0, ErrorKind::NotFound | ErrorKind::Conflict), "{lost:?}");
        }
    }

    fn two_agents_are_not_each_others_parent(env: TestEnv) {
        for round in 0..ROUNDS {
            let handles = [format!("bot-{round}"), format!("twin-{round}")];
            for handle in &handles {
                env.agent(handle);
            }
            let outcomes = both(|number| {
                env.act("set_agent", json!({ "handle": handles[number], "parent": handles[1 - number] }))
            });

            let (_, lost) = winner_and_loser(outcomes);
            assert_eq!(lost.0, ErrorKind::Conflict);
        }
    }

    fn steps_recorded_at_once_in_one_run_all_stand(env: TestEnv) {
        let run = env.agent("ada-bot").start_run();
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..5 {
                        run.act("record_step", json!({ "run": run.id, "type": "think" })).unwrap();
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

    fn many_writers_lose_nothing(env: TestEnv) {
        let seen = env.events().len();
        thread::scope(|scope| {
            for writer in 0..8 {
                let env = &env;
                scope.spawn(move || {
                    for number in 0..25 {
                        let title = format!("{writer}.{number}");
                        env.act("create_note", json!({ "studio": "main", "title": title })).unwrap();
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
        let mut events = env.events().split_off(seen);
        events.sort();
        let wanted: Vec<_> =
            wanted.iter().map(|title| ("create_note".to_owned(), format!("main/notes/{title}"))).collect();
        assert_eq!(events, wanted);
    }

    fn of_two_first_scratchpad_writers_one_wins(env: TestEnv) {
        for round in 0..ROUNDS {
            let run = env.agent(&format!("bot-{round}")).start_run();
            let outcomes =
                both(|number| run.act("update_scratchpad", json!({ "content": number.to_string(), "if_revision": 0 })));

            let (won, lost) = winner_and_loser(outcomes);
            assert_eq!(won["revision"], json!(1));
            assert_eq!(lost, conflict("the scratchpad is at revision 1, not 0"));
        }
    }
}

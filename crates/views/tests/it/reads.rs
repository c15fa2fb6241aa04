//! Reading: what is asked together is answered as if asked one by one, and what is told in short is what is told in full.

use std::cell::Cell;

use serde_json::{Map, json};
use trackway_actions::queue::{AddItem, CompleteItem, FailItem, TakeItems};
use trackway_domain::{ErrorKind, Id, Ref, Time, kind, words::RunStatus};
use trackway_store::{Error, Reader, Result, params};
use trackway_testkit::{TestEnv, engines};
use trackway_views::{
    View, page::Page, registry::VIEWS, run, run::ListRuns, task::history, task::history::TaskHistory,
};

fn versions_of(name: &str) -> impl Fn(&mut Reader<'_>) -> Result<Vec<String>> {
    let task = Ref::new(name);
    move |read| {
        // Each of these waits for the one before it.
        let id = read.resolve(&task)?;
        let history = TaskHistory { task: id.into() }.answer(read, Time::from_micros(0))?;
        let versions = history.versions.iter().map(|version| {
            let found = read
                .one::<(String,)>("select variant from tasks where tenant_id = ?1 and id = ?2", params![version.id])?;
            Ok(found.map_or_else(String::new, |(variant,)| variant))
        });
        versions.collect()
    }
}

/// Two versions of a task, with runs of each that ended in different ways.
fn versions_with_runs(env: &TestEnv) -> Id<kind::Task> {
    env.workflow("build");
    env.task("build", "v1");
    let newer = env.task("build", "v2");
    env.act("replace_task", json!({ "new": "v2", "old": "v1", "level": "minor" })).unwrap();
    let bot = env.agent("ada-bot");
    for (task, status) in [("v1", RunStatus::Completed), ("v2", RunStatus::Completed), ("v2", RunStatus::Failed)] {
        bot.start_run_on(task).end(status);
    }
    bot.start_run_on("v2");
    newer
}

engines! {
    fn questions_side_by_side_are_answered_as_one_by_one(env: TestEnv) {
        versions_with_runs(&env);
        env.task("build", "alone");

        let [both, alone] = env
            .read(|read| Ok(read.side_by_side(&[versions_of("v1"), versions_of("alone")])?))
            .try_into()
            .unwrap();

        assert_eq!((both, alone), (vec!["v2".to_owned(), "v1".to_owned()], vec!["alone".to_owned()]));
    }

    fn one_question_that_fails_side_by_side_fails_all(env: TestEnv) {
        versions_with_runs(&env);

        let outcome = env.read(|read| Ok(read.side_by_side(&[versions_of("v1"), versions_of("nowhere")])));

        assert!(matches!(&outcome, Err(Error::Rule(rule)) if rule.to_string() == "there is no task \"nowhere\""), "{outcome:?}");
    }

    fn who_never_asks_the_same_is_answered_nonetheless(env: TestEnv) {
        let asked = Cell::new(0);
        let restless = |read: &mut Reader<'_>| {
            asked.set(asked.get() + 1);
            read.count("select count(*) + ?2 from people where tenant_id = ?1", params![asked.get()])
        };

        let [counted] = env.read(|read| Ok(read.side_by_side(&[restless])?)).try_into().unwrap();

        assert_eq!(counted, 1 + asked.get());
    }

    fn what_is_told_of_a_task_in_short_is_in_its_history(env: TestEnv) {
        let task = versions_with_runs(&env);

        let (short, full) = env.read(|read| {
            Ok((history::outcomes(read, task)?, TaskHistory { task: task.into() }.answer(read, env.now())?))
        });

        let full: Vec<_> = full
            .versions
            .into_iter()
            .map(|version| history::Outcomes {
                variant: version.variant,
                replaces: version.replaces,
                runs: version.runs,
                newest_only: version.newest_only,
                succeeded: version.succeeded,
                running: version.running,
            })
            .collect();
        assert_eq!(short, full);
        assert_eq!(short.iter().map(|version| (version.runs, version.succeeded, version.running)).collect::<Vec<_>>(), [(3, 1, 1), (1, 1, 0)]);
    }

    fn of_a_thousand_runs_and_more_the_newest_are_looked_at(env: TestEnv) {
        env.workflow("build");
        env.act("set_task", json!({ "workflow": "build", "variant": "again", "recurring": true })).unwrap();
        let ran = |count: usize, succeeds: bool| {
            let items: Vec<_> = (0..count).map(|_| AddItem::of(Ref::new("again"))).collect();
            env.core.execute_all(&env.ada, &items).unwrap();
            let take = TakeItems { batch: i64::try_from(count).ok(), ..TakeItems::default() };
            let taken = env.core.execute(&env.ada, &take).unwrap();
            let held = taken.iter().map(|taken| (Ref::from(taken.id), taken.fence));
            if succeeds {
                let done: Vec<_> = held.map(|(id, fence)| CompleteItem { id, fence, result: None }).collect();
                env.core.execute_all(&env.ada, &done).unwrap();
            } else {
                let failed: Vec<_> = held.map(|(id, fence)| FailItem { id, fence, error: "no".into(), for_good: true }).collect();
                env.core.execute_all(&env.ada, &failed).unwrap();
            }
        };
        let looked_at = || {
            let history = env.read(|read| Ok(TaskHistory { task: Ref::new("again") }.answer(read, env.now())?));
            let version = &history.versions[0];
            let short = env.read(|read| Ok(history::outcomes(read, version.id)?));
            assert_eq!((short[0].runs, short[0].newest_only, short[0].succeeded), (version.runs, version.newest_only, version.succeeded));
            (version.runs, version.newest_only, version.succeeded, version.success_share, TaskHistory::remarks(&history).len())
        };

        ran(3, false);
        ran(997, true);
        assert_eq!(looked_at(), (1_000, false, 997, Some(0.997), 0));
        ran(2, true);
        assert_eq!(looked_at(), (1_000, true, 999, Some(0.999), 1));
    }

    fn no_question_takes_a_text_that_none_can_be(env: TestEnv) {
        let mut asked = 0;
        for view in VIEWS {
            let schema = (view.schema)().to_value();
            for field in schema["properties"].as_object().into_iter().flat_map(Map::keys) {
                for said in [json!("a\0b"), json!(["\0"])] {
                    let input = json!({ (field.as_str()): said });
                    let outcome = env.read(|read| Ok((view.with_json)(read, input.clone(), env.now())));
                    assert_eq!(outcome.unwrap_err().kind(), ErrorKind::Usage, "{:?} {input}", view.command);
                    asked += 1;
                }
            }
        }
        assert!(asked > 100, "{asked}");
        assert_eq!(env.read(|read| Ok(read.anything("a\0b")?)), None);
        let among = env.read(|read| Ok(read.resolve_among("task:a\0b", &[kind::Kind::Task])));
        assert!(matches!(&among, Err(Error::Rule(rule)) if rule.kind == ErrorKind::NotFound), "{among:?}");
    }

    fn runs_in_short_are_the_newest_of_the_list(env: TestEnv) {
        let task = versions_with_runs(&env);
        let page = Page { limit: Some(2), after: None };
        let list = ListRuns { agent: None, task: Some(task.into()), status: None, page };

        let (short, full) =
            env.read(|read| Ok((run::latest_on(read, task, 2)?, list.answer(read, env.now())?.rows)));

        let full: Vec<_> = full
            .into_iter()
            .map(|listed| run::RunInShort {
                id: listed.run.run.id,
                agent: listed.run.agent,
                status: listed.run.run.status,
                outcome: listed.run.run.outcome,
                started_at: listed.run.run.started_at,
                ended_at: listed.run.run.ended_at,
            })
            .collect();
        assert_eq!(short, full);
        assert_eq!(short.iter().map(|run| run.status).collect::<Vec<_>>(), [RunStatus::Running, RunStatus::Failed]);
    }
}

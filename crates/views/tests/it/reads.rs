//! Batched queries return the same results as single ones, and summaries agree with the full views.

use std::cell::Cell;

use serde_json::{Map, json};
use trackway_actions::queue::{AddItem, CompleteItem, FailItem, TakeItems};
use trackway_domain::{ErrorKind, Id, Ref, Time, enums::RunStatus, kind};
use trackway_store::{Error, Reader, Result, params};
use trackway_testkit::{TestEnv, engines};
use trackway_views::{
    View, page::Page, registry::VIEWS, run, run::ListRuns, task::history, task::history::TaskHistory,
};

fn versions_of(name: &str) -> impl Fn(&mut Reader<'_>) -> Result<Vec<String>> {
    let task = Ref::new(name);
    move |read| {
        // Each of these queries needs the result of the one before it.
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

/// Creates two versions of a task, with runs of each that ended differently.
fn versions_with_runs(env: &TestEnv) -> Id<kind::Task> {
    env.workflow("build");
    env.task("build", "v1");
    let newer = env.task("build", "v2");
    env.execute_json("replace_task", json!({ "new": "v2", "old": "v1", "level": "minor" })).unwrap();
    let bot = env.agent("ada-bot");
    for (task, status) in [("v1", RunStatus::Completed), ("v2", RunStatus::Completed), ("v2", RunStatus::Failed)] {
        bot.start_run_on(task).end(status);
    }
    bot.start_run_on("v2");
    newer
}

engines! {
    fn batched_queries_return_same_results_as_single_queries(env: TestEnv) {
        versions_with_runs(&env);
        env.task("build", "alone");

        let [both, alone] = env
            .read(|read| Ok(read.run_batched(&[versions_of("v1"), versions_of("alone")])?))
            .try_into()
            .unwrap();

        assert_eq!((both, alone), (vec!["v2".to_owned(), "v1".to_owned()], vec!["alone".to_owned()]));
    }

    fn failing_query_fails_the_whole_batch(env: TestEnv) {
        versions_with_runs(&env);

        let outcome = env.read(|read| Ok(read.run_batched(&[versions_of("v1"), versions_of("nowhere")])));

        assert!(matches!(&outcome, Err(Error::Rule(rule)) if rule.to_string() == "there is no task \"nowhere\""), "{outcome:?}");
    }

    fn batched_read_ends_even_if_its_query_changes_in_every_round(env: TestEnv) {
        let calls = Cell::new(0);
        let never_repeating = |read: &mut Reader<'_>| {
            calls.set(calls.get() + 1);
            read.count("select count(*) + ?2 from people where tenant_id = ?1", params![calls.get()])
        };

        let [counted] = env.read(|read| Ok(read.run_batched(&[never_repeating])?)).try_into().unwrap();

        assert_eq!(counted, 1 + calls.get());
    }

    fn version_outcomes_equal_task_history(env: TestEnv) {
        let task = versions_with_runs(&env);

        let (short, full) = env.read(|read| {
            Ok((history::version_outcomes(read, task)?, TaskHistory { task: task.into() }.answer(read, env.now())?))
        });

        let full: Vec<_> = full
            .versions
            .into_iter()
            .map(|version| history::VersionOutcomes {
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

    fn history_counts_at_most_the_newest_thousand_runs(env: TestEnv) {
        env.workflow("build");
        env.execute_json("set_task", json!({ "workflow": "build", "variant": "again", "recurring": true })).unwrap();
        let run_items = |count: usize, succeeds: bool| {
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
        let counted_runs = || {
            let history = env.read(|read| Ok(TaskHistory { task: Ref::new("again") }.answer(read, env.now())?));
            let version = &history.versions[0];
            let short = env.read(|read| Ok(history::version_outcomes(read, version.id)?));
            assert_eq!((short[0].runs, short[0].newest_only, short[0].succeeded), (version.runs, version.newest_only, version.succeeded));
            (version.runs, version.newest_only, version.succeeded, version.success_share, TaskHistory::remarks(&history).len())
        };

        run_items(3, false);
        run_items(997, true);
        assert_eq!(counted_runs(), (1_000, false, 997, Some(0.997), 0));
        run_items(2, true);
        assert_eq!(counted_runs(), (1_000, true, 999, Some(0.999), 1));
    }

    fn views_reject_nul_characters(env: TestEnv) {
        let mut checked = 0;
        for view in VIEWS {
            let schema = (view.schema)().to_value();
            for field in schema["properties"].as_object().into_iter().flat_map(Map::keys) {
                for value in [json!("a\0b"), json!(["\0"])] {
                    let input = json!({ (field.as_str()): value });
                    let outcome = env.read(|read| Ok((view.with_json)(read, input.clone(), env.now())));
                    assert_eq!(outcome.unwrap_err().kind(), ErrorKind::Usage, "{:?} {input}", view.command);
                    checked += 1;
                }
            }
        }
        assert!(checked > 100, "{checked}");
        assert_eq!(env.read(|read| Ok(read.find_entry("a\0b")?)), None);
        let among = env.read(|read| Ok(read.resolve_among("task:a\0b", &[kind::Kind::Task])));
        assert!(matches!(&among, Err(Error::Rule(rule)) if rule.kind == ErrorKind::NotFound), "{among:?}");
    }

    fn newest_runs_of_task_equal_the_run_list(env: TestEnv) {
        let task = versions_with_runs(&env);
        let page = Page { limit: Some(2), after: None };
        let list = ListRuns { agent: None, task: Some(task.into()), status: None, page };

        let (short, full) =
            env.read(|read| Ok((run::newest_of_task(read, task, 2)?, list.answer(read, env.now())?.rows)));

        let full: Vec<_> = full
            .into_iter()
            .map(|listed| run::RunSummary {
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

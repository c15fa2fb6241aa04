//! What names a task follows its versions: links, pins, routes, queue items, wakes and runs, on both engines.

use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};
use trackway_actions::{Credential, context::Secret};
use trackway_domain::{ErrorKind, Ref, words::RunStatus};
use trackway_store::params;
use trackway_testkit::{TestEnv, engines};
use trackway_views::{
    View,
    link::{LinkRow, ListLinks},
    queue::GetItem,
    ready::Ready,
    wake::{Wake, WakeShown},
    why::Why,
};

fn founded(env: &TestEnv) {
    env.workflow("q");
    env.role("coder");
}

fn set(env: &TestEnv, variant: &str, fields: Value) -> Value {
    let mut input = json!({ "workflow": "q", "variant": variant });
    input.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    env.act("set_task", input).unwrap()
}

fn task(env: &TestEnv, variant: &str) {
    set(env, variant, json!({}));
}

fn replaces(env: &TestEnv, new: &str, old: &str) {
    set(env, new, json!({ "replaces": old }));
}

fn archive(env: &TestEnv, variant: &str, archived: bool) {
    set(env, variant, json!({ "archived": archived }));
}

fn link(env: &TestEnv, from: &str, to: &str) -> Value {
    env.act("add_link", json!({ "from": from, "to": to, "type": "blocks" })).unwrap()
}

fn status(env: &TestEnv, variant: &str) -> String {
    env.read(|read| {
        let sql = "select status from tasks where tenant_id = ?1 and variant = ?2";
        Ok(read.one::<(String,)>(sql, params![variant])?.unwrap().0)
    })
}

fn ready(env: &TestEnv) -> Vec<String> {
    let listed = env.read(|read| Ok(Ready { limit: None, after: None }.answer(read, env.now())?));
    listed.rows.iter().map(|row| row.shown.task.variant.to_string()).collect()
}

fn links(env: &TestEnv, variant: &str) -> Vec<LinkRow> {
    env.read(|read| Ok(ListLinks { task: Ref::new(variant) }.answer(read, env.now())?))
}

fn item(env: &TestEnv, id: &Value) -> Value {
    let shown = env.read(|read| Ok(GetItem { item: Ref::new(id.as_str().unwrap()) }.answer(read, env.now())?));
    serde_json::to_value(shown).unwrap()
}

/// Status, version asked for, version run, version that would run, and why.
fn state(env: &TestEnv, id: &Value) -> [Value; 5] {
    let item = item(env, id);
    ["status", "variant", "run_variant", "would_run", "why"].map(|field| item[field].clone())
}

fn take(env: &TestEnv) -> Value {
    env.act("queue_take", json!({})).unwrap()[0].clone()
}

fn held(item: &Value) -> Value {
    json!({ "id": item["id"], "fence": item["fence"] })
}

fn linked(env: &TestEnv, variant: &str) -> Value {
    let wake = Wake { task: Ref::new(variant), agent: None, explain: false, linked: true };
    match env.read(|read| Ok(wake.answer(read, env.now())?)) {
        WakeShown::Document(document) => serde_json::from_str(&document.text).unwrap(),
        WakeShown::Context(context) => panic!("{context:?}"),
    }
}

fn told(env: &TestEnv, variant: &str, agent: &str) -> String {
    let wake = Wake { task: Ref::new(variant), agent: Some(Ref::new(agent)), explain: false, linked: false };
    match env.read(|read| Ok(wake.answer(read, env.now())?)) {
        WakeShown::Context(context) => context.text,
        WakeShown::Document(document) => panic!("{document:?}"),
    }
}

fn report(env: &TestEnv, agent: &str, task: &str, content: &str) {
    let report = json!({ "agent": agent, "task": task, "one_liner": "a line", "tldr": "short", "content": content });
    env.act("set_report", report).unwrap();
}

fn refused(outcome: trackway_actions::Result<Value>) -> (ErrorKind, String) {
    let error = outcome.unwrap_err();
    (error.kind(), error.to_string())
}

engines! {
    fn a_blocker_is_done_when_its_current_version_is(env: TestEnv) {
        founded(&env);
        for variant in ["build/v1", "ship"] {
            task(&env, variant);
        }
        link(&env, "build/v1", "ship");
        replaces(&env, "build/v2", "build/v1");
        replaces(&env, "build/v3", "build/v2");
        assert_eq!(ready(&env), ["build/v3"]);
        set(&env, "build/v1", json!({ "status": "done" }));
        assert_eq!(ready(&env), ["build/v3"], "an older version that is done does not count");
        let [row] = &links(&env, "ship")[..] else { panic!() };
        assert_eq!((row.from.as_str(), row.from_current.as_ref().unwrap().as_str(), row.blocks_now), ("build/v1", "build/v3", true));
        set(&env, "build/v3", json!({ "status": "done" }));
        assert_eq!(ready(&env), ["ship"]);
        let listed = env.read(|read| Ok(Ready { limit: None, after: None }.answer(read, env.now())?));
        let looked_at = serde_json::to_value(&listed.rows[0].blockers).unwrap();
        assert_eq!(looked_at, json!([{ "variant": "build/v1", "current": "build/v3", "status": "done" }]));

        // The current version is archived: the one before it is current again, and open.
        archive(&env, "build/v3", true);
        assert_eq!(ready(&env), ["build/v2"]);
        env.act("delete_task", json!({ "task": "build/v2" })).unwrap();
        assert_eq!(ready(&env), ["ship"], "build/v1 is current and done");
        archive(&env, "build/v1", true);
        assert_eq!(ready(&env), ["ship"], "a blocker without a live version does not block");
        let [row] = &links(&env, "ship")[..] else { panic!() };
        assert_eq!((row.from_current.clone(), row.blocks_now), (None, false));
        assert_eq!(env.core.store().unsound().unwrap(), Vec::<String>::new());
    }

    fn a_newer_version_of_a_blocked_task_is_blocked(env: TestEnv) {
        founded(&env);
        for variant in ["build", "ship/v1"] {
            task(&env, variant);
        }
        let made = link(&env, "build", "ship/v1");
        replaces(&env, "ship/v2", "ship/v1");
        assert_eq!(ready(&env), ["build"]);
        let [row] = &links(&env, "ship/v2")[..] else { panic!() };
        assert_eq!((row.to.as_str(), row.to_current.as_ref().unwrap().as_str(), row.relation.as_str(), row.blocks_now), ("ship/v1", "ship/v2", "is_blocked_by", true));
        env.act("delete_link", json!({ "link": made["id"] })).unwrap();
        assert_eq!(ready(&env), ["build", "ship/v2"]);
    }

    fn a_link_inside_one_lineage_never_blocks(env: TestEnv) {
        founded(&env);
        for variant in ["a", "b"] {
            task(&env, variant);
        }
        link(&env, "a", "b");
        assert_eq!(ready(&env), ["a"]);
        env.act("replace_task", json!({ "new": "b", "old": "a" })).unwrap();
        assert_eq!(ready(&env), ["b"]);
    }

    fn cycles_through_replacements_and_links_are_refused(env: TestEnv) {
        founded(&env);
        for variant in ["a", "b", "c", "a2"] {
            task(&env, variant);
        }
        link(&env, "a", "b");
        link(&env, "b", "c");
        link(&env, "c", "a2");
        let joined = refused(env.act("replace_task", json!({ "new": "a2", "old": "a" })));
        assert_eq!(joined, (ErrorKind::Conflict, "that would make a cycle: a blocks b blocks c blocks a2, where a2 and a would be versions of one task".to_owned()));
        replaces(&env, "a3", "a");
        let linked = refused(env.act("add_link", json!({ "from": "c", "to": "a3", "type": "blocks" })));
        assert_eq!(linked, (ErrorKind::Conflict, "that would make a cycle: c blocks a3 blocks b blocks c".replace("a3 blocks b", "a blocks b")));
        assert_eq!(ready(&env), ["a3"]);
    }

    fn an_item_runs_the_version_that_counts_when_it_is_taken(env: TestEnv) {
        founded(&env);
        set(&env, "go/v1", json!({ "role": "coder", "recurring": true }));
        replaces(&env, "go/v2", "go/v1");
        let queued = env.act("queue_add", json!({ "task": "go/v1" })).unwrap();
        let exact = env.act("queue_add", json!({ "task": "go/v1", "exact": true })).unwrap();
        assert_eq!(state(&env, &queued["id"]), [json!("ready"), json!("go/v1"), json!(null), json!("go/v2"), json!(null)]);
        assert_eq!(state(&env, &exact["id"])[3], "go/v1");
        // Queued: the pin is set after it was added.
        env.act("set_package", json!({ "role": "coder", "task": "go/v1" })).unwrap();
        assert_eq!(state(&env, &queued["id"])[3], "go/v1");
        env.act("set_package", json!({ "role": "coder", "task": "go/v2" })).unwrap();
        let taken = take(&env);
        assert_eq!((&taken["id"], &taken["variant"]), (&queued["id"], &json!("go/v2")));
        // Leased: it keeps its version.
        env.act("set_package", json!({ "role": "coder", "task": "go/v1" })).unwrap();
        assert_eq!(state(&env, &queued["id"]), [json!("running"), json!("go/v1"), json!("go/v2"), json!(null), json!(null)]);
        // Retried: it is resolved again.
        let mut failed = held(&taken);
        failed["error"] = json!("no luck");
        env.act("queue_fail", failed).unwrap();
        assert_eq!(state(&env, &queued["id"]), [json!("waiting"), json!("go/v1"), json!("go/v2"), json!("go/v1"), json!(null)]);
        env.act("queue_requeue", json!({ "id": queued["id"] })).unwrap();
        assert_eq!(take(&env)["variant"], "go/v1", "the exact one was first in the queue");
        let again = take(&env);
        assert_eq!((&again["id"], &again["variant"]), (&queued["id"], &json!("go/v1")));
        // Waiting: a pin whose version is archived does not count.
        let later = env.act("queue_add", json!({ "task": "go/v2", "not_before": "2199-01-01T00:00:00Z" })).unwrap();
        assert_eq!(state(&env, &later["id"])[3], "go/v1");
        archive(&env, "go/v1", true);
        assert_eq!(state(&env, &later["id"])[3], "go/v2");
    }

    fn an_item_without_a_live_version_is_blocked_until_there_is_one(env: TestEnv) {
        founded(&env);
        set(&env, "go/v1", json!({ "recurring": true }));
        let queued = env.act("queue_add", json!({ "task": "go/v1", "why": "a friend asked" })).unwrap();
        archive(&env, "go/v1", true);
        let reason = "no live version of go/v1: every version is archived or deleted";
        assert_eq!(state(&env, &queued["id"]), [json!("blocked"), json!("go/v1"), json!(null), json!(null), json!(format!("{reason}\na friend asked"))]);
        assert_eq!(env.act("queue_take", json!({})).unwrap(), json!([]));
        assert_eq!(refused(env.act("queue_requeue", json!({ "id": queued["id"] }))).0, ErrorKind::Conflict);
        assert_eq!(
            refused(env.act("queue_add", json!({ "task": "go/v1" }))),
            (ErrorKind::Conflict, "task go/v1 is archived, and nothing live replaces it".to_owned())
        );
        replaces(&env, "go/v2", "go/v1");
        assert_eq!(state(&env, &queued["id"]), [json!("ready"), json!("go/v1"), json!(null), json!("go/v2"), json!("a friend asked")]);
        // Exactly that version, which is archived.
        assert_eq!(refused(env.act("queue_add", json!({ "task": "go/v1", "exact": true }))).1, "task go/v1 is archived");
        env.act("delete_task", json!({ "task": "go/v2" })).unwrap();
        assert_eq!(state(&env, &queued["id"])[0], "blocked");
        archive(&env, "go/v1", false);
        assert_eq!(take(&env)["variant"], "go/v1");
        assert_eq!(env.core.store().unsound().unwrap(), Vec::<String>::new());
    }

    fn a_route_follows_the_versions_of_its_task(env: TestEnv) {
        founded(&env);
        set(&env, "fix/v1", json!({ "recurring": true }));
        replaces(&env, "fix/v2", "fix/v1");
        let route = |input: Value| env.act("set_route", input).unwrap();
        assert_eq!(route(json!({ "tag": "bug", "task": "fix/v1", "role": "coder" }))["would_run"], "fix/v2");
        env.act("set_package", json!({ "role": "coder", "task": "fix/v1" })).unwrap();
        assert_eq!(route(json!({ "tag": "bug", "task": "fix/v1", "role": "coder" }))["would_run"], "fix/v1");
        assert_eq!(route(json!({ "tag": "old", "task": "fix/v1", "exact": true }))["would_run"], "fix/v1");
        let send = |input: Value| env.act("send_message", input).unwrap();
        send(json!({ "body": "it fails", "tags": ["bug"], "role": "coder" }));
        assert_eq!(take(&env)["variant"], "fix/v1");
        send(json!({ "body": "to the task", "to_task": "fix/v1" }));
        assert_eq!(take(&env)["variant"], "fix/v2");
        send(json!({ "body": "to exactly that", "to_task": "fix/v1", "exact": true }));
        assert_eq!(take(&env)["variant"], "fix/v1");
        // Nothing is lost while no version is live.
        for variant in ["fix/v1", "fix/v2"] {
            archive(&env, variant, true);
        }
        let sent = send(json!({ "body": "and again", "tags": ["bug"], "role": "coder" }));
        assert_eq!(sent["notices"], json!(["no live version of fix/v1: every version is archived or deleted: the item is blocked"]));
        assert_eq!(state(&env, &sent["queue_item_id"])[0], "blocked");
        archive(&env, "fix/v2", false);
        assert_eq!(take(&env)["id"], sent["queue_item_id"]);
    }

    fn a_claim_takes_the_current_version(env: TestEnv) {
        founded(&env);
        set(&env, "go/v1", json!({ "role": "coder" }));
        replaces(&env, "go/v2", "go/v1");
        env.act("set_package", json!({ "role": "coder", "task": "go/v1" })).unwrap();
        let claimed = env.act("claim", json!({ "task": "go/v1" })).unwrap()[0].clone();
        assert_eq!((&claimed["variant"], status(&env, "go/v2").as_str()), (&json!("go/v2"), "in_progress"));
        assert_eq!(refused(env.act("claim", json!({ "task": "go/v1" }))).1, "task go/v2 is claimed by worker already");
        env.act("queue_complete", held(&claimed)).unwrap();
        assert_eq!((status(&env, "go/v1").as_str(), status(&env, "go/v2").as_str()), ("open", "done"));
    }

    fn a_new_version_begins_with_the_definition_of_the_old_one(env: TestEnv) {
        founded(&env);
        let fields = json!({ "title": "Test it", "role": "coder", "script": "make test", "priority": "P0", "tags": ["a"], "timeout": "90m", "status": "done" });
        set(&env, "unit/v1", fields);
        set(&env, "unit/v2", json!({ "replaces": "unit/v1", "title": "Test it well" }));
        let row = env.read(|read| Ok(read.row::<trackway_store::tables::Task>("where tenant_id = ?1 and variant = ?2", params![*"unit/v2"])?.unwrap()));
        let shown = serde_json::to_value(&row).unwrap();
        let expected = json!({ "title": "Test it well", "script": "make test", "priority": "P0", "tags": ["a"], "status": "open", "revision": 1, "archived": false });
        for (field, value) in expected.as_object().unwrap() {
            assert_eq!(&shown[field], value, "{field}");
        }
        assert!(row.role_id.is_some() && row.timeout.is_some() && row.variant.as_str() == "unit/v2");
        set(&env, "unit/v3", json!({ "replaces": "unit/v2", "script": null }));
        let script = env.read(|read| Ok(read.one::<(Option<String>,)>("select script from tasks where tenant_id = ?1 and variant = ?2", params![*"unit/v3"])?));
        assert_eq!(script, Some((None,)));
    }

    fn a_run_moves_its_task(env: TestEnv) {
        founded(&env);
        for variant in ["one", "kept", "often"] {
            task(&env, variant);
        }
        set(&env, "often", json!({ "recurring": true }));
        task(&env, "after");
        link(&env, "one", "after");
        let ada = env.agent("ada");
        let (first, second) = (ada.start_run_on("one"), ada.start_run_on("one"));
        assert_eq!((status(&env, "one").as_str(), ready(&env)), ("in_progress", vec!["kept".to_owned()]));
        first.end(RunStatus::Completed);
        assert_eq!(status(&env, "one"), "in_progress", "another run works on it");
        second.end(RunStatus::Failed);
        assert_eq!(status(&env, "one"), "open");
        let third = ada.start_run_on("one");
        let child = env.act("start_run", json!({ "agent": "ada", "task": "kept", "parent": third.id })).unwrap();
        assert_eq!(status(&env, "kept"), "open", "a run with a parent does not move its task");
        set(&env, "one", json!({ "status": "open" }));
        assert_eq!(ready(&env), Vec::<String>::new(), "a task that is worked on is not ready");
        env.act("end_run", json!({ "run": child["run_id"], "status": "completed" })).unwrap();
        third.end(RunStatus::Completed);
        assert_eq!((status(&env, "one").as_str(), status(&env, "kept").as_str()), ("done", "open"));
        assert_eq!(ready(&env), ["kept", "after"]);
        let kept = env.act("start_run", json!({ "agent": "ada", "task": "kept", "keep_open": true })).unwrap();
        assert_eq!(status(&env, "kept"), "in_progress");
        env.act("end_run", json!({ "run": kept["run_id"], "status": "completed" })).unwrap();
        assert_eq!(status(&env, "kept"), "open");
        let cancelled = ada.start_run_on("kept");
        env.act("cancel_run", json!({ "run": cancelled.id })).unwrap();
        assert_eq!(status(&env, "kept"), "open");
        let run = ada.start_run_on("kept");
        run.act("end_run", json!({ "run": run.id, "status": "completed", "keep_open": true })).unwrap();
        assert_eq!(status(&env, "kept"), "open");
        let often = ada.start_run_on("often");
        often.end(RunStatus::Completed);
        assert_eq!(status(&env, "often"), "open", "a recurring task keeps its status");
    }

    fn a_wake_shows_the_current_version_of_linked_tasks(env: TestEnv) {
        founded(&env);
        env.agent("ada");
        for variant in ["main", "lib/v1"] {
            task(&env, variant);
        }
        env.act("add_link", json!({ "from": "main", "to": "lib/v1", "type": "relates_to" })).unwrap();
        report(&env, "ada", "lib/v1", "first findings");
        replaces(&env, "lib/v2", "lib/v1");
        let row = linked(&env, "main")["linked_to"][0].clone();
        assert_eq!((&row["title"], &row["linkedAs"]["variant"]), (&json!("lib/v2"), &json!("lib/v1")));
        assert_eq!(row["latestTaskAgentReport"], "first findings", "the newest version that has one");
        report(&env, "ada", "lib/v2", "more findings");
        env.act("add_link", json!({ "from": "main", "to": "lib/v2", "type": "blocks" })).unwrap();
        let rows = linked(&env, "main")["linked_to"].clone();
        assert_eq!(rows.as_array().unwrap().len(), 1, "one row per lineage");
        assert_eq!((&rows[0]["relations"], &rows[0]["linkedAs"]), (&json!(["blocks", "relates_to"]), &json!(null)));
        assert_eq!(rows[0]["latestTaskAgentReport"], "more findings");
        archive(&env, "lib/v2", true);
        assert_eq!(linked(&env, "main")["linked_to"][0]["title"], "lib/v1");
        archive(&env, "lib/v1", true);
        assert_eq!(linked(&env, "main"), json!({}));
    }

    fn a_new_version_wakes_with_links_boards_and_report_of_the_one_before_it(env: TestEnv) {
        founded(&env);
        env.agent("ada");
        env.agent("bob");
        for variant in ["main/v1", "other", "third"] {
            task(&env, variant);
        }
        env.act("add_link", json!({ "from": "main/v1", "to": "other", "type": "relates_to" })).unwrap();
        env.act("set_board", json!({ "name": "plan", "task": "main/v1" })).unwrap();
        report(&env, "ada", "main/v1", "what ada found");
        replaces(&env, "main/v2", "main/v1");
        replaces(&env, "main/v3", "main/v2");
        assert_eq!(linked(&env, "main/v3")["linked_to"][0]["title"], "other");
        let text = told(&env, "main/v3", "bob");
        for part in ["pinned to: main/v1, which this task replaces", "on: main/v1, which this task replaces", "by: ada", "what ada found"] {
            assert!(text.contains(part), "{part}\n{text}");
        }
        // Its own take their place.
        env.act("add_link", json!({ "from": "third", "to": "main/v3", "type": "blocks" })).unwrap();
        env.act("set_board", json!({ "name": "newer", "task": "main/v3" })).unwrap();
        report(&env, "bob", "main/v3", "what bob found");
        let document = linked(&env, "main/v3");
        assert_eq!((&document["linked_from"][0]["title"], &document["linked_to"]), (&json!("third"), &json!([])));
        let text = told(&env, "main/v3", "bob");
        assert!(text.contains("what bob found") && text.contains("newer") && !text.contains("which this task replaces"), "{text}");
    }

    fn a_message_leads_to_a_report_that_others_wake_with(env: TestEnv) {
        founded(&env);
        let studio = "main";
        env.act("set_agent", json!({ "handle": "ada", "role": "coder" })).unwrap();
        task(&env, "fix/v1");
        replaces(&env, "fix/v2", "fix/v1");
        task(&env, "release");
        env.act("add_link", json!({ "from": "release", "to": "fix/v1", "type": "relates_to" })).unwrap();
        env.act("set_route", json!({ "tag": "bug", "role": "coder", "task": "fix/v2" })).unwrap();
        env.act("set_package", json!({ "role": "coder", "task": "fix/v1" })).unwrap();
        let decision = env.act("create_decision", json!({ "studio": studio, "question": "How?", "options": ["lock", "queue"] })).unwrap();

        let sent = env.act("send_message", json!({ "body": "It hangs", "tags": ["bug"], "role": "coder" })).unwrap();
        let taken = env.act("queue_take", json!({ "agent": "ada" })).unwrap()[0].clone();
        assert_eq!((&taken["id"], &taken["variant"]), (&sent["queue_item_id"], &json!("fix/v1")), "the pin of the role");
        let token = Credential::Token(Secret(taken["token"].as_str().unwrap().to_owned()));
        let run = env.core.enter(&token).unwrap();
        let act = |action: &str, input: Value| env.act_as(&run, action, input).unwrap();
        let note = act("create_note", json!({ "studio": studio, "title": "Race", "body": "Two writers." }));
        act("vote", json!({ "decision": decision["id"], "option": "lock", "accept": true }));
        act("update_scratchpad", json!({ "content": "Look at the lock first." }));
        act("update_report", json!({ "one_liner": "Found it", "tldr": "A race.", "content": "Two writers, one map." }));
        act("end_run", json!({ "run": taken["run_id"], "status": "completed" }));

        let row = linked(&env, "release")["linked_to"][0].clone();
        assert_eq!((&row["title"], &row["linkedAs"]["variant"]), (&json!("fix/v2"), &json!("fix/v1")));
        assert_eq!(row["latestTaskAgentReport"], "Two writers, one map.");
        assert!(told(&env, "fix/v2", "ada").contains("Look at the lock first."));
        let chain = env.read(|read| Ok(Why { thing: note["id"].as_str().unwrap().to_owned() }.answer(read, env.now())?));
        let hops: Vec<(String, String)> =
            chain.recorded().map(|hop| (hop.kind.to_owned(), hop.label.clone())).collect();
        let kinds: Vec<&str> = hops.iter().map(|(kind, _)| kind.as_str()).collect();
        for kind in ["resource", "run", "agent", "role", "task", "queue_item", "route", "message", "person"] {
            assert!(kinds.contains(&kind), "{kind} in {hops:?}");
        }
        let label = |kind: &str| hops.iter().find(|(found, _)| found == kind).unwrap().1.clone();
        assert!(label("task").contains("fix/v1") && label("person").contains("ada"), "{hops:?}");
    }

    fn a_lineage_of_a_thousand_versions_is_followed(env: TestEnv) {
        founded(&env);
        let version = |number: usize| format!("v/{number}");
        for number in 0..1_000 {
            task(&env, &version(number));
        }
        task(&env, "after");
        link(&env, "v/0", "after");
        let queued = env.act("queue_add", json!({ "task": "v/0" })).unwrap();
        // The newest first: then each replacement changes the current version of one task only.
        for number in (1..1_000).rev() {
            env.act("replace_task", json!({ "new": version(number), "old": version(number - 1) })).unwrap();
        }
        assert_eq!(state(&env, &queued["id"])[3], "v/999");
        assert_eq!(ready(&env), Vec::<String>::new());
        let taken = take(&env);
        assert_eq!(taken["variant"], "v/999");
        env.act("queue_complete", held(&taken)).unwrap();
        assert_eq!(ready(&env), ["after"]);
        assert_eq!(linked(&env, "v/999")["linked_to"][0]["title"], "after", "inherited through all of them");
        assert_eq!(linked(&env, "after")["linked_from"][0]["linkedAs"]["variant"], "v/0");
    }

    fn a_deleted_task_closes_no_cycle(env: TestEnv) {
        founded(&env);
        for variant in ["a", "b", "c"] {
            task(&env, variant);
        }
        link(&env, "a", "b");
        link(&env, "b", "c");
        assert_eq!(refused(env.act("add_link", json!({ "from": "c", "to": "a", "type": "blocks" }))).0, ErrorKind::Conflict);
        archive(&env, "b", true);
        assert_eq!(refused(env.act("add_link", json!({ "from": "c", "to": "a", "type": "blocks" }))).0, ErrorKind::Conflict, "it can come back");
        env.act("delete_task", json!({ "task": "b" })).unwrap();
        link(&env, "c", "a");
        assert_eq!(ready(&env), ["c"]);
    }

    fn the_report_of_a_linked_task_follows_replacements_and_not_ages(env: TestEnv) {
        founded(&env);
        env.agent("ada");
        // Defined first, and made the newer version afterwards.
        for variant in ["new", "old", "main"] {
            task(&env, variant);
        }
        env.act("replace_task", json!({ "new": "new", "old": "old" })).unwrap();
        env.act("add_link", json!({ "from": "main", "to": "old", "type": "relates_to" })).unwrap();
        let row = || linked(&env, "main")["linked_to"][0].clone();
        report(&env, "ada", "old", "of the old version");
        assert_eq!(row()["latestTaskAgentReport"], "of the old version");
        report(&env, "ada", "new", "of the new version");
        report(&env, "ada", "old", "of the old version again");
        assert_eq!((&row()["title"], &row()["latestTaskAgentReport"]), (&json!("new"), &json!("of the new version")));
        replaces(&env, "newest", "new");
        env.act("delete_task", json!({ "task": "new" })).unwrap();
        assert_eq!(row()["latestTaskAgentReport"], "of the new version", "a deleted version keeps its reports");
        assert_eq!(env.core.store().unsound().unwrap(), Vec::<String>::new());
    }

    fn a_version_that_replaces_two_inherits_from_the_nearest_that_has_something(env: TestEnv) {
        founded(&env);
        env.agent("ada");
        for variant in ["first", "second", "merged", "other"] {
            task(&env, variant);
        }
        env.act("add_link", json!({ "from": "first", "to": "other", "type": "relates_to" })).unwrap();
        env.act("set_board", json!({ "name": "plan", "task": "first" })).unwrap();
        report(&env, "ada", "first", "what ada found");
        env.act("replace_task", json!({ "new": "merged", "old": "first" })).unwrap();
        env.act("replace_task", json!({ "new": "merged", "old": "second" })).unwrap();
        assert_eq!(linked(&env, "merged")["linked_to"][0]["title"], "other");
        let text = told(&env, "merged", "ada");
        for part in ["pinned to: first, which this task replaces", "what ada found"] {
            assert!(text.contains(part), "{part}\n{text}");
        }
        // Both have one: the version that was replaced last counts.
        env.act("set_board", json!({ "name": "later", "task": "second" })).unwrap();
        let text = told(&env, "merged", "ada");
        assert!(text.contains("pinned to: second, which this task replaces") && !text.contains("pinned to: first"), "{text}");
    }

    fn own_links_and_boards_count_when_archived(env: TestEnv) {
        founded(&env);
        env.agent("ada");
        for variant in ["x", "y", "main/v1"] {
            task(&env, variant);
        }
        env.act("add_link", json!({ "from": "main/v1", "to": "x", "type": "fixes" })).unwrap();
        env.act("set_board", json!({ "name": "old wall", "task": "main/v1" })).unwrap();
        replaces(&env, "main/v2", "main/v1");
        env.act("add_link", json!({ "from": "main/v2", "to": "y", "type": "fixes" })).unwrap();
        env.act("set_board", json!({ "name": "new wall", "task": "main/v2" })).unwrap();
        assert_eq!(linked(&env, "main/v2")["linked_to"][0]["title"], "y");
        archive(&env, "y", true);
        assert_eq!(linked(&env, "main/v2"), json!({}), "not the links of the version before it");
        env.act("archive_board", json!({ "id": "new wall" })).unwrap();
        let text = told(&env, "main/v2", "ada");
        assert!(!text.contains("old wall") && !text.contains("new wall"), "{text}");
    }

    fn a_workflow_is_inherited_too(env: TestEnv) {
        founded(&env);
        task(&env, "unit/v1");
        let made = env.act("set_task", json!({ "variant": "unit/v2", "replaces": "unit/v1" })).unwrap();
        assert_eq!((&made["workflow"], &made["new"]), (&json!("q"), &json!(true)));
        let changed = env.act("set_task", json!({ "variant": "unit/v2", "title": "Test it" })).unwrap();
        assert_eq!((&changed["workflow"], &changed["new"]), (&json!("q"), &json!(false)));
        assert_eq!(refused(env.act("set_task", json!({ "variant": "lone" }))), (ErrorKind::Usage, "a new task needs a workflow".to_owned()));
    }

    fn a_reason_to_block_goes_with_the_block(env: TestEnv) {
        founded(&env);
        task(&env, "go/v1");
        let queued = env.act("queue_add", json!({ "task": "go/v1", "why": "a friend asked" })).unwrap();
        archive(&env, "go/v1", true);
        env.act("queue_cancel", json!({ "id": queued["id"] })).unwrap();
        archive(&env, "go/v1", false);
        env.act("queue_requeue", json!({ "id": queued["id"] })).unwrap();
        assert_eq!(state(&env, &queued["id"]), [json!("ready"), json!("go/v1"), json!(null), json!("go/v1"), json!("a friend asked")]);
    }

    fn items_queued_while_versions_come_and_go_are_ready_or_blocked_as_their_versions_are(env: TestEnv) {
        founded(&env);
        set(&env, "go/v1", json!({ "recurring": true }));
        set(&env, "go/v2", json!({ "recurring": true }));
        env.act("set_route", json!({ "tag": "go", "task": "go/v1" })).unwrap();
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for number in 0..3 {
                let (env, over) = (&env, &over);
                scope.spawn(move || {
                    while !over.load(Ordering::Relaxed) {
                        // Refused while no version is live.
                        let _ = match number {
                            0 => env.act("queue_add", json!({ "task": "go/v1" })),
                            1 => env.act("send_message", json!({ "body": "go", "tags": ["go"] })),
                            _ => env.act("queue_take", json!({})).and_then(|taken| match taken.get(0) {
                                Some(item) => env.act("queue_release", held(item)),
                                None => Ok(taken),
                            }),
                        };
                    }
                });
            }
            for round in 0..30 {
                archive(&env, "go/v1", round % 2 == 0);
                match round {
                    10 => _ = env.act("replace_task", json!({ "new": "go/v2", "old": "go/v1" })).unwrap(),
                    11.. => archive(&env, "go/v2", round % 3 > 0),
                    _ => {}
                }
            }
            over.store(true, Ordering::Relaxed);
        });
        assert_eq!(env.core.store().unsound().unwrap(), Vec::<String>::new());
    }
}

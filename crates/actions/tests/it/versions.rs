//! Links, pins, routes, queue items, wakes and runs follow the versions of a task, on both engines.

use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};
use trackway_actions::{Credential, context::Secret};
use trackway_domain::{ErrorKind, Ref, enums::RunStatus};
use trackway_store::params;
use trackway_testkit::{TestEnv, engines};
use trackway_views::{
    View,
    link::{LinkRow, ListLinks},
    queue::GetItem,
    ready::Ready,
    wake::{Wake, WakeOutput},
    why::Why,
};

fn create_workflow_and_role(env: &TestEnv) {
    env.workflow("q");
    env.role("coder");
}

fn set(env: &TestEnv, variant: &str, fields: Value) -> Value {
    let mut input = json!({ "workflow": "q", "variant": variant });
    input.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    env.execute_json("set_task", input).unwrap()
}

fn task(env: &TestEnv, variant: &str) {
    set(env, variant, json!({}));
}

fn replace(env: &TestEnv, new: &str, old: &str) {
    set(env, new, json!({ "replaces": old }));
}

fn archive(env: &TestEnv, variant: &str, archived: bool) {
    set(env, variant, json!({ "archived": archived }));
}

fn link(env: &TestEnv, from: &str, to: &str) -> Value {
    env.execute_json("add_link", json!({ "from": from, "to": to, "type": "blocks" })).unwrap()
}

fn status(env: &TestEnv, variant: &str) -> String {
    env.read(|read| {
        let sql = "select status from tasks where tenant_id = ?1 and variant = ?2";
        Ok(read.one::<(String,)>(sql, params![variant])?.unwrap().0)
    })
}

fn ready_variants(env: &TestEnv) -> Vec<String> {
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

/// Status, requested version, version of the last run, version that would run now, and reason.
fn state(env: &TestEnv, id: &Value) -> [Value; 5] {
    let item = item(env, id);
    ["status", "variant", "run_variant", "would_run", "why"].map(|field| item[field].clone())
}

fn take(env: &TestEnv) -> Value {
    env.execute_json("queue_take", json!({})).unwrap()[0].clone()
}

fn id_and_fence(item: &Value) -> Value {
    json!({ "id": item["id"], "fence": item["fence"] })
}

fn linked_task_document(env: &TestEnv, variant: &str) -> Value {
    let wake = Wake { task: Ref::new(variant), agent: None, explain: false, linked: true };
    match env.read(|read| Ok(wake.answer(read, env.now())?)) {
        WakeOutput::Document(document) => serde_json::from_str(&document.text).unwrap(),
        WakeOutput::Context(context) => panic!("{context:?}"),
    }
}

fn wake_text(env: &TestEnv, variant: &str, agent: &str) -> String {
    let wake = Wake { task: Ref::new(variant), agent: Some(Ref::new(agent)), explain: false, linked: false };
    match env.read(|read| Ok(wake.answer(read, env.now())?)) {
        WakeOutput::Context(context) => context.text,
        WakeOutput::Document(document) => panic!("{document:?}"),
    }
}

fn report(env: &TestEnv, agent: &str, task: &str, content: &str) {
    let report = json!({ "agent": agent, "task": task, "one_liner": "a line", "tldr": "short", "content": content });
    env.execute_json("set_report", report).unwrap();
}

fn rejection(outcome: trackway_actions::Result<Value>) -> (ErrorKind, String) {
    let error = outcome.unwrap_err();
    (error.kind(), error.to_string())
}

engines! {
    fn blocker_counts_as_done_when_its_current_version_is_done(env: TestEnv) {
        create_workflow_and_role(&env);
        for variant in ["build/v1", "ship"] {
            task(&env, variant);
        }
        link(&env, "build/v1", "ship");
        replace(&env, "build/v2", "build/v1");
        replace(&env, "build/v3", "build/v2");
        assert_eq!(ready_variants(&env), ["build/v3"]);
        set(&env, "build/v1", json!({ "status": "done" }));
        assert_eq!(ready_variants(&env), ["build/v3"], "an older version that is done does not count");
        let [row] = &links(&env, "ship")[..] else { panic!() };
        assert_eq!((row.from.as_str(), row.from_current.as_ref().unwrap().as_str(), row.blocks_now), ("build/v1", "build/v3", true));
        set(&env, "build/v3", json!({ "status": "done" }));
        assert_eq!(ready_variants(&env), ["ship"]);
        let listed = env.read(|read| Ok(Ready { limit: None, after: None }.answer(read, env.now())?));
        let looked_at = serde_json::to_value(&listed.rows[0].blockers).unwrap();
        assert_eq!(looked_at, json!([{ "variant": "build/v1", "current": "build/v3", "status": "done" }]));

        // Archiving the current version makes the one before it current again, with its status `open`.
        archive(&env, "build/v3", true);
        assert_eq!(ready_variants(&env), ["build/v2"]);
        env.execute_json("delete_task", json!({ "task": "build/v2" })).unwrap();
        assert_eq!(ready_variants(&env), ["ship"], "build/v1 is current and done");
        archive(&env, "build/v1", true);
        assert_eq!(ready_variants(&env), ["ship"], "a blocker without a live version does not block");
        let [row] = &links(&env, "ship")[..] else { panic!() };
        assert_eq!((row.from_current.clone(), row.blocks_now), (None, false));
        assert_eq!(env.core.store().integrity_findings().unwrap(), Vec::<String>::new());
    }

    fn newer_version_of_a_blocked_task_is_blocked(env: TestEnv) {
        create_workflow_and_role(&env);
        for variant in ["build", "ship/v1"] {
            task(&env, variant);
        }
        let made = link(&env, "build", "ship/v1");
        replace(&env, "ship/v2", "ship/v1");
        assert_eq!(ready_variants(&env), ["build"]);
        let [row] = &links(&env, "ship/v2")[..] else { panic!() };
        assert_eq!((row.to.as_str(), row.to_current.as_ref().unwrap().as_str(), row.relation.as_str(), row.blocks_now), ("ship/v1", "ship/v2", "is_blocked_by", true));
        env.execute_json("delete_link", json!({ "link": made["id"] })).unwrap();
        assert_eq!(ready_variants(&env), ["build", "ship/v2"]);
    }

    fn link_inside_one_lineage_never_blocks(env: TestEnv) {
        create_workflow_and_role(&env);
        for variant in ["a", "b"] {
            task(&env, variant);
        }
        link(&env, "a", "b");
        assert_eq!(ready_variants(&env), ["a"]);
        env.execute_json("replace_task", json!({ "new": "b", "old": "a" })).unwrap();
        assert_eq!(ready_variants(&env), ["b"]);
    }

    fn rejects_cycles_of_replacements_and_links(env: TestEnv) {
        create_workflow_and_role(&env);
        for variant in ["a", "b", "c", "a2"] {
            task(&env, variant);
        }
        link(&env, "a", "b");
        link(&env, "b", "c");
        link(&env, "c", "a2");
        let joined = rejection(env.execute_json("replace_task", json!({ "new": "a2", "old": "a" })));
        assert_eq!(joined, (ErrorKind::Conflict, "that would make a cycle: a blocks b blocks c blocks a2, where a2 and a would be versions of one task".to_owned()));
        replace(&env, "a3", "a");
        let linked = rejection(env.execute_json("add_link", json!({ "from": "c", "to": "a3", "type": "blocks" })));
        assert_eq!(linked, (ErrorKind::Conflict, "that would make a cycle: c blocks a3 blocks b blocks c".replace("a3 blocks b", "a blocks b")));
        assert_eq!(ready_variants(&env), ["a3"]);
    }

    fn item_runs_the_version_resolved_when_it_is_taken(env: TestEnv) {
        create_workflow_and_role(&env);
        set(&env, "go/v1", json!({ "role": "coder", "recurring": true }));
        replace(&env, "go/v2", "go/v1");
        let queued = env.execute_json("queue_add", json!({ "task": "go/v1" })).unwrap();
        let exact = env.execute_json("queue_add", json!({ "task": "go/v1", "exact": true })).unwrap();
        assert_eq!(state(&env, &queued["id"]), [json!("ready"), json!("go/v1"), json!(null), json!("go/v2"), json!(null)]);
        assert_eq!(state(&env, &exact["id"])[3], "go/v1");
        // A queued item follows a pin that is set after the item was added.
        env.execute_json("set_package", json!({ "role": "coder", "task": "go/v1" })).unwrap();
        assert_eq!(state(&env, &queued["id"])[3], "go/v1");
        env.execute_json("set_package", json!({ "role": "coder", "task": "go/v2" })).unwrap();
        let taken = take(&env);
        assert_eq!((&taken["id"], &taken["variant"]), (&queued["id"], &json!("go/v2")));
        // A leased item keeps its version.
        env.execute_json("set_package", json!({ "role": "coder", "task": "go/v1" })).unwrap();
        assert_eq!(state(&env, &queued["id"]), [json!("running"), json!("go/v1"), json!("go/v2"), json!(null), json!(null)]);
        // A retry resolves the version again.
        let mut failed = id_and_fence(&taken);
        failed["error"] = json!("no luck");
        env.execute_json("queue_fail", failed).unwrap();
        assert_eq!(state(&env, &queued["id"]), [json!("waiting"), json!("go/v1"), json!("go/v2"), json!("go/v1"), json!(null)]);
        env.execute_json("queue_requeue", json!({ "id": queued["id"] })).unwrap();
        assert_eq!(take(&env)["variant"], "go/v1", "the exact one was first in the queue");
        let again = take(&env);
        assert_eq!((&again["id"], &again["variant"]), (&queued["id"], &json!("go/v1")));
        // A pin of an archived version is ignored.
        let later = env.execute_json("queue_add", json!({ "task": "go/v2", "not_before": "2199-01-01T00:00:00Z" })).unwrap();
        assert_eq!(state(&env, &later["id"])[3], "go/v1");
        archive(&env, "go/v1", true);
        assert_eq!(state(&env, &later["id"])[3], "go/v2");
    }

    fn item_is_blocked_while_no_version_is_live(env: TestEnv) {
        create_workflow_and_role(&env);
        set(&env, "go/v1", json!({ "recurring": true }));
        let queued = env.execute_json("queue_add", json!({ "task": "go/v1", "why": "a friend asked" })).unwrap();
        archive(&env, "go/v1", true);
        let reason = "no live version of go/v1: it is archived or deleted, and no live version replaces it";
        assert_eq!(state(&env, &queued["id"]), [json!("blocked"), json!("go/v1"), json!(null), json!(null), json!(format!("{reason}\na friend asked"))]);
        assert_eq!(env.execute_json("queue_take", json!({})).unwrap(), json!([]));
        assert_eq!(rejection(env.execute_json("queue_requeue", json!({ "id": queued["id"] }))).0, ErrorKind::Conflict);
        assert_eq!(
            rejection(env.execute_json("queue_add", json!({ "task": "go/v1" }))),
            (ErrorKind::Conflict, "task go/v1 is archived, and no live version replaces it".to_owned())
        );
        replace(&env, "go/v2", "go/v1");
        assert_eq!(state(&env, &queued["id"]), [json!("ready"), json!("go/v1"), json!(null), json!("go/v2"), json!("a friend asked")]);
        // `exact` requests the archived version itself.
        assert_eq!(rejection(env.execute_json("queue_add", json!({ "task": "go/v1", "exact": true }))).1, "task go/v1 is archived");
        env.execute_json("delete_task", json!({ "task": "go/v2" })).unwrap();
        assert_eq!(state(&env, &queued["id"])[0], "blocked");
        archive(&env, "go/v1", false);
        assert_eq!(take(&env)["variant"], "go/v1");
        assert_eq!(env.core.store().integrity_findings().unwrap(), Vec::<String>::new());
    }

    fn route_follows_the_versions_of_its_task(env: TestEnv) {
        create_workflow_and_role(&env);
        set(&env, "fix/v1", json!({ "recurring": true }));
        replace(&env, "fix/v2", "fix/v1");
        let route = |input: Value| env.execute_json("set_route", input).unwrap();
        assert_eq!(route(json!({ "tag": "bug", "task": "fix/v1", "role": "coder" }))["would_run"], "fix/v2");
        env.execute_json("set_package", json!({ "role": "coder", "task": "fix/v1" })).unwrap();
        assert_eq!(route(json!({ "tag": "bug", "task": "fix/v1", "role": "coder" }))["would_run"], "fix/v1");
        assert_eq!(route(json!({ "tag": "old", "task": "fix/v1", "exact": true }))["would_run"], "fix/v1");
        let send = |input: Value| env.execute_json("send_message", input).unwrap();
        send(json!({ "body": "it fails", "tags": ["bug"], "role": "coder" }));
        assert_eq!(take(&env)["variant"], "fix/v1");
        send(json!({ "body": "to the task", "to_task": "fix/v1" }));
        assert_eq!(take(&env)["variant"], "fix/v2");
        send(json!({ "body": "to exactly that", "to_task": "fix/v1", "exact": true }));
        assert_eq!(take(&env)["variant"], "fix/v1");
        // Messages are queued as blocked items while no version is live.
        for variant in ["fix/v1", "fix/v2"] {
            archive(&env, variant, true);
        }
        let sent = send(json!({ "body": "and again", "tags": ["bug"], "role": "coder" }));
        assert_eq!(sent["notices"], json!(["no live version of fix/v1: it is archived or deleted, and no live version replaces it: the item is blocked"]));
        assert_eq!(state(&env, &sent["queue_item_id"])[0], "blocked");
        archive(&env, "fix/v2", false);
        assert_eq!(take(&env)["id"], sent["queue_item_id"]);
    }

    fn claim_takes_the_current_version(env: TestEnv) {
        create_workflow_and_role(&env);
        set(&env, "go/v1", json!({ "role": "coder" }));
        replace(&env, "go/v2", "go/v1");
        env.execute_json("set_package", json!({ "role": "coder", "task": "go/v1" })).unwrap();
        let claimed = env.execute_json("claim", json!({ "task": "go/v1" })).unwrap()[0].clone();
        assert_eq!((&claimed["variant"], status(&env, "go/v2").as_str()), (&json!("go/v2"), "in_progress"));
        assert_eq!(rejection(env.execute_json("claim", json!({ "task": "go/v1" }))).1, "task go/v2 is already claimed by worker");
        env.execute_json("queue_complete", id_and_fence(&claimed)).unwrap();
        assert_eq!((status(&env, "go/v1").as_str(), status(&env, "go/v2").as_str()), ("open", "done"));
    }

    fn new_version_inherits_the_definition_of_the_replaced_version(env: TestEnv) {
        create_workflow_and_role(&env);
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

    fn run_changes_status_of_its_task(env: TestEnv) {
        create_workflow_and_role(&env);
        for variant in ["one", "kept", "often"] {
            task(&env, variant);
        }
        set(&env, "often", json!({ "recurring": true }));
        task(&env, "after");
        link(&env, "one", "after");
        let ada = env.agent("ada");
        let (first, second) = (ada.start_run_on("one"), ada.start_run_on("one"));
        assert_eq!((status(&env, "one").as_str(), ready_variants(&env)), ("in_progress", vec!["kept".to_owned()]));
        first.end(RunStatus::Completed);
        assert_eq!(status(&env, "one"), "in_progress", "another run works on it");
        second.end(RunStatus::Failed);
        assert_eq!(status(&env, "one"), "open");
        let third = ada.start_run_on("one");
        let child = env.execute_json("start_run", json!({ "agent": "ada", "task": "kept", "parent": third.id })).unwrap();
        assert_eq!(status(&env, "kept"), "open", "a run with a parent does not move its task");
        set(&env, "one", json!({ "status": "open" }));
        assert_eq!(ready_variants(&env), Vec::<String>::new(), "a task that is worked on is not ready");
        env.execute_json("end_run", json!({ "run": child["run_id"], "status": "completed" })).unwrap();
        third.end(RunStatus::Completed);
        assert_eq!((status(&env, "one").as_str(), status(&env, "kept").as_str()), ("done", "open"));
        assert_eq!(ready_variants(&env), ["kept", "after"]);
        let kept = env.execute_json("start_run", json!({ "agent": "ada", "task": "kept", "keep_open": true })).unwrap();
        assert_eq!(status(&env, "kept"), "in_progress");
        env.execute_json("end_run", json!({ "run": kept["run_id"], "status": "completed" })).unwrap();
        assert_eq!(status(&env, "kept"), "open");
        let cancelled = ada.start_run_on("kept");
        env.execute_json("cancel_run", json!({ "run": cancelled.id })).unwrap();
        assert_eq!(status(&env, "kept"), "open");
        let run = ada.start_run_on("kept");
        run.execute_json("end_run", json!({ "run": run.id, "status": "completed", "keep_open": true })).unwrap();
        assert_eq!(status(&env, "kept"), "open");
        let often = ada.start_run_on("often");
        often.end(RunStatus::Completed);
        assert_eq!(status(&env, "often"), "open", "a recurring task keeps its status");
    }

    fn wake_shows_the_current_version_of_linked_tasks(env: TestEnv) {
        create_workflow_and_role(&env);
        env.agent("ada");
        for variant in ["main", "lib/v1"] {
            task(&env, variant);
        }
        env.execute_json("add_link", json!({ "from": "main", "to": "lib/v1", "type": "relates_to" })).unwrap();
        report(&env, "ada", "lib/v1", "first findings");
        replace(&env, "lib/v2", "lib/v1");
        let row = linked_task_document(&env, "main")["linked_to"][0].clone();
        assert_eq!((&row["title"], &row["linkedAs"]["variant"]), (&json!("lib/v2"), &json!("lib/v1")));
        assert_eq!(row["latestTaskAgentReport"], "first findings", "the newest version that has one");
        report(&env, "ada", "lib/v2", "more findings");
        env.execute_json("add_link", json!({ "from": "main", "to": "lib/v2", "type": "blocks" })).unwrap();
        let rows = linked_task_document(&env, "main")["linked_to"].clone();
        assert_eq!(rows.as_array().unwrap().len(), 1, "one row per lineage");
        assert_eq!((&rows[0]["relations"], &rows[0]["linkedAs"]), (&json!(["blocks", "relates_to"]), &json!(null)));
        assert_eq!(rows[0]["latestTaskAgentReport"], "more findings");
        archive(&env, "lib/v2", true);
        assert_eq!(linked_task_document(&env, "main")["linked_to"][0]["title"], "lib/v1");
        archive(&env, "lib/v1", true);
        assert_eq!(linked_task_document(&env, "main"), json!({}));
    }

    fn new_version_inherits_links_boards_and_report_in_wakes(env: TestEnv) {
        create_workflow_and_role(&env);
        env.agent("ada");
        env.agent("bob");
        for variant in ["main/v1", "other", "third"] {
            task(&env, variant);
        }
        env.execute_json("add_link", json!({ "from": "main/v1", "to": "other", "type": "relates_to" })).unwrap();
        env.execute_json("set_board", json!({ "name": "plan", "task": "main/v1" })).unwrap();
        report(&env, "ada", "main/v1", "what ada found");
        replace(&env, "main/v2", "main/v1");
        replace(&env, "main/v3", "main/v2");
        assert_eq!(linked_task_document(&env, "main/v3")["linked_to"][0]["title"], "other");
        let text = wake_text(&env, "main/v3", "bob");
        for part in ["pinned to: main/v1, which this task replaces", "on: main/v1, which this task replaces", "by: ada", "what ada found"] {
            assert!(text.contains(part), "{part}\n{text}");
        }
        // A version's own links, board and report replace the inherited ones.
        env.execute_json("add_link", json!({ "from": "third", "to": "main/v3", "type": "blocks" })).unwrap();
        env.execute_json("set_board", json!({ "name": "newer", "task": "main/v3" })).unwrap();
        report(&env, "bob", "main/v3", "what bob found");
        let document = linked_task_document(&env, "main/v3");
        assert_eq!((&document["linked_from"][0]["title"], &document["linked_to"]), (&json!("third"), &json!([])));
        let text = wake_text(&env, "main/v3", "bob");
        assert!(text.contains("what bob found") && text.contains("newer") && !text.contains("which this task replaces"), "{text}");
    }

    fn message_leads_to_a_report_in_the_wake_of_a_linked_task(env: TestEnv) {
        create_workflow_and_role(&env);
        let studio = "main";
        env.execute_json("set_agent", json!({ "handle": "grace", "role": "coder" })).unwrap();
        task(&env, "fix/v1");
        replace(&env, "fix/v2", "fix/v1");
        task(&env, "release");
        env.execute_json("add_link", json!({ "from": "release", "to": "fix/v1", "type": "relates_to" })).unwrap();
        env.execute_json("set_route", json!({ "tag": "bug", "role": "coder", "task": "fix/v2" })).unwrap();
        env.execute_json("set_package", json!({ "role": "coder", "task": "fix/v1" })).unwrap();
        let decision = env.execute_json("create_decision", json!({ "studio": studio, "question": "How?", "options": ["lock", "queue"] })).unwrap();

        let sent = env.execute_json("send_message", json!({ "body": "It hangs", "tags": ["bug"], "role": "coder" })).unwrap();
        let taken = env.execute_json("queue_take", json!({ "agent": "grace" })).unwrap()[0].clone();
        assert_eq!((&taken["id"], &taken["variant"]), (&sent["queue_item_id"], &json!("fix/v1")), "the pin of the role");
        let token = Credential::Token(Secret(taken["token"].as_str().unwrap().to_owned()));
        let run = env.core.authenticate(&token).unwrap();
        let act = |action: &str, input: Value| env.execute_json_as(&run, action, input).unwrap();
        let note = act("create_note", json!({ "studio": studio, "title": "Race", "body": "Two writers." }));
        act("vote", json!({ "decision": decision["id"], "option": "lock", "accept": true }));
        act("update_scratchpad", json!({ "content": "Look at the lock first." }));
        act("update_report", json!({ "one_liner": "Found it", "tldr": "A race.", "content": "Two writers, one map." }));
        act("end_run", json!({ "run": taken["run_id"], "status": "completed" }));

        let row = linked_task_document(&env, "release")["linked_to"][0].clone();
        assert_eq!((&row["title"], &row["linkedAs"]["variant"]), (&json!("fix/v2"), &json!("fix/v1")));
        assert_eq!(row["latestTaskAgentReport"], "Two writers, one map.");
        assert!(wake_text(&env, "fix/v2", "grace").contains("Look at the lock first."));
        let chain = env.read(|read| Ok(Why { thing: note["id"].as_str().unwrap().to_owned() }.answer(read, env.now())?));
        let hops: Vec<(String, String)> =
            chain.recorded().map(|hop| (hop.kind.to_owned(), hop.label.clone())).collect();
        let kinds: Vec<&str> = hops.iter().map(|(kind, _)| kind.as_str()).collect();
        for kind in ["resource", "run", "agent", "role", "task", "queue_item", "route", "message", "person"] {
            assert!(kinds.contains(&kind), "{kind} in {hops:?}");
        }
        let label = |kind: &str| hops.iter().find(|(found, _)| found == kind).unwrap().1.clone();
        assert!(label("task").contains("fix/v1") && label("agent").contains("grace") && label("person").contains("ada"), "{hops:?}");
    }

    fn lineage_of_a_thousand_versions_is_resolved(env: TestEnv) {
        create_workflow_and_role(&env);
        let version = |number: usize| format!("v/{number}");
        for number in 0..1_000 {
            task(&env, &version(number));
        }
        task(&env, "after");
        link(&env, "v/0", "after");
        let queued = env.execute_json("queue_add", json!({ "task": "v/0" })).unwrap();
        // In this order each replacement changes the current version of only one task, which keeps the test fast.
        for number in (1..1_000).rev() {
            env.execute_json("replace_task", json!({ "new": version(number), "old": version(number - 1) })).unwrap();
        }
        assert_eq!(state(&env, &queued["id"])[3], "v/999");
        assert_eq!(ready_variants(&env), Vec::<String>::new());
        let taken = take(&env);
        assert_eq!(taken["variant"], "v/999");
        env.execute_json("queue_complete", id_and_fence(&taken)).unwrap();
        assert_eq!(ready_variants(&env), ["after"]);
        assert_eq!(linked_task_document(&env, "v/999")["linked_to"][0]["title"], "after", "inherited through all of them");
        assert_eq!(linked_task_document(&env, "after")["linked_from"][0]["linkedAs"]["variant"], "v/0");
    }

    fn deleted_task_is_not_part_of_a_cycle(env: TestEnv) {
        create_workflow_and_role(&env);
        for variant in ["a", "b", "c"] {
            task(&env, variant);
        }
        link(&env, "a", "b");
        link(&env, "b", "c");
        assert_eq!(rejection(env.execute_json("add_link", json!({ "from": "c", "to": "a", "type": "blocks" }))).0, ErrorKind::Conflict);
        archive(&env, "b", true);
        assert_eq!(rejection(env.execute_json("add_link", json!({ "from": "c", "to": "a", "type": "blocks" }))).0, ErrorKind::Conflict, "it can come back");
        env.execute_json("delete_task", json!({ "task": "b" })).unwrap();
        link(&env, "c", "a");
        assert_eq!(ready_variants(&env), ["c"]);
    }

    fn report_of_linked_task_comes_from_the_newest_version(env: TestEnv) {
        create_workflow_and_role(&env);
        env.agent("ada");
        // The newer version is created first, so the order of creation would select the wrong report.
        for variant in ["new", "old", "main"] {
            task(&env, variant);
        }
        env.execute_json("replace_task", json!({ "new": "new", "old": "old" })).unwrap();
        env.execute_json("add_link", json!({ "from": "main", "to": "old", "type": "relates_to" })).unwrap();
        let row = || linked_task_document(&env, "main")["linked_to"][0].clone();
        report(&env, "ada", "old", "of the old version");
        assert_eq!(row()["latestTaskAgentReport"], "of the old version");
        report(&env, "ada", "new", "of the new version");
        report(&env, "ada", "old", "of the old version again");
        assert_eq!((&row()["title"], &row()["latestTaskAgentReport"]), (&json!("new"), &json!("of the new version")));
        replace(&env, "newest", "new");
        env.execute_json("delete_task", json!({ "task": "new" })).unwrap();
        assert_eq!(row()["latestTaskAgentReport"], "of the new version", "a deleted version keeps its reports");
        assert_eq!(env.core.store().integrity_findings().unwrap(), Vec::<String>::new());
    }

    fn version_that_replaces_two_versions_inherits_from_both(env: TestEnv) {
        create_workflow_and_role(&env);
        env.agent("ada");
        for variant in ["first", "second", "merged", "other"] {
            task(&env, variant);
        }
        env.execute_json("add_link", json!({ "from": "first", "to": "other", "type": "relates_to" })).unwrap();
        env.execute_json("set_board", json!({ "name": "plan", "task": "first" })).unwrap();
        report(&env, "ada", "first", "what ada found");
        env.execute_json("replace_task", json!({ "new": "merged", "old": "first" })).unwrap();
        env.execute_json("replace_task", json!({ "new": "merged", "old": "second" })).unwrap();
        assert_eq!(linked_task_document(&env, "merged")["linked_to"][0]["title"], "other");
        let text = wake_text(&env, "merged", "ada");
        for part in ["pinned to: first, which this task replaces", "what ada found"] {
            assert!(text.contains(part), "{part}\n{text}");
        }
        // If both replaced versions have a board, the board of the version that was replaced last counts.
        env.execute_json("set_board", json!({ "name": "later", "task": "second" })).unwrap();
        let text = wake_text(&env, "merged", "ada");
        assert!(text.contains("pinned to: second, which this task replaces") && !text.contains("pinned to: first"), "{text}");
    }

    fn archived_own_links_and_boards_hide_inherited_ones(env: TestEnv) {
        create_workflow_and_role(&env);
        env.agent("ada");
        for variant in ["x", "y", "main/v1"] {
            task(&env, variant);
        }
        env.execute_json("add_link", json!({ "from": "main/v1", "to": "x", "type": "fixes" })).unwrap();
        env.execute_json("set_board", json!({ "name": "old wall", "task": "main/v1" })).unwrap();
        replace(&env, "main/v2", "main/v1");
        env.execute_json("add_link", json!({ "from": "main/v2", "to": "y", "type": "fixes" })).unwrap();
        env.execute_json("set_board", json!({ "name": "new wall", "task": "main/v2" })).unwrap();
        assert_eq!(linked_task_document(&env, "main/v2")["linked_to"][0]["title"], "y");
        archive(&env, "y", true);
        assert_eq!(linked_task_document(&env, "main/v2"), json!({}), "not the links of the version before it");
        env.execute_json("archive_board", json!({ "id": "new wall" })).unwrap();
        let text = wake_text(&env, "main/v2", "ada");
        assert!(!text.contains("old wall") && !text.contains("new wall"), "{text}");
    }

    fn new_version_inherits_the_workflow(env: TestEnv) {
        create_workflow_and_role(&env);
        task(&env, "unit/v1");
        let made = env.execute_json("set_task", json!({ "variant": "unit/v2", "replaces": "unit/v1" })).unwrap();
        assert_eq!((&made["workflow"], &made["new"]), (&json!("q"), &json!(true)));
        let changed = env.execute_json("set_task", json!({ "variant": "unit/v2", "title": "Test it" })).unwrap();
        assert_eq!((&changed["workflow"], &changed["new"]), (&json!("q"), &json!(false)));
        assert_eq!(rejection(env.execute_json("set_task", json!({ "variant": "lone" }))), (ErrorKind::Usage, "a new task needs a workflow".to_owned()));
    }

    fn block_reason_is_removed_with_the_block(env: TestEnv) {
        create_workflow_and_role(&env);
        task(&env, "go/v1");
        let queued = env.execute_json("queue_add", json!({ "task": "go/v1", "why": "a friend asked" })).unwrap();
        archive(&env, "go/v1", true);
        env.execute_json("queue_cancel", json!({ "id": queued["id"] })).unwrap();
        archive(&env, "go/v1", false);
        env.execute_json("queue_requeue", json!({ "id": queued["id"] })).unwrap();
        assert_eq!(state(&env, &queued["id"]), [json!("ready"), json!("go/v1"), json!(null), json!("go/v1"), json!("a friend asked")]);
    }

    fn concurrent_version_changes_keep_item_status_consistent(env: TestEnv) {
        create_workflow_and_role(&env);
        set(&env, "go/v1", json!({ "recurring": true }));
        set(&env, "go/v2", json!({ "recurring": true }));
        env.execute_json("set_route", json!({ "tag": "go", "task": "go/v1" })).unwrap();
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for number in 0..3 {
                let (env, over) = (&env, &over);
                scope.spawn(move || {
                    while !over.load(Ordering::Relaxed) {
                        // Adding fails while no version is live.
                        let _ = match number {
                            0 => env.execute_json("queue_add", json!({ "task": "go/v1" })),
                            1 => env.execute_json("send_message", json!({ "body": "go", "tags": ["go"] })),
                            _ => env.execute_json("queue_take", json!({})).and_then(|taken| match taken.get(0) {
                                Some(item) => env.execute_json("queue_release", id_and_fence(item)),
                                None => Ok(taken),
                            }),
                        };
                    }
                });
            }
            for round in 0..30 {
                archive(&env, "go/v1", round % 2 == 0);
                match round {
                    10 => _ = env.execute_json("replace_task", json!({ "new": "go/v2", "old": "go/v1" })).unwrap(),
                    11.. => archive(&env, "go/v2", round % 3 > 0),
                    _ => {}
                }
            }
            over.store(true, Ordering::Relaxed);
        });
        assert_eq!(env.core.store().integrity_findings().unwrap(), Vec::<String>::new());
    }
}

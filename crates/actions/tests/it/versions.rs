//! What names a task follows its versions: links, pins, routes, queue items, wakes and runs, on both engines.

use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};
use trackway_actions::{Credential, context::Secret};
use trackway_domain::{ErrorKind, Ref, words::RunStatus};
use trackway_store::params;
use trackway_testkit::{House, engines};
use trackway_views::{
    View,
    link::{LinkRow, ListLinks},
    queue::GetItem,
    ready::Ready,
    wake::{Wake, WakeShown},
    why::Why,
};

fn founded(house: &House) {
    house.workflow("q");
    house.role("coder");
}

fn set(house: &House, variant: &str, fields: Value) -> Value {
    let mut input = json!({ "workflow": "q", "variant": variant });
    input.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    house.act("set_task", input).unwrap()
}

fn task(house: &House, variant: &str) {
    set(house, variant, json!({}));
}

fn replaces(house: &House, new: &str, old: &str) {
    set(house, new, json!({ "replaces": old }));
}

fn archive(house: &House, variant: &str, archived: bool) {
    set(house, variant, json!({ "archived": archived }));
}

fn link(house: &House, from: &str, to: &str) -> Value {
    house.act("add_link", json!({ "from": from, "to": to, "type": "blocks" })).unwrap()
}

fn status(house: &House, variant: &str) -> String {
    house.read(|read| {
        let sql = "select status from tasks where tenant_id = ?1 and variant = ?2";
        Ok(read.one::<(String,)>(sql, params![variant])?.unwrap().0)
    })
}

fn ready(house: &House) -> Vec<String> {
    let listed = house.read(|read| Ok(Ready { limit: None, after: None }.answer(read, house.now())?));
    listed.rows.iter().map(|row| row.shown.task.variant.to_string()).collect()
}

fn links(house: &House, variant: &str) -> Vec<LinkRow> {
    house.read(|read| Ok(ListLinks { task: Ref::new(variant) }.answer(read, house.now())?))
}

fn item(house: &House, id: &Value) -> Value {
    let shown = house.read(|read| Ok(GetItem { item: Ref::new(id.as_str().unwrap()) }.answer(read, house.now())?));
    serde_json::to_value(shown).unwrap()
}

/// Status, version asked for, version run, version that would run, and why.
fn state(house: &House, id: &Value) -> [Value; 5] {
    let item = item(house, id);
    ["status", "variant", "run_variant", "would_run", "why"].map(|field| item[field].clone())
}

fn take(house: &House) -> Value {
    house.act("queue_take", json!({})).unwrap()[0].clone()
}

fn held(item: &Value) -> Value {
    json!({ "id": item["id"], "fence": item["fence"] })
}

fn linked(house: &House, variant: &str) -> Value {
    let wake = Wake { task: Ref::new(variant), agent: None, explain: false, linked: true };
    match house.read(|read| Ok(wake.answer(read, house.now())?)) {
        WakeShown::Document(document) => serde_json::from_str(&document.text).unwrap(),
        WakeShown::Context(context) => panic!("{context:?}"),
    }
}

fn told(house: &House, variant: &str, agent: &str) -> String {
    let wake = Wake { task: Ref::new(variant), agent: Some(Ref::new(agent)), explain: false, linked: false };
    match house.read(|read| Ok(wake.answer(read, house.now())?)) {
        WakeShown::Context(context) => context.text,
        WakeShown::Document(document) => panic!("{document:?}"),
    }
}

fn report(house: &House, agent: &str, task: &str, content: &str) {
    let report = json!({ "agent": agent, "task": task, "one_liner": "a line", "tldr": "short", "content": content });
    house.act("set_report", report).unwrap();
}

fn refused(outcome: trackway_actions::Result<Value>) -> (ErrorKind, String) {
    let error = outcome.unwrap_err();
    (error.kind(), error.to_string())
}

engines! {
    fn a_blocker_is_done_when_its_current_version_is(house: House) {
        founded(&house);
        for variant in ["build/v1", "ship"] {
            task(&house, variant);
        }
        link(&house, "build/v1", "ship");
        replaces(&house, "build/v2", "build/v1");
        replaces(&house, "build/v3", "build/v2");
        assert_eq!(ready(&house), ["build/v3"]);
        set(&house, "build/v1", json!({ "status": "done" }));
        assert_eq!(ready(&house), ["build/v3"], "an older version that is done does not count");
        let [row] = &links(&house, "ship")[..] else { panic!() };
        assert_eq!((row.from.as_str(), row.from_current.as_ref().unwrap().as_str(), row.blocks_now), ("build/v1", "build/v3", true));
        set(&house, "build/v3", json!({ "status": "done" }));
        assert_eq!(ready(&house), ["ship"]);
        let listed = house.read(|read| Ok(Ready { limit: None, after: None }.answer(read, house.now())?));
        let looked_at = serde_json::to_value(&listed.rows[0].blockers).unwrap();
        assert_eq!(looked_at, json!([{ "variant": "build/v1", "current": "build/v3", "status": "done" }]));

        // The current version is archived: the one before it is current again, and open.
        archive(&house, "build/v3", true);
        assert_eq!(ready(&house), ["build/v2"]);
        house.act("delete_task", json!({ "task": "build/v2" })).unwrap();
        assert_eq!(ready(&house), ["ship"], "build/v1 is current and done");
        archive(&house, "build/v1", true);
        assert_eq!(ready(&house), ["ship"], "a blocker without a live version does not block");
        let [row] = &links(&house, "ship")[..] else { panic!() };
        assert_eq!((row.from_current.clone(), row.blocks_now), (None, false));
        assert_eq!(house.core.store().unsound().unwrap(), Vec::<String>::new());
    }

    fn a_newer_version_of_a_blocked_task_is_blocked(house: House) {
        founded(&house);
        for variant in ["build", "ship/v1"] {
            task(&house, variant);
        }
        let made = link(&house, "build", "ship/v1");
        replaces(&house, "ship/v2", "ship/v1");
        assert_eq!(ready(&house), ["build"]);
        let [row] = &links(&house, "ship/v2")[..] else { panic!() };
        assert_eq!((row.to.as_str(), row.to_current.as_ref().unwrap().as_str(), row.relation.as_str(), row.blocks_now), ("ship/v1", "ship/v2", "is_blocked_by", true));
        house.act("delete_link", json!({ "link": made["id"] })).unwrap();
        assert_eq!(ready(&house), ["build", "ship/v2"]);
    }

    fn a_link_inside_one_lineage_never_blocks(house: House) {
        founded(&house);
        for variant in ["a", "b"] {
            task(&house, variant);
        }
        link(&house, "a", "b");
        assert_eq!(ready(&house), ["a"]);
        house.act("replace_task", json!({ "new": "b", "old": "a" })).unwrap();
        assert_eq!(ready(&house), ["b"]);
    }

    fn cycles_through_replacements_and_links_are_refused(house: House) {
        founded(&house);
        for variant in ["a", "b", "c", "a2"] {
            task(&house, variant);
        }
        link(&house, "a", "b");
        link(&house, "b", "c");
        link(&house, "c", "a2");
        let joined = refused(house.act("replace_task", json!({ "new": "a2", "old": "a" })));
        assert_eq!(joined, (ErrorKind::Conflict, "that would make a cycle: a blocks b blocks c blocks a2, where a2 and a would be versions of one task".to_owned()));
        replaces(&house, "a3", "a");
        let linked = refused(house.act("add_link", json!({ "from": "c", "to": "a3", "type": "blocks" })));
        assert_eq!(linked, (ErrorKind::Conflict, "that would make a cycle: c blocks a3 blocks b blocks c".replace("a3 blocks b", "a blocks b")));
        assert_eq!(ready(&house), ["a3"]);
    }

    fn an_item_runs_the_version_that_counts_when_it_is_taken(house: House) {
        founded(&house);
        set(&house, "go/v1", json!({ "role": "coder", "recurring": true }));
        replaces(&house, "go/v2", "go/v1");
        let queued = house.act("queue_add", json!({ "task": "go/v1" })).unwrap();
        let exact = house.act("queue_add", json!({ "task": "go/v1", "exact": true })).unwrap();
        assert_eq!(state(&house, &queued["id"]), [json!("ready"), json!("go/v1"), json!(null), json!("go/v2"), json!(null)]);
        assert_eq!(state(&house, &exact["id"])[3], "go/v1");
        // Queued: the pin is set after it was added.
        house.act("set_package", json!({ "role": "coder", "task": "go/v1" })).unwrap();
        assert_eq!(state(&house, &queued["id"])[3], "go/v1");
        house.act("set_package", json!({ "role": "coder", "task": "go/v2" })).unwrap();
        let taken = take(&house);
        assert_eq!((&taken["id"], &taken["variant"]), (&queued["id"], &json!("go/v2")));
        // Leased: it keeps its version.
        house.act("set_package", json!({ "role": "coder", "task": "go/v1" })).unwrap();
        assert_eq!(state(&house, &queued["id"]), [json!("running"), json!("go/v1"), json!("go/v2"), json!(null), json!(null)]);
        // Retried: it is resolved again.
        let mut failed = held(&taken);
        failed["error"] = json!("no luck");
        house.act("queue_fail", failed).unwrap();
        assert_eq!(state(&house, &queued["id"]), [json!("waiting"), json!("go/v1"), json!("go/v2"), json!("go/v1"), json!(null)]);
        house.act("queue_requeue", json!({ "id": queued["id"] })).unwrap();
        assert_eq!(take(&house)["variant"], "go/v1", "the exact one was first in the queue");
        let again = take(&house);
        assert_eq!((&again["id"], &again["variant"]), (&queued["id"], &json!("go/v1")));
        // Waiting: a pin whose version is archived does not count.
        let later = house.act("queue_add", json!({ "task": "go/v2", "not_before": "2199-01-01T00:00:00Z" })).unwrap();
        assert_eq!(state(&house, &later["id"])[3], "go/v1");
        archive(&house, "go/v1", true);
        assert_eq!(state(&house, &later["id"])[3], "go/v2");
    }

    fn an_item_without_a_live_version_is_blocked_until_there_is_one(house: House) {
        founded(&house);
        set(&house, "go/v1", json!({ "recurring": true }));
        let queued = house.act("queue_add", json!({ "task": "go/v1", "why": "a friend asked" })).unwrap();
        archive(&house, "go/v1", true);
        let reason = "no live version of go/v1: every version is archived or deleted";
        assert_eq!(state(&house, &queued["id"]), [json!("blocked"), json!("go/v1"), json!(null), json!(null), json!(format!("{reason}\na friend asked"))]);
        assert_eq!(house.act("queue_take", json!({})).unwrap(), json!([]));
        assert_eq!(refused(house.act("queue_requeue", json!({ "id": queued["id"] }))).0, ErrorKind::Conflict);
        assert_eq!(
            refused(house.act("queue_add", json!({ "task": "go/v1" }))),
            (ErrorKind::Conflict, "task go/v1 is archived, and nothing live replaces it".to_owned())
        );
        replaces(&house, "go/v2", "go/v1");
        assert_eq!(state(&house, &queued["id"]), [json!("ready"), json!("go/v1"), json!(null), json!("go/v2"), json!("a friend asked")]);
        // Exactly that version, which is archived.
        assert_eq!(refused(house.act("queue_add", json!({ "task": "go/v1", "exact": true }))).1, "task go/v1 is archived");
        house.act("delete_task", json!({ "task": "go/v2" })).unwrap();
        assert_eq!(state(&house, &queued["id"])[0], "blocked");
        archive(&house, "go/v1", false);
        assert_eq!(take(&house)["variant"], "go/v1");
        assert_eq!(house.core.store().unsound().unwrap(), Vec::<String>::new());
    }

    fn a_route_follows_the_versions_of_its_task(house: House) {
        founded(&house);
        set(&house, "fix/v1", json!({ "recurring": true }));
        replaces(&house, "fix/v2", "fix/v1");
        let route = |input: Value| house.act("set_route", input).unwrap();
        assert_eq!(route(json!({ "tag": "bug", "task": "fix/v1", "role": "coder" }))["would_run"], "fix/v2");
        house.act("set_package", json!({ "role": "coder", "task": "fix/v1" })).unwrap();
        assert_eq!(route(json!({ "tag": "bug", "task": "fix/v1", "role": "coder" }))["would_run"], "fix/v1");
        assert_eq!(route(json!({ "tag": "old", "task": "fix/v1", "exact": true }))["would_run"], "fix/v1");
        let send = |input: Value| house.act("send_message", input).unwrap();
        send(json!({ "body": "it fails", "tags": ["bug"], "role": "coder" }));
        assert_eq!(take(&house)["variant"], "fix/v1");
        send(json!({ "body": "to the task", "to_task": "fix/v1" }));
        assert_eq!(take(&house)["variant"], "fix/v2");
        send(json!({ "body": "to exactly that", "to_task": "fix/v1", "exact": true }));
        assert_eq!(take(&house)["variant"], "fix/v1");
        // Nothing is lost while no version is live.
        for variant in ["fix/v1", "fix/v2"] {
            archive(&house, variant, true);
        }
        let sent = send(json!({ "body": "and again", "tags": ["bug"], "role": "coder" }));
        assert_eq!(sent["notices"], json!(["no live version of fix/v1: every version is archived or deleted: the item is blocked"]));
        assert_eq!(state(&house, &sent["queue_item_id"])[0], "blocked");
        archive(&house, "fix/v2", false);
        assert_eq!(take(&house)["id"], sent["queue_item_id"]);
    }

    fn a_claim_takes_the_current_version(house: House) {
        founded(&house);
        set(&house, "go/v1", json!({ "role": "coder" }));
        replaces(&house, "go/v2", "go/v1");
        house.act("set_package", json!({ "role": "coder", "task": "go/v1" })).unwrap();
        let claimed = house.act("claim", json!({ "task": "go/v1" })).unwrap()[0].clone();
        assert_eq!((&claimed["variant"], status(&house, "go/v2").as_str()), (&json!("go/v2"), "in_progress"));
        assert_eq!(refused(house.act("claim", json!({ "task": "go/v1" }))).1, "task go/v2 is claimed by worker already");
        house.act("queue_complete", held(&claimed)).unwrap();
        assert_eq!((status(&house, "go/v1").as_str(), status(&house, "go/v2").as_str()), ("open", "done"));
    }

    fn a_new_version_begins_with_the_definition_of_the_old_one(house: House) {
        founded(&house);
        let fields = json!({ "title": "Test it", "role": "coder", "script": "make test", "priority": "P0", "tags": ["a"], "timeout": "90m", "status": "done" });
        set(&house, "unit/v1", fields);
        set(&house, "unit/v2", json!({ "replaces": "unit/v1", "title": "Test it well" }));
        let row = house.read(|read| Ok(read.row::<trackway_store::tables::Task>("where tenant_id = ?1 and variant = ?2", params![*"unit/v2"])?.unwrap()));
        let shown = serde_json::to_value(&row).unwrap();
        let expected = json!({ "title": "Test it well", "script": "make test", "priority": "P0", "tags": ["a"], "status": "open", "revision": 1, "archived": false });
        for (field, value) in expected.as_object().unwrap() {
            assert_eq!(&shown[field], value, "{field}");
        }
        assert!(row.role_id.is_some() && row.timeout.is_some() && row.variant.as_str() == "unit/v2");
        set(&house, "unit/v3", json!({ "replaces": "unit/v2", "script": null }));
        let script = house.read(|read| Ok(read.one::<(Option<String>,)>("select script from tasks where tenant_id = ?1 and variant = ?2", params![*"unit/v3"])?));
        assert_eq!(script, Some((None,)));
    }

    fn a_run_moves_its_task(house: House) {
        founded(&house);
        for variant in ["one", "kept", "often"] {
            task(&house, variant);
        }
        set(&house, "often", json!({ "recurring": true }));
        task(&house, "after");
        link(&house, "one", "after");
        let ada = house.agent("ada");
        let (first, second) = (ada.starts_on("one"), ada.starts_on("one"));
        assert_eq!((status(&house, "one").as_str(), ready(&house)), ("in_progress", vec!["kept".to_owned()]));
        first.ends(RunStatus::Completed);
        assert_eq!(status(&house, "one"), "in_progress", "another run works on it");
        second.ends(RunStatus::Failed);
        assert_eq!(status(&house, "one"), "open");
        let third = ada.starts_on("one");
        let child = house.act("start_run", json!({ "agent": "ada", "task": "kept", "parent": third.id })).unwrap();
        assert_eq!(status(&house, "kept"), "open", "a run with a parent does not move its task");
        set(&house, "one", json!({ "status": "open" }));
        assert_eq!(ready(&house), Vec::<String>::new(), "a task that is worked on is not ready");
        house.act("end_run", json!({ "run": child["run_id"], "status": "completed" })).unwrap();
        third.ends(RunStatus::Completed);
        assert_eq!((status(&house, "one").as_str(), status(&house, "kept").as_str()), ("done", "open"));
        assert_eq!(ready(&house), ["kept", "after"]);
        let kept = house.act("start_run", json!({ "agent": "ada", "task": "kept", "keep_open": true })).unwrap();
        assert_eq!(status(&house, "kept"), "in_progress");
        house.act("end_run", json!({ "run": kept["run_id"], "status": "completed" })).unwrap();
        assert_eq!(status(&house, "kept"), "open");
        let cancelled = ada.starts_on("kept");
        house.act("cancel_run", json!({ "run": cancelled.id })).unwrap();
        assert_eq!(status(&house, "kept"), "open");
        let run = ada.starts_on("kept");
        run.act("end_run", json!({ "run": run.id, "status": "completed", "keep_open": true })).unwrap();
        assert_eq!(status(&house, "kept"), "open");
        let often = ada.starts_on("often");
        often.ends(RunStatus::Completed);
        assert_eq!(status(&house, "often"), "open", "a recurring task keeps its status");
    }

    fn a_wake_shows_the_current_version_of_linked_tasks(house: House) {
        founded(&house);
        house.agent("ada");
        for variant in ["main", "lib/v1"] {
            task(&house, variant);
        }
        house.act("add_link", json!({ "from": "main", "to": "lib/v1", "type": "relates_to" })).unwrap();
        report(&house, "ada", "lib/v1", "first findings");
        replaces(&house, "lib/v2", "lib/v1");
        let row = linked(&house, "main")["linked_to"][0].clone();
        assert_eq!((&row["title"], &row["linkedAs"]["variant"]), (&json!("lib/v2"), &json!("lib/v1")));
        assert_eq!(row["latestTaskAgentReport"], "first findings", "the newest version that has one");
        report(&house, "ada", "lib/v2", "more findings");
        house.act("add_link", json!({ "from": "main", "to": "lib/v2", "type": "blocks" })).unwrap();
        let rows = linked(&house, "main")["linked_to"].clone();
        assert_eq!(rows.as_array().unwrap().len(), 1, "one row per lineage");
        assert_eq!((&rows[0]["relations"], &rows[0]["linkedAs"]), (&json!(["blocks", "relates_to"]), &json!(null)));
        assert_eq!(rows[0]["latestTaskAgentReport"], "more findings");
        archive(&house, "lib/v2", true);
        assert_eq!(linked(&house, "main")["linked_to"][0]["title"], "lib/v1");
        archive(&house, "lib/v1", true);
        assert_eq!(linked(&house, "main"), json!({}));
    }

    fn a_new_version_wakes_with_links_boards_and_report_of_the_one_before_it(house: House) {
        founded(&house);
        house.agent("ada");
        house.agent("bob");
        for variant in ["main/v1", "other", "third"] {
            task(&house, variant);
        }
        house.act("add_link", json!({ "from": "main/v1", "to": "other", "type": "relates_to" })).unwrap();
        house.act("set_board", json!({ "name": "plan", "task": "main/v1" })).unwrap();
        report(&house, "ada", "main/v1", "what ada found");
        replaces(&house, "main/v2", "main/v1");
        replaces(&house, "main/v3", "main/v2");
        assert_eq!(linked(&house, "main/v3")["linked_to"][0]["title"], "other");
        let text = told(&house, "main/v3", "bob");
        for part in ["pinned to: main/v1, which this task replaces", "on: main/v1, which this task replaces", "by: ada", "what ada found"] {
            assert!(text.contains(part), "{part}\n{text}");
        }
        // Its own take their place.
        house.act("add_link", json!({ "from": "third", "to": "main/v3", "type": "blocks" })).unwrap();
        house.act("set_board", json!({ "name": "newer", "task": "main/v3" })).unwrap();
        report(&house, "bob", "main/v3", "what bob found");
        let document = linked(&house, "main/v3");
        assert_eq!((&document["linked_from"][0]["title"], &document["linked_to"]), (&json!("third"), &json!([])));
        let text = told(&house, "main/v3", "bob");
        assert!(text.contains("what bob found") && text.contains("newer") && !text.contains("which this task replaces"), "{text}");
    }

    fn a_message_leads_to_a_report_that_others_wake_with(house: House) {
        founded(&house);
        let studio = "main";
        house.act("set_agent", json!({ "handle": "grace", "role": "coder" })).unwrap();
        task(&house, "fix/v1");
        replaces(&house, "fix/v2", "fix/v1");
        task(&house, "release");
        house.act("add_link", json!({ "from": "release", "to": "fix/v1", "type": "relates_to" })).unwrap();
        house.act("set_route", json!({ "tag": "bug", "role": "coder", "task": "fix/v2" })).unwrap();
        house.act("set_package", json!({ "role": "coder", "task": "fix/v1" })).unwrap();
        let decision = house.act("create_decision", json!({ "studio": studio, "question": "How?", "options": ["lock", "queue"] })).unwrap();

        let sent = house.act("send_message", json!({ "body": "It hangs", "tags": ["bug"], "role": "coder" })).unwrap();
        let taken = house.act("queue_take", json!({ "agent": "grace" })).unwrap()[0].clone();
        assert_eq!((&taken["id"], &taken["variant"]), (&sent["queue_item_id"], &json!("fix/v1")), "the pin of the role");
        let token = Credential::Token(Secret(taken["token"].as_str().unwrap().to_owned()));
        let run = house.core.enter(&token).unwrap();
        let act = |action: &str, input: Value| house.act_as(&run, action, input).unwrap();
        let note = act("create_note", json!({ "studio": studio, "title": "Race", "body": "Two writers." }));
        act("vote", json!({ "decision": decision["id"], "option": "lock", "accept": true }));
        act("update_scratchpad", json!({ "content": "Look at the lock first." }));
        act("update_report", json!({ "one_liner": "Found it", "tldr": "A race.", "content": "Two writers, one map." }));
        act("end_run", json!({ "run": taken["run_id"], "status": "completed" }));

        let row = linked(&house, "release")["linked_to"][0].clone();
        assert_eq!((&row["title"], &row["linkedAs"]["variant"]), (&json!("fix/v2"), &json!("fix/v1")));
        assert_eq!(row["latestTaskAgentReport"], "Two writers, one map.");
        assert!(told(&house, "fix/v2", "grace").contains("Look at the lock first."));
        let chain = house.read(|read| Ok(Why { thing: note["id"].as_str().unwrap().to_owned() }.answer(read, house.now())?));
        let hops: Vec<(String, String)> =
            chain.recorded().map(|hop| (hop.kind.to_owned(), hop.label.clone())).collect();
        let kinds: Vec<&str> = hops.iter().map(|(kind, _)| kind.as_str()).collect();
        for kind in ["resource", "run", "agent", "role", "task", "queue_item", "route", "message", "person"] {
            assert!(kinds.contains(&kind), "{kind} in {hops:?}");
        }
        let label = |kind: &str| hops.iter().find(|(found, _)| found == kind).unwrap().1.clone();
        assert!(label("task").contains("fix/v1") && label("agent").contains("grace") && label("person").contains("ada"), "{hops:?}");
    }

    fn a_lineage_of_a_thousand_versions_is_followed(house: House) {
        founded(&house);
        let version = |number: usize| format!("v/{number}");
        for number in 0..1_000 {
            task(&house, &version(number));
        }
        task(&house, "after");
        link(&house, "v/0", "after");
        let queued = house.act("queue_add", json!({ "task": "v/0" })).unwrap();
        // The newest first: then each replacement changes the current version of one task only.
        for number in (1..1_000).rev() {
            house.act("replace_task", json!({ "new": version(number), "old": version(number - 1) })).unwrap();
        }
        assert_eq!(state(&house, &queued["id"])[3], "v/999");
        assert_eq!(ready(&house), Vec::<String>::new());
        let taken = take(&house);
        assert_eq!(taken["variant"], "v/999");
        house.act("queue_complete", held(&taken)).unwrap();
        assert_eq!(ready(&house), ["after"]);
        assert_eq!(linked(&house, "v/999")["linked_to"][0]["title"], "after", "inherited through all of them");
        assert_eq!(linked(&house, "after")["linked_from"][0]["linkedAs"]["variant"], "v/0");
    }

    fn a_deleted_task_closes_no_cycle(house: House) {
        founded(&house);
        for variant in ["a", "b", "c"] {
            task(&house, variant);
        }
        link(&house, "a", "b");
        link(&house, "b", "c");
        assert_eq!(refused(house.act("add_link", json!({ "from": "c", "to": "a", "type": "blocks" }))).0, ErrorKind::Conflict);
        archive(&house, "b", true);
        assert_eq!(refused(house.act("add_link", json!({ "from": "c", "to": "a", "type": "blocks" }))).0, ErrorKind::Conflict, "it can come back");
        house.act("delete_task", json!({ "task": "b" })).unwrap();
        link(&house, "c", "a");
        assert_eq!(ready(&house), ["c"]);
    }

    fn the_report_of_a_linked_task_follows_replacements_and_not_ages(house: House) {
        founded(&house);
        house.agent("ada");
        // Defined first, and made the newer version afterwards.
        for variant in ["new", "old", "main"] {
            task(&house, variant);
        }
        house.act("replace_task", json!({ "new": "new", "old": "old" })).unwrap();
        house.act("add_link", json!({ "from": "main", "to": "old", "type": "relates_to" })).unwrap();
        let row = || linked(&house, "main")["linked_to"][0].clone();
        report(&house, "ada", "old", "of the old version");
        assert_eq!(row()["latestTaskAgentReport"], "of the old version");
        report(&house, "ada", "new", "of the new version");
        report(&house, "ada", "old", "of the old version again");
        assert_eq!((&row()["title"], &row()["latestTaskAgentReport"]), (&json!("new"), &json!("of the new version")));
        replaces(&house, "newest", "new");
        house.act("delete_task", json!({ "task": "new" })).unwrap();
        assert_eq!(row()["latestTaskAgentReport"], "of the new version", "a deleted version keeps its reports");
        assert_eq!(house.core.store().unsound().unwrap(), Vec::<String>::new());
    }

    fn a_version_that_replaces_two_inherits_from_the_nearest_that_has_something(house: House) {
        founded(&house);
        house.agent("ada");
        for variant in ["first", "second", "merged", "other"] {
            task(&house, variant);
        }
        house.act("add_link", json!({ "from": "first", "to": "other", "type": "relates_to" })).unwrap();
        house.act("set_board", json!({ "name": "plan", "task": "first" })).unwrap();
        report(&house, "ada", "first", "what ada found");
        house.act("replace_task", json!({ "new": "merged", "old": "first" })).unwrap();
        house.act("replace_task", json!({ "new": "merged", "old": "second" })).unwrap();
        assert_eq!(linked(&house, "merged")["linked_to"][0]["title"], "other");
        let text = told(&house, "merged", "ada");
        for part in ["pinned to: first, which this task replaces", "what ada found"] {
            assert!(text.contains(part), "{part}\n{text}");
        }
        // Both have one: the version that was replaced last counts.
        house.act("set_board", json!({ "name": "later", "task": "second" })).unwrap();
        let text = told(&house, "merged", "ada");
        assert!(text.contains("pinned to: second, which this task replaces") && !text.contains("pinned to: first"), "{text}");
    }

    fn own_links_and_boards_count_when_archived(house: House) {
        founded(&house);
        house.agent("ada");
        for variant in ["x", "y", "main/v1"] {
            task(&house, variant);
        }
        house.act("add_link", json!({ "from": "main/v1", "to": "x", "type": "fixes" })).unwrap();
        house.act("set_board", json!({ "name": "old wall", "task": "main/v1" })).unwrap();
        replaces(&house, "main/v2", "main/v1");
        house.act("add_link", json!({ "from": "main/v2", "to": "y", "type": "fixes" })).unwrap();
        house.act("set_board", json!({ "name": "new wall", "task": "main/v2" })).unwrap();
        assert_eq!(linked(&house, "main/v2")["linked_to"][0]["title"], "y");
        archive(&house, "y", true);
        assert_eq!(linked(&house, "main/v2"), json!({}), "not the links of the version before it");
        house.act("archive_board", json!({ "id": "new wall" })).unwrap();
        let text = told(&house, "main/v2", "ada");
        assert!(!text.contains("old wall") && !text.contains("new wall"), "{text}");
    }

    fn a_workflow_is_inherited_too(house: House) {
        founded(&house);
        task(&house, "unit/v1");
        let made = house.act("set_task", json!({ "variant": "unit/v2", "replaces": "unit/v1" })).unwrap();
        assert_eq!((&made["workflow"], &made["new"]), (&json!("q"), &json!(true)));
        let changed = house.act("set_task", json!({ "variant": "unit/v2", "title": "Test it" })).unwrap();
        assert_eq!((&changed["workflow"], &changed["new"]), (&json!("q"), &json!(false)));
        assert_eq!(refused(house.act("set_task", json!({ "variant": "lone" }))), (ErrorKind::Usage, "a new task needs a workflow".to_owned()));
    }

    fn a_reason_to_block_goes_with_the_block(house: House) {
        founded(&house);
        task(&house, "go/v1");
        let queued = house.act("queue_add", json!({ "task": "go/v1", "why": "a friend asked" })).unwrap();
        archive(&house, "go/v1", true);
        house.act("queue_cancel", json!({ "id": queued["id"] })).unwrap();
        archive(&house, "go/v1", false);
        house.act("queue_requeue", json!({ "id": queued["id"] })).unwrap();
        assert_eq!(state(&house, &queued["id"]), [json!("ready"), json!("go/v1"), json!(null), json!("go/v1"), json!("a friend asked")]);
    }

    fn items_queued_while_versions_come_and_go_are_ready_or_blocked_as_their_versions_are(house: House) {
        founded(&house);
        set(&house, "go/v1", json!({ "recurring": true }));
        set(&house, "go/v2", json!({ "recurring": true }));
        house.act("set_route", json!({ "tag": "go", "task": "go/v1" })).unwrap();
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for number in 0..3 {
                let (house, over) = (&house, &over);
                scope.spawn(move || {
                    while !over.load(Ordering::Relaxed) {
                        // Refused while no version is live.
                        let _ = match number {
                            0 => house.act("queue_add", json!({ "task": "go/v1" })),
                            1 => house.act("send_message", json!({ "body": "go", "tags": ["go"] })),
                            _ => house.act("queue_take", json!({})).and_then(|taken| match taken.get(0) {
                                Some(item) => house.act("queue_release", held(item)),
                                None => Ok(taken),
                            }),
                        };
                    }
                });
            }
            for round in 0..30 {
                archive(&house, "go/v1", round % 2 == 0);
                match round {
                    10 => _ = house.act("replace_task", json!({ "new": "go/v2", "old": "go/v1" })).unwrap(),
                    11.. => archive(&house, "go/v2", round % 3 > 0),
                    _ => {}
                }
            }
            over.store(true, Ordering::Relaxed);
        });
        assert_eq!(house.core.store().unsound().unwrap(), Vec::<String>::new());
    }
}

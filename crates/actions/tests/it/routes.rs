//! Routing of messages to queue items: each message is routed exactly once despite concurrent senders, and sending in
//! bulk has the same result as sending one by one.

use std::{collections::HashSet, thread};

use serde_json::{Value, json};
use trackway_actions::{Core, Credential, Result, message::SendMessage, tenant::LOCAL_TENANT};
use trackway_domain::ErrorKind;
use trackway_store::{Store, params};
use trackway_testkit::{TestEnv, engines};
use uuid::Uuid;

const SENDERS: usize = 8;
const MESSAGES: usize = 10_000;

fn create_routes(env: &TestEnv) {
    env.role("coder");
    env.workflow("q");
    env.task("q", "fix");
    env.task("q", "judge");
    env.execute_json("set_route", json!({ "tag": "bug", "task": "fix" })).unwrap();
    env.execute_json("set_route", json!({ "tag": "bug", "task": "judge", "role": "coder" })).unwrap();
}

/// Repeats an attempt while the database is busy. A busy error means that nothing was changed.
fn retry_while_busy<T>(attempt: impl Fn() -> Result<T>) -> T {
    loop {
        match attempt() {
            Err(error) if error.kind() == ErrorKind::Busy => {}
            outcome => return outcome.unwrap(),
        }
    }
}

fn message(input: Value) -> SendMessage {
    serde_json::from_value(input).unwrap()
}

/// Message, route and task of every queue item.
fn routed_items(env: &TestEnv) -> Vec<(Uuid, Option<Uuid>, String)> {
    env.read(|reader| {
        Ok(reader.query(
            "select q.message_id, q.route_id, t.variant from queue_items q join tasks t on t.id = q.task_id where q.tenant_id = ?1 order by q.message_id, q.route_id",
            &[],
        )?)
    })
}

fn count(env: &TestEnv, sql: &str) -> i64 {
    env.read(|reader| Ok(reader.count(sql, params![])?))
}

engines! {
    fn concurrent_messages_are_routed_exactly_once(env: TestEnv) {
        create_routes(&env);
        // Each sender has its own connections. It sends 50 messages one by one and the others in batches of 100. The
        // senders share bodies.
        thread::scope(|scope| {
            for sender in 0..SENDERS {
                let url = env.database.url();
                scope.spawn(move || {
                    let core = Core::new(Store::open(url).unwrap());
                    let ada = core
                        .authenticate(&Credential::User { tenant: LOCAL_TENANT.into(), handle: "ada".into() })
                        .unwrap();
                    let all: Vec<SendMessage> = (0..MESSAGES / SENDERS)
                        .map(|number| {
                            let role = if number % 2 == 0 { json!("coder") } else { Value::Null };
                            message(json!({ "body": format!("body {}", number % 400), "tags": ["bug", format!("of {sender}")], "role": role }))
                        })
                        .collect();
                    let (singly, together) = all.split_at(50);
                    for batch in singly.chunks(1).chain(together.chunks(100)) {
                        retry_while_busy(|| core.execute_all(&ada, batch));
                    }
                });
            }
        });
        let routed_items = routed_items(&env);
        let distinct: HashSet<_> = routed_items.iter().collect();
        assert_eq!((routed_items.len(), distinct.len()), (MESSAGES + MESSAGES / 2, MESSAGES + MESSAGES / 2));
        let messages: HashSet<_> = routed_items.iter().filter(|(_, _, task)| task == "fix").map(|(message, ..)| message).collect();
        assert_eq!(messages.len(), MESSAGES);
        assert_eq!(count(&env, "select count(*) from messages where tenant_id = ?1"), 10_000);
        assert_eq!(count(&env, "select count(*) from contents where tenant_id = ?1"), 400);
        assert_eq!(count(&env, "select count(*) from content_words where tenant_id = ?1"), 400);
        assert_eq!(count(&env, "select count(*) from events where tenant_id = ?1 and action = 'send_message'"), 10_000);
    }

    fn bulk_send_equals_single_sends(env: TestEnv) {
        create_routes(&env);
        let run = env.agent("bot").start_run();
        let conversation = env.execute_json("set_conversation", json!({ "title": "Tea" })).unwrap()["id"].clone();
        let batch: Vec<SendMessage> = ["one", "two", "one"]
            .map(|body| message(json!({ "body": body, "conversation": conversation, "tags": ["bug"], "to_task": "judge" })))
            .into();
        let sent = env.core.execute_all(&run.context, &batch).unwrap();
        let news: Vec<_> = sent.iter().map(|sent| (sent.content_new, sent.queue_items.len())).collect();
        assert_eq!(news, [(true, 2), (true, 2), (false, 2)]);
        assert_eq!(sent[0].content_id, sent[2].content_id);
        assert!(sent.is_sorted_by(|one, next| one.id < next.id));
        let made = run.made();
        let count_touches = |kind: &str| made.iter().filter(|touch| touch.starts_with(kind)).count();
        assert_eq!((count_touches("send message "), count_touches("create queue_item "), made.len()), (3, 6, 9));
        assert_eq!(routed_items(&env).iter().filter(|(_, route, task)| route.is_none() && task == "judge").count(), 3);
        // One rejected message rolls back the whole batch.
        let mixed = [message(json!({ "body": "three" })), message(json!({ "body": " " }))];
        let before = env.snapshot();
        assert_eq!(env.core.execute_all(&env.ada, &mixed).unwrap_err().to_string(), "body is empty");
        before.assert_unchanged(&env.core);
    }

    fn cleanup_during_sends_deletes_no_used_content(env: TestEnv) {
        thread::scope(|scope| {
            for sender in 0..4 {
                let env = &env;
                scope.spawn(move || {
                    for number in 0..40 {
                        retry_while_busy(|| env.execute_json("send_message", json!({ "body": format!("{} {}", number % 7, sender % 2) })));
                    }
                });
            }
            let env = &env;
            scope.spawn(move || {
                for _ in 0..40 {
                    retry_while_busy(|| env.execute_json("cleanup_contents", json!({})));
                }
            });
        });
        assert_eq!(count(&env, "select count(*) from messages m join contents c on c.id = m.content_id where m.tenant_id = ?1"), 160);
        assert_eq!(count(&env, "select count(*) from contents where tenant_id = ?1"), 14);
    }
}

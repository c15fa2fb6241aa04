//! `cleanup events` and `cleanup messages`: old rows are removed in batches, and provenance of the remaining rows
//! still works.

use serde_json::{Value, json};
use trackway_store::{Clock, connection::Connection};
use trackway_testkit::Engine;

use crate::{
    hook::connection,
    terminal::{Terminal, both_engines, column, text},
};

/// The number of copied messages. With four other messages, a cleanup needs three batches.
const COPIES: i64 = 1_200;
const OLD: &str = "2001-01-01T00:00:00Z";

/// A time in 1970 as an SQL literal of the engine.
fn old_time_literal(connection: &Connection) -> &'static str {
    match connection.engine() {
        Engine::Sqlite => "1000000",
        Engine::Postgres => "timestamptz '1970-01-01T00:00:01Z'",
    }
}

fn count(connection: &mut Connection, from: &str) -> i64 {
    connection.query::<(i64,)>(&format!("select count(*) from {from}"), &[]).unwrap()[0].0
}

fn send_message(terminal: &Terminal, more: &[&str]) -> String {
    text(&terminal.json(&[&["message", "send"], more].concat())["id"])
}

both_engines! {
    fn cleanup_removes_old_events_and_keeps_newer_ones(terminal: Terminal) {
        let note = text(&terminal.json(&["note", "create", "--studio", "main", "--title", "kept"])["id"]);
        let mut connection = connection(&terminal);
        let old = old_time_literal(&connection);
        connection.batch(&format!("update events set created_at = {old}")).unwrap();
        terminal.json(&["role", "set", "--name", "coder"]);
        let before = count(&mut connection, "events");
        let cleanup = ["cleanup", "events", "--before", OLD];
        assert_eq!(terminal.json(&[&cleanup[..], &["--dry-run"]].concat()), json!({ "removed": before - 1 }));
        assert_eq!(terminal.expect_error(&cleanup), (2, "cleanup events requires --yes without a terminal".to_owned()));
        assert_eq!(count(&mut connection, "events"), before);
        let cleanup = [&cleanup[..], &["--yes"]].concat();
        assert_eq!(terminal.json(&cleanup), json!({ "removed": before - 1 }));
        let events = terminal.json(&["event", "list"]);
        assert_eq!(column(&events, "action"), ["cleanup_events", "set_role"]);
        assert_eq!(events[0]["detail"]["removed"], json!(before - 1));
        assert_eq!(terminal.json(&cleanup), json!({ "removed": 0 }));
        assert_eq!(terminal.json(&["event", "list"]), events, "a cleanup that removes nothing logs no event");
        assert_eq!(column(&terminal.json(&["why", &note])["chain"], "kind"), ["resource", "person"]);
        let (code, message) = terminal.expect_error(&["cleanup", "events", "--before", "2999-01-01", "--yes"]);
        assert!(code == 4 && message.ends_with("is in the future"), "{message}");
        let (_, token) = terminal.start_run(&["--agent", "worker"]);
        assert_eq!(terminal.expect_error_with_token(Some(&token), &cleanup), (6, "agent worker may not cleanup".to_owned()));
    }

    fn cleanup_removes_many_events_in_batches(terminal: Terminal) {
        let mut connection = connection(&terminal);
        let old = old_time_literal(&connection);
        let numbers = match connection.engine() {
            Engine::Sqlite => "with recursive n (i) as (select 1 union all select i + 1 from n where i < 25000) select i from n",
            Engine::Postgres => "select generate_series(1, 25000) as i",
        };
        // Event 7 has a recent time, although older events follow it. This happens when the clock is set back.
        connection
            .batch(&format!(
                "insert into events (tenant_id, created_at, actor_kind, actor_id, request_id, action, subject_kind, subject_id, subject_path)
                 select e.tenant_id, case when i = 7 then e.created_at else {old} end, e.actor_kind, e.actor_id, e.request_id, e.action, e.subject_kind, e.subject_id, 'copy'
                 from ({numbers}) n, (select * from events order by position limit 1) e"
            ))
            .unwrap();
        let stay = count(&mut connection, "events") - 24_999;
        assert_eq!(terminal.json(&["cleanup", "events", "--before", OLD, "--dry-run"]), json!({ "removed": 24_999 }));
        assert_eq!(terminal.json(&["cleanup", "events", "--before", OLD, "--yes"]), json!({ "removed": 24_999 }));
        assert_eq!(count(&mut connection, "events where subject_path = 'copy'"), 1);
        assert_eq!(count(&mut connection, "events where action = 'cleanup_events'"), 3);
        assert_eq!(count(&mut connection, "events"), stay + 3);
    }

    fn cleanup_keeps_messages_that_prompts_answers_or_queue_items_refer_to(terminal: Terminal) {
        let home = terminal.home.path();
        trackway::recorded_session::write(&home.join("transcripts"), &home.join("project")).unwrap();
        terminal.json(&["ingest", "transcripts"]);
        terminal.json(&["workflow", "set", "--name", "w"]);
        terminal.json(&["task", "set", "--workflow", "w", "--variant", "v"]);
        terminal.json(&["route", "set", "--tag", "work", "--task", "v"]);
        let work = send_message(&terminal, &["--body", "the heron waits", "--tag", "work"]);
        let question = send_message(&terminal, &["--body", "which stickleback?"]);
        send_message(&terminal, &["--body", "the small stickleback", "--reply-to", &question]);
        let question_with_answer = send_message(&terminal, &["--body", "a bittern?"]);
        let answered = send_message(&terminal, &["--body", "two bitterns", "--reply-to", &question_with_answer, "--tag", "work"]);
        send_message(&terminal, &["--body", "the heron waits"]);
        let (run, token) = terminal.start_run(&["--agent", "worker"]);
        let sent = text(&terminal.json_with_token(Some(&token), &["message", "send", "--body", "a walrus came by"])["id"]);

        let mut connection = connection(&terminal);
        let prompts = "messages m where exists (select 1 from runs r where r.cause_id = m.id)";
        let (all, prompt_count) = (count(&mut connection, "messages"), count(&mut connection, prompts));
        assert!(prompt_count > 0 && all > prompt_count + 7, "{prompt_count} of {all}");
        let kinds = || column(&terminal.json(&["why", &run])["chain"], "kind");
        let (why_run, mut made) = (kinds(), terminal.json(&["made", &run])["touches"].clone());
        let now = Clock::system().now().to_string();
        let remaining = prompt_count + 3;
        let removed = terminal.json(&["cleanup", "messages", "--before", &now, "--yes"]);
        assert_eq!(removed["removed"], json!(all - remaining));
        let mut remaining_ids = column(&terminal.json(&["message", "list", "--limit", "1000"]), "id");
        remaining_ids.retain(|id| [&work, &question_with_answer, &answered].contains(&id));
        assert_eq!(remaining_ids.len(), 3);
        assert_eq!((count(&mut connection, "messages"), count(&mut connection, prompts)), (remaining, prompt_count));
        assert_eq!(count(&mut connection, "contents c where not exists (select 1 from messages m where m.content_id = c.id)"), 0);
        assert_eq!(removed["bodies"], json!(all - remaining - 1), "a remaining message has the same body about the heron");

        assert_eq!(terminal.json(&["search", "stickleback"]), json!([]));
        assert_eq!(terminal.json(&["search", "walrus"]), json!([]));
        assert_eq!(column(&terminal.json(&["search", "heron"]), "message_id"), [work]);
        assert_eq!(terminal.expect_error(&["message", "get", &question]).0, 3);
        assert_eq!(terminal.expect_error(&["message", "get", &sent]).0, 3);
        // `made` still lists the removed message, and `why` still names the run that sent it.
        made[0]["deleted"] = json!(true);
        assert_eq!((&terminal.json(&["made", &run])["touches"], kinds()), (&made, why_run));
        let why = terminal.json(&["why", &sent]);
        assert_eq!((&why["deleted"], &why["chain"][1]["id"]), (&json!(true), &json!(run)));
        for session_run in terminal.json(&["run", "list", "--limit", "100"]).as_array().unwrap() {
            let chain = terminal.json(&["why", &text(&session_run["id"])]);
            assert_ne!(chain["chain"], Value::Null);
        }
        let events = terminal.json(&["event", "list", "--limit", "1"]);
        assert_eq!((&events[0]["action"], &events[0]["detail"]["removed"]), (&json!("cleanup_messages"), &removed["removed"]));
        let again = terminal.json(&["cleanup", "messages", "--before", &now, "--yes"]);
        assert_eq!(again, json!({ "removed": 0, "bodies": 0, "characters": 0 }));
        // Another ingest does not restore the removed messages.
        terminal.json(&["ingest", "transcripts"]);
        assert_eq!(count(&mut connection, "messages"), remaining);
        terminal.json(&["forget", &text(&terminal.json(&["session", "list"])[0]["id"]), "--yes"]);
        assert_eq!(count(&mut connection, "messages"), 3);
    }

    fn cleanup_removes_many_messages_in_batches(terminal: Terminal) {
        let mut connection = connection(&terminal);
        let first = send_message(&terminal, &["--body", "the first"]);
        // A chain of answers, and enough copies of the first message for three batches.
        let mut sent = first;
        for _ in 0..3 {
            sent = send_message(&terminal, &["--body", "an answer", "--reply-to", &sent]);
        }
        let id = match connection.engine() {
            Engine::Sqlite => "cast(substr(m.id, 1, 6) || randomblob(10) as blob)",
            Engine::Postgres => "overlay(gen_random_uuid()::text placing substr(m.id::text, 1, 13) from 1)::uuid",
        };
        let numbers = match connection.engine() {
            Engine::Sqlite => format!("with recursive n (i) as (select 1 union all select i + 1 from n where i < {COPIES}) select i from n"),
            Engine::Postgres => format!("select generate_series(1, {COPIES}) as i"),
        };
        connection
            .batch(&format!(
                "create temporary table made as select {id} as id, m.tenant_id, m.content_id, m.from_actor_kind, m.from_actor_id, m.created_at from ({numbers}) n, (select * from messages order by id limit 1) m;
                 insert into registry (id, tenant_id, kind, display_path, short_key, created_at) select id, tenant_id, 'message', 'messages/copy', 1, created_at from made;
                 insert into messages (id, tenant_id, content_id, from_actor_kind, from_actor_id, created_at) select id, tenant_id, content_id, from_actor_kind, from_actor_id, created_at from made;
                 drop table made"
            ))
            .unwrap();
        let all = count(&mut connection, "messages");
        assert_eq!(all, COPIES + 4);
        let removed = terminal.json(&["cleanup", "messages", "--before", &Clock::system().now().to_string(), "--yes"]);
        assert_eq!(removed, json!({ "removed": all, "bodies": 2, "characters": "the firstan answer".len() }));
        assert_eq!((count(&mut connection, "messages"), count(&mut connection, "contents")), (0, 0));
        assert_eq!(count(&mut connection, "events where action = 'cleanup_messages'"), 3);
    }
}

//! Sending by the hundred, against bare SQL that inserts the same rows.

use std::{ops::ControlFlow, time::Duration};

use serde_json::json;
use sha2::{Digest, Sha256};
use trackway_actions::{Context, message::SendMessage};
use trackway_domain::{Id, ids, kind, search_words::each_indexed_word};
use trackway_store::{Clock, Engine, connection::Connection, params, sql::Param};
use uuid::Uuid;

use super::bodies::body;
use crate::{
    Outcome,
    bench_env::{BenchEnv, REGISTER},
    measure::{grouped, once, ratio},
    place::Places,
    table::{Table, verdict},
};

const ROUNDS: usize = 5;
/// Messages of a round, and how many of them say something new.
const MESSAGES: usize = 10_000;
const NEW: usize = 2_000;
const SHARE_MIN: f64 = 0.4;

const CONTENT: &str = "insert into contents (id, tenant_id, digest, body, created_at) values (?1, ?2, ?3, ?4, ?5)";
const NUMBER: &str = "insert into content_words (tenant_id, content_id) values (?1, ?2)";
const WORDS: &str =
    "insert into content_index (rowid, words) select number, ?2 from content_words where content_id = ?1";
const MESSAGE: &str = "insert into messages (id, tenant_id, content_id, from_actor_kind, from_actor_id, from_run_id, created_at, role_id, status, tags) values (?1, ?2, ?3, 'agent', ?4, ?5, ?6, ?7, 'ingested', ?8)";
const TOUCH: &str = "insert into run_resources (tenant_id, id, run_id, resource_type, resource_id, action_type, display_path, first_at, last_at, times)
     values (?1, ?2, ?3, 'message', ?4, 'send', ?5, ?6, ?6, 1)
     on conflict (run_id, resource_type, resource_id, action_type) do update set last_at = excluded.last_at, times = run_resources.times + 1";
const EVENT: &str = "insert into events (tenant_id, created_at, actor_kind, actor_id, run_id, request_id, action, subject_kind, subject_id, subject_path)
     values (?1, ?2, 'agent', ?3, ?4, ?5, 'send_message', 'message', ?6, ?7)";

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a rate is positive and far below 2^53")]
pub fn rate(messages: usize, took: Duration) -> usize {
    (messages as f64 / took.as_secs_f64()) as usize
}

/// A body with what is stored of it, made before the clock runs.
#[derive(Debug)]
struct Ready {
    id: Uuid,
    digest: Vec<u8>,
    body: String,
    words: String,
}

/// The bodies of a round: new ones, each sent five times.
fn bodies(round: usize) -> Vec<String> {
    (0..NEW).map(|number| body((round * NEW + number) as u64)).collect()
}

pub fn measure(places: &Places) -> Outcome<()> {
    println!(
        "\nMessages sent per second in a run on SQLite, median of {ROUNDS} rounds in turn, each side in a database of its own: {} messages, {} different new bodies. A message is a message, a registry entry, a touch and an event, and for a new body the body, its number and its words. Bare: the same rows by prepared statements in the same transactions, with digests and words made beforehand, and no question asked. Target: at least 0.4 of bare.",
        grouped(MESSAGES),
        grouped(NEW),
    );
    let mut table = Table::new(["per transaction", "bare per s", "trackway per s", "trackway / bare", "met"]);
    for batch in [100, 1_000] {
        let bare_house = BenchEnv::found(places.database(Engine::Sqlite, "send-bare")?)?;
        let env = BenchEnv::found(places.database(Engine::Sqlite, "send")?)?;
        let (bare_run, run) = (bare_house.run()?, env.run()?);
        let role = bare_house.named("roles", "name", "builder")?;
        let mut connection = bare_house.database.connection()?;
        let (mut bare_took, mut ours_took) = (Vec::new(), Vec::new());
        // The first round warms up.
        for round in 0..=ROUNDS {
            let bodies = bodies(round);
            let ready: Vec<Ready> = bodies.iter().map(|body| Ready::of(body)).collect();
            let messages: Vec<SendMessage> = (0..MESSAGES)
                .map(|number| serde_json::from_value(json!({ "body": bodies[number % NEW] })))
                .collect::<Result<_, _>>()?;
            let (bare, ()) = once(|| write_bare(&mut connection, &bare_run, role, &ready, batch))?;
            let (ours, ()) = once(|| {
                messages.chunks(batch).try_for_each(|batch| Ok(env.core.execute_all(&run, batch).map(drop)?))
            })?;
            if round > 0 {
                bare_took.push(bare);
                ours_took.push(ours);
            }
        }
        let (bare, ours) = (median(bare_took), median(ours_took));
        let share = 1.0 / ratio(ours, bare);
        table.row([
            batch.to_string(),
            grouped(rate(MESSAGES, bare)),
            grouped(rate(MESSAGES, ours)),
            format!("{share:.2}"),
            verdict(share >= SHARE_MIN),
        ]);
    }
    table.print();
    Ok(())
}

fn median(mut durations: Vec<Duration>) -> Duration {
    durations.sort_unstable();
    durations.get(durations.len() / 2).copied().unwrap_or_default()
}

impl Ready {
    fn of(body: &str) -> Self {
        let mut words = String::new();
        each_indexed_word(body, |word| {
            words.push_str(word.folded);
            words.push(' ');
            ControlFlow::Continue(())
        });
        let digest = Sha256::digest(body.as_bytes()).to_vec();
        Self { id: Id::<kind::Message>::new(Clock::system().now()).uuid(), digest, body: body.to_owned(), words }
    }
}

fn write_bare(connection: &mut Connection, run: &Context, role: Uuid, bodies: &[Ready], batch: usize) -> Outcome<()> {
    let (tenant, actor, run_id) = (run.tenant, run.actor.id(), run.run);
    let tags: Vec<String> = Vec::new();
    let numbers: Vec<usize> = (0..MESSAGES).collect();
    let mut write = |sql: &str, values: &[Param<'_>]| connection.execute(sql, values).map(drop);
    for batch in numbers.chunks(batch) {
        write("begin immediate", &[])?;
        for number in batch {
            let now = Clock::system().now();
            let content = &bodies[number % NEW];
            if *number < NEW {
                write(CONTENT, params![content.id, tenant, content.digest, content.body, now])?;
                write(NUMBER, params![tenant, content.id])?;
                write(WORDS, params![content.id, content.words])?;
            }
            let id = Id::<kind::Message>::new(now).uuid();
            let path = format!("messages/{}", ids::suffix(id, 8));
            write(MESSAGE, params![id, tenant, content.id, actor, run_id, now, role, tags])?;
            let nothing: Option<Uuid> = None;
            write(REGISTER, params![tenant, id, *"message", nothing, path, ids::short_key(id), actor, now])?;
            write(TOUCH, params![tenant, Id::<kind::Run>::new(now), run_id, id, path, now])?;
            write(EVENT, params![tenant, now, actor, run_id, Uuid::now_v7(), id, path])?;
        }
        write("commit", &[])?;
    }
    Ok(())
}

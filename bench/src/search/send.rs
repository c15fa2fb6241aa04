//! Sending messages in batches, compared with bare SQL that inserts the same rows.

use std::{ops::ControlFlow, time::Duration};

use serde_json::json;
use sha2::{Digest, Sha256};
use trackway_actions::{Context, message::SendMessage};
use trackway_domain::{Id, ids, kind, search_words::each_indexed_word};
use trackway_store::{Clock, Engine, connection::Connection, params, sql::Param};
use uuid::Uuid;

use super::bodies::body;
use crate::{
    BenchResult,
    bench_env::{BenchEnv, INSERT_REGISTRY_ENTRY},
    databases::Databases,
    measure::{format_count, ratio, time_once},
    table::{Table, verdict},
};

const ROUNDS: usize = 5;
/// Messages of a round, and the number of new bodies among them.
const MESSAGES: usize = 10_000;
const NEW_BODIES: usize = 2_000;
const SHARE_MIN: f64 = 0.4;

const INSERT_CONTENT: &str =
    "insert into contents (id, tenant_id, digest, body, created_at) values (?1, ?2, ?3, ?4, ?5)";
const INSERT_CONTENT_NUMBER: &str = "insert into content_words (tenant_id, content_id) values (?1, ?2)";
const INSERT_WORDS: &str =
    "insert into content_index (rowid, words) select number, ?2 from content_words where content_id = ?1";
const INSERT_MESSAGE: &str = "insert into messages (id, tenant_id, content_id, from_actor_kind, from_actor_id, from_run_id, created_at, role_id, status, tags) values (?1, ?2, ?3, 'agent', ?4, ?5, ?6, ?7, 'ingested', ?8)";
const INSERT_TOUCH: &str = "insert into run_resources (tenant_id, id, run_id, resource_type, resource_id, action_type, display_path, first_at, last_at, times)
     values (?1, ?2, ?3, 'message', ?4, 'send', ?5, ?6, ?6, 1)
     on conflict (run_id, resource_type, resource_id, action_type) do update set last_at = excluded.last_at, times = run_resources.times + 1";
const INSERT_EVENT: &str = "insert into events (tenant_id, created_at, actor_kind, actor_id, run_id, request_id, action, subject_kind, subject_id, subject_path)
     values (?1, ?2, 'agent', ?3, ?4, ?5, 'send_message', 'message', ?6, ?7)";

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a rate is positive and far below 2^53")]
pub fn rate(messages: usize, elapsed: Duration) -> usize {
    (messages as f64 / elapsed.as_secs_f64()) as usize
}

/// A body with its digest and index words, prepared before the measurement starts.
#[derive(Debug)]
struct PreparedBody {
    id: Uuid,
    digest: Vec<u8>,
    body: String,
    words: String,
}

/// The new bodies of a round. Each is sent five times.
fn bodies(round: usize) -> Vec<String> {
    (0..NEW_BODIES).map(|number| body((round * NEW_BODIES + number) as u64)).collect()
}

pub fn measure(databases: &Databases) -> BenchResult<()> {
    println!(
        "\nMessages sent per second in a run on SQLite, median of {ROUNDS} alternating rounds, each side in a separate \
         database: {} messages per round with {} different new bodies. A message writes a message, a registry entry, a \
         touch and an event, and for a new body the body, its number and its words. \"bare\" writes the same rows with \
         prepared statements in the same transactions; digests and words are computed beforehand, and it authorises \
         nothing and looks up no names. Target: at least 0.4 of bare.",
        format_count(MESSAGES),
        format_count(NEW_BODIES),
    );
    let mut table = Table::new(["per transaction", "bare per s", "trackway per s", "trackway / bare", "met"]);
    for batch in [100, 1_000] {
        let bare_env = BenchEnv::create(databases.create(Engine::Sqlite, "send-bare")?)?;
        let env = BenchEnv::create(databases.create(Engine::Sqlite, "send")?)?;
        let (bare_run, run) = (bare_env.run()?, env.run()?);
        let role = bare_env.id_of("roles", "name", "builder")?;
        let mut connection = bare_env.database.connection()?;
        let (mut bare_times, mut trackway_times) = (Vec::new(), Vec::new());
        // The first round is a warm-up.
        for round in 0..=ROUNDS {
            let bodies = bodies(round);
            let ready: Vec<PreparedBody> = bodies.iter().map(|body| PreparedBody::of(body)).collect();
            let messages: Vec<SendMessage> = (0..MESSAGES)
                .map(|number| serde_json::from_value(json!({ "body": bodies[number % NEW_BODIES] })))
                .collect::<Result<_, _>>()?;
            let (bare, ()) = time_once(|| write_bare(&mut connection, &bare_run, role, &ready, batch))?;
            let (trackway, ()) = time_once(|| {
                messages.chunks(batch).try_for_each(|batch| Ok(env.core.execute_all(&run, batch).map(drop)?))
            })?;
            if round > 0 {
                bare_times.push(bare);
                trackway_times.push(trackway);
            }
        }
        let (bare, trackway) = (median(bare_times), median(trackway_times));
        let share = 1.0 / ratio(trackway, bare);
        table.row([
            batch.to_string(),
            format_count(rate(MESSAGES, bare)),
            format_count(rate(MESSAGES, trackway)),
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

impl PreparedBody {
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

fn write_bare(
    connection: &mut Connection,
    run: &Context,
    role: Uuid,
    bodies: &[PreparedBody],
    batch: usize,
) -> BenchResult<()> {
    let (tenant, actor, run_id) = (run.tenant, run.actor.id(), run.run);
    let tags: Vec<String> = Vec::new();
    let numbers: Vec<usize> = (0..MESSAGES).collect();
    let mut write = |sql: &str, values: &[Param<'_>]| connection.execute(sql, values).map(drop);
    for batch in numbers.chunks(batch) {
        write("begin immediate", &[])?;
        for number in batch {
            let now = Clock::system().now();
            let content = &bodies[number % NEW_BODIES];
            if *number < NEW_BODIES {
                write(INSERT_CONTENT, params![content.id, tenant, content.digest, content.body, now])?;
                write(INSERT_CONTENT_NUMBER, params![tenant, content.id])?;
                write(INSERT_WORDS, params![content.id, content.words])?;
            }
            let id = Id::<kind::Message>::new(now).uuid();
            let path = format!("messages/{}", ids::suffix(id, 8));
            write(INSERT_MESSAGE, params![id, tenant, content.id, actor, run_id, now, role, tags])?;
            let nothing: Option<Uuid> = None;
            write(
                INSERT_REGISTRY_ENTRY,
                params![tenant, id, *"message", nothing, path, ids::short_key(id), actor, now],
            )?;
            write(INSERT_TOUCH, params![tenant, Id::<kind::Run>::new(now), run_id, id, path, now])?;
            write(INSERT_EVENT, params![tenant, now, actor, run_id, Uuid::now_v7(), id, path])?;
        }
        write("commit", &[])?;
    }
    Ok(())
}

//! The rows that an action writes, without the action.

use trackway_actions::Context;
use trackway_domain::{Id, Time, ids, kind};
use trackway_store::{
    Clock,
    sql::{Param, ToParam},
};
use uuid::Uuid;

use crate::{
    BenchResult,
    bench_env::{BenchEnv, INSERT_REGISTRY_ENTRY},
};

pub const STUDIO: &str = "main";
pub const TITLE: &str = "Findings on the way";
pub const BODY: &str = "The build fails when the cache is cold: the index is read before it is written. Waiting for the \
    writer fixes it. Measured on both engines; the second run is not affected. Left for later: the same pattern in the \
    importer, which nobody has seen fail yet.";

/// An option of a decision for which a vote is cast.
#[derive(Debug, Clone)]
pub struct Ballot {
    pub decision: Id<kind::Decision>,
    pub option: Id<kind::DecisionOption>,
    pub title: String,
}

/// The tenant, the studio, the actor and the run of the rows.
#[derive(Debug, Clone, Copy)]
pub struct RowContext {
    tenant: Uuid,
    studio: Uuid,
    actor: Uuid,
    run: Uuid,
}

impl RowContext {
    pub fn new(env: &BenchEnv, context: &Context) -> BenchResult<Self> {
        Ok(Self {
            tenant: context.tenant.uuid(),
            studio: env.id_of("studios", "name", STUDIO)?,
            actor: context.actor.id(),
            run: context.run.ok_or("a writer needs a run")?.uuid(),
        })
    }
}

/// Identifies one of the prepared statements.
#[derive(Debug, Clone, Copy)]
pub enum Insert {
    Note,
    NoteRevision,
    Vote,
    Registry,
    Touch,
    Event,
}

/// The SQL of each [`Insert`], in the order of the variants.
pub const INSERTS: [&str; 6] = [
    "insert into notes (id, tenant_id, studio_id, title, body, revision, pinned, created_at, updated_at) values (?1, \
     ?2, ?3, ?4, ?5, 1, ?6, ?7, ?7)",
    "insert into note_revisions (note_id, tenant_id, number, title, body, actor_kind, actor_id, run_id, created_at) \
     values (?1, ?2, 1, ?3, ?4, 'agent', ?5, ?6, ?7)",
    "insert into votes (id, tenant_id, option_id, actor_kind, actor_id, accepted, preferred, created_at, updated_at) \
     values (?1, ?2, ?3, 'agent', ?4, ?5, ?6, ?7, ?7)",
    INSERT_REGISTRY_ENTRY,
    "insert into run_resources (tenant_id, id, run_id, resource_type, resource_id, resource_studio_id, action_type, display_path, first_at, last_at, times)
     values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?9, 1)
     on conflict (run_id, resource_type, resource_id, action_type)
     do update set last_at = excluded.last_at, display_path = excluded.display_path, times = run_resources.times + 1",
    "insert into events (tenant_id, created_at, actor_kind, actor_id, run_id, request_id, action, subject_kind, subject_id, subject_path)
     values (?1, ?2, 'agent', ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
];

/// A row: the statement that inserts it, and its parameters.
pub type Row<'a> = (Insert, Vec<Param<'a>>);

macro_rules! owned_params {
    ($($value:expr),* $(,)?) => { vec![$(owned_param(&$value)),*] };
}

fn owned_param<T: ToParam + ?Sized>(value: &T) -> Param<'static> {
    value.to_param().into_owned()
}

pub fn note_rows(row_context: RowContext) -> Vec<Row<'static>> {
    let now = Clock::system().now();
    let id = Id::<kind::Note>::new(now).uuid();
    let path = format!("{STUDIO}/notes/{TITLE}");
    let mut rows = vec![
        (Insert::Note, owned_params![id, row_context.tenant, row_context.studio, *TITLE, *BODY, false, now]),
        (
            Insert::NoteRevision,
            owned_params![id, row_context.tenant, *TITLE, *BODY, row_context.actor, row_context.run, now],
        ),
    ];
    rows.extend(touch_rows(row_context, now, id, "note", "create", "create_note", &path));
    rows
}

/// The rows of an actor's first vote on an option.
pub fn vote_rows(row_context: RowContext, ballot: &Ballot) -> Vec<Row<'static>> {
    let now = Clock::system().now();
    let id = Id::<kind::Vote>::new(now).uuid();
    let path = format!("{STUDIO}/decisions/Which way?/{}", ballot.title);
    let mut rows =
        vec![(Insert::Vote, owned_params![id, row_context.tenant, ballot.option, row_context.actor, true, false, now])];
    rows.extend(touch_rows(row_context, now, id, "vote", "vote", "vote", &path));
    rows
}

fn touch_rows(
    row_context: RowContext,
    now: Time,
    id: Uuid,
    kind: &str,
    action_type: &str,
    action: &str,
    path: &str,
) -> [Row<'static>; 3] {
    let touch = Id::<kind::Run>::new(now).uuid();
    [
        (
            Insert::Registry,
            owned_params![
                row_context.tenant,
                id,
                *kind,
                row_context.studio,
                *path,
                ids::short_key(id),
                row_context.actor,
                now
            ],
        ),
        (
            Insert::Touch,
            owned_params![
                row_context.tenant,
                touch,
                row_context.run,
                *kind,
                id,
                row_context.studio,
                *action_type,
                *path,
                now
            ],
        ),
        (
            Insert::Event,
            owned_params![
                row_context.tenant,
                now,
                row_context.actor,
                row_context.run,
                Uuid::now_v7(),
                *action,
                *kind,
                id,
                *path
            ],
        ),
    ]
}
